"""Sums of products with a letter for every index: what NumPy's products have in common.

An axis may stand for several indices, an index may be on several axes of one operand (a diagonal),
and an axis of extent 1 fits any extent: a matter of strides, so nothing is reshaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from string import ascii_letters

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..engines.dispatch import Func
from ..engines.memory import Ints, Memory, contiguous_strides


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


def stand_in(x: Memory, shape: Ints | None = None) -> np.ndarray:
    """An array in which one element stands for all: NumPy resolves a call without data."""
    shape = x.shape if shape is None else shape
    new = as_strided(np.zeros(1, x.dtype), shape, (0,) * len(shape))
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
