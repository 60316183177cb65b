"""Who takes a call: the kernels, on the arrays of one library, or NumPy; and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..engines.counters import tally
from ..engines.dispatch import NOTHING, ByName, Func, kind_of, own_call, own_types, replays
from ..engines.exact import (
    BY_BLAS,
    FLOAT32,
    FLOAT64,
    OF_MATRICES,
    SMALL,
    WITHOUT_BLAS,
    product,
)
from ..engines.memory import Memory
from ..engines.placement import FEW, Work, host_engine, offload, rehearsing, stays, work_of
from ..engines.settings import backend, backend_of_environment, chosen_backend
from .algorithms import AS_PLANNED, BY_NUMPY, NATIVE, Algorithm, refuse_variant
from .expressions import Expression, stand_in
from .gufunc import UFUNCS, Product, resolve_product

if TYPE_CHECKING:
    from ..engines.engine import Engine
    from ..engines.execution import Execution

Settle = Callable[..., "Expression | None"]
"""From the memories of operands and ``out`` to an expression; ``None`` if NumPy has to refuse."""

_REDISPATCHED = "dispatched again"
_DELEGATED = "delegated to NumPy: "


class Rules(NamedTuple):
    """The ``names`` of a function's operands, and the protocol of types that answer themselves."""

    names: tuple[str, ...] = ()
    answered: str | None = "NumPy's functions"


FUNCTION, UFUNC, COPY = Rules(), Rules(("x1", "x2"), "ufuncs"), Rules(("the array",), None)
"""Functions (NEP 18), generalized ufuncs (NEP 13), and copies."""


class NumpyCall(NamedTuple):
    """A call of one of NumPy's functions, as it was made; ``again`` repeats it with the same
    algorithm, on the arrays that our type holds or in a rehearsal."""

    function: str
    numpys: Func
    operands: Sequence[Any]
    out: Any = None
    arguments: ByName = NOTHING
    algorithm: Algorithm = AS_PLANNED
    rules: Rules = FUNCTION
    again: Any = None

    @property
    def named(self) -> dict[str, Any]:
        return {**self.arguments} if self.out is None else {"out": self.out, **self.arguments}


@dataclass(frozen=True)
class Resolved:
    """The operands of a call that kernels take: arrays of one library, and numbers."""

    engine: Engine
    arrays: tuple[Any, ...]
    memories: tuple[Memory, ...]
    out: Any = None

    @property
    def out_memory(self) -> Memory | None:
        return None if self.out is None else self.engine.memory(self.out)

    @property
    def strange(self) -> np.dtype | None:
        """The type of the first operand whose type has no kernels."""
        from ..engines.problems import has_kernels

        return next((x.dtype for x in self.memories if not has_kernels(x.dtype)), None)

    def work(self, computed: Expression) -> Work:
        return work_of(computed.products, computed.dtype, self.arrays, self.out, computed.shape)

    @contextmanager
    def on_device(self) -> Iterator[tuple[Any, ...]]:
        """Make the device of the arrays the current one; equal operands become different ones."""
        if self.engine.on_host:
            yield self.arrays
            return
        with self.engine.on_device_of(next(x for x in (*self.arrays, self.out)
                                           if kind_of(x) == "cupy")):
            arrays = tuple(x if kind_of(x) == "cupy" else self.engine.number(np.asarray(x))
                           for x in self.arrays)
            yield tuple(x.view() if any(x is y for y in arrays[:i]) else x
                        for i, x in enumerate(arrays))

    @contextmanager
    def running(self, function: str) -> Iterator[tuple[Execution, tuple[Any, ...]]]:
        """An :class:`Execution` on a function's account, and the operands on its device."""
        from ..engines.execution import Execution

        with self.on_device() as arrays:
            yield Execution(function, self.engine), arrays


def resolve(call: NumpyCall, host: Engine | None = None,
            given: ByName = NOTHING) -> Resolved | str:
    """The operands that kernels take, by NumPy's rules, or the route of a call to NumPy."""
    operands, out, rules = call.operands, call.out, call.rules
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
        return _resolve_on_gpu(call, given)
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
    if call.function in UFUNCS and not all(x.ndim for x in converted):
        call.numpys(*operands, **call.named)    # to be refused, as a number that does not fit
    return Resolved(engine, converted, tuple(map(engine.memory, converted)), out)


_ARRAYS = frozenset({"cupy", "numpy", "subclass"})
_BY_OPERANDS = frozenset({"dot", "inner", "kron", "outer", "tensordot", "vdot"})
"""Functions of NumPy that refuse an operand by type or shape, whatever else is passed."""


def _resolve_on_gpu(call: NumpyCall, given: ByName) -> Resolved:
    from ..engines.cuda import CUDA, require_one_device

    function, operands, rules = call.function, call.operands, call.rules
    out = None if call.out is ... and function in UFUNCS else call.out
    if out is not None and kind_of(out) not in _ARRAYS:     # which NumPy looks at first
        call.numpys(*(np.zeros((1,) * x.ndim, bool) if kind_of(x) == "cupy" else x
                      for x in operands), out=out)
        raise TypeError("'out' must be an array")
    if function in _BY_OPERANDS and any(map(_is_no_array, operands)):
        small = (np.zeros([min(n, 2) for n in x.shape], x.dtype) if kind_of(x) == "cupy" else x
                 for x in operands)
        call.numpys(*small, **call.arguments)
    names = rules.names or [f"operand {i}" for i in range(len(operands))]
    named = {**dict(zip(names, operands, strict=True)), **({} if out is None else {"out": out}),
             **given}
    require_one_device(function, {name: x for name, x in named.items()
                                  if rules is COPY or kind_of(x) != "scalar"})
    memories = (CUDA.memory(x) if kind_of(x) == "cupy" else Memory((), (), np.asarray(x).dtype)
                for x in operands)
    return Resolved(CUDA, tuple(operands), tuple(memories), out)


def _is_no_array(x: Any) -> bool:
    """Whether an object is neither array, number nor list, and NumPy finds no numbers in it."""
    return kind_of(x) == "like" and not isinstance(x, (list, tuple)) and np.asarray(x).dtype.kind not in "biufc"


def route_of(reason: str) -> str:
    return _DELEGATED + reason


def reason_of(route: str) -> str:
    return BY_NUMPY if route == "numpy" else route.removeprefix(_DELEGATED)


class _Unplanned(Exception):
    """A call is rehearsed in which kernels have no part."""


def rehearse(call: Callable[[], Any]) -> None:
    """Plan a call on NumPy arrays that NumPy answers."""
    token = rehearsing.set(True)
    try:
        with backend("emulator"), suppress(_Unplanned):
            call()
    finally:
        rehearsing.reset(token)


def by_numpy(function: str, route: str, call: Func, *operands: Any,
             **arguments: Any) -> Any:
    if rehearsing.get():
        raise _Unplanned
    result = call(*operands, **arguments)
    tally(function, "calls", route).tick()
    return result


def delegate(call: NumpyCall, route: str) -> Any:
    """Let NumPy answer a call that kernels do not take, and count the route."""
    function, numpys, operands, _out, _arguments, algorithm, _rules, again = call
    if route == _REDISPATCHED:
        if algorithm != AS_PLANNED and (answers := own_call(*operands, call.out)) is not None:
            return answers(again, tuple(operands), call.named)
        return numpys(*operands, **call.named)
    if again is not None and route == "numpy" and algorithm.precision not in NATIVE:
        rehearse(partial(again, *operands, **call.named))
    refuse_variant(algorithm.variant, reason_of(route))
    return by_numpy(function, route, numpys, *operands, **call.named)


def replay_product(function: str, operands: Sequence[Any], out: Any = None,
                   algorithm: Algorithm = AS_PLANNED,
                   arguments: ByName = NOTHING) -> tuple[Hashable, Any]:
    """The key of a call of a product, or ``None``, and the result if one like it was recorded."""
    replay = replays[type(operands[0])]
    if replay is None:
        return None, None
    head = key_of(arguments, function, algorithm)
    return head, None if head is None else replay(head, operands, out)


_NDARRAY = np.ndarray                  # a look-up less
_ticks: dict[str, Callable[[], int]] = {}


def at_once(function: str, call: Func, a: Any, b: Any, out: Any = None,
            arguments: ByName = NOTHING, settle: Settle | None = None) -> Any:
    """A product of plain arrays that stay on the host; ``None`` for any other call."""
    if type(a) is not _NDARRAY or type(b) is not _NDARRAY or not (out is None
                                                                  or type(out) is _NDARRAY):
        return None
    where = chosen_backend() or backend_of_environment()
    if where != "numpy" and not (where == "auto" and out is None and a.size
                                 + b.size <= FEW) and not stays(a, b, out):
        return None
    dtype = a.dtype
    if dtype is not FLOAT64 and dtype is not FLOAT32 and (a.size > SMALL or b.size > SMALL) \
            and dtype.char in WITHOUT_BLAS and function in BY_BLAS and not (arguments and function in UFUNCS):
        if a.ndim < 3 > b.ndim and function in OF_MATRICES:
            result = product(function, a, b, out)
        else:
            from .numpy_einsum import contract_by_blas

            key = key_of(arguments, function, *((x.shape, x.strides, x.dtype.num, x.dtype.isnative)
                                                for x in (a, b)))
            result = key and contract_by_blas(key, settle, a, b, out, arguments)
        if result is not None:
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


def answer(function: str, numpys: Func, settle: Settle, algorithm: Algorithm,
           *operands: Any, out: Any = None, **arguments: Any) -> Any:
    """Answer one of NumPy's products; ``settle`` says what it computes."""
    if type(operands[0]) is _NDARRAY and algorithm is AS_PLANNED \
            and (result := at_once(function, numpys, operands[0], operands[1], out, arguments, settle)) is not None:
        return result
    head, result = replay_product(function, operands, out, algorithm, arguments)
    if result is not None:
        return result
    # a closure would make all variables above slower
    again = partial(answer, function, numpys, settle, algorithm)
    return answer_anew(NumpyCall(function, numpys, operands, out, arguments, algorithm,
                                 again=again), settle, head)


# The roles of the operands and of the result, where one plan computes a call.
_ROLES: dict[int, Sequence[str]] = {1: ("src", "dst"), 2: "abc"}


def answer_anew(call: NumpyCall, settle: Settle, head: Hashable) -> Any:
    """:func:`answer` of a call that is not replayed; ``head`` is its key."""
    resolved = resolve(call)
    if isinstance(resolved, str):
        return delegate(call, resolved)
    from ..engines.problems import has_kernels
    from .contractions import evaluate

    function, algorithm, out = call.function, call.algorithm, resolved.out
    if (strange := resolved.strange) is not None:
        return without_kernels(call, resolved, strange)
    settled = settle(*resolved.memories, resolved.out_memory, **call.arguments)
    if settled is None:
        return _refused(call, resolved)
    if not (has_kernels(settled.dtype) and settled.dtype.isnative):
        return without_kernels(call, resolved, settled.dtype)
    if resolved.engine.on_host and settled.any_order:
        settled = replace(settled, any_order=False)
    compute = partial(evaluate, settled, algorithm)
    if resolved.engine.moves:
        streams = len(call.operands) == 2 and algorithm.variant is None
        result = offload(function, resolved.work(settled), compute, resolved.arrays, out,
                         partial(call.again, *call.operands, **call.named),
                         stream=partial(_in_tiles, call, settled, resolved.arrays) if streams
                         else None)
    else:
        with resolved.running(function) as (run, arrays):
            result = compute(run, arrays, out)
            if head is not None:
                run.record(head, arrays, out, result,
                           _ROLES.get(len(arrays), " " * (len(arrays) + 1)))
    is_scalar = out is None and settled.scalar and type(result) is np.ndarray and not result.ndim
    return result[()] if is_scalar else result


def _in_tiles(call: NumpyCall, settled: Expression, arrays: Sequence[np.ndarray]) -> Any:
    """Contract two NumPy arrays on the GPU in tiles of the result; ``None`` if there are none."""
    from .tiles import contraction_in_tiles, product_in_tiles

    x1, x2 = arrays
    if call.numpys is np.dot and x1.ndim == x2.ndim == 2:
        return product_in_tiles(call.function, x1, x2, call.out, call.algorithm.precision)
    return contraction_in_tiles(call.function, settled, x1, x2, call.out, call.algorithm)


def key_of(arguments: ByName, *rest: Hashable) -> Hashable:
    """A call but its arrays as a key; ``None`` unless arguments are numbers, names, types or
    lists."""
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
    if isinstance(x, np.dtype) or (kind is type and issubclass(x, (np.generic, complex, float,
                                                                   int))):
        return np.dtype(x), np.dtype(x).num             # long and longlong are equal
    raise TypeError


def _refused(call: NumpyCall, resolved: Resolved) -> Any:
    """Let NumPy refuse a call, on arrays without data; if it does not, let it answer."""
    out = resolved.out_memory
    call.numpys(*map(stand_in, resolved.memories),
                **call.named | ({} if out is None else {"out": stand_in(out)}))
    if resolved.engine.on_host:
        return delegate(call, route_of("only NumPy can interpret this call"))
    raise TypeError(f"{call.function} has no kernel on the GPU for operands of shapes "
                    f"{' and '.join(str(x.shape) for x in resolved.memories)}")


def without_kernels(call: NumpyCall, resolved: Resolved, dtype: np.dtype) -> Any:
    """Leave types that kernels do not multiply to NumPy on the host."""
    if resolved.engine.on_host:
        return delegate(call, route_of(f"there are no kernels for {dtype}"))
    raise _without_kernels(call.function, resolved.memories, dtype)


def _without_kernels(function: str, memories: Iterable[Memory], dtype: np.dtype) -> TypeError:
    return TypeError(
        f"{function} has no kernel on the GPU for {' and '.join(str(x.dtype) for x in memories)}, which NumPy "
        f"computes in {dtype}"
    )


def resolve_matmul(call: NumpyCall, host: Engine | None = None,
                   given: ByName = NOTHING) -> tuple[Resolved,
                                                                             Product] | str:
    """The operands and the product of a ``matmul``, or the route of one that goes to NumPy."""
    resolved = resolve(call, host, given)
    if isinstance(resolved, str):
        return resolved
    from ..engines.problems import has_kernels

    first, second, out = *resolved.memories, resolved.out_memory
    product = resolve_product(first, second, out, call.arguments)
    if resolved.engine.on_host:
        return (resolved, product) if has_kernels(product.dtype) else route_of(f"there are no kernels for {product.dtype}")
    memories = (first, second) if out is None else (first, second, out)
    if not has_kernels(product.dtype) or not all(x.dtype.isnative for x in memories):
        raise _without_kernels("matmul", memories, product.dtype)
    return resolved, product
