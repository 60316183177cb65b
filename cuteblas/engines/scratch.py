"""Scratch memory on the host that is used again: first touches cost more than arithmetic."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

__all__ = ["Scratch"]

_KEPT = 1 << 21                         # bytes of a piece that outlives the call that needed it
_MOST = 2                               # of them that wait for a call


class Scratch:
    """Arrays with any values, by names, for one thread from :meth:`taken` to :meth:`give_back`."""

    def __init__(self) -> None:
        self._pieces: dict[str, np.ndarray] = {}

    @staticmethod
    def taken() -> Scratch:
        try:
            return _waiting.pop()
        except IndexError:
            return Scratch()

    def give_back(self) -> None:
        """Let another call have it, but for what is large."""
        if len(_waiting) < _MOST:
            self._pieces = {name: piece for name, piece in self._pieces.items()
                            if piece.size <= _KEPT}
            _waiting.append(self)

    def array(self, name: str, shape: tuple[int, ...], dtype: Any,
              like: np.ndarray | None = None) -> np.ndarray:
        """An array in the piece of a name, with the order of another one's matrices."""
        turned = like is not None and abs(like.strides[-2]) < abs(like.strides[-1])
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        piece = self._pieces.get(name)
        if piece is None or piece.size < nbytes:
            piece = self._pieces[name] = np.empty(nbytes, np.uint8)
        return np.ndarray((*shape[:-2], shape[-1], shape[-2]), dtype,
                          piece).swapaxes(-1, -2) if turned else np.ndarray(shape, dtype, piece)


_waiting: list[Scratch] = []
