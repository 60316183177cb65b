"""Routines on one triangle of a symmetric or Hermitian matrix: ``ssyrk``, ``cherk``, ``ssyr2k``, ``cher2k`` and their kin."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..engines.dispatch import call_on_held
from ..engines.engine import engine_of
from ..engines.execution import Execution
from ..engines.memory import Memory, contiguous_strides
from ..engines.numpy_gemm import QUIET
from ..functions.gemm import gemm, gemm_by_numpy
from ..functions.signatures import Array, Flag, Promoted, Transposed
from .arguments import as_transposition, checked_flag
from .calls import Call, Request, kernel_arguments, prepare, where
from .types import ROUTINES, Types, dtype_named
from .vectors import as_printed

__all__ = ["RANK_2K", "RANK_K", "cher2k", "cherk", "csyr2k", "csyrk", "dsyr2k", "dsyrk", "ssyr2k", "ssyrk", "zher2k", "zherk",
           "zsyr2k", "zsyrk"]

_DOCUMENTATION = """One triangle of ``{formula} + beta C`` of {operands} arrays.

    Parameters
    ----------
    alpha : number or 0-d array
        Factor of the product{factor}; 0 does not read the operands.
    {names} : array_like
        {operands} {matrices} (n, k), or (k, n) with ``trans``. Any strides; never copied.
    beta : number or 0-d array
        Factor of ``c``{real}; 0 does not read its triangle.
    c : array_like, optional
        {operands} matrix (n, n), zeros by default. It is only read, unless ``overwrite_c``.
    trans : {{{accepted}}}
        Whether the operands are transposed{conjugated}.
    lower : {{0, 1}}
        Whether to compute the lower triangle instead of the upper one. The other triangle keeps the elements of ``c``.
    overwrite_c : {{0, 1}}
        Whether to update ``c`` itself in place, whatever its strides, and return it.

    Returns
    -------
    array
        The matrix (n, n) in the library of the operands: ``c``, or a new one in Fortran order.

    Raises
    ------
    TypeError
        For arrays of another element type or library, and for complex numbers where real ones are multiplied.
    ValueError
        For shapes and transpositions that do not fit, and if an overwritten ``c`` shares memory with an operand.

    Examples
    --------
    >>> from cuteblas import blas
    >>> a = np.array([[1, 2], [3, 4]], {operands!r})
    >>> blas.{name}({call}){answer}
    """


class RankK(Protocol):
    """A routine that multiplies a matrix by its own transpose."""

    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], beta: Any = 0, c: Any = None, trans: Transposed = 0, lower: Flag = 0,
                 overwrite_c: Flag = 0) -> Array: ...


class Rank2K(Protocol):
    """A routine that multiplies two matrices by the transpose of the other one."""

    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], b: Promoted[Array], beta: Any = 0, c: Any = None, trans: Transposed = 0,
                 lower: Flag = 0, overwrite_c: Flag = 0) -> Array: ...


def _letters(function: str, types: Types, hermitian: bool, trans: Any) -> tuple[str, str]:
    """How both factors of a product are read."""
    accepted = "0 or 'N', 2 or 'C'" if hermitian else "0 or 'N', 1 or 'T'" if types.is_complex else "0 or 'N', 1 or 'T', 2 or 'C'"
    asked = as_transposition(function, "trans", trans, accepted).letter
    if asked == "R" or (types.is_complex and asked == ("T" if hermitian else "C")):
        raise ValueError(f"{function} takes {accepted} as trans, got {trans!r}")
    other = "C" if hermitian else "T"
    return ("N", other) if asked == "N" else (other, "N")


def _check_shapes(function: str, a: Any, b: Any, c: Any, first: str) -> None:
    """Refuse arrays that do not fit each other, in the words of these routines; lists and batches are left to :func:`prepare`.

    Raises
    ------
    ValueError
        If operands have different shapes, or ``c`` is not of the result's.
    """
    shapes = {name: tuple(x.shape) for name, x in (("a", a), ("b", b), ("c", c)) if hasattr(x, "shape")}
    if len(shapes.get("a", ())) != 2:
        return
    if shapes.get("b", shapes["a"]) != shapes["a"]:
        raise ValueError(f"{function} takes matrices of one shape, got a {shapes['a']} and b {shapes['b']}")
    n = shapes["a"][first != "N"]
    if shapes.get("c", (n, n)) != (n, n):
        raise ValueError(f"{function} takes c of (n, n) = {(n, n)}, but it has shape {shapes['c']}: a {shapes['a']}"
                         f"{'' if first == 'N' else f' with trans={first!r}'}")


def _real(function: str, name: str, value: Any) -> Any:
    """A factor that has to be real, so that the result is Hermitian."""
    if isinstance(value, (complex, np.complexfloating)):
        if value.imag:
            raise ValueError(f"{function} takes a real number as {name}, got {value}")
        return value.real
    if hasattr(value, "dtype") and value.dtype.kind == "c":
        raise ValueError(f"{function} takes a real number as {name}, got an array of {value.dtype}")
    return value


def _updated(function: str, types: Types, hermitian: bool, alpha: Any, a: Any, b: Any, beta: Any, c: Any, trans: Any, lower: Any,
             overwrite_c: Any) -> Any:
    """``alpha a a^T + beta c``, or with another operand ``b`` ``alpha a b^T + alpha b a^T + beta c``, in one triangle."""
    first, second = _letters(function, types, hermitian, trans)
    part = "lower" if checked_flag(function, "lower", lower) else "upper"
    if hermitian:
        beta = _real(function, "beta", beta)
        alpha = _real(function, "alpha", alpha) if b is None else alpha
    _check_shapes(function, a, b, c, first)
    call = prepare(function, types, Request(alpha, a, a if b is None else b, beta, c, first, second, overwrite_c))
    if len(call.shape) != 2 or (b is not None and call.a.shape != call.b.shape[::-1]):
        raise ValueError(f"{function} takes matrices of one shape, got {call.a.shape} and {call.b.shape[::-1]}")
    again = None
    if b is not None:
        arrays = call.gathered.arrays
        again = prepare(function, call.types, Request(alpha, arrays["b"], arrays["a"], 1, None, first, second))
    with where(call):
        target = _target(call)
        if hermitian and call.c is not None:
            _without_imaginary_diagonal(target)
        if call.by_numpy:
            _by_numpy(call, again, hermitian, part, target)
        else:
            _by_kernels(call, again, hermitian, part, target)
        if hermitian:                   # sums of slices, and of two products, are real there but for rounding
            _without_imaginary_diagonal(target)
    return call.answered(target, {})


def _target(call: Call) -> Any:
    """The array to update: ``c`` itself, a copy of it, or zeros."""
    if call.out is not None:
        return call.out
    dtype = dtype_named(call.types.output)
    target = call.engine.empty(Memory(call.shape, contiguous_strides(call.shape, dtype.itemsize, (1, 0)), dtype))
    target[...] = 0 if call.c is None else call.c
    return target


def _without_imaginary_diagonal(x: Any) -> None:
    """Imaginary parts on the diagonal of a Hermitian matrix are zero."""
    engine = engine_of(x)
    memory = engine.memory(x)
    engine.view(x, (len(x),), (sum(memory.strides),)).imag[...] = 0


def _by_kernels(call: Call, again: Call | None, hermitian: bool, part: str, target: Any) -> None:
    run = Execution(call.function, call.engine)
    named = kernel_arguments(call) | {"c": None if call.c is None else target, "out": target, "triangle": part}
    gemm(run, call.a, call.b, **named, hermitian=hermitian and again is None)
    if again is not None:
        alpha = again.alpha.conjugate() if hermitian else again.alpha
        gemm(run, again.a, again.b, **kernel_arguments(again) | {"alpha": alpha, "c": target, "out": target, "triangle": part})


def _by_numpy(call: Call, again: Call | None, hermitian: bool, part: str, target: np.ndarray) -> None:
    named = kernel_arguments(call) | {"c": None if call.c is None else target, "out": None}
    result, _extras = gemm_by_numpy(call.a, call.b, function=call.function, **named)
    if again is not None:
        alpha = again.alpha.conjugate() if hermitian else again.alpha
        more, _extras = gemm_by_numpy(again.a, again.b, function=call.function,
                                      **kernel_arguments(again) | {"alpha": alpha, "beta": 0})
        QUIET.copy().run(np.add, result, more, result)
    n = len(target)
    np.copyto(target, result, where=np.tri(n, dtype=bool) if part == "lower" else np.tri(n, dtype=bool).T)


def _documented(name: str, types: Types, twice: bool) -> str:
    hermitian = name[1:3] == "he"
    to = "H" if hermitian else "T"
    formula = f"alpha (A B^{to} + B A^{to})" if twice and not hermitian else f"alpha A B^{to} + conj(alpha) B A^{to}" if twice \
        else f"alpha A A^{to}"
    return _DOCUMENTATION.format(
        formula=formula, operands=types.operands, name=name, names="a, b" if twice else "a",
        matrices="matrices" if twice else "matrix", call="1, a, a" if twice else "1, a",
        answer=as_printed([[10, 22], [0, 50]] if twice else [[5, 11], [0, 25]], types),
        accepted='0, 2, "N", "C"' if hermitian else '0, 1, "N", "T"' if types.is_complex else '0, 1, 2, "N", "T", "C"',
        factor=", a real number" if hermitian and not twice else "", real=", a real number" if hermitian else "",
        conjugated=" and conjugated" if hermitian else "")


def _rank_k(name: str) -> RankK:
    types, hermitian = ROUTINES[f"{name[0]}gemm"], name[1:3] == "he"

    def routine(alpha: Any, a: Any, beta: Any = 0, c: Any = None, trans: Any = 0, lower: Any = 0, overwrite_c: Any = 0) -> Any:
        return call_on_held(_updated, name, types, hermitian, alpha, a, None, beta, c, trans, lower, overwrite_c)

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _documented(name, types, False)
    return routine


def _rank_2k(name: str) -> Rank2K:
    types, hermitian = ROUTINES[f"{name[0]}gemm"], name[1:3] == "he"

    def routine(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans: Any = 0, lower: Any = 0,
                overwrite_c: Any = 0) -> Any:
        if b is None:
            raise TypeError(f"{name} takes arrays and lists of numbers, but b is None")
        return call_on_held(_updated, name, types, hermitian, alpha, a, b, beta, c, trans, lower, overwrite_c)

    routine.__name__ = routine.__qualname__ = name
    routine.__doc__ = _documented(name, types, True)
    return routine


ssyrk, dsyrk, csyrk, zsyrk, cherk, zherk = RANK_K = tuple(map(_rank_k, ("ssyrk", "dsyrk", "csyrk", "zsyrk", "cherk", "zherk")))
ssyr2k, dsyr2k, csyr2k, zsyr2k, cher2k, zher2k = RANK_2K = tuple(
    map(_rank_2k, ("ssyr2k", "dsyr2k", "csyr2k", "zsyr2k", "cher2k", "zher2k")))
