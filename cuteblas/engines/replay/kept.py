"""Recorded calls on disk: other processes launch them without planning, source or compiler.

All that decides a call names it: its key, this package's files, versions of NumPy, CuPy and the
compiler, the device, measured choices, and the limit of workspaces.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..._cache import find, keep
from ..._dtypes import DType, dtype
from ...codegen.architectures import target_architecture
from ...planning.plan import Argument, Launch, Plan
from ...runtime.compiler import cubin_name
from ...runtime.configuration import costs_file
from ...runtime.executor import Executor, PlanRecord
from ...runtime.loading import KernelRecord, is_loaded, load_cubin
from ..cuda import CUDA, several_devices
from ..settings import workspace_limit
from ..tuning import tuning_state
from .launches import Launcher, Placed, Program, made_ready
from .recording import Recorded, ticks_of

__all__ = ["executor_from_json", "fingerprint", "name_of", "plan_to_json", "read", "tuples",
           "write"]

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
