"""Calls of copies and transpositions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..calls import Argument, Call, Code, Operand
from ..draw import Building, Draw

__all__ = ["MAKERS"]


def _shape(draw: Draw, least: int = 0) -> tuple[int, ...]:
    rank = max(draw.weighted({0: 0.3, 1: 1, 2: 4, 3: 2, 4: 1, 5: 0.3}), least)
    return draw.extents(rank)


def _copy(draw: Draw) -> Call:
    b = Building(draw)
    if draw.chance(0.4):
        return _into(b)
    keywords: dict[str, Argument] = {}
    if draw.chance(0.6):
        keywords["order"] = Code(repr(draw.choice(("K", "C", "F", "A", "k", "c"))))
    if draw.chance(0.05):
        keywords["subok"] = Code(draw.choice(("True", "False")))
    return b.call("copy", [b.operand(_shape(draw))], keywords)


def _into(b: Building) -> Call:
    """``copy(a, out=x)``, often one over the other."""
    draw = b.draw
    shape = _shape(draw)
    if draw.chance(0.3):                        # in place
        n = draw.extent()
        batch = draw.extents(draw.integer(0, 1)) if n < 20 else ()
        x = b.array((*batch, n, n), layout=draw.choice(("C", "C", "F", "padded", "sliced",
                                                        "misaligned")))
        view = b.view(x)
        axes = list(range(len(view.shape)))
        axes[-2:] = draw.choice((axes[-2:], axes[-2:][::-1]))
        turned = replace(view, shape=tuple(view.shape[i] for i in axes),
                         strides=tuple(view.strides[i] for i in axes))
        if draw.chance(0.2):
            axis = draw.integer(0, len(axes) - 1)
            offset = turned.offset + max(turned.shape[axis] - 1, 0) * turned.strides[axis]
            strides = tuple(-s if i == axis else s for i, s in enumerate(turned.strides))
            turned = replace(turned, offset=offset, strides=strides)
        b.room(turned)
        b.views.append(turned)
        return b.call("copy", [Operand(1)], {"out": x})
    a = b.array(shape)
    dtype = b.view(a).dtype if draw.chance(0.95) else draw.dtype()
    return b.call("copy", [a], {"out": b.out(shape, dtype)})


def _contiguous(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        b = Building(draw)
        arguments: list[Argument] = [b.operand(_shape(draw))]
        keywords: dict[str, Argument] = {}
        if draw.chance(0.3):
            dtype = Code(repr(draw.dtype()))
            if draw.chance(0.5):
                arguments.append(dtype)
            else:
                keywords["dtype"] = dtype
        return b.call(name, arguments, keywords)

    return make


def _axes(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        b = Building(draw)
        shape = _shape(draw, 2 if "matrix" in name else 1)
        rank = len(shape)
        x = b.operand(shape)

        def axis() -> int:
            return draw.integer(-rank, rank - 1) if draw.chance(0.95) else draw.integer(-6, 6)

        if name in ("transpose", "permute_dims"):
            order = draw.random.sample(range(rank), rank)
            order = [i - rank if draw.chance(0.2) else i for i in order]
            given = [] if draw.chance(0.3) else [Code(repr(tuple(order) if draw.chance(0.7)
                                                           else order))]
        elif name == "swapaxes":
            given = [Code(str(axis())), Code(str(axis()))]
        elif name == "rollaxis":
            given = [Code(str(axis())), *([Code(str(axis()))] if draw.chance(0.5) else [])]
        elif name == "moveaxis":
            some = draw.integer(1, rank)
            source, target = draw.random.sample(range(rank), some), draw.random.sample(range(rank), some)
            given = [Code(str(source[0])), Code(str(target[0]))] if some == 1 and draw.chance(0.5) else [
                Code(repr(source)), Code(repr(tuple(target)))]
        else:
            given = []
        return b.call(name, [x, *given])

    return make


MAKERS: dict[str, Callable[[Draw], Call]] = {"copy": _copy,
                                             "ascontiguousarray": _contiguous("ascontiguousarray"),
                                             "asfortranarray": _contiguous("asfortranarray"),
                                             **{name: _axes(name)
                                                for name in ("transpose", "permute_dims",
                                                             "swapaxes", "rollaxis", "moveaxis",
                                                             "matrix_transpose",
                                                             "linalg.matrix_transpose")}}
