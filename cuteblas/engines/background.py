"""What a call begins and does not wait for: starting CUDA, and compiling."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

from .._forks import forget_in_children

__all__ = ["later"]

_THREADS = 4                            # each compiles the kernels of a plan side by side
_P = ParamSpec("_P")
_R = TypeVar("_R")


def later(function: Callable[_P, _R], *arguments: _P.args, **named: _P.kwargs) -> Future[_R]:
    """Begin to call a function in a thread. The end of the program waits for it."""
    return _pool().submit(function, *arguments, **named)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "cuteblas")


forget_in_children(_pool.cache_clear)
