"""A verdict on the rows that were split: whether their planes hold what a product needs."""

from __future__ import annotations

from ...codegen.builder import Guard, KernelBuilder
from ...codegen.copies import Vector
from ...codegen.engine import Pointer
from ...codegen.mbarrier import Mbarriers
from ...codegen.tiled import TiledCopy
from ...codegen.values import Value, choose
from ...layout import Layout, Tensor, _, local_tile, make_identity_tensor
from ...layout.symbolic import IntLike, ceil_div, equal, maximum
from ..split.planes import PLENTY, RECORD
from .roles import WARP

__all__ = ["Verdict", "judge"]

_RECORDS_AT_ONCE = 4                # that a thread asks for before it looks at them


class Verdict:
    """Whether a block may end its tiles, on which one warp decides while the others begin the first of them."""

    def __init__(self, k: KernelBuilder):
        self._k, self.barrier = k, Mbarriers(k, "judged", 1, arrivals=1)
        self._word = k.shared("verdict_of_block", "uint32", Layout(1), alignment=4)

    def give(self, verdict: Value) -> None:
        """Tell the block the verdict, zero if it may go on; one thread does this."""
        self._k.do("store_shared", self._word(0), verdict, of=1)
        self.barrier.arrive(0)

    def leave_unless_zero(self) -> None:
        """Wait for the verdict, and leave if it is not zero."""
        k = self._k
        self.barrier.wait(0, 0)
        given = k.registers("given", "uint32", Layout(1))
        k.copy(Vector(1), self._word, given)
        k.stop(given(0).differs(0))


def judge(k: KernelBuilder, operands: list[tuple[Pointer, IntLike]], status: Pointer, lacking: int, verdict: Verdict) -> None:
    """One warp's verdict on all rows: 0 if the planes hold what the product needs."""
    k.comment("A verdict on all rows of both operands: see RECORD of split_planes")
    lane = k.let("lane", k.thread % WARP)
    reader, step = TiledCopy(Layout((1, WARP)), (RECORD, 1)), (RECORD, WARP * _RECORDS_AT_ONCE)
    at_once = Layout((RECORD, 1, _RECORDS_AT_ONCE))

    def mine(tensor: Tensor) -> Tensor:                 # (record, 1, records at once, step)
        return reader.partition(local_tile(tensor, step, (0, _)), lane)

    found, sources, exist, needs, offers = [], [], [], [], []
    for pointer, count in operands:
        name = pointer.name
        needs.append(k.declare(f"need_{name}", "float32", 0.0))
        offers.append(k.declare(f"offer_{name}", "float32", PLENTY))
        found.append(k.registers(f"found_{name}", "float32", at_once))
        sources.append(k.pin(f"t{name}", mine(Tensor(pointer, Layout((RECORD, count))))))
        exist.append(Guard(k.pin(f"t{name}_c", mine(make_identity_tensor((RECORD, count)))), (None, count)))
    with k.loop("i", ceil_div(maximum(*(count for _pointer, count in operands)), step[1]), unroll=False) as i:
        for source, fragment, exists in zip(sources, found, exist, strict=True):
            k.copy(Vector(RECORD), source[_, _, _, i], fragment, guard=exists[_, _, _, i])
        for need, offer, fragment, exists in zip(needs, offers, found, exist, strict=True):
            with k.loops((_RECORDS_AT_ONCE,)) as (j,), k.when(exists.at((0, 0, j, i))):
                k.assign(need, k.call("max", need, fragment(0, 0, j)))
                k.assign(offer, k.call("min", offer, fragment(1, 0, j)))
    for x, combine in (*((need, "max") for need in needs), *((offer, "min") for offer in offers)):
        k.fold_lanes(x, combine, (1 << i for i in range(WARP.bit_length() - 1)))
    lacks = k.declare("is_lacking", "bool", (needs[0] > offers[1]) | (needs[1] > offers[0]), const=True)
    worst = choose(k.call("max", *needs) > PLENTY, 2, choose(lacks, lacking, 0, "uint32"))
    found_out = k.declare("verdict", "uint32", worst, const=True)
    with k.when(equal(lane, 0)):
        with k.when(equal(k.block_index("judge", "x"), 0)):
            k.do("store_global", status[0], found_out, of=1)
        verdict.give(found_out)
