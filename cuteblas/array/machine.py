"""One C function of two: a loop that calls ours for large products, and the original unless ours
is done.

A ``ctypes`` callback that cannot begin (no room for a frame, no memory, a tracing function that
raises) returns as if it had worked: what follows the call must not need the interpreter.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from typing import Any

__all__ = ["either"]

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
