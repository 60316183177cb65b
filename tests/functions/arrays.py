"""Arrays of every kind of strides, filled with small integers, whose products are exact in every
type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

LAYOUTS = ("C", "F", "sliced", "negative", "permuted", "broadcast", "offset", "field")
DTYPES = ("?", "b", "h", "i", "l", "q", "B", "H", "I", "L", "Q", "e", "f", "d", "F", "D")


def laid_out(shape: tuple[int, ...], dtype: object, layout: str, seed: int = 0) -> np.ndarray:
    """An array of that shape and type whose strides are of that kind."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)

    def fill(extents: tuple[int, ...]) -> np.ndarray:
        if dtype.kind in "SUV":
            return rng.integers(1, 100, (*extents,
                                         dtype.itemsize // 4 if dtype.kind == "U"
                                         else dtype.itemsize),
                                np.uint32 if dtype.kind == "U" else np.uint8).view(dtype)[..., 0]
        values = rng.integers(0, 2 if dtype.kind == "b" else 4, extents)
        return np.asarray(values + (1j * rng.integers(0, 3, extents) if dtype.kind == "c"
                                    else 0)).astype(dtype)

    rank = len(shape)
    if layout == "F":
        return np.array(fill(shape), order="F")
    if layout == "sliced":
        return fill(tuple(2 * n + 3 for n in shape))[(*(slice(1, 1 + 2 * n, 2) for n in shape),
                                                      ...)]
    if layout == "negative":
        return fill(shape)[(*(slice(None, None, -1),) * rank, ...)]
    if layout == "permuted":
        axes = tuple(int(axis) for axis in rng.permutation(rank))
        return fill(tuple(shape[axis] for axis in axes)).transpose(np.argsort(axes))
    if layout == "broadcast":
        return np.broadcast_to(fill(tuple(1 if rng.random() < 0.5 else n for n in shape)), shape)
    if layout == "offset":
        unaligned = np.zeros(int(np.prod(shape)) * dtype.itemsize + 1,
                             np.uint8)[1:].view(dtype).reshape(shape)
        unaligned[...] = fill(shape)
        return unaligned
    if layout == "field":
        packed = np.zeros(shape, np.dtype([("element", dtype), ("other", "u1")]))
        packed["element"] = fill(shape)
        return packed["element"]
    return fill(shape)


def small_arrays(draw: Callable, shape: tuple[int, ...], dtypes: tuple[str, ...] = DTYPES,
                 writeable: bool = False) -> np.ndarray:
    """A drawn array of that shape."""
    layouts = [name for name in LAYOUTS if not (writeable and name == "broadcast")]
    return laid_out(shape, draw(st.sampled_from(dtypes)), draw(st.sampled_from(layouts)),
                    draw(st.integers(0, 99)))
