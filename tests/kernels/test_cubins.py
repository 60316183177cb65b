"""Every kernel family compiles to machine code for every supported architecture, without spilling
registers; no GPU is needed."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.codegen.mma import SPLIT_ATOMS, mma_atom
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.copy.rearrange import RearrangeConfig
from cuteblas.kernels.epilogue import FusedEpilogue, FusedMatrix
from cuteblas.kernels.gemm.mma import MmaConfig, MmaTile, gemm_mma
from cuteblas.kernels.gemm.persistent import DEPTH
from cuteblas.kernels.gemm.simt import SimtConfig, gemm_simt
from cuteblas.kernels.gemm.skinny import SkinnyConfig, gemm_skinny
from cuteblas.kernels.gemm.split import GemmSplitConfig, gemm_split
from cuteblas.kernels.gemm.wgmma import WgmmaConfig, gemm_wgmma
from cuteblas.kernels.reduce.slices import ReduceConfig, reduce_split
from cuteblas.kernels.split.planes import FORMATS
from cuteblas.planning import (
    H200,
    CopyProblem,
    GemmProblem,
    Operand,
    ReductionProblem,
    plan_copy,
    plan_reduction,
)
from cuteblas.planning.gemm import mma, skinny, split, thin
from cuteblas.planning.gemm.batched import plan_batched
from cuteblas.planning.gemm.grouped import plan_grouped
from cuteblas.planning.gemm.mma import mma_tiles, thin_tiles
from cuteblas.planning.gemm.modular import plan_modular
from cuteblas.planning.gemm.outer import plan_outer
from cuteblas.planning.gemm.simt import candidates, summing
from cuteblas.planning.gemm.wgmma import TILES, TILES_OF_TWO_WORDS, plan_wgmma
from cuteblas.planning.problem import GroupedProblem
from cuteblas.planning.tutorial.gemm import POLICIES

from ..gates.cubins import machine_code
from ..pairs import sample
from .engines import plan_split

pytest.importorskip("cuda.core", reason="NVRTC comes with the extra 'test'")

FLOATS = ["float32", "float64", "complex64", "complex128"]


def cubin(kernel, arch):
    """What tests ask of a kernel's machine code; compiled unless the committed file has it."""
    return machine_code(kernel, arch)


def resources(code, _path=None):
    """Registers and stack bytes of the kernel."""
    return code.registers, code.stack


def vector(element):
    return {4: 4, 8: 2, 16: 1}[{"float32": 4, "float64": 8, "complex64": 8,
                                "complex128": 16}[element]]


@pytest.mark.parametrize("element, candidate", [(d, c) for d in FLOATS for c in candidates(d)[:3]],
                         ids=str)
def test_products_do_not_spill(element, candidate, tmp_path):
    access = OperandAccess(0, vector(element)), OperandAccess(1), OperandAccess(0, min(vector(element), candidate.values[0]))
    kernel = gemm_simt(SimtConfig(element, element, candidate, *access))
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert stack == 0, f"{kernel.name} spills"
    assert registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("element, candidate",
                         [(d, c) for d in ("float32", "complex64") for c in candidates(d)
                          if c.chains > 1], ids=str)
@pytest.mark.parametrize("a", [OperandAccess(0, 2), OperandAccess(1), OperandAccess(None)],
                         ids=["MN-major", "K-major", "strided"])
def test_small_products_in_eight_chains_do_not_spill(element, candidate, a, tmp_path):
    tile = summing(candidate, 64, 1, 4, H200)
    kernel = gemm_simt(SimtConfig(element, element, tile, a, OperandAccess(1), OperandAccess(0, 2)))
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert tile.chains == 8 and stack == 0, f"{kernel.name} spills"
    assert registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16, 32])
def test_small_matrices_do_not_spill(n, tmp_path):
    for element in ("int8", "int64", "float16", *FLOATS):
        for a, b in (((n, 1), (1, n)), ((1, n), (n, 1))):
            x, y, z = (Operand(element, strides, (n * n,)) for strides in (a, b, (n, 1)))
            kernel = plan_batched(GemmProblem(n, n, n, x, y, z, (20000,), "value", "value"),
                                  H200).launches[0].kernel
            registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
            assert stack == 0 and registers * kernel.threads <= 65536, kernel.name


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("a, b", list(product([OperandAccess(0, 4), OperandAccess(1)], repeat=2)))
def test_large_products_of_float32_do_not_spill(a, b, aligned, tmp_path):
    """They keep the order in which multiplications are written, for which the assembler has an
    option."""
    for candidate in candidates("float32")[:2]:
        kernel = gemm_simt(SimtConfig("float32", "float32", candidate, a, b, OperandAccess(0, 4),
                                      aligned=aligned))
        turns = replace(candidate, totals=None)
        slices = SimtConfig("float32", "float32", turns, a, b, OperandAccess(0, 4), batch_modes=1,
                            split_k=True, aligned=aligned, turn=64)
        assert resources(cubin(gemm_simt(slices), "sm_90"), tmp_path)[1] == 0
        registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
        assert stack == 0 and registers * kernel.threads <= 65536, kernel.name
        assert kernel.assembler == (("-O1",) if candidate.in_order else ())
        assert kernel.digest != replace(kernel, assembler=("-O2",)).digest


@pytest.mark.parametrize("element", ["float32", "float64", "float16", "complex64", "complex128",
                                     "int8", "int64", "bool"])
def test_products_with_few_columns_do_not_spill(element, tmp_path):
    """Of one column and of the most, in the orders that are read differently; as planning estimates
    their registers."""
    cases = product(("sm_90",), (1, thin.MOST_COLUMNS), product("CF", repeat=2))
    for arch, n, orders in (*cases, ("sm_75", 1, "CC"), ("sm_75", 4, "FC")):
        a, b = (Operand(element, (1000, 1) if order == "C" else (1, 1000)) for order in orders)
        b = replace(b, strides=(1, n) if orders[1] == "C" else (1000, 1))
        problem = GemmProblem(1000, n, 1000, a, b, Operand(element, (n, 1)))
        plan = thin.plan_thin(problem, replace(H200, arch=arch))
        for launch in plan.launches:
            registers, stack = resources(cubin(launch.kernel, arch), tmp_path)
            assert stack == 0 and registers * launch.kernel.threads <= 65536, (
                arch,
                n,
                orders,
                str(plan.config)
            )


@pytest.mark.parametrize("element", [*FLOATS, "float16", "bfloat16", "int8", "int16", "int64",
                                     "bool"])
def test_products_with_a_short_k_leave_registers_for_four_blocks(element, tmp_path):
    """Also where rows of C begin anywhere, with gaps between them, and beta."""
    cases = product((1, 4, 8), (1000, 1003), (("one", "zero"), ("value", "value"),
                                              ("device", "device")), (False, True))
    for k, n, (alpha, beta), gaps in sample(list(cases)):
        a, b, pitch = ((1, 900), (k, 1), n + 40) if gaps else ((k, 1), (1, n), n)
        problem = GemmProblem(900, n, k, *(Operand(element, x) for x in (a, b, (pitch, 1))), (),
                              alpha, beta)
        kernel = plan_outer(problem, H200).launches[0].kernel
        registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
        assert stack == 0 and 4 * registers * kernel.threads <= 65536, kernel.name


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tensor_core_products_do_not_spill(tile, tmp_path):
    """Written by threads and by TMA, alone and in pairs; with alpha and beta. As planned, shared
    memory is enough. Matrix instructions are not waited for one by one, as the assembler makes it
    where it finds other instructions that write to accumulators."""
    shape = {"groups": tile.groups, "columns": tile.columns, "stages": tile.stages}
    for traits in ({}, {"k_major_a": False, "k_major_b": False},
                   {"staged": "tma", "output": "float16"},
                   {"staged": "tma", "cluster": 2},
                   {"staged": "tma", "alpha": "value", "beta": "value"}, {"staged": "rows"},
                   {"staged": "tma", "divided": True, "output": "float16"},
                   {"staged": "rows", "divided": True, "alpha": "device", "beta": "device"},
                   {"divided": True, "beta": "one"},
                   {"staged": "tma", "k_major_b": False, "cluster": 2},
                   {"staged": "tma", "k_major_b": False, "clipped": True},
                   {"staged": "tma", "k_major_b": False, "divided": True},
                   {"element": "tfloat32", "staged": "tma", "divided": True, "beta": "value"}):
        if tile.columns % DEPTH and traits.get("divided") and not traits.get("k_major_b", True):
            continue                                                # planning divides none of these
        config = WgmmaConfig(**{"element": "float16", "output": "float32", **shape, **traits})
        kernel = gemm_wgmma(config)
        code = cubin(kernel, "sm_90a")
        registers, stack = resources(code, tmp_path)
        assert stack == 0 and registers * kernel.threads <= 65536, kernel.name
        if "output" in traits:
            assert code.hgmma == 4 * len(config.mma.atoms) * code.arrive > 0, kernel.name
    for output in ("float16", "float32"):
        a, b, c = Operand("float16", (4096, 1)), Operand("float16",
                                                         (1, 4096)), Operand(output, (4096, 1))
        kernel = plan_wgmma(GemmProblem(4096, 4096, 4096, a, b, c), H200, tile).launches[0].kernel
        assert kernel.shared_bytes <= H200.shared_bytes_per_block


INTEGERS = [("int8", "int32", 1, False, TILES[:6:2]), ("uint8", "int32", 4, False, TILES[1:4:2]),
            ("uint8", "int64", 8, True, TILES[:4]),
            ("uint8", "int64", 8, False, TILES_OF_TWO_WORDS[:2])]


@pytest.mark.parametrize("element, output, digits, parked, tile",
                         [(*x[:4], tile) for x in INTEGERS for tile in x[4]], ids=str)
def test_products_of_bytes_do_not_spill_and_are_not_waited_for(element, output, digits, parked,
                                                               tile, tmp_path):
    """Sums of digits are shifted and added between loops of matrix instructions, of which none is
    waited for by itself."""
    config = WgmmaConfig(element, output, cluster=tile.cluster, columns=tile.columns,
                         stages=tile.stages, groups=tile.groups, accumulator=output, digits=digits,
                         parked=parked, staged="tma", alpha="value", beta="value")
    kernel = gemm_wgmma(config)
    code = cubin(kernel, "sm_90a")
    registers, stack = resources(code, tmp_path)
    assert stack == 0 and registers * kernel.threads <= 65536, kernel.name
    assert code.igmma == 4 * len(config.mma.atoms) * code.arrive > 0, kernel.name


@pytest.mark.parametrize("form, tile",
                         [(form, tile) for form, tiles in split.TILES.items() for tile in tiles])
def test_kernels_with_a_guard_do_not_spill(form, tile, tmp_path):
    for traits in ({"staged": "tma"}, {"staged": "rows", "k_major_b": False}):
        kernel = gemm_split(GemmSplitConfig(form, "float32", fallback=2, **vars(tile), **traits))
        assert resources(cubin(kernel, "sm_90a"), tmp_path)[1] == 0
        assert kernel.shared_bytes <= H200.shared_bytes_per_block


@pytest.mark.parametrize("extents", [(400, 300, 200), (1023, 1025, 999), (4096, 4096, 4096),
                                     (40000, 40000, 8192)], ids=str)
@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_products_by_residues_do_not_spill(element, extents, tmp_path):
    """Nor does native arithmetic with a gate; and matrix instructions are not waited for one by
    one."""
    m, n, k = extents
    seen = set()
    for a, b in (((k, 1), (1, n)), ((1, m), (k, 1))):
        p = GemmProblem(m, n, k, Operand(element, a), Operand(element, b), Operand(element, (n, 1)),
                        alpha="value", beta="value")
        for kernel in {launch.kernel.name: launch.kernel
                       for launch in plan_modular(p, H200).launches}.values():
            if kernel.name in seen:
                continue
            seen.add(kernel.name)
            code = cubin(kernel, "sm_90a" if kernel.arch == "sm_90a" else "sm_90")
            registers, stack = resources(code, tmp_path)
            assert stack == 0 and registers * kernel.threads * kernel.min_blocks <= 65536, kernel.name
            assert kernel.shared_bytes <= H200.shared_bytes_per_block
            if kernel.name.startswith("gemm_modular"):
                assert code.igmma == 4 * code.arrive > 0, kernel.name


@pytest.mark.parametrize("tile", skinny.TILES, ids=str)
@pytest.mark.parametrize("a, b", list(product([OperandAccess(0, 4), OperandAccess(1, 4)],
                                              repeat=2)))
def test_skinny_products_do_not_spill(a, b, tile, tmp_path):
    more = {"alpha": "value", "c": OperandAccess(None), "slices": True, "batch_a": (True,),
            "batch_b": (True,)}
    for traits in ({}, more, {"tma": (False, False)},
                   {"tma": (False, False), "a": replace(a, width=1), "b": replace(b, width=1)},
                   {"tma": (True, False), "b": replace(b, width=2)}):
        kernel = gemm_skinny(SkinnyConfig("float32", **vars(tile), **{"a": a, "b": b, **traits}))
        registers, stack = resources(cubin(kernel, "sm_90a"), tmp_path)
        assert stack == 0 and registers * kernel.threads <= 65536, kernel.name
        assert kernel.shared_bytes <= H200.shared_bytes_per_block


THIN = [(atom.element, tile) for atom in (*SPLIT_ATOMS,
                                          *(mma_atom(x, "sm_90")
                                            for x in ("float16", "float64", "complex128")))
        for tile in thin_tiles(atom, H200, 10**6)]


@pytest.mark.parametrize("element, tile", THIN,
                         ids=lambda x: x if isinstance(x, str) else f"{x.m}x{x.n}")
def test_warp_level_products_with_few_columns_do_not_spill(element, tile, tmp_path):
    item = dtype(element).bytes
    wide, pairs, narrow = OperandAccess(1, 16 // item), OperandAccess(1, 1 if item == 16
                                                                      else 2), max(1, 4 // item)
    for a, b, traits in ((wide, wide, {}), (replace(wide, unit=0), wide,
                                            {"split_k": True, "batch_modes": 1}),
                         (wide, replace(wide, unit=0), {"alpha": "value", "batch_modes": 2}),
                         (replace(wide, unit=0, width=narrow), replace(wide, width=narrow),
                          {"wide": True, "alpha": "value"})):
        conj = dtype(element).is_complex
        kernel = gemm_mma(MmaConfig(element, tile.atom.accumulator, tile, replace(a, conj=conj), b,
                                    pairs, **traits))
        registers, stack = resources(cubin(kernel, "sm_90a"), tmp_path)
        assert stack == 0 and registers * kernel.threads * kernel.min_blocks <= 65536, kernel.name
        assert kernel.shared_bytes * kernel.min_blocks <= H200.shared_bytes_per_block


HALF = mma_atom("float16", "sm_90")
COVERED = [*mma_tiles(HALF, H200), *(tile for depth in (64, 10**6)
                                     for tile in thin_tiles(HALF, H200, depth, covered=True))]


@pytest.mark.parametrize("tile", COVERED,
                         ids=lambda x: f"{x.m}x{x.n}x{x.k} {x.stages} {x.min_blocks}")
def test_products_of_rows_that_begin_inside_of_words_do_not_spill(tile, tmp_path):
    """Tiles that differ in stages alone share the cases."""
    rows, columns = (OperandAccess(unit, covering=True) for unit in (1, 0))
    scalars = {"alpha": "value", "beta": "value"}
    wide = {
        "wide": (tile.m, tile.n, tile.min_blocks)
        not in {shape[:2] + shape[-1:] for shape in mma._COVERED_SHAPES}
    }
    cases = ((rows, columns, rows, {}), (columns, columns, rows, {"batch_modes": 1}),
             (rows, rows, rows, {"batch_modes": 1}),
             (rows, rows, OperandAccess(1, 2), {"batch_modes": 2, **scalars}),
             (OperandAccess(1, 8), columns, rows, scalars),
             (columns, OperandAccess(1, 2), rows, wide))
    alike = [x for x in dict.fromkeys(COVERED) if replace(x, stages=tile.stages) == tile]
    for a, b, c, traits in cases[alike.index(tile)::len(alike)]:
        kernel = gemm_mma(MmaConfig("float16", "float16", tile, a, b, c, **traits))
        registers, stack = resources(cubin(kernel, "sm_90a"), tmp_path)
        assert stack == 0 and registers * kernel.threads * kernel.min_blocks <= 65536, f"{kernel.name} has {stack} bytes"


@pytest.mark.parametrize("scalars", ["one zero", "value value"])
@pytest.mark.parametrize("extent, columns", [(400, 64), (4096, 128)])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("element", ["float32", "complex64"])
def test_split_products_do_not_spill(element, form, extent, columns, scalars, tmp_path):
    alpha, beta = scalars.split()
    row, column = Operand(element, (extent, 1)), Operand(element, (1, extent))
    p = GemmProblem(extent, extent, extent, row, column, row, alpha=alpha, beta=beta)
    plan = plan_split(p, H200, form)
    assert plan.config.columns == columns
    for kernel in (launch.kernel for launch in plan.launches):
        registers, stack = resources(cubin(kernel, "sm_90a" if kernel.arch == "sm_90a"
                                           else "sm_90"), tmp_path)
        assert stack == 0, f"{kernel.name} spills"
        assert registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("element, arch", [("float16", "sm_75"), ("float16", "sm_80"),
                                           ("float16", "sm_90"), ("bfloat16", "sm_89"),
                                           ("int8", "sm_80"), ("int8", "sm_120"),
                                           ("float64", "sm_80"), ("float64", "sm_90"),
                                           ("float16", "sm_100"), ("complex128", "sm_80"),
                                           ("complex128", "sm_90")])
def test_warp_level_products_do_not_spill(element, arch, tmp_path):
    atom = mma_atom(element, arch)
    wide = OperandAccess(1, 16 // dtype(element).bytes)
    crosswise = wide if element == "int8" else replace(wide, unit=0)
    tiles = list(mma_tiles(atom, replace(H200, shared_bytes_per_block=65536 if arch == "sm_75"
                                         else 101376)))
    for tile in tiles if dtype(element).bytes >= 8 else tiles[:2]:
        pairs = OperandAccess(1, min(2, wide.width))
        for conj in (False, True) if dtype(element).is_complex else (False,):
            kernel = gemm_mma(MmaConfig(element, atom.accumulator, tile, replace(wide, conj=conj),
                                        crosswise, pairs))
            registers, stack = resources(cubin(kernel, arch), tmp_path)
            assert stack == 0, f"{kernel.name} spills"
            assert registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("element, shape", [("float32", "huge"), ("float32", "tall"),
                                            ("float64", "huge"), ("int8", "huge")])
def test_policies_do_not_spill(element, shape, tmp_path):
    tile = POLICIES[element][shape].tile
    if element == "int8":
        element, tile = "int8x4", replace(tile, k=tile.k // 4)
    output = "int32" if element == "int8x4" else element
    for aligned in (False, True):
        access = OperandAccess(0, 2), OperandAccess(1), OperandAccess(0, 2)
        kernel = gemm_simt(SimtConfig(element, output, tile, *access, aligned=aligned))
        assert resources(cubin(kernel, "sm_90"), tmp_path)[1] == 0, f"{kernel.name} spills"


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_transposes_fill_the_multiprocessor(item, tmp_path):
    """Registers and shared memory for six blocks of 16 KiB with 256 threads, five of 32 KiB, or
    three of 16 KiB with 512."""
    kernel = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item),
                       H200).launches[0].kernel
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    blocks = {1: 5, 16: 3}.get(item, 6)
    assert stack == 0 and registers * kernel.threads * blocks <= 65536, f"{kernel.name} has {registers} registers"
    assert kernel.shared_bytes * blocks <= H200.shared_bytes_per_block


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_transposes_of_rows_that_begin_anywhere(item, tmp_path):
    """Two blocks of 40 KiB at least, without spills. All reads of a thread are in registers at
    once."""
    for rows, columns, src_gap, dst_gap in ((8191, 8193, 0, 0), (8193, 8191, 1, 1)):
        plan = plan_copy(CopyProblem((columns, rows), (1, columns + src_gap), (rows + dst_gap, 1),
                                     item), H200)
        kernel, config = plan.launches[0].kernel, plan.config
        registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
        assert registers >= config.tile[0] * config.rows * item // (4 * config.threads), kernel.name
        assert stack == 0 and registers * kernel.threads <= 65536 // 2 and kernel.shared_bytes <= 40 * 1024, kernel.name


@pytest.mark.parametrize("item", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(n, 10**6 + 1)[::step] for n in (3, 9, 20)
                                   for step in (1, -1)], ids=str)
def test_transposes_of_short_rows(item, shape, tmp_path):
    """Five blocks of 256 threads at least, or three of 512, without spills."""
    rows, columns = shape
    plan = plan_copy(CopyProblem((columns, rows), (1, columns), (rows, 1), item), H200)
    assert isinstance(plan.config, RearrangeConfig)
    kernel = plan.launches[0].kernel
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    blocks = 5 if kernel.threads == 256 else 3
    assert stack == 0 and registers * kernel.threads * blocks <= 65536, kernel.name


@pytest.mark.parametrize("shape, axes", [
    ((10**6, 3, 3), (0, 2, 1)), ((10**5, 7, 13), (0, 2, 1)), ((100, 200, 300, 10), (3, 2, 1, 0)),
    ((40, 50, 60, 70, 3), (1, 4, 0, 3, 2)), ((2,) * 22, (*range(0, 22, 2), *range(21, 0, -2)))])
@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_permutations_by_boxes(item, shape, axes, tmp_path):
    """Two blocks of 256 threads at least, without spills."""
    target = tuple(shape[a] for a in axes)
    strides, dense = ([prod(extents[n + 1:]) for n in range(len(axes))]
                      for extents in (shape, target))
    plan = plan_copy(CopyProblem(target, tuple(strides[a] for a in axes), tuple(dense), item), H200)
    assert isinstance(plan.config, RearrangeConfig)
    kernel = plan.launches[0].kernel
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert stack == 0 and registers * kernel.threads * 2 <= 65536, (kernel.name, registers)


@pytest.mark.parametrize("n", [8192, 8191, 8184, 8188])
@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_transpositions_in_place_do_not_spill(item, n, tmp_path):
    """Four blocks of 256 threads fit at least, two where their tiles are large, one of 512 or 1024
    threads."""
    plan = plan_copy(CopyProblem((n, n), (1, n), (n, 1), item, in_place=True), H200)
    kernel = plan.launches[0].kernel
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    blocks = 1 if kernel.threads > 256 else 2 if kernel.shared_bytes > 2 * 64 * 64 * 4 else 4
    assert stack == 0 and registers * kernel.threads * blocks <= 65536, f"{kernel.name} has {registers} registers"
    assert kernel.shared_bytes * blocks <= H200.shared_bytes_per_block


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_architectures(arch):
    """One kernel of each portable family on every architecture, old ones without asynchronous
    copies."""
    simple = OperandAccess(0, 1)
    for element in ("float32", "complex128", "float16", "bool"):
        tile = candidates(element)[-1]
        kernel = gemm_simt(SimtConfig(element, element, tile, simple, OperandAccess(1), simple,
                                      alpha="value", beta="value"))
        assert cubin(kernel, arch)
    for problem in (CopyProblem((100, 64), (1, 100), (64, 1), 1),
                    CopyProblem((100, 64), (64, 1), (64, 1), 4),
                    CopyProblem((3, 5), (1, 3), (5, 1), 16),
                    CopyProblem((65, 99), (1, 65), (99, 1), 1),
                    CopyProblem((100, 33), (1, 100), (33, 1), 2),
                    CopyProblem((64, 64), (1, 64), (64, 1), 2, in_place=True),
                    CopyProblem((65, 65), (1, 65), (65, 1), 1, in_place=True),
                    CopyProblem((8192, 8192), (1, 8192), (8192, 1), 1)):
        kernel = plan_copy(problem, H200).launches[0].kernel
        assert cubin(kernel, arch)
    atom = mma_atom("float16", arch)
    for a, b in (((1, 8), (0, 8)), ((0, 2), (1, 1))):
        access = OperandAccess(*a), OperandAccess(*b), OperandAccess(1, 2)
        kernel = gemm_mma(MmaConfig("float16", "float16", MmaTile(64, 64, 32, atom, stages=2),
                                    *access, alpha="value", beta="value"))
        assert cubin(kernel, arch)
    total = Node("add", "int32", (Node("acc", "int32"), Node("operand", "int32", name="bias")))
    relu = Node("maximum", "int32", (total, Node("constant", "int32", value=0)))
    fused = FusedEpilogue(EpilogueGraph("bias_relu", relu), (FusedMatrix("bias", "int32", (0, 1)),))
    for aligned in (False, True):
        tile = replace(POLICIES["int8"]["small"].tile, k=8)
        dp4a = SimtConfig("int8x4", "int32", tile, OperandAccess(1), OperandAccess(1), simple,
                          aligned=aligned, epilogue=fused)
        assert cubin(gemm_simt(dp4a), arch)
    assert cubin(reduce_split(ReduceConfig("float32", "float16", simple, 1, alpha="value",
                                             beta="value")), arch)


@pytest.mark.parametrize("setting", ["naive_read", "naive_write", "smem_conflict_read",
                                     "smem_conflict_write", "smem_padded", "smem_swizzled"])
def test_tutorial_transposes(setting, tmp_path):
    """All element sizes on one architecture, one of them on the others; eight blocks on a
    multiprocessor."""
    for suffix in ("", "_unpredicated"):
        for item, arch in ((1, "sm_90"), (2, "sm_90"), (4, "sm_75"), (4, "sm_120"), (8, "sm_90"),
                           (16, "sm_90")):
            problem = CopyProblem((8192, 8192), (1, 8192), (8192, 1), item,
                                  variant=f"transpose_{setting}{suffix}")
            kernel = plan_copy(problem, H200).launches[0].kernel
            code = cubin(kernel, arch)
            if arch == "sm_90":
                registers, stack = resources(code, tmp_path)
                assert stack == 0 and registers <= (40 if item < 16 else 64), kernel.name


@pytest.mark.parametrize("item", [1, 2, 4, 8])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_tma(item, arch, tmp_path):
    rows = CopyProblem((4, 8192, 8192), (2**26, 8192, 1), (2**28, 16384, 1), item,
                       variant="tma_copy")
    for problem in (rows, CopyProblem((8192, 8192), (1, 8192), (8192, 1), item,
                                      variant="tma_transpose")):
        kernel = plan_copy(problem, H200).launches[0].kernel
        code = cubin(kernel, arch)
        if arch == "sm_90":
            registers, stack = resources(code, tmp_path)
            assert stack == 0 and registers <= 40, kernel.name


@pytest.mark.parametrize("strides", [(8192, 1), (1, 8192), (2, 16384)])
@pytest.mark.parametrize("element, op, arch", [("float32", "sum", "sm_90"),
                                               ("float64", "max", "sm_90"),
                                               ("float16", "min", "sm_90"),
                                               ("bfloat16", "max", "sm_75"),
                                               ("int8", "max", "sm_90"),
                                               ("uint64", "min", "sm_120"),
                                               ("complex64", "sum", "sm_80"),
                                               ("complex128", "sum", "sm_90")])
def test_reductions_fill_the_multiprocessor(element, op, arch, strides, tmp_path):
    """Of a matrix, and of few long rows in slices with offsets of 64 bits."""
    for i, j, most in ((8192, 8192, 40), (1, 2**20, 64)):
        plan = plan_reduction(ReductionProblem(i, j, Operand(element, strides),
                                               Operand(element, (1, 0)), op=op), H200)
        for kernel in (launch.kernel for launch in plan.launches):
            code = cubin(kernel, arch)
            if arch == "sm_90":
                registers, stack = resources(code, tmp_path)
                assert stack == 0 and registers <= (most if dtype(element).bytes > 1
                                                    else 64), kernel.name


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("element, output", [("float32", "float32"), ("complex128", "complex128"),
                                             ("float16", "float32")])
def test_groups_of_products_do_not_spill(element, output, arch, tmp_path):
    """Large and small tiles; parameters that come from a table."""
    for size, order in ((40, (40, 1)), (4096, (1, 4096))):
        operand = Operand(element, order)
        p = GemmProblem(size, size, size, operand, operand, Operand(output, order), alpha="value",
                        beta="value")
        plan = plan_grouped(GroupedProblem((p, replace(p, m=size // 2))),
                            replace(H200, arch=arch, shared_bytes_per_block=65536))
        kernel = plan.launches[0].kernel
        code = cubin(kernel, arch)
        if arch == "sm_90":
            registers, stack = resources(code, tmp_path)
            assert stack == 0 and registers * kernel.threads * kernel.min_blocks <= 65536, kernel.name
