"""Tests of kernels and of BLAS routines run a sample of the product of their parameters, in which
each two values meet.

``pytest --product`` runs the whole product. A test with one or two parameters runs in full, and a
list of cases in one ``parametrize`` is one parameter. The emulator and a GPU run the same sample,
unless the test is marked ``each_value``: every case compiles kernels of its own, and the emulator
runs each value of a parameter once.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations

import pytest

__all__ = ["SAMPLED", "sample", "without_the_rest"]

SAMPLED = ("tests/kernels/", "tests/blas/")
"""Where a test with three parameters or more is sampled."""


def without_the_rest(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests without those whose pairs of parameters others have."""
    tests: dict[tuple[str, int], dict[tuple[str, ...], None]] = {}
    for item in items:
        if item.nodeid.startswith(SAMPLED):
            tests.setdefault(_test(item), {})[_values(item)] = None
    samples = {(test, together): set(sample(list(rows), together))
               for (test, together), rows in tests.items()}
    return [item for item in items if (rows := samples.get(_test(item))) is None
            or _values(item) in rows]


def sample(rows: list[tuple[Hashable, ...]], together: int = 2) -> list[tuple[Hashable, ...]]:
    """Few of the rows, with each pair (or as many ``together``) of values of different columns that
    any row has: those first that have the most new ones."""
    pairs = {row: set(combinations(enumerate(row), together)) or {row} for row in rows}
    taken, seen = [], set()
    for new in range(max(map(len, pairs.values()), default=0), 0, -1):
        for row, own in pairs.items():
            if len(own - seen) >= new:
                taken.append(row)
                seen |= own
    return taken


def _test(item: pytest.Item) -> tuple[str, int]:
    """The test function, and of how many parameters the values meet."""
    emulated = hasattr(item, "callspec") and item.callspec.params.get("engine") == "emulator"
    return (item.nodeid.partition("[")[0],
            1 if emulated and item.get_closest_marker("each_value") else 2)


def _values(item: pytest.Item) -> tuple[str, ...]:
    """The parameters, as texts: one for each ``parametrize``, and one for each fixture that has
    some, the engine apart."""
    chosen = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    chosen.pop("engine", None)
    lists = [mark.args[0] for mark in item.iter_markers("parametrize")]
    together = [[name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
                for names in lists]
    values = [repr([chosen.pop(name) for name in names if name in chosen]) for names in together]
    return (*values, *map(repr, chosen.values()))
