"""A sample of a product of parameters has every pair of values."""

from itertools import combinations, product

import pytest

from . import pairs


@pytest.mark.parametrize("extents", [(1,), (5,), (3, 4), (2, 3, 4), (5, 1, 5, 2), (2,) * 7],
                         ids=str)
def test_every_pair_is_in_the_sample(extents):
    rows = list(product(*map(range, extents)))
    sample = pairs.sample(rows)
    for two in combinations(range(len(extents)), 2):
        assert {tuple(row[i] for i in two) for row in sample} == set(
            product(*(range(extents[i]) for i in two))
        )
    assert len(sample) == len(set(sample)) <= len(rows) and set(sample) <= set(rows)
    assert sorted(sample) == rows if len(extents) < 3 else len(sample) < len(rows)


@pytest.mark.parametrize("extents", [(1,), (3, 4), (2, 3, 7), (5, 1, 5, 2), (2,) * 7], ids=str)
def test_each_value_is_in_the_smaller_sample(extents):
    rows = list(product(*map(range, extents)))
    found = pairs.each_value(rows)
    assert len(found) == max(extents) and set(found) <= set(rows)
    for column, n in zip(zip(*found, strict=True), extents, strict=True):
        assert set(column) == set(range(n)) and max(map(column.count, column)) <= -(-len(found) // n) + 1


def test_what_is_asked_for_alone_is_run():
    assert pairs.sample([(3, 1, 2)]) == [(3, 1, 2)] and pairs.sample([]) == []
    assert pairs.each_value([(3, 1, 2)]) == [(3, 1, 2)]
    assert pairs.each_value([()]) == pairs.sample([()]) == [()]         # of a test without parameters
