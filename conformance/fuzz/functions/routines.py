"""Calls of the BLAS routines, and what they compute by definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cuteblas import blas
from cuteblas.blas.types import ROUTINES, Types, resolved

from ..calls import Argument, Call, Code, Items
from ..draw import Building, Draw
from ..values import arrays_of, evaluated

__all__ = ["GROUPS", "MAKERS", "OURS", "REFERENCES", "planned", "problem_of", "wide"]

_NAMES = ("sgemm", "dgemm", "cgemm", "zgemm", "hgemm", "igemm", "gemm")
_LETTERS = {0: "N", 1: "T", 2: "C", "H": "C"}
_TRANS = ("0", "0", "0", "1", "2", "'N'", "'T'", "'C'", "'R'", "'t'", "'c'", "'n'", "'H'")
GROUPS = ("blas.gemm_grouped", "blas.gemm_batched")
"""What takes lists of operands."""
_PARAMETERS = ("alpha", "a", "b", "beta", "c", "trans_a", "trans_b", "overwrite_c")


def _letter(trans: Any) -> str:
    letter = _LETTERS.get(trans if not isinstance(trans, str) else trans.upper(),
                          str(trans).upper())
    if letter not in "NTCR" or isinstance(trans, (bool, float)) or trans is None:
        raise ValueError(f"trans {trans!r}")
    return letter


def _seen(x: np.ndarray, letter: str) -> np.ndarray:
    x = x.conj() if letter in "CR" and x.dtype.kind == "c" else x
    return x.swapaxes(-1, -2) if letter in "TC" else x


def _typed(name: str, a: Any, b: Any, c: Any, out: Any, dtype: Any, compute_dtype: Any) -> Types:
    if name != "gemm":
        return ROUTINES[name]
    arrays = [x for x in (a, b) if isinstance(x, np.ndarray)]
    if not arrays:
        kind = np.result_type(*(np.asarray(x) for x in (a, b))).kind
        operands = "complex128" if kind == "c" else "float64"
    else:
        operands = arrays[0].dtype.name
    if dtype is None:
        dtype = next((x.dtype for x in (out, c) if isinstance(x, np.ndarray)), None)
    return resolved(operands, dtype=dtype, compute_dtype=compute_dtype)


def _array(x: Any, dtype: str) -> np.ndarray:
    """An operand; lists are converted, arrays are not."""
    if isinstance(x, np.ndarray):
        if x.dtype != np.dtype(dtype):
            raise TypeError(f"{x.dtype} in place of {dtype}")
        array = x
    else:
        given = np.asarray(x)
        if given.dtype.kind not in "biufc" or (given.dtype.kind == "c"
                                               and np.dtype(dtype).kind != "c"):
            raise TypeError(f"{x!r}")
        array = given.astype(dtype)
    if array.ndim < 2:
        raise ValueError(f"{array.ndim} dimensions")
    return array


def reference(name: str) -> Callable[..., Any]:
    """A routine by its definition."""
    def routine(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans_a: Any = 0,
                trans_b: Any = 0, overwrite_c: Any = 0, *, out: Any = None, dtype: Any = None,
                compute_dtype: Any = None) -> Any:
        if name != "gemm" and (dtype, compute_dtype) != (None, None):
            raise TypeError("keywords of gemm")
        types = _typed(name, a, b, c, out, dtype, compute_dtype)
        first, second = _seen(_array(a, types.operands),
                              _letter(trans_a)), _seen(_array(b, types.operands), _letter(trans_b))
        shape = np.broadcast_shapes(first.shape[:-2], second.shape[:-2],
                                    *([] if c is None else [np.shape(c)[:-2]]))
        if first.shape[-1] != second.shape[-2]:
            raise ValueError("shapes")
        shape = (*shape, first.shape[-2], second.shape[-1])
        previous = None
        if c is not None:
            previous = _array(c, types.output)
            if previous.shape[-2:] != shape[-2:]:
                raise ValueError("shape of c")
        numbers = [_scalar(x, types) for x in (alpha, beta)]
        if overwrite_c not in (0, 1):
            raise ValueError("overwrite_c")
        if overwrite_c and out is not None and c is not None:
            raise ValueError("two results")
        if out is not None and c is None and np.any(numbers[1] != 0):
            raise ValueError("beta without c")
        target = out
        if overwrite_c and out is None and isinstance(c, np.ndarray):
            target = c
        if target is not None:
            _check_target(target, shape, types, (a, b), c)
        sums = _sums(np.dtype(types.compute), numbers, first, second, previous)
        with np.errstate(all="ignore"):
            rounded = np.broadcast_to(sums, shape).astype(types.output)
        if target is None:
            result = np.empty((*shape[:-2], shape[-1], shape[-2]), types.output).swapaxes(-1, -2)
            result[...] = rounded
            return result
        target[...] = rounded
        return target

    return routine


def _check_target(target: Any, shape: tuple[int, ...], types: Types, operands: tuple[Any, ...],
                  c: Any) -> None:
    if not isinstance(target, np.ndarray) or target.dtype != np.dtype(types.output):
        raise TypeError("out")
    if target.shape != shape:
        raise ValueError("shape of out")
    if not target.flags.writeable:
        raise ValueError("read-only")
    own = [s for s, n in zip(target.strides, target.shape, strict=True) if n > 1]
    same = c is target or (
        isinstance(c, np.ndarray)
        and c.__array_interface__["data"][0] == target.__array_interface__["data"][0]
        and c.shape == target.shape
        and [s for s, n in zip(c.strides, c.shape, strict=True) if n > 1] == own
    )
    for x in (*operands, *(() if same else (c,))):
        if isinstance(x, np.ndarray) and np.shares_memory(x, target):
            raise ValueError("overlap")


def _scalar(x: Any, types: Types) -> Any:
    number = np.asarray(x)
    if number.ndim or number.dtype.kind not in "biufc":
        raise TypeError("scalar")
    if number.dtype.kind == "c" and np.dtype(types.compute).kind != "c":
        raise TypeError("complex")
    if np.dtype(types.compute).kind == "i" and number.dtype.kind not in "biu":
        raise TypeError("integer")
    return number[()]


def _sums(dtype: np.dtype, numbers: list[Any], a: np.ndarray, b: np.ndarray,
          c: np.ndarray | None) -> np.ndarray:
    """alpha A B + beta C, where zeros do not read, ones do not multiply, and an empty sum has no
    alpha."""
    def times(factor: Any, x: np.ndarray) -> np.ndarray:
        return x if factor == 1 else factor * x

    with np.errstate(all="ignore"):
        alpha, beta = (dtype.type(x) for x in numbers)
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        reads = alpha != 0 and a.shape[-1]
        product = times(alpha, np.matmul(a.astype(dtype),
                                         b.astype(dtype))) if reads else np.zeros(shape, dtype)
        return product + times(beta, c.astype(dtype)) if beta != 0 and c is not None else product


def _grouped(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans_a: Any = 0,
             trans_b: Any = 0, overwrite_c: Any = 0, *, out: Any = None, dtype: Any = None,
             compute_dtype: Any = None) -> Any:
    """Problems one after the other, none of which writes what another one uses."""
    count = len(a)

    def each(x: Any) -> list[Any]:
        return list(x) if isinstance(x, (list, tuple)) else [x] * count

    lists = [each(x) for x in (alpha, a, b, beta, c, trans_a, trans_b, out)]
    if any(len(x) != count for x in lists):
        raise ValueError("lengths")
    problems = list(zip(*lists, strict=True))
    # checked before the first one runs
    apart = [_apart(problem, overwrite_c) for problem in problems]
    for i, (_copied, target) in enumerate(apart):
        used = [x for j, other in enumerate(problems) if i != j
                for x in (other[1], other[2], other[4], other[7])]
        if isinstance(target, np.ndarray) and any(isinstance(x, np.ndarray)
                                                  and np.shares_memory(x, target) for x in used):
            raise ValueError("overlap")
    gemm = reference("gemm")
    for inputs, _target in apart:
        gemm(*inputs[:-1], overwrite_c, out=inputs[-1], dtype=dtype, compute_dtype=compute_dtype)
    return [gemm(*problem[:-1], overwrite_c, out=problem[-1], dtype=dtype,
                 compute_dtype=compute_dtype) for problem in problems]


def _apart(problem: tuple[Any, ...], overwrite_c: Any) -> tuple[list[Any], Any]:
    """A problem on copies of what it writes, and the array that it writes."""
    alpha, a, b, beta, c, trans_a, trans_b, out = problem
    target = c if overwrite_c and out is None else out
    again = [x.copy() if x is target and isinstance(x, np.ndarray) else x for x in (c, out)]
    return [alpha, a, b, beta, again[0], trans_a, trans_b, again[1]], target


def _batched(alpha: Any, a: Any, b: Any, *arguments: Any, **keywords: Any) -> Any:
    if not isinstance(a, (list, tuple)):
        return reference("gemm")(alpha, a, b, *arguments, **keywords)
    if len({np.shape(x) for x in a}) > 1 or len({np.shape(x) for x in b}) > 1:
        raise ValueError("shapes of lists")
    return _grouped(alpha, a, b, *arguments, **keywords)


def planned(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans_a: Any = 0,
            trans_b: Any = 0, overwrite_c: Any = 0, *, out: Any = None, **keywords: Any) -> Any:
    """``gemm`` by way of a plan that is executed."""
    arrays = {name: x for name, x in (("c", c), ("out", out)) if x is not None}
    plan = blas.plan(a, b, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b,
                     overwrite_c=overwrite_c, **arrays, **keywords)
    return plan.execute(a, b, alpha=alpha, beta=beta, **arrays)


def problem_of(call: Call, i: int) -> Call:
    """One problem of a group, as a call of ``gemm``."""
    def of(x: Argument) -> Argument:
        return x.items[i] if isinstance(x, Items) else x

    return replace(call, function="blas.gemm", arguments=tuple(map(of, call.arguments)),
                   keywords=tuple((key, of(x)) for key, x in call.keywords))


def wide(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.dtype]:
    """The exact result, |alpha| |A| |B| + |beta| |C|, the number of terms, and the type of the
    sums."""
    arrays = arrays_of(call)
    given: dict[str, Any] = {"beta": 0, "c": None, "trans_a": 0, "trans_b": 0, "out": None,
                             "dtype": None, "compute_dtype": None}
    given |= dict(zip(_PARAMETERS, (evaluated(x, arrays) for x in call.arguments), strict=False))
    given |= {key: evaluated(x, arrays) for key, x in call.keywords}
    name = call.function.removeprefix("blas.")
    types = _typed(name if name in ROUTINES else "gemm",
                   *(given[x] for x in ("a", "b", "c", "out", "dtype", "compute_dtype")))
    compute = np.dtype(types.compute)
    real, whole = np.dtype("g"), np.dtype("G" if compute.kind == "c" else "g")
    a, b = (_seen(_array(given[x], types.operands), _letter(given[f"trans_{x}"])) for x in "ab")
    c = None if given["c"] is None else _array(given["c"], types.output)
    numbers = [compute.type(_scalar(given[x], types)) for x in ("alpha", "beta")]
    exact = _sums(whole, numbers, a.astype(whole), b.astype(whole),
                  None if c is None else c.astype(whole))

    def size_of(x: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.abs(x.astype(whole)).astype(real), nan=0.0, posinf=0.0)

    sizes = [abs(x) if np.isfinite(x) else 0 for x in numbers]
    size = _sums(real, sizes, size_of(a), size_of(b), None if c is None else size_of(c))
    terms = np.full(size.shape, a.shape[-1] + 2.0)
    return exact, size, terms, compute


def _make(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        types = ROUTINES.get(name) or ROUTINES[draw.choice(("sgemm", "dgemm", "cgemm", "zgemm",
                                                            "hgemm", "igemm"))]
        b = Building(draw)
        operands, output = np.dtype(types.operands).str, np.dtype(types.output).str
        m, n, k = draw.extents(3)
        batch = draw.weighted({(): 8, (2,): 1, (1,): 0.5, (3, 2): 0.3})
        trans = [draw.choice(_TRANS) for _ in range(2)]
        swapped = [_letter(evaluated(Code(t), [])) in "TC" for t in trans]
        lead = [batch if draw.chance(0.8) else () for _ in range(3)]
        x = b.operand((*lead[0], *((k, m) if swapped[0] else (m, k))), operands)
        y = b.operand((*lead[1], *((n, k) if swapped[1] else (k, n))), operands)
        whole = np.broadcast_shapes(lead[0], lead[1])
        keywords: dict[str, Argument] = {}
        if trans[0] != "0" or draw.chance(0.2):
            keywords["trans_a"] = Code(trans[0])
        if trans[1] != "0" or draw.chance(0.2):
            keywords["trans_b"] = Code(trans[1])
        if draw.chance(0.5):
            keywords["beta"] = _number(draw, types)
            keywords["c"] = b.out((*(lead[2] if draw.chance(0.3) else whole), m, n), output)
            whole = np.broadcast_shapes(whole, b.view(keywords["c"]).shape[:-2])  # type: ignore[arg-type]
            if draw.chance(0.3):
                keywords["overwrite_c"] = Code("1")
        if draw.chance(0.3):
            keywords["out"] = b.out((*whole, m, n), output)
        if name == "gemm" and draw.chance(0.15):
            keywords["dtype"] = Code(repr(draw.choice(("float32", "float64", types.output))))
        if name == "gemm" and draw.chance(0.1):
            keywords["compute_dtype"] = Code(repr(draw.choice(("float32", "float64",
                                                               types.compute))))
        alpha: Argument = _number(draw, types)
        if draw.chance(0.06):
            alpha = b.array((), np.dtype(types.compute).str, alone=True, layout="C")
        return b.call(f"blas.{name}", [alpha, x, y], keywords)

    return make


def _make_grouped(name: str) -> Callable[[Draw], Call]:
    def make(draw: Draw) -> Call:
        b = Building(draw)
        types = ROUTINES[draw.choice(("sgemm", "dgemm", "cgemm", "hgemm", "igemm"))]
        shapes = [draw.extents(3) for _ in range(draw.integer(1, 4))]
        if name == "blas.gemm_batched":
            shapes = shapes[:1] * len(shapes)
        trans = [draw.choice(_TRANS[:7]) for _ in range(2)]
        swapped = [_letter(evaluated(Code(t), [])) in "TC" for t in trans]
        operands, output = np.dtype(types.operands).str, np.dtype(types.output).str
        a = tuple(b.array((k, m) if swapped[0] else (m, k), operands) for m, _n, k in shapes)
        y = tuple(b.array((n, k) if swapped[1] else (k, n), operands) for _m, n, k in shapes)
        keywords: dict[str, Argument] = {"trans_a": Code(trans[0]), "trans_b": Code(trans[1])}
        if draw.chance(0.5):
            keywords["beta"] = _number(draw, types)
            keywords["c"] = Items("list", tuple(b.array((m, n), output) for m, n, _k in shapes))
        elif draw.chance(0.4):
            keywords["out"] = Items("list", tuple(b.out((m, n), output) for m, n, _k in shapes))
        alpha: Argument = _number(draw, types)
        if name == "blas.gemm_grouped" and draw.chance(0.3):
            alpha = Items("list", tuple(_number(draw, types) for _ in shapes))
        return b.call(name, [alpha, Items("list", a), Items("list", y)], keywords)

    return make


def _make_planned(draw: Draw) -> Call:
    call = _make("gemm")(draw)
    return replace(call, function="routines.planned")


def _number(draw: Draw, types: Types) -> Code:
    numbers = ["0", "1", "1", "-1", "2", "3"]
    if types.compute != "int32":
        numbers += ["0.5", "-0.75", "np.float32(2)", "float('nan')" if draw.chance(0.2) else "1.0"]
    if types.is_complex:
        numbers += ["1j", "(2-1j)", "np.complex64(1j)"]
    if draw.chance(0.01):
        numbers = ["None", "'x'", "1j", "np.ones(1)"]
    return Code(draw.choice(numbers))


MAKERS: dict[str, Callable[[Draw], Call]] = {
    **{f"blas.{name}": _make(name) for name in _NAMES},
    **{name: _make_grouped(name) for name in GROUPS}, "routines.planned": _make_planned}
REFERENCES: dict[str, Callable[..., Any]] = {**{f"blas.{name}": reference(name) for name in _NAMES},
                                             "blas.gemm_grouped": _grouped,
                                             "blas.gemm_batched": _batched,
                                             "routines.planned": reference("gemm")}
OURS: dict[str, Callable[..., Any]] = {**{name: getattr(blas, name.removeprefix("blas."))
                                          for name in MAKERS if name.startswith("blas.")},
                                       "routines.planned": planned}
