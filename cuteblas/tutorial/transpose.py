"""The transposes of a tutorial: six settings of two generators, from uncoalesced to free of bank
conflicts.

A matrix S (M, N) whose mode N is contiguous goes to a matrix D (M, N) whose mode M is contiguous:
the same coordinates in both, so that a row-major matrix becomes its row-major transpose. Blocks of
256 threads move tiles of 32 x 64, one element at a time.

``transpose_naive``
    From global memory to global memory. The thread layout decides whether a warp reads or writes
    neighbours; the other side is strided.
``transpose_smem``
    Both sides are coalesced in global memory; the stride is in shared memory, where the tile's
    layout decides how many lanes of a warp conflict in one bank.

References
----------
L. Mao, "CuTe Matrix Transpose".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..codegen.builder import Guard, KernelBuilder
from ..codegen.copies import CpAsync, Vector
from ..codegen.engine import CodegenError
from ..codegen.kernel import GeneratedKernel
from ..codegen.signature import TensorParam
from ..kernels.common import tile_of_block
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

__all__ = ["ALONG_M", "ALONG_N", "TILE", "NaiveConfig", "SharedConfig", "naive_transpose", "padded",
           "shared_transpose", "swizzled"]

TILE = (32, 64)                     # rows and columns that a block moves
ALONG_N = Layout((8, 32), (32, 1))  # threads row-major: the lanes of a warp are neighbours along N
ALONG_M = Layout((32, 8), (1, 32))  # threads column-major: the lanes of a warp are neighbours along
                                    # M
_BANK_BYTES, _BANKS_BITS = 4, 5


def padded(item: int) -> Layout:
    """The row-major tile with rows one element longer than they are filled; for small elements, one
    bank longer."""
    return Layout(TILE, (TILE[1] + max(1, _BANK_BYTES // item), 1))


def swizzled(item: int) -> ComposedLayout:
    """The row-major tile whose columns are exclusive-ored with the row.

    The columns are 6 bits of the offset and the rows the 5 bits above. Elements smaller than a bank
    move in groups that fill one, and if rows are shorter than the 32 banks, only the bits of the
    row that lead to another line of banks count.
    """
    rows, columns = (n.bit_length() - 1 for n in TILE)
    base = max(1, _BANK_BYTES // item).bit_length() - 1
    bits = min(_BANKS_BITS, columns - base)
    return ComposedLayout(Swizzle(bits, base, rows + columns - bits - base), 0,
                          Layout(TILE, (TILE[1], 1)))


@dataclass(frozen=True)
class NaiveConfig:
    """What a naive transpose is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element.
    threads : Layout
        Position in the tile -> thread: :data:`ALONG_N` coalesces reads, :data:`ALONG_M` writes.
    predicated : bool
        Whether elements are checked against the extents; without, tiles must divide the matrix.
    wide : bool
        Whether offsets need 64 bits.
    """

    item: int
    threads: Layout = ALONG_N
    predicated: bool = True
    wide: bool = False

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return f"transpose_naive_{'read' if self.threads == ALONG_N else 'write'}{_suffix(self)}"


@dataclass(frozen=True)
class SharedConfig:
    """What a transpose through shared memory is specialised on.

    Attributes
    ----------
    item : int
        Bytes of an element.
    label : str
        Ends the kernel's name: the layout of the tile in shared memory, in a word.
    shared : Layout or ComposedLayout
        The (M, N) tile in shared memory, in elements.
    predicated : bool
        Whether elements are checked against the extents; without, tiles must divide the matrix.
    wide : bool
        Whether offsets need 64 bits.
    """

    item: int
    label: str
    shared: Layout | ComposedLayout
    predicated: bool = True
    wide: bool = False

    def __post_init__(self) -> None:
        if len({self.shared(i) for i in range(size(self.shared.shape))}) != TILE[0] * TILE[1]:
            raise CodegenError(
                f"shared memory must hold each of the {TILE[0]} x {TILE[1]} elements once, got {self.shared}"
            )

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return f"transpose_smem_{self.label}{_suffix(self)}"


def _suffix(config: NaiveConfig | SharedConfig) -> str:
    return f"{'' if config.predicated else '_unpredicated'}_b{8 * config.item}{'_wide' if config.wide else ''}"


class _Problem:
    """What all kernels here start with: parameters, and the block's tiles of S, of D and of
    coordinates."""

    def __init__(self, k: KernelBuilder, item: int, predicated: bool):
        self._k, self._predicated = k, predicated
        word = f"b{8 * item}"
        S, D = k.tensors(TensorParam("S", "mn", word, (None, 1)),
                         TensorParam("D", "mn", word, (1, None), written=True), modes="mn")
        self._extents = k.extent("m"), k.extent("n")
        tile_n, tile_m, _ = tile_of_block(k, self._extents[::-1], TILE[::-1], batched=False)
        self._at = tile_m, tile_n
        self.source, self.target = (local_tile(x.at(), TILE, self._at) for x in (S, D))

    def partition(self, name: str, tensor: Tensor, threads: Layout) -> Tensor:
        """This thread's elements of a tile."""
        return self._k.pin(name, local_partition(tensor, threads, self._k.thread))

    def guard(self, name: str, threads: Layout) -> Guard | None:
        """Which of this thread's elements exist. Two thread layouts need two guards: the same
        thread holds other elements."""
        if not self._predicated:
            return None
        coordinates = local_tile(make_identity_tensor(self._extents), TILE, self._at)
        return Guard(self.partition(name, coordinates, threads), self._extents)


def _registers(k: KernelBuilder, item: int, threads: Layout) -> Tensor:
    """A fragment with this thread's elements of a tile."""
    extents = tuple(n // size(threads[i]) for i, n in enumerate(TILE))
    return k.registers("fragment", f"b{8 * item}", extents)


@cache
def naive_transpose(config: NaiveConfig) -> GeneratedKernel:
    """Generate a transpose straight from global memory to global memory. There is one block for
    each tile, tiles along N first."""
    k = KernelBuilder(
        config.name,
        size(config.threads),
        wide=config.wide,
        waits=False,
        summary=f"D[m, n] = S[m, n], N contiguous in S and M in D: elements of {config.item} bytes\n"
        f"threads {config.threads}"
    )
    p = _Problem(k, config.item, config.predicated)
    tSgS, tDgD = p.partition("tSgS", p.source, config.threads), p.partition("tDgD", p.target, config.threads)
    guard = p.guard("tScS", config.threads)
    fragment = _registers(k, config.item, config.threads)
    k.copy(Vector(1), tSgS, fragment, guard=guard)
    k.copy(Vector(1), fragment, tDgD, guard=guard)
    return k.build()


@cache
def shared_transpose(config: SharedConfig) -> GeneratedKernel:
    """Generate a transpose through shared memory. There is one block for each tile, tiles along N
    first."""
    k = KernelBuilder(
        config.name,
        size(ALONG_N),
        wide=config.wide,
        waits=False,
        summary=f"D[m, n] = S[m, n], N contiguous in S and M in D: elements of {config.item} bytes\n"
        f"through shared memory; threads {ALONG_N} read, {ALONG_M} write"
    )
    p = _Problem(k, config.item, config.predicated)
    sT = k.shared("sT", f"b{8 * config.item}", config.shared)

    k.comment("Rows in")
    tSgS, tSsT = p.partition("tSgS", p.source, ALONG_N), p.partition("tSsT", sT, ALONG_N)
    k.copy(CpAsync(1), tSgS, tSsT, guard=p.guard("tScS", ALONG_N))
    k.commit()
    k.wait(0)
    k.barrier()

    k.comment("Columns out")
    tDsT, tDgD = p.partition("tDsT", sT, ALONG_M), p.partition("tDgD", p.target, ALONG_M)
    guard = p.guard("tDcD", ALONG_M)
    fragment = _registers(k, config.item, ALONG_M)
    k.copy(Vector(1), tDsT, fragment)
    k.copy(Vector(1), fragment, tDgD, guard=guard)
    return k.build()
