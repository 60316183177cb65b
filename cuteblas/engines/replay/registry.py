"""Which types have replays; CuPy's is imported with the first CuPy array."""

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
"""By the first operand's type: what replays a call from (head, operands, out, scalars)."""


class Replayable(NamedTuple):
    """A call that may be replayed or recorded: ``head`` is all but its arrays, ``inputs`` are only
    read, ``roles`` are those of inputs and, last, the result."""

    replay: Callable[..., Any]
    head: Any
    inputs: tuple[Any, ...]
    out: Any
    roles: tuple[str, ...]
    scalars: tuple[Any, ...]

    def answer(self) -> Any:
        """The result if a call like this one was recorded, else ``None``."""
        return self.replay(self.head, self.inputs, self.out, self.scalars)
