"""Listeners to the plans that calls run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .settings import planned_under_the_limit

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["listeners", "listening"]

listeners: list[Callable[[Plan], object]] = []
"""Functions of every plan that runs. Read it; only :func:`listening` writes it."""


@contextmanager
def listening(listener: Callable[[Plan], object]) -> Iterator[None]:
    """Tell a function of every plan that runs meanwhile, also of calls that have run before."""
    for forget in planned_under_the_limit:
        forget()
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)
