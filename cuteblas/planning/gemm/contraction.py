"""Tensor contractions: a GEMM if modes merge, else one on packed tensors or nested modes (GETT),
whichever is estimated to be faster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import product as combinations
from math import prod
from typing import Any

from ..._dtypes import dtype
from ..copy.dispatch import copy_alternatives, copy_choice
from ..operands import merged_stride, row_pitch
from ..plan import Alternative, Plan, Role
from ..problem import (
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    Ints,
    Modes,
    Operand,
    Pair,
    merged,
)
from ..variants import Variant, variant
from .dispatch import PRECISIONS, gemm_alternatives, plan_gemm
from .family import NATIVE_PRECISIONS
from .packing import Packed, packed, with_copies
from .simt import SIMT


# -- as few modes as possible ----------------------------------------------------------------------
def _ordered(modes: Modes, *preferred: int) -> Modes:
    """Modes by stride in the first ``preferred`` tensor that has one with stride 1."""
    def key(mode: Ints) -> tuple:
        return (*(mode[column] != 1 for column in preferred),
                *(abs(mode[column]) for column in preferred), mode)

    return tuple(sorted(modes, key=key))


def canonical(p: ContractionProblem) -> ContractionProblem:
    """The contraction with as few modes as possible, those best read as vectors first."""
    # A and B are read many times and C is written once: their contiguous modes come first.
    empty = p.alpha == "zero" or 0 in (mode[0] for mode in p.k)
    m, n = _ordered(merged(p.m), 1, 2), _ordered(merged(p.n), 1, 2)
    k = ((0, 0, 0),) if empty else _ordered(merged(p.k), *((1, 2) if m[0][1] != 1 else (2, 1)))
    batch = _ordered(merged(p.batch), 3, 1) if any(mode[0] != 1 for mode in p.batch) else ()
    alpha = "one" if empty else p.alpha           # an empty sum is zero even if alpha is not finite
    return replace(p, m=m, n=n, k=k, batch=batch, alpha=alpha)


# -- plans -----------------------------------------------------------------------------------------
@lru_cache(maxsize=4096)
def plan_contraction(problem: ContractionProblem, device: DeviceInfo) -> Plan:
    """Plan a contraction.

    Parameters
    ----------
    problem : ContractionProblem
        What to compute.
    device : DeviceInfo
        The device to plan for.

    Returns
    -------
    Plan
        Launches that take the addresses of roles ``a``, ``b`` and ``c``: a GEMM if the modes of
        each group merge, else GETT.

    Raises
    ------
    TypeError
        If kernels do not support an element type.
    ValueError
        If the operands' types differ, the precision is unknown, or a launch needs more blocks than
        a grid can have.

    Examples
    --------
    >>> problem = ContractionProblem(m=((4, 6, 5),), n=((5, 1, 1),), k=((6, 1, 5),),
    ...                              a=Storage("float32"), b=Storage("float32"), c=Storage("float32"))
    >>> len(plan_contraction(problem, H200).launches)
    1
    """
    if problem.variant is not None and (named := variant(problem.variant, "contraction",
                                                         "gemm")).operation == "contraction":
        return named.plan(problem, device)
    p = canonical(problem)
    if not (product := _product(p)).is_nested:
        plan = plan_gemm(product, device)
        direct = replace(plan, problem=problem,
                         reason=f"the modes merge into one for each of M, N, K; {plan.reason}")
    elif problem.variant is not None:
        raise ValueError(
            f"{problem.variant} multiplies matrices, but the modes {_groups(product)} of this contraction form none"
        )
    else:
        direct = plan_gett(problem, device)
    if problem.variant is not None or p.precision not in NATIVE_PRECISIONS or not direct.launches or direct.family == "reduce":
        return direct
    return _plan_packed(problem, p, device, direct) or direct


def alternatives(problem: Any, device: DeviceInfo) -> Iterable[Alternative]:
    """Plans among which planning chooses for a copy, a product, or a contraction that is one."""
    if isinstance(problem, CopyProblem):
        return copy_alternatives(problem, device)
    if isinstance(problem, ContractionProblem):
        problem = _product(canonical(problem))
    return () if problem.is_nested else gemm_alternatives(problem, device)


def _product(p: ContractionProblem) -> GemmProblem:
    """The product of a contraction with as few modes as possible."""
    if p.a.dtype != p.b.dtype:
        raise ValueError(
            f"a contraction multiplies two tensors of the same type, got {p.a.dtype} and {p.b.dtype}"
        )
    if p.precision not in PRECISIONS:
        raise ValueError(
            f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {p.precision!r}"
        )
    dtype(p.a.dtype)
    return replace(p.product, triangle="both") if p.same and p.product.is_gram else p.product


def _groups(p: GemmProblem) -> str:
    return ", ".join(f"{name} ({','.join(map(str, extents))})"
                     for name, extents in zip("MNK", p.extents, strict=True))


def plan_gett(problem: ContractionProblem, device: DeviceInfo) -> Plan:
    p = _product(canonical(problem))
    if 0 in (p.m, p.n, *p.batch):
        return Plan.nothing(problem, device)
    if p.precision not in NATIVE_PRECISIONS:
        raise ValueError(
            f"precision={p.precision!r} multiplies matrices, but the modes {_groups(p)} of this contraction form "
            "none; pass precision='ieee'"
        )
    plan = replace(SIMT, name="gett").plan(p, device)
    reason = f"a contraction as a GEMM with nested modes {_groups(p)}; {plan.reason}"
    return replace(plan, problem=problem, reason=reason)


# -- packed tensors --------------------------------------------------------------------------------
_LEAST_PACKED = 1 << 19  # bytes of a tensor whose modes merge, but of which no mode of the matrix
                         # is contiguous
_PITCH = 16              # elements: rows of packed tensors are multiples of it
_SCATTERED = 8           # a line is read or written so often, where no mode of a matrix is
                         # contiguous
_STARTED = 4                         # launches: what it takes the host to start another kernel


def _matrices(x: Operand, extents: Pair, batch: Ints) -> Operand | Packed:
    """An operand of matrices, packed if its modes do not merge or none is contiguous."""
    groups = x.modes(extents)
    rows, columns = map(merged_stride, groups)
    matrices = prod(n for n, s in zip(batch, x.batch_strides, strict=True) if s)
    small = prod(extents) * matrices * x.item < _LEAST_PACKED
    if rows is not None and columns is not None and (small or 1 in (rows, columns)):
        return replace(x, strides=(rows, columns), outer=((), ()))
    inner = min((0, 1), key=lambda mode: (extents[mode] == 1,
                                          min(abs(s) for _e, s in groups[mode]), mode))
    return packed(x, extents, batch, inner, row_pitch(extents[inner], _PITCH))


def _in_orders(p: ContractionProblem) -> dict[Role, Operand | Packed]:
    """The tensors as matrices, in the orders of modes in which the fewest bytes are packed."""
    def orders(group: Modes) -> tuple[Modes, ...]:
        return tuple(dict.fromkeys(tuple(sorted(group, key=lambda mode: (abs(mode[column]), mode)))
                                   for column in (1, 2)))

    products = (replace(p, m=m, n=n, k=k).product
                for m, n, k in combinations(*map(orders, (p.m, p.n, p.k))))
    possible = ([_matrices(*x, q.batch) for x in (*q.inputs, (q.c, q.shape))] for q in products)
    fewest = min(possible, key=lambda found: sum(x.nbytes for x in found if isinstance(x, Packed)))
    return dict(zip("abc", fewest, strict=True))


def _plan_packed(problem: ContractionProblem, p: ContractionProblem, device: DeviceInfo,
                 direct: Plan) -> Plan | None:
    """The plan of a product of packed tensors, if it is estimated to be faster than ``direct``."""
    tensors = _in_orders(p)
    copies = {role: x for role, x in tensors.items() if isinstance(x, Packed)}
    if not copies or ("c" in copies and p.beta != "zero"):
        return None
    moves = {role: copy_choice(_unpacking(x.problem) if role == "c" else x.problem, device)
             for role, x in copies.items()}
    started, least = device.seconds(launches=_STARTED * len(copies)), direct.seconds or 0.0
    if not p.product.is_nested:                        # its estimate is that of contiguous operands
        least += _SCATTERED * sum(x.nbytes for x in copies.values()) / device.bandwidth
    if started + sum(move.seconds(device) for move in moves.values()) >= least:
        return None
    matrices = {role: x.operand if isinstance(x, Packed) else x for role, x in tensors.items()}
    plan = plan_gemm(replace(p.product, **matrices), device)          # type: ignore[arg-type]
    copied = tuple(
        f"{role.upper()} is {'unpacked last' if role == 'c' else 'packed first'}, {x.nbytes} bytes, as its modes do "
        "not form a matrix with a contiguous mode"
        for role, x in copies.items()
    )
    whole = with_copies(plan, copies, moves, *copied)
    seconds, limit = (whole.seconds or 0.0) + started, device.workspace_limit
    if seconds >= least or (limit is not None and whole.workspace_bytes > limit):
        return None
    reason = f"a contraction of the modes {_groups(p.product)} as a product of matrices; {whole.reason}"
    return replace(whole, problem=problem, reason=reason, seconds=seconds,
                   works=sum((move.works for move in moves.values()), plan.works))


def _unpacking(p: CopyProblem) -> CopyProblem:
    return replace(p, src_strides=p.dst_strides, dst_strides=p.src_strides,
                   src_alignment=p.dst_alignment, dst_alignment=p.src_alignment)


VARIANTS: tuple[Variant, ...] = (
    Variant(
        "gett", "contraction",
        "CuTe dense matrix-matrix multiply tutorial: GEMM as generalized tensor contraction (GETT)",
        "a GEMM whose M, N and K are nested layouts, any strides, evaluated at flat tile coordinates",
        "sm_75", plan_gett
    ),
)
