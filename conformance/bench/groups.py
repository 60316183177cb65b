"""The groups that serve the pages of docs/performance: the rows of their tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from cuteblas import blas, epilogues, runtime
from cuteblas.array import asarray
from cuteblas.blas.types import dtype_named
from cuteblas.cli import bench
from cuteblas.cli.bench import (
    COPY_DTYPES,
    ORDERS,
    Measured,
    Row,
    move_cases,
    moved,
    multiplied,
    operands,
    product_cases,
)
from cuteblas.cli.machines import medians, random_array
from cuteblas.cli.problems import Permutation
from cuteblas.codegen.architectures import target_architecture
from cuteblas.codegen.kernel import GeneratedKernel
from cuteblas.engines.dispatch import Engine
from cuteblas.engines.emulator import EMULATOR
from cuteblas.functions import (
    Explanation,
    ascontiguousarray,
    asfortranarray,
    copy,
    dot,
    einsum,
    explain,
    explain_copy,
    matmul,
    moveaxis,
    swapaxes,
    tensordot,
    transpose,
)
from cuteblas.planning import Operand, Plan, ReductionProblem, plan_reduction
from cuteblas.planning.floors import compulsory_bytes
from cuteblas.planning.variants import CHOSEN, variants

from .products import random_products, timed_products
from .samples import random_permutations

__all__ = ["GROUPS", "Selection", "engine_of"]

_GEMM_SIZES: tuple[tuple[int, ...], ...] = ((1024,), (4096,))
_COPY_SIZES: tuple[tuple[int, ...], ...] = ((8192,), (8191, 8193))
_VARIANT_DTYPES = ("float32",)
_VARIANT_SIZES: dict[str, tuple[tuple[int, ...], ...]] = {"gemm": ((5120, 5120, 4096),
                                                                   (1024, 1024, 8192)),
                                                          "copy": ((8192,),)}
_EPILOGUE_DTYPES = ("float32", "float16")
_HOST_EXTENTS, _HOST_CALLS = (16, 16), 2000
# that are timed at once, by the library: with NumPy so few that few turns are interrupted by other
# processes; with CuPy so many that it does not matter that the first of them finds an idle device
_HOST_TURNS = {"NumPy": 20, "CuPy": 200}
# so few that the driver's queue takes them all at once
_SEVERAL_LAUNCHES, _FEW_CALLS = (777, 1024, 4096), 20


@dataclass(frozen=True)
class Selection(bench.Selection):
    """Which cases are measured, and how.

    Attributes
    ----------
    random, seed : int
        How many random products or permutations, and of which choice.
    variants : bool
        Whether the named kernels that take a case are measured beside planning's choice.
    sustained : float
        Seconds for which each product is called without a pause before it is timed for as long.
    """

    random: int = 0
    seed: int = 0
    variants: bool = False
    sustained: float = 0.0


class Sustained:
    """A machine on which a call runs for some seconds without a pause, then is timed for as long.

    So each call runs at the clock that its own power allows, and not at one that it shares with
    others.
    """

    def __init__(self, machine: Any, seconds: float):
        self._machine, self._seconds = machine, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def interval(self, call: Callable[[], Any], times: int) -> float:
        """Seconds of so many calls."""
        once = max(self._machine.interval(call, 1), 1e-9)
        count = max(1, round(self._seconds / once))
        self._machine.interval(call, count)
        return self._machine.interval(call, count) / count * times


def plan_of(explanation: Explanation) -> Plan:
    """The plan of a call.

    Raises
    ------
    ValueError
        If there are no kernels for it.
    """
    if explanation.plan is None:
        raise ValueError(str(explanation))
    return explanation.plan


def bank_conflicts(plan: Plan) -> str:
    """How many lanes meet in one bank of shared memory, as the plan counted it: ``"32-way load"``,
    ``"none"``."""
    found = []
    for what, text in plan.facts.items():
        wavefronts = re.findall(r"(\d+) wavefronts of at least (\d+)", text)
        if (ways := max((int(actual) // int(ideal) for actual, ideal in wavefronts),
                        default=1)) > 1:
            found.append(f"{ways}-way {what.split()[1]}")
    return ", ".join(found) or "none"


def _with_variants(which: Selection, operation: str) -> Selection:
    """A selection of named kernels with the types and sizes for which they are compared, unless it
    has others."""
    if not which.variants:
        return which
    return replace(
        which,
        sizes=which.sizes or (() if which.random else _VARIANT_SIZES[operation]),
        dtypes=which.dtypes or _VARIANT_DTYPES,
    )


def _by_kernel(
    operation: str, explained: Callable[..., Explanation], measured: Callable[..., Row]
) -> Iterator[Row]:
    """A row for planning's choice and for each named kernel that takes the case."""
    plans: dict[str | None, Plan] = {None: plan_of(explained())}
    for v in variants().values():
        if v.operation == operation and v.source != CHOSEN:
            with suppress(ValueError):
                plans[v.name] = plan_of(explained(variant=v.name))
    for name, plan in plans.items():
        row = measured(variant=name)
        del row["kernel"]
        yield {
            "case": row["case"],
            "variant": name or f"{plan.family} (planning's choice)",
            "conflicts": bank_conflicts(plan),
            **row,
        }


# -- the groups ------------------------------------------------------------------------------------
def _gemm(machine: Any, which: Selection) -> Measured:
    if which.random:
        drawn = random_products(which.random, which.seed, which.dtypes, which.orders)
        return len(drawn), timed_products(machine, drawn, which.repeats, which.precision)
    if which.sustained:
        machine = Sustained(machine, which.sustained)
    which = _with_variants(which, "gemm")
    cases = product_cases(which, _GEMM_SIZES)
    # Pages compare with CuPy.
    return len(cases), (
        row | {"ratio": row["rival_s"] / row["ours_s"]}
        for case in cases
        for row in _multiplied(machine, which, case)
    )


def _multiplied(machine: Any, which: Selection, case: str) -> Iterator[Row]:
    a, b = operands(machine.rival, case)
    measured = partial(multiplied, machine, which, case, a, b)
    if not which.variants:
        return iter([measured()])
    return _by_kernel("gemm", partial(explain, a, b, precision=which.precision), measured)


def _transpose(machine: Any, which: Selection) -> Measured:
    which = _with_variants(which, "copy")
    cases = move_cases(which) if which.sizes or not which.random else []
    cases += random_permutations(
        which.random,
        which.seed,
        {name: dtype_named(name).itemsize for name in which.dtypes or COPY_DTYPES},
    )
    return len(cases), (row for case in cases for row in _moved(machine, which, *case))


def _moved(machine: Any, which: Selection, dtype: str, size: Permutation) -> Iterator[Row]:
    measured = partial(moved, machine, which, dtype, size)
    if not which.variants:
        return iter([measured()])
    x = machine.rival.empty(size.memory(), dtype)
    target = x if size.in_place else None
    return _by_kernel("copy", partial(explain_copy, size.of(x), out=target), measured)


def _matrices(which: Selection) -> list[tuple[str, tuple[int, ...]]]:
    sizes = [size * 2 if len(size) == 1 else size for size in which.sizes or _COPY_SIZES]
    return list(product(which.dtypes or COPY_DTYPES, (size for size in sizes if len(size) == 2)))


def _reduce(machine: Any, which: Selection) -> Measured:
    cases = list(product(_matrices(which), (1, 0)))
    return len(cases), (_reduced(machine, which, *case, axis) for case, axis in cases)


def _reduced(machine: Any, which: Selection, dtype: str, size: tuple[int, ...], axis: int) -> Row:
    xp, engine = machine.rival, engine_of(machine)
    x = random_array(xp, size, dtype)
    y = x if axis else x.T
    sums, theirs = xp.empty(len(y), x.dtype), xp.empty(len(y), x.dtype)
    strides = tuple(s // x.itemsize for s in y.strides)
    source = Operand(x.dtype.name, strides, alignment=engine.memory(y).alignment)
    problem = ReductionProblem(y.shape[0], y.shape[1], source, Operand(x.dtype.name, (1, 0)))
    plan = plan_reduction(problem, engine.device(x))
    ours, rival = medians(machine, partial(engine.run, plan, {"src": y, "dst": sums}),
                          partial(xp.sum, x, axis=axis, dtype=x.dtype, out=theirs),
                          repeats=which.repeats)
    return {
        "case": f"{dtype} {size[0]}x{size[1]} along {axis}",
        "kernel": plan.family,
        "ours_s": ours,
        "rival_s": rival,
        "ratio": rival / ours,
        "gb_s": compulsory_bytes(problem) / ours / 1e9,
        "right": _summed(xp, y, sums),
    }


_EPILOGUES: dict[str, Callable[[Any], Any]] = {
    "relu": lambda bias: epilogues.relu(), "bias": lambda bias: epilogues.bias(bias=bias),
    "bias_gelu": lambda bias: epilogues.bias_gelu(bias=bias)}


def _epilogue(machine: Any, which: Selection) -> Measured:
    """Products with an epilogue, beside the same product without and beside CuPy's product followed
    by one elementwise kernel."""
    own = replace(which, orders=which.orders if which.orders != ORDERS else ("NN",))
    cases = list(product(product_cases(own, _GEMM_SIZES, _EPILOGUE_DTYPES), _EPILOGUES))
    return len(cases), (_with_epilogue(machine, which, *case) for case in cases)


def _with_epilogue(machine: Any, which: Selection, case: str, name: str) -> Row:
    xp = machine.rival
    a, b = operands(xp, case)
    bias = random_array(xp, (1, b.shape[1]), a.dtype.name, 7)
    c, d, e = (xp.empty((a.shape[0], b.shape[1]), a.dtype) for _ in range(3))
    precision = "ieee" if not which.dtypes and a.dtype == np.float32 else which.precision
    separately = partial(_separately, xp, a, b, e, _elementwise(xp, name, bias))
    ours, plain, rival = medians(
        machine,
        partial(matmul, a, b, out=c, epilogue=_EPILOGUES[name](bias), precision=precision),
        partial(matmul, a, b, out=d, precision=precision),
        separately,
        repeats=which.repeats,
    )
    separately()
    return {
        "case": f"{case} {name} {precision}",
        "ours_s": ours,
        "plain_s": plain,
        "of_plain": ours / plain,
        "rival_s": rival,
        "ratio": rival / ours,
        "right": _close(c, e, a, b, bias),
    }


def _separately(xp: Any, a: Any, b: Any, out: Any, after: Callable[[Any], Any]) -> None:
    xp.matmul(a, b, out=out)
    after(out)


def _elementwise(xp: Any, name: str, bias: Any) -> Callable[[Any], Any]:
    """An epilogue as a user of the library writes it after a product, in place and in one
    kernel."""
    if xp is np:
        bound = _EPILOGUES[name](bias)
        return lambda y: np.copyto(y, bound(y), casting="same_kind")
    body = {
        "relu": "y = max(y, T(0))",
        "bias": "y = y + bias",
        "bias_gelu": "float x = float(y) + float(bias); y = T(0.5f * x * (1.0f + erff(x * 0.70710678f)))"
    }[name]
    kernel = xp.ElementwiseKernel("T bias", "T y", body, f"after_{name}")
    return lambda y: kernel(bias, y)


def _close(c: Any, d: Any, a: Any, b: Any, bias: Any) -> bool:
    """Whether two results of an epilogue differ by no more than the rounding of their sums."""
    scale = float(abs(a[:1]).max()
                  * abs(b[:, :1]).max()) * a.shape[1]**0.5 * 8 + float(abs(bias).max())
    unit = float(np.finfo(a.dtype).eps)
    return bool((abs(c.astype("f8") - d.astype("f8")) <= 64 * unit * scale).all())


def engine_of(machine: Any) -> Engine:
    """The engine that runs plans on the arrays of a machine."""
    if machine.rival is np:
        return EMULATOR
    from cuteblas.engines.cuda import CUDA

    return CUDA


def _summed(xp: Any, x: Any, sums: Any) -> bool:
    """Whether sums along the last mode are right to two units of u sum |x| (and the rounding of
    16-bit sums)."""
    if not np.issubdtype(x.dtype, np.inexact):
        return bool((sums == x.sum(axis=1, dtype=x.dtype)).all())
    wide = xp.complex128 if x.dtype.kind == "c" else xp.float64
    unit, sum_unit = np.finfo(x.dtype).eps / 2, np.finfo(np.promote_types(x.dtype, np.float32)).eps / 2
    want, scale = x.sum(axis=1, dtype=wide), abs(x).sum(axis=1, dtype=xp.float64)
    return bool((abs(sums - want) <= 4 * sum_unit * scale + 2 * unit * abs(want)).all())


def _host_calls(xp: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Calls of cuteblas on small arrays of a library, and of the library."""
    a, b, c = (random_array(xp, _HOST_EXTENTS, "float32", seed) for seed in range(3))
    x, y, axes = a.reshape(4, -1, _HOST_EXTENTS[1]), b.reshape(_HOST_EXTENTS[1], 4,
                                                               -1), ((2, 1), (0, 2))
    wrapped_a, wrapped_b = asarray(a), asarray(b)
    return {"matmul(a, b, out=c)": (lambda: matmul(a, b, out=c), lambda: xp.matmul(a, b, out=c)),
            "matmul(a, b)": (lambda: matmul(a, b), lambda: xp.matmul(a, b)),
            "matmul(a, b, epilogue='relu')": (lambda: matmul(a, b, epilogue="relu"),
                                              lambda: xp.maximum(xp.matmul(a, b), 0)),
            "blas.sgemm(1, a, b)": (lambda: blas.sgemm(1, a, b), lambda: xp.matmul(a, b)),
            "dot(a, b)": (lambda: dot(a, b), lambda: xp.dot(a, b)),
            "copy(a.T, order='C')": (lambda: copy(a.T, order="C"),
                                     lambda: xp.ascontiguousarray(a.T)),
            "copy(a)": (lambda: copy(a), lambda: xp.copy(a)),
            "ascontiguousarray(a.T)": (lambda: ascontiguousarray(a.T),
                                       lambda: xp.ascontiguousarray(a.T)),
            "asfortranarray(a)": (lambda: asfortranarray(a), lambda: xp.asfortranarray(a)),
            "transpose(a)": (lambda: transpose(a), lambda: xp.transpose(a)),
            "swapaxes(x, 0, 1)": (lambda: swapaxes(x, 0, 1), lambda: xp.swapaxes(x, 0, 1)),
            "moveaxis(x, 0, 2)": (lambda: moveaxis(x, 0, 2), lambda: xp.moveaxis(x, 0, 2)),
            "tensordot(x, y, axes)": (lambda: tensordot(x, y, axes),
                                      lambda: xp.tensordot(x, y, axes)),
            "einsum('ij->i', a)": (lambda: einsum("ij->i", a), lambda: xp.einsum("ij->i", a)),
            "einsum('ij,jk->ik', a, b)": (lambda: einsum("ij,jk->ik", a, b),
                                          lambda: xp.einsum("ij,jk->ik", a, b)),
            "asarray(a) @ asarray(b)": (lambda: wrapped_a @ wrapped_b, lambda: a @ b),}


def _calls_of_several_launches(xp: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Products that launch several kernels on a GPU, with cuteblas and with the library."""
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for n in _SEVERAL_LAUNCHES:
        a, b, c = (random_array(xp, (n, n), "float32", seed) for seed in range(3))
        cases[f"matmul(a, b, out=c), {n} x {n}"] = partial(matmul, a, b, out=c), partial(xp.matmul, a, b, out=c)
    return cases


def _host(machine: Any, which: Selection) -> Measured:
    several = {} if machine.rival is np else _calls_of_several_launches(machine.rival)
    calls = _host_calls(machine.rival) | several
    return len(calls), (
        _on_host(machine, which, case, both, case in several) for case, both in calls.items()
    )


def _on_host(
    machine: Any, which: Selection, case: str, calls: tuple[Callable[[], Any], ...], several: bool
) -> Row:
    usual = _HOST_TURNS[machine.title]
    turn = _FEW_CALLS if several else usual
    for call in calls:
        machine.host_interval(call, _FEW_CALLS if several else _HOST_CALLS)
    turns = max(1, _HOST_CALLS // usual)
    taken = [[machine.host_interval(call, turn) / turn for call in calls]
             for _ in range(turns * which.repeats)]
    ours, rival = (median(column) for column in zip(*taken, strict=True))
    return {"case": case, "ours_s": ours, "rival_s": rival, "ratio": rival / ours}


def _compile(machine: Any, which: Selection) -> Measured:
    xp, kernels = machine.rival, dict[tuple[str, str], GeneratedKernel]()
    explanations = [
        explain(*operands(xp, case), precision=which.precision)
        for case in product_cases(which, _GEMM_SIZES)
    ]
    explanations += [explain_copy(xp.empty(size, dtype).T) for dtype, size in _matrices(which)]
    for plan in map(plan_of, explanations):
        for kernel in (launch.kernel for launch in plan.launches):
            kernels[kernel.name, target_architecture(kernel.arch, plan.device.arch)] = kernel
    return len(kernels), _compiled(kernels)


def _compiled(kernels: dict[tuple[str, str], GeneratedKernel]) -> Iterator[Row]:
    with _empty_cache():
        for (name, target), kernel in kernels.items():
            compiled, found = (_seconds_to_compile(kernel, target, fresh)
                               for fresh in (True, False))
            yield {"nvrtc_s": compiled, "cached_s": found, "case": f"{name} {target}"}


def _seconds_to_compile(kernel: GeneratedKernel, target: str, fresh: bool) -> float:
    start = perf_counter()
    runtime.compile(kernel, target, fresh=fresh)
    return perf_counter() - start


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Compiled kernels go to a new directory, which is removed afterwards."""
    before = os.environ.get("CUTEBLAS_CACHE_DIR")
    with TemporaryDirectory() as directory:
        os.environ["CUTEBLAS_CACHE_DIR"] = directory
        try:
            yield
        finally:
            if before is None:
                del os.environ["CUTEBLAS_CACHE_DIR"]
            else:
                os.environ["CUTEBLAS_CACHE_DIR"] = before


GROUPS: dict[str, Callable[[Any, Selection], Measured]] = {"gemm": _gemm, "transpose": _transpose,
                                                           "epilogue": _epilogue, "reduce": _reduce,
                                                           "host": _host, "compile": _compile,}
"""By name: what counts and measures the cases of a machine and a selection."""
