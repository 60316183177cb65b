"""Recorded calls as data, which this process launches, and others without planning or compiler.

All that decides a call names its file: its key, this package's files, versions of NumPy, CuPy and
the compiler, the device, measured choices, and the limit of workspaces.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib import metadata
from itertools import accumulate
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..._cache import find, keep
from ..._dtypes import DType, dtype
from ...codegen.architectures import target_architecture
from ...planning.plan import Argument, Launch, Plan
from ...runtime.compiler import cubin_name
from ...runtime.costs import costs_file
from ...runtime.executor import Executor, PlanRecord
from ...runtime.loading import KernelRecord, is_loaded, load_cubin
from ..cuda import CUDA, several_devices
from ..settings import workspace_limit
from ..tuning import tuning_state
from .recording import Recorded, Recorder, Step, ticks_of

__all__ = ["as_one_step", "as_program", "executor_from_json", "fingerprint", "made_ready",
           "name_of", "plan_to_json", "read", "tuples", "write"]

_ALIGNMENT = 256                        # bytes, of intermediate results

Launcher = Callable[[tuple[int, ...], int], Any]
"""A function of the addresses of operands, result and intermediate results, and of a stream."""


class Placed(NamedTuple):
    """A step on numbered addresses: a plan, or a method of the engine by name, on ``arrays``, each
    a shape, a type and strides."""

    work: Any
    numbers: tuple[int, ...]
    arrays: tuple[tuple[tuple[int, ...], np.dtype, tuple[int, ...]], ...] = ()


class Program(NamedTuple):
    """The steps of a call; intermediate results share an allocation."""

    steps: tuple[Placed, ...]
    offsets: tuple[int, ...] = ()
    nbytes: int = 0


def as_one_step(recorder: Recorder, inputs: Sequence[Any], out: Any, result: Any,
                roles: Sequence[str]) -> Program | None:
    """A call of one plan on its operands and result; ``None`` with other arrays."""
    if recorder.steps_taken != 1 or recorder.arrays_made != (out is None) or not isinstance(plan := recorder.steps[0].work, Plan):
        return None
    named, wanted = dict(zip(roles, (*inputs, result), strict=True)), plan.problem.roles
    if any(role not in named or x.data.ptr != named[role].data.ptr
           for role, x in zip(wanted, recorder.steps[0].arrays, strict=True)):
        return None
    return Program((Placed(plan, tuple(map(list(roles).index, wanted))),))


def as_program(recorder: Recorder, inputs: Sequence[Any], result: Any) -> Program | None:
    """All steps of a call; ``None`` if one works on an array that is not known."""
    arrays = (*inputs, result)
    between = [x for x in recorder.made if x is not result]
    places = {id(x): i for i, x in enumerate((*arrays, *between))}
    if not (recorder.complete and recorder.steps
            and result.size) or len(places) < len(arrays) + len(between):
        return None
    steps: list[Any] = [_placed(recorder, step, places) for step in recorder.steps]
    *offsets, nbytes = accumulate((-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in between),
                                  initial=0)
    return None if None in steps else Program(tuple(steps), tuple(offsets), nbytes)


def _placed(recorder: Recorder, step: Step, places: Mapping[int, int]) -> Placed | None:
    """A step on numbered places; ``None`` if it works on another array."""
    numbers = tuple(places.get(id(recorder.beginning(x)), -1) for x in step.arrays)
    if -1 in numbers:
        return None
    return Placed(step.work, numbers, tuple((x.shape, x.dtype, x.strides) for x in step.arrays
                                            * isinstance(step.work, str)))


def made_ready(program: Program, count: int, device: int,
               launcher_of: Callable[[Any, int], Launcher | None]) -> tuple[Any, Any] | None:
    """What launches a program, and what picks its addresses from those of ``count`` operands and
    result (``None``: all); ``None`` if a plan has no launcher."""
    steps, offsets, nbytes = program
    launches: list[Any] = [partial(_call, getattr(CUDA, step.work), device, step.arrays)
                           if step.arrays else launcher_of(step.work, device) for step in steps]
    if None in launches:
        return None
    if len(steps) == 1 and not (offsets or steps[0].arrays):
        numbers = steps[0].numbers
        return launches[0], None if numbers == tuple(range(count)) else _picking(numbers)
    ready = [(launch, _picking(step.numbers)) for launch, step in zip(launches, steps, strict=True)]

    def launch_all(addresses: Sequence[int], stream: int) -> None:
        """Put all steps on CuPy's current stream, whose pool gets the allocation back in order."""
        places = tuple(addresses)
        if offsets:
            memory = cupy.cuda.alloc(nbytes)
            address = memory.ptr
            places += tuple([address + offset for offset in offsets])
        for launch, pick in ready:
            launch(pick(places), stream)

    return launch_all, None


def _call(function: Callable[..., Any], device: int, arrays: Sequence[Any],
          addresses: tuple[int, ...], _stream: int) -> None:
    """Call a function that works on CuPy's current stream."""
    def array_at(address: int, array: Any) -> Any:
        memory = cupy.cuda.UnownedMemory(address, 1, None, device)
        shape, dtype, strides = array
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)

    function(*map(array_at, addresses, arrays))


def _picking(numbers: Sequence[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    first, *others = numbers
    return itemgetter(*numbers) if others else itemgetter(slice(first, first + 1))


# -- files -----------------------------------------------------------------------------------------
_COMPILERS = "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "cuda-bindings", "cuda-core"
_TOOLKITS = "CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX"
_FACTS = "name", "major", "minor", "multiProcessorCount", "totalGlobalMem", "l2CacheSize", "sharedMemPerBlockOptin"


@cache
def _files() -> str | None:
    """A digest that changes with the files of this package; ``None`` if they are not files."""
    found, folders = [], [str(Path(__file__).parents[2])]
    try:
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif not entry.name.endswith(".pyc"):
                        state = entry.stat()
                        found.append((entry.path, state.st_size, state.st_mtime_ns))
    except OSError:
        return None
    return sha256(repr(sorted(found)).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def fingerprint(ordinal: int) -> str | None:
    """All that decides how calls on a device are launched but the call; ``None`` if unknown."""
    if os.environ.get("CUTEBLAS_KEEP_CALLS") == "0" or (files := _files()) is None:
        return None
    try:
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None
    costs = measured = None
    with suppress(OSError):
        costs = costs_file(properties["name"].decode())
        measured = costs.stat().st_mtime_ns
    return repr((files, np.__version__, cupy.__version__, cupy.cuda.runtime.driverGetVersion(),
                 *map(_version, _COMPILERS), *map(os.environ.get, _TOOLKITS),
                 *map(properties.get, _FACTS), str(costs), measured))


def _class_name(x: Any) -> dict[str, str]:
    """The name of a class that means the same in another process."""
    if type(x) is type and x.__module__ in ("builtins", "numpy"):
        return {x.__module__: x.__qualname__}
    raise TypeError


def _is_usual(dtype: np.dtype) -> bool:
    """Whether a type is the one that its name stands for."""
    return dtype.isbuiltin == 1 and np.dtype(dtype.str) is dtype


def name_of(head: Hashable, inputs: Sequence[Any], out: Any) -> str | None:
    """The name of the file of a call that may be replayed; ``None`` if it has none."""
    arrays = inputs if out is None else (*inputs, out)
    if len({x.data.device_id for x in arrays}) != 1 or not all(_is_usual(x.dtype) for x in arrays):
        return None
    where = fingerprint(arrays[0].data.device_id)
    if where is None:
        return None
    try:
        text = json.dumps(head, default=_class_name)
    except TypeError:
        return None
    parts = [(x.shape, x.strides, x.dtype.str, x.data.ptr & 15) for x in arrays]
    same = len(inputs) > 1 and inputs[0].data.ptr == inputs[1].data.ptr
    settings = f"{workspace_limit()} {tuning_state()}"
    return sha256(f"{where} {settings} {text} {parts} {out is None} {same}".encode()).hexdigest()


def read(head: Hashable, inputs: Sequence[Any], out: Any) -> Recorded | None:
    """A call that another process has kept; ``None`` if there is none, or a kernel is missing."""
    if (name := name_of(head, inputs, out)) is None or (data := find("calls", name)) is None:
        return None
    arrays = inputs if out is None else (*inputs, out)
    steps, offsets, nbytes, counted, (*layout, of, size), near = tuples(json.loads(data))
    placed = (Placed(work, numbers, tuple((shape, np.dtype(kind), strides)
                                          for shape, kind, strides in operands))
              for work, numbers, operands in steps)
    program = Program(tuple(placed), offsets, nbytes)
    with CUDA.on_device_of(arrays[0]):
        ready = made_ready(program, len(inputs) + 1, arrays[0].data.device_id, _launcher_from_json)
    return ready and Recorded._make((*ready, ticks_of(counted), several_devices(), *layout,
                                     np.dtype(of), size, near, tuple(x.dtype for x in arrays)))


def write(head: Hashable, inputs: Sequence[Any], out: Any, call: Recorded, program: Program,
          counted: Sequence[tuple[str, str, str]]) -> None:
    """Keep how a call is launched, unless something of it has no name in another process."""
    types = [call.dtype, *(dtype for step in program.steps for _n, dtype, _s in step.arrays)]
    if (name := name_of(head, inputs, out)) is None or not all(map(_is_usual, types)):
        return
    device = (*inputs, out)[0].data.device_id
    steps = [step if step.arrays else step._replace(work=plan_to_json(step.work, device))
             for step in program.steps]
    if all(step.work is not None for step in steps):
        layout = call.shape, call.strides, call.order, call.dtype, call.nbytes
        with suppress(TypeError, ValueError):           # a number that JSON does not have
            keep("calls", name, json.dumps((steps, *program[1:], counted, layout, call.near),
                                           default=attrgetter("str")).encode())


def tuples(x: Any) -> Any:
    """A value of JSON with tuples for its lists."""
    return tuple(map(tuples, x)) if isinstance(x, list) else x


# -- plans as values that JSON has -----------------------------------------------------------------
class _KeptParam(NamedTuple):
    name: str
    kind: str
    dtype: DType


class _KeptMap(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


def plan_to_json(plan: Plan, ordinal: int) -> tuple[Any, ...] | None:
    """A launched plan for other processes; ``None`` if its kernels are of another process."""
    if not plan.launches or not all(is_loaded(launch.kernel, ordinal) for launch in plan.launches):
        return None
    launches = []
    for launch in plan.launches:
        kernel = launch.kernel
        arguments = [[x.role, [x.value.real, x.value.imag] if isinstance(x.value, complex)
                      else x.value, x.offset, None if (box := x.tensor_map) is None
                      else [box.dtype.name, box.shape, box.strides, box.box, box.swizzle]]
                     for x in launch.arguments]
        cubin = cubin_name(kernel, target_architecture(kernel.arch, plan.arch))
        params = [[x.name, x.kind, x.dtype.name] for x in kernel.params]
        launches.append([kernel.name, kernel.threads, kernel.shared_bytes, kernel.waits, cubin,
                         kernel.cluster, params, launch.grid, arguments])
    return plan.roles, plan.arch, plan.workspace_bytes, launches


def executor_from_json(kept: Sequence[Any], ordinal: int) -> Executor | None:
    """The executor of a kept plan on the current device; ``None`` if the cache lost a kernel."""
    roles, arch, workspace_bytes, given = kept
    launches, functions = [], []
    for *facts, params, grid, arguments in given:
        params = tuple(_KeptParam(name, kind, dtype(of)) for name, kind, of in params)
        kernel = KernelRecord._make((*facts, params))
        if (cubin := find("entries", kernel.cubin)) is None:
            return None
        functions.append(load_cubin(kernel, cubin, ordinal).function)
        launches.append(
            Launch(kernel, grid, tuple(map(_argument, arguments)))  # type: ignore[arg-type]
        )
    plan = PlanRecord(roles, arch, workspace_bytes, tuple(launches))
    return Executor(plan, ordinal, functions, cupy.cuda.driver.launchKernel)


def _launcher_from_json(kept: Sequence[Any], ordinal: int) -> Launcher | None:
    ready = executor_from_json(kept, ordinal)
    return None if ready is None else ready.launch


def _argument(given: Any) -> Argument:
    role, value, offset, box = given
    if box is not None:
        box = _KeptMap(dtype(box[0]), *box[1:])
    return Argument(role, complex(*value) if isinstance(value, tuple) else value, box, offset)
