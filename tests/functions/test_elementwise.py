"""Casts and products of elements by our kernels: no number is lost, whatever the strides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.functions.elementwise import (
    cast_of,
    elementwise_problem,
    flushed_by_a_cast,
    flushed_by_a_product,
    product_of,
    roles,
)
from cuteblas.functions.engines import EMULATOR, plan_for
from cuteblas.planning.problem import H200

from .arrays import laid_out

SHAPES = [(), (1,), (5,), (257,), (512,), (3, 1, 4), (4, 5, 6), (2, 3, 2, 5)]
SUBNORMAL = [1e-45, -4.787e-39, 2.3e-41, 1.1754942e-38, 3e38, 1e-30, 0.0, -0.0, np.inf, np.nan]


def computed(graph: Any, operands: dict[str, np.ndarray], out: np.ndarray) -> np.ndarray:
    problem = elementwise_problem(graph, EMULATOR.memory(out), {name: EMULATOR.memory(x) for name, x in operands.items()})
    EMULATOR.run(plan_for(problem, H200), roles(operands, out))
    return out


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("source, target", [("f4", "f8"), ("f8", "f4"), ("F", "D"), ("f4", "?"), ("D", "F")])
def test_casts_keep_subnormal_numbers(source: str, target: str) -> None:
    assert flushed_by_a_cast(np.dtype(source), np.dtype(target))
    with np.errstate(all="ignore"):
        x = np.array(SUBNORMAL).astype(source)
        graph = cast_of(x.dtype.name, np.dtype(target).name)
        np.testing.assert_array_equal(computed(graph, {"x": x}, np.zeros(len(x), target)), x.astype(target))


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("dtype", ["f4", "F"])
def test_products_keep_subnormal_numbers(dtype: str) -> None:
    assert flushed_by_a_product(np.dtype(dtype))
    with np.errstate(all="ignore"):
        x, y = np.array(SUBNORMAL[:8]).astype(dtype), np.array([3, 1e12, 0.5, 1, 1e-45, 1e-12, 1, 1]).astype(dtype)
        np.testing.assert_array_equal(computed(product_of(x.dtype.name), {"x": x, "y": y}, np.zeros_like(x)), x * y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", [("C", "C"), ("F", "C"), ("negative", "permuted"), ("broadcast", "sliced"), ("sliced", "F")])
def test_problems_hold_any_strides(shape: tuple[int, ...], layouts: tuple[str, str]) -> None:
    """Walked element by element, each has the operand's and the result's."""
    x, out = laid_out(shape, "f4", layouts[0], 1), laid_out(shape, "f8", layouts[1], 2)
    source, target = (replace(EMULATOR.memory(a), address=0) for a in (x, out))
    p = elementwise_problem(cast_of("float32", "float64"), target, {"x": source})
    (_name, operand), = p.fusion.operands
    assert p.k == 0 and p.m * p.n * int(np.prod(p.batch)) == x.size
    extents = (*p.batch, p.m, p.n)
    walks = [sum(np.arange(n).reshape((-1, *[1] * (len(extents) - i - 1))) * s for i, (n, s) in enumerate(zip(
        extents, (*each.batch_strides, *each.strides), strict=True))) for each in (operand, p.c)]
    wanted = [np.lib.stride_tricks.as_strided(np.zeros(1), shape, (0,) * len(shape)) + sum(
        (np.arange(n).reshape((-1, *[1] * (len(shape) - i - 1))) * (s // item) for i, (n, s) in enumerate(zip(
            shape, a.strides, strict=True))), np.zeros(shape)) for a, item in ((source, 4), (target, 8))]
    pairs = set(zip(*(np.broadcast_to(walk, extents).ravel().tolist() for walk in walks), strict=True))
    assert pairs == set(zip(*(w.ravel().astype(int).tolist() for w in wanted), strict=True))


def test_other_types_are_left_to_cupy() -> None:
    assert not flushed_by_a_cast(np.dtype("f4"), np.dtype("f2")) and not flushed_by_a_cast(np.dtype("i4"), np.dtype("f4"))
    assert not flushed_by_a_product(np.dtype("f8"))


@pytest.mark.gpu
def test_subnormal_numbers_on_a_gpu() -> None:
    import cupy

    import cuteblas

    x = np.array([-4.787e-39, 2.3e-41, 1.0], "f4")
    gpu = cupy.asarray(x)
    for _ in range(2):
        np.testing.assert_array_equal(cuteblas.outer(gpu, 10**12).get(), np.outer(x, 10**12))
        np.testing.assert_array_equal(cuteblas.einsum("i,i->i", gpu, cupy.full(3, 2, "f4")).get(), 2 * x)
        np.testing.assert_array_equal(cuteblas.dot(gpu, cupy.full((3, 1), 1e20)).get(), x @ np.full((3, 1), 1e20))
        np.testing.assert_array_equal(cuteblas.ascontiguousarray(gpu, "f8").get(), x.astype("f8"))
