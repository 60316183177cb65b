"""Pieces, panels and order of host arrays that move through a GPU (by ``runtime/ring.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, pairwise, permutations, product
from math import ceil, inf
from typing import NamedTuple

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

Box = tuple[int | slice, ...]


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
    for i, outer in enumerate(product(*map(range, shape[:axis - 1]))):
        for j in range(0, extent, step):
            yield (*outer, slice(j, j + step)), (i * extent + j) * inner


# -- products --------------------------------------------------------------------------------------
class Tile(NamedTuple):
    """Ranges of the outermost batch axis, rows, columns and the sum of a product."""

    batch: range
    m: range
    n: range
    k: range

    @classmethod
    def whole(cls, batch: int, m: int, n: int, k: int) -> Tile:
        """All of a product of these extents."""
        return cls(range(batch), range(m), range(n), range(k))

    @property
    def inputs(self) -> int:
        """Elements of A and of B."""
        return len(self.batch) * (len(self.m) + len(self.n)) * len(self.k)

    @property
    def outputs(self) -> int:
        """Elements of C."""
        return len(self.batch) * len(self.m) * len(self.n)

    def between(self, axis: str, ends: Sequence[int]) -> list[Tile]:
        """Parts along an axis, each from the end of the one before; they may be empty."""
        whole: range = getattr(self, axis)
        return [self._replace(**{axis: whole[i:j]}) for i, j in pairwise((0, *ends))]

    def parts(self, axis: str, step: int) -> list[Tile]:
        """Parts of one length along an axis; the last may be shorter."""
        whole: range = getattr(self, axis)
        return [self._replace(**{axis: whole[i:i + step]}) for i in range(0, len(whole), step)]


def back_and_forth(strips: Sequence[Sequence[Tile]]) -> list[Tile]:
    """Tiles of strips, every other one reversed, so that what meets there is used again."""
    return [tile for i, strip in enumerate(strips) for tile in strip[::-1 if i % 2 else 1]]


@dataclass(frozen=True)
class Extents:
    """A product C = A B of host arrays, as far as it decides how it moves."""
    # ``batch`` is the outermost batch axis; ``*_batch``: an operand has its own elements for each
    # of its indices. ``*_bytes`` are those of an element, of all inner batch axes together. A and B
    # that are ``shared`` move once. ``by_rows``: rows of C lie together on the host. Panels have
    # multiples of ``grain``: of a kernel's tile, unless one row is much by itself (``any_length``).
    # Operands that are ``*_kept`` are on the device.

    m: int
    n: int
    k: int
    batch: int = 1
    a_bytes: int = 4
    b_bytes: int = 4
    c_bytes: int = 4
    a_batch: bool = True
    b_batch: bool = True
    shared: bool = False
    by_rows: bool = True
    may_divide_k: bool = True
    any_length: bool = False
    seconds: float = 0.0
    a_kept: bool = False
    b_kept: bool = False

    @property
    def whole(self) -> Tile:
        """All of it."""
        return Tile.whole(self.batch, self.m, self.n, self.k)

    @property
    def grain(self) -> int:
        return 1 if self.any_length else _ROWS

    @property
    def a(self) -> int:
        batch = self.batch if self.a_batch else 1
        return 0 if self.a_kept else self.m * self.k * self.a_bytes * batch

    @property
    def b(self) -> int:
        batch = self.batch if self.b_batch else 1
        return 0 if self.shared or self.b_kept else self.n * self.k * self.b_bytes * batch

    @property
    def c(self) -> int:
        return self.m * self.n * self.c_bytes * self.batch


@dataclass(frozen=True)
class Schedule:
    """The tiles of a product; panels move some tiles ``ahead``, and stay until their last tile or
    until given up. Parts of one sum follow each other; ``together``: A and B move as a whole."""

    tiles: tuple[Tile, ...]
    ahead: int
    together: bool = False


def schedule(x: Extents, limit: int) -> Schedule | None:
    """The tiles that move the fewest bytes within a limit of device memory, or ``None``."""
    # What fits is divided into panels of rows, columns or the batch, so that results come back
    # while operands arrive, with the other operand there from the beginning.
    if 2 * (x.a + x.b) + x.c <= limit:                  # some kernels want copies of their operands
        tiles = _panels(x)
        return Schedule(tiles, len(tiles), x.shared)
    if x.shared:
        return schedule(replace(x, shared=False), limit)
    if x.batch > 1:
        one = (2 * (x.a // (x.batch if x.a_batch else 1) + x.b // (x.batch if x.b_batch else 1))
               + x.c // x.batch)
        if most := int(limit // (3 * one)):
            return Schedule(tuple(x.whole.parts("batch", most)), 1)
        each = schedule(replace(x, batch=1), limit)
        return each and Schedule(tuple(tile._replace(batch=part.batch)
                                       for part in x.whole.parts("batch", 1)
                                       for tile in each.tiles), min(each.ahead, 1))
    if not x.b_bytes:
        return _rows_pass(x, limit)
    possible = *_one_stays(x, limit), *_sums_stay(x, limit)
    return Schedule(tuple(min(possible, key=partial(moved_bytes, x))), 1) if possible else None


def _step(x: Extents, extent: int, count: float) -> int:
    """The length of so many parts: a multiple of what kernels like, if it is not short."""
    step = max(1, ceil(extent / max(count, 1)))
    return min(extent, -(-step // x.grain) * x.grain) if step >= x.grain // 2 else step


@lru_cache(maxsize=1024)
def _panels(x: Extents) -> tuple[Tile, ...]:
    """The panels of a product that fits, of operands that move unless C is much smaller."""
    if x.a_kept and x.b_kept and x.batch == 1 and x.seconds:
        return _graded(x)
    if (x.a_kept or x.b_kept) and x.c > _SMALL * max(x.m * x.a_bytes, x.n * x.b_bytes) * x.k:
        return _panels(replace(x, a_kept=False, b_kept=False))
    if x.batch > 1 and (x.a_batch or x.b_batch):
        moved = x.c + (x.a if x.a_batch else 0) + (x.b if x.b_batch else 0)
        count = min(_MOST_PANELS, max(1, moved // _PANEL_BYTES))
        return tuple(x.whole.parts("batch", max(1, ceil(x.batch / count))))
    if x.a and x.b and min(x.m, x.n) >= _BLOCKS * _BLOCK_ROWS and x.seconds > _LONG * (x.a + x.b):
        return _blocks(x)
    if min(x.m, x.n) < 2 * x.grain or (not x.a_kept and not x.b_kept and not x.shared
                                       and max(x.a, x.b) >= 2 * min(x.a, x.b)):
        # the smaller operand stays: all of it comes first
        by_rows = x.m * x.a_bytes >= x.n * x.b_bytes
    else:
        by_rows = x.by_rows if x.a_kept == x.b_kept else x.b_kept
    return panels_along(x, by_rows, (x.a if by_rows else x.b) + x.c)


def panels_along(x: Extents, by_rows: bool, moved: int) -> tuple[Tile, ...]:
    """Panels of rows, or of columns, of a product of which so many bytes move."""
    axis, extent = ("m", x.m) if by_rows else ("n", x.n)
    count = min(_MOST_PANELS, max(1, moved // _PANEL_BYTES), max(1, extent // x.grain))
    return tuple(x.whole.parts(axis, _step(x, extent, count)))


def _graded(x: Extents) -> tuple[Tile, ...]:
    """Panels of C where nothing moves up: each leaves while the next one is computed."""
    # A panel takes as long to compute as the one before takes to leave: the first is the shortest
    # where leaving takes longer, the last where computing does.
    extent, other = (x.m, x.n * x.b_bytes) if x.by_rows else (x.n, x.m * x.a_bytes)
    leaving, again = x.c * _LEAVES, max(_LAUNCHED, other * x.k * _AGAIN)
    best, found = inf, [extent]
    for count in range(1, 1 + min(_MOST_PANELS, max(1, extent // x.grain))):
        shares = [(leaving / x.seconds) ** i for i in range(count)]
        *before, whole = accumulate(shares)
        ends = [*(round(extent * end / whole / x.grain) * x.grain for end in before), extent]
        computed = left = 0.0
        for start, end in pairwise((0, *ends)):
            computed += again + x.seconds * (end - start) / extent
            left = max(left, computed) + leaving * (end - start) / extent
        if left < best and all(start < end for start, end in pairwise((0, *ends))):
            best, found = left, ends
    return tuple(x.whole.between("m" if x.by_rows else "n", found))


def _blocks(x: Extents) -> tuple[Tile, ...]:
    """Blocks of C as what they need arrives, rows of A and columns of B in turns."""
    # With panels of rows alone, nothing is computed before all of B is there.
    tiles = {(i, j): tile for i, rows in enumerate(x.whole.parts("m", _step(x, x.m, _BLOCKS)))
             for j, tile in enumerate(rows.parts("n", _step(x, x.n, _BLOCKS)))}
    return tuple(tiles[at] for at in sorted(tiles, key=lambda at: (max(at), at[1], at[0])))


def _rows_pass(x: Extents, limit: int) -> Schedule | None:
    """Rows of A become rows of C: three panels of both are on their way at once."""
    most = int(limit * _SHARE / (3 * (x.a_bytes + x.c_bytes)))
    return Schedule(tuple(x.whole.parts("m", _step(x, x.m, ceil(x.m / most)))), 1) if most else None


def _one_stays(x: Extents, limit: int) -> Iterator[list[Tile]]:
    """A panel of one operand stays while the other passes, there and back."""
    # So the end of a pass is used by the next one. Two panels stay: the next is on its way.
    room, sides = int(limit * _SHARE), (("m", x.m, x.a_bytes), ("n", x.n, x.b_bytes))
    for (stay, extent, stays_bytes), (passing, other, passes_bytes) in permutations(sides):
        most = int(room / 12 / (x.k * passes_bytes))
        passes = min(other, max(x.grain, most // x.grain * x.grain))
        left = room - 3 * passes * x.k * passes_bytes
        stays = int(left / (2 * x.k * stays_bytes + 3 * passes * x.c_bytes))
        stays = min(extent, stays // x.grain * x.grain if stays >= x.grain else stays)
        if stays < 1:
            continue
        if stays < extent:
            count = ceil(extent / stays)
            stays = _step(x, extent, count) if stays >= x.grain else ceil(extent / count)
        yield back_and_forth([part.parts(passing, passes) for part in x.whole.parts(stay, stays)])


def _sums_stay(x: Extents, limit: int) -> Iterator[list[Tile]]:
    """A tile of C stays while its sum is made of parts."""
    if not x.may_divide_k:
        return
    room = int(limit * _SHARE)
    item = max(x.c_bytes, 4)
    side = int((0.8 * room / (2 * item)) ** 0.5) // _ROWS * _ROWS or _ROWS
    mt, nt = (_step(x, extent, ceil(extent / min(extent, side))) for extent in (x.m, x.n))
    kt = int((room - 2 * mt * nt * item) / (3 * (mt * x.a_bytes + nt * x.b_bytes)))
    if kt < 1:
        return
    kt = _step(x, x.k, ceil(x.k / kt)) if kt < x.k else x.k
    of_c = back_and_forth([rows.parts("n", nt) for rows in x.whole.parts("m", mt)])
    yield [part for tile in of_c for part in tile.parts("k", kt)]


def moved_bytes(x: Extents, tiles: Sequence[Tile]) -> int:
    """The bytes of A and B, if a panel is given up as soon as the next tile does not need it."""
    total = 0
    for axis, item in (("m", x.a_bytes), ("n", x.b_bytes)):
        before = None
        for tile in tiles:
            panel = getattr(tile, axis), tile.k
            total += (panel != before) * len(panel[0]) * len(panel[1]) * item
            before = panel
    return total
