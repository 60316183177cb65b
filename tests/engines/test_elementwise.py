"""Casts and products of elements by our kernels: no number is lost, whatever the strides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.codegen.epilogue import Node
from cuteblas.codegen.errors import CodegenError
from cuteblas.engines.elementwise import (
    cast_of,
    elementwise_parts,
    flushed_by_a_cast,
    flushed_by_a_product,
    product_of,
    roles,
    scaled_of,
)
from cuteblas.engines.emulator import EMULATOR
from cuteblas.engines.memory import Memory
from cuteblas.engines.tuning import plan_for
from cuteblas.planning.problem import H200

from ..functions.arrays import laid_out

SHAPES = [(), (1,), (5,), (257,), (512,), (509,), (3, 1, 4), (4, 5, 6), (2, 3, 2, 5), (263, 2),
          (2, 521), (3, 300, 2), (40, 3, 33), (33, 40, 2)]
SUBNORMAL = [1e-45, -4.787e-39, 2.3e-41, 1.1754942e-38, 3e38, 1e-30, 0.0, -0.0, np.inf, np.nan]


def computed(graph: Any, operands: dict[str, np.ndarray], out: np.ndarray) -> np.ndarray:
    parts = elementwise_parts(graph, EMULATOR.memory(out),
                              {name: EMULATOR.memory(x) for name, x in operands.items()})
    for problem in parts:
        EMULATOR.run(plan_for(problem, H200), roles(operands, out))
    return out


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("source, target", [("f4", "f8"), ("f8", "f4"), ("F", "D"), ("f4", "?"),
                                            ("D", "F")])
def test_casts_keep_subnormal_numbers(source: str, target: str) -> None:
    assert flushed_by_a_cast(np.dtype(source), np.dtype(target))
    with np.errstate(all="ignore"):
        x = np.array(SUBNORMAL).astype(source)
        graph = cast_of(x.dtype.name, np.dtype(target).name)
        np.testing.assert_array_equal(computed(graph, {"x": x}, np.zeros(len(x), target)),
                                      x.astype(target))


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("target", ["?", "b", "L", "e", "f", "D"])
def test_any_byte_but_zero_is_true(target: str) -> None:
    x = np.array([0, 1, 2, 4, 128, 255, 0], np.uint8).view(bool)
    got = computed(cast_of("bool", np.dtype(target).name), {"x": x}, np.zeros(len(x), target))
    np.testing.assert_array_equal(got.astype("D") if target != "?" else got.view(np.uint8),
                                  [0, 1, 1, 1, 1, 1, 0])
    if target == "?":
        got = computed(product_of("bool", "bool", "bool"), {"x": x, "y": x[::-1]},
                       np.zeros(len(x), bool))
        np.testing.assert_array_equal(got.view(np.uint8), [0, 1, 1, 1, 1, 1, 0])


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("dtype", ["f4", "F"])
def test_products_keep_subnormal_numbers(dtype: str) -> None:
    assert flushed_by_a_product(np.dtype(dtype))
    with np.errstate(all="ignore"):
        x, y = np.array(SUBNORMAL[:8]).astype(dtype), np.array([3, 1e12, 0.5, 1, 1e-45, 1e-12, 1,
                                                                1]).astype(dtype)
        name = x.dtype.name
        np.testing.assert_array_equal(computed(product_of(name, name, name), {"x": x, "y": y},
                                               np.zeros_like(x)), x * y)


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
def test_products_of_two_types_are_rounded_once() -> None:
    x, y = np.array([1 + 2.0**-40, 1e300, 3e38]), np.array([1 + 2.0**-20, 1e-30, 2], "f4")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(computed(product_of("float64", "float32", "float32"),
                                               {"x": x, "y": y}, np.zeros(3, "f4")),
                                      (x * y).astype("f4"))
        np.testing.assert_array_equal(computed(scaled_of("float64", -1070), {"x": x}, np.zeros(3)),
                                      x * 2.0**-1070)


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("x, y, target, wide",
                         [("f2", "f2", "f4", "f4"), ("f2", "f8", "f4", "f8"),
                          ("f2", "i2", "F", "f4"), ("F", "f2", "F", "F"), ("i4", "f4", "f4", "f8")])
def test_products_of_float16_are_computed_in_float32(x: str, y: str, target: str,
                                                     wide: str) -> None:
    a, b = np.array([2049, 0.1, 6e-8, 3]).astype(x), np.array([3, 0.3, 7, 1000]).astype(y)
    graph = product_of(a.dtype.name, b.dtype.name, np.dtype(target).name)
    expected = (a.astype(wide) * b.astype(wide)).astype(target)
    np.testing.assert_array_equal(computed(graph, {"x": a, "y": b}, np.zeros(4, target)), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_nothing_is_computed_in_types_of_memory(dtype: str) -> None:
    x = Node("operand", dtype, name="x")
    with pytest.raises(CodegenError,
                       match=f"add of {dtype} and {dtype}: cast .* to a wider type first"):
        Node("add", dtype, (x, x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layouts", [("C", "C"), ("F", "C"), ("negative", "permuted"),
                                     ("broadcast", "sliced"), ("sliced", "F")])
def test_problems_hold_any_strides(shape: tuple[int, ...], layouts: tuple[str, str]) -> None:
    """Walked element by element, each has the operand's and the result's."""
    x, out = laid_out(shape, "f4", layouts[0], 1), laid_out(shape, "f8", layouts[1], 2)
    source, target = (replace(EMULATOR.memory(a), address=0) for a in (x, out))
    walks: list[list[float]] = [[], []]
    for p in elementwise_parts(cast_of("float32", "float64"), target, {"x": source}):
        (_name, operand), = p.fusion.operands
        assert p.k == 0
        extents = (*p.batch, p.m, p.n)
        for walk, each, item in (walks[0], operand, 4), (walks[1], p.c, 8):
            assert each.alignment >= item and each.offset % each.alignment == 0
            walk += (each.offset // item + _offsets(extents, (*each.batch_strides,
                                                              *each.strides))).ravel().tolist()
    wanted = [_offsets(shape, tuple(s // item for s in a.strides))
              for a, item in ((source, 4), (target, 8))]
    assert sorted(zip(*walks, strict=True)) == sorted(zip(*(w.ravel().tolist() for w in wanted),
                                                          strict=True))


def _offsets(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The offset of each element."""
    return sum((i * s for i, s in zip(np.indices(shape), strides, strict=True)),
               np.zeros(shape, int))


@pytest.mark.parametrize("shape", [(1048573,), (1021, 1019), (1048573, 2), (2, 1048573),
                                   (3, 100003, 3), (30000001,)])
def test_few_threads_are_idle(shape: tuple[int, ...]) -> None:
    """Whatever the extents are: a tile of one element would take as long as a tile of thousands."""
    memory = [Memory(shape, tuple(np.cumprod([item, *shape[:0:-1]]).tolist()[::-1]),
                     np.dtype(f"f{item}"), 256) for item in (4, 8)]
    if len(shape) > 1:                                  # with a gap after each row
        memory = [replace(x, strides=(*(2 * s for s in x.strides[:-1]), x.strides[-1]))
                  for x in memory]
    parts = elementwise_parts(cast_of("float32", "float64"), memory[1], {"x": memory[0]})
    idle = 0
    for p in parts:
        plan = plan_for(p, H200)
        idle += plan.launches[0].grid[0] * plan.config.tile.m * plan.config.tile.n
    assert len(parts) <= 2 and idle < 1.6 * int(np.prod(shape)) + 2**17


def test_other_types_are_left_to_cupy() -> None:
    assert not flushed_by_a_cast(np.dtype("f4"), np.dtype("f2")) and not flushed_by_a_cast(
        np.dtype("i4"), np.dtype("f4")
    )
    assert not flushed_by_a_product(np.dtype("f8"))


@pytest.mark.gpu
def test_subnormal_numbers_on_a_gpu() -> None:
    import cupy

    import cuteblas

    x = np.array([-4.787e-39, 2.3e-41, 1.0], "f4")
    gpu = cupy.asarray(x)
    for _ in range(2):
        np.testing.assert_array_equal(cuteblas.outer(gpu, 10**12).get(), np.outer(x, 10**12))
        np.testing.assert_array_equal(cuteblas.einsum("i,i->i", gpu, cupy.full(3, 2, "f4")).get(),
                                      2 * x)
        np.testing.assert_array_equal(cuteblas.dot(gpu, cupy.full((3, 1), 1e20)).get(),
                                      x @ np.full((3, 1), 1e20))
        np.testing.assert_array_equal(cuteblas.ascontiguousarray(gpu, "f8").get(), x.astype("f8"))
