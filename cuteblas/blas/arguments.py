"""The arguments of a BLAS call, all checked before anything runs."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from ..engines.dispatch import ByName, Engine, Func, engine_of
from ..engines.memory import Ints, overlap, same_elements
from ..engines.placement import engine_for, host_engine
from ..functions.algorithms import (
    AS_PLANNED,
    BY_NUMPY,
    checked_algorithm,
    refuse_variant,
)
from ..functions.gemm import GemmArguments, refuse_self_overlap, scalar_kind
from .libraries import LISTS, Gathered, Place, from_list, gather, is_complex_list, view_of
from .signatures import ROWS, Routine
from .types import ROUTINES, Types, dtype_named, resolved, type_name


class Transposition(NamedTuple):
    """How an operand is read; ``letter`` is BLAS's, and "R" conjugates without a transposition."""

    letter: str
    swaps: bool
    conjugates: bool

    def view(self, x: Any) -> Any:
        """The array with its last two axes as the product sees them."""
        return x.swapaxes(-1, -2) if self.swaps else x


_BY_LETTER = {letter: Transposition(letter, letter in "TC", letter in "CR") for letter in "NTCR"}
_BY_LETTER["H"] = _BY_LETTER["C"]

TRANSPOSITIONS = "0 or 'N', 1 or 'T', 2, 'C' or 'H', or 'R'"
"""What transposition arguments accept, for error messages."""


class Arguments(dict[str, Any]):
    """The arguments of one call by name, each of which is checked when it is asked for."""

    __slots__ = ("function",)

    def __init__(self, function: str, values: dict[str, Any]):
        super().__init__(values)
        self.function = function

    def integer(self, name: str, accepted: str = "an integer") -> int:
        try:
            return operator.index(self[name])
        except TypeError:
            raise TypeError(
                f"{self.function} takes {accepted} as {name}, got {type(self[name]).__name__}"
            ) from None

    def transposition(self, name: str, accepted: str = TRANSPOSITIONS) -> Transposition:
        value = self[name]
        if isinstance(value, str):
            known = _BY_LETTER.get(value.upper())
        else:
            number = self.integer(name, accepted)
            known = _BY_LETTER["NTC"[number]] if 0 <= number <= 2 else None
        if known is None:
            raise ValueError(f"{self.function} takes {accepted} as {name}, got {value!r}")
        return known

    def flag(self, name: str) -> bool:
        number = self.integer(name, "0 or 1")
        if number not in (0, 1):
            raise ValueError(f"{self.function} takes 0 or 1 as {name}, got {self[name]!r}")
        return bool(number)

    def overwrites(self, name: str) -> bool:
        """Whether the flag ``overwrite_NAME`` lets a routine update an operand; no list is."""
        overwrites = self.flag(f"overwrite_{name}")
        if overwrites and isinstance(self[name], LISTS):
            raise TypeError(
                f"{self.function} updates an array in place with overwrite_{name}=1, but {name} is a list"
            )
        return overwrites

    def scalar(self, name: str, types: Types, place: Place) -> Any:
        """alpha or beta: a number in the type of sums, or a 0-d array on the device."""
        function, value = self.function, self[name]
        if isinstance(value, (bool, int, float, complex, np.generic)):
            whole = type(value) is int or (type(value) is float and types.compute != "int32")
            return value if whole and value in (0, 1) else types.number(function, name, value)
        if isinstance(value, LISTS) or not (hasattr(value, "__array__")
                                            or hasattr(value, "__dlpack__")):
            raise TypeError(
                f"{function} takes a number or a 0-d array as {name}, got {type(value).__name__}"
            )
        array, where = view_of(function, name, value)
        if array.ndim:
            raise ValueError(
                f"{function} takes a number or a 0-d array as {name}, got an array of shape {tuple(array.shape)}"
            )
        if where.device is None:
            if place.device is None and isinstance(array, np.ndarray) and type_name(array.dtype) == types.compute:
                return array
            return types.number(function, name, array[()])
        if where != place:
            raise ValueError(
                f"{function} takes {name} in the library and on the device of the operands, but they are "
                f"{place.library} arrays on {place} and {name} is a {where.library} array on {where}"
            )
        types.check_scalar(function, name, array.dtype)
        return array


class Request(NamedTuple):
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
    """A checked call. ``given`` has views of the operands, ``c`` read and ``out`` written;
    ``answer`` is what the caller gets for an update in place."""

    function: str
    types: Types
    gathered: Gathered
    given: GemmArguments
    trans_a: Transposition
    trans_b: Transposition
    answer: Any
    shape: Ints
    stream: Any
    engine: Engine

    @property
    def place(self) -> Place:
        return self.gathered.place


def gathered_operands(row: Routine, given: Arguments) -> Gathered:
    gathered = gather(row.name, {name: given[name] for name in row.operands}, row.read)
    _as_typed(row.name, gathered, row.types)
    for name, x in gathered.arrays.items():
        if x.ndim != (rank := len(row.operands[name])):
            kind = "vector" if rank == 1 else "matrix"
            raise ValueError(f"{row.name} takes a {kind} as {name}, but it has shape {x.shape}")
    return gathered


def prepare(function: str, types: Types | None, request: Request, *, moves: bool = True,
            gather: Func = gather) -> Call:
    """Check a call. One that never moves to the GPU may only be planned, and name a kernel
    wherever it would run."""
    call = read(function, types, request, moves, gather)
    _check_memory(call)
    if request.stream is not None and call.place.device is None:
        raise ValueError(
            f"{function} takes a stream for arrays on a CUDA device, but the operands are on the host"
        )
    if request.variant is not None and moves and not call.engine.kernels:
        refuse_variant(request.variant, BY_NUMPY)
    return call


def read(function: str, types: Types | None, request: Request, moves: bool = False,
         gather: Func = gather, view: Func = Transposition.view) -> Call:
    """Check all but memory; ``gather`` makes arrays, ``view`` shows what is multiplied."""
    given = Arguments(function, request._asdict())
    trans_a, trans_b = given.transposition("trans_a"), given.transposition("trans_b")
    overwrites = given.overwrites("c")
    precision, variant = request.precision, request.variant
    algorithm = AS_PLANNED if precision is variant is None \
        else checked_algorithm(precision, variant, "gemm")
    gathered = gather(function, {name: given[name] for name in ("a", "b", "c", "out")}, "ab")
    place, arrays = gathered.place, gathered.arrays
    epilogue = _bound(function, request.epilogue, place)
    types = types or _inferred(arrays, request)
    if isinstance(arrays.get("out"), LISTS):
        raise TypeError(f"{function} takes an array as out, got a list")
    _as_typed(function, gathered, types)
    alpha, beta = given.scalar("alpha", types, place), given.scalar("beta", types, place)

    for name, x in arrays.items():
        if x.ndim < 2:
            raise ValueError(
                f"{function} takes matrices, with or without batch dimensions before them, but {name} has shape "
                f"{x.shape}"
            )
    a, b = view(trans_a, arrays["a"]), view(trans_b, arrays["b"])
    shape = _shape_of(function, arrays, (a.shape, b.shape), (trans_a, trans_b))
    c, out, answer = _targets(function, request, arrays, overwrites, beta, shape)
    conjugates = a.dtype.kind == "c"
    product = GemmArguments(a, b, conjugates and trans_a.conjugates,
                            conjugates and trans_b.conjugates, alpha, beta, c, out,
                            types.output, types.compute, epilogue, algorithm)
    engine = engine_of(a) if place.device is not None \
        else engine_for(a, b, out) if moves else host_engine()
    return Call(function, types, gathered, product, trans_a, trans_b, answer, shape, request.stream,
                engine)


def _bound(function: str, epilogue: Any, place: Place) -> Any:
    """An epilogue, with its operands as NumPy or CuPy arrays like those of the product."""
    if epilogue is None:
        return None
    from ..functions.epilogues import as_bound

    def viewed(name: str, x: Any) -> Any:
        if isinstance(x, LISTS):
            return x
        array, where = view_of(function, name, x)
        if where != place:
            raise ValueError(
                f"{function} takes {name} of the epilogue in the library and on the device of the operands, but they "
                f"are {place.library} arrays on {place} and {name} is a {where.library} array on {where}"
            )
        return array

    return as_bound(epilogue).converted(viewed)


def _inferred(arrays: ByName, request: Request) -> Types:
    """The types of ``gemm``: those of the arrays, float64 or complex128 if all are lists."""
    def named(*names: str) -> str | None:
        return next((type_name(arrays[x].dtype) for x in names if x in arrays
                     and not isinstance(arrays[x], LISTS)), None)

    operands = named("a", "b") or ("complex128" if any(is_complex_list(arrays[x]) for x in "ab")
                                   else "float64")
    dtype = named("out", "c") if request.dtype is None else request.dtype
    return resolved(operands, dtype=dtype, compute_dtype=request.compute_dtype,
                    epilogue=request.epilogue is not None)


def _as_typed(function: str, gathered: Gathered, types: Types) -> None:
    """Put arrays in the place of lists, and refuse arrays of another type than the routine's."""
    for name, x in gathered.arrays.items():
        role = "operands" if name in "ab" else "output"
        wanted = getattr(types, role)
        if isinstance(x, LISTS):
            array = from_list(function, name, x, dtype_named(wanted))
            if (device := gathered.place.device) is not None:
                from ._cupy import from_host

                array = from_host(array, device)
            gathered.arrays[name] = array
        elif x.dtype != wanted and (found := type_name(x.dtype)) != wanted:
            product = next((name for name, others in ROUTINES.items()
                            if getattr(others, role) == found), None)
            hint = f"convert it by {name}.astype({wanted!r})"
            if product is not None and (call := _other_routine(function, product)) is not None:
                hint = f"call {call}" + (f", or {hint}" if types.is_complex
                                         or not found.startswith("complex") else "")
            raise TypeError(f"{function} takes {name} in {wanted}, but it is {found}: {hint}")


def _other_routine(function: str, product: str) -> str | None:
    """The routine for elements that ``product`` multiplies; ``None`` if there is none."""
    row = ROWS.get(function)
    if row is None or row.operation == "gemm":
        return None if function == "gemm" else f"{product} or gemm"
    alike = row.operation, row.operation.replace("he", "sy")
    names = [product[0] + operation for operation in alike if not operation.startswith("ger")]
    return next((name for name in names if name in ROWS), None)


def _shape_of(function: str, arrays: ByName,
              seen: tuple[Ints, Ints],
              trans: tuple[Transposition, Transposition]) -> Ints:
    """The shape of the result, after all shapes have been compared."""
    def refusal(what: str) -> ValueError:
        shapes = ", ".join(
            f"{name} {arrays[name].shape}{'' if t.letter == 'N' else f' with trans_{name}={t.letter!r}'}"
            for name, t in zip("ab", trans, strict=True)
        )
        return ValueError(f"{function} {what}: {shapes}")

    (m, k), (k_of_b, n) = (shape[-2:] for shape in seen)
    if k != k_of_b:
        raise refusal(f"multiplies (m, k) by (k, n), but k is {k} in a and {k_of_b} in b")
    batches = {name: x.shape[:-2] for name, x in arrays.items() if name != "out"}
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


def _targets(function: str, request: Request, arrays: ByName, overwrites: bool, beta: Any,
              shape: Ints) -> tuple[Any, Any, Any]:
    """C as it is read, as it is written, and what the caller gets for an update in place."""
    c, out = arrays.get("c"), arrays.get("out")
    if c is None:
        if out is not None and scalar_kind(beta) != "zero":
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


def _check_memory(call: Call) -> None:
    """Refuse results that cannot be written in place, and operands that kernels cannot read."""
    arrays, given, epilogue = call.gathered.arrays, call.given, call.given.epilogue
    target = None if given.out is None else "out" if "out" in arrays else "c"
    outputs = epilogue.outputs if epilogue else {}
    function, engine = call.function, call.engine
    if not engine.kernels and target is None and not outputs:
        return
    operands = {name: engine.memory(x) for name, x in arrays.items()}
    if engine.kernels:
        for name, memory in operands.items():
            if memory.size and not memory.whole_elements:
                raise ValueError(
                    f"{function} takes elements that are aligned to their size, but those of {name} are not; pass "
                    f"cuteblas.copy({name})"
                )
    # An operand of an epilogue may have the name of an argument, so these are not a mapping.
    further = [("alpha", given.alpha, True), ("beta", given.beta, True),
               *((name, x, False) for name, x in (epilogue.operands if epilogue else {}).items())]
    # arrays, whether they may not share even the same elements, and whether they are written
    used = [*((name, engine.memory(x), True, True) for name, x in outputs.items()),
            *((name, memory, name in ("a", "b"), name == target)
              for name, memory in operands.items()),
            *((name, engine.memory(x), whole, False) for name, x, whole in further
              if scalar_kind(x) == "device")]
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
