"""Copies on the host that arrange elements anew, by blocks that caches hold, in threads.

NumPy walks along the target, and reads a cache line for each element where source and target
differ. A block's lines stay in the cache; if its addresses meet in few sets or many pages, it is
first copied to scratch memory in the source's order. NumPy's copies release the GIL.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .host_memory import Scratch

__all__ = ["LEAST", "WORDS", "Method", "copied", "copied_to", "method"]

WORDS = "numpy: in blocks"
"""The name of such copies in ``stats``."""

LEAST = 1 << 20                    # bytes; smaller arrays are NumPy's
_KINDS = "biufcmM"                 # elements that are bytes and nothing else
_BLOCK = 1 << 20                   # bytes of a block
_EXTENT = 512                      # elements that are neighbours in the target, and in the source,
                                   # in a block
_LINE, _LINES = 64, 1 << 14        # bytes of a line, and how many the cache holds for long
_PAGE, _PAGES = 1 << 12, 1 << 11   # the same of pages
_PERIOD = 1 << 17                  # bytes after which addresses meet in a set of the cache
_PLAIN, _PLAIN_CORES = 1 << 26, 4  # bytes and cores from which copies that caches hold are made in
                                   # threads
_RUN = 256                         # bytes that are neighbours in the source, at least, where a
                                   # block is staged
_PAD = 64                          # bytes between rows of scratch memory, which then meet in all
                                   # sets
_FOR_A_THREAD = 1 << 22            # bytes that repay one
_MOST_THREADS = 16
_MOST_AXES = 6                          # of a copy in blocks

_Index = tuple[slice, ...]
_Mode = tuple[int, ...]                 # extent, and strides in the target and in the source


def copied(a: np.ndarray, order: Any) -> np.ndarray | None:
    """A copy of a plain array as ``numpy.copy`` makes it; ``None`` if NumPy's own is as quick."""
    if a.nbytes < LEAST or a.dtype.kind not in _KINDS:
        return None
    new = np.empty_like(a, order=order)
    return new if copied_to(new, a) else None


def copied_to(dst: np.ndarray, src: np.ndarray) -> bool:
    """``dst[...] = src`` of plain arrays without overlap; ``False`` if NumPy is as quick."""
    found = method(dst.shape, dst.strides, src.strides, dst.dtype)
    if found is not None:
        found.run(dst, src)
    return found is not None


@dataclass(frozen=True)
class Method:
    """How a copy is made: ``modes`` are (extent, strides) from the target's outermost; ``staged``
    blocks of ``extents`` go through scratch memory."""

    modes: tuple[_Mode, ...]
    extents: tuple[int, ...]
    staged: bool
    threads: int

    def run(self, dst: np.ndarray, src: np.ndarray) -> None:
        shape, *strides = zip(*self.modes, strict=True)
        x, y = (as_strided(array, shape, steps)
                for array, steps in zip((dst, src), strides, strict=True))

        def work(blocks: Iterator[_Index]) -> None:
            memory = Scratch.taken() if self.staged else None
            scratch = None if memory is None else _scratch(memory, y, self.extents)
            for block in blocks:
                source = y[block]
                if scratch is not None:
                    part = scratch[tuple([slice(n) for n in source.shape])]
                    np.copyto(part, source)
                    source = part
                np.copyto(x[block], source)
            if memory is not None:
                memory.give_back()

        ranges = [[slice(i, i + extent) for i in range(0, n, extent)]
                  for n, extent in zip(shape, self.extents, strict=True)]
        _shared(work, iter(list(product(*ranges))), self.threads)


def method(shape: Sequence[int], dst: Sequence[int], src: Sequence[int],
           dtype: np.dtype) -> Method | None:
    """How an array is copied between strides in bytes; ``None`` if by NumPy."""
    if prod(shape) * dtype.itemsize < LEAST or dtype.kind not in _KINDS:
        return None
    return _method(tuple(shape), tuple(dst), tuple(src), dtype.itemsize, _cores())


@lru_cache(maxsize=1024)
def _method(shape: tuple[int, ...], dst: tuple[int, ...], src: tuple[int, ...], itemsize: int,
            cores: int) -> Method | None:
    """The method on so many cores; ``None`` if NumPy makes the copy."""
    nbytes = prod(shape) * itemsize
    from ..planning.problem import merged

    modes = tuple(sorted(merged(tuple(zip(shape, dst, src, strict=True))),
                         key=lambda mode: -abs(mode[1])))
    inner = min(range(len(modes)), key=lambda i: abs(modes[i][2]) or np.inf)
    misses = len(modes) <= _MOST_AXES and _misses(modes[inner:])
    if not misses and (nbytes < _PLAIN or cores < _PLAIN_CORES):
        return None
    extents = _extents(modes, _BLOCK // itemsize)
    count = prod(-(-n // extent) for (n, *_strides), extent in zip(modes, extents, strict=True))
    threads = max(min(_MOST_THREADS, cores, nbytes // _FOR_A_THREAD, count), 1)
    if count < 2 or (threads < 2 and not misses):
        return None
    return Method(modes, extents, misses and abs(modes[inner][2]) * extents[inner] >= _RUN, threads)


def _misses(modes: Sequence[_Mode]) -> bool:
    """Whether source lines or pages leave caches before NumPy reads their next elements."""
    (_n, _dst, along), *between = [(n, dst, abs(src)) for n, dst, src in modes]
    if not between or along >= _LINE or between[-1][2] <= _LINE:      # smaller steps are read ahead
        return False
    lines, pages = (prod(max(n * min(step, size) // size, 1) for n, _dst, step in between)
                    for size in (_LINE, _PAGE))
    apart = _PERIOD                                   # bytes between lines in the sets of the cache
    for common, n in sorted(((gcd(step, _PERIOD), n) for n, _dst, step in between), reverse=True):
        apart = max(apart // n, common)
    return lines * max(apart, _LINE) >= _LINES * _LINE or pages > _PAGES


def _extents(modes: Sequence[_Mode], room: int) -> tuple[int, ...]:
    """Extents of a block: neighbours in target and source, then what there is room for."""
    extents = [1] * len(modes)
    for array in (1, 2):
        neighbours = _EXTENT
        for i in sorted(range(len(modes)), key=lambda i: abs(modes[i][array])):
            extents[i] = max(extents[i], min(modes[i][0], neighbours))
            neighbours //= extents[i]
            if neighbours < 2:
                break
    while prod(extents) > room:
        extents[extents.index(max(extents))] //= 2
    for i in reversed(range(len(modes))):
        extents[i] = min(modes[i][0], extents[i] * max(room // prod(extents), 1))
    return tuple(extents)


def _scratch(memory: Scratch, y: np.ndarray, extents: Sequence[int]) -> np.ndarray:
    axes = sorted(range(y.ndim), key=lambda axis: -abs(y.strides[axis]))
    shape = [extents[axis] for axis in axes]
    array = memory.array("block", (*shape[:-1], shape[-1] + _PAD // y.itemsize), y.dtype)
    return array[..., :shape[-1]].transpose([axes.index(axis) for axis in range(y.ndim)])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shared(work: Callable[[Iterator[_Index]], None], blocks: Iterator[_Index],
            threads: int) -> None:
    """Work on all blocks in threads, which end with this one, by interruption too."""
    from concurrent.futures import ThreadPoolExecutor  # which few copies need

    helpers = []
    with ThreadPoolExecutor(threads, "cuteblas copy") as pool:
        try:
            with suppress(RuntimeError):           # no more threads: then with those that there are
                for _ in range(threads - 1):
                    helpers.append(pool.submit(work, blocks))
            work(blocks)
            for helper in helpers:
                helper.result()
        finally:
            deque(blocks, 0)                            # nothing is left for others
