"""Arrays of random elements to measure on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..blas.types import dtype_named, kind_of_numbers
from ..engines.memory import Memory
from ..functions.gemm import new_matrices

ADDRESS_BYTES = 16
"""The remainder of an address by this is kept."""

_PERIOD = (1 << 20) - 3                 # elements, then they repeat: a prime number, so rows differ
_TRUE = 0.1                             # of elements of bool


def random_elements(
    dtype: np.dtype, count: int = _PERIOD, seed: int = 0, below: int | None = None
) -> np.ndarray:
    """Normal numbers, integers of all values or from 0 on, or bool of which one in ten is true."""
    rng, kind = np.random.default_rng(seed), kind_of_numbers(dtype)
    if kind == "b":
        return rng.random(count) < _TRUE
    if kind in "iu" and below is None:
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    if kind in "iu":
        return rng.integers(0, below, count).astype(dtype)
    x = rng.standard_normal(count)
    return (x + 1j * rng.standard_normal(count) if kind == "c" else x).astype(dtype)


def random_array_at(xp: Any, place: Memory, base: Any = None, seed: int = 0,
             below: int | None = None) -> Any:
    """An array with random elements, in the memory of another one if it fits there."""
    low, high = place.span
    offset = (place.address + low) % ADDRESS_BYTES
    if base is None or low < 0 or base.nbytes < offset + high:
        nbytes = offset + high - low
        count = min(_PERIOD, -(-nbytes // place.dtype.itemsize))
        elements = random_elements(place.dtype, count, seed, below)
        base = xp.resize(xp.asarray(elements.view(np.uint8)), nbytes)
    if isinstance(base, np.ndarray):
        return np.ndarray(place.shape, place.dtype, base, offset - low, place.strides)
    return xp.ndarray(place.shape, place.dtype, base.data + (offset - low), place.strides)


def random_array(xp: Any, extents: tuple[int, ...], dtype: str, seed: int = 0, order: str = "C",
                 below: int | None = None) -> Any:
    """A gapless array with random elements, the last two axes in C or F order."""
    return random_array_at(xp, new_matrices(extents, dtype_named(dtype), order), None, seed, below)
