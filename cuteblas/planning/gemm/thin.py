"""Plans on ``gemm_thin``: products with few rows or columns, bound by the memory that the larger operand is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import gcd, prod

from ...codegen.dtypes import dtype
from ...kernels.common import OperandAccess
from ...kernels.gemm.thin import ThinConfig, ThinTile, gemm_thin
from ..cost.alternatives import Alternative
from ..floors import compulsory_bytes, multiply_adds_per_clock
from ..guard import gate_values
from ..operands import NARROW_SPAN, Oriented, alpha_kind, fused, gemm_span, gemm_values, launch
from ..plan import Launch, Plan
from ..problem import DeviceInfo, GemmProblem, Operand, transposed
from .simt import types
from .slices import Choice, adding_seconds, most_workspace, reduction, sliced, workspace_bytes

__all__ = ["plan_thin", "thin_alternatives", "thin_seconds", "why_not_thin"]

_COLUMNS = (1, 2, 3, 4, 6, 8, 12, 16)      # of tiles
_WARPS = ((4, 1), (2, 2), (1, 4), (1, 1), (8, 1), (1, 8))
_VECTOR_BYTES = 16
_STEP_BYTES = 128                           # that a thread loads of A before it multiplies
_REGISTERS, _OWN = 168, 32                  # of 4 bytes: what a thread may use, and what addresses and predicates take of them
_OF_MULTIPROCESSOR = 65536, 2048            # registers and threads
_LINE = 128                                 # bytes of a line, and of a wavefront
_FULL = (1, 2, 4, 8)                        # blocks on each multiprocessor for which K is cut into slices
_LEAST_STEPS = 2                            # of a slice
_MOST_ALONG = 64                            # threads that add the slices of an element
_PADDING = 2                                # a tile is at most so many times the matrix


@dataclass(frozen=True)
class _Read:
    """How A and B are read.

    Attributes
    ----------
    a, b : OperandAccess
        Which mode has stride 1, and vectors.
    fast : int
        The mode of A along which lanes are neighbours.
    """

    a: OperandAccess
    b: OperandAccess
    fast: int


def why_not_thin(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a problem cannot run on ``gemm_thin``, or ``None`` if it can."""
    if min(p.m, p.n) > _COLUMNS[-1]:
        return f"the result has more than {_COLUMNS[-1]} rows and columns"
    if p.precision not in ("auto", "ieee"):
        return f"it has no {p.precision}"
    if p.digits != 1:
        return "its elements are planes of bytes"
    return None


def _facing(p: GemmProblem) -> Oriented:
    """The problem whose result has few columns."""
    if p.n > p.m or (p.n == p.m and p.a.strides[1] != 1 and p.b.strides[1] == 1):
        return Oriented(transposed(p), ("b", "a"), True, "columns are few")
    return Oriented(p, ("a", "b"), False)


def _settled(operand: Operand, extents: tuple[int, int]) -> Operand:
    """The same operand with stride 0 in modes of extent 1."""
    first, second = (0 if n == 1 else s for n, s in zip(extents, operand.strides, strict=True))
    return replace(operand, strides=(first, second))


def _access(operand: Operand, extents: tuple[int, int]) -> OperandAccess:
    """How an operand is read or written: vectors along the mode with stride 1, as wide as address, extents and strides allow."""
    item, known = dtype(operand.dtype).bytes, _settled(operand, extents)
    best = OperandAccess(conj=operand.conj)
    for mode in (1, 0):
        if known.strides[mode] != 1:
            continue
        others = known.strides[1 - mode], *known.batch_strides
        width = gcd(_VECTOR_BYTES // item, max(1, operand.alignment // item), extents[mode], *others)
        if best.unit is None or width > best.width:
            best = OperandAccess(mode, width, operand.conj)
    return best


def _read(p: GemmProblem) -> _Read:
    a, b = _access(p.a, (p.m, p.k)), _access(p.b, (p.n, p.k))
    fast = a.unit
    if fast is None:
        fast = min((1, 0), key=lambda mode: ((p.m, p.k)[mode] == 1, abs(p.a.strides[mode])))
    return _Read(a, b, fast)


def _power_of_two(n: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, n - 1).bit_length()


def _registers(p: GemmProblem, tile: ThinTile) -> int:
    """What a thread needs."""
    (vm, vk), (rm, rk) = tile.values, tile.rest
    a, b, sums = dtype(p.a.dtype).bytes, dtype(p.b.dtype).bytes, dtype(p.accumulator).bytes
    return _OWN + -(-(vm * vk * rm * rk * a + tile.n * vk * rk * b + vm * rm * tile.n * max(4, sums)) // 4)


def _tiles(p: GemmProblem, read: _Read) -> Iterator[ThinTile]:
    """The tiles that a problem may have."""
    n = next(x for x in _COLUMNS if x >= p.n)
    item = dtype(p.a.dtype).bytes
    for width in (w for w in (16, 8, 4, 2, 1) if read.a.width % w == 0):
        found = False
        depth = read.b.width if read.fast == 0 and read.b.unit == 1 else 1         # of K that a thread multiplies at a time
        values = (width, depth) if read.fast == 0 else (1, width)
        whole = [_power_of_two(-(-x // v)) for x, v in zip((p.m, p.k), values, strict=True)]
        if read.fast == 0:
            along = min(32, whole[0])
            lanes = {(along, 32 // along)}
        else:
            line = max(1, _LINE // (item * width))
            lanes = {(32 // x, x) for x in (32, line) if x <= 32 and x <= max(1, whole[1])} or {(32 // whole[1], whole[1])}
        for (lm, lk), warps, rm, rk in product(sorted(lanes), _WARPS, (1, 2, 3, 4, 8), (1, 2, 4, 8, 16)):
            tile = ThinTile(n, (lm, lk), warps, values, (rm, rk), read.fast)
            fits = ((tile.m < _PADDING * p.m or (warps[0] == 1 and rm == 1))
                    and (tile.k < _PADDING * p.k or (warps[1] == 1 and rk == 1))
                    and prod(values) * rm * rk * item <= _STEP_BYTES and _registers(p, tile) <= _REGISTERS)
            if fits:
                found = True
                yield tile
        if found:
            return


def _slices(p: GemmProblem, tile: ThinTile, device: DeviceInfo) -> list[int]:
    """Numbers of slices of K that fill the device."""
    steps = -(-p.k // tile.k)
    blocks = -(-p.m // tile.m) * -(-p.n // tile.n) * prod(p.batch)
    outputs = p.m * p.n * prod(p.batch) * dtype(p.accumulator).bytes
    most = min(steps // _LEAST_STEPS, most_workspace(device) // max(1, outputs))
    numbers = (min(most, full * device.multiprocessors // blocks) for full in _FULL)
    return sorted({1, *(-(-steps // -(-steps // x)) for x in numbers if x > 1)})


def _estimated(p: GemmProblem, tile: ThinTile, slices: int, read: _Read, device: DeviceInfo) -> Choice[ThinTile]:
    """A tile, K in so many slices, and the estimated time.

    The time is the longest of what memory, the caches and the multiply-adds take, and of how long a block waits for its steps.
    """
    costs, kind = device.fitted["gemm_thin"], dtype(p.accumulator)
    depth = 0 if p.alpha == "zero" else p.k
    steps = -(-depth // tile.k)
    chunk = -(-steps // slices) * tile.k
    blocks = -(-p.m // tile.m) * -(-p.n // tile.n) * prod(p.batch) * slices
    (vm, vk), (rm, rk) = tile.values, tile.rest
    a, b = dtype(p.a.dtype).bytes, dtype(p.b.dtype).bytes
    warp_steps = blocks * prod(tile.warps) * -(-chunk // tile.k) if depth else 0
    # Wavefronts of loads, and the multiply-adds, of a warp in a step.
    loads_a = rm * rk * vm * vk // read.a.width
    loads_b = tile.n * rk * vk // (read.b.width if read.b.unit in (0, 1) else 1)
    spread = 32 * a if read.a.unit is not None or read.fast == 1 else 32 * 32
    lines_a, lines_b = (max(1, -(-x // _LINE)) for x in (spread * read.a.width, tile.lanes[1] * b * read.b.width))
    wavefronts = loads_a * lines_a + loads_b * lines_b
    multiply = 32 * tile.n * vm * vk * rm * rk * (4 if kind.is_complex else 1)
    per_clock = multiply_adds_per_clock("gemm_simt", p.accumulator, device) * costs["multiply-adds: share of rate"]
    clocks = warp_steps / device.multiprocessors * max(wavefronts / costs["wavefronts in a clock"], multiply / per_clock)
    again = blocks // slices // max(1, prod(p.batch)) * prod(p.batch) * tile.n * depth * b
    once = compulsory_bytes(p)
    traffic = max(once / costs["share of bandwidth"], (once + again) / costs["L2: share of bandwidth"])
    most, threads = _OF_MULTIPROCESSOR
    resident = max(1, min(most // (tile.threads * (_registers(p, tile) + 8)), threads // tile.threads, 32))
    waves = -(-blocks // (resident * device.multiprocessors))
    waiting = device.seconds(waves * (costs["block: clocks"] + -(-chunk // tile.k) * costs["step: clocks"]))
    outputs = p.m * p.n * prod(p.batch)
    seconds = (device.seconds(launches=1) + max(device.seconds(nbytes=traffic), device.seconds(clocks), waiting)
               + adding_seconds(slices, outputs * kind.bytes, device))
    return Choice(tile, slices, chunk, blocks, seconds)


def _choices(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[ThinTile]]:
    read = _read(p)
    for tile in _tiles(p, read):
        for slices in _slices(p, tile, device):
            yield _estimated(p, tile, slices, _narrowed(read, tile), device)


def _narrowed(read: _Read, tile: ThinTile) -> _Read:
    """The same with vectors that a tile has."""
    a, b = read.a, read.b
    a = replace(a, width=gcd(a.width, tile.values[a.unit])) if a.unit is not None else a
    b = replace(b, width=gcd(b.width, (tile.n, tile.values[1])[b.unit])) if b.unit is not None else b
    return replace(read, a=a, b=b)


def thin_seconds(problem: GemmProblem, device: DeviceInfo) -> float:
    """The estimated time of :func:`plan_thin`."""
    return min(choice.seconds for choice in _choices(_facing(problem).problem, device))


def thin_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All that :func:`plan_thin` chooses among."""
    p = _facing(problem).problem
    read = _read(p)
    for choice in _choices(p, device):
        def seconds(d: DeviceInfo, tile: ThinTile = choice.tile, slices: int = choice.slices) -> float:
            return _estimated(p, tile, slices, _narrowed(read, tile), d).seconds

        yield Alternative("gemm_thin", str(choice), seconds, partial(plan_thin, problem, device, choice=choice))


def plan_thin(problem: GemmProblem, device: DeviceInfo, *, gate: int | None = None,
              choice: Choice[ThinTile] | None = None) -> Plan:
    """Plan a product with few rows or columns.

    Parameters
    ----------
    problem : GemmProblem
        What to compute; no extent of the result is 0.
    device : DeviceInfo
        Where.
    gate : int, optional
        The verdict without which kernels do nothing.
    choice : Choice, optional
        Overrules that of the least estimated time.

    Raises
    ------
    ValueError
        If the kernel does not take the problem, or for more blocks than a grid can have.
    """
    if (refused := why_not_thin(problem, device)) is not None:
        raise ValueError(f"gemm_thin cannot compute this: {refused}")
    facing = _facing(problem)
    p, roles = facing.problem, facing.by_name
    choice = choice or min(_choices(p, device), key=lambda x: x.seconds)
    reason = (f"{types(p)} on fused multiply-adds, A straight into registers; tile {choice.tile}: {choice.blocks} blocks on "
              f"{device.multiprocessors} multiprocessors")
    workspace = 0
    if choice.slices == 1:
        launches: tuple[Launch, ...] = (_product(p, choice, roles, gate),)
    else:
        reason += f", K in {choice.slices} slices of {choice.chunk}, added in order"
        product_ = _product(sliced(p, choice.slices, choice.chunk), choice, {**roles, "C": "workspace"}, gate)
        launches = product_, reduction(p, choice.slices, gate, min(_MOST_ALONG, max(2, _power_of_two(-(-choice.slices // 4)))))
        workspace = workspace_bytes(p, choice.slices)
    if any(each.grid[0] >= 2**31 for each in launches):
        raise ValueError(f"a product of {problem.m} x {problem.n} in a batch of {prod(problem.batch)} needs more blocks than "
                         "the 2^31 - 1 of a grid")
    return Plan(problem, device, "gemm_thin", choice, launches, workspace, reason + facing.note, launches[0].kernel.facts,
                choice.seconds)


def _product(p: GemmProblem, choice: Choice[ThinTile], roles: dict, gate: int | None) -> Launch:
    """The launch of ``gemm_thin``; the outermost batch mode walks over slices if there are several."""
    tile = choice.tile
    read = _narrowed(_read(p), tile)
    c = _access(p.c, (p.m, p.n))
    run = tile.n if c.unit == 1 else tile.values[0]
    c = replace(c, width=gcd(c.width, run))
    config = ThinConfig(p.a.dtype, p.c.dtype, tile, read.a, read.b, c, alpha_kind(p.alpha), p.beta, len(p.batch), choice.slices > 1,
                        gemm_span(p, choice.chunk) >= NARROW_SPAN, False, fused(p, 1 if c.unit == 1 else 0, c.width),
                        element_b=p.b.dtype if p.b.dtype != p.a.dtype else None, accumulator=p.accumulator, gate=gate)
    return launch(gemm_thin(config), (choice.blocks, 1, 1), gemm_values(p, roles), choice.values, gate_values(gate))
