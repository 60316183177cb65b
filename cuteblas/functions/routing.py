"""Who takes a call: the kernels, on the arrays of one library, or NumPy; and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..engines.counters import tally
from ..engines.dispatch import NOTHING, ByName, Func, kind_of, own_call, own_types, replays
from ..engines.exact import FLOAT32, FLOAT64, SMALL, WITHOUT_BLAS
from ..engines.memory import Memory
from ..engines.placement import FEW, Work, host_engine, offload, rehearsing, stays, work_of
from ..engines.settings import (
    backend,
    backend_of_environment,
    chosen_backend,
    devices_of_environment,
)
from .algorithms import (
    AS_PLANNED,
    BY_NUMPY,
    NATIVE,
    Algorithm,
    checked_algorithm,
    refuse_variant,
)
from .expressions import Expression, stand_in
from .gufunc import UFUNCS, Product

if TYPE_CHECKING:
    from ..engines.engine import Engine
    from ..engines.execution import Execution

Settle = Callable[..., "Expression | None"]
"""From the memories of operands and ``out`` to an expression; ``None`` if NumPy has to refuse."""

_REDISPATCHED = "dispatched again"
_DELEGATED = "delegated to NumPy: "


class Rules(NamedTuple):
    """The ``names`` of a function's operands, the protocol of types that answer themselves, and who
    takes ``note`` of what was settled for calls that may move to the GPU."""

    names: tuple[str, ...] = ()
    answered: str | None = "NumPy's functions"
    note: Callable[..., None] | None = None


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
    engine = host_engine() if host is None else host
    if rules.answered is not None:
        for x, kind in zip(arrays, kinds, strict=True):
            # files are arrays to NumPy's ufuncs, too
            if kind == "subclass" and not (type(x) is np.memmap and rules.note and host is None
                                           and engine.moves):
                return route_of(f"{type(x).__name__} is a subclass of numpy.ndarray")
        if out is not None and kinds[-1] not in _ARRAYS:
            return route_of("out is not an array")
    converted = tuple(np.asarray(x) for x in operands)
    if call.function in UFUNCS and not all(x.ndim for x in converted):
        call.numpys(*operands, **call.named)    # to be refused, as a number that does not fit
    return Resolved(engine, converted, tuple(map(engine.memory, converted)),
                    out if out is None or rules is COPY else np.asarray(out))


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
    head = key_of(arguments, function, *algorithm)
    return head, None if head is None else replay(head, operands, out)


_NDARRAY = np.ndarray                  # a look-up less
_PLAIN = frozenset({np.ndarray, list, tuple, int, float})


@dataclass(slots=True)
class NumpyProduct:
    """One of NumPy's products of two arrays. ``settle`` says what it computes, ``prepare`` makes
    arrays of operands that NumPy reads in its own way, and ``by_blas`` takes plain arrays of types
    without NumPy's BLAS; it returns ``None`` where NumPy's loop is quicker, or refuses."""

    name: str
    numpys: Func
    settle: Settle
    prepare: Func = lambda *operands: operands
    by_blas: Func | None = None
    rules: Rules = FUNCTION
    count: Callable[[], int] = field(init=False)

    def __post_init__(self) -> None:
        self.count = tally(self.name, "calls", "numpy").tick


def answer(product: NumpyProduct, a: Any, b: Any, out: Any = None, precision: str | None = None,
           variant: str | None = None, arguments: ByName = NOTHING) -> Any:
    """Answer one of NumPy's products, of plain arrays and lists that stay on the host at once."""
    if type(a) in _PLAIN and type(b) in _PLAIN and variant is None and (
            precision is None or precision == "auto") and (out is None or type(out) is _NDARRAY):
        where = chosen_backend() or backend_of_environment()
        of_arrays = type(a) is _NDARRAY and type(b) is _NDARRAY
        if where == "numpy" or (where == "auto" and of_arrays and out is None and a.size
                                + b.size <= FEW) or stays(a, b, out):
            dtype = a.dtype if of_arrays else FLOAT64       # or whatever NumPy makes of lists
            if dtype is not FLOAT64 and dtype is not FLOAT32 and dtype.char in WITHOUT_BLAS \
                    and (by_blas := product.by_blas) is not None \
                    and (a.size > SMALL or b.size > SMALL) and (
                        result := by_blas(product.name, a, b, out, **arguments)) is not None:
                return result
            if arguments:
                result = product.numpys(a, b, **arguments) if out is None else product.numpys(
                    a, b, out=out, **arguments)
            else:
                result = product.numpys(a, b) if out is None else product.numpys(a, b, out)
            product.count()
            return result
    a, b, out = product.prepare(a, b, out)
    algorithm = checked_algorithm(precision, variant)
    head, result = replay_product(product.name, (a, b), out, algorithm, arguments)
    if result is not None:
        return result
    call = NumpyCall(product.name, product.numpys, (a, b), out, arguments, algorithm,
                     product.rules, partial(_answer_again, product, algorithm))
    return answer_anew(call, product.settle, head)


def _answer_again(product: NumpyProduct, algorithm: Algorithm, a: Any, b: Any, out: Any = None,
                  **arguments: Any) -> Any:
    return answer(product, a, b, out, *algorithm, arguments)


# The roles of the operands and of the result, where one plan computes a call.
_ROLES: dict[int, Sequence[str]] = {1: ("src", "dst"), 2: "abc"}


def answer_anew(call: NumpyCall, settle: Settle, head: Hashable) -> Any:
    """:func:`answer` of a call that is not replayed; ``head`` is its key."""
    found = settle_call(call, settle)
    if isinstance(found, str):
        return delegate(call, found)
    resolved, settled = found
    if resolved.engine.on_host and settled.any_order:
        settled = replace(settled, any_order=False)
    if resolved.engine.moves:
        work = resolved.work(settled)
        if call.rules.note is not None:
            call.rules.note(call, resolved, settled, work)
        result = offloaded(call, settled, work, resolved.arrays, resolved.out)
    else:
        with resolved.running(call.function) as (run, arrays):
            result = _computed(settled, call.algorithm, run, arrays, resolved.out)
            if head is not None:
                run.record(head, arrays, resolved.out, result,
                           _ROLES.get(len(arrays), " " * (len(arrays) + 1)))
    if resolved.out is not None:
        result = call.out
    is_scalar = settled.scalar and type(result) is np.ndarray and not result.ndim
    return result[()] if is_scalar else result


def offloaded(call: NumpyCall, settled: Expression, work: Work, arrays: Sequence[np.ndarray],
              out: np.ndarray | None) -> Any:
    """The result of a call on NumPy arrays, on the GPU where that is faster."""
    named, algorithm = call.named, call.algorithm
    streams = len(arrays) == 2 and algorithm.variant is None \
        and not (call.arguments and type(settled) is Product)
    return offload(call.function, work, partial(_computed, settled, algorithm), arrays, out,
                   partial(call.again, *call.operands, **named),
                   stream=partial(_in_tiles, call, settled, arrays, out) if streams else None)


def _computed(settled: Expression, algorithm: Algorithm, run: Execution, arrays: Sequence[Any],
              out: Any) -> Any:
    """The result by kernels; ``out`` if there is one."""
    if type(settled) is Product:
        from .gemm import GemmArguments
        from .staging import run_product

        a, b = arrays
        return run_product(run, settled, GemmArguments(a, b, out=out, algorithm=algorithm))[0]
    from .contractions import evaluate

    return evaluate(settled, algorithm, run, arrays, out)


_SEVERAL_BYTES = 1 << 28                 # of operands that several GPUs share


def _in_tiles(call: NumpyCall, settled: Expression, arrays: Sequence[np.ndarray],
              out: np.ndarray | None) -> Any:
    """The result on the GPU in tiles, that of a large ``matmul`` on all of ``CUTEBLAS_DEVICES``;
    ``None`` if there are no tiles."""
    from .tiles import contraction_in_tiles, product_in_tiles

    (x1, x2), function, precision = arrays, call.function, call.algorithm.precision
    if type(settled) is Product:
        if x1.nbytes + x2.nbytes >= _SEVERAL_BYTES and (devices := devices_of_environment()) is not None:
            from .devices import matmul_of_host

            return matmul_of_host(function, x1, x2, out, devices, precision)
        return product_in_tiles(function, x1, x2, out, precision, settled)
    if call.numpys is np.dot and x1.ndim == x2.ndim == 2:
        return product_in_tiles(function, x1, x2, out, precision)
    return contraction_in_tiles(function, settled, x1, x2, out, call.algorithm)


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


def settle_call(call: NumpyCall, settle: Settle, host: Engine | None = None,
                given: ByName = NOTHING) -> tuple[Resolved, Any] | str:
    """The operands that kernels take and what they compute, or the route of a call to NumPy."""
    resolved = resolve(call, host, given)
    if isinstance(resolved, str):
        return resolved
    from ..engines.problems import has_kernels

    on_host = resolved.engine.on_host
    # a ufunc casts its operands
    if call.rules is FUNCTION and (strange := resolved.strange) is not None:
        return without_kernels(call, resolved, strange)
    settled = settle(*resolved.memories, resolved.out_memory, **call.arguments)
    if settled is None:
        return _refused(call, resolved)
    arrays = *resolved.memories, resolved.out_memory or settled
    if not has_kernels(settled.dtype) or not settled.dtype.isnative or not (
            on_host or all(x.dtype.isnative for x in arrays)):
        return without_kernels(call, resolved, settled.dtype)
    return resolved, settled


def _refused(call: NumpyCall, resolved: Resolved) -> str:
    """Let NumPy refuse a call, on arrays without data; if it does not, let it answer."""
    out = resolved.out_memory
    call.numpys(*map(stand_in, resolved.memories),
                **call.named | ({} if out is None else {"out": stand_in(out)}))
    if resolved.engine.on_host:
        return route_of("only NumPy can interpret this call")
    raise TypeError(f"{call.function} has no kernel on the GPU for operands of shapes "
                    f"{' and '.join(str(x.shape) for x in resolved.memories)}")


def without_kernels(call: NumpyCall, resolved: Resolved, dtype: np.dtype) -> str:
    """The route of a type that kernels do not multiply, on the host."""
    if resolved.engine.on_host:
        return route_of(f"there are no kernels for {dtype}")
    raise TypeError(
        f"{call.function} has no kernel on the GPU for {' and '.join(str(x.dtype) for x in resolved.memories)}, which "
        f"NumPy computes in {dtype}"
    )
