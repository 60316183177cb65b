"""What ``bench`` measures: the rows of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from .permutations import Permutation

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
    sizes : tuple of tuple of int and Permutation
        One extent: squares. Two: a transpose. Three: a product, M, N, K. A permutation: a transpose
        of any shape. None at all: the usual ones.
    dtypes : tuple of str
        Element types; none at all: the usual ones.
    orders : tuple of str
        For both operands of a product N if its rows are contiguous, T if its columns are.
    precision : str
        As in :func:`cuteblas.matmul`.
    repeats : int
        Timings of which the median is taken.
    """

    sizes: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ()
    orders: tuple[str, ...] = ORDERS
    precision: Precision = "auto"
    repeats: int = 11

    def types(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """The chosen types, or else the usual ones."""
        return self.dtypes or usual

    def kernels(self, machine: Any, operation: str,
                explained: Callable[..., Explanation]) -> dict[str | None, Row]:
        """The cells that name a kernel, by the name that the call asks for: ``None`` is planning's
        choice."""
        return {None: _kernel(machine, explained())}


# -- products --------------------------------------------------------------------------------------
def products(machine: Any, which: Selection) -> Measured:
    """Products, beside those of the other libraries."""
    cases = product_cases(which, ((1024,), (4096,)))
    return len(cases), (
        row
        for case in cases
        for row in multiplied(machine, which, case, *operands(machine.rival, case))
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
        for dtype in which.types(dtypes)
        for size in sizes
        for orders in which.orders
    ]


def operands(xp: Any, case: str) -> list[Any]:
    """Both operands of a product."""
    dtype, size, orders = case.split()
    m, n, k = map(int, size.split("x"))
    return [
        random_array(xp, extents, dtype, seed, "C" if order == "N" else "F")
        for seed, (order, extents) in enumerate(zip(orders, ((m, k), (k, n)), strict=True))
    ]


def multiplied(
    machine: Any, which: Selection, case: str, a: Any, b: Any, seconds: float = inf
) -> Iterator[Row]:
    """A row for each of the kernels that are selected."""
    xp = machine.rival
    c, d = (xp.empty((*a.shape[:-1], b.shape[-1]), a.dtype) for _ in range(2))
    if has_kernels(a.dtype):
        names = which.kernels(machine, "gemm", partial(explain, a, b, c, precision=which.precision))
        calls = [
            partial(matmul, a, b, out=c, precision=which.precision, variant=name) for name in names
        ]
    else:  # bfloat16: NumPy's matmul makes float32 of it
        with refusals(TypeError):
            planned = blas.plan(a, b, out=c, precision=which.precision)
        names, calls = (
            {None: _kernel(machine, planned.explain())},
            [partial(planned.execute, a, b, out=c)],
        )
    theirs: dict[str, Callable[[], Any]] = {"rival_s": partial(xp.matmul, a, b, out=d)}
    if a.dtype.name in _BY_TORCH and (torch := torch_of(machine)) is not None:
        theirs["torch_s"] = partial(
            torch.matmul, *map(torch.from_dlpack, (a, b)), out=torch.from_dlpack(d)
        )
    taken = medians(
        machine, *calls, *theirs.values(), repeats=which.repeats, seconds=seconds
    )
    others = dict(zip(theirs, taken[len(calls):], strict=True))
    theirs["rival_s"]()
    rival_error = graded(machine, a, b, d).error
    flops = 2 * c.size * a.shape[-1] * (4 if a.dtype.kind == "c" else 1)
    for kernel, call, ours in zip(names.values(), calls, taken, strict=False):
        call()
        mine = graded(machine, a, b, c)
        yield {
            "case": case,
            **kernel,
            "ours_s": ours,
            **others,
            "ratio": min(others.values()) / ours,
            "tflops": flops / ours / 1e12,
            "error": mine.error,
            "rival_error": rival_error,
            "right": mine.passed,
        }


# -- transposes ------------------------------------------------------------------------------------
def transposes(machine: Any, which: Selection) -> Measured:
    """Transposes and permutations, beside the other library and a copy of as many bytes."""
    cases = move_cases(which)
    return len(cases), (row for case in cases for row in moved(machine, which, *case))


def move_cases(which: Selection) -> list[tuple[str, Permutation]]:
    """Type and permutation of every transpose."""
    sizes = [size if isinstance(size, Permutation)
             else Permutation(size * 2 if len(size) == 1 else size)
             for size in which.sizes or ((8192,), (8191, 8193))
             if isinstance(size, Permutation) or len(size) < 3]
    return [*product(which.types(COPY_DTYPES), sizes)]


def moved(machine: Any, which: Selection, dtype: str, size: Permutation) -> Iterator[Row]:
    """A row for each of the kernels that are selected."""
    xp, case = machine.rival, f"{dtype} {size}"
    x = random_array(xp, size.memory(), dtype)
    array = xp.empty(size.extents, x.dtype) if size.beyond else x
    source, target, other = size.of(x), x if size.in_place else None, xp.empty_like(array)

    def rival() -> Any:
        if target is None:
            return xp.ascontiguousarray(source)
        target[...] = source.copy()
        return target

    names = which.kernels(machine, "copy", partial(explain_copy, source, out=target))
    calls = [partial(copy, source, "C", out=target, variant=name) for name in names]
    *taken, theirs, copied = medians(
        machine, *calls, rival, partial(xp.copyto, other, array), repeats=which.repeats
    )
    for kernel, call, ours in zip(names.values(), calls, taken, strict=True):
        expected = source.copy()
        yield {
            "case": case,
            **kernel,
            "ours_s": ours,
            "rival_s": theirs,
            "copy_s": copied,
            "ratio": theirs / ours,
            "of_copy": copied / ours,
            "gb_s": 2 * array.nbytes / ours / 1e9,
            "right": bool((call() == expected).all()),
        }


# -- both ------------------------------------------------------------------------------------------
def _kernel(machine: Any, explanation: Explanation) -> Row:
    by_numpy = isinstance(machine, Host) and explanation.runs_on.startswith("NumPy")
    return {"kernel": "NumPy" if by_numpy else explanation.family}


def graded(machine: Any, a: Any, b: Any, c: Any, most: tuple[int, int] = (8, 32)) -> Grade:
    """Grade some rows and columns of a product, of the last one in a batch, at even distances."""
    if c.ndim > 2:
        a, b, c = a[-1], b[-1], c[-1]
    limits = most[0], max(1, min(most[1], _SAMPLED // max(1, a.shape[1])))
    rows, columns = (
        slice(None, None, max(1, -(-n // limit))) for n, limit in zip(c.shape, limits, strict=True)
    )
    return grade(machine.get(a[rows]), machine.get(b[:, columns]), machine.get(c[rows, columns]))
