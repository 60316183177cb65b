"""The launches of a plan as a CUDA graph: the host starts all of them by one call of the driver.

A launch by ``cuLaunchKernel`` takes the host 3 to 4 us, and a launch of a graph of any number of
kernels 2 us. The nodes of a graph keep copies of their arguments, so that those whose arguments
have changed are told, 1 us each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from .._forks import orphaned
from .driver import driver_function
from .errors import DriverError
from .overlap import LaunchError

__all__ = ["LaunchGraph", "graph_of"]

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_NON_BLOCKING, _RELAXED = 1, 2          # CUstream_flags, CUstreamCaptureMode


class _Parameters(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (("function", _POINTER), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("parameters", _POINTER), ("extra", _POINTER),
                ("kernel", _POINTER), ("context", _POINTER))


class _Driver(NamedTuple):
    """Functions of the driver."""

    create: Callable[..., int]
    destroy: Callable[..., int]
    begin: Callable[..., int]
    end: Callable[..., int]
    nodes: Callable[..., int]
    parameters: Callable[..., int]
    instantiate: Callable[..., int]
    discard: Callable[..., int]
    update: Callable[..., int]
    launch: Callable[..., int]


@cache
def _driver() -> _Driver:
    """The functions; a driver before 12.3 lacks one of them."""
    return _Driver(driver_function("cuGraphCreate", _POINTER, ctypes.c_uint),
                   driver_function("cuGraphDestroy", _POINTER),
                   driver_function("cuStreamBeginCaptureToGraph", _POINTER, _POINTER, _POINTER,
                                   _POINTER, _SIZE, _INT),
                   driver_function("cuStreamEndCapture", _POINTER, _POINTER),
                   driver_function("cuGraphGetNodes", _POINTER, _POINTER, _POINTER),
                   driver_function("cuGraphKernelNodeGetParams_v2", _POINTER, _POINTER),
                   driver_function("cuGraphInstantiateWithFlags", _POINTER, _POINTER,
                                   ctypes.c_uint64),
                   driver_function("cuGraphExecDestroy", _POINTER),
                   driver_function("cuGraphExecKernelNodeSetParams_v2", _POINTER, _POINTER,
                                   _POINTER), driver_function("cuGraphLaunch", _POINTER, _POINTER))


def _done(status: int) -> None:
    if status:
        raise LaunchError(status, f"CUDA error {status}")


class LaunchGraph:
    """Launches as a graph, each after the one before it, and as they would overlap on a stream.

    It is not to be shared between threads, and runs on one stream: on another one, the driver would
    let it wait for the first.

    Parameters
    ----------
    launches : sequence of callable
        Each puts one kernel on a stream.
    parameters : sequence of int
        For each, the address of its array of pointers to arguments, from where changed ones are
        read.

    Raises
    ------
    DriverError
        If the driver lacks a function.
    LaunchError
        If it refuses a step.
    """

    def __init__(self, launches: Sequence[Callable[[int], Any]], parameters: Sequence[int]):
        self._graph, self._executable, stream = _POINTER(), _POINTER(), _POINTER()
        self._kept: list[_Parameters] = []
        driver = _driver()
        self._launch, self._update = driver.launch, driver.update
        _done(driver.create(ctypes.byref(self._graph), 0))
        _done(
            driver_function("cuStreamCreate", _POINTER, ctypes.c_uint)(
                ctypes.byref(stream), _NON_BLOCKING
            )
        )
        try:
            nodes = self._captured(driver, stream, launches)
        finally:
            driver_function("cuStreamDestroy_v2", _POINTER)(stream)
        for node, address in zip(nodes, parameters, strict=True):
            found = _Parameters()
            _done(driver.parameters(node, ctypes.byref(found)))
            found.parameters, found.extra = address, None
            self._kept.append(found)
        _done(driver.instantiate(ctypes.byref(self._executable), self._graph, 0))
        executable = self._executable.value
        self._updates = [(executable, node, ctypes.addressof(found))
                         for node, found in zip(nodes, self._kept, strict=True)]
        self._handle = executable

    def _captured(self, driver: _Driver, stream: Any,
                  launches: Sequence[Callable[[int], Any]]) -> list[int]:
        """The node of each launch. That is the one which was not in the graph before it."""
        found: list[int] = []
        _done(driver.begin(stream, self._graph, None, None, 0, _RELAXED))
        try:
            for launch in launches:
                launch(stream.value)
                count = _SIZE(len(found) + 1)
                array = (_POINTER * count.value)()
                _done(driver.nodes(self._graph, array, ctypes.byref(count)))
                new = {*array} - {*found}
                if count.value != len(found) + 1 or len(new) != 1:
                    raise LaunchError(0, "a launch is not one node of a graph")
                found.append(new.pop())
        finally:
            status = driver.end(stream, ctypes.byref(_POINTER()))
        _done(status)
        return found

    def update(self, number: int) -> None:
        """Read the arguments of a launch again."""
        status = self._update(*self._updates[number])
        if status:
            _done(status)

    def launch(self, stream: int) -> None:
        """Start all launches on a stream."""
        status = self._launch(self._handle, stream)
        if status:
            _done(status)

    def __del__(self) -> None:
        if not orphaned():
            driver = _driver()
            if self._executable:
                driver.discard(self._executable)
            if self._graph:
                driver.destroy(self._graph)


def graph_of(launches: Sequence[Callable[[int], Any]],
             parameters: Sequence[int]) -> LaunchGraph | None:
    """Launches as a graph; ``None`` where the driver makes none of them."""
    try:
        return LaunchGraph(launches, parameters)
    except (DriverError, RuntimeError):
        return None
