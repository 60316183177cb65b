"""Tiles whose rows begin anywhere in words of 4 bytes, copied by the words that cover them.

Two rows of 2-byte elements are whole words, so covering words are a layout, ``(word, (2, pair))``.
A row keeps its place in its first word in shared memory, so that asynchronous copies move words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ..layout import Layout, Tensor, counting_iterator, make_layout, size
from ..layout.symbolic import IntLike, bits_of, is_static
from .builder import CopyAtom, KernelBuilder
from .copies import expect_words
from .engine import CodegenError, Pointer, static_extents
from .tiled import TiledCopy

__all__ = ["CoveredTiles", "CpAsyncPart", "CutWords", "JoinPairs"]

_WORD = 4              # bytes of a word
_PACKED = 2            # elements of it
_APART = 4             # words modulo 8 between rows, so that 8 rows of 4 words meet every bank once


@dataclass(frozen=True)
class CpAsyncPart(CopyAtom):
    """Asynchronous copies of words from global to shared memory (``cp.async``) that read the first
    bytes and fill with zeros.

    Attributes
    ----------
    nbytes : IntLike
        Bytes to read, a multiple of 2.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.covering import CpAsyncPart
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, sS = Tensor(k.pointer("S", "b32"), Layout(1)), k.shared("sS", "b32", Layout(1))
    >>> k.copy(CpAsyncPart(2), S, sS)
    >>> k.build().body.splitlines()[-2].strip()
    'cb::cp_async_part<1>(&sS[0], &S[0], 2);'
    """

    nbytes: IntLike

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the copies.

        Raises
        ------
        CodegenError
            If they are not words from global to shared memory.
        """
        expect_words("gmem", source, "smem", target, source, target)
        with k.loops(static_extents(source)) as at:
            k.do("cp_async_part", target(*at), source(*at), self.nbytes, of=1)


@dataclass(frozen=True)
class CutWords(CopyAtom):
    """Loads of unaligned words from shared memory: each is cut from two neighbouring words of the
    source.

    Attributes
    ----------
    bits : IntLike
        Bits from the start of a source word to the start of the loaded word.

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

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the loads.

        Raises
        ------
        CodegenError
            If they are not words from shared memory to registers.
        """
        expect_words("smem", source, "rmem", target, target)
        with k.loops(static_extents(source)) as at:
            word = source(*at)
            k.count(word, 1, "load_shared")
            k.do("load_shared_between", target(*at), word, self.bits)


@dataclass(frozen=True)
class JoinPairs(CopyAtom):
    """Loads of pairs of 2-byte elements from shared memory; each pair, mode 0 of the source,
    becomes a word.

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

    def write(self, k: KernelBuilder, source: Tensor, target: Tensor) -> None:
        """Write the loads.

        Raises
        ------
        CodegenError
            If they are not pairs of 2-byte elements from shared memory to words in registers.
        """
        packed, *rest = static_extents(source)
        if packed != _PACKED or source.engine.dtype.bytes * packed != _WORD:
            raise CodegenError(f"a word has {_PACKED} elements, got {source}")
        expect_words("smem", source, "rmem", target, target)
        with k.loops(rest) as at:
            pair = tuple(source(i, *at) for i in range(packed))
            for element in pair:
                k.count(element, 1, "load_shared")
            k.do("load_shared_pair", target(*at), *pair)


@dataclass(frozen=True)
class CoveredTiles:
    """Tiles of 2-byte elements in global memory, ``(run, row, tile)``, seen as the words that cover
    their rows.

    Attributes
    ----------
    words : Tensor
        (word, row, tile): rows come in pairs; the word mode has one word more than a run that
        begins at a word.
    phases : tuple of IntLike
        Elements from the start of the first word to the start of its row, for even and for odd
        rows.

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
            The name of the operand, a prefix of all names that this adds.
        tiles : Tensor
            (run, row, tile) with stride 1 along runs, an even number of elements of each and of
            rows, and an even stride of tiles.

        Raises
        ------
        CodegenError
            If the tiles do not have these strides or extents.
        """
        layout, pointer = tiles.layout, tiles.engine
        (run, rows), (unit, pitch, step) = (size(layout[i]) for i in range(2)), (layout[i].stride for i in range(3))
        even = is_static(run) and is_static(rows) and run % _PACKED == rows % _PACKED == bits_of(step) % _PACKED == 0
        if not isinstance(pointer, Pointer) or _PACKED * pointer.dtype.bytes != _WORD or unit != 1 or not even:
            raise CodegenError(
                f"words cover tiles of runs and rows of 2-byte elements, an even number of each, got {tiles}"
            )
        lines = k.lines(f"{name}_words", pointer, f"b{8 * _WORD}", _WORD)
        places = [k.let(f"{name}_place_{i}", lines.place(tiles(0, i, 0))) for i in range(_PACKED)]
        first, second = (k.let(f"{name}_word_{i}", place // _PACKED)
                         for i, place in enumerate(places))
        phases = k.let(f"{name}_early_0", places[0] % _PACKED), k.let(f"{name}_early_1",
                                                                      places[1] % _PACKED)
        pairs = (_PACKED, rows // _PACKED)
        words = make_layout(Layout(run // _PACKED + 1),
                            Layout(pairs, (k.let(f"{name}_step", second - first), pitch)),
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
        """Words from a row to the next in shared memory: 8 rows of 4 words, or 4 pairs of rows of
        5, meet every bank once."""
        return self.run // _PACKED + _APART

    def _counted(self, word: int, even: IntLike, odd: IntLike) -> Tensor:
        """Numbers in the modes of :attr:`words`, ``word`` more from a word to the next."""
        words, rows, tiles = self.words.layout.shape
        return Tensor(counting_iterator(even),
                      make_layout(Layout(words, word), Layout(rows, (odd - even, 0)),
                                  Layout(tiles, 0)))

    @property
    def number(self) -> Tensor:
        """The number of a word in its row, in the modes of :attr:`words`."""
        return self._counted(1, 0, 0)

    @property
    def early(self) -> Tensor:
        """How many elements before its row the first word of the row begins."""
        return self._counted(0, *self.phases)

    @property
    def begin(self) -> Tensor:
        """The element of its row with which a word begins: -1 where the row begins inside of its
        first word."""
        return self._counted(_PACKED, *(-phase for phase in self.phases))

    def end(self, k: KernelBuilder, name: str, elements: IntLike) -> Tensor:
        """The number of the first word of a row of which not all is within so many elements."""
        return self._counted(0, *(k.let(f"{name}_{i}", (elements + phase) // _PACKED)
                                  for i, phase in enumerate(self.phases)))

    def coordinates(self, identity: Tensor) -> Tensor:
        """The coordinates of the first elements of rows, in the modes of :attr:`words`, from those
        of (run, row, tile)."""
        _along, row, tile = (identity.layout[i] for i in range(3))
        pairs = Layout((_PACKED, self.rows // _PACKED), (row.stride, row.stride * _PACKED))
        return Tensor(identity.engine, make_layout(Layout(self.run // _PACKED + 1, row.stride * 0),
                                                   pairs, tile))

    def partition(self, tensor: Tensor, threads: int, thread: IntLike) -> Tensor:
        """A thread's part of (word, row, ...) without the last word of each row: neighbours along
        rows first.

        Raises
        ------
        CodegenError
            If rows do not divide among the threads.
        """
        words = self.run // _PACKED
        lanes = gcd(words, threads)
        if self.rows % (threads // lanes):
            raise CodegenError(
                f"{self.rows} rows do not divide among {threads} threads, {lanes} along each"
            )
        whole = tensor.map_domain(lambda layout: make_layout(Layout(words, layout[0].stride),
                                                             *list(layout)[1:]))
        return TiledCopy(Layout((lanes, threads // lanes)), (1, 1)).partition(whole, thread)

    def held(self, stages: int) -> Layout:
        """(word, row, stage) in shared memory."""
        return Layout((self.run // _PACKED + 1, self.rows, stages),
                      (1, self.pitch, self.pitch * self.rows))

    def held_elements(self, pointer: Pointer, stages: int) -> Tensor:
        """(element of a run, row, stage) there, where ``pointer`` is to elements."""
        pitch, (first, second) = _PACKED * self.pitch, self.phases
        pairs = Layout((_PACKED, self.rows // _PACKED), (pitch + second - first, _PACKED * pitch))
        return Tensor(pointer + first, make_layout(Layout(self.run), pairs,
                                                   Layout(stages, pitch * self.rows)))

    def bits(self, early: IntLike) -> IntLike:
        """Bits of a word before its row begins."""
        return 8 * _WORD // _PACKED * early
