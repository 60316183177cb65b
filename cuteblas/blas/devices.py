"""One product in BLAS terms over several GPUs: ``devices=``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..codegen.dtypes import accumulator_of
from ..engines.engine import engine_of
from ..engines.numpy_gemm import new_array
from ..engines.sharded import ShardedArray, as_sharded
from ..functions.algorithms import checked_precision
from ..functions.devices import as_devices, matmul_of_host, new_result, on_host_alone, put, shares_memory, spread_product
from ..functions.gemm import gemm, refuse_self_overlap
from ..functions.matmul import in_tiles
from .arguments import Transposition, as_scalar, as_transposition, checked_flag
from .libraries import Place
from .types import Types, dtype_named, resolved, type_name

__all__ = ["gemm_over"]


def gemm_over(function: str, types: Types | None, arrays: dict[str, Any], alpha: Any, beta: Any, trans: tuple[Any, Any],
              overwrite_c: Any, precision: str | None, devices: Any, refused: dict[str, Any], dtypes: tuple[Any, Any]) -> Any:
    """``alpha op(A) op(B) + beta C`` over devices.

    Parameters
    ----------
    function : str
        The routine.
    types : Types or None
        The element types; ``None`` for ``gemm``, which infers them.
    arrays : dict
        ``a``, ``b``, ``c`` and ``out``, the last two of which may be ``None``.
    alpha, beta, trans, overwrite_c, precision, devices
        As in :func:`cuteblas.blas.sgemm`; ``trans`` of both operands.
    refused : dict
        Arguments that are not taken together with ``devices``.
    dtypes : tuple
        ``dtype`` and ``compute_dtype`` of ``gemm``.

    Returns
    -------
    array or ShardedArray
        ``out``, ``c``, or a new array.

    Raises
    ------
    TypeError, ValueError
        One sentence on the first thing that is wrong.
    """
    if (name := next((name for name, value in refused.items() if value is not None), None)) is not None:
        raise TypeError(f"{function} with devices= does not take {name}=")
    ordinals, algorithm = as_devices(function, devices), checked_precision(precision)
    ways = [as_transposition(function, f"trans_{name}", way) for name, way in zip("ab", trans, strict=True)]
    overwrites = checked_flag(function, "overwrite_c", overwrite_c)
    given = {name: x for name, x in arrays.items() if x is not None}
    of_host = on_host_alone(*given.values())
    for name, x in given.items():
        if of_host and not isinstance(x, np.ndarray):
            raise TypeError(f"{function} with devices= takes arrays, but {name} is a {type(x).__name__}")
    held: dict[str, Any] = given if of_host else {name: as_sharded(x) for name, x in given.items()}
    if types is None:
        asked = dtypes[0] if dtypes[0] is not None else next((type_name(held[x]) for x in ("out", "c") if x in held), None)
        types = resolved(type_name(held["a"]), dtype=asked, compute_dtype=dtypes[1])
    for name, x in held.items():
        wanted = types.operands if name in "ab" else types.output
        if type_name(x) != wanted:
            raise TypeError(f"{function} takes {name} in {wanted}, but it is {type_name(x)}")
        if x.ndim not in (2, 3):
            raise ValueError(f"{function} with devices= takes matrices, or stacks of them along one axis, but {name} has shape "
                             f"{x.shape}")
    scalars = []
    for name, value in (("alpha", alpha), ("beta", beta)):
        if hasattr(value, "ndim") and not isinstance(value, np.generic):
            raise TypeError(f"{function} with devices= takes a number as {name}, got an array")
        scalars.append(as_scalar(function, name, value, types, Place("numpy", None)))
    a, b = (_seen(held[name], way) for name, way in zip("ab", ways, strict=True))
    (*batch_a, m, k), (*batch_b, k_of_b, n) = a.shape, b.shape
    if k != k_of_b:
        raise ValueError(f"{function} multiplies (m, k) by (k, n), but k is {k} in a and {k_of_b} in b")
    if batch_a and batch_b and batch_a != batch_b:
        raise ValueError(f"{function} with devices= takes stacks of equal length, but they have {batch_a[0]} and {batch_b[0]}")
    shape = (*(batch_a or batch_b), m, n)
    for name in ("c", "out"):
        if name in held and held[name].shape != shape:
            raise ValueError(f"{function} with devices= takes {name} of shape {shape}, but it has shape {held[name].shape}")
    if overwrites and "c" in held and "out" in held and given["out"] is not given["c"]:
        raise ValueError(f"{function} takes out or overwrite_c=1, but not both")
    reads_c = scalars[1] != 0 and "c" in held
    if scalars[1] != 0 and not reads_c and "out" in held:
        raise ValueError(f"{function} needs c, because beta is not 0; to update out in place, pass it as c, too")
    written = "out" if "out" in held else "c" if overwrites and "c" in held else None
    for x in () if written is None else (held[written],) if of_host else held[written].shards:
        refuse_self_overlap(function, written or "", engine_of(x).memory(x))
    conj = {f"conj_{name}": way.conjugates and types.is_complex for name, way in zip("ab", ways, strict=True)}
    if of_host:
        return _of_host(function, types, a, b, held, written, scalars, reads_c, conj, ordinals, algorithm)
    target: ShardedArray | None = None if written is None else held[written]
    if target is not None and shares_memory(target, (a, b)):
        raise ValueError(f"{function} writes {written} while it reads a and b, but they share memory")
    c = new_result(shape, dtype_named(types.output), a, b, "F") if target is None else target
    if reads_c and (written is None or given[written] is not given["c"]):
        if target is not None and shares_memory(c, (held["c"],)):
            raise ValueError(f"{function} writes out while it reads c, but they share memory: pass the same array twice")
        put(function, held["c"], c)
    beta_of_c = scalars[1] if reads_c else 0
    usual = accumulator_of(types.operands, types.operands, types.output)
    compute = None if types.compute == usual else types.compute

    def multiply(x: Any, y: Any, z: Any) -> None:
        from ..engines.cuda import CUDA
        from ..engines.execution import Execution

        gemm(Execution(f"{function}: tiles", CUDA), x, y, alpha=scalars[0], beta=beta_of_c, c=z if reads_c else None, out=z,
             output=types.output, compute=compute, precision=algorithm, **conj)

    if scalars[0] == 0:                                 # A and B are not looked at, so they do not move
        a, b = (_without_sums(x, axis) for x, axis in ((a, -1), (b, -2)))
    spread_product(function, ordinals, a, b, c, algorithm, multiply, reads_c)
    if written is not None:
        return given[written]
    return c if len(c.shards) > 1 else c.shards[0]


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


def _of_host(function: str, types: Types, a: np.ndarray, b: np.ndarray, held: dict[str, Any], written: str | None,
             scalars: list[Any], reads_c: bool, conj: dict[str, bool], ordinals: tuple[int, ...], precision: str) -> np.ndarray:
    """Compute a call on NumPy arrays: A B on the devices, and the rest on the host."""
    if not types.operands == types.output == types.compute:
        raise TypeError(f"{function} with devices= takes NumPy arrays only of types that are summed in the same type, but "
                        f"{types.operands} is summed in {types.compute} into {types.output}; CuPy arrays may have any type")
    kind, (alpha, beta) = dtype_named(types.output), scalars
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    out = held[written] if written is not None else new_array(shape, kind, "F")
    a, b = (x.conj() if conj[f"conj_{name}"] else x for name, x in (("a", a), ("b", b)))
    if alpha == 1 and not reads_c:
        return matmul_of_host(a, b, out, ordinals, precision, in_tiles, function)
    product = kind.type(alpha) * matmul_of_host(a, b, None, ordinals, precision, in_tiles, function) if alpha != 0 else 0
    with np.errstate(all="ignore"):
        out[...] = product + held["c"] * kind.type(beta) if reads_c else product
    return out
