"""The device functions ``cb::...`` that kernels call, from ``.cuh`` files: the only place with
PTX.

The emulator has functions of the same names in its own header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

from ..._dtypes import DType
from ..intrinsics import parts_of
from ..values import Use

__all__ = ["cuda_prelude"]

_PTX_TYPES = {"cb::half": "f16", "cb::bfloat16": "bf16", "float": "tf32", "signed char": "s8",
              "unsigned char": "u8", "double": "f64"}
_TOTALS = {"s8": ("int", "r", "s32"), "u8": ("int", "r", "s32"), "f64": ("double", "d", "f64")}
"""The C++ type of sums, its constraint and its PTX type, by the operands' PTX type."""
_FLOAT_TOTALS = "float", "f", "f32"


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _registers(begin: int, end: int) -> str:
    return "{" + ", ".join(f"%{i}" for i in range(begin, end)) + "}"


def _operands(constraint: str, array: str, count: int) -> list[str]:
    return [f'"{constraint}"({array}[{i}])' for i in range(count)]


def _wgmma_atom(function: str, n: int, of: list[str]) -> str:
    """One ``wgmma.mma_async`` as a function (PTX ISA, "wgmma.mma_async"); sums of bytes wrap."""
    regs, of_bytes, in_registers = n // 2, function == "wgmma_m64k32", function.endswith("_rs")
    elements, majors = (of, []) if of_bytes else ((of[:1] or ["float"]) * 2, of[1:])
    types = [_PTX_TYPES[element] for element in elements]
    total, constraint, ptx_total = _TOTALS.get(types[0], _FLOAT_TOTALS)
    declared = "unsigned const (&a)[4]" if in_registers else "unsigned long long a"
    passed = _operands("r", "a", 4) if in_registers else ['"l"(a)']
    end = regs + len(passed)
    d, a = _registers(0, regs), _registers(regs, end) if in_registers else f"%{regs}"
    outputs = ", ".join(_operands(f"+{constraint}", "d", regs))
    scales = "" if of_bytes else ", ".join(("", "1", "1", *majors))
    depth = function.removeprefix("wgmma_m64k").partition("_")[0]
    return f"""
template <> __device__ __forceinline__ void {function}<{", ".join((str(n), *of))}>(
    {total} (&d)[{regs}], {declared}, unsigned long long b, int accumulate) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{end + 1}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{ptx_total}.{'.'.join(types)} {d}, "
               "{a}, %{end}, p{scales}; }}\\n"
               : {outputs} : {", ".join(passed)}, "l"(b), "r"(accumulate));
}}
"""


def _mma_atom(m: int, n: int, k: int, element: str) -> str:
    """One ``mma.sync`` instruction as a function on registers: d += a b^T (PTX ISA, "mma")."""
    ptx = _PTX_TYPES[element]
    total, total_constraint, ptx_total = _TOTALS.get(ptx, _FLOAT_TOTALS)
    register, constraint, bits = ("double", "d", 64) if ptx == "f64" else ("unsigned", "r", 32)
    packed = bits // int(ptx.lstrip("bfsu"))         # elements of an operand in one register
    counts = m * n // 32, m * k // 32 // packed, n * k // 32 // packed
    d, a, b = (_registers(*ends) for ends in pairwise(accumulate(counts, initial=0)))
    outputs = ", ".join(_operands(f"+{total_constraint}", "d", counts[0]))
    inputs = ", ".join(_operands(constraint, "a", counts[1])
                       + _operands(constraint, "b", counts[2]))
    return f"""
template <> __device__ __forceinline__ void mma_m{m}n{n}k{k}<{element}>(
    {total}* d, {register} const* a, {register} const* b) {{
  asm volatile("mma.sync.aligned.m{m}n{n}k{k}.row.col.{ptx_total}.{ptx}.{ptx}.{ptx_total} {d}, {a}, {b}, {d};"
               : {outputs} : {inputs});
}}
"""


def _wgmma_atoms(uses: Iterable[Use]) -> str:
    atoms = sorted(uses, key=lambda use: (use.name == "wgmma_m64k32", int(use.of[0]),
                                          use.of[1:] or ("float",)))
    texts = (_wgmma_atom(name, int(n), of) for name, (n, *of) in atoms)
    return "namespace cb {" + "".join(texts) + "}  // namespace cb\n"


def _mma_atoms(uses: Iterable[Use]) -> str:
    atoms = []
    for name, (element,) in uses:
        m, n, k = map(int, name.removeprefix("mma_m").replace("n", "k").split("k"))
        atoms.append((m, n, k, element))
    atoms.sort()
    declarations = (
        f"template <class In, class D, class W> __device__ void mma_m{m}n{n}k{k}(D*, W const*, W const*);\n"
        for m, n, k in sorted({atom[:3] for atom in atoms})
    )
    return f"namespace cb {{\n{''.join(declarations)}{''.join(_mma_atom(*atom) for atom in atoms)}}}  // namespace cb\n"


_PARTS = ("core", "float8", "values", "split", "modular", "hopper", "wgmma", "warp", "mma",
          "complex", "planes")
"""Parts of the prelude, in the order in which they follow each other."""

_ATOMS: dict[str, Callable[[Iterable[Use]], str]] = {"wgmma": _wgmma_atoms, "mma": _mma_atoms}
"""Those that are written instruction by instruction; the others are files."""


def cuda_prelude(uses: Iterable[Use], types: Iterable[DType] = ()) -> str:
    """The prelude that a kernel needs, as CUDA C++ without includes."""
    needed = parts_of(uses, types)
    text = "\n".join(_ATOMS[name](needed[name]) if name in _ATOMS else _text(f"{name}.cuh")
                     for name in _PARTS if name in needed)
    # the text of kernels that are in caches of compiled ones
    return text + ("\n" if "mma" in needed else "\n\n")
