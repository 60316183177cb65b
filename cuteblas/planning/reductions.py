"""Plans of reductions of one mode, and of dot products: threads along each mode, slices of j."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from .._dtypes import dtype
from ..kernels.common import OperandAccess
from ..kernels.reduce.modes import OPERATIONS, ReduceModesConfig, reduce_modes
from .cost.work import OF_A_WARP, Work, added, blocks_in_turns
from .floors import compulsory_bytes
from .gemm.family import Choice, Family, Made, as_it_is
from .operands import (
    NARROW_SPAN,
    batch_values,
    compact,
    launch,
    operand_span,
    power_of_two,
    run_access,
    view,
)
from .plan import Launch, Plan, Workspace
from .problem import DeviceInfo, GemmProblem, Operand, ReductionProblem, merged

_THREADS = 256
_WARP = 32
_ISSUED = 64                            # elements that are loaded and combined in a clock
_BLOCKS = 8                             # of 256 threads on a multiprocessor: all that it holds
_LEAST_STEPS = 8                        # a second launch takes as long as a few steps of a block
_MAX_VECTOR = 8                         # elements: each is a register once it is converted


@dataclass(frozen=True)
class ReductionChoice:
    """How a reduction is divided: ``threads`` and ``tile`` (of a step) are along (i, j), ``lanes``
    is the mode of neighbours."""

    threads: tuple[int, int]
    width: int
    lanes: int
    tile: tuple[int, int]
    slices: int
    chunk: int

    def __str__(self) -> str:
        split = f"; j in {self.slices} slices of {self.chunk}" if self.slices > 1 else ""
        return (
            f"{self.threads[0]}x{self.threads[1]} threads along (i, j), lanes along {'ij'[self.lanes]}, vectors of "
            f"{self.width}, {self.tile[0]}x{self.tile[1]} elements a step{split}"
        )


@lru_cache(maxsize=4096)
def plan_reduction(problem: ReductionProblem, device: DeviceInfo) -> Plan:
    """Plan a reduction.

    Parameters
    ----------
    problem : ReductionProblem
        What to compute.
    device : DeviceInfo
        The device to plan for.

    Returns
    -------
    Plan
        Launches that take the addresses of the problem's roles: ``src`` (X) and ``dst`` (R), or
        ``a`` (X), ``b`` (Y) and ``c`` (R).

    Raises
    ------
    TypeError
        If X cannot be reduced in these types.
    ValueError
        For the maximum or minimum of nothing, an unknown operation, or a launch with more blocks
        than a grid can have.

    Examples
    --------
    >>> problem = ReductionProblem(1000, 5000, Operand("float32", (5000, 1)), Operand("float32", (1, 0)))
    >>> plan_reduction(problem, H200).family
    'reduce'
    """
    _check(problem)
    if 0 in (problem.i, *problem.batch):
        return Plan.nothing(problem, device)
    first, *second, last = problem.roles
    p, workspace = _canonical(replace(
        problem, x=problem.x.named(first), r=problem.r.named(last),
        y=problem.y and problem.y.named(*second))), Workspace()
    choice = _choose(p, device)
    if choice.slices == 1:
        launches: tuple[Launch, ...] = (_launch(p, choice),)
    else:
        (strides, _end), outputs = compact(reversed(p.batch), p.i), p.outputs
        sums = Operand(p.accumulator, (1, 0), (outputs, *reversed(strides)),     # (i, batch, slice)
                       role="workspace")
        x, y = (z and replace(z, batch_strides=(choice.chunk * z.strides[1], *z.batch_strides))
                for z in (p.x, p.y))
        slices = replace(p, x=x or p.x, y=y, r=sums, batch=(choice.slices, *p.batch))
        rest = _canonical(replace(p, j=choice.slices, compute=p.accumulator, y=None,
                                  x=replace(sums, strides=(1, outputs),
                                            batch_strides=sums.batch_strides[1:])))
        workspace.take(choice.slices * outputs * p.sum_bytes)
        adding = replace(_choose(rest, device), slices=1)
        launches = _launch(slices, choice), _launch(rest, adding)
    what = "sum of products" if problem.y else problem.op
    reason = (
        f"{what} of {problem.x.dtype} in {problem.accumulator}, {choice}; {launches[0].grid[0]} blocks on "
        f"{device.multiprocessors} multiprocessors"
    )
    work = reducing(problem, device)
    return Plan(problem, device, "reduce", choice, launches, workspace.nbytes, reason,
                work.seconds(device), works=(work,))


def why_not_reduced(p: ReductionProblem) -> str | None:
    x, between, r = dtype(p.x.dtype), dtype(p.accumulator), dtype(p.r.dtype)
    if p.y and (p.y.dtype != p.x.dtype or p.op != "sum"):
        return f"products of X and Y must have one type and op='sum', got {p.op} of {p.x.dtype} by {p.y.dtype}"
    if x.is_complex or between.is_complex or "b" in (between.kind, r.kind):
        fits = x is between is r and p.op == "sum"
    elif between.is_integer:
        fits = x is between is r or (p.op == "sum" and r.is_integer and x.kind in "biu")
        fits = fits and all(d.package for d in (x, between, r))
    else:
        exact = all(d.kind == "f" and d.package
                    for d in (x, between, r)) and x.bytes <= between.bytes
        # would be rounded twice
        fits = exact and not between.is_stored and not (between.bytes == 8 and r.is_stored)
    return None if fits else f"kernels do not compute {p.op} of {x.name} in {between.name} to {r.name}"


def _check(p: ReductionProblem) -> None:
    if p.op not in OPERATIONS:
        raise ValueError(f"op is one of {', '.join(map(repr, OPERATIONS))}, got {p.op!r}")
    if refused := why_not_reduced(p):
        raise TypeError(refused)
    if p.j == 0 and p.op != "sum":
        raise ValueError(
            f"zero-size array to reduction operation {OPERATIONS[p.op]} which has no identity"
        )


def _canonical(p: ReductionProblem) -> ReductionProblem:
    """The reduction with as few modes as possible; i is the one that is closest together in X."""
    # Modes of extent 1 have stride 0, so that they stand in no vector's way.
    tensors = [x for x in (p.x, p.r, p.y) if x is not None]
    modes = merged(((p.i, *(x.strides[0] for x in tensors)),
                    *zip(p.batch, *(x.batch_strides for x in tensors), strict=True)))
    first, *batch = sorted(modes, key=lambda mode: (mode[1] == 0, abs(mode[1]), mode))

    def settled(x: Operand, column: int) -> Operand:
        return replace(x, strides=(first[column], x.strides[1] if p.j > 1 else 0),
                       batch_strides=tuple(mode[column] for mode in batch))

    return replace(p, i=first[0], x=settled(p.x, 1), r=settled(p.r, 2),
                   y=p.y and settled(p.y, 3), batch=tuple(mode[0] for mode in batch))


def reducing(problem: ReductionProblem, device: DeviceInfo) -> Work:
    """What :func:`plan_reduction` does for a problem that has a result."""
    p = _canonical(problem)
    choice, inputs = _choose(p, device), 2 if p.y else 1
    steps, warps = -(-(choice.chunk if choice.slices > 1
                       else p.j) // choice.tile[1]), prod(choice.threads) // _WARP
    turns = blocks_in_turns(-(-p.i // choice.tile[0]) * prod(p.batch) * choice.slices, _BLOCKS,
                            steps, 2, device)
    return Work("fused multiply-adds", "copies",
                instructions=steps * prod(choice.tile) * inputs / _ISSUED + OF_A_WARP * warps,
                warps=warps, moved=compulsory_bytes(p), **turns,
                **added(choice.slices, p.outputs * p.sum_bytes))


def _choose(p: ReductionProblem, device: DeviceInfo) -> ReductionChoice:
    extents = (p.i, p.j)
    lanes = min((1, 0), key=lambda mode: (p.x.strides[mode] == 0, abs(p.x.strides[mode])))
    access = _access(p, p.x, lanes)
    width = access.width
    along = min(_WARP, power_of_two(-(-extents[lanes] // width)))
    across = min(_THREADS // along, max(power_of_two(extents[1 - lanes]), _WARP // along))
    along = min(_THREADS // across, power_of_two(-(-extents[lanes] // width)))
    threads = (along, across) if lanes == 0 else (across, along)
    tile = ReduceModesConfig(p.op, p.x.dtype, p.accumulator, p.r.dtype, access, threads, lanes).tile
    blocks, steps = -(-p.i // tile[0]) * prod(p.batch), -(-p.j // tile[1])
    slices = min(_BLOCKS * device.multiprocessors // blocks,
                 steps // 2) if steps >= _LEAST_STEPS else 1
    if device.workspace_limit is not None:
        slices = min(slices, device.workspace_limit // (p.outputs * p.sum_bytes))
    chunk = -(-steps // max(1, slices)) * tile[1]
    return ReductionChoice(threads, width, lanes, tile, max(1, -(-p.j // chunk)) if chunk else 1,
                           chunk)


def _access(p: ReductionProblem, x: Operand, lanes: int, most: int = _MAX_VECTOR) -> OperandAccess:
    """How lanes that are neighbours along a mode read an operand."""
    access = run_access(lanes, x, (p.i, p.j), most)
    return access if access.unit == lanes else replace(access, unit=None)


def _launch(p: ReductionProblem, choice: ReductionChoice) -> Launch:
    """The launch of one stage; the outermost batch mode walks over slices, if any."""
    length = choice.chunk if choice.slices > 1 else p.j
    # predicates stop threads, not addresses
    i, j = (-(-n // t) * t for n, t in zip((p.i, length), choice.tile, strict=True))
    reach = (operand_span(x, (i, j), p.batch) for x in (p.x, p.r, p.y) if x)
    x = _access(p, p.x, choice.lanes, choice.width)
    y = _access(p, p.y, choice.lanes, choice.width) if p.y else None
    config = ReduceModesConfig(p.op, p.x.dtype, p.accumulator, p.r.dtype,
                               x, choice.threads, choice.lanes, len(p.batch),
                               choice.slices > 1, max(p.i, p.j, *reach) >= NARROW_SPAN, y)
    blocks = -(-p.i // choice.tile[0]) * prod(p.batch)
    views = {name: view(x, x.role) for name, x in (("X", p.x), ("R", p.r), ("Y", p.y)) if x}
    return launch(reduce_modes, config, blocks, batch_values(p.batch), views, I=p.i, J=p.j,
                  **({"chunk": choice.chunk} if choice.slices > 1 else {}))


# -- dot products, or a batch of them, as the sum of the products of elements ----------------------
def why_not_dots(p: GemmProblem, _device: DeviceInfo) -> str | None:
    if p.shape != (1, 1):
        return f"a dot product has one row and one column, not {p.m} and {p.n}"
    if p.triangle or p.k == 0 or (p.alpha, p.beta) != ("one", "zero") or p.fusion is not None:
        return "a dot product has K above 0, and no alpha, beta, epilogue or triangle"
    return why_not_reduced(_of_dots(p))


def _of_dots(p: GemmProblem) -> ReductionProblem:
    """The reduction along K; elements of X are closer together than those of Y."""
    def scattered(x: Operand) -> tuple[bool, int]:
        steps = [abs(s) for n, s in zip((p.k, *p.batch), (x.strides[1], *x.batch_strides),
                                        strict=True) if n > 1]
        return 0 in steps, min((s for s in steps if s), default=1)

    x, y = sorted((p.a.named("a"), p.b.named("b")), key=scattered)
    return ReductionProblem(1, p.k, replace(x, strides=(0, x.strides[1])),
                            replace(p.c, strides=(0, 0)), p.batch, compute=p.accumulator,
                            y=replace(y, strides=(0, y.strides[1])))


def _choices(p: GemmProblem, device: DeviceInfo) -> Iterator[Choice[None]]:
    yield Choice(None, 1, p.k, 1, reducing(_of_dots(p), device), "dot products")


def _made_of_dots(p: GemmProblem, device: DeviceInfo, _choice: Choice[None]) -> Made:
    plan = plan_reduction(_of_dots(p), device)
    return Made(plan.launches, plan.workspace_bytes, plan.reason, plan.config)


DOTS = Family("reduce", why_not_dots, _choices, _made_of_dots, as_it_is)
plan_dots = DOTS.plan
