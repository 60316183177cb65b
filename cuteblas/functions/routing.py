"""Who takes a call: the kernels, on the arrays of one library, or NumPy; and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .algorithms import AS_PLANNED, BY_NUMPY, NATIVE, Algorithm, refuse_variant
from .counters import tally
from .dispatch import kind_of, own_call, own_types, repeaters
from .exact import BY_BLAS, WITHOUT_BLAS
from .expressions import Expression, stand_in
from .gufunc import UFUNCS, Product, resolve_product
from .memory import Memory
from .settings import current_backend

if TYPE_CHECKING:
    from .engines import Engine

__all__ = ["Accepted", "Resolved", "Settle", "accepted", "answer", "by_numpy", "host_operands", "key_of", "plain_arrays",
           "redispatched", "refuse_number", "refused", "rehearse_product", "repeat", "resolve", "resolve_on_gpu", "without_kernels"]

Settle = Callable[..., "Expression | None"]
"""From the memories of the operands, ``out`` (or ``None``) and the keyword arguments of a call to what it computes; ``None`` for a
call that NumPy has to refuse."""

_REDISPATCHED = "dispatched again"
_DELEGATED = "delegated to NumPy: "


@dataclass(frozen=True)
class Resolved:
    """Arrays of a call that the kernels take.

    Attributes
    ----------
    engine : Engine
        What runs plans on them.
    arrays : tuple
        The operands, all of them arrays of one library.
    memories : tuple of Memory
        Their memory.
    out : array or None
        Where the result goes.
    """

    engine: Engine
    arrays: tuple[Any, ...]
    memories: tuple[Memory, ...]
    out: Any = None

    @property
    def out_memory(self) -> Memory | None:
        """The memory of ``out``."""
        return None if self.out is None else self.engine.memory(self.out)

    def on_device(self) -> AbstractContextManager[None]:
        """Make the device of the arrays the current one."""
        return self.engine.on_device_of(self.arrays[0]) if self.arrays else nullcontext()


def resolve(function: str, operands: Sequence[Any], out: Any = None, **arguments: Any) -> Resolved | str:
    """The arrays of a call that kernels take, or the route of one that goes to NumPy; the other arguments are for NumPy's refusals.

    Raises
    ------
    ValueError
        For CuPy arrays on different devices, and for CuPy arrays together with arrays on the host.
    """
    if not own_types.keys().isdisjoint(map(type, (*operands, out))):
        return _REDISPATCHED
    kinds = [kind_of(x) for x in (*operands, out)]
    for x, kind in zip((*operands, out), kinds, strict=True):
        if kind == "foreign" or (kind == "like" and hasattr(type(x), "__array_function__")):
            return f"{_DELEGATED}{type(x).__name__} answers NumPy's functions itself"
    if "cupy" in kinds:
        return _resolve_on_gpu(function, operands, out, arguments)
    if current_backend() == "numpy":
        return "numpy"
    for x, kind in zip((*operands, out), kinds, strict=True):
        if kind == "subclass":
            return f"{_DELEGATED}{type(x).__name__} is a subclass of numpy.ndarray"
    if out is not None and type(out) is not np.ndarray:
        return f"{_DELEGATED}out is not an array"
    from .engines import EMULATOR

    arrays = tuple(np.asarray(x) for x in operands)
    return Resolved(EMULATOR, arrays, tuple(EMULATOR.memory(x) for x in arrays), out)


_BY_OPERANDS = frozenset({"dot", "inner", "kron", "outer", "tensordot", "vdot"})
"""Functions of NumPy that refuse what is no array by its type or shape, whatever their other arguments are."""


def _resolve_on_gpu(function: str, operands: Sequence[Any], out: Any, arguments: Mapping[str, Any]) -> Resolved:
    """The arrays of a call of which one is a CuPy array; numbers are brought to its device.

    Raises
    ------
    TypeError
        If ``out`` is no array; what NumPy raises for an operand that is not, and that becomes none of numbers.
    ValueError
        For operands on different devices, and for arrays on the host.
    """
    from .engines.cuda import CUDA, require_one_device

    if out is ... and function in UFUNCS:
        out = None
    if out is not None and kind_of(out) not in ("cupy", "numpy", "subclass"):
        raise TypeError("'out' must be an array")
    if function in _BY_OPERANDS and any(map(_is_no_array, operands)):
        small = (np.zeros([min(n, 2) for n in x.shape], x.dtype) if kind_of(x) == "cupy" else x for x in operands)
        getattr(np, function)(*small, **arguments)
    named = {f"operand {i}": x for i, x in enumerate(operands) if kind_of(x) != "scalar"} | ({} if out is None else {"out": out})
    require_one_device(function, named)
    with CUDA.on_device_of(next(iter(named.values()))):
        arrays = tuple(CUDA.number(np.asarray(x)) if kind_of(x) == "scalar" else x for x in operands)
        # An operand that is given twice may be two in a call like this one.
        arrays = tuple(x.view() if any(x is y for y in arrays[:i]) else x for i, x in enumerate(arrays))
    return Resolved(CUDA, arrays, tuple(CUDA.memory(x) for x in arrays), out)


def _is_no_array(x: Any) -> bool:
    """Whether it is something else than arrays, numbers and lists, and not made of numbers."""
    return kind_of(x) == "like" and not isinstance(x, (list, tuple)) and np.asarray(x).dtype.kind not in "biufc"


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
    if route != _REDISPATCHED:
        tally(function, "calls", route).tick()
    return result


def redispatched(route: str, algorithm: Algorithm, call: Callable[..., Any], function: str, operands: tuple[Any, ...],
              named: Mapping[str, Any]) -> Any:
    """The result of a call that is told how to compute and comes back with what arrays of a type of ours hold; ``None`` for any
    other, which NumPy may have.

    Raises
    ------
    ValueError
        If a kernel was asked for by name.
    """
    if route == _REDISPATCHED:
        answers = own_call(*operands, named.get("out")) if algorithm != AS_PLANNED else None
        return None if answers is None else answers(call, operands, dict(named))
    refuse_variant(algorithm.variant, BY_NUMPY if route == "numpy" else route.removeprefix(_DELEGATED))
    return None


def repeat(function: str, call: Callable[..., Any], operands: Sequence[Any], out: Any = None, algorithm: Algorithm = AS_PLANNED,
           arguments: Mapping[str, Any] = MappingProxyType({})) -> tuple[Hashable, Any]:
    """The key of a call of one of NumPy's products, ``None`` if it has none, and its result if the like of it has run before."""
    repeated = repeaters.get(type(operands[0]))
    if repeated is None:
        return None, None
    head = key_of(arguments, function, call) if algorithm is AS_PLANNED else key_of(arguments, function, call, algorithm)
    return head, None if head is None else repeated(head, operands, out)


def answer(function: str, call: Callable[..., Any], settle: Settle, operands: Sequence[Any], out: Any = None,
           algorithm: Algorithm = AS_PLANNED, **arguments: Any) -> Any:
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
    algorithm : Algorithm
        The algorithm and the kernel.
    **arguments
        The others.

    Raises
    ------
    TypeError, ValueError, IndexError
        What NumPy raises, in its words and before anything runs; also for operands on different devices, for types without a
        kernel on the GPU, and for an algorithm or a kernel that does not take this product.
    """
    if type(operands[0]) is np.ndarray and algorithm is AS_PLANNED and current_backend() == "numpy":
        for x in operands if out is None else (*operands, out):
            if type(x) is not np.ndarray:
                break
        else:                                           # the way of most calls on the host, without further questions
            by_blas = BY_BLAS.get(function) if operands[0].dtype.char in WITHOUT_BLAS else None
            if by_blas is not None and not (arguments and function in UFUNCS):
                result = by_blas(function, *operands, **(arguments if out is None else {"out": out}))
                if result is not None:
                    return result
            return by_numpy(function, "numpy", call, *operands, **(arguments if out is None else {"out": out, **arguments}))
    head, result = repeat(function, call, operands, out, algorithm, arguments)
    if result is not None:
        return result
    named = arguments if out is None else {"out": out, **arguments}
    refuse_number(call, operands, out)
    resolved = resolve(function, operands, out, **arguments)
    if isinstance(resolved, str):
        if resolved == "numpy" and algorithm.precision not in NATIVE:
            rehearse_product(settle, operands, out, algorithm, arguments)

        def again(*operands: Any, out: Any = None, **named: Any) -> Any:
            return answer(function, call, settle, operands, out, algorithm, **named)

        result = redispatched(resolved, algorithm, again, function, tuple(operands), named)
        return by_numpy(function, resolved, call, *operands, **named) if result is None else result
    from .contractions import evaluate
    from .pipeline import Execution
    from .problems import has_kernels

    strange = next((x.dtype for x in resolved.memories if not has_kernels(x.dtype)), None)
    if strange is not None:
        return without_kernels(function, call, resolved, strange, operands, named, algorithm)
    settled = settle(*resolved.memories, resolved.out_memory, **arguments)
    if settled is None:
        return refused(function, call, resolved, operands, named, algorithm)
    if not has_kernels(settled.dtype):
        return without_kernels(function, call, resolved, settled.dtype, operands, named, algorithm)
    with resolved.on_device():
        run = Execution(function, resolved.engine)
        result = evaluate(run, settled, resolved.arrays, resolved.out, algorithm=algorithm)
        if head is not None:
            run.remember(head, resolved.arrays, resolved.out, result, "abc")
    return result


def rehearse_product(settle: Settle, operands: Sequence[Any], out: Any, algorithm: Algorithm, arguments: Mapping[str, Any]) -> Any:
    """Plan a product that NumPy answers.

    Returns
    -------
    array or None
        What stands for the result; ``None`` if no kernel would have a part in it.

    Raises
    ------
    TypeError, ValueError, IndexError
        What the call would raise if kernels answered it.
    """
    from .contractions import evaluate
    from .engines.emulator import REHEARSAL
    from .pipeline import Execution
    from .problems import has_kernels

    if (arrays := plain_arrays(operands, out)) is None:
        return None
    settled = settle(*map(REHEARSAL.memory, arrays), None if out is None else REHEARSAL.memory(out), **arguments)
    if settled is None or not has_kernels(settled.dtype):
        return None
    return evaluate(Execution("rehearsal", REHEARSAL), settled, arrays, out, algorithm=algorithm)


def plain_arrays(operands: Sequence[Any], out: Any) -> tuple[np.ndarray, ...] | None:
    """The arrays on the host that kernels would take; ``None`` if they would take none."""
    from .problems import has_kernels

    if any(kind_of(x) not in ("numpy", "scalar", "like") for x in operands) or not (out is None or type(out) is np.ndarray):
        return None
    arrays = tuple(np.asarray(x) for x in operands)
    return arrays if all(has_kernels(x.dtype) for x in arrays) else None


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


def refused(function: str, call: Callable[..., Any], resolved: Resolved, operands: Sequence[Any], named: dict[str, Any],
            algorithm: Algorithm = AS_PLANNED) -> Any:
    """Let NumPy refuse a call, on arrays without data; if it does not, let it answer.

    Raises
    ------
    TypeError
        For arrays on the GPU that NumPy would take.
    """
    shown = {**named, "out": stand_in(resolved.out_memory)} if resolved.out_memory is not None else named
    call(*(stand_in(x) for x in resolved.memories), **shown)
    if resolved.engine.on_host:
        refuse_variant(algorithm.variant, "NumPy alone knows what this means")
        return by_numpy(function, f"{_DELEGATED}it alone knows what this means", call, *operands, **named)
    raise TypeError(f"{function} has no kernel on the GPU for what NumPy makes of the shapes "
                    f"{' and '.join(str(x.shape) for x in resolved.memories)}")


def without_kernels(function: str, call: Callable[..., Any], resolved: Resolved, dtype: np.dtype, operands: Sequence[Any],
                    named: dict[str, Any], algorithm: Algorithm = AS_PLANNED) -> Any:
    """Leave types that kernels do not multiply to NumPy on the host.

    Raises
    ------
    TypeError
        For arrays on the GPU.
    """
    if resolved.engine.on_host:
        refuse_variant(algorithm.variant, f"kernels have no {dtype}")
        return by_numpy(function, f"{_DELEGATED}kernels have no {dtype}", call, *operands, **named)
    raise TypeError(f"{function} has no kernel on the GPU for {' and '.join(str(x.dtype) for x in resolved.memories)}, computed in "
                    f"{dtype}")


# -- matmul -----------------------------------------------------------------------------------------------------------------------
class Accepted(NamedTuple):
    """A product of matrices that NumPy accepts and kernels take."""

    engine: Engine
    product: Product
    x1: Any
    x2: Any
    out: Any


def accepted(x1: Any, x2: Any, out: Any, arguments: Mapping[str, Any]) -> Accepted | str:
    """The engine of a call of ``matmul``, its arrays and NumPy's product; or why NumPy itself has to answer it.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What ``numpy.matmul`` raises, in its words; for CuPy arrays as :func:`resolve_on_gpu`.
    """
    from .engines import EMULATOR
    from .problems import has_kernels

    if "cupy" in {kind_of(x) for x in (x1, x2, out)}:
        from .engines.cuda import CUDA

        out = None if out is ... and "matmul" in UFUNCS else out
        for x in (x1, x2, out):
            if kind_of(x) == "foreign":
                return f"{type(x).__name__} answers ufuncs itself"
        return Accepted(CUDA, resolve_on_gpu(x1, x2, out, arguments), x1, x2, out)
    reason, x1, x2 = host_operands(x1, x2, out)
    if reason is not None:
        return reason
    product = resolve_product(EMULATOR.memory(x1), EMULATOR.memory(x2), None if out is None else EMULATOR.memory(out), arguments)
    return Accepted(EMULATOR, product, x1, x2, out) if has_kernels(product.dtype) else f"kernels have no {product.dtype}"


def host_operands(x1: Any, x2: Any, out: Any) -> tuple[str | None, Any, Any]:
    """Operands on the host as NumPy arrays; or, unchanged, with the reason why NumPy itself has to take them."""
    for x in (x1, x2, out):
        kind = kind_of(x)
        if kind == "foreign":
            return f"{type(x).__name__} answers ufuncs itself", x1, x2
        if kind == "subclass":
            return f"{type(x).__name__} is a subclass of numpy.ndarray", x1, x2
    if out is not None and type(out) is not np.ndarray:
        return "out is not an array", x1, x2
    return None, np.asarray(x1), np.asarray(x2)


def resolve_on_gpu(x1: Any, x2: Any, out: Any, arguments: Mapping[str, Any]) -> Product:
    """The product of operands of which one is a CuPy array: all are on one device, and kernels have its type.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        What ``numpy.matmul`` raises, in its words; also for operands on different devices.
    """
    from .engines.cuda import CUDA, require_one_device
    from .problems import has_kernels

    if out is not None and kind_of(out) in ("scalar", "like"):
        np.matmul(np.zeros((1, 1)), np.zeros((1, 1)), out=out)
    operands = {"x1": x1, "x2": x2} | ({} if out is None else {"out": out})
    require_one_device("matmul", {name: x for name, x in operands.items() if kind_of(x) != "scalar"})
    first, second = (CUDA.memory(x) if kind_of(x) == "cupy" else Memory((), (), np.asarray(x).dtype) for x in (x1, x2))
    product = resolve_product(first, second, None if out is None else CUDA.memory(out), arguments)
    if not has_kernels(product.dtype) or not all(x.dtype.isnative for x in operands.values()):
        raise TypeError(f"matmul has no kernel on the GPU for {' and '.join(str(x.dtype) for x in operands.values())}, "
                        f"computed in {product.dtype}")
    return product
