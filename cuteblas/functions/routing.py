"""Who takes a call: the kernels, on the arrays of one library, or NumPy; and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends import current_backend
from .counters import tally
from .expressions import Expression, stand_in
from .kinds import kind_of, own_call, own_types
from .memory import Memory
from .named import AS_PLANNED, BY_NUMPY, NATIVE, How, refuse_variant

if TYPE_CHECKING:
    from .contractions import ProductEngine

__all__ = ["Settle", "Taken", "answer", "by_numpy", "key_of", "refuse_number", "refused", "repeat", "repeaters", "sent_back",
           "take", "without_kernels"]

Settle = Callable[..., "Expression | None"]
"""From the memories of the operands, ``out`` (or ``None``) and the keyword arguments of a call to what it computes; ``None`` for a
call that NumPy has to refuse."""

repeaters: dict[type, Callable[..., Any]] = {}
"""By the type of the first operand: a function of (head, operands, out, *scalars) that answers a call like one that has run before,
and returns ``None`` for any other."""

_COMES_BACK = "comes back"
_DELEGATED = "delegated to NumPy: "


@dataclass(frozen=True)
class Taken:
    """Arrays of a call that the kernels take.

    Attributes
    ----------
    engine : ProductEngine
        What runs plans on them.
    arrays : tuple
        The operands, all of them arrays of one library.
    memories : tuple of Memory
        Where they lie.
    out : array or None
        Where the result goes.
    """

    engine: ProductEngine
    arrays: tuple[Any, ...]
    memories: tuple[Memory, ...]
    out: Any = None

    @property
    def out_memory(self) -> Memory | None:
        """Where ``out`` lies."""
        return None if self.out is None else self.engine.memory(self.out)

    def on_device(self) -> AbstractContextManager[None]:
        """Make the device of the arrays the current one."""
        return self.engine.on_device_of(self.arrays[0]) if self.arrays else nullcontext()


def take(function: str, operands: Sequence[Any], out: Any = None, **arguments: Any) -> Taken | str:
    """The arrays of a call that kernels take, or the route of one that goes to NumPy; the other arguments are for NumPy's refusals.

    Raises
    ------
    ValueError
        For CuPy arrays on different devices, and for CuPy arrays together with arrays on the host.
    """
    if not own_types.keys().isdisjoint(map(type, (*operands, out))):
        return _COMES_BACK
    kinds = [kind_of(x) for x in (*operands, out)]
    for x, kind in zip((*operands, out), kinds, strict=True):
        if kind == "foreign" or (kind == "like" and hasattr(type(x), "__array_function__")):
            return f"{_DELEGATED}{type(x).__name__} answers NumPy's functions itself"
    if "cupy" in kinds:
        from ._cupy_products import taken

        return taken(function, operands, out, arguments)
    if current_backend() == "numpy":
        return "numpy"
    for x, kind in zip((*operands, out), kinds, strict=True):
        if kind == "subclass":
            return f"{_DELEGATED}{type(x).__name__} is a subclass of numpy.ndarray"
    if out is not None and type(out) is not np.ndarray:
        return f"{_DELEGATED}out is not an array"
    from .contractions import EMULATOR

    arrays = tuple(np.asarray(x) for x in operands)
    return Taken(EMULATOR, arrays, tuple(EMULATOR.memory(x) for x in arrays), out)


def refuse_number(call: Callable[..., Any], operands: Sequence[Any], out: Any) -> None:
    """Refuse an ``out`` that is no array beside CuPy arrays, in the words that NumPy has for this function.

    Raises
    ------
    TypeError
        If it is none.
    """
    if out is not None and kind_of(out) in ("scalar", "like") and "cupy" in map(kind_of, operands):
        shown = (stand_in(Memory(x.shape, (), np.dtype(bool))) if kind_of(x) == "cupy" else x for x in operands)
        call(*shown, out=out)


def by_numpy(function: str, route: str, call: Callable[..., Any], *operands: Any, **arguments: Any) -> Any:
    """Let NumPy answer, and count the route."""
    result = call(*operands, **arguments)
    if route != _COMES_BACK:
        tally(function, "calls", route).tick()
    return result


def sent_back(route: str, how: How, call: Callable[..., Any], function: str, operands: tuple[Any, ...],
              named: Mapping[str, Any]) -> Any:
    """The result of a call that is told how to compute and comes back with what arrays of a type of ours hold; ``None`` for any
    other, which NumPy may have.

    Raises
    ------
    ValueError
        If a kernel was asked for by name.
    """
    if route == _COMES_BACK:
        answers = own_call(*operands, named.get("out")) if how != AS_PLANNED else None
        return None if answers is None else answers(call, operands, dict(named))
    refuse_variant(how.variant, BY_NUMPY if route == "numpy" else route.removeprefix(_DELEGATED))
    return None


def repeat(function: str, call: Callable[..., Any], operands: Sequence[Any], out: Any = None, how: How = AS_PLANNED,
           arguments: Mapping[str, Any] = MappingProxyType({})) -> tuple[Hashable, Any]:
    """The key of a call of one of NumPy's products, ``None`` if it has none, and its result if the like of it has run before."""
    repeated = repeaters.get(type(operands[0]))
    if repeated is None:
        return None, None
    head = key_of(arguments, function, call) if how is AS_PLANNED else key_of(arguments, function, call, how)
    return head, None if head is None else repeated(head, operands, out)


def answer(function: str, call: Callable[..., Any], settle: Settle, operands: Sequence[Any], out: Any = None,
           how: How = AS_PLANNED, **arguments: Any) -> Any:
    """Answer one of NumPy's products of two arrays.

    Parameters
    ----------
    function : str
        Its name, for the counters.
    call : callable
        NumPy's own.
    settle : callable
        What it computes.
    operands : sequence
        The arrays.
    out : array, optional
        Where the result goes, of functions that have it.
    how : How
        The algorithm and the kernel.
    **arguments
        The others.

    Raises
    ------
    TypeError, ValueError, IndexError
        What NumPy raises, in its words and before anything runs; also for operands on different devices, for types without a
        kernel on the GPU, and for an algorithm or a kernel that does not take this product.
    """
    if type(operands[0]) is np.ndarray and how is AS_PLANNED and current_backend() == "numpy":
        for x in operands if out is None else (*operands, out):
            if type(x) is not np.ndarray:
                break
        else:                                           # the way of most calls on the host, without further questions
            return by_numpy(function, "numpy", call, *operands, **(arguments if out is None else {"out": out, **arguments}))
    head, result = repeat(function, call, operands, out, how, arguments)
    if result is not None:
        return result
    named = arguments if out is None else {"out": out, **arguments}
    refuse_number(call, operands, out)
    taken = take(function, operands, out, **arguments)
    if isinstance(taken, str):
        if taken == "numpy" and how.precision not in NATIVE:
            from .rehearsal import rehearse_product

            rehearse_product(settle, operands, out, how, arguments)

        def again(*operands: Any, out: Any = None, **named: Any) -> Any:
            return answer(function, call, settle, operands, out, how, **named)

        result = sent_back(taken, how, again, function, tuple(operands), named)
        return by_numpy(function, taken, call, *operands, **named) if result is None else result
    from .contractions import evaluate
    from .problems import has_kernels

    strange = next((x.dtype for x in taken.memories if not has_kernels(x.dtype)), None)
    if strange is not None:
        return without_kernels(function, call, taken, strange, operands, named, how)
    settled = settle(*taken.memories, taken.out_memory, **arguments)
    if settled is None:
        return refused(function, call, taken, operands, named, how)
    if not has_kernels(settled.dtype):
        return without_kernels(function, call, taken, settled.dtype, operands, named, how)
    with taken.on_device():
        result = evaluate(function, taken.engine, settled, taken.arrays, taken.out, how=how)
        if head is not None:
            taken.engine.remember(function, head, taken.arrays, taken.out, result, "abc")
    return result


def key_of(arguments: Mapping[str, Any], *rest: Hashable) -> Hashable:
    """All of a call besides its arrays, as a key of which equal ones mean the same; ``None`` if there is none.

    Parameters
    ----------
    arguments : mapping
        Those that are no arrays. Numbers, names and lists of them can be part of a key; anything else may change, or equal what
        NumPy would not take in its place.
    *rest : hashable
        The function.
    """
    if not arguments:
        return rest
    key = [rest]
    try:
        for name, value in arguments.items():
            key += name, _frozen(value)                 # type: ignore[arg-type]
    except TypeError:
        return None
    return tuple(key)


def _frozen(x: Any) -> Hashable:
    kind = type(x)
    if kind is int or kind is str or x is None:
        return x
    if kind is tuple or kind is list or kind is range:
        return kind, *[_frozen(y) for y in x]           # NumPy takes lists where it refuses tuples, and the other way round
    if kind is bool:
        return bool, x                                  # 1 == True, but they are different axes
    raise TypeError


def refused(function: str, call: Callable[..., Any], taken: Taken, operands: Sequence[Any], named: dict[str, Any],
            how: How = AS_PLANNED) -> Any:
    """Let NumPy refuse a call, on arrays without data; if it does not, let it answer.

    Raises
    ------
    TypeError
        For arrays on the GPU that NumPy would take.
    """
    shown = {**named, "out": stand_in(taken.out_memory)} if taken.out_memory is not None else named
    call(*(stand_in(x) for x in taken.memories), **shown)
    if taken.engine.on_host:
        refuse_variant(how.variant, "NumPy alone knows what this means")
        return by_numpy(function, f"{_DELEGATED}it alone knows what this means", call, *operands, **named)
    raise TypeError(f"{function} has no kernel on the GPU for what NumPy makes of the shapes "
                    f"{' and '.join(str(x.shape) for x in taken.memories)}")


def without_kernels(function: str, call: Callable[..., Any], taken: Taken, dtype: np.dtype, operands: Sequence[Any],
                    named: dict[str, Any], how: How = AS_PLANNED) -> Any:
    """Leave types that kernels do not multiply to NumPy on the host.

    Raises
    ------
    TypeError
        For arrays on the GPU.
    """
    if taken.engine.on_host:
        refuse_variant(how.variant, f"kernels have no {dtype}")
        return by_numpy(function, f"{_DELEGATED}kernels have no {dtype}", call, *operands, **named)
    raise TypeError(f"{function} has no kernel on the GPU for {' and '.join(str(x.dtype) for x in taken.memories)}, computed in "
                    f"{dtype}")
