"""Products of integers whose bytes, the *digits*, are planes.

Modulo ``256^d`` a product is ``sum_s 256^s S_s``, s < d, where ``S_s`` sums products of planes i
of A and s - i of B.

* Up to four digits: Horner's rule from s = d - 1; accumulators wrap modulo 2^32.
* Eight, K up to :data:`MOST_PARKED`: from s = 0. The lowest byte of an accumulator is *parked* in
  the workspace, the rest is carried into the next sum.
* Eight, any K: s = 7 to 4 by Horner's rule; s = 3 to 0 in 64-bit totals, three registers each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_

from ...codegen import KernelBuilder, Pointer, Value, Vector, cast, wgmma_delivered
from ...layout import Layout, Tensor, size
from ...layout.symbolic import IntLike, ceil_div, equal, maximum, minimum, select
from ..common import Coord
from .scheduler import Scheduler

_BITS, _WORD = 32, 4                # of accumulators, in bits and bytes
_LARGEST = 255**2                   # a product of digits

MOST_PARKED = (2**_BITS - 2**24) // _LARGEST // 4 // 128 * 128
"""The largest K for which four pairs of planes, with the carry of those below, have 32 bits."""


@contextmanager
def planes_of(
    k: KernelBuilder, digits: int, ascending: bool
) -> Iterator[tuple[Coord, Coord]]:
    """Loops over the planes of A and of B that are multiplied, the highest or lowest sum first."""
    if digits == 1:
        yield (), ()
    elif ascending:
        with k.loop("sum", digits) as i, k.loop("digit", i + 1) as digit:
            yield (digit,), (k.let("of_b", i - digit),)
    else:
        with k.loop("higher", digits) as higher, k.loop("digit", digits - higher) as digit:
            yield (digit,), (k.let("of_b", digits - 1 - higher - digit),)


def _shift(k: KernelBuilder, part: Tensor, shifted: Callable[[Value], Value]) -> None:
    """Shift accumulators, also zeros: a condition makes ptxas wait after each instruction."""
    k.fill(part, lambda *at: cast(shifted(cast(part(*at), "uint32")), "int32"))


def sum_modulo(k: KernelBuilder, digits: int, k_tiles: IntLike, part: Tensor,
               multiply: Callable[[IntLike], None], highest: int = 0) -> None:
    """The sums of digits, but the ``highest`` lowest ones, from the highest on, modulo 2^32;
    ``part`` begins with zeros, ``multiply`` adds products of so many stages."""
    with k.loop("sum", digits - highest) as i:
        _shift(k, part, lambda x: x << 8)
        multiply(k.let("stages", (digits - i) * k_tiles))
        wgmma_delivered(k, part)


def sum_in_two_words(k: KernelBuilder, digits: int, depth: int, k_tiles: IntLike, part: Tensor,
                     total: Tensor, multiply: Callable[[IntLike], None]) -> None:
    """All sums of eight digits into 64-bit totals; stages are ``depth`` deep."""
    # stages whose sums 32 bits hold
    low, most = digits - _WORD, (2**_BITS - 1) // _LARGEST // depth
    sum_modulo(k, digits, k_tiles, part, multiply, low)
    k.fill(total, lambda *at: cast(cast(part(*at), "uint32"), "uint64"))
    with k.loop("sum", low) as i:
        stages = k.let("stages", (low - i) * k_tiles)
        with k.loop("part_of_sum", maximum(ceil_div(stages, most), 1)) as j:
            k.fill(part)
            multiply(k.let("stages_of_part", minimum(stages - j * most, most)))
            wgmma_delivered(k, part)
            bits = k.let("bits", select(equal(j, 0), 8, 0))
            k.fill(total, lambda *at, bits=bits: (total(*at) << bits)
                   + cast(cast(part(*at), "uint32"), "uint64"))


def sum_of_bools(k: KernelBuilder, depth: int, stages: IntLike, part: Tensor,
                 multiply: Callable[[IntLike], None]) -> None:
    """Whether any product of bytes is not zero, as 0 or 1, which no sum that wraps can hide."""
    most = (2**_BITS - 1) // _LARGEST // depth
    with k.loop("part_of_sum", maximum(ceil_div(stages, most), 1)) as j:
        multiply(k.let("stages_of_part", minimum(stages - j * most, most)))
        wgmma_delivered(k, part)
        k.fill(part, lambda *at: cast(cast(part(*at), "bool"), "int32"))


@dataclass(frozen=True)
class ParkedSums:
    """Sums of eight digits in the workspace, byte by byte: a word for four neighbouring
    accumulators. ``layout`` is (2, 2, columns / 8), ``words`` (columns / 8, digit)."""

    k: KernelBuilder
    layout: Layout
    words: Tensor

    @classmethod
    def of(cls, k: KernelBuilder, memory: Pointer, accumulators: Layout, digits: int, threads: int,
           schedule: Scheduler) -> ParkedSums:
        columns = size(accumulators[2])
        # Four words of a thread are written together, and neighbouring threads write neighbouring
        # ones.
        everything = Layout(((_WORD, columns // _WORD), threads, digits, schedule.blocks),
                            ((1, _WORD * threads), _WORD, columns * threads,
                             digits * columns * threads))
        return cls(
            k,
            accumulators,
            k.pin("tPgP", Tensor(memory, everything)[None, k.thread, None, schedule.block])
        )

    @staticmethod
    def nbytes(threads: int, columns: int, digits: int, blocks: int) -> int:
        return blocks * digits * threads * columns // 2

    def sum(self, digits: int, k_tiles: IntLike, part: Tensor,
            multiply: Callable[[IntLike], None]) -> None:
        """Make all sums, the lowest first, and park their digits."""
        k, columns = self.k, size(self.layout[2])
        with k.loop("sum", digits) as i:
            _shift(k, part, lambda x: x >> 8)
            multiply(k.let("stages", (i + 1) * k_tiles))
            wgmma_delivered(k, part)
            word = k.registers("word", "uint32", (_WORD, columns // _WORD))
            with k.each(columns) as n:
                own = (((cast(part(a, b, n), "uint32") & 255) << 8 * (a + 2 * b)) for b in range(2)
                       for a in range(2))
                k.assign(word(n), reduce(or_, own))
            parked = self.words[None, i]
            k.copy(Vector(_WORD), word, Tensor(parked.engine, parked.layout[0]))

    def loaded(self, first: IntLike, count: int) -> Callable[..., Value]:
        """Load the sums of ``count`` columns from ``first`` on; they are given by coordinates."""
        k, digits = self.k, size(self.words, 1)
        parked = k.registers("parked_word", "uint32", (digits, count))
        with k.loops((digits, count)) as (s, n):
            k.load(parked(s, n), self.words(first + n, s))

        def value(i: IntLike, j: IntLike, n: IntLike) -> Value:
            bits = 8 * i + 16 * j
            halves = [reduce(or_, (((parked(s, n) >> bits) & 255) << 8 * (s % _WORD)
                                   for s in range(h, h + _WORD))) for h in (0, _WORD)]
            return cast(halves[1], "uint64") << _BITS | cast(halves[0], "uint64")

        return value
