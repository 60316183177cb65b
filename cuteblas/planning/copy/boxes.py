"""The boxes that a copy is divided into, ranked by counted cost.

Candidates have runs of so many bytes in source and target. A cost has the sectors that a box
touches, its threads' instructions, and the part of its latency that other boxes do not hide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd, inf, prod

from ...kernels.copy.rearrange import BoxSide, RearrangeConfig
from ..operands import divisors
from ..problem import DeviceInfo, Ints, Pair
from .work import Copy, CopyKernel, resident_blocks

_MOST_BOXES, _MOST_BLOCKS = 5, 2**31 - 1             # that are considered, and blocks of a grid
_RUN_BYTES = 32, 64, 128, 256, 512, 1024             # bytes of runs that candidates have on a side
_BOX_BYTES = 4096, 8192, 16384                     # up to which boxes grow, once they have these
_MOST_BYTES = _BOX_BYTES[-1]                       # of a box
_ONE_RUN = 38000                    # bytes of one that is one run of the source, from rows of
_BANK_GROUP = 16                    # bytes on, of which they are no multiples
_MOST_SHARED = 49152                                 # bytes that it may take in shared memory
_SECTOR, _WARP, _BANKS, _WORD = 32, 32, 32, 4
_THREADS, _MANY = (256, 512), 32  # of a block, and of one whose threads would move more words than
                                  # so many
_GRAIN_FROM = 64                  # bytes of runs that begin anywhere, from which threads begin
                                  # where sectors do
_COVERING_FROM = 32               # and from which elements that are smaller than a word are written
                                  # by words
_SCATTERED = 2.0                  # accesses for which one of an element counts that has a place of
                                  # its own

_ISSUED = 80.0                       # instructions of a multiprocessor in a clock, of 128 at best
# Rough figures of an H200: clocks of a box from its first read to its last write, and for each word
# of a thread; instructions for a word, and for each element of it if it has several; parts of a
# sector that count as more traffic, in the source (others read the rest soon) and in the target;
# bytes that a run costs besides its own; the part of the smaller of two times, of memory and of
# multiprocessors, that the larger does not hide.
_LATENCY, _WORD_CLOCKS, _FOR_WORD, _FOR_ELEMENT = 2600.0, 37.0, 20.0, 2.0
# Where elements are smaller than words instructions decide, and are counted closer: of a thread for
# a box, and for each mode that boxes are counted along; for a word; for a run that begins anywhere
# and is written by words, and for each of these words.
_FOR_BOX, _FOR_MODE, _FOR_SMALL_WORD, _FOR_RUN, _FOR_COVERED = 60.0, 25.0, 8.0, 20.0, 8.0
_ROW_WORDS = 1.0                                 # words that cost as much as where a row of them is
_PART_READ, _PART_WRITTEN, _RUN, _BOTH = 0.4, 1.0, 6.0, 0.1


def boxes_of(copy: Copy) -> list[CopyKernel]:
    """The kernels of the boxes of the least cost, cheapest first."""
    ranked = sorted(sorted(_candidates(copy)), key=lambda each: _seconds(copy, each, copy.device))
    kernels = (_kernel(copy, extents) for extents in ranked[:_MOST_BOXES])
    return [kernel for kernel in kernels if kernel.blocks <= _MOST_BLOCKS]


def _kernel(copy: Copy, extents: Ints) -> CopyKernel:
    modes, item = copy.modes, copy.item
    spanned = tuple(q for q, n in enumerate(extents) if n > 1) or (0,)
    box = tuple(extents[q] for q in spanned)
    raster = _raster(copy, extents)
    batch = tuple(q for q in raster if q not in spanned)
    sides: list[BoxSide] = []
    # the source of boxes that are one run in it or in the target is read by covering words, too
    piece = any(len(copy.run(side, extents)) == len(spanned) for side in (0, 1))
    for side, order in enumerate(copy.orders):
        inside = [q for q in order if q in spanned]
        run = copy.run(side, extents)
        begins = copy.begins(side, extents, run)
        length, before = prod(extents[q] for q in run), prod(extents[q] for q in run[:-1])
        whole = gcd(length, *(modes[q].extent * before for q in run[-1:]))
        most = max(1, _WORD // item)         # elements are gathered one by one: wider gains nothing
        word = gcd(most, begins // item, whole)
        covering = word < most and length * item >= _COVERING_FROM and (piece or side == 1)
        odd = side == 1 and word == 1 and begins < _SECTOR and length * item >= _GRAIN_FROM
        sides.append(BoxSide(tuple(map(spanned.index, inside)), len(run),
                             most if covering else word, 1, 1, _SECTOR if odd or covering else 0))
    words = prod(box) // min(each.word for each in sides)
    threads = min(_THREADS[words > _MANY * _THREADS[0]], -(-words // _WARP) * _WARP)
    source, target = (_with_threads(side, box, item, threads) for side in sides)
    cut = tuple(n for n, q in enumerate(spanned) if extents[q] < modes[q].extent)
    partial = tuple(n for n in cut if modes[spanned[n]].extent % box[n])
    config = RearrangeConfig(item, box, cut, partial, source, target, (),
                             tuple(spanned.index(q) if q in spanned else -1 for q in raster),
                             threads, len(batch))
    touched = sum(runs.touched() for runs in copy.runs(extents)) / 2
    reason = (
        f"boxes of {' x '.join(map(str, box))} elements through shared memory, reads of "
        f"{source.word * item} and writes of {target.word * item} bytes; the sectors touched hold "
        f"{100 * (touched - 1):.0f} % more bytes than are moved"
    )
    return copy.kernel(config, [f"N{n}" for n in range(len(box))],
                       dict(zip(spanned, box, strict=True)), reason, batch, finished=_laid_out)


# -- candidates ------------------------------------------------------------------------------------
def _candidates(copy: Copy) -> set[Ints]:
    item, found = copy.item, set()
    for source in _reaching(copy, 0):
        for target in _reaching(copy, 1):
            extents = tuple(map(max, source, target))
            if prod(extents) * item <= _MOST_BYTES:
                found |= {extents, *(_grown(copy, extents, size) for size in _BOX_BYTES)}
    if not found:
        found.add(_grown(copy, (1,) * len(copy.modes), _BOX_BYTES[0]))
    larger = {_grown(copy, extents, _ONE_RUN) for extents in found}
    return {extents for extents in found | larger
            if prod(extents) * item <= _MOST_BYTES or _may_be_larger(copy, extents)}


def _may_be_larger(copy: Copy, extents: Ints) -> bool:
    """Whether a box is one run of short rows of the source, whose columns meet few banks twice."""
    run = copy.run(0, extents)
    row = prod(extents[q] for q in run[:-1]) * copy.item
    return copy.item < _WORD and len(run) == sum(n > 1 for n in extents) == 2 \
        and row >= _BANK_GROUP and row % _BANK_GROUP > 0


def _reaching(copy: Copy, side: int) -> set[Ints]:
    """Extents whose runs have so many bytes, the last mode in equal parts, maybe of sectors."""
    found = set()
    for reach in _RUN_BYTES:
        extents, at = [1] * len(copy.modes), 1
        for q in copy.orders[side]:
            nbytes, extent = at * copy.item, copy.modes[q].extent
            step = abs(copy.modes[q].strides[side])
            if not 0 <= step - at < _SECTOR // copy.item or nbytes >= reach:
                break
            wanted, unit = -(-reach // nbytes), max(1, _SECTOR // gcd(_SECTOR, nbytes))
            part = -(-extent // max(1, extent // wanted))
            extents[q] = min(extent, -(-part // unit) * unit if unit <= part < extent else part)
            at = step * extent
        found.add(tuple(extents))
    return found


def _grown(copy: Copy, extents: Sequence[int], size: int) -> Ints:
    """The box with more of further modes, smallest strides first, up to so many bytes."""
    grown = list(extents)
    for q in (q for pair in zip(*reversed(copy.orders), strict=True) for q in pair):
        room, extent = size // (prod(grown) * copy.item), copy.modes[q].extent
        if room < 2:
            break
        most = grown[q] * room
        if most >= extent:
            grown[q] = extent
        elif grown[q] == 1:                  # equal parts; else runs that are whole sectors stay it
            most = -(-extent // -(-extent // most))
        grown[q] = min(extent, most)
    return tuple(grown)


# -- what they cost --------------------------------------------------------------------------------
def _seconds(copy: Copy, extents: Ints, device: DeviceInfo) -> float:
    item, elements = copy.item, prod(extents)
    boxes = prod(-(-m.extent // n) for m, n in zip(copy.modes, extents, strict=True))
    traffic = words = instructions = 0.0
    for side, (runs, part) in enumerate(zip(copy.runs(extents), (_PART_READ, _PART_WRITTEN),
                                            strict=True)):
        traffic += prod(m.extent for m in copy.modes) * item * (runs.touched(part)
                                                                    + _RUN / runs.length)
        word = max(item, min(_WORD, gcd(runs.begins, runs.length)))
        if side == 1 and word < _WORD and runs.length >= _COVERING_FROM:
            number = elements * item / runs.length
            covering = number * (runs.length + _SECTOR) / _WORD
            words += covering
            instructions += number * _FOR_RUN * _SECTOR / _WORD + covering * _FOR_COVERED
        else:
            moved = elements * item / word
            words += moved
            instructions += moved * (_FOR_SMALL_WORD if item < _WORD else _FOR_WORD)
            instructions += elements * _FOR_ELEMENT * (word > item)
    threads = _THREADS[words > 2 * _MANY * _THREADS[0]]
    if item < _WORD:
        counted = sum(n < m.extent for m, n in zip(copy.modes, extents, strict=True))
        instructions += threads * (_FOR_BOX + _FOR_MODE * counted)
    each = words / threads
    resident = resident_blocks(threads, elements * item, 2 * each, device)
    share = boxes / device.multiprocessors
    clocks = max(share * instructions / _ISSUED,
                 max(1.0, share / resident) * (_LATENCY + each * _WORD_CLOCKS))
    times = traffic / device.bandwidth, clocks / device.clock_hz
    return max(times) + _BOTH * min(times)


# -- threads, and the layout in shared memory ------------------------------------------------------
@lru_cache(maxsize=1024)
def _lanes(words: int, run: Ints, extents: Ints, threads: int, multiple: int,
           for_row: float) -> Pair:
    """Threads along a run, in multiples, and along rows: the fewest words a thread, preferably
    where coordinates are a thread's own and a number; a row costs as ``for_row`` words."""
    count, at, even = prod(extents), 1, {1}
    for n in extents:
        even |= {at * f for f in divisors(n)}
        at *= n
    inner = prod(run[:-1])                # a multiple of it has one place in all modes but the last
    fewest = -(-words // threads)
    wanted = [-(-words // pieces) for pieces in range(fewest, fewest + 4)]
    wanted = [-(-lanes // multiple) * multiple for lanes in wanted]
    wanted += [lanes // inner * inner for lanes in (*wanted, threads) if multiple == 1
               and lanes >= inner]
    first, *others = dict.fromkeys(min(threads, lanes) for lanes in wanted)

    def cost(choice: Pair) -> float:
        lanes, rows = choice
        pieces = -(-words // lanes)
        passes = (pieces + for_row) * -(-count // rows)
        apart = 1.0 if pieces == 1 or lanes % inner == 0 else 1.5
        return passes * apart * (1.0 if rows in even else 1.15) * (1 + 0.02 * pieces)

    choices = []
    for lanes in (first, *(lanes for lanes in others if lanes >= _WARP)):
        most = min(count, threads // lanes)
        rows = sorted({most} | {r for r in even if r <= most}, reverse=True)
        choices += [(lanes, r) for r in rows[:4]]
    return min(choices, key=cost)


def _with_threads(side: BoxSide, box: Ints, item: int, threads: int) -> BoxSide:
    run, rows = (tuple(box[q] for q in modes) for modes in (side.run_modes, side.row_modes))
    whole = run[:1] and run[0] % side.word == 0 and not side.covering
    of_words = (run[0] // side.word, *run[1:]) if whole else ()
    if side.covering:                                   # what a row costs is shared by its words
        words, count = side.words(item, box), prod(rows)

        def cost(lanes: int) -> float:
            return -(-count // min(count, threads // lanes)) * (_FOR_RUN + -(-words // lanes)
                                                                * _FOR_COVERED)

        lanes = min((lanes for lanes in (8, 16, 32, 64, 128, 256, 512) if lanes <= threads), key=cost)
        return replace(side, lanes=lanes, rows=min(count, threads // lanes))
    lanes, along = _lanes(side.words(item, box), of_words, rows, threads,
                          max(1, side.grain // item), _ROW_WORDS if item < _WORD else 0.0)
    return replace(side, lanes=lanes, rows=along)


def _laid_out(config: RearrangeConfig) -> RearrangeConfig:
    """The configuration with a layout in shared memory of few conflicts: slow to find."""
    strides = _shared_strides(config.box, config.item, config.source, config.target)
    return replace(config, held=strides)


def _shared_strides(box: Ints, item: int, source: BoxSide,
                    target: BoxSide) -> Ints:
    """Strides of a box in shared memory: neighbours are in different banks."""
    # They are in the order of one side, so that its words can be those of shared memory; the other
    # side's neighbouring lanes are a word apart. Its modes get strides as if each continued the
    # one before, the first an odd number of banks. Of these, of strides without gaps, and of both
    # as multiples of a word, those are taken with the fewest conflicts, then accesses, then bytes.
    unit = max(item, _WORD) // item              # elements of a bank, or of an access that is wider
    slots = _BANKS * _WORD // max(item, _WORD)   # of these, before banks repeat

    def strides_of(side: BoxSide, other: BoxSide, odd: int, whole: int) -> Ints:
        """With a first mode of ``odd`` banks (0: no gaps), then multiples of ``whole``."""
        wanted, lanes = {}, 1
        for n, q in enumerate(other.order):
            word = other.word if n == 0 else 1
            if odd and lanes < slots:
                wanted[q] = odd * lanes * unit // word, max(1, slots * unit // word)
                lanes *= max(1, box[q] // word)
        strides, stride, run = [1] * len(box), 1, side.run if side is target else 1
        for n, q in enumerate(side.order):
            if q in wanted and n >= run:
                stride += (wanted[q][0] - stride) % wanted[q][1]
            stride += -stride % whole if n >= run else 0
            strides[q] = stride
            stride *= box[q]
        return tuple(strides)

    def first_words(side: BoxSide) -> list[list[int]]:
        """Coordinates of the words of a warp's lanes, in the order of modes."""
        found = []
        for place in range(0, _WARP * side.word, side.word):
            at = [0] * len(box)
            for q in side.order:
                place, at[q] = divmod(place, box[q])
            found.append(at)
        return found

    # words of the target are cut from those of shared memory, unless a box is one run of the source
    cut = target.covering and (bool(source.row_modes) or target.run > 1)
    small, lanes = item < _WORD, {side: first_words(side) for side in (source, target)}

    def accesses(side: BoxSide, strides: Ints) -> float:
        """Accesses to shared memory for an element; lanes that meet in a bank count each."""
        words = {sum(c * step for c, step in zip(at, strides, strict=True)) // unit
                 for at in lanes[side]}
        meeting = max(Counter(word % slots for word in words).values())
        if side.whole(box, strides):
            return meeting / side.word
        if side is target and side.covering and side.side_by_side(box, strides):
            return 2 * meeting / side.word
        # Where words are of several modes each element has a place of its own, and those of all
        # words at once take registers.
        return meeting * (_SCATTERED if side is source and box[side.order[0]] % side.word else 1.0)

    def cost(strides: Ints) -> float:
        reach = 1 + sum(stride * (n - 1) for stride, n in zip(strides, box, strict=True))
        if reach * item > _MOST_SHARED:
            return inf
        return ((accesses(source, strides) if small else 1.0)
                + accesses(target, strides)) * (1 + reach / prod(box))

    steps = 0, *range(1, slots, 2)
    found = {
        strides_of(*sides, odd, whole)
        for sides in ((source, target), (target, source))[cut : 1 + small]
        for odd in steps
        for whole in sorted({1, sides[0].word})
    }
    return min(sorted(found), key=cost)


def _raster(copy: Copy, extents: Sequence[int]) -> list[int]:
    """The modes that boxes are counted along: those that continue target runs first."""
    outer = [q for q in copy.orders[1] if extents[q] < copy.modes[q].extent]
    first = [next((q for q in order if q in outer), None) for order in reversed(copy.orders)]
    return sorted(outer, key=lambda q: (first.index(q) if q in first else len(first), q))
