"""``matmul`` with an epilogue: NumPy's rules for the product, and kernels or NumPy for both."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Any

import numpy as np

from .._dtypes import accumulator_of
from ..codegen.epilogue import epilogue_role
from ..engines.dispatch import ByName, Func, Replayable, kind_of, own_call, replays
from ..engines.emulator import NUMPY
from ..engines.engine import Engine
from ..engines.execution import Execution
from ..engines.numpy_gemm import QUIET, product_in
from ..engines.placement import FEW, engine_for
from ..engines.replay.numpy import record_key, recorded
from .algorithms import NATIVE, checked_algorithm, checked_precision
from .epilogues import Bound, as_bound
from .epilogues.epilogue import COMPUTED, check_shape, is_choice
from .epilogues.traces import trace_state
from .gemm import GemmArguments, refuse_shared_outputs
from .gufunc import Product, let_numpy_refuse, resolve_product, single_out
from .host_gemm import multiply
from .routing import UFUNC, NumpyCall, Resolved, reason_of, settle_call
from .staging import run_product

_NDARRAY, _quiet = np.ndarray, QUIET.copy               # look-ups less


def fused_matmul(x1: Any, x2: Any, out: Any, epilogue: Any, precision: str | None,
                 variant: str | None, arguments: ByName) -> Any:
    bound = epilogue if type(epilogue) is Bound else as_bound(epilogue)
    records = not arguments and variant is None
    by_numpy = records and out is None and type(x1) is type(x2) is _NDARRAY
    precision = "auto" if precision is None else checked_precision(precision)
    if by_numpy and (key := _key_of(x1, x2, bound, precision)) is not None and (found := recorded(key)) is not None:
        result = _quiet().run(found.compute, x1, x2, bound.operands)
        found.tick()
        return result
    out = single_out(out)
    if records and not by_numpy and (call := _replayable(x1, x2, out, bound, precision)) is not None \
            and (result := call.answer()) is not None:
        return result
    if (own := own_call(x1, x2, out, bound)) is not None:
        return own(fused_matmul, (x1, x2, out, bound, precision, variant, arguments), {})
    algorithm = checked_algorithm(precision, variant, "gemm")
    resolved, product = resolve_fused(x1, x2, out, bound, arguments, engine_for(x1, x2, out))
    run, out = Execution("matmul", resolved.engine), resolved.out
    with resolved.on_device() as (a, b):
        result = run_fused(run, multiply, product, GemmArguments(a, b, out=out, epilogue=bound,
                                                                 algorithm=algorithm))
        if isinstance(result, tuple):
            return result
        if by_numpy:
            if run.engine is NUMPY and precision in NATIVE:
                _record_by_numpy(x1, x2, product, bound, precision)
        elif records and not run.engine.on_host and (call := _replayable(x1, x2, out, bound, precision)) is not None:
            run.record(call.head, call.inputs, call.out, result, call.roles, scalars=True)
    return result


def _key_of(x1: np.ndarray, x2: np.ndarray, bound: Bound, precision: str) -> tuple[Any, ...] | None:
    """What NumPy calls that run alike have in common; ``None`` if they have to be checked."""
    # trace_state in line
    if bound.outputs or (state := bound.epilogue.known) is None or not state.holds():
        return None
    key: tuple[Any, ...] = state, precision, x1.shape, x1.dtype, x2.shape, x2.dtype
    for name, x in bound.operands.items():
        kind = type(x)
        if kind is _NDARRAY:
            key += name, x.shape, x.dtype
        elif kind in _FLOATING:
            key += name, kind
        elif kind is int:
            key += name, kind, _size_of(x)
        elif is_choice(x):
            key += name, kind, x
        else:
            return None
    return key


def _record_by_numpy(x1: np.ndarray, x2: np.ndarray, product: Product, bound: Bound,
                     precision: str) -> None:
    """Record how NumPy computes a product of two matrices and an epilogue of its sum."""
    epilogue, shape, kind = bound.epilogue, product.shape, product.dtype
    arrays = [x1, x2, *(x for x in {**epilogue.operands, **bound.operands}.values()
                        if hasattr(x, "dtype"))]
    if (key := _key_of(x1, x2, bound, precision)) is None or not x1.ndim == x2.ndim == 2 or not all(x.size for x in arrays) \
            or len(epilogue.parameters) > 1 + len(epilogue.operands):
        return
    sums = np.dtype(accumulator_of(*[kind.name] * 3))
    if kind == sums and kind.kind in "fc" and all(x.dtype.char in COMPUTED for x in arrays):
        function = partial(epilogue.function, **epilogue.operands) if epilogue.operands else epilogue.function

        def compute(x1: np.ndarray, x2: np.ndarray, operands: ByName) -> Any:
            return function(x1 @ x2, **operands)

        if sum(x.size for x in arrays) <= FEW:
            # what it returns is of the same kind every time
            value = _quiet().run(compute, x1, x2, bound.operands)
            if type(value) is _NDARRAY and value.dtype is kind and value.shape == shape and value.base is None \
                    and value.flags.c_contiguous and not any(x is value for x in arrays):
                return record_key(key, "matmul", compute, arrays)
    else:
        def compute(x1: np.ndarray, x2: np.ndarray, operands: ByName) -> Any:
            return epilogue.computed({**epilogue.operands, **operands,
                                      "acc": product_in(x1, x2, sums, shape)})

    record_key(key, "matmul", lambda *call: np.broadcast_to(compute(*call),
                                                            shape).astype(kind, "C"), arrays)


_FLOATING = frozenset({float, complex, np.float32, np.float64, np.complex64, np.complex128})
"""Types of numbers whose values decide about no call."""
_BITS = 7, 8, 15, 16, 31, 32, 63, 64
"""Bits of integers in the kernels' types, which would wrap a number that they do not hold."""


def _size_of(x: int) -> tuple[bool, int]:
    """Which types hold an integer."""
    return x < 0, bisect_left(_BITS, (~x if x < 0 else x).bit_length())


def _replayable(x1: Any, x2: Any, out: Any, bound: Bound, precision: str) -> Replayable | None:
    """A call on CuPy arrays that may be replayed, else ``None``; numbers of the epilogue count by
    type, integers by the types that hold them."""
    replay = replays[type(x1)]
    if replay is None or bound.outputs or (state := trace_state(bound.epilogue)) is None:
        return None
    arrays, roles = [x1, x2], ["a", "b"]
    numbers: dict[str, float] = {}
    choices: list[tuple[Any, ...]] = []
    for name, x in bound.operands.items():
        if type(x) is type(x1):
            arrays.append(x)
            roles.append(epilogue_role(name))
        elif type(x) is int or type(x) is float:
            numbers[epilogue_role(name)] = x
            choices.append((name, type(x), type(x) is int and _size_of(x)))
        elif is_choice(x):
            choices.append((name, type(x), x))
        else:
            return None
    head = "fused", state, precision, tuple(choices), tuple(roles)
    return Replayable(replay, head, tuple(arrays), out, (*roles, "c"), (1, 0, numbers))


def resolve_fused(x1: Any, x2: Any, out: Any, bound: Bound, arguments: ByName,
                  host: Engine) -> tuple[Resolved, Product]:
    """The operands, and the product that NumPy makes of them."""
    given = {name: x for name, x in bound.given.items() if not is_choice(x)}
    asked = NumpyCall("matmul", np.matmul, (x1, x2), out, arguments, rules=UFUNC)
    found = settle_call(asked, resolve_product, host, given)
    if not isinstance(found, str):
        return found
    if kind_of(out) in ("scalar", "like") and out is not None:
        let_numpy_refuse(out)
    reason = reason_of(found)
    raise TypeError(f"{reason}, so no epilogue can run" if reason.startswith("there are no kernels")
                    else f"matmul with an epilogue takes plain NumPy or CuPy arrays, but {reason}")


def run_fused(run: Execution, multiply: Func, product: Product, given: GemmArguments) -> Any:
    """Multiply, with operands of an epilogue that have the axes of the result."""
    x1, x2, out, bound = given.a, given.b, given.out, given.epilogue
    refuse_shared_outputs(run.engine, bound, {"x1": x1, "x2": x2, "out": out})
    rank = len(product.shape)
    if product.cores[-1] != (rank - 2, rank - 1):           # operands are matrices as the result is
        def over_matrices(name: str, x: Any) -> Any:
            x = x if hasattr(x, "reshape") else np.asarray(x)
            if name in bound.outputs:
                return x
            check_shape(bound.epilogue, name, x.shape, product.shape)
            return product.over_result(x.reshape((1,) * (rank - x.ndim) + x.shape))

        bound = bound.converted(over_matrices)
    result, auxiliary = run_product(run, product, given._replace(epilogue=bound), multiply)
    if out is None and product.shape == () and isinstance(result, np.ndarray):
        result = result[()]
    return (result, auxiliary) if auxiliary else result
