"""``gemm_modular``: products of residues modulo small numbers, plane by plane, on tensor cores that multiply bytes.

The main loop is that of ``gemm_wgmma``: one thread fills a ring of stages by TMA, warpgroups multiply from it. Sums of 32 bits are
exact; their residues, a byte each, are what is written. How many planes there are says a word in device memory: the walk over tiles
ends with the last plane that is needed, and does not begin if there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...codegen.architectures import oldest_with
from ...codegen.builder import KernelBuilder
from ...codegen.copies import Vector
from ...codegen.kernel import GeneratedKernel
from ...codegen.pipeline import Pipeline
from ...codegen.tma import TmaBox, TmaLoad
from ...codegen.wgmma import WgmmaMma, wgmma_delivered
from ...layout import Layout, _, make_identity_tensor
from ...layout.symbolic import equal
from ..common import mapped
from ..modular.residues import planes_of
from ..modular.survey import CHOICE, MODULI
from .cluster import ALONE, Cluster
from .multiplier import Multiplier
from .roles import GROUP, begin, consumers, producers
from .scheduler import Scheduler
from .staged import StagedC
from .tiles import TmaOperand, boxes, consumer_mma, depth_of, ring_of_tiles

__all__ = ["MOST_DEPTH", "GemmModularConfig", "gemm_modular"]

_ELEMENT, _RESIDUE = "int8", "uint8"

MOST_DEPTH = 2**30 // 128**2
"""K, at most: sums of products of signed bytes are no larger than 2^30, so that a multiplication divides them."""


@dataclass(frozen=True)
class GemmModularConfig:
    """What a ``gemm_modular`` kernel is specialised on.

    Attributes
    ----------
    element : str
        What residues are of, float64 or complex128: the latter have three planes for each modulus.
    batch_a, batch_b : tuple of bool
        For each batch mode, innermost first, whether A, B has a stride there.
    groups : int
        Multiplying warpgroups, 64 rows of C each.
    columns : int
        Columns of the tile of C.
    stages : int
        Stages of the ring.
    cluster : Cluster
        Blocks that share operands.
    triangle : str, optional
        The triangle of C of which there are residues, in whole squares of tiles.
    """

    element: str = "float64"
    batch_a: tuple[bool, ...] = ()
    batch_b: tuple[bool, ...] = ()
    groups: int = 2
    columns: int = 256
    stages: int = 4
    cluster: Cluster = ALONE
    triangle: str | None = None

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the tile of C."""
        return 64 * self.groups, self.columns

    @property
    def mma(self) -> WgmmaMma:
        """Who multiplies what."""
        return consumer_mma(_ELEMENT, self.columns, self.groups, (True, True))

    @property
    def boxes(self) -> tuple[TmaBox, TmaBox]:
        """The TMA boxes by which a block loads its part of a stage of A and of B."""
        return boxes(_ELEMENT, *self.tile, (True, True), self.cluster)

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        modes = "".join("nabc"[x + 2 * y] for x, y in zip(self.batch_a, self.batch_b, strict=True))
        rows, columns = self.tile
        return (f"gemm_modular_{planes_of(self.element)}_{rows}x{columns}_s{self.stages}{self.cluster.tag}_b{modes}"
                + (f"_{self.triangle}" if self.triangle else ""))


@cache
def gemm_modular(config: GemmModularConfig) -> GeneratedKernel:
    """Generate the kernel of a configuration.

    A and B are planes of signed bytes along K, R those of C along N. The words at ``words`` are the state of the product. The grid
    is one-dimensional, a multiple of the cluster, and may have fewer blocks than there are tiles.
    """
    box_a, box_b = config.boxes
    mma, depth, planes = config.mma, depth_of(_ELEMENT), planes_of(config.element)
    k = KernelBuilder(config.name, GROUP * (config.groups + 1), arch=oldest_with("wgmma"), cluster=config.cluster.size,
                      summary="C = A * B^T modulo small numbers with A (M,K), B (N,K), C (M,N), plane by plane: "
                              f"signed bytes, tile {config.tile[0]}x{config.columns}x{depth}, {config.stages} stages\n"
                              f"accumulators {mma.tv_c}")
    A, B, R = k.tensors(mapped("A", "mk", _ELEMENT), mapped("B", "nk", _ELEMENT), mapped("R", "mn", _RESIDUE), modes="mnk",
                        batch=len(config.batch_a))
    (M, N, K), batch = map(k.extent, "mnk"), R.batch
    words = k.pointer("words", "uint32", alignment=16)

    tile_a, tile_b = boxes(_ELEMENT, *config.tile, (True, True))
    sA, sB = ring_of_tiles(k, "sA", tile_a, config.stages), ring_of_tiles(k, "sB", tile_b, config.stages)
    staged = StagedC(k, _RESIDUE, mma, R.map)
    pipeline = Pipeline(k, config.stages, filled=1, emptied=config.groups * config.cluster.sharing)
    begin(k, pipeline.barriers, (A.map, B.map))
    chosen = k.declare("chosen", "uint32")
    k.do("load_global", chosen, words[CHOICE // 4], of=1)
    count = k.variable("planes", 0, hi=planes * len(MODULI))
    k.assign(count, k.call("moduli_of", chosen))
    if planes > 1:
        k.assign(count, planes * count)
    schedule = Scheduler(k, (M, N, K), (*config.tile, depth), (*batch, count), config.cluster, triangle=config.triangle)
    place = schedule.place
    operands = (TmaOperand(0, A.map, box_a, sA, (M, K), (*batch, count), (*config.batch_a, True)),
                TmaOperand(1, B.map, box_b, sB, (N, K), (*batch, count), (*config.batch_b, True)))

    with producers(k, config.groups, "one thread keeps the ring full"), k.when(equal(k.thread, GROUP * config.groups)):
        stage = pipeline.state()
        with schedule.works() as work, k.loop("k_tile", work.end, start=work.first) as k_tile:
            pipeline.acquire(stage, tile_a.nbytes + tile_b.nbytes)
            for x in operands:
                tile, stage_of_x = x.tile(work.tile, k_tile), x.ring[_, _, stage.index]
                brings = TmaLoad(x.tensor_map, x.box, pipeline.barrier(stage), place.receivers(x.mode))
                k.copy(brings, place.part(x.mode, x.box, tile), place.part(x.mode, x.box, stage_of_x))
            stage.advance()

    with consumers(k, config.groups):
        multiplier = Multiplier(k, mma, pipeline, place, sA, sB, tile_b)
        tCrC = multiplier.accumulators
        with schedule.works() as work:
            k.fill(tCrC)
            multiplier.multiply(work.end)
            wgmma_delivered(k, tCrC)

            k.comment("Residues of the sums")
            modulus = k.declare("modulus", "uint32", k.call("modulus_of", work.tile.batch[-1] // planes), const=True)
            offset = k.declare("offset", "uint32", k.call("residue_offset", modulus), const=True)
            reciprocal = k.declare("reciprocal", "uint32", k.call("residue_reciprocal", modulus), const=True)
            whole = make_identity_tensor((M, N))
            with staged.pieces_of(work.tile, whole, (M, N), (*batch, count)) as (piece, target):
                pairs, rows, across = (2, 2, config.columns // 8)
                of_piece = across * staged.columns // config.columns
                written = k.registers("written", _RESIDUE, Layout(pairs))
                with k.loops((rows, of_piece)) as (i, j):
                    with k.loops((pairs,)) as (v,):
                        total = tCrC(v, i, j + of_piece * piece)
                        k.assign(written(v), k.call("residue_of_sum", total, modulus, offset, reciprocal))
                    k.copy(Vector(pairs), written, target[_, i, j])
        k.let_next_launch_begin()
        staged.leave()
    place.leave()
    return k.build()
