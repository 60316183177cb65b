"""Attributes of other libraries that are replaced for a while, and products that check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from ..engines.counters import stats
from ..engines.dispatch import Func

__all__ = ["MADE_BY_CHECKS", "Patch", "Switch", "checking"]

_ABSENT: Any = object()


class Patch:
    """An attribute ``name`` of ``owner`` and the hook in its place; ``function`` counts calls that
    go on to ``original``."""

    def __init__(self, place: str, owner: Any, name: str, hook: Func, function: str):
        self.place = place
        self.function = function
        self.original: Func = getattr(owner, name)
        self.hook = wraps(self.original)(hook)
        self._owner = owner
        self._name = name
        self._before = _ABSENT
        self._linked = False

    def link(self) -> None:
        """Put the hook in its place, unless a patch over it still reaches it."""
        # restored by another hand, as by a reload
        if not self._linked or getattr(self._owner, self._name) is self.original:
            self._before = vars(self._owner).get(self._name, _ABSENT)
            self.original = getattr(self._owner, self._name)
            setattr(self._owner, self._name, self.hook)
            self._linked = True

    def unlink(self) -> None:
        """Restore the original; a patch over the hook stays, and the hook passes everything on."""
        if vars(self._owner).get(self._name) is not self.hook:
            return
        if self._before is _ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
        self._linked = False


class Switch:
    """Whether hooks serve calls of every thread, or will if the next product passes the check;
    ``watch`` is told of every call, its place and arguments."""

    __slots__ = ("checked", "everywhere", "pending", "watch")

    def __init__(self) -> None:
        self.everywhere = False
        self.pending = False
        self.checked = False
        self.watch: Callable[..., None] | None = None


MADE_BY_CHECKS: dict[tuple[str, str], int] = {}
"""How many products the self-tests made, by function and route."""


@contextmanager
def checking(switch: Switch, here: ContextVar[bool]) -> Iterator[None]:
    """Check hooks, which serve this block; :data:`MADE_BY_CHECKS` notes what is counted."""
    before, watching, token = stats(), switch.watch, here.set(True)
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"cuteblas cannot be installed: {error}") from error
    finally:
        switch.watch = watching
        here.reset(token)
        for function, groups in stats().items():
            for route, count in groups.get("calls", {}).items():
                made = count - before.get(function, {}).get("calls", {}).get(route, 0)
                if made > 0:
                    MADE_BY_CHECKS[function, route] = MADE_BY_CHECKS.get((function, route), 0) + made
    switch.checked = True
