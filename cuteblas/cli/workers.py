"""Processes that plan and compile while another one measures: what they compile is found in the
cache on disk."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..planning.problem import DeviceInfo
from ..runtime import ring

__all__ = ["Workers", "device_of_workers", "processors"]

_MOST_PROCESSES = 32
_P = ParamSpec("_P")
_R = TypeVar("_R")


def processors() -> int:
    """Processors that this process may use, which in a container are fewer than there are."""
    count = ring.processors()
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        count = min(count, round(int(quota) / int(period)))    # without a limit the quota is a word
    return max(1, min(count, _MOST_PROCESSES))


class Workers:
    """Call functions in other processes; a context manager.

    Parameters
    ----------
    device : DeviceInfo
        What :func:`device_of_workers` is in these processes.
    spared : int
        Processors that are left to others.
    """

    def __init__(self, device: DeviceInfo, spared: int = 0):
        self._others = {child.pid for child in active_children()}
        self._pool = ProcessPoolExecutor(max(1, processors() - spared), get_context("spawn"),
                                         _begin, (device,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        own = [child for child in active_children() if child.pid not in self._others]
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in own:                               # which may have minutes of work before them
            child.terminate()

    def submit(self, function: Callable[_P, _R], *arguments: _P.args,
               **named: _P.kwargs) -> Future[_R]:
        """Begin to call a function of a module."""
        return self._pool.submit(function, *arguments, **named)


_device: DeviceInfo


def _begin(device: DeviceInfo) -> None:
    """Leave Ctrl-C to the process that measures."""
    global _device
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _device = device


def device_of_workers() -> DeviceInfo:
    """The device of the :class:`Workers` that this process is one of."""
    return _device
