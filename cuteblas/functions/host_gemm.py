"""``C = epilogue(alpha A B + beta C)`` of NumPy arrays on the GPU, where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..engines.execution import Execution
from ..engines.placement import offload, work_of
from .gemm import GemmArguments, Result, gemm, gemm_by_numpy


def multiply(run: Execution, given: GemmArguments) -> Result:
    """A product by the kernels of an engine, by NumPy, or on the GPU where that is faster."""
    if run.engine.kernels:
        return gemm(run, given)
    return (_offloaded if run.engine.moves else gemm_by_numpy)(run.function, given)


def _offloaded(function: str, given: GemmArguments) -> Result:
    bound = given.epilogue
    if bound is not None:
        bound = bound.converted(lambda _name, x: np.asarray(x))
        given = given._replace(epilogue=bound)
    a, b, shape = given.a, given.b, given.shape
    written = [] if bound is None else [*bound.outputs.values()]
    operands = bound.operands.values() if bound else ()
    read = [x for x in (given.alpha, given.beta, given.c, *operands) if isinstance(x, np.ndarray)]

    def carried(run: Execution, there: Sequence[Any], target: Any) -> Any:
        places = {id(x): y for x, y in zip((*read, *written), there[2:], strict=True)}
        moved = GemmArguments._make((*there[:2], *(places.get(id(x), x) for x in given[2:])))
        return gemm(run, moved._replace(
            out=target, epilogue=bound and bound.converted(lambda _name, x: places[id(x)])))

    def stream() -> Any:
        from .tiles import gemm_in_tiles

        return gemm_in_tiles(function, given)

    products = prod(shape) * a.shape[-1]
    work = work_of(products, a.dtype, (a, b, *read), given.out, shape)
    streams = products and given.algorithm.variant is None
    return offload(function, work, carried, [a, b, *read], given.out,
                   partial(gemm_by_numpy, function, given), written, stream if streams else None)
