"""NumPy arrays by way of the GPU, beside NumPy and beside CuPy with a copy of its own there and
back; and the rates of the link.

All times are those of the host, from NumPy arrays to a NumPy array. Arrays have been written
before, the one for the result, too, but where the time to a new array is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from cuteblas.cli.bench import Measured, Row, Selection
from cuteblas.cli.machines import Host
from cuteblas.functions import backend, copy, matmul

__all__ = ["CASES", "Case", "link", "numpy_arrays"]

_SECONDS = 1.0      # for all timings of NumPy in one case, one if that takes longer, and for those
                    # of the others
_COMPARED = 256     # rows of a result
_SETTLED = 0.3      # seconds for which NumPy's BLAS may keep its threads looking for work: they
                    # would compete with ours
_BLOCK = 256 << 20  # bytes that the link moves
_WAYS = ("up", True, False), ("down", False, True), ("both ways", True, True)


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes
    ----------
    name : str
        What it is.
    operands : callable
        Of a generator of random numbers; returns NumPy arrays.
    ours : callable
        Of the operands and ``out``, which may be ``None``; returns the result.
    numpys : callable
        The same by NumPy.
    theirs : callable
        Of CuPy and CuPy arrays.
    share : float
        Of the rows of the first operand that NumPy multiplies in its timings, which are scaled: its
        loops would take minutes.
    """

    name: str
    operands: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    ours: Callable[..., Any]
    numpys: Callable[..., Any]
    theirs: Callable[..., Any]
    share: float = 1.0


def _products(dtype: str, n: int, share: float = 1.0) -> Case:
    def operands(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        kind = np.dtype(dtype)
        if kind.kind in "iu":
            return rng.integers(0, 100, (n, n), kind), rng.integers(0, 100, (n, n), kind)
        real = np.dtype(kind.char.lower())
        a, b = (rng.random((n, n * kind.itemsize // real.itemsize),
                           np.float32).astype(real, copy=False) for _ in "ab")
        return a.view(kind), b.view(kind)

    return Case(f"{dtype} {n}", operands, matmul, np.matmul, lambda xp, a, b: xp.matmul(a, b),
                share)


def _transposed(name: str, operands: Callable[[np.random.Generator], tuple[np.ndarray, ...]],
                *axes: int) -> Case:
    def ours(a: np.ndarray, out: np.ndarray | None) -> Any:
        return copy(a.transpose(*axes), "C", out=out)

    def numpys(a: np.ndarray, out: np.ndarray) -> Any:
        np.copyto(out, a.transpose(*axes))
        return out

    return Case(name, operands, ours, numpys,
                lambda xp, a: xp.ascontiguousarray(a.transpose(*axes)))


CASES = [
    *(_products("float32", n) for n in (1024, 2048, 4096, 8192)),
    _products("float64", 4096),
    _products("float64", 8192),
    _products("complex64", 8192),
    _products("complex128", 4096),
    _products("int64", 1024, 1 / 16),
    _products("int64", 4096, 1 / 1024),
    _products("float16", 1024, 1 / 4),
    Case(
        "a.T a, float32 8192",
        lambda rng: (rng.random((8192, 8192), np.float32),),
        lambda a, out: matmul(a.T, a, out),
        lambda a, out: np.matmul(a.T, a, out),
        lambda xp, a: xp.matmul(a.T, a)
    ),
    _transposed(
        "transpose float32 8192", lambda rng: (rng.random((8192, 8192), np.float32),), 1, 0
    ),
    _transposed(
        "int8 64x1024x341x3 to planes",
        lambda rng: (rng.integers(0, 100, (64, 1024, 341, 3), np.int8),),
        0,
        3,
        1,
        2
    ),
]
"""By default all; with ``--dtypes`` and ``--sizes``, products of square matrices."""


def _cases(which: Selection) -> list[Case]:
    if which.sizes or which.dtypes:
        return [_products(dtype, size[0]) for dtype in which.dtypes or ("float32",)
                for size in which.sizes or ((4096,),)]
    return CASES


def numpy_arrays(machine: Any, which: Selection) -> Measured:
    """A row for every call."""
    cases = _cases(which)
    return len(cases), (_measured(machine.rival, which.repeats, case) for case in cases)


def _measured(xp: Any, repeats: int, case: Case) -> Row:
    operands = case.operands(np.random.default_rng(0))

    def ours(out: np.ndarray | None) -> Any:
        with backend("cuda"):
            return case.ours(*operands, out)

    result = ours(None)
    out, expected = np.zeros_like(result), np.zeros_like(result[:max(1, round(len(result) * case.share))])

    def numpys() -> None:
        first, *others = operands
        case.numpys(first[:len(expected)] if case.share < 1 else first, *others, expected)

    def trip() -> Any:
        return xp.asnumpy(case.theirs(xp, *map(xp.asarray, operands)), out=out)

    numpy_s = Host().interval(numpys, 1)
    sleep(_SETTLED)
    ours_s, trip_s = host_medians(repeats, partial(ours, out), trip, seconds=_SECONDS)
    (new_s,) = host_medians(repeats, partial(ours, None), seconds=_SECONDS / 2)
    if numpy_s < _SECONDS:
        (numpy_s,) = host_medians(repeats, numpys, seconds=_SECONDS)
    numpy_s /= case.share
    return {"case": case.name, "ours_s": ours_s, "new_s": new_s, "numpy_s": numpy_s,
            "trip_s": trip_s, "ratio": numpy_s / ours_s, "to_trip": trip_s / ours_s,
            "gb_s": (sum(x.nbytes for x in operands) + result.nbytes) / ours_s / 1e9,
            "right": _close(result[:len(expected)][:_COMPARED], expected[:_COMPARED])}


def _close(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two results agree as far as sums in any order do; exactly for integers."""
    if x.dtype.kind in "iub":
        return bool((x == y).all())
    return bool(np.abs(x - y).max() <= 64 * np.finfo(x.dtype).eps * np.abs(y).max())


def link(machine: Any, which: Selection) -> Measured:
    """The rates of the ring, and of pinned memory, one way and both ways."""
    return 2 * len(_WAYS), _transfers(machine, which)


def _transfers(machine: Any, which: Selection) -> Iterator[Row]:
    from cuteblas.engines.host_cuda import current_ring

    xp, ring, link = machine.rival, current_ring(), current_ring().link
    host = [np.ones(_BLOCK, np.uint8) for _ in range(2)]
    pinned = [link.pinned(_BLOCK) for _ in range(2)]
    there = [xp.cuda.alloc(_BLOCK) for _ in range(2)]

    def staged(up: bool, down: bool) -> None:
        transfers = [ring.upload(host[0], there[0].ptr,
                                 True)] * up + [ring.download(host[1], there[1].ptr, None,
                                                              True)] * down
        for transfer in transfers:
            transfer.wait()
        link.synchronize()

    def direct(up: bool, down: bool) -> None:
        if up:
            link.upload(there[0].ptr, pinned[0].ctypes.data, _BLOCK)
        if down:
            link.download(pinned[1].ctypes.data, there[1].ptr, _BLOCK)
        link.synchronize()

    for name, move in (("pageable", staged), ("pinned", direct)):
        for way, up, down in _WAYS:
            (taken,) = host_medians(which.repeats, partial(move, up, down))
            yield {"case": f"{name}, {way}", "ours_s": taken,
                   "gb_s": (up + down) * _BLOCK / taken / 1e9}


def host_medians(repeats: int, *calls: Callable[[], Any], seconds: float = inf) -> list[float]:
    """Median seconds by the wall clock of calls in turns, each called once before; at least two
    turns, then ``seconds`` at most."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    begin = perf_counter()
    for i in range(repeats):
        for times, call in zip(taken, calls, strict=True):
            times.append(Host().interval(call, 1))
        if i and perf_counter() - begin > seconds:
            break
    return [median(times) for times in taken]
