"""``gemm_mma``: C = alpha A B^T + beta C on warp-level tensor cores (``mma.sync``), from sm_75 on.

Tiles of A and B come through a ring of shared-memory stages, filled by asynchronous copies that zero-fill what is outside and
keep the operand's own order: rows along whichever mode is contiguous in global memory, swizzled. ``ldmatrix`` loads fragments from
either order (16-bit elements); larger elements are loaded one by one. Block tile, warp tile and instruction are one nested layout.

16-bit elements are summed in float32, truncated to it after every instruction; 8-bit integers in int32, which wraps; float64 in the
order of k by fused multiply-adds, so that results are those of ``gemm_simt``. complex128 is summed in the same way, but for each
four elements of k first what the real part of B multiplies, then what the imaginary part does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import gcd

from ...codegen.builder import KernelBuilder
from ...codegen.copies import CpAsync, Ldmatrix, Vector
from ...codegen.dtypes import dtype
from ...codegen.engine import CodegenError
from ...codegen.kernel import GeneratedKernel
from ...codegen.mma import MmaAtom, RegisterPlanes, WarpMma, operand_tile
from ...codegen.signature import TensorParam
from ...codegen.tiled import TiledCopy
from ...layout import ComposedLayout, Layout, Tensor, _, make_layout, size
from ...layout.symbolic import IntLike
from ..common import OperandAccess
from ..guard import NATIVE, leave_verdict
from .block import GemmBlock, GemmConfig, builder
from .main_loop import main_loop
from .skinny import RANGE

__all__ = ["MmaConfig", "MmaTile", "gemm_mma"]

_MATRICES = 4                        # registers that one ldmatrix fills
_PAIR = 2                            # elements of C along N that a thread has side by side


@dataclass(frozen=True)
class MmaTile:
    """How a tile of C is divided.

    Attributes
    ----------
    m, n, k : int
        Extents of the tile that a block computes, and its step along K.
    atom : MmaAtom
        The instruction.
    warps : tuple of int
        Warps of a block along (M, N).
    stages : int
        Stages of the shared-memory ring.
    min_blocks : int
        Blocks that should fit on a multiprocessor at once.
    """

    m: int
    n: int
    k: int
    atom: MmaAtom
    warps: tuple[int, int] = (2, 2)
    stages: int = 4
    min_blocks: int = 1

    def __post_init__(self) -> None:
        m, n, k = self.atom.shape
        if self.m % (m * self.warps[0]) or self.n % (n * self.warps[1]) or self.k % k or self.stages < 2:
            raise CodegenError(f"{self.warps} warps of instructions {self.atom.shape} do not divide the tile "
                               f"{self.m}x{self.n}x{self.k} in {self.stages} stages")

    @property
    def mma(self) -> WarpMma:
        """Which warp owns what: a compact part of the tile each."""
        (m, n, _k), (wm, wn) = self.atom.shape, self.warps
        return WarpMma(self.atom, self.warps, (self.m // (m * wm), self.n // (n * wn)))

    def run(self, output: str, triangle: str | None) -> int:
        """Elements of C along N that a thread writes side by side at most: a pair, or four where lanes exchange pairs, so that
        stores of 2-byte elements fill sectors.
        """
        exchanges = dtype(self.atom.element).bytes == dtype(output).bytes == 2 and self.mma.atoms[1] % 2 == 0 and triangle is None
        return 2 * _PAIR if exchanges else _PAIR

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return (self.m + self.n) * self.k * dtype(self.atom.element).bytes

    def __str__(self) -> str:
        warp, (m, n, k) = self.mma.warp_tile, self.atom.shape
        return (f"{self.m}x{self.n}x{self.k}, {self.warps[0]}x{self.warps[1]} warps of {warp[0]}x{warp[1]}, instructions of "
                f"{m}x{n}x{k}, {self.stages} stages")


@dataclass(frozen=True)
class MmaConfig(GemmConfig):
    """Everything that a ``gemm_mma`` kernel is specialised on: see :class:`~cuteblas.kernels.gemm.block.GemmConfig`.

    Attributes
    ----------
    tile : MmaTile
        The division of the work.
    """

    tile: MmaTile

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        t = self.tile
        shape = "".join(f"{letter}{n}" for letter, n in zip("mnk", t.atom.shape, strict=True))
        return (f"gemm_mma_{self.types}_{t.m}x{t.n}x{t.k}_{t.warps[0]}x{t.warps[1]}_{shape}"
                f"_s{t.stages}_{self.traits}")


def _loader(extent: int, tile: MmaTile, access: OperandAccess) -> TiledCopy:
    """The copy of an (extent, K) tile: lanes run along whichever mode is contiguous, each with a vector along it."""
    threads = tile.mma.threads
    along, across = (extent, tile.k) if access.unit == 0 else (tile.k, extent)
    lanes = gcd(along // access.width, threads)
    rows = gcd(across, threads // lanes)
    lanes = threads // rows
    if access.unit == 0:
        return TiledCopy(Layout((lanes, rows)), (access.width, 1))
    return TiledCopy(Layout((rows, lanes), (lanes, 1)), (1, access.width))


def _ring(k: KernelBuilder, name: str, mode: int, tile: MmaTile, k_major: bool) -> Tensor:
    """A ring of swizzled operand tiles in shared memory: (extent, K, stage)."""
    one = operand_tile((tile.m, tile.n)[mode], tile.k, tile.atom.element, k_major, tile.atom.apart[mode])
    inner = make_layout(one.inner[0], one.inner[1], Layout(tile.stages, size(one.inner)))
    return k.shared(name, tile.atom.element, ComposedLayout(one.outer, 0, inner), alignment=1024)


class _Fragment:
    """The registers of one operand, two buffers of them, and how they are loaded from shared memory."""

    def __init__(self, k: KernelBuilder, name: str, config: MmaConfig, mode: int, ring: Tensor, k_major: bool):
        tile, tiled = config.tile, config.tile.mma
        atom, atoms = tile.atom, tiled.atoms[mode]
        per_atom = atom.shape[mode] * atom.shape[2] // 32 // atom.per_register
        count = per_atom * atoms
        self._k, self._k_major = k, k_major
        registers = k.registers(f"tCr{name}", atom.register, Layout((per_atom, atoms, 2)))
        self.registers = registers
        rows = tiled.matrices(mode, k_major)
        self._by_rows = rows is not None
        if rows is not None:
            self._source = k.pin(f"tCs{name}", tiled.partition_rows(ring, mode, rows, k.thread))
            self._target = Tensor(registers.engine, Layout((_MATRICES, count // _MATRICES, 2)))
        elif atom.per_register == 1:
            part = (tiled.partition_a, tiled.partition_b)[mode](ring, k.thread)
            self._source = k.pin(f"tCs{name}", part.map_domain(lambda layout: make_layout(layout[0], *list(layout)[2:])))
            self._target = Tensor(registers.engine, Layout((count, 2)))
        else:
            raise CodegenError(f"{config.name}: ldmatrix does not load operand {name} of {atom.element}: 8-bit elements are "
                               "contiguous along K, and a warp owns quadruples of registers")

    def fetch(self, step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        """Load what one step along K multiplies."""
        if self._by_rows:
            self._k.copy(Ldmatrix(not self._k_major), self._source[_, _, step, stage], self._target[_, _, buffer])
        else:
            self._k.copy(Vector(1), self._source[_, step, stage], self._target[_, buffer])


@cache
def gemm_mma(config: MmaConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    Parameters
    ----------
    config : MmaConfig
        What the kernel is specialised on. C is read and written in vectors along N, of 1, 2 or 4.

    Returns
    -------
    GeneratedKernel
        Its matrices and scalars are those of :class:`~cuteblas.kernels.gemm.block.GemmBlock`.

    Raises
    ------
    CodegenError
        If the tile does not divide among the threads, or a vector width is not provable.
    """
    tile, atom, tiled = config.tile, config.tile.atom, config.tile.mma
    run = tile.run(config.output, config.triangle)
    if config.c.width > run or (config.c.width > 1 and config.c.unit != 1):
        raise CodegenError(f"a thread holds {run} elements side by side along N, the most that vectors of C have, got {config.c}")
    load_a, load_b = _loader(tile.m, tile, config.a), _loader(tile.n, tile, config.b)
    for what, extents, by in (("A", (tile.m, tile.k), load_a.tile), ("B", (tile.n, tile.k), load_b.tile)):
        if any(e % b for e, b in zip(extents, by, strict=True)):
            raise CodegenError(f"{config.name}: the tile {extents} of {what} does not divide into {by}")

    k = builder(config, config.name, tiled.threads, arch=atom.arch, min_blocks=tile.min_blocks, wide=config.wide,
                summary="C = alpha * A * B^T + beta * C with A (M,K), B (N,K), C (M,N): "
                        f"{config.element} to {config.output}, tile {tile}\n"
                        f"mma.sync: A {atom.tv_a}, B {atom.tv_b}, C {atom.tv_c}\n"
                        f"threads of C {tiled.tv_c}, of A {load_a.tv}, of B {load_b.tv}")
    ranges = (("least", 2**32 - 1), ("most", 0), ("lost", 0)) if atom.splits else ()
    seen = [k.declare(name, "uint32", first) for name, first in ranges]
    block = GemmBlock(k, config, atom.accumulator, several=atom.splits)
    status, = k.tensors(TensorParam("status", "", "uint32", written=True, batch=False)) if atom.splits else (None,)
    tid, majors = k.thread, (config.a.unit != 0, config.b.unit != 0)
    sA, sB = _ring(k, "sA", 0, tile, majors[0]), _ring(k, "sB", 1, tile, majors[1])

    k.comment("Copies from global to shared memory: (values, rest_m, rest_k, k tile | stage)")
    tAgA, tAsA = k.pin("tAgA", load_a.partition(block.gA, tid)), k.pin("tAsA", load_a.partition(sA, tid))
    tBgB, tBsB = k.pin("tBgB", load_b.partition(block.gB, tid)), k.pin("tBsB", load_b.partition(sB, tid))
    tAcA = block.guard("tAcA", "mk", lambda c: load_a.partition(c, tid))
    tBcB = block.guard("tBcB", "nk", lambda c: load_b.partition(c, tid))

    def load(k_tile: IntLike, stage: IntLike) -> None:
        here, exists = (_, _, _, k_tile), block.exists(k_tile)
        k.copy(CpAsync(config.a.width), tAgA[here], tAsA[_, _, _, stage], guard=tAcA and tAcA[here], when=exists)
        k.copy(CpAsync(config.b.width), tBgB[here], tBsB[_, _, _, stage], guard=tBcB and tBcB[here], when=exists)

    k.comment("Operands and accumulators of a thread: (register, atom | register buffer), (value, atom m, atom n)")
    fragment_a = _Fragment(k, "A", config, 0, sA, majors[0])
    fragment_b = _Fragment(k, "B", config, 1, sB, majors[1])
    pairs = 2 * atom.shape[0] // 8
    tCrC = k.registers("tCrC", atom.accumulator, Layout((pairs, *tiled.atoms)))
    k.fill(tCrC)

    def fetch(step: IntLike, stage: IntLike, buffer: IntLike) -> None:
        fragment_a.fetch(step, stage, buffer)
        fragment_b.fetch(step, stage, buffer)

    fragments = fragment_a, fragment_b
    planes = [RegisterPlanes(k, f"planes_of_{name}", atom, *(size(fragment.registers.layout[i]) for i in range(2)))
              for name, fragment in zip("ab", fragments, strict=True) if atom.splits]

    def multiply(step: IntLike) -> None:
        operands = [fragment.registers[_, _, step % 2] for fragment in fragments]
        for plane, operand in zip(planes, operands, strict=False):
            plane.split(operand, seen)
        k.gemm(replace(tiled, conj_b=config.a.conj != config.b.conj), tCrC, *([x.planes for x in planes] or operands))

    main_loop(block, tile.stages, tile.k // atom.shape[2], load=load, fetch=fetch, multiply=multiply, spelled=True)
    if config.a.conj and dtype(atom.element).is_complex:
        k.comment("conj(A) B is the conjugate of A conj(B): signs of the sums in place of those of A; 0 remains +0")
        with k.loops((pairs, *tiled.atoms)) as at:
            k.assign(tCrC(*at).im, 0 - tCrC(*at).im)

    def runs(layout: Layout) -> Layout:
        """(((pair, half), atom m, atom n), 1, 1) -> (pair, half, atom m, atom n)."""
        value, atoms = layout[0]
        return make_layout(*value, *atoms)

    if config.c.width > _PAIR:
        k.comment("Pairs of two atoms become runs of four, of which four lanes fill a sector")
        block.store(tiled.exchange(k, tCrC, tid), lambda tensor: tiled.partition_quads(tensor, tid))
    else:
        accumulators = Tensor(tCrC.engine, Layout((_PAIR, pairs // 2, *tiled.atoms)))
        block.store(accumulators, lambda tensor: tiled.partition_c(tensor, tid).map_domain(runs))
    if status is not None:
        k.after_blocks()
        k.comment("Whether all that the block has split was in range")
        leave_verdict(k, status.address, ~k.call("pairs_are_between", *seen, *RANGE), NATIVE)
    return k.build()
