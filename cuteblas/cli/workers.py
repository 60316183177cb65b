"""Processes that plan and compile, into the cache on disk, while another one measures."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, get_context
from pathlib import Path

from ..runtime import ring

__all__ = ["Workers", "processors"]

_MOST_PROCESSES = 32


def processors() -> int:
    """Processors that this process may use, which in a container are fewer than there are."""
    count = ring.processors()
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        count = min(count, round(int(quota) / int(period)))    # without a limit the quota is a word
    return max(1, min(count, _MOST_PROCESSES))


class Workers(ProcessPoolExecutor):
    """Call functions of modules in other processes; ``spared`` processors are left to others."""

    def __init__(self, spared: int = 0):
        self._others = {child.pid for child in active_children()}
        # Ctrl-C is for the process that measures
        super().__init__(max(1, processors() - spared), get_context("spawn"), signal.signal,
                         (signal.SIGINT, signal.SIG_IGN))

    def __exit__(self, *error: object) -> None:
        own = [child for child in active_children() if child.pid not in self._others]
        self.shutdown(wait=False, cancel_futures=True)
        for child in own:                               # which may have minutes of work before them
            child.terminate()
