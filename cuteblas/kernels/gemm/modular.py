"""``gemm_modular``: products of residues modulo small numbers, plane by plane, in int8.

The loop is that of ``gemm_wgmma``; sums of 32 bits are exact, and their residues, bytes, are
written. A word in device memory has the number of planes; the walk over tiles ends there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...codegen import GeneratedKernel, Vector, wgmma_delivered
from ...layout import _, make_identity_tensor
from ..common import batch_letters, mapped
from ..modular.residues import planes_of
from ..modular.survey import MOST, load_choice
from .persistent import RingConfig
from .roles import Finish, Multiplier, Multiply, Products, Step, Sums, TmaBlock
from .scheduler import TileOfC, Work
from .staged import StagedC

_ELEMENT, _RESIDUE = "int8", "uint8"

MOST_DEPTH = 2**30 // 128**2
"""The largest K: sums of products of signed bytes stay within 2^30, to be divided by a product."""


@dataclass(frozen=True)
class GemmModularConfig(RingConfig):
    """The configuration of a ``gemm_modular`` kernel. ``element`` complex128 has three planes a
    modulus; with a ``triangle``, residues are written in whole squares of tiles."""

    element: str = "float64"

    @property
    def multiplied(self) -> str:
        return _ELEMENT

    @property
    def present(self) -> tuple[tuple[bool, ...], ...]:
        """Which batch modes A and B have, and after them planes."""
        return (*self.batch_a, True), (*self.batch_b, True)

    @property
    def name(self) -> str:
        return (
            f"gemm_modular_{planes_of(self.element)}_{self.rows}x{self.columns}_s{self.stages}"
            f"_b{batch_letters(self.batch_a, self.batch_b)}{f'_{self.triangle}' if self.triangle else ''}"
        )


@cache
def gemm_modular(config: GemmModularConfig) -> GeneratedKernel:
    """Generate the kernel. A and B are planes of signed bytes along K, R those of C along N;
    ``words`` is the state of the product. The grid has at most as many blocks as tiles."""
    mma, planes = config.mma, planes_of(config.element)
    k = config.builder(
        "C = A * B^T modulo small numbers with A (M,K), B (N,K), C (M,N), plane by plane: "
        f"signed bytes, tile {config.rows}x{config.columns}x{config.depth}, {config.stages} stages\n"
        f"accumulators {mma.tv_c}"
    )
    A, B, R = k.tensors(mapped("A", "mk", _ELEMENT), mapped("B", "nk", _ELEMENT),
                        mapped("R", "mn", _RESIDUE), modes="mnk", batch=len(config.batch_a))
    (M, N, K), batch = map(k.extent, "mnk"), R.batch
    words = k.pointer("words", "uint32")

    block = TmaBlock(k, config)
    staged = StagedC(k, _RESIDUE, mma, R.map)
    block.begin((A, B))
    chosen = load_choice(k, words)
    count = k.variable("planes", 0, hi=planes * MOST)
    k.assign(count, k.call("moduli_of", chosen))
    if planes > 1:
        k.assign(count, planes * count)
    block.walk((M, N, K), (*batch, count), ((M, K), (N, K)))

    @contextmanager
    def steps(work: Work) -> Iterator[Step]:
        with work.steps(k) as k_tile:
            yield [(k_tile,)], [(k_tile,)]

    @contextmanager
    def multiply() -> Iterator[Multiply]:
        multiplier = Multiplier(block)
        tCrC = multiplier.accumulators("tCrC")

        def sums_of(work: Work) -> Sums:
            k.fill(tCrC)
            multiplier.multiply(work.end, Products(tCrC))
            wgmma_delivered(k, tCrC)
            return tCrC

        yield sums_of

    @contextmanager
    def residues() -> Iterator[Finish]:
        def write(tile: TileOfC, sums: Any) -> None:
            k.comment("Residues of the sums")
            modulus = k.let("modulus", k.call("modulus_of", tile.batch[-1] // planes))
            offset = k.let("offset", k.call("residue_offset", modulus))
            reciprocal = k.let("reciprocal", k.call("residue_reciprocal", modulus))
            whole = make_identity_tensor((M, N))
            with staged.pieces_of(tile, whole, (M, N), (*batch, count)) as (piece, target):
                pairs, rows, across = (2, 2, config.columns // 8)
                of_piece = across * staged.columns // config.columns
                written = k.registers("written", _RESIDUE, pairs)
                with k.loops((rows, of_piece)) as (i, j):
                    with k.each(pairs) as v:
                        total = sums(v, i, j + of_piece * piece)
                        k.assign(written(v), k.call("residue_of_sum", total, modulus, offset,
                                                    reciprocal))
                    k.copy(Vector(pairs), written, target[_, i, j])

        yield write
        k.let_next_launch_begin()
        staged.leave()

    block.specialise(lambda: block.keep_full(steps), multiply(), residues())
    return k.build()
