"""Tiled copies and matrix products: the elements of each thread, as thread-value layouts.

Such a layout maps (thread, value) to a position in a tile, colexicographically. It is composed
with a tile and sliced by a thread: ``(values, rest...)``. Every position is covered exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar

from ..layout import (
    E,
    Figure,
    Layout,
    ScaledBasis,
    Tensor,
    composition,
    flatten,
    make_layout,
    mma_picture,
    right_inverse,
    size,
    tv_picture,
    zipped_divide,
)
from ..layout.symbolic import IntLike
from .engine import CodegenError

__all__ = ["TiledCopy", "TiledMma", "partition", "raked_tv"]


@lru_cache(256)
def raked_tv(threads: Layout, values: tuple[int, ...]) -> tuple[Layout, tuple[int, ...]]:
    """The thread-value layout in which each thread owns a dense tile of ``values``, and the tile
    that all of them cover.

    Parameters
    ----------
    threads : Layout
        Maps a thread's coordinate (one top-level mode per mode of the tile) to its number; a
        bijection.
    values : tuple of int
        Extents of the tile that each thread owns, one for each mode.

    Returns
    -------
    tv : Layout
        ``((thread), (value modes))`` -> position in the tile.
    tile : tuple of int
        Extents of the tile: threads times values, mode by mode.

    Notes
    -----
    Position of coordinate ``(t, v)`` in a mode is ``v + values * t``, as in CuTe's
    ``raked_product``.

    Raises
    ------
    CodegenError
        If ``threads`` is not a bijection, so that the tile would not be covered exactly once.

    Examples
    --------
    >>> from cuteblas.codegen.tiled import raked_tv
    >>> from cuteblas.layout import Layout
    >>> tv, tile = raked_tv(Layout((2, 4)), (4, 1))
    >>> print(tv, tile)
    (8,(4,1)):(4,(1,8)) (8, 4)
    """
    extents = tuple(size(threads[i]) for i in range(len(threads)))
    tile = tuple(t * v for t, v in zip(extents, values, strict=True))
    steps = tuple(prod(tile[:i]) for i in range(len(tile)))
    # A thread's colexicographic number (the domain of `threads`) -> the position of the first value
    # that it owns.
    corner = Layout(extents, tuple(s * v for s, v in zip(steps, values, strict=True)))
    inverse = right_inverse(threads)
    if size(inverse) != size(threads):
        raise CodegenError(
            f"the thread layout {threads} is not a bijection onto 0..{size(threads) - 1}"
        )
    return make_layout(composition(corner, inverse), Layout(values, steps)), tile


def partition(tensor: Tensor, tile: tuple[int, ...], tv: Layout, thread: IntLike) -> Tensor:
    """One thread's part of a tensor: shape ``(values, rest_0, rest_1, ...)``.

    Parameters
    ----------
    tensor : Tensor
        The tensor, with at least as many modes as ``tile``; further modes become rest modes as they
        are.
    tile : tuple of int
        Extents of the tile that the thread-value layout covers.
    tv : Layout
        ``((thread), (values))`` -> position in the tile.
    thread : IntLike
        The thread's number.

    Returns
    -------
    Tensor
        The part.

    Examples
    --------
    >>> from cuteblas.codegen.tiled import partition, raked_tv
    >>> from cuteblas.layout import Layout, Tensor, counting_iterator
    >>> tv, tile = raked_tv(Layout((2, 4)), (4, 1))
    >>> part = partition(Tensor(counting_iterator(), Layout((8, 8))), tile, tv, 3)
    >>> print(part.layout)
    ((4,1),1,2):((1,0),0,32)
    """
    def by_thread(layout: Layout) -> Layout:
        tiled = zipped_divide(layout, tile)
        return make_layout(composition(tiled[0], tv), tiled[1])

    return tensor.map_domain(by_thread)[(thread, None), (None,) * tensor.rank]


class Pictured:
    """Has a picture, which a notebook shows."""

    def _repr_svg_(self: Any) -> str:
        return self.picture().svg()


class Partitions:
    """The parts of operands that threads multiply: ``tv_a``, ``tv_b`` and ``tv_c`` map ((thread),
    (values)) to a position in an (M, ``depth``), (N, ``depth``) and (M, N) ``tile``."""

    depth: ClassVar[int] = 1

    @cached_property
    def tv_a(self: Any) -> Layout:
        """((thread), (values)) -> position in the (M, depth) tile of A."""
        return self._operand(0)

    @cached_property
    def tv_b(self: Any) -> Layout:
        """((thread), (values)) -> position in the (N, depth) tile of B."""
        return self._operand(1)

    def partition_a(self: Any, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of A (M, K, ...) that a thread multiplies: ``(values, rest_m, rest_k, ...)``."""
        return partition(tensor, (self.tile[0], self.depth), self.tv_a, thread)

    def partition_b(self: Any, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of B (N, K, ...) that a thread multiplies: ``(values, rest_n, rest_k, ...)``."""
        return partition(tensor, (self.tile[1], self.depth), self.tv_b, thread)

    def partition_c(self: Any, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of C (M, N) that ``thread`` owns: ``(values, rest_m, rest_n)``."""
        return partition(tensor, self.tile, self.tv_c, thread)


@dataclass(frozen=True)
class TiledCopy(Pictured):
    """A copy of a tile by the threads of a block; each thread moves dense tiles of ``values``.

    Attributes
    ----------
    threads : Layout
        Thread coordinate in the tile -> thread number.
    values : tuple of int
        Extents of the tile that each thread moves at a time.

    Examples
    --------
    >>> from cuteblas.codegen.tiled import TiledCopy
    >>> from cuteblas.layout import Layout, Tensor, counting_iterator
    >>> copy = TiledCopy(Layout((8, 16)), values=(4, 1))
    >>> copy.tile
    (32, 16)
    >>> part = copy.partition(Tensor(counting_iterator(), Layout((64, 16))), 9)
    >>> [part((i, 0), 1, 0) for i in range(4)]
    [100, 101, 102, 103]
    """

    threads: Layout
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        _ = self._raked                                  # refuses threads that are not a bijection

    @cached_property
    def _raked(self) -> tuple[Layout, tuple[int, ...]]:
        return raked_tv(self.threads, self.values)

    @property
    def tv(self) -> Layout:
        """``((thread), (values))`` -> position in :attr:`tile`."""
        return self._raked[0]

    @property
    def tile(self) -> tuple[int, ...]:
        """Extents of the tile that one pass of all threads moves."""
        return self._raked[1]

    def passes(self, tile: tuple[int, ...], of: str) -> tuple[int, ...]:
        """How often all threads move something to cover a tile of it, along each mode.

        Raises
        ------
        CodegenError
            If the tile does not divide into what they move at a time.
        """
        found = [divmod(extent, each) for extent, each in zip(tile, self.tile, strict=True)]
        if any(rest for _times, rest in found):
            raise CodegenError(f"the tile {tile} of {of} does not divide into {self.tile}")
        return tuple(times for times, _rest in found)

    def picture(self) -> Figure:
        """The tile, each element as the thread and the value that move it."""
        return tv_picture(self.tv, self.tile)

    def partition(self, tensor: Tensor, thread: IntLike) -> Tensor:
        """The part of ``tensor`` that ``thread`` moves, shape ``(values, rest...)``."""
        return partition(tensor, self.tile, self.tv, thread)


@dataclass(frozen=True)
class TiledMma(TiledCopy, Partitions):
    """A block's matrix multiplication on fused multiply-adds: each thread owns dense (m, n) tiles
    of C, as if it copied them.

    Attributes
    ----------
    threads : Layout
        ``(tm, tn)`` -> thread number.
    values : tuple of int
        Extents (vm, vn) of the tile of C that each thread owns at a time.

    Examples
    --------
    >>> from cuteblas.codegen.tiled import TiledMma
    >>> from cuteblas.layout import Layout
    >>> mma = TiledMma(Layout((16, 16)), (4, 4))
    >>> mma.tile
    (64, 64)
    """

    values: tuple[int, int]

    @property
    def tv_c(self) -> Layout:
        """``((thread), (vm, vn))`` -> position in the (M, N) tile."""
        return self.tv

    def _operand(self, mode: int) -> Layout:
        """``((thread), (values, 1))`` -> position along M (0) or N (1)."""
        extents = tuple(size(self.threads[i]) for i in range(2))
        coordinate = composition(Layout(extents, (E(0), E(1))), right_inverse(self.threads))
        shape, stride = flatten(coordinate.shape), flatten(coordinate.stride)
        step = self.values[mode]
        projected = tuple(step * s.value if isinstance(s, ScaledBasis) and s.modes == (mode,) else 0
                          for s in stride)
        return make_layout(Layout(shape, projected), Layout((step, 1), (1, 0)))

    def picture(self) -> Figure:
        """A on the left, B above, C in the corner: the threads that multiply, and those that own
        C."""
        m, n = self.tile
        return mma_picture(self.tv_a, self.tv_b, self.tv_c, (m, n, 1))
