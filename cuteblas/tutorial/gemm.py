"""``gemm_tutorial``: the matrix product as CuTe's tutorial writes it, the kernel to read first.

A block owns a tile of C; for every step along K its threads copy tiles of A and B to shared memory,
wait, multiply from there into registers, and wait again; nothing is overlapped or read in vectors::

    gA (BM,BK,k)  gB (BN,BK,k)  gC (BM,BN)      local_tile of the matrices
    tAgA  tAsA    tBgB  tBsB                    local_partition for the copies, by tA and tB
    tCsA  tCsB    tCgC  tCrC                    local_partition for the product, by tC
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from .._dtypes import accumulator_of, dtype
from ..codegen.builder import Guard, KernelBuilder
from ..codegen.copies import Vector
from ..codegen.engine import CodegenError
from ..codegen.fma import Fma
from ..codegen.kernel import GeneratedKernel
from ..kernels.common import OperandAccess, combine, operand
from ..layout import (
    Layout,
    Tensor,
    _,
    get_flat_coord,
    local_partition,
    local_tile,
    make_identity_tensor,
    make_layout,
    prepend,
    size,
)


@dataclass(frozen=True)
class TutorialShape:
    """The block and thread layouts of a kernel, all that the tutorial's host function chooses.
    ``block`` is (BM, BN, BK); thread layouts map (along M or N, along K or N) to a thread;
    ``pad_k_major`` elements are between columns of a transposed tile; ``owned`` elements are
    "dense" or as far apart as there are threads."""

    block: tuple[int, int, int]
    copy: Layout
    compute: Layout
    copy_k_major: Layout | None = None
    pad_k_major: int = 0
    owned: Literal["interleaved", "dense"] = "interleaved"
    raster: Literal["mn", "nm"] = "mn"
    unroll: bool = True

    def __post_init__(self) -> None:
        copies = self.copy_threads(0), self.copy_threads(1)
        threads = {size(each) for each in (*copies, self.compute)}
        if len(threads) != 1:
            raise CodegenError(
                f"the thread layouts of a block must have one size, got {sorted(threads)}"
            )
        bm, bn, bk = self.block
        for (name, tile), layout in (*product((("A", (bm, bk)), ("B", (bn, bk))), copies),
                                     (("C", (bm, bn)), self.compute)):
            if any(e % size(layout[i]) for i, e in enumerate(tile)):
                raise CodegenError(
                    f"the tile {tile} of {name} does not divide among the threads {layout}"
                )

    @property
    def threads(self) -> int:
        return size(self.compute)

    @property
    def values(self) -> tuple[int, int]:
        return self.block[0] // size(self.compute[0]), self.block[1] // size(self.compute[1])

    def copy_threads(self, unit: int | None) -> Layout:
        """The thread layout that copies an operand whose mode ``unit`` is contiguous."""
        return self.copy_k_major or self.copy if unit == 1 else self.copy

    def shared(self, operand: Literal["A", "B"], unit: int | None) -> Layout:
        """An operand's tile in shared memory: M-major or N-major, whatever its order in memory."""
        extent, step = self.block[0 if operand == "A" else 1], self.block[2]
        return Layout((extent, step), (1, extent + (self.pad_k_major if unit == 1 else 0)))


TUTORIAL = TutorialShape((128, 128, 8), Layout((32, 8)), Layout((16, 16)),
                         Layout((32, 8), (8, 1)), pad_k_major=4)
"""CuTe's tutorial: a K-major operand is read along K by 8 threads, and columns of its tile start 4
banks apart, so that they store without a conflict."""

NAIVE_TILED = TutorialShape((64, 64, 16), Layout((64, 1)), Layout((8, 8)),
                            raster="nm")
"""The naive tiled product: each thread copies a row of A and of B, and owns 8x8 elements of C."""


@dataclass(frozen=True)
class TutorialConfig:
    """The configuration of a kernel. ``units`` are the modes with stride 1: 0 (M of A and C, N of
    B), 1 (K, or N of C) or ``None``; ``predicated`` extents may be ragged."""

    a: str
    b: str
    c: str
    shape: TutorialShape = TUTORIAL
    units: tuple[int | None, int | None, int | None] = (0, 0, 0)
    conj: tuple[bool, bool] = (False, False)
    predicated: bool = True
    alpha: str = "one"
    beta: str = "zero"
    batch_modes: int = 0
    wide: bool = False

    @property
    def accumulator(self) -> str:
        return accumulator_of(self.a, self.b, self.c)

    @property
    def name(self) -> str:
        s = self.shape
        tags = "_".join(dtype(t).tag for t in (self.a, self.b, self.c))
        operands = zip(self.units, (*self.conj, False), strict=True)
        major = "".join({0: "m", 1: "k", None: "s"}[unit] + ("c" if conj else "")
                        for unit, conj in operands)
        flags = (s.owned == "dense", not s.unroll, not self.predicated, self.wide)
        words = "".join(word for word, on in zip(("_dense", "_rolled", "_exact", "_wide"), flags,
                                                 strict=True) if on)
        return (
            f"gemm_tutorial_{tags}_{s.block[0]}x{s.block[1]}x{s.block[2]}_{s.values[0]}x{s.values[1]}_{major}"
            f"_{self.alpha[0]}{self.beta[0]}_b{self.batch_modes}{words}"
        )


@cache
def gemm_tutorial(config: TutorialConfig) -> GeneratedKernel:
    """Generate the kernel. Grid: tiles along M, N (or N, M), batch. Parameters: A, B, C; M, N, K;
    strides that are not 1; extents and strides of the batch; alpha and beta if they are values."""
    shape, accumulator = config.shape, config.accumulator
    BM, BN, BK = shape.block
    tA, tB, tC = *map(shape.copy_threads, config.units[:2]), shape.compute
    k = KernelBuilder(
        config.name,
        shape.threads,
        wide=config.wide,
        unroll=shape.unroll,
        waits=False,
        summary=f"C = alpha * A * B^T + beta * C with A (M,K) {config.a}, B (N,K) {config.b}, C (M,N) {config.c}, "
        f"summed in {accumulator}\nblock ({BM},{BN},{BK}), threads tA {tA}, tB {tB}, tC {tC}"
    )
    # -- the matrices ------------------------------------------------------------------------------
    multiples = {} if config.predicated else {mode: step & -step
                                              for mode, step in zip("mnk", shape.block,
                                                                    strict=True)}
    A, B, C = k.tensors(*(operand(name, modes, element, OperandAccess(unit), written=name == "C")
                          for name, modes, element, unit in zip("ABC", ("mk", "nk", "mn"),
                                                                (config.a, config.b, config.c),
                                                                config.units, strict=True)),
                        modes="mnk", batch=config.batch_modes, multiples=multiples)
    M, N, K = map(k.extent, "mnk")
    alpha = k.scalar("alpha", accumulator) if config.alpha == "value" else None
    beta = k.scalar("beta", accumulator) if config.beta == "value" else None
    item = k.block_index("item", "z") if config.batch_modes else 0
    mA, mB, mC = A.at(item), B.at(item), C.at(item)

    # -- the tiles of this block: one tiler, one coordinate, three projections ---------------------
    first, second = (k.block_index(f"block_{mode}", axis)
                     for mode, axis in zip(shape.raster, "xy", strict=True))
    block_m, block_n = (first, second) if shape.raster == "mn" else (second, first)
    blk_shape, blk_coord = shape.block, (block_m, block_n, None)

    def tiles(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (local_tile(a, blk_shape, blk_coord, (1, None, 1)),                  # (BM,BK,k)
                local_tile(b, blk_shape, blk_coord, (None, 1, 1)),                  # (BN,BK,k)
                local_tile(c, blk_shape, blk_coord, (1, 1, None)))                  # (BM,BN)

    gA, gB, gC = tiles(mA, mB, mC)
    cA, cB, cC = tiles(*(make_identity_tensor(extents) for extents in ((M, K), (N, K), (M, N))))
    sA = k.shared("sA", config.a, shape.shared("A", config.units[0]))               # (BM,BK)
    sB = k.shared("sB", config.b, shape.shared("B", config.units[1]))               # (BN,BK)

    def guard(name: str, coordinates: Tensor, extents: tuple) -> Guard | None:
        return Guard(k.pin(name, coordinates), extents) if config.predicated else None

    # -- the elements of this thread ---------------------------------------------------------------
    tid = k.thread
    k.comment("Copies: (thread's rows, thread's columns, k tile)")
    tAgA, tAsA = k.pin("tAgA", local_partition(gA, tA, tid)), k.pin("tAsA",
                                                                    local_partition(sA, tA, tid))
    tBgB, tBsB = k.pin("tBgB", local_partition(gB, tB, tid)), k.pin("tBsB",
                                                                    local_partition(sB, tB, tid))
    tAcA = guard("tAcA", local_partition(cA, tA, tid), (M, K))
    tBcB = guard("tBcB", local_partition(cB, tB, tid), (N, K))
    tArA = k.registers("tArA", config.a, (tAsA.shape[0], tAsA.shape[1]))
    tBrB = k.registers("tBrB", config.b, (tBsB.shape[0], tBsB.shape[1]))

    def owned(tensor: Tensor, proj: tuple) -> Tensor:
        """What this thread owns of a tensor with the modes of (M, N, K) that ``proj`` marks."""
        if shape.owned == "interleaved":
            return local_partition(tensor, tC, tid, proj[:2])
        return local_tile(tensor, (*shape.values, BK), (*get_flat_coord(tC, tid), 0), proj)

    k.comment("The product: (thread's rows, k) and (thread's rows, thread's columns)")
    tCsA, tCsB = k.pin("tCsA", owned(sA, (1, None, 1))), k.pin("tCsB", owned(sB, (None, 1, 1)))
    tCgC, tCcC = k.pin("tCgC", owned(gC, (1, 1, None))), guard("tCcC", owned(cC, (1, 1, None)),
                                                               (M, N))
    tCrA, tCrB = k.registers("tCrA", config.a,
                             shape.values[0]), k.registers("tCrB", config.b,
                                                           shape.values[1])
    tCrC = k.registers("tCrC", accumulator, shape.values)
    k.fill(tCrC)

    # -- for all tiles along K ---------------------------------------------------------------------
    k.comment("Copy a tile of A and of B, multiply them, for every tile along K")
    with k.loop("k_tile", k.let("k_max", size(tAgA.layout[2]))) as k_tile:
        k.copy(Vector(1), tAgA[_, _, k_tile], tArA, guard=tAcA and tAcA[_, _, k_tile])
        k.copy(Vector(1), tBgB[_, _, k_tile], tBrB, guard=tBcB and tBcB[_, _, k_tile])
        k.copy(Vector(1), tArA, tAsA)
        k.copy(Vector(1), tBrB, tBsB)
        k.barrier()
        with k.loop("k_block", BK, unroll=shape.unroll or None) as k_block:
            k.copy(Vector(1), tCsA[_, k_block], tCrA)
            k.copy(Vector(1), tCsB[_, k_block], tCrB)
            k.gemm(Fma(*config.conj), _atoms(tCrC, 2), _atoms(tCrA, 1), _atoms(tCrB, 1))
        k.barrier()

    k.comment("Epilogue: C = alpha * accumulator + beta * C")
    with k.loops(shape.values[1:]) as (j,):
        tCrD = k.registers("tCrD", config.c, shape.values[0])
        target, column = tCgC[_, j], tCcC and tCcC[_, j]
        if config.beta != "zero":
            k.copy(Vector(1), target, tCrD, guard=column)
        with k.loops(shape.values[:1]) as (i,):
            c = tCrD(i) if config.beta != "zero" else None
            k.assign(tCrD(i), combine(k, config.c, accumulator, tCrC(i, j), c, alpha, beta))
        k.copy(Vector(1), tCrD, target, guard=column)
    return k.build()


def _atoms(fragment: Tensor, rank: int) -> Tensor:
    """A fragment with atoms, a single element of each operand, as its first mode."""
    one = Layout(1, 0)
    atom = one if rank == 1 else make_layout(one, one)
    return fragment.map_domain(lambda layout: prepend(layout, rank + 1, atom))
