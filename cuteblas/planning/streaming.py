"""The pieces, panels and order in which host arrays move through a GPU (by
``runtime/ring.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import ceil, inf, prod
from typing import NamedTuple

__all__ = ["Box", "Extents", "Schedule", "Tile", "boxes", "panel_of", "parts", "passing",
           "schedule"]

Box = tuple[int | slice, ...]
"""The indices of a part of an array."""


def boxes(shape: tuple[int, ...], itemsize: int, most: int) -> Iterator[tuple[Box, int]]:
    """The parts in which an array is moved, as large as may be, and the bytes before each: gapless
    in a C-order copy."""
    # ``[*boxes((2, 3), 4, 8)]`` has (0, 0:2) at 0, (0, 2:4) at 8, (1, 0:2) at 12, (1, 2:4) at 20.
    axis, inner = len(shape), itemsize
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield (), 0
        return
    extent, step = shape[axis - 1], max(1, most // inner)
    for i in range(prod(shape[:axis - 1])):
        outer: list[int] = []
        rest = i
        for n in reversed(shape[:axis - 1]):
            rest, index = divmod(rest, n)
            outer.insert(0, index)
        for j in range(0, extent, step):
            yield (*outer, slice(j, j + step)), (i * extent + j) * inner


# -- products --------------------------------------------------------------------------------------
class Tile(NamedTuple):
    """Ranges of the outermost batch axis, rows, columns and the sum."""

    batch: slice
    m: slice
    n: slice
    k: slice


@dataclass(frozen=True)
class Extents:
    """A product C = A B of host arrays, as far as it decides how it moves."""
    # ``batch`` is the outermost batch axis, ``others`` the products for each of its indices;
    # ``*_batch``: an operand has its own elements for each. A and B that are ``shared`` move once.
    # ``by_rows``: rows of C lie together on the host. Panels have multiples of ``grain`` (0: by
    # what products like). Operands that are ``*_kept`` are on the device.

    m: int
    n: int
    k: int
    batch: int = 1
    others: int = 1
    a_bytes: int = 4
    b_bytes: int = 4
    c_bytes: int = 4
    a_batch: bool = True
    b_batch: bool = True
    shared: bool = False
    by_rows: bool = True
    may_divide_k: bool = True
    grain: int = 0
    seconds: float = 0.0
    a_kept: bool = False
    b_kept: bool = False

    @property
    def a(self) -> int:
        """The bytes of A that move."""
        return 0 if self.a_kept else self.m * self.k * self.a_bytes * self.others * (self.batch if self.a_batch else 1)

    @property
    def b(self) -> int:
        """The bytes of B that move."""
        batch = self.batch if self.b_batch else 1
        return 0 if self.shared or self.b_kept else self.n * self.k * self.b_bytes * self.others * batch

    @property
    def c(self) -> int:
        return self.m * self.n * self.c_bytes * self.others * self.batch


@dataclass(frozen=True)
class Schedule:
    """The tiles of a product; panels move some tiles ``ahead``, and stay until their last tile or
    until given up. Parts of one sum follow each other; ``together``: A and B move as a whole."""

    tiles: tuple[Tile, ...]
    ahead: int
    device_bytes: int
    up: int
    down: int
    together: bool = False


# at least, unless there is less: shorter ones keep kernels and threads waiting
_PANEL_BYTES = 32 << 20
_MOST_PANELS = 8
_BLOCKS, _BLOCK_ROWS = 4, 2048  # of rows and of columns, where computing takes long; and rows of
                                # each at least
_SMALL = 1 / 16                 # of an operand: a result that is not worth tiles of its own
_LONG = 1.3e-11                 # seconds for each byte of A and B: more than half of what it takes
                                # to move
_ROWS = 128                     # of which panels have a multiple: a tile of most kernels
_SHARE = 0.7                    # of the memory, for panels and tiles: kernels want a workspace
_LEAVES, _AGAIN = 2e-11, 7e-13  # seconds for a byte of C, and of an operand that each tile reads
_LAUNCHED = 1e-4                # seconds of the host for a tile


def schedule(x: Extents, limit: int) -> Schedule | None:
    """The tiles that move the fewest bytes within a limit of device memory; ``None`` if none
    do."""
    # What fits is divided into panels of rows, columns or the batch, so that results come back
    # while operands arrive, with the other operand there from the beginning.
    if 2 * (x.a + x.b) + x.c <= limit:                  # some kernels want copies of their operands
        tiles = _panels(x, _PANEL_BYTES)
        return Schedule(tiles, len(tiles), x.a + x.b + x.c, x.a + x.b, x.c, x.shared)
    if x.shared:
        return schedule(replace(x, shared=False), limit)
    if x.batch > 1:
        one = (2 * (x.a // (x.batch if x.a_batch else 1) + x.b // (x.batch if x.b_batch else 1))
               + x.c // x.batch)
        most = int(limit // (3 * one))
        if most:
            tiles = tuple(Tile(part, _ALL, _ALL, _ALL) for part in parts(x.batch, most))
            return Schedule(tiles, 1, 3 * most * one, x.a + x.b, x.c)
        each = schedule(replace(x, batch=1), limit)
        return each and replace(each, tiles=tuple(tile._replace(batch=part)
                                                  for part in parts(x.batch, 1)
                                                  for tile in each.tiles), ahead=min(each.ahead, 1),
                                up=x.batch * each.up, down=x.c)
    if x.others > 1:
        return None
    if not x.b_bytes:
        return _rows_pass(x, limit)
    return min((found for found in (_one_stays(x, limit), _sums_stay(x, limit))
                if found is not None), key=lambda found: found.up, default=None)


_ALL = slice(None)


def _across(cuts: Iterable[slice], by_rows: bool) -> tuple[Tile, ...]:
    return tuple(Tile(_ALL, cut, _ALL, _ALL) if by_rows else Tile(_ALL, _ALL, cut, _ALL)
                 for cut in cuts)


def parts(extent: int, step: int) -> list[slice]:
    """An extent in parts of one length; the last may be shorter."""
    return [slice(i, min(i + step, extent)) for i in range(0, extent, step)]


def _step(x: Extents, extent: int, count: float) -> int:
    """The length of so many parts: a multiple of what kernels like, if it is not short."""
    step, grain = max(1, ceil(extent / max(count, 1))), _grain(x)
    return min(extent, -(-step // grain) * grain) if step >= grain // 2 else step


def _grain(x: Extents) -> int:
    return x.grain or _ROWS


@lru_cache(maxsize=1024)
def _panels(x: Extents, least: int) -> tuple[Tile, ...]:
    """The panels of a product that fits, of operands that move, unless the result is much
    smaller."""
    if x.a_kept and x.b_kept and x.batch == x.others == 1 and x.seconds:
        return _graded(x)
    if (x.a_kept or x.b_kept) and x.c > _SMALL * max(x.m * x.a_bytes, x.n * x.b_bytes) * x.k:
        return _panels(replace(x, a_kept=False, b_kept=False), least)
    if x.batch > 1 and (x.a_batch or x.b_batch):
        moved = x.c + (x.a if x.a_batch else 0) + (x.b if x.b_batch else 0)
        count = min(_MOST_PANELS, max(1, moved // least))
        return tuple(Tile(part, _ALL, _ALL, _ALL)
                     for part in parts(x.batch, max(1, ceil(x.batch / count))))
    if x.a and x.b and min(x.m, x.n) >= _BLOCKS * _BLOCK_ROWS and x.seconds > _LONG * (x.a + x.b):
        return _blocks(x)
    grain = _grain(x)
    if min(x.m, x.n) < 2 * grain or (not x.a_kept and not x.b_kept and not x.shared
                                     and max(x.a, x.b) >= 2 * min(x.a, x.b)):
        # the smaller operand stays: all of it comes first
        by_rows = x.m * x.a_bytes >= x.n * x.b_bytes
    else:
        by_rows = x.by_rows if x.a_kept == x.b_kept else x.b_kept
    extent, moved = (x.m, x.a) if by_rows else (x.n, x.b)
    count = min(_MOST_PANELS, max(1, (moved + x.c) // least), max(1, extent // grain))
    step = _step(x, extent, count)
    return _across(parts(extent, step), by_rows)


def passing(shape: tuple[int, ...], moved: int, by_columns: bool) -> tuple[Tile, ...]:
    """The tiles of C where panels of one operand pass, as many on every device."""
    extent = shape[-1] if by_columns else shape[-2]
    step = ceil(extent / min(_MOST_PANELS, max(1, moved // _PANEL_BYTES), max(1, extent // _ROWS)))
    step = -(-step // _ROWS) * _ROWS if step >= _ROWS else step
    return _across(parts(extent, step), not by_columns)


def _graded(x: Extents) -> tuple[Tile, ...]:
    """Panels of C where nothing moves up: each leaves while the next one is computed."""
    # A panel takes as long to compute as the one before takes to leave: the first is the shortest
    # where leaving takes longer, the last where computing does.
    extent, other = (x.m, x.n * x.b_bytes) if x.by_rows else (x.n, x.m * x.a_bytes)
    leaving, again, grain = x.c * _LEAVES, max(_LAUNCHED, other * x.k * _AGAIN), _grain(x)
    best, found = inf, [_ALL]
    for count in range(1, 1 + min(_MOST_PANELS, max(1, extent // grain))):
        shares = [(leaving / x.seconds) ** i for i in range(count)]
        ends = [extent * sum(shares[:i + 1]) / sum(shares) for i in range(count)]
        ends = [0, *(round(end / grain) * grain for end in ends[:-1]), extent]
        computed = left = 0.0
        for start, end in pairwise(ends):
            computed += again + x.seconds * (end - start) / extent
            left = max(left, computed) + leaving * (end - start) / extent
        if left < best and all(start < end for start, end in pairwise(ends)):
            best, found = left, [slice(*ends) for ends in pairwise(ends)]
    return _across(found, x.by_rows)


def _blocks(x: Extents) -> tuple[Tile, ...]:
    """Blocks of C as what they need arrives, rows of A and columns of B in turns."""
    # With panels of rows alone, nothing is computed before all of B is there.
    rows, columns = (parts(extent, _step(x, extent, _BLOCKS)) for extent in (x.m, x.n))
    order = sorted(((i, j) for i in range(len(rows)) for j in range(len(columns))),
                   key=lambda at: (max(at), at[1], at[0]))
    return tuple(Tile(_ALL, rows[i], columns[j], _ALL) for i, j in order)


def _rows_pass(x: Extents, limit: int) -> Schedule | None:
    """Rows of A become rows of C: three panels of both are on their way at once."""
    most = int(limit * _SHARE / (3 * (x.a_bytes + x.c_bytes)))
    if not most:
        return None
    tiles = _across(parts(x.m, _step(x, x.m, ceil(x.m / most))), True)
    return Schedule(tiles, 1, 3 * most * (x.a_bytes + x.c_bytes), x.a, x.c)


def _one_stays(x: Extents, limit: int) -> Schedule | None:
    """A panel of one operand stays while the other passes, there and back."""
    # So the end of a pass is used by the next one. Two panels stay: the next is on its way.
    found = []
    grain = _grain(x)
    for rows_stay in (True, False):
        (stay, stays_bytes), (passing, passes_bytes) = \
            ((x.m, x.a_bytes), (x.n, x.b_bytes))[::1 if rows_stay else -1]
        room = int(limit * _SHARE)
        passes = min(passing, max(grain, int(room / 12 / (x.k * passes_bytes)) // grain * grain))
        left = room - 3 * passes * x.k * passes_bytes
        stays = int(left / (2 * x.k * stays_bytes + 3 * passes * x.c_bytes))
        stays = min(stay, stays // grain * grain if stays >= grain else stays)
        if stays < 1:
            continue
        if stays < stay:
            count = ceil(stay / stays)
            stays = _step(x, stay, count) if stays >= grain else ceil(stay / count)
        tiles = []
        for i, outer in enumerate(parts(stay, stays)):
            inner = parts(passing, passes)
            for part in inner if i % 2 == 0 else reversed(inner):
                tiles.append(Tile(_ALL, outer, part, _ALL) if rows_stay
                             else Tile(_ALL, part, outer, _ALL))
        used = (2 * stays * stays_bytes + 3 * passes
                * passes_bytes) * x.k + 3 * stays * passes * x.c_bytes
        found.append(_counted(x, tiles, 1, used))
    return min(found, key=lambda each: each.up, default=None)


def _sums_stay(x: Extents, limit: int) -> Schedule | None:
    """A tile of C stays while its sum is made of parts."""
    if not x.may_divide_k:
        return None
    room = int(limit * _SHARE)
    item = max(x.c_bytes, 4)
    side = int((0.8 * room / (2 * item)) ** 0.5) // _ROWS * _ROWS or _ROWS
    mt, nt = (_step(x, extent, ceil(extent / min(extent, side))) for extent in (x.m, x.n))
    sums, panels = 2 * mt * nt * item, 3 * (mt * x.a_bytes + nt * x.b_bytes)
    kt = int((room - sums) / panels)
    if kt < 1:
        return None
    kt = _step(x, x.k, ceil(x.k / min(x.k, kt))) if kt < x.k else x.k
    tiles = []
    for i, rows in enumerate(parts(x.m, mt)):
        across = parts(x.n, nt)
        for columns in across if i % 2 == 0 else reversed(across):
            tiles += [Tile(_ALL, rows, columns, part) for part in parts(x.k, kt)]
    return _counted(x, tiles, 1, kt * panels + sums)


def _counted(x: Extents, tiles: Sequence[Tile], ahead: int, used: int) -> Schedule:
    """The schedule and its bytes, if panels are given up as soon as the tiles ahead allow."""
    up = 0
    for operand, item in (("a", x.a_bytes), ("b", x.b_bytes)):
        keys = [panel_of(operand, tile) for tile in tiles]
        for i, (tile, key) in enumerate(zip(tiles, keys, strict=True)):
            if key not in keys[max(0, i - 1):i]:
                across, extent = (tile.m, x.m) if operand == "a" else (tile.n, x.n)
                up += _length(across, extent) * _length(tile.k, x.k) * item
    return Schedule(tuple(tiles), ahead, used, up, x.c)


def panel_of(operand: str, tile: Tile) -> tuple[slice, ...]:
    return (tile.batch, tile.m, tile.k) if operand == "a" else (tile.batch, tile.k, tile.n)


def _length(part: slice, extent: int) -> int:
    return len(range(*part.indices(extent)))
