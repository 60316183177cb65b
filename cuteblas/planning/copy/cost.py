"""What a copy by one of its kernels is expected to take: one model for all of them.

A block reads its part of every mode, and writes it, in passes: in one each thread moves one word. Three things take time, and the
longest counts: sectors of memory, at the bandwidth of a device copy or of L2; instructions, at the rate of a multiprocessor that
has the most blocks; and latency, of as many rounds as blocks have to wait for room on a multiprocessor (Little's law). A first
block waits for its latency in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from ...kernels.copy.rearrange import BoxSide, RearrangeConfig
from ...kernels.copy.short_rows import FromShortRowsConfig, ShortRowsConfig
from ...kernels.copy.straight import CopyConfig
from ...kernels.copy.tiles import TransposeConfig
from ..cost.alternatives import together
from ..problem import DeviceInfo
from .rearrange import Permuted, runs_of

__all__ = ["CopyConfigs", "TileConfigs", "Work", "copy_seconds", "work_of"]

TileConfigs = CopyConfig | TransposeConfig | ShortRowsConfig | FromShortRowsConfig
CopyConfigs = TileConfigs | RearrangeConfig

# Of a multiprocessor: threads, registers, warps' instructions issued in a clock; of a block: bytes besides its own, and registers
# of a thread besides its words; the bytes of a word, and those that are written at once.
_THREADS, _REGISTERS, _ISSUED, _BLOCK_BYTES, _THREAD_REGISTERS = 2048, 65536, 2.0, 1024, 32
_WARP, _WORD, _VECTOR = 32, 4, 16
_COVERING_WORDS = 5                  # of 4 bytes, that are read for 16 where rows begin anywhere
_COVERING = 2                        # that are read for one


@dataclass(frozen=True)
class Work:
    """What a kernel does for a copy.

    Attributes
    ----------
    moved : (float, float)
        Bytes of elements that are read and written.
    others : (float, float)
        Bytes of other elements in the sectors that blocks touch, for each byte that they read and write.
    runs : (float, float)
        Bytes of the runs of a block.
    blocks, threads : int
        Blocks, and threads of one.
    passes : float
        Words that a thread reads and writes.
    modes : int
        Modes of which a block computes its coordinates.
    shared, registers : float
        Bytes of shared memory of a block, and registers of a thread.
    boxes : bool
        Whether it moves boxes.
    """

    moved: tuple[float, float]
    others: tuple[float, float]
    runs: tuple[float, float]
    blocks: int
    threads: int
    passes: float
    modes: int
    shared: float
    registers: float
    boxes: bool


def copy_seconds(work: Work, device: DeviceInfo) -> float:
    """The expected time."""
    costs = device.fitted["copy"]
    share = work.blocks / device.multiprocessors
    resident = max(1, min(_THREADS // work.threads, device.shared_bytes_per_block // work.shared,
                          _REGISTERS // (work.threads * work.registers)))
    a_pass = costs["a pass of a box: clocks" if work.boxes else "a pass of a tile: clocks"]
    latency = costs["latency: clocks"] + a_pass * work.passes
    instructions = costs["a mode: instructions"] * work.modes + costs["a pass: instructions"] * work.passes
    issue = ceil(share) * instructions * work.threads / (_WARP * _ISSUED)
    parts = costs["others read: part"], costs["others written: part"]
    nbytes = sum(moved * (1 + part * others + costs["a run: bytes"] / run)
                 for moved, part, others, run in zip(work.moved, parts, work.others, work.runs, strict=True))
    rate = costs["in L2: times the bandwidth" if sum(work.moved) <= device.l2_bytes else "share of bandwidth"]
    rate *= 1.0 if work.boxes else costs["tiles: times the bandwidth"]
    memory = device.seconds(nbytes=nbytes / rate) * device.clock_hz
    clocks = together(latency + issue, latency + memory, share / resident * latency)
    return device.seconds(clocks, costs["start: launches"])


def work_of(permuted: Permuted, config: CopyConfigs, extents: Sequence[int], blocks: int) -> Work:
    """What a kernel of a configuration does whose blocks have these extents along every mode."""
    item, modes = permuted.item, permuted.modes
    read, written = (prod(m.extent for m in modes if stride(m)) * item for stride in (lambda m: m.src, lambda m: m.dst))
    source, target = runs_of(permuted, extents)
    others = target.touched() - 1
    boxes, registers = isinstance(config, RearrangeConfig), float(_THREAD_REGISTERS)
    reads: float
    writes: float
    if isinstance(config, RearrangeConfig):
        reads, writes = (_passes_of(side, config) for side in (config.source, config.target))
        threads, counted, held = config.threads, len(config.cut) + config.modes, float(config.elements * item)
        registers += 2 * reads if config.source.word * item < _WORD else 0     # else copies are asynchronous
    else:
        reads, writes, threads, held = _passes(config)
        counted, registers = config.modes, registers + reads
        if isinstance(config, (ShortRowsConfig, FromShortRowsConfig)) or _cut(config):
            others = 0.0                                # rows of the target are cut where sectors end
    return Work((read, written), (source.touched() - 1, others), (source.length, target.length), blocks, threads, reads + writes,
                counted, _BLOCK_BYTES + held, registers, boxes)


def _cut(config: CopyConfig | TransposeConfig) -> bool:
    return bool(config.anywhere if isinstance(config, CopyConfig) else config.cut)


def _passes_of(side: BoxSide, config: RearrangeConfig) -> int:
    """Words that a thread moves of a side of a box."""
    length = prod(config.box[q] for q in side.order[:side.run])
    return -(-side.words(config.item, config.box) // side.lanes) * -(-(config.elements // length) // side.rows)


def _passes(config: TileConfigs) -> tuple[float, float, int, float]:
    """Words that a thread of a tile reads and writes, threads, and bytes of shared memory."""
    if isinstance(config, CopyConfig):
        each = prod(config.tile) / config.threads
        return each * (_COVERING_WORDS if config.anywhere else 1), each, config.threads, 0
    if isinstance(config, TransposeConfig):
        tiles = 2 if config.in_place else 1
        nbytes = tiles * prod(config.tile) * config.item
        covering = _COVERING if config.item < _WORD and _cut(config) else 1
        return covering * nbytes / config.load / config.threads, nbytes / config.store / config.threads, config.threads, nbytes
    threads, each = prod(config.threads), prod(config.words)
    vectors = each * config.word / _VECTOR
    passes = (each, vectors) if isinstance(config, ShortRowsConfig) else (vectors, each)
    return *passes, threads, threads * each * config.word
