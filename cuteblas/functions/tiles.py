"""What a tile of a product or contraction of NumPy arrays computes on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .._dtypes import accumulator_of
from ..engines.counters import tally
from ..engines.cuda import CUDA
from ..engines.dispatch import replays
from ..engines.emulator import HOST_CUDA
from ..engines.execution import Execution
from ..engines.host_cuda import current_ring, straight
from ..engines.keeping import expected
from ..engines.reuse import empty_array
from ..engines.settings import workspace_limit
from ..engines.streamed import Operand, Tiled, operands_of_product, stream_tiles
from .algorithms import Algorithm
from .expressions import Expression
from .gemm import GemmArguments, Result, gemm, new_matrices, scalar_kind
from .gufunc import Product, resolve_product
from .staging import TILES, multiply_tile

_STRAIGHT_BYTES = 64 << 20              # of operands and result that move one after the other


def gemm_in_tiles(function: str, given: GemmArguments) -> Result | None:
    """Multiply NumPy arrays in tiles; ``None`` without tiles, or if the epilogue has further
    results."""
    call = tiled_gemm(function, given)
    return (call.result.array, {}) if call is not None and stream_tiles(call) else None


def tiled_gemm(function: str, given: GemmArguments,
               by: Callable[[Sequence[Any], Any], None] | None = None) -> Tiled | None:
    """A product of NumPy arrays in tiles, each computed with ``by`` if given; ``None`` if it cannot
    be divided."""
    a, b, _conj_a, _conj_b, alpha, beta, c, out, *_how = given
    epilogue, shape, kind = given.epilogue, given.shape, given.kind
    divides = epilogue is None and a.dtype == b.dtype == kind and kind.kind != "b" \
        and given.sums == accumulator_of(*[kind.name] * 3)
    over_c = {name: x for name, x in (("alpha", alpha), ("beta", beta)) if type(x) is np.ndarray}
    if c is not None and (epilogue is not None or scalar_kind(beta) != "zero"):
        over_c["c"] = np.broadcast_to(c, shape)
    if epilogue is not None:
        if epilogue.outputs or epilogue.epilogue.inputs:
            return None
        trace, views, _scalars = given.traced()
        operands = dict(views)
        arrays = {name for name, x in epilogue.operands.items() if isinstance(x, np.ndarray)}
        if operands.keys() != arrays or over_c.keys() & arrays \
                or trace.outputs or trace.reductions:
            return None
        over_c |= operands
    strides = new_matrices(shape, kind, given.order).strides
    result = empty_array(shape, kind, strides) if out is None else out
    # A tile of the original C is read before that tile is written.
    others_than_c = (x for name, x in over_c.items() if name != "c")
    if result.shape != shape or any(np.may_share_memory(result, x)
                                    for x in (a, b, *others_than_c)):
        return None
    order = "C" if abs(result.strides[-2]) >= abs(result.strides[-1]) else "F"

    def multiply(there: Sequence[Any], **written: Any) -> Any:
        places = dict(zip(over_c, there[2:], strict=True))
        bound = epilogue and epilogue.converted(lambda name, _x: places[name])
        scalars = {"alpha": places.get("alpha", alpha), "beta": places.get("beta", beta)}
        tile = given._replace(a=there[0], b=there[1], c=places.get("c"), out=None, epilogue=bound,
                              order=order)
        return gemm(Execution(f"{function}: tiles", CUDA), tile._replace(**scalars | written))[0]

    def add(there: Sequence[Any], so_far: Any) -> Any:
        return multiply(there, output=given.sums, out=so_far,
                        **({} if so_far is None else {"beta": 1, "c": so_far}))

    first, second, target = operands_of_product(a, b, result)
    others = (target._replace(array=x) if x.ndim else Operand(x, (None,) * 4)
              for x in over_c.values())
    return Tiled(function, (first, second, *others), target,
                 by or (lambda there, out: multiply(there, out=out)), add if divides else None)


def product_in_tiles(function: str, x1: np.ndarray, x2: np.ndarray, out: np.ndarray | None,
                     precision: str,
                     product: Product | None = None) -> np.ndarray | None:
    """Multiply NumPy arrays in tiles; ``None`` if ``out`` overlaps an operand, nothing is
    multiplied, or memory is too small."""
    if out is not None and any(np.may_share_memory(out, x) for x in (x1, x2)):
        return None
    if product is None:
        target = None if out is None else HOST_CUDA.memory(out)
        product = resolve_product(HOST_CUDA.memory(x1), HOST_CUDA.memory(x2), target)
    result = empty_array(product.shape, product.dtype, product.strides) if out is None else out
    if not (product.extents["k"] and result.size):
        return None
    a, b, c = product.matrices(x1, x2, result)
    if a.ndim == b.ndim == c.ndim == 2 and x1 is not x2 and product.dtype is x1.dtype is x2.dtype is result.dtype \
            and sum(x.nbytes for x in (x1, x2) if not expected([x]) or x.nbytes < 16 * result.nbytes) + result.nbytes \
            <= _STRAIGHT_BYTES \
            and workspace_limit() is None and all(x.flags.forc for x in (a, b, c)) and not np.may_share_memory(x1, x2):
        try:
            straight(a, b, c, partial(multiply_tile, precision=precision), (TILES, precision))
        except CUDA.out_of_memory:
            return None
        tally(function, "calls", "in tiles").tick()
        tally(function, "moved", f"to cuda:{current_ring().link.ordinal}").tick()
        return result
    call = tiled_product(function, a, b, c, precision)
    return result if call is not None and stream_tiles(call) else None


def tiled_product(function: str, a: np.ndarray, b: np.ndarray, c: np.ndarray,
                  precision: str) -> Tiled | None:
    """A product of stacks of matrices in tiles; ``None`` if ``c`` has fewer axes."""
    if max(a.ndim, b.ndim) > c.ndim:                        # of extent 1
        return None
    return tiled_gemm(function, GemmArguments(a, b, out=c, algorithm=Algorithm(precision)),
                      lambda there, out: multiply_tile(there[0], there[1], out, precision))


def contraction_in_tiles(function: str, settled: Expression, x1: np.ndarray, x2: np.ndarray,
                         out: np.ndarray | None, algorithm: Algorithm) -> np.ndarray | None:
    """Contract two NumPy arrays in tiles of indices of the result; ``None`` without tiles."""
    if out is not None and any(np.may_share_memory(out, x) for x in (x1, x2)):
        return None
    result = empty_array(settled.shape, settled.dtype, settled.strides) if out is None else out
    call = tiled_contraction(function, settled, (x1, x2, result), algorithm)
    return result if call is not None and stream_tiles(call) else None


def tiled_contraction(function: str, settled: Expression, arrays: Sequence[np.ndarray],
                      algorithm: Algorithm) -> Tiled | None:
    """A contraction of two arrays into a third one, in tiles; ``None`` if there are none."""
    call = contraction_by_tiles(function, settled, arrays, algorithm)
    return call if all(settled.extents.values()) and {*call.result.axes} != {None} else None


def contraction_by_tiles(function: str, settled: Expression, arrays: Sequence[Any],
                         algorithm: Algorithm, preferred: Collection[str] = ()) -> Tiled:
    """A contraction of two arrays into a third one, in tiles of those indices of the result that
    both, the first or the second one have: of the ``preferred`` ones if any, then the longest."""
    from .contractions import evaluate

    extents, every = settled.extents, (*(term.axes for term in settled.terms), settled.axes)
    where: dict[tuple[bool, ...], tuple[Any, ...]] = {}     # by which operands have an index
    for c in sorted(extents, key=lambda c: (c in preferred, extents[c]), reverse=True):
        axes = [[axis for axis, indices in enumerate(each) if c in indices] for each in every]
        alone = all(len(found) < 2 and all(each[axis] == c for axis in found)
                    for found, each in zip(axes, every, strict=True))
        if alone and axes[2] and extents[c] > 1:
            its = tuple(found[0] if found else None for found in axes)
            where.setdefault((its[0] is not None, its[1] is not None), its)
    # of the batch, of rows and of columns: the axes in both operands and in the result
    places = zip(*(where.get(has, (None,) * 3) for has in (
        (True, True), (True, False), (False, True))), strict=True)
    first, second, into = (Operand(x, (*its, None)) for x, its in zip(arrays, places, strict=True))
    name = f"{function}: tiles"
    head = name, algorithm, *((term.axes, term.conj) for term in settled.terms), settled.axes

    def compute(there: Sequence[Any], target: Any) -> None:
        replay = replays[type(target)]
        if replay is None or replay(head, tuple(there), target) is None:
            shorter = {c: n for c, n in zip(settled.axes, target.shape, strict=True) if len(c) == 1}
            part = replace(settled, extents={**extents, **shorter}, shape=target.shape)
            run = Execution(name, CUDA)
            evaluate(part, algorithm, run, there, target)
            run.record(head, there, target, target, "abc")

    return Tiled(function, (first, second), into, compute)
