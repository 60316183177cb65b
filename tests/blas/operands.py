"""Matrices in every kind of memory, and the definition to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401      NumPy knows bfloat16 by name from here on
import numpy as np

from cuteblas.blas.types import ROUTINES

STORAGES = ("C", "F", "padded", "sliced", "negative")
TRANS = ("N", "T", "C", "R")
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53,
        "complex64": 2.0**-24, "complex128": 2.0**-53}
_POISON = 0xA5


@dataclass(frozen=True)
class Placed:
    """An array somewhere inside a buffer whose other bytes are a pattern."""

    view: np.ndarray
    buffer: np.ndarray

    def surroundings_are_untouched(self) -> bool:
        """Whether all bytes that do not belong to the array still have the pattern."""
        inside = np.zeros(self.buffer.nbytes, bool)
        start = self.view.__array_interface__["data"][0] - self.buffer.ctypes.data
        item = self.view.itemsize
        offsets = np.full(self.view.shape, start)
        for axis, (extent, stride) in enumerate(zip(self.view.shape, self.view.strides,
                                                    strict=True)):
            offsets += (np.arange(extent) * stride).reshape((-1, *(1,)
                                                             * (self.view.ndim - 1 - axis)))
        for byte in range(item):
            inside[offsets + byte] = True
        return bool((self.buffer[~inside] == _POISON).all())


def placed(values: np.ndarray, storage: str) -> Placed:
    """The values in memory of a kind."""
    *batch, m, n = values.shape
    item = values.itemsize
    shape = {"C": (*batch, m, n), "F": (*batch, n, m), "padded": (*batch, n, m + 3),
             "sliced": (*batch, 2 * m + 1, 3 * n + 1), "negative": (*batch, m, n)}[storage]
    nbytes = int(np.prod(shape)) * item
    raw = np.full(nbytes + 128, _POISON, np.uint8)
    start = -raw.ctypes.data % 64 + 32
    whole = raw[start:start + nbytes].view(values.dtype).reshape(shape)
    view = {"C": lambda x: x, "F": lambda x: x.swapaxes(-1, -2),
            "padded": lambda x: x[..., :m].swapaxes(-1, -2), "sliced": lambda x: x[..., 1::2, 1::3],
            "negative": lambda x: x[..., ::-1, ::-1]}[storage](whole)
    view[...] = values
    return Placed(view, raw)


def at(offset, values):
    """A C-ordered array so many bytes after a multiple of 16."""
    raw = np.zeros(values.nbytes + 32, np.uint8)
    start = -raw.ctypes.data % 16 + offset
    x = raw[start:start + values.nbytes].view(values.dtype).reshape(values.shape)
    x[...] = values
    return x


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers of any type: their products are exact."""
    values = rng.integers(-3, 4, shape)
    return np.asarray(values + 1j * rng.integers(-3, 4, shape) if dtype.startswith("complex")
                      else values).astype(dtype)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random elements; integers use the whole range."""
    if dtype.startswith("int"):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape)
    return np.asarray(values + 1j * rng.standard_normal(shape) if dtype.startswith("complex")
                      else values).astype(dtype)


def seen(x: np.ndarray, trans: str) -> np.ndarray:
    """The operand after transposition."""
    x = x.conj() if trans in "CR" and x.dtype.kind == "c" else x
    return x.swapaxes(-1, -2) if trans in "TC" else x


def stored_shape(extents: tuple[int, int], trans: str) -> tuple[int, int]:
    """The shape that is stored for an operand that the product sees with these extents."""
    return extents[::-1] if trans in "TC" else extents


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, output: str, *, alpha=1, beta=0, c=None,
          compute: str | None = None) -> None:
    """Compare with wider arithmetic, element by element, in units of u (|alpha| |A||B| + |beta|
    |C|).

    Sums of k terms are allowed 3 + sqrt(k) roundings of the type of the sums, and one of the
    result's.
    """
    assert got.dtype.name == output
    if output == "int32":
        want = alpha * np.matmul(a.astype(np.int64),
                                 b.astype(np.int64)) + (beta * c.astype(np.int64) if beta else 0)
        np.testing.assert_array_equal(got, np.broadcast_to(want.astype(np.int32), got.shape))
        return
    wide = np.clongdouble if output.startswith("complex") else np.longdouble
    want = alpha * np.matmul(a.astype(wide), b.astype(wide))
    scale = abs(alpha) * np.matmul(abs(a.astype(wide)), abs(b.astype(wide)))
    if beta and c is not None:
        want, scale = want + beta * c.astype(wide), scale + abs(beta) * abs(c.astype(wide))
    sums = compute or {"float16": "float32", "bfloat16": "float32"}.get(output, output)
    terms = a.shape[-1] * (2 if output.startswith("complex") else 1)
    limit = (3 + np.sqrt(terms)) * UNIT[sums] * scale + 1.01 * UNIT[output] * abs(want) + (output == "float16") * 2.0**-25
    error = abs(got.astype(wide) - want)
    assert not np.isnan(error.astype(complex)).any(), "NaN in the result"
    assert (error <= limit).all(), f"{float((error / np.where(limit == 0, 1, limit)).max()):.3g} times the limit"


SCALARS = {name: ([(1, 0), (0, 0), (0, 1), (-2, 1), (3, -1)] if types.compute == "int32"
                  else [(1, 0), (0, 0), (0, 1), (-0.5, 1), (0.75, -2)]
                  + ([(1 - 2j, 0.5j)] if types.is_complex else []))
           for name, types in ROUTINES.items()}
