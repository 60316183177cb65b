"""Records of plans for other processes, which launch their kernels at once, without planning, source or compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .._cache import find
from ..codegen.dtypes import DType, dtype
from ..planning.plan import Argument, Launch
from .architectures import target_architecture
from .compiler import cubin_name
from .executor import Executor
from .loading import is_loaded, load_cubin

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["KeptKernel", "KeptMap", "KeptParam", "KeptPlan", "executor_of", "record_of"]


class KeptParam(NamedTuple):
    """A parameter of a kernel: see :class:`~cuteblas.codegen.kernel.Param`."""

    name: str
    kind: str
    dtype: DType


class KeptMap(NamedTuple):
    """A tensor map: see :class:`~cuteblas.codegen.kernel.TensorMapSpec`."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


class KeptKernel(NamedTuple):
    """A kernel: see :class:`~cuteblas.codegen.kernel.GeneratedKernel`; ``cubin`` is its machine code's name in the cache."""

    name: str
    params: tuple[KeptParam, ...]
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int]
    waits: bool
    cubin: str


class KeptPlan(NamedTuple):
    """A plan: see :class:`~cuteblas.planning.plan.Plan`."""

    roles: tuple[str, ...]
    arch: str
    launches: tuple[Launch, ...]
    workspace_bytes: int


def record_of(plan: Plan, ordinal: int) -> dict[str, Any] | None:
    """A plan that has been launched on a device as values that JSON has; ``None`` if its kernels are not those of this process."""
    if not plan.launches or not all(is_loaded(launch.kernel, ordinal) for launch in plan.launches):
        return None
    launches = []
    for launch in plan.launches:
        kernel = launch.kernel
        arguments = [[x.role, [x.value.real, x.value.imag] if isinstance(x.value, complex) else x.value, x.offset,
                      None if (box := x.tensor_map) is None else [box.dtype.name, box.shape, box.strides, box.box, box.swizzle]]
                     for x in launch.arguments]
        launches.append({
            "name": kernel.name, "params": [[param.name, param.kind, param.dtype.name] for param in kernel.params],
            "threads": kernel.threads, "shared_bytes": kernel.shared_bytes, "cluster": kernel.cluster, "waits": kernel.waits,
            "cubin": cubin_name(kernel, target_architecture(kernel.arch, plan.arch)), "grid": launch.grid, "arguments": arguments})
    return {"roles": plan.roles, "arch": plan.arch, "workspace_bytes": plan.workspace_bytes, "launches": launches}


def executor_of(record: Mapping[str, Any], ordinal: int) -> Executor | None:
    """The executor of a recorded plan on a device, which is the current one.

    Returns
    -------
    Executor or None
        ``None`` if the cache has lost the machine code of a kernel.

    Raises
    ------
    KeyError, TypeError, ValueError
        If this is not such a record.
    DriverError
        If the driver refuses a kernel.
    """
    from cupy.cuda import driver

    launches, functions = [], []
    for given in record["launches"]:
        params = tuple(KeptParam(name, kind, dtype(of)) for name, kind, of in given["params"])
        kernel = KeptKernel(given["name"], params, given["threads"], given["shared_bytes"], tuple(given["cluster"]),
                            given["waits"], given["cubin"])
        if (cubin := find("entries", kernel.cubin)) is None:
            return None
        functions.append(load_cubin(kernel, cubin, kernel.cubin, ordinal).function)
        launches.append(Launch(kernel, tuple(given["grid"]), tuple(map(_argument, given["arguments"]))))  # type: ignore[arg-type]
    plan = KeptPlan(tuple(record["roles"]), record["arch"], tuple(launches), record["workspace_bytes"])
    return Executor(plan, ordinal, functions, driver.launchKernel)


def _argument(given: Any) -> Argument:
    role, value, offset, box = given
    if box is not None:
        of, shape, strides, extents, swizzle = box
        box = KeptMap(dtype(of), tuple(shape), tuple(strides), tuple(extents), swizzle)
    return Argument(role, complex(*value) if isinstance(value, list) else value, box, offset)
