"""The transposes of L. Mao's "CuTe Matrix Transpose": six settings of one generator.

Blocks of 256 threads move tiles of 32 x 64 element by element. Naive ones are strided in global
memory; through shared memory both sides are coalesced, and the tile's layout decides the bank
conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.copies import CpAsync
from ..codegen.engine import CodegenError
from ..codegen.kernel import GeneratedKernel
from ..codegen.signature import TensorParam
from ..kernels.common import ELEMENTS, tile_of_block
from ..layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    local_partition,
    local_tile,
    make_identity_tensor,
    size,
)

TILE = (32, 64)                     # rows and columns that a block moves
ALONG_N = Layout((8, 32), (32, 1))  # threads row-major: the lanes of a warp are neighbours along N
ALONG_M = Layout((32, 8), (1, 32))  # threads column-major: the lanes of a warp are neighbours along
                                    # M
_BANK_BYTES, _BANKS_BITS = 4, 5


def padded(item: int) -> Layout:
    """The row-major tile with rows longer by an element, or a bank for small elements."""
    return Layout(TILE, (TILE[1] + max(1, _BANK_BYTES // item), 1))


def swizzled(item: int) -> ComposedLayout:
    """The row-major tile whose columns (6 bits) are exclusive-ored with the row (5 bits above)."""
    # Elements smaller than a bank move in groups that fill one; in rows shorter than 32 banks,
    # only the row's bits that lead to another line of banks count.
    rows, columns = (n.bit_length() - 1 for n in TILE)
    base = max(1, _BANK_BYTES // item).bit_length() - 1
    bits = min(_BANKS_BITS, columns - base)
    return ComposedLayout(Swizzle(bits, base, rows + columns - bits - base), 0,
                          Layout(TILE, (TILE[1], 1)))


@dataclass(frozen=True)
class TutorialTransposeConfig:
    """The configuration of a transpose of the tutorial. ``writers`` maps a position to the thread
    that writes (and reads, without ``shared``); not ``predicated``, tiles must divide the
    matrix."""

    item: int
    label: str
    shared: Layout | ComposedLayout | None = None
    writers: Layout = ALONG_M
    predicated: bool = True
    wide: bool = False

    def __post_init__(self) -> None:
        places = range(TILE[0] * TILE[1])
        if self.shared is not None and len(set(map(self.shared, places))) != len(places):
            raise CodegenError(
                f"shared memory must hold each of the {TILE[0]} x {TILE[1]} elements once, got {self.shared}"
            )

    @property
    def name(self) -> str:
        return f"transpose_{self.label}{'' if self.predicated else '_unpredicated'}_b{8 * self.item}{'_wide' if self.wide else ''}"


@cache
def tutorial_transpose(config: TutorialTransposeConfig) -> GeneratedKernel:
    """Generate the transpose, a block for each tile, along N first."""
    shared, writers, element = config.shared, config.writers, f"b{8 * config.item}"
    k = KernelBuilder(
        config.name,
        size(writers),
        wide=config.wide,
        waits=False,
        summary=f"D[m, n] = S[m, n], N contiguous in S and M in D: elements of {config.item} bytes\n"
        + (f"threads {writers}" if shared is None
           else f"through shared memory; threads {ALONG_N} read, {writers} write")
    )
    S, D = k.tensors(TensorParam("S", "mn", element, (None, 1)),
                     TensorParam("D", "mn", element, (1, None), written=True), modes="mn")
    extents = k.extent("m"), k.extent("n")
    tile_n, tile_m, _ = tile_of_block(k, extents[::-1], TILE[::-1], batched=False)
    source, target, coordinates = (local_tile(matrix, TILE, (tile_m, tile_n))
                                   for matrix in (S.at(), D.at(), make_identity_tensor(extents)))

    def part(name: str, tile: Tensor, threads: Layout) -> Tensor:
        return k.pin(name, local_partition(tile, threads, k.thread))

    def guard(name: str, threads: Layout) -> Guard | None:
        """Which of this thread's elements exist, in one of two thread layouts."""
        return Guard(part(name, coordinates, threads), extents) if config.predicated else None

    if shared is None:
        read, written = part("tSgS", source, writers), part("tDgD", target, writers)
        exists = loaded = guard("tScS", writers)
    else:
        sT = k.shared("sT", element, shared)
        k.comment("Rows in")
        tSgS, tSsT = part("tSgS", source, ALONG_N), part("tSsT", sT, ALONG_N)
        k.copy(CpAsync(1), tSgS, tSsT, guard=guard("tScS", ALONG_N))
        k.commit()
        k.wait(0)
        k.barrier()
        k.comment("Columns out")
        read, written = part("tDsT", sT, writers), part("tDgD", target, writers)
        exists, loaded = guard("tDcD", writers), None
    fragment = k.registers("fragment", element, tuple(n // size(writers[i])
                                                      for i, n in enumerate(TILE)))
    k.copy(ELEMENTS, read, fragment, guard=loaded)
    k.copy(ELEMENTS, fragment, written, guard=exists)
    return k.build()
