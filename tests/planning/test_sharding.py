"""Which part of C each device computes, in which tiles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cuteblas.planning import sharding
from cuteblas.planning.sharding import AXES, Cost, Extents, Held, Operands, Part, spread

N = 16384
COST = Cost(34e-3, 0.8e-3 / N**2)


def held(name, axis, cuts=(), devices=(0, 1, 2), n=N, read=False):
    ends = [0, *cuts, n]
    parts = tuple(Part(device, *part) for device, part in zip(devices, pairwise(ends),
                                                              strict=False))
    return Held(AXES[name], axis, parts, 4 * n * n, read)


def divided(a, b, c, cost=COST, devices=(0, 1), rate=390e9):
    return spread(Extents(1, N, N, N), Operands(a, b, c), devices, cost, lambda i, j: rate)


def ranges(tile):
    return [cut.indices(N)[:2] for cut in (tile.m, tile.n)]


def test_a_part_costs_what_is_made_for_it():
    extents, cost = Extents(1, 8, 6, 10), Cost(5.0, 0.01)
    assert cost.of(extents, 1, 8, 6) == pytest.approx(5.0)
    assert 2 * cost.of(extents, 1, 8, 3) - 5.0 == pytest.approx(0.01 * 80)         # A is read twice
    assert 2 * cost.of(extents, 1, 4, 6) - 5.0 == pytest.approx(0.01 * 60)
    assert Cost(5.0).of(extents, 1, 4, 3) == pytest.approx(1.25)


def test_a_device_begins_with_what_it_has():
    """A by rows and B by columns: nobody waits for the first tile, and C does not move."""
    found = divided(held("a", "m", [N // 2]), held("b", "n", [N // 2]), held("c", "m", [N // 2]))
    halves = [(0, N // 2), (N // 2, N)]
    assert [[ranges(tile) for tile in share.tiles]
            for share in found.shares] == [[[halves[0], halves[0]], [halves[0], halves[1]]],
                                           [[halves[1], halves[1]], [halves[1], halves[0]]]]
    assert [(share.up, share.down) for share in found.shares] == [(2 * N * N, 0)] * 2
    assert all(step.b.slot is None for share in found.shares for step in share.steps[:1])


def test_no_part_is_empty():
    assert [*sharding._grids(Extents(1, 2, 9, 5), 3)] == [{"m": 1, "n": 3}]
    assert [*sharding._grids(Extents(1, 9, 2, 5), 3)] == [{"m": 3, "n": 1}]
    assert [*sharding._grids(Extents(3, 1, 1, 5), 3)] == [{"batch": 3}]


def test_tiles_are_few_where_operands_are_made_ready_for_each():
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    cheap, dear = (divided(*whole, cost=Cost(34e-3, prepare / N**2)) for prepare in (0.0, 4e-3))
    assert len(dear.shares[1].tiles) < len(cheap.shares[1].tiles)
    assert len(cheap.shares[0].tiles) == 1


@pytest.mark.parametrize("prepare", [0.0, 1e-3, 3e-3])
def test_devices_end_at_the_same_time(prepare):
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    cost = Cost(34e-3, prepare / N**2)
    found = divided(*whole, cost=cost)
    product = sharding._Product(Extents(1, N, N, N), Operands(*whole), (0, 1), cost,
                                lambda i, j: 390e9)
    times = [product.run(share.device, share.tiles)[0] for share in found.shares]
    assert max(times) < 1.03 * min(times)
    assert found.seconds == pytest.approx(max(times) + sharding._CALL)


def test_a_share_by_hand():
    """B comes in two parts, of which the second one is computed while the first result leaves."""
    whole = [held(name, axis) for name, axis in (("a", "m"), ("b", "k"), ("c", "m"))]
    product = sharding._Product(Extents(1, N, N, N), Operands(*whole), (0, 1), Cost(1.0),
                                lambda i, j: float(N * N))
    tiles = [sharding.Tile(slice(None), slice(0, N // 2), part, slice(None))
             for part in (slice(0, N // 4), slice(N // 4, N))]
    # seconds: A's half and a quarter of B 2 + 1, the rest of B 3; an eighth of C, then three of
    # them, which leave in 0.5 and 1.5
    first, second = 1 / 8 + sharding._LAUNCHES, 3 / 8 + sharding._LAUNCHES
    seconds, up, down = product.run(1, tiles)
    assert seconds == pytest.approx(max(3 + first, 6) + second + 1.5)
    assert (up, down) == (6 * N * N, 2 * N * N)
    assert product.run(0, tiles)[0] == pytest.approx(first + second)


def test_a_tile_waits_for_the_last_of_its_operands():
    """A's half comes in 2 seconds, B is there, and the half of C leaves in 2 more."""
    a, b, c = held("a", "m"), held("b", "k", devices=(1,)), held("c", "m")
    product = sharding._Product(Extents(1, N, N, N), Operands(a, b, c), (0, 1), Cost(1.0),
                                lambda i, j: float(N * N))
    half = sharding.Tile(slice(None), slice(0, N // 2), slice(None), slice(None))
    seconds, up, down = product.run(1, [half])
    assert seconds == pytest.approx(2 + 1 / 2 + sharding._LAUNCHES + 2)
    assert (up, down) == (2 * N * N, 2 * N * N)


@pytest.mark.parametrize("seed", range(40))
def test_every_element_is_computed_once(seed, monkeypatch):
    monkeypatch.setattr(sharding, "_TILE_BYTES", 64)
    monkeypatch.setattr(sharding, "_LEAST_EXTENT", 3)
    monkeypatch.setattr(sharding, "_ROWS", 4)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    extents = Extents(int(rng.choice([1, 5])), *(int(n) for n in rng.integers(1, 60, 3)))
    arrays = []
    for name in "abc":
        axis = str(rng.choice(AXES[name][extents.batch == 1:]))
        n = extents.of(axis)
        cuts = sorted({int(cut) for cut in rng.integers(1, n + 1, rng.integers(0, 3))} - {n})
        devices = [int(device) for device in rng.choice(5, len(cuts) + 1, replace=False)]
        one = held(name, axis, cuts, devices, n, read=name == "c" and bool(rng.integers(2)))
        arrays.append(Held(one.axes[extents.batch == 1:], axis, one.parts,
                           int(4 * np.prod([extents.of(x) for x in AXES[name]])), one.read))
    slots = [None, 1, 3][seed % 3]
    found = spread(extents, Operands(*arrays), tuple(range(count)),
                   Cost(1.0, float(rng.choice([0, 1e-5]))), lambda i, j: 1e9,
                   int(rng.choice([1, 2, 4])), slots)
    times = np.zeros(extents[:3], int)
    for share in found.shares:
        for tile, step in zip(share.tiles, share.steps, strict=True):
            assert times[tile.batch, tile.m, tile.n].size
            times[tile.batch, tile.m, tile.n] += 1
            for one, panel in zip(arrays, step, strict=True):
                covered = np.zeros(panel.shape, int)
                for piece in panel.pieces:
                    covered[piece.within] += 1
                    assert one.parts[piece.shard].device == piece.device
                    for axis, cut, within in zip(one.axes, piece.inside, piece.within, strict=True):
                        first = one.parts[piece.shard].start if axis == one.axis else 0
                        begin, _end = extents.bounds(tile, axis)
                        assert (first + cut.start, first + cut.stop) == (begin + within.start,
                                                                         begin + within.stop)
                assert (covered == 1).all()
                alone = len(panel.pieces) == 1 and panel.pieces[0].device == share.device
                assert (panel.slot is None) == alone
        for panels in zip(*share.steps, strict=True):
            keys = {panel.key: panel.slot for panel in panels if panel.slot is not None}
            assert {*keys.values()} == {*range(min(len(keys), slots or len(keys)))}
    assert (times == 1).all()
