"""One estimate for all products and reductions: what a plan does, counted from its layouts.

A family counts clocks of a unit, wavefronts, instructions and bytes; a card's numbers say which
share of a published rate is reached, never for a single tile. docs/planning.md has an example.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..problem import DeviceInfo

_BEGINNING = 2.5                     # clocks in which a block begins
_MOST_BLOCKS = 2**31 - 1             # of a grid

_RESOURCES = {"the unit": ("clocks",), "shared memory": ("wavefronts",),
              "loads": ("fetched", "gathered"), "TMA": ("lines",),
              "instructions": ("instructions", "modes"), "conversions": ("converted",),
              "crowded registers": ("crowded",), "waiting": ("rounds", "passes", "latencies"),
              "writing": ("written", "stored"), "divided tiles": ("exchanged", "apart"),
              "memory": ("moved", "read"), "runs": ("runs_read", "runs_written"),
              "parts of sectors": ("others_read", "others_written"), "launches": ("launches",),
              "slices": ("added",), "preparing operands": ("prepared",),}
_NONE = 1e-9                         # of a resource, so that nothing is divided by zero


class Counted(Protocol):
    def seconds(self, device: DeviceInfo) -> float:
        """The expected time."""


OF_A_WARP = 40
"""Clocks to issue a warp's instructions before and after its steps."""


def norm(power: int, *parts: float) -> float:
    """The time of what happens at once: above the longest part, if others are nearly as long."""
    total = 0.0
    for part in parts:
        total += part**power
    return total**(1 / power)


class Work(NamedTuple):
    """Counted resources, of one tile where nothing else is said."""
    # ``clocks`` of the unit; ``wavefronts`` of shared memory, ``fetched`` of loads to registers;
    # clocks in which ``instructions`` are issued, and TMA asks for ``lines``. ``gathered`` copies
    # of few elements; bytes ``converted``; registers ``crowded`` above an easy tile's. Of the
    # busiest multiprocessor: ``tiles``, ``rounds`` of blocks, ``passes`` of steps, steps
    # ``ahead``, blocks ``beside`` each other, bytes of C ``written``, of sums ``exchanged``, tiles
    # taken ``apart``. ``warps`` of a block (infinite if instructions do not wait), ``blocks`` of
    # the launch. ``moved`` are bytes of operands, ``stored`` those of C while no block multiplies;
    # ``launches``; bytes of slices ``added``, and of operands ``prepared``.

    unit: str
    reads: str
    writes: str = "vectors"
    clocks: float = 0.0
    wavefronts: float = 0.0
    fetched: float = 0.0
    instructions: float = 0.0
    lines: float = 0.0
    gathered: float = 0.0
    converted: float = 0.0
    crowded: float = 0.0
    tiles: float = 1.0
    rounds: float = 1.0
    passes: float = 0.0
    ahead: float = 1.0
    beside: float = 1.0
    warps: float = inf
    blocks: float = 1.0
    written: float = 0.0
    exchanged: float = 0.0
    apart: float = 0.0
    moved: float = 0.0
    stored: float = 0.0
    launches: float = 1.0
    added: float = 0.0
    prepared: float = 0.0

    def seconds(self, device: DeviceInfo) -> float:
        """The expected time; fields may be arrays."""
        costs, w = device.fitted, self
        rates, waits, memory = costs["rates"], costs["waits"], costs["memory"]
        cached = memory["in L2: times the bandwidth"]**(w.moved <= device.l2_bytes)
        per_byte = device.clock_hz / device.bandwidth
        tile = norm(
            4,
            w.clocks / costs["units"][f"{w.unit}: share of rate"],
            w.wavefronts,
            w.instructions,
            w.lines,
            w.fetched * rates["a fetch: clocks"]
        ) * (1 + w.crowded * rates["crowded registers: part"])
        tile = tile + w.gathered * rates["a copy of few elements: clocks"] + w.converted / rates["converted: bytes in a clock"]
        filling = waits["float64 on tensor cores: warps" if w.unit == "tensor cores, float64"
                        else "any unit: warps"]
        busy = norm(3, (w.tiles + w.apart * rates["a divided tile: part"]) * tile,
                    filling / w.warps * w.rounds * tile)
        narrow = 1.0 if w.writes == "vectors" else 1 + rates[f"C by {w.writes}: part"]
        busy = busy + (w.written * narrow + w.exchanged) / rates["written: bytes in a clock"]
        busy = busy + (w.exchanged > 0) * waits["a sum of others: clocks"]
        stored = w.stored * per_byte / cached
        busy = busy + rates["writing alone: part"] / w.beside * stored / (1 + stored / busy)
        waiting = waits[f"{w.reads}: clocks"] * (w.rounds + w.passes / w.ahead)
        moving = w.moved * per_byte / cached / memory["share of bandwidth"]
        clocks = norm(4, busy, waiting, moving, w.blocks * _BEGINNING)
        nbytes = 2 * w.added + w.prepared / memory["prepared: share of bandwidth"] \
            / memory["in L2: times the bandwidth"]**(w.prepared <= device.l2_bytes)
        starting = w.launches + (w.added > 0) * costs["launch"]["adding: launches"]
        return device.seconds(clocks, starting, nbytes)


def blocks_in_turns(blocks: int, resident: int, steps: float, stages: int,
                    device: DeviceInfo) -> dict[str, Any]:
    """How blocks follow each other on the busiest multiprocessor, ``resident`` at once."""
    tiles = -(-blocks // device.multiprocessors)
    rounds = -(-tiles // resident)
    return {"tiles": tiles, "rounds": rounds, "passes": rounds * max(0, steps - 1),
            "ahead": max(1, stages - 1), "beside": min(resident, tiles),
            "blocks": blocks if blocks <= _MOST_BLOCKS else inf}


def added(slices: int, nbytes: float, launches: int = 1) -> dict[str, Any]:
    """What slices take beside launches that multiply: to add them, and another launch."""
    return {"launches": launches + (slices > 1), "added": slices * nbytes if slices > 1 else 0.0}


def memory_seconds(nbytes: float, device: DeviceInfo) -> float:
    """The time of bytes from where other calls leave them: L2, if it has room."""
    memory = device.fitted["memory"]
    cached = memory["in L2: times the bandwidth"]**(nbytes <= device.l2_bytes)
    return device.seconds(nbytes=nbytes / cached / memory["share of bandwidth"])


def worth(work: Any, device: DeviceInfo) -> list[tuple[str, dict[str, float], float]]:
    """Each resource, its counts, and the time without it, the most important first."""
    found = []
    for name, fields in _RESOURCES.items():
        counts = {field: value for field in fields if (value := getattr(work, field, 0.0))}
        less = work._replace(**{field: _NONE * value for field, value in counts.items()})
        found.append((name, counts, work.seconds(device) - less.seconds(device)))
    return sorted((each for each in found if each[1]), key=lambda each: -each[2])
