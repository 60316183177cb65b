"""What ``explain`` tells."""

from __future__ import annotations

import numpy as np
import pytest

import cuteblas
from cuteblas.planning.floors import compulsory_bytes, floor_of, multiply_adds_per_clock
from cuteblas.planning.problem import H200, CopyProblem, GemmProblem, Operand


def test_product():
    a, b = np.ones((128, 64), "f4"), np.ones((64, 96), "f4")
    told = cuteblas.explain(a, b)
    text = str(told)
    assert repr(told) == text
    assert text.startswith("matmul: float32 (128, 64) @ float32 (64, 96) -> float32 (128, 96)\n")
    for part in ("NumPy; the plan below is what NVIDIA H200 would run", "M = 128, N = 96, K = 64",
                 "A (M,K) (128,64):(64,1) float32",
                 "B (N,K) (96,64):(1,96) float32", "C (M,N) (128,96):(96,1)", "gemm_simt", "blocks of", "bank conflict",
                 "1.57 Mflop", "floor"):
        assert part in text, part
    assert told.plan.family == "gemm_simt" and 'extern "C"' in told.source and told.copies == ()
    with cuteblas.backend("emulator"):
        assert "the emulator, on this CPU" in str(cuteblas.explain(a, b))


def test_copies_are_announced():
    a = np.ones((8, 8), "f4")
    told = cuteblas.explain(a, np.ones((8, 8)), a)
    assert told.copies == ("x1: is float32, computed in float64", "out: is float32, computed in float64")
    assert "x1: is float32, computed in float64" in str(told) and told.plan.problem.a.dtype == "float64"
    assert cuteblas.explain(a, a, out=(a,)).copies == ("out: shares memory with an input",)


@pytest.mark.parametrize("x1, x2, why", [
    (np.ones((2, 2), object), np.ones((2, 2)), "NumPy: kernels have no object"),
    (np.ones((2, 2), "g"), np.ones((2, 2)), "NumPy: kernels have no float128"),
    (np.ones((2, 2)).view(np.matrix), np.ones((2, 2)), "NumPy: matrix is a subclass of numpy.ndarray")])
def test_delegated(x1, x2, why):
    told = cuteblas.explain(x1, x2)
    assert why in str(told) and told.plan is None and told.source == ""


def test_arguments_are_judged():
    with pytest.raises(ValueError, match="mismatch in its core dimension"):
        cuteblas.explain(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="precision is one of"):
        cuteblas.explain(np.ones((2, 2)), np.ones((2, 2)), precision="exact")
    with pytest.raises(ValueError, match="order must be one of"):
        cuteblas.explain_copy(np.ones(3), order="Z")
    assert cuteblas.explain(np.ones((2, 3, 4)), np.ones((4, 5)), axes=[(0, 2), (0, 1), (0, 1)]).plan.problem.k == 4


def test_nothing_to_do():
    assert cuteblas.explain(np.ones((0, 3)), np.ones((3, 4))).plan.family == "nothing"
    assert "nothing" in str(cuteblas.explain_copy(np.ones((0, 3))))


def test_copy():
    told = cuteblas.explain_copy(np.ones((64, 32), "f4")[:, ::2])
    assert told.plan.family == "copy" and "words of 4 bytes" in str(told) and "traffic" in str(told) and told.source
    x = np.ones((64, 64))
    assert cuteblas.explain_copy(x.T, out=x).plan.problem.in_place and "in place" in str(cuteblas.explain_copy(x.T, out=x))
    assert cuteblas.explain_copy(x[::-1], out=x).copies == ("out: shares memory with the array",)
    assert cuteblas.explain_copy(x.T, out=x.copy()).plan.family == "transpose"
    with pytest.raises(ValueError, match="out has the shape and type of the array"):
        cuteblas.explain_copy(x.T, out=x[0])
    assert "NumPy: elements of object refer to other memory" in str(cuteblas.explain_copy(np.array([None])))


def gemm(dtype, broadcast=False):
    return GemmProblem(64, 32, 16, Operand(dtype, (16, 1), (0 if broadcast else 1024,)), Operand(dtype, (1, 32), (512,)),
                       Operand(dtype, (32, 1), (2048,)), (10,))


def test_compulsory_bytes():
    assert compulsory_bytes(gemm("float32")) == 4 * 10 * (64 * 16 + 32 * 16 + 64 * 32)
    assert compulsory_bytes(gemm("complex128", broadcast=True)) == 16 * (64 * 16 + 10 * (32 * 16 + 64 * 32))
    assert compulsory_bytes(CopyProblem((8, 5), (1, 0), (5, 1), 2)) == 2 * (8 + 40)


def test_floor():
    floor = floor_of(gemm("float32"), "gemm_simt", H200)
    assert floor.flops == 2 * 64 * 32 * 16 * 10
    assert floor.arithmetic_s == pytest.approx(floor.flops / (2 * 128 * 132 * 1.98e9))
    assert floor.traffic_s == pytest.approx(floor.bytes / 4.286e12)
    assert floor.seconds == max(floor.arithmetic_s, floor.traffic_s) and floor.limit == "memory traffic"
    assert floor_of(gemm("complex64"), "gemm_simt", H200).arithmetic_s == pytest.approx(4 * floor.arithmetic_s)


@pytest.mark.parametrize("family, dtype, arch, expected", [
    ("gemm_simt", "float32", "sm_90a", 128), ("gemm_simt", "float64", "sm_90", 64), ("gemm_simt", "float64", "sm_86", 2),
    ("gemm_simt", "int8", "sm_80", 64), ("gemm_simt", "uint64", "sm_80", 16), ("gemm_simt", "complex128", "sm_80", 32),
    ("gemm_simt", "float16", "sm_70", 64), ("gemm_wgmma", "float16", "sm_90a", 2048)])
def test_rates(family, dtype, arch, expected):
    assert multiply_adds_per_clock(family, dtype, arch) == expected
