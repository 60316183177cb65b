"""The launches of a plan as a CUDA graph, which one call of the driver starts.

``cuLaunchKernel`` takes the host 3 to 4 us, a graph 2 us, and 1 us for each changed argument node.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from .._forks import orphaned
from .driver import driver_function
from .errors import DriverError
from .overlap import LaunchError

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_NON_BLOCKING, _RELAXED = 1, 2          # CUstream_flags, CUstreamCaptureMode


class _Parameters(ctypes.Structure):
    _fields_ = (("function", _POINTER), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("parameters", _POINTER), ("extra", _POINTER),
                ("kernel", _POINTER), ("context", _POINTER))


_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "cuGraphCreate": (_POINTER, ctypes.c_uint), "cuGraphDestroy": (_POINTER,),
    "cuStreamCreate": (_POINTER, ctypes.c_uint), "cuStreamDestroy_v2": (_POINTER,),
    "cuStreamBeginCaptureToGraph": (_POINTER, _POINTER, _POINTER, _POINTER, _SIZE, _INT),
    "cuStreamEndCapture": (_POINTER, _POINTER),
    "cuGraphGetNodes": (_POINTER, _POINTER, _POINTER),
    "cuGraphKernelNodeGetParams_v2": (_POINTER, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, ctypes.c_uint64),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphExecKernelNodeSetParams_v2": (_POINTER, _POINTER, _POINTER),
    "cuGraphLaunch": (_POINTER, _POINTER)}
"""By functions of the driver; before 12.3 it lacks ``cuStreamBeginCaptureToGraph``."""


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
    # ``parameters`` are the addresses of arrays of pointers, from where changed arguments are
    # read.

    def __init__(self, launches: Sequence[Callable[[int], Any]], parameters: Sequence[int]):
        self._graph, self._executable, stream = _POINTER(), _POINTER(), _POINTER()
        self._kept: list[_Parameters] = []
        self._launch = _function("cuGraphLaunch")
        self._update = _function("cuGraphExecKernelNodeSetParams_v2")
        _call("cuGraphCreate", ctypes.byref(self._graph), 0)
        _call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        try:
            nodes = self._captured(stream, launches)
        finally:
            _function("cuStreamDestroy_v2")(stream)
        for node, address in zip(nodes, parameters, strict=True):
            found = _Parameters()
            _call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(found))
            found.parameters, found.extra = address, None
            self._kept.append(found)
        _call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, 0)
        self._handle = self._executable.value
        self._updates = [(self._handle, node, ctypes.addressof(found))
                         for node, found in zip(nodes, self._kept, strict=True)]

    def _captured(self, stream: Any, launches: Sequence[Callable[[int], Any]]) -> list[int]:
        """The node of each launch: the one that was not in the graph before it."""
        found: list[int] = []
        _call("cuStreamBeginCaptureToGraph", stream, self._graph, None, None, 0, _RELAXED)
        try:
            for launch in launches:
                launch(stream.value)
                count = _SIZE(len(found) + 1)
                array = (_POINTER * count.value)()
                _call("cuGraphGetNodes", self._graph, array, ctypes.byref(count))
                new = {*array} - {*found}
                if count.value != len(found) + 1 or len(new) != 1:
                    raise LaunchError(0, "a launch is not one node of a graph")
                found.append(new.pop())
        finally:
            status = _function("cuStreamEndCapture")(stream, ctypes.byref(_POINTER()))
        _done(status)
        return found

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


def graph_of(launches: Sequence[Callable[[int], Any]],
             parameters: Sequence[int]) -> LaunchGraph | None:
    """Launches as a graph; ``None`` where the driver makes none of them."""
    try:
        return LaunchGraph(launches, parameters)
    except (DriverError, RuntimeError):
        return None
