"""Names of persistent kernels."""

from __future__ import annotations

from ..common import OperandAccess
from ..epilogue import FusedEpilogue
from .cluster import ALONE, Cluster
from .tiles import DEPTH

__all__ = ["persistent_traits"]


def persistent_traits(tile: tuple[int, int], stages: int, k_major: tuple[bool, bool], c: OperandAccess, scalars: tuple[str, str],
                      batch: tuple[tuple[bool, ...], tuple[bool, ...]], wide: bool, epilogue: FusedEpilogue | None,
                      cluster: Cluster = ALONE, staged: str | None = None, depth: int = DEPTH) -> str:
    """The part of a kernel's name that says how operands are accessed and C is written."""
    major = "".join("k" if x else "m" for x in k_major)
    unit = {0: "m", 1: "n", None: "s"}[c.unit]
    modes = "".join("nabc"[x + 2 * y] for x, y in zip(*batch, strict=True))
    alpha, beta = scalars
    written = f"{unit}{c.width}{staged[0] if staged else ''}"
    return (f"{tile[0]}x{tile[1]}x{depth}_s{stages}{cluster.tag}_{major}{written}_{alpha[0]}{beta[0]}_b{modes}"
            f"{'_wide' if wide else ''}" + (f"_{epilogue.tag}" if epilogue else ""))
