"""``gemm_split``: float32 and complex64 products of 16-bit planes on Hopper's tensor cores.

Tensor cores truncate sums: after each stage of K they are added to a float32 total, but those of
lower planes. The scaling of rows is undone at the end. A complex product is a real one with twice
the N and K: a thread's neighbours along N are the parts of an element of C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

from ..._dtypes import dtype
from ...codegen import GeneratedKernel, TensorParam, Value, wgmma_delivered
from ...codegen.values import complex_of, number
from ...layout import Layout, Tensor, _
from ...layout.symbolic import equal
from ..common import ELEMENTS, GROUP, WARP, mapped, operand, parts_of
from ..epilogue import Epilogue, OutputTile
from ..guard import Verdict, gate_tag
from ..split.planes import FORMATS, RECORD, verdict_on_rows
from .divided import Divided
from .persistent import TmaConfig
from .roles import Multiplier, Multiply, Products, Step, Sums, TmaBlock
from .scheduler import TileOfC, Work
from .staged import WarpgroupOutput


@dataclass(frozen=True)
class GemmSplitConfig(TmaConfig):
    """The configuration of a ``gemm_split`` kernel. With ``fallback`` it makes the verdict on all
    rows, and writes nothing but that if their planes do not hold enough; with ``gate`` it runs
    under that verdict alone. ``element`` is what was split."""

    format: str
    output: str
    fallback: int | None = None
    gate: int | None = None
    element: str = "float32"

    @property
    def parts(self) -> int:
        return parts_of(self.element)

    @property
    def multiplied(self) -> str:
        return FORMATS[self.format].element

    @property
    def name(self) -> str:
        return (
            f"gemm_split_{self.format}_{dtype(self.output).tag}_{self.traits}{'_divided' if self.divided else ''}"
            f"{'' if self.fallback is None else f'_judges{self.fallback}'}{gate_tag(self.gate)}"
        )


@cache
def gemm_split(config: GemmSplitConfig) -> GeneratedKernel:
    """Generate the kernel. A and B are planes (rows, K, plane, batch modes); RA and RB are
    exponents of rows, SA and SB records of the blocks that split. The grid may have fewer blocks
    than tiles."""
    form, mma, parts = FORMATS[config.format], config.mma, config.parts

    k = config.builder(
        "C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
        f"{config.element} as {form.name}, tile {config.rows}x{config.columns}x{config.depth}, "
        f"{config.stages} stages of {form.planes} + {form.planes} planes\naccumulators {mma.tv_c}"
    )
    k.gate(config.gate)
    exponents = (TensorParam(name, "mn", "int32", strides, lowest=0)
                 for name, strides in (("RA", (1, 0)), ("RB", (0, 1))))
    A, B, C, RA, RB = k.tensors(mapped("A", "mk", form.element), mapped("B", "nk", form.element),
                                operand("C", "mn", config.output, config.c, written=True,
                                        mapped=config.staged == "tma"), *exponents, modes="mnk",
                                batch=len(config.batch_a))
    (M, N, K), batch = map(k.extent, "mnk"), C.batch
    fallback = config.fallback
    verdict = None if fallback is None else Verdict(k, RECORD, ("SA", "SB"))
    divided = Divided.parameters(k) if config.divided else None
    epilogue = Epilogue(k, config, config.element)

    block = TmaBlock(k, config, form.planes)
    output = WarpgroupOutput(k, config, C, epilogue)
    of_verdict = [verdict.share()] if verdict else []
    epilogue.load_scalars()
    summed = epilogue.depth(K)
    block.begin((A, B), *of_verdict)
    block.walk((M, N, summed), batch,
               [(rows, K * parts, form.planes) for rows in (M, N * parts)], divided)

    def unscaled(tile: TileOfC, c: OutputTile, total: Tensor) -> Tensor:
        tCgRA, tCgRB = (k.pin(f"tCg{x.param.name}", c.partition(c.tile_of(x.at(tile.batch))))
                        for x in (RA, RB))
        elements = Layout((2 // parts, 2, config.columns // 8))
        pair, half, column = elements.extents
        sums = total if parts == 1 else k.registers("of_c", config.element, elements)
        tCrRA, tCrRB = k.registers("tCrRA", "int32", half), k.registers("tCrRB", "int32", (pair, column))
        k.copy(ELEMENTS, tCgRA[0, _, 0], tCrRA, guard=c.guard and c.guard[0, _, 0])
        k.copy(ELEMENTS, tCgRB[_, 0, _], tCrRB, guard=c.guard and c.guard[_, 0, _])

        def scale(factor: Callable[[Value, Value], Value]) -> None:
            with k.loops((pair, half, column)) as (i, h, n):
                own = [total(i * parts + part, h, n) for part in range(parts)]
                for each in own:
                    k.assign(each, factor(each, tCrRA(h) + tCrRB(i, n)))
                if parts == 2:
                    k.assign(sums(i, h, n), complex_of(config.element, *own))

        least, most = (k.registers(name, "int32", 2) for name in ("least", "most"))
        for side, exponents in enumerate((tCrRA, tCrRB)):
            for bound in (least, most):
                k.assign(bound(side), exponents(*(0 for _mode in exponents.extents)))
            with k.loops(exponents.extents) as where:
                for bound, combine in ((least, "min"), (most, "max")):
                    k.assign(bound(side), k.call(combine, bound(side), exponents(*where)))
        # One factor is enough but for results that no float32 holds, or nearly so.
        near = k.flag("near", (least(0) + least(1) >= -126) & (most(0) + most(1) <= 127))
        with k.when(equal(near, 1)):
            scale(lambda x, exponent: k.call("scaled", x, k.call("power_of_two", exponent)))
        with k.otherwise():
            scale(lambda x, exponent: k.call("scalbn", x, exponent))
        return sums

    @contextmanager
    def steps(work: Work) -> Iterator[Step]:
        if verdict is not None:
            with k.when(work.later):
                verdict.leave_unless_it_holds()
        with work.steps(k) as k_tile:
            planes = [(k_tile, p) for p in range(form.planes)]
            yield planes, planes

    def load() -> None:
        block.keep_full(steps)
        if verdict is not None and fallback is not None:
            with k.when(equal(k.thread // WARP, GROUP * config.groups // WARP + 1)):
                verdict.make(partial(verdict_on_rows, k, fallback=fallback),
                             "A verdict on all rows of both operands: see RECORD of split_planes")

    @contextmanager
    def multiply() -> Iterator[Multiply]:
        # Products with lower planes still run while the main ones are added.
        multiplier = Multiplier(block, overlaps=bool(form.corrections))
        total, chunk = map(multiplier.accumulators, ("total", "chunk"))
        corrections = [multiplier.accumulators("correction")] if form.corrections else []
        products = Products(chunk, form.main, fresh=True), *(Products(x, form.corrections)
                                                             for x in corrections)

        def add_chunk() -> None:
            wgmma_delivered(k, chunk)
            k.fold(total, chunk)

        def sums_of(work: Work) -> Sums:
            for tensor in (total, *corrections):
                k.fill(tensor)
            multiplier.multiply(work.count(k), *products, and_then=add_chunk)
            if verdict is not None:
                verdict.leave_unless_it_holds()
            for tensor in corrections:
                wgmma_delivered(k, tensor)
                with k.loops((2, 2, config.columns // 8)) as where:
                    lower = k.call("scale", tensor(*where), number(2.0**-form.step, "float32"),
                                   of="float32")
                    k.assign(total(*where), k.call("add", total(*where), lower))
                wgmma_delivered(k, total)               # corrections need no registers any more
            return total

        yield sums_of

    block.specialise(load, multiply(), output.finished(unscaled))
    return k.build()
