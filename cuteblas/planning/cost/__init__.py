"""The numbers that planners estimate with, and the cards that they were fitted to.

Times are clocks of a multiprocessor, bytes at a share of a device copy's bandwidth, and launches;
a :class:`~cuteblas.planning.problem.DeviceInfo` makes seconds of them, so that a card's clock,
multiprocessors and bandwidth scale another card's numbers. :data:`RANGES` says what is believable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["RANGES", "CostError", "Costs", "costs_from", "costs_of", "default_costs", "written"]

_DEFAULT = "NVIDIA H200"
_VERSION = 2

Numbers = Mapping[str, Mapping[str, float]]


class CostError(ValueError):
    """A file of costs cannot be used, for this reason."""


@dataclass(frozen=True, eq=False)
class Costs:
    """What things cost on a card, by family and name: clocks, shares of a rate, or launches.
    ``origin`` is the file or "shipped", ``command`` what made it, ``about`` has versions and
    regrets."""

    device: str
    command: str
    numbers: Numbers = field(repr=False)
    origin: str = "shipped"
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", MappingProxyType(
            {family: MappingProxyType(dict(own)) for family, own in self.numbers.items()}))

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = {family: dict(own) for family, own in self.numbers.items()}
        return Costs, (self.device, self.command, numbers, self.origin, dict(self.about))

    def __getitem__(self, family: str) -> Mapping[str, float]:
        return self.numbers[family]

    def changed(self, changes: Numbers) -> Costs:
        numbers = {family: dict(own) for family, own in self.numbers.items()}
        for family, own in changes.items():
            if unknown := own.keys() - numbers[family].keys():
                raise KeyError(f"unknown number {min(unknown)!r} of {family!r}")
            numbers[family].update(own)
        return replace(self, numbers=numbers)


@cache
def _shipped() -> dict[str, Costs]:
    found = {}
    for file in Path(__file__).with_name("devices").iterdir():
        if file.suffix == ".json":
            costs = _read(file.read_text(encoding="utf-8"), file.name, "shipped")
            found[costs.device] = costs
    default = found[_DEFAULT]
    return {name: _completed(costs, default) for name, costs in found.items()}


def default_costs() -> Costs:
    return _shipped()[_DEFAULT]


def costs_of(device: str) -> Costs:
    """The shipped costs of a card by its name, or those of an H200."""
    return _shipped().get(device, default_costs())


def costs_from(text: str, name: str) -> Costs:
    """The costs of a file, completed by an H200's, without numbers that no planner asks for."""
    return _completed(_read(text, name, name), default_costs())


def _read(text: str, name: str, origin: str) -> Costs:
    try:
        data = json.loads(text)
        version, device, command, numbers = (data[key]
                                             for key in ("version", "device", "command", "numbers"))
        if version != _VERSION:
            raise CostError(
                f"{name} has planning numbers of version {version}, but this cuteblas reads version {_VERSION}; "
                "run `python -m cuteblas calibrate` to write it again"
            )
        found = {str(family): {str(key): float(x) for key, x in own.items()}
                 for family, own in numbers.items()}
        if not all(0 <= x < float("inf") for own in found.values() for x in own.values()):
            raise ValueError("a number is negative or not finite")
    except CostError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CostError(f"{name} has no valid planning numbers: {error}; "
                        "run `python -m cuteblas calibrate` to write it again") from None
    return Costs(str(device), str(command), found, origin, data.get("about", {}))


def _completed(costs: Costs, default: Costs) -> Costs:
    numbers = {family: {name: costs.numbers.get(family, {}).get(name, x) for name, x in own.items()}
               for family, own in default.numbers.items()}
    return replace(costs, numbers=numbers)


def written(costs: Costs) -> str:
    numbers = {family: {name: float(f"{x:.6g}") for name, x in own.items()}
               for family, own in costs.numbers.items()}
    return json.dumps({"version": _VERSION, "device": costs.device, "command": costs.command,
                       "about": dict(costs.about), "numbers": numbers}, indent=1) + "\n"


_EFFICIENCY = 0.5, 1.25              # above 1 it makes up for what is summed by a norm

RANGES = {
    # Of the published multiply-adds in a clock, what a unit reaches in the inner loop of a tile.
    "units": {
        "fused multiply-adds: share of rate": _EFFICIENCY,
        "fused multiply-adds of int32: share of rate": _EFFICIENCY,
        # with their conversions to float32
        "fused multiply-adds of 16 bits: share of rate": (0.1, 1.0),
        "fused multiply-adds of bool: share of rate": (0.05, 1.0),     # as logical instructions
        "tensor cores: share of rate": _EFFICIENCY,
        "tensor cores, float64: share of rate": _EFFICIENCY,
        "tensor cores, bytes: share of rate": _EFFICIENCY,
    },
    # What a multiprocessor takes for what it does beside products.
    "rates": {
        # a wavefront of loads from global memory into registers
        "a fetch: clocks": (0.5, 4.0),
        # an asynchronous copy by a warp, with its address and predicate
        "a copy of few elements: clocks": (1.0, 10.0),
        # split into planes, or moved to where their words begin, in registers
        "converted: bytes in a clock": (20.0, 200.0),
        # slower with all registers of a thread than with an easy number of them
        "crowded registers: part": (0.1, 4.0),
        "written: bytes in a clock": (8.0, 100.0),      # from registers to C, with alpha and beta
        # longer than by vectors: where threads have no neighbours side by side
        "C by elements: part": (0.05, 6.0),
        "C by rows: part": (0.05, 6.0),                 # by way of shared memory
        "C by words: part": (0.05, 12.0),               # as words of 64 bits, from three sums each
        # longer, as blocks that begin in different places share less of L2
        "a divided tile: part": (0.005, 0.3),
        # of the time of C's bytes, if no other block multiplies meanwhile
        "writing alone: part": (0.05, 1.0),
    },
    # How long blocks wait: clocks until what was asked for is there, and the warps that hide each
    # other's instructions.
    "waits": {
        "TMA: clocks": (300.0, 2000.0),
        "copies: clocks": (100.0, 2000.0),              # asynchronous ones, mostly of lines in L2
        # the same while all blocks read as fast as memory allows
        "streams: clocks": (800.0, 4000.0),
        "loads: clocks": (500.0, 4000.0),               # into registers
        "a sum of others: clocks": (500.0, 15000.0),    # of a divided tile, until it is there
        "any unit: warps": (1.0, 10.0),                 # of a multiprocessor that keep a unit busy
        "float64 on tensor cores: warps": (0.5, 10.0),
    },
    # Of the bandwidth of a large device copy.
    "memory": {
        "share of bandwidth": (0.6, 1.15),
        "in L2: times the bandwidth": (1.0, 2.5),
        # of kernels that split operands or make residues of them
        "prepared: share of bandwidth": (0.3, 1.0),
    },
    "launch": {
        "seconds": (5e-7, 4e-6),
        "adding: launches": (0.05, 2.0),                # of slices, beside the launch that does it
    },
    "copy": {
        "start: launches": (0.05, 3.0),
        "latency: clocks": (500.0, 4000.0),
        "a pass of a box: clocks": (5.0, 300.0),
        "a pass of a tile: clocks": (5.0, 300.0),
        "a mode: instructions": (2.0, 60.0),
        "a pass: instructions": (1.0, 30.0),
        "in L2: times the bandwidth": (0.8, 2.5),
        "share of bandwidth": (0.7, 1.15),
        "others read: part": (0.02, 1.0),    # of the bytes of touched sectors that nobody asked for
        "others written: part": (0.1, 6.0),
        "a run: bytes": (1.0, 100.0),                   # that a run takes beside its own
    },
}
"""By family and name, the least and the largest believable value."""
