"""Programs as a few lines of Python that run alone."""

from __future__ import annotations

import builtins

import numpy as np

from .calls import Argument, Call, Code, Memory, Operand, Program, View
from .values import contents

__all__ = ["python_of"]


def python_of(program: Program, backend: str) -> str:
    """A program that makes the calls and prints what they come to, here and by NumPy."""
    gpu = backend in ("host", "cuda")
    lines = ["import numpy as np", *(["import cupy"] if gpu else []), "import cuteblas"]
    if any(call.function.startswith("blas.") for call in program.calls):
        lines.append("import cuteblas.blas")
    lines += [f"import {module}" for module in ("operator", "copy") if any(
        call.function.startswith(f"{module}.") for call in program.calls)]
    lines += [f"from conformance.fuzz.functions import {module}"
              for module in ("epilogues", "routines")
              if any(call.function.startswith(f"{module}.") for call in program.calls)]
    for call in program.calls:
        lines += _lines(call, gpu, backend in ("emulator", "definition"))
    return "\n".join(lines)


def _lines(call: Call, gpu: bool, emulated: bool) -> list[str]:
    names = {i: "abcdefgh"[n] if n < 8 else f"x{n}" for n, i in enumerate(call.used())}
    library = "cupy" if gpu else "np"
    lines = []
    shared = {view.memory for i, view in enumerate(call.views) if i in names
              and not _whole(view, call.memories[view.memory])}
    shared |= {m for m in range(len(call.memories))
               if sum(call.views[i].memory == m for i in names) > 1}
    for m in sorted(shared):
        lines.append(
            f"m{m} = {library}.array({_elements(call.memories[m])}, {np.dtype(call.memories[m].dtype).str!r})"
        )
    for i, name in names.items():
        view, memory = call.views[i], call.memories[call.views[i].memory]
        if view.memory in shared:
            start = f"m{view.memory}.data + {view.offset}" if gpu else f"m{view.memory}, {view.offset}"
            lines.append(
                f"{name} = {library}.ndarray({view.shape}, {view.dtype!r}, {start}, {view.strides})"
            )
        else:
            shape = f".reshape({view.shape})" if len(view.shape) != 1 else ""
            lines.append(f"{name} = {library}.array({_elements(memory)}, {view.dtype!r}){shape}")
        if not view.writeable and not gpu:
            lines.append(f"{name}.flags.writeable = False")
        if view.holder == "ours":
            lines.append(f"{name} = cuteblas.ndarray({name})")
    spelled = [_spelled(x, names) for x in call.arguments] + [f"{key}={_spelled(x, names)}"
                                                              for key, x in call.keywords]
    kind, _, name = call.function.partition(".")
    if kind == "attribute":
        ours = f"{spelled[0]}.{name}"
    elif kind == "method":
        ours = f"{spelled[0]}.{name}({', '.join(spelled[1:])})"
    else:
        ours = f"{_named(call.function)}({', '.join(spelled)})"
    if emulated:
        lines.append('with cuteblas.backend("emulator"):')
        ours = "    " + ours.strip()
    indent = "    " if emulated else ""
    lines.append(f"{indent}print(repr({ours.strip()}))")
    return lines


def _named(function: str) -> str:
    return function if function.startswith(("epilogues.", "routines.", "np.", "operator.", "copy.")) or function in dir(builtins) \
        else f"cuteblas.{function}"


def _whole(view: View, memory: Memory) -> bool:
    """Whether a view is its memory in C order."""
    step = np.dtype(view.dtype).itemsize
    for extent, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return view.offset == 0 and view.dtype == memory.dtype and step == memory.count * np.dtype(memory.dtype).itemsize


def _elements(memory: Memory) -> str:
    if memory.count > 200:
        return f"<{memory.count} elements: {memory.fill}, seed {memory.seed}>"
    values = contents(memory)
    if values.dtype.kind in "biufc":
        if not values.size:
            return "[]"
        text = repr(values.tolist())
        if len(set(map(repr, values.tolist()))) == 1 and values.size > 3:
            text = f"[{values.tolist()[0]!r}] * {values.size}"
        return text.replace("nan", "np.nan").replace("inf", "np.inf")
    return repr([str(x) for x in values]) if values.dtype.kind in "mM" else repr(values.tolist())


def _spelled(argument: Argument, names: dict[int, str]) -> str:
    if isinstance(argument, Operand):
        return names[argument.view]
    if isinstance(argument, Code):
        return argument.text
    inner = ", ".join(_spelled(item, names) for item in argument.items)
    return f"[{inner}]" if argument.kind == "list" else f"({inner}{',' if len(argument.items) == 1 else ''})"
