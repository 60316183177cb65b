"""Tensor contractions: a GEMM if modes merge, else one on packed tensors or nested modes (GETT),
whichever is estimated to be faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from ..._dtypes import dtype
from ...codegen.signature import View
from ...kernels.common import OperandAccess
from ...kernels.gemm.simt import SimtConfig, gemm_simt
from ..copy.dispatch import copy_alternatives, copy_choice
from ..operands import (
    Roles,
    bind,
    compact,
    merged_stride,
    row_pitch,
    span,
    specialised,
    vector_width,
)
from ..plan import Alternative, Launch, Plan, Role, least, place
from ..problem import (
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    Ints,
    Modes,
    Operand,
    Storage,
    merged,
)
from ..variants import Variant, variant
from .dispatch import PRECISIONS, gemm_alternatives, plan_gemm
from .family import Choice, reduction, workspace_bytes
from .packing import Packed, Pairs, packed, with_copies
from .simt import MAX_VECTOR, choices, types

_AHEAD = 256       # a tile and the copies ahead of the end reach at most this far outside of a mode


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


def _swapped(p: ContractionProblem) -> ContractionProblem:
    return replace(p, m=p.n, n=p.m, k=tuple((e, b, a) for e, a, b in p.k), a=p.b, b=p.a,
                   batch=tuple((e, b, a, c) for e, a, b, c in p.batch))


# -- plans -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Tensor:
    """One tensor of a contraction: its two groups of (extent, stride) and its batch modes."""

    storage: Storage
    first: Pairs
    second: Pairs
    batch: Pairs

    def access(self, limit: int = MAX_VECTOR) -> OperandAccess:
        """How it is accessed: the group that starts with stride 1, and vectors along it."""
        extent, stride = self.first[0]
        unit = 0 if stride == 1 else 1 if self.second[0][1] == 1 else None
        others = [s for e, s in (*self.first[1:], *self.second, *self.batch) if e > 1]
        width = vector_width(self.storage, limit, extent, *others) if unit == 0 else 1
        return OperandAccess(unit, width, self.storage.conj)

    def matrix(self, first: int, second: int) -> Operand:
        kept, batch = self.storage, tuple(s for _e, s in self.batch[::-1])
        return Operand(kept.dtype, (first, second), batch, kept.conj, kept.alignment)

    @property
    def span(self) -> int:
        """Largest distance between two elements, also those of copies ahead of the end."""
        beyond = sum(-(-_AHEAD // prod(e for e, _s in group[:-1])) * abs(group[-1][1])
                     for group in (self.first, self.second))
        return span((*self.first, *self.second, *self.batch)) + beyond


def _tensors(p: ContractionProblem) -> tuple[_Tensor, _Tensor, _Tensor]:
    def pairs(modes: Modes, column: int) -> Pairs:
        return tuple((mode[0], mode[column]) for mode in modes)

    return (_Tensor(p.a, pairs(p.m, 1), pairs(p.k, 1), pairs(p.batch, 1)),
            _Tensor(p.b, pairs(p.n, 1), pairs(p.k, 2), pairs(p.batch, 2)),
            _Tensor(p.c, pairs(p.m, 2), pairs(p.n, 2), pairs(p.batch, 3)))


def _extents(modes: Sequence[Ints]) -> Ints:
    return tuple(mode[0] for mode in modes)


def _plain(p: ContractionProblem, operands: Iterable[Operand]) -> GemmProblem:
    (a, b, c), (m, n, k) = operands, (prod(_extents(group)) for group in (p.m, p.n, p.k))
    return GemmProblem(m, n, k, a, b, c, _extents(p.batch)[::-1], p.alpha, p.beta, p.precision)


def _flat(p: ContractionProblem) -> GemmProblem:
    """The GEMM with the strides of each group's first mode."""
    return _plain(p, (t.matrix(t.first[0][1], t.second[0][1]) for t in _tensors(p)))


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
    flat = _product_of(problem, p)
    if flat is None and problem.variant is not None:
        raise ValueError(
            f"{problem.variant} multiplies matrices, but the modes {_groups(p)} of this contraction form none"
        )
    if flat is None:
        direct = plan_gett(problem, device)
    else:
        plan = plan_gemm(flat, device)
        direct = replace(plan, problem=problem,
                         reason=f"the modes merge into one for each of M, N, K; {plan.reason}")
    if problem.variant is not None or p.precision not in ("auto", "ieee") or not direct.launches or direct.family == "reduce":
        return direct
    packed = _plan_packed(problem, p, device, direct)
    return direct if packed is None else packed


def alternatives(problem: Any, device: DeviceInfo) -> Iterable[Alternative]:
    """Plans among which planning chooses for a copy, a product, or a contraction that is one."""
    if isinstance(problem, CopyProblem):
        return copy_alternatives(problem, device)
    if isinstance(problem, ContractionProblem):
        problem = _product_of(problem, canonical(problem))
    return gemm_alternatives(problem, device) if problem else ()


def _product_of(problem: ContractionProblem, p: ContractionProblem) -> GemmProblem | None:
    """The product of a contraction and its canonical form, if the modes form matrices."""
    if not len(p.m) == len(p.n) == len(p.k) == 1:
        return None
    _check(problem)
    flat = replace(_flat(p), variant=problem.variant)
    return replace(flat, triangle="both") if problem.same and flat.is_gram else flat


def _check(p: ContractionProblem) -> None:
    if p.a.dtype != p.b.dtype:
        raise ValueError(
            f"a contraction multiplies two tensors of the same type, got {p.a.dtype} and {p.b.dtype}"
        )
    if p.precision not in PRECISIONS:
        raise ValueError(
            f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {p.precision!r}"
        )
    dtype(p.a.dtype)


def _groups(p: ContractionProblem) -> str:
    return ", ".join(f"{name} ({','.join(map(str, _extents(group)))})"
                     for name, group in zip("MNK", (p.m, p.n, p.k), strict=True))


def plan_gett(problem: ContractionProblem, device: DeviceInfo) -> Plan:
    _check(problem)
    if 0 in _extents((*problem.m, *problem.n, *problem.batch)):
        return Plan.nothing(problem, device)
    p = canonical(problem)
    if p.precision not in ("auto", "ieee"):
        raise ValueError(
            f"precision={p.precision!r} multiplies matrices, but the modes {_groups(p)} of this contraction form "
            "none; pass precision='ieee'"
        )
    swapped = p.m[0][2] != 1 and p.n[0][2] == 1
    if swapped:                     # so that C is M-major, the order in which threads write vectors
        p = _swapped(p)
    roles: Roles = dict(zip("ABC", "bac" if swapped else "abc", strict=True))
    (a, b, c), flat = _tensors(p), _flat(p)
    found = least(choices(flat, device, a.access(), b.access()), device)
    choice = replace(found, turn=0)                                 # slices of modes are ranges
    reason = (
        f"a contraction as a GEMM with nested modes {_groups(p)}; {types(flat)} on fused multiply-adds, tile {choice.tile}: "
        f"{choice.on(device)}"
    )
    launches, workspace = [_product(p, choice, roles)], 0
    if choice.slices > 1:
        slices, workspace = _slices(p, choice, flat), workspace_bytes(flat, choice.slices)
        launches = [_product(slices, choice, {**roles, "C": "workspace"}),
                    reduction(flat, choice, c.span, (len(p.m), len(p.n)), **_values(p, roles))]
    reason += "; A and B exchanged, so that C is written along its contiguous mode" if swapped else ""
    return Plan(problem, device, "gett", choice, tuple(launches), workspace, reason,
                choice.work.seconds(device), works=(choice.work,))


# -- packed tensors --------------------------------------------------------------------------------
_LEAST_PACKED = 1 << 19  # bytes of a tensor whose modes merge, but of which no mode of the matrix
                         # is contiguous
_PITCH = 16              # elements: rows of packed tensors are multiples of it
_SCATTERED = 8           # a line is read or written so often, where no mode of a matrix is
                         # contiguous
_STARTED = 4                         # launches: what it takes the host to start another kernel


def _matrices(t: _Tensor) -> Operand | Packed:
    """A tensor with ordered groups, packed if its modes do not merge or none is contiguous."""
    item, groups = t.storage.item, (t.first, t.second)
    merged_strides = tuple(map(merged_stride, groups))
    extents = tuple(prod(_extents(group)) for group in groups)
    matrices = prod(n for n, s in t.batch if s)
    small = prod(extents) * matrices * item < _LEAST_PACKED
    contiguous = 1 in merged_strides or (1 in extents and max(extents) * matrices
                                         * item < _LEAST_PACKED)
    if None not in merged_strides and (contiguous or small):
        return t.matrix(*merged_strides)            # type: ignore[arg-type]
    inner = min((0, 1), key=lambda group: (extents[group] == 1,
                                           min(abs(s) for _e, s in groups[group]), group))
    return packed(t.storage, groups, t.batch, inner, row_pitch(extents[inner], _PITCH))


def _in_orders(p: ContractionProblem) -> dict[Role, Operand | Packed]:
    """The tensors as matrices, in the orders of modes in which the fewest bytes are packed."""
    def orders(group: Modes) -> tuple[Modes, ...]:
        return tuple(dict.fromkeys(tuple(sorted(group, key=lambda mode: (abs(mode[column]), mode)))
                                   for column in (1, 2)))

    possible = (tuple(map(_matrices, _tensors(replace(p, m=m, n=n, k=k))))
                for m, n, k in product(*map(orders, (p.m, p.n, p.k))))
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
    seconds = sum(move.seconds(device)
                  for move in moves.values()) + device.seconds(launches=_STARTED * len(copies))
    least = direct.seconds or 0.0
    if len(p.m) == len(p.n) == len(p.k) == 1:          # its estimate is that of contiguous operands
        least += _SCATTERED * sum(x.nbytes for x in copies.values()) / device.bandwidth
    if seconds >= least:
        return None
    plan = plan_gemm(_plain(p, (x.operand if isinstance(x, Packed) else x
                                for x in tensors.values())), device)
    seconds += plan.seconds or 0.0
    if seconds >= least:
        return None
    copied = tuple(
        f"{role.upper()} is {'unpacked last' if role == 'c' else 'packed first'}, {x.nbytes} bytes, as its modes do "
        "not form a matrix with a contiguous mode"
        for role, x in copies.items()
    )
    whole = with_copies(plan, copies, moves, *copied)
    if device.workspace_limit is not None and whole.workspace_bytes > device.workspace_limit:
        return None
    reason = f"a contraction of the modes {_groups(p)} as a product of matrices; {whole.reason}"
    return replace(whole, problem=problem, reason=reason, seconds=seconds,
                   works=sum((move.works for move in moves.values()), plan.works))


def _unpacking(p: CopyProblem) -> CopyProblem:
    return replace(p, src_strides=p.dst_strides, dst_strides=p.src_strides,
                   src_alignment=p.dst_alignment, dst_alignment=p.src_alignment)


def _slices(p: ContractionProblem, choice: Choice, flat: GemmProblem) -> ContractionProblem:
    """The product of slices of K into the workspace (M, N, batch, slice)."""
    # Where K is nested, a slice is a range of its flat coordinate: the kernel moves the coordinate
    # instead of the address.
    steps, below = compact(_extents((*p.m, *p.n, *p.batch)), 1)
    each = iter(steps)
    m, n, batch = (tuple((*mode[:-1], next(each)) for mode in group)
                   for group in (p.m, p.n, p.batch))
    (_k, in_a, in_b), *nested = p.k
    step = (0, 0) if nested else (choice.chunk * in_a, choice.chunk * in_b)
    return replace(p, m=m, n=n, batch=(*batch, (choice.slices, *step, below)),
                   c=Storage(flat.accumulator), alpha="one", beta="zero")


def _values(p: ContractionProblem, roles: Roles) -> dict[str, Any]:
    """Extents of groups, and tensors, by name; the values of several modes are nested."""
    def nested(group: Iterable[int]) -> int | Ints:
        first, *others = group
        return (first, *others) if others else first

    views = {name: View(place(roles[name]),
                        tuple(nested(s for _e, s in group) for group in (t.first, t.second)),
                        tuple(s for _e, s in t.batch))
             for name, t in zip("ABC", _tensors(p), strict=True)}
    return views | {name: nested(_extents(group))
                    for name, group in zip("MNK", (p.m, p.n, p.k), strict=True)}


def _product(p: ContractionProblem, choice: Choice, roles: Roles) -> Launch:
    """The launch of ``gemm_simt``; the last batch mode walks over slices if there are several."""
    (a, b, c), flat = _tensors(p), _flat(p)
    reach = max(flat.m, flat.n, flat.k, a.span, b.span, c.span)
    config = specialised(SimtConfig, flat, c.access(choice.tile.values[0]), reach,
                         tile=choice.tile, a=a.access(), b=b.access(), split_k=choice.slices > 1,
                         modes=(len(p.m), len(p.n), len(p.k)))
    return bind(gemm_simt, config, flat, choice.blocks, **_values(p, roles), chunk=choice.chunk)


VARIANTS: tuple[Variant, ...] = (
    Variant(
        "gett", "contraction",
        "CuTe dense matrix-matrix multiply tutorial: GEMM as generalized tensor contraction (GETT)",
        "a GEMM whose M, N and K are nested layouts, any strides, evaluated at flat tile coordinates",
        "sm_75", plan_gett
    ),
)
