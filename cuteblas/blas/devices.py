"""A product over several GPUs: ``devices=``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..engines.dispatch import ByName
from ..engines.engine import engine_of
from ..engines.numpy_gemm import new_array
from ..engines.sharded import ShardedArray, as_sharded
from ..functions.devices import (
    as_devices,
    matmul_of_host,
    new_result,
    on_host_alone,
    put,
    shares_memory,
    spread_product,
    stand_in_of,
)
from ..functions.gemm import gemm, refuse_self_overlap
from ..functions.gufunc import resolve_product
from .arguments import Call, Request, Transposition, read
from .libraries import HOST, Gathered, Place
from .types import Types, dtype_named


def run_over(function: str, types: Types | None, request: Request, devices: Any) -> Any:
    """Check a call and run it over devices; ``gemm`` infers its ``types``."""
    for name in ("epilogue", "stream", "variant"):
        if getattr(request, name) is not None:
            raise TypeError(f"{function} with devices= does not take {name}=")
    ordinals = as_devices(function, devices)
    call = _read(function, types, request)
    given, of_host = call.given, call.place is HOST
    a, b, c, reads_c = given.a, given.b, given.out, given.c is not None
    written = None if c is None else "out" if request.out is not None else "c"
    for x in () if written is None else (c,) if of_host else c.shards:
        refuse_self_overlap(function, written or "", engine_of(x).memory(x))
    if of_host:
        return _of_host(call, ordinals)
    settled = resolve_product(stand_in_of(a, None), stand_in_of(b, None))
    if written is None:
        c = new_result(settled, dtype_named(call.types.output), a, b, "F")
    elif shares_memory(c, (a, b)):
        raise ValueError(
            f"{function} writes {written} while it reads a and b, but they share memory"
        )
    if reads_c and (written is None or call.answer is not request.c):
        if written is not None and shares_memory(c, (given.c,)):
            raise ValueError(
                f"{function} writes out while it reads c, but they share memory: pass the same array twice"
            )
        put(given.c, c)

    def multiply(there: Sequence[Any], into: Any) -> None:
        from ..engines.cuda import CUDA
        from ..engines.execution import Execution

        gemm(Execution(f"{function}: tiles", CUDA),
             given._replace(a=there[0], b=there[1], c=into if reads_c else None, out=into))

    if given.alpha == 0:                            # A and B are not looked at, so they do not move
        settled = replace(settled, extents={**settled.extents, "k": 0})
    spread_product(function, ordinals, settled, (a, b, c), given.algorithm.precision, multiply,
                   reads_c)
    if written is not None:
        return call.answer
    return c if len(c.shards) > 1 else c.shards[0]


def _read(function: str, types: Types | None, request: Request) -> Call:
    """A checked call with all arrays on the host or all sharded, and no C without beta."""
    for name in ("alpha", "beta"):
        if hasattr(value := getattr(request, name), "ndim") and not isinstance(value, np.generic):
            raise TypeError(f"{function} with devices= takes a number as {name}, got an array")
    call = read(function, types, request, gather=_gathered, view=_seen)
    for name, x in call.gathered.arrays.items():
        if x.ndim > 3 or (x.shape[:-2] != call.shape[:-2] and (name in ("c", "out") or x.ndim > 2)):
            raise ValueError(
                f"{function} with devices= takes matrices, or stacks of them along one axis and of one length, but "
                f"{name} has shape {x.shape}"
            )
    given = call.given
    return call if given.c is not None and given.beta != 0 else call._replace(
        given=given._replace(c=None, beta=0))


def _gathered(function: str, operands: ByName, needed: str) -> Gathered:
    """Operands as NumPy arrays if all are, else divided among GPUs."""
    held = {name: x for name, x in operands.items() if x is not None or name in needed}
    of_host = on_host_alone(*held.values())
    for name, x in held.items():
        if (of_host and not isinstance(x, np.ndarray)) or x is None:
            kind = None if x is None else f"a {type(x).__name__}"
            raise TypeError(f"{function} with devices= takes arrays, but {name} is {kind}")
    if of_host:
        return Gathered(held, HOST)
    return Gathered({name: as_sharded(x) for name, x in held.items()}, Place("cupy", 0))


def _seen(way: Transposition, x: Any) -> Any:
    """An operand as it is multiplied, but for conjugation."""
    if not isinstance(x, ShardedArray):
        return way.view(x)
    last = {x.ndim - 1: x.ndim - 2, x.ndim - 2: x.ndim - 1} if way.swaps else {}
    return ShardedArray([way.view(shard) for shard in x.shards], last.get(x.axis, x.axis))


def _of_host(call: Call, ordinals: tuple[int, ...]) -> np.ndarray:
    """Compute a call on NumPy arrays: A B on the devices, and the rest on the host."""
    function, types, given = call.function, call.types, call.given
    alpha, precision = given.alpha, given.algorithm.precision
    if not types.operands == types.output == types.compute:
        raise TypeError(
            f"{function} with devices= takes NumPy arrays only of types that are summed in the same type, but "
            f"{types.operands} is summed in {types.compute} into {types.output}; CuPy arrays may have any type"
        )
    kind = dtype_named(types.output)
    out = given.out if given.out is not None else new_array(call.shape, kind, "F")
    a, b = (x.conj() if conj else x
            for x, conj in ((given.a, given.conj_a), (given.b, given.conj_b)))
    if alpha == 1 and given.c is None:
        return matmul_of_host(function, a, b, out, ordinals, precision)
    product: Any = 0
    if alpha != 0:
        product = kind.type(alpha) * matmul_of_host(function, a, b, None, ordinals, precision)
    with np.errstate(all="ignore"):
        out[...] = product if given.c is None else product + given.c * kind.type(given.beta)
    return out
