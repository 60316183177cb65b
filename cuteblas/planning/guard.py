"""One guard for algorithms that are right for most elements: the device decides, no host waits.

docs/architecture.md explains it; :mod:`cuteblas.kernels.guard` has the kernels' part. A planner
makes a :class:`Guarded` of launches that are planned as if alone with the workspace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .plan import Argument, Launch, Plan, Role, aligned, place, placed
from .problem import DeviceInfo

VERDICT: Role = "verdict"
"""The words of a verdict: the primary algorithm writes them, gates of fallbacks read them."""

_WORDS: Role = "verdict_words"       # how many they are
_WORD = 4                            # bytes


@dataclass(frozen=True)
class Guarded:
    """What computes a product or block under one verdict, of ``words`` words. One ``primary``
    launch writes them all; ``fallbacks`` have the gates of all other verdicts."""

    primary: tuple[Launch, ...]
    fallbacks: tuple[Launch, ...]
    workspace_bytes: int
    words: int = 1


def verdict_bytes(words: int) -> int:
    return aligned(_WORD * words)


def gate_values(gate: int | None) -> dict[str, Any]:
    """What a kernel takes that runs under the verdict ``gate`` alone."""
    return {} if gate is None else {"gate": Argument(role=VERDICT),
                                    "gate_words": Argument(role=_WORDS)}


def guarded(
    parts: Iterable[Guarded], device: DeviceInfo, words: int
) -> tuple[tuple[Launch, ...], int]:
    """The launches of all parts, primary ones first, and workspace, behind ``words``."""
    primary: list[Launch] = []
    fallbacks: list[Launch] = []
    first, end, begin = 0, 0, verdict_bytes(words)
    for part in parts:
        places = {VERDICT: place("workspace", _WORD * first), _WORDS: Argument(value=part.words),
                  "workspace": place("workspace", begin)}
        primary += placed(part.primary, places)
        fallbacks += (Launch.later(partial(_after, part.primary, launch, device))
                      for launch in placed(part.fallbacks, places))
        first, end = first + part.words, max(end, part.workspace_bytes)
    if first > words:
        raise ValueError(f"verdicts take {first} words, but there is room for {words}")
    return (*primary, *fallbacks), begin + end


def natively(primary: tuple[Launch, ...], nbytes: int, native: Plan, room: int,
             words: int = 1) -> tuple[tuple[Launch, ...], int]:
    """:func:`guarded` launches, with native arithmetic as their fallback."""
    part = Guarded(primary, native.launches, max(nbytes, native.workspace_bytes), words)
    return guarded([part], native.device, room)


def otherwise(condition: str, *fallbacks: str) -> str:
    """The line of a plan about its guard: the condition, and the algorithms used otherwise."""
    return f"if {condition}, the device uses {', or '.join(fallbacks)}"


def _after(primary: Iterable[Launch], launch: Launch, device: DeviceInfo) -> Launch:
    """A launch that may have nothing to do, with no more blocks than there is room for."""
    if not any(argument.role == VERDICT for each in primary for argument in each.arguments):
        names = ", ".join(each.kernel.name for each in primary)
        raise ValueError(f"no launch writes the verdict: {names}")
    kernel, cluster = launch.kernel, launch.kernel.cluster[0]
    if "gate" not in kernel.signature:
        raise ValueError(f"a fallback has no gate: {kernel.name}")
    if "blocks" not in kernel.signature:
        return launch
    room = device.multiprocessors * kernel.min_blocks // cluster * cluster
    return replace(launch, grid=(min(launch.grid[0], room), 1, 1))
