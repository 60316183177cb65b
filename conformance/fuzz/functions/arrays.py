"""Calls on ``cuteblas.ndarray``: operators, methods, indexing, and NumPy's functions by NumPy's
names."""

from __future__ import annotations

import builtins
import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..calls import Argument, Call, Code, Items, Operand, View
from ..draw import Building, Draw
from . import copies, einsums, products

__all__ = ["MAKERS", "PRODUCTS", "by_numpys_name", "callable_of", "in_place", "on_gpu"]

Made = tuple[Sequence[Argument], Mapping[str, Argument]]

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt",
           "ge", "and_", "or_", "xor", "matmul")
PRODUCTS = ("operator.matmul", "operator.imatmul", "method.dot")
"""What multiplies, by other names than those of functions."""
_OF_INTEGERS = frozenset(f"operator.{name}" for name in ("and_", "or_", "xor", "iand", "invert",
                                                         "index"))
_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ipow", "iand", "imatmul", "ifloordiv")
_UNARY = ("operator.neg", "operator.pos", "operator.invert", "abs", "np.exp", "np.sqrt", "np.isnan",
          "np.square", "np.conjugate", "np.sign", "np.floor", "np.isfinite", "np.real", "np.imag",
          "np.ravel", "np.copy", "np.flip", "np.atleast_2d", "np.atleast_1d", "np.zeros_like",
          "np.ones_like", "np.nonzero", "np.count_nonzero", "np.shape", "np.ndim", "np.size",
          "np.nan_to_num", "np.argwhere", "np.flatnonzero", "np.squeeze", "np.fliplr", "np.tril",
          "np.triu", "np.trace", "np.diagonal", "np.linalg.norm", "len", "list", "bool", "float",
          "int", "complex", "operator.index", "copy.copy", "copy.deepcopy", "np.meshgrid",
          "np.linalg.det", "np.linalg.qr", "np.linalg.slogdet", "np.iscomplexobj", "np.isreal")
_ATTRIBUTES = ("T", "mT", "shape", "dtype", "ndim", "size", "strides", "itemsize", "nbytes", "real",
               "imag")
_PLAIN_METHODS = ("copy", "conj", "conjugate", "flatten", "ravel", "tolist", "item", "nonzero",
                  "squeeze", "tobytes", "argsort", "trace", "diagonal", "__len__", "__bool__",
                  "__copy__")
_REDUCTIONS = ("sum", "prod", "min", "max", "mean", "any", "all", "argmax", "argmin", "cumsum",
               "std", "var", "cumprod")
_CONSTRUCTIVE = ("np.stack", "np.concatenate", "np.vstack", "np.hstack", "np.dstack", "np.block",
                 "np.column_stack")


def _shape(b: Building, least: int = 0) -> tuple[int, ...]:
    rank = max(b.draw.weighted({0: 0.5, 1: 2, 2: 4, 3: 1.5}), least)
    return tuple(min(n, 17) for n in b.draw.extents(rank))


def _partner(b: Building, shape: tuple[int, ...]) -> Argument:
    """Something that broadcasts with a shape: an array of ours or of NumPy's, a number, or a
    list."""
    draw = b.draw
    if draw.chance(0.25):
        return b.number()
    part = tuple(1 if draw.chance(0.15) else n
                 for n in shape[draw.integer(0, len(shape)) if draw.chance(0.2) else 0:])
    if prod(part) < 12 and draw.chance(0.08):
        return Code(repr(np.arange(prod(part)).reshape(part).tolist()))
    return b.array(part, holder="plain" if draw.chance(0.3) else "ours")


def _binary(b: Building) -> Made:
    shape = _shape(b)
    x = b.array(shape)
    y = _partner(b, shape)
    return ([x, y] if b.draw.chance(0.7) else [y, x]), {}


def _multiplied(b: Building) -> Made:
    """Operands of ``@``."""
    m, n, k = b.draw.extents(3)
    batch = () if b.draw.chance(0.7) else (b.draw.integer(1, 3),)
    x = b.array((*batch, m, k) if b.draw.chance(0.85) else (k,),
                holder="plain" if b.draw.chance(0.2) else "ours")
    return [x, b.array((k, n) if b.draw.chance(0.85) else (k,),
                       holder="ours" if b.view(x).holder == "plain" else None)], {}


def _multiplied_in_place(b: Building) -> Made:
    n, m = min(b.draw.extent(), 17), min(b.draw.extent(), 17)
    return [b.array((m, n), b.base), b.array((n, n), b.base)], {}


def _single(b: Building) -> Made:
    return [b.array(() if b.draw.chance(0.6) else (1,) * b.draw.integer(1, 2))], {}


def _ufunc(b: Building) -> Made:
    (x, y), keywords = _binary(b)
    shapes = [b.view(v).shape for v in (x, y) if isinstance(v, Operand)]
    given: dict[str, Argument] = dict(keywords)
    if b.draw.chance(0.3):
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            shape = ()
        given["out"] = b.out(shape, products.result_dtype(b, (x, y)))
    if b.draw.chance(0.1):
        given["dtype"] = Code(repr(b.draw.dtype()))
    return [x, y], given


def _updated(b: Building) -> Made:
    shape = _shape(b)
    x = b.array(shape, layout=b.draw.choice(("C", "F", "sliced", "negative")), alone=True)
    return [x, _partner(b, shape)], {}


def _one(b: Building) -> Made:
    return [b.array(_shape(b))], {}


def _axis(b: Building, rank: int) -> Code:
    return Code(str(b.draw.integer(-rank, max(rank - 1, 0))))


def _reduced(b: Building) -> Made:
    shape = _shape(b)
    keywords: dict[str, Argument] = {}
    if b.draw.chance(0.6):
        keywords["axis"] = _axis(b, len(shape)) if b.draw.chance(0.8) else Code(repr(tuple(range(len(shape)))))
    if b.draw.chance(0.2):
        keywords["keepdims"] = Code("True")
    if b.draw.chance(0.1):
        keywords["dtype"] = Code("'f8'")
    return [b.array(shape)], keywords


def _several(b: Building) -> Made:
    shape = _shape(b, 1)
    arrays = tuple(b.array(shape, holder="plain" if b.draw.chance(0.2) else "ours")
                   for _ in range(b.draw.integer(1, 3)))
    return [Items("list" if b.draw.chance(0.7) else "tuple", arrays)], {}


def _reshaped(b: Building) -> Made:
    shape = _shape(b)
    other = b.draw.choice((shape[::-1], (prod(shape),), (-1,), (1, *shape), (-1, 1)))
    keywords: dict[str, Argument] = {"order": Code(repr(b.draw.choice("CFA")))} if b.draw.chance(0.2) else {}
    return [b.array(shape), Code(repr(other))], keywords


def _cast(b: Building) -> Made:
    keywords: dict[str, Argument] = {}
    if b.draw.chance(0.2):
        keywords["copy"] = Code("False")
    if b.draw.chance(0.2):
        keywords["casting"] = Code(repr(b.draw.choice(products.CASTINGS)))
    return [b.array(_shape(b)), Code(repr(b.draw.dtype()))], keywords


def _with_axis(b: Building) -> Made:
    shape = _shape(b, 1)
    return [b.array(shape), _axis(b, len(shape))], {}


def _two_axes(b: Building) -> Made:
    shape = _shape(b, 1)
    return [b.array(shape), _axis(b, len(shape)), _axis(b, len(shape))], {}


def _taken(b: Building) -> Made:
    shape = tuple(max(n, 1) for n in _shape(b, 1))
    indices = [b.draw.integer(-shape[0], shape[0] - 1) for _ in range(b.draw.integer(0, 4))]
    keywords: dict[str, Argument] = {"axis": Code("0")}
    if b.draw.chance(0.3):
        keywords["mode"] = Code(repr(b.draw.choice(("wrap", "clip", "raise"))))
    return [b.array(shape), Code(repr(indices))], keywords


def _chosen(b: Building) -> Made:
    shape = _shape(b)
    return [b.array(shape, "|b1"), b.array(shape), _partner(b, shape)], {}


def _clipped(b: Building) -> Made:
    return [b.array(_shape(b)), Code(b.draw.choice(("0", "-1", "None"))),
            Code(b.draw.choice(("1", "2.5", "0")))], {}


def _rolled(b: Building) -> Made:
    return [b.array(_shape(b, 1)), Code(str(b.draw.integer(-3, 3)))], {}


def _broadcast(b: Building) -> Made:
    shape = _shape(b)
    return [b.array(shape), Code(repr((2, *(n if n != 1 else 3 for n in shape))))], {}


def _squares(b: Building) -> Made:
    n = b.draw.integer(1, 4)
    return [b.array((*((2,) if b.draw.chance(0.2) else ()), n, n),
                    b.draw.choice(("<f8", "<f4", "<c16", "<i4")))], {}


def _matrix(b: Building) -> Made:
    return [b.array(_shape(b, 2))], {}


def _square(b: Building) -> Made:
    n = b.draw.integer(0, 4)
    return [b.array((n, n), layout="C"), b.array((n, b.draw.integer(0, 3)))], {}


def _index(b: Building, view: View) -> Argument:
    """Anything that indexes an array."""
    draw = b.draw
    if view.shape and draw.chance(0.12):
        return b.array(view.shape, "|b1", fill="small", alone=True)
    if view.shape and draw.chance(0.12):
        n = view.shape[0]
        return Code(
            f"np.array({[draw.integer(-n, n - 1) if n else 0 for _ in range(draw.integer(0, 4))]}, int)"
        )
    parts = []
    for n in view.shape[:draw.integer(0, len(view.shape))]:
        kind = draw.integer(0, 5)
        if kind == 0:
            parts.append(str(draw.integer(-n, n) if draw.chance(0.1)
                             else draw.integer(-n, max(n - 1, -n)) if n else 0))
        elif kind == 1:
            parts.append("None")
        else:
            ends = [draw.choice(("", str(draw.integer(-n - 1, n + 1)))) for _ in range(2)]
            step = draw.choice(("", "", "2", "-1", "-2"))
            parts.append(f"slice({ends[0] or None}, {ends[1] or None}, {step or None})")
    if draw.chance(0.2):
        parts.insert(draw.integer(0, len(parts)), "...")
    return Code(f"({', '.join(parts)},)" if parts else "...")


def _got(b: Building) -> Made:
    x = b.array(_shape(b))
    return [x, _index(b, b.view(x))], {}


def _set(b: Building) -> Made:
    x = b.array(_shape(b), layout=b.draw.choice(("C", "F", "sliced", "negative")), alone=True)
    index = _index(b, b.view(x))
    return [x, index, b.number() if b.draw.chance(0.5) else _partner(b, b.view(x).shape)], {}


def _filled(b: Building) -> Made:
    return [b.array(_shape(b), layout="C", alone=True), b.number()], {}


def _table() -> dict[str, Callable[[Building], Made]]:
    table: dict[str, Callable[[Building], Made]] = {}
    table |= dict.fromkeys((f"operator.{name}" for name in _BINARY), _binary)
    table |= dict.fromkeys((f"operator.{name}" for name in _IN_PLACE), _updated)
    table |= dict.fromkeys(_UNARY, _one)
    table |= dict.fromkeys((f"attribute.{name}" for name in _ATTRIBUTES), _one)
    table |= dict.fromkeys((f"method.{name}" for name in _PLAIN_METHODS), _one)
    table |= dict.fromkeys((f"method.{name}" for name in _REDUCTIONS), _reduced)
    table |= dict.fromkeys((f"np.{name}" for name in _REDUCTIONS), _reduced)
    table |= dict.fromkeys(_CONSTRUCTIVE, _several)
    table |= dict.fromkeys((f"np.{name}" for name in ("add", "multiply", "subtract", "divide",
                                                      "maximum", "power")), _ufunc)
    table |= {"np.reshape": _reshaped, "method.reshape": _reshaped, "method.astype": _cast,
              "np.expand_dims": _with_axis, "np.sort": _with_axis, "np.argsort": _with_axis,
              "np.repeat": _rolled, "np.roll": _rolled, "np.diff": _one, "np.take": _taken,
              "method.take": _taken, "np.where": _chosen, "np.clip": _clipped,
              "method.clip": _clipped, "np.broadcast_to": _broadcast, "np.linalg.solve": _square,
              "operator.getitem": _got, "operator.setitem": _set, "method.fill": _filled,
              "np.append": _binary, "np.broadcast_arrays": _binary, "np.array_equal": _binary,
              "np.copyto": _updated, "np.unique": _one, "method.dot": _binary,
              "method.swapaxes": _two_axes, "operator.matmul": _multiplied,
              "operator.imatmul": _multiplied_in_place}
    table |= dict.fromkeys(("bool", "float", "int", "complex", "operator.index", "method.item",
                            "method.__bool__"), _single)
    table |= dict.fromkeys(("np.linalg.det", "np.linalg.slogdet"), _squares)
    table |= dict.fromkeys(("np.fliplr", "np.trace", "np.diagonal", "np.linalg.qr", "attribute.mT",
                            "method.diagonal"), _matrix)
    return table


_TABLE = _table()


def by_numpys_name(name: str) -> bool:
    """Whether it is a product or a transposition of ours, called by NumPy's name."""
    return name not in _TABLE


def in_place(function: str) -> bool:
    """Whether a call writes into its first argument."""
    return function in ("operator.setitem", "method.fill",
                        "np.copyto") or function.removeprefix("operator.") in _IN_PLACE


def on_gpu(name: str) -> bool:
    """Whether CuPy's arrays are to answer as NumPy's: what CuPy's own kernels compute is not
    compared here."""
    return name not in _TABLE or name.startswith("attribute.") or name == "operator.matmul"


def callable_of(name: str) -> Callable[..., Any]:
    """What is called, of this type and of NumPy's arrays."""
    kind, _, rest = name.partition(".")
    if kind == "attribute":
        return operator.attrgetter(rest)
    if kind == "method":
        return lambda x, *arguments, **keywords: getattr(x, rest)(*arguments, **keywords)
    if kind in ("operator", "np", "copy"):
        return operator.attrgetter(rest)({"operator": operator, "np": np, "copy": copy}[kind])
    return getattr(builtins, name)


def _make(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        b = Building(draw, "ours")
        if name in _OF_INTEGERS:
            b.base = draw.choice(("<i4", "|b1", "|u1", "<i8"))
        arguments, keywords = _TABLE[name](b)
        return b.call(name, arguments, keywords)

    return make


def _by_numpys_name(make: Callable[[Draw], Call], name: str) -> Callable[[Draw], Call]:
    """Calls of a product on arrays of ours, by NumPy's name for it."""
    def made(draw: Draw) -> Call:
        call = make(draw)
        views = tuple(replace(view, holder="ours" if i == 0 or draw.chance(0.7) else "plain")
                      for i, view in enumerate(call.views))
        return replace(call.without("precision", "variant"), function=name, views=views)

    return made


MAKERS: dict[str, Callable[[Draw], Call]] = {name: _make(name) for name in _TABLE} | {
    f"np.{name}": _by_numpys_name(make, f"np.{name}")
    for name, make in (products.MAKERS | einsums.MAKERS | copies.MAKERS).items()
    if name not in ("copy", "ascontiguousarray", "asfortranarray", "einsum_path")}
