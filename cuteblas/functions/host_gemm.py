"""``C = epilogue(alpha A B + beta C)`` of NumPy arrays: by NumPy, or on the GPU where that is
expected to be faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..engines.counters import tally
from ..engines.execution import Execution
from ..engines.numpy_gemm import Multiplication, new_array, product_in
from ..engines.placement import offload, work_of
from .algorithms import BY_NUMPY, NATIVE, Algorithm, refuse_variant
from .gemm import GemmArguments, Result, effective_alpha, gemm

__all__ = ["gemm_by_numpy", "gemm_of_host"]


def gemm_of_host(function: str, moves: bool, a: np.ndarray, b: np.ndarray,
                 given: GemmArguments) -> Result:
    """Multiply NumPy arrays.

    Parameters
    ----------
    function : str
        On whose account.
    moves : bool
        Whether the GPU does it if that is expected to be faster.
    a, b, given
        As in :func:`cuteblas.functions.gemm.prepare`.

    Returns
    -------
    array, dict
        As in :func:`gemm`.

    Raises
    ------
    ValueError
        If NumPy does it and a kernel is named.
    """
    def stay() -> Result:
        refuse_variant(given.algorithm.variant, BY_NUMPY)
        return gemm_by_numpy(function, a, b, given)

    if not moves:
        return stay()
    bound = given.epilogue
    if bound is not None:
        bound = bound.converted(lambda _name, x: np.asarray(x))
        given = given._replace(epilogue=bound)
    written = [] if bound is None else [*bound.outputs.values()]
    operands = bound.operands.values() if bound else ()
    read = [x for x in (given.alpha, given.beta, given.c, *operands) if isinstance(x, np.ndarray)]

    def multiply(run: Execution, there: Sequence[Any], target: Any) -> Any:
        places = {id(x): y for x, y in zip((*read, *written), there[2:], strict=True)}
        moved = GemmArguments._make(places.get(id(x), x) for x in given)._replace(out=target)
        if bound is not None:
            moved = moved._replace(epilogue=bound.converted(lambda _name, x: places[id(x)]))
        return gemm(run, there[0], there[1], moved)

    def stream() -> Any:
        from .tiles import gemm_in_tiles

        return gemm_in_tiles(function, a, b, given)

    shape, _kind = given.result_of(a, b)
    products = prod(shape) * a.shape[-1]
    work = work_of(products, a.dtype, (a, b, *read), given.out, shape)
    streams = products and given.algorithm.variant is None
    return offload(function, work, multiply, [a, b, *read], given.out, stay, written,
                   stream if streams else None)


def gemm_by_numpy(function: str, a: np.ndarray, b: np.ndarray,
                  given: GemmArguments) -> Result:
    """Multiply NumPy arrays by NumPy's BLAS; an algorithm that kernels would refuse is refused.

    Sums of 16-bit numbers are float32 and are rounded once; sums of int8 are exact and wrap in
    int32.

    Returns
    -------
    array, dict
        As in :func:`gemm`.
    """
    precision = given.algorithm.precision
    if precision not in NATIVE:
        from ..engines.emulator import REHEARSAL

        gemm(Execution(function, REHEARSAL), a, b, given._replace(algorithm=Algorithm(precision)))
    c, out, epilogue, triangle = given.c, given.out, given.epilogue, given.triangle
    shape, kind = given.result_of(a, b)
    sums = np.dtype(given.sums_of(a, b, kind))
    alpha, beta = (sums.type(x[()] if isinstance(x, np.ndarray) else x)
                   for x in (effective_alpha(given.alpha, a.shape[-1], epilogue), given.beta))
    extras: Mapping[str, np.ndarray] = {}
    if epilogue is None:
        multiplication = Multiplication(shape, kind, sums, given.order, given.conj_a, given.conj_b,
                                        False)
        target = multiplication.run(a, b, alpha, beta, c, out if triangle is None else None)
        if triangle is not None and out is not None:
            written = np.tri(len(out), dtype=bool)
            np.copyto(out, target, where=written if triangle == "lower" else written.T)
            target = out
    else:
        from .epilogues import evaluate

        a, b = (np.conj(x) if conj else x for x, conj in ((a, given.conj_a), (b, given.conj_b)))
        target = new_array(shape, kind, given.order) if out is None else out
        with np.errstate(all="ignore"):
            acc = np.zeros(shape, sums) if alpha == 0 else product_in(a, b, sums, shape)
            before = None if c is None else np.broadcast_to(c, shape)
            target[...], extras = evaluate(epilogue, acc, output=kind.name, alpha=alpha, beta=beta,
                                           c=before, a=a, b=b)
    tally(function, "calls", "numpy" if target.size else "nothing").tick()
    return target, extras
