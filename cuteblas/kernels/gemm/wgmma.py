"""``gemm_wgmma``: 16-bit floating point, tfloat32, and exact integers, on Hopper's tensor cores.

Blocks are persistent: one thread fills a ring of stages by TMA and runs ahead across tiles;
warpgroups multiply from it. Only 16-bit operands may be MN-major. Bytes are summed in int32, exact
modulo 2^32; longer integers are planes of bytes (:mod:`~cuteblas.kernels.gemm.digits`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from ..._dtypes import dtype
from ...codegen import CodegenError, GeneratedKernel
from ...layout import Tensor
from ...layout.symbolic import IntLike
from ..common import GROUP, mapped, operand
from ..epilogue import Epilogue
from .digits import ParkedSums, planes_of, sum_in_two_words, sum_modulo, sum_of_bools
from .divided import Divided
from .persistent import TmaConfig
from .roles import Multiplier, Multiply, Products, Step, Sums, TmaBlock
from .scheduler import Work
from .staged import WarpgroupOutput

_BITS = 32                          # of accumulators


@dataclass(frozen=True)
class WgmmaConfig(TmaConfig):
    """The configuration of a ``gemm_wgmma`` kernel. ``element`` may be "tfloat32", float32 that
    TMA rounds. With ``digits``, operands are planes of ``uint8``; eight are ``parked`` in the
    workspace, or totals take three registers."""

    element: str
    output: str
    accumulator: str = "float32"
    digits: int = 1
    parked: bool = False

    @property
    def multiplied(self) -> str:
        return self.element

    @property
    def name(self) -> str:
        summed = "" if self.accumulator == self.mma.accumulator else f"_by_{dtype(self.accumulator).tag}"
        digits = f"x{self.digits}{'p' * self.parked}" if self.digits > 1 else ""
        return (
            f"gemm_wgmma_{dtype(self.element).tag}{digits}_{dtype(self.output).tag}_{self.traits}{summed}"
            f"{'_divided' if self.divided else ''}{'_clipped' if self.clipped else ''}"
        )


@cache
def gemm_wgmma(config: WgmmaConfig) -> GeneratedKernel:
    """Generate the kernel; the grid is a multiple of the cluster, of at most the tiles."""
    box_a, box_b = config.boxes
    mma, depth = config.mma, config.depth
    if config.divided and config.cluster > 1:
        raise CodegenError("blocks that share the sums of tiles cannot form clusters")
    if config.divided and config.digits > 1:
        raise CodegenError("blocks cannot share sums of digits")

    k = config.builder(
        "C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
        f"{config.element} to {config.output}, tile {config.rows}x{config.columns}x{depth}, "
        f"{config.stages} stages\n"
        f"A box {box_a.box} x {len(box_a.repeats)}, B box {box_b.box} x {len(box_b.repeats)}, "
        f"accumulators {mma.tv_c}"
    )
    A, B, C = k.tensors(mapped("A", "mk", config.element), mapped("B", "nk", config.element),
                        operand("C", "mn", config.output, config.c, written=True,
                                mapped=config.staged == "tma"), modes="mnk",
                        batch=len(config.batch_a))
    (M, N, K), batch = map(k.extent, "mnk"), C.batch
    divided = Divided.parameters(k, mma.accumulator) if config.divided else None
    memory = k.pointer("parked", "uint32", const=False) if config.parked else None
    sums = "uint64" if config.digits * 8 > _BITS else mma.accumulator
    epilogue = Epilogue(k, config, config.accumulator, sums)

    block = TmaBlock(k, config)
    output = WarpgroupOutput(k, config, C, epilogue)
    epilogue.load_scalars()
    summed = epilogue.depth(K)
    block.begin((A, B))
    digits = (config.digits,) if config.digits > 1 else ()
    block.walk((M, N, summed), batch, ((M, K, *digits), (N, K, *digits)), divided)

    @contextmanager
    def steps(work: Work) -> Iterator[Step]:
        planes = planes_of(k, config.digits, config.parked)
        with planes as (of_a, of_b), work.steps(k) as k_tile:
            yield [(k_tile, *of_a)], [(k_tile, *of_b)]

    @contextmanager
    def multiply() -> Iterator[Multiply]:
        multiplier = Multiplier(block)
        tCrC = multiplier.accumulators("tCrC")
        total: Tensor | ParkedSums = tCrC
        if memory is not None:
            total = ParkedSums.of(k, memory, tCrC.layout, config.digits, GROUP * config.groups,
                                  block.schedule)
        elif sums != mma.accumulator:
            total = k.registers("total", sums, tCrC.layout)

        def add(count: IntLike) -> None:
            multiplier.multiply(count, Products(tCrC))

        def sums_of(work: Work) -> Sums:
            k.fill(tCrC)
            count = work.count(k)
            if isinstance(total, ParkedSums):
                total.sum(config.digits, count, tCrC, add)
            elif total is not tCrC:
                sum_in_two_words(k, config.digits, depth, count, tCrC, total, add)
            elif config.digits > 1:
                sum_modulo(k, config.digits, count, tCrC, add)
            elif config.accumulator == "bool":
                sum_of_bools(k, depth, count, tCrC, add)
            else:
                add(count)
            return total

        yield sums_of

    block.specialise(lambda: block.keep_full(steps), multiply(), output.finished())
    return k.build()

