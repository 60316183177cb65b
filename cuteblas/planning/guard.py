"""One guard for algorithms that are right for most elements and not for all: the device decides,
and nothing waits for the host.

A *primary* algorithm leaves a verdict on the elements, in words in front of the workspace: it
holds, or which *fallback* has to compute in its place. Fallbacks are launched after it in any case,
each with a gate, and return at once where they are not selected: :mod:`cuteblas.kernels.guard` has
the kernels' part. An algorithm plans both as if they were alone with the workspace, with the role
:data:`VERDICT` for the words, and hands them over as a :class:`Guarded`; where C is computed in
blocks, one for each block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .plan import Argument, Launch, Plan, Role, aligned, place, placed
from .problem import DeviceInfo

__all__ = ["VERDICT", "Guarded", "gate_values", "guarded", "natively", "otherwise", "verdict_bytes"]

VERDICT: Role = "verdict"
"""The words of the verdict under which a launch is: written by the primary algorithm, read by the
gates of its fallbacks."""

_WORDS: Role = "verdict_words"       # how many they are
_WORD = 4                            # bytes


@dataclass(frozen=True)
class Guarded:
    """What computes a product, or a block of one, under one verdict.

    Attributes
    ----------
    primary : tuple of Launch
        The algorithm whose result stands if the verdict is :data:`~cuteblas.kernels.guard.HOLDS`.
        One of its launches writes all words of :data:`VERDICT`.
    fallbacks : tuple of Launch
        What computes if it is not, each with the gate of its own number. Each possible verdict
        needs one.
    workspace_bytes : int
        The most that one of the launches needs.
    words : int
        Words of the verdict: one, or one of each block that leaves a verdict. A gate opens if one
        of them has its number.
    """

    primary: tuple[Launch, ...]
    fallbacks: tuple[Launch, ...]
    workspace_bytes: int
    words: int = 1


def verdict_bytes(words: int) -> int:
    """Bytes at the front of the workspace for that many verdict words."""
    return aligned(_WORD * words)


def gate_values(gate: int | None) -> dict[str, Any]:
    """What a kernel takes that does nothing unless the verdict is ``gate``."""
    return {} if gate is None else {"gate": Argument(role=VERDICT),
                                    "gate_words": Argument(role=_WORDS)}


def guarded(
    parts: Iterable[Guarded], device: DeviceInfo, words: int
) -> tuple[tuple[Launch, ...], int]:
    """The launches of all parts, the primary algorithm of each, then all fallbacks; and the
    workspace that they share.

    Parameters
    ----------
    parts : iterable of Guarded
        Products, whose verdicts have words of their own.
    device : DeviceInfo
        The device to plan for.
    words : int
        For how many words there is room: the workspace of the parts begins :func:`verdict_bytes`
        further.
    """
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
    """:func:`guarded` launches with so much workspace, and native arithmetic as their fallback."""
    part = Guarded(primary, native.launches, max(nbytes, native.workspace_bytes), words)
    return guarded([part], native.device, room)


def otherwise(condition: str, *fallbacks: str) -> str:
    """The line of a plan about its guard: the condition, and the algorithms that the device then
    uses."""
    return f"if {condition}, the device uses {', or '.join(fallbacks)}"


def _after(primary: Iterable[Launch], launch: Launch, device: DeviceInfo) -> Launch:
    """A launch that may have nothing to do, with no more blocks than there is room for; each
    computes one after the other."""
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
