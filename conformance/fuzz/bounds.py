"""Error bounds of products: intervals around a wider result, from the roundings that any order of
operations makes.

For a sum of K products computed in a type with unit roundoff u, in any order, the error is at most
about K u (|A||B|). The wider result, (|A||B|) and K are had by calling NumPy's function again: on
wider operands, on their absolute values, on ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from .calls import Argument, Call, Items, Operand
from .functions import epilogues, routines
from .registry import FUNCTIONS
from .values import arrays_of, evaluated

__all__ = ["Bound", "bound_of", "bound_of_routine", "bounds_of_epilogue", "power_of", "why_outside"]

_KEPT = frozenset({"axes", "axis", "keepdims"})
_PRECISION = {"tf32": 2.0**-10}


@dataclass(frozen=True)
class Bound:
    """What is known of the elements of a result.

    Attributes
    ----------
    exact : numpy.ndarray
        In a wider type.
    radius : numpy.ndarray
        How far a result may be from it, before it is rounded to its own type.
    steady : numpy.ndarray or bool
        Where no order of operations overflows.
    dtype : numpy.dtype
        The type of the sums.
    loose : bool
        Whether there are several ways to multiply, of which one may give an infinity and another
        one a NaN.
    """

    exact: np.ndarray
    radius: np.ndarray
    steady: Any
    dtype: np.dtype
    loose: bool


def bound_of(call: Call, dtype: np.dtype, expected: np.ndarray, by_numpy: bool = False) -> Bound:
    """The bound of a call of a product.

    Parameters
    ----------
    call : Call
    dtype : numpy.dtype
        The floating-point type in which it is computed.
    expected : numpy.ndarray
        NumPy's result.
    by_numpy : bool
        Whether NumPy's loops may compute it: those of einsum round float16 sums in every step.
    """
    if power_of(call) < 0:
        return _bound_of_inverses(call, dtype)
    # not by BLAS, which leaves products by zero out
    wide, real = np.dtype("G" if dtype.kind == "c" else "g"), np.dtype("g")
    info = np.finfo(dtype)
    precision = call.keyword("precision")
    sums = np.finfo("f") if dtype.char == "e" else info
    u = max(float(sums.eps) / 2, _PRECISION.get(evaluated(precision, []) if precision else "", 0.0))
    if dtype.char == "e":
        u = 2.0**-21                       # tensor cores align products to the largest and truncate
    with np.errstate(all="ignore"):
        given = _operands(call, lambda x: x)
        operands = [x.astype(dtype) for x in given]
        exact = _again(call, lambda x: x.astype(dtype).astype(wide))
        size = _again(call,
                      lambda x: np.nan_to_num(np.abs(x.astype(dtype).astype(wide)).astype(real),
                                              nan=0.0, posinf=0.0))
        terms = _again(call, lambda x: np.ones(x.shape, "d"))
        finite = [np.abs(x[np.isfinite(x)].astype(wide)) for x in operands]
        largest = [float(x.max()) if x.size else 0.0 for x in finite]
        count = len(operands) if call.base != "linalg.matrix_power" else 8
        most = float(np.prod([max(x, 1.0) for x in largest])) if count > 2 else 1.0
        if call.base == "linalg.matrix_power":
            most = float(np.float64(max(largest[0], 1.0)) ** 8 * (operands[0].shape[-1] or 1) ** 8)
        size = np.asarray(np.abs(size), real)
        factor = (2.0 if dtype.kind == "c" else 1.0) * max(count - 1, 1)
        roundings = terms + 4 if count <= 2 else terms * 2 + 4 * count
        radius = factor * u * roundings * size + factor * (terms + 2) * real.type(info.smallest_subnormal) * most
        named = evaluated(precision, []) if precision else None
        # by name, without the check of ranges: exact relative to the largest elements
        if named in ("fp16x3", "bf16x6"):
            radius = radius + 2.0**-20 * terms * float(np.prod(largest)) * factor
        # to an infinity
        rounds_up = named == "tf32" and max(largest, default=0.0) > 0.99 * float(info.max)
        # products in between are rounded too
        if dtype.char == "e" and (count > 2 or call.keyword("optimize")):
            radius = radius + 2.0**-11 * count * size * 1.1
        if dtype.char == "e" and by_numpy and call.base == "einsum":
            radius = radius + 2.0**-11 * terms * size
        if call.base == "linalg.multi_dot" and len({x.dtype for x in given}) > 1:
            exact = expected                    # each product has the type of its own two operands
            narrow = max(float(np.finfo(x.dtype).eps) for x in given if x.dtype.kind in "fc")
            radius = radius + narrow * (roundings + 4) * size
        # products in between have the type of the result
        limit = float(info.max if count > 2 else sums.max) / 8
        steady = (not rounds_up) & (size < limit) & (np.asarray(terms) * most < limit if count > 2
                                                     else True)
    # einsum's loops sum an index that one operand has alone before they multiply
    loose = count > 2 or call.base == "einsum" or named in ("fp16x3", "bf16x6")
    return Bound(np.asarray(exact, wide), np.asarray(radius, real), steady, dtype, loose)


def power_of(call: Call) -> int:
    """The power of a call of ``matrix_power``; 1 of any other."""
    if call.base != "linalg.matrix_power":
        return 1
    given = call.arguments[1] if len(call.arguments) > 1 else call.keyword("n")
    try:
        return index(evaluated(given, arrays_of(call)))         # type: ignore[arg-type]
    except (AttributeError, TypeError):
        return 1


def _bound_of_inverses(call: Call, dtype: np.dtype) -> Bound:
    """The bound of a negative power of matrices, computed in double precision.

    An inverse X of A has an error of at most c n^2 u |X| cond(A) (Higham, Accuracy and Stability of
    Numerical Algorithms, 14.3), and its power p about p |X|^(p - 1) times as much. Nothing is known
    of matrices whose condition number is beyond 1/u or that are not finite: there any number is
    within the bound.
    """
    a, power = _operands(call, lambda x: x.astype(dtype).astype("D" if dtype.kind == "c"
                                                                else "d"))[0], -power_of(call)
    exact, radius = np.zeros_like(a), np.full(a.shape, np.inf)
    n, u = max(a.shape[-1], 1), float(np.finfo(dtype).eps)
    for at in np.ndindex(a.shape[:-2]) if a.size else ():
        with suppress(np.linalg.LinAlgError):
            x = np.linalg.inv(a[at])
            norm = float(np.linalg.norm(x, np.inf))
            error = 16 * n**2 * u * norm * norm * float(np.linalg.norm(a[at], np.inf))
            if error < norm / 4:
                exact[at] = np.linalg.matrix_power(x, power)
                radius[at] = 2 * power * (2 * norm) ** (power - 1) * (error + n * u * norm)
    limit = float(np.finfo(dtype).max) / 8
    return Bound(exact, radius, np.abs(exact) + radius < limit, dtype, True)


def bound_of_routine(call: Call) -> Bound:
    """The bound of a BLAS routine."""
    exact, size, terms, dtype = routines.wide(call)
    info = np.finfo(dtype)
    precision = call.keyword("precision")
    u = max(float(info.eps) / 2, _PRECISION.get(evaluated(precision, []) if precision else "", 0.0))
    half = any(np.dtype(view.dtype).char == "e" for view in call.views)
    factor = 4.0 if dtype.kind == "c" else 1.0
    with np.errstate(all="ignore"):
        radius = factor * (2.0**-21 if half else u) * (terms + 3) * size
        radius = radius + factor * (terms + 2) * np.longdouble(info.smallest_subnormal) * 8
    return Bound(exact, radius, size < float(info.max) / 8, dtype, False)


def bounds_of_epilogue(product: Call, call: Call, dtype: np.dtype,
                       expected: np.ndarray) -> list[Bound]:
    """The bounds of a product's epilogue: of the result, and of what else it returns."""
    sums = bound_of(product, dtype, expected)
    # rounded once, and further results not at all
    dtype = np.dtype("f") if dtype.char == "e" else dtype
    u = float(np.finfo(dtype).eps)
    found = []
    for exact, radius, size in epilogues.wide(call, sums.exact, sums.radius):
        with np.errstate(all="ignore"):
            known = np.abs(sums.exact) if exact.shape == sums.exact.shape else size
            radius = radius + 8 * u * (size + known)
            calm = sums.steady if exact.shape == sums.exact.shape else np.all(sums.steady)
            steady = np.isfinite(exact.astype(dtype)) & np.isfinite(radius) & calm
        found.append(Bound(exact, radius, steady, dtype, True))
    return found


def why_outside(bound: Bound, got: np.ndarray, expected: np.ndarray) -> str | None:
    """What is wrong with a result that differs from NumPy's; ``None`` if nothing is."""
    if got.dtype.kind == "c":
        bad = _complex_outside(bound, got, expected)
    elif got.dtype.kind == "f":
        bad = _outside(bound.exact.real, bound, got, expected)
    elif got.dtype.kind in "iu":
        bad = _integers_outside(bound, got)
    else:
        bad = np.zeros(got.shape, bool)
        clear = np.isfinite(bound.exact) & (np.abs(bound.exact) > bound.radius)
        bad[...] = clear & ~got.astype(bool)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    exact = np.broadcast_to(bound.exact, got.shape)[at]
    radius = float(np.broadcast_to(bound.radius, got.shape)[at])
    return (
        f"element {at} is {got[at]!r}; NumPy has {expected[at]!r}, the exact value is {exact!r} and the bound {radius:.3g}; "
        f"{int(bad.sum())} of {got.size} elements are wrong"
    )


def _outside(exact: np.ndarray, bound: Bound, got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where real parts are wrong."""
    wide, given = exact.dtype, got.astype(exact.dtype)
    with np.errstate(all="ignore"):
        ends = [exact + sign * bound.radius for sign in (-1, 1)]
        ends += [end.astype(bound.dtype.char.lower() if bound.dtype.kind == "c" else bound.dtype)
                 for end in ends]
        # rounded once, or to the type of the sums before
        ends = [end.astype(got.dtype).astype(wide) for end in ends]
        low, high = np.minimum(ends[0], ends[2]), np.maximum(ends[1], ends[3])
        tiny = np.finfo(got.dtype).smallest_subnormal
        inside = (given >= low - tiny) & (given <= high + tiny)
    finite = np.isfinite(exact)
    same = np.where(np.isnan(exact), np.isnan(got), given == exact)
    if bound.loose:
        same = ~np.isfinite(got) | np.isfinite(expected)
    alike = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return ~(np.where(finite, inside, same) | (~np.asarray(bound.steady)
                                               & ~np.isfinite(got))) & ~alike


def _complex_outside(bound: Bound, got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where complex results are wrong; one part that is not finite makes the whole so."""
    exact = bound.exact if bound.exact.dtype.kind == "c" else bound.exact.astype(np.result_type(bound.exact, np.complex64))
    finite = np.isfinite(exact)
    parts = Bound(exact, bound.radius, bound.steady, bound.dtype, True)
    bad = (_outside(exact.real, parts, got.real, expected.real)
           | _outside(exact.imag, parts, got.imag, expected.imag)) & finite
    lost = ~finite & np.isfinite(got) & ~np.isfinite(expected) & (not bound.loose)
    return bad | lost


def _integers_outside(bound: Bound, got: np.ndarray) -> np.ndarray:
    """Where results that were cast to integers are wrong; what an integer cannot hold may be
    any."""
    info = np.iinfo(got.dtype)
    exact = bound.exact.real.astype("g")
    held = np.isfinite(exact) & (exact > info.min) & (exact < info.max)
    with np.errstate(all="ignore"):
        return held & (np.abs(got.astype("g") - exact) > 1 + bound.radius + np.abs(exact)
                       * float(np.finfo(bound.dtype).eps))


def _operands(call: Call, change: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] = []

    def note(x: np.ndarray) -> np.ndarray:
        found.append(change(x))
        return x

    _arguments(call, note)
    return found


def _again(call: Call, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    arguments = _arguments(call, change)
    keywords = {key: evaluated(value, []) for key, value in call.keywords if key in _KEPT}
    return FUNCTIONS[call.function].reference(*arguments, **keywords)


def _arguments(call: Call, change: Callable[[np.ndarray], np.ndarray]) -> list[Any]:
    """The positional arguments, without ``out``, operands changed."""
    arrays = arrays_of(call)
    places = _places(call)
    if call.base in ("dot", "outer", "matmul", "vecdot", "matvec", "vecmat"):
        given = call.arguments[:2]
    else:
        given = call.arguments
    return [_changed(argument, arrays, change) if i in places else evaluated(argument, arrays)
            for i, argument in enumerate(given)]


def _changed(argument: Argument, arrays: list[np.ndarray],
             change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(argument, Items) and any(isinstance(item, Operand) for item in argument.items):
        return [_changed(item, arrays, change) for item in argument.items]
    return change(np.asarray(evaluated(argument, arrays)))


def _places(call: Call) -> range:
    """The positions of operands among the positional arguments."""
    count = len(call.arguments)
    if call.base == "einsum":
        spelled = isinstance(evaluated(call.arguments[0], [None] * len(call.views)), str)
        return range(1, count) if spelled else range(0, count // 2 * 2, 2)
    return range(min(count, 1 if call.base in ("linalg.multi_dot", "linalg.matrix_power") else 2))
