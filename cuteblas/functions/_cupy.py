"""The functions of this package on CuPy arrays. The only module here that imports CuPy; it is imported when the first CuPy array
arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..planning.plan import Plan
from ..planning.problem import DeviceInfo, GemmProblem
from .counters import tally
from .engines import plan_for, without_imaginary_part
from .execution import execute, move, new_like
from .gufunc import Product, judge
from .kinds import kind_of
from .memory import Memory
from .named import refuse_variant
from .problems import Staging, copy_problem, has_kernels, stage
from .products import delegate, fast_paths

__all__ = ["CUPY", "Cupy", "contiguous", "copied", "judged", "launcher_for", "matmul", "on_device_of", "repeated_matmul",
           "require_one_device"]

# Ready launchers are few in practice; a program with ever new shapes starts over at this number.
_MOST_READY = 8192


@lru_cache(maxsize=4096)
def launcher_for(plan: Plan, ordinal: int) -> Callable[[tuple[int, ...], int], Any]:
    """What launches a plan on a device, which is the current one; compiled once.

    It is a function of the addresses (of a, b, c; or of src, dst) and of a stream's handle.
    """
    from .. import runtime

    return runtime.executor(plan).launch


def current_stream() -> int:
    """The handle of CuPy's current stream."""
    return cupy.cuda.get_current_stream().ptr


def current_device() -> int:
    """The ordinal of the current device."""
    return cupy.cuda.runtime.getDevice()


@cache
def several_devices() -> bool:
    """Whether this machine has more than one device."""
    return cupy.cuda.runtime.getDeviceCount() > 1


@contextmanager
def on_device_of(x: Any) -> Iterator[None]:
    """Make the device of a CuPy array the current one."""
    if several_devices() and current_device() != x.data.device_id:
        with cupy.cuda.Device(x.data.device_id):
            yield
    else:
        yield


def require_one_device(function: str, operands: Mapping[str, Any]) -> None:
    """Refuse CuPy arrays of different devices, and CuPy arrays together with arrays on the host.

    Raises
    ------
    ValueError
        Naming two operands and where they are.
    """
    (first, place), *others = ((f"{name} ({_name(x)})", _place(x)) for name, x in operands.items())
    for name, other in others:
        if other != place:
            raise ValueError(f"{function} needs its operands on one device, but {first} is on {place} and {name} on {other}; "
                             f"cupy.asarray and cupy.asnumpy move arrays")


def _place(x: Any) -> str:
    return f"cuda:{x.data.device_id}" if isinstance(x, cupy.ndarray) else "the host"


def _name(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")


class Cupy:
    """CuPy arrays, and kernels on their device in CuPy's current stream."""

    def memory(self, x: Any) -> Memory:
        """Where the elements of an array lie."""
        return Memory(x.shape, x.strides, x.dtype, x.data.ptr)

    def device(self, x: Any) -> DeviceInfo:
        """What the array's device is to planning."""
        from .. import runtime

        return runtime.device_info(x.data.device_id)

    def empty(self, like: Memory) -> Any:
        """A new array from CuPy's allocator."""
        return cupy.ndarray(like.shape, like.dtype, cupy.cuda.alloc(like.size * like.dtype.itemsize), like.strides)

    def assign(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` with any cast. CuPy's kernels need aligned elements; others are moved as words by ours."""
        if not self.memory(src).whole_elements:
            src = new_like("matmul: alignment", self, src, "K")
        if self.memory(dst).whole_elements:
            dst[...] = without_imaginary_part(src, dst.dtype)
        else:
            move("matmul: alignment", self, without_imaginary_part(src, dst.dtype).astype(dst.dtype), dst)

    def run(self, plan: Plan, **arrays: Any) -> None:
        """Launch a plan on the current stream."""
        roles = ("a", "b", "c") if isinstance(plan.problem, GemmProblem) else ("src", "dst")
        launch = launcher_for(plan, arrays[roles[0]].data.device_id)
        launch(tuple(arrays[role].data.ptr for role in roles), current_stream())


CUPY = Cupy()


def matmul(x1: Any, x2: Any, out: Any, precision: str, variant: str | None, arguments: Mapping[str, Any]) -> Any:
    """``matmul`` where an operand is a CuPy array: see :func:`cuteblas.matmul`."""
    for x in (x1, x2, out):
        if kind_of(x) == "foreign":
            return delegate(f"{type(x).__name__} answers ufuncs itself", x1, x2, out, arguments, variant)
    product = judged(x1, x2, out, arguments)
    with on_device_of(x1):
        staging = stage(CUPY.memory(x1), CUPY.memory(x2), None if out is None else CUPY.memory(out), product, precision, variant)
        result = execute(CUPY, x1, x2, out, staging)
        if not (arguments or staging.copies or variant) and result.size:
            _remember(x1, x2, out, result, staging, precision)
    return result


def judged(x1: Any, x2: Any, out: Any, arguments: Mapping[str, Any]) -> Product:
    """NumPy's judgement of operands of which one is a CuPy array, and ours: all on one device, with types that kernels have.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What ``numpy.matmul`` raises, in its words; also for operands on different devices.
    """
    if out is not None and kind_of(out) in ("scalar", "like"):
        np.matmul(np.zeros((1, 1)), np.zeros((1, 1)), out=out)
    operands = {"x1": x1, "x2": x2} | ({} if out is None else {"out": out})
    require_one_device("matmul", {name: x for name, x in operands.items() if kind_of(x) != "scalar"})
    first, second = (CUPY.memory(x) if isinstance(x, cupy.ndarray) else Memory((), (), np.asarray(x).dtype) for x in (x1, x2))
    product = judge(first, second, None if out is None else CUPY.memory(out), arguments)
    if not has_kernels(product.dtype) or not all(x.dtype.isnative for x in operands.values()):
        raise TypeError(f"matmul has no kernel on the GPU for {' and '.join(str(x.dtype) for x in operands.values())}, "
                        f"computed in {product.dtype}")
    return product


def copied(a: Any, order: str, variant: str | None) -> Any:
    """``copy`` of a CuPy array: see :func:`cuteblas.copy`."""
    return _arranged("copy", a, order, variant)


def contiguous(a: Any, dtype: Any, variant: str | None) -> Any:
    """``ascontiguousarray`` of a CuPy array: see :func:`cuteblas.ascontiguousarray`."""
    with on_device_of(a):
        if dtype is not None and np.dtype(dtype) != a.dtype:
            reason = f"changes {a.dtype} to {np.dtype(dtype)}"
            refuse_variant(variant, reason)
            tally("ascontiguousarray", "calls", f"delegated to CuPy: {reason}").tick()
            return cupy.ascontiguousarray(a, dtype)
        if a.flags.c_contiguous:
            tally("ascontiguousarray", "calls", "nothing").tick()
            return a if a.ndim else a.reshape(1)
    return _arranged("ascontiguousarray", a, "C", variant)


class _ReadyCopy(NamedTuple):
    """A copy that was made before: everything that a call with the same key needs."""

    launch: Callable[[tuple[int, ...], int], Any]
    tick: Callable[[], int]
    strides: tuple[int, ...]
    nbytes: int
    several_devices: bool


_ready_copies: dict[tuple, _ReadyCopy] = {}


def _arranged(function: str, a: Any, order: str, variant: str | None) -> Any:
    """A new array with the elements of ``a`` in an order; what has run before is launched at once."""
    data = a.data
    key = function, order, variant, a.shape, a.strides, a.dtype, data.ptr & 15, data.device_id
    ready = _ready_copies.get(key)
    if ready is not None and not (ready.several_devices and current_device() != data.device_id):
        memory = cupy.cuda.alloc(ready.nbytes)
        if not memory.ptr & 15:
            ready.launch((data.ptr, memory.ptr), current_stream())
            ready.tick()
            return cupy.ndarray(a.shape, a.dtype, memory, ready.strides)
    with on_device_of(a):
        new = new_like(function, CUPY, a, order, variant)
        if new.size:
            plan = plan_for(copy_problem(CUPY.memory(a), CUPY.memory(new), variant), CUPY.device(a))
            if len(_ready_copies) >= _MOST_READY:
                _ready_copies.clear()
            tick = tally(function, "calls", plan.family).tick
            _ready_copies[key] = _ReadyCopy(launcher_for(plan, data.device_id), tick, new.strides, new.nbytes, several_devices())
    return new


class _Ready(NamedTuple):
    """A product that was run before: everything that a call with the same key needs."""

    launch: Callable[[tuple[int, ...], int], Any]
    tick: Callable[[], int]
    shape: tuple[int, ...]
    several_devices: bool
    spans: tuple[int, ...]              # first byte and one past the last, relative to the address, of x1, x2 and out


_ready: dict[tuple, _Ready] = {}


def repeated_matmul(x1: Any, x2: Any, out: Any, precision: str | None) -> Any:
    """The product of plain CuPy arrays if the like of it has run before, else ``None``.

    Shapes, strides, types, alignments and devices of a call that NumPy accepted decide everything about it, except whether ``out``
    overlaps an input. That is judged by address ranges here; where they meet, the long way finds out.
    """
    if type(x2) is not cupy.ndarray:
        return None
    data1, data2 = x1.data, x2.data
    address1, address2 = data1.ptr, data2.ptr
    device = data1.device_id
    if out is None:
        ready = _ready.get((x1.shape, x1.strides, x1.dtype, x2.shape, x2.strides, x2.dtype, address1 & 15, address2 & 15,
                            device, data2.device_id, precision))
        if ready is None or (ready.several_devices and current_device() != device):
            return None
        out = cupy.empty(ready.shape, x1.dtype)         # what is cast is not remembered
        address3 = out.data.ptr
        if address3 & 15:
            return None
    else:
        if type(out) is not cupy.ndarray:
            return None
        data3 = out.data
        address3 = data3.ptr
        ready = _ready.get((x1.shape, x1.strides, x1.dtype, x2.shape, x2.strides, x2.dtype, address1 & 15, address2 & 15,
                            device, data2.device_id, precision, out.shape, out.strides, out.dtype, address3 & 15, data3.device_id))
        if ready is None or (ready.several_devices and current_device() != device):
            return None
        low1, high1, low2, high2, low3, high3 = ready.spans
        low3 += address3
        high3 += address3
        if (low3 < address1 + high1 and address1 + low1 < high3) or (low3 < address2 + high2 and address2 + low2 < high3):
            return None
    ready.launch((address1, address2, address3), current_stream())
    ready.tick()
    return out


def _remember(x1: Any, x2: Any, out: Any, result: Any, staging: Staging, precision: str) -> None:
    """Let :func:`repeated_matmul` answer calls like this one."""
    if out is None and not result.flags.c_contiguous:
        return
    if len(_ready) >= _MOST_READY:
        _ready.clear()
    plan = plan_for(staging.problem, CUPY.device(x1))
    spans = tuple(end for x in (x1, x2, result) for end in CUPY.memory(x).span)
    ready = _Ready(launcher_for(plan, x1.data.device_id), tally("matmul", "calls", plan.family).tick, result.shape,
                   several_devices(), spans)
    key = (x1.shape, x1.strides, x1.dtype, x2.shape, x2.strides, x2.dtype, x1.data.ptr & 15, x2.data.ptr & 15,
           x1.data.device_id, x2.data.device_id)
    of_out = () if out is None else (out.shape, out.strides, out.dtype, out.data.ptr & 15, out.data.device_id)
    for name in (precision, None) if precision == "auto" else (precision,):
        _ready[(*key, name, *of_out)] = ready


fast_paths[cupy.ndarray] = repeated_matmul
