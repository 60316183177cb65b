"""Fitting the numbers of planners to measured times, and what their choices cost beside the best.

The fit is least squares of logarithms, by Gauss-Newton steps with damping (Levenberg and Marquardt): each number is varied by
itself to see which estimates it moves. Errors count the more, the nearer a plan is to the best of its problem; numbers that
nothing depends on stay as they are. Then each number is moved a little wherever that makes choices better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple

import numpy as np

from ..problem import DeviceInfo
from . import Costs
from .alternatives import Alternative

__all__ = ["Measured", "Regret", "fit", "regrets"]

_Number = tuple[str, str]

_ROUNDS, _STEP = 60, 1e-3
_FAR = 0.25                          # an error of a logarithm from which it counts less than its square
_HELD = 0.05                         # of an error of 1: what it costs to move a number by a factor of e
_FIRST = {"clocks": 500.0}           # what a number of 0 begins with, by its unit,
_PART = 0.05                         # or a part
_MOVES = (0.97, 1.03, 0.92, 1.08, 0.8, 1.25)
_SWEEPS = 4
_ERROR_COUNTS = 0.02                 # of the mean error beside the mean regret


@dataclass
class Measured:
    """A problem and the times of some of the plans among which planning chooses.

    Attributes
    ----------
    name : str
        The problem, for people.
    choice : callable
        Planning's choice for a device.
    alternatives : list of Alternative
        The plans.
    seconds : list of float
        What each took.
    """

    name: str
    choice: Callable[[DeviceInfo], Alternative]
    alternatives: list[Alternative]
    seconds: list[float]

    @property
    def best(self) -> float:
        """The least of the times."""
        return min(self.seconds)

    @property
    def fastest(self) -> Alternative:
        """The plan that took it."""
        return self.alternatives[self.seconds.index(self.best)]

    def add(self, alternative: Alternative, seconds: float) -> None:
        """Note a time."""
        self.alternatives.append(alternative)
        self.seconds.append(seconds)

    def taken(self, alternative: Alternative) -> float | None:
        """What a plan took, if it was measured."""
        return next((x for each, x in zip(self.alternatives, self.seconds, strict=True) if str(each) == str(alternative)), None)


class Regret(NamedTuple):
    """How much longer planning's choice took than the best plan that was measured: 0 if it is that one.

    ``regret`` is ``None`` if the choice was not measured.
    """

    name: str
    choice: Alternative
    regret: float | None


def regrets(problems: Sequence[Measured], device: DeviceInfo) -> Iterator[Regret]:
    """The regret of each problem by the numbers of a device."""
    for problem in problems:
        choice = problem.choice(device)
        seconds = problem.taken(choice)
        yield Regret(problem.name, choice, None if seconds is None else seconds / problem.best - 1)


def fit(problems: Sequence[Measured], device: DeviceInfo) -> Costs:
    """The numbers with which estimates come nearest to measured times.

    Parameters
    ----------
    problems : sequence of Measured
        The times.
    device : DeviceInfo
        Where they were taken; the fit begins with its numbers.
    """
    estimates = _Estimates(problems, device)
    costs = _least_squares(estimates, device.fitted)
    return _better_choices(estimates, costs)


class _Recorder(Mapping[str, float]):
    """The numbers of a family, which notes what is asked for."""

    def __init__(self, family: str, numbers: Mapping[str, float], asked: set[_Number]):
        self._family, self._numbers, self._asked = family, numbers, asked

    def __getitem__(self, name: str) -> float:
        value = self._numbers[name]
        self._asked.add((self._family, name))
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Estimates:
    """All estimates as functions of the numbers that each depends on."""

    def __init__(self, problems: Sequence[Measured], device: DeviceInfo):
        self.device = device
        self._functions = [alternative.seconds for problem in problems for alternative in problem.alternatives]
        self.problem = np.array([i for i, problem in enumerate(problems) for _ in problem.seconds])
        self.family = [alternative.family for problem in problems for alternative in problem.alternatives]
        self.measured = np.array([x for problem in problems for x in problem.seconds])
        self.best = np.array([problem.best for problem in problems for _ in problem.seconds])
        self.of: dict[_Number, list[int]] = defaultdict(list)
        for row, function in enumerate(self._functions):
            asked: set[_Number] = set()
            numbers = {family: _Recorder(family, own, asked) for family, own in device.fitted.numbers.items()}
            function(replace(device, costs=replace(device.fitted, numbers=numbers)))
            for number in asked:
                self.of[number].append(row)

    def seconds(self, costs: Costs, rows: Sequence[int] | None = None) -> np.ndarray:
        """The estimates, of some rows or all."""
        device = replace(self.device, costs=costs)
        return np.array([self._functions[row](device) for row in (range(len(self._functions)) if rows is None else rows)])


def _value(costs: Costs, number: _Number) -> float:
    return costs[number[0]][number[1]]


def _first(number: _Number) -> float:
    """What a number of 0 begins with."""
    return _FIRST.get(number[1].rpartition(": ")[2], _PART)


def _moved(costs: Costs, values: Mapping[_Number, float]) -> Costs:
    changes: dict[str, dict[str, float]] = defaultdict(dict)
    for (family, name), value in values.items():
        changes[family][name] = value
    return costs.changed(changes)


def _least_squares(estimates: _Estimates, costs: Costs) -> Costs:
    """Levenberg and Marquardt's method on logarithms of numbers and times."""
    numbers = sorted(estimates.of)
    start = np.array([log(_value(costs, number) or _first(number)) for number in numbers])
    at, goal = start.copy(), np.log(estimates.measured)
    nearness = estimates.best / estimates.measured

    def costs_at(x: np.ndarray) -> Costs:
        return _moved(costs, dict(zip(numbers, map(float, np.exp(x)), strict=True)))

    def error_of(x: np.ndarray) -> np.ndarray:
        return np.log(estimates.seconds(costs_at(x))) - goal

    def total(error: np.ndarray, x: np.ndarray) -> float:
        size = abs(error)
        robust = np.where(size <= _FAR, size**2, 2 * _FAR * size - _FAR**2)
        return float((nearness**2 * robust).sum() + (_HELD * (x - start)**2).sum())

    error, damping = error_of(at), 1e-3
    for _round in range(_ROUNDS):
        weight = nearness * np.sqrt(np.minimum(1, _FAR / np.maximum(abs(error), 1e-12)))
        slopes, here = np.zeros((len(error), len(numbers))), costs_at(at)
        for column, number in enumerate(numbers):
            rows = estimates.of[number]
            varied = estimates.seconds(_moved(here, {number: _value(here, number) * (1 + _STEP)}), rows)
            slopes[rows, column] = (np.log(varied) - goal[rows] - error[rows]) / log(1 + _STEP)
        weighted = slopes * weight[:, None]
        normal = weighted.T @ weighted + _HELD * np.eye(len(numbers))
        gradient = weighted.T @ (weight * error) + _HELD * (at - start)
        before = total(error, at)
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            moved = at - np.clip(step, -1, 1)
            found = error_of(moved)
            if total(found, moved) < before:
                break
            damping *= 4
        else:
            break
        gained = before - total(found, moved)
        at, error, damping = moved, found, damping / 4
        if gained < 1e-3 * before:
            break
    values = dict(zip(numbers, map(float, np.exp(at)), strict=True))
    # What was 0, and that no time speaks of, stays it.
    unmoved = {number: 0.0 for number, x, first in zip(numbers, at, start, strict=True) if abs(x - first) < _STEP
               and not _value(costs, number)}
    return _moved(costs, values | unmoved)


def _better_choices(estimates: _Estimates, costs: Costs) -> Costs:
    """Numbers moved one after the other as far as the choices among what was measured get better."""
    by_problem: dict[int, list[int]] = defaultdict(list)
    by_family: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, (problem, family) in enumerate(zip(estimates.problem, estimates.family, strict=True)):
        by_problem[problem].append(row)
        by_family[problem, family].append(row)
    groups = [rows for rows in (*by_problem.values(), *by_family.values()) if len(rows) > 1]
    if not groups:
        return costs
    of_row: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        for row in group:
            of_row[row].append(index)
    measured, seconds = estimates.measured, estimates.seconds(costs)

    def regret(index: int, seconds: np.ndarray) -> float:
        own = measured[groups[index]]
        return min(1.0, float(own[np.argmin(seconds[groups[index]])] / own.min() - 1))

    regret_of = np.array([regret(index, seconds) for index in range(len(groups))])
    touched = {number: sorted({index for row in rows for index in of_row[row]}) for number, rows in estimates.of.items()}
    goal = np.log(measured)
    for _sweep in range(_SWEEPS):
        gained = False
        for number, rows in sorted(estimates.of.items()):
            value, affected = _value(costs, number), touched[number]
            base = regret_of[affected].sum() + _ERROR_COUNTS * abs(np.log(seconds[rows]) - goal[rows]).sum()
            for factor in _MOVES:
                changed = _moved(costs, {number: (value or _first(number)) * factor})
                varied = seconds.copy()
                varied[rows] = estimates.seconds(changed, rows)
                new = np.array([regret(index, varied) for index in affected])
                error = abs(np.log(varied[rows]) - goal[rows]).sum()
                if new.sum() + _ERROR_COUNTS * error < base - 1e-6:
                    costs, seconds, regret_of[affected], gained = changed, varied, new, True
                    break
        if not gained:
            break
    return costs
