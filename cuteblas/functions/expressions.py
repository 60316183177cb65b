"""Sums of products with a letter for every index: what NumPy's products have in common.

An axis may stand for several indices, an index may be on several axes of one operand (a diagonal),
and an axis of extent 1 fits any extent: a matter of strides, so nothing is reshaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from math import prod
from operator import mul
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.stride_tricks import as_strided

from ..engines.dispatch import Func
from ..engines.memory import Ints, Memory, contiguous_strides, is_contiguous, shadow


@dataclass(frozen=True)
class Term:
    """An operand, with the indices of each axis, one letter each, outermost first."""

    axes: tuple[str, ...]
    conj: bool = False


@dataclass(frozen=True)
class Expression:
    """A sum of products that NumPy accepts, over all indices that the result lacks. ``dtype`` is
    that of the products, ``strides`` (bytes) are those of a new result; ``any_order`` lets a GPU
    write it in its fastest order. ``path`` is as in ``numpy.einsum_path``."""

    terms: tuple[Term, ...]
    axes: tuple[str, ...]
    extents: Mapping[str, int]
    dtype: np.dtype
    shape: Ints
    strides: Ints
    scalar: bool = True
    any_order: bool = False
    path: tuple[Ints, ...] = ()

    @property
    def memory(self) -> Memory:
        """A new result."""
        return Memory(self.shape, self.strides, self.dtype)

    @property
    def products(self) -> int:
        terms, result = [{*"".join(term.axes)} for term in self.terms], {*"".join(self.axes)}
        total = 0
        for step in self.path or [tuple(range(len(terms)))]:
            chosen = set[str]().union(*(terms[i] for i in step))
            total += prod(self.extents[c] for c in chosen)
            terms = [term for i, term in enumerate(terms) if i not in step]
            terms.append(chosen & result.union(*terms))
        return total


def expression(terms: Sequence[Term], axes: Sequence[str], extents: Mapping[str, int],
               dtype: np.dtype, scalar: bool = True) -> Expression:
    shape = tuple(prod(extents[c] for c in axis) for axis in axes)
    return Expression(tuple(terms), tuple(axes), extents, dtype, shape,
                      contiguous_strides(shape, dtype.itemsize), scalar)


def letter(i: int) -> str:
    return ascii_letters[i] if i < len(ascii_letters) else chr(0x100 + i)


def stand_in(x: Memory, shape: Ints | None = None, strides: Ints | None = None) -> np.ndarray:
    """An array in which one element stands for all, or without elements and with any strides:
    NumPy resolves a call without data."""
    shape = x.shape if shape is None else shape
    one, strides = np.zeros(1, x.dtype), strides or (0,) * len(shape)
    # each takes types that the other refuses
    new = as_strided(one, shape, strides) if x.dtype.hasobject else np.ndarray(
        shape, x.dtype, one, strides=strides)
    if not x.writeable:
        new.flags.writeable = False
    return new


def common_type(call: Func, *dtypes: np.dtype) -> np.dtype:
    return _common_type(call, dtypes, tuple(dtype.num for dtype in dtypes))


@lru_cache(maxsize=1024)
def _common_type(call: Func, dtypes: tuple[np.dtype, ...],
                 numbers: Ints) -> np.dtype:
    """As above; ``numbers`` tell equal types that differ (``long``, ``longlong``)."""
    return call(*(np.zeros(1, dtype) for dtype in dtypes)).dtype


# -- of NumPy's functions of two arrays ------------------------------------------------------------
Letters = tuple[str, ...]


def _letters(*shapes: Ints) -> Iterator[Letters]:
    start = 0
    for shape in shapes:
        yield tuple(letter(start + i) for i in range(len(shape)))
        start += len(shape)


def _products(a: Memory, b: Memory, first: Letters, second: Letters, result: Sequence[str],
              call: Func, scalar: bool = True) -> Expression:
    """The products of elements with these letters, in the type of the result of ``call``."""
    extents = dict(zip((*first, *second), (*a.shape, *b.shape), strict=True))
    return expression((Term(first), Term(second)), result, extents,
                      common_type(call, a.dtype, b.dtype), scalar)


def _matched(a: Memory, b: Memory, axes: tuple[Sequence[int], Sequence[int]] | None, call: Func,
             scalar: bool = True) -> Expression | None:
    """The sum over pairs of axes; ``None`` if their extents differ."""
    if axes is None:
        return None
    axes_a, axes_b = axes
    if [a.shape[i] for i in axes_a] != [b.shape[i] for i in axes_b]:
        return None
    first, second = _letters(a.shape, b.shape)
    pairs = dict(zip(axes_b, (first[i] for i in axes_a), strict=True))
    second = tuple(pairs.get(i, c) for i, c in enumerate(second))
    rest = [c for axes in (first, second) for c in axes if c not in pairs.values()]
    return _products(a, b, first, second, rest, call, scalar)


def _last_axes(behind: int, a: Any, b: Any) -> tuple[Ints, Ints]:
    """The last axis of ``a`` and one of ``b``; none for the product with a scalar."""
    ranks = len(a.shape), len(b.shape)
    return ((ranks[0] - 1,), (max(ranks[1] - behind, 0),)) if all(ranks) else ((), ())


axes_of_inner, axes_of_dot = partial(_last_axes, 1), partial(_last_axes, 2)


def axes_of_tensordot(a: Any, b: Any, axes: Any) -> tuple[Ints, Ints] | None:
    """As NumPy reads ``axes``; what it cannot read it refuses itself."""
    try:
        axes_a, axes_b = axes
    except TypeError:
        axes_a, axes_b = range(-axes, 0), range(axes)
    named = [[*x] if np.iterable(x) else [x] for x in (axes_a, axes_b)]
    if len(named[0]) != len(named[1]) or any(isinstance(i, bool) for i in chain(*named)):
        return None
    with suppress(TypeError, ValueError):
        first, second = map(normalize_axis_tuple, named, (len(a.shape), len(b.shape)))
        return first, second
    return None


def _by_blas(settled: Expression) -> bool:
    """Whether NumPy gives a product with a scalar to BLAS: rules of ``dot``, not ``multiply``."""
    return settled.dtype.char in "fdFD" and len(settled.shape) < 3


def _scaled(settled: Expression, a: Memory, b: Memory) -> Expression:
    """An expression; a new result of a product with a scalar has the order of the other operand."""
    rank = len(settled.shape)
    if rank < 2 or (a.shape and b.shape):
        return settled
    other = a if a.shape else b
    walk = np.nditer([shadow(tuple(min(n, 2) for n in other.shape), other.strides), None],
                     ["zerosize_ok"], order="K")
    strides = walk.operands[1].strides
    axes = sorted(range(rank), key=lambda axis: -strides[axis])
    return replace(settled, strides=contiguous_strides(settled.shape, settled.dtype.itemsize, axes))


def _fits(settled: Expression, a: Memory, b: Memory, out: Memory) -> bool:
    """Whether ``numpy.multiply`` would write the result to ``out``."""
    try:
        fits = np.broadcast_shapes(settled.shape, out.shape) == out.shape
    except ValueError:
        return False
    if fits:
        np.multiply(stand_in(a, (1,)), stand_in(b, (1,)), out=stand_in(out, (1,)))
    return fits


def _over_last_axes(a: Memory, b: Memory, axes: tuple[Ints, Ints],
                    call: Func) -> Expression | None:
    settled = _matched(a, b, axes, call)
    return settled if settled is None or _by_blas(settled) else _scaled(settled, a, b)


def settle_inner(a: Memory, b: Memory, out: None) -> Expression | None:
    return _over_last_axes(a, b, axes_of_inner(a, b), np.inner)


def settle_dot(a: Memory, b: Memory, out: Memory | None) -> Expression | None:
    settled = _over_last_axes(a, b, axes_of_dot(a, b), np.dot)
    if settled is None or out is None:
        return settled
    if () in (a.shape, b.shape) and not _by_blas(settled):
        return settled if _fits(settled, a, b, out) else None
    if (out.dtype, len(out.shape)) != (settled.dtype, len(settled.shape)) or not (
            is_contiguous(out, "C") and out.writeable and out.aligned):
        raise ValueError(
            "output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array)"
        )
    if out.shape != settled.shape:
        raise ValueError("output array has wrong dimensions")
    return settled


def settle_tensordot(a: Memory, b: Memory, out: None, axes: Any) -> Expression | None:
    return _matched(a, b, axes_of_tensordot(a, b, axes), np.dot, scalar=False)


def settle_vdot(a: Memory, b: Memory, out: None) -> Expression | None:
    axes = common_axes(a.shape, b.shape) if a.size == b.size else None
    if axes is None:
        return None
    first, second, extents = axes
    return expression((Term(first, conj=True), Term(second)), (), extents,
                      common_type(np.vdot, a.dtype, b.dtype))


def common_axes(shape1: Ints, shape2: Ints) -> tuple[Letters, Letters, dict[str, int]] | None:
    """Letters for the axes of two arrays of one size that count elements alike, and their extents:
    (6,) and (2, 3) give (ab,) and (a, b). ``None`` if no extents divide both shapes."""
    if 0 in shape1:
        axes1, axes2 = (tuple("" if n else "a" for n in shape) for shape in (shape1, shape2))
        return axes1, axes2, {"a": 0}
    # the elements from each axis on, and where either shape has a bound
    sizes = [[*accumulate(shape[::-1], mul, initial=1)] for shape in (shape1, shape2)]
    bounds = sorted({*chain(*sizes)})
    if any(n % m for m, n in pairwise(bounds)):
        return None
    letters = {n: letter(i) for i, n in enumerate(bounds[1:])}
    first, second = (tuple("".join(c for n, c in letters.items() if low < n <= high)[::-1]
                           for low, high in pairwise(each))[::-1] for each in sizes)
    return first, second, {letters[n]: n // m for m, n in pairwise(bounds)}


def settle_outer(a: Memory, b: Memory, out: Memory | None) -> Expression | None:
    first, second = _letters(a.shape, b.shape)
    settled = _products(a, b, first, second, ("".join(first), "".join(second)), np.multiply)
    return settled if out is None or _fits(settled, a, b, out) else None


def settle_kron(a: Memory, b: Memory, out: None) -> Expression | None:
    first, second = _letters(a.shape, b.shape)
    rank = max(len(first), len(second))
    blocks = zip(*(("",) * (rank - len(axes)) + axes for axes in (first, second)), strict=True)
    return _scaled(_products(a, b, first, second, ["".join(block) for block in blocks],
                             np.multiply), a, b)
