"""Plans on ``gemm_batched``: many small matrices in a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice, product, takewhile
from math import gcd, prod
from operator import itemgetter, mul
from typing import Any

from ..._dtypes import dtype
from ...codegen.signature import View
from ...kernels.common import WARP, packed_strides
from ...kernels.gemm.batched import (
    MATRICES,
    BatchedConfig,
    BatchedSide,
    BatchedTile,
    Box,
    gemm_batched,
)
from ...layout.banks import wavefronts
from ..cost.work import OF_A_WARP, Work, blocks_in_turns
from ..floors import touched_bytes
from ..operands import (
    NARROW_SPAN,
    VECTOR_BYTES,
    Facing,
    along_rows,
    bind,
    divisors,
    fused,
    gemm_span,
    merged_stride,
    settled,
    vector_width,
    view,
)
from ..problem import DeviceInfo, GemmProblem, Ints, Operand, Pair, transposed, with_matrices
from .family import Choice, Family, Made, why_not_plain
from .simt import multiply_clocks, types

_MOST = 64                           # rows and columns of C
_MOST_BYTES = 48 << 10               # of A and B of one matrix
_BLOCK_BYTES = 32 << 10              # of shared memory that a block should need
_THREADS, _MOST_THREADS = 128, 256   # that should multiply in a block; that may for a single matrix
_THREADS_OF_MULTIPROCESSOR = 2048
_WORD = 4                # bytes, of a register; as many are multiplied together
_WORDS = 112             # registers of operands and sums of a thread that has whole matrices
_OTHERS = 60             # instructions of a thread beside those that loads, products and sums take
_LEAST_PART = 8          # rows of C, of which there are too many for one matrix
_DEEP = 32               # K from which results of one or two elements are summed by several threads


def why_not_batched(p: GemmProblem, device: DeviceInfo) -> str | None:
    if not p.batch or p.matrices == 1:
        return "there is only one matrix"
    p = _cut(p)
    if max(p.m, p.n) > _MOST:
        return f"matrices of {p.m} x {p.n} are larger than {_MOST} x {_MOST}"
    if not p.depth:
        return "there is nothing to multiply"
    bytes_of_one = p.k * (p.m * p.a.item + p.n * p.b.item)
    if bytes_of_one > _MOST_BYTES:
        return f"A and B of one product take {bytes_of_one} bytes, more than {_MOST_BYTES}"
    return why_not_plain(p)


def _facing(p: GemmProblem) -> Facing:
    p, note = along_rows(p)
    return _cut(p), note


def _cut(p: GemmProblem) -> GemmProblem:
    """The problem with rows of C in parts where there are too many, else columns: a B that
    matrices share is read for many rows."""
    return transposed(_cut_rows(transposed(p))) if p.m <= _MOST else _cut_rows(p)


def _cut_rows(p: GemmProblem) -> GemmProblem:
    """The problem with an innermost batch mode that counts parts of the rows, of whole words."""
    parts = [d for d in divisors(p.m, _MOST) if d >= _LEAST_PART
             and d * p.a.item % _WORD == 0]
    if p.m <= _MOST or not parts:
        return p
    part = max(parts, key=lambda d: (d % _WORD == 0, d))

    def cut(role: str, x: Operand) -> Operand:
        step = 0 if role == "b" else part * x.strides[0]
        return replace(x, batch_strides=(*x.batch_strides, step))

    return replace(with_matrices(p, cut), m=part, batch=(*p.batch, p.m // part))


# -- operands --------------------------------------------------------------------------------------
def _step(operand: Operand, batch: Ints) -> int | None:
    """The stride from one matrix to the next, if it is one for all of them."""
    modes = zip(batch, operand.batch_strides, strict=True)
    return merged_stride([(n, s) for n, s in modes if n > 1][::-1])


def _side(operand: Operand, extents: Pair, p: GemmProblem) -> BatchedSide:
    """How A, B or C of a batch lies in memory, for one matrix in a block."""
    step, box = _step(operand, p.batch), (*extents, p.matrices)
    strides = {q: s for q, s in enumerate((*operand.strides, step)) if s and box[q] > 1}
    order = sorted(strides, key=lambda q: (abs(strides[q]), q == MATRICES))
    if step is None:
        order.append(MATRICES)
    dense, last = packed_strides(box, order), len(order) - 1

    def follows(i: int) -> bool:
        # between other modes, the matrices of a block are only a part of their mode
        apart = MATRICES in order[:i] or (order[i] == MATRICES and 0 < i < last)
        return strides.get(order[i]) == dense[order[i]] and not apart

    run = len([*takewhile(follows, range(len(order)))])
    return BatchedSide(tuple(order) or (0,), run, 1, (0, 0, 0), (*extents, 1), operand.conj,
                       step is not None)


def _held(operand: Operand, side: BatchedSide, p: GemmProblem, matrices: int,
          sums: int = 0) -> Iterator[BatchedSide]:
    """So many matrices in shared memory, each in the widest vectors: inputs with gaps of a vector
    between rows, or matrices, or without; ``sums`` of so many bytes with gaps between matrices."""
    box, order, run = (*side.box[:2], matrices), side.order, side.run
    unit = VECTOR_BYTES // (sums or operand.item)
    of_rows, of_matrices = (
        (0, unit)[:1 + (len(order) == 3 and prod(box[q] for q in order[:i]) % unit == 0)]
        for i in (1, 2)
    )
    for gaps in product((0,) if sums else of_rows, of_matrices):
        held, step = [0, 0, 0], 1
        for q, gap in zip(order, (0, *gaps), strict=False):
            held[q] = step + gap
            step = held[q] * box[q]
        found = replace(side, box=box, held=(held[0], held[1], held[2]))
        if joined := found.joined:
            # vectors divide what is contiguous, all other strides, and how much of it there is at
            # the end of the batch
            multiples = [prod(box[q] for q in order[:joined]), *(held[q] for q in order[joined:]),
                         *(operand.strides[q] for q in order[run:] if q != MATRICES)]
            if MATRICES in order[run:]:
                multiples += operand.batch_strides
            if MATRICES in order[:joined]:
                multiples.append(p.matrices * found.counted)
            most = 1 if sums and p.fusion else unit
            found = replace(found, width=vector_width(operand, most, *multiples))
        yield found


# -- tiles -----------------------------------------------------------------------------------------
def _tiles(p: GemmProblem, a: BatchedSide, b: BatchedSide,
           c: BatchedSide) -> Iterator[BatchedTile]:
    """How threads share a matrix, or have whole ones, for one matrix in a block."""
    words = max(1, p.sum_bytes // _WORD)
    inputs = (a, p.a.item), (b, p.b.item)
    registers = p.m * p.n * words + sum(prod(x.box) * max(1, item // _WORD) for x, item in inputs)
    if registers <= _WORDS and not any(x.inside for x in (a, b, c)):
        group = next(group for group in (1, 2, 4) if group == 4 or not any(
            MATRICES in x.order and group * prod(x.box) * item % _WORD for x, item in inputs))
        yield BatchedTile(group, whole=group)
    # Signed bytes are summed in 32 bits: in as many as are asked for, or of which a byte is.
    item = max(p.a.item, p.b.item)
    whole = (p.a.dtype, p.b.dtype, p.accumulator) == ("int8", "int8", "int32")
    in_words = p.k % _WORD == 0 and (whole or max(item, p.sum_bytes) == 1) and all(
        x.order[0] == 1 or (x.order[0] == 0 and x.box[0] % _WORD == 0) for x in (a, b))
    step = gcd(p.k, max(1, min(4, VECTOR_BYTES // item)))
    for each in product((1, 2, 3, 4, 5, 8), repeat=2):
        across = -(-p.m // each[0]), -(-p.n // each[1])
        if prod(each) * words > 64 or prod(across) > _MOST_THREADS \
                or each[0] > p.m or each[1] > p.n:
            continue
        m, n = (gcd(x.box[0], v, 4) if x.order[0] == 0 else 1
                for x, v in zip((a, b), each, strict=True))
        tile = BatchedTile(1, across, (m, n), step=step)
        yield tile
        if in_words and all(r == _WORD or x.order[0] != 0 for x, r in ((a, m), (b, n))):
            yield replace(tile, step=gcd(p.k, 4 * _WORD), words=True)
        if prod(across) <= 4 and p.k >= _DEEP:
            for depth in divisors(p.k // step, min(WARP, _MOST_THREADS // prod(across))):
                if depth >= 4:
                    yield replace(tile, depth=depth)


def _filled(p: GemmProblem, tile: BatchedTile, multiprocessors: int) -> BatchedTile:
    """A tile with as many matrices as fit, and as leave blocks for all multiprocessors."""
    own = sum(prod(extents) * x.item for x, extents in p.inputs if any(x.batch_strides))
    nbytes = max(own, p.m * p.n * p.sum_bytes) * tile.depth
    most = max(1, min(_THREADS * max(1, tile.whole) // (prod(tile.across) * tile.depth),
                      _BLOCK_BYTES // nbytes))
    matrices = max(tile.matrices, 1 << (most.bit_length() - 1))
    while matrices > max(tile.matrices, 4) and p.matrices < 4 * matrices * multiprocessors:
        matrices //= 2
    return replace(tile, matrices=matrices)


# -- what a block does -----------------------------------------------------------------------------
def _wavefronts(tile: BatchedTile, held: Box, depth: int, width: int, item: int) -> int:
    """Those of an access of a warp to vectors: ``held`` are steps along M, N and matrices, a
    thread's neighbours along K are ``depth`` elements apart."""
    steps = held[MATRICES] * max(1, tile.whole), depth, *map(mul, held, tile.run)
    lanes = islice(product(*map(range, (tile.matrices, tile.depth, *tile.across))),
                   min(WARP, tile.multiplying))
    return wavefronts([item * sum(map(mul, lane, steps)) for lane in lanes], width * item)[0]


def _loads(p: GemmProblem, tile: BatchedTile, mode: int, side: BatchedSide, item: int) -> Pair:
    """Wavefronts, and loads, in which a warp loads all that it needs of an operand."""
    (along, inner, _each), extent, run = side.held, p.shape[mode], tile.run[mode]
    if tile.whole:
        elements, width = tile.spanned(side, item)
        loads = elements // width
    else:
        _along, width = tile.loaded(mode, extent, side.held, item)
        loads = tile.rest(mode, extent) * run * (p.k // tile.depth) // width
        if tile.words:
            loads, width = loads // _WORD, _WORD * width // item
    held = (along, 0, side.held[MATRICES]) if mode == 0 else (0, along, side.held[MATRICES])
    return _wavefronts(tile, held, tile.step * inner, width, item) * loads, loads


def _instructions(p: GemmProblem, tile: BatchedTile, loads: int) -> float:
    """Instructions of a thread; those that take two clocks count twice."""
    m, n = p.shape if tile.whole else (tile.rest(i, e) * tile.run[i]
                                       for i, e in enumerate(p.shape))
    depth, each = p.k // tile.depth, multiply_clocks(dtype(p.accumulator))
    converted = (m + n) * depth if p.a.item < _WORD else 0
    if tile.words:
        each, depth, converted = 2, depth // _WORD, 3 * (m + n) * depth // _WORD
    return max(1, tile.whole) * (m * n * depth * each + converted + 2 * m * n) + loads + _OTHERS


def _block(p: GemmProblem, tile: BatchedTile, sides: tuple[BatchedSide, BatchedSide],
           multiprocessors: int) -> tuple[float, float, BatchedTile, list[BatchedSide]]:
    """The clocks of the busiest multiprocessor, and of a matrix, with a tile and the pads of A and
    B that have the fewest wavefronts."""
    matrices, best, needed = tile.matrices, list[BatchedSide](), 0
    shared = 2 * p.m * p.n * p.sum_bytes * tile.depth * matrices / 128
    for mode, (x, side) in enumerate(zip((p.a, p.b), sides, strict=True)):
        found = []
        for held in _held(x, side, p, matrices):
            own, loads = _loads(p, tile, mode, held, x.item)
            vectors = prod(held.box[q] for q in held.order) / held.width
            copied = vectors * max(1.0, held.width * x.item / 4) / WARP
            found.append((own * tile.multiplying / WARP + copied * 2, loads, held))
        waves, loads, held = min(found, key=itemgetter(0, 1))
        shared, needed, best = shared + waves, needed + loads, [*best, held]
    of_thread = _instructions(p, tile, needed)
    issued = of_thread * tile.multiplying / 128
    # Few threads on a multiprocessor do not hide latencies.
    clocks = (max(shared, issued) + 0.3 * min(shared, issued)) * (1 + 32 / tile.threads)
    busiest = max(clocks * -(-p.matrices // (matrices * multiprocessors)), 2 * of_thread, clocks)
    return busiest, clocks / matrices, tile, best


def _held_c(p: GemmProblem, c: BatchedSide, tile: BatchedTile) -> BatchedSide:
    """C, whose sums go through shared memory in their own type, as vectors of C."""
    sums = _WORD if tile.words else p.sum_bytes

    def cost(side: BatchedSide) -> tuple[int, float]:
        width = tile.spanned(side, sums)[1] if tile.whole else tile.stored(p.n, side.held, sums)
        return -side.width, _wavefronts(tile, side.held, 0, width, sums) / width

    return min(_held(p.c, c, p, tile.matrices, sums), key=cost)


# -- plans -----------------------------------------------------------------------------------------
@lru_cache(maxsize=4096)
def _tilings(p: GemmProblem, device: DeviceInfo) -> tuple[Choice[BatchedConfig]]:
    """The tile of the least clocks, with gaps of the fewest wavefronts."""
    a, b, c = (_side(*x, p) for x in (*p.inputs, (p.c, p.shape)))
    if p.fusion and len(p.batch) > 1 and c.order[-1] != MATRICES:
        c = replace(c, order=(*(q for q in c.order if q != MATRICES), MATRICES), run=0)
    tiles = (_filled(p, one, device.multiprocessors) for one in _tiles(p, a, b, c))
    _busiest, of_matrix, tile, (of_a, of_b) = min(
        (_block(p, tile, (a, b), device.multiprocessors) for tile in tiles), key=itemgetter(0, 1))
    sides = of_a, of_b, _held_c(p, c, tile)
    # What vectors know of the number of matrices.
    multiple = max([1, *(side.width // gcd(side.width, side.counted) for side in sides
                         if MATRICES in side.order[:side.joined])])
    needed = p.fusion is not None or not all(side.even for side in sides)
    # Elements are counted, even those that several matrices share.
    reach = max(gemm_span(p), p.matrices * max(p.m * p.n, p.m * p.k, p.n * p.k))
    config = BatchedConfig(p.a.dtype, p.b.dtype, p.c.dtype, p.accumulator, (*p.shape, p.k), tile,
                           *sides, len(p.batch) * needed, multiple, alpha=p.alpha, beta=p.beta,
                           wide=reach >= NARROW_SPAN, epilogue=fused(p, 1, 1))
    warps, blocks = tile.threads // WARP, -(-p.matrices // tile.matrices)
    work = Work("fused multiply-adds", "copies",
                instructions=of_matrix * tile.matrices + OF_A_WARP * warps, warps=warps,
                moved=sum(map(touched_bytes, p.tensors)), stored=p.outputs * p.c.item,
                **blocks_in_turns(blocks, _THREADS_OF_MULTIPROCESSOR // tile.threads, 1, 1, device))
    return (Choice(config, 1, p.k, blocks, work, str(tile)),)


def _made(p: GemmProblem, device: DeviceInfo, choice: Choice[BatchedConfig]) -> Made:
    config = choice.tile
    # The kernel knows the extents of matrices of an epilogue, and so strides where they are 1.
    known = with_matrices(p, lambda _role, x: settled(x, p.shape, units=True))
    values: dict[str, Any] = {
        role.upper(): _view(settled(*x), role, p.batch)
        for role, x in zip("abc", (*p.inputs, (p.c, p.shape)), strict=True)
    }
    each = bind(gemm_batched, config, known, choice.blocks, matrices=p.matrices, **values)
    return Made((each,), 0, f"{types(p)} on fused multiply-adds; {config.tile}: "
                f"{choice.on(device)}", config)


def _view(x: Operand, role: str, batch: Ints) -> View:
    """An operand with the matrices as a mode of its own, if they have one stride."""
    found, step = view(x, role), _step(x, batch)
    return found if step is None else replace(found, strides=(*found.strides, step))


BATCHED = Family("gemm_batched", why_not_batched, _tilings, _made, _facing)
plan_batched = BATCHED.plan
