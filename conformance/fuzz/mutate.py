"""Calls that differ from another in one aspect: near ones, which must not be replayed as each
other, and wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .calls import Argument, Call, Code, Memory, Operand, View
from .draw import Building, Draw, reach

__all__ = ["near", "spoiled"]

_JUNK = ("None", "'x'", "{}", "print", "[[1, 2], [3]]", "np.ones(2, 'M8[D]')",
         "np.zeros((2, 2), 'i4,f4')", "[]", "()", "len", "np.ma.ones(3)", "slice(1)", "Ellipsis",
         "np.array(['a', 'b'])")
_BAD_KEYWORDS = (("foo", "1"), ("out", "[]"), ("out", "None"), ("out", "()"), ("out", "(None,)"),
                 ("out", "3"), ("dtype", "'f4,f4'"), ("dtype", "'nonsense'"),
                 ("casting", "'sometimes'"), ("order", "'Z'"), ("axes", "[0]"), ("axis", "7"),
                 ("axes", "3"), ("optimize", "'sometimes'"), ("optimize", "3"), ("keepdims", "2"),
                 ("precision", "'high'"), ("variant", "'none'"), ("where", "True"),
                 ("subok", "False"), ("signature", "'x'"), ("out", "np.zeros(3).tolist()"))


def near(draw: Draw, call: Call) -> Call:
    """A call like another but for one aspect, or the very same."""
    if not call.views:
        return call
    i = draw.choice(call.used() or [0])
    view = call.views[i]
    kind = draw.integer(0, 9)
    if kind == 0:
        return call
    if kind == 1:
        return _with_memory(call, view.memory, seed=draw.seed())
    if kind == 2:
        others = {2: ("<f2", "<i2"), 4: ("<f4", "<i4"), 8: ("<f8", "<i8", "<c8"), 16: ("<c16",),
                  1: ("|i1", "|u1")}
        dtype = draw.choice(others.get(np.dtype(view.dtype).itemsize, (view.dtype,)))
        if np.dtype(view.dtype).kind in "iufc":
            return _with_view(call, i, dtype=dtype)
    if kind == 3:
        shift = draw.choice((1, np.dtype(view.dtype).itemsize,
                             8)) if not np.dtype(view.dtype).hasobject else 8
        return _room(_with_view(call, i, offset=view.offset + shift))
    if kind in (4, 5):
        fresh = Building(draw)
        placed = fresh.view(fresh.array(view.shape, view.dtype, alone=True))
        memory = replace(fresh.memories[placed.memory], fill=call.memories[view.memory].fill)
        views = list(call.views)
        views[i] = replace(placed, memory=len(call.memories), holder=view.holder,
                           writeable=view.writeable)
        if 0 in placed.strides and "out" in dict(call.keywords):
            return call
        return replace(call, views=tuple(views), memories=(*call.memories, memory))
    if kind == 6 and draw.chance(0.5):
        numbers = [key for key, x in call.keywords if isinstance(x, Code)
                   and x.text.lstrip("-").replace(".", "").isdigit()]
        if numbers:
            changed, other = draw.choice(numbers), Code(draw.choice(("0", "1", "2", "0.5", "2.0",
                                                                     "-1.5", "3")))
            return replace(call, keywords=tuple((key, other if key == changed else x)
                                                for key, x in call.keywords))
    if kind == 6 and call.keywords:
        return call.without(draw.choice(call.keywords)[0])
    if kind == 7 and "out" in dict(call.keywords):
        return replace(call.without("out"), arguments=(*call.arguments, dict(call.keywords)["out"]))
    if kind == 8 and len(call.arguments) > 1:
        a, b = draw.random.sample(range(len(call.arguments)), 2)
        arguments = list(call.arguments)
        arguments[a], arguments[b] = arguments[b], arguments[a]
        return replace(call, arguments=tuple(arguments))
    if kind == 9 and view.shape:
        axis = draw.integer(0, len(view.shape) - 1)
        return _room(_with_view(call, i, shape=tuple(max(n - 1, 0) if j == axis else n
                                                     for j, n in enumerate(view.shape))))
    return call


def spoiled(draw: Draw, call: Call) -> Call:
    """A call with a mistake, most of the time."""
    kind = draw.integer(0, 7)
    if kind <= 2 and call.views:
        i = draw.choice(call.used() or [0])
        view = call.views[i]
        if kind == 0 and view.shape:
            axis = draw.integer(0, len(view.shape) - 1)
            return _room(_with_view(call, i, shape=tuple(n + 1 if j == axis else n
                                                         for j, n in enumerate(view.shape))))
        if kind == 1:
            return _room(_with_view(call, i, shape=(*view.shape, 2),
                                    strides=(*view.strides, np.dtype(view.dtype).itemsize)))
        if kind == 2 and view.shape:
            return _room(_with_view(call, i, shape=view.shape[1:], strides=view.strides[1:]))
    if kind == 3:
        key, text = draw.choice(_BAD_KEYWORDS)
        return replace(call.without(key), keywords=(*call.without(key).keywords, (key, Code(text))))
    if kind == 4 and call.arguments:
        at = draw.integer(0, len(call.arguments) - 1)
        return replace(call, arguments=tuple(Code(draw.choice(_JUNK)) if i == at else x
                                             for i, x in enumerate(call.arguments)))
    if kind == 5 and call.arguments:
        return replace(call, arguments=call.arguments[:-1])
    if kind == 6:
        extra: Argument = Operand(draw.choice(call.used())) if call.used() and draw.chance(0.5) else Code(draw.choice(_JUNK))
        return replace(call, arguments=(*call.arguments, extra))
    if kind == 7 and "out" in dict(call.keywords) and call.views:
        out = call.keyword("out")
        if isinstance(out, Operand):
            return _with_view(call, out.view, writeable=False)
    return call


def _with_view(call: Call, i: int, **changes: object) -> Call:
    views: list[View] = list(call.views)
    views[i] = replace(views[i], **changes)         # type: ignore[arg-type]
    return replace(call, views=tuple(views))


def _with_memory(call: Call, i: int, **changes: object) -> Call:
    memories: list[Memory] = list(call.memories)
    memories[i] = replace(memories[i], **changes)   # type: ignore[arg-type]
    return replace(call, memories=tuple(memories))


def _room(call: Call) -> Call:
    """The call with memories as large as its views need, and views moved up where they began too
    low."""
    memories, views = list(call.memories), list(call.views)
    for i, view in enumerate(views):
        below, above = reach(view.shape, view.strides, np.dtype(view.dtype).itemsize)
        if view.offset < below:
            view = views[i] = replace(view, offset=below)
        memory = memories[view.memory]
        needed = -(-(view.offset + max(above, 1)) // np.dtype(memory.dtype).itemsize)
        memories[view.memory] = replace(memory, count=max(memory.count, needed))
    return replace(call, views=tuple(views), memories=tuple(memories))
