"""Which part of C each device computes, in which tiles."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cuteblas.planning import sharding
from cuteblas.planning.sharding import Cost, Held, Operands, Part, spread
from cuteblas.planning.streaming import Tile

AXES = {"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")}
N = 16384
COST = Cost(34e-3, 0.8e-3 / N**2)


def held(name, axis, cuts=(), devices=(0, 1, 2), n=N, read=False):
    ends = [0, *cuts, n]
    parts = tuple(Part(device, range(*part)) for device, part in zip(devices, pairwise(ends),
                                                              strict=False))
    return Held(AXES[name], AXES[name].index(axis), parts, 4, read)


def divided(a, b, c, cost=COST, devices=(0, 1), rate=390e9):
    return spread(Tile.whole(1, N, N, N), Operands(a, b, c), devices, cost, lambda i, j: rate)


def ranges(tile):
    return [(part.start, part.stop) for part in (tile.m, tile.n)]


def test_a_part_costs_what_is_made_for_it():
    whole, cost = Tile.whole(1, 8, 6, 10), Cost(5.0, 0.01)
    assert cost.of(whole, whole) == pytest.approx(5.0)
    assert 2 * cost.of(whole, Tile.whole(1, 8, 3, 10)) - 5.0 == pytest.approx(0.01 * 80)         # A is read twice
    assert 2 * cost.of(whole, Tile.whole(1, 4, 6, 10)) - 5.0 == pytest.approx(0.01 * 60)
    assert Cost(5.0).of(whole, Tile.whole(1, 4, 3, 10)) == pytest.approx(1.25)


def moved(found, name="abc"):
    """The bytes that go from a device to another one, by both."""
    steps, sent = found.steps, Counter()
    for action in found.actions:
        panel = getattr(steps[action.device][action.step], action.name or "c")
        if action.name:
            piece = panel.pieces[action.piece]
            origin = action.source[0] if action.source else piece.device
            sent[origin, action.device] += piece.bytes * (action.name in name)
        elif panel.slot is not None and "c" in name:
            for piece in panel.pieces:
                sent[action.device, piece.device] += piece.bytes
    return {link: round(size) for link, size in sent.items() if link[0] != link[1] and size}


def test_a_device_begins_with_what_it_has():
    """A by rows and B by columns: nobody waits for the first tile, and C does not move."""
    found = divided(held("a", "m", [N // 2]), held("b", "n", [N // 2]), held("c", "m", [N // 2]))
    halves = [(0, N // 2), (N // 2, N)]
    assert [[ranges(step.tile) for step in steps] for steps in found.steps.values()] == [
        [[halves[0], halves[0]], [halves[0], halves[1]]],
        [[halves[1], halves[1]], [halves[1], halves[0]]]]
    assert moved(found) == {(0, 1): 2 * N * N, (1, 0): 2 * N * N}
    assert all(step.b.slot is None for steps in found.steps.values() for step in steps[:1])


def test_no_part_is_empty():
    assert [*sharding._grids(Tile.whole(1, 2, 9, 5), 3)] == [{"m": 1, "n": 3}]
    assert [*sharding._grids(Tile.whole(1, 9, 2, 5), 3)] == [{"m": 3, "n": 1}]
    assert [*sharding._grids(Tile.whole(3, 1, 1, 5), 3)] == [{"batch": 3}]


def test_tiles_are_few_where_operands_are_made_ready_for_each():
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    cheap, dear = (divided(*whole, cost=Cost(34e-3, prepare / N**2)) for prepare in (0.0, 4e-3))
    assert len(dear.steps[1]) < len(cheap.steps[1])
    assert len(cheap.steps[0]) == 1


@pytest.mark.parametrize("prepare", [0.0, 1e-3, 3e-3])
def test_devices_end_at_the_same_time(prepare):
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    found = divided(*whole, cost=Cost(34e-3, prepare / N**2))
    assert max(found.ends) < 1.03 * min(found.ends)
    assert found.seconds == max(found.ends)


# -- courses by hand: an array is a second of a link, or ten by PCIe -------------------------------
def all_to_all(one, other):
    return 4.0 * N * N


def pairs(one, other):
    return 4.0 * N * N / (1 if one // 2 == other // 2 else 10)


def pcie(one, other):
    return 0.4 * N * N


def course(arrays, cells, rate=all_to_all, seconds=1.0):
    """What becomes of tiles, each a range of rows and one of columns, of each device."""
    whole = Tile.whole(1, N, N, N)
    product = sharding._Product(whole, Operands(*arrays), tuple(range(len(cells))),
                                Cost(seconds), rate)
    return sharding._Course(product, [tuple(whole._replace(m=range(*m), n=range(*n))
                                            for m, n in cell) for cell in cells]).run()


def rows(name, count):
    """An array in equal parts by rows."""
    return held(name, AXES[name][1], [N * i // count for i in range(1, count)], range(count))


@pytest.fixture
def at_once(monkeypatch):
    """The host asks for everything at once."""
    monkeypatch.setattr(sharding, "_ASKING", 0.0)
    monkeypatch.setattr(sharding, "_LAUNCHES", 0.0)


def test_a_share_by_hand(at_once):
    """B comes in two parts, of which the second one is computed while the first result leaves."""
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    upper, lower, columns = (0, N // 2), (N // 2, N), [(0, N // 4), (N // 4, N)]
    found = course(whole, [[(upper, (0, N))], [(lower, part) for part in columns]])
    # seconds: A's half and a quarter of B 0.5 + 0.25, the rest of B 0.75; an eighth of C, then
    # three of them, which leave in 0.125 and 0.375
    assert found.ends == pytest.approx((0.5, max(0.75 + 0.125, 1.5) + 0.375 + 0.375))
    assert moved(found) == {(0, 1): 6 * N * N, (1, 0): 2 * N * N}


def test_one_device_by_hand(at_once):
    found = course([held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))],
                   [[((0, N), (0, N))]])
    assert found.ends == (1.0,)
    assert found.actions == (sharding.Action(0, 0),)


def test_three_devices_by_hand(at_once):
    """All on the first: it sends a third of A to each and B once, in halves."""
    thirds, halves = [0, N // 3, 2 * N // 3, N], [(0, N // 2), (N // 2, N)]
    cut = held("c", "m", thirds[1:3], range(3))
    cells = [[(part, (0, N))] if not i else [(part, half) for half in halves]
             for i, part in enumerate(pairwise(thirds))]
    found = course([held("a", "m"), held("b", "k"), cut], cells, seconds=3.0)
    # A: to 2 until 1/3, to 1 until 2/3; B from 0 to 2 from 2/3 to 7/6 and on to 5/3, and from
    # there to 1 half a second later; a tile is half a second
    assert found.ends == pytest.approx((1.0, 5 / 3 + 1, 7 / 6 + 1), rel=1e-3)
    assert moved(found, "b") == {(0, 2): 4 * N * N, (2, 1): 4 * N * N}


ARRIVES = {                 # all of B, in four panels: a link sends one in 1/4, or in 5/2 by PCIe
    (2, all_to_all): {1: 1}, (2, pairs): {1: 1}, (2, pcie): {1: 10},
    # 0 sends each panel to 2, that to 1
    (3, all_to_all): {2: 1, 1: 1.25}, (3, pcie): {2: 10, 1: 12.5},
    (3, pairs): {2: 10, 1: 1},          # by both links of 0
    (4, all_to_all): {3: 1, 2: 1.25, 1: 1.5}, (4, pcie): {3: 10, 2: 12.5, 1: 15},
    (4, pairs): {3: 10, 2: 10.25, 1: 1},
    (8, all_to_all): {i: 1 + (7 - i) / 4 for i in range(1, 8)},
    (8, pcie): {i: 10 + (7 - i) * 2.5 for i in range(1, 8)},
    # 0 to 7 and on to 6, to 5 and on to 4, to 3 and on to 2
    (8, pairs): {7: 10, 6: 10.25, 5: 12.75, 4: 13, 3: 15.5, 2: 15.75, 1: 1}}


@pytest.mark.parametrize(("count", "rate"), ARRIVES, ids=lambda x: getattr(x, "__name__", x))
def test_an_operand_is_passed_on(at_once, count, rate):
    """B on the first device leaves it, and every pair of devices, once."""
    ends = [N * i // count for i in range(count + 1)]
    quarters = [(N * i // 4, N * (i + 1) // 4) for i in range(4)]
    cells = [[(part, quarter) for quarter in quarters] for part in pairwise(ends)]
    found = course([rows("a", count), held("b", "k"), rows("c", count)], cells, rate, seconds=1e-6)
    assert dict(zip(range(count), found.ends, strict=True)) == pytest.approx(
        {0: 0, **ARRIVES[count, rate]}, abs=1e-5)
    links = moved(found, "b")
    assert len(links) == count - 1 and {*links.values()} == {4 * N * N}
    if rate is pairs:
        assert sum(one // 2 != other // 2 for one, other in links) == (count - 1) // 2


@pytest.mark.parametrize(("count", "rate", "expected"), [
    (2, all_to_all, 1 / 2), (3, all_to_all, 2 / 3), (4, all_to_all, 3 / 4), (8, all_to_all, 7 / 8),
    (2, pcie, 5), (4, pcie, 7.5), (8, pcie, 8.75)], ids=lambda x: getattr(x, "__name__", x))
def test_every_link_is_busy_where_all_hold_a_part(at_once, count, rate, expected):
    """A and B by rows: each device gets the parts of the others, first that of the next one."""
    ends = [N * i // count for i in range(count + 1)]
    found = course([rows(name, count) for name in "abc"],
                   [[(part, (0, N))] for part in pairwise(ends)], rate, seconds=1e-6)
    assert found.ends == pytest.approx([expected] * count, abs=1e-3 * expected)
    first = {}
    for action in found.actions:
        if action.piece != action.device:
            first.setdefault(action.device, action.piece)
    assert first == {device: (device + 1) % count for device in range(count)}


def test_pairs_share_slow_links(at_once):
    """Each of two pairs gets the parts of the other one once, and passes them on."""
    quarters = [*pairwise(N * i // 4 for i in range(5))]
    found = course([rows(name, 4) for name in "abc"], [[(part, (0, N))] for part in quarters], pairs)
    slow = sum(size for (one, other), size in moved(found, "b").items() if one // 2 != other // 2)
    assert slow == 4 * N * N


@pytest.mark.parametrize("seed", range(40))
def test_every_element_is_computed_once(seed, monkeypatch):
    monkeypatch.setattr(sharding, "_TILE_BYTES", 64)
    monkeypatch.setattr(sharding, "_LEAST_EXTENT", 3)
    monkeypatch.setattr(sharding, "_ROWS", 4)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    whole = Tile.whole(int(rng.choice([1, 5])), *(int(n) for n in rng.integers(1, 60, 3)))
    extents = {axis: len(part) for axis, part in whole._asdict().items()}
    arrays = []
    for name in "abc":
        axis = str(rng.choice(AXES[name][extents["batch"] == 1:]))
        n = extents[axis]
        cuts = sorted({int(cut) for cut in rng.integers(1, n + 1, rng.integers(0, 3))} - {n})
        devices = [int(device) for device in rng.choice(5, len(cuts) + 1, replace=False)]
        one = held(name, axis, cuts, devices, n, read=name == "c" and bool(rng.integers(2)))
        without = extents["batch"] == 1                 # tiles have all of K, by name or extent
        axes = tuple(extents["k"] if x == "k" and seed % 2 else x for x in one.axes[without:])
        arrays.append(replace(one, axes=axes, axis=one.axis - without))
    finer, slots = [(1, None), (2, 3), (4, 3)][seed % 3]
    found = spread(whole, Operands(*arrays), tuple(range(count)),
                   Cost(1.0, float(rng.choice([0, 1e-5]))), lambda i, j: 1e9 * (1 + (i + j) % 2),
                   finer, slots)
    times = np.zeros([*extents.values()][:3], int)
    for device, steps in found.steps.items():
        for *panels, tile in steps:
            assert tile.outputs
            times[np.ix_(*tile[:3])] += 1
            for one, panel in zip(arrays, panels, strict=True):
                covered = np.zeros(panel.shape, int)
                for piece in panel.pieces:
                    covered[piece.within] += 1
                    assert one.parts[piece.shard].device == piece.device
                    for axis, cut, within in zip(one.axes, piece.inside, piece.within, strict=True):
                        at_parts = axis == one.axes[one.axis]
                        first = one.parts[piece.shard].range.start if at_parts else 0
                        begin = 0 if isinstance(axis, int) else getattr(tile, axis).start
                        assert (first + cut.start, first + cut.stop) == (begin + within.start,
                                                                         begin + within.stop)
                assert (covered == 1).all()
                alone = len(panel.pieces) == 1 and panel.pieces[0].device == device
                assert (panel.slot is None) == alone
        for panels in [*zip(*steps, strict=True)][:3]:
            keys = {panel.key: panel.slot for panel in panels if panel.slot is not None}
            assert {*keys.values()} == {*range(min(len(keys), slots or len(keys)))}
    assert (times == 1).all()
    follow(found, arrays[2].read)


def follow(found, reads_c):
    """Do what is planned: a source has the piece, and kernels find all of theirs."""
    steps = found.steps
    memory = {}                                 # by device, array and slot: what it is for, and has
    for action in found.actions:
        step, names = steps[action.device][action.step], "abc" if reads_c else "ab"
        for name in action.name or names:
            panel = getattr(step, name)
            if panel.slot is None:
                continue
            key, pieces = memory.get((action.device, name, panel.slot), (None, set()))
            if not action.name:
                assert key == panel.key
                assert pieces == {piece.key for piece in panel.pieces}
                continue
            piece = panel.pieces[action.piece]
            memory[action.device, name, panel.slot] = panel.key, {
                piece.key, *(pieces if key == panel.key else ())}
            if action.source is not None:
                origin, other, at = action.source
                theirs = getattr(steps[origin][other], name)
                assert piece.key == theirs.pieces[at].key
                key, pieces = memory[origin, name, theirs.slot]
                assert key == theirs.key
                assert piece.key in pieces
