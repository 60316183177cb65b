"""What ``bench`` measures: the rows of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from typing import Any

from .. import blas
from ..engines.problems import has_kernels
from ..functions import Explanation, copy, explain, explain_copy, matmul
from ..functions.signatures import Precision
from .arrays import random_array
from .command import refusals
from .grading import Grade, grade
from .machines import Host, medians, torch_of
from .problems import Permutation

__all__ = ["COPY_DTYPES", "GEMM_DTYPES", "ORDERS", "Measured", "Row", "Selection",
           "graded", "move_cases", "moved", "multiplied", "operands", "product_cases", "products",
           "transposes"]

GEMM_DTYPES = ("float32", "float64", "complex64", "complex128", "float16")
COPY_DTYPES = ("int8", "float16", "float32", "float64", "complex128")
ORDERS = ("NN", "NT", "TN", "TT")
_BY_TORCH = frozenset({"float16", "float32", "float64", "complex64", "complex128"})
_SAMPLED = 1 << 20                      # elements of an operand by which a result is checked

Row = dict[str, Any]
"""One line of a table: times in seconds under keys that end in ``_s``."""

Measured = tuple[int, Iterator[Row]]
"""How many cases there are, and their rows, one or several for each."""


@dataclass(frozen=True)
class Selection:
    """Which cases are measured, and how.

    Attributes
    ----------
    sizes : sequence of tuple of int and Permutation
        One extent: squares. Two: a transpose. Three: a product, M, N, K. A permutation: a transpose
        of any shape. None at all: the usual ones.
    dtypes : sequence of str
        Element types; none at all: the usual ones.
    orders : sequence of str
        For both operands of a product N if its rows are contiguous, T if its columns are.
    precision : str
        As in :func:`cuteblas.matmul`.
    repeats : int
        Timings of which the median is taken.
    """

    sizes: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    orders: Sequence[str] = ORDERS
    precision: Precision = "auto"
    repeats: int = 11


# -- products --------------------------------------------------------------------------------------
def products(machine: Any, which: Selection) -> Measured:
    """Products, beside those of the other libraries."""
    cases = product_cases(which, ((1024,), (4096,)))
    return len(cases), (
        multiplied(machine, which, case, *operands(machine.rival, case)) for case in cases
    )


def product_cases(
    which: Selection, usual: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...] = GEMM_DTYPES
) -> list[str]:
    """Type, extents M, N, K and orders of every product: ``"float32 1024x1024x1024 NT"``."""
    sizes = [
        size * 3 if len(size) == 1 else size for size in which.sizes or usual if len(size) != 2
    ]
    return [
        f"{dtype} {'x'.join(map(str, size))} {orders}"
        for dtype in which.dtypes or dtypes
        for size in sizes
        for orders in which.orders
    ]


def operands(xp: Any, case: str) -> list[Any]:
    dtype, size, orders = case.split()
    m, n, k = map(int, size.split("x"))
    return [
        random_array(xp, extents, dtype, seed, "C" if order == "N" else "F")
        for seed, (order, extents) in enumerate(zip(orders, ((m, k), (k, n)), strict=True))
    ]


def multiplied(machine: Any, which: Selection, case: str, a: Any, b: Any,
               variant: str | None = None, seconds: float = inf) -> Row:
    """The row of a product."""
    xp = machine.rival
    c, d = (xp.empty((*a.shape[:-1], b.shape[-1]), a.dtype) for _ in range(2))
    ours: Callable[[], Any]
    if has_kernels(a.dtype):
        explanation = explain(a, b, c, precision=which.precision, variant=variant)
        ours = partial(matmul, a, b, out=c, precision=which.precision, variant=variant)
    else:  # bfloat16: NumPy's matmul makes float32 of it
        with refusals(TypeError):
            planned = blas.plan(a, b, out=c, precision=which.precision)
        explanation, ours = planned.explain(), partial(planned.execute, a, b, out=c)
    theirs: dict[str, Callable[[], Any]] = {"rival_s": partial(xp.matmul, a, b, out=d)}
    if a.dtype.name in _BY_TORCH and (torch := torch_of(machine)) is not None:
        x, y, z = map(torch.from_dlpack, (a, b, d))
        theirs["torch_s"] = partial(torch.matmul, x, y, out=z)
    taken, *others = medians(
        machine, ours, *theirs.values(), repeats=which.repeats, seconds=seconds
    )
    ours()
    theirs["rival_s"]()
    mine, rival = (graded(machine, a, b, result) for result in (c, d))
    flops = 2 * c.size * a.shape[-1] * (4 if a.dtype.kind == "c" else 1)
    return {
        "case": case,
        "kernel": _kernel(machine, explanation),
        "ours_s": taken,
        **dict(zip(theirs, others, strict=True)),
        "ratio": min(others) / taken,
        "tflops": flops / taken / 1e12,
        "error": mine.error,
        "rival_error": rival.error,
        "right": mine.passed,
    }


# -- transposes ------------------------------------------------------------------------------------
def transposes(machine: Any, which: Selection) -> Measured:
    """Transposes and permutations, beside the other library and a copy of as many bytes."""
    cases = move_cases(which)
    return len(cases), (moved(machine, which, *case) for case in cases)


def move_cases(which: Selection) -> list[tuple[str, Permutation]]:
    """Type and permutation of every transpose."""
    sizes = [size if isinstance(size, Permutation)
             else Permutation(size * 2 if len(size) == 1 else size)
             for size in which.sizes or ((8192,), (8191, 8193))
             if isinstance(size, Permutation) or len(size) < 3]
    return [*product(which.dtypes or COPY_DTYPES, sizes)]


def moved(machine: Any, which: Selection, dtype: str, size: Permutation,
          variant: str | None = None) -> Row:
    """The row of a transpose."""
    xp = machine.rival
    x = random_array(xp, size.memory(), dtype)
    array = xp.empty(size.extents, x.dtype) if size.beyond else x
    source, target, other = size.of(x), x if size.in_place else None, xp.empty_like(array)
    explanation = explain_copy(source, out=target, variant=variant)
    call = partial(copy, source, "C", out=target, variant=variant)

    def rival() -> Any:
        if target is None:
            return xp.ascontiguousarray(source)
        target[...] = source.copy()
        return target

    ours, theirs, copied = medians(
        machine, call, rival, partial(xp.copyto, other, array), repeats=which.repeats
    )
    expected = source.copy()
    return {
        "case": f"{dtype} {size}",
        "kernel": _kernel(machine, explanation),
        "ours_s": ours,
        "rival_s": theirs,
        "copy_s": copied,
        "ratio": theirs / ours,
        "of_copy": copied / ours,
        "gb_s": 2 * array.nbytes / ours / 1e9,
        "right": bool((call() == expected).all()),
    }


# -- both ------------------------------------------------------------------------------------------
def _kernel(machine: Any, explanation: Explanation) -> str:
    by_numpy = isinstance(machine, Host) and explanation.runs_on.startswith("NumPy")
    return "NumPy" if by_numpy else explanation.family


def graded(machine: Any, a: Any, b: Any, c: Any, most: tuple[int, int] = (8, 32)) -> Grade:
    """Grade some rows and columns of a product, of the last one in a batch, at even distances."""
    if c.ndim > 2:
        a, b, c = a[-1], b[-1], c[-1]
    limits = most[0], max(1, min(most[1], _SAMPLED // max(1, a.shape[1])))
    rows, columns = (
        slice(None, None, max(1, -(-n // limit))) for n, limit in zip(c.shape, limits, strict=True)
    )
    return grade(machine.get(a[rows]), machine.get(b[:, columns]), machine.get(c[rows, columns]))
