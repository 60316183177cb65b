"""Attributes of other libraries that are replaced for a while, and products that check them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np

from ..engines.counters import stats
from ..engines.dispatch import Func

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


MADE_BY_CHECKS: Counter[tuple[str, str]] = Counter()
"""How many products the self-tests made, by function and route."""


class Switch:
    """The hooks in a library, and whether they serve calls: ``here`` (this thread or task is
    inside of ``enabled()``), ``everywhere``, or ``pending`` a check by the next product.
    ``blocks`` counts open ``with enabled()`` in all threads; ``watch`` is told of every call, its
    place and arguments."""

    __slots__ = ("blocks", "checked", "everywhere", "here", "pending", "places", "refused",
                 "watch")

    def __init__(self, library: str, places: Iterable[Any]) -> None:
        self.places = tuple(places)
        self.here = ContextVar(f"cuteblas_enabled_{library}", default=False)
        self.everywhere = self.pending = self.checked = False
        self.blocks = 0
        self.refused: str | None = None
        self.watch: Callable[..., None] | None = None

    def link(self) -> None:
        """Put the hooks in their places."""
        for place in self.places:
            place.link()

    def unlink(self) -> None:
        """Restore what was there before."""
        for place in self.places:
            place.unlink()

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check hooks, which serve this block; :data:`MADE_BY_CHECKS` notes what is counted."""
        before, watching, token = _calls(), self.watch, self.here.set(True)
        try:
            yield
        except Exception as error:
            raise RuntimeError(f"cuteblas cannot be installed: {error}") from error
        finally:
            self.watch = watching
            self.here.reset(token)
            MADE_BY_CHECKS.update(_calls() - before)
        self.checked = True

    def check_place(self, place: Any, call: Func, expected: Any, unreached: str, name: str) -> None:
        """Make a call, which has to arrive at a place and to return what is expected."""
        arrived: list[Any] = []
        self.watch = lambda place, *_call: arrived.append(place)
        result = call()
        if place not in arrived:
            raise RuntimeError(unreached)
        if not np.array_equal(result, expected):
            raise RuntimeError(f"a {name} differs from NumPy's")


def _calls() -> Counter[tuple[str, str]]:
    """The calls that are counted, by function and route."""
    return Counter({(function, route): count for function, groups in stats().items()
                    for route, count in groups.get("calls", {}).items()})
