"""List the kernels, or show one: the plan of an example, its layouts, and the cost of its accesses.

  python -m cuteblas kernels
  python -m cuteblas kernels transpose_smem_swizzled --picture
  python -m cuteblas kernels tma_transpose --source
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from ..codegen.architectures import oldest_with
from ..codegen.kernel import GeneratedKernel
from ..functions import Explanation
from ..planning import H200, CopyProblem, GemmProblem, Operand, Plan, Storage, plan_copy, plan_gemm
from ..planning.gemm.contraction import contraction_problem
from ..planning.variants import Variant, variants
from .command import CommandError
from .explain import show
from .terminal import wrapped

__all__ = ["FAMILIES", "example"]

_N = 4096
_TRANSPOSE = CopyProblem((_N, _N), (1, _N), (_N, 1), 4)
_ROWS = CopyProblem((_N, _N), (_N, 1), (2 * _N, 1), 4)


def _product(element: str, output: str | None = None) -> GemmProblem:
    """A square product of row-major matrices."""
    return GemmProblem(_N, _N, _N, Operand(element, (_N, 1)), Operand(element, (1, _N)), Operand(output or element, (_N, 1)))


_SHAPES = (64, 32, 16, 32), (16, 32, 512)
_STRIDES = (32 * 16 * 32, 16 * 32, 32, 1), (32 * 512, 512, 1), (64 * 32, 32, 1)
_CONTRACTION = contraction_problem("mpkq,kqn->nmp", _SHAPES, _STRIDES, (Storage("float32"),) * 3)

# By operation, in the order in which they are tried.
_EXAMPLES: dict[str, tuple[Any, ...]] = {
    "copy": (_TRANSPOSE, _ROWS),
    "contraction": (_CONTRACTION,),
    "gemm": (*map(_product, ("float32", "float16", "float64", "int8")), _product("float16", "float32"), _product("int8", "int32")),
}
_CHOSEN = "what planning chooses"

FAMILIES = (
    Variant("gemm_simt", "gemm", _CHOSEN, "any product on fused multiply-adds", "sm_75", plan_gemm,
            replace(_product("float32"), precision="ieee")),
    Variant("gemm_thin", "gemm", _CHOSEN, "products with few rows or columns, at the speed of the memory that holds the larger "
            "operand", "sm_75", plan_gemm,
            replace(_product("float32"), n=1, b=Operand("float32", (1, 1)), c=Operand("float32", (1, 1)))),
    Variant("gemm_outer", "gemm", _CHOSEN, "products with K up to 8, at the speed of the memory that C is written to", "sm_75",
            plan_gemm, replace(_product("complex64"), k=1)),
    Variant("gemm_split", "gemm", _CHOSEN, "float32 and complex64 products as sums of products of float16 on Hopper's tensor "
            "cores, where the device finds that accurate", oldest_with("wgmma"), plan_gemm, _product("float32")),
    Variant("gemm_modular", "gemm", _CHOSEN, "large float64 and complex128 products as products of bytes, modulo up to 15 numbers, "
            "on Hopper's tensor cores, where the device finds that accurate", oldest_with("wgmma"), plan_gemm,
            replace(_product("float64"), precision="modular")),
    Variant("gemm_skinny", "gemm", _CHOSEN, "float32 products with few rows or columns on Hopper's tensor cores, split in "
            "registers", oldest_with("wgmma"), plan_gemm,
            replace(_product("float32"), n=64, b=Operand("float32", (1, 64)), c=Operand("float32", (64, 1)))),
    Variant("gemm_batched", "gemm", _CHOSEN, "many small matrices in a block, read and written in whole lines", "sm_75", plan_gemm,
            GemmProblem(3, 3, 3, Operand("float32", (3, 1), (9,)), Operand("float32", (1, 3), (9,)),
                        Operand("float32", (3, 1), (9,)), (100_000,))),
    Variant("gemm_wgmma", "gemm", _CHOSEN, "float16, bfloat16, integers on Hopper's tensor cores, fed by TMA; float32 as "
            "tfloat32 on request", oldest_with("wgmma"), plan_gemm, _product("float16")),
    Variant("gemm_mma", "gemm", _CHOSEN, "products on the tensor cores of a warp: float64 and complex128 ones, float16 and "
            "bfloat16 on other cards than Hopper's, and small ones of odd extents", "sm_75", plan_gemm,
            replace(_product("float64"), precision="ieee")),
    Variant("copy", "copy", _CHOSEN, "any copy whose sides run along the same mode, as vectors through registers", "sm_70",
            plan_copy, _ROWS),
    Variant("transpose", "copy", _CHOSEN, "any permutation whose sides run along different modes, through swizzled shared memory",
            "sm_70", plan_copy, _TRANSPOSE),
    Variant("transpose_in_place", "copy", _CHOSEN, "square matrices transposed in place, by pairs of tiles", "sm_70",
            plan_copy, replace(_TRANSPOSE, in_place=True)),
)
"""The kernels that calls without ``variant=`` run."""


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this kernel; without it, all are listed")
    parser.add_argument("--picture", action="store_true", help="draw the layout that matters")
    parser.add_argument("--source", action="store_true", help="print the CUDA C++ too")


def run(options: Namespace) -> int:
    """List or show.

    Raises
    ------
    CommandError
        For an unknown name.
    """
    known = {v.name: v for v in (*FAMILIES, *variants().values())}
    if options.name is None:
        print("\n".join(_listing("kernels that planning chooses", FAMILIES)))
        print("\n".join(_listing("kernels that variant= names", variants().values())))
        return 0
    if options.name not in known:
        near = get_close_matches(options.name, known, 1)
        raise CommandError(f"there is no kernel {options.name!r}; " + (f"did you mean {near[0]}? " if near else "")
                           + f"there are {', '.join(known)}")
    _show(known[options.name], options.picture, options.source)
    return 0


def example(v: Variant) -> Plan:
    """The plan for a kernel's example.

    Raises
    ------
    ValueError
        If the kernel takes none of the usual problems, with its reason for the last of them.
    """
    name = None if v in FAMILIES else v.name
    problems = (v.example,) if v.example is not None else _EXAMPLES.get(v.operation, ())
    refused: Exception = ValueError(f"{v.name} has no example")
    for problem in problems:
        try:
            return v.plan(replace(problem, variant=name), H200)
        except (TypeError, ValueError) as error:
            refused = error
    raise refused


def _show(v: Variant, with_picture: bool, with_source: bool) -> None:
    plan = example(v)
    places = f"{v.arch} alone" if v.arch.endswith("a") else f"{v.arch} and later"
    runs_on = f"{places}; the plan below is for {plan.device.name}"
    show(Explanation(f"{v.name}: {v.summary} ({v.source})", runs_on, (), plan), with_picture, verbose=True)
    for launch in plan.launches:
        print(f"\n{launch.kernel.name} was generated from")
        for line in _head(launch.kernel):
            print(wrapped(f"  {line}"))
        print(launch.kernel.signature)
    if with_source:
        print(plan.source)


def _head(kernel: GeneratedKernel) -> Iterator[str]:
    """The comment that heads a kernel: the layouts of its tensors, without what was counted."""
    for line in kernel.body.splitlines():
        if not line.startswith("//"):
            return
        if line.removeprefix("// ").partition(":")[0] not in kernel.facts:
            yield line.removeprefix("// ")


def _listing(title: str, kernels: Iterable[Variant]) -> Iterator[str]:
    kernels = list(kernels)
    yield title
    for operation in sorted({v.operation for v in kernels}):
        yield f"\n{operation}"
        for v in (v for v in kernels if v.operation == operation):
            yield f"  {v.name} ({v.arch})"
            yield wrapped(f"    {v.summary}")
            if v.source != _CHOSEN:
                yield wrapped(f"    {v.source}")
    yield ""
