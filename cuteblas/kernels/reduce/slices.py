"""``reduce_split``: C = alpha * (sum of slices along K) + beta * C, in a fixed order of additions.

Slices are M-major in a workspace. They are added in chains that take turns, by one thread or,
where slices are many, by several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial

from ..._dtypes import dtype
from ...codegen import GeneratedKernel, by_coordinate
from ...layout import Layout, _, local_tile, make_tensor, product
from ...layout.symbolic import IntLike
from ..common import (
    ELEMENTS,
    OperandAccess,
    Pair,
    builder,
    existing,
    fold_chains,
    fold_halves,
    operand,
    tile_of_block,
    vectors_along,
)
from ..epilogue import Epilogue, EpilogueConfig, OutputTile
from ..guard import gate_tag

TILE = (32, 8)
_THREADS = 256
# of additions, of each thread: the rounding of one would grow with the number of slices
_CHAINS = 4


@dataclass(frozen=True)
class ReduceConfig(EpilogueConfig):
    """The configuration of a ``reduce_split`` kernel; ``along`` threads share an element."""

    accumulator: str
    output: str
    c: OperandAccess
    batch_modes: int = 0
    modes: Pair = (1, 1)
    gate: int | None = None
    along: int = 1
    triangle: str | None = None

    @property
    def tile(self) -> Pair:
        return TILE if self.along == 1 else (_THREADS // self.along, 1)

    @property
    def name(self) -> str:
        modes = "" if self.modes == (1, 1) else f"_modes{''.join(map(str, self.modes))}"
        return (
            f"reduce_split_{dtype(self.accumulator).tag}_{dtype(self.output).tag}_{self.c.letter('mn')}"
            f"_{self.alpha[0]}{self.beta[0]}_b{self.batch_modes}{'_wide' * self.wide}{modes}"
            f"{f'_along{self.along}' if self.along > 1 else ''}"
            f"{f'_{self.triangle}' if self.triangle else ''}{self.fused}{gate_tag(self.gate)}"
        )


@cache
def reduce_split(config: ReduceConfig) -> GeneratedKernel:
    """Generate the kernel; W holds slices (M, N, batch, slice), M fastest, slices slowest."""
    k = builder(
        config,
        _THREADS,
        min_blocks=2,
        summary=f"C = alpha * sum of slices of W + beta * C: {config.accumulator} to {config.output}, "
        "slices added in a fixed order"
    )
    k.gate(config.gate)
    pw = k.pointer("W", config.accumulator, alignment=dtype(config.accumulator).bytes)
    (C,) = k.tensors(operand("C", "mn", config.output, config.c, written=True), modes="mnS",
                     batch=config.batch_modes, nested=dict(zip("mn", config.modes, strict=True)))
    S, batch = k.extent("S"), C.batch
    epilogue = Epilogue(k, config, config.accumulator)

    M, N = (k.let(name, product(extent)) for name, extent in zip("MN", C.extents, strict=True))
    epilogue.load_scalars()
    tile, along = config.tile, config.along
    tile_m, tile_n, item = tile_of_block(k, (M, N), tile, bool(batch))
    mW = make_tensor(pw, (M, N, batch, S))[..., item, _] if batch else make_tensor(pw, (M, N, S))
    mC = by_coordinate(C.at(item), (M, N))

    tiled = vectors_along(0, tile)
    thread = k.thread if along == 1 else k.let("element", k.thread % product(tile))
    first: IntLike = 0 if along == 1 else k.let("first", k.thread // product(tile))

    tile_of = partial(local_tile, tiler=tile, coord=(tile_m, tile_n))
    mine = partial(tiled.partition, thread=thread)
    tWgW = k.pin("tWgW", mine(tile_of(mW)))                            # (1, 1, 1, slice)
    guard = replace(existing(k, "tCcC", lambda identity: mine(tile_of(identity)), (M, N)),
                    triangle=config.triangle)
    several = Layout((1, 1, 1, _CHAINS))
    totals, parts = (k.registers(name, config.accumulator, several) for name in ("total", "part"))
    total, part = totals[..., 0], parts[..., 0]
    k.fill(totals)
    k.comment(
        "Chains of additions that take turns: slice after slice, while each has one, then what is left"
    )
    each = along * _CHAINS
    whole = k.let("whole", S // each * each)
    with k.loop("slice", whole, start=first, step=each) as index:
        for chain in range(_CHAINS):
            k.copy(ELEMENTS, tWgW[..., index + chain * along], parts[..., chain],
                   guard=guard)
        k.fold(totals, parts)
    k.fill(parts)
    for chain in range(_CHAINS if along > 1 else _CHAINS - 1):
        index = whole + first + chain * along
        with k.when(index < S):
            k.copy(ELEMENTS, tWgW[..., index], parts[..., chain], guard=guard)
    k.fold(totals, parts)
    fold_chains(k, totals, _CHAINS)
    if along > 1:
        k.comment("Fold the threads of an element, half onto half")
        sR = k.shared("sR", config.accumulator, (product(tile), along))
        shared = vectors_along(0, (product(tile), along))
        fold_halves(k, shared, sR, first, (total, part))
    epilogue.clear(total)
    k.let_next_launch_begin()
    with k.when(first < 1 if along > 1 else True):
        epilogue.store(total, OutputTile(tile_of(mC), mine, tile_of, (M, N), item, guard))
    return k.build()
