"""Which calls of routines and plans are replayed, and that they are recorded."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import compress, product
from typing import Any

import numpy as np

from ..codegen.epilogue import epilogue_role
from ..engines.execution import Execution
from ..engines.replay.registry import Replayable, replays
from ..functions.gemm import SOURCE, scalar_kind

__all__ = ["record", "recordable", "replayable"]

_FLAGS = frozenset({int, bool})
_NUMBERS = frozenset({int, float, complex, np.float32, np.float64, np.complex64, np.complex128})
# Numbers of this size stay numbers other than zero, and finite, in every type of sums.
_LEAST, _MOST = 1e-30, 2e9

_ROLES = {(reads_c, *on_device): ("a", "b", *[epilogue_role(SOURCE)] * reads_c,
                                  *compress(("alpha", "beta"), on_device), "c")
          for reads_c in (False, True) for on_device in product((False, True), repeat=2)}
"""What each input and, last, the result is to a plan, by whether C is an input, and alpha and beta
are arrays."""


def record(run: Execution, call: Replayable, alpha: Any, beta: Any, result: Any) -> None:
    """Record a call that ran with these scalars."""
    if (known := recordable(call, alpha, beta)) is not None:
        run.record(known.head, known.inputs, known.out, result, known.roles, scalars=True)


def recordable(call: Replayable, alpha: Any, beta: Any) -> Replayable | None:
    """A call that ran with these scalars, with its roles; ``None`` if they are of other kinds than
    the call's: they were rounded, perhaps to 1."""
    *_rest, reads_c, kinds = call.head
    if (scalar_kind(alpha), scalar_kind(beta)) != kinds:
        return None
    return call._replace(roles=_ROLES[reads_c, kinds[0] == "device", kinds[1] == "device"])


def _kind(x: Any, array: type) -> str | None:
    """The kind of a scalar; ``None`` if it is not obvious."""
    kind = type(x)
    if kind in _NUMBERS:
        return "zero" if x == 0 else "one" if x == 1 else "value" if _LEAST < max(abs(x.real), abs(x.imag)) < _MOST else None
    return "device" if kind is array else None


def replayable(route: Hashable, request: Any) -> Replayable | None:
    """A call that is replayed if one like it was recorded; ``None`` if such calls are not recorded.

    Parameters
    ----------
    route : hashable
        The routine or the plan.
    request : Request
        The arguments, which have not been checked.
    """
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
