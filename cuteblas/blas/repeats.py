"""Calls like one that has run before. On CuPy arrays they are launched without being checked and planned again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from ..codegen.epilogue import epilogue_role
from ..functions.dispatch import repeaters
from ..functions.gemm import SOURCE, scalar_kind
from ..functions.pipeline import Execution

__all__ = ["Repeat", "repeat_of"]

_FLAGS = frozenset({int, bool})
_NUMBERS = frozenset({int, float, complex, np.float32, np.float64, np.complex64, np.complex128})
# Numbers of this size stay numbers other than zero, and finite, in every type of sums.
_LEAST, _MOST = 1e-30, 2e9


class Repeat(NamedTuple):
    """A call that may be the like of another one.

    Attributes
    ----------
    repeated : callable
        What answers it if it is.
    head : hashable
        All of the call besides its arrays, as far as it decides what runs.
    inputs : tuple of array
        What is only read.
    out : array or None
        What is written.
    alpha, beta : number
        As the launch takes them; 1 in place of an array.
    kinds : tuple of str
        What is known of alpha and beta.
    reads_c : bool
        Whether C is among ``inputs``.
    """

    repeated: Callable[..., Any]
    head: Hashable
    inputs: tuple[Any, ...]
    out: Any
    alpha: Any
    beta: Any
    kinds: tuple[str, str]
    reads_c: bool

    def answer(self) -> Any:
        """The result if the like of this call has run before, else ``None``."""
        return self.repeated(self.head, self.inputs, self.out, self.alpha, self.beta)

    def remember(self, run: Execution, alpha: Any, beta: Any, result: Any) -> None:
        """Note what the call came to, with these scalars."""
        if self.has(alpha, beta):
            run.remember(self.head, self.inputs, self.out, result, self.roles, scalars=True)

    def has(self, alpha: Any, beta: Any) -> bool:
        """Whether these scalars are of the kinds that the call's are; they were rounded, perhaps to 1."""
        return (scalar_kind(alpha), scalar_kind(beta)) == self.kinds

    @property
    def scalars(self) -> tuple[Any, Any]:
        """alpha and beta."""
        return self.alpha, self.beta

    @property
    def roles(self) -> tuple[str, ...]:
        """What each input and, last, the result is to a plan."""
        on_device = (name for name, kind in zip(("alpha", "beta"), self.kinds, strict=True) if kind == "device")
        return "a", "b", *[epilogue_role(SOURCE)] * self.reads_c, *on_device, "c"


def _kind(x: Any, array: type) -> str | None:
    """What is known of a scalar; ``None`` if that takes a closer look."""
    kind = type(x)
    if kind in _NUMBERS:
        return "zero" if x == 0 else "one" if x == 1 else "value" if _LEAST < max(abs(x.real), abs(x.imag)) < _MOST else None
    return "device" if kind is array else None


def repeat_of(route: Hashable, request: Any) -> Repeat | None:
    """A call as it may have run before; ``None`` if it is one that nobody remembers.

    Parameters
    ----------
    route : hashable
        The routine or the plan.
    request : Request
        Its arguments. Nothing is known of them yet.
    """
    alpha, a, b, beta, c, trans_a, trans_b, overwrites, epilogue, precision, out, stream, variant, dtype, compute = request
    array = type(a)
    repeated = repeaters.get(array)
    if repeated is None or epilogue is not None or stream is not None or type(overwrites) not in _FLAGS:
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
    head = (route, trans_a, type(trans_a), trans_b, type(trans_b), overwrites, precision, variant, dtype, compute, kind_a,
            type(alpha), kind_b, type(beta), c is None, reads_c)
    return Repeat(repeated, head, inputs, target, alpha, beta, (kind_a, kind_b), reads_c)
