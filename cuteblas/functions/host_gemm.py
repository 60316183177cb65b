"""``C = epilogue(alpha A B + beta C)`` of NumPy arrays: by NumPy, or on the GPU where that is
expected to be faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .._dtypes import accumulator_of
from ..engines.counters import tally
from ..engines.execution import Execution
from ..engines.numpy_gemm import Multiplication, new_array, product_in
from ..engines.placement import offload, work_of
from .algorithms import BY_NUMPY, NATIVE, refuse_variant
from .gemm import effective_alpha, gemm, result_of

__all__ = ["gemm_by_numpy", "gemm_of_host"]


def gemm_of_host(function: str, moves: bool, a: np.ndarray, b: np.ndarray,
                 **named: Any) -> tuple[Any, Mapping[str, Any]]:
    """Multiply NumPy arrays: see :func:`prepare`.

    Parameters
    ----------
    function : str
        On whose account.
    moves : bool
        Whether the GPU does it if that is expected to be faster.

    Returns
    -------
    array, dict
        As in :func:`gemm`.

    Raises
    ------
    ValueError
        If NumPy does it and a kernel is named.
    """
    def stay() -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        refuse_variant(named.get("variant"), BY_NUMPY)
        return gemm_by_numpy(a, b, function=function, **named)

    if not moves:
        return stay()
    bound, out, c = (named.get(name) for name in ("epilogue", "out", "c"))
    if bound is not None:
        bound = named["epilogue"] = bound.converted(lambda _name, x: np.asarray(x))
    written = [] if bound is None else [*bound.outputs.values()]
    scalars = named.get("alpha"), named.get("beta")
    read = [x for x in (*scalars, c, *(bound.operands.values() if bound else ()))
            if isinstance(x, np.ndarray)]

    def multiply(run: Execution, there: Sequence[Any], target: Any) -> Any:
        places = {id(x): y for x, y in zip((*read, *written), there[2:], strict=True)}
        moved = {name: places.get(id(x), x) for name, x in named.items()} | {"out": target}
        if bound is not None:
            moved["epilogue"] = bound.converted(lambda _name, x: places[id(x)])
        return gemm(run, there[0], there[1], **moved)

    def stream() -> Any:
        from .tiles import gemm_in_tiles

        return gemm_in_tiles(function, a, b, **named)

    shape, _kind = result_of(a, b, c, out, named.get("output"))
    products = prod(shape) * a.shape[-1]
    work = work_of(products, a.dtype, (a, b, *read), out, shape)
    streams = products and named.get("variant") is None
    return offload(function, work, multiply, [a, b, *read], out, stay, written,
                   stream if streams else None)


def gemm_by_numpy(a: np.ndarray, b: np.ndarray, *, function: str, precision: str = "auto",
                  variant: str | None = None,
                  **arguments: Any) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Multiply NumPy arrays by NumPy's BLAS: see :func:`prepare`. ``precision`` and ``variant``
    choose among kernels and mean nothing here; an algorithm that kernels would refuse is refused.

    Returns
    -------
    array, dict
        As in :func:`gemm`.
    """
    from ..engines.emulator import REHEARSAL

    if precision not in NATIVE:
        gemm(Execution(function, REHEARSAL), a, b, precision=precision, **arguments)
    return _by_numpy(a, b, function=function, **arguments)


def _by_numpy(a: np.ndarray, b: np.ndarray, *, conj_a: bool = False, conj_b: bool = False,
              alpha: Any = 1, beta: Any = 0, c: np.ndarray | None = None,
              out: np.ndarray | None = None, output: str | None = None, compute: str | None = None,
              epilogue: Any = None, order: str = "F", triangle: str | None = None,
              function: str = "gemm") -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Multiply NumPy arrays: see :func:`prepare` for the arguments, which are checked.

    Sums of 16-bit numbers are float32 and are rounded once; sums of int8 are exact and wrap in
    int32.

    Returns
    -------
    array, dict
        C, and the epilogue's further results by name.
    """
    shape, kind = result_of(a, b, c, out, output)
    sums = np.dtype(compute or accumulator_of(a.dtype.name, b.dtype.name, kind.name))
    alpha = effective_alpha(alpha, a.shape[-1], epilogue)
    alpha, beta = (sums.type(x[()] if isinstance(x, np.ndarray) else x) for x in (alpha, beta))
    extras: Mapping[str, np.ndarray] = {}
    if epilogue is None:
        multiplication = Multiplication(shape, kind, sums, order, conj_a, conj_b, False)
        target = multiplication.run(a, b, alpha, beta, c, out if triangle is None else None)
        if triangle is not None and out is not None:
            written = np.tri(len(out), dtype=bool)
            np.copyto(out, target, where=written if triangle == "lower" else written.T)
            target = out
    else:
        from .epilogues import evaluate

        a, b = (np.conj(x) if conj else x for x, conj in ((a, conj_a), (b, conj_b)))
        target = new_array(shape, kind, order) if out is None else out
        with np.errstate(all="ignore"):
            acc = np.zeros(shape, sums) if alpha == 0 else product_in(a, b, sums, shape)
            before = None if c is None else np.broadcast_to(c, shape)
            target[...], extras = evaluate(epilogue, acc, output=kind.name, alpha=alpha, beta=beta,
                                           c=before, a=a, b=b)
    tally(function, "calls", "numpy" if target.size else "nothing").tick()
    return target, extras
