"""Products of integers whose bytes, the *digits*, are planes: which planes are multiplied, and how
their sums become integers.

Digits are unsigned: ``a = sum_i a_i 256^i``. Modulo ``256^d`` a product of integers of d digits is
``sum_s 256^s S_s``, s < d, where ``S_s`` sums the products of planes i of A and s - i of B: a
product of bytes with s + 1 times the K.

* Up to four digits: Horner's rule, s = d - 1 first. Accumulators wrap modulo 2^32, which is a
  multiple of ``256^d``, and are shifted left by 8 bits between sums.
* Eight, with a K of at most :data:`MOST_PARKED`: s = 0 first. The lowest byte of an accumulator is
  a byte of the result then. It is *parked*, written to the workspace, where it stays in L2; the
  accumulator is shifted right by 8 bits, and what is left is carried into the next sum. ``S_3`` and
  its carry are less than 2^32; from s = 4 on, sums may wrap.
* Eight, with any K: by Horner's rule, s = 7 to 4 in the accumulators, since they are the upper half
  of the result; for s = 3 to 0, sums of as many products as 32 bits hold are added to 64-bit
  totals. That takes three registers for each element of C.
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

__all__ = ["MOST_PARKED", "ParkedSums", "planes_of", "sum_in_two_words", "sum_modulo",
           "sum_of_bools"]

_BITS, _WORD = 32, 4                # of accumulators, in bits and bytes
_LARGEST = 255**2                   # a product of digits

MOST_PARKED = (2**_BITS - 2**24) // _LARGEST // 4 // 128 * 128
"""The largest K for which the sum of the products of four pairs of planes, with the carry of those
below, has 32 bits."""


@contextmanager
def planes_of(
    k: KernelBuilder, digits: int, ascending: bool
) -> Iterator[tuple[Coord, Coord]]:
    """Loops over the planes of A and of B that are multiplied: those of the highest, or the lowest,
    sum first."""
    if digits == 1:
        yield (), ()
    elif ascending:
        with k.loop("sum", digits) as i, k.loop("digit", i + 1) as digit:
            yield (digit,), (k.let("of_b", i - digit),)
    else:
        with k.loop("higher", digits) as higher, k.loop("digit", digits - higher) as digit:
            yield (digit,), (k.let("of_b", digits - 1 - higher - digit),)


def _shift(k: KernelBuilder, part: Tensor, shifted: Callable[[Value], Value]) -> None:
    """Shift accumulators: zeros at first, since under a condition the assembler waits after every
    matrix instruction."""
    k.fill(part, lambda *at: cast(shifted(cast(part(*at), "uint32")), "int32"))


def sum_modulo(k: KernelBuilder, digits: int, k_tiles: IntLike, part: Tensor,
               multiply: Callable[[IntLike], None], highest: int = 0) -> None:
    """The sums of digits from the highest on, without the ``highest`` lowest ones, modulo 2^32.

    Parameters
    ----------
    k : KernelBuilder
        The kernel.
    digits : int
        Bytes of an integer.
    k_tiles : IntLike
        Stages of the product of two planes.
    part : Tensor
        Accumulators, zeros.
    multiply : callable
        Adds the products of so many stages.
    highest : int
        The sums that are left out.
    """
    with k.loop("sum", digits - highest) as i:
        _shift(k, part, lambda x: x << 8)
        multiply(k.let("stages", (digits - i) * k_tiles))
        wgmma_delivered(k, part)


def sum_in_two_words(k: KernelBuilder, digits: int, depth: int, k_tiles: IntLike, part: Tensor,
                     total: Tensor, multiply: Callable[[IntLike], None]) -> None:
    """All sums of eight digits into 64-bit totals; stages are ``depth`` deep. See
    :func:`sum_modulo`."""
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
    """Whether any product of bytes is not zero, as 0 or 1: sums that could wrap to zero are made of
    that."""
    most = (2**_BITS - 1) // _LARGEST // depth
    with k.loop("part_of_sum", maximum(ceil_div(stages, most), 1)) as j:
        multiply(k.let("stages_of_part", minimum(stages - j * most, most)))
        wgmma_delivered(k, part)
        k.fill(part, lambda *at: cast(cast(part(*at), "bool"), "int32"))


@dataclass(frozen=True)
class ParkedSums:
    """Sums of eight digits in the workspace, byte by byte: those of a thread's four neighbouring
    accumulators are a word.

    Attributes
    ----------
    k : KernelBuilder
        The kernel.
    layout : Layout
        That of a thread's accumulators, (2, 2, columns / 8).
    words : Tensor
        This thread's: (columns / 8, digit).
    """

    k: KernelBuilder
    layout: Layout
    words: Tensor

    @classmethod
    def of(cls, k: KernelBuilder, memory: Pointer, accumulators: Layout, digits: int, threads: int,
           schedule: Scheduler) -> ParkedSums:
        """Those of a thread in the memory of all blocks, each of so many threads that multiply."""
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
        """Bytes of all blocks."""
        return blocks * digits * threads * columns // 2

    def sum(self, digits: int, k_tiles: IntLike, part: Tensor,
            multiply: Callable[[IntLike], None]) -> None:
        """Make all sums, the lowest first, and park their digits. See :func:`sum_modulo`."""
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
        """The sums of ``count`` columns of accumulators from ``first`` on, which are loaded: by
        their coordinates in them."""
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
