"""``transpose`` and ``copy`` by boxes, where modes are so short that a tile of two modes would be mostly empty.

So it is in stacks of small matrices, and in images whose pixels are a few numbers. A box spans all of the short modes and as much
of the others as makes runs of memory long on both sides. It comes to shared memory in the order of the source, run by run, and
leaves in that of the target: where each element of a vector of the target lies in shared memory is a layout on the box, whose
extents are static. What a thread moves of a box is the same in all boxes, so it is computed once, and a block moves one box after
the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod

from ...codegen.builder import KernelBuilder
from ...codegen.copies import CpAsync, Vector
from ...codegen.engine import CodegenError, Pointer
from ...codegen.kernel import GeneratedKernel
from ...layout import Layout, Tensor, idx2crd, make_ordered_layout
from ...layout.symbolic import Expr, IntLike, all_of, ceil_div, less, minimum, select
from .permute import batch_modes

__all__ = ["BoxConfig", "BoxSide", "boxes_kernel"]

_ASYNCHRONOUS = 4                    # bytes, of what is copied to shared memory without registers


@dataclass(frozen=True)
class BoxSide:
    """How a box lies in the source, or in the target.

    Attributes
    ----------
    order : tuple of int
        The modes of the box, the smallest stride first.
    run : int
        How many of them, the first ones, are contiguous: all but the last of these are whole.
    vector : int
        Elements that are moved at once, of one run.
    """

    order: tuple[int, ...]
    run: int
    vector: int

    @property
    def tag(self) -> str:
        """Its part of a kernel's name."""
        return f"{''.join(map(str, self.order))}r{self.run}v{self.vector}"


@dataclass(frozen=True)
class BoxConfig:
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
        How the box lies in both.
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
    threads: int
    modes: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        for side in (self.source, self.target):
            runs = prod(self.box[q] for q in side.order[:side.run])
            if sorted(side.order) != list(range(len(self.box))) or runs % side.vector:
                raise CodegenError(f"runs of a box are whole vectors, got {self}")
            if any(q in self.cut for q in side.order[:max(0, side.run - 1)]):
                raise CodegenError(f"a run is cut along the last of its modes, got {self}")

    @property
    def elements(self) -> int:
        """Elements of a box."""
        return prod(self.box)

    @property
    def held(self) -> Layout:
        """Where an element lies in shared memory, in the order of the source, by its position in that of the target."""
        whole = make_ordered_layout(self.box, tuple(map(self.source.order.index, range(len(self.box)))))
        return Layout(tuple(self.box[q] for q in self.target.order), tuple(whole.stride[q] for q in self.target.order))

    @property
    def family(self) -> str:
        """``"copy"`` if both sides run along the same mode, else ``"transpose"``."""
        return "copy" if self.source.order[0] == self.target.order[0] else "transpose"

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return (f"{self.family}_boxes_b{8 * self.item}_{'x'.join(map(str, self.box))}_c{''.join(map(str, self.cut))}"
                f"_{self.source.tag}_{self.target.tag}_t{self.threads}_m{self.modes}{'_wide' if self.wide else ''}")


@dataclass(frozen=True)
class _Mine:
    """A vector of a box that a thread moves: its position in the order of a side, and where it lies from the box on.

    Attributes
    ----------
    number : int
        Which of the thread's.
    position, offset : IntLike
        In the order of the side, and from the box's first element on.
    exists : Expr or bool
        Whether a whole box has it.
    along : dict
        Its coordinates along modes that are cut; of the one in a run, that along the run.
    """

    number: int
    position: IntLike
    offset: IntLike
    exists: Expr | bool
    along: dict[int, IntLike]


class _Side:
    """One side of a kernel: its pointer, strides, and what a thread moves there."""

    def __init__(self, k: KernelBuilder, config: BoxConfig, name: str, side: BoxSide):
        self.name, self.side, self._k, self._config = name, side, k, config
        self.pointer = k.pointer(name, f"b{8 * config.item}", const=name == "S", alignment=config.item * side.vector)
        self.strides: dict[int, IntLike] = {}

    def take_strides(self) -> None:
        """The parameters of modes outside of runs; inside, strides are those of the box."""
        k, at = self._k, 1
        for i, q in enumerate(self.side.order):
            self.strides[q] = at if i < self.side.run else k.integer(f"d{self.name}_{q}", lo=None, multiple=self.side.vector)
            at *= self._config.box[q]

    @property
    def run(self) -> tuple[int, ...]:
        """The modes of a run."""
        return self.side.order[:self.side.run]

    @property
    def step(self) -> int:
        """Elements of a run for each index along its last mode."""
        return prod(self._config.box[q] for q in self.run[:-1])

    def mine(self) -> Iterator[_Mine]:
        """The vectors of this thread."""
        k, config, side = self._k, self._config, self.side
        run = prod(config.box[q] for q in self.run)
        others = side.order[side.run:]
        of_box = Layout((run // side.vector, *(config.box[q] for q in others)), (side.vector, *(self.strides[q] for q in others)))
        vectors = config.elements // side.vector
        for n in range(-(-vectors // config.threads)):
            number = k.thread + n * config.threads
            exists: Expr | bool = True
            if (n + 1) * config.threads > vectors:
                exists, number = less(number, vectors), minimum(number, vectors - 1)
            number = k.let(f"{self.name}_vector_{n}", number)
            offset = k.let(f"{self.name}_offset_{n}", of_box(number))
            in_run, *above = idx2crd(number, of_box.shape)
            crd = in_run * side.vector, *above
            last = self.run[-1:] or (-1,)
            along = {q: k.let(f"{self.name}_along{q}_{n}", c) for q, c in zip(last + others, crd, strict=True) if q in config.cut}
            yield _Mine(n, number * side.vector, offset, exists, along)

    def first(self, starts: dict[int, IntLike], batch: IntLike) -> IntLike:
        """Where a box begins."""
        inside = sum((start * self.strides[q] for q, start in starts.items()), batch)
        return self._k.let(f"{self.name}_first", inside)

    def existing(self, mine: _Mine, limits: dict[int, IntLike]) -> tuple[Expr | bool, IntLike | None]:
        """Whether all of a vector exists in a box of some extents, and how many of its elements if the box may end within it."""
        exists = all_of(mine.exists, *(less(c, limits[q]) for q, c in mine.along.items() if q not in self.run))
        last = next((q for q in self.run[-1:] if q in mine.along), None)
        if last is None:
            return exists, None
        along, end, vector = mine.along[last], limits[last] * self.step, self.side.vector
        count = self._k.let(f"{self.name}_count_{mine.number}", select(exists, end - along, 0)) if self.step % vector else None
        return all_of(exists, less(along + (vector - 1), end)), count


@cache
def boxes_kernel(config: BoxConfig) -> GeneratedKernel:
    """Generate a ``transpose`` or ``copy`` kernel: ``D[modes, batch] = S[modes, batch]``.

    Parameters of the kernel: pointers S, D; the extents of modes that are cut; the strides in S of the modes outside of its runs,
    then in D; the extents of the batch modes, then the strides of S there, then of D; the number of boxes.
    """
    item, element = config.item, f"b{8 * config.item}"
    k = KernelBuilder(config.name, config.threads, wide=config.wide,
                      summary=f"D = S by boxes of {config.box} elements of {item} bytes, smallest stride in D first")
    source, target = _Side(k, config, "S", config.source), _Side(k, config, "D", config.target)
    extents = {q: k.integer(f"N{q}") for q in config.cut}
    source.take_strides()
    target.take_strides()
    batch, batch_s, batch_d = batch_modes(k, config.modes, config.source.vector, config.target.vector)
    boxes = k.integer("boxes")

    held = config.held
    sE = k.shared("sE", element, Layout(config.elements))
    coming, going = list(source.mine()), list(target.mine())
    places = [[k.let(f"place_{n}_{e}", held(v.position + e)) for e in range(config.target.vector)] for n, v in enumerate(going)]

    tiles = {q: k.let(f"tiles_{q}", ceil_div(n, config.box[q])) for q, n in extents.items()}
    first, step = k.block_index("first_box", "x"), k.grid_size("blocks", "x")
    with k.loop("box", boxes, start=first, step=step, unroll=False) as box:
        starts: dict[int, IntLike] = {}
        rest: IntLike = box
        for q in config.cut:
            starts[q] = k.let(f"start_{q}", rest % tiles[q] * config.box[q])
            rest = k.let(f"above_{q}", rest // tiles[q])
        index = idx2crd(rest, batch) if batch else ()
        firsts = [side.first(starts, sum((c * s for c, s in zip(index, steps, strict=True)), 0))
                  for side, steps in ((source, batch_s), (target, batch_d))]
        limits = {q: k.let(f"limit_{q}", minimum(extents[q] - starts[q], config.box[q])) for q in config.cut}
        _box_in(k, config, source, firsts[0], coming, limits, sE.engine)
        k.barrier()
        _box_out(k, config, target, firsts[1], going, places, limits, sE.engine)
        k.barrier()
    return k.build()


def _box_in(k: KernelBuilder, config: BoxConfig, side: _Side, first: IntLike, coming: list[_Mine], limits: dict[int, IntLike],
            shared: Pointer) -> None:
    k.comment("The box in, in the order of the source")
    vector, element = side.side.vector, f"b{8 * config.item}"
    together = config.item * vector >= _ASYNCHRONOUS
    held = None if together else k.registers("tSrS", element, Layout((vector, len(coming))))
    found = [side.existing(mine, limits) for mine in coming]
    for n, (mine, (exists, _)) in enumerate(zip(coming, found, strict=True)):
        with k.when(exists):
            there = Tensor(side.pointer + (first + mine.offset), Layout(vector))
            if held is None:
                k.copy(CpAsync(vector), there, Tensor(shared + mine.position, Layout(vector)))
            else:
                k.copy(Vector(vector), there, held[None, n])
    for n, (mine, (exists, count)) in enumerate(zip(coming, found, strict=True)):
        if held is not None:
            with k.when(exists):
                k.copy(Vector(vector), held[None, n], Tensor(shared + mine.position, Layout(vector)))
        for e in _alone(k, vector, count):
            single = k.registers("tSr1", element, Layout(1))
            k.copy(Vector(1), Tensor(side.pointer + (first + mine.offset + e), Layout(1)), single)
            k.copy(Vector(1), single, Tensor(shared + (mine.position + e), Layout(1)))
    if together:
        k.commit()
        k.wait(0)


def _box_out(k: KernelBuilder, config: BoxConfig, side: _Side, first: IntLike, going: list[_Mine], places: list[list[IntLike]],
             limits: dict[int, IntLike], shared: Pointer) -> None:
    k.comment("The box out, in the order of the target")
    vector, element = side.side.vector, f"b{8 * config.item}"
    for mine, of_vector in zip(going, places, strict=True):
        exists, count = side.existing(mine, limits)
        with k.when(exists):
            held = k.registers(f"tDrD_{mine.number}", element, Layout(vector))
            for e, place in enumerate(of_vector):
                k.copy(Vector(1), Tensor(shared + place, Layout(1)), Tensor(held.engine + e, Layout(1)))
            k.copy(Vector(vector), held, Tensor(side.pointer + (first + mine.offset), Layout(vector)))
        for e in _alone(k, vector, count):
            single = k.registers("tDr1", element, Layout(1))
            k.copy(Vector(1), Tensor(shared + of_vector[e], Layout(1)), single)
            k.copy(Vector(1), single, Tensor(side.pointer + (first + mine.offset + e), Layout(1)))


def _alone(k: KernelBuilder, vector: int, count: IntLike | None) -> Iterator[int]:
    """The elements of a vector of which only so many exist, one after the other."""
    if count is not None:
        with k.when(less(count, vector)):
            for e in range(vector - 1):
                with k.when(less(e, count)):
                    yield e
