"""``reduce_modes``: R[i] = the sum, maximum or minimum of X[i, j], or the sum of X[i, j] Y[i, j].

Threads are an array along (i, j), lanes along the contiguous mode. Each keeps its result in
registers; halves of the array fold onto each other in a fixed order. Slices of j are a batch mode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ..._dtypes import dtype
from ...codegen import (
    CodegenError,
    GeneratedKernel,
    TensorParam,
    TiledCopy,
    Value,
    Vector,
)
from ...codegen.epilogue import literal
from ...layout import Layout, _, idx2crd
from ...layout.symbolic import IntLike, ceil_div, minimum
from ..common import (
    ELEMENTS,
    WARP,
    OperandAccess,
    Pair,
    builder,
    butterfly,
    coordinates,
    existing,
    fold_halves,
    operand,
    part_of_tile,
    unravel,
    vectors_along,
)

OPERATIONS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""Device functions of two values; maximum and minimum hand on a NaN, as NumPy's do."""

_UNROLL = 4                         # vectors along j that a thread has under way at once
_MAX_VECTOR_BYTES = 16


@dataclass(frozen=True)
class ReduceModesConfig:
    """The configuration of a ``reduce_modes`` kernel. Mode 0 of ``x`` is i, mode 1 is j; ``lanes``
    is the mode along which threads are neighbours. With ``sliced`` the last batch mode walks over
    slices of j, ``chunk`` long; with ``y`` products are summed."""

    op: str
    element: str
    accumulator: str
    output: str
    x: OperandAccess
    threads: Pair
    lanes: int
    batch_modes: int = 0
    sliced: bool = False
    wide: bool = False
    y: OperandAccess | None = None

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS:
            raise CodegenError(f"op is one of {', '.join(map(repr, OPERATIONS))}, got {self.op!r}")
        if self.x.unit not in (None, self.lanes) or any(n < 1 or n & (n - 1) for n in self.threads):
            raise CodegenError(
                f"lanes lie along the contiguous mode, and threads must be powers of two, got {self}"
            )
        if self.y and (self.op != "sum" or self.y.unit not in (None, self.lanes)
                       or self.x.width % self.y.width):
            raise CodegenError(
                f"Y needs op='sum' and vectors along X's lanes that divide X's, got {self}"
            )

    @property
    def reader(self) -> TiledCopy:
        return vectors_along(self.lanes, self.threads, self.x.width)

    @property
    def tile(self) -> Pair:
        """Elements along (i, j) that a block reads in one step."""
        rows, depth = self.reader.tile
        return rows, depth * _UNROLL

    @property
    def name(self) -> str:
        types = "_".join(dtype(name).tag for name in (self.element, self.accumulator, self.output))
        read = "_".join(f"{each.letter('ij')}{each.width}{'c' * each.conj}"
                        for each in (self.x, self.y) if each)
        return (
            f"reduce_{'dot' if self.y else self.op}_{types}_{self.threads[0]}x{self.threads[1]}_lanes_{'ij'[self.lanes]}_{read}"
            f"_b{self.batch_modes}{'_split' if self.sliced else ''}{'_wide' if self.wide else ''}"
        )


def _identity(op: str, accumulator: str) -> Value | None:
    """What a reduction of nothing gives, if it is not zero."""
    if op == "sum":
        return None
    kind = dtype(accumulator)
    if not kind.is_integer:
        return literal(float("-inf") if op == "max" else float("inf"), accumulator)
    bits, signed = 8 * kind.bytes, not accumulator.startswith("u")
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return literal(least if op == "max" else greatest, accumulator)


@cache
def reduce_modes(config: ReduceModesConfig) -> GeneratedKernel:
    reader = config.reader
    (ti, tj), (vi, vj) = config.threads, reader.values
    folder = replace(reader, values=(vi, 1))
    accumulator = config.accumulator
    accesses = {"X": config.x} | ({"Y": config.y} if config.y else {})
    what = f"sum of {'conj(X[i, j])' if config.x.conj else 'X[i, j]'} Y[i, j]" if config.y else f"{config.op} of X[i, j]"
    k = builder(
        config,
        ti * tj,
        summary=f"R[i] = {what} over j: {config.element} in {accumulator} to {config.output}, "
        f"tile {config.tile}\n"
        f"threads {reader.threads}, each {reader.values} elements at a time"
    )
    *inputs, R = k.tensors(*(operand(name, "ij", config.element, access)
                             for name, access in accesses.items()),
                           TensorParam("R", "ij", config.output, (None, 0), written=True),
                           modes="ij", batch=config.batch_modes)
    X = inputs[0]
    (I, J), batch = map(k.extent, "ij"), X.batch

    block, tiles = k.block_index(), k.let("tiles", ceil_div(I, config.tile[0]))
    tile, item = unravel(k, block, tiles, several=bool(batch))
    depth: IntLike = J
    if config.sliced:
        chunk = k.integer("chunk", multiple=X.param.along("j"))
        depth = k.let("depth", minimum(chunk, J - idx2crd(item, batch)[-1] * chunk))

    mine = part_of_tile(reader, config.tile, (tile, _), k.thread)       # of X, step by step
    parts = [k.pin(f"tXg{x.param.name}", mine(x.at(item, (I, depth)))) for x in inputs]
    exists = existing(k, "tXcX", mine, (I, depth))
    read, *others = (k.registers(f"tXr{name}", config.element, (vi * vj, 1, _UNROLL))
                     for name in accesses)
    total, part = (k.registers(name, accumulator, (vi, 1, 1)) for name in ("total", "part"))

    k.fill(total, _identity(config.op, accumulator))
    with k.loop("step", k.let("steps", ceil_div(depth, config.tile[1]))) as step:
        here = exists[..., step]
        for access, source, target in zip(accesses.values(), parts, (read, *others), strict=True):
            k.copy(Vector(access.width), source[..., step], target, guard=here)
        # What does not exist was read as zero: nothing to a sum, not so to the largest or the
        # smallest.
        with k.loops((vi * vj, 1, _UNROLL)) as (v, i, j), k.when(config.op == "sum"
                                                                 or here.at((v, i, j))):
            into = total(v if vi > 1 else 0, 0, 0)
            if config.y:
                conj = (config.x.conj, config.y.conj)
                k.do("mac", into, read(v, i, j), others[0](v, i, j), of=conj if any(conj) else ())
            else:
                k.assign(into, k.call(OPERATIONS[config.op], into,
                                      k.convert(read(v, i, j), accumulator)))

    results = config.tile[0], tj
    tRcR = coordinates(k, "tRcR", folder, results)
    if config.y and config.lanes == 1 and tj <= WARP and dtype(accumulator).kind != "b":
        k.comment("Fold the lanes along j")
        k.fold_lanes(total(0, 0, 0), OPERATIONS[config.op],
                     [*butterfly(tj)][::-1])
    elif tj > 1:
        k.comment("Fold the threads along j, half onto half")
        shared = k.shared("sR", accumulator, Layout(results, (1, results[0]) if config.lanes == 0
                                                    else (tj, 1)))
        width = min(vi, _MAX_VECTOR_BYTES // dtype(accumulator).bytes)
        fold_halves(k, folder, shared, tRcR(0, 0, 0)[1], (total, part), OPERATIONS[config.op],
                    width)

    k.comment("The first threads along j have the results")
    owned = part_of_tile(folder, results, (tile, 0), k.thread)
    tRgR = k.pin("tRgR", owned(R.at(item, (I, tj))))
    last = existing(k, "tRcR_i", owned, (I, tj), (I, 1))
    result = k.registers("tRrR", config.output, (vi, 1, 1))
    k.fill(result, lambda *at: k.convert(total(*at), config.output))
    k.copy(ELEMENTS, result, tRgR, guard=last)
    return k.build()
