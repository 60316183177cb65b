"""Faults, put one by one into generated kernels: the emulator reports each, or the values are
wrong.

Each kernel runs unchanged too, on a problem as small as shows the fault, under several orders of
threads and blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import cuteblas.planning.gemm.mma as mma
import cuteblas.planning.gemm.skinny as planes
import cuteblas.planning.gemm.skinny as skinny
from cuteblas import emulator
from cuteblas.codegen.mma import MMA_ATOMS, mma_atom
from cuteblas.codegen.wgmma import WgmmaAtom
from cuteblas.kernels.gemm.mma import gemm_mma
from cuteblas.kernels.gemm.split import gemm_split
from cuteblas.kernels.gemm.wgmma import gemm_wgmma
from cuteblas.layout import Layout
from cuteblas.planning import H200, CopyProblem, Plan, plan_copy
from cuteblas.planning.gemm.family import Choice
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.packing import plan_packed
from cuteblas.planning.gemm.ring import WgmmaTile
from cuteblas.planning.gemm.simt import candidates, plan_simt
from cuteblas.planning.gemm.skinny import plan_skinny
from cuteblas.planning.gemm.split import plan_guarded
from cuteblas.planning.gemm.thin import THIN, plan_thin
from cuteblas.planning.gemm.wgmma import plan_wgmma
from cuteblas.planning.tutorial.copies import plan_tma_transpose

from ..kernels.engines import Strided, copy_problem, gemm_problem, place, plan_split


@dataclass
class Trial:
    """A plan and memory on which it runs.

    Attributes
    ----------
    plan : Plan
        The plan, of kernels as they are.
    memory : dict of str to Strided
        Operands by role.
    target : str
        The role of the result.
    before, want : numpy.ndarray
        What the target holds before and afterwards.
    error : float
        The largest difference that is right.
    """

    plan: Plan
    memory: dict[str, Strided]
    target: str
    before: np.ndarray
    want: np.ndarray
    error: float = 0.0

    def is_right(self, plan: Plan, seed: int | None = None) -> bool:
        """Whether a plan computes what is wanted; emulator errors are raised."""
        result = self.memory[self.target].view
        result[...] = self.before
        emulator.run(plan, {role: x.view for role, x in self.memory.items()}, seed=seed)
        return bool((abs(result - self.want) <= self.error).all())


def product(plan: Callable, m: int, n: int, k: int, kind: str, out: str = "", orders: str = "CCC",
            error: float = 0.0) -> Trial:
    """Of small integers, which is exact, or of random numbers if an error is allowed."""
    rng = np.random.default_rng(m + n + k)

    def draw(*shape: int) -> np.ndarray:
        x = (rng.standard_normal(shape) if error else rng.integers(-3, 4, shape)).astype(kind)
        return x + 1j * x[::-1] if np.dtype(kind).kind == "c" else x

    a, b = (draw(*shape).astype(kind) for shape in ((m, k), (k, n)))
    before = np.full((m, n), np.nan, out or kind)
    memory = {role: place(x, order) for role, x, order in zip("abc", (a, b, before), orders,
                                                              strict=True)}
    want = np.matmul(a, b, dtype=complex if np.dtype(kind).kind == "c" else float)
    return Trial(plan(gemm_problem(*memory.values())), memory, "c", before, want, error)


def _integers(kind: str, m: int, n: int, k: int, out: str = "") -> Trial:
    """Of all values, in planes of bytes, on two blocks."""
    rng = np.random.default_rng(m + n + k)
    info = np.iinfo(kind)
    a, b = (rng.integers(info.min, info.max, shape, kind, endpoint=True)
            for shape in ((m, k), (k, n)))
    before = np.full((m, n), 77, out or kind)
    memory = {role: place(x, order) for role, x, order in zip("abc", (a, b, before), "CFC",
                                                              strict=True)}
    problem = gemm_problem(*memory.values(), compute=out or None)
    tile = Choice(WgmmaTile(1, 64, 3), 1, k, 0)
    return Trial(plan_packed(problem, _on(2), tile), memory, "c", before, a.astype(out or kind) @ b.astype(out or kind))


def _in_two_words(*problem) -> Trial:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cuteblas.planning.gemm.wgmma.MOST_PARKED", 0)
        return _integers(*problem)


def _guarded(plan: Callable, m: int, tiny: float | None, **kinds: str) -> Trial:
    """Small integers; or, in the last rows of A, elements that no planes hold beside others that
    are multiplied by zeros."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, shape).astype("f4") for shape in ((m, 128), (128, 32)))
    if tiny:
        a[-32:], b[:] = 0, 0
        a[-32:, 3], a[-32:, 7], b[7] = 1, rng.integers(2**22, 2**23,
                                                       32) * tiny, rng.integers(1, 4, 32)
    want = a.astype(float) @ b.astype(float)
    before = want.astype("f4") if kinds else np.full((m, 32), np.nan, "f4")
    memory = {role: place(x) for role, x in zip("abc", (a, b, before), strict=True)}
    want = want + before if kinds else want
    return Trial(plan(gemm_problem(*memory.values(), **kinds)), memory, "c", before, want,
                 8 * (tiny or 0))


def _skinny(problem):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skinny, "LEAST_K", 1)
        return plan_skinny(problem, H200, Choice(skinny.TILES[1], 1, problem.k, -(-problem.m // 128)))


def _planes(problem):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "LEAST_K", 1)
        return planes.plan_planes(problem, _on(1))


def _square_tile(problem, extent: int):
    """On gemm_mma, by a tile of so many rows and columns that is not for few of them."""
    tiles = [tile for tile in mma.mma_tiles(mma_atom(problem.a.dtype, "sm_90"), H200)
             if tile.m == tile.n == extent]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mma, "thin_tiles", lambda *_: iter(()))
        patch.setattr(mma, "mma_tiles", lambda *_: iter(tiles))
        return plan_mma(problem, H200)


def _sharing(problem, lanes: int = 1, warps: int = 1, slices: int = 0, stages: int = 1):
    """A choice in which so many lanes and warps share K, or more."""
    found = THIN.choices(problem, H200)
    return next(x for x in found if x.tile.lanes[1] >= lanes and x.tile.warps[1] >= warps
                and x.slices > slices and x.tile.stages == stages)


def _transpose(plan: Callable) -> Trial:
    x = np.arange(64.0 * 64).reshape(64, 64).astype("f4")
    src, dst = place(x), place(np.full((64, 64), np.nan, "f4"), "F")
    return Trial(plan(copy_problem(src, dst), H200), {"src": src, "dst": dst}, "dst",
                 dst.view.copy(), x)


def _in_place(n: int) -> Trial:
    x = np.arange(float(n * n)).reshape(n, n).astype("f4")
    return Trial(plan_copy(CopyProblem((n, n), (1, n), (n, 1), 4, 16, 16, in_place=True), H200),
                 {"dst": place(x)}, "dst", x, x.T)


def _boxes(shape: tuple[int, ...], axes: tuple[int, ...], kind: str, offset: int = 0) -> Trial:
    """A permutation by boxes, into a target that begins at an element."""
    x = (np.arange(np.prod(shape)) % 251).astype(kind).reshape(shape)
    src, want = place(x), x.transpose(axes)
    dst = place(np.full(want.shape, 252, kind), offset=offset)
    moved = Strided(src.base, src.offset, want.shape, tuple(src.strides[axis] for axis in axes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cuteblas.planning.copy.dispatch._BOXED_FROM", 0)
        plan = plan_copy.__wrapped__(copy_problem(moved, dst), H200)
    return Trial(plan, {"src": moved, "dst": dst}, "dst", dst.view.copy(), want)


def _on(multiprocessors: int):
    return replace(H200, multiprocessors=multiprocessors)


def _undivided(p, tile: int, blocks: int = 1) -> Choice:
    """A tile of float32 for a product that is one block, or so many."""
    return Choice(candidates("float32")[tile], 1, p.k, blocks)


def _in_turns(slices: int) -> Choice:
    """Slices of a tile of float32 with one chain."""
    return Choice(replace(candidates("float32")[0], totals=None), slices, 192, slices, turn=64)


TRIALS: dict[str, Callable[[], Trial]] = {
    # Two blocks, which work on two tiles each; nine steps along K in a ring of three stages.
    "wgmma": lambda: product(
        lambda p: plan_wgmma(p, _on(2), WgmmaTile(1, 64, 3)), 64, 256, 576, "f2", "f4"
    ),
    "divided": lambda: product(
        lambda p: plan_wgmma(p, _on(3), WgmmaTile(1, 64, 3), 1), 64, 64, 576, "f2", "f4"
    ),
    "bytes": lambda: _integers("int8", 64, 192, 304, "int32"),
    "digits": lambda: _integers("int32", 64, 128, 300),
    "parked": lambda: _integers("uint64", 64, 128, 300),
    "two_words": lambda: _in_two_words("int64", 64, 64, 300),
    "cluster": lambda: product(
        lambda p: plan_wgmma(p, H200, WgmmaTile(1, 64, 3, 2)), 128, 64, 320, "f2", "f4"
    ),
    "split": lambda: product(
        lambda p: plan_split(p, H200, "fp16x3"), 64, 64, 128, "f4", error=1e-4
    ),
    # of blocks
    "split_by_pairs": lambda: product(
        lambda p: plan_split(p, H200, "fp16x3"), 64, 64, 384, "f4", error=1e-4
    ),
    # C is an input, so that what computes it twice is seen.
    "guard": lambda: _guarded(lambda p: plan_guarded(p, H200), 64, 2.0**-60, beta="one"),
    "guard_that_holds": lambda: _guarded(lambda p: plan_guarded(p, H200), 64, None, beta="one"),
    "guard_of_blocks": lambda: _guarded(_skinny, 160, 2.0**-149),
    "skinny": lambda: product(_skinny, 32, 32, 384, "f4", error=1e-4),
    "guard_of_planes": lambda: _guarded(_planes, 160, 2.0**-149),
    "planes": lambda: product(_planes, 330, 20, 100, "f4", error=1e-5),
    "complex_planes": lambda: product(_planes, 70, 20, 100, "c8", error=2e-5),
    "mma": lambda: product(lambda p: _square_tile(p, 64), 40, 48, 168, "f2", "f4"),
    "mma64": lambda: product(lambda p: _square_tile(p, 32), 40, 48, 72, "f8"),
    "simt": lambda: product(
        lambda p: plan_simt(p, H200, choice=_undivided(p, 6, blocks=2)), 30, 44, 100, "f4"
    ),
    # Three chunks, whose totals are in shared memory.
    "simt_shared": lambda: product(
        lambda p: plan_simt(p, H200, choice=_undivided(p, 3)), 20, 24, 2100, "f4"
    ),
    # Seven slices of one chain each, which take turns; the last one ends early.
    "simt_turns": lambda: product(
        lambda p: plan_simt(p, H200, choice=_in_turns(7)), 20, 24, 960, "f4"
    ),
    "slices": lambda: product(lambda p: plan_simt(p, H200), 16, 16, 1024, "f4"),
    # Six columns by a ring of stages, shared by lanes along K; three by warps and slices.
    "thin": lambda: product(
        lambda p: plan_thin(p, H200, choice=_sharing(p, lanes=8, stages=4)), 30, 6, 1300, "f4"
    ),
    "thin_slices": lambda: product(
        lambda p: plan_thin(p, H200, choice=_sharing(p, warps=4, slices=4)),
        4,
        3,
        9000,
        "f4",
        orders="FCC"
    ),
    "transpose": lambda: _transpose(plan_copy),
    "tma_transpose": lambda: _transpose(plan_tma_transpose),
    # Boxes that end beyond the permutation, of rows that begin anywhere; of bytes by words; and of
    # runs that words cover.
    "boxes": lambda: _boxes((37, 5, 7, 11), (3, 1, 2, 0), "f4", 3),
    "boxes_of_bytes": lambda: _boxes((40, 3, 14, 8), (3, 1, 2, 0), "u1"),
    "boxes_of_runs": lambda: _boxes((37, 5, 7, 11), (3, 1, 2, 0), "u1", 3),
    "tiles_of_rows_anywhere": lambda: _boxes((350, 250), (1, 0), "u1", 3),
    "in_place": lambda: _in_place(124),
}


@cache
def trial(name: str) -> Trial:
    return TRIALS[name]()


NOTHING = ""
INDEXED = r"\[([^\[\]]*)\]"
STAGED = r"(?s)(cb::named_barrier_sync[^;]*;)(.*?)(cb::named_barrier_sync[^;]*;)(\s*if \(\(tid & 127\) == 0\) \{\s*cb::tma_store\()"

# Of which kernel (and which launch of its plan): what fault: a pattern, and what replaces all that
# match it, or the first of them.
MUTATIONS: dict[str, dict[str, tuple]] = {
    "wgmma": {
        "no barrier after the initialisation": (r"cb::syncthreads\(\);", NOTHING),
        "no fence after the initialisation": (r"cb::mbarrier_init_fence\(\);", NOTHING),
        "a stage is filled before it is empty": (r"cb::mbarrier_wait\(&empty[^;]*;", NOTHING),
        "the wrong phase of empty": (r"(&empty\[stage\], parity) \^ 1", r"\1"),
        "a stage is read before it is full": (r"cb::mbarrier_wait\(&full[^;]*;", NOTHING),
        "the wrong phase of full": (r"(&full\[stage\], parity)\)", r"\1 ^ 1)"),
        "fewer bytes are expected": ("16384\\)", "16368)"),
        "more bytes are expected": ("16384\\)", "16400)"),
        "no bytes are expected": (
            r"cb::mbarrier_arrive_expect_tx\((&full\[stage\]), 16384\)",
            r"cb::mbarrier_arrive(\1)"
        ),
        "one more reader is expected": (r"(cb::mbarrier_init\(&empty\[0\], )1", r"\g<1>2"),
        "one more writer is expected": (r"(cb::mbarrier_init\(&full\[0\], )1", r"\g<1>2"),
        "a barrier is not initialised": (r"cb::mbarrier_init\(&full\[2\], 1\);", NOTHING),
        "no fence before wgmma": (r"cb::wgmma_fence\(\);", NOTHING),
        "wgmmas are not committed": (r"cb::wgmma_commit\(\);", NOTHING),
        "no wait before a stage is released": (r"cb::wgmma_wait<1>\(\);", NOTHING),
        "a wait for too few wgmmas": (r"cb::wgmma_wait<1>", "cb::wgmma_wait<2>"),
        "no wait for the last wgmmas": (r"cb::wgmma_wait<0>\(\);", NOTHING),
        "the stage that is read is released": (r"&empty\[released\]", "&empty[stage]", 1),
        "no stage is released": (r"cb::mbarrier_arrive\(&empty[^;]*;", NOTHING),
        "a stage is released twice": (r"\(tid & 127\) < 1", "(tid & 127) < 2"),
        "another swizzle in a descriptor": (r"(&sA\[0\], 16, 1024, )128", r"\g<1>64"),
        "another stride in a descriptor": (r"(&sA\[0\], 16, )1024", r"\g<1>512"),
        "another step along K": (r"stage \* 8192 \+ 32\)", "stage * 8192 + 64)"),
        "another stage in a descriptor": (r"(descriptor_a, )stage \*", r"\1(stage ^ 1) *", 1),
        "another major in wgmma": ("cb::half, 0, 1>", "cb::half, 0, 0>"),
        "the swizzle of C is another": (r"(tCsC_offset & 224\)) >> 3", r"\1 >> 4"),
        "rows of the accumulators are exchanged": (r"tCsC\[i \* 256", "tCsC[(1 - i) * 256"),
        "lanes of the accumulators are exchanged": (
            r"\(tid & 3\) \* 2 \+ \(\(tid >> 2\) & 7\) \* 32",
            "((tid >> 3) & 3) * 2 + (tid & 7) * 32"
        ),
        "neighbours among the accumulators are exchanged": (r"tCrC\[i_ \+", "tCrC[1 - i_ +"),
        "columns of the accumulators are exchanged": (
            r"tCrC\[(i_ \+ i \* 2 \+) j \* 4",
            r"tCrC[\1 (j ^ 1) * 4"
        ),
        "warps of the accumulators are exchanged": (
            r"\(\(tid >> 5\) & 3\) \* 512",
            "(((tid >> 5) & 3) ^ 1) * 512"
        ),
        "no proxy fence before C leaves": (r"cb::fence_proxy_async\(\);", NOTHING),
        "no barrier before C leaves": (STAGED, r"\1\2\4"),
        "no barrier before C is written again": (STAGED, r"\2\3\4"),
        "C is written again before it was read": (r"cb::tma_store_wait_read<1>\(\);", NOTHING),
        "the block ends before C was read": (r"cb::tma_store_wait_read<0>\(\);", NOTHING),
        "stores are not committed": (r"cb::tma_store_commit\(\);", NOTHING),
        "two threads store C": (
            r"\(tid & 127\) == 0(\) \{\s*cb::tma_store\()",
            r"(tid & 127) < 2\1"
        ),
        "accumulators are not set": (r"tCrC\[[^;]*\] = cb::zero<float>\(\);", NOTHING),
        "one accumulator is not set": (r"(tCrC\[i \+ j \* 2 \+ k \* 4\] = )", r"if (i + j + k) \1"),
        "what is accumulated is lost": (r", 1\);\s*cb::wgmma_commit", ", 0); cb::wgmma_commit"),
        "two blocks have one tile": (r"int tile = block;", "int tile = block & 2;"),
        "a step along K is left out": (r"k_tile < k_tiles", "k_tile + 1 < k_tiles", 1),
        "the producer is one of those who read": (r"tid == 128", "tid == 0"),
        "the producer stays at its stage": (r"stage = stage == 2 \? 0 : stage \+ 1;", NOTHING, 1),
        "the consumers stay at their stage": (
            r"(?s)(stage = stage == 2 \? .*)stage = stage == 2 \? 0 : stage \+ 1;",
            r"\1"
        ),
        "the producer's phase does not turn": (
            r"parity = stage == 2 \? parity \^ 1 : parity;",
            NOTHING,
            1
        ),
        "the consumers' phase does not turn": (
            r"(?s)(parity = stage == 2 \?.*)parity = stage == 2 \? parity \^ 1 : parity;",
            r"\1"
        ),
        "the phase turns one stage early": (r"parity = stage == 2", "parity = stage == 1", 1),
    },
    "divided:1": {
        "nobody waits for other blocks": (r"while \(cb::load_flag[^;{]*\{\}", NOTHING),
        "the flag is set before all threads have stored": (
            r"cb::named_barrier_sync[^;]*;(\s*if \(\(tid & 127\) == 0\) \{\s*cb::store_flag)",
            r"\1"
        ),
        "the flag is set before anything is stored": (
            r"(?s)(#pragma unroll\s*for \(int j = 0; j < 8; \+\+j\) \{\s*cb::store_global<4>.*?)"
            r"(cb::named_barrier_sync[^;]*;\s*if \(\(tid & 127\) == 0\) \{\s*cb::store_flag[^}]*\})",
            "\\2\n\\1"
        ),
        "the first of them is not awaited": (
            r"other = first_block(; other < block; \+\+other\) \{\s*while)",
            r"other = first_block + 1\1"
        ),
        "the last of them is not awaited": (
            r"other < block(; \+\+other\) \{\s*while)",
            r"other < block - 1\1"
        ),
        "no release": (
            r"cb::store_flag\(&flags\[block\], 1u\);",
            "unsigned one = 1; cb::store_global<1>(&flags[block], &one);"
        ),
        "no acquire": (
            r"while \(cb::load_flag\((&flags\[other\])\) == 0u\) \{\}",
            r"unsigned seen = 0; while (seen == 0u) cb::load_global<1>(&seen, \1);"
        ),
        "another block's flag": (r"cb::store_flag\(&flags\[block\]", "cb::store_flag(&flags[0]"),
        "one place for the sums of two blocks": (
            r"(tSgS = &sums\[\(tid & 127\) \* 4 \+ )block",
            r"\1(block >> 1)"
        ),
        "the sums of another block": (
            r"(tOgS = &sums\[\(tid & 127\) \* 4 \+ )other",
            r"\1(other | 1)"
        ),
        "one sum is not added": (
            r"(for \(int other = )first_block(; other < block; \+\+other\) \{\s*float)",
            r"\1first_block + 1\2"
        ),
        "sums are not loaded": (r"cb::load_global<4>\(&others[^;]*;", NOTHING),
    },
    "divided:0": {
        "flags are not cleared": (r"cb::store_global<1>[^;]*;", NOTHING),
        "one flag is not cleared": (r"word = tid;", "word = tid + 1;"),
    },
    "bytes": {
        "bytes have no sign": ("signed char, signed char>", "unsigned char, unsigned char>"),
        "one operand has no sign": ("signed char, signed char>", "signed char, unsigned char>"),
        "no wait for the last wgmmas": (r"cb::wgmma_wait<0>\(\);", NOTHING),
        "another step along K": (r"stage \* 8192 \+ 32\)", "stage * 8192 + 64)"),
    },
    "digits:2": {
        "sums are not shifted": (r"<< 8", "<< 0"),
        "sums are shifted too far": (r"<< 8", "<< 9"),
        "accumulators are shifted before they are there": (r"cb::wgmma_wait<0>\(\);", NOTHING, 1),
        "the lowest digits come first": (r"(, digit)\);", r", 0);"),
        "planes of another sum": (r"-higher - digit \+ 3", "(-higher - digit + 4) % 4"),
        "the planes are exchanged": (r"(&mapA[^;]*, )digit\)", r"\1of_b)"),
        "a product is left out": (r"digit < -higher \+ 4", "digit < -higher + 3 + (higher == 3)"),
        "a sum ends early": (r"\(-sum \+ 4\) \* k_tiles", "(-sum + 4) * k_tiles - (sum == 3)"),
    },
    "parked:2": {
        "nothing is carried": (r"(tCrC\[[^;]*\] = )static_cast<int>\([^;]*>> 8\);", r"\g<1>0;"),
        "sums are shifted too far": (
            r"(static_cast<unsigned int>\(tCrC[^;]*\)) >> 8\)",
            r"\1 >> 9)"
        ),
        "digits are not parked": (r"cb::store_global<4>\(&tPgP[^;]*;", NOTHING),
        "all digits are parked in one place": (r"(&tPgP\[)sum \* \d+", r"\g<1>0"),
        "digits of other accumulators": (r">> i_ \* 8 \+ i \* 16", ">> i_ * 16 + i * 8"),
        "all blocks park in one place": (r"(tPgP = [^;]*)block \* \d+", r"\g<1>0"),
        "planes of another sum": (r"(of_b = )sum - digit", r"\1sum % 7"),
        "accumulators are shifted before they are there": (r"cb::wgmma_wait<0>\(\);", NOTHING, 1),
    },
    "two_words:2": {
        "the upper half is not kept": (
            r"(total\[[^;]*\] = )static_cast<unsigned long long>\([^;]*;",
            r"\g<1>0;"
        ),
        "totals are not shifted": (r"part_of_sum == 0 \? 8 : 0", "0"),
        "accumulators are not cleared": (
            r"(?s)(total.*?)tCrC\[[^;]*\] = cb::zero<int>\(\);",
            r"\1"
        ),
    },
    "cluster": {
        "no barrier of the cluster at the beginning": (r"cb::cluster_sync\(\);", NOTHING, 1),
        "a block leaves while another one writes to it": (
            r"(?s)(cb::cluster_sync.*)cb::cluster_sync\(\);",
            r"\1"
        ),
        "the wrong block is told": (
            r"cb::mbarrier_arrive_at\((&empty\[released\]), partner\)",
            r"cb::mbarrier_arrive(\1)"
        ),
        "one of the blocks is left out": (r"(&full\[stage\], )3,", r"\g<1>1,"),
        "all parts are the first": (r"k_tile \* 64 \+ rank \* 32", "k_tile * 64"),
    },
    "split:0": {
        "no barrier before the parts are read": (r"cb::syncthreads\(\);", NOTHING, 1),
        "no barrier after the parts are read": (
            r"(?s)(cb::syncthreads.*)cb::syncthreads\(\);",
            r"\1"
        ),
        "the copies are not awaited": (r"cb::cp_async_wait<0>\(\);", NOTHING),
        "rows that do not exist": (r"tXcX_0 < MB && ", "true || "),
        "lanes that are not asked": (r"cb::shuffle_xor\(top\[0\], 8\)", "top[0]"),
        "two blocks have the same rows": (
            r"(block_of_A = )cb::max\(block - blocks_first, 0\)",
            r"\g<1>cb::max(block - blocks_first, 0) & ~1"
        ),
        "the first largest is not set": (r"\btop\[[i0]\] = cb::zero<float>\(\);", NOTHING),
    },
    "split_by_pairs:0": {
        "nobody waits for the other block": (r"cb::mbarrier_wait\(&came[^;]*;", NOTHING),
        "fewer bytes are expected": (r"(&came\[0\], )128", r"\g<1>124"),
        "the other block may not have begun": (r"cb::cluster_sync\(\);", NOTHING, 1),
        "no fence after the initialisation": (r"cb::mbarrier_init_fence\(\);", NOTHING),
        "both blocks tell the same place": (r"(&told_top\[tid \+ )rank \* 16", r"\g<1>0"),
    },
    "split:1": {
        "fewer bytes are expected": ("32768\\)", "32752)"),
        "no fence before wgmma": (r"cb::wgmma_fence\(\);", NOTHING),
    },
    "guard:0": {
        "small elements are not counted": (r"cb::count_magnitude\([^;]*;", NOTHING),
        "a row needs nothing": (r"(record\[0\] = )cb::row_need\([^;]*;", r"\g<1>0.0f;"),
        "no record is left": (r"cb::store_global<2>\(&SA[^;]*;", NOTHING),
    },
    "guard:1": {
        "blocks write without a verdict": (r"cb::mbarrier_wait\(&judged[^;]*;", NOTHING),
        "blocks write whatever it is": (r"if \(given\[0\] != 0u\) return;", NOTHING),
        "no word takes the verdict": (r"cb::store_global<1>\(&status[^;]*;", NOTHING),
        "what A needs is not asked": (r"need_SA > offer_SB", "false"),
        "the verdict is for another fallback": (r"is_lacking \? 2u", "is_lacking ? 1u"),
    },
    "guard:2": {
        "the gate of another fallback": (r"word == 2u", "word == 1u"),
    },
    "guard_that_holds:1": {
        "blocks leave though it holds": (r"given\[0\] != 0u", "given[0] == 0u"),
    },
    "guard_that_holds:2": {
        "the gate is open": (r"if \(!cb::syncthreads_or\(gate_opens\)\) return;", NOTHING),
    },
    "guard_of_blocks:0": {
        "the range is not kept": (r"in_range = cb::pairs_are_between[^;]*;", NOTHING),
        "one thread's range is kept": (
            r"cb::syncthreads_or\(!in_range\)",
            "(tid == 0 && !in_range)"
        ),
        "all blocks have one word": (r"status\[reporting\]", "status[0]"),
    },
    "guard_of_blocks:1": {
        "one word is read": (r"i < gate_words", "i < 1"),
    },
    "skinny:0": {
        "no proxy fence after the planes": (r"cb::fence_proxy_async\(\);", NOTHING),
        "no barrier after the planes": (r"cb::named_barrier_sync\(1, 128\);", NOTHING),
        "planes are written before they are free": (r"cb::mbarrier_wait\(&free[^;]*;", NOTHING),
        "planes are read before they are ready": (r"cb::mbarrier_wait\(&ready[^;]*;", NOTHING),
        "no fence after the registers of A": (r"cb::wgmma_fence\(\);", NOTHING, 1),
        "registers of A change while they are read": (r"cb::wgmma_wait<1>\(\);", NOTHING),
        "a warp releases what its lanes still read": (r"cb::syncwarp\(\);", NOTHING),
        "words of A are exchanged": (
            r"(wgmma_m64k16_rs<32, cb::bfloat16, 0>\(main_, )a0_0",
            r"\1a1_0"
        ),
    },
    "guard_of_planes:0": {
        "the range is not kept": (r"cb::syncthreads_or\([^;]*\)", "false"),
        "one tile's range is kept": (
            r"for \(int block = own_block; block < blocks",
            "for (int block = own_block; block < 1"
        ),
    },
    "planes": {
        "a block computes one tile": (r"block \+= own_blocks", "block += blocks"),
        "pairs of A are exchanged": (
            r"split_pair\((tCrA\[[^\]]*\]), (tCrA\[[^\]]*\])",
            r"split_pair(\2, \1"
        ),
        "planes of B are those of A": (r"&planes_of_b\[", "&planes_of_a["),
        "copies are not awaited": (r"cb::cp_async_wait<\d>\(\);", NOTHING),
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
    },
    "complex_planes": {
        "B is conjugated": (r"split_complex_mma_m16n8k8<false>", "split_complex_mma_m16n8k8<true>"),
        "parts of A are exchanged": (
            r"split_pair\((tCrA\[[^\]]*\])\.re, (tCrA\[[^\]]*\])\.im",
            r"split_pair(\1.im, \2.re"
        ),
    },
    "mma": {
        "copies are not awaited": (r"cb::cp_async_wait<2>\(\);", NOTHING),
        "too few copies are awaited": (r"cb::cp_async_wait<2>", "cb::cp_async_wait<3>"),
        "copies are not committed": (r"cb::cp_async_commit\(\);", NOTHING, 1),
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "no barrier in the loop": (r"(?s)(cb::syncthreads\(\);.*)cb::syncthreads\(\);", r"\1"),
        "rows of A that do not exist": (r"tAcA_0 \+ j \* 32 < M && ", NOTHING),
        "a part of K that does not exist": (r" && tAcA_1 \+ k_tile \* 32 \+ 96 < K", NOTHING),
        "rows of C that do not exist": (r"tCcC_0 \+ i \* 8 \+ j \* 16 < M && ", NOTHING),
        "columns of C that do not exist": (r" && tCcC_1 \+ k \* 8 < N", NOTHING),
        "another swizzle of A": (r"(tCsA_offset & 192\)) >> 3", r"\1 >> 4"),
        "another swizzle of what is copied": (r"(tAsA_offset & 192\)) >> 3", r"\1 >> 4"),
        "matrices of B are not transposed": ("cb::ldmatrix_x4_trans", "cb::ldmatrix_x4"),
        "rows of the accumulators are exchanged": (r"tCgC\[i \*", "tCgC[(1 - i) *"),
        "lanes of the accumulators are exchanged": (
            r"\(tid & 3\) \* 2 \+ \(\(tid >> 2\) & 7\) \* dC_m",
            "((tid >> 3) & 3) * 2 + (tid & 7) * dC_m"
        ),
        "registers of A are exchanged": (r"(&tCrA)\[i \* 4\](, &tCrB)", r"\1[(1 - i) * 4]\2"),
        "registers of B are exchanged": (r"&tCrB\[j \* 2\]", "&tCrB[(j ^ 1) * 2]"),
        "accumulators are not set": (r"tCrC\[[^;]*\] = cb::zero<float>\(\);", NOTHING),
        "operands are not loaded": (r"cb::ldmatrix_x4\(&tCrA\[i \* 4 \+ 8\][^;]*;", NOTHING),
    },
    "mma64": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "accumulators are not set": (r"tCrC\[[^;]*\] = cb::zero<double>\(\);", NOTHING),
        "lanes of the accumulators are exchanged": (r"\(tid & 3\) \* 2", "((tid & 3) ^ 1) * 2"),
    },
    "simt": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "copies are not awaited": (r"cb::cp_async_wait<1>\(\);", NOTHING),
        "accumulators are not set": (r"tCrC\[[^;]*\] = cb::zero<float>\(\);", NOTHING),
        "two blocks have one tile": (r"int const block = blockIdx.x;", "int const block = 0;"),
        "totals are not set": (r"tCrT\[[^;]*\] = cb::zero<float>\(\);", NOTHING),
        "the sums of a chunk are lost": (r"tCrT\[[^;]*\] = cb::add[^;]*;", NOTHING),
        "a chunk begins with the sums before it": (
            r"(?s)(// The end of a chunk.*?)tCrC\[[^;]*\] = cb::zero<float>\(\);",
            r"\1"
        ),
        "totals are left out": (r"tCrC\[[^;]*\] = cb::add[^;]*;", NOTHING),
        "a chunk has a tile too few": (
            r"cb::min\(first \+ chunk_tiles",
            "cb::min(first + chunk_tiles - 1"
        ),
        "a chunk has a tile too many": (
            r"cb::min\(first \+ chunk_tiles",
            "cb::min(first + chunk_tiles + 1"
        ),
    },
    "simt_shared": {
        "the sums of the first chunk are lost": (
            r"(?s)(else \{\s*#pragma unroll.*?)cb::store_shared<4>\(&tCsT[^;]*;",
            r"\1"
        ),
        "the sums of a chunk are lost": (r"tCrT\[[^;]*\] = cb::add[^;]*;", NOTHING),
        "a total is not written": (r"cb::store_shared<4>\(&tCsT[^;]*&tCrT[^;]*;", NOTHING),
        "totals are left out": (r"tCrC\[[^;]*\] = cb::add[^;]*;", NOTHING),
        "a chunk begins with the sums before it": (
            r"(?s)(// The end of a chunk.*?)tCrC\[[^;]*\] = cb::zero<float>\(\);",
            r"\1"
        ),
        "the second chunk is taken for the first": (
            r"chunk_tiles < first",
            "2 * chunk_tiles < first"
        ),
        "threads have one total": (r"(tCsT = &sT\[)[^\]]*", r"\g<1>0"),
    },
    "simt_turns": {
        "all slices have the depth of the first": (r"item \* 64, 0\), 64\)", "0, 0), 64)"),
        "a slice goes on where its turn ends": (r"L0 \* 64", "64"),
        "turns have a step less": (r"& 7\)", "& 3)"),
    },
    "slices:1": {
        "the sums are not set": (r"total\[l\] = cb::zero<float>\(\);", NOTHING),
        "a part is not loaded": (r"cb::load_global<1>[^;]*;", NOTHING),
        "slices are left out": (r"slice \+= 4", "slice += 8"),
        "a chain is left out": (r"total\[1\] = cb::add[^;]*;", NOTHING),
    },
    "simt_turns:1": {
        "parts of the slices before are added again": (
            r"part\[l\] = cb::zero<float>\(\);",
            NOTHING
        ),
        "a slice of what is left is left out": (r"whole \+ 2 < S", "whole + 3 < S"),
    },
    "thin": {
        "lanes are not added": (r"cb::shuffle_xor\([^;]*, 2\)\)", "cb::zero<float>())"),
        "columns are not exchanged": (r"if \(\(lane_along_k & 1\) == 1\)", "if (false)"),
        "accumulators are not set": (r"tCrC\[[^;]*\] = cb::zero<float>\(\);", NOTHING),
        "copies are not awaited": (r"cb::cp_async_wait<2>\(\);", NOTHING),
        "a stage is written while it is read": (r"int write = 3;", "int write = 0;"),
        "two blocks have one tile": (r"int const block = blockIdx.x;", "int const block = 0;"),
    },
    "thin_slices:0": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "a slice is too long": (r"cb::min\(chunk, ", "cb::min(chunk + 64, "),
        "a warp is left out": (r"for \(int other = 1;", "for (int other = 2;"),
    },
    "thin_slices:1": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "a slice is left out": (r"whole \+ first \+ 16 < S", "whole + first + 17 < S"),
        "the sums are not set": (r"total\[l\] = cb::zero<float>\(\);", NOTHING),
    },
    "transpose": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "another swizzle": (r"(\(tDsT_offset & \d+\)) >> (\d)", r"\1 >> (\2 - 1)"),
    },
    "boxes": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "copies are not awaited": (r"cb::cp_async_wait<0>\(\);", NOTHING),
        "a box is a part too long": (r"(limit_0 = cb::min\()N0 - start_0", r"\1N0 - start_0 + 1"),
        "a box is a part too short": (r"(limit_0 = cb::min\()N0 - start_0", r"\1N0 - start_0 - 1"),
        "rows that do not exist are read": (r"S_row < \d+ && S_row < limit_0", "true"),
        "lanes begin two words early": (r"D_lane - D_early_0", "D_lane - D_early_0 - 2"),
        "a word in front of a row": (r"-1 < D_at_0 && ", NOTHING),
        "a word after a row": (r" && D_at_0 < limit_0", NOTHING),
        "a row that does not exist is written": (r"D_row \+ 8 < 11 && ", NOTHING),
        "another stride in shared memory": (r"D_at_0 \* 11", "D_at_0 * 10"),
        "a box in the place of its neighbour": (
            r"(int const D_first = start_0) \+",
            r"\1 - 16 * (start_0 > 0) +"
        ),
    },
    "boxes_of_bytes": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "a word is not loaded": (r"cb::load_global<1>\(&tSrS[^;]*;", NOTHING, 1),
        "two bytes of a word are the same": (r"tSrS\[0\] >> 8", "tSrS[0] >> 16"),
        "the last word of a run": (r" && S_at_0 < S_end", NOTHING),
        "a word after a run": (r" && D_at_0 < D_end", NOTHING),
    },
    "boxes_of_runs": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "words are not shifted": (r"D_bits_0 = \(D_held_0 & 3\) \* 8", "D_bits_0 = 0"),
        "words are shifted by one element more": (
            r"D_bits_0 = \(D_held_0 & 3\)",
            "D_bits_0 = (D_held_0 + 1 & 3)"
        ),
        "the second word is the first": (r"D_beyond_0 = [^;]*;", "D_beyond_0 = D_below_0;"),
        "the second word is always the next": (
            r"D_beyond_0 = [^;]*;",
            "D_beyond_0 = D_below_0 + 1;"
        ),
        "a word that begins before the run": (r"D_low_0 - 1 < D_lane && ", NOTHING),
        "a word that ends after the run": (r" && D_lane \+ 32 < D_high_0", NOTHING),
        "words in the place of their neighbours": (r"(D_line_0 = [^;]*);", r"\1 + 1;"),
        "the first elements are left out": (r"cb::min\(head, D_end\)", "0"),
        "the last elements are left out": (r"int const tail = [^;]*;", "int const tail = 0;"),
        "the first elements are too few": (
            r"int const head = [^;]*;",
            "int const head = (-begin) & 1;"
        ),
        "elements are one place off in shared memory": (
            r"D_above_e \+ at \+ 32",
            "D_above_e + at + 31"
        ),
        "runs are one element longer": (
            r"int const D_end = limit_1 \* 37",
            "int const D_end = limit_1 * 37 + 1"
        ),
    },
    "tiles_of_rows_anywhere": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "words are not shifted": (r"int const bits_1 = [^;]*;", "int const bits_1 = 0;"),
        "a cut is a sector early": (r"(int const later_T = [^;]*);", r"\1 + 32;"),
        "words of the next row of the tile": (r"word_T0_1 = ", "word_T0_1 = 1 + "),
        "a vector after the last": (r"here_T0 < last_T", "here_T0 <= last_T"),
        "what is before the first row is written": (
            r"later_T \+ starts_T \* \([^;{]*?\) - 1 < here_T0 && ",
            NOTHING
        ),
        "vectors in the place of their neighbours": (r"(int const line = [^;]*);", r"\1 + 4;"),
        "the beginnings of rows are left out": (
            r"cb::min\(starts_T \* \(later",
            "cb::min(0 * (later"
        ),
        "the ends of rows are left out": (
            r"(\+ tEcT_1 < )cb::min\(end_T, later \+ 128\)\) \{",
            r"\1 0) {"
        ),
        "words beyond the array's memory": (
            r"int const inside_T = [^;]*;",
            "int const inside_T = 1;"
        ),
    },
    "tma_transpose": {
        "fewer bytes are expected": ("16384\\);", "8192);"),
        "the tile is not awaited": (r"cb::mbarrier_wait[^;]*;", NOTHING),
        "no fence after the initialisation": (r"cb::mbarrier_init_fence\(\);", NOTHING),
        "no barrier after the initialisation": (r"cb::syncthreads\(\);", NOTHING),
    },
    "in_place": {
        "no barrier": (r"cb::syncthreads\(\);", NOTHING),
        "two blocks have one pair of tiles": (
            r"int const block = blockIdx.x;",
            "int const block = blockIdx.x & ~1;"
        ),
        "tiles beyond the matrix": (r"tDcT_0 \+ j \* 16 < N && tDcT_1 < N", "true"),
        "a tile is written before it was read": (
            r"(?s)(  unsigned int\* const tSgU = .*?)(  unsigned int\* const tDgT = [^;]*;)",
            r"\2 cb::store_global<4>(&tDgT[0], &tSrT[0]);\1"
        ),
        "registers are not loaded": (r"cb::load_global<4>\(&tSrT[^;]*;", NOTHING),
    },
}


def mutated(plan: Plan, launch: int, pattern: str, replacement: str, count: int = 0) -> Plan:
    """The plan with a fault in one of its kernels."""
    kernel = plan.launches[launch].kernel
    body, found = re.subn(pattern, replacement, kernel.body, count=count)
    assert found and body != kernel.body, f"{kernel.name} has no {pattern}"
    launches = list(plan.launches)
    launches[launch] = replace(launches[launch], kernel=replace(kernel, body=body))
    return replace(plan, launches=tuple(launches))


SEEDS = [None, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TRIALS)
def test_kernels_as_they_are(name, seed):
    subject = trial(name)
    assert subject.is_right(subject.plan, seed)


@pytest.mark.parametrize("kernel, fault", [(kernel, fault) for kernel, faults in MUTATIONS.items()
                                           for fault in faults])
def test_a_fault_is_seen(kernel, fault):
    name, _, launch = kernel.partition(":")
    subject = trial(name)
    plan = mutated(subject.plan, int(launch or 0), *MUTATIONS[kernel][fault])
    assert any(is_seen(subject, plan, seed)
               for seed in SEEDS), "nothing is reported, and the values are right"


def _exchanged(tv: Layout, what: str) -> Layout:
    """A layout of accumulators, ((4, 8, ...), (2, 2, ...)), in which something is taken for
    something else."""
    lanes, values = tv.stride
    if what == "lanes":                                     # their number runs along the rows first
        return Layout(((8, 4, *tv.shape[0][2:]), tv.shape[1]),
                      ((lanes[1], lanes[0], *lanes[2:]), values))
    # 8 apart are neighbours
    return Layout(tv.shape, ((lanes[0], 2 * lanes[1], *lanes[2:]), (values[0], 1, *values[2:])))


@pytest.fixture
def fresh_kernels():
    """Kernels that others have generated are not those of mistaken atoms, nor the other way
    round."""
    for generate in (gemm_wgmma, gemm_split, gemm_mma):
        generate.cache_clear()
    yield
    for generate in (gemm_wgmma, gemm_split, gemm_mma):
        generate.cache_clear()


@pytest.mark.parametrize("what", ["lanes", "rows"])
def test_atoms_of_wgmma_are_the_hardwares(fresh_kernels, monkeypatch, what):
    """The emulator's layouts are not taken from the generator."""
    mistaken = _exchanged(WgmmaAtom(8, "float16").tv_c, what)

    def tv_c(atom: WgmmaAtom) -> Layout:
        lanes, values = mistaken.stride
        return Layout((mistaken.shape[0], (2, 2, atom.n // 8)), (lanes, (*values[:2], 8 * 64)))

    monkeypatch.setattr(WgmmaAtom, "tv_c", property(tv_c))
    for subject in (TRIALS["wgmma"](), TRIALS["split"]()):
        assert is_seen(subject, subject.plan, None)


@pytest.mark.parametrize("what", ["lanes", "rows"])
def test_atoms_of_mma_are_the_hardwares(fresh_kernels, monkeypatch, what):
    for atom in MMA_ATOMS:
        if atom.shape[0] == 16:
            monkeypatch.setitem(vars(atom), "tv_c", _exchanged(atom.tv_c, what))
    for subject in (TRIALS["mma"](), TRIALS["mma64"]()):
        assert is_seen(subject, subject.plan, None)


def is_seen(subject: Trial, plan: Plan, seed: int | None) -> bool:
    try:
        return not subject.is_right(plan, seed)
    except emulator.CompilerError:
        raise
    except emulator.EmulatorError:
        return True
