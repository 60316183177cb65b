"""NumPy's rules for a call of a generalized ufunc, applied before anything runs.

:func:`resolve_product` calls NumPy's ufunc on stand-ins, so rules and refusals are NumPy's own:

* Types: operands of shape (1, 1) with the true dtypes.
* Shapes: one ``object`` element with stride 0 for every operand. NumPy casts inputs after all
  checks and before it multiplies; the element's conversion raises: NumPy has accepted the call.
* Order of the result: true strides, extents of at most 2 and K = 0, so that nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_letters
from typing import Any, TypedDict

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.stride_tricks import as_strided

from ..engines.dispatch import NOTHING, ByName
from ..engines.memory import Ints, Memory, contiguous_strides, is_contiguous, shadow
from .expressions import Expression, Term, letter
from .signatures import Casting, Order

UFUNCS = frozenset({"matmul", "matvec", "vecdot",
                    "vecmat"}) if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else frozenset()
"""Functions that take ``out=...`` for an array instead of a scalar."""


_CORE_RANKS = {"matmul": (2, 2), "vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}     # at most
_CONJUGATING = "vecdot", "vecmat"                               # the first operand
_SHAPE_ARGUMENTS = frozenset({"axes", "axis", "keepdims"})
_TYPE_ARGUMENTS = frozenset({"casting", "dtype", "sig", "signature"})


class MatmulArguments(TypedDict, total=False):
    axes: list[int | Ints]
    axis: int
    keepdims: bool
    casting: Casting
    order: Order | None
    dtype: Any
    subok: bool
    signature: Any


@dataclass(frozen=True)
class Product(Expression):
    """A product of matrices or vectors that NumPy accepts. Its indices are "m", "k" and "n", as far
    as operands have them, and those of the batch; ``dtype`` is that of the loop."""

    @property
    def products(self) -> int:
        return prod(self.extents.values())

    @property
    def batch(self) -> Ints:
        return tuple(n for c, n in self.extents.items() if c not in "mkn")

    @cached_property
    def cores(self) -> Sequence[tuple[int | None, int | None]]:
        """The axes of rows and columns of operands and result; ``None`` where a vector lacks it."""
        every = *(term.axes for term in self.terms), self.axes
        return [tuple(axes.index(c) if c in axes else None for c in core)  # type: ignore[misc]
                for axes, core in zip(every, ("mk", "kn", "mn"), strict=True)]

    def matrices(self, x1: Any, x2: Any, result: Any) -> tuple[Any, Any, Any]:
        """Views of shape (..., rows, columns); a vector has an axis of extent 1."""
        a, b, c = map(_matrices, (x1, x2, result), self.cores)
        return a, b, c

    def over_result(self, x: Any) -> Any:
        """A matrix view of an array that has the axes of the result."""
        return _matrices(x, self.cores[-1])


class _Accepted(Exception):
    """NumPy began to cast the inputs: it has no objection."""


class _Witness:
    """An element that cannot be read."""

    def __int__(self) -> int:
        raise _Accepted

    __index__ = __int__


_WITNESS = np.empty(1, object)
_WITNESS[0] = _Witness()
_SCRATCH = np.zeros(1, np.int8)
_LARGE = 1 << 24                        # elements


def resolve_product(x1: Memory, x2: Memory, out: Memory | None = None,
                    arguments: ByName = NOTHING, ufunc: Any = np.matmul) -> Product:
    """The product of NumPy's ``matmul``, ``vecdot``, ``matvec`` or ``vecmat``."""
    dtype = _resolve_dtype(x1, x2, out, arguments, ufunc)
    _check_shapes(x1, x2, out, arguments, ufunc)

    core1, core2, core3 = _core_axes(x1, x2, out, arguments, ufunc)
    batch = np.broadcast_shapes(_without(x1.shape, core1), _without(x2.shape, core2))
    rank = len(batch) + len(core3) if out is None else len(out.shape)
    core3 = normalize_axis_tuple(core3, rank)
    if out is not None:
        wider = _without(out.shape, core3)
        batch = (1,) * (len(batch) - len(wider)) + wider  # NumPy lets ``out`` lack axes of extent 1
    letters = [letter(len(ascii_letters) + i) for i in range(len(batch))]

    def axes(rank: int, named: Mapping[int, str]) -> tuple[str, ...]:
        rest = iter(letters[len(letters) + len(named) - rank:])
        return tuple(named[axis] if axis in named else next(rest) for axis in range(rank))

    first, second = (dict(zip(core, named, strict=False))
                     for core, named in ((core1[::-1], "km"), (core2, "kn")))
    extents = {c: x.shape[axis] for x, core in ((x1, first), (x2, second))
               for axis, c in core.items()} | dict(zip(letters, batch, strict=True))
    core = "m" * (len(core1) - 1) + "n" * (len(core2) - 1)
    # keepdims: an axis without an index
    result = axes(rank, dict(zip(core3, core or ("",) * len(core3), strict=True)))
    shape = tuple(prod(extents[c] for c in axis) for axis in result)
    strides = contiguous_strides(shape, dtype.itemsize,
                                 _order_of_axes(x1, x2, core1, core2, arguments, ufunc)) \
        if out is None else out.strides
    terms = (Term(axes(len(x1.shape), first), ufunc.__name__ in _CONJUGATING),
             Term(axes(len(x2.shape), second)))
    return Product(terms, result, extents, dtype, shape, strides, scalar=out is None)


def single_out(out: Any) -> Any:
    """``out`` without the 1-tuple that ufuncs allow around it."""
    if isinstance(out, tuple):
        if len(out) != 1:
            let_numpy_refuse(out)
        return out[0]
    return out


def let_numpy_refuse(out: Any) -> None:
    np.matmul(np.zeros((1, 1)), np.zeros((1, 1)), out=out)


def _resolve_dtype(x1: Memory, x2: Memory, out: Memory | None, arguments: ByName,
                   ufunc: Any) -> np.dtype:
    operands = [np.zeros((1, 1), x.dtype) for x in (x1, x2)]
    typed = {name: value for name, value in arguments.items() if name not in _SHAPE_ARGUMENTS
             or _malformed(name, arguments)}
    if out is not None:                     # whether it can be written is NumPy's first question
        result = np.zeros((1, 1), out.dtype)
        result.flags.writeable = out.writeable
        ufunc(*operands, out=result, **typed)
    return ufunc(*operands, **typed).dtype


def _malformed(name: str, arguments: ByName) -> bool:
    """Whether NumPy refuses an argument about shapes before it looks at types."""
    return not isinstance(arguments[name], bool) if name == "keepdims" else {"axes", "axis"} <= arguments.keys()


def _check_shapes(x1: Memory, x2: Memory, out: Memory | None, arguments: ByName,
                  ufunc: Any) -> None:
    shaped = {name: value for name, value in arguments.items() if name not in _TYPE_ARGUMENTS}
    shapes = [x.shape for x in (x1, x2, out) if x is not None]

    def called(first: Ints, second: Ints, *result: Ints) -> None:
        operands = (_one_element(_WITNESS, shape) for shape in (first, second))
        with suppress(_Accepted):
            ufunc(*operands, out=_one_element(_SCRATCH, result[0]) if result else None,
                  dtype=np.int8, casting="unsafe", **shaped)

    if max(map(prod, shapes)) > _LARGE:
        with suppress(TypeError, ValueError):       # its words are about the true extents
            called(*_small(shapes))
            return
    called(*shapes)


def _small(shapes: list[Ints]) -> list[Ints]:
    """Small shapes with the same equalities: NumPy asks for memory before the cast raises."""
    ranks = {extent: rank for rank, extent in enumerate(sorted({n for shape in shapes for n in shape
                                                                if n > 1}), 2)}
    return [tuple(ranks.get(n, n) for n in shape) for shape in shapes]


def _one_element(element: np.ndarray, shape: Ints) -> np.ndarray:
    return as_strided(element, shape, (0,) * len(shape))


def _core_axes(x1: Memory, x2: Memory, out: Memory | None, arguments: ByName,
               ufunc: Any) -> tuple[Ints, Ints, Ints]:
    """Core axes of inputs and result as given. With too few axes in ``out``, NumPy reads the first
    operand as a vector, then the second."""
    ranks = len(x1.shape), len(x2.shape)
    kept = 1 if arguments.get("keepdims") else 0
    if arguments.get("axes") is not None:
        named = [axis if isinstance(axis, tuple) else (axis,) for axis in arguments["axes"]]
        named += [(-1,) * kept] * (3 - len(named))
    elif arguments.get("axis") is not None:
        named = [(arguments["axis"],)] * (2 + kept) + [()] * (1 - kept)
    else:
        cores = [min(rank, most) for rank, most in zip(ranks, _CORE_RANKS[ufunc.__name__],
                                                       strict=True)]
        if ufunc is np.matmul and out is not None:
            for i in (0, 1):
                if cores[i] == 2 and len(out.shape) < sum(cores) - 2:
                    cores[i] = 1
        named = [tuple(range(-core, 0)) for core in (*cores, sum(cores) - 2 + kept)]
    first, second = map(normalize_axis_tuple, named, ranks)
    return first, second, named[2]


def _without(values: Ints, axes: Ints) -> Ints:
    return tuple(value for axis, value in enumerate(values) if axis not in axes)


def _order_of_axes(x1: Memory, x2: Memory, core1: Ints, core2: Ints,
                   arguments: ByName, ufunc: Any) -> list[int]:
    """Axes of the result in the order, outermost first, in which NumPy lays them out in memory."""
    order = arguments.get("order", "K")
    # empty arrays are contiguous in both orders, so this question needs the true shapes
    if order in ("A", "a"):
        order = "F" if is_contiguous(x1, "F") and is_contiguous(x2, "F") else "C"
    named = {name: arguments[name] for name in _SHAPE_ARGUMENTS if arguments.get(name) is not None}
    result = ufunc(_shadow(x1, core1[-1]), _shadow(x2, core2[0]), order=order, **named)
    return sorted(range(result.ndim), key=lambda axis: (-result.strides[axis],
                                                        result.shape[axis] == 1))


def _shadow(x: Memory, k: int) -> np.ndarray:
    return shadow(tuple(0 if axis == k else min(extent, 2) for axis, extent in enumerate(x.shape)),
                  x.strides)


def _matrices(x: Any, core: tuple[int | None, int | None]) -> Any:
    rows, columns = core
    view = x.transpose((*(axis for axis in range(x.ndim) if axis not in core),
                        *(axis for axis in core if axis is not None)))
    if columns is None:
        view = view[..., None]
    return view[..., None, :] if rows is None else view
