"""From a GEMM problem to a plan: which kernel family computes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import inf, prod

from ...codegen.architectures import capabilities
from ...codegen.dtypes import dtype
from ...kernels.split.planes import FORMATS
from ..cost.alternatives import Alternative
from ..floors import compulsory_bytes
from ..plan import Plan
from ..problem import DeviceInfo, GemmProblem
from ..variants import variant
from .batched import batched_alternatives, batched_seconds, plan_batched, why_not_batched
from .blocks import plan_in_blocks
from .dots import dots_alternatives, plan_dots, why_not_dots
from .mma import mma_alternatives, mma_seconds, plan_mma, why_not_mma
from .modular import LEAST_DEPTH, modular_alternatives, modular_seconds, plan_modular, why_not_modular
from .packing import packed_alternatives, packed_problem, plan_packed
from .simt import plan_simt, simt_alternatives, simt_seconds
from .skinny import plan_skinny, skinny_alternatives, skinny_seconds, why_not_skinny
from .split import LEAST_K, guarded_seconds, parts_of, plan_guarded, plan_split, split_alternatives, why_not_split
from .thin import plan_thin, thin_alternatives, thin_seconds, why_not_thin
from .wgmma import is_exact, plan_wgmma, wgmma_alternatives, why_not_wgmma

__all__ = ["PRECISIONS", "gemm_alternatives", "gemm_choice", "plan_gemm"]

# Types whose tensor cores round every multiply-add as the unit does, so that precision "ieee" holds.
_WIDE = ("float64", "complex128")

_LEAST_BY_RESIDUES = 2e9              # nothing is estimated below

_FEW_COLUMNS = 64                     # or rows, with which gemm_wgmma is compared to gemm_mma
_MANY_TILES = 2**16                   # rows or columns, of short sums

_LARGEST_IN_BATCHES = 16              # rows and columns; of elements of 1 and 2 bytes, twice as many
_DEEPEST_IN_BATCHES = 64              # K of matrices with as many rows and half as many columns, or the reverse

# Elements of A, B and C from which operands in half precision are copied where no tensor map describes them; or K, of results that
# are not so small that gemm_mma slices it. Copies cost the host a launch more, 3 to 6 us; gemm_mma takes 1.4 us for every 32 of K:
# 10 us at 129 x 129 x 129, where copies and gemm_wgmma take 4.
_LEAST_COPIED = 2**18
_LEAST_K_COPIED, _LEAST_RESULT_COPIED = 128, 2**12


PRECISIONS = ("auto", "ieee", *FORMATS, "tf32", "modular")
"""What ``precision=`` may be: the fastest algorithm that is not less accurate than native arithmetic, native arithmetic, or an
algorithm by name. ``"tf32"``, one product of float32 rounded to 11 bits, is the only one that may be less accurate."""


def _worth(device: DeviceInfo) -> float:
    """The part of the estimate of native arithmetic below which float32 is split."""
    return device.fitted["dispatch"]["worth of splitting float32"]


def _pays_to_split(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether float32 or complex64 is faster on 16-bit tensor cores, by the estimates of both."""
    return (why_not_split(p, device) is None and parts_of(p) * p.k >= LEAST_K
            and guarded_seconds(p, device) < _worth(device) * simt_seconds(p, device))


def _pays_to_be_skinny(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether float32 is fastest on 16-bit tensor cores and split in registers, by the estimates."""
    if why_not_skinny(problem, device) is not None:
        return False
    seconds = skinny_seconds(problem, device)
    split = guarded_seconds(problem, device) if why_not_split(problem, device) is None else seconds
    return seconds <= split and seconds < _worth(device) * simt_seconds(problem, device)


def _pays_by_residues(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether float64 or complex128 is faster as residues on tensor cores that multiply bytes, by the estimates."""
    return (p.flops >= _LEAST_BY_RESIDUES and why_not_modular(p, device) is None and parts_of(p) * p.k >= LEAST_DEPTH
            and why_not_mma(p, device) is None
            and modular_seconds(p, device) < device.fitted["dispatch"]["worth of residues"] * mma_seconds(p, device))


def _pays_in_batches(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether many matrices in a block are faster than blocks for each: few rows and columns do not fill tensor cores."""
    if why_not_batched(p, device) is not None:
        return False
    most = _LARGEST_IN_BATCHES * (2 if dtype(p.a.dtype).bytes <= 2 else 1)
    thin = min(p.m, p.n) <= most // 2 and p.k <= _DEEPEST_IN_BATCHES
    return (thin or max(p.m, p.n) <= most) and batched_seconds(p, device) < simt_seconds(p, device)


def _pays_by_few_columns(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether 16-bit products with few rows or columns are faster by mma.sync, by estimates to which the traffic is added."""
    if not dtype(p.a.dtype).is_stored or min(p.m, p.n) > _FEW_COLUMNS or not _may_use_mma(p, device):
        return False
    if p.k <= _FEW_COLUMNS and max(p.m, p.n) >= _MANY_TILES:          # gemm_wgmma takes a microsecond for each tile
        return True
    on_wgmma = (wgmma_alternatives if why_not_wgmma(p, device) is None else packed_alternatives)(p, device) \
        if why_not_wgmma(packed_problem(p), device) is None else ()
    moving = compulsory_bytes(p) / device.fitted["traffic"]["products: share of bandwidth"]
    by_wgmma = min((x.seconds(device) for x in on_wgmma), default=inf)
    return mma_seconds(p, device) < (by_wgmma**4 + device.seconds(nbytes=moving)**4)**0.25


def _pays_to_copy(p: GemmProblem) -> bool:
    """Whether launches that copy operands are worth what they cost the host."""
    batch = prod(p.batch)
    deep = p.k >= _LEAST_K_COPIED and p.m * p.n * batch >= _LEAST_RESULT_COPIED
    return deep or (p.m * p.k + p.n * p.k + p.m * p.n) * batch >= _LEAST_COPIED


def _pays_on_bytes(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether integers or bool are faster on tensor cores, byte by byte, by the estimates."""
    if why_not_wgmma(packed_problem(p), device) is not None:
        return False
    on_bytes = min(x.seconds(device) for x in _on_bytes(p, device))
    return on_bytes < device.fitted["dispatch"]["worth of integers by bytes"] * simt_seconds(p, device)


def _on_bytes(p: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """The products of integers or bool on tensor cores."""
    return (wgmma_alternatives if why_not_wgmma(p, device) is None else packed_alternatives)(p, device)


def _plan_tf32(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan of float32 as tfloat32, of copies where operands cannot be read as they are."""
    if (refused := why_not_wgmma(packed_problem(problem), device)) is not None:
        raise ValueError(f"gemm_wgmma cannot compute this: {refused}")
    if (copied := plan_in_blocks(problem, device, plan_packed)) is None:
        raise ValueError(f"precision='tf32' copies operands here, and the workspace limit is {device.workspace_limit} bytes")
    return copied


@lru_cache(maxsize=4096)
def plan_gemm(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """Plan a GEMM.

    Parameters
    ----------
    problem : GemmProblem
        What to compute.
    device : DeviceInfo
        Where.

    Returns
    -------
    Plan
        Its launches take the addresses of roles ``a``, ``b``, ``c``.

    Raises
    ------
    TypeError
        If kernels have no such element type.
    ValueError
        For an unknown precision, or more blocks than a grid can have.

    Examples
    --------
    >>> half = Operand("float16", (4096, 1))
    >>> problem = GemmProblem(4096, 4096, 4096, a=half, b=half, c=half)
    >>> plan = plan_gemm(problem, H200)
    >>> plan.family, len(plan.launches), plan.seconds < 1e-3
    ('gemm_wgmma', 1, True)
    """
    dtype(problem.a.dtype)
    if problem.precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {problem.precision!r}")
    if 0 in (problem.m, problem.n, *problem.batch):
        return Plan(problem, device, "nothing", None, (), reason="the result has no elements", seconds=0.0)
    if problem.variant is not None:
        return variant(problem.variant, "gemm").plan(problem, device)
    dtype(problem.accumulator)
    if problem.triangle is not None and (of_triangle := _plan_triangle(problem, device)) is not None:
        return of_triangle
    return _planned(problem, device)


def _planned(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan of a product that has elements, by the algorithm that was named or the family that is fastest."""
    element = dtype(problem.a.dtype)
    if problem.precision in FORMATS:
        named = plan_in_blocks(problem, device, lambda p, where: plan_split(p, where, problem.precision))
        if named is None:
            raise ValueError(f"precision={problem.precision!r} needs a workspace, and the limit is {device.workspace_limit} bytes")
        return named
    if problem.precision == "tf32":
        return _plan_tf32(problem, device)
    if problem.precision == "modular":
        if (by_residues := plan_modular(problem, device)) is None:
            raise ValueError(f"precision='modular' needs a workspace, and the limit is {device.workspace_limit} bytes")
        return by_residues
    over, family = "", _family(problem, device)
    if family == "reduce":
        return plan_dots(problem, device)
    if family == "gemm_batched":
        return plan_batched(problem, device)
    if family == "gemm_thin":
        return plan_thin(problem, device)
    if family == "gemm_skinny":
        return plan_skinny(problem, device)
    if family == "gemm_split":
        if (guarded := plan_in_blocks(problem, device, plan_guarded)) is not None:
            return guarded
        over = f"; not gemm_split: its workspace is over the limit of {device.workspace_limit} bytes even in small blocks"
        family = _family(replace(problem, precision="ieee"), device)
    if family == "gemm_modular":
        if (by_residues := plan_modular(problem, device)) is not None:
            return by_residues
        return plan_mma(problem, device, f"; not gemm_modular: its workspace is over the limit of {device.workspace_limit} bytes")
    refused = why_not_wgmma(problem, device)
    if family == "gemm_wgmma" and refused is None:
        return plan_wgmma(problem, device)
    if not element.is_stored and family != "gemm_wgmma":
        return plan_mma(problem, device) if family == "gemm_mma" else plan_simt(problem, device, over)
    why = "" if refused is None else f"; not gemm_wgmma: {refused}"
    if family == "gemm_wgmma":
        if (copied := plan_in_blocks(problem, device, plan_packed)) is not None:
            return copied
        why += f", and copies are over the limit of {device.workspace_limit} bytes even in small blocks"
    if not element.is_stored:
        return plan_simt(problem, device, why)
    if (refused := why_not_mma(problem, device)) is None:
        return plan_mma(problem, device, why)
    return plan_simt(problem, device, why if why.endswith(refused) else f"{why}; not gemm_mma: {refused}")


def _plan_triangle(problem: GemmProblem, device: DeviceInfo) -> Plan | None:
    """The plan of one triangle of C; ``None`` if this has to be planned as any other product.

    Both triangles are all of C, and planned so where that is estimated to be faster. One is computed in one piece.
    """
    if device.workspace_limit is not None:
        return plan_simt(problem, device) if problem.triangle != "both" else plan_gemm(replace(problem, triangle=None), device)
    if problem.triangle != "both":
        return None
    half, whole = _planned(problem, device), plan_gemm(replace(problem, triangle=None), device)
    # There a complex element and the one opposite add the same products in another order.
    as_exact = whole.family not in ("gemm_batched", "gemm_thin") or not dtype(problem.a.dtype).is_complex
    return half if not as_exact or (half.seconds or 0.0) < (whole.seconds or 0.0) else replace(whole, problem=problem)


def _family(problem: GemmProblem, device: DeviceInfo) -> str:
    """The family that is fastest, as far as that has been measured: by estimates, or by extents."""
    if why_not_dots(problem) is None:
        return "reduce"
    if device.fitted["dispatch"]["by estimates alone"]:
        return min(gemm_alternatives(problem, device), key=partial(_rank, device=device)).family
    other = _family_but_thin(problem, device)
    if problem.precision not in ("auto", "ieee") or why_not_thin(problem, device) is not None:
        return other
    seconds = min((x.seconds(device) for x in gemm_alternatives(problem, device) if x.family == other), default=inf)
    share = device.fitted["traffic"]["products: share of bandwidth"]           # estimates of tensor cores know nothing of memory
    least = device.seconds(launches=1, nbytes=compulsory_bytes(problem) / share)
    return "gemm_thin" if thin_seconds(problem, device) < max(seconds, least) else other


def _family_but_thin(problem: GemmProblem, device: DeviceInfo) -> str:
    """The fastest family but for ``gemm_thin``."""
    if _pays_in_batches(problem, device):
        return "gemm_batched"
    if problem.precision == "auto" and _pays_to_be_skinny(problem, device):
        return "gemm_skinny"
    if problem.precision == "auto" and _pays_to_split(problem, device):
        return "gemm_split"
    if problem.precision == "auto" and _pays_by_residues(problem, device):
        return "gemm_modular"
    if is_exact(problem):
        return "gemm_wgmma" if _pays_on_bytes(problem, device) else "gemm_simt"
    if _pays_by_few_columns(problem, device):
        return "gemm_mma"
    if why_not_wgmma(problem, device) is None:
        return "gemm_wgmma"
    name = problem.a.dtype
    if dtype(name).is_stored:
        if why_not_wgmma(packed_problem(problem), device) is None and _pays_to_copy(problem):
            return "gemm_wgmma"
        return "gemm_mma" if why_not_mma(problem, device) is None else "gemm_simt"
    faster = _may_use_mma(problem, device) and mma_seconds(problem, device) < simt_seconds(problem, device)
    return "gemm_mma" if faster else "gemm_simt"


def _may_use_mma(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether ``gemm_mma`` takes a problem, on units that are made for its type."""
    wide = problem.a.dtype in _WIDE
    made = capabilities(device.arch).float64_tensor_cores if wide else dtype(problem.a.dtype).is_stored
    return made and why_not_mma(problem, device) is None


def _rank(alternative: Alternative, device: DeviceInfo) -> float:
    """What alternatives of all families are compared by: those that split float32 have to be worth it."""
    if alternative.family == "gemm_modular":
        return alternative.rank(device) / device.fitted["dispatch"]["worth of residues"]
    splits = alternative.family in ("gemm_split", "gemm_skinny")
    return alternative.rank(device) / (_worth(device) if splits else 1.0)


def gemm_choice(problem: GemmProblem, device: DeviceInfo) -> Alternative:
    """That of :func:`gemm_alternatives` which :func:`plan_gemm` takes on a device without a limit."""
    family = _family(problem, device)
    return min((x for x in gemm_alternatives(problem, device) if x.family == family), key=partial(_rank, device=device))


def gemm_alternatives(problem: GemmProblem, device: DeviceInfo) -> Iterator[Alternative]:
    """All plans among which :func:`plan_gemm` chooses, of every family that is accurate enough, for a device without a limit.

    Parameters
    ----------
    problem : GemmProblem
        What to compute, with elements and of the precision ``"auto"`` or ``"ieee"``.
    device : DeviceInfo
        Where.
    """
    element, auto = dtype(problem.a.dtype), problem.precision == "auto"
    if why_not_dots(problem) is None:
        yield from dots_alternatives(problem, device)
    if why_not_thin(problem, device) is None:
        yield from thin_alternatives(problem, device)
    if auto and why_not_skinny(problem, device) is None:
        yield from skinny_alternatives(problem, device)
    if auto and why_not_split(problem, device) is None and parts_of(problem) * problem.k >= LEAST_K:
        yield from split_alternatives(problem, device)
    if auto and why_not_modular(problem, device) is None and parts_of(problem) * problem.k >= LEAST_DEPTH:
        yield from modular_alternatives(problem, device)
    yield from batched_alternatives(problem, device)
    if is_exact(problem):
        if why_not_wgmma(packed_problem(problem), device) is None:
            yield from _on_bytes(problem, device)
    elif why_not_wgmma(problem, device) is None:
        yield from wgmma_alternatives(problem, device)
    elif element.is_stored and why_not_wgmma(packed_problem(problem), device) is None:
        yield from packed_alternatives(problem, device)
    if _may_use_mma(problem, device):
        yield from mma_alternatives(problem, device)
    yield from simt_alternatives(problem, device)
