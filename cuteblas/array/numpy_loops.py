"""The loops of NumPy's generalized ufuncs, replaced by ``PyUFunc_ReplaceLoopBySignature``.

A loop gets addresses; the number of products and core extents; strides in bytes, from a product to
the next, then along core dimensions; and its own data. By then types are cast, elements aligned,
``out`` and operands apart, and batches broadcast.
"""

from __future__ import annotations

import ctypes
import re
import signal
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any

import numpy as np

from ..engines.counters import tally
from ..engines.memory import array_at
from .machine import either

__all__ = ["TYPES", "Loop", "count_failure", "raised_elsewhere", "why_unavailable"]

TYPES = "?bBhHiIlLqQefdFD"
"""Type characters of the loops that are replaced: those that have kernels."""

_REPLACE = 30            # the place of PyUFunc_ReplaceLoopBySignature in the table of NumPy's C API

_Words = ctypes.POINTER(ctypes.c_ssize_t)
_Entered = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _Words, _Words, _Words)
_Pointer = ctypes.c_void_p


def why_unavailable() -> str | None:
    """Why loops cannot be replaced in this interpreter; ``None`` if they can."""
    api = getattr(ctypes, "pythonapi", None)
    if api is None:
        return "this Python has no C API"
    current, main = api.PyInterpreterState_Get, api.PyInterpreterState_Main
    current.restype = main.restype = ctypes.c_void_p
    if current() != main():
        # what they call would run in another one
        return "NumPy's loops can be replaced in the main interpreter only"
    try:
        _replacer()
        either(0, 0, ctypes.c_double(), 2)
    except (AttributeError, ImportError, ValueError) as error:
        return f"NumPy {np.__version__} has no C API that replaces loops: {error}"
    except OSError as error:
        return f"a loop in machine code cannot be made: {error}"
    return None


@cache
def _replacer() -> Callable[..., int]:
    from numpy._core._multiarray_umath import _UFUNC_API  # type: ignore[import-not-found]

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = _Pointer, [ctypes.py_object, ctypes.c_char_p]
    table = (_Pointer * (_REPLACE + 1)).from_address(pointer(_UFUNC_API, None))
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, _Pointer,
                                  ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_Pointer))
    return prototype(table[_REPLACE] or 0)


def count_failure(function: str, error: BaseException) -> None:
    """Count a call that NumPy computes because ours failed."""
    reason = "no memory" if isinstance(error, MemoryError) else f"{type(error).__name__} where NumPy has none"
    tally(function, "calls", f"delegated to NumPy: {reason}").tick()


class Loop:
    """One loop of a generalized ufunc of two operands, and ours that takes its place."""
    # From ``least`` multiplications on, ``serve`` gets the loop and what ``arrays`` takes; it says
    # whether it has computed the products, else the original does. Machine code reads ``word``:
    # ``least``, or less for smaller calls.

    def __init__(self, ufunc: np.ufunc, types: str, least: int, serve: Callable[..., bool]):
        self.word = ctypes.c_double(least)
        self.ufunc, self.types, self.least = ufunc, types, least
        self._dtypes = [*map(np.dtype, types.replace("->", ""))]
        self._serve = serve
        names: dict[str, int] = {}
        self._core = [[names.setdefault(name, len(names)) for name in re.findall(r"\w+", part)]
                      for part in re.findall(r"\(.*?\)", str(ufunc.signature))]
        self._axes = len(names)
        # typedef struct {PyObject_HEAD int nin, nout, nargs, identity; PyUFuncGenericFunction
        # *functions; ...} PyUFuncObject
        functions = _Pointer.from_address(id(ufunc) + object.__basicsize__ + 4
                                          * ctypes.sizeof(ctypes.c_int))
        self._place = _Pointer.from_address((functions.value or 0) + ufunc.types.index(types)
                                            * ctypes.sizeof(_Pointer))
        self._ours: dict[int, int] = {}                 # by the original

    def link(self) -> None:
        current = self._there()
        if current in self._ours.values():
            return
        if current not in self._ours:
            ours = _Entered(self._callback())
            for kept in (ours, self.word):       # NumPy may have them longer than this module lasts
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
            self._ours[current] = either(ctypes.cast(ours, _Pointer).value or 0, current, self.word,
                                         self._axes + 1)
        if self._replace(self._ours[current]) != current:
            self._replace(current)
            raise RuntimeError(
                f"NumPy {np.__version__} keeps the loops of {self.ufunc.__name__} in an unexpected place"
            )

    def unlink(self) -> None:
        """Restore the original; a loop over ours stays, and ours passes everything on."""
        for original, ours in self._ours.items():
            if self._there() == ours:
                self._replace(original)
                return

    def _there(self) -> int:
        return self._place.value or 0

    def _replace(self, loop: int) -> int:
        before = _Pointer()
        numbers = (ctypes.c_int * len(self._dtypes))(*[dtype.num for dtype in self._dtypes])
        _replacer()(self.ufunc, loop, numbers, ctypes.byref(before))
        return before.value or 0

    def arrays(self, addresses: int, extents: Any, strides: Any) -> list[np.ndarray]:
        """Operands and result at the pointers; their first axis may count the products."""
        several, core = (extents[0],) if extents[0] != 1 else (), extents[1:1 + self._axes]
        arrays, count = [], 3
        for i, (axes, dtype, address) in enumerate(zip(
                self._core, self._dtypes, (ctypes.c_ssize_t * 3).from_address(addresses),
                strict=True)):
            steps = *strides[i:i + len(several)], *strides[count:count + len(axes)]
            count += len(axes)
            arrays.append(array_at(address, (*several, *[core[axis] for axis in axes]), steps,
                                   dtype.str, i < 2))
        return arrays

    def _callback(self) -> Callable[..., None]:
        """Our loop; however it ends, the original computes what it has not said is done."""
        serve = self._serve

        def loop(addresses: int, extents: Any, strides: Any, done: Any) -> None:
            try:
                if serve(self, addresses, extents, strides):
                    done[0] = 1
            except BaseException as error:
                try:
                    if raised_elsewhere(error):
                        _RAISED_LATER[get_ident()] = _as_class(error)
                    else:
                        count_failure(self.ufunc.__name__, error)
                except RecursionError:                  # there is room for one frame only
                    pass

        return _without_interrupts_at_its_start(loop)


# -- exceptions of signals -------------------------------------------------------------------------
def _without_interrupts_at_its_start(function: Any) -> Callable[..., None]:
    """The function without the check for signals before its first statement."""
    # Python makes the check in RESUME, unless its argument says that the function goes on after an
    # ``await`` (3).
    from dis import opmap

    code = bytearray(function.__code__.co_code)
    places = [i for i in range(0, len(code), 2) if code[i] == opmap["RESUME"] and code[i + 1] == 0]
    for place in places:
        code[place + 1] = 3
    function.__code__ = function.__code__.replace(co_code=bytes(code))
    return function


def raised_elsewhere(error: BaseException) -> bool:
    """Whether an exception is an interrupt's, a signal handler's or a tracing function's."""
    if not isinstance(error, Exception) or _LATER in error.__dict__:
        return True
    handlers = {getattr(signal.getsignal(number), "__code__", None)
                for number in signal.valid_signals()}
    trace, interrupted = error.__traceback__, object()
    while trace is not None:
        frame = trace.tb_frame
        # those get the frame
        if frame.f_code in handlers or any(x is interrupted for x in frame.f_locals.values()):
            return True
        interrupted, trace = frame, trace.tb_next
    return False


def _as_class(error: BaseException) -> type[BaseException]:
    """A class whose only instance is ``error``."""
    error.__dict__[_LATER] = True       # it may pass another loop, and has a new traceback then
    return type("Raised", (BaseException,), {"__new__": lambda kind: error})


_LATER = "_cuteblas_raised_later"


class _Setting:
    """``_RAISED_LATER[thread] = class`` raises in a thread once its program goes on."""
    # Python looks for such exceptions after calls, and not after an assignment: it is not raised
    # in the loop that makes it.

    if hasattr(ctypes, "pythonapi"):
        __setitem__ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
            ("PyThreadState_SetAsyncExc", ctypes.pythonapi))


_RAISED_LATER: Any = _Setting()
