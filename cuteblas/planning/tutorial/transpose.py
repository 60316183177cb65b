"""The transposes of "CuTe Matrix Transpose" as variants: naive, through shared memory with bank
conflicts, and without."""

from __future__ import annotations

from functools import partial

from ...codegen.kernel import GeneratedKernel
from ...codegen.signature import View
from ...layout import ComposedLayout, Layout
from ...tutorial.transpose import (
    ALONG_M,
    ALONG_N,
    TILE,
    NaiveConfig,
    SharedConfig,
    naive_transpose,
    padded,
    shared_transpose,
    swizzled,
)
from ..copy.dispatch import canonical_modes, is_wide
from ..estimates import touched_bytes
from ..modes import Mode
from ..operands import launch
from ..plan import Argument, Plan
from ..problem import CopyProblem, DeviceInfo
from ..variants import Variant

__all__ = ["VARIANTS", "expected_seconds", "matrix_modes"]

_SOURCE = 'L. Mao, "CuTe Matrix Transpose"'
_UNIT = Mode(1, 1, 1)
# Shares of the bandwidth of a device copy, of kernels whose names contain these.
_SHARES = {"naive_read": 0.13, "naive_write": 0.44, "conflict": 0.39, "padded": 0.85,
           "swizzled": 0.85, "tma_": 0.88}


def matrix_modes(problem: CopyProblem) -> tuple[Mode, Mode, tuple[int, int]]:
    """Mode M, contiguous in the target, mode N, contiguous in the source, and the offsets of the
    first element in both.

    Raises
    ------
    ValueError
        If the problem is not a transpose of a matrix.
    """
    modes, *offsets = canonical_modes(problem)
    n = next((mode for mode in reversed(modes) if mode.src == 1), _UNIT)
    m = next((mode for mode in modes if mode.dst == 1 and mode != n), _UNIT)
    if len(modes) != len({m, n} - {_UNIT}):
        raise ValueError(
            f"{problem.variant} transposes matrices: two modes, one with stride 1 in the source and the other in the "
            f"target; got shape {problem.shape}, strides {problem.src_strides} and {problem.dst_strides}"
        )
    return m, n, (offsets[0], offsets[1])


def expected_seconds(name: str, problem: CopyProblem, device: DeviceInfo) -> float:
    """The expected time of a copy by a kernel of a name."""
    nbytes = sum(touched_bytes(problem.shape, strides, problem.itemsize)
                 for strides in (problem.src_strides, problem.dst_strides))
    return device.seconds(0, 2, nbytes / next(share for part, share in _SHARES.items()
                                              if part in name))


def _kernel(
    name: str, item: int, predicated: bool, wide: bool
) -> tuple[NaiveConfig | SharedConfig, GeneratedKernel]:
    if name in ("read", "write"):
        naive = NaiveConfig(item, ALONG_N if name == "read" else ALONG_M, predicated, wide)
        return naive, naive_transpose(naive)
    layouts: dict[str, Layout | ComposedLayout] = {
        "conflict_read": Layout(TILE, (TILE[1], 1)), "conflict_write": Layout(TILE, (1, TILE[0])),
        "padded": padded(item),
        "swizzled": swizzled(item)}
    shared = SharedConfig(item, name, layouts[name], predicated, wide)
    return shared, shared_transpose(shared)


def _plan(problem: CopyProblem, device: DeviceInfo, *, name: str, predicated: bool,
          reason: str) -> Plan:
    m, n, offsets = matrix_modes(problem)
    if not predicated and (m.extent % TILE[0] or n.extent % TILE[1]):
        raise ValueError(
            f"{problem.variant} has no predicates: M must be a multiple of {TILE[0]} and N of {TILE[1]}, "
            f"got {m.extent} x {n.extent}"
        )
    config, kernel = _kernel(name, problem.itemsize, predicated, is_wide((m, n)))
    blocks = -(-m.extent // TILE[0]) * -(-n.extent // TILE[1])
    S = View(Argument("src", offset=offsets[0] * problem.itemsize), (m.src, 1))
    D = View(Argument("dst", offset=offsets[1] * problem.itemsize), (1, n.dst))
    made = launch(kernel, (blocks, 1, 1), S=S, D=D, M=m.extent, N=n.extent)
    return Plan(problem, device, str(problem.variant), config, (made,), reason=reason,
                seconds=expected_seconds(str(problem.variant), problem, device))


_SETTINGS = {
    "naive_read": (
        "CuTe Naive Matrix Transpose",
        "lanes are neighbours along the rows of the source: reads coalesce, writes are strided"
    ),
    "naive_write": (
        "CuTe Naive Matrix Transpose",
        "lanes are neighbours along the columns: writes coalesce, reads are strided"
    ),
    "smem_conflict_read": (
        "Shared Memory Layout and CUDA Thread Block Layout",
        "a row-major tile in shared memory: its columns are read from one bank"
    ),
    "smem_conflict_write": (
        "Shared Memory Layout and CUDA Thread Block Layout",
        "a column-major tile in shared memory: its rows are written to one bank"
    ),
    "smem_padded": (
        "Shared Memory Padding",
        "rows of the tile one element apart: rows and columns meet every bank once"
    ),
    "smem_swizzled": (
        "Shared Memory Swizzling",
        "columns exclusive-or row: rows and columns meet every bank once, and no memory is spent"
    ),
}


def _variant(name: str, predicated: bool) -> Variant:
    section, summary = _SETTINGS[name]
    if not predicated:
        section, summary = "Predicates and Boundary Checking", f"as transpose_{name}, without checking elements against the extents"
    plan = partial(_plan, name=name.removeprefix("naive_").removeprefix("smem_"),
                   predicated=predicated, reason=summary)
    name = f"transpose_{name}{'' if predicated else '_unpredicated'}"
    return Variant(name, "copy", f"{_SOURCE}: {section}", summary, "sm_70", plan)


VARIANTS = tuple(_variant(name, predicated) for predicated in (True, False) for name in _SETTINGS)
