"""One C function of two others: a loop that calls ours, and the original unless ours has said that it is done.

A callback of ``ctypes`` that cannot begin, because the interpreter has no room for another frame, no memory, or a function that
traces raises an exception, returns as if it had done its work. So what follows the call must not need the interpreter.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from typing import Any

__all__ = ["either"]

# void loop(args, extents, strides, data) {intptr_t done = 0; first(args, extents, strides, &done);
#                                          if (!done) second(args, extents, strides, data);}
# The addresses of both functions follow. One instruction a line, in the calling convention of the system.
_X86_64 = """
53              push rbx
55              push rbp
4154            push r12
4155            push r13
6a00            push 0                          ; done
4889fb          mov rbx, rdi
4889f5          mov rbp, rsi
4989d4          mov r12, rdx
4989cd          mov r13, rcx
4889e1          mov rcx, rsp
ff1523000000    call [rip + first]
48833c2400      cmp qword ptr [rsp], 0
7512            jne end
4889df          mov rdi, rbx
4889ee          mov rsi, rbp
4c89e2          mov rdx, r12
4c89e9          mov rcx, r13
ff1512000000    call [rip + second]
58              end: pop rax
415d            pop r13
415c            pop r12
5d              pop rbp
5b              pop rbx
c3              ret
6690            nop
"""
_WINDOWS = """
53              push rbx
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
ff1527000000    call [rip + first]
48837c242000    cmp qword ptr [rsp + 32], 0
7512            jne end
4889d9          mov rcx, rbx
4889ea          mov rdx, rbp
4989f0          mov r8, rsi
4989f9          mov r9, rdi
ff1515000000    call [rip + second]
4883c428        end: add rsp, 40
5f              pop rdi
5e              pop rsi
5d              pop rbp
5b              pop rbx
c3              ret
0f1f4000        nop
"""
_ARM64 = """
fd7bbca9        stp x29, x30, [sp, #-64]!
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
"""By the name that each system has for its machine."""

_made: list[Any] = []                           # NumPy may call them longer than anybody else knows them


def either(first: int, second: int) -> int:
    """The address of a loop that calls the first with the address of a zero for its data, and the second if it is still zero."""
    if (machine := platform.machine()) not in CODES:
        raise OSError(f"there is no code for {machine}")
    code = bytes.fromhex("".join(line.split()[0] for line in CODES[machine].splitlines() if line))
    return _executable(code + first.to_bytes(8, "little") + second.to_bytes(8, "little"))


def _executable(code: bytes) -> int:
    if os.name == "nt":
        system = ctypes.WinDLL("kernel32", use_last_error=True)             # type: ignore[attr-defined]
        system.VirtualAlloc.restype = ctypes.c_void_p
        address = system.VirtualAlloc(None, ctypes.c_size_t(len(code)), 0x3000, 0x40)       # committed; to be executed and written
        if not address:
            raise OSError(ctypes.get_last_error(), "VirtualAlloc")          # type: ignore[attr-defined]
        ctypes.memmove(address, code, len(code))
        return address
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(code)
    address = ctypes.addressof(view := ctypes.c_char.from_buffer(memory))
    system = ctypes.CDLL(None, use_errno=True)
    if system.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect")
    _made.append(view)
    return address
