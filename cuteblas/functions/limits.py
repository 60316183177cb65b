"""How much scratch memory a call may take."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..planning.problem import DeviceInfo

__all__ = ["limited", "planned_under_the_limit", "set_workspace_limit"]

_VARIABLE = "CUTEBLAS_WORKSPACE_LIMIT"
planned_under_the_limit: list[Callable[[], object]] = []
"""What forgets calls that are repeated without planning, which were planned under the limit that was."""


def _checked(nbytes: Any, source: str) -> int:
    try:
        limit = operator.index(int(nbytes) if isinstance(nbytes, str) else nbytes)
    except (TypeError, ValueError):
        raise TypeError(f"{source} is a number of bytes, got {nbytes!r}") from None
    if limit < 0:
        raise ValueError(f"{source} is a number of bytes, got {limit}")
    return limit


def _from_environment() -> int | None:
    value = os.environ.get(_VARIABLE)
    return _checked(value, _VARIABLE) if value else None


_limit: int | None = None
_asked = False


def _current() -> int | None:
    """The limit; that of the environment until another is set."""
    global _limit, _asked
    if not _asked:
        _limit, _asked = _from_environment(), True
    return _limit


def set_workspace_limit(nbytes: int | None) -> int | None:
    """Limit the scratch memory of a call on the GPU, for the whole process.

    A product that would need more is computed in blocks, one after the other, or by a kernel that needs less: ``explain`` says
    which.

    Parameters
    ----------
    nbytes : int or None
        Bytes at most; ``None`` for no limit. The environment variable ``CUTEBLAS_WORKSPACE_LIMIT`` sets what holds at the start.

    Returns
    -------
    int or None
        The limit until now.

    Raises
    ------
    TypeError, ValueError
        For anything else, or a negative number.
    """
    global _limit
    before, after = _current(), None if nbytes is None else _checked(nbytes, "the limit of workspaces")
    _limit = after
    for forget in planned_under_the_limit:
        forget()
    return before


def limited(device: DeviceInfo) -> DeviceInfo:
    """The device, with the limit for plans on it."""
    limit = _current()
    return device if limit is None else _limited(device, limit)


@lru_cache(maxsize=64)
def _limited(device: DeviceInfo, limit: int) -> DeviceInfo:
    return replace(device, workspace_limit=limit)
