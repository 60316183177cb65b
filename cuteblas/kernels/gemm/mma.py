"""``gemm_mma``: C = alpha A B^T + beta C on warp-level tensor cores (``mma.sync``), from sm_75 on.

Tiles keep the operand's order in swizzled shared memory; ``ldmatrix`` loads 16-bit fragments from
either. 16-bit elements are summed in float32, truncated after every instruction; float64 in the
order of k, so results equal those of ``gemm_simt``; complex128 with the real part of B first for
each four elements of k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ..._dtypes import dtype
from ...codegen import CodegenError, GeneratedKernel, TensorParam
from ...codegen.mma import MmaAtom, RegisterPlanes, WarpMma
from ...layout import Tensor, _, make_tensor
from ...layout.symbolic import IntLike
from ..common import Pair, builder
from ..guard import NATIVE, leave_verdict
from .block import GemmBlock, GemmConfig
from .main_loop import MainLoop
from .mma_operand import mma_operand
from .rows import held_bytes, store_by_rows
from .skinny import declare_range, is_in_range

# elements of C along N that a thread has side by side; lanes beside each other
_PAIR, _LANES_OF_A_ROW = 2, 4


@dataclass(frozen=True)
class MmaTile:
    """How a tile of C is divided; ``min_blocks`` should fit on a multiprocessor."""

    m: int
    n: int
    k: int
    atom: MmaAtom
    warps: Pair = (2, 2)
    stages: int = 4
    min_blocks: int = 1

    def __post_init__(self) -> None:
        m, n, k = self.atom.shape
        if self.m % (m * self.warps[0]) or self.n % (n * self.warps[1]) or self.k % k or self.stages < 2:
            raise CodegenError(
                f"{self.warps} warps of instructions {self.atom.shape} do not divide the tile "
                f"{self.m}x{self.n}x{self.k} in {self.stages} stages"
            )

    @property
    def mma(self) -> WarpMma:
        (m, n, _k), (wm, wn) = self.atom.shape, self.warps
        return WarpMma(self.atom, self.warps, (self.m // (m * wm), self.n // (n * wn)))

    def run(self, output: str, triangle: str | None) -> int:
        """Elements along N that a thread writes side by side at most: four where lanes exchange
        pairs, so that stores of 2-byte elements fill sectors."""
        exchanges = dtype(self.atom.element).bytes == dtype(output).bytes == 2 and self.mma.atoms[1] % 2 == 0 and triangle is None
        return 2 * _PAIR if exchanges else _PAIR

    def rows_bytes(self, output: str) -> int:
        """Most shared memory, in bytes, for C where it is written by rows."""
        return held_bytes(self.m, self.n, dtype(output).bytes, self.apart(output))

    def apart(self, output: str) -> int:
        """Bytes between these rows: what lanes beside each other have of one."""
        return _LANES_OF_A_ROW * _PAIR * dtype(output).bytes

    @property
    def stage_bytes(self) -> int:
        return (self.m + self.n) * self.k * dtype(self.atom.element).bytes

    def __str__(self) -> str:
        warp, (m, n, k) = self.mma.warp_tile, self.atom.shape
        return (
            f"{self.m}x{self.n}x{self.k}, {self.warps[0]}x{self.warps[1]} warps of {warp[0]}x{warp[1]}, instructions of "
            f"{m}x{n}x{k}, {self.stages} stages"
        )


@dataclass(frozen=True)
class MmaConfig(GemmConfig):
    tile: MmaTile

    @property
    def name(self) -> str:
        t = self.tile
        shape = "".join(f"{letter}{n}" for letter, n in zip("mnk", t.atom.shape, strict=True))
        return (f"gemm_mma_{self.types}_{t.m}x{t.n}x{t.k}_{t.warps[0]}x{t.warps[1]}_{shape}"
                f"_s{t.stages}_{self.traits}")


@cache
def gemm_mma(config: MmaConfig) -> GeneratedKernel:
    """Generate the kernel; C is read and written in vectors along N, of 1, 2 or 4."""
    tile, atom, tiled = config.tile, config.tile.atom, config.tile.mma
    run = tile.run(config.output, config.triangle)
    if config.c.covering and (config.c.unit != 1 or config.triangle):
        raise CodegenError(f"C is written by rows along N, without a triangle, got {config}")
    config.c.check_run(run)

    k = builder(
        config,
        tiled.threads,
        arch=atom.arch,
        min_blocks=tile.min_blocks,
        summary="C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
        f"{config.element} to {config.output}, tile {tile}\n"
        f"mma.sync: A {atom.tv_a}, B {atom.tv_b}, C {atom.tv_c}\n"
        f"threads of C {tiled.tv_c}"
    )
    seen = declare_range(k) if atom.splits else []
    block = GemmBlock(k, config, several=atom.splits)
    status, = k.tensors(TensorParam("status", "", "uint32", written=True,
                                    batch=False)) if atom.splits else (None,)
    tid = k.thread
    k.comment("Operands: copies to shared memory (values, rest, rest_k, k tile | stage), fragments "
              "(register, atom | register buffer)")
    operands = [mma_operand(block, mode) for mode in range(2)]
    k.comment("Accumulators of a thread: (value, atom m, atom n)")
    pairs = 2 * atom.shape[0] // 8
    tCrC = k.registers("tCrC", atom.accumulator, (pairs, *tiled.atoms))
    k.fill(tCrC)

    planes = [RegisterPlanes(k, f"planes_of_{name}", atom,
                             *operand.registers.extents[:2])
              for name, operand in zip("ab", operands, strict=True) if atom.splits]

    def multiply(step: IntLike) -> None:
        fragments = [operand.registers[..., step % 2] for operand in operands]
        for plane, fragment in zip(planes, fragments, strict=False):
            plane.split(fragment, seen)
        k.gemm(replace(tiled, conj_b=config.a.conj != config.b.conj), tCrC,
               *([x.planes for x in planes] or fragments))

    loop = MainLoop(block, tile.stages, tile.k // atom.shape[2], spelled=True,
                    past_end=not (config.a.covering or config.b.covering))
    loop.write(operands, multiply)
    if config.a.conj and dtype(atom.element).is_complex:
        k.comment(
            "conj(A) B is the conjugate of A conj(B): signs of the sums in place of those of A; 0 remains +0"
        )
        with k.loops((pairs, *tiled.atoms)) as at:
            k.assign(tCrC(*at).im, 0 - tCrC(*at).im)

    if config.c.width > _PAIR:
        k.comment("Pairs of two atoms become runs of four, of which four lanes fill a sector")
        block.store(tiled.exchange(k, tCrC, tid), lambda tensor: tiled.partition_quads(tensor, tid))
    else:
        accumulators = make_tensor(tCrC.engine, (_PAIR, pairs // 2, *tiled.atoms))

        def partition(tensor: Tensor) -> Tensor:
            # (pair, half, atom m, atom n)
            return tiled.partition_c(tensor, tid)[((_, _), (_, _)), 0, 0]

        if config.c.covering:
            store_by_rows(block, accumulators, partition, tile.apart(config.output))
        else:
            block.store(accumulators, partition)
    if status is not None:
        k.after_blocks()
        k.comment("Whether all that the block has split was in range")
        leave_verdict(k, status.address, ~is_in_range(k, seen), NATIVE)
    return k.build()
