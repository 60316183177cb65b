"""Run calls of BLAS routines, and replay those that are like an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress, product
from typing import Any

import numpy as np

from ..codegen.epilogue import epilogue_role
from ..engines.dispatch import NOTHING, ByName, Replayable, own_call, replays
from ..engines.emulator import NUMPY
from ..engines.execution import Execution
from ..engines.numpy_gemm import QUIET, Multiplication
from ..engines.replay.numpy import Compute
from ..engines.replay.numpy import record as record_by_numpy
from ..functions.algorithms import NATIVE
from ..functions.gemm import SOURCE, gemm_by_numpy
from ..functions.host_gemm import multiply
from .arguments import Arguments, Call, Request, prepare
from .signatures import Routine
from .types import Types


def run(function: str, types: Types | None, request: Request) -> Any:
    """Check a call, run it, and return what the caller gets; ``gemm`` infers its ``types``."""
    candidate = replayable((function, types and types.compute), request)
    if candidate is not None:
        replay, head, inputs, out, _roles, scalars = candidate
        # Replayable.answer, without its frame
        if (result := replay(head, inputs, out, scalars)) is not None:
            return result
    if (own := own_call(*request)) is not None:
        return own(run, (function, types, request), {})
    return execute(prepare(function, types, request), candidate)


def perform(operation: Callable[[Routine, Arguments], Any], row: Routine,
            values: dict[str, Any]) -> Any:
    """Run a routine on its arguments by name, with what arrays of our type hold."""
    if (own := own_call(*values.values())) is not None:
        return own(perform, (operation, row, values), {})
    return operation(row, Arguments(row.name, values))


def execute(call: Call, candidate: Replayable | None = None) -> Any:
    """Run a call that was checked, and record it if calls like it are replayed."""
    given = call.given
    if call.engine is NUMPY:
        result, extras = gemm_by_numpy(call.function, given)
        if candidate is not None and given.algorithm.precision in NATIVE \
                and (compute := _compute_by_numpy(candidate, call)) is not None:
            record_by_numpy(candidate, call.function, compute)
        return answered(call, result, extras)
    with where(call):
        run = Execution(call.function, call.engine)
        result, extras = multiply(run, given)
        if candidate is not None:
            record(run, candidate, given.alpha, given.beta, result)
    return answered(call, result, extras)


def answered(call: Call, result: Any, extras: ByName = NOTHING) -> Any:
    """What the caller gets: the result in its library, and an epilogue's further results."""
    if (back := call.gathered.back) is not None:
        result = back(result) if call.given.out is None else None
        extras = {name: back(x) for name, x in extras.items()}
    answer = result if call.given.out is None else call.answer
    return (answer, extras) if extras else answer


def _compute_by_numpy(candidate: Replayable, call: Call) -> Compute | None:
    """What computes such calls by NumPy; ``None`` if a scalar is an array or was rounded."""
    *_rest, reads_c, kinds = candidate.head
    given, types, shape, kind = call.given, call.types, call.shape, np.dtype(call.types.output)
    if "device" in kinds or (_kind(given.alpha, np.ndarray),
                             _kind(given.beta, np.ndarray)) != kinds:
        return None
    plain = kinds == ("one", "zero") and not given.conj_a and not given.conj_b \
        and types.operands == types.output == types.compute \
        and np.broadcast_shapes(given.a.shape[:-2], given.b.shape[:-2]) == shape[:-2]
    multiply = Multiplication(shape, kind, np.dtype(types.compute), "F", given.conj_a,
                              given.conj_b, plain).run
    swaps_a, swaps_b, in_place = call.trans_a.swaps, call.trans_b.swaps, given.c is not None and not reads_c
    flat = len(shape) == 2 and plain and given.c is None

    def compute(inputs: Sequence[Any], out: Any, scalars: tuple[Any, ...]) -> Any:
        a, b = inputs[0], inputs[1]
        if flat:
            target = np.empty(shape, kind, "F") if out is None else out
            return QUIET.copy().run(np.matmul, a.T if swaps_a else a, b.T if swaps_b else b, target)
        c = inputs[2] if reads_c else out if in_place else None
        alpha, beta = scalars
        return multiply(a.swapaxes(-1, -2) if swaps_a else a, b.swapaxes(-1, -2) if swaps_b else b,
                        alpha, beta, c, out)

    return compute


def where(call: Call) -> AbstractContextManager[None]:
    if call.place.device is None:
        return nullcontext()
    if call.stream is None:
        return call.engine.on_device_of(call.given.a)
    from ._cupy import in_stream

    return in_stream(call.stream, call.place.device)


# -- which calls are replayed, and that they are recorded ------------------------------------------
_FLAGS = frozenset({int, bool})
_NUMBERS = frozenset({int, float, complex, np.float32, np.float64, np.complex64, np.complex128})
# Numbers of this size stay numbers other than zero, and finite, in every type of sums.
_LEAST, _MOST = 1e-30, 2e9

_ROLES = {(reads_c, *on_device): ("a", "b", *[epilogue_role(SOURCE)] * reads_c,
                                  *compress(("alpha", "beta"), on_device), "c")
          for reads_c in (False, True) for on_device in product((False, True), repeat=2)}
"""Roles of inputs and result, by whether C is an input, and alpha and beta are arrays."""


def record(run: Execution, call: Replayable, alpha: Any, beta: Any, result: Any) -> None:
    if (known := recordable(call, alpha, beta)) is not None:
        run.record(known.head, known.inputs, known.out, result, known.roles, scalars=True)


def recordable(call: Replayable, alpha: Any, beta: Any) -> Replayable | None:
    """A call with its roles; ``None`` if its scalars were rounded, perhaps to 1."""
    *_rest, reads_c, kinds = call.head
    array = type(call.inputs[0])
    if (_kind(alpha, array), _kind(beta, array)) != kinds:
        return None
    return call._replace(roles=_ROLES[reads_c, kinds[0] == "device", kinds[1] == "device"])


def _kind(x: Any, array: type) -> str | None:
    """The kind of a scalar; ``None`` if it is not obvious."""
    kind = type(x)
    if kind in _NUMBERS:
        return "zero" if x == 0 else "one" if x == 1 else "value" if _LEAST < max(abs(x.real), abs(x.imag)) < _MOST else None
    return "device" if kind is array else None


def replayable(route: Hashable, request: Any) -> Replayable | None:
    """A call that may be replayed, with unchecked arguments; ``None`` if such are not recorded."""
    alpha, a, b, beta, c, trans_a, trans_b, overwrites, epilogue, precision, out, stream, variant, dtype, compute = request
    array = type(a)
    replay = replays[array]
    if replay is None or epilogue is not None or stream is not None or type(overwrites) not in _FLAGS:
        return None
    kind_a, kind_b = _kind(alpha, array), _kind(beta, array)
    if kind_a is None or kind_b is None:
        return None
    target, reads_c = out, False
    inputs: tuple[Any, ...] = a, b
    if c is not None:
        if overwrites and out is None:
            target = c
        reads_c = target is not c
        if reads_c:
            inputs = a, b, c
    if kind_a == "device":
        inputs, alpha = (*inputs, alpha), 1
    if kind_b == "device":
        inputs, beta = (*inputs, beta), 1
    # 1, 1.0 and True are equal, but not as arguments.
    head = (route, trans_a, type(trans_a), trans_b, type(trans_b), overwrites, precision, variant,
            dtype, compute, type(alpha), type(beta), c is None, reads_c, (kind_a, kind_b))
    return Replayable(replay, head, inputs, target, (), (alpha, beta))
