"""The launches of a plan as a CUDA graph, which one call of the driver starts.

``cuLaunchKernel`` takes the host 3 to 4 us, a graph 2 us, and 1 us for each changed argument node.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._forks import orphaned
from .driver import LaunchError, driver_function
from .errors import DriverError

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


class Call(NamedTuple):
    """One launch: its launcher, function, blocks, threads, shared bytes and ``kernelParams``, and
    whether it may begin while the one before runs."""

    launch_kernel: Callable[..., Any]
    function: int
    x: int
    y: int
    z: int
    threads: int
    shared_bytes: int
    parameters: int
    overlaps: bool


class _Edge(ctypes.Structure):
    """``CUgraphEdgeData``."""

    _fields_ = (("from_port", ctypes.c_ubyte), ("to_port", ctypes.c_ubyte),
                ("type", ctypes.c_ubyte), ("_reserved", ctypes.c_ubyte * 5))


_COMPLETE = _Edge()
_PROGRAMMATIC = _Edge(from_port=1, type=1)      # what programmatic stream serialization is there


class _Parameters(ctypes.Structure):
    _fields_ = (("function", _POINTER), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("parameters", _POINTER), ("extra", _POINTER),
                ("kernel", _POINTER), ("context", _POINTER))


_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "cuGraphCreate": (_POINTER, ctypes.c_uint), "cuGraphDestroy": (_POINTER,),
    "cuGraphAddKernelNode_v2": (_POINTER, _POINTER, _POINTER, _SIZE, _POINTER),
    "cuGraphAddDependencies_v2": (_POINTER, _POINTER, _POINTER, _POINTER, _SIZE),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, ctypes.c_uint64),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphExecKernelNodeSetParams_v2": (_POINTER, _POINTER, _POINTER),
    "cuGraphLaunch": (_POINTER, _POINTER)}
"""By functions of the driver; before 12.3 it lacks ``cuGraphAddDependencies_v2``."""


def _function(name: str) -> Callable[..., int]:
    return driver_function(name, *_PARAMETERS[name])


def _call(name: str, *arguments: Any) -> None:
    _done(_function(name)(*arguments))


def _done(status: int) -> None:
    if status:
        raise LaunchError(status, f"CUDA error {status}")


class LaunchGraph:
    """Launches as a graph, each after the one before it, overlapping as on a stream."""
    # For one thread, and one stream: on another, the driver would let it wait for the first.
    # Changed arguments are read from where those of the calls are. It is not captured from a
    # stream: meanwhile no thread of the process could wait for the device.

    def __init__(self, calls: Sequence[Call]):
        self._graph, self._executable = _POINTER(), _POINTER()
        self._launch = _function("cuGraphLaunch")
        self._update = _function("cuGraphExecKernelNodeSetParams_v2")
        _call("cuGraphCreate", ctypes.byref(self._graph), 0)
        self._kept = [_Parameters(call.function, (call.x, call.y, call.z), (call.threads, 1, 1),
                                  call.shared_bytes, call.parameters) for call in calls]
        nodes = [_POINTER() for _ in calls]
        for i, (call, node) in enumerate(zip(calls, nodes, strict=True)):
            _call("cuGraphAddKernelNode_v2", ctypes.byref(node), self._graph, None, 0,
                  ctypes.byref(self._kept[i]))
            if i:
                edge = _PROGRAMMATIC if call.overlaps else _COMPLETE
                _call("cuGraphAddDependencies_v2", self._graph, ctypes.byref(nodes[i - 1]),
                      ctypes.byref(node), ctypes.byref(edge), 1)
        _call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, 0)
        self._handle = self._executable.value
        self._updates = [(self._handle, node.value, ctypes.addressof(kept))
                         for node, kept in zip(nodes, self._kept, strict=True)]

    def update(self, number: int) -> None:
        status = self._update(*self._updates[number])
        if status:
            _done(status)

    def launch(self, stream: int) -> None:
        status = self._launch(self._handle, stream)
        if status:
            _done(status)

    def __del__(self) -> None:
        if not orphaned():
            if self._executable:
                _function("cuGraphExecDestroy")(self._executable)
            if self._graph:
                _function("cuGraphDestroy")(self._graph)


def graph_of(calls: Sequence[Call]) -> LaunchGraph | None:
    """Launches as a graph; ``None`` where the driver makes none of them."""
    try:
        return LaunchGraph(calls)
    except (DriverError, RuntimeError):
        return None
