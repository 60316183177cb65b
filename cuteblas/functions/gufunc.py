"""NumPy's rules for a call of a generalized ufunc, applied before anything runs.

:func:`resolve_product` calls NumPy's ufunc on stand-ins, so rules and refusals are NumPy's own: on
operands with the true types and strides, of extents of at most 2 and K = 0, so that nothing is
read; on all of the shapes only to be refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_letters
from typing import Any, TypedDict

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..engines.dispatch import ByName
from ..engines.memory import Ints, Memory, contiguous_strides, is_contiguous
from .expressions import Expression, Term, letter, stand_in
from .signatures import Casting, Order

UFUNCS = frozenset({"matmul", "matvec", "vecdot",
                    "vecmat"}) if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else frozenset()
"""Functions that take ``out=...`` for an array instead of a scalar."""


_CORE_RANKS = {"vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}
_CONJUGATING = "vecdot", "vecmat"                               # the first operand
_SHAPE_ARGUMENTS = frozenset({"axes", "axis", "keepdims"})


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
    """A ``matmul`` that NumPy accepts. Its indices are "m", "k" and "n", as far as operands have
    them, and those of the batch; ``dtype`` is that of the loop."""

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


def resolve_product(x1: Memory, x2: Memory, out: Memory | None = None,
                    ufunc: Any = np.matmul, **arguments: Any) -> Any:
    """The :class:`Product` of NumPy's ``matmul``, the expression of ``vecdot``, ``matvec`` or
    ``vecmat``."""
    kind = Product if ufunc is np.matmul else Expression
    try:
        terms, axes, extents, shape = _indices(x1, x2, out, arguments, ufunc)
    except (IndexError, TypeError, ValueError):
        ufunc(*(stand_in(x) for x in (x1, x2, out) if x is not None), **arguments)
        raise
    small = [stand_in(x, tuple(0 if c == "k" else min(n, 2) for n, c in zip(
        x.shape, term.axes, strict=True)), x.strides)
             for x, term in zip((x1, x2), terms, strict=True)]
    if out is not None:
        ufunc(*small, stand_in(out, tuple(min(n, 2) for n in out.shape)), **arguments)
        typed = {name: x for name, x in arguments.items() if name not in _SHAPE_ARGUMENTS}
        dtype = ufunc(*(np.zeros((1, 1), x.dtype) for x in (x1, x2)), **typed).dtype
        return kind(terms, axes, extents, dtype, shape, out.strides, scalar=False)
    order = arguments.get("order", "K")
    # empty arrays are contiguous in both orders
    if order in ("A", "a"):
        order = "F" if is_contiguous(x1, "F") and is_contiguous(x2, "F") else "C"
    new = ufunc(*small, out=..., **{**arguments, "order": order})
    outermost_first = sorted(range(new.ndim),
                             key=lambda axis: (-new.strides[axis], new.shape[axis] == 1))
    return kind(terms, axes, extents, new.dtype, shape,
                contiguous_strides(shape, new.dtype.itemsize, outermost_first))


def single_out(out: Any) -> Any:
    """``out`` without the 1-tuple that ufuncs allow around it."""
    if isinstance(out, tuple):
        if len(out) != 1:
            let_numpy_refuse(out)
        return out[0]
    return out


def let_numpy_refuse(out: Any) -> None:
    np.matmul(np.zeros((1, 1)), np.zeros((1, 1)), out=out)


def _indices(x1: Memory, x2: Memory, out: Memory | None, arguments: ByName, ufunc: Any,
             ) -> tuple[tuple[Term, Term], tuple[str, ...], dict[str, int], Ints]:
    """Indices of operands and result, extents, and the shape; an error if arrays do not fit."""
    core1, core2, core3 = _core_axes(x1, x2, out, arguments, ufunc)
    batch = np.broadcast_shapes(_without(x1.shape, core1), _without(x2.shape, core2))
    rank = len(batch) + len(core3) if out is None else len(out.shape)
    core3 = normalize_axis_tuple(core3, rank)
    if out is not None:                     # which may lack axes of extent 1
        wider = _without(out.shape, core3)
        wider = (1,) * (len(batch) - len(wider)) + wider
        if np.broadcast_shapes(batch, wider) != wider:
            raise ValueError
        batch = wider
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
    if x1.shape[core1[-1]] != x2.shape[core2[0]] or (out is not None and out.shape != shape):
        raise ValueError
    terms = (Term(axes(len(x1.shape), first), ufunc.__name__ in _CONJUGATING),
             Term(axes(len(x2.shape), second)))
    return terms, result, extents, shape


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
        cores = [*_CORE_RANKS.get(ufunc.__name__, (min(rank, 2) for rank in ranks))]
        for i in (0, 1):
            if ufunc is np.matmul and out is not None and cores[i] == 2 \
                    and len(out.shape) < sum(cores) - 2:
                cores[i] = 1
        named = [tuple(range(-core, 0)) for core in (*cores, sum(cores) - 2 + kept)]
    first, second = map(normalize_axis_tuple, named, ranks)
    return first, second, named[2]


def _without(values: Ints, axes: Ints) -> Ints:
    return tuple(value for axis, value in enumerate(values) if axis not in axes)


def _matrices(x: Any, core: tuple[int | None, int | None]) -> Any:
    rows, columns = core
    view = x.transpose((*(axis for axis in range(x.ndim) if axis not in core),
                        *(axis for axis in core if axis is not None)))
    if columns is None:
        view = view[..., None]
    return view[..., None, :] if rows is None else view
