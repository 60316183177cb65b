"""Integers and bool on ``gemm_wgmma``: bytes, and planes of the bytes of longer integers; every
result is exact."""

from dataclasses import replace

import numpy as np
import pytest

import cuteblas
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.gemm.wgmma import WgmmaConfig, gemm_wgmma
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.gemm.family import Choice
from cuteblas.planning.gemm.packing import packed_problem, plan_packed
from cuteblas.planning.gemm.ring import WgmmaTile
from cuteblas.planning.gemm.wgmma import TILES_OF_TWO_WORDS, why_not_wgmma
from cuteblas.planning.problem import Fusion

from .engines import gemm_problem, multiply, place, random

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def run(engine, a, b, orders="CCC", *, tile=None, divided=0, tiling=None, **how):
    """A product on tensor cores, packed first where needed; the plan."""
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")

    def plan_for(problem, device):
        assert why_not_wgmma(packed_problem(problem), H200) is None
        choice = tiling if tile is None else Choice(tile, 1, problem.k, 0, divided=divided)
        return plan_packed(problem, device, choice)

    plan = multiply(engine, plan_for, a, b, orders, **how)
    assert plan.family == "gemm_wgmma"
    return plan


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 9, 17), (129, 65, 127), (64, 264, 129),
                                     (67, 3, 384)])
def test_ragged_sizes(engine, dtype, m, n, k):
    rng = np.random.default_rng(2)
    run(engine, random(rng, (m, k), dtype), random(rng, (k, n), dtype), c_place={"pad": 1})


def test_sums_of_bools_do_not_wrap_to_false(engine):
    a, b = np.full((2, 66051), 255, np.uint8)      # 66051 products of 255, of 255 by 4, and 1: 2^32
    a, b = np.append(a, [255, 1]).astype(np.uint8).view(bool)[None], np.append(b, [4, 1]).astype(np.uint8).view(bool)[:, None]
    run(engine, a, b, tile=WgmmaTile(1, 64, 4))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64"])
@pytest.mark.parametrize("value", ["min", "-1"])
def test_extreme_values(engine, dtype, value):
    """Sums of one sign, the largest that there are: bool of 256 and 512 products, whose lowest byte
    is zero."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        a, b = np.ones((65, 512), bool), np.ones((512, 40), bool)
        a[:, 256:] = b[256:] = value == "min"
    else:
        info = np.iinfo(kind)
        x = info.min if value == "min" else np.array(-1).astype(kind)
        a, b = np.full((65, 512), x, kind), np.full((512, 40), x, kind)
        if value == "min":
            a[:, ::3] += 1
    run(engine, a, b)


@pytest.mark.parametrize("dtype, k", [("int8", 2**17 + 200), ("uint8", 2**16 + 2000),
                                      ("uint64", 16384), ("int64", 16640)])
@pytest.mark.parametrize("value", ["least", "all bits"])
def test_sums_that_pass_32_bits(engine, dtype, k, value):
    """K from which sums of bytes do not fit their accumulators; for 64 bits, those of the lowest
    digits are added in parts."""
    kind = np.dtype(dtype)
    x = np.iinfo(kind).min if value == "least" and kind.kind == "i" else np.array(-1).astype(kind)
    a, b = np.full((2, k), x, kind), np.full((k, 3), x, kind)
    a[1, ::2] = 1
    if kind.itemsize == 1:
        run(engine, a, b, output="int32" if kind.kind == "i" else "uint32",
            compute="int32" if kind.kind == "i" else "uint32")
    plan = run(engine, a, b, tiling=Choice(WgmmaTile(1, 64, 8), 1, k, 0))
    assert plan.config.parked == (dtype == "uint64")


def test_parts_of_sums_are_as_long_as_32_bits_allow():
    """Sums of 4 planes and K of 16640 are 1.007 * 2^32: with parts that are longer by a stage of
    128, they wrap."""
    most = (2**32 - 1) // 255**2 // 128
    assert (most + 1) * 128 * 255**2 >= 2**32 > most * 128 * 255**2 and most * 128 < 4 * 16640
    body = gemm_wgmma(WgmmaConfig("uint8", "int64", columns=64, digits=8, accumulator="int64")).body
    assert f"stages - part_of_sum * {most}, {most})" in body


@pytest.mark.parametrize("element, sums", [("int8", "int32"), ("uint8", "uint32")])
def test_results_of_32_bits(engine, element, sums):
    rng = np.random.default_rng(7)
    run(engine, random(rng, (40, 96), element), random(rng, (96, 72), element), output=sums,
        compute=sums)


TILES = [WgmmaTile(1, 192, 3), WgmmaTile(2, 96, 3), WgmmaTile(2, 160, 3), WgmmaTile(3, 32, 3),
         WgmmaTile(2, 320, 3), WgmmaTile(3, 224, 3),
         WgmmaTile(2, 256, 4, 2)]


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_shapes_of_tiles(engine, dtype, tile):
    rng = np.random.default_rng(9)
    a, b = random(rng, (200, 260), dtype), random(rng, (260, 328), dtype)
    run(engine, a, b, "CFC", tile=tile, beta=1)


@pytest.mark.parametrize("tile", [TILES[2], TILES[5]], ids=str)
def test_shapes_of_tiles_that_park_digits(engine, tile):
    rng = np.random.default_rng(10)
    plan = run(engine, random(rng, (200, 140), "uint64"), random(rng, (140, 250), "uint64"),
               tile=tile, c_place={"pad": int(tile.groups == 3)})
    assert plan.config.parked


@pytest.fixture
def in_two_words(monkeypatch):
    """No digits are parked."""
    monkeypatch.setattr("cuteblas.planning.gemm.wgmma.MOST_PARKED", 0)


@pytest.mark.parametrize("tile", TILES_OF_TWO_WORDS, ids=str)
def test_shapes_of_tiles_of_two_words(engine, in_two_words, tile):
    rng = np.random.default_rng(10)
    run(engine, random(rng, (200, 260), "int64"), random(rng, (260, 136), "int64"), tile=tile,
        alpha=3)


@pytest.mark.parametrize("dtype", ["int8", "bool", "int32", "int64"])
def test_slices_of_k(engine, dtype):
    rng = np.random.default_rng(11)
    a, b = random(rng, (70, 512), dtype), random(rng, (512, 40), dtype)
    plan = run(engine, a, b, tiling=Choice(WgmmaTile(1, 64, 8), 2, 256, 0))
    assert "2 slices" in plan.reason


def test_tiles_that_blocks_share(engine):
    rng = np.random.default_rng(12)
    a, b = random(rng, (130, 132 * 128 // 2), "int8"), random(rng, (132 * 128 // 2, 70), "int8")
    plan = run(engine, a, b, "CFF", tile=WgmmaTile(2, 64, 3), divided=2)
    assert plan.config.divided


def test_an_epilogue_takes_sums_of_the_type_of_c(engine):
    """acc is wrapped to C's type before the graph sees it; igemm's is the sum in int32."""
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")
    rng = np.random.default_rng(13)
    for dtype, output, sums in (("int8", "int8", "int8"), ("int8", "float32", "int32"),
                                ("int32", "int32", "int32"), ("int64", "int64", "int64")):
        acc, bias = Node("acc", sums), Node("operand", sums, name="bias")
        graph = EpilogueGraph("f", Node("maximum", sums,
                                        (Node("add", sums, (acc, bias)),
                                         Node("negative", sums, (acc,)))))
        a, b = random(rng, (40, 150), dtype), random(rng, (150, 72), dtype)
        by = random(rng, (40, 72), sums)
        pa, pb, pc, pbias = place(a), place(b, "F"), place(np.zeros((40, 72), output)), place(by)
        fusion = Fusion(graph, (("bias", pbias.operand()),))
        problem = gemm_problem(pa, pb, pc, fusion=fusion, compute=sums)
        plan = plan_packed(problem, engine.device)
        assert plan.family == "gemm_wgmma"
        engine.run(plan, a=pa, b=pb, c=pc, operands={"epi_bias": pbias})
        product = (a.astype(sums) @ b.astype(sums))
        np.testing.assert_array_equal(pc.view, np.maximum(product + by, -product).astype(output))


def test_what_is_refused():
    x, y = Operand("int8", (64, 1)), Operand("int8", (1, 64))
    p = GemmProblem(64, 64, 64, x, x, x)
    assert why_not_wgmma(p, H200) is None
    assert "along K, but B is contiguous along N" in why_not_wgmma(replace(p, b=y), H200)
    assert "multiplies bytes, but A is int32" in why_not_wgmma(
        GemmProblem(64, 64, 64, *3 * [Operand("int32", (64, 1))]), H200
    )
    assert "of one type" in why_not_wgmma(replace(p, b=replace(x, dtype="uint8")), H200)
    assert "sums bytes in int32, not in int64" in why_not_wgmma(replace(p, compute="int64"), H200)
    assert "not on sm_80" in why_not_wgmma(p, replace(H200, arch="sm_80"))
    with pytest.raises(CodegenError, match="cannot share"):
        gemm_wgmma(WgmmaConfig("uint8", "int32", columns=64, digits=4, divided=True))


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_chosen(dtype):
    """Small products that would be copied stay on the units that add no copies; large ones go to
    tensor cores."""
    def family(n):
        x, y = Operand(dtype, (1, n)), Operand(dtype, (n, 1))
        return plan_gemm(GemmProblem(n, n, n, x, y, x), H200).family

    assert family(16) == "gemm_simt" and family(2048) == "gemm_wgmma"


@pytest.mark.parametrize("dtype, launches", [("int8", 1), ("int16", 3)])
def test_bytes_along_k_are_read_in_place(dtype, launches):
    x = Operand(dtype, (2048, 1))
    assert len(plan_gemm(GemmProblem(2048, 2048, 2048, x, x, x), H200).launches) == launches


def test_calls_of_matmul():
    """From NumPy's arrays to tensor cores, into an ``out`` that is walked backwards, and again, as
    a repeated call."""
    emulator = pytest.importorskip("cuteblas.emulator")
    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    rng = np.random.default_rng(15)
    a, b = random(rng, (256, 200), "bool"), random(rng, (200, 256), "bool")
    with cuteblas.backend("emulator"):
        assert cuteblas.explain(a, b.T[::-1].T).family == "gemm_wgmma"
        for _ in range(2):
            out = np.zeros((256, 256), bool)[::-1]
            assert cuteblas.matmul(a, b.T[::-1].T, out=out) is out
            np.testing.assert_array_equal(out, a @ b.T[::-1].T)
            a = a.copy()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64"])
def test_captured_products_are_replayed(dtype):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(16)
    a, b = random(rng, (600, 700), dtype), random(rng, (700, 500), dtype)
    x, y, out = cupy.asarray(a), cupy.asarray(b), cupy.empty((600, 500), dtype)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        cuteblas.matmul(x, y, out=out)                  # nothing can be compiled in a capture
        stream.synchronize()
        stream.begin_capture()
        cuteblas.matmul(x, y, out=out)
        graph = stream.end_capture()
    for now in (a, a[::-1], random(rng, a.shape, dtype)):
        x[...] = cupy.asarray(now)
        out[...] = 0
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(out), now @ b)
