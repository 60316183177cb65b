"""Calls of NumPy's products of two arrays, of chains and powers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from ..calls import Argument, Call, Code, Items, Operand
from ..draw import Building, Draw

__all__ = ["MAKERS", "gufunc", "result_dtype"]

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
PRECISIONS = ("auto", "ieee", "ieee", "fp16x3", "bf16x6", "tf32", "modular")
_CORES = {"matmul": ("mk", "kn", "mn"), "vecdot": ("k", "k", ""), "matvec": ("mk", "k", "m"),
          "vecmat": ("k", "kn", "n")}


def result_dtype(b: Building, operands: Sequence[Argument]) -> str:
    """The type of the operands' product, or one near it."""
    if b.draw.chance(0.12):
        return b.draw.dtype()
    dtypes = [b.view(x).dtype for x in operands if isinstance(x, Operand)]
    try:
        return np.result_type(*map(np.dtype, dtypes)).str if dtypes else b.base
    except TypeError:
        return b.base


def _batches(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Batch extents of both operands and of the result."""
    rank = draw.weighted({0: 6, 1: 2, 2: 1})
    whole = tuple(draw.weighted({1: 1, 2: 3, 3: 3, 0: 0.2, 5: 1}) for _ in range(rank))

    def part() -> tuple[int, ...]:
        kept = tuple(1 if draw.chance(0.2) else n for n in whole)
        return kept[draw.integer(0, rank):] if draw.chance(0.3) else kept

    first, second = part(), part()
    return first, second, np.broadcast_shapes(first, second)


def gufunc(name: str) -> Callable[[Draw], Call]:
    """Calls of matmul, vecdot, matvec or vecmat."""
    def make(draw: Draw) -> Call:
        b = Building(draw)
        first, second, batch = _batches(draw)
        m, n, k = draw.extents(3)
        extents = {"m": m, "n": n, "k": k}
        cores = list(_CORES[name])
        if name == "matmul":
            if draw.chance(0.15):
                first, batch = (), second
                cores[0], cores[2] = "k", cores[2].replace("m", "")
            if draw.chance(0.15):
                second, batch = (), first
                if cores[0] == "k":
                    batch = ()
                cores[1], cores[2] = "k", cores[2].replace("n", "")
        shapes = [(*lead, *(extents[x] for x in core))
                  for lead, core in ((first, cores[0]), (second, cores[1]), (batch, cores[2]))]
        x1, x2 = b.operand(shapes[0]), b.operand(shapes[1])
        return _with_ufunc_keywords(b, name, x1, x2, shapes, cores)

    return make


def _with_ufunc_keywords(b: Building, name: str, x1: Argument, x2: Argument,
                         shapes: list[tuple[int, ...]], cores: list[str]) -> Call:
    draw = b.draw
    keywords: dict[str, Argument] = {}
    result = shapes[2]
    if name == "vecdot" and draw.chance(0.1):
        keywords["keepdims"] = Code("True")
        result = (*result, 1)
    arguments = [x1, x2]
    if draw.chance(0.3):
        out: Argument = b.out(result, result_dtype(b, (x1, x2)))
        if draw.chance(0.1):
            out = Items("tuple", (out,))
        if draw.chance(0.3):
            arguments.append(out)
        else:
            keywords["out"] = out
    if draw.chance(0.08):
        keywords["dtype"] = Code(repr(draw.dtype()))
    if draw.chance(0.1):
        keywords["casting"] = Code(repr(draw.choice(CASTINGS)))
    if draw.chance(0.08):
        keywords["order"] = Code(repr(draw.choice("KCFA")))
    if draw.chance(0.04):
        char = draw.choice("?bhilqefdFDBHIL")
        signature = draw.choice((f"{char * 2}->{char}", (char,) * 3, (None, None, char)))
        keywords[draw.choice(("signature", "sig"))] = Code(repr(signature))
    if draw.chance(0.06) and name != "matmul" and not keywords.get("keepdims"):
        keywords["axes"] = Code(repr([tuple(range(-len(core), 0)) for core in cores]))
    elif draw.chance(0.06) and name == "vecdot":
        keywords["axis"] = Code(repr(draw.choice((-1, 0, -1, 1))))
    if name == "matmul" and draw.chance(0.06):
        keywords["precision"] = Code(repr(draw.choice(PRECISIONS)))
    return b.call(name, arguments, keywords)


def _dot(draw: Draw) -> Call:
    b = Building(draw)
    k = draw.extent()
    rank1, rank2 = draw.weighted({0: 0.5, 1: 2, 2: 4, 3: 1}), draw.weighted({0: 0.5, 1: 2, 2: 4, 3: 1})
    others = draw.extents(4)
    shape1 = (*others[:max(rank1 - 1, 0)], *((k,) if rank1 else ()))
    rest = others[2:2 + max(rank2 - 1, 0)]
    shape2 = () if not rank2 else (k,) if rank2 == 1 else (*rest[:-1], k, rest[-1])
    if prod(shape1) * prod(shape2) > draw.pools.work * max(k, 1):
        return _dot(draw)
    x1, x2 = b.operand(shape1), b.operand(shape2)
    result = (*shape1[:-1], *shape2[:-2],
              *shape2[-1:]) if rank2 > 1 else shape1[:-1] if rank1 and rank2 else shape1 or shape2
    if rank1 == 0 or rank2 == 0:
        result = shape1 or shape2
    arguments, keywords = [x1, x2], dict[str, Argument]()
    if draw.chance(0.3):
        out = b.out(result, result_dtype(b, (x1, x2)), layout="C" if draw.chance(0.85) else None)
        if draw.chance(0.3):
            arguments.append(out)
        else:
            keywords["out"] = out
    _maybe_precision(draw, keywords)
    return b.call("dot", arguments, keywords)


def _maybe_precision(draw: Draw, keywords: dict[str, Argument]) -> None:
    if draw.chance(0.04):
        keywords["precision"] = Code(repr(draw.choice(PRECISIONS)))


def _vdot(draw: Draw) -> Call:
    b = Building(draw)
    shape = draw.extents(draw.weighted({0: 0.3, 1: 3, 2: 2, 3: 1}))
    other = shape
    if draw.chance(0.3):
        other = draw.choice(((prod(shape),), (1, prod(shape)), shape[::-1],
                             (*shape[1:], *shape[:1])))
    return b.call("vdot", [b.operand(shape), b.operand(other)])


def _inner(draw: Draw) -> Call:
    b = Building(draw)
    k, *others = draw.extents(draw.integer(1, 4))
    cut = draw.integer(0, len(others))
    keywords: dict[str, Argument] = {}
    _maybe_precision(draw, keywords)
    x1 = b.operand((*others[:cut], k)) if draw.chance(0.95) else b.number()
    return b.call("inner", [x1, b.operand((*others[cut:], k)) if draw.chance(0.95) else b.number()],
                  keywords)


def _outer(draw: Draw) -> Call:
    b = Building(draw)
    extents = draw.extents(draw.integer(0, 3))
    cut = draw.integer(0, len(extents))
    x1, x2 = b.operand(extents[:cut]), b.operand(extents[cut:])
    keywords: dict[str, Argument] = {}
    arguments = [x1, x2]
    if draw.chance(0.35):
        shape = (prod(extents[:cut]), prod(extents[cut:]))
        out = b.out(shape if draw.chance(0.9) else (draw.integer(1, 2), *shape),
                    result_dtype(b, (x1, x2)))
        if draw.chance(0.3):
            arguments.append(out)
        else:
            keywords["out"] = out
    return b.call("outer", arguments, keywords)


def _kron(draw: Draw) -> Call:
    b = Building(draw)
    rank1, rank2 = draw.weighted({0: 0.3, 1: 1, 2: 3, 3: 0.5}), draw.weighted({0: 0.3, 1: 1, 2: 3, 3: 0.5})
    extents = draw.extents(rank1 + rank2)
    return b.call("kron", [b.operand(extents[:rank1]), b.operand(extents[rank1:])])


def _tensordot(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        b = Building(draw)
        free1, free2 = draw.weighted({0: 1, 1: 3, 2: 1}), draw.weighted({0: 1, 1: 3, 2: 1})
        summed = draw.weighted({0: 0.5, 1: 4, 2: 2})
        extents = draw.extents(free1 + summed + free2)
        first, shared, second = extents[:free1], extents[free1:free1
                                                         + summed], extents[free1 + summed:]
        keywords: dict[str, Argument] = {}
        if draw.chance(0.4):
            shape1, shape2 = (*first, *shared), (*shared, *second)
            axes: Argument | None = Code(str(summed)) if summed != 2 or draw.chance(0.5) else None
        else:
            axes1 = draw.random.sample(range(free1 + summed), summed)
            axes2 = draw.random.sample(range(summed + free2), summed)
            shape1, shape2 = _mixed(first, shared, axes1), _mixed(second, shared, axes2)
            signed = [[axis - rank if draw.chance(0.3) else axis for axis in axes]
                      for axes, rank in ((axes1, free1 + summed), (axes2, free2 + summed))]
            axes = Code(repr((signed[0][0], signed[1][0]) if summed == 1 and draw.chance(0.3)
                             else tuple(map(tuple, signed))))
        arguments: list[Argument] = [b.operand(shape1), b.operand(shape2)]
        if axes is not None:
            if draw.chance(0.5) and name == "tensordot":
                arguments.append(axes)
            else:
                keywords["axes"] = axes
        _maybe_precision(draw, keywords)
        return b.call(name, arguments, keywords)

    return make


def _mixed(free: Sequence[int], shared: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The shape in which summed modes stand at those axes."""
    left = iter(free)
    return tuple(shared[axes.index(i)] if i in axes else next(left)
                 for i in range(len(free) + len(shared)))


def _linalg_matmul(draw: Draw) -> Call:
    call = gufunc("matmul")(draw)
    kept = tuple((key, value) for key, value in call.keywords if key == "precision")
    return Call("linalg.matmul", call.arguments[:2], kept, call.views, call.memories)


def _linalg_vecdot(draw: Draw) -> Call:
    b = Building(draw)
    first, second, _ = _batches(draw)
    k = draw.extent()
    keywords: dict[str, Argument] = {"axis": Code("-1")} if draw.chance(0.2) else {}
    if draw.chance(0.3) and len(first) == len(second) == 1:
        keywords = {"axis": Code(draw.choice(("0", "-2")))}
        return b.call("linalg.vecdot", [b.operand((k, *first)), b.operand((k, *second))], keywords)
    return b.call("linalg.vecdot", [b.operand((*first, k)), b.operand((*second, k))], keywords)


def _linalg_outer(draw: Draw) -> Call:
    b = Building(draw)
    m, n = draw.extents(2)
    return b.call("linalg.outer", [b.operand((m,)), b.operand((n,))])


def _multi_dot(draw: Draw) -> Call:
    b = Building(draw)
    count = draw.weighted({2: 1, 3: 3, 4: 2, 5: 0.5})
    extents = [min(draw.extent(), 17) for _ in range(count + 1)]
    shapes: list[tuple[int, ...]] = list(pairwise(extents))
    if draw.chance(0.2):
        shapes[0] = shapes[0][1:]
    if draw.chance(0.2):
        shapes[-1] = shapes[-1][:1]
    operands = tuple(b.operand(shape) for shape in shapes)
    keywords: dict[str, Argument] = {}
    if draw.chance(0.25):
        result = (*shapes[0][:-1], *shapes[-1][1:])
        keywords["out"] = b.out(result, result_dtype(b, operands),
                                layout="C" if draw.chance(0.9) else None)
    _maybe_precision(draw, keywords)
    return b.call("linalg.multi_dot", [Items("list" if draw.chance(0.7) else "tuple", operands)],
                  keywords)


def _matrix_power(draw: Draw) -> Call:
    b = Building(draw)
    n = min(draw.extent(), 17)
    batch = () if draw.chance(0.7) else (draw.integer(0, 3),)
    power = draw.weighted({0: 1, 1: 1, 2: 2, 3: 2, 5: 1, 8: 0.5, -1: 0.3})
    return b.call("linalg.matrix_power", [b.array((*batch, n, n)), Code(str(power))])


MAKERS: dict[str, Callable[[Draw], Call]] = {**{name: gufunc(name) for name in _CORES}, "dot": _dot,
                                             "vdot": _vdot, "inner": _inner, "outer": _outer,
                                             "kron": _kron, "tensordot": _tensordot("tensordot"),
                                             "linalg.tensordot": _tensordot("linalg.tensordot"),
                                             "linalg.matmul": _linalg_matmul,
                                             "linalg.vecdot": _linalg_vecdot,
                                             "linalg.outer": _linalg_outer,
                                             "linalg.multi_dot": _multi_dot,
                                             "linalg.matrix_power": _matrix_power}
