"""Orders of contractions: the optimum against all orders, and the notation of ``einsum``."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuteblas.functions.subscripts import (
    MOST_FOR_OPTIMAL,
    Subscripts,
    contraction_path,
    greedy_path,
    operands_of,
    optimal_path,
    read,
    with_operands,
)


def cost(terms, result, extents, path):
    """Multiplications along a path; indices that one term has alone are summed beforehand."""
    left, total = [set(term) for term in terms], 0
    for step in path:
        chosen = [left[i] for i in step]
        left = [term for i, term in enumerate(left) if i not in step]
        elsewhere = set(result).union(*left)
        shared = [{c for c in term if c in elsewhere.union(*(x for x in chosen if x is not term))}
                  for term in chosen]
        total += prod(extents[c] for c in set().union(*shared))
        left.append(set().union(*shared) & elsewhere)
    assert len(left) == 1
    return total


def all_paths(count):
    """Every order of pairs."""
    if count == 1:
        yield []
        return
    for pair in combinations(range(count), 2):
        for rest in all_paths(count - 1):
            yield [pair, *rest]


@st.composite
def contractions(draw, most):
    count = draw(st.integers(2, most))
    terms = [draw(st.text("abcdef", max_size=3).map(lambda s: "".join(dict.fromkeys(s))))
             for _ in range(count)]
    used = sorted(set("".join(terms)))
    return terms, "".join(draw(st.sets(st.sampled_from(used)))) if used else "", {c: draw(st.integers(1, 5)) for c in used}


@settings(max_examples=100, deadline=None)
@given(contractions(5))
def test_dynamic_programming_finds_the_cheapest_order(contraction):
    terms, result, extents = contraction
    path = optimal_path(terms, result, extents)
    assert cost(terms, result, extents, path) == min(cost(terms, result, extents, other)
                                                     for other in all_paths(len(terms)))


@settings(max_examples=100, deadline=None)
@given(contractions(12))
def test_greedy_paths_are_paths(contraction):
    terms, result, extents = contraction
    cost(terms, result, extents, greedy_path(terms, result, extents))


def test_greedy_takes_what_shrinks_most_first():
    assert greedy_path(["ab", "bc", "cd"], "ad",
                       {"a": 2, "b": 4, "c": 9, "d": 1}) == [(1, 2), (0, 1)]
    assert greedy_path(["a", "b", "c"], "abc", {"a": 5, "b": 2, "c": 3}) == [(1, 2), (0, 1)]


def test_few_are_optimal_and_many_greedy():
    chain = ("ab", "bc", "cd", "de", "ef", "fg", "gh", "hi", "ij", "jk")
    extents = dict.fromkeys("abcdefghijk", 3)
    few = chain[:MOST_FOR_OPTIMAL]
    for terms, result, find in ((few, "ai", optimal_path), (chain, "ak", greedy_path)):
        assert list(contraction_path(Subscripts(terms, result, extents))) == find(terms, result, extents)


@pytest.mark.parametrize("find", [optimal_path, greedy_path])
def test_one_term_and_none(find):
    assert find(["ab"], "a", {"a": 2, "b": 3}) == [(0,)]
    assert find([], "", {}) == []


@pytest.mark.parametrize("text, shapes, expected",
                         [("ij,jk", [(2, 3), (3, 4)], "ij,jk->ik"), ("ba", [(2, 3)], "ba->ab"),
                          (" i j -> j i ", [(2, 3)], "ij->ji"),
                          ("...i,i...", [(4, 2), (2, 4)], "Zi,iZ->Z"),
                          ("...i->...", [(4, 5, 2)], "YZi->YZ"), ("...,i", [(), (2,)], ",i->i")])
def test_subscripts_without_abbreviations(text, shapes, expected):
    found = read((text,), shapes)
    assert f"{','.join(found.terms)}->{found.result}" == expected


def test_extents_follow_the_larger_axis():
    assert read(("ij,jk->ik",), [(2, 1), (3, 4)]).extents == {"i": 2, "j": 3, "k": 4}
    assert read(("i->i",), [(1,)], (5,)).extents == {"i": 5}


@pytest.mark.parametrize("text, shapes", [("ij,jk", [(2, 3), (4, 5)]), ("ii", [(2, 3)]),
                                          ("i", [(2, 3)]), ("ijk", [(2, 3)]), ("i,j", [(2,)]),
                                          ("i->ii", [(2,)]), ("i->j", [(2,)]), ("i..", [(2,)]),
                                          ("...i...", [(2,)]), ("1", [(2,)])])
def test_what_makes_no_sense(text, shapes):
    assert read((text,), shapes) is None


def test_operands_among_the_arguments():
    a, b = np.ones(2), np.ones(3)
    for arguments in (("i,j", a, b), (a, [0], b, [1]), (a, [0], b, [1], [0, 1])):
        assert operands_of(arguments)[0] is a and operands_of(arguments)[1] is b
        changed = with_operands(arguments, (b, a))
        assert operands_of(changed)[0] is b and operands_of(changed)[1] is a and len(changed) == len(arguments)
