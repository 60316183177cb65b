"""The loops of NumPy's generalized ufuncs, replaced by ``PyUFunc_ReplaceLoopBySignature``.

A loop gets addresses; the number of products and core extents; strides in bytes, from a product to
the next, then along core dimensions; and its own data. By then types are cast, elements aligned,
``out`` and operands apart, and batches broadcast.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import signal
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any

import numpy as np

from ..engines.counters import tally
from ..engines.memory import array_at

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


# -- one C function of two -------------------------------------------------------------------------
# A loop that calls ours for large products, and the original unless ours is done. A ``ctypes``
# callback that cannot begin (no room for a frame, no memory, a tracing function that raises)
# returns as if it had worked: what follows the call must not need the interpreter.

# void loop(args, extents, strides, data) {double products = extents[0]; intptr_t done = 0;
#                                          for (intptr_t i = last; i; i--) products *= extents[i];
#                                          if (products >= *least) first(args, extents, strides,
#                                          &done); if (!done) second(args, extents, strides, data);}
# first, second, least and last follow. One instruction a line, in the calling convention of the
# system.
_X86_64 = """
f2480f2a06      cvtsi2sd xmm0, qword ptr [rsi]
488b057c000000  mov rax, [rip + last]
f2480f2a0cc6    next: cvtsi2sd xmm1, qword ptr [rsi + rax*8]
f20f59c1        mulsd xmm0, xmm1
48ffc8          dec rax
75f1            jne next
488b055e000000  mov rax, [rip + least]
660f2e00        ucomisd xmm0, qword ptr [rax]
7306            jae many
ff254a000000    jmp [rip + second]
53              many: push rbx
55              push rbp
4154            push r12
4155            push r13
6a00            push 0                          ; done
4889fb          mov rbx, rdi
4889f5          mov rbp, rsi
4989d4          mov r12, rdx
4989cd          mov r13, rcx
4889e1          mov rcx, rsp
ff1525000000    call [rip + first]
48833c2400      cmp qword ptr [rsp], 0
7512            jne end
4889df          mov rdi, rbx
4889ee          mov rsi, rbp
4c89e2          mov rdx, r12
4c89e9          mov rcx, r13
ff1514000000    call [rip + second]
58              end: pop rax
415d            pop r13
415c            pop r12
5d              pop rbp
5b              pop rbx
c3              ret
0f1f4000        nop
"""
_WINDOWS = """
f2480f2a02      cvtsi2sd xmm0, qword ptr [rdx]
488b0584000000  mov rax, [rip + last]
f2480f2a0cc2    next: cvtsi2sd xmm1, qword ptr [rdx + rax*8]
f20f59c1        mulsd xmm0, xmm1
48ffc8          dec rax
75f1            jne next
488b0566000000  mov rax, [rip + least]
660f2e00        ucomisd xmm0, qword ptr [rax]
7306            jae many
ff2552000000    jmp [rip + second]
53              many: push rbx
55              push rbp
56              push rsi
57              push rdi
6a00            push 0                          ; done
4883ec20        sub rsp, 32                     ; where a function may keep its arguments
4889cb          mov rbx, rcx
4889d5          mov rbp, rdx
4c89c6          mov rsi, r8
4c89cf          mov rdi, r9
4c8d4c2420      lea r9, [rsp + 32]
ff1529000000    call [rip + first]
48837c242000    cmp qword ptr [rsp + 32], 0
7512            jne end
4889d9          mov rcx, rbx
4889ea          mov rdx, rbp
4989f0          mov r8, rsi
4989f9          mov r9, rdi
ff1517000000    call [rip + second]
4883c428        end: add rsp, 40
5f              pop rdi
5e              pop rsi
5d              pop rbp
5b              pop rbx
c3              ret
660f1f440000    nop
"""
_ARM64 = """
200040fd        ldr d0, [x1]
00d8615e        scvtf d0, d0
49040058        ldr x9, last
217869fc        next: ldr d1, [x1, x9, lsl #3]
21d8615e        scvtf d1, d1
0008611e        fmul d0, d0, d1
290500f1        subs x9, x9, #1
81ffff54        b.ne next
49030058        ldr x9, least
210140fd        ldr d1, [x9]
0020611e        fcmp d0, d1
6a000054        b.ge many
90020058        ldr x16, second
00021fd6        br x16
fd7bbca9        many: stp x29, x30, [sp, #-64]!
fd030091        mov x29, sp
e00701a9        stp x0, x1, [sp, #16]
e20f02a9        stp x2, x3, [sp, #32]
ff1b00f9        str xzr, [sp, #48]              ; done
e3c30091        add x3, sp, #48
50010058        ldr x16, first
00023fd6        blr x16
e01b40f9        ldr x0, [sp, #48]
a00000b5        cbnz x0, end
e00741a9        ldp x0, x1, [sp, #16]
e20f42a9        ldp x2, x3, [sp, #32]
d0000058        ldr x16, second
00023fd6        blr x16
fd7bc4a8        end: ldp x29, x30, [sp], #64
c0035fd6        ret
"""
CODES = {"x86_64": _X86_64, "amd64": _X86_64, "AMD64": _WINDOWS, "aarch64": _ARM64, "arm64": _ARM64}

_made: list[Any] = []                      # NumPy may call them longer than anybody else knows them


def either(first: int, second: int, least: ctypes.c_double, count: int) -> int:
    """The address of a loop that calls the second, and before it the first if the product of the
    first ``count`` extents is not below ``least``, with a zero for data; set, it skips the
    second."""
    if (machine := platform.machine()) not in CODES:
        raise OSError(f"there is no code for {machine}")
    return _executable(bytes.fromhex("".join(line.split()[0] for line in CODES[machine].splitlines()
                                             if line))
                       + b"".join(word.to_bytes(8, "little")
                                  for word in (first, second, ctypes.addressof(least), count - 1)))


def _executable(code: bytes) -> int:
    if os.name == "nt":
        system = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
        system.VirtualAlloc.restype = ctypes.c_void_p
        # committed; to be executed and written
        address = system.VirtualAlloc(None, ctypes.c_size_t(len(code)), 0x3000, 0x40)
        if not address:
            raise OSError(ctypes.get_last_error(), "VirtualAlloc")  # type: ignore[attr-defined]
        ctypes.memmove(address, code, len(code))
        return address
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                       mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(code)
    address = ctypes.addressof(view := ctypes.c_char.from_buffer(memory))
    system = ctypes.CDLL(None, use_errno=True)
    if system.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE),
                       mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect")
    _made.append(view)
    return address
