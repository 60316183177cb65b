"""Measured choices: the best plans for a problem are timed once, and the fastest is kept.

A kept choice holds on every card of its name, with the same version of this package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from .._cache import cache_directory, find, keep
from .._forks import surviving
from ..planning.floors import duration
from ..planning.problem import (
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    ReductionProblem,
)
from .counters import tally
from .settings import planned_under_the_limit

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["Problem", "fastest", "plan_for", "tune", "tuning_state"]

Problem = GemmProblem | CopyProblem | ContractionProblem | ReductionProblem
_PLANNERS: dict[type, str] = {GemmProblem: "plan_gemm", CopyProblem: "plan_copy",
                              ContractionProblem: "plan_contraction",
                              ReductionProblem: "plan_reduction"}

_TIMED = 3                              # plans for a problem
_MARGIN = 0.98                          # of the time of planning's choice, which another must reach
_MOST_KNOWN = 4096                      # problems, after which a process reads their files again
_PLANNED = "the estimate's choice"

_lock = surviving(Lock())
_known: dict[Any, Plan | None] = {}
_on = os.environ.get("CUTEBLAS_TUNE", "0") not in ("", "0")


def tune(on: bool) -> bool:
    """Time the best plans for each new kind of call on the GPU, or stop, for the whole process.

    Planning takes the plan with the least expected time. With ``tune(True)`` the first call of each
    kind also compiles the three plans with the least estimates, times them on the GPU and keeps the
    fastest on disk. All later calls of that kind use it, in other processes and after
    ``tune(False)`` too; they time nothing. ``explain`` shows the times, and ``stats`` counts the
    choices that were measured.

    Parameters
    ----------
    on : bool
        Whether to time. The environment variable ``CUTEBLAS_TUNE=1`` turns it on at the start.

    Returns
    -------
    bool
        Whether it was on before.

    Raises
    ------
    TypeError
        For anything else.

    Notes
    -----
    The plans read the operands of the call and write to scratch memory as large as its result.
    Products, copies, and contractions that are one product of matrices have several plans.
    Reductions, groups of products, and calls with ``variant=`` are not timed, nor is anything while
    a CUDA graph is captured. ``python -m cuteblas cache --clear`` forgets all choices.

    Examples
    --------
    >>> before = cuteblas.tune(True)
    >>> cuteblas.tune(before)
    True
    """
    global _on
    if not isinstance(on, bool):
        raise TypeError(f"tune takes True or False, got {on!r}")
    before, _on = _on, on
    for forget in planned_under_the_limit:
        forget()
    return before


def tuning_state() -> str:
    """What kept calls depend on: whether calls are timed, and which choices there are."""
    with suppress(OSError):
        return f"{_on} {sorted(os.listdir(cache_directory() / 'choices'))}"
    return f"{_on}"


def plan_for(problem: Problem, device: DeviceInfo) -> Plan:
    """The plan for a problem, the fastest if some were timed; the first call imports planning."""
    from .. import planning

    return _measured(getattr(planning, _PLANNERS[type(problem)])(problem, device))


def _measured(plan: Plan) -> Plan:
    if (key := (plan.problem, plan.device)) not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known.setdefault(key, _kept(plan))
    return _known.get(key) or plan


def fastest(plan: Plan, timer: Callable[[Plan], float | None]) -> Plan | None:
    """The plan to run, the fastest while tuning; ``None`` if ``timer`` cannot time now."""
    if not _on or plan.measured or not _has_alternatives(plan):
        return plan
    with _lock:
        if (found := _measured(plan)).measured:
            return found
        plans: dict[str, Plan] = {}
        times: dict[str, float] = {}
        # The first plan is timed twice: clocks rise meanwhile.
        for name, each in chain([(_PLANNED, plan)], islice(_plans(plan), _TIMED)):
            plans[name] = each
            try:
                if (seconds := timer(each)) is None:
                    return None
                times[name] = seconds
            except Exception as error:          # no memory, or a kernel that is refused
                tally("tune", "left out", type(error).__name__).tick()
        if len(times) < min(2, len(plans)):
            return plan
        found = _noted(plans.items(), times)
        _known[plan.problem, plan.device] = found
        keep("choices", _name(plan), json.dumps({"arch": plan.arch, "times": times}).encode())
        tally("tune", "calls", found.family).tick()
        return found


def _has_alternatives(plan: Plan) -> bool:
    """Whether a plan is one of several: its problem could name a kernel, and does not."""
    return getattr(plan.problem, "variant", "") is None and bool(plan.launches)


def _plans(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans for a problem by name: the one that planning chose, then others by their estimates."""
    problem, device, limit = plan.problem, plan.device, plan.device.workspace_limit
    yield _PLANNED, plan
    from ..planning.gemm.contraction import alternatives
    from ..planning.gemm.dispatch import plan_of

    for each in sorted(alternatives(problem, device), key=lambda each: each.seconds(device)):
        with suppress(ValueError):              # a grid has too many blocks
            other = replace(plan_of(each), problem=problem)
            fits = limit is None or other.workspace_bytes <= limit
            if fits and other.launches != plan.launches:
                yield str(each), other


def _noted(plans: Iterable[tuple[str, Plan]], times: Mapping[str, float]) -> Plan:
    """The fastest of some plans, which says what was measured."""
    names = sorted(times, key=lambda name: times[name] * (_MARGIN if name == _PLANNED else 1))
    found = next(plan for name, plan in plans if name == names[0])
    words = (f"{duration(times[name])} by {name}" for name in names)
    return replace(found, measured="; ".join(words))


def _name(plan: Plan) -> str:
    from .. import __version__

    card = plan.device
    where = __version__, card.name, card.arch, card.multiprocessors, card.workspace_limit
    return sha256(f"{where} {plan.problem!r}".encode()).hexdigest()


def _kept(plan: Plan) -> Plan | None:
    if _has_alternatives(plan):
        with suppress(Exception):               # no file, or whatever a damaged one leads to
            times = json.loads(find("choices", _name(plan)) or b"")["times"]
            return _noted(_plans(plan), {name: float(seconds) for name, seconds in times.items()})
    return None
