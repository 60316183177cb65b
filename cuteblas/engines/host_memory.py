"""Memory of the host that is used again, by large NumPy arrays and by calls as scratch memory.

The kernel gives pages at their first write, which takes longer than many computations. For arrays
``reuse.cpp`` is a handler of memory (NEP 49).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Scratch", "empty_array", "free_idle", "prepare"]

_SOURCE = Path(__file__).with_name("reuse.cpp")
_SHARE = 8                              # of the host's memory: at most one part of so many is idle
_LEAST = 4 << 20                        # bytes, as in the source
_SET, _GET = 304, 305                   # of handlers, in NumPy's table of functions
_USUAL, _CAPSULE = "default_allocator", b"mem_handler"

_BUILT: Any = {"what": "an allocator of arrays", "headers": (), "flags": ("-O2", "-pthread")}
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))

_handler: Any = None
_library: Any = None


@cache
def _numpy() -> tuple[Any, Any]:
    """NumPy's functions that set a handler in the current context, and return that one."""
    table = np._core._multiarray_umath._ARRAY_API           # type: ignore[attr-defined]
    functions = ctypes.cast(_pointer(table, None), ctypes.POINTER(ctypes.c_void_p))
    returns = ctypes.PYFUNCTYPE(ctypes.py_object)(functions[_GET])
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET]), returns


def _name() -> str:
    return np._core.multiarray.get_handler_name()           # type: ignore[attr-defined]


def prepare(everywhere: bool = False) -> None:
    """Compile the handler, or find it in the cache; ``everywhere``: NumPy uses it, too."""
    # Nothing changes without a compiler, on other systems than Linux, with
    # ``CUTEBLAS_REUSE_MEMORY=0``, and where the program has its own handler.
    global _handler, _library
    wanted = os.environ.get("CUTEBLAS_REUSE_MEMORY") != "0"
    if not wanted or sys.platform != "linux" or _name() != _USUAL:
        return
    if _handler is None:
        from ..emulator.compiler import build
        from ..emulator.errors import CompilerError

        try:
            library = build(_SOURCE.read_text("utf-8"), **_BUILT)
        except CompilerError:
            return
        library.cuteblas_reuse.argtypes = ctypes.c_void_p, ctypes.c_size_t
        library.cuteblas_shrink.argtypes = (ctypes.c_size_t,)
        library.cuteblas_reuse.restype = library.cuteblas_shrink.restype = ctypes.c_size_t
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE
        own = library.cuteblas_reuse(_pointer(_numpy()[1](), _CAPSULE), most)
        _handler, _library = _capsule(own, _CAPSULE, None), library
    if everywhere:                      # contexts belong to threads
        ctypes.pythonapi.Py_AddPendingCall(_use, None)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def _use(_nothing: object) -> int:
    """Let NumPy use the handler in this context, unless it has another one by now."""
    if _name() == _USUAL:
        _numpy()[0](_handler)
    return 0


def empty_array(shape: Sequence[int], dtype: np.dtype,
                strides: Sequence[int] | None = None) -> np.ndarray:
    """An array without values, in memory that another one has left, if there is some."""
    if _handler is None or prod(shape) * dtype.itemsize < _LEAST or _name() != _USUAL:
        return np.ndarray(shape, dtype, strides=strides)
    use = _numpy()[0]
    before = use(_handler)
    try:
        return np.ndarray(shape, dtype, strides=strides)
    finally:
        use(before)


def free_idle() -> int:
    return 0 if _library is None else _library.cuteblas_shrink(0)


# -- scratch memory --------------------------------------------------------------------------------
_KEPT_BYTES = 1 << 21                   # of a piece that outlives the call that needed it
_MOST_WAITING = 2                       # of them that wait for a call


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
        if len(_waiting) < _MOST_WAITING:
            self._pieces = {name: piece for name, piece in self._pieces.items()
                            if piece.size <= _KEPT_BYTES}
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
