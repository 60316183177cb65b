"""The functions of this package on CuPy arrays, and calls that have run before; imported when the first CuPy array arrives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import cupy
import numpy as np

from .._forks import forget_in_children
from ..codegen.epilogue import EpilogueGraph
from ..planning.plan import Plan
from ..planning.problem import ContractionProblem, DeviceInfo, GemmProblem
from .copies import check_out, fast_copies
from .counters import tally
from .elementwise import cast_of, elementwise_parts, flushed_by_a_cast, roles
from .engines import plan_for
from .execution import copy_into, execute, move, new_like
from .gufunc import Product, judge
from .kinds import kind_of
from .limits import limited
from .memory import Memory, strides_by_order, without_imaginary_part
from .named import refuse_variant
from .problems import has_kernels, stage
from .products import delegate, fast_paths
from .routing import repeaters

__all__ = ["CUPY", "MOST_READY", "UFUNCS",
           "Cupy", "Recorder", "arranged", "cast", "contiguous", "copied", "copied_into", "current_device",
           "current_stream", "judged", "key_of_call", "launcher_for", "matmul", "of_type", "on_device_of", "repeated",
           "repeated_copy", "repeated_matmul", "require_one_device", "several_devices", "uploaded"]


UFUNCS = frozenset({"matmul", "matvec", "vecdot", "vecmat"}) if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else frozenset()
"""Functions that take ``out=...`` for an array in place of a scalar; a result on a GPU is one anyhow."""


@lru_cache(maxsize=4096)
def launcher_for(plan: Plan, ordinal: int) -> Callable[..., Any]:
    """What launches a plan on a device, which is the current one; compiled once.

    It is a function of the addresses in the order of the problem's roles, of a stream's handle and of scalars.
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


def cast(dst: Any, src: Any) -> None:
    """``dst[...] = src`` by CuPy."""
    dst[...] = without_imaginary_part(src, dst.dtype)


class Cupy:
    """CuPy arrays, and kernels on their device in CuPy's current stream."""

    def memory(self, x: Any) -> Memory:
        """Where the elements of an array lie."""
        return Memory(x.shape, x.strides, x.dtype, x.data.ptr)

    def device(self, x: Any) -> DeviceInfo:
        """What the array's device is to planning."""
        from .. import runtime

        return limited(runtime.device_info(x.data.device_id))

    def empty(self, like: Memory) -> Any:
        """A new array from CuPy's allocator."""
        return cupy.ndarray(like.shape, like.dtype, cupy.cuda.alloc(like.size * like.dtype.itemsize), like.strides)

    def assign(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` with any cast, broadcast. CuPy's kernels need aligned elements; ours move others as words."""
        if src.shape != dst.shape:
            src = cupy.broadcast_to(src, dst.shape)
        target, whole = self.memory(dst), self.memory(src).whole_elements
        if src.dtype == dst.dtype and not (whole and target.whole_elements):
            move("matmul: alignment", self, src, dst)
            return
        src = self.aligned(src)
        if target.whole_elements:
            self.cast(dst, src)
        else:
            between = self.empty(replace(target, strides=strides_by_order(replace(target, strides=src.strides), "K")))
            self.cast(between, src)
            move("matmul: alignment", self, between, dst)

    def aligned(self, x: Any, function: str = "matmul") -> Any:
        """The array, or a copy of it if its elements are not aligned to their size: kernels that read those end the process's use
        of the device."""
        return x if self.memory(x).whole_elements else new_like(f"{function}: alignment", self, x, "K")

    def cast(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` of aligned elements: by CuPy, except where its kernels flush subnormal numbers to zero."""
        given = without_imaginary_part(src, dst.dtype)
        if flushed_by_a_cast(given.dtype, dst.dtype):
            graph = cast_of(given.dtype.name, dst.dtype.name)
            self.compute(graph, {"x": given if given.shape == dst.shape else cupy.broadcast_to(given, dst.shape)}, dst)
        else:
            self.cast_by_cupy(dst, src)

    def cast_by_cupy(self, dst: Any, src: Any) -> None:
        """``dst[...] = src`` by CuPy."""
        cast(dst, src)

    def compute(self, graph: EpilogueGraph, operands: Mapping[str, Any], out: Any) -> None:
        """Write a function of the elements of arrays of one shape, by our kernels."""
        if not out.size:
            return
        for problem, shifts in elementwise_parts(graph, self.memory(out), {name: self.memory(x) for name, x in operands.items()}):
            target, *sources = (self.shifted(x, n) if n else x for x, n in zip((out, *operands.values()), shifts, strict=True))
            self.run(plan_for(problem, self.device(out)), roles(dict(zip(operands, sources, strict=True)), target))

    def shifted(self, x: Any, nbytes: int) -> Any:
        """An array that begins so many bytes behind another."""
        return cupy.ndarray((1,), x.dtype, x.data + nbytes)

    def run(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Launch a plan on the current stream.

        If there is no memory for the workspace of a plan that ``precision="auto"`` chose, blocks of the product that need less take
        its place, or native arithmetic, and are counted under ``"workspace"``.
        """
        roles = plan.problem.roles
        addresses, scalars = tuple(arrays[role].data.ptr for role in roles), _scalars(plan, alpha, beta, numbers)
        try:
            launcher_for(plan, arrays[roles[0]].data.device_id)(addresses, current_stream(), *scalars)
        except cupy.cuda.memory.OutOfMemoryError:
            if not isinstance(plan.problem, GemmProblem) or plan.problem.precision != "auto":
                raise
            for smaller in _with_less_workspace(plan, plan.problem):
                try:
                    launcher_for(smaller, arrays[roles[0]].data.device_id)(addresses, current_stream(), *scalars)
                except cupy.cuda.memory.OutOfMemoryError:
                    continue
                what = f"{smaller.family}{' in blocks' if smaller.family == plan.family else ''}"
                why = f"{what} instead of {plan.family}: no memory for a workspace of {plan.workspace_bytes} bytes"
                tally("workspace", "calls", why).tick()
                return
            raise

    def count(self, function: str, group: str, detail: str) -> None:
        """Advance a counter."""
        tally(function, group, detail).tick()

    def run_table(self, plan: Plan, table: np.ndarray, reached: Sequence[Any]) -> None:
        """Launch a plan for many problems on the current stream, behind the copy of its table."""
        memory = uploaded(table)
        launcher_for(plan, reached[0].data.device_id)((memory.ptr,), current_stream())


_PARTS = 4, 16
"""Of a workspace that there is no memory for, what is tried next."""


def _with_less_workspace(plan: Plan, problem: GemmProblem) -> Iterator[Plan]:
    """Other plans of a product, each with less workspace than the one before; the last is native arithmetic without any."""
    least = plan.workspace_bytes
    limits = [(problem, least // parts) for parts in _PARTS]
    for each, limit in (*limits, (replace(problem, precision="ieee"), 0)):
        smaller = plan_for(each, replace(plan.device, workspace_limit=limit))
        if smaller.workspace_bytes < least:
            least = smaller.workspace_bytes
            yield smaller


_captured: list[tuple[Any, Any]] = []           # tables that CUDA graphs copy again whenever they are launched, and where to


def uploaded(table: np.ndarray) -> Any:
    """A table in device memory, copied on the current stream. The host does not wait: the driver has read pageable memory when it
    returns. A graph reads the host's memory when it is launched, so that a captured table stays, in memory that graphs can read.
    """
    from .. import runtime

    memory = cupy.cuda.alloc(table.nbytes)
    if runtime.capturing():
        pinned = cupy.cuda.alloc_pinned_memory(table.nbytes)
        kept = np.frombuffer(pinned, table.dtype, table.size)
        kept[:] = table
        _captured.append((pinned, memory))
        # CuPy's own method refuses every copy from the host into a graph.
        to_device = cupy.cuda.runtime.memcpyHostToDevice
        cupy.cuda.runtime.memcpyAsync(memory.ptr, kept.ctypes.data, kept.nbytes, to_device, current_stream())
    else:
        memory.copy_from_host_async(table.ctypes.data, table.nbytes)
    return memory


def _scalars(plan: Plan, alpha: Any, beta: Any, numbers: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """What a launch takes behind the addresses: the numbers of a product that is not a plain one."""
    if not isinstance(plan.problem, (GemmProblem, ContractionProblem)):
        return ()
    kinds = (alpha, plan.problem.alpha), (beta, plan.problem.beta)
    return (*(1 if kind == "device" else x for x, kind in kinds), numbers)


CUPY = Cupy()


# -- calls that have run before ---------------------------------------------------------------------------------------------------
# They are few in practice; a program with ever new shapes starts over at this number.
MOST_READY = 8192


class _Ready(NamedTuple):
    """A call that has run: everything that one with the same key needs."""

    launch: Callable[..., Any]
    pick: Callable[[list[int]], tuple[int, ...]] | None # from the addresses of inputs and result those that the plan takes, or all
    tick: Callable[[], Any]
    several_devices: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None                     # none where they are those of the order
    order: str
    dtype: np.dtype
    nbytes: int
    near: tuple[tuple[int, int, int], ...]              # the number of an input, and between which distances from it the result
                                                        # reaches into its range
    types: tuple[np.dtype, ...]                         # those that the key has by their identity


_ready: dict[tuple, _Ready] = {}
_NDARRAY = cupy.ndarray                 # looked up where it is noticed
_BARE = cupy.ndarray.__mro__[1]


_new: Any = _BARE.__new__
_fill_in: Any = getattr(_BARE, "_init", None)


def _by_parts(shape: tuple[int, ...], dtype: np.dtype, memory: Any, strides: tuple[int, ...] | None, order: str) -> Any:
    """``cupy.ndarray(shape, dtype, memory, strides, order)``, by the two calls that this constructor in Python comes to."""
    made = _new(_NDARRAY)
    _fill_in(made, shape, dtype, memory, strides, order)
    return made


_made: Callable[..., Any] = cupy.ndarray if _fill_in is None else _by_parts


def key_of_call(head: Hashable, inputs: Sequence[Any], out: Any) -> tuple | None:
    """The key of a call; ``None`` if an array of it is no plain CuPy array.

    Two calls with one key are the same call, whatever the arrays contain: a key has the head, a part for each operand in order, and
    last a part for ``out``, which is ``None`` without one, so that an operand is never taken for ``out``. An element type is there
    by its identity: types may be equal and differ in what NumPy makes of them, as ``long`` and ``longlong`` do, or types with
    metadata. Whoever keeps a key keeps the types, too.

    Parameters
    ----------
    head : hashable
        The function, and all arguments that are no arrays; equal ones have to mean the same.
    inputs : sequence
        The operands.
    out : array or None
        Receives the result.
    """
    if any(type(x) is not cupy.ndarray for x in (inputs if out is None else (*inputs, out))):
        return None
    return head, *map(_part, inputs), None if out is None else _part(out)


def _part(x: Any) -> tuple:
    """What a key says of an array."""
    return x.shape, x.strides, id(x.dtype), x.data.ptr & 15, x.data.device_id


def repeated(head: Hashable, inputs: tuple[Any, ...], out: Any, *scalars: Any) -> Any:
    """The result of a call if the like of it has run before, else ``None``.

    Shapes, strides, types, alignments and devices of a call that was accepted decide everything about it, except whether ``out``
    overlaps an input. That is judged by address ranges here; where they meet, the long way finds out.

    Parameters
    ----------
    head : hashable
        The function, and all arguments that are no arrays: equal ones mean the same.
    inputs : tuple
        The operands.
    out : array or None
        Receives the result. An input that is ``out`` itself, element by element, is left out of ``inputs``.
    *scalars
        What the launch takes behind addresses and stream.
    """
    key, addresses = [head], []                         # as key_of_call, without its calls: they would be noticed here
    for x in inputs if out is None else (*inputs, out):
        if type(x) is not _NDARRAY:
            return None
        data = x.data
        address = data.ptr
        addresses.append(address)
        key.append((x.shape, x.strides, id(x.dtype), address & 15, data.device_id))
    if out is None:
        key.append(None)
    try:
        ready = _ready.get(tuple(key))
    except TypeError:                                   # an argument without a hash
        return None
    if ready is None:
        return None
    launch, pick, tick, several, shape, strides, order, dtype, nbytes, near, _types = ready
    if several and current_device() != data.device_id:
        return None
    if out is None:
        memory = cupy.cuda.alloc(nbytes)
        address = memory.ptr
        if address & 15:
            return None
        addresses.append(address)
        out = _made(shape, dtype, memory, strides, order)
    else:
        for i, below, above in near:
            if below < address - addresses[i] < above:
                return None
    try:
        launch(addresses if pick is None else pick(addresses), current_stream(), *scalars)
    except cupy.cuda.memory.OutOfMemoryError:           # the long way has an alternative
        return None
    tick()
    return out


class Recorder(Cupy):
    """The engine of one call, which notes what the call comes to."""

    def __init__(self) -> None:
        self._launches = 0
        self._last: tuple[Plan, Mapping[str, Any]]
        self._created = 0

    def empty(self, like: Memory) -> Any:
        """A new array from CuPy's allocator."""
        self._created += 1
        return super().empty(like)

    def run(self, plan: Plan, arrays: Mapping[str, Any], alpha: Any = 1, beta: Any = 0,
            numbers: Mapping[str, Any] | None = None) -> None:
        """Launch a plan on the current stream."""
        self._launches += 1
        self._last = plan, arrays
        super().run(plan, arrays, alpha, beta, numbers)

    def nothing_but(self, *, launches: int, created: int) -> bool:
        """Whether the call came to so many launches and new arrays; who copies an operand or a result needs one more."""
        return (self._launches, self._created) == (launches, created)

    def remember(self, function: str, head: Hashable, inputs: Sequence[Any], out: Any, result: Any, roles: Sequence[str]) -> None:
        """Let :func:`repeated` answer calls like this one, if it came to one launch on the operands and the result themselves.

        Parameters
        ----------
        function : str
            On whose account they are counted.
        head, inputs, out
            As :func:`repeated` will get them.
        result : array
            What the call returned.
        roles : sequence of str
            What each input and, last, the result is to a plan.
        """
        self.remember_launch(function, head, inputs, out, result, roles)

    def remember_launch(self, function: str, head: Hashable, inputs: Sequence[Any], out: Any, result: Any,
                        roles: Sequence[str]) -> bool:
        """As :meth:`remember`, and say whether the call was such a one."""
        arrays = (*inputs, result)
        if not self.nothing_but(launches=1, created=out is None) or {type(x) for x in arrays} != {cupy.ndarray}:
            return False
        plan, given = self._last
        named = dict(zip(roles, arrays, strict=True))
        wanted = plan.problem.roles
        if any(role not in named or given[role].data.ptr != named[role].data.ptr for role in wanted):
            return False
        pick = None if tuple(wanted) == tuple(roles) else itemgetter(*map(list(roles).index, wanted))
        self.make_ready(head, inputs, out, result, launcher_for(plan, result.data.device_id), pick,
                        tally(function, "calls", plan.family).tick)
        return True

    def make_ready(self, head: Hashable, inputs: Sequence[Any], out: Any, result: Any, launch: Callable[..., Any],
                   pick: Callable[[list[int]], tuple[int, ...]] | None, tick: Callable[[], Any]) -> None:
        """Note what :func:`repeated` launches and counts for calls like this one."""
        *spans, (low, high) = (self.memory(x).span for x in (*inputs, result))
        near = tuple((i, first - high, end - low) for i, (first, end) in enumerate(spans))
        if (key := key_of_call(head, inputs, out)) is None:
            return
        types = tuple(x.dtype for x in (*inputs, result))
        strides: tuple[int, ...] | None = result.strides
        order = "F" if result.flags.f_contiguous and not result.flags.c_contiguous else "C"
        if _made(result.shape, result.dtype, result.data, None, order).strides == strides:
            strides = None
        ready = _Ready(launch, pick, tick, several_devices(), result.shape, strides, order, result.dtype, result.nbytes, near,
                       types)
        if len(_ready) >= MOST_READY:
            _ready.clear()
        with suppress(TypeError):                       # an argument without a hash
            _ready[key] = ready


def matmul(x1: Any, x2: Any, out: Any, precision: str, variant: str | None, arguments: Mapping[str, Any]) -> Any:
    """``matmul`` where an operand is a CuPy array: see :func:`cuteblas.matmul`."""
    if out is ... and "matmul" in UFUNCS:
        out = None
    for x in (x1, x2, out):
        if kind_of(x) == "foreign":
            return delegate(f"{type(x).__name__} answers ufuncs itself", x1, x2, out, arguments, variant)
    product = judged(x1, x2, out, arguments)
    from ._cupy_programs import ProgramRecorder

    with on_device_of(x1):
        staging = stage(CUPY.memory(x1), CUPY.memory(x2), None if out is None else CUPY.memory(out), product, precision, variant)
        engine = ProgramRecorder()
        result = execute(engine, x1, x2, out, staging)
        if not arguments and variant is None:
            for name in (precision, None) if precision == "auto" else (precision,):
                engine.remember("matmul", ("matmul", name), (x1, x2), out, result, "abc")
    return result


def repeated_matmul(x1: Any, x2: Any, out: Any, precision: str | None) -> Any:
    """The product of plain CuPy arrays if the like of it has run before, else ``None``."""
    return repeated(("matmul", precision), (x1, x2), out)


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
    return arranged("copy", a, order, variant)


def copied_into(a: Any, out: Any, variant: str | None) -> Any:
    """``copy`` with ``out`` where one of both is a CuPy array: see :func:`cuteblas.copy`."""
    in_place = isinstance(a, cupy.ndarray) and isinstance(out, cupy.ndarray) and a.data.ptr == out.data.ptr
    inputs: tuple[Any, ...] = () if in_place else (a,)
    head = ("copy", "in place", a.shape, a.strides, a.dtype, a.data.device_id, variant) if in_place else ("copy", "out", variant)
    if repeated(head, inputs, out) is None:
        require_one_device("copy", {"the array": a, "out": out})
        check_out(a, out)
        with on_device_of(out):
            engine = Recorder()
            copy_into("copy", engine, a, out, variant)
            engine.remember("copy", head, inputs, out, out, ("dst",) if in_place else ("src", "dst"))
    return out


def contiguous(function: str, a: Any, order: str, dtype: Any, variant: str | None) -> Any:
    """``ascontiguousarray`` or ``asfortranarray`` of a CuPy array: see :func:`cuteblas.ascontiguousarray`."""
    if dtype is not None and (target := np.dtype(dtype)) != a.dtype:
        return of_type(function, getattr(cupy, function), order, a, target, variant)
    flags = a.flags
    if flags.c_contiguous if order == "C" else flags.f_contiguous:
        tally(function, "calls", "nothing").tick()
        return a if a.ndim else a.reshape(1)
    return arranged(function, a, order, variant)


def of_type(function: str, call: Callable[..., Any], order: str, a: Any, dtype: np.dtype, variant: str | None) -> Any:
    """A new array in an order with the elements of ``a`` in another type, by CuPy's ``call`` where that keeps them."""
    head = function, order, "cast", dtype.char
    loses = a.dtype.kind == "c" and dtype.kind != "c"   # imaginary parts, of which every call warns
    repeats = variant is None and not loses and dtype is np.dtype(dtype.char)
    if repeats and (new := repeated(head, (a,), None)) is not None:
        return new
    reason = f"changes {a.dtype} to {dtype}"
    refuse_variant(variant, reason)
    np.zeros(1, a.dtype).astype(dtype)                  # warns
    if not all(has_kernels(x) and x.isnative for x in (a.dtype, dtype)):
        raise TypeError(f"{function} has no kernel on the GPU that makes {dtype} of {a.dtype}")
    with on_device_of(a):
        if not flushed_by_a_cast(without_imaginary_part(np.zeros(0, a.dtype), dtype).dtype, dtype):
            tally(function, "calls", f"delegated to CuPy: {reason}").tick()
            return call(without_imaginary_part(CUPY.aligned(a, function), dtype), dtype)
        from ._cupy_programs import ProgramRecorder

        engine = ProgramRecorder()
        source = a if a.ndim else engine.derived(a.reshape(1), a)
        memory = replace(engine.memory(source), dtype=dtype)
        new = engine.empty(replace(memory, strides=strides_by_order(memory, order)))
        engine.assign(new, source)
        engine.count(function, "calls", reason)
        if repeats:
            engine.remember(function, head, (a,), None, new, "xc")
    return new


def arranged(function: str, a: Any, order: str, variant: str | None) -> Any:
    """A new array with the elements of ``a`` in an order; what has run before is launched at once."""
    head = function, order, variant
    new = repeated(head, (a,), None)
    if new is None:
        with on_device_of(a):
            engine = Recorder()
            new = new_like(function, engine, a, order, variant)
            engine.remember(function, head, (a,), None, new, ("src", "dst"))
    return new


def repeated_copy(function: str, a: Any, order: Any, out: Any = None) -> Any:
    """A copy of a plain CuPy array in an order if the like of it has run before, or itself if that is asked for; else ``None``."""
    if out is not None:
        return repeated(("copy", "out", None), (a,), out) if type(order) is str and order == "K" else None
    new = repeated((function, order, None), (a,), None)
    if new is None and function != "copy" and a.ndim:
        flags = a.flags
        if flags.c_contiguous if order == "C" else flags.f_contiguous:
            tally(function, "calls", "nothing").tick()
            return a
    return new


forget_in_children(_ready.clear)
fast_paths[cupy.ndarray] = repeated_matmul
fast_copies[cupy.ndarray] = repeated_copy
forget_in_children(lambda: fast_copies.pop(cupy.ndarray, None))
repeaters[cupy.ndarray] = repeated
