"""Tests of kernels and of BLAS routines run a sample of the product of their parameters.

On a GPU each two values meet. The emulator, for which almost every case compiles kernels of its
own, runs each value once, and as many pairs as that allows. tests/kernels/test_products.py has
the properties that all families of products share. ``pytest --product`` runs the whole product.
A list of cases in one ``parametrize`` is one parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import combinations

import pytest

__all__ = ["SAMPLED", "each_value", "sample", "without_the_rest"]

SAMPLED = ("tests/kernels/", "tests/blas/")
"""Where tests are sampled."""

Row = tuple[Hashable, ...]


def without_the_rest(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests without those whose pairs of parameters others have."""
    tests: dict[tuple[str, Callable[[list[Row]], list[Row]]], dict[Row, None]] = {}
    for item in items:
        if item.nodeid.startswith(SAMPLED):
            tests.setdefault(_test(item), {})[_values(item)] = None
    samples = {test: set(test[1](list(rows))) for test, rows in tests.items()}
    return [item for item in items if (rows := samples.get(_test(item))) is None
            or _values(item) in rows]


def sample(rows: list[Row]) -> list[Row]:
    """Few of the rows, with each pair of values of two columns that any row has: those first that
    have the most new ones."""
    pairs = {row: _pairs(row) for row in rows}
    taken, seen = [], set()
    for new in range(max(map(len, pairs.values()), default=0), 0, -1):
        for row, own in pairs.items():
            if len(own - seen) >= new:
                taken.append(row)
                seen |= own
    return taken


def each_value(rows: list[Row]) -> list[Row]:
    """Few of the rows, with each value of a column that any row has, about equally often, and many
    pairs."""
    taken: list[Row] = []
    times: Counter[Hashable] = Counter()

    def worth(row: Row) -> tuple[int, int, int]:
        values = [times[value] for value in enumerate(row)]
        return values.count(0), sum(not times[pair] for pair in _pairs(row)), -sum(values)

    while worth(row := max(rows, key=worth))[0] or not taken:
        taken.append(row)
        times.update(enumerate(row))
        times.update(_pairs(row))
    return taken


def _pairs(row: Row) -> set[Hashable]:
    return set(combinations(enumerate(row), 2)) or {row}


def _test(item: pytest.Item) -> tuple[str, Callable[[list[Row]], list[Row]]]:
    """The test function, and what it runs of its rows."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    emulated = params.get("engine", params.get("backend")) == "emulator"
    return item.nodeid.partition("[")[0], each_value if emulated else sample


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
