"""Transposes of "CuTe Matrix Transpose" as variants, and copies and transposes by TMA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, prod
from typing import Any

from ...codegen.architectures import capabilities, oldest_with
from ...codegen.kernel import TensorMapSpec
from ...codegen.signature import View
from ...layout import ComposedLayout, Layout
from ...tutorial.tma import TmaCopyConfig, TmaTransposeConfig, tma_copy, tma_transpose
from ...tutorial.transpose import (
    ALONG_M,
    ALONG_N,
    TILE,
    TutorialTransposeConfig,
    padded,
    swizzled,
    tutorial_transpose,
)
from ..copy.dispatch import canonical_modes, is_wide
from ..floors import touched_bytes
from ..operands import MAPPED_STRIDE, VECTOR_BYTES, batch_values, launch, power_of_two
from ..plan import Argument, Plan
from ..problem import CopyProblem, DeviceInfo, Mode
from ..variants import Variant

_SOURCE = 'L. Mao, "CuTe Matrix Transpose"'
_UNIT = Mode(1, 1, 1)
# Shares of the bandwidth of a device copy, of kernels whose names contain these.
_SHARES = {"naive_read": 0.13, "naive_write": 0.44, "conflict": 0.39, "padded": 0.85,
           "swizzled": 0.85, "tma_": 0.88}


def matrix_modes(problem: CopyProblem) -> tuple[Mode, Mode, tuple[int, int]]:
    """Mode M, contiguous in the target, N, in the source, and offsets of the first element."""
    modes, offsets = canonical_modes(problem)
    n = next((mode for mode in reversed(modes) if mode.src == 1), _UNIT)
    m = next((mode for mode in modes if mode.dst == 1 and mode != n), _UNIT)
    if len(modes) != len({m, n} - {_UNIT}):
        raise ValueError(
            f"{problem.variant} transposes matrices: two modes, one with stride 1 in the source and the other in the "
            f"target; got shape {problem.shape}, strides {problem.src_strides} and {problem.dst_strides}"
        )
    return m, n, offsets


def expected_seconds(name: str, problem: CopyProblem, device: DeviceInfo) -> float:
    nbytes = sum(map(touched_bytes, problem.tensors))
    return device.seconds(0, 2, nbytes / next(share for part, share in _SHARES.items()
                                              if part in name))


def _plan(problem: CopyProblem, device: DeviceInfo, *, label: str, predicated: bool,
          reason: str) -> Plan:
    m, n, offsets = matrix_modes(problem)
    if not predicated and (m.extent % TILE[0] or n.extent % TILE[1]):
        raise ValueError(
            f"{problem.variant} has no predicates: M must be a multiple of {TILE[0]} and N of {TILE[1]}, "
            f"got {m.extent} x {n.extent}"
        )
    config = TutorialTransposeConfig(problem.itemsize, label,
                                     _SHARED.get(label, lambda item: None)(problem.itemsize),
                                     ALONG_N if label == "naive_read" else ALONG_M, predicated,
                                     is_wide((m, n)))
    blocks = -(-m.extent // TILE[0]) * -(-n.extent // TILE[1])
    S = View(Argument("src", offset=offsets[0] * problem.itemsize), (m.src, 1))
    D = View(Argument("dst", offset=offsets[1] * problem.itemsize), (1, n.dst))
    made = launch(tutorial_transpose, config, blocks, S=S, D=D, M=m.extent, N=n.extent)
    return Plan(problem, device, str(problem.variant), config, (made,), reason=reason,
                seconds=expected_seconds(label, problem, device))


_SHARED: dict[str, Callable[[int], Layout | ComposedLayout | None]] = {
    "smem_conflict_read": lambda item: Layout(TILE, (TILE[1], 1)),
    "smem_conflict_write": lambda item: Layout(TILE, (1, TILE[0])),
    "smem_padded": padded, "smem_swizzled": swizzled}
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
    return Variant(f"transpose_{name}{'' if predicated else '_unpredicated'}", "copy",
                   f"{_SOURCE}: {section}", summary, "sm_70",
                   partial(_plan, label=name, predicated=predicated, reason=summary))




_TMA_SOURCE = 'CUTLASS documentation, "CuTe TMA Tensors"'
_ALIGNMENT = 16                      # bytes, of addresses and strides
_MOST_MODES, _MOST_BOX, _TILE_BYTES = 5, 256, 16 << 10
# coordinates have 32 bits, and those of the last box end beyond the extent
_MOST_EXTENT = 2**31 - _MOST_BOX


def _check_device(problem: CopyProblem, device: DeviceInfo) -> None:
    if not capabilities(device.arch).tma:
        raise ValueError(
            f"{problem.variant} needs the tensor memory accelerator of sm_90 and later, got {device.arch}"
        )
    if problem.itemsize not in (1, 2, 4, 8):
        raise ValueError(f"TMA moves elements of 1, 2, 4 or 8 bytes, got {problem.itemsize}")


def _source_or_target(problem: CopyProblem, side: int, offset: int,
                      others: Sequence[Mode]) -> Argument:
    """The source's (0) or target's (1) memory, if a tensor map describes it."""
    item, what = problem.itemsize, ("source", "target")[side]
    alignment = (problem.src_alignment, problem.dst_alignment)[side]
    if alignment % _ALIGNMENT or offset * item % _ALIGNMENT:
        raise ValueError(
            f"TMA needs addresses that are multiples of {_ALIGNMENT} bytes; that of the {what} is a multiple of "
            f"{gcd(alignment, offset * item, _ALIGNMENT)}"
        )
    for stride in (m.strides[side] for m in others):
        if stride <= 0 or stride * item % _ALIGNMENT or stride * item >= MAPPED_STRIDE:
            raise ValueError(
                f"TMA needs strides that are positive multiples of {_ALIGNMENT} bytes, "
                f"below 2^40, got {stride} elements of {item} bytes in the {what}"
            )
    return Argument(("src", "dst")[side], offset=offset * item)


def _planned(problem: CopyProblem, device: DeviceInfo, config: TmaCopyConfig | TmaTransposeConfig,
             blocks: int,
             values: dict[str, Any], reason: str) -> Plan:
    generator = tma_copy if isinstance(config, TmaCopyConfig) else tma_transpose
    notes = {f"tensor map {name}": _described(view.map.tensor_map)
             for name, view in values.items() if isinstance(view, View) and view.map}
    return Plan(problem, device, str(problem.variant), config,
                (launch(generator, config, blocks, values),), reason=reason, notes=notes,
                seconds=expected_seconds("tma_", problem, device))


def _row_stride(extent: int, item: int) -> int:
    """The least stride, in elements, from one row to the next that TMA takes."""
    return -(-extent * item // _ALIGNMENT) * _ALIGNMENT // item


def _split(modes: tuple[Mode, ...], item: int) -> tuple[Mode, Mode, tuple[Mode, ...]]:
    """Modes I and J and the others; one long mode alone is divided into rows."""
    first, *others = modes or (Mode(1, 1, 1),)
    row = gcd(first.extent, _MOST_BOX)
    if not others and first.extent > _MOST_BOX and row * item % _ALIGNMENT == 0:
        return Mode(row, 1, 1), Mode(first.extent // row, row, row), ()
    apart = _row_stride(first.extent, item)
    second = max(others, key=lambda m: m.extent, default=Mode(1, apart, apart))
    return first, second, tuple(m for m in others if m is not second)


def plan_tma_copy(problem: CopyProblem, device: DeviceInfo) -> Plan:
    """Plan a copy between two layouts whose rows are contiguous, by TMA alone."""
    _check_device(problem, device)
    modes, offsets = canonical_modes(problem)
    item = problem.itemsize
    if modes and modes[0].strides != (1, 1):
        raise ValueError(
            f"{problem.variant} moves rows: one mode has stride 1 in source and target, got strides "
            f"{problem.src_strides} and {problem.dst_strides}"
        )
    i, j, batch = _split(modes, item)
    if len(modes) > _MOST_MODES or any(m.extent > _MOST_EXTENT for m in (i, j, *batch)):
        raise ValueError(
            f"a tensor map has at most {_MOST_MODES} modes of at most 2^31 - {_MOST_BOX} elements, "
            f"got shape {problem.shape}"
        )
    memory = [_source_or_target(problem, side, offset, (j, *batch))
              for side, offset in enumerate(offsets)]
    if i.extent * item % _ALIGNMENT:
        raise ValueError(
            f"TMA stores whole pieces of {_ALIGNMENT} bytes, so rows are multiples of that, got {i.extent} elements "
            f"of {item} bytes"
        )
    columns = max(_ALIGNMENT // item, min(_MOST_BOX, power_of_two(i.extent)))
    rows = min(_MOST_BOX, _TILE_BYTES // (columns * item), power_of_two(j.extent))
    config = TmaCopyConfig(item, (columns, rows), len(batch))
    extents, *strides = zip(*((m.extent, *m.strides) for m in (i, j, *batch)), strict=True)
    views = {name: View(map=replace(there, tensor_map=config.box.map(extents, steps)))
             for name, there, steps in zip("SD", memory, strides, strict=True)}
    reason = f"TMA loads boxes of {columns} x {rows} elements into shared memory and stores them; no thread touches an element"
    return _planned(problem, device, config,
                    -(-i.extent // columns) * -(-j.extent // rows) * prod(extents[2:]),
                    {**views, "I": i.extent, "J": j.extent, **batch_values(extents[:1:-1])},
                    reason)


def plan_tma_transpose(problem: CopyProblem, device: DeviceInfo) -> Plan:
    """Plan a transpose of a matrix that TMA reads."""
    _check_device(problem, device)
    m, n, (src_offset, dst_offset) = matrix_modes(problem)
    item = problem.itemsize
    if m.extent == 1:
        m = Mode(1, _row_stride(n.extent, item), 1)
    source = _source_or_target(problem, 0, src_offset, (m,))
    if max(m.extent, n.extent) > _MOST_EXTENT:
        raise ValueError(
            f"a tensor map has modes of at most 2^31 - {_MOST_BOX} elements, got shape {problem.shape}"
        )
    vector = gcd(VECTOR_BYTES // item, max(1, problem.dst_alignment // item), dst_offset, m.extent,
                 n.dst if n.extent > 1 else 0)
    config = TmaTransposeConfig(item, vector * item, wide=is_wide((m, n)))
    _, vectors, line = config.tile
    spec = config.box.map((vector, m.extent // vector, n.extent), (m.src, vector * m.src, 1))
    target = View(Argument("dst", offset=dst_offset * item),
                  (1, vector // config.packed, n.dst // config.packed))
    reason = (
        f"TMA loads tiles of {vector * vectors} lines of {line} elements, swizzled; threads read their columns and write "
        f"vectors of {config.store} bytes"
    )
    return _planned(problem, device, config,
                    -(-m.extent // (vector * vectors)) * -(-n.extent // line),
                    {"S": View(map=replace(source, tensor_map=spec)), "D": target,
                     "H": m.extent // vector, "N": n.extent}, reason)


def _described(spec: TensorMapSpec) -> str:
    swizzle = f"swizzled over {spec.swizzle} bytes" if spec.swizzle else "not swizzled"
    return f"{spec.shape} elements of {spec.dtype.bytes} bytes, strides {spec.strides} bytes, box {spec.box}, {swizzle}"


VARIANTS = (
    *(_variant(name, predicated) for predicated in (True, False) for name in _SETTINGS),
    Variant(
        "tma_copy",
        "copy",
        f"{_TMA_SOURCE}: Introduction to TMA instructions, Building a TMA Tensor",
        "one thread of a block has TMA bring a box into shared memory and take it out again",
        oldest_with("tma"),
        plan_tma_copy
    ),
    Variant(
        "tma_transpose",
        "copy",
        f"{_TMA_SOURCE}: Application to TMA Tensors",
        "TMA brings a swizzled tile; threads read it across and write wide vectors",
        oldest_with("tma"),
        plan_tma_transpose
    ),
)
