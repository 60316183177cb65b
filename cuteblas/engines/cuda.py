"""CuPy arrays, and kernels on their device; imported when the first CuPy array arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from .background import Job, expect, later
from .memory import Memory, without_imaginary_part
from .settings import limited

if TYPE_CHECKING:
    from ..planning.plan import Plan
    from ..planning.problem import DeviceInfo

__all__ = ["CUDA", "Compiling", "Cuda", "current_device", "current_stream", "keep_in_pool",
           "launcher_for", "on_device_of", "require_one_device", "several_devices", "spare_memory",
           "uploaded", "wait_from_now_on", "without_waiting"]


class Compiling(Exception):
    """Kernels of a call are being compiled; ``ready`` ends when they are there, or fails."""

    def __init__(self, ready: Job):
        super().__init__("kernels are being compiled")
        self.ready = ready


_waits: ContextVar[bool] = ContextVar("cuteblas_waits", default=True)


@contextmanager
def without_waiting() -> Iterator[None]:
    """Let calls end with :class:`Compiling` instead of waiting, until :func:`wait_from_now_on`."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)


def wait_from_now_on() -> None:
    """Let calls wait for compilation, because something was written that cannot be taken back."""
    _waits.set(True)


_spare: list[Callable[[int], Any]] = []


def spare_memory(let_go: Callable[[int], Any]) -> None:
    """Let a function make room for so many bytes before CuPy's allocator gives up."""
    if let_go not in _spare:
        _spare.append(let_go)
    allocate = cupy.cuda.get_allocator()
    if getattr(allocate, "func", None) is not _allocated:
        with suppress(ValueError):                      # inside of using_allocator
            cupy.cuda.set_allocator(partial(_allocated, allocate))


def _allocated(allocate: Callable[[int], Any], nbytes: int) -> Any:
    while True:
        try:
            return allocate(nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            if not any(let_go(nbytes) for let_go in _spare):
                raise


@lru_cache(maxsize=4096)
def launcher_for(plan: Plan, ordinal: int) -> Callable[..., Any]:
    """What launches a plan, given addresses (in the order of roles), stream and scalars."""
    from .. import runtime
    from ..runtime.loading import are_compiled

    if not _waits.get() and not are_compiled((launch.kernel for launch in plan.launches), ordinal):
        raise Compiling(later(_make_ready, lambda: plan, ordinal, expected=_COMPILED))
    return runtime.executor(plan).launch


_PLANNED, _COMPILED = 0.2, 0.4    # seconds that planning takes, the first imports included, and
                                  # compilation
_FILLED = 1 << 28                 # bytes, which are written in some 0.1 ms
_ALLOCATED = 512                  # bytes, at multiples of which allocations begin
_GRAPHED = 3                      # launches, of which the last one makes a graph
_MOST_TIMED, _TIMED_S = 10, 0.01  # launches and seconds
_planned: set[tuple[Any, DeviceInfo]] = set()


def _plan_for(problem: Any, device: DeviceInfo) -> Plan:
    from .tuning import plan_for

    plan = plan_for(problem, device)
    _planned.add((problem, device))
    return plan


def _make_ready(make: Callable[[], Plan], ordinal: int) -> None:
    from ..runtime.loading import are_compiled

    with cupy.cuda.Device(ordinal):
        plan = make()
        if not are_compiled((launch.kernel for launch in plan.launches), ordinal):
            expect(_COMPILED)
        launcher_for(plan, ordinal)


def current_stream() -> int:
    return cupy.cuda.get_current_stream().ptr


def current_device() -> int:
    return cupy.cuda.runtime.getDevice()


@cache
def several_devices() -> bool:
    return cupy.cuda.runtime.getDeviceCount() > 1


def on_device_of(x: Any) -> AbstractContextManager[Any]:
    return cupy.cuda.Device(x.data.device_id) if several_devices() and current_device() != x.data.device_id else _HERE


_HERE = nullcontext()


def require_one_device(function: str, operands: Mapping[str, Any]) -> None:
    """Refuse CuPy arrays of different devices, or beside arrays on the host."""
    (first, place), *others = ((f"{name} ({_name(x)})", _place(x)) for name, x in operands.items())
    for name, other in others:
        if other != place:
            raise ValueError(
                f"{function} needs its operands on one device, but {first} is on {place} and {name} on {other}; "
                f"cupy.asarray and cupy.asnumpy move arrays"
            )


def _place(x: Any) -> str:
    return f"cuda:{x.data.device_id}" if isinstance(x, cupy.ndarray) else "the host"


def _name(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")


class Cuda:
    """CuPy arrays, and kernels on their device in CuPy's current stream."""

    on_host = moves = False
    kernels = True
    runs = True
    out_of_memory = cupy.cuda.memory.OutOfMemoryError

    def memory(self, x: Any) -> Memory:
        return Memory(x.shape, x.strides, x.dtype, x.data.ptr)

    def device(self, x: Any) -> DeviceInfo:
        from .. import runtime

        return limited(runtime.device_info(x.data.device_id))

    def on_device_of(self, x: Any) -> AbstractContextManager[None]:
        return on_device_of(x)

    def plan(self, problem: Any, x: Any) -> Plan:
        key = problem, self.device(x)
        if not _waits.get() and key not in _planned:
            raise Compiling(later(_make_ready, lambda: _plan_for(*key), x.data.device_id,
                                  expected=_PLANNED))
        return _plan_for(*key)

    def empty(self, like: Memory) -> Any:
        return cupy.ndarray(like.shape, like.dtype,
                            cupy.cuda.alloc(like.size * like.dtype.itemsize), like.strides)

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view from the first element of ``x``, with strides in bytes."""
        return cupy.ndarray(shape, x.dtype, x.data, strides)

    def number(self, value: np.ndarray) -> Any:
        """A new 0-d array, filled on the current device: nothing is copied from the host."""
        return cupy.full((), value[()], value.dtype)

    def identity(self, extent: int, dtype: np.dtype) -> Any:
        return cupy.eye(extent, dtype=dtype)

    def run(self, plan: Plan, arrays: Mapping[str, Any], *scalars: Any) -> None:
        roles = plan.problem.roles
        launch = launcher_for(plan, arrays[roles[0]].data.device_id)
        launch(tuple(arrays[role].data.ptr for role in roles), current_stream(),
               *_scalars(plan, *scalars))

    def seconds(self, plan: Plan, arrays: Mapping[str, Any], *scalars: Any) -> float | None:
        """The time of a plan on the current stream, whose results go to scratch memory."""
        from .. import runtime
        from ..planning.operands import written

        if runtime.capturing():
            return None
        problem: Any = plan.problem
        cuda, places = cupy.cuda, {role: arrays[role].data.ptr for role in problem.roles}
        scratch = [cuda.alloc(_FILLED)]
        for role, (before, after) in written(problem).items():
            begin = before + (places[role] - before) % _ALLOCATED
            scratch.append(cuda.alloc(begin + after))
            places[role] = scratch[-1].ptr + begin
        launch = partial(runtime.executor(plan).launch, (*places.values(),), current_stream(),
                         *_scalars(plan, *scalars))

        def each(times: int) -> float:
            start, stop = cuda.Event(), cuda.Event()
            scratch[0].memset_async(0, _FILLED)             # the host fills the queue meanwhile
            start.record()
            for _ in range(times):
                launch()
            stop.record()
            stop.synchronize()
            return cuda.get_elapsed_time(start, stop) * 1e-3 / times

        return each(max(1, min(_MOST_TIMED, int(_TIMED_S / each(_GRAPHED)))))

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Launch a plan for many problems, after the copy of its table."""
        memory = uploaded(table)
        launcher_for(plan, reached[0].data.device_id)((memory.ptr,), current_stream())

    def cast(self, dst: Any, src: Any) -> None:
        dst[...] = without_imaginary_part(src, dst.dtype)

    def multiply(self, x: Any, y: Any, out: Any) -> None:
        cupy.multiply(x, y, out)

    def inverse(self, x: Any) -> Any:
        from .. import runtime

        if runtime.capturing():
            return cupy.linalg.inv(x)
        import cupyx  # which imports SciPy

        try:
            with cupyx.errstate(linalg="raise"):
                return cupy.linalg.inv(x)
        except np.linalg.LinAlgError:
            return np.linalg.inv(np.zeros((1, 1)))


def keep_in_pool(nbytes: int) -> None:
    """Keep that much memory in the current stream's pool for the next allocation."""
    if nbytes:
        cupy.cuda.alloc(nbytes)


# tables that CUDA graphs copy again whenever they are launched, and where to
_captured: list[tuple[Any, Any]] = []


def uploaded(table: np.ndarray) -> Any:
    """A table, copied to the device on the current stream without waiting."""
    # The driver has read pageable memory when it returns. A graph reads the host's memory when it
    # is launched: a captured table stays.
    from .. import runtime

    memory = cupy.cuda.alloc(table.nbytes)
    if runtime.capturing():
        pinned = cupy.cuda.alloc_pinned_memory(table.nbytes)
        kept = np.frombuffer(pinned, table.dtype, table.size)
        kept[:] = table
        _captured.append((pinned, memory))
        # CuPy's own method refuses every copy from the host into a graph.
        to_device = cupy.cuda.runtime.memcpyHostToDevice
        cupy.cuda.runtime.memcpyAsync(memory.ptr, kept.ctypes.data, kept.nbytes, to_device,
                                      current_stream())
    else:
        memory.copy_from_host_async(table.ctypes.data, table.nbytes)
    return memory


def _scalars(plan: Plan, alpha: Any = 1, beta: Any = 0,
             numbers: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """The arguments of a launch after the addresses: the numbers of a product."""
    from ..planning.problem import ContractionProblem, GemmProblem

    if not isinstance(plan.problem, (GemmProblem, ContractionProblem)):
        return ()
    kinds = (alpha, plan.problem.alpha), (beta, plan.problem.beta)
    return (*(1 if kind == "device" else x for x, kind in kinds), numbers)


CUDA = Cuda()
