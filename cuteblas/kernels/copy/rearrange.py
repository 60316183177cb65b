"""``transpose`` and ``copy`` of any permutation: a box of its modes at a time through shared memory.

A box is a part of every mode. It is read into shared memory by its runs in the source, and written by its runs in
the target; a run is several modes that follow each other without gaps. On each side the threads of a block are arranged along runs
first, so that neighbours access neighbouring words, then along the rows of words that the other modes make. The place of an element
in shared memory is one layout on the box, whose strides planning chooses so that neighbours of both sides are in different banks.
The extents of a box are static, so that coordinates need no division by a run-time value, except that of the block, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from ...codegen.builder import KernelBuilder
from ...codegen.copies import CpAsync, Vector
from ...codegen.engine import CodegenError, Pointer
from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import GlobalTensor, TensorParam
from ...layout import Layout, Tensor, cosize, idx2crd
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, less, maximum, minimum

__all__ = ["BoxSide", "RearrangeConfig", "rearrange_kernel"]

_ASYNCHRONOUS = 4                    # bytes, of what is copied to shared memory without registers


@dataclass(frozen=True)
class BoxSide:
    """The layout of a box in the source, or in the target, and the threads that move it.

    Attributes
    ----------
    order : tuple of int
        The modes of the box: those of a run, the smallest stride first, then those that its rows are counted along.
    run : int
        How many of them, the first ones, are contiguous: all but the last of these are whole.
    word : int
        Elements that are moved at once, of one run.
    lanes : int
        Threads along a run.
    rows : int
        Threads along the other modes, on their flat coordinate.
    grain : int
        Where runs begin anywhere: bytes at multiples of which threads begin in memory, so that a warp does not touch parts of
        sectors that another touches too; else 0.
    """

    order: tuple[int, ...]
    run: int
    word: int
    lanes: int
    rows: int
    grain: int = 0

    def words(self, item: int, box: tuple[int, ...]) -> int:
        """Words that a run of a box may touch, counted from where threads begin."""
        beyond = self.grain // item - 1 if self.grain else 0
        return -(-(prod(box[q] for q in self.order[:self.run]) + beyond) // self.word)

    def strides(self, box: tuple[int, ...]) -> tuple[int | None, ...]:
        """Strides in memory that are known: those of runs."""
        known = {q: prod(box[x] for x in self.order[:n]) for n, q in enumerate(self.order[:self.run])}
        return tuple(known.get(q) for q in range(len(box)))

    @property
    def tag(self) -> str:
        """Its part of a kernel's name."""
        grain = f"g{self.grain}" if self.grain else ""
        return f"{''.join(map(_digit, self.order))}r{self.run}v{self.word}_{self.lanes}x{self.rows}{grain}"


@dataclass(frozen=True)
class RearrangeConfig:
    """What a kernel that moves boxes is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element.
    box : tuple of int
        Extents of a box.
    cut : tuple of int
        The modes of which a box is a part; the last boxes along them are smaller.
    source, target : BoxSide
        The layout of the box in both.
    held : tuple of int
        Strides of the box in shared memory.
    raster : tuple of int
        The order of boxes, the fastest first: modes that are cut, and -1 for the next batch mode.
    threads : int
        Threads of a block.
    modes : int
        Further (batch) modes.
    wide : bool
        Whether offsets need 64 bits.
    """

    item: int
    box: tuple[int, ...]
    cut: tuple[int, ...]
    source: BoxSide
    target: BoxSide
    held: tuple[int, ...]
    raster: tuple[int, ...]
    threads: int
    modes: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        for side in (self.source, self.target):
            run = prod(self.box[q] for q in side.order[:side.run])
            if sorted(side.order) != list(range(len(self.box))) or run % side.word or side.lanes * side.rows > self.threads:
                raise CodegenError(f"runs of a box are whole words for threads that there are, got {self}")
            if side.grain and side.word > 1:
                raise CodegenError(f"threads begin at multiples of {side.grain} bytes with words of one element, got {self}")
            if any(q in self.cut for q in side.order[:max(0, side.run - 1)]):
                raise CodegenError(f"a run is cut along the last of its modes, got {self}")
        if sorted(n for n in self.raster if n >= 0) != sorted(self.cut) or self.raster.count(-1) != self.modes:
            raise CodegenError(f"boxes are ordered along every mode that is cut and every batch mode, got {self}")

    @property
    def elements(self) -> int:
        """Elements of a box."""
        return prod(self.box)

    @property
    def shared(self) -> Layout:
        """The place of an element of a box in shared memory."""
        return Layout(self.box, self.held)

    @property
    def whole_words(self) -> bool:
        """Whether a word of the source is a word in shared memory too."""
        word, first = self.source.word, self.source.order[0]
        others = (self.held[q] for q in self.source.order[1:])
        return word == 1 or (self.held[first] == 1 and self.box[first] % word == 0 and all(step % word == 0 for step in others))

    @property
    def family(self) -> str:
        """``"copy"`` if both sides run along the same mode, else ``"transpose"``."""
        return "copy" if self.source.order[0] == self.target.order[0] else "transpose"

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        raster = "".join("b" if n < 0 else _digit(n) for n in self.raster)
        held = "x".join(map(str, self.held))
        return (f"{self.family}_b{8 * self.item}_{'x'.join(map(str, self.box))}_c{''.join(map(_digit, self.cut))}"
                f"_{self.source.tag}_{self.target.tag}_h{held}_o{raster}_t{self.threads}{'_wide' if self.wide else ''}")


def _digit(n: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyz"[n]


@dataclass(frozen=True)
class _Word:
    """A word of a box that a thread moves.

    Attributes
    ----------
    at : Tensor
        Its place in global memory.
    places : tuple of IntLike
        The places of its elements in shared memory.
    exists : Expr or bool
        Whether it does, in this box.
    """

    at: Tensor
    places: tuple[IntLike, ...]
    exists: Expr | bool


class _Side:
    """One side of a kernel: its pointer, its strides, and what a thread moves there."""

    def __init__(self, k: KernelBuilder, config: RearrangeConfig, side: BoxSide, tensor: GlobalTensor):
        assert tensor.pointer is not None
        self.name, self.side, self._k, self._config = tensor.param.name, side, k, config
        self.pointer, self.batch = tensor.pointer, tensor.batch_strides
        self.strides: tuple[Any, ...] = tensor.strides

    def words(self, first: IntLike, limits: dict[int, IntLike]) -> Iterator[_Word]:
        """The words of this thread in a box that begins so far after the pointer, of which so much exists along cut modes."""
        k, config, side = self._k, self._config, self.side
        run, others = side.order[:side.run], side.order[side.run:]
        extents = tuple(config.box[q] for q in run) or (1,)
        in_run = Layout(extents, tuple(config.held[q] for q in run) or (0,))
        rows = Layout(tuple(config.box[q] for q in others) or (1,))
        elements, count = prod(extents), prod(config.box[q] for q in others)
        end = elements if not run or run[-1] not in limits else k.let(f"{self.name}_end", limits[run[-1]] * prod(extents[:-1]))
        lane = k.let(f"{self.name}_lane", k.thread % side.lanes)
        row_of_thread = k.let(f"{self.name}_row", k.thread // side.lanes)
        busy = less(k.thread, side.lanes * side.rows)
        indices = [lane + c * side.lanes for c in range(-(-side.words(config.item, config.box) // side.lanes))]
        pieces = [k.let(f"{self.name}_at_{c}", index * side.word) for c, index in enumerate(indices)]
        placed = [] if side.grain else [self._places(in_run, index, f"{self.name}_place_{c}") for c, index in enumerate(indices)]
        before = k.aligned_down(f"{self.name}_lines", self.pointer, f"b{8 * config.item}", side.grain)[1] if side.grain else 0
        for r in range(-(-count // side.rows)):
            row = row_of_thread + r * side.rows
            crd = dict(zip(others, _flat(idx2crd(row, rows.shape)), strict=True)) if others else {}
            above = k.let(f"{self.name}_above_{r}", sum((crd[q] * config.held[q] for q in others), 0))
            start = k.let(f"{self.name}_start_{r}", sum((crd[q] * self.strides[q] for q in others), first))
            exists = all_of(busy, less(row, count), *(less(crd[q], limits[q]) for q in others if q in limits))
            early = k.let(f"{self.name}_early_{r}", (before + start) % (side.grain // config.item)) if side.grain else 0
            for c, at in enumerate(pieces):
                if side.grain:
                    at = k.let(f"{self.name}_at_{r}_{c}", at - early)
                    places = self._places(in_run, maximum(at, 0) if len(extents) > 1 else at, f"{self.name}_place_{r}_{c}")
                    inside = all_of(less(-1, at), less(at, end))
                else:
                    places = placed[c]
                    whole = isinstance(end, int) and (c + 1) * side.lanes * side.word <= elements
                    inside = True if whole else less(at, end)
                yield _Word(Tensor(self.pointer + (start + at), Layout(side.word)), tuple(p + above for p in places),
                            all_of(exists, inside))

    def _places(self, in_run: Layout, index: IntLike, name: str) -> tuple[IntLike, ...]:
        """The places of the elements of a word of a run in shared memory."""
        k, word = self._k, self.side.word
        (first, *extents), (step, *strides) = in_run.shape, in_run.stride
        if first % word == 0:
            place = k.let(name, Layout((first // word, *extents), (step * word, *strides))(index))
            return tuple(place + e * step for e in range(word))
        return tuple(k.let(f"{name}_{e}", in_run(index * word + e)) for e in range(word))


def _flat(x: IntLike | tuple[IntLike, ...]) -> tuple[IntLike, ...]:
    return x if isinstance(x, tuple) else (x,)


@cache
def rearrange_kernel(config: RearrangeConfig) -> GeneratedKernel:
    """Generate a ``transpose`` or ``copy`` kernel: ``D[modes, batch] = S[modes, batch]``, a box for each block."""
    item, element = config.item, f"b{8 * config.item}"
    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary=f"D = S by boxes of {config.box} elements of {item} bytes, smallest stride in D first")
    modes = tuple(f"n{q}" for q in range(len(config.box)))
    tensors = k.tensors(*(TensorParam(name, modes, element, side.strides(config.box), side.word, written=name == "D")
                          for name, side in (("S", config.source), ("D", config.target))),
                        modes=[modes[q] for q in config.cut], batch=config.modes)
    source, target = (_Side(k, config, side, x) for side, x in zip((config.source, config.target), tensors, strict=True))
    extents = {q: k.extent(modes[q]) for q in config.cut}

    k.comment("The box of this block")
    rest: IntLike = k.block_index("box", "x")
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
            limits[q] = k.let(f"limit_{q}", minimum(extents[q] - index, config.box[q]))
        first_s, first_d = first_s + index * step_s, first_d + index * step_d

    sE = k.shared("sE", element, Layout(cosize(config.shared)))
    _box_in(k, config, list(source.words(k.let("S_first", first_s), limits)), sE.engine)
    k.barrier()
    _box_out(k, config, list(target.words(k.let("D_first", first_d), limits)), sE.engine)
    return k.build()


def _box_in(k: KernelBuilder, config: RearrangeConfig, words: list[_Word], shared: Pointer) -> None:
    k.comment("In, by runs of the source")
    word, element = config.source.word, f"b{8 * config.item}"
    if config.item * word >= _ASYNCHRONOUS and config.whole_words:
        for w in words:
            with k.when(w.exists):
                k.copy(CpAsync(word), w.at, Tensor(shared + w.places[0], w.at.layout))
        k.commit()
        k.wait(0)
        return
    held = k.registers("tSrS", element, Layout((word, len(words))))
    for i, w in enumerate(words):
        with k.when(w.exists):
            k.copy(Vector(word), w.at, held[None, i])
    for i, w in enumerate(words):
        with k.when(w.exists):
            for e, place in enumerate(w.places):
                k.copy(Vector(1), Tensor(held.engine + (i * word + e), Layout(1)), Tensor(shared + place, Layout(1)))


def _box_out(k: KernelBuilder, config: RearrangeConfig, words: list[_Word], shared: Pointer) -> None:
    k.comment("Out, by runs of the target")
    word, element = config.target.word, f"b{8 * config.item}"
    for i, w in enumerate(words):
        with k.when(w.exists):
            held = k.registers(f"tDrD_{i}", element, Layout(word))
            for e, place in enumerate(w.places):
                k.copy(Vector(1), Tensor(shared + place, Layout(1)), Tensor(held.engine + e, Layout(1)))
            k.copy(Vector(word), held, w.at)
