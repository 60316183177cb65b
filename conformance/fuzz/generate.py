"""Programs from seeds: one call, or a few that differ little, since repeated calls are replayed."""

from __future__ import annotations

from dataclasses import replace

from .calls import Call, Program
from .draw import Draw, Pools
from .mutate import near, spoiled
from .registry import FUNCTIONS

__all__ = ["program"]


def program(seed: int, pools: Pools, function: str | None = None) -> Program:
    """The program of a seed; ``function`` is the only one that it calls."""
    draw = Draw(seed, pools)
    name = function or draw.weighted({name: f.weight for name, f in FUNCTIONS.items()
                                      if pools.backend not in f.left_out})
    call = FUNCTIONS[name].make(draw)
    if draw.chance(0.15):
        call = _with_ours(draw, call)
    calls = [spoiled(draw, call) if draw.chance(0.1) else call]
    while draw.chance(0.35) and len(calls) < 5:
        calls.append(near(draw, draw.choice(calls)))
    if draw.chance(0.03):
        calls.append(calls[0])
    return Program(tuple[Call, ...](calls), seed)


def _with_ours(draw: Draw, call: Call) -> Call:
    """The call with some of its arrays held by ours."""
    return replace(call, views=tuple(replace(view, holder="ours") if view.holder == "plain"
                                     and draw.chance(0.6) else view for view in call.views))
