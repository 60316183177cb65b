"""``transpose`` and ``copy`` of any permutation: a box of its modes at a time through shared
memory.

A box is a part of every mode, read by its runs in the source and written by those in the target; a
run is several modes that follow each other without gaps. Its layout in shared memory puts
neighbours of both sides in different banks. Extents of a box are static, so coordinates need no
division.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any, NamedTuple

from ...codegen import (
    CodegenError,
    CpAsync,
    Element,
    GeneratedKernel,
    GlobalTensor,
    KernelBuilder,
    TensorParam,
    Vector,
)
from ...codegen.copies import Covering
from ...codegen.engine import Lines
from ...layout import Layout, Tensor, coalesce, cosize, domain_offset, idx2crd, size
from ...layout.symbolic import Condition, IntLike, all_of, ceil_div, maximum, minimum, select
from ..common import (
    ELEMENTS,
    Coord,
    builder,
    copy_element,
    cut_words,
    join_words,
    packed_strides,
    split_words,
)

_WORD = 4              # bytes: of what is copied to shared memory without registers, at least, and
                       # of the words of shared memory that are cut to those of global memory


@dataclass(frozen=True)
class BoxSide:
    """The layout of a box in the source or target, and the threads that move it. ``order`` has the
    modes of a run, smallest stride first, then those that rows are counted along; ``run`` is the
    number of the former. ``lanes`` are threads along a run, ``rows`` along other modes. Where runs
    begin anywhere, threads begin at multiples of ``grain`` bytes, and words are aligned: those of
    smaller elements are all but the ends of a run."""

    order: tuple[int, ...]
    run: int
    word: int
    lanes: int
    rows: int
    grain: int = 0

    @property
    def covering(self) -> bool:
        """Whether runs have ends, single elements, besides their words."""
        return self.grain > 0 and self.word > 1

    @property
    def run_modes(self) -> tuple[int, ...]:
        return self.order[:self.run]

    @property
    def row_modes(self) -> tuple[int, ...]:
        return self.order[self.run:]

    def words(self, item: int, box: tuple[int, ...]) -> int:
        """Words that a run of a box may touch, counted from where threads begin."""
        before = self.grain // item - 1 if self.grain else 0
        return -(-(prod(box[q] for q in self.run_modes) + before) // self.word)

    def side_by_side(self, box: tuple[int, ...], held: tuple[int, ...]) -> bool:
        """Whether runs have no gaps in shared memory either, for strides ``held``."""
        return all(held[q] == step for q, step in packed_strides(box, self.run_modes).items())

    def whole(self, box: tuple[int, ...], held: tuple[int, ...]) -> bool:
        """Whether words of memory are words of shared memory too, for strides ``held``."""
        if self.covering:
            return not self.row_modes and self.side_by_side(box, held)
        stride = 1
        for n, q in enumerate(self.run_modes):
            if self.word == 1 or held[q] != stride:
                break
            stride *= box[q]
            if stride % self.word == 0 and all(held[x] % self.word == 0
                                               for x in self.order[n + 1:]):
                return True
        return self.word == 1

    def strides(self, box: tuple[int, ...]) -> tuple[int | None, ...]:
        """Strides in memory that are known: those of runs."""
        known = packed_strides(box, self.run_modes)
        return tuple(known.get(q) for q in range(len(box)))

    @property
    def tag(self) -> str:
        grain = (f"g{self.grain}" if self.grain else "") + ("c" if self.covering else "")
        return f"{''.join(map(_digit, self.order))}r{self.run}v{self.word}_{self.lanes}x{self.rows}{grain}"


@dataclass(frozen=True)
class RearrangeConfig:
    """The configuration of a kernel that moves boxes. ``item`` is in bytes; ``cut`` are the modes
    of which a box is a part, ``partial`` those of them with smaller last boxes; ``held`` are
    strides in shared memory. ``raster`` is the order of boxes, fastest first, with -1 for the next
    of the ``modes`` batch modes. ``wide`` offsets have 64 bits."""

    item: int
    box: tuple[int, ...]
    cut: tuple[int, ...]
    partial: tuple[int, ...]
    source: BoxSide
    target: BoxSide
    held: tuple[int, ...]
    raster: tuple[int, ...]
    threads: int
    modes: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        for side in (self.source, self.target):
            run = prod(self.box[q] for q in side.run_modes)
            words = side.covering or run % side.word == 0
            if sorted(side.order) != list(range(len(self.box))) or not words or side.lanes * side.rows > self.threads:
                raise CodegenError(
                    f"runs of a box must be whole words, and threads must exist for them, got {self}"
                )
            if side.grain and side.word * self.item != max(self.item, _WORD):
                raise CodegenError(
                    f"threads that begin at multiples of {side.grain} bytes need words of {_WORD} bytes or of one "
                    f"element, got {self}"
                )
            if any(q in self.cut for q in side.run_modes[:-1]):
                raise CodegenError(f"a run can only be cut along its last mode, got {self}")
        counted = [n for n in self.raster if n >= 0]
        if not set(self.partial) <= set(self.cut) or sorted(counted) != sorted(self.cut) or self.raster.count(-1) != self.modes:
            raise CodegenError(
                f"raster must order boxes along every cut mode and every batch mode, got {self}"
            )

    @property
    def elements(self) -> int:
        return prod(self.box)

    @property
    def shared(self) -> Layout:
        return Layout(self.box, self.held)

    @property
    def piece(self) -> BoxSide | None:
        """The covering side whose words, of the only run of a box, are words of shared memory."""
        first = next((side for side in (self.target, self.source)
                      if side.covering and side.side_by_side(self.box, self.held)), None)
        return None if first is None or first.row_modes else first

    @property
    def family(self) -> str:
        """``"copy"`` if both sides run along the same mode, else ``"transpose"``."""
        return "copy" if self.source.order[0] == self.target.order[0] else "transpose"

    @property
    def kind(self) -> str:
        return f"RearrangeConfig of boxes {'x'.join(map(str, self.box))}"

    @property
    def name(self) -> str:
        raster = "".join("b" if n < 0 else _digit(n) for n in self.raster)
        held = "x".join(map(str, self.held))
        return (
            f"{self.family}_b{8 * self.item}_{'x'.join(map(str, self.box))}_c{''.join(map(_digit, self.cut))}"
            f"{'p' + ''.join(map(_digit, self.partial)) if self.partial else ''}"
            f"_{self.source.tag}_{self.target.tag}_h{held}_o{raster}_t{self.threads}{'_wide' if self.wide else ''}"
        )


def _digit(n: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyz"[n]


class _Word(NamedTuple):
    memory: Tensor
    shared: tuple[Element, ...]
    exists: Condition


class _Row(NamedTuple):
    """A run of a box: its first element from the pointer, and from the start of the box."""

    in_memory: IntLike
    in_shared: IntLike
    exists: Condition


class _Side:
    """One side of a kernel: its pointer, its strides, and what a thread moves there."""

    def __init__(self, k: KernelBuilder, config: RearrangeConfig, side: BoxSide,
                 tensor: GlobalTensor):
        assert tensor.pointer is not None
        self.name, self.side, self._k, self._config = tensor.param.name, side, k, config
        self.item = config.item
        self.pointer, self.batch = tensor.pointer, tensor.batch_strides
        self.strides: tuple[Any, ...] = tensor.strides
        self._run, self._others = side.run_modes, side.row_modes
        self._extents = tuple(config.box[q] for q in self._run) or (1,)
        self.in_run = coalesce(Layout(self._extents,
                                      tuple(config.held[q] for q in self._run) or (0,)))
        self.piece = side is config.piece
        self.whole = self.piece or (not side.covering and side.whole(config.box, config.held))
        self._longest, self.count = prod(self._extents), prod(config.box[q] for q in self._others)
        self.words_of_lane = -(-side.words(self.item, config.box) // side.lanes)

    def enter(self, box: IntLike, limits: dict[int, IntLike]) -> None:
        """Begin with the box at this first element; ``limits`` are of partial modes."""
        k, side, run = self._k, self.side, self._run
        self.box, self._limits = box, limits
        self.length: IntLike = self._longest
        if run and run[-1] in limits:
            self.length = k.let(f"{self.name}_end", limits[run[-1]] * prod(self._extents[:-1]))
        self.lane = k.let(f"{self.name}_lane", k.thread % side.lanes)
        self._row = k.let(f"{self.name}_row", k.thread // side.lanes)
        self._busy = k.thread < side.lanes * side.rows

    @cached_property
    def lines(self) -> Lines:
        """The memory around the tensor, in words where these cover runs."""
        nbytes = _WORD if self.side.covering else self.item
        return self._k.lines(f"{self.name}_lines", self.pointer, f"b{8 * nbytes}", self.side.grain)

    def early(self, run: IntLike, name: str) -> IntLike:
        """Elements before a run, from where its threads begin."""
        border = self.side.grain // self.item
        return self._k.let(f"{self.name}_early_{name}", (self.lines.before + run) % border)

    def row(self, row: IntLike, name: str, exists: Condition = True) -> _Row:
        """The run at a flat coordinate of the other modes."""
        k, others = self._k, self._others
        extents = tuple(self._config.box[q] for q in others) or (1,)
        shared, memory = (Layout(extents, tuple(strides[q] for q in others) or (0,))
                          for strides in (self._config.held, self.strides))
        at = _flat(idx2crd(row, extents))
        in_shared = k.let(f"{self.name}_above_{name}", shared(*at))
        in_memory = k.let(f"{self.name}_start_{name}", self.box + memory(*at))
        partial = (i < self._limits[q] for i, q in zip(at, others, strict=False)
                   if q in self._limits)
        return _Row(in_memory, in_shared, all_of(exists, row < self.count, *partial))

    def rows(self) -> Iterator[_Row]:
        for r in range(-(-self.count // self.side.rows)):
            yield self.row(self._row + r * self.side.rows, str(r), self._busy)

    def words(self, shared: Tensor) -> list[_Word]:
        """This thread's words, counted from a run's start or the ``grain`` before it."""
        k, side, name, word, found = self._k, self.side, self.name, self.side.word, list[_Word]()
        for r, row in enumerate(self.rows()):
            if side.grain or r == 0:              # of runs that begin alike, the words do
                at = f"{r}_" if side.grain else ""
                early = self.early(row.in_memory, str(r)) if side.grain else 0
                start = k.let(f"{name}_at_{r}", self.lane * word - early)
                firsts = [start + c * side.lanes * word for c in range(self.words_of_lane)]
                places = [(self.lane + c * side.lanes,) if self.piece
                          else self._places(first, f"{name}_place_{at}{c}")
                          for c, first in enumerate(firsts)]
            line = self._words_of(row, str(r)) if side.covering else None
            for c, (first, own) in enumerate(zip(firsts, places, strict=True)):
                element = self.pointer[row.in_memory + first]
                last = first + (word - 1 if side.covering else 0)
                found.append(_Word(line(c).run() if line else element.run(word),
                                   tuple(shared(place + row.in_shared) for place in own),
                                   all_of(row.exists, first > -1, last < self.length)))
        return found

    def _places(self, first: IntLike, name: str) -> Coord:
        """The elements in shared memory of a word that begins so far from the run's first."""
        k, side, word = self._k, self.side, self.side.word
        (n, *extents), (step, *strides) = _flat(self.in_run.shape), _flat(self.in_run.stride)
        if n % word == 0 and not side.grain:                # a word does not leave the first mode
            words = Layout((n // word, *extents), (step * word, *strides))
            place = k.let(name, words(first // word))
            return tuple(place + e * step for e in range(word))
        if not extents:
            place = k.let(name, first * step)
            return tuple(place + e * step for e in range(word))
        if side.grain:
            within = minimum(first, self._longest - word) if word > 1 else first
            first = k.let(f"{name}_from", maximum(within, 0))
        return tuple(k.let(f"{name}_{e}", self.in_run(first + e)) for e in range(word))

    def _words_of(self, row: _Row, name: str) -> Tensor:
        """This thread's words of memory in a run."""
        lines, side = self.lines, self.side
        run = lines.run(lines.place(self.pointer[row.in_memory]), whole=side.grain // _WORD)
        mine = Tensor(run.engine + self.lane, Layout(self.words_of_lane, side.lanes))
        return self._k.pin(f"{self.name}_line_{name}", mine, settled=True)


def _flat(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


@cache
def rearrange_kernel(config: RearrangeConfig) -> GeneratedKernel:
    """Generate ``D[modes, batch] = S[modes, batch]``, a box for each block."""
    item, element = config.item, f"b{8 * config.item}"
    k = builder(
        config,
        config.threads,
        summary=f"D = S by boxes of {config.box} elements of {item} bytes, smallest stride in D first"
    )
    modes = tuple(f"n{q}" for q in range(len(config.box)))
    tensors = k.tensors(*(TensorParam(name, modes, element, side.strides(config.box),
                                      1 if side.covering else side.word, written=name == "D")
                          for name, side in (("S", config.source), ("D", config.target))),
                        modes=[modes[q] for q in config.cut], batch=config.modes)
    source, target = (_Side(k, config, side, x)
                      for side, x in zip((config.source, config.target), tensors, strict=True))
    extents = {q: k.extent(modes[q]) for q in config.cut}
    # elements that a word may begin before its run
    border = max(side.side.covering * side.side.grain // item for side in (source, target))

    k.comment("The box of this block")
    rest: IntLike = k.block_index("box")
    first_s: IntLike = 0
    first_d: IntLike = 0
    limits: dict[int, IntLike] = {}
    others = iter(zip(tensors[0].batch, source.batch, target.batch, strict=True))
    for place, q in enumerate(config.raster):
        if q >= 0:
            count, step_s, step_d = k.let(f"boxes_{q}", ceil_div(extents[q], config.box[q])), source.strides[q], target.strides[q]
        else:
            count, step_s, step_d = next(others)
        last = place == len(config.raster) - 1
        index = rest if last else k.let(f"index_{place}", rest % count)
        rest = 0 if last else k.let(f"above_{place}", rest // count)
        if q >= 0:
            index = k.let(f"start_{q}", index * config.box[q])
            if q in config.partial:
                limits[q] = k.let(f"limit_{q}", minimum(extents[q] - index, config.box[q]))
        first_s, first_d = first_s + index * step_s, first_d + index * step_d

    sE = k.shared("sE", element, cosize(config.shared) + border
                  + (_WORD // item if border else 0))
    source.enter(k.let("S_first", first_s), limits)
    if target.piece:
        target.enter(k.let("D_first", first_d), limits)
    before = next((side.early(side.box, "box") for side in (source, target) if side.piece), border)
    sB = domain_offset(before, sE)
    sW = k.shared("sW", f"b{8 * _WORD}", -(-size(sE) * item // _WORD), over="sE") if border else sE
    _box_in(k, source, source.words(sW if source.piece else sB))
    if config.source.covering:
        _ends(k, source, sB)
    k.barrier()
    if not target.piece:
        target.enter(k.let("D_first", first_d), limits)
    if config.target.covering and not target.piece and config.target.side_by_side(config.box,
                                                                                  config.held):
        _runs_out(k, target, sW, border)
    else:
        _box_out(k, target, target.words(sW if target.piece else sB))
    if config.target.covering:
        _ends(k, target, sB)
    return k.build()


def _box_in(k: KernelBuilder, source: _Side, words: list[_Word]) -> None:
    k.comment("In, by runs of the source")
    word, item, whole = source.side.word, source.item, source.whole
    element, unit = f"b{8 * item}", f"b{8 * _WORD}"
    if item * word >= _WORD and whole:
        for _i, w in _existing(k, words):
            k.copy(CpAsync(size(w.memory)), w.memory, w.shared[0].run(size(w.memory)))
        k.commit()
        k.wait(0)
        return
    # Words stay whole in registers until their elements go to shared memory: else each element
    # would take a register.
    joined = item < item * word == _WORD and not whole
    lines = k.lines("S_words", words[0].memory.engine, unit,
                    _WORD) if joined and not source.side.covering else None
    held = k.registers("tSrS", *((unit, len(words)) if joined else (element, (word, len(words)))))
    for i, w in _existing(k, words):
        if joined:
            k.copy(ELEMENTS, lines.run(w.memory(0).index) if lines else w.memory, held(i))
        else:
            k.copy(Vector(word), w.memory, held[None, i])
    for i, w in _existing(k, words):
        if joined:
            parts = k.registers(f"tSrE_{i}", element, word)
            split_words(k, held(i).run(), parts)
        else:
            parts = held[None, i]
        for of_registers, of_memory in _parts(parts, w, word if whole else 1):
            k.copy(Vector(size(of_memory)), of_registers, of_memory)


def _box_out(k: KernelBuilder, target: _Side, words: list[_Word]) -> None:
    k.comment("Out, by runs of the target")
    for i, w in _existing(k, words):
        held = k.registers(f"tDrD_{i}", w.shared[0].dtype.name, len(w.shared))
        for of_registers, of_memory in _parts(held, w, len(w.shared) if target.whole else 1):
            k.copy(Vector(size(of_memory)), of_memory, of_registers)
        if target.side.covering and not target.piece:
            joined = k.registers(f"tDrW_{i}", f"b{8 * _WORD}", 1)
            join_words(k, held, joined)
            held = joined
        k.copy(Vector(size(held)), held, w.memory)


def _existing(k: KernelBuilder, words: list[_Word]) -> Iterator[tuple[int, _Word]]:
    for i, word in enumerate(words):
        with k.when(word.exists):
            yield i, word


def _parts(held: Tensor, word: _Word, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A word in registers, by vectors of so many elements, and where these are in shared memory."""
    for e in range(0, len(word.shared), width):
        yield held(e).run(width), word.shared[e].run(width)


def _runs_out(k: KernelBuilder, target: _Side, words: Tensor, border: int) -> None:
    """Write runs that begin anywhere, each word cut from the two that cover it."""
    # Words are counted from the multiple of ``border`` elements at or before the run's start.
    k.comment("Out, by the words of memory that are whole")
    lines, word, lanes = target.lines, target.side.word, target.side.lanes
    for r, row in enumerate(target.rows()):
        run = k.let(f"D_begin_{r}", lines.place(target.pointer[row.in_memory]))
        # elements that are not of the run
        skipped = k.let(f"D_early_{r}", run % border)
        # of shared memory: the first, in words
        element = k.let(f"D_held_{r}", row.in_shared + (border - skipped))
        line = k.let(f"D_line_{r}", lines.run(run, target.words_of_lane * lanes,
                                              whole=border // word))
        bits = k.let(f"D_bits_{r}", element % word * 8 * _WORD // word)
        covering = k.let(f"D_below_{r}", element // word), k.let(f"D_beyond_{r}",
                                                                 (element + (word - 1)) // word)
        first = k.let(f"D_low_{r}", (skipped + (word - 1)) // word)             # word that is whole
        end = k.let(f"D_high_{r}", (target.length + skipped) // word)
        for c in range(target.words_of_lane):
            index = target.lane + c * lanes
            with k.when(all_of(row.exists, first - 1 < index, index < end)):
                cut = k.registers(f"tDrC_{r}_{c}", words.engine.dtype.name, 2)
                for n, at in enumerate(covering):               # one word, if it is whole
                    k.copy(Covering(1), words(at + index), cut(n))
                cut_words(k, cut, cut, bits)
                k.copy(ELEMENTS, cut(0), line(index))


def _ends(k: KernelBuilder, side: _Side, shared: Tensor) -> None:
    """Move the elements of runs whose words are not whole in them."""
    k.comment("Elements of words that are not")
    word, length, name = side.side.word, side.length, side.name
    most = 2 * (word - 1)                                       # of a run
    with k.loop("e", side.count * most, start=k.thread, step=k.threads) as e:
        row = side.row(e // most, "e")
        run = k.let("begin", side.lines.place(side.pointer[row.in_memory]))
        head, tail = k.let("head", (-run) % word), k.let("tail", (run + length) % word)
        of_tail = word - 2 < e % most
        at = k.let("at", k.let("index", e % (word - 1))
                   + select(of_tail, maximum(head, length - tail), 0))
        with k.when(all_of(row.exists, at < select(of_tail, length, minimum(head, length)))):
            held, memory = shared(row.in_shared + side.in_run(at)), side.pointer[row.in_memory + at]
            copy_element(k, f"t{name}rE", *((memory, held) if name == "S" else (held, memory)))
