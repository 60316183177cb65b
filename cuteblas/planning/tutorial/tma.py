"""Copies and transposes by TMA as variants: which problems the hardware takes, and the tensor maps for them."""

from __future__ import annotations

from math import gcd, prod

from ...codegen.architectures import capabilities, oldest_with
from ...codegen.kernel import TensorMapSpec
from ...codegen.signature import View
from ...kernels.tutorial.tma import TmaCopyConfig, TmaTransposeConfig, tma_copy, tma_transpose
from ..copy.dispatch import canonical_modes, is_wide
from ..estimates import named_seconds
from ..modes import Mode
from ..operands import batch_values, launch
from ..plan import Argument, Plan
from ..problem import CopyProblem, DeviceInfo
from ..variants import Variant
from .transpose import matrix_modes

__all__ = ["VARIANTS", "plan_tma_copy", "plan_tma_transpose"]

_SOURCE = 'CUTLASS documentation, "CuTe TMA Tensors"'
_ALIGNMENT = 16                      # bytes, of addresses and strides
_MOST_MODES, _MOST_BOX, _TILE_BYTES = 5, 256, 16 << 10
_MOST_EXTENT = 2**31 - _MOST_BOX     # coordinates have 32 bits, and those of the last box end beyond the extent


def _check_device(problem: CopyProblem, device: DeviceInfo) -> None:
    if not capabilities(device.arch).tma:
        raise ValueError(f"{problem.variant} needs the tensor memory accelerator of sm_90 and later, got {device.arch}")
    if problem.itemsize not in (1, 2, 4, 8):
        raise ValueError(f"TMA moves elements of 1, 2, 4 or 8 bytes, got {problem.itemsize}")


def _check_memory(problem: CopyProblem, what: str, alignment: int, offset: int, modes: list[tuple[int, int]]) -> None:
    """Refuse memory that no tensor map describes: ``modes`` are the extents and strides of all modes but the contiguous one."""
    item = problem.itemsize
    if alignment % _ALIGNMENT or offset * item % _ALIGNMENT:
        raise ValueError(f"TMA needs addresses that are multiples of {_ALIGNMENT} bytes; that of the {what} is a multiple of "
                         f"{gcd(alignment, offset * item, _ALIGNMENT)}")
    wrong = [stride for extent, stride in modes if stride <= 0 or stride * item % _ALIGNMENT or stride * item >= 2**40]
    if wrong:
        raise ValueError(f"TMA needs strides that are positive multiples of {_ALIGNMENT} bytes, below 2^40, "
                         f"got {wrong[0]} elements of {item} bytes in the {what}")


def _grid(problem: CopyProblem, blocks: int) -> tuple[int, int, int]:
    if blocks >= 2**31:
        raise ValueError(f"{problem.variant} would need {blocks} blocks for shape {problem.shape}; a grid has at most 2^31 - 1")
    return blocks, 1, 1


def _split(modes: tuple[Mode, ...], item: int) -> tuple[Mode, Mode, tuple[Mode, ...]]:
    """Modes I and J and the others; one long mode alone is divided into rows."""
    first, *others = modes or (Mode(1, 1, 1),)
    row = gcd(first.extent, _MOST_BOX)
    if not others and first.extent > _MOST_BOX and row * item % _ALIGNMENT == 0:
        return Mode(row, 1, 1), Mode(first.extent // row, row, row), ()
    second = others.pop(max(range(len(others)), key=lambda q: others[q].extent)) if others else None
    return first, second or Mode(1, *[-(-first.extent * item // _ALIGNMENT) * _ALIGNMENT // item] * 2), tuple(others)


def plan_tma_copy(problem: CopyProblem, device: DeviceInfo) -> Plan:
    """Plan a copy between two layouts whose rows are contiguous, by TMA alone.

    Raises
    ------
    ValueError
        For a problem that TMA does not take: on an older device, elements of 16 bytes, no common contiguous mode, more than 5
        modes, addresses, strides or rows that are not multiples of 16 bytes.
    """
    _check_device(problem, device)
    modes, src_offset, dst_offset = canonical_modes(problem)
    item = problem.itemsize
    if modes and (modes[0].src, modes[0].dst) != (1, 1):
        raise ValueError(f"{problem.variant} moves rows: one mode has stride 1 in source and target, got strides "
                         f"{problem.src_strides} and {problem.dst_strides}")
    i, j, batch = _split(modes, item)
    if len(modes) > _MOST_MODES or any(m.extent > _MOST_EXTENT for m in (i, j, *batch)):
        raise ValueError(f"a tensor map has at most {_MOST_MODES} modes of at most 2^31 - {_MOST_BOX} elements, "
                         f"got shape {problem.shape}")
    for what, alignment, offset, of in (("source", problem.src_alignment, src_offset, "src"),
                                        ("target", problem.dst_alignment, dst_offset, "dst")):
        _check_memory(problem, what, alignment, offset, [(m.extent, getattr(m, of)) for m in (j, *batch)])
    if i.extent * item % _ALIGNMENT:
        raise ValueError(f"TMA stores whole pieces of {_ALIGNMENT} bytes, so rows are multiples of that, got {i.extent} elements "
                         f"of {item} bytes")
    columns = max(_ALIGNMENT // item, min(_MOST_BOX, 1 << (i.extent - 1).bit_length()))
    rows = min(_MOST_BOX, _TILE_BYTES // (columns * item), 1 << (j.extent - 1).bit_length())
    config = TmaCopyConfig(item, (columns, rows), len(batch))
    kernel = tma_copy(config)
    extents = tuple(m.extent for m in (i, j, *batch))
    source = config.box.map(extents, tuple(m.src for m in (i, j, *batch)))
    target = config.box.map(extents, tuple(m.dst for m in (i, j, *batch)))
    grid = _grid(problem, -(-i.extent // columns) * -(-j.extent // rows) * prod(m.extent for m in batch))
    made = launch(kernel, grid, batch_values(extents[:1:-1]), I=i.extent, J=j.extent,
                  S=View(map=Argument("src", tensor_map=source, offset=src_offset * item)),
                  D=View(map=Argument("dst", tensor_map=target, offset=dst_offset * item)))
    reason = f"TMA loads boxes of {columns} x {rows} elements into shared memory and stores them; no thread touches an element"
    facts = {**kernel.facts, "tensor map S": _described(source), "tensor map D": _described(target)}
    return Plan(problem, device, str(problem.variant), config, (made,), reason=reason, facts=facts,
                seconds=named_seconds("tma_", problem, device))


def plan_tma_transpose(problem: CopyProblem, device: DeviceInfo) -> Plan:
    """Plan a transpose of a matrix that TMA reads.

    Raises
    ------
    ValueError
        For a problem that is not a transpose of a matrix, or whose source TMA does not take: on an older device, elements of 16
        bytes, an address or a stride that is not a multiple of 16 bytes.
    """
    _check_device(problem, device)
    m, n, (src_offset, dst_offset) = matrix_modes(problem)
    item = problem.itemsize
    if m.extent == 1:
        m = Mode(1, -(-n.extent * item // _ALIGNMENT) * _ALIGNMENT // item, 1)
    _check_memory(problem, "source", problem.src_alignment, src_offset, [(m.extent, m.src)])
    if max(m.extent, n.extent) > _MOST_EXTENT:
        raise ValueError(f"a tensor map has modes of at most 2^31 - {_MOST_BOX} elements, got shape {problem.shape}")
    vector = gcd(16 // item, max(1, problem.dst_alignment // item), dst_offset, m.extent, n.dst if n.extent > 1 else 0)
    config = TmaTransposeConfig(item, vector * item, wide=is_wide((m, n)))
    kernel = tma_transpose(config)
    _, vectors, line = config.tile
    spec = config.box.map((vector, m.extent // vector, n.extent), (m.src, vector * m.src, 1))
    grid = _grid(problem, -(-m.extent // (vector * vectors)) * -(-n.extent // line))
    made = launch(kernel, grid, H=m.extent // vector, N=n.extent,
                  S=View(map=Argument("src", tensor_map=spec, offset=src_offset * item)),
                  D=View(Argument("dst", offset=dst_offset * item), (1, vector // config.packed, n.dst // config.packed)))
    reason = (f"TMA loads tiles of {vector * vectors} lines of {line} elements, swizzled; threads read their columns and write "
              f"vectors of {config.store} bytes")
    facts = {**kernel.facts, "tensor map S": _described(spec)}
    return Plan(problem, device, str(problem.variant), config, (made,), reason=reason, facts=facts,
                seconds=named_seconds("tma_", problem, device))


def _described(spec: TensorMapSpec) -> str:
    swizzle = f"swizzled over {spec.swizzle} bytes" if spec.swizzle else "not swizzled"
    return f"{spec.shape} elements of {spec.dtype.bytes} bytes, strides {spec.strides} bytes, box {spec.box}, {swizzle}"


VARIANTS = (
    Variant("tma_copy", "copy", f"{_SOURCE}: Introduction to TMA instructions, Building a TMA Tensor",
            "one thread of a block has TMA bring a box into shared memory and take it out again", oldest_with("tma"),
            plan_tma_copy),
    Variant("tma_transpose", "copy", f"{_SOURCE}: Application to TMA Tensors",
            "TMA brings a swizzled tile; threads read it across and write wide vectors", oldest_with("tma"), plan_tma_transpose),
)
