"""Plans on ``gemm_batched``: many small matrices in a block, and how a thread has a part of one, or some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import gcd, prod

from ...codegen.dtypes import dtype
from ...codegen.signature import View
from ...kernels.gemm.batched import MATRICES, BatchedConfig, BatchedSide, BatchedTile, Box, gemm_batched
from ...layout.banks import wavefronts
from ..cost.alternatives import Alternative
from ..estimates import touched_bytes
from ..floors import from_memory
from ..operands import (
    NARROW_SPAN,
    Roles,
    batch_values,
    fused,
    fusion_values,
    gemm_span,
    launch,
    oriented,
    scalar_values,
    view,
)
from ..plan import Plan, place
from ..problem import DeviceInfo, GemmProblem, Operand, transposed
from .simt import types
from .slices import refuse_larger_grids

__all__ = ["batched_alternatives", "batched_seconds", "plan_batched", "why_not_batched"]

_MOST = 64                           # rows and columns of C
_MOST_BYTES = 48 << 10               # of A and B of one matrix
_BLOCK_BYTES = 32 << 10              # of shared memory that a block should need
_THREADS, _MOST_THREADS = 128, 256   # that should multiply in a block; that may for a single matrix
_VECTOR_BYTES = 16
_QUAD = 4                            # bytes that are multiplied together
_WORD = 4                            # bytes
_WORDS = 112                         # registers of operands and sums of a thread that has whole matrices
_OTHERS = 60                         # instructions of a thread beside those that loads, products and sums take
_LEAST_PART = 8                      # rows of C, of which there are too many for one matrix
_DEEP = 32                           # K from which results of one or two elements are summed by several threads


def why_not_batched(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why ``gemm_batched`` does not compute a problem, or ``None`` if it does."""
    if not p.batch or prod(p.batch) == 1:
        return "there is only one matrix"
    p = _cut(p)
    if max(p.m, p.n) > _MOST:
        return f"matrices of {p.m} x {p.n} are larger than {_MOST} x {_MOST}"
    if not p.depth:
        return "there is nothing to multiply"
    bytes_of_one = p.k * (p.m * dtype(p.a.dtype).bytes + p.n * dtype(p.b.dtype).bytes)
    if bytes_of_one > _MOST_BYTES:
        return f"A and B of one product take {bytes_of_one} bytes, more than {_MOST_BYTES}"
    if p.triangle is not None:
        return "it writes all of C, not a triangle"
    if p.digits > 1 or p.variant not in (None, "gemm_batched"):
        return "only gemm_wgmma multiplies planes of digits"
    return None


def _cut(p: GemmProblem) -> GemmProblem:
    """The problem with rows of C in parts where they are too many, or else columns: so a B that matrices share is read for many
    rows. Where both are too many, as many parts would be read as there are blocks of C."""
    return transposed(_cut_rows(transposed(p))) if p.m <= _MOST else _cut_rows(p)


def _cut_rows(p: GemmProblem) -> GemmProblem:
    """The problem with one more batch mode, the innermost, which counts parts of the rows, of whole words: B is the same for
    them."""
    parts = (d for d in range(_LEAST_PART, _MOST + 1) if p.m % d == 0 and d * dtype(p.a.dtype).bytes % _WORD == 0)
    part = max(parts, key=lambda d: (d % _QUAD == 0, d), default=None)
    if p.m <= _MOST or part is None:
        return p

    def cut(x: Operand) -> Operand:
        return replace(x, batch_strides=(*x.batch_strides, part * x.strides[0]))

    def all_cut(matrices: tuple[tuple[str, Operand], ...]) -> tuple[tuple[str, Operand], ...]:
        return tuple((name, cut(x)) for name, x in matrices)

    fusion = p.fusion and replace(p.fusion, operands=all_cut(p.fusion.operands), outputs=all_cut(p.fusion.outputs))
    return replace(p, m=part, a=cut(p.a), b=replace(p.b, batch_strides=(*p.b.batch_strides, 0)), c=cut(p.c), fusion=fusion,
                   batch=(*p.batch, p.m // part))


def _flat_stride(operand: Operand, batch: tuple[int, ...]) -> int | None:
    """The stride from one matrix to the next, if it is one for all of them."""
    modes = [(n, s) for n, s in zip(batch, operand.batch_strides, strict=True) if n > 1][::-1]
    step, inner = modes[0][1], 1
    for extent, stride in modes:
        if stride != step * inner:
            return None
        inner *= extent
    return step


def _order(operand: Operand, extents: tuple[int, int], batch: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The modes of an operand, the smallest stride first, and how many of them follow each other without gaps.

    An operand that is one element everywhere has its rows as its only mode.
    """
    modes = {q: (n, s) for q, (n, s) in enumerate(zip(extents, operand.strides, strict=True)) if n > 1 and s}
    step = _flat_stride(operand, batch)
    if step:
        modes[MATRICES] = prod(batch), step
    order = sorted(modes, key=lambda q: (abs(modes[q][1]), q == MATRICES))
    if step is None:
        order.append(MATRICES)
    run, next_stride = 0, 1
    for i, q in enumerate(order):
        # Between other modes, the matrices of a block are only a part of their mode.
        if q not in modes or modes[q][1] != next_stride or (q == MATRICES and 0 < i < len(order) - 1):
            break
        next_stride *= modes[q][0]
        run += 1
        if q == MATRICES:
            break
    return tuple(order) or (0,), run


def _side(operand: Operand, p: GemmProblem, box: Box, pads: tuple[int, int], order: tuple[int, ...], run: int,
          most: int = _VECTOR_BYTES) -> BatchedSide:
    """An operand with so many elements between rows, and between matrices, in shared memory, and the widest vectors then."""
    item, count = dtype(operand.dtype).bytes, prod(p.batch)
    held, step = [0, 0, 0], 1
    for i, q in enumerate(order):
        if i:
            step += pads[0] if i == 1 else pads[1]
        held[q] = step
        step *= box[q]
    side = BatchedSide(order, run, 1, (held[0], held[1], held[2]), operand.conj)
    joined = side.joined(box)
    if not joined:
        return side
    strides = {0: operand.strides[0], 1: operand.strides[1]}
    # Vectors divide what is contiguous, all other strides, and how much of it there is at the end of the batch.
    width = gcd(most // item, operand.alignment // item, prod(box[q] for q in order[:joined]))
    width = gcd(width, *(strides[q] for q in order[run:] if q in strides), *(held[q] for q in order[joined:]))
    if MATRICES in order[run:]:
        width = gcd(width, *operand.batch_strides)
    if MATRICES in order[:joined]:
        width = gcd(width, count * side.matrix(box) if side.outermost else count)
    return replace(side, width=width)


def _pads(operand: Operand, box: Box, order: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Distances to try between rows, and between matrices, in shared memory: none, or the widest vector."""
    unit = _VECTOR_BYTES // dtype(operand.dtype).bytes
    rows = [0, unit] if len(order) == 3 and box[order[0]] % unit == 0 else [0]
    for row in rows:
        yield row, 0
        if len(order) > 1 and prod(box[q] for q in order[:-1]) % unit == 0:
            yield row, unit


def _loads(tile: BatchedTile, mode: int, extents: Box, held: Box, item: int, box: Box) -> tuple[int, int]:
    """Wavefronts in which a warp loads all that it needs of an operand, and how many loads these are."""
    lanes = range(min(32, tile.multiplying))
    if tile.whole:
        each = held[MATRICES] * tile.whole
        elements = prod(box[q] for q in (0, 1) if held[q]) * (tile.whole if held[MATRICES] else 1)
        width = gcd(elements, max(1, _VECTOR_BYTES // item), each)
        return wavefronts([lane * each * item for lane in lanes], width * item)[0] * (elements // width), elements // width
    _along, width = tile.loaded(mode, extents[mode], held, item)
    (x, y, each), (tm, tn) = held, tile.across
    addresses = []
    for lane in lanes:
        column, row, part, matrix = lane % tn, lane // tn % tm, lane // (tn * tm) % tile.depth, lane // (tn * tm * tile.depth)
        addresses.append(((row, column)[mode] * tile.run[mode] * x + part * tile.step * y + matrix * each) * item)
    loads = tile.rest(mode, extents[mode]) * tile.run[mode] * (extents[2] // tile.depth) // width
    if tile.words:
        loads, item = loads // _QUAD, _QUAD
    return wavefronts(addresses, width * item)[0] * loads, loads


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _power(n: int, most: int) -> int:
    """The largest power of two that divides ``n`` and is not above ``most``."""
    return gcd(n, 1 << (most.bit_length() - 1))


def _multiplies_bytes(p: GemmProblem) -> bool:
    """Whether sums of products of signed bytes in 32 bits are those that are asked for: of as many bits, or exact ones."""
    exact = (p.a.dtype, p.b.dtype, p.accumulator) == ("int8", "int8", "int32")
    return exact or all(dtype(name).bytes == 1 for name in (p.a.dtype, p.b.dtype, p.accumulator))


def _tiles(p: GemmProblem, orders: tuple[tuple[tuple[int, ...], int], ...]) -> Iterator[BatchedTile]:
    """Ways in which threads share a matrix, or have whole ones, for one matrix in a block."""
    items = [dtype(x.dtype).bytes for x in (p.a, p.b)]
    words = max(1, dtype(p.accumulator).bytes // 4)
    operand_words = [max(1, item // 4) for item in items]
    registers = p.m * p.n * words + p.m * p.k * operand_words[0] + p.n * p.k * operand_words[1]
    outermost = all(MATRICES not in order or order[-1] == MATRICES for order, _run in orders)
    if outermost and registers <= _WORDS:
        group = 1
        while any((MATRICES in order and group * prod(e) * item % 4) for (order, _run), e, item in
                  zip(orders, ((p.m, p.k), (p.n, p.k)), items, strict=False)) and group < 4:
            group *= 2
        yield BatchedTile(group, 32, whole=group)
    along_m, along_n = (order[:1] == (0,) for order, _run in orders[:2])
    in_words = p.k % _QUAD == 0 and _multiplies_bytes(p) and all(
        order[:1] == (1,) or (order[:1] == (0,) and extent % _QUAD == 0)
        for (order, _run), extent in zip(orders, (p.m, p.n), strict=False))
    step = _power(p.k, max(1, min(4, _VECTOR_BYTES // max(items))))
    for vm in (1, 2, 3, 4, 5, 8):
        for vn in (1, 2, 3, 4, 5, 8):
            if vm * vn * words > 64 or (vm > p.m and vm > 1) or (vn > p.n and vn > 1):
                continue
            run = _power(gcd(p.m, vm), 4) if along_m else 1, _power(gcd(p.n, vn), 4) if along_n else 1
            across = -(-p.m // vm), -(-p.n // vn)
            if prod(across) > _MOST_THREADS:
                continue
            yield BatchedTile(1, 32, across, run, 1, step)
            if in_words and not (along_m and run[0] != _QUAD) and not (along_n and run[1] != _QUAD):
                yield BatchedTile(1, 32, across, run, 1, _power(p.k, 4 * _QUAD), words=True)
            if prod(across) <= 4 and p.k >= _DEEP:
                for depth in _divisors(p.k // step):
                    if 4 <= depth <= 32 and prod(across) * depth <= _MOST_THREADS:
                        yield BatchedTile(1, 32, across, run, depth, step)


def _instructions(p: GemmProblem, tile: BatchedTile, loads: int) -> float:
    """Instructions that a thread issues, which loads so often from shared memory; those that take two clocks count twice."""
    sums, element = dtype(p.accumulator), dtype(p.a.dtype)
    each = 5 if sums.is_integer and sums.bytes == 8 else 4 if sums.is_complex else 2 if sums.kind == "b" else 1
    slower = 2 if sums.part.bytes == 8 or sums.is_integer else 1
    m, n = (p.m, p.n) if tile.whole else (tile.rest(i, e) * tile.run[i] for i, e in enumerate((p.m, p.n)))
    depth, matrices = p.k // tile.depth, max(1, tile.whole)
    converted = (m + n) * depth if element.bytes < 4 else 0
    if tile.words:
        each, slower, converted = 1, 2, 3 * (m + n) * depth // _QUAD
        depth //= _QUAD
    return matrices * (m * n * depth * each * slower + converted + 2 * m * n) + loads + _OTHERS


@dataclass(frozen=True)
class _Choice:
    """A configuration, for C^T where C is written along its columns.

    Attributes
    ----------
    config : BatchedConfig
        The configuration.
    clocks : float
        What a block takes on a multiprocessor with many of them.
    alone : float
        The clocks from a block's beginning to its end.
    """

    config: BatchedConfig
    clocks: float
    alone: float


@lru_cache(maxsize=4096)
def _choice(problem: GemmProblem, multiprocessors: int) -> _Choice:
    """The tile with the least clocks, and the distances in shared memory with the fewest wavefronts."""
    p = _cut(oriented(problem, 1).problem)
    extents, count = (p.m, p.n, p.k), prod(p.batch)
    operands = (p.a, (p.m, p.k)), (p.b, (p.n, p.k)), (p.c, (p.m, p.n))
    orders = tuple(_order(x, e, p.batch) for x, e in operands)
    if p.fusion and len(p.batch) > 1 and orders[2][0][-1:] != (MATRICES,):
        orders = (*orders[:2], ((*(q for q in orders[2][0] if q != MATRICES), MATRICES), 0))
    items = [dtype(x.dtype).bytes for x, _e in operands]
    sums = dtype(p.accumulator).bytes
    bytes_of_one = max(sum(prod(e) * item for (x, e), item in list(zip(operands, items, strict=True))[:2] if any(x.batch_strides)),
                       p.m * p.n * sums)
    best: tuple[float, float, float, BatchedTile, list[tuple[int, int]]] | None = None
    for one in _tiles(p, orders):
        # As many matrices as the threads of a block can have, as fit, and as leave blocks for all multiprocessors.
        each = prod(one.across) * one.depth
        most = max(1, min(_THREADS * max(1, one.whole) // each, _BLOCK_BYTES // (bytes_of_one * one.depth)))
        matrices = max(one.matrices, 1 << (most.bit_length() - 1))
        while matrices > max(one.matrices, 4) and count < 4 * matrices * multiprocessors:
            matrices //= 2
        tile = replace(one, matrices=matrices)
        tile = replace(tile, threads=max(64, -(-tile.multiplying // 32) * 32))
        waves, loads = 0.0, 0
        pads_of: list[tuple[int, int]] = []
        for mode, ((x, e), (order, run), item) in enumerate(zip(operands[:2], orders, items, strict=False)):
            box = (*e, matrices)
            found = []
            for pads in _pads(x, box, order):
                side = _side(x, p, box, pads, order, run)
                copied = prod(box[q] for q in order) / side.width * max(1.0, side.width * item / 4) / 32
                wavefronts_of_warp, loads_of_warp = _loads(tile, mode, extents, side.held, item, box)
                found.append((wavefronts_of_warp * tile.multiplying / 32 + copied * 2, loads_of_warp, pads))
            cost, loads_of_warp, pads = min(found)
            waves += cost
            loads += loads_of_warp
            pads_of.append(pads)
        shared = waves + 2 * p.m * p.n * sums * one.depth * matrices / 128
        of_thread = _instructions(p, tile, loads)
        issued = of_thread * tile.multiplying / 128
        # Few threads on a multiprocessor do not hide latencies.
        clocks = (max(shared, issued) + 0.3 * min(shared, issued)) * (1 + 32 / tile.threads)
        alone = max(2 * of_thread, clocks)
        cost = max(clocks * -(-count // (matrices * multiprocessors)), alone)
        if best is None or (cost, clocks / matrices) < best[:2]:
            best = cost, clocks / matrices, alone, tile, pads_of
    assert best is not None
    _cost, clocks, alone, tile, pads_of = best
    boxes = (p.m, p.k, tile.matrices), (p.n, p.k, tile.matrices), (p.m, p.n, tile.matrices)
    a, b = (_side(x, p, box, pads, *order) for (x, _e), box, pads, order in zip(operands[:2], boxes, pads_of, orders, strict=False))
    c = _c_side(p, boxes[2], tile, orders[2])
    needs = any(x.outermost and not x.packed for x in (a, b, c)) or p.fusion is not None
    # What vectors know of the number of matrices.
    multiple = 1
    for side, box in zip((a, b, c), boxes, strict=True):
        if MATRICES in side.order[:side.joined(box)]:
            multiple = max(multiple, side.width // gcd(side.width, side.matrix(box)) if side.outermost else side.width)
    # Elements are counted, even those that several matrices share.
    wide = max(gemm_span(p), *(prod(e) * count for _x, e in operands)) >= NARROW_SPAN
    config = BatchedConfig(p.a.dtype, p.b.dtype, p.c.dtype, p.accumulator, extents, tile, a, b, c, p.alpha, p.beta,
                           len(p.batch) if needs else 0, multiple, wide, fused(p, 1, 1))
    return _Choice(config, clocks * tile.matrices, alone)


def _c_side(p: GemmProblem, box: Box, tile: BatchedTile, order: tuple[tuple[int, ...], int]) -> BatchedSide:
    """C, whose sums go through shared memory in their own type: a vector of them is one of C, without conflicts."""
    item, sums = dtype(p.c.dtype).bytes, _QUAD if tile.words else dtype(p.accumulator).bytes
    most = item if p.fusion else max(item, _VECTOR_BYTES // sums * item)
    unit = max(_VECTOR_BYTES // sums, most // item)
    each, lanes = box[0] * box[1], range(min(32, tile.multiplying))

    def cost(side: BatchedSide) -> float:
        if tile.whole:
            step = side.held[MATRICES] * tile.whole
            width, addresses = gcd(each * tile.whole, _VECTOR_BYTES // sums, step), [lane * step * sums for lane in lanes]
        else:
            width = tile.stored((p.m, p.n, p.k), side.held, sums)
            (x, y, z), (tm, tn), (vm, vn) = side.held, tile.across, tile.run
            parts = [(lane // tn % tm * vm, lane % tn * vn, lane // (tn * tm * tile.depth)) for lane in lanes]
            addresses = [(row * x + column * y + matrix * z) * sums for row, column, matrix in parts]
        return wavefronts(addresses, width * sums)[0] / width

    sides = [_side(p.c, p, box, (0, 0), *order, most)]
    if len(order[0]) > 1 and prod(box[q] for q in order[0][:-1]) % unit == 0:
        sides.append(_side(p.c, p, box, (0, unit), *order, most))
    return min(sides, key=lambda side: (-side.width, cost(side)))


def batched_seconds(problem: GemmProblem, device: DeviceInfo) -> float:
    """The estimated time of :func:`plan_batched` for a problem that :func:`why_not_batched` does not refuse."""
    choice, p, costs = _choice(problem, device.multiprocessors), problem, device.fitted["gemm_batched"]
    operands = (p.a, (p.m, p.k)), (p.b, (p.n, p.k)), (p.c, (p.m, p.n))
    moved = sum(touched_bytes((*extents, *p.batch), (*x.strides, *x.batch_strides), dtype(x.dtype).bytes)
                for x, extents in operands)
    traffic = device.seconds(nbytes=from_memory(moved, device) / costs["share of bandwidth"])
    busiest = -(-prod(_cut(p).batch) // (choice.config.tile.matrices * device.multiprocessors))
    computing = device.seconds(max(busiest * choice.clocks, choice.alone) / costs["rate"])
    together = max(traffic, computing) + costs["not at once: part"] * min(traffic, computing)
    return device.seconds(costs["start: clocks"], 1) + together


def batched_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """The plan, where there is one."""
    if why_not_batched(problem, device) is None:
        tile = _choice(problem, device.multiprocessors).config.tile
        yield Alternative("gemm_batched", str(tile), partial(batched_seconds, problem), partial(plan_batched, problem, device))


def plan_batched(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan on ``gemm_batched`` for a problem that :func:`why_not_batched` does not refuse.

    Raises
    ------
    ValueError
        If the kernel does not take the problem, or for more blocks than a grid can have.
    """
    if (refused := why_not_batched(problem, device)) is not None:
        raise ValueError(f"gemm_batched cannot compute this: {refused}")
    facing = oriented(problem, 1)
    p, roles = _cut(facing.problem), facing.by_name
    config = _choice(problem, device.multiprocessors).config
    blocks = -(-prod(p.batch) // config.tile.matrices)
    each = launch(gemm_batched(config), (blocks, 1, 1), _values(p, config, roles))
    refuse_larger_grids(problem, [each])
    reason = (f"{types(p)} on fused multiply-adds; {config.tile}: {blocks} blocks on {device.multiprocessors} multiprocessors"
              f"{facing.note}")
    return Plan(problem, device, "gemm_batched", config, (each,), 0, reason, each.kernel.facts, batched_seconds(problem, device))


def _values(p: GemmProblem, config: BatchedConfig, roles: Roles) -> dict[str, object]:
    """What the kernel takes."""
    values: dict[str, object] = {"matrices": prod(p.batch), **scalar_values(p.alpha, p.beta), **fusion_values(p.fusion, roles)}
    for name, operand, side in (("A", p.a, config.a), ("B", p.b, config.b), ("C", p.c, config.c)):
        rows, columns = (stride if q in side.order else 0 for q, stride in enumerate(operand.strides))
        if side.packed:
            values[name] = View(place(roles[name]), (1,))
        elif side.outermost or MATRICES not in side.order:
            values[name] = view(replace(operand, strides=(rows, columns)), roles[name])
        else:
            values[name] = View(place(roles[name]), (rows, columns, _flat_stride(operand, p.batch) or 0))
    return values | (batch_values(p.batch) if config.batch_modes else {})
