"""Fitting a card's numbers to measured times, and the regret of their choices.

Least squares of logarithms (Levenberg and Marquardt), in which errors near the best plan of a
problem count more; then a random search for numbers that choose better among all plans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..plan import Alternative
from ..problem import DeviceInfo
from . import RANGES, Costs
from .work import Work

_ROUNDS, _STEP = 30, 1e-3
_FAR = 0.25                # an error of a logarithm from which it counts less than its square
_HELD = 0.05               # of an error of 1: what it costs to move a number by a factor of e
_TRIES, _NEAR = 3000, 2.0  # of the search, among plans whose estimates are at most so many times
                           # the least
# of the 95th percentile and of the error of good plans, beside the mean regret
_PERCENTILE_COUNTS, _ERROR_COUNTS = 0.2, 0.25
# the regret of a choice that was not measured; the share of them that may be
_UNKNOWN, _MOST_UNKNOWN, _ABOVE = 0.1, 0.1, 3.0


@dataclass
class Measured:
    """A problem and times of some of its plans; ``all`` has those not measured too."""

    name: str
    choice: Callable[[DeviceInfo], Alternative]
    alternatives: list[Alternative]
    seconds: list[float]
    all: Sequence[Alternative] = ()

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def others(self) -> list[Alternative]:
        known = set(map(str, self.alternatives))
        return [each for each in self.all if str(each) not in known]

    @property
    def fastest(self) -> Alternative:
        return self.alternatives[self.seconds.index(self.best)]

    def add(self, alternative: Alternative, seconds: float) -> None:
        self.alternatives.append(alternative)
        self.seconds.append(seconds)

    def taken(self, alternative: Alternative) -> float | None:
        return next((x for each, x in zip(self.alternatives, self.seconds, strict=True)
                     if str(each) == str(alternative)), None)


class Regret(NamedTuple):
    """How much longer the choice took than the best measured plan; ``None`` if not measured."""

    name: str
    choice: Alternative
    regret: float | None


def regrets(problems: Sequence[Measured], device: DeviceInfo) -> Iterator[Regret]:
    for problem in problems:
        choice = problem.choice(device)
        seconds = problem.taken(choice)
        yield Regret(problem.name, choice, None if seconds is None else seconds / problem.best - 1)


def fit(problems: Sequence[Measured], device: DeviceInfo, tries: int = _TRIES) -> Costs:
    """The numbers whose estimates are nearest to times, and choices to the best plans."""
    plans = [_Plan(index, plan, seconds, problem.best) for index, problem in enumerate(problems)
             for plan, seconds in (*zip(problem.alternatives, problem.seconds, strict=True),
                                   *((plan, np.nan) for plan in problem.others))]
    start = _clipped(np.log([device.fitted[family][name] for family, name in _NUMBERS]))
    at = _least_squares(_Estimates([x for x in plans if np.isfinite(x.seconds)], device), start)
    for copies in (False, True):
        numbers = [i for i, (family, _name) in enumerate(_NUMBERS) if (family == "copy") == copies]
        if own := [x for x in plans if isinstance(x.alternative.works[-1], Work) != copies]:
            other = at.copy()
            other[numbers] = start[numbers]
            at = _better_choices(_Estimates(own, device), (at, other), numbers, tries)
    return _costs(device, at)


_NUMBERS = [(family, name) for family, own in RANGES.items() for name in own]
_LEAST, _LARGEST = np.log([RANGES[family][name] for family, name in _NUMBERS]).T


def _clipped(at: np.ndarray) -> np.ndarray:
    return np.clip(at, _LEAST, _LARGEST)


def _costs(device: DeviceInfo, at: np.ndarray) -> Costs:
    """The numbers of these logarithms."""
    changes: dict[str, dict[str, float]] = defaultdict(dict)
    for (family, name), x in zip(_NUMBERS, at, strict=True):
        changes[family][name] = float(np.exp(x))
    return device.fitted.changed(changes)


class _Plan(NamedTuple):
    """A plan, its problem's index, its time (NaN if not measured), and its problem's least
    time."""

    problem: int
    alternative: Alternative
    seconds: float
    best: float


class _Estimates:
    """Estimates of plans by logarithms of numbers; plans of a problem follow each other."""

    def __init__(self, plans: Sequence[_Plan], device: DeviceInfo):
        self.plans, self.device = plans, device
        problems, _plans, seconds, best = zip(*plans, strict=True)
        self.measured, self.best = np.array(seconds), np.array(best)
        _problems, self.starts, self.problem = np.unique(problems, True, True)
        self.floors = np.array([device.seconds(x.alternative.floor) for x in plans])
        counted: dict[tuple, list[tuple[int, Any]]] = defaultdict(list)
        for row, plan in enumerate(plans):
            for work in plan.alternative.works:
                words = tuple(x for x in work if isinstance(x, str))  # type: ignore[attr-defined]
                counted[type(work), words].append((row, work))
        # works of the same kinds as arrays, and the plans that they are of
        self._groups = [(np.array(rows), _stacked(works)) for rows, works in (
            zip(*own, strict=True) for own in counted.values())]

    def seconds(self, at: np.ndarray) -> np.ndarray:
        device = replace(self.device, costs=_costs(self.device, at))
        found = np.zeros(len(self.plans))
        for rows, work in self._groups:
            np.add.at(found, rows, work.seconds(device))
        return np.maximum(found, self.floors)

    def least(self, seconds: np.ndarray) -> np.ndarray:
        """The least of such times of each plan's problem."""
        return np.minimum.reduceat(seconds, self.starts)[self.problem]


def _stacked(works: Sequence[Any]) -> Any:
    """Works that differ in numbers alone as one of arrays."""
    columns = zip(*works, strict=True)
    return type(works[0])(*(x[0] if isinstance(x[0], str) else np.array(x, float) for x in columns))


def _least_squares(estimates: _Estimates, start: np.ndarray) -> np.ndarray:
    at, goal, nearness = start.copy(), np.log(estimates.measured), np.minimum(1, estimates.best / estimates.measured)

    def error_of(x: np.ndarray) -> np.ndarray:
        return np.log(estimates.seconds(x)) - goal

    def total(error: np.ndarray, x: np.ndarray) -> float:
        size = abs(error)
        robust = np.where(size <= _FAR, size**2, 2 * _FAR * size - _FAR**2)
        return float((nearness**2 * robust).sum() + (_HELD * (x - start)**2).sum())

    error, damping = error_of(at), 1e-3
    for _round in range(_ROUNDS):
        weight = nearness * np.sqrt(np.minimum(1, _FAR / np.maximum(abs(error), 1e-12)))
        slopes = np.stack([(error_of(at + _STEP * unit) - error) / _STEP
                           for unit in np.eye(len(at))], 1)
        weighted = slopes * weight[:, None]
        normal = weighted.T @ weighted + _HELD * np.eye(len(at))
        gradient, before = weighted.T @ (weight * error) + _HELD * (at - start), total(error, at)
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            moved = _clipped(at - np.clip(step, -1, 1))
            found = error_of(moved)
            if total(found, moved) < before:
                break
            damping *= 4
        else:
            break
        gained = before - total(found, moved)
        at, error, damping = moved, found, damping / 4
        if gained < 1e-4 * before:
            break
    return at


def _better_choices(everything: _Estimates, begin: Sequence[np.ndarray], numbers: Sequence[int],
                    tries: int) -> np.ndarray:
    """Numbers whose choices are nearer to the best plans, by random steps of a few at a time."""
    near = np.zeros(len(everything.plans), bool)
    for seconds in map(everything.seconds, begin):
        near |= seconds <= _NEAR * everything.least(seconds)
    plans = [plan for plan, is_near in zip(everything.plans, near, strict=True) if is_near]
    estimates = _Estimates(plans, everything.device)
    measured = np.isfinite(estimates.measured)
    regret = np.where(measured, np.minimum(1, estimates.measured / estimates.best - 1), _UNKNOWN)
    good = measured & (regret < 0.3)
    goal = np.log(estimates.measured[good])

    def cost(x: np.ndarray) -> float:
        seconds = estimates.seconds(x)
        chosen = np.flatnonzero(seconds == estimates.least(seconds))
        chosen = chosen[np.diff(estimates.problem[chosen], prepend=-1) > 0]
        found, unknown = regret[chosen], 1 - float(measured[chosen].mean())
        return float(found.mean() + _PERCENTILE_COUNTS * np.percentile(found, 95) + _ABOVE
                     * max(0, unknown - _MOST_UNKNOWN) + _ERROR_COUNTS
                     * abs(np.log(seconds[good]) - goal).mean())

    rng, at = np.random.default_rng(0), min(begin, key=cost)
    least_cost, now = cost(at), estimates.seconds(at)
    steps = _STEP * np.eye(len(at))
    asked = [i for i in numbers if (estimates.seconds(at + steps[i]) != now).any()]
    for _try in range(tries):
        moved = at.copy()
        some = rng.choice(asked, min(len(asked), int(rng.integers(1, 4))), replace=False)
        moved[some] += rng.normal(0, rng.choice([0.04, 0.15, 0.3]), len(some))
        moved = _clipped(moved)
        if (found := cost(moved)) < least_cost:
            at, least_cost = moved, found
    return at
