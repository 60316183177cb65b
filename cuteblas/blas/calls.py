"""One product in BLAS terms; all arguments are checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from .._dtypes import accumulator_of
from ..engines.dispatch import own_call
from ..engines.engine import Engine, engine_of
from ..engines.execution import Execution
from ..engines.memory import Memory, overlap, same_elements
from ..engines.numpy_gemm import QUIET, Multiplication
from ..engines.placement import stays
from ..engines.replay.numpy import Compute
from ..engines.replay.numpy import record as record_by_numpy
from ..engines.replay.registry import Replayable
from ..engines.settings import current_backend
from ..functions.algorithms import BY_NUMPY, NATIVE, Algorithm, checked_algorithm, refuse_variant
from ..functions.gemm import GemmArguments, gemm, refuse_self_overlap, scalar_kind
from ..functions.host_gemm import gemm_of_host
from .arguments import Arguments, Transposition, from_list, is_complex_list
from .libraries import Gathered, Place, gather, is_list, view_of
from .replay import record, replayable
from .signatures import ROWS, Routine
from .types import ROUTINES, Types, dtype_named, resolved, type_name

__all__ = ["Call", "Request", "execute", "gathered_operands", "inferred", "kernel_arguments",
           "perform", "prepare", "run", "targets", "where"]


class Request(NamedTuple):
    """The arguments of a call as the caller gave them."""

    alpha: Any
    a: Any
    b: Any
    beta: Any = 0
    c: Any = None
    trans_a: Any = 0
    trans_b: Any = 0
    overwrite_c: Any = 0
    epilogue: Any = None
    precision: str | None = None
    out: Any = None
    stream: Any = None
    variant: str | None = None
    dtype: Any = None
    compute_dtype: Any = None


class Call(NamedTuple):
    """A call whose arguments have been checked.

    Attributes
    ----------
    function : str
        The routine.
    types : Types
        Element types.
    gathered : Gathered
        The operands' library, their device and the way back.
    a, b : array
        (..., m, k) and (..., k, n): views of the operands, transposed as asked.
    trans_a, trans_b : Transposition
        What the caller asked for; conjugation is still to be done.
    alpha, beta : number or 0-d array
        In the type of the sums.
    c, out : array or None
        (..., m, n); ``c`` is read, ``out`` is written; the same array for an update in place.
    answer : object
        What the caller gets back if the result is written in place.
    shape : tuple of int
        Of the result.
    epilogue, algorithm, stream
        As in the call, checked.
    by_numpy : bool
        Whether NumPy computes it, and no kernel.
    """

    function: str
    types: Types
    gathered: Gathered
    a: Any
    b: Any
    trans_a: Transposition
    trans_b: Transposition
    alpha: Any
    beta: Any
    c: Any
    out: Any
    answer: Any
    shape: tuple[int, ...]
    epilogue: Any
    algorithm: Algorithm
    stream: Any
    by_numpy: bool

    @property
    def place(self) -> Place:
        """Where the operands are."""
        return self.gathered.place

    @property
    def engine(self) -> Engine:
        """What runs kernels on these arrays."""
        return engine_of(self.a)

    def answered(self, result: Any, extras: Mapping[str, Any]) -> Any:
        """What the caller gets: the result in its own library, and an epilogue's further results if
        there are any."""
        answer = self.answer if self.out is not None else self.gathered.back(result)
        return (answer, {name: self.gathered.back(x)
                         for name, x in extras.items()}) if extras else answer


def run(function: str, types: Types | None, request: Request) -> Any:
    """Check a call, run it, and return what the caller gets; ``types`` is ``None`` for ``gemm``,
    which infers them."""
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
    """Run a routine on its arguments by name; those of a type of ours are replaced by the arrays
    that they hold."""
    if (own := own_call(*values.values())) is not None:
        return own(perform, (operation, row, values), {})
    return operation(row, Arguments(row.name, values))


def gathered_operands(row: Routine, given: Arguments) -> Gathered:
    """The operands of a routine as arrays of one library, of its type and rank."""
    gathered = gather(row.name, {name: given[name] for name in row.operands}, row.read)
    _as_typed(row.name, gathered, row.types)
    for name, x in gathered.arrays.items():
        if x.ndim != (rank := len(row.operands[name])):
            kind = "vector" if rank == 1 else "matrix"
            raise ValueError(f"{row.name} takes a {kind} as {name}, but it has shape {x.shape}")
    return gathered


def prepare(function: str, types: Types | None, request: Request, *, runs: bool = True) -> Call:
    """Check a call; one that is only to be planned (``runs=False``) may name a kernel wherever it
    would run.

    Raises
    ------
    TypeError, ValueError
        One sentence on the first thing that is wrong.
    """
    given = Arguments(function, request._asdict())
    trans_a, trans_b = given.transposition("trans_a"), given.transposition("trans_b")
    overwrites = given.overwrites("c")
    algorithm = checked_algorithm(request.precision, request.variant, "gemm")
    gathered = gather(function, {name: given[name] for name in ("a", "b", "c", "out")}, "ab")
    place, arrays = gathered.place, gathered.arrays
    epilogue = _bound(function, request.epilogue, place)
    types = types or inferred(arrays, request)
    if "out" in arrays and is_list(arrays["out"]):
        raise TypeError(f"{function} takes an array as out, got a list")
    _as_typed(function, gathered, types)
    alpha, beta = given.scalar("alpha", types, place), given.scalar("beta", types, place)

    a, b = arrays["a"], arrays["b"]
    _check_ranks(function, arrays)
    a_seen, b_seen = trans_a.view(a), trans_b.view(b)
    shape = _shape_of(function, arrays, (a_seen.shape, b_seen.shape), (trans_a, trans_b))
    c, out, answer = targets(function, request, arrays, overwrites, beta, shape)
    call = Call(function, types, gathered, a_seen, b_seen, trans_a, trans_b, alpha, beta, c, out,
                answer, shape, epilogue, algorithm, request.stream,
                place.device is None and current_backend() != "emulator")
    _check_memory(call, arrays)
    if request.stream is not None and place.device is None:
        raise ValueError(
            f"{function} takes a stream for arrays on a CUDA device, but the operands are on the host"
        )
    if runs and call.by_numpy:
        refuse_variant(request.variant, BY_NUMPY)
    return call


def execute(call: Call, candidate: Replayable | None = None) -> Any:
    """Run a call that was checked, and record it if calls like it are replayed."""
    named = kernel_arguments(call)
    if call.by_numpy:
        moves = not stays(call.a, call.b, call.out)
        result, extras = gemm_of_host(call.function, moves, call.a, call.b, named)
        if candidate is not None and not moves and call.algorithm.precision in NATIVE \
                and (compute := _compute_by_numpy(candidate, call, named)) is not None:
            record_by_numpy(candidate, call.function, compute)
        return call.answered(result, extras)
    with where(call):
        run = Execution(call.function, call.engine)
        result, extras = gemm(run, call.a, call.b, named)
        if candidate is not None:
            record(run, candidate, call.alpha, call.beta, result)
    return call.answered(result, extras)


def _compute_by_numpy(candidate: Replayable, call: Call, named: GemmArguments) -> Compute | None:
    """A function that computes calls on NumPy arrays like this one; ``None`` if a scalar is an
    array or was rounded."""
    *_rest, reads_c, kinds = candidate.head
    if "device" in kinds or (scalar_kind(call.alpha), scalar_kind(call.beta)) != kinds:
        return None
    types = call.types
    plain = kinds == ("one", "zero") and not named.conj_a and not named.conj_b \
        and types.operands == types.output == types.compute \
        and np.broadcast_shapes(call.a.shape[:-2], call.b.shape[:-2]) == call.shape[:-2]
    multiply = Multiplication(call.shape, dtype_named(types.output), dtype_named(types.compute),
                              "F", named.conj_a, named.conj_b, plain).run
    swaps_a, swaps_b, in_place = call.trans_a.swaps, call.trans_b.swaps, call.c is not None and not reads_c

    shape, kind, flat = call.shape, dtype_named(types.output), len(call.shape) == 2 and plain and call.c is None

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


def kernel_arguments(call: Call) -> GemmArguments:
    """What the product of a call computes, in the words of :mod:`cuteblas.functions.gemm`."""
    types, conjugates = call.types, call.types.is_complex
    usual = accumulator_of(types.operands, types.operands,
                           types.output) if call.epilogue is None else None
    return GemmArguments(conjugates and call.trans_a.conjugates,
                         conjugates and call.trans_b.conjugates,
                         call.alpha, call.beta, call.c, call.out, types.output,
                         None if types.compute == usual else types.compute,
                         call.epilogue, call.algorithm)


def where(call: Call) -> AbstractContextManager[None]:
    """The device and the stream of a call, made the current ones."""
    if call.place.device is None:
        return nullcontext()
    if call.stream is None:
        return call.engine.on_device_of(call.a)
    from ._cupy import in_stream

    return in_stream(call.stream, call.place.device)


def _bound(function: str, epilogue: Any, place: Place) -> Any:
    """An epilogue, with its operands as NumPy or CuPy arrays like those of the product."""
    if epilogue is None:
        return None
    from ..functions.epilogues import as_bound

    def viewed(name: str, x: Any) -> Any:
        if is_list(x):
            return x
        array, where = view_of(function, name, x)
        if where != place:
            raise ValueError(
                f"{function} takes {name} of the epilogue in the library and on the device of the operands, but they "
                f"are {place.library} arrays on {place} and {name} is a {where.library} array on {where}"
            )
        return array

    return as_bound(epilogue).converted(viewed)


def inferred(arrays: Mapping[str, Any], request: Request) -> Types:
    """The types of ``gemm``: those of the arrays, float64 or complex128 if all are lists."""
    operands = next((type_name(arrays[x]) for x in "ab" if not is_list(arrays[x])), None)
    if operands is None:
        operands = "complex128" if any(is_complex_list(arrays[x]) for x in "ab") else "float64"
    dtype = request.dtype
    if dtype is None:
        dtype = next((type_name(arrays[x]) for x in ("out", "c") if x in arrays
                      and not is_list(arrays[x])), None)
    return resolved(operands, dtype=dtype, compute_dtype=request.compute_dtype,
                    epilogue=request.epilogue is not None)


def _as_typed(function: str, gathered: Gathered, types: Types) -> None:
    """Put arrays in the place of lists, and refuse arrays of another type than the routine's."""
    for name, x in gathered.arrays.items():
        role = "operands" if name in "ab" else "output"
        wanted = getattr(types, role)
        if is_list(x):
            array = from_list(function, name, x, dtype_named(wanted))
            if (device := gathered.place.device) is not None:
                from ._cupy import from_host

                array = from_host(array, device)
            gathered.arrays[name] = array
        elif (found := type_name(x)) != wanted:
            product = next((name for name, others in ROUTINES.items()
                            if getattr(others, role) == found), None)
            hint = f"convert it by {name}.astype({wanted!r})"
            if product is not None and (call := _other_routine(function, product)) is not None:
                hint = f"call {call}" + (f", or {hint}" if types.is_complex
                                         or not found.startswith("complex") else "")
            raise TypeError(f"{function} takes {name} in {wanted}, but it is {found}: {hint}")


def _other_routine(function: str, product: str) -> str | None:
    """The routine to call instead for elements that ``product`` multiplies; ``None`` if there is
    none."""
    row = ROWS.get(function)
    if row is None or row.operation == "gemm":
        return None if function == "gemm" else f"{product} or gemm"
    alike = row.operation, row.operation.replace("he", "sy")
    names = [product[0] + operation for operation in alike if not operation.startswith("ger")]
    return next((name for name in names if name in ROWS), None)


def _check_ranks(function: str, arrays: Mapping[str, Any]) -> None:
    for name, x in arrays.items():
        if x.ndim < 2:
            raise ValueError(
                f"{function} takes matrices, with or without batch dimensions before them, but {name} has shape "
                f"{x.shape}"
            )


def _shape_of(function: str, arrays: Mapping[str, Any],
              seen: tuple[tuple[int, ...], tuple[int, ...]],
              trans: tuple[Transposition, Transposition]) -> tuple[int, ...]:
    """The shape of the result, after all shapes have been compared."""
    def refusal(what: str) -> ValueError:
        shapes = ", ".join(
            f"{name} {arrays[name].shape}{'' if t.letter == 'N' else f' with trans_{name}={t.letter!r}'}"
            for name, t in zip("ab", trans, strict=True)
        )
        return ValueError(f"{function} {what}: {shapes}")

    (*batch_a, m, k), (*batch_b, k_of_b, n) = seen
    if k != k_of_b:
        raise refusal(f"multiplies (m, k) by (k, n), but k is {k} in a and {k_of_b} in b")
    batches = {"a": tuple(batch_a), "b": tuple(batch_b)}
    if "c" in arrays:
        batches["c"] = arrays["c"].shape[:-2]
    try:
        batch = np.broadcast_shapes(*batches.values())
    except ValueError:
        raise ValueError(
            f"{function} broadcasts batch dimensions, but those of "
            f"{' and '.join(f'{name} are {extents}' for name, extents in batches.items())}"
        ) from None
    shape = (*batch, m, n)
    if "c" in arrays and arrays["c"].shape[-2:] != (m, n):
        raise refusal(f"takes c of (m, n) = ({m}, {n}), but it has shape {arrays['c'].shape}")
    if "out" in arrays and arrays["out"].shape != shape:
        raise refusal(f"takes out of shape {shape}, but it has shape {arrays['out'].shape}")
    return shape


def targets(function: str, request: Request, arrays: Mapping[str, Any], overwrites: bool, beta: Any,
             shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The arrays that are read and written as C, and what the caller gets back if it is written in
    place."""
    c, out = arrays.get("c"), arrays.get("out")
    if c is None:
        if out is not None and not _is_zero(beta):
            raise ValueError(
                f"{function} needs c, because beta is not 0; to update out in place, pass it as c, too"
            )
        return None, out, request.out
    if not overwrites:
        return c, out, request.out
    if out is not None and request.out is not request.c:
        raise ValueError(f"{function} takes out or overwrite_c=1, but not both")
    if c.shape != shape:
        raise ValueError(
            f"{function} updates c in place with overwrite_c=1, but it has shape {c.shape} and the result {shape}"
        )
    return c, c, request.c


def _is_zero(number: Any) -> bool:
    return isinstance(number, (int, float, complex)) and number == 0


class _Use(NamedTuple):
    """An array of a call: its name, its memory, whether it may not share even the same elements,
    and whether it is written."""

    name: str
    memory: Memory
    whole: bool = False
    written: bool = False


def _check_memory(call: Call, arrays: Mapping[str, Any]) -> None:
    """Refuse results that cannot be written to their place, and operands that kernels cannot
    read."""
    target = None if call.out is None else "out" if "out" in arrays else "c"
    outputs = call.epilogue.outputs if call.epilogue else {}
    if call.by_numpy and target is None and not outputs:
        return
    function, engine = call.function, call.engine
    operands = {name: engine.memory(x) for name, x in arrays.items()}
    if not call.by_numpy:
        for name, memory in operands.items():
            if memory.size and not memory.whole_elements:
                raise ValueError(
                    f"{function} takes elements that are aligned to their size, but those of {name} are not; pass "
                    f"cuteblas.copy({name})"
                )
    # An operand of an epilogue may have the name of an argument, so these are not a mapping.
    scalars = [(name, x) for name, x in (("alpha", call.alpha), ("beta", call.beta))
               if scalar_kind(x) == "device"]
    fused = [] if call.epilogue is None else [(name, x)
                                              for name, x in call.epilogue.operands.items()
                                              if hasattr(x, "ndim")
                                              and not isinstance(x, np.generic)]
    used = [_Use(name, engine.memory(x), whole=True, written=True) for name, x in outputs.items()]
    used += [_Use(name, memory, name in ("a", "b"), name == target)
             for name, memory in operands.items()]
    used += [_Use(name, engine.memory(x), whole=True)
             for name, x in scalars] + [_Use(name, engine.memory(x)) for name, x in fused]
    for i, (name, memory, whole, written) in enumerate(used):
        if not written:
            continue
        if not memory.writeable:
            raise ValueError(f"{function} writes into {name}, but {name} is read-only")
        refuse_self_overlap(function, name, memory)
        for j, (other, memory_of_other, used_whole, _written) in enumerate(used):
            if i == j or not overlap(memory, memory_of_other):
                continue
            if whole or used_whole:
                raise ValueError(
                    f"{function} writes {name} while it uses {other}, but they share memory: pass another {name}, or "
                    f"a copy of {other}"
                )
            if not same_elements(memory, memory_of_other):
                raise ValueError(
                    f"{function} writes {name} while it reads {other}, but they share memory and are not the same "
                    f"elements: pass the same array twice, or another {name}"
                )
