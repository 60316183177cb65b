"""C by way of shared memory where its rows begin anywhere: ``gemm_simt`` and ``gemm_mma``, in the
emulator and on a GPU."""

from dataclasses import replace
from math import gcd

import numpy as np
import pytest

import cuteblas.planning.gemm.skinny as planes
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mma import mma_atom, split_atom
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm.simt import SimtConfig, TileShape, gemm_simt
from cuteblas.planning import H200
from cuteblas.planning.gemm import mma, simt
from cuteblas.planning.gemm.dispatch import gemm_alternatives
from cuteblas.planning.gemm.mma import mma_tiles, plan_mma, thin_tiles
from cuteblas.planning.gemm.simt import candidates, plan_simt
from cuteblas.planning.gemm.skinny import plan_planes

from .engines import check_product, gemm_problem, outside, place, random
from .moves import counted
from .test_gemm_mma import is_thin
from .test_gemm_split import hopper

DTYPES = ["float32", "float64", "complex64"]
# others have no registers for it
SIMT = [("simt", dtype, x) for dtype in DTYPES for x in candidates(dtype)
        if x.m * x.n * np.dtype(dtype).itemsize <= 4 * 64 * x.threads]
MMA = [("mma", "float64", tile) for tile in (*mma_tiles(mma_atom("float64", "sm_90"), H200),
                                             *thin_tiles(mma_atom("float64", "sm_90"), H200,
                                                         10**6))]
PLANES = [("planes", dtype, tile) for dtype in ("float32", "complex64")
          for tile in thin_tiles(split_atom(dtype, "sm_90"), H200, 10**6)]
CASES = SIMT + MMA + PLANES


def name(x):
    tile = getattr(x, "tile", x)
    return x if isinstance(x, str) else f"{tile.m}x{tile.n}in{tile.warps}by{tile.k}"


@pytest.fixture
def planner(monkeypatch):
    """Plans by a family with nothing but a tile to choose."""
    monkeypatch.setattr(planes, "LEAST_K_BY_MMA", 1)
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 10**9)

    def of(family, tile):
        if family == "simt":
            monkeypatch.setattr(simt, "candidates", lambda element: (tile,))
            return plan_simt, tile.m, tile.n
        few = is_thin(tile)
        monkeypatch.setattr(mma, "thin_tiles", lambda *_: iter([tile] if few else []))
        monkeypatch.setattr(mma, "mma_tiles", lambda atom, device: iter([] if few else [tile]))
        monkeypatch.setattr(mma, "_thin_chunks", lambda p, device, tile: [p.k])
        return (plan_mma if family == "mma" else plan_planes), tile.n, tile.m

    return of


def moved(plan, **operands):
    """What the product writes to global memory."""
    first = replace(plan, launches=[x for x in plan.launches if "gemm" in x.kernel.name][:1])
    # for the verdict of planes
    operands["workspace"] = place(np.zeros((1, max(1, plan.workspace_bytes // 4)), "u4"))
    return [x for x in counted(first, **operands) if x.space == "global" and x.write
            and x.bytes > 0]


@pytest.mark.parametrize("family, dtype, tile", CASES, ids=name)
def test_every_tile(engine, planner, family, dtype, tile):
    """Several tiles with rows that begin anywhere, in a batch; what is between rows stays as it
    is."""
    if family != "simt":
        hopper(engine)
    plan_for, length, rows = planner(family, tile)
    rng = np.random.default_rng(1)
    m, n, k = rows + 3, length + 17, 9
    n += n % 2 == 0
    a, b = random(rng, (2, m, k), dtype), random(rng, (2, k, n), dtype)
    pa, pb, pc = place(a), place(b), place(np.full((2, m, n), np.nan, dtype), pad=2, offset=1,
                                           poison=np.nan)
    plan = plan_for(gemm_problem(pa, pb, pc), engine.device)
    assert "w_o" in plan.launches[0].kernel.name, plan.launches[0].kernel.name
    around = outside(pc)
    engine.run(plan, a=pa, b=pb, c=pc)
    check_product(pc.view, a, b, dtype)
    assert np.isnan(pc.base[around]).all()


@pytest.mark.parametrize("c_order", "CF")
@pytest.mark.parametrize("alpha, beta", [(1, 1), (-2, 0), (3, 2)])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "int32", "float32", "float64",
                                   "complex64"])
def test_alpha_and_beta(engine, dtype, alpha, beta, c_order):
    rng = np.random.default_rng(2)
    a, b, before = random(rng, (37, 20), dtype), random(rng, (20, 53), dtype), random(rng, (37, 53), dtype)
    pa, pb = place(a), place(b)
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    for plan_for in (plan_simt, *((plan_mma,) if dtype == "float64" else ())):
        pc = place(before, c_order)
        plan = plan_for(gemm_problem(pa, pb, pc, **kinds), engine.device)
        assert f"w_{kinds['alpha'][0]}" in plan.launches[0].kernel.name
        engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
        check_product(pc.view, a, b, dtype, alpha=alpha, beta=beta, before=before)


@pytest.mark.parametrize("family, dtype, tile", [CASES[0], SIMT[-2], MMA[4], MMA[-2], PLANES[2]],
                         ids=name)
def test_sectors_are_written_as_a_whole(planner, family, dtype, tile):
    """But for those in which a tile's part of a row begins and ends, and few more than there have
    to be."""
    plan_for, length, _rows = planner(family, tile)
    m, n, item = 64, 2 * length + 1, np.dtype(dtype).itemsize
    a, b, c = (place(np.ones(shape, dtype)) for shape in ((m, 8), (8, n), (m, n)))
    written = moved(plan_for(gemm_problem(a, b, c), H200), a=a, b=b, c=c)
    pieces = m * (2 * length // gcd(length, 32) + 1)         # of rows, which are written at once
    assert sum(x.transactions for x in written) <= m * n * item / 32 + pieces
    assert sum(x.partial for x in written) <= 2 * pieces


def test_where_threads_write_by_themselves():
    """Whole vectors, short rows, triangles, elements of 16 bytes."""
    def covering(c, triangle=None):
        problem = replace(gemm_problem(place(np.ones((c.shape[0], 8), c.view.dtype)),
                                       place(np.ones((8, c.shape[1]), c.view.dtype)), c),
                          triangle=triangle)
        return "w_o" in plan_simt(problem, H200).launches[0].kernel.name

    assert covering(place(np.ones((64, 61), "f4"))) and covering(place(np.ones((64, 62), "f4")))
    assert covering(place(np.ones((61, 64), "f4"),
                          "F")) and covering(place(np.ones((64, 61), "f2")))
    assert not covering(place(np.ones((64, 60), "f4"))) and not covering(
        place(np.ones((64, 13), "f4"))
    )
    assert not covering(place(np.ones((64, 61), "c16"))) and not covering(
        place(np.ones((61, 61), "f4")), "lower"
    )


@pytest.mark.parametrize("arch, room", [("sm_75", 65536), ("sm_86", 101376)])
def test_where_devices_have_too_little_shared_memory_threads_write_by_themselves(arch, room):
    device = replace(H200, arch=arch, shared_bytes_per_block=room)
    by_rows = set()
    for dtype, orders in (("float32", "CC"), ("float64", "CC"), ("float64", "FF"),
                          ("complex64", "CC"), ("float16", "CC")):
        a, b, c = (place(np.ones((301, 301), dtype), order) for order in (*orders, "C"))
        problem = gemm_problem(a, b, c)
        for each in gemm_alternatives(problem, device):
            if each.family in ("gemm_simt", "gemm_mma"):
                for launch in each.plan().launches:
                    assert launch.kernel.shared_bytes <= room, each
                    by_rows.add("w_o" in launch.kernel.name)
    assert by_rows == {False, True}


def test_c_without_rows_is_refused():
    access = OperandAccess(0), OperandAccess(0), OperandAccess(0, covering=True)
    assert "sC" in gemm_simt(SimtConfig("float32", "float32", TileShape(64, 64, 16, warps=(2, 2)),
                                        *access)).body
    with pytest.raises(CodegenError, match="covering needs"):
        OperandAccess(None, covering=True)
