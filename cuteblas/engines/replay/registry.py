"""Which types of arrays have calls that are replayed; the replay for CuPy arrays is imported with
the first of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..._forks import forget_in_children
from ..dispatch import kind_of_type

__all__ = ["Replayable", "replays"]


class _Replays(dict[type, Callable[..., Any] | None]):
    def __missing__(self, kind: type) -> Callable[..., Any] | None:
        if kind_of_type(kind) != "cupy":
            return None
        from .cupy import NDARRAY, replay

        self[NDARRAY] = replay
        forget_in_children(lambda: self.pop(NDARRAY, None))             # where CUDA is refused
        return self.get(kind)


replays = _Replays()
"""By the type of the first operand: a function of (head, operands, out, scalars) that replays a
call like one that was recorded, and returns ``None`` for any other."""


class Replayable(NamedTuple):
    """A call that is replayed if one like it was recorded, and may be recorded.

    Attributes
    ----------
    replay : callable
        The function that replays it.
    head : hashable
        All of the call besides its arrays, as far as it decides what runs.
    inputs : tuple of array
        The arrays that are only read.
    out : array or None
        The array that is written.
    roles : tuple of str
        What each input and, last, the result is to a plan.
    scalars : tuple
        As the launch takes them.
    """

    replay: Callable[..., Any]
    head: Any
    inputs: tuple[Any, ...]
    out: Any
    roles: tuple[str, ...]
    scalars: tuple[Any, ...]

    def answer(self) -> Any:
        """The result if a call like this one was recorded, else ``None``."""
        return self.replay(self.head, self.inputs, self.out, self.scalars)
