"""Plans on ``gemm_batched``: many small matrices in a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import gcd, prod
from operator import itemgetter, mul
from typing import Any, NamedTuple

from ..._dtypes import dtype
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
    bind,
    divisors,
    fused,
    gemm_span,
    merged_stride,
    settled,
    view,
)
from ..problem import DeviceInfo, GemmProblem, Operand, Pair, transposed, with_matrices
from .family import Choice, Family, Made, why_not_plain
from .simt import types

Pads = Pair

_MOST = 64                           # rows and columns of C
_MOST_BYTES = 48 << 10               # of A and B of one matrix
_BLOCK_BYTES = 32 << 10              # of shared memory that a block should need
_THREADS, _MOST_THREADS = 128, 256   # that should multiply in a block; that may for a single matrix
_WARP = 32
_THREADS_OF_MULTIPROCESSOR, _MOST_RESIDENT = 2048, 32
_QUAD = 4                # bytes that are multiplied together
_WORD = 4                # bytes
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
    part = max(parts, key=lambda d: (d % _QUAD == 0, d))

    def cut(role: str, x: Operand) -> Operand:
        step = 0 if role == "b" else part * x.strides[0]
        return replace(x, batch_strides=(*x.batch_strides, step))

    return replace(with_matrices(p, cut), m=part, batch=(*p.batch, p.m // part))


def _flat_stride(operand: Operand, batch: tuple[int, ...]) -> int | None:
    """The stride from one matrix to the next, if it is one for all of them."""
    modes = zip(batch, operand.batch_strides, strict=True)
    return merged_stride([(n, s) for n, s in modes if n > 1][::-1])


class _Matrices:
    """A, B or C of a batch. ``order`` has modes, smallest stride first, with the matrices unless
    they share the operand; ``run`` of them follow each other without gaps."""

    def __init__(self, operand: Operand, extents: Pair, p: GemmProblem):
        self.operand, self.extents, self.count = operand, extents, p.matrices
        self.item = operand.item
        modes = {q: (n, s) for q, (n, s) in enumerate(zip(extents, operand.strides, strict=True))
                 if n > 1 and s}
        step = _flat_stride(operand, p.batch)
        self.even = step is not None
        if step:
            modes[MATRICES] = self.count, step
        order = sorted(modes, key=lambda q: (abs(modes[q][1]), q == MATRICES))
        if step is None:
            order.append(MATRICES)
        self.order, self.run, next_stride = tuple(order) or (0,), 0, 1
        for i, q in enumerate(order):
            # Between other modes, the matrices of a block are only a part of their mode.
            between = q == MATRICES and 0 < i < len(order) - 1
            if between or q not in modes or modes[q][1] != next_stride:
                break
            next_stride *= modes[q][0]
            self.run += 1
            if q == MATRICES:
                break

    @property
    def outermost(self) -> bool:
        """Whether the matrices are the last of its modes, if they are one."""
        return MATRICES not in self.order[:-1]

    def along(self, mode: int) -> bool:
        return self.order[0] == mode

    def box(self, matrices: int) -> Box:
        return *self.extents, matrices

    def side(self, matrices: int, pads: Pads = (0, 0), most: int = VECTOR_BYTES) -> BatchedSide:
        """Its side with these pads in shared memory, and the widest vectors then."""
        box, order, run, operand = self.box(matrices), self.order, self.run, self.operand
        held, step = [0, 0, 0], 1
        for i, q in enumerate(order):
            step += pads[min(i, 2) - 1] if i else 0
            held[q] = step
            step *= box[q]
        side = BatchedSide(order, run, 1, (held[0], held[1], held[2]), box, operand.conj,
                           self.even)
        joined = side.joined
        if not joined:
            return side
        # Vectors divide what is contiguous, all other strides, and how much of it there is at the
        # end of the batch.
        multiples = [prod(box[q] for q in order[:joined]), *(held[q] for q in order[joined:])]
        multiples += [operand.strides[q] for q in order[run:] if q != MATRICES]
        if MATRICES in order[run:]:
            multiples += operand.batch_strides
        if MATRICES in order[:joined]:
            multiples.append(self.count * side.matrix if side.outermost else self.count)
        return replace(side, width=gcd(most // self.item, operand.alignment // self.item,
                                       *multiples))

    def pads(self, matrices: int, unit: int) -> Iterator[Pads]:
        """Pads to try between rows, and between matrices, in shared memory."""
        box, order = self.box(matrices), self.order
        rows = len(order) == 3 and box[order[0]] % unit == 0
        apart = len(order) > 1 and prod(box[q] for q in order[:-1]) % unit == 0
        return product((0, unit)[:1 + rows], (0, unit)[:1 + apart])


def _wavefronts(tile: BatchedTile, steps: tuple[int, int, int, int], width: int,
                item: int) -> int:
    """Those of an access of a warp to vectors; ``steps`` are elements from a thread along M, N and
    K of a matrix to the next, and from a matrix to the next."""
    (tm, tn), lanes = tile.across, range(min(_WARP, tile.multiplying))
    places = ((lane // tn % tm, lane % tn, lane // (tn * tm) % tile.depth,
               lane // (tn * tm * tile.depth)) for lane in lanes)
    return wavefronts([item * sum(map(mul, place, steps)) for place in places], width * item)[0]


def _loads(tile: BatchedTile, mode: int, extents: Box, x: _Matrices, held: Box) -> Pair:
    """Wavefronts, and loads, in which a warp loads all that it needs of an operand."""
    (along, inner, each), item = held, x.item
    if tile.whole:
        apart = each * tile.whole
        elements = prod(n for n, step in zip(x.extents, held, strict=False) if step)
        elements *= tile.whole if each else 1
        width = gcd(elements, max(1, VECTOR_BYTES // item), apart)
        loads = elements // width
        return _wavefronts(tile, (0, 0, 0, apart), width, item) * loads, loads
    _along, width = tile.loaded(mode, extents[mode], held, item)
    run = tile.run[mode] * along
    loads = tile.rest(mode, extents[mode]) * tile.run[mode] * (extents[2] // tile.depth) // width
    if tile.words:
        loads, width = loads // _QUAD, _QUAD * width // item
    of_m, of_n = (run, 0) if mode == 0 else (0, run)
    return _wavefronts(tile, (of_m, of_n, tile.step * inner, each), width, item) * loads, loads


def _tiles(p: GemmProblem, a: _Matrices, b: _Matrices, c: _Matrices) -> Iterator[BatchedTile]:
    """How threads share a matrix, or have whole ones, for one matrix in a block."""
    words = max(1, p.sum_bytes // _WORD)
    registers = p.m * p.n * words + sum(prod(x.extents) * max(1, x.item // _WORD) for x in (a, b))
    if registers <= _WORDS and all(x.outermost for x in (a, b, c)):
        group = next(group for group in (1, 2, 4) if group == 4 or not any(
            MATRICES in x.order and group * prod(x.extents) * x.item % _WORD for x in (a, b)))
        yield BatchedTile(group, _WARP, whole=group)
    # Signed bytes are summed in 32 bits: in as many as are asked for, or of which a byte is.
    whole = (p.a.dtype, p.b.dtype, p.accumulator) == ("int8", "int8", "int32")
    in_words = p.k % _QUAD == 0 and (whole or max(a.item, b.item, p.sum_bytes) == 1) and all(
        x.along(1) or (x.along(0) and x.extents[0] % _QUAD == 0) for x in (a, b))
    step = gcd(p.k, max(1, min(4, VECTOR_BYTES // max(a.item, b.item))))
    for each in product((1, 2, 3, 4, 5, 8), repeat=2):
        if prod(each) * words > 64 or any(v > max(1, n)
                                          for v, n in zip(each, p.shape, strict=True)):
            continue
        run = tuple(gcd(x.extents[0], v, 4) if x.along(0) else 1
                    for x, v in zip((a, b), each, strict=True))
        across = -(-p.m // each[0]), -(-p.n // each[1])
        if prod(across) > _MOST_THREADS:
            continue
        tile = BatchedTile(1, _WARP, across, run, 1, step)      # type: ignore[arg-type]
        yield tile
        if in_words and all(r == _QUAD or not x.along(0)
                            for x, r in zip((a, b), run, strict=True)):
            yield replace(tile, step=gcd(p.k, 4 * _QUAD), words=True)
        if prod(across) <= 4 and p.k >= _DEEP:
            for depth in divisors(p.k // step, min(_WARP, _MOST_THREADS // prod(across))):
                if depth >= 4:
                    yield replace(tile, depth=depth)


def _instructions(p: GemmProblem, tile: BatchedTile, loads: int) -> float:
    """Instructions of a thread; those that take two clocks count twice."""
    sums, element = dtype(p.accumulator), dtype(p.a.dtype)
    each = 5 if sums.is_integer and sums.bytes == 8 else 4 if sums.is_complex else 2 if sums.kind == "b" else 1
    slower = 2 if sums.part.bytes == 8 or sums.is_integer else 1
    m, n = p.shape if tile.whole else (tile.rest(i, e) * tile.run[i]
                                          for i, e in enumerate(p.shape))
    depth, matrices = p.k // tile.depth, max(1, tile.whole)
    converted = (m + n) * depth if element.bytes < 4 else 0
    if tile.words:
        each, slower, converted = 1, 2, 3 * (m + n) * depth // _QUAD
        depth //= _QUAD
    return matrices * (m * n * depth * each * slower + converted + 2 * m * n) + loads + _OTHERS


class _Priced(NamedTuple):
    """A tile and how it holds A and B, with the costs of its block and of each matrix."""

    cost: float
    of_matrix: float
    tile: BatchedTile
    sides: list[BatchedSide]


def _priced(p: GemmProblem, one: BatchedTile, operands: tuple[_Matrices, _Matrices],
            multiprocessors: int) -> _Priced:
    """A tile with as many matrices as fit, and as leave blocks for all multiprocessors."""
    count, sums = p.matrices, p.sum_bytes
    own = sum(prod(x.extents) * x.item for x in operands if any(x.operand.batch_strides))
    each, bytes_of_one = prod(one.across) * one.depth, max(own, p.m * p.n * sums)
    most = max(1, min(_THREADS * max(1, one.whole) // each,
                      _BLOCK_BYTES // (bytes_of_one * one.depth)))
    matrices = max(one.matrices, 1 << (most.bit_length() - 1))
    while matrices > max(one.matrices, 4) and count < 4 * matrices * multiprocessors:
        matrices //= 2
    tile = replace(one, matrices=matrices)
    tile = replace(tile, threads=max(64, -(-tile.multiplying // _WARP) * _WARP))
    shared, loads, sides = 2 * p.m * p.n * sums * one.depth * matrices / 128, 0, []
    for mode, x in enumerate(operands):
        found = []
        for pads in x.pads(matrices, VECTOR_BYTES // x.item):
            side = x.side(matrices, pads)
            vectors = prod(side.box[q] for q in x.order) / side.width
            copied = vectors * max(1.0, side.width * x.item / 4) / _WARP
            of_warp, loads_of_warp = _loads(tile, mode, (p.m, p.n, p.k), x, side.held)
            found.append((of_warp * tile.multiplying / _WARP + copied * 2, loads_of_warp, side))
        waves, own, side = min(found, key=itemgetter(0, 1))
        shared, loads = shared + waves, loads + own
        sides.append(side)
    of_thread = _instructions(p, tile, loads)
    issued = of_thread * tile.multiplying / 128
    # Few threads on a multiprocessor do not hide latencies.
    clocks = (max(shared, issued) + 0.3 * min(shared, issued)) * (1 + 32 / tile.threads)
    alone = max(2 * of_thread, clocks)
    return _Priced(max(clocks * -(-count // (matrices * multiprocessors)), alone),
                   clocks / matrices, tile, sides)


@lru_cache(maxsize=4096)
def _configured(p: GemmProblem, multiprocessors: int) -> tuple[BatchedConfig, float]:
    """The tile of the least clocks, with pads of the fewest wavefronts, and a block's clocks."""
    p = _cut(p)
    a, b, c = all_three = [_Matrices(*x, p) for x in (*p.inputs, (p.c, p.shape))]
    if p.fusion and len(p.batch) > 1 and c.order[-1] != MATRICES:
        c.order, c.run = (*(q for q in c.order if q != MATRICES), MATRICES), 0
    best = min((_priced(p, one, (a, b), multiprocessors) for one in _tiles(p, a, b, c)),
               key=lambda found: found[:2])
    tile = best.tile
    of_a, of_b = best.sides
    sides = of_a, of_b, _c_side(p, c, tile)
    # What vectors know of the number of matrices.
    multiple = 1
    for side in sides:
        if MATRICES in side.order[:side.joined]:
            multiple = max(multiple, side.width // gcd(side.width, side.matrix)
                           if side.outermost else side.width)
    needed = p.fusion is not None or not all(x.even for x in sides)
    # Elements are counted, even those that several matrices share.
    spans = gemm_span(p), *(prod(x.extents) * p.matrices for x in all_three)
    config = BatchedConfig(p.a.dtype, p.b.dtype, p.c.dtype, p.accumulator, (*p.shape, p.k), tile,
                           *sides, len(p.batch) * needed, multiple, alpha=p.alpha, beta=p.beta,
                           wide=max(spans) >= NARROW_SPAN, epilogue=fused(p, 1, 1))
    return config, best.of_matrix * tile.matrices


def _c_side(p: GemmProblem, c: _Matrices, tile: BatchedTile) -> BatchedSide:
    """C, whose sums go through shared memory in their own type, as vectors of C."""
    sums = _QUAD if tile.words else p.sum_bytes
    most = c.item if p.fusion else max(c.item, VECTOR_BYTES // sums * c.item)
    unit = max(VECTOR_BYTES // sums, most // c.item)

    def cost(side: BatchedSide) -> float:
        if tile.whole:
            step = side.held[MATRICES] * tile.whole
            width = gcd(prod(c.extents) * tile.whole, VECTOR_BYTES // sums, step)
            return _wavefronts(tile, (0, 0, 0, step), width, sums) / width
        width = tile.stored((p.m, p.n, p.k), side.held, sums)
        (x, y, z), (vm, vn) = side.held, tile.run
        return _wavefronts(tile, (vm * x, vn * y, 0, z), width, sums) / width

    sides = (c.side(tile.matrices, pads, most) for pads in c.pads(tile.matrices, unit)
             if not pads[0])
    return min(sides, key=lambda side: (-side.width, cost(side)))


def _tilings(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[BatchedConfig]]:
    config, clocks = _configured(p, device.multiprocessors)
    tile = config.tile
    modes = ((zip(*x.modes, strict=True), x.item) for x in p.tensors)
    moved = sum(touched_bytes(shape, strides, item) for (shape, strides), item in modes)
    warps, blocks = tile.threads // _WARP, -(-prod(_cut(p).batch) // tile.matrices)
    work = Work("fused multiply-adds", "copies", instructions=clocks + OF_A_WARP * warps,
                warps=warps, moved=moved, stored=p.outputs * p.c.item,
                **blocks_in_turns(blocks, max(1, min(_THREADS_OF_MULTIPROCESSOR // tile.threads,
                                                     _MOST_RESIDENT)), 1, 1, device))
    yield Choice(config, 1, p.k, blocks, work, str(tile))


def _made(p: GemmProblem, device: DeviceInfo, choice: Choice[BatchedConfig]) -> Made:
    p, config = _cut(p), choice.tile
    # The kernel knows the extents of matrices of an epilogue, and so strides where they are 1.
    known = with_matrices(p, lambda _role, x: settled(x, p.shape, units=True))
    each = bind(gemm_batched, config, known, choice.blocks, matrices=p.matrices,
                **_views(p, config))
    return Made((each,), 0, f"{types(p)} on fused multiply-adds; {config.tile}: "
                f"{choice.on(device)}", config)


def _views(p: GemmProblem, config: BatchedConfig) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, operand, side in (("A", p.a, config.a), ("B", p.b, config.b), ("C", p.c, config.c)):
        rows, columns = (stride if q in side.order else 0
                         for q, stride in enumerate(operand.strides))
        x = view(replace(operand, strides=(rows, columns)), name.lower())
        step = _flat_stride(operand, p.batch)
        values[name] = x if step is None else replace(x, strides=(*x.strides, step))
    return values


BATCHED = Family("gemm_batched", why_not_batched, _tilings, _made)
plan_batched = BATCHED.plan
