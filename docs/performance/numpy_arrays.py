"""Functions of NumPy arrays beside NumPy's own, in turns in one run, on this machine's cores and
without a GPU.

    python docs/performance/numpy_arrays.py exact              # integers, bool and float16 at 1024 x 1024
    python docs/performance/numpy_arrays.py exact --random 500 # random types, extents, orders and elements; the worst ratios
    python docs/performance/numpy_arrays.py copy               # transposes and other permutations; --random too
    python docs/performance/numpy_arrays.py einsum             # beside the quicker of optimize=False and True; --random too
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

import cuteblas

Case = tuple[str, Callable[[], Any], Callable[[], Any]]
_LONG = 0.5                             # seconds of a call that is not repeated


def exact(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Products of types that have no BLAS."""
    for _ in range(count):
        kind = str(rng.choice(list("?bBhHiIlLe")))
        while True:
            m, n, k = (int(2 ** rng.uniform(0, 11)) for _ in range(3))
            stack = (int(2 ** rng.uniform(0, 8)),) if rng.random() < 0.25 else ()
            if m * n * k * max(stack, default=1) < 3e8:
                break
        small, share, turned = rng.random() < 0.4, 10.0 ** rng.uniform(-3, 0), (rng.random(2) < 0.3).tolist()
        a, b = (_elements(rng, kind, (*stack, *(shape[::-1] if turn else shape)), small, share)
                for shape, turn in (((m, k), turned[0]), ((k, n), turned[1])))
        a, b = (x.mT if turn else x for x, turn in zip((a, b), turned, strict=True))
        what = "small" if small else f"{share:.3f} true" if kind == "?" else "any"
        yield (
            f"{a.dtype} {'x'.join(map(str, a.shape))} {'x'.join(map(str, b.shape))} {'NT'[turned[0]]}{'NT'[turned[1]]} {what}",
            lambda a=a, b=b: np.matmul(a, b),
            lambda a=a, b=b: cuteblas.matmul(a, b)
        )


def exact_table(rng: np.random.Generator) -> Iterator[Case]:
    """The same, square, of full range."""
    for kind in ("i1", "u1", "i2", "i4", "i8", "u8", "e", "?"):
        a, b = (_elements(rng, kind, (1024, 1024), False, 0.005) for _ in range(2))
        yield f"{a.dtype} 1024", lambda a=a, b=b: np.matmul(a, b), lambda a=a, b=b: cuteblas.matmul(a, b)


def _elements(rng: np.random.Generator, kind: str, shape: tuple[int, ...], small: bool,
              share: float) -> np.ndarray:
    dtype = np.dtype(kind)
    if kind == "?":
        return rng.random(shape) < share
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    low, high = (-100 if dtype.kind == "i" else 0, 100) if small else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(low, high, shape, dtype=dtype)


def timed(theirs: Callable[[], Any], ours: Callable[[], Any]) -> tuple[float, float]:
    """The shortest of some calls of each, in turns."""
    best = [float("inf")] * 2
    for _ in range(9):
        for i, call in enumerate((theirs, ours)):
            if best[0] < _LONG or best[i] == float("inf"):
                start = perf_counter()
                call()
                best[i] = min(best[i], perf_counter() - start)
        if sum(best) > _LONG and best[0] > 5 * best[1]:
            break
    return best[0], best[1]


def copies(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Arrays with their axes in random orders, of up to 128 MiB."""
    for _ in range(count):
        dtype = np.dtype(str(rng.choice(["u1", "f2", "f4", "f8", "c16"])))
        while True:
            shape = tuple(int(2 ** rng.uniform(1, 13)) for _ in range(rng.integers(2, 5)))
            if 1 << 18 < np.prod(shape) * dtype.itemsize < 1 << 27:
                break
        yield _permuted(dtype, shape, tuple(rng.permutation(len(shape)).tolist()))


def copies_table(_rng: np.random.Generator) -> Iterator[Case]:
    """Matrices, images and tensors."""
    for dtype, shape, axes in (("f4", (8192, 8192), (1, 0)), ("f4", (8191, 8193), (1, 0)),
                               ("u1", (8192, 8192), (1, 0)), ("f8", (4096, 4096), (1, 0)),
                               ("c16", (4096, 4096), (1, 0)), ("f4", (2048, 2048), (1, 0)),
                               ("u1", (256, 512, 512, 3), (0, 3, 1, 2)),
                               ("f4", (64, 112, 112, 64), (0, 3, 1, 2)),
                               ("f4", (256, 256, 256), (2, 1, 0)),
                               ("f4", (64, 64, 64, 64), (3, 1, 2, 0)),
                               ("f4", (8192, 8192), (0, 1))):
        yield _permuted(np.dtype(dtype), shape, axes)


def _permuted(dtype: np.dtype, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    a = np.ones(shape, dtype).transpose(axes)
    return f"{dtype} {'x'.join(map(str, shape))}:{','.join(map(str, axes))}", lambda: np.copy(a, "C"), lambda: cuteblas.copy(a, "C")


def einsums(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Two to five operands with random indices, of up to 30 million products in one loop."""
    for _ in range(count):
        while True:
            letters = "abcdefg"[:rng.integers(2, 8)]
            extents = {c: int(2 ** rng.uniform(0, 7)) for c in letters}
            terms = ["".join(rng.choice(list(letters), rng.integers(1, min(4, len(letters)) + 1),
                                        replace=False).tolist()) for _ in range(rng.integers(2, 6))]
            used = sorted({*"".join(terms)})
            if np.prod([extents[c] for c in used]) < 3e7:
                break
        result = "".join(c for c in rng.permutation(used).tolist() if rng.random() < 0.4)
        kind = str(rng.choice(["f8", "f8", "f4", "c16", "i8", "i4", "f2", "?"]))
        arrays = []
        for term in terms:
            shape, axes = [extents[c] for c in term], rng.permutation(len(term))
            x = _elements(rng, kind, tuple(shape[i] for i in axes), True, 0.1) if kind != "c16" else \
                rng.standard_normal([shape[i] for i in axes]) * 1j
            arrays.append(x.transpose(np.argsort(axes)))
        yield _summed(f"{','.join(terms)}->{result}", arrays)


def einsums_table(rng: np.random.Generator) -> Iterator[Case]:
    """Chains, networks and batches."""
    for kind in ("f8", "i8", "f2"):
        for text, extent in (("ij,jk->ik", 512), ("ab,bc,cd->ad", 64), ("bij,bjk->bik", 96),
                             ("abcd,cdef->abef", 16), ("abcd,bdef,ce->af", 12),
                             ("ijk,jl->ilk", 80)):
            terms = text.partition("->")[0].split(",")
            yield _summed(text, [_elements(rng, kind, (extent,) * len(term), True, 0.1)
                                 for term in terms])


def _summed(text: str, arrays: list[np.ndarray]) -> Case:
    def theirs() -> Any:
        return np.einsum(text, *arrays, optimize=best)

    def seconds(optimize: bool) -> float:
        taken = []
        for _ in range(3):
            start = perf_counter()
            np.einsum(text, *arrays, optimize=optimize)
            taken.append(perf_counter() - start)
        return min(taken)

    best = seconds(True) < seconds(False)
    name = f"{arrays[0].dtype} {text} {'x'.join(map(str, arrays[0].shape))} optimize={best}"
    return name, theirs, lambda: cuteblas.einsum(text, *arrays)


CASES = {"copy": (copies, copies_table), "einsum": (einsums, einsums_table),
         "exact": (exact, exact_table)}


def main() -> None:
    """Time what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=CASES)
    parser.add_argument("--random", type=int, default=0, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=15,
                        help="how many are printed (default: %(default)s)")
    options = parser.parse_args()
    some, table = CASES[options.group]
    rng = np.random.default_rng(options.seed)
    print(
        f"NumPy {np.__version__}, Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores"
    )
    rows = []
    with cuteblas.backend("numpy"), np.errstate(all="ignore"):
        for name, theirs, ours in some(rng, options.random) if options.random else table(rng):
            theirs_s, ours_s = timed(theirs, ours)
            rows.append((theirs_s / ours_s, name, theirs_s, ours_s))
    if options.random:
        rows.sort()
        quartiles = " ".join(f"{rows[len(rows) * i // 4][0]:.2f}" for i in (1, 2, 3))
        print(f"ratios: least {rows[0][0]:.2f}, quartiles {quartiles}, largest {rows[-1][0]:.0f}")
    for ratio, name, theirs_s, ours_s in rows[:options.worst]:
        print(
            f"{name:<60} NumPy {theirs_s * 1e6:10.1f} us   ours {ours_s * 1e6:10.1f} us   {ratio:6.2f}"
        )


if __name__ == "__main__":
    main()
