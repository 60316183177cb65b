"""Products in tiles: every element once, within the memory, and few bytes moved."""

from dataclasses import replace
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from cuteblas.planning import streaming
from cuteblas.planning.streaming import Extents, Tile, moved_bytes, schedule


def panel_of(operand, tile):
    """The part of an operand that a tile needs."""
    return (tile.batch, tile.m, tile.k) if operand == "a" else (tile.batch, tile.k, tile.n)


def some_products(count=150):
    random = Random(0)
    for _ in range(count):
        k, shared = random.choice((1, 64, 1000, 5000)), random.random() < 0.1
        m = random.choice((1, 100, 1000, 3000))
        yield Extents(m, m if shared else random.choice((1, 100, 777, 3000)), k,
                      random.choice((1, 1, 1, 7)),
                      *random.choice(((4, 4, 4), (8, 8, 8), (1, 1, 4), (2, 2, 2), (12, 4, 12))),
                      random.random() < 0.8, random.random() < 0.5, shared, random.random() < 0.5,
                      random.random() < 0.7, False,
                      random.choice((0.0, 1.0))), random.choice((1 << 40, 1 << 26, 1 << 24,
                                                                 1 << 22))


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    monkeypatch.setattr(streaming, "_PANEL_BYTES", 1 << 18)
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 150)
    monkeypatch.setattr(streaming, "_panels", streaming._panels.__wrapped__)


def test_every_product_of_elements_is_in_one_tile():
    tried = 0
    for x, limit in some_products():
        found = schedule(x, limit)
        if found is None:
            continue
        tried += 1
        seen = np.zeros((x.batch, -(-x.m // 50), -(-x.n // 50)), int)      # how many of the sum
        for tile in found.tiles:
            rows = [i // 50 for i in tile.m if i % 50 == 0]
            columns = [i // 50 for i in tile.n if i % 50 == 0]
            for i in tile.batch:
                seen[np.ix_([i], rows, columns)] += len(tile.k)
        assert (seen == x.k).all(), (x, limit)
    assert tried > 100


def test_parts_of_a_sum_follow_each_other():
    for x, limit in some_products():
        found = schedule(x, limit)
        tiles = [(tile.batch.start, tile.m.start, tile.n.start)
                 for tile in found.tiles] if found else []
        changes = sum(before != after for before, after in pairwise(tiles))
        assert changes == max(0, len(set(tiles)) - 1)


def test_panels_and_tiles_fit():
    """What is on the device while a tile is computed: its panels, those of the next tiles, and two
    tiles of the result."""
    for x, limit in some_products():
        found = schedule(x, limit)
        if found is None or x.shared or found.ahead == len(found.tiles):
            continue
        most = 0
        for i in range(len(found.tiles)):
            there, used = set(), 0
            for operand, tile in product("ab", found.tiles[i:i + found.ahead + 1]):
                batch, *box = panel_of(operand, tile)
                size, own = (x.a_bytes, x.a_batch) if operand == "a" else (x.b_bytes, x.b_batch)
                counts = [*map(len, box)]
                key = operand, str(batch) if own else "", str(box)
                if key not in there:
                    there.add(key)
                    used += size * counts[0] * counts[1] * (len(batch) if own else 1)
            tile = found.tiles[i]
            c = len(tile.m) * len(tile.n) * len(tile.batch) * x.c_bytes
            most = max(most, used + 2 * c)
        assert most <= limit, (x, limit, most)


def test_what_fits_moves_once():
    for x, _limit in some_products():
        found = schedule(x, 1 << 50)
        assert found.ahead == len(found.tiles)


def test_what_takes_long_to_compute_begins_early():
    """Blocks: of each quarter of A and B that arrives, all products with what is there; the first
    one needs a sixteenth."""
    x = Extents(1 << 13, 1 << 13, 1 << 13, seconds=1.0)
    tiles = schedule(x, 1 << 40).tiles
    assert len(tiles) == 16
    needed = [sum(len({str(panel_of(operand, t)) for t in tiles[:count]}) for operand in "ab")
              for count in (1, 2, 4, 6, 9, 12, 16)]
    assert needed == [2, 3, 4, 5, 6, 7, 8]
    assert len({str(t.n) for t in schedule(replace(x, seconds=0.0), 1 << 40).tiles}) == 1


@pytest.mark.parametrize("seconds", [2e-3, 5e-3, 1e-2, 1e-1])
def test_where_nothing_moves_up_each_panel_leaves_while_the_next_is_computed(seconds):
    """The total is nearly the larger of computing and leaving: 5.4 ms for C, and what panels
    cost."""
    x = Extents(8192, 8000, 8192, seconds=seconds, a_kept=True, b_kept=True)
    rows = [tile.m for tile in schedule(x, 1 << 40).tiles]
    assert sum(map(len, rows)) == x.m and all(len(part) % 128 == 0 for part in rows)
    computed = left = 0.0
    for part in rows:
        computed += seconds * len(part) / x.m
        left = max(left, computed) + 2e-11 * x.c * len(part) / x.m
    assert left < 1.25 * max(seconds, 2e-11 * x.c)
    assert (len(rows[0]) > len(rows[-1])) == (seconds > 2e-11 * x.c)


@pytest.mark.parametrize("m, n", [(4096, 1), (1, 4096), (1000, 1000), (100, 5000)])
def test_a_small_result_leaves_as_a_whole(m, n):
    x = Extents(m, n, 4096, seconds=1e-4, a_kept=True, b_kept=True)
    assert len(schedule(x, 1 << 40).tiles) == 1


def test_three_matrices_of_16_gib_in_8():
    """One operand moves once and the other a few times, or both a few times."""
    x = Extents(1 << 16, 1 << 16, 1 << 16)
    found = schedule(x, 8 << 30)
    assert moved_bytes(x, found.tiles) <= 6 * (16 << 30)


def test_a_long_sum_is_divided():
    x = Extents(64, 64, 10_000_000)
    found = schedule(x, 1 << 30)
    assert all(tile[1:3] == (range(64), range(64))
               for tile in found.tiles) and len(found.tiles) > 1
    assert moved_bytes(x, found.tiles) == x.a + x.b
    assert schedule(Extents(64, 64, 10_000_000, may_divide_k=False), 1 << 30) is None


def test_parts():
    rows = [tile.m for tile in Tile.whole(1, 7, 1, 1).parts("m", 3)]
    assert rows == [range(3), range(3, 6), range(6, 7)]
