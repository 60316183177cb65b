"""From a GEMM problem to a plan: which kernel family computes it."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ...codegen.architectures import capabilities
from ...codegen.dtypes import dtype
from ...kernels.split.planes import FORMATS
from ..plan import Plan
from ..problem import DeviceInfo, GemmProblem
from ..variants import variant
from .blocks import plan_in_blocks
from .copied import of_copies, plan_copied
from .mma import plan_mma, why_not_mma
from .simt import plan_simt, simt_seconds
from .skinny import plan_skinny, skinny_seconds, why_not_skinny
from .split import LEAST_K, WORTH, guarded_seconds, parts_of, plan_guarded, plan_split, why_not_split
from .wgmma import plan_wgmma, why_not_wgmma

__all__ = ["PRECISIONS", "plan_gemm"]

# From which size float64 tensor cores pay: measured at 256 to 4096 on sm_90. They round every multiply-add as the unit does, so
# precision "ieee" holds.
_LEAST_FLOPS = {"float64": 6e8, "complex128": 1e8}

# Elements of A, B and C from which operands in half precision are copied where no tensor map describes them; or K, of results that
# are not so small that gemm_mma slices it. Copies cost the host a launch more, 3 to 6 us; gemm_mma takes 1.4 us for every 32 of K:
# 10 us at 129 x 129 x 129, where copies and gemm_wgmma take 4.
_LEAST_COPIED = 2**18
_LEAST_K_COPIED, _LEAST_RESULT_COPIED = 128, 2**12


PRECISIONS = ("auto", "ieee", *FORMATS, "tf32")
"""What ``precision=`` may be: the fastest algorithm that is not less accurate than native arithmetic, native arithmetic, or an
algorithm by name. ``"tf32"``, one product of float32 rounded to 11 bits, is the only one that may be less accurate."""


def _pays_to_split(p: GemmProblem, device: DeviceInfo) -> bool:
    """Whether float32 or complex64 is faster on 16-bit tensor cores, by the estimates of both."""
    return (why_not_split(p, device) is None and parts_of(p) * p.k >= LEAST_K
            and guarded_seconds(p, device) < WORTH * simt_seconds(p, device))


def _pays_to_be_skinny(problem: GemmProblem, device: DeviceInfo) -> bool:
    """Whether float32 is fastest on 16-bit tensor cores and split in registers, by the estimates."""
    if why_not_skinny(problem, device) is not None:
        return False
    seconds = skinny_seconds(problem, device)
    split = guarded_seconds(problem, device) if why_not_split(problem, device) is None else seconds
    return seconds <= split and seconds < WORTH * simt_seconds(problem, device)


def _pays_to_copy(p: GemmProblem) -> bool:
    """Whether launches that copy operands are worth what they cost the host."""
    batch = prod(p.batch)
    deep = p.k >= _LEAST_K_COPIED and p.m * p.n * batch >= _LEAST_RESULT_COPIED
    return deep or (p.m * p.k + p.n * p.k + p.m * p.n) * batch >= _LEAST_COPIED


def _plan_tf32(problem: GemmProblem, device: DeviceInfo) -> Plan:
    """The plan of float32 as tfloat32, of copies where operands cannot be read as they are."""
    if (refused := why_not_wgmma(of_copies(problem), device)) is not None:
        raise ValueError(f"gemm_wgmma cannot compute this: {refused}")
    if (copied := plan_in_blocks(problem, device, plan_copied)) is None:
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
    """
    element = dtype(problem.a.dtype)
    if problem.precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {problem.precision!r}")
    if 0 in (problem.m, problem.n, *problem.batch):
        return Plan(problem, device, "nothing", None, (), reason="the result has no elements", seconds=0.0)
    if problem.variant is not None:
        return variant(problem.variant, "gemm").plan(problem, device)
    dtype(problem.accumulator)
    if problem.precision in FORMATS:
        named = plan_in_blocks(problem, device, lambda p, where: plan_split(p, where, problem.precision))
        if named is None:
            raise ValueError(f"precision={problem.precision!r} needs a workspace, and the limit is {device.workspace_limit} bytes")
        return named
    if problem.precision == "tf32":
        return _plan_tf32(problem, device)
    over = ""
    if problem.precision == "auto" and _pays_to_be_skinny(problem, device):
        return plan_skinny(problem, device)
    if problem.precision == "auto" and _pays_to_split(problem, device):
        if (guarded := plan_in_blocks(problem, device, plan_guarded)) is not None:
            return guarded
        over = f"; not gemm_split: its workspace is over the limit of {device.workspace_limit} bytes even in small blocks"
    refused = why_not_wgmma(problem, device)
    if refused is None:
        return plan_wgmma(problem, device)
    if element.name not in ("float16", "bfloat16"):
        if element.name in _LEAST_FLOPS and problem.flops >= _LEAST_FLOPS[element.name] \
                and capabilities(device.arch).float64_tensor_cores and why_not_mma(problem, device) is None:
            return plan_mma(problem, device)
        return plan_simt(problem, device, over)
    why = f"; not gemm_wgmma: {refused}"
    if why_not_wgmma(of_copies(problem), device) is None and _pays_to_copy(problem):
        if (copied := plan_in_blocks(problem, device, plan_copied)) is not None:
            return copied
        why += f", and copies are over the limit of {device.workspace_limit} bytes even in small blocks"
    if (refused := why_not_mma(problem, device)) is None:
        return plan_mma(problem, device, why)
    return plan_simt(problem, device, why if why.endswith(refused) else f"{why}; not gemm_mma: {refused}")
