"""What kernels do for a copy, counted from its layouts, and the expected time.

Every kernel's blocks move boxes of modes, in passes of a word a thread. The longest counts of:
sectors at the bandwidth of a device copy or of L2; instructions of the busiest multiprocessor; and
latency, for as many rounds as blocks wait for room (Little's law). A first block waits for its
latency in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, gcd, prod
from typing import Any, NamedTuple

from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import View
from ...kernels.copy.rearrange import RearrangeConfig, rearrange_kernel
from ...kernels.copy.straight import CopyConfig, copy_kernel
from ...kernels.copy.tiles import TransposeConfig, transpose_kernel
from ..cost.work import norm
from ..operands import NARROW_SPAN, VECTOR_BYTES, batch_values, launch
from ..plan import Alternative, Argument, Plan
from ..problem import CopyProblem, DeviceInfo, Mode, Pair

CopyConfigs = CopyConfig | TransposeConfig | RearrangeConfig

_KERNELS: dict[type, Callable[..., GeneratedKernel]] = {
    CopyConfig: copy_kernel, TransposeConfig: transpose_kernel, RearrangeConfig: rearrange_kernel}
_ISSUED = 2.0                        # warps' instructions of a multiprocessor in a clock
_SECTOR, _WARP, _WORD = 32, 32, 4    # bytes, threads, and bytes
_COVERING_WORDS = 5                  # of 4 bytes, that are read for 16 where rows begin anywhere
_COVERING = 2                        # that are read for one
# Of a multiprocessor: threads and registers; of a block: bytes besides its own, and registers of a
# thread besides its words.
_RESIDENT_THREADS, _REGISTERS, _BLOCK_BYTES, _THREAD_REGISTERS = 2048, 65536, 1024, 32


class CopyWork(NamedTuple):
    """What a kernel does for a copy. ``others_*``: bytes of other elements in touched sectors, for
    each byte moved; ``latencies``: how often blocks wait for room; ``blocks`` and ``warps`` of the
    busiest multiprocessor; ``passes``: words of a thread; ``modes`` of a block's coordinates."""

    parts: str
    read: float
    written: float
    others_read: float
    others_written: float
    runs_read: float
    runs_written: float
    latencies: float
    blocks: float
    warps: float
    passes: float
    modes: float
    beside: bool = False

    def seconds(self, device: DeviceInfo) -> float:
        """The expected time; fields may be arrays."""
        costs, w = device.fitted["copy"], self
        latency = costs["latency: clocks"] + costs[f"a pass of a {w.parts}: clocks"] * w.passes
        instructions = costs["a mode: instructions"] * w.modes + costs["a pass: instructions"] * w.passes
        nbytes = w.read + w.written + costs["a run: bytes"] * (w.runs_read + w.runs_written) \
            + costs["others read: part"] * w.others_read * w.read + costs["others written: part"] * w.others_written * w.written
        share = costs["share of bandwidth"]
        rate = share * (costs["in L2: times the bandwidth"] / share) ** (
            w.read + w.written <= device.l2_bytes
        )
        memory = nbytes / rate / device.bandwidth * device.clock_hz
        issue = w.blocks * w.warps * instructions / _ISSUED
        clocks = norm(4, latency + issue, latency + memory, w.latencies * latency)
        return device.seconds(clocks, costs["start: launches"] - w.beside)


@dataclass(frozen=True)
class CopyKernel(Alternative):
    """One of the kernels that could make a copy."""

    config: CopyConfigs = field(kw_only=True)
    blocks: int = field(kw_only=True)
    work: CopyWork = field(kw_only=True)


@dataclass(frozen=True)
class Runs:
    """A box's side: bytes of its runs, bytes at multiples of which they begin in a sector, and
    bytes moved of stretches that touch every sector."""

    length: int
    begins: int
    moved: int
    stretch: int

    def touched(self, part: float = 1.0) -> float:
        """Bytes of sectors for each byte moved; the rest of partial sectors counts by ``part``."""
        rest = _SECTOR - self.begins if self.begins < _SECTOR else -self.stretch % _SECTOR
        return 1 + (self.stretch - self.moved + part * rest) / self.moved


@dataclass(frozen=True)
class Copy:
    """A copy whose elements may be words of several: modes by stride in the target, and bytes of
    an element. In source and target, ``alignments`` are bytes that divide the address of the first
    element, which is ``offsets`` elements from the problem's."""

    problem: CopyProblem
    device: DeviceInfo
    modes: tuple[Mode, ...]
    item: int
    alignments: Pair
    offsets: Pair

    @classmethod
    def of(cls, problem: CopyProblem, device: DeviceInfo, modes: tuple[Mode, ...],
           offsets: Pair = (0, 0)) -> Copy:
        # Arrays of which 16 bytes divide the address begin where sectors do: allocations are
        # aligned to 512.
        source, target = (gcd(_SECTOR if alignment == 16 else alignment, offset * problem.itemsize)
                          for alignment, offset in zip((problem.src_alignment,
                                                        problem.dst_alignment), offsets,
                                                       strict=True))
        return cls(problem, device, modes, problem.itemsize, (source, target), offsets)

    def others(self, *tiled: int) -> list[Mode]:
        return [m for q, m in enumerate(self.modes) if q not in tiled]

    def of_words(self, n: int) -> Copy:
        """The same copy of words of ``n`` elements along the first mode."""
        first, *others = self.modes
        modes = replace(first, extent=first.extent // n), *(Mode(m.extent, m.src // n, m.dst // n)
                                                            for m in others)
        return replace(self, item=self.item * n, modes=modes,
                       offsets=(self.offsets[0] // n, self.offsets[1] // n))

    @cached_property
    def orders(self) -> tuple[list[int], list[int]]:
        """Modes by stride, in the source and in the target."""
        every = range(len(self.modes))
        return sorted(every, key=lambda q: (self.modes[q].src == 0, abs(self.modes[q].src),
                                            q)), list(every)

    def spans(self, side: int, extents: Sequence[int]) -> Pair:
        """Elements of a box that no foreign sector separates, and its reach from first to last."""
        elements, span = 1, 1
        for q in self.orders[side]:
            step = abs(self.modes[q].strides[side])
            if extents[q] == 1:
                continue
            if (step - span) * self.item >= _SECTOR or step == 0:
                break
            elements, span = elements * extents[q], span + (extents[q] - 1) * step
        return elements, span

    def run(self, side: int, extents: Sequence[int], *, backwards: bool = False) -> list[int]:
        """The modes of a box that make up its runs, all but the last whole; without modes that are
        walked ``backwards``, unless that does not matter."""
        found, at = [], 1
        for q in self.orders[side]:
            step = self.modes[q].strides[side]
            if (abs(step) if backwards else step) != at or extents[q] == 1:
                break
            found.append(q)
            if extents[q] < self.modes[q].extent:
                break
            at *= extents[q]
        return found

    def begins(self, side: int, extents: Sequence[int], run: Sequence[int]) -> int:
        """Bytes, at most a sector, at multiples of which runs of a box begin on a side."""
        found = gcd(_SECTOR, self.alignments[side])
        for q, mode in enumerate(self.modes):
            step = mode.strides[side] * self.item
            if q not in run:
                found = gcd(found, step * (mode.extent > 1))
            elif extents[q] < mode.extent:
                found = gcd(found, step * extents[q])
        return found

    def vector_bytes(self, side: int, q: int, most: int = VECTOR_BYTES) -> int:
        """Bytes that threads move at a time along a stride of 1 in source (0) or target (1)."""
        extents = [m.extent for m in self.modes]
        return max(self.item, gcd(most, extents[q] * self.item, self.begins(side, extents, [q])))

    def runs(self, extents: Sequence[int]) -> list[Runs]:
        """Those of a box with these extents, in source and target."""
        spanned = [self.run(side, extents, backwards=True) for side in (0, 1)]
        return [Runs(prod(extents[q] for q in run) * self.item, self.begins(side, extents, run),
                     *(n * self.item for n in self.spans(side, extents)))
                for side, run in enumerate(spanned)]

    def kernel(self, config: CopyConfigs, names: Iterable[str], tile: Mapping[int, int],
               reason: str, batch: Sequence[int] = (), halo: int = 0,
               finished: Callable[[Any], CopyConfigs] = lambda config: config) -> CopyKernel:
        """The kernel whose blocks move so many elements of some modes, whose extents have these
        names there; ``halo`` are those that it moves before the first one."""
        modes, in_place = self.modes, self.problem.in_place
        batch = batch or [q for q in range(len(modes)) if q not in tile]
        sizes = [tile.get(q, 1) for q in range(len(modes))]
        beyond = [(n > 1) * (1 + 2 * (n + halo)) if halo or in_place else 0 for n in sizes]
        config = replace(config, modes=len(batch), wide=is_wide([
            replace(m, extent=m.extent + n) for m, n in zip(modes, beyond, strict=True)]))
        boxes = [-(-(m.extent + halo * (q == 0)) // sizes[q]) for q, m in enumerate(modes)]
        blocks = prod(boxes)
        if in_place:                                        # pairs of tiles
            blocks = blocks // boxes[0] * (boxes[0] + 1) // 2
        work = self._work(config, [min(m.extent, n) for m, n in zip(modes, sizes, strict=True)],
                          blocks)

        def plan() -> Plan:
            final, scale = finished(config), getattr(config, "scale", 1)
            values: dict[str, Any] = {name: modes[q].extent
                                      for name, q in zip(names, tile, strict=True)}
            for side, (name, role) in enumerate((("S", "src"), ("D", "dst"))):
                strides, steps = (
                    tuple(step if step == 1 else step // scale
                          for step in (modes[q].strides[side] for q in own))
                    for own in (tile, batch))
                reaches = [(m.extent - 1) * m.strides[side] for m in modes]
                values |= {name: View(Argument(role, offset=self.offsets[side] * self.item),
                                      strides, steps),
                           f"{name}_lowest": sum(min(0, reach) for reach in reaches),
                           f"{name}_end": 1 + sum(max(0, reach) for reach in reaches)}
            each = launch(_KERNELS[type(final)], final, blocks, values,
                          batch_values(tuple(modes[q].extent for q in reversed(batch))))
            return Plan(self.problem, self.device, config.family, final, (each,), reason=reason,
                        seconds=work.seconds(self.device), works=(work,))

        return CopyKernel(config.family, config.kind, (work,), plan, config=config, blocks=blocks,
                          work=work)

    def _work(self, config: CopyConfigs, extents: Sequence[int], blocks: int) -> CopyWork:
        """What a kernel does whose blocks have these extents along every mode."""
        read, written = (prod(m.extent for m in self.modes if m.strides[side]) * self.item
                         for side in (0, 1))
        source, target = self.runs(extents)
        reads, writes, threads, held = _passes(config)
        if isinstance(config, RearrangeConfig):
            parts, counted, others = "box", len(config.cut) + config.modes, target.touched() - 1
            # else copies are asynchronous
            registers = 2 * reads if config.source.word * self.item < _WORD else 0.0
        else:
            parts, counted, registers = "tile", config.modes, reads
            cut = config.anywhere if isinstance(config, CopyConfig) else config.cut
            others = 0.0 if cut else target.touched() - 1          # cut where sectors end
        resident = floor(resident_blocks(threads, held, registers, self.device))
        share = blocks / self.device.multiprocessors
        return CopyWork(parts, read, written, source.touched() - 1, others,
                        read / source.length, written / target.length, share / resident,
                        ceil(share), threads / _WARP, reads + writes, counted)


def is_wide(modes: Sequence[Mode]) -> bool:
    return any(sum((m.extent - 1) * abs(m.strides[side]) for m in modes) >= NARROW_SPAN
               for side in (0, 1))


def resident_blocks(threads: int, nbytes: float, registers: float, device: DeviceInfo) -> float:
    """Blocks that a multiprocessor has room for; a fraction where registers are short."""
    return max(1, min(_RESIDENT_THREADS // threads,
                      device.shared_bytes_per_block // (_BLOCK_BYTES + nbytes),
                      _REGISTERS / threads / (_THREAD_REGISTERS + registers)))


def _passes(config: CopyConfigs) -> tuple[float, float, int, float]:
    """Words that a thread reads and writes, threads, and bytes of shared memory."""
    if isinstance(config, RearrangeConfig):
        reads, writes = (-(-side.words(config.item, config.box) // side.lanes)
                         * -(-prod(config.box[q] for q in side.row_modes) // side.rows)
                         for side in (config.source, config.target))
        return reads, writes, config.threads, config.elements * config.item
    if isinstance(config, CopyConfig):
        each = prod(config.tile) / config.threads
        return each * (_COVERING_WORDS if config.anywhere else 1), each, config.threads, 0
    nbytes = (1 + config.in_place) * prod(config.tile) * config.item
    covering = _COVERING if config.item < _WORD and config.cut else 1
    return covering * nbytes / config.load / config.threads, nbytes / config.store / config.threads, config.threads, nbytes
