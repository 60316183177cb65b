"""One product in BLAS terms over several GPUs: ``devices=``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engines.engine import engine_of
from ..engines.numpy_gemm import new_array
from ..engines.sharded import ShardedArray, as_sharded
from ..functions.algorithms import checked_algorithm
from ..functions.devices import (
    as_devices,
    matmul_of_host,
    new_result,
    on_host_alone,
    put,
    shares_memory,
    spread_product,
)
from ..functions.gemm import gemm, refuse_self_overlap
from .arguments import Arguments, Call, Request, Transposition, inferred, targets
from .calls import kernel_arguments
from .libraries import HOST, Gathered
from .types import Types, dtype_named, type_name

__all__ = ["run_over"]


def run_over(function: str, types: Types | None, request: Request, devices: Any) -> Any:
    """Check a call and run it over devices; ``types`` is ``None`` for ``gemm``, which infers
    them."""
    for name in ("epilogue", "stream", "variant"):
        if getattr(request, name) is not None:
            raise TypeError(f"{function} with devices= does not take {name}=")
    ordinals = as_devices(function, devices)
    call = _prepared(function, types, request)
    a, b, c = call.a, call.b, call.out
    written = None if c is None else "out" if request.out is not None else "c"
    for x in () if written is None else (c,) if call.by_numpy else c.shards:
        refuse_self_overlap(function, written or "", engine_of(x).memory(x))
    if call.by_numpy:
        return _of_host(call, ordinals)
    if written is None:
        c = new_result(call.shape, dtype_named(call.types.output), a, b, "F")
    elif shares_memory(c, (a, b)):
        raise ValueError(
            f"{function} writes {written} while it reads a and b, but they share memory"
        )
    reads_c = call.c is not None
    if reads_c and (written is None or call.answer is not request.c):
        if written is not None and shares_memory(c, (call.c,)):
            raise ValueError(
                f"{function} writes out while it reads c, but they share memory: pass the same array twice"
            )
        put(function, call.c, c)
    named = kernel_arguments(call)

    def multiply(x: Any, y: Any, z: Any) -> None:
        from ..engines.cuda import CUDA
        from ..engines.execution import Execution

        gemm(Execution(f"{function}: tiles", CUDA), x, y,
             named._replace(c=z if reads_c else None, out=z))

    if call.alpha == 0:                             # A and B are not looked at, so they do not move
        a, b = (_without_sums(x, axis) for x, axis in ((a, -1), (b, -2)))
    spread_product(function, ordinals, a, b, c, call.algorithm.precision, multiply, reads_c)
    if written is not None:
        return call.answer
    return c if len(c.shards) > 1 else c.shards[0]


def _prepared(function: str, types: Types | None, request: Request) -> Call:
    """A call whose arguments have been checked: its arrays are all on the host or all sharded, and
    without beta it has no C."""
    algorithm, given = checked_algorithm(request.precision), Arguments(function, request._asdict())
    ways = given.transposition("trans_a"), given.transposition("trans_b")
    overwrites = given.flag("overwrite_c")
    held = {name: given[name] for name in ("a", "b", "c", "out") if given[name] is not None
            or name in "ab"}
    of_host = on_host_alone(*held.values())
    for name, x in held.items():
        if (of_host and not isinstance(x, np.ndarray)) or x is None:
            kind = None if x is None else f"a {type(x).__name__}"
            raise TypeError(f"{function} with devices= takes arrays, but {name} is {kind}")
    held = held if of_host else {name: as_sharded(x) for name, x in held.items()}
    types = types or inferred(held, request)
    for name, x in held.items():
        wanted = types.operands if name in "ab" else types.output
        if type_name(x.dtype) != wanted:
            raise TypeError(f"{function} takes {name} in {wanted}, but it is {type_name(x.dtype)}")
        if x.ndim not in (2, 3):
            raise ValueError(
                f"{function} with devices= takes matrices, or stacks of them along one axis, but {name} has shape "
                f"{x.shape}"
            )
    scalars = []
    for name in ("alpha", "beta"):
        if hasattr(given[name], "ndim") and not isinstance(given[name], np.generic):
            raise TypeError(f"{function} with devices= takes a number as {name}, got an array")
        scalars.append(given.scalar(name, types, HOST))
    a, b = (_seen(held[name], way) for name, way in zip("ab", ways, strict=True))
    (*batch_a, m, k), (*batch_b, k_of_b, n) = a.shape, b.shape
    if k != k_of_b:
        raise ValueError(
            f"{function} multiplies (m, k) by (k, n), but k is {k} in a and {k_of_b} in b"
        )
    if batch_a and batch_b and batch_a != batch_b:
        raise ValueError(
            f"{function} with devices= takes stacks of equal length, but they have {batch_a[0]} and {batch_b[0]}"
        )
    shape = (*(batch_a or batch_b), m, n)
    for name in ("c", "out"):
        if name in held and held[name].shape != shape:
            raise ValueError(
                f"{function} with devices= takes {name} of shape {shape}, but it has shape {held[name].shape}"
            )
    alpha, beta = scalars
    c, out, answer = targets(function, request, held, overwrites, beta, shape)
    c, beta = (c, beta) if c is not None and beta != 0 else (None, 0)
    return Call(function, types, Gathered(held, HOST), a, b, *ways, alpha, beta, c, out, answer,
                shape, None, algorithm, None, of_host)


def _without_sums(x: ShardedArray, axis: int) -> ShardedArray:
    """An operand without the elements that are summed."""
    cut = (..., slice(0, 0)) if axis == -1 else (..., slice(0, 0), slice(None))
    return ShardedArray([shard[cut] for shard in x.shards], x.axis)


def _seen(x: Any, way: Transposition) -> Any:
    """An operand as it is multiplied, but for conjugation."""
    if not isinstance(x, ShardedArray):
        return way.view(x)
    last = {x.ndim - 1: x.ndim - 2, x.ndim - 2: x.ndim - 1} if way.swaps else {}
    return ShardedArray([way.view(shard) for shard in x.shards], last.get(x.axis, x.axis))


def _of_host(call: Call, ordinals: tuple[int, ...]) -> np.ndarray:
    """Compute a call on NumPy arrays: A B on the devices, and the rest on the host."""
    function, types, alpha = call.function, call.types, call.alpha
    precision = call.algorithm.precision
    if not types.operands == types.output == types.compute:
        raise TypeError(
            f"{function} with devices= takes NumPy arrays only of types that are summed in the same type, but "
            f"{types.operands} is summed in {types.compute} into {types.output}; CuPy arrays may have any type"
        )
    kind = dtype_named(types.output)
    out = call.out if call.out is not None else new_array(call.shape, kind, "F")
    a, b = (x.conj() if way.conjugates and types.is_complex else x
            for x, way in ((call.a, call.trans_a), (call.b, call.trans_b)))
    if alpha == 1 and call.c is None:
        return matmul_of_host(function, a, b, out, ordinals, precision)
    product: Any = 0
    if alpha != 0:
        product = kind.type(alpha) * matmul_of_host(function, a, b, None, ordinals, precision)
    with np.errstate(all="ignore"):
        out[...] = product if call.c is None else product + call.c * kind.type(call.beta)
    return out
