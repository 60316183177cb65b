"""Where a call on NumPy arrays runs, on this CPU or on the GPU, by expected times.

Imports, CUDA's start, planning and compilation are jobs of other threads while calls stay on the
host; a call waits for one that takes less time than the GPU would have saved calls so far. CUDA
starts when that is :data:`_GAIN`. Times of longer calls correct what is expected of others.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from .._forks import orphaned, use_cuda
from .background import Job, go_on, later
from .counters import tally
from .settings import (
    backend,
    backend_of_environment,
    chosen_backend,
    current_backend,
    driver_is_there,
    workspace_limit,
)

if TYPE_CHECKING:
    from ..planning.cost.hosts import HostCosts
    from .dispatch import Engine

__all__ = ["FEW", "Work", "bytes_of", "copy_work", "engine_for", "gpu_seconds", "host_engine",
           "may_move", "offload", "rehearsing", "require_cuda", "start_soon", "staying", "stays",
           "where_it_runs", "work_of"]

FEW = 1 << 17
"""Operands with fewer elements than this together stay without comparing times."""

_FASTER = "NumPy is expected to be faster"
_NOT_STARTED, _STARTS, _COMPILES = _UNREADY = (
    "CUDA is not started yet", "CUDA is being started", "its kernels are being compiled"
)
_GAIN = 4e-3
"""Seconds that the GPU would save, from which CUDA starts: the start costs idle processors."""

_SHORT = 0.05
"""Seconds that the GPU would save one call, below which the call comes before CUDA's start: both
use all processors."""

_START = 0.6
"""Seconds after which CUDA should have started, on any machine."""


@dataclass(frozen=True)
class Work:
    """The cost of a call: ``products`` (0 for a copy), bytes ``up`` and ``down``, ``kept`` on the
    GPU, and ``hashed`` first. NumPy computes half of a ``symmetric`` product. ``again`` has the
    work of a call like it whose large operands were there."""

    dtype: np.dtype
    products: float
    up: int
    down: int
    transposes: bool = False
    symmetric: bool = False
    kept: int = 0
    hashed: int = 0
    again: list[Any] = field(default_factory=list, compare=False, repr=False)

    def never_moves(self) -> bool:
        """Whether the host is faster in any case, in a time that teaches nothing."""
        from .keeping import is_on

        here, there = (self.with_copies(self.up) if is_on() else self).seconds()
        return there >= here < _NOTICED

    def with_copies(self, nbytes: int) -> Work:
        """This work if so many bytes of the operands were on the GPU."""
        from .keeping import by_hashes

        return replace(self, kept=nbytes, hashed=nbytes * by_hashes())

    def seconds(self) -> tuple[float, float]:
        count, costs, name = _processors(), _costs(), self.kind
        if self.products:
            here = costs.host_product(name, self.products / (1 + self.symmetric),
                                      self.up + self.down, count)
        else:
            here = costs.host_copy(self.up, self.transposes, count)
        up, beside = self.up - self.kept, 1.0
        there = costs.gpu_call(name, self.products, up, self.down, count) \
            + costs.comparison(self.hashed, count)
        if self.kept and up + self.down <= 2 * costs.few_bytes:
            there -= max(costs.call - costs.replayed, 0)
        elif perf_counter() < _alternating:
            beside = _corrections[True, name + _BESIDE]
        return here * _corrections[False, name], there * _corrections[True, name] * beside

    def over_devices(self, count: int) -> float:
        return _costs().over_devices(self.seconds()[1], self.up + self.down, count)

    @property
    def kind(self) -> str:
        """The kind of calls that this one's time is about: by type, or order of a copy."""
        return _name(self.dtype) if self.products else "transposes" if self.transposes else "copies"


@cache
def _processors() -> int:
    from ..runtime.ring import processors

    return processors()


@cache
def _name(dtype: np.dtype) -> str:
    return dtype.name                       # which NumPy puts together anew each time


@cache
def _costs() -> HostCosts:
    from ..runtime.costs import host_costs

    return host_costs()


def gpu_seconds(dtype: np.dtype, products: float) -> float:
    return _costs().gpu_product(dtype.name, products)


# -- what calls have taken -------------------------------------------------------------------------
_NOTICED = 1e-3    # seconds of a call from which others are corrected
_FORGOTTEN = 30.0  # seconds of calls on one side after which a correction of the other one has
                   # faded
_MOST_KINDS = 4096
_BESIDE = " beside a BLAS"  # of calls that move while its threads keep the processors busy, in the
                            # names of kinds
_busy = _alternating = 0.0  # until when they do, after any product of NumPy, and after one that is
                            # faster there


@cache
def _spin() -> float:
    """Seconds for which OpenBLAS's threads stay busy without work: a third of one by default."""
    clocks = os.environ.get("OPENBLAS_THREAD_TIMEOUT", "")
    return 2.0 ** min(int(clocks), 30) / 2e9 if clocks.isdecimal() else 0.35


staying: set[tuple[Any, ...]] = set()
"""Shapes and types that the host multiplies faster; empty when that is reconsidered."""


_corrections: defaultdict[tuple[bool, str], float] = defaultdict(lambda: 1.0)
"""By how much calls of a kind take longer than expected, by whether they moved."""
_calls: Counter[str] = Counter()        # that have said so, by the kind
_carried: set[tuple[Any, ...]] = set()  # kinds of calls whose kernels are loaded


def _learn(moved: bool, work: Work, seconds: float) -> None:
    """Correct what is expected of a kind by a time there; the other correction fades."""
    # What moves beside busy threads of a BLAS says nothing of others, unless products come
    # between.
    if seconds < _NOTICED or (moved and _alternating <= perf_counter() - seconds < _busy):
        return
    kind, ratio = work.kind, seconds / work.seconds()[moved]
    learnt = moved, kind + _BESIDE if moved and perf_counter() < _alternating else kind
    _corrections[learnt] = _within(8.0, _corrections[learnt] * _within(4.0, ratio) ** 0.25)
    for other in ((False, kind),) if moved else ((True, kind), (True, kind + _BESIDE)):
        _corrections[other] **= max(1 - seconds / _FORGOTTEN, 0.0)
    if _within(1.3, ratio) != ratio:
        staying.clear()
    _calls[kind] += 1
    tally("rates", "corrected", f"{'GPU' if moved else 'host'}: {kind}").tick()


def _within(most: float, ratio: float) -> float:
    return min(max(ratio, 1 / most), most)


def _rates(work: Work) -> str:
    from ..planning.cost.hosts import HOST

    source, calls = "estimated" if _costs() is HOST else "measured by calibrate --host", _calls[work.kind]
    return f"{source}, corrected by {calls} call{'s' * (calls > 1)}" if calls else source


# -- whether there is a GPU ------------------------------------------------------------------------
_compiling: dict[tuple[Any, ...], Job] = {}               # by the kind of call that it compiles for
_missed: defaultdict[Any, float] = defaultdict(float)
"""Seconds that the GPU would have saved the calls of a kind that stayed, and all of them
(``None``), less what they waited."""
_ready = False                          # whether the modules that compare times are imported
_preparing: Job | None = None           # the import of those modules
_starting: Job | None = None
_begun = Event()                        # cleared while the driver begins
_begun.set()
_why_not: str | None = None             # why CUDA does not start, once that was tried
_started = False
_moving: Job | None = None              # operands that calls would gain from


def _start() -> bool:
    """Start CUDA, if that was not tried before."""
    global _started, _why_not
    if not _started and _why_not is None:
        from ..runtime import why_unavailable

        _why_not = why_unavailable()
        _started = _why_not is None
        if _started:
            from .host_memory import prepare

            later(prepare)
    return _started


def _possible() -> bool:
    return _why_not is None and driver_is_there() and not orphaned()


def stays(*arrays: Any) -> bool:
    """Whether NumPy answers a call on these operands without further questions."""
    where = chosen_backend() or backend_of_environment()
    if where == "numpy":
        return True
    if where == "auto":
        few = 0
        for x in arrays:
            if type(x) is np.ndarray:
                few += x.size
        return few <= FEW or not _possible() or not (_started or _prepared())
    if where == "cuda":
        require_cuda("the backend 'cuda'")
    return False


def may_move(*arrays: Any) -> bool:
    """Whether a call compares times, or has to move: for ``explain``, which waits for that."""
    _prepare()
    return engine_for(*arrays).moves


def _prepare() -> None:
    global _ready
    from . import emulator, keeping, problems  # noqa: F401

    _costs(), _processors()
    _ready = True


def _prepared() -> bool:
    """Whether they are imported; the first call begins that, once the driver has begun."""
    global _preparing
    if _preparing is None and not _ready:
        _preparing = later(_alone, _prepare)
        if hasattr(os, "register_at_fork"):
            # a child would wait for imports that have begun here
            os.register_at_fork(before=_preparing.exception)
    return _ready


def start_soon() -> None:
    """Start CUDA in another thread where calls may move: the program asked for it."""
    if current_backend() == "auto" and _possible() and not _started and _starting is None:
        from .host_memory import prepare

        _begin_to_start()
        _prepared()
        later(_alone, prepare, True)


def _begin_to_start() -> None:
    global _starting
    if _starting is None:
        # children that are forked meanwhile must not wait for imports that have begun here
        use_cuda()
        _begun.clear()
        _starting = later(_start_and_make_ready, expected=_START)


def _alone(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function that imports something once the driver has begun."""
    _begun.wait(_START)
    go_on()
    function(*arguments)


def require_cuda(what: str) -> None:
    if orphaned() or not _start():
        from ..runtime.devices import require_gpu

        require_gpu(what)


rehearsing: ContextVar[bool] = ContextVar("cuteblas_rehearsing", default=False)
"""Whether calls on NumPy arrays are planned for the emulator, and not run."""


def host_engine() -> Engine:
    """What takes NumPy arrays that do not stay."""
    from .emulator import EMULATOR, HOST_CUDA, REHEARSAL

    kernels = REHEARSAL if rehearsing.get() else EMULATOR
    return kernels if current_backend() == "emulator" else HOST_CUDA


def engine_for(*arrays: Any) -> Engine:
    """What takes a call on NumPy arrays."""
    return _numpy() if stays(*arrays) else host_engine()


@cache
def _numpy() -> Engine:
    from .emulator import NUMPY

    return NUMPY


def _reason_for(work: Work) -> tuple[bool, str]:
    """Whether a call runs on the GPU, and why in a few words."""
    from ..planning.floors import duration

    where = current_backend()
    if where == "cuda":
        return True, "backend('cuda')"
    if where != "auto":
        return False, f"backend({where!r})"
    if not _possible():
        return False, "there is no GPU"
    here, there = work.seconds()
    times = f"expected: {duration(here)} on the host, {duration(there)} by way of the GPU ({_rates(work)})"
    if work.kept:
        times += f"; {work.kept / 1e6:.3g} MB of the operands are there"
    if work.hashed:
        times += f", {work.hashed / 1e6:.3g} MB of which are compared by their hashes"
    if there >= here or _started:
        return there < here, times
    started = "is being started" if _starting is not None else f"starts when calls like this would have saved {duration(_GAIN)}"
    return False, f"{times}; CUDA {started}"


def _start_and_make_ready() -> None:
    """Start CUDA, and compile and import meanwhile what calls need."""
    from .._cache import usage
    from ..runtime.devices import create_context, load_libraries, start_driver

    try:
        start_driver()
        go_on()
        context = later(create_context)
        load_libraries()
    finally:
        _begun.set()
    go_on()
    threads = later(_build_threads)
    if not usage("calls").files:        # those that are on disk need no plans
        later(_import_planning)
    if _start():
        go_on()
        _import_engines()
        for job in (context, threads):
            job.exception()
        from .host_cuda import current_ring

        current_ring()


def _build_threads() -> None:
    from ..emulator.compiler import build
    from ..runtime.mover import BUILT, SOURCE

    build(SOURCE.read_text("utf-8"), **BUILT)


def _import_planning() -> None:
    from .. import planning
    from ..runtime import supported_architectures
    from ..runtime.errors import require

    planning.plan_gemm, planning.plan_copy, planning.plan_contraction  # noqa: B018     # imported when they are used
    supported_architectures()
    require("cuda.core")


def _import_engines() -> None:
    from . import host_cuda
    from .replay import cupy, kept

    assert cupy and host_cuda
    kept.fingerprint(0)


def _stays(work: Work, kind: tuple[Any, ...], arrays: Sequence[np.ndarray] = ()) -> str | None:
    """Why a call does not run on the GPU, else ``None``; calls that would gain start CUDA."""
    if current_backend() == "cuda":
        return None
    here, there = work.seconds()
    gain = here - there
    if gain <= 0:
        if work.products:
            _wish(work, here, arrays)
        return _FASTER if _started else _NOT_STARTED
    if not _started and not _starts(gain):
        return _NOT_STARTED
    if _starting is not None and not _ended(_starting, kind, gain, _missed[None]):
        return _STARTS
    if not _started:
        return "there is no GPU"
    if kind in _compiling and not _ended(_compiling[kind], kind, gain, _missed[kind]):
        return _COMPILES
    return None


def _kept(arrays: Sequence[Any]) -> tuple[int, int]:
    """Bytes of operands that are on the GPU already, and of those that are compared."""
    if not _started:
        return 0, 0
    from .keeping import expected

    return (kept := expected(arrays)), kept and expected(arrays, hashed=True)


def _miss(kind: tuple[Any, ...], seconds: float) -> None:
    if len(_missed) > _MOST_KINDS:
        _missed.clear()
    for calls in None, kind:
        _missed[calls] += seconds


def _starts(gain: float) -> bool:
    """Whether CUDA starts, or did, at the seconds that the GPU would save a call."""
    if gain >= _SHORT:
        _begin_to_start()
    return _starting is not None


def _wish(work: Work, here: float, arrays: Sequence[np.ndarray]) -> None:
    """Note what a call would gain by kept operands, and begin to move those that repay it."""
    global _moving
    from .keeping import is_on, owning, wanted

    if not is_on():
        return
    large = [x for x in arrays if work.up < 16 * x.nbytes]
    gain = here - work.with_copies(sum(x.nbytes for x in large)).seconds()[1]
    if gain > 0 and not _started and not _starts(gain):
        _missed[None] += gain
    if gain <= 0 or not _started or not (_starting is None or _starting.done()):
        return
    from .host_cuda import current_home

    current_home()                      # whose keeper takes note
    if _moving is None or _moving.done():
        nbytes = int(gain * _costs().link(_processors()))
        if worth := [x for x in large if wanted(x, nbytes)]:
            from .host_cuda import keep_soon

            if all(owning(x) is not None for x in worth):
                _moving = later(keep_soon, worth)
            else:                       # their memory may be gone when this call has ended
                keep_soon(worth)


def _ended(job: Job, kind: tuple[Any, ...], gain: float, missed: float) -> bool:
    """Whether a job has ended, after waiting for it where the GPU would save more than that."""
    # Earlier calls count too, as in ski rental: then calls miss and wait for at most twice what
    # they would have lost by the better of both.
    if not job.done():
        _miss(kind, -job.wait(gain + max(missed, 0.0)))
    return job.done()


def offload(function: str, work: Work, run: Callable[..., Any], arrays: Sequence[np.ndarray],
            out: np.ndarray | None, stay: Callable[[], Any], written: Sequence[np.ndarray] = (),
            stream: Callable[[], Any] | None = None) -> Any:
    """Run a call on the GPU if it is expected to be faster there, else by NumPy."""
    # ``run`` is what :func:`cuteblas.engines.host_cuda.carry` takes, ``stay`` the call with
    # NumPy's backend, and ``stream`` the call in tiles.
    global _busy, _alternating
    given, note = work, list[Any]()
    for there, again in (*work.again,):
        begin = perf_counter()
        if _stays(there, ()) is None and (result := again(arrays, out)) is not None:
            _learn(True, there, perf_counter() - begin)
            return result
        work.again.clear()
    kind = function, work.dtype, work.transposes, *[(x.shape, x.strides) for x in arrays]
    kept, hashed = _kept(arrays)
    if (kept, hashed) != (work.kept, work.hashed):      # since a call like this was looked at first
        work = replace(work, kept=kept, hashed=hashed)
    while (why := _stays(work, kind, arrays)) is None:
        from .cuda import Compiling, without_waiting
        from .host_cuda import carry
        from .keeping import noted

        compiled = _compiling.pop(kind, None)
        # raised once more
        waits = current_backend() == "cuda" or (compiled is not None
                                                and compiled.exception() is not None)
        limit = workspace_limit()
        begin = perf_counter()
        try:
            with nullcontext() if waits else without_waiting():
                noted.set(note)
                result = None if stream is None else stream()
                if result is None and (limit is None or work.up + work.down <= limit):
                    result = carry(function, run, arrays, out, written)
        except Compiling as compiling:
            _compiling[kind] = compiling.ready
            continue
        if result is not None:
            if note:
                from .replay.copies import replayed

                if again := replayed(function, note, arrays, result, out is None):
                    given.again[:] = [(work, again)]
            note.clear()
            if kind in _carried:                # else it was compiled, loaded or planned
                _learn(True, work, perf_counter() - begin)
            elif len(_carried) < _MOST_KINDS:
                _carried.add(kind)
            return result
        why = "no memory on the GPU"
        break
    tally(function, "moved", f"stayed: {why}").tick()
    begin = perf_counter()
    with backend("numpy"):
        result = stay()
    seconds = perf_counter() - begin
    if why in _UNREADY:
        here, there = work.seconds()
        # the first product of a BLAS takes longer than others, and CUDA's start slows all of them
        _miss(kind, max((here if why == _NOT_STARTED else seconds) - there, 0.0))
    if work.products:
        _busy = perf_counter() + _spin()
        if why == _FASTER:
            _alternating = _busy
    # which take processors
    if all(job is None or job.done() for job in (_starting, *_compiling.values())):
        _learn(False, work, seconds)
    if not _started and _missed[None] >= _GAIN:
        _begin_to_start()
    return result


def copy_work(source: np.ndarray, strides: Sequence[int]) -> Work:
    transposes = any(s != t for s, t, n in zip(source.strides, strides, source.shape, strict=True)
                     if n > 1)
    return Work(source.dtype, 0.0, source.nbytes, source.nbytes, transposes, False,
                *_kept([source]))


def where_it_runs(work: Work, device: str) -> str:
    """Who runs a call on NumPy arrays, and why, in words for :func:`cuteblas.explain`."""
    moves, why = _reason_for(work)
    if moves:
        return f"cuda:{device}, to which the arrays move; {why}"
    return f"NumPy, {why}; the plan below is what {device} would run"


def bytes_of(arrays: Iterable[Any]) -> int:
    """The bytes that move: shared memory and broadcast axes once."""
    return sum({x.__array_interface__["data"][0]: x.nbytes for x in arrays
                if isinstance(x, np.ndarray)}.values())


def work_of(products: float, dtype: Any, arrays: Sequence[Any], out: Any,
            shape: Sequence[int]) -> Work:
    dtype = np.dtype(dtype)
    return Work(dtype, max(products, 1.0), bytes_of(arrays),
                prod(shape) * dtype.itemsize,
                False, dtype.char in "fdFD" and len(arrays) == 2 and _is_transpose(*arrays),
                *_kept(arrays))


def _is_transpose(a: Any, b: Any) -> bool:
    """Whether one matrix is the other one's transpose in the same memory."""
    return type(a) is type(b) is np.ndarray and a.ndim == 2 and a.shape == b.shape[::-1] \
        and a.strides == b.strides[::-1] and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
