"""The expected time of a copy, by one model for all of its kernels.

Blocks move their part in passes of a word a thread. The longest counts of: sectors at the
bandwidth of a device copy or of L2; instructions of the busiest multiprocessor; and latency, for
as many rounds as blocks wait for room (Little's law). A first block waits for its latency in any
case.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, prod
from typing import NamedTuple

from ...kernels.copy.rearrange import RearrangeConfig
from ...kernels.copy.straight import CopyConfig
from ...kernels.copy.tiles import TransposeConfig
from ..cost.work import norm
from ..problem import DeviceInfo
from .rearrange import Permuted, resident_blocks, runs_of

__all__ = ["CopyConfigs", "CopyWork", "TileConfigs", "work_of"]

TileConfigs = CopyConfig | TransposeConfig
CopyConfigs = TileConfigs | RearrangeConfig

_ISSUED = 2.0                        # warps' instructions of a multiprocessor in a clock
_WARP, _WORD = 32, 4                 # threads, and bytes
_COVERING_WORDS = 5                  # of 4 bytes, that are read for 16 where rows begin anywhere
_COVERING = 2                        # that are read for one


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


def work_of(permuted: Permuted, config: CopyConfigs, extents: Sequence[int], blocks: int,
            device: DeviceInfo) -> CopyWork:
    """What a kernel does whose blocks have these extents along every mode."""
    item = permuted.item
    read, written = (prod(m.extent for m in permuted.modes if m.strides[side]) * item
                     for side in (0, 1))
    source, target = runs_of(permuted, extents)
    reads, writes, threads, held = _passes(config)
    if isinstance(config, RearrangeConfig):
        parts, counted, others = "box", len(config.cut) + config.modes, target.touched() - 1
        # else copies are asynchronous
        registers = 2 * reads if config.source.word * item < _WORD else 0.0
    else:
        parts, counted, registers = "tile", config.modes, reads
        cut = config.anywhere if isinstance(config, CopyConfig) else config.cut
        others = 0.0 if cut else target.touched() - 1          # cut where sectors end
    resident = floor(resident_blocks(threads, held, registers, device))
    share = blocks / device.multiprocessors
    return CopyWork(parts, read, written, source.touched() - 1, others,
                    read / source.length, written / target.length, share / resident, ceil(share),
                    threads / _WARP, reads + writes, counted)


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
