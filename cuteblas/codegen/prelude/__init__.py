"""The device functions that generated kernels call: the only place with PTX.

A kernel body calls ``cb::`` functions for every memory access, barrier and matrix instruction. For the GPU they come from the ``.cuh``
files beside this module; for the emulator from its own header with the same names.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["cuda_prelude"]

_HOPPER = re.compile(r"cb::(mbarrier|tma|wgmma|fence_proxy|setmaxnreg|TensorMap)")
_WGMMA = re.compile(r"cb::wgmma_m64k16<(\d+), (cb::half|cb::bfloat16), ([01]), ([01])>")
_PTX_TYPE = {"cb::half": "f16", "cb::bfloat16": "bf16"}


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _wgmma_atom(n: int, element: str, major_a: int, major_b: int) -> str:
    """One ``wgmma.mma_async`` instruction as a function (PTX ISA, "wgmma.mma_async")."""
    regs = n // 2
    names = ", ".join(f"%{i}" for i in range(regs))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
    ptx = _PTX_TYPE[element]
    return f"""
template <> __device__ __forceinline__ void wgmma_m64k16<{n}, {element}, {major_a}, {major_b}>(
    float (&d)[{regs}], unsigned long long a, unsigned long long b, int accumulate) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{regs + 2}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ptx}.{ptx} {{{names}}}, %{regs}, %{regs + 1}, p, 1, 1, {major_a}, {major_b}; }}\\n"
               : {outputs} : "l"(a), "l"(b), "r"(accumulate));
}}
"""


def cuda_prelude(body: str) -> str:
    """The prelude that a kernel body needs, as CUDA C++ without includes.

    Parameters
    ----------
    body : str
        The kernel; only parts of the prelude that it calls are included.
    """
    parts = [_text("core.cuh")]
    if _HOPPER.search(body):
        parts.append(_text("hopper.cuh"))
        atoms = sorted({(int(n), t, int(a), int(b)) for n, t, a, b in _WGMMA.findall(body)})
        if atoms:
            parts.append("namespace cb {" + "".join(_wgmma_atom(*atom) for atom in atoms) + "}  // namespace cb\n")
    return "\n".join(parts) + "\n"
