"""Tiles whose rows begin anywhere in words of 4 bytes, copied by the words that cover them.

Elements of 2 bytes in rows of an odd pitch begin at words in every other row. Two rows together are whole words, so the words
that cover a tile are a layout too, in which rows come in pairs: ``(word, (2, pair))``. In shared memory a row keeps the place in
its first word that it has in global memory, so that asynchronous copies move words; what loads fragments knows how early that word
begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ..layout import Layout, Tensor, counting_iterator, domain_offset, make_layout, rank, size
from ..layout.symbolic import Expr, IntLike, all_of, bits_of, is_static, less, maximum, minimum, select
from .builder import Guard, KernelBuilder
from .copies import refuse_predicates
from .engine import CodegenError, Pointer, static_extents
from .tiled import TiledCopy

__all__ = ["CoveredCopy", "CoveredTiles", "CoveringAsync", "CutWords", "JoinPairs"]

_WORD = 4                            # bytes of a word
_PACKED = 2                          # elements of it
_APART = 4                           # words modulo 8 between rows, so that 8 rows of 4 words meet every bank once


@dataclass(frozen=True)
class CoveringAsync:
    """Copies of words that cover runs of 2-byte elements, which threads do not wait for (``cp.async``): only what exists is read,
    what is beyond the end of a run is zero. What is before its beginning in the first word is memory, but not of the run.

    The source and the target are words, guarded by the coordinates at which their runs begin.

    Attributes
    ----------
    along : int
        The coordinate that counts along runs.
    begin : Tensor
        The element of its run with which each word begins, in the modes of the source: -1 where a run begins inside of its first.

    Examples
    --------
    >>> from cuteblas.codegen.builder import Guard, KernelBuilder
    >>> from cuteblas.codegen.covering import CoveringAsync
    >>> from cuteblas.layout import Layout, Tensor, counting_iterator, make_identity_tensor, make_layout
    >>> k = KernelBuilder("example", threads=32)
    >>> S, sS = Tensor(k.pointer("S", "b32"), Layout(1)), k.shared("sS", "b32", Layout(1))
    >>> at = Guard(make_identity_tensor((1,)), (k.integer("n"),))
    >>> k.copy(CoveringAsync(0, Tensor(counting_iterator(-1), Layout(1, 0))), S, sS, guard=at)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::cp_async_part<1>(&sS[0], &S[0], cb::min(n * 2 + 2, 4));'
    """

    along: int
    begin: Tensor

    def copy(self, k: KernelBuilder, source: Tensor, target: Tensor, guard: Guard | None, when: Expr | bool) -> None:
        """Write the copies.

        Raises
        ------
        CodegenError
            If they are not words from global to shared memory, or no guard says what exists.
        """
        spaces = source.engine.space, target.engine.space
        if spaces != ("gmem", "smem") or any(x.engine.dtype.bytes != _WORD for x in (source, target)):
            raise CodegenError(f"words of {_WORD} bytes are copied from global to shared memory, got {source} to {target}")
        if guard is None or guard.halo or guard.triangle or static_extents(source) != static_extents(target):
            raise CodegenError(f"the ends of runs are those of a guard, got {guard} for {source.layout} to {target.layout}")
        with k.loops(static_extents(source)) as at:
            coordinates = guard.coordinates(*at)
            exists, nbytes = when, _WORD
            for mode, (i, end) in enumerate(zip(coordinates, guard.extents, strict=True)):
                if mode == self.along:
                    nbytes = maximum(minimum((end - i - self.begin(*at)) * (_WORD // _PACKED), _WORD), 0)
                else:
                    exists = all_of(exists, less(i, end))
            s, d = source(*at), target(*at)
            k.count(s, 1, "cp_async", source)
            k.count(d, 1, "cp_async", target)
            k.do("cp_async_part", d, s, nbytes if exists is True else select(exists, nbytes, 0), of=1)


@dataclass(frozen=True)
class CutWords:
    """Loads from shared memory of words that begin somewhere in those of the source: each from two neighbours.

    Attributes
    ----------
    bits : IntLike
        How many bits later they begin.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.covering import CutWords
    >>> from cuteblas.layout import Layout
    >>> k = KernelBuilder("example", threads=32)
    >>> sS, r = k.shared("sS", "b32", Layout(9)), k.registers("r", "b32", Layout(1))
    >>> k.copy(CutWords(16), sS(k.thread % 8), r(0))
    >>> k.build().body.splitlines()[-2].strip()
    'cb::load_shared_between(r[0], &sS[tid & 7], 16);'
    """

    bits: IntLike

    def copy(self, k: KernelBuilder, source: Tensor, target: Tensor, guard: Guard | None, when: Expr | bool) -> None:
        """Write the loads.

        Raises
        ------
        CodegenError
            If they are not words from shared memory to registers.
        """
        refuse_predicates(self, guard, when)
        _expect_loads(source, target)
        with k.loops(static_extents(source)) as at:
            word = source(*at)
            k.count(word, 1, "load_shared", source)
            k.do("load_shared_between", target(*at), word, self.bits)


@dataclass(frozen=True)
class JoinPairs:
    """Loads from shared memory of single 2-byte elements, two of which, mode 0 of the source, become a word.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.covering import JoinPairs
    >>> from cuteblas.layout import Layout
    >>> k = KernelBuilder("example", threads=32)
    >>> sS, r = k.shared("sS", "b16", Layout((2, 1), (72, 1))), k.registers("r", "b32", Layout(1))
    >>> k.copy(JoinPairs(), sS, r)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::load_shared_pair(r[0], &sS[0], &sS[72]);'
    """

    def copy(self, k: KernelBuilder, source: Tensor, target: Tensor, guard: Guard | None, when: Expr | bool) -> None:
        """Write the loads.

        Raises
        ------
        CodegenError
            If they are not pairs of 2-byte elements from shared memory to words in registers.
        """
        refuse_predicates(self, guard, when)
        packed, *rest = static_extents(source)
        if packed != _PACKED or source.engine.dtype.bytes * packed != _WORD:
            raise CodegenError(f"a word has {_PACKED} elements, got {source}")
        _expect_loads(source, target)
        with k.loops(rest) as at:
            pair = tuple(source(i, *at) for i in range(packed))
            for element in pair:
                k.count(element, 1, "load_shared", source)
            k.do("load_shared_pair", target(*at), *pair)


def _expect_loads(source: Tensor, target: Tensor) -> None:
    if (source.engine.space, target.engine.space) != ("smem", "rmem") or target.engine.dtype.bytes != _WORD:
        raise CodegenError(f"words of {_WORD} bytes are loaded from shared memory into registers, got {source} to {target}")


@dataclass(frozen=True)
class CoveredCopy:
    """The threads that move the words of covered tiles: along rows first, all words but the last one of each; then the last ones.

    Attributes
    ----------
    run, rows, threads : int
        Elements of a row, rows of a tile, threads of a block.

    Raises
    ------
    CodegenError
        If the rows do not divide among the threads.

    Examples
    --------
    >>> from cuteblas.codegen.covering import CoveredCopy
    >>> [print(copy.tv, copy.tile) for copy in CoveredCopy(64, 64, 128).passes]
    (128,(1,1)):(1,(1,32)) (32, 4)
    (64,(1,1)):(1,(1,1)) (1, 64)
    [None, None]
    """

    run: int
    rows: int
    threads: int

    def __post_init__(self) -> None:
        if any(self.rows % copy.tile[1] for copy in self.passes):
            raise CodegenError(f"rows do not divide among the threads that copy their words, got {self}")

    @property
    def passes(self) -> tuple[TiledCopy, TiledCopy]:
        """Both copies."""
        lanes = gcd(self.run // _PACKED, self.threads)
        return (TiledCopy(Layout((lanes, self.threads // lanes)), (1, 1)),
                TiledCopy(Layout((1, min(self.rows, self.threads))), (1, 1)))

    def partition(self, tensor: Tensor, thread: IntLike) -> list[Tensor]:
        """What a thread moves of (word, row, ...) in each."""
        whole, parts = self.run // _PACKED, []
        for copy, first, words in zip(self.passes, (0, whole), (whole, 1), strict=True):
            offset = domain_offset((first, *(0,) * (rank(tensor.layout) - 1)), tensor)
            part = Tensor(offset.engine, make_layout(Layout(words, tensor.layout[0].stride), *list(tensor.layout)[1:]))
            parts.append(copy.partition(part, thread))
        return parts

    def busy(self, thread: IntLike) -> list[Expr | bool]:
        """Whether a thread moves anything in each."""
        return [less(thread, size(copy.threads)) for copy in self.passes]


@dataclass(frozen=True)
class CoveredTiles:
    """Tiles of 2-byte elements in global memory, ``(run, row, tile)``, as the words that cover their rows.

    Attributes
    ----------
    words : Tensor
        (word, row, tile): rows come in pairs, the word mode has one more than a run that begins at a word.
    phases : tuple of IntLike
        How many elements before its row the first word of an even and of an odd row begins.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.covering import CoveredTiles
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> A = Tensor(k.pointer("A", "float16"), Layout((64, 16, 4), (1, k.integer("ld"), 64)))
    >>> tiles = CoveredTiles.of(k, "A", A)
    >>> print(tiles.words.layout, tiles.held(2))
    (33,(2,8),4):(1,(A_word_1,ld),32) (33,16,2):(1,36,576)
    """

    words: Tensor
    phases: tuple[IntLike, IntLike]

    @classmethod
    def of(cls, k: KernelBuilder, name: str, tiles: Tensor) -> CoveredTiles:
        """The words of tiles in global memory.

        Parameters
        ----------
        k : KernelBuilder
            The kernel.
        name : str
            Of the operand; what is named here begins with it.
        tiles : Tensor
            (run, row, tile) with stride 1 along runs, an even number of elements of each and of rows, and an even stride of tiles.

        Raises
        ------
        CodegenError
            If the tiles are not like this.
        """
        layout, pointer = tiles.layout, tiles.engine
        (run, rows), (unit, pitch, step) = (size(layout[i]) for i in range(2)), (layout[i].stride for i in range(3))
        even = is_static(run) and is_static(rows) and run % _PACKED == rows % _PACKED == bits_of(step) % _PACKED == 0
        if not isinstance(pointer, Pointer) or _PACKED * pointer.dtype.bytes != _WORD or unit != 1 or not even:
            raise CodegenError(f"words cover tiles of runs and rows of 2-byte elements, an even number of each, got {tiles}")
        lines = k.lines(f"{name}_words", pointer, f"b{8 * _WORD}", _WORD)
        places = [k.let(f"{name}_place_{i}", lines.place(tiles(0, i, 0))) for i in range(_PACKED)]
        first, second = (k.let(f"{name}_word_{i}", place // _PACKED) for i, place in enumerate(places))
        phases = k.let(f"{name}_early_0", places[0] % _PACKED), k.let(f"{name}_early_1", places[1] % _PACKED)
        pairs = (_PACKED, rows // _PACKED)
        words = make_layout(Layout(run // _PACKED + 1), Layout(pairs, (k.let(f"{name}_step", second - first), pitch)),
                            Layout(layout[2].shape, step // _PACKED))
        return cls(Tensor(lines.words + first, words), phases)

    @property
    def run(self) -> int:
        """Elements of a run."""
        return (size(self.words.layout[0]) - 1) * _PACKED

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return size(self.words.layout[1])

    @property
    def pitch(self) -> int:
        """Words from a row to the next in shared memory: 8 rows of 4 words, or 4 pairs of rows of 5, meet every bank once."""
        return self.run // _PACKED + _APART

    @property
    def early(self) -> Tensor:
        """How many elements before its row the first word of the row begins, in the modes of :attr:`words`."""
        first, second = self.phases
        words, rows, tiles = self.words.layout.shape
        return Tensor(counting_iterator(first), make_layout(Layout(words, 0), Layout(rows, (second - first, 0)), Layout(tiles, 0)))

    @property
    def begin(self) -> Tensor:
        """The element of its row with which each word begins."""
        first, second = self.phases
        words, rows, tiles = self.words.layout.shape
        layout = make_layout(Layout(words, _PACKED), Layout(rows, (first - second, 0)), Layout(tiles, 0))
        return Tensor(counting_iterator(-first), layout)

    def coordinates(self, identity: Tensor) -> Tensor:
        """The coordinates of the first elements of rows in the same modes, from those of (run, row, tile)."""
        _along, row, tile = (identity.layout[i] for i in range(3))
        pairs = Layout((_PACKED, self.rows // _PACKED), (row.stride, row.stride * _PACKED))
        return Tensor(identity.engine, make_layout(Layout(self.run // _PACKED + 1, row.stride * 0), pairs, tile))

    def held(self, stages: int) -> Layout:
        """(word, row, stage) in shared memory."""
        return Layout((self.run // _PACKED + 1, self.rows, stages), (1, self.pitch, self.pitch * self.rows))

    def held_elements(self, pointer: Pointer, stages: int) -> Tensor:
        """(element of a run, row, stage) there, where ``pointer`` is to elements."""
        pitch, (first, second) = _PACKED * self.pitch, self.phases
        pairs = Layout((_PACKED, self.rows // _PACKED), (pitch + second - first, _PACKED * pitch))
        return Tensor(pointer + first, make_layout(Layout(self.run), pairs, Layout(stages, pitch * self.rows)))

    def bits(self, early: IntLike) -> IntLike:
        """Bits of a word before its row begins."""
        return 8 * _WORD // _PACKED * early
