"""What memories are filled with, recipes by name with the same elements for the same seed
everywhere; what arguments are."""

from __future__ import annotations

from typing import Any

import numpy as np

import cuteblas

from .calls import Argument, Call, Code, Memory, Operand

__all__ = ["FILLS", "arrays_of", "contents", "evaluated"]

FILLS = ("zeros", "ones", "small", "normal", "bits", "special", "extreme", "tiny")
"""Recipes, the simplest first: shrinking goes to the left."""


def contents(memory: Memory) -> np.ndarray:
    """The elements of a memory, as a vector."""
    dtype = np.dtype(memory.dtype)
    if memory.values is not None:
        return _explicit(memory.values, dtype)
    rng = np.random.default_rng(memory.seed)
    native = dtype.newbyteorder("=")
    if native.kind == "O":
        return np.array([int(x) for x in rng.integers(-3, 4, memory.count)], object)
    if native.kind in "mM":
        return rng.integers(0, 50, memory.count).astype(native)
    if native.kind not in "biufc":
        return rng.integers(97, 123, (memory.count, native.itemsize),
                            np.uint8).view(f"V{native.itemsize}")[:, 0].view(native)
    numbers = _numbers(memory.fill, memory.count, native, rng).astype(dtype)
    if native.char in "gG":                 # bytes of padding are bytes of views with other offsets
        numbers.view(np.uint8).reshape(-1, 16)[:, 10:] = 0
    return numbers


def _explicit(values: tuple[Any, ...], dtype: np.dtype) -> np.ndarray:
    kind = {"f": float, "c": complex, "b": bool}.get(dtype.kind, int)
    read = [np.longdouble(x) if dtype.char == "g" else kind(x) for x in values]
    return np.array(read, dtype.newbyteorder("=")).astype(dtype)


def _numbers(fill: str, count: int, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    if dtype.kind == "c":
        real = np.dtype({"F": "f", "D": "d", "G": "g"}[dtype.char])
        result = np.empty(count, dtype)
        result.real, result.imag = _numbers(fill, count, real, rng), _numbers(fill, count, real, rng)
        return result
    if fill in ("zeros", "ones"):
        return np.full(count, fill == "ones", dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    if dtype.kind in "iu":
        if fill in ("bits", "extreme", "special"):
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            numbers = rng.integers(least, most, count, dtype, endpoint=True)
            edges = np.array([least, most, 0, 1], dtype)[rng.integers(0, 4, count)]
            return np.where(rng.random(count) < (0.1 if fill == "bits" else 0.5), edges, numbers)
        return rng.integers(0 if dtype.kind == "u" else -3, 4, count).astype(dtype)
    if fill == "small":
        return rng.integers(-3, 4, count).astype(dtype)
    info = np.finfo(dtype)
    normal = rng.standard_normal(count)
    with np.errstate(over="ignore", under="ignore"):
        if fill == "special":
            chosen = np.array([np.inf, -np.inf, np.nan, -0.0, info.smallest_subnormal, -info.tiny,
                               info.max, -info.max, 0.0, 1.0], dtype)
            return np.where(rng.random(count) < 0.3, chosen[rng.integers(0, len(chosen), count)],
                            normal.astype(dtype))
        if fill == "extreme":                   # squares overflow or vanish, numbers do not
            power = int(np.log2(float(min(info.max, 1e300))) * 0.9)
            return np.ldexp(normal, rng.integers(-power, power, count)).astype(dtype)
        if fill == "tiny":
            return (normal.astype(dtype) * info.tiny).astype(dtype)
        if fill == "bits":                      # magnitudes over some powers of two
            return np.ldexp(normal, rng.integers(-6, 6, count)).astype(dtype)
    return normal.astype(dtype)


def evaluated(argument: Argument, arrays: list[Any]) -> Any:
    """The value of an argument."""
    if isinstance(argument, Operand):
        return arrays[argument.view]
    if isinstance(argument, Code):
        return eval(argument.text, {"np": np, "cuteblas": cuteblas})
    values = [evaluated(item, arrays) for item in argument.items]
    return tuple(values) if argument.kind == "tuple" else values


def arrays_of(call: Call) -> list[np.ndarray]:
    """The views of a call of numbers, as NumPy arrays on fresh memory."""
    memories = [contents(memory) for memory in call.memories]
    return [np.ndarray(view.shape, view.dtype, memories[view.memory].view(np.uint8), view.offset,
                       view.strides) for view in call.views]
