"""Who takes a call: the kernels, on the arrays of one library, or NumPy; and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..engines.counters import tally
from ..engines.dispatch import kind_of, own_call, own_types
from ..engines.exact import BY_BLAS, FLOAT32, FLOAT64, SMALL, WITHOUT_BLAS
from ..engines.memory import Memory
from ..engines.placement import FEW, host_engine, offload, rehearsing, stays, work_of
from ..engines.replay.registry import replays
from ..engines.settings import backend, backend_of_environment, chosen_backend
from .algorithms import AS_PLANNED, BY_NUMPY, NATIVE, Algorithm, refuse_variant
from .expressions import Expression, stand_in
from .gufunc import UFUNCS, Product, resolve_product

if TYPE_CHECKING:
    from ..engines.engine import Engine

__all__ = ["COPY", "UFUNC", "Resolved", "Settle", "answer", "answer_anew", "at_once", "by_numpy",
           "delegate", "key_of", "reason_of", "rehearse", "replay_product", "resolve",
           "resolve_matmul", "route_of", "without_kernels"]

Settle = Callable[..., "Expression | None"]
"""From the memories of the operands, ``out`` (or ``None``) and the keyword arguments of a call to
what it computes; ``None`` for a call that NumPy has to refuse."""

_REDISPATCHED = "dispatched again"
_DELEGATED = "delegated to NumPy: "


class Rules(NamedTuple):
    """What a function of NumPy asks of its operands before it converts them to arrays.

    Attributes
    ----------
    names : tuple of str
        Of the operands, for refusals.
    answered : str or None
        What operands of other types may answer themselves in its place; ``None`` if they are all
        converted.
    numbers : bool
        Whether numbers and CuPy arrays may be operands of one call.
    """

    names: tuple[str, ...] = ()
    answered: str | None = "NumPy's functions"
    numbers: bool = True


FUNCTION, UFUNC, COPY = Rules(), Rules(("x1", "x2"), "ufuncs"), Rules(("the array",), None, False)
"""Functions (NEP 18), generalized ufuncs (NEP 13), and copies."""


@dataclass(frozen=True)
class Resolved:
    """The operands of a call that kernels take.

    Attributes
    ----------
    engine : Engine
        What runs plans on them.
    arrays : tuple
        The operands: arrays of one library, and numbers.
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

    @contextmanager
    def on_device(self) -> Iterator[tuple[Any, ...]]:
        """Make the device of the arrays the current one: there are the operands, numbers too, and
        none of them twice, because an operand that is given twice may be two in a call like this
        one."""
        if self.engine.on_host:
            yield self.arrays
            return
        with self.engine.on_device_of(next(x for x in (*self.arrays, self.out)
                                           if kind_of(x) == "cupy")):
            arrays = tuple(x if kind_of(x) == "cupy" else self.engine.number(np.asarray(x))
                           for x in self.arrays)
            yield tuple(x.view() if any(x is y for y in arrays[:i]) else x
                        for i, x in enumerate(arrays))


def resolve(function: str, operands: Sequence[Any], out: Any = None, *, rules: Rules = FUNCTION,
            host: Engine | None = None, call: Callable[..., Any] | None = None,
            arguments: Mapping[str, Any] = MappingProxyType({}),
            given: Mapping[str, Any] = MappingProxyType({})) -> Resolved | str:
    """Who takes a call, and on which arrays, by NumPy's rules: the operands that kernels take, or
    the route of a call that goes to NumPy.

    Parameters
    ----------
    function : str
        Its name.
    operands : sequence
        The operands.
    out : array, optional
        Receives the result.
    rules : Rules
        NumPy's for this function.
    host : Engine, optional
        What takes NumPy arrays; by default that of the backend, or NumPy itself.
    call : callable, optional
        NumPy's own, which refuses an ``out`` that is not an array beside CuPy arrays in its words.
    arguments : mapping
        The others, for NumPy's refusals.
    given : mapping
        Further operands by name, which have to be on the same device.

    Raises
    ------
    TypeError
        If ``out`` is not an array; what NumPy raises for an operand that is not, and that it cannot
        convert to numbers.
    ValueError
        For CuPy arrays on different devices, and for CuPy arrays together with arrays on the host.
    """
    arrays = *operands, out
    if rules is FUNCTION and not own_types.keys().isdisjoint(map(type, arrays)):
        return _REDISPATCHED
    if rules is COPY and out is not None and kind_of(out) not in _ARRAYS:
        raise TypeError("'out' must be an array")
    kinds = [*map(kind_of, arrays)]
    on_gpu = "cupy" in kinds or (given and "cupy" in map(kind_of, given.values()))
    by_numpy = host is None and not on_gpu and stays(*arrays)
    if by_numpy and rules is not FUNCTION:
        return "numpy"
    if "foreign" in kinds or "like" in kinds:
        for x, kind in zip(arrays, kinds, strict=True):
            answers = kind == "foreign" or (rules is FUNCTION and kind == "like"
                                            and hasattr(type(x), "__array_function__"))
            if answers and rules.answered is not None:
                return route_of(f"{type(x).__name__} answers {rules.answered} itself")
    if on_gpu:
        return _resolve_on_gpu(function, operands, out, rules, call, arguments, given)
    if by_numpy:
        return "numpy"
    if rules.answered is not None:
        for x, kind in zip(arrays, kinds, strict=True):
            if kind == "subclass":
                return route_of(f"{type(x).__name__} is a subclass of numpy.ndarray")
        if out is not None and type(out) is not np.ndarray:
            return route_of("out is not an array")
    engine = host_engine() if host is None else host
    converted = tuple(np.asarray(x) for x in operands)
    if function in UFUNCS and not all(x.ndim for x in converted):
        # NumPy's to refuse, as a number that does not fit
        getattr(np, function)(*operands, out=out, **arguments)
    return Resolved(engine, converted, tuple(map(engine.memory, converted)), out)


_ARRAYS = frozenset({"cupy", "numpy", "subclass"})
_BY_OPERANDS = frozenset({"dot", "inner", "kron", "outer", "tensordot", "vdot"})
"""Functions of NumPy that refuse what is not an array by its type or shape, whatever their other
arguments are."""


def _resolve_on_gpu(function: str, operands: Sequence[Any], out: Any, rules: Rules,
                    call: Callable[..., Any] | None, arguments: Mapping[str, Any],
                    given: Mapping[str, Any]) -> Resolved:
    """The operands of a call of which one is a CuPy array: see :func:`resolve`."""
    from ..engines.cuda import CUDA, require_one_device

    if out is ... and function in UFUNCS:
        out = None
    if out is not None and kind_of(out) not in _ARRAYS:
        if call is not None:
            call(*(stand_in(Memory(x.shape, (), np.dtype(bool))) if kind_of(x) == "cupy" else x
                   for x in operands), out=out)
        raise TypeError("'out' must be an array")
    if function in _BY_OPERANDS and any(map(_is_no_array, operands)):
        small = (np.zeros([min(n, 2) for n in x.shape], x.dtype) if kind_of(x) == "cupy" else x
                 for x in operands)
        getattr(np, function)(*small, **arguments)
    names = rules.names or [f"operand {i}" for i in range(len(operands))]
    named = {**dict(zip(names, operands, strict=True)), **({} if out is None else {"out": out}),
             **given}
    require_one_device(function, {name: x for name, x in named.items()
                                  if not (rules.numbers and kind_of(x) == "scalar")})
    memories = (CUDA.memory(x) if kind_of(x) == "cupy" else Memory((), (), np.asarray(x).dtype)
                for x in operands)
    return Resolved(CUDA, tuple(operands), tuple(memories), out)


def _is_no_array(x: Any) -> bool:
    """Whether an object is neither an array, a number nor a list, and NumPy finds no numbers in
    it."""
    return kind_of(x) == "like" and not isinstance(x, (list, tuple)) and np.asarray(x).dtype.kind not in "biufc"


def route_of(reason: str) -> str:
    """The route of a call that no kernel takes, for a reason."""
    return _DELEGATED + reason


def reason_of(route: str) -> str:
    """Why no kernel takes a call of this route."""
    return BY_NUMPY if route == "numpy" else route.removeprefix(_DELEGATED)


class _Unplanned(Exception):
    """A call is rehearsed in which kernels have no part."""


def rehearse(call: Callable[[], Any]) -> None:
    """Plan a call on NumPy arrays that NumPy answers.

    Raises
    ------
    TypeError, ValueError, IndexError
        What the call would raise if kernels answered it.
    """
    token = rehearsing.set(True)
    try:
        with backend("emulator"), suppress(_Unplanned):
            call()
    finally:
        rehearsing.reset(token)


def by_numpy(function: str, route: str, call: Callable[..., Any], *operands: Any,
             **arguments: Any) -> Any:
    """Let NumPy answer, and count the route."""
    if rehearsing.get():
        raise _Unplanned
    result = call(*operands, **arguments)
    tally(function, "calls", route).tick()
    return result


def delegate(function: str, route: str, call: Callable[..., Any], operands: Sequence[Any],
             named: Mapping[str, Any], algorithm: Algorithm = AS_PLANNED,
             again: Callable[..., Any] | None = None,
             by_blas: Callable[[], Any] | None = None) -> Any:
    """Let NumPy answer a call that kernels do not take.

    Parameters
    ----------
    function, route
        Its name, and what is counted.
    call : callable
        NumPy's own.
    operands, named
        What it gets.
    algorithm : Algorithm
        What was asked for.
    again : callable, optional
        The function with this algorithm. It is rehearsed, and it is called on the arrays that
        arrays of our own type hold, since NumPy would call us without the algorithm.
    by_blas : callable, optional
        What computes products of types for which NumPy has only loops, and counts them; it returns
        ``None`` for others.

    Raises
    ------
    ValueError
        If a kernel was asked for by name.
    """
    if route == _REDISPATCHED:
        if algorithm != AS_PLANNED and (answers := own_call(*operands,
                                                            named.get("out"))) is not None:
            return answers(again, tuple(operands), dict(named))
        return call(*operands, **named)
    if again is not None and route == "numpy" and algorithm.precision not in NATIVE:
        rehearse(partial(again, *operands, **named))
    if algorithm.variant is not None:
        refuse_variant(algorithm.variant, reason_of(route))
    if by_blas is not None and route == "numpy" and (result := by_blas()) is not None:
        return result
    return by_numpy(function, route, call, *operands, **named)


def replay_product(function: str, operands: Sequence[Any], out: Any = None,
                   algorithm: Algorithm = AS_PLANNED,
                   arguments: Mapping[str, Any] = MappingProxyType({})) -> tuple[Hashable, Any]:
    """The key of a call of one of NumPy's products, ``None`` if it has none, and its result if one
    like it was recorded."""
    replay = replays[type(operands[0])]
    if replay is None:
        return None, None
    head = key_of(arguments, function, algorithm)
    return head, None if head is None else replay(head, operands, out)


_NDARRAY = np.ndarray                  # a look-up less
_NONE: Mapping[str, Any] = MappingProxyType({})
_ticks: dict[str, Callable[[], int]] = {}


def at_once(function: str, call: Callable[..., Any], a: Any, b: Any, out: Any = None,
            arguments: Mapping[str, Any] = _NONE) -> Any:
    """One of NumPy's products of plain arrays that stay on the host, without further questions.

    Parameters
    ----------
    function, call, a, b, out, arguments
        As in :func:`answer`.

    Returns
    -------
    array, scalar or None
        ``None`` for any other call.
    """
    if type(a) is not _NDARRAY or type(b) is not _NDARRAY or not (out is None
                                                                  or type(out) is _NDARRAY):
        return None
    where = chosen_backend() or backend_of_environment()
    if where != "numpy" and not (where == "auto" and out is None and a.size
                                 + b.size <= FEW) and not stays(a, b, out):
        return None
    dtype = a.dtype
    if dtype is not FLOAT64 and dtype is not FLOAT32 and (a.size > SMALL or b.size > SMALL) and dtype.char in WITHOUT_BLAS \
            and (by_blas := BY_BLAS.get(function)) is not None and not (arguments and function in UFUNCS) \
            and (result := by_blas(function, a, b, **(arguments if out is None else {"out": out}))) is not None:
        return result
    if arguments:
        result = call(a, b, **arguments) if out is None else call(a, b, out=out, **arguments)
    else:
        result = call(a, b) if out is None else call(a, b, out)
    try:
        _ticks[function]()
    except KeyError:
        _ticks[function] = tally(function, "calls", "numpy").tick
        _ticks[function]()
    return result


def answer(function: str, call: Callable[..., Any], settle: Settle, operands: Sequence[Any],
           out: Any = None, algorithm: Algorithm = AS_PLANNED, **arguments: Any) -> Any:
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
        What NumPy raises, in its words and before anything runs; also for operands on different
        devices, for types without a kernel on the GPU, and for an algorithm or a kernel that does
        not take this product.
    """
    if type(operands[0]) is _NDARRAY and algorithm is AS_PLANNED \
            and (result := at_once(function, call, operands[0], operands[1], out, arguments)) is not None:
        return result
    head, result = replay_product(function, operands, out, algorithm, arguments)
    if result is not None:
        return result
    # a closure would make all variables above slower
    again = partial(_again, function, call, settle, algorithm)
    return answer_anew(head, function, call, settle, operands, out, algorithm, arguments, again)


def _again(function: str, call: Callable[..., Any], settle: Settle, algorithm: Algorithm,
           *operands: Any, out: Any = None, **arguments: Any) -> Any:
    return answer(function, call, settle, operands, out, algorithm, **arguments)


# The roles of the operands and of the result, where one plan computes a call.
_ROLES: dict[int, Sequence[str]] = {1: ("src", "dst"), 2: "abc"}


def answer_anew(head: Hashable, function: str, call: Callable[..., Any], settle: Settle,
                operands: Sequence[Any], out: Any,
                algorithm: Algorithm, arguments: Mapping[str, Any],
                again: Callable[..., Any]) -> Any:
    """:func:`answer` of a call of any number of operands that is not replayed; ``head`` is its
    key, and ``again`` makes it once more, with other operands."""
    named = {**arguments} if out is None else {"out": out, **arguments}
    resolved = resolve(function, operands, out, call=call, arguments=arguments)
    if isinstance(resolved, str):
        return delegate(function, resolved, call, operands, named, algorithm, again)
    from ..engines.execution import Execution
    from ..engines.problems import has_kernels
    from .contractions import evaluate

    strange = next((x.dtype for x in resolved.memories if not has_kernels(x.dtype)), None)
    if strange is not None:
        return without_kernels(function, call, resolved, strange, operands, named, algorithm)
    settled = settle(*resolved.memories, resolved.out_memory, **arguments)
    if settled is None:
        return _refused(function, call, resolved, operands, named, algorithm)
    if not (has_kernels(settled.dtype) and settled.dtype.isnative):
        return without_kernels(function, call, resolved, settled.dtype, operands, named, algorithm)
    if resolved.engine.on_host and settled.any_order:
        settled = replace(settled, any_order=False)
    if resolved.engine.moves:
        work = work_of(settled.products, settled.dtype, resolved.arrays, out, settled.shape)
        result = offload(
            function,
            work,
            lambda run, there, out: evaluate(run, settled, there, out, algorithm=algorithm),
            resolved.arrays,
            out,
            partial(again, *operands, **named),
            stream=None
            if len(operands) != 2 or algorithm.variant
            else partial(_in_tiles, function, call, settled, resolved.arrays, out, algorithm)
        )
        return result[()] if out is None and settled.scalar and type(result) is np.ndarray and not result.ndim else result
    with resolved.on_device() as arrays:
        run = Execution(function, resolved.engine)
        result = evaluate(run, settled, arrays, resolved.out, algorithm=algorithm)
        if head is not None:
            run.record(head, arrays, resolved.out, result,
                       _ROLES.get(len(arrays), " " * (len(arrays) + 1)))
    return result


def _in_tiles(function: str, call: Callable[..., Any], settled: Expression,
              arrays: Sequence[np.ndarray],
              out: np.ndarray | None, algorithm: Algorithm) -> Any:
    """Contract two NumPy arrays on the GPU in tiles of the result; ``None`` if there are none."""
    from .tiles import contraction_in_tiles, product_in_tiles

    x1, x2 = arrays
    if call is np.dot and x1.ndim == x2.ndim == 2:
        return product_in_tiles(function, x1, x2, out, algorithm.precision)
    return contraction_in_tiles(function, settled, x1, x2, out, algorithm)


def key_of(arguments: Mapping[str, Any], *rest: Hashable) -> Hashable:
    """All of a call besides its arrays, as a key of which equal ones mean the same; ``None`` if
    there is none.

    Parameters
    ----------
    arguments : mapping
        Those that are not arrays. Numbers, names and lists of them can be part of a key; anything
        else may change, or equal what NumPy would not take in its place.
    *rest : hashable
        The function, and the algorithm.
    """
    if not arguments:
        return rest
    key = [*rest]
    try:
        for name, value in arguments.items():
            key += name, _frozen(value)
    except TypeError:
        return None
    return tuple(key)


def _frozen(x: Any) -> Hashable:
    kind = type(x)
    if kind is int or kind is str or x is None:
        return x
    if kind is tuple or kind is list or kind is range:
        # NumPy takes lists where it refuses tuples, and the other way round
        return kind, *[_frozen(y) for y in x]
    if kind is bool:
        return bool, x                                  # 1 == True, but they are different axes
    raise TypeError


def _refused(function: str, call: Callable[..., Any], resolved: Resolved, operands: Sequence[Any],
             named: dict[str, Any],
            algorithm: Algorithm = AS_PLANNED) -> Any:
    """Let NumPy refuse a call, on arrays without data; if it does not, let it answer.

    Raises
    ------
    TypeError
        For arrays on the GPU that NumPy would take.
    """
    shown = {**named,
             "out": stand_in(resolved.out_memory)} if resolved.out_memory is not None else named
    call(*(stand_in(x) for x in resolved.memories), **shown)
    if resolved.engine.on_host:
        refuse_variant(algorithm.variant, "only NumPy can interpret this call")
        return by_numpy(function, route_of("only NumPy can interpret this call"), call, *operands,
                        **named)
    raise TypeError(f"{function} has no kernel on the GPU for operands of shapes "
                    f"{' and '.join(str(x.shape) for x in resolved.memories)}")


def without_kernels(function: str, call: Callable[..., Any], resolved: Resolved, dtype: np.dtype,
                    operands: Sequence[Any], named: dict[str, Any],
                    algorithm: Algorithm = AS_PLANNED) -> Any:
    """Leave types that kernels do not multiply to NumPy on the host.

    Raises
    ------
    TypeError
        For arrays on the GPU.
    """
    if resolved.engine.on_host:
        refuse_variant(algorithm.variant, f"there are no kernels for {dtype}")
        return by_numpy(function, route_of(f"there are no kernels for {dtype}"), call, *operands,
                        **named)
    raise TypeError(
        f"{function} has no kernel on the GPU for {' and '.join(str(x.dtype) for x in resolved.memories)}, which NumPy "
        f"computes in {dtype}"
    )


def resolve_matmul(
    x1: Any,
    x2: Any,
    out: Any,
    arguments: Mapping[str, Any],
    host: Engine | None = None,
    given: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Resolved, Product] | str:
    """The operands of a call of ``matmul`` and the product that NumPy makes of them, or the route
    of one that goes to NumPy: see :func:`resolve`.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.matmul``, in its words; for types without a kernel on the GPU.
    """
    resolved = resolve("matmul", (x1, x2), out, rules=UFUNC, host=host, call=np.matmul,
                       arguments=arguments, given=given)
    if isinstance(resolved, str):
        return resolved
    from ..engines.problems import has_kernels

    first, second = resolved.memories
    product = resolve_product(first, second, resolved.out_memory, arguments)
    if resolved.engine.on_host:
        return (resolved, product) if has_kernels(product.dtype) else route_of(f"there are no kernels for {product.dtype}")
    dtypes = [x.dtype for x in (first, second, resolved.out_memory) if x is not None]
    if not has_kernels(product.dtype) or not all(dtype.isnative for dtype in dtypes):
        raise TypeError(
            f"matmul has no kernel on the GPU for {' and '.join(map(str, dtypes))}, which NumPy computes "
            f"in {product.dtype}"
        )
    return resolved, product
