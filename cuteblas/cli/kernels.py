"""List the kernels, or show one: an example of its plan, its layouts, and the cost of its memory
accesses.

  python -m cuteblas kernels
  python -m cuteblas kernels transpose_smem_swizzled --picture
  python -m cuteblas kernels tma_transpose --source
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..codegen.kernel import GeneratedKernel
from ..functions import Explanation
from ..planning import H200, ContractionProblem, CopyProblem, Plan, Storage
from ..planning.variants import CHOSEN, Variant, variants
from .command import CommandError, Parser, did_you_mean
from .explain import show
from .problems import sample_named
from .terminal import wrapped

_SQUARE = "4096x4096x4096 NNN"


def _product(name: str, output: str | None = None) -> Any:
    problem: Any = sample_named(name).problem
    return replace(problem, c=replace(problem.c, dtype=output or problem.c.dtype))


_TRANSPOSE: Any = sample_named("float32 4096x4096").problem
_ROWS = CopyProblem((4096, 4096), (4096, 1), (8192, 1), 4)
_CONTRACTION = ContractionProblem(((64, 16384, 32), (32, 512, 1)), ((512, 1, 2048),),
                                  ((16, 32, 16384), (32, 1, 512)), *(Storage("float32"),) * 3)

# By operation, in the order in which they are tried.
_EXAMPLES: dict[str, tuple[Any, ...]] = {
    "copy": (_TRANSPOSE, _ROWS),
    "contraction": (_CONTRACTION,),
    "gemm": (*(_product(f"{element} {_SQUARE}")
               for element in ("float32", "float16", "float64", "int8")),
             _product(f"float16 {_SQUARE}", "float32"), _product(f"int8 {_SQUARE}", "int32")),
}
# Of families, whose plan depends on the problem.
_OWN_EXAMPLES: dict[str, Any] = {
    "gemm_simt": _product(f"float32 {_SQUARE} by ieee"),
    "gemm_thin": _product("float32 4096x1x4096 NNN"),
    "gemm_outer": _product("complex64 4096x4096x1 NNN"),
    "gemm_modular": _product(f"float64 {_SQUARE} by modular"),
    "gemm_skinny": _product("float32 4096x64x4096 NNN"),
    "gemm_batched": _product("float32 100000x3x3x3 NNN"),
    "gemm_mma": _product(f"float64 {_SQUARE} by ieee"),
    "transpose_in_place": replace(_TRANSPOSE, in_place=True),
}


def configure(parser: Parser) -> None:
    parser.option("name NAME", "show this kernel; without a name, list them all", nargs="?")
    parser.option("--picture", "draw the layout that matters most")
    parser.option("--source", "print the CUDA C++ too")


def run(options: Namespace) -> int:
    known = variants()
    if options.name is None:
        chosen = [v for v in known.values() if v.source.startswith(CHOSEN)]
        _list("Planning chooses among these; variant= and --variant take the same names", chosen)
        _list("These run only on request, with variant= or --variant",
              [v for v in known.values() if v not in chosen])
        return 0
    if options.name not in known:
        raise CommandError(
            f"there is no kernel {options.name!r}; {did_you_mean(options.name, known, 'kernels')}"
        )
    _show(known[options.name], options.picture, options.source)
    return 0


def example(v: Variant) -> Plan:
    own = v.example or _OWN_EXAMPLES.get(v.name)
    problems = _EXAMPLES.get(v.operation, ()) if own is None else (own,)
    refused: Exception = ValueError(f"{v.name} has no example")
    for problem in problems:
        try:
            return v.plan(replace(problem, variant=v.name), H200)
        except (TypeError, ValueError) as error:
            refused = error
    raise refused


def _show(v: Variant, with_picture: bool, with_source: bool) -> None:
    plan = example(v)
    places = f"{v.arch} alone" if v.arch.endswith("a") else f"{v.arch} and later"
    runs_on = f"{places}; the plan below is for {plan.device.name}"
    show(Explanation(f"{v.name}: {v.summary} ({v.source})", runs_on, (), plan), with_picture,
         verbose=True)
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


def _list(title: str, kernels: list[Variant]) -> None:
    print(title)
    for operation in sorted({v.operation for v in kernels}):
        print(f"\n{operation}")
        for v in (v for v in kernels if v.operation == operation):
            print(f"  {v.name} ({v.arch})")
            print(wrapped(f"    {v.summary}"))
            if v.source != CHOSEN:
                print(wrapped(f"    {v.source}"))
    print()
