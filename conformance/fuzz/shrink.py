"""Making a program that fails simpler, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile

import numpy as np

from .calls import Call, Code, Items, Memory, Operand, Program, View, renamed
from .draw import reach
from .values import FILLS, contents

__all__ = ["shrunk", "tidied"]


def shrunk(program: Program, first_failing: Callable[[Iterator[Program]], Program | None],
           seconds: float = 30.0) -> Program:
    """The simplest program found within a time that still fails.

    Parameters
    ----------
    program : Program
        It fails at its last call.
    first_failing : callable
        The first of some programs that fails in the same way.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        simpler = (candidate for candidate in map(tidied, _simpler(program))
                   if candidate != program)
        found = first_failing(takewhile(lambda _: time.monotonic() < end, simpler))
        if found is None:
            break
        program = found
    return program


def _simpler(program: Program) -> Iterator[Program]:
    """Programs that are simpler by one step, the largest steps first."""
    calls = program.calls
    if len(calls) > 1:
        yield replace(program, calls=calls[-1:])
        for i in range(len(calls) - 1):
            yield replace(program, calls=(*calls[:i], *calls[i + 1:]))
    for i in reversed(range(len(calls))):
        for call in _simpler_calls(calls[i]):
            yield replace(program, calls=(*calls[:i], call, *calls[i + 1:]))


def _simpler_calls(call: Call) -> Iterator[Call]:
    for key, _ in call.keywords:
        yield call.without(key)
    yield from _fewer_operands(call)
    for i in call.used():
        yield from _smaller_axes(call, i)
    for i, memory in enumerate(call.memories):
        for fill in FILLS[:FILLS.index(memory.fill)] if memory.values is None else ():
            yield _with_memory(call, i, replace(memory, fill=fill))
    for i in call.used():
        yield from _simpler_views(call, i)
    for i, memory in enumerate(call.memories):
        yield from _simpler_values(call, i, memory)


def _fewer_operands(call: Call) -> Iterator[Call]:
    """Without one operand of einsum or multi_dot, and without one letter."""
    subscripts = call.arguments[0] if call.arguments and call.function.startswith("einsum") else None
    if isinstance(subscripts, Code) and subscripts.text.startswith("'"):
        text = subscripts.text.strip("'")
        inputs, arrow, output = text.replace(" ", "").partition("->")
        terms = inputs.split(",")
        if len(terms) == len(call.arguments) - 1 and len(terms) > 1:
            for i in range(len(terms)):
                rest = [*terms[:i], *terms[i + 1:]]
                kept = "".join(x for x in output if x in "".join(rest))
                fewer = Code(repr(",".join(rest) + arrow + kept))
                yield replace(call, arguments=(fewer, *call.arguments[1:i + 1],
                                               *call.arguments[i + 2:]))
        if text.replace(" ", "") != text:
            yield replace(call, arguments=(Code(repr(text.replace(" ", ""))), *call.arguments[1:]))
        if "..." not in text and all(isinstance(x, Operand) for x in call.arguments[1:]):
            for letter in sorted(set(text) - set(",->")):
                yield from _without_letter(call, terms, arrow, output, letter)
    for position, argument in enumerate(call.arguments):
        if isinstance(argument, Items) and len(argument.items) > 2:
            for i in range(len(argument.items)):
                shorter = replace(argument, items=(*argument.items[:i], *argument.items[i + 1:]))
                yield replace(call, arguments=(*call.arguments[:position], shorter,
                                               *call.arguments[position + 1:]))


def _without_letter(call: Call, terms: list[str], arrow: str, output: str,
                    letter: str) -> Iterator[Call]:
    views = list(call.views)
    touched: set[int] = set()
    for term, operand in zip(terms, call.arguments[1:], strict=False):
        assert isinstance(operand, Operand)
        axes = [i for i, x in enumerate(term) if x == letter]
        if operand.view in touched or len(views[operand.view].shape) != len(term):
            return
        touched.add(operand.view)
        views[operand.view] = _without_axes(views[operand.view], axes)
    out = call.keyword("out")
    if isinstance(out, Operand):
        if out.view in touched or len(views[out.view].shape) != len(output):
            return
        views[out.view] = _without_axes(views[out.view],
                                        [i for i, x in enumerate(output) if x == letter])
    text = ",".join(term.replace(letter, "") for term in terms) + arrow + output.replace(letter, "")
    yield replace(call, arguments=(Code(repr(text)), *call.arguments[1:]), views=tuple(views))


def _without_axes(view: View, axes: list[int]) -> View:
    kept = [i for i in range(len(view.shape)) if i not in axes]
    return replace(view, shape=tuple(view.shape[i] for i in kept),
                   strides=tuple(view.strides[i] for i in kept))


def _smaller_axes(call: Call, i: int) -> Iterator[Call]:
    """One extent smaller everywhere where it occurs, or in one view alone; leading axes away."""
    view = call.views[i]
    for axis, extent in enumerate(view.shape):
        for smaller in dict.fromkeys((1, 2, extent // 2, extent - 1)):
            if 0 <= smaller < extent:
                everywhere = tuple(replace(v, shape=tuple(smaller if n == extent else n
                                                          for n in v.shape)) for v in call.views)
                yield replace(call, views=everywhere)
                yield _with_view(
                    call,
                    i,
                    replace(
                        view,
                        shape=tuple(smaller if j == axis else n for j, n in enumerate(view.shape))
                    )
                )
        if extent == 1:
            yield _with_view(call, i, _without_axes(view, [axis]))
    rank = max((len(v.shape) for v in call.views), default=0)
    if len(view.shape) == rank > 2:
        yield replace(call, views=tuple(_without_axes(v, [0]) if len(v.shape) == rank else v
                                        for v in call.views))


def _simpler_views(call: Call, i: int) -> Iterator[Call]:
    view = call.views[i]
    size = np.dtype(view.dtype).itemsize
    shared = sum(call.views[j].memory == view.memory for j in call.used()) > 1
    if view.holder != "plain":
        yield _with_view(call, i, replace(view, holder="plain"))
    if not view.writeable:
        yield _with_view(call, i, replace(view, writeable=True))
    contiguous = _c_strides(view.shape, size)
    if shared:                                  # a memory of its own
        own = replace(view, memory=len(call.memories), strides=contiguous, offset=0)
        yield replace(_with_view(call, i, own),
                      memories=(*call.memories,
                                replace(call.memories[view.memory], dtype=view.dtype)))
        own = replace(view, memory=len(call.memories))
        yield replace(_with_view(call, i, own),
                      memories=(*call.memories, call.memories[view.memory]))
    if view.offset:
        yield _with_view(call, i, replace(view, offset=0))
    if view.offset % size:
        yield _with_view(call, i, replace(view, offset=view.offset // size * size))
    if view.strides != contiguous:
        yield _with_view(call, i, replace(view, strides=contiguous, offset=0))
        yield _with_view(call, i, replace(view, strides=contiguous))
        for axis, stride in enumerate(view.strides):
            for other in dict.fromkeys((contiguous[axis], abs(stride), stride // size * size)):
                if other != stride:
                    strides = tuple(other if j == axis else s for j, s in enumerate(view.strides))
                    yield _with_view(call, i, replace(view, strides=strides))
    for dtype in ("<f8", "<f4", "<i8"):
        step = np.dtype(dtype).itemsize
        if step <= size and not shared and view.dtype not in ("<f8", "<f4", dtype):
            scaled = tuple(s // size * step for s in view.strides)
            typed = _with_view(call, i, replace(view, dtype=dtype, strides=scaled,
                                                offset=view.offset // size * step))
            memory = call.memories[view.memory]
            yield _with_memory(typed, view.memory, replace(memory, dtype=dtype, values=None))


def _simpler_values(call: Call, i: int, memory: Memory) -> Iterator[Call]:
    """Explicit elements, then simpler ones."""
    if memory.count > 40 or np.dtype(memory.dtype).kind not in "biufc":
        return
    if memory.values is None:
        yield _with_memory(call, i, replace(memory, values=_spelled(contents(memory))))
        return
    for at, value in enumerate(memory.values):
        for simpler in ("0", "1", "2"):
            if value == simpler:
                break
            yield _with_memory(call, i, replace(memory, values=(*memory.values[:at], simpler,
                                                                *memory.values[at + 1:])))


def _spelled(values: np.ndarray) -> tuple[str, ...]:
    kind = values.dtype.kind
    if kind in "biu":
        return tuple(str(int(x)) for x in values)
    return tuple(_short(x) for x in values)


def _short(x: np.generic) -> str:
    text = str(x)
    return text[:-2] if text.endswith(".0") and text != "-0.0" else text


def tidied(program: Program) -> Program:
    """Without unused views and memories, and with memories as large as needed."""
    return replace(program, calls=tuple(map(_tidy_call, program.calls)))


def _tidy_call(call: Call) -> Call:
    used = call.used()
    memories = sorted({call.views[i].memory for i in used})
    views = []
    needed = dict.fromkeys(memories, 0)
    for i in used:
        view = call.views[i]
        below, above = reach(view.shape, view.strides, np.dtype(view.dtype).itemsize)
        view = replace(view, offset=max(view.offset, below))
        needed[view.memory] = max(needed[view.memory], view.offset + above)
        views.append(replace(view, memory=memories.index(view.memory)))
    kept = []
    for m in memories:
        memory = call.memories[m]
        count = -(-needed[m] // np.dtype(memory.dtype).itemsize)
        if memory.values is not None:
            values = (*memory.values, *("0",) * (count - len(memory.values)))[:count]
            memory = replace(memory, values=values)
        kept.append(replace(memory, count=count))
    names = {i: n for n, i in enumerate(used)}
    return Call(call.function, tuple(renamed(x, names) for x in call.arguments),
                tuple((key, renamed(x, names)) for key, x in call.keywords), tuple(views),
                tuple(kept))


def _with_view(call: Call, i: int, view: View) -> Call:
    return replace(call, views=(*call.views[:i], view, *call.views[i + 1:]))


def _with_memory(call: Call, i: int, memory: Memory) -> Call:
    return replace(call, memories=(*call.memories[:i], memory, *call.memories[i + 1:]))


def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
