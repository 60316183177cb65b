"""Random products of every kind, type and order, timed side by side with CuPy's and torch's:
``bench gemm --random``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from math import exp, log, prod
from random import Random
from typing import Any

import numpy as np

from cuteblas import runtime
from cuteblas.cli.bench import Row, Selection, multiplied
from cuteblas.cli.calibrate import Workers
from cuteblas.cli.explain import operand
from cuteblas.cli.machines import Gpu, random_array
from cuteblas.codegen.architectures import target_architecture
from cuteblas.engines.memory import Memory
from cuteblas.engines.settings import limited
from cuteblas.functions import explain
from cuteblas.functions.algorithms import Algorithm
from cuteblas.functions.explain import explain_product_of
from cuteblas.planning.floors import floor_of
from cuteblas.planning.problem import DeviceInfo

__all__ = ["KINDS", "RANDOM_DTYPES", "RandomProduct", "memories", "random_products", "report",
           "timed_products"]

RANDOM_DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int32",
                 "int64", "bool")
KINDS = ("square", "rectangular", "thin", "deep", "vectors", "tiny batched", "batched")
_LONGEST, _MOST_ELEMENTS = 10**6, 10**9
_MOST_FLOPS, _MOST_INTEGER_OPERATIONS = 5e12, 2e11         # CuPy has some 5 TOPS in int8
_SECONDS = 0.1                       # for the timings of a product, beside what waits before them
_BELOW = 100                         # integers
_BEHIND = 0.9
_LARGE = 1 << 32                     # bytes from which memory goes back to the device


@dataclass(frozen=True)
class RandomProduct:
    """A product to measure.

    Attributes
    ----------
    dtype, kind : str
        Element type, and one of :data:`KINDS`.
    batch, m, n, k : int
        Extents; a batch of 1 is none.
    orders : str
        For each operand N if its rows are contiguous, T if its columns are.
    """

    dtype: str
    kind: str
    batch: int
    m: int
    n: int
    k: int
    orders: str

    def __str__(self) -> str:
        times = f"{self.batch}x" if self.batch > 1 else ""
        return f"{self.dtype} {times}{self.m}x{self.n}x{self.k} {self.orders}"

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of both operands and the result."""
        batch = (self.batch,) if self.batch > 1 else ()
        return (*batch, self.m, self.k), (*batch, self.k, self.n), (*batch, self.m, self.n)

    @property
    def fits(self) -> bool:
        """Whether it is neither too large nor too long."""
        real = np.dtype(self.dtype).kind in "fc"
        operations = 2.0 * self.batch * self.m * self.n * self.k * (4 if self.dtype.startswith("complex") else 1)
        elements = sum(map(prod, self.shapes))
        return elements <= _MOST_ELEMENTS and operations <= (_MOST_FLOPS if real
                                                             else _MOST_INTEGER_OPERATIONS)


def random_products(count: int, seed: int, dtypes: Sequence[str] = (),
                    orders: Sequence[str] = ()) -> list[RandomProduct]:
    """Products of every kind, type and order, as many of each as of any other: extents from 1 to
    10^6, at most 10^9 elements."""
    rng = Random(seed)
    cases = list(product(KINDS, dtypes or RANDOM_DTYPES, orders or ("NN", "NT", "TN", "TT")))
    found: list[RandomProduct] = []
    while len(found) < count:
        for kind, dtype, letters in rng.sample(cases, len(cases))[:count - len(found)]:
            while not (drawn := RandomProduct(dtype, kind, *_extents(rng, kind), letters)).fits:
                pass
            found.append(drawn)
    return found


def _extents(rng: Random, kind: str) -> tuple[int, int, int, int]:
    """The batch, M, N and K; a half of all products have extents that are multiples of a power of
    two."""
    step = rng.choice((1, 1, 1, 4, 8, 64))

    def extent(least: int, most: int) -> int:
        drawn = round(exp(rng.uniform(log(least), log(most))))
        return drawn // step * step or drawn

    if kind == "square":
        return (1, *(extent(8, 16384),) * 3)
    if kind == "rectangular":
        return 1, extent(16, 20000), extent(16, 20000), extent(16, 20000)
    if kind == "thin":
        narrow, rest = rng.randint(2, 64), [extent(64, 8192), extent(64, _LONGEST)]
        m, n, k = rng.choice(((narrow, rest[1], rest[0]), (rest[1], narrow, rest[0]),
                              (rest[0], rest[1], narrow), (rest[1], rest[0], narrow)))
        return 1, m, n, k
    if kind == "deep":
        return 1, extent(2, 256), extent(2, 256), extent(4096, _LONGEST)
    if kind == "vectors":
        long, other = extent(16, _LONGEST), extent(16, _LONGEST)
        m, n, k = rng.choice(((1, long, other), (long, 1, other), (1, 1, long), (long, other, 1)))
        return 1, m, n, k
    if kind == "tiny batched":
        m, n, k = (rng.randint(1, 32),) * 3 if rng.random() < 0.5 else (rng.randint(1, 64) for _ in range(3))
        return round(exp(rng.uniform(log(10), log(10**7)))), m, n, k
    m, n, k = (extent(16, 1024),) * 3 if rng.random() < 0.5 else (extent(16, 1024)
                                                                  for _ in range(3))
    return round(exp(rng.uniform(log(2), log(2000)))), m, n, k


# -- measuring -------------------------------------------------------------------------------------
def timed_products(
    machine: Any, products: Sequence[RandomProduct], repeats: int, precision: Any
) -> Iterator[Row]:
    """A row for each product; kernels are compiled in other processes meanwhile."""
    device = limited(runtime.device_info()) if isinstance(machine, Gpu) else None
    with nullcontext() if device is None else Workers(spared=1) as workers:
        ready = [workers.submit(_compile, each, precision, device) if workers and device else None
                 for each in products]
        for each, compiled in zip(products, ready, strict=True):
            if compiled is not None:
                compiled.result()
            try:
                yield _timed(machine, each, repeats, precision)
            # one of hundreds: named and left out
            except (runtime.CompileError, ValueError, MemoryError) as error:
                print(f"{each} could not be measured: {error}".splitlines()[0], file=sys.stderr)


def memories(each: RandomProduct) -> Iterator[Memory]:
    """Both operands and the result, which need not exist."""
    orders = ("C" if order == "N" else "F" for order in f"{each.orders}N")
    return (operand(extents, np.dtype(each.dtype), order)
            for extents, order in zip(each.shapes, orders, strict=True))


def _compile(each: RandomProduct, precision: str, device: DeviceInfo) -> None:
    """Plan, and compile the kernels into the cache; what fails will fail again where it is
    reported."""
    try:
        x1, x2, out = memories(each)
        plan = explain_product_of(x1, x2, out, device, "", Algorithm(precision)).plan
        for launch in plan.launches if plan is not None else ():
            runtime.compile(launch.kernel, target_architecture(launch.kernel.arch, device.arch))
    except Exception:
        return


def _timed(machine: Any, each: RandomProduct, repeats: int, precision: Any) -> Row:
    xp = machine.rival
    a, b = _operands(xp, each)
    plan = explain(a, b, xp.empty(each.shapes[2], each.dtype), precision=precision).plan
    assert plan is not None
    which = Selection(repeats=repeats, precision=precision)
    row = multiplied(machine, which, str(each), a, b, seconds=_SECONDS)
    if (
        isinstance(machine, Gpu)
        and a.nbytes + b.nbytes + 2 * a.itemsize * prod(each.shapes[2]) > _LARGE
    ):
        xp.get_default_memory_pool().free_all_blocks()
    kept = {name: row.get(name) for name in ("kernel", "ours_s", "rival_s", "torch_s")}
    return {
        "case": str(each),
        "kind": each.kind,
        **kept,
        "floor_s": floor_of(plan.problem, plan.family, plan.device).seconds,
        "ratio": row["ratio"],
        "launches": len(plan.launches),
        "right": row["right"],
    }


def _operands(xp: Any, each: RandomProduct) -> Iterator[Any]:
    """Both operands: normal numbers, or small whole ones."""
    return (
        random_array(xp, extents, each.dtype, seed, "C" if order == "N" else "F", _BELOW)
        for seed, (extents, order) in enumerate(zip(each.shapes, each.orders, strict=False))
    )


# -- what is said ----------------------------------------------------------------------------------
def report(rows: Sequence[dict[str, Any]]) -> str:
    """Quantiles of speed relative to the best of the others, of all, by kind and by type, and the
    slowest with their floors."""
    groups: dict[str, list[float]] = {"all": []}
    for key in ("kind", "case"):
        for name in sorted({row[key].partition(" ")[0] if key == "case" else row[key]
                            for row in rows}):
            groups[name] = []
    for row in rows:
        for name in ("all", row["kind"], row["case"].partition(" ")[0]):
            groups[name].append(row["ratio"])
    lines = [
        f"relative to the best of CuPy and torch{'count':>12}{'median':>9}{'10 %':>7}{'least':>7}{f'below {_BEHIND}':>11}"
    ]
    for name, ratios in groups.items():
        median, tenth = np.percentile(ratios, (50, 10))
        behind = sum(ratio < _BEHIND for ratio in ratios)
        lines.append(
            f"  {name:<36}{len(ratios):12}{median:9.2f}{tenth:7.2f}{min(ratios):7.2f}{behind:11}"
        )
    lines.append(
        f"\nthe slowest relative to the others{'ratio':>16}{'us':>10}{'best us':>10}{'floor us':>10}   kernel"
    )
    for row in sorted(rows, key=lambda row: row["ratio"])[:10]:
        best, launches = row["ratio"] * row["ours_s"], f" in {row['launches']} launches" if row["launches"] > 1 else ""
        micro = "".join(f"{seconds * 1e6:10.4g}"
                        for seconds in (row["ours_s"], best, row["floor_s"]))
        lines.append(f"  {row['case']:<42}{row['ratio']:6.2f}{micro}   {row['kernel']}{launches}")
    return "\n".join(lines)
