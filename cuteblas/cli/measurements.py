"""What ``bench`` measures: the rows of its tables, one group after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from .. import blas, epilogues, runtime
from ..array import asarray
from ..blas.types import dtype_named, kind_of_numbers
from ..codegen.kernel import GeneratedKernel
from ..engines.emulator import EMULATOR
from ..engines.engine import Engine
from ..engines.problems import has_kernels
from ..functions import (
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
from ..functions.signatures import Precision
from ..planning import GemmProblem, Operand, Plan, ReductionProblem, plan_reduction
from ..planning.floors import compulsory_bytes
from ..planning.variants import CHOSEN, variants
from ..runtime.architectures import target_architecture
from .grading import Grade, grade
from .machines import medians
from .permutations import Permutation, random_permutations
from .products import RandomProduct, random_products, timed_products

__all__ = ["COPY_DTYPES", "GEMM_DTYPES", "GROUPS", "ORDERS", "Row", "Selection", "bank_conflicts", "engine_of", "graded",
           "number_of_cases", "random_array"]

GEMM_DTYPES = ("float32", "float64", "complex64", "complex128", "float16")
COPY_DTYPES = ("int8", "float16", "float32", "float64", "complex128")
ORDERS = ("NN", "NT", "TN", "TT")
_GEMM_SIZES: tuple[tuple[int, ...], ...] = ((1024,), (4096,))
_COPY_SIZES: tuple[tuple[int, ...], ...] = ((8192,), (8191, 8193))
_TRANSPOSE_SIZES, _PRODUCT_SIZES, _VARIANT_DTYPES = ((8192,),), ((5120, 5120, 4096), (1024, 1024, 8192)), ("float32",)
_EPILOGUE_SIZES, _EPILOGUE_DTYPES, _EPILOGUES = ((1024,), (4096,)), ("float32", "float16"), 3
_HOST_EXTENTS, _HOST_CALLS = (16, 16), 2000
_SEVERAL_LAUNCHES, _FEW_CALLS = (777, 1024, 4096), 20    # so few that the driver's queue takes them all at once
_SAMPLED_ROWS, _SAMPLED_COLUMNS = 8, 32
_TRUE = 0.1                          # of elements of bool

Row = dict[str, Any]
"""One line of a table: times in seconds under keys that end in ``_s``."""


@dataclass(frozen=True)
class Selection:
    """Which cases are measured, and how.

    Attributes
    ----------
    sizes : tuple of tuple of int
        One extent: squares. Two: a transpose. Three: a product, M, N, K. None at all: the usual ones.
    dtypes : tuple of str
        Element types; none at all: the usual ones.
    orders : tuple of str
        For both operands of a product N if its rows are contiguous, T if its columns are.
    precision : str
        As in :func:`cuteblas.matmul`.
    repeats : int
        Timings of which the median is taken.
    variants : bool
        Whether products and transposes are those of the named kernels.
    permutations : tuple of Permutation
        Transposes of any shape, after those of the sizes.
    random, seed : int
        How many random products, or permutations after the others, and of which choice.
    sustained : float
        Seconds for which each product is called without a pause before it is timed, as long again; 0 for turns of single calls.
    """

    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    orders: tuple[str, ...] = ORDERS
    precision: Precision = "auto"
    repeats: int = 11
    variants: bool = False
    permutations: tuple[Permutation, ...] = ()
    sustained: float = 0.0
    random: int = 0
    seed: int = 0


# -- the groups -------------------------------------------------------------------------------------------------------------------
def _usual(group: str, which: Selection) -> Selection:
    """The selection of a group whose usual sizes and types are its own."""
    if group == "epilogue":
        return replace(which, sizes=which.sizes or _EPILOGUE_SIZES, dtypes=which.dtypes or _EPILOGUE_DTYPES,
                       orders=which.orders if which.orders != ORDERS else ("NN",))
    if not which.variants or group not in ("gemm", "transpose"):
        return which
    usual = _PRODUCT_SIZES if group == "gemm" else () if which.permutations or which.random else _TRANSPOSE_SIZES
    return replace(which, sizes=which.sizes or usual, dtypes=which.dtypes or _VARIANT_DTYPES)


def number_of_cases(group: str, which: Selection) -> int | None:
    """How many cases a group has, as far as that is known before; a case may have several rows."""
    which = _usual(group, which)
    if group == "gemm" and which.random:
        return which.random
    if group in ("gemm", "epilogue"):
        return len(_product_cases(which)) * (_EPILOGUES if group == "epilogue" else 1)
    if group in ("transpose", "reduce"):
        return len(_move_cases(which)) if group == "transpose" else 2 * len(_matrix_cases(which))
    return len(_host_calls(np)) if group == "host" else None


def _gemm(machine: Any, which: Selection) -> Iterator[Row]:
    which = _usual("gemm", which)
    if which.random:
        return timed_products(machine, _random_products(which), which.repeats, which.precision)
    if which.variants:
        return (row for case in _products(machine.rival, which, random_array) for row in _multiplied_by_name(machine, which, *case))
    return (_product(machine, which, *case) for case in _products(machine.rival, which, random_array))


def _random_products(which: Selection) -> list[RandomProduct]:
    return random_products(which.random, which.seed, which.dtypes, which.orders)


def _product(machine: Any, which: Selection, case: str, a: Any, b: Any) -> Row:
    xp = machine.rival
    c, d = (xp.empty((a.shape[0], b.shape[1]), a.dtype) for _ in range(2))
    if not has_kernels(a.dtype):                       # bfloat16: NumPy's matmul makes float32 of it
        planned = blas.plan(a, b, out=c, precision=which.precision)
        plan, multiply = planned.plan, partial(planned.execute, a, b, out=c)
    else:
        plan, multiply = _plan(explain(a, b, c, precision=which.precision)), partial(matmul, a, b, out=c, precision=which.precision)
    assert isinstance(plan.problem, GemmProblem)
    ours, rival = medians(machine, multiply, lambda: xp.matmul(a, b, out=d), repeats=which.repeats, sustained=which.sustained)
    mine, theirs = graded(machine, a, b, c), graded(machine, a, b, d)
    return {"case": case, "kernel": plan.family, "ours_s": ours, "rival_s": rival, "ratio": rival / ours,
            "tflops": plan.problem.flops / ours / 1e12, "error": mine.error, "rival_error": theirs.error, "right": mine.passed}


def _multiplied_by_name(machine: Any, which: Selection, case: str, a: Any, b: Any) -> Iterator[Row]:
    """The product by planning's choice and by every named kernel that takes it, timed side by side with CuPy's."""
    xp = machine.rival
    c, d = (xp.empty((a.shape[0], b.shape[1]), a.dtype) for _ in range(2))
    plans = _plans_by_name("gemm", lambda name: _plan(explain(a, b, c, precision=which.precision, variant=name)))
    rival, *taken = medians(machine, lambda: xp.matmul(a, b, out=d),
                            *(partial(matmul, a, b, out=c, precision=which.precision, variant=name) for name in plans),
                            repeats=which.repeats)
    for (name, plan), seconds in zip(plans.items(), taken, strict=True):
        matmul(a, b, out=c, precision=which.precision, variant=name)
        assert isinstance(plan.problem, GemmProblem)
        yield {"case": case, "variant": name or f"{plan.family} (planning's choice)", "ours_s": seconds, "rival_s": rival,
               "ratio": rival / seconds, "tflops": plan.problem.flops / seconds / 1e12, "conflicts": bank_conflicts(plan),
               "right": graded(machine, a, b, c).passed}


def _transpose(machine: Any, which: Selection) -> Iterator[Row]:
    which = _usual("transpose", which)
    if which.variants:
        return (row for move in _moves(machine, which) for row in _moved_by_name(machine, which, move))
    return (_moved(machine, which, move) for move in _moves(machine, which))


@dataclass(frozen=True)
class _Move:
    """A permutation of an array to measure: ``source`` becomes ``target``, or a new array if that is ``None``."""

    case: str
    array: Any
    source: Any
    target: Any

    def run(self, variant: str | None = None) -> Any:
        """The result, by planning's choice or a named kernel."""
        if self.target is None:
            return copy(self.source, order="C", variant=variant)
        return copy(self.source, out=self.target, variant=variant)

    def plan(self, variant: str | None = None) -> Plan:
        """The plan of what runs."""
        return _plan(explain_copy(self.source, out=self.target, variant=variant))

    def right(self, variant: str | None = None) -> bool:
        """Whether the result is exact."""
        expected = self.source.copy()
        return bool((self.run(variant) == expected).all())

    def gb_s(self, seconds: float) -> float:
        """The rate at which every byte is read and written once."""
        return 2 * self.array.nbytes / seconds / 1e9


def _moves(machine: Any, which: Selection) -> Iterator[_Move]:
    """The array of every transpose and permutation, and what becomes of it."""
    for dtype, size in _move_cases(which):
        x = random_array(machine.rival, size.memory(), dtype, 0)
        moved = machine.rival.empty(size.extents, x.dtype) if size.beyond else x
        yield _Move(f"{dtype} {size}", moved, size.of(x), x if size.in_place else None)


def _move_cases(which: Selection) -> list[tuple[str, Permutation]]:
    chosen = which.sizes or (() if which.permutations or which.random else _COPY_SIZES)
    sizes = [Permutation(tuple(size) * 2 if len(size) == 1 else size) for size in chosen if len(size) < 3]
    dtypes = which.dtypes or COPY_DTYPES
    drawn = random_permutations(which.random, which.seed, {name: dtype_named(name).itemsize for name in dtypes})
    return [*product(dtypes, (*sizes, *which.permutations)), *drawn]


def _moved(machine: Any, which: Selection, move: _Move) -> Row:
    xp, x, target = machine.rival, move.array, move.target

    def rival() -> Any:
        if target is None:
            return xp.ascontiguousarray(move.source)
        target[...] = move.source.copy()
        return target

    other = xp.empty_like(x)
    ours, theirs, copied = medians(machine, move.run, rival, lambda: machine.copy(other, x), repeats=which.repeats)
    return {"case": move.case, "kernel": move.plan().family, "ours_s": ours, "rival_s": theirs, "copy_s": copied,
            "ratio": theirs / ours, "of_copy": copied / ours, "gb_s": move.gb_s(ours), "right": move.right()}


def _moved_by_name(machine: Any, which: Selection, move: _Move) -> Iterator[Row]:
    """The transpose of planning's choice and of every named kernel that takes it, timed side by side with a copy by the driver."""
    plans = _plans_by_name("copy", move.plan)
    other = machine.rival.empty_like(move.array)
    copied, *taken = medians(machine, lambda: machine.copy(other, move.array), *(partial(move.run, name) for name in plans),
                             repeats=which.repeats)
    for (name, plan), seconds in zip(plans.items(), taken, strict=True):
        yield {"case": move.case, "variant": name or f"{plan.family} (planning's choice)", "latency_s": seconds,
               "gb_s": move.gb_s(seconds), "percent_of_copy": 100 * copied / seconds, "conflicts": bank_conflicts(plan),
               "right": move.right(name)}


def _plans_by_name(operation: str, planned: Callable[[str | None], Plan]) -> dict[str | None, Plan]:
    """The plans of planning's choice (``None``) and of every kernel of the papers that does not refuse the case."""
    plans: dict[str | None, Plan] = {None: planned(None)}
    for v in variants().values():
        if v.operation == operation and v.source != CHOSEN:
            with suppress(ValueError):
                plans[v.name] = planned(v.name)
    return plans


def bank_conflicts(plan: Plan) -> str:
    """How many lanes meet in one bank of shared memory, as the plan counted it: ``"32-way load"``, ``"none"``."""
    found = []
    for what, text in plan.facts.items():
        wavefronts = re.findall(r"(\d+) wavefronts of at least (\d+)", text)
        if (ways := max((int(actual) // int(ideal) for actual, ideal in wavefronts), default=1)) > 1:
            found.append(f"{ways}-way {what.split()[1]}")
    return ", ".join(found) or "none"


def _reduce(machine: Any, which: Selection) -> Iterator[Row]:
    xp, engine = machine.rival, engine_of(machine)
    for case, x in _transposes(xp, which, random_array):
        for axis in (1, 0):
            y = x if axis else x.T
            sums, theirs = xp.empty(len(y), x.dtype), xp.empty(len(y), x.dtype)
            strides = tuple(s // x.itemsize for s in y.strides)
            problem = ReductionProblem(y.shape[0], y.shape[1], Operand(x.dtype.name, strides, alignment=engine.memory(y).alignment),
                                       Operand(x.dtype.name, (1, 0)))
            plan = plan_reduction(problem, engine.device(x))
            ours, rival = medians(machine, partial(engine.run, plan, {"src": y, "dst": sums}),
                                  partial(xp.sum, x, axis=axis, dtype=x.dtype, out=theirs), repeats=which.repeats)
            yield {"case": f"{case} along {axis}", "kernel": plan.family, "ours_s": ours, "rival_s": rival, "ratio": rival / ours,
                   "gb_s": compulsory_bytes(problem) / ours / 1e9, "right": _summed(xp, y, sums)}


def _epilogue(machine: Any, which: Selection) -> Iterator[Row]:
    """Products with an epilogue, beside the same product without and beside CuPy's product followed by one elementwise kernel."""
    xp, none_chosen = machine.rival, not which.dtypes
    which = _usual("epilogue", which)
    for case, a, b in _products(xp, which, random_array):
        bias = random_array(xp, (1, b.shape[1]), a.dtype.name, 7)
        c, d, e = (xp.empty((a.shape[0], b.shape[1]), a.dtype) for _ in range(3))
        precision = "ieee" if none_chosen and a.dtype == np.float32 else which.precision
        fused = {"relu": epilogues.relu(), "bias": epilogues.bias(bias=bias), "bias_gelu": epilogues.bias_gelu(bias=bias)}
        for name, bound in fused.items():
            separately = partial(_separately, xp, a, b, e, _elementwise(xp, name, bias))
            ours, plain, rival = medians(machine, partial(matmul, a, b, out=c, epilogue=bound, precision=precision),
                                         partial(matmul, a, b, out=d, precision=precision), separately, repeats=which.repeats)
            separately()
            yield {"case": f"{case} {name} {precision}", "ours_s": ours, "plain_s": plain, "of_plain": ours / plain,
                   "rival_s": rival, "ratio": rival / ours, "right": _close(xp, c, e, a, b, bias)}


def _separately(xp: Any, a: Any, b: Any, out: Any, after: Callable[[Any], Any]) -> None:
    xp.matmul(a, b, out=out)
    after(out)


def _elementwise(xp: Any, name: str, bias: Any) -> Callable[[Any], Any]:
    """An epilogue as a user of the library writes it after a product, in place and in one kernel."""
    if xp is np:
        bound = getattr(epilogues, name)(**({"bias": bias} if name != "relu" else {}))
        return lambda y: np.copyto(y, bound(y), casting="same_kind")
    body = {"relu": "y = max(y, T(0))", "bias": "y = y + bias",
            "bias_gelu": "float x = float(y) + float(bias); y = T(0.5f * x * (1.0f + erff(x * 0.70710678f)))"}[name]
    kernel = xp.ElementwiseKernel("T bias", "T y", body, f"after_{name}")
    return lambda y: kernel(bias, y)


def _close(xp: Any, c: Any, d: Any, a: Any, b: Any, bias: Any) -> bool:
    """Whether two results of an epilogue differ by no more than the rounding of their sums."""
    scale = float(abs(a[:1]).max() * abs(b[:, :1]).max()) * a.shape[1]**0.5 * 8 + float(abs(bias).max())
    unit = float(np.finfo(a.dtype).eps)
    return bool((abs(c.astype("f8") - d.astype("f8")) <= 64 * unit * scale).all())


def engine_of(machine: Any) -> Engine:
    """The engine that runs plans on the arrays of a machine."""
    if machine.rival is np:
        return EMULATOR
    from ..engines.cuda import CUDA

    return CUDA


def _summed(xp: Any, x: Any, sums: Any) -> bool:
    """Whether sums along the last mode are right to two units of u sum |x| (and the rounding of 16-bit sums)."""
    if not np.issubdtype(x.dtype, np.inexact):
        return bool((sums == x.sum(axis=1, dtype=x.dtype)).all())
    wide = xp.complex128 if x.dtype.kind == "c" else xp.float64
    unit, sum_unit = np.finfo(x.dtype).eps / 2, np.finfo(np.promote_types(x.dtype, np.float32)).eps / 2
    want, scale = x.sum(axis=1, dtype=wide), abs(x).sum(axis=1, dtype=xp.float64)
    return bool((abs(sums - want) <= 4 * sum_unit * scale + 2 * unit * abs(want)).all())


def _host_calls(xp: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Calls of cuteblas on small arrays of a library, and of the library."""
    a, b, c = (random_array(xp, _HOST_EXTENTS, "float32", seed) for seed in range(3))
    x, y, axes = a.reshape(4, -1, _HOST_EXTENTS[1]), b.reshape(_HOST_EXTENTS[1], 4, -1), ((2, 1), (0, 2))
    wrapped_a, wrapped_b = asarray(a), asarray(b)
    return {
        "matmul(a, b, out=c)": (lambda: matmul(a, b, out=c), lambda: xp.matmul(a, b, out=c)),
        "matmul(a, b)": (lambda: matmul(a, b), lambda: xp.matmul(a, b)),
        "matmul(a, b, epilogue='relu')": (lambda: matmul(a, b, epilogue="relu"), lambda: xp.maximum(xp.matmul(a, b), 0)),
        "blas.sgemm(1, a, b)": (lambda: blas.sgemm(1, a, b), lambda: xp.matmul(a, b)),
        "dot(a, b)": (lambda: dot(a, b), lambda: xp.dot(a, b)),
        "copy(a.T, order='C')": (lambda: copy(a.T, order="C"), lambda: xp.ascontiguousarray(a.T)),
        "copy(a)": (lambda: copy(a), lambda: xp.copy(a)),
        "ascontiguousarray(a.T)": (lambda: ascontiguousarray(a.T), lambda: xp.ascontiguousarray(a.T)),
        "asfortranarray(a)": (lambda: asfortranarray(a), lambda: xp.asfortranarray(a)),
        "transpose(a)": (lambda: transpose(a), lambda: xp.transpose(a)),
        "swapaxes(x, 0, 1)": (lambda: swapaxes(x, 0, 1), lambda: xp.swapaxes(x, 0, 1)),
        "moveaxis(x, 0, 2)": (lambda: moveaxis(x, 0, 2), lambda: xp.moveaxis(x, 0, 2)),
        "tensordot(x, y, axes)": (lambda: tensordot(x, y, axes), lambda: xp.tensordot(x, y, axes)),
        "einsum('ij->i', a)": (lambda: einsum("ij->i", a), lambda: xp.einsum("ij->i", a)),
        "einsum('ij,jk->ik', a, b)": (lambda: einsum("ij,jk->ik", a, b), lambda: xp.einsum("ij,jk->ik", a, b)),
        "asarray(a) @ asarray(b)": (lambda: wrapped_a @ wrapped_b, lambda: a @ b),
    }


def _calls_of_several_launches(xp: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Products that launch several kernels on a GPU, with cuteblas and with the library."""
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for n in _SEVERAL_LAUNCHES:
        a, b, c = (random_array(xp, (n, n), "float32", seed) for seed in range(3))
        cases[f"matmul(a, b, out=c), {n} x {n}"] = partial(matmul, a, b, out=c), partial(xp.matmul, a, b, out=c)
    return cases


def _host(machine: Any, which: Selection) -> Iterator[Row]:
    several = {} if machine.rival is np else _calls_of_several_launches(machine.rival)
    for case, calls in (_host_calls(machine.rival) | several).items():
        turn = _FEW_CALLS if case in several else machine.host_turn
        for call in calls:
            machine.host_interval(call, _HOST_CALLS if case not in several else _FEW_CALLS)
        turns = max(1, _HOST_CALLS // machine.host_turn)
        taken = [[machine.host_interval(call, turn) / turn for call in calls] for _ in range(turns * which.repeats)]
        ours, rival = (median(column) for column in zip(*taken, strict=True))
        yield {"case": case, "ours_s": ours, "rival_s": rival, "ratio": rival / ours}


def _compile(machine: Any, which: Selection) -> Iterator[Row]:
    explanations = [explain(a, b, precision=which.precision) for _, a, b in _products(machine.rival, which, _unset)]
    explanations += [explain_copy(x.T) for _, x in _transposes(machine.rival, which, _unset)]
    kernels: dict[tuple[str, str], GeneratedKernel] = {}
    for plan in map(_plan, explanations):
        for kernel in (launch.kernel for launch in plan.launches):
            kernels[kernel.name, target_architecture(kernel.arch, plan.device.arch)] = kernel
    with _empty_cache():
        for (name, target), kernel in kernels.items():
            compiled, found = (_seconds_to_compile(kernel, target, fresh) for fresh in (True, False))
            yield {"nvrtc_s": compiled, "cached_s": found, "case": f"{name} {target}"}


GROUPS: dict[str, Callable[[Any, Selection], Iterator[Row]]] = {
    "gemm": _gemm, "transpose": _transpose, "epilogue": _epilogue, "reduce": _reduce, "host": _host, "compile": _compile,
}
"""By name: what yields the rows of a table."""


# -- their cases ------------------------------------------------------------------------------------------------------------------
def _products(xp: Any, which: Selection, fill: Callable) -> Iterator[tuple[str, Any, Any]]:
    """Name and operands of every product."""
    for dtype, (m, n, k), orders in _product_cases(which):
        a, b = (fill(xp, extents, dtype, seed) if order == "N" else fill(xp, extents[::-1], dtype, seed).T
                for seed, (order, extents) in enumerate(zip(orders, ((m, k), (k, n)), strict=True)))
        yield f"{dtype} {m}x{n}x{k} {orders}", a, b


def _product_cases(which: Selection) -> list[tuple[str, tuple[int, ...], str]]:
    sizes = [tuple(size) * 3 if len(size) == 1 else size for size in which.sizes or _GEMM_SIZES]
    return list(product(which.dtypes or GEMM_DTYPES, (size for size in sizes if len(size) == 3), which.orders))


def _transposes(xp: Any, which: Selection, fill: Callable) -> Iterator[tuple[str, Any]]:
    """Name and array of every transpose."""
    for dtype, size in _matrix_cases(which):
        yield f"{dtype} {size[0]}x{size[1]}", fill(xp, size, dtype, 0)


def _matrix_cases(which: Selection) -> list[tuple[str, tuple[int, ...]]]:
    sizes = [tuple(size) * 2 if len(size) == 1 else size for size in which.sizes or _COPY_SIZES]
    return list(product(which.dtypes or COPY_DTYPES, (size for size in sizes if len(size) == 2)))


def random_array(xp: Any, extents: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Normal numbers, integers of all values, or bool of which one in ten is true."""
    generator, element = xp.random.RandomState(seed), dtype_named(dtype)
    if kind_of_numbers(element) in "fc":
        x = generator.standard_normal(extents)
        return (x + 1j * generator.standard_normal(extents) if np.issubdtype(element, np.complexfloating) else x).astype(element)
    if element.kind == "b":
        return generator.random_sample(extents) < _TRUE
    words = generator.random_sample(-(-prod(extents) * element.itemsize // 4)) * 2.0**32
    return words.astype(np.uint32).view(np.uint8)[:prod(extents) * element.itemsize].view(element).reshape(extents)


def _unset(xp: Any, extents: tuple[int, ...], dtype: str, seed: int) -> Any:
    """An array of which only the layout matters."""
    return xp.empty(extents, dtype)


def _plan(explanation: Explanation) -> Plan:
    if explanation.plan is None:
        raise ValueError(str(explanation))
    return explanation.plan


def graded(machine: Any, a: Any, b: Any, c: Any, most_rows: int = _SAMPLED_ROWS, most_columns: int = _SAMPLED_COLUMNS) -> Grade:
    """The grade of some rows and columns of a product, at even distances."""
    rows, columns = (slice(None, None, max(1, n // most)) for n, most in zip(c.shape, (most_rows, most_columns), strict=True))
    return grade(machine.get(a[rows]), machine.get(b[:, columns]), machine.get(c[rows, columns]))


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
