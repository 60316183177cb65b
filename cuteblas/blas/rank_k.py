"""Routines on one triangle of a symmetric or Hermitian matrix: ``ssyrk``, ``cher2k`` and kin."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np

from ..engines.dispatch import engine_of
from ..engines.emulator import NUMPY
from ..engines.execution import Execution
from ..functions.gemm import new_matrices
from ..functions.host_gemm import multiply
from ..functions.signatures import Array, Flag, Promoted, Transposed
from .arguments import Arguments, Call, Request, gathered_operands, prepare
from .calls import answered, perform, where
from .signatures import Routine, published, rows, with_signature
from .types import dtype_named

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

    def __call__(self, alpha: Any, a: Promoted[Array], beta: Any = 0, c: Any = None,
                 trans: Transposed = 0, lower: Flag = 0, overwrite_c: Flag = 0) -> Array: ...


class Rank2K(Protocol):
    """A routine that multiplies two matrices by the transpose of the other one."""

    __name__: str

    def __call__(self, alpha: Any, a: Promoted[Array], b: Promoted[Array], beta: Any = 0,
                 c: Any = None, trans: Transposed = 0, lower: Flag = 0,
                 overwrite_c: Flag = 0) -> Array: ...


def _letters(row: Routine, given: Arguments) -> tuple[str, str]:
    """How both factors of a product are read."""
    other, is_complex = "C" if row.transpose == "H" else "T", row.types.is_complex
    accepted = "0 or 'N', 2 or 'C'" if other == "C" else "0 or 'N', 1 or 'T'" if is_complex else "0 or 'N', 1 or 'T', 2 or 'C'"
    asked = given.transposition("trans", accepted).letter
    if asked == "R" or (is_complex and asked not in ("N", other)):
        raise ValueError(f"{row.name} takes {accepted} as trans, got {given['trans']!r}")
    return ("N", other) if asked == "N" else (other, "N")


def _real(given: Arguments, name: str) -> Any:
    """A factor that has to be real, so that the result is Hermitian."""
    value = given[name]
    if isinstance(value, (complex, np.complexfloating)):
        if value.imag:
            raise ValueError(f"{given.function} takes a real number as {name}, got {value}")
        return value.real
    if hasattr(value, "dtype") and value.dtype.kind == "c":
        raise ValueError(
            f"{given.function} takes a real number as {name}, got an array of {value.dtype}"
        )
    return value


def _updated(row: Routine, given: Arguments) -> Any:
    """``alpha a a^T + beta c``, or ``alpha a b^T + alpha b a^T + beta c``, in one triangle."""
    twice, hermitian = "b" in row.operands, row.transpose == "H"
    gathered = gathered_operands(row, given)
    arrays = gathered.arrays
    a, b, c = arrays["a"], arrays.setdefault("b", arrays["a"]), arrays.get("c")
    first, second = _letters(row, given)
    part = "lower" if given.flag("lower") else "upper"
    beta = _real(given, "beta") if hermitian else given["beta"]
    alpha = _real(given, "alpha") if hermitian and not twice else given["alpha"]
    if a.shape != b.shape:
        raise ValueError(
            f"{row.name} takes matrices of one shape, got a {a.shape} and b {b.shape}"
        )
    n = a.shape[first != "N"]
    if c is not None and c.shape != (n, n):
        raise ValueError(
            f"{row.name} takes c of (n, n) = {(n, n)}, but it has shape {c.shape}: a {a.shape}"
            f"{'' if first == 'N' else f' with trans={first!r}'}"
        )
    call = prepare(row.name, row.types, Request(alpha, a, b, beta, given["c"], first, second,
                                                given["overwrite_c"]),
                   moves=False, gather=lambda *_: gathered)
    product = call.given
    with where(call):
        target = _target(call)
        if hermitian and product.c is not None:
            _without_imaginary_diagonal(target)
        run = Execution(call.function, NUMPY if call.engine.moves else call.engine)
        product = product._replace(c=None if product.c is None else target, out=target,
                                   triangle=part, hermitian=hermitian and not twice)
        multiply(run, product)
        if twice:               # the factor and the operands of the first product, exchanged
            a, b = call.trans_a.view(b), call.trans_b.view(a)
            alpha = product.alpha.conjugate() if hermitian else product.alpha
            multiply(run, product._replace(a=a, b=b, alpha=alpha, beta=1, c=target))
        if hermitian:         # sums of slices, and of two products, are real there but for rounding
            _without_imaginary_diagonal(target)
    return answered(call, target)


def _target(call: Call) -> Any:
    """The array to update: ``c`` itself, a copy of it, or zeros."""
    if call.given.out is not None:
        return call.given.out
    target = call.engine.empty(new_matrices(call.shape, dtype_named(call.types.output), "F"))
    target[...] = 0 if call.given.c is None else call.given.c
    return target


def _without_imaginary_diagonal(x: Any) -> None:
    engine = engine_of(x)
    memory = engine.memory(x)
    engine.view(x, (len(x),), (sum(memory.strides),)).imag[...] = 0


def _described(row: Routine) -> dict[str, str]:
    hermitian, twice, to = row.transpose == "H", "b" in row.operands, row.transpose
    return {"formula": f"alpha A A^{to}" if not twice else f"alpha A B^{to} + conj(alpha) B A^{to}"
            if hermitian else f"alpha (A B^{to} + B A^{to})", "names": "a, b" if twice else "a",
            "matrices": "matrices" if twice else "matrix", "call": "1, a, a" if twice else "1, a",
            "accepted": '0, 2, "N", "C"' if hermitian else '0, 1, "N", "T"' if row.types.is_complex
            else '0, 1, 2, "N", "T", "C"', "factor": ", a real number" if hermitian and not twice
            else "", "real": ", a real number" if hermitian else "",
            "conjugated": " and conjugated" if hermitian else ""}


def _rank_k(row: Routine) -> RankK:
    return published(with_signature(RankK, partial(perform, _updated, row)), row, _DOCUMENTATION,
                     [[5, 11], [0, 25]], **_described(row))


def _rank_2k(row: Routine) -> Rank2K:
    return published(with_signature(Rank2K, partial(perform, _updated, row)), row, _DOCUMENTATION,
                     [[10, 22], [0, 50]], **_described(row))


ssyrk, dsyrk, csyrk, zsyrk, cherk, zherk = map(_rank_k, rows("syrk", "herk"))
ssyr2k, dsyr2k, csyr2k, zsyr2k, cher2k, zher2k = map(_rank_2k, rows("syr2k", "her2k"))
