"""Calls on CuPy arrays that have run before are launched at once; their launches are remembered here.

A :class:`Recorder` lists the steps of a call. They are one launch on the operands and the result, a :class:`Program` of several,
or a group of products. Imported when the first of them begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import cupy
import numpy as np

from .._forks import forget_in_children
from . import kept
from .counters import tally
from .cuda import CUDA, current_device, current_stream, launcher_for, several_devices, uploaded
from .dispatch import Repeat, register_repeater
from .memory import Memory
from .recording import listeners
from .settings import planned_under_the_limit

if TYPE_CHECKING:
    from ..planning.gemm.grouped import Form
    from ..planning.plan import Plan

__all__ = ["MOST_READY", "Program", "Recorder", "Step", "forget", "key_of_call", "remember", "remember_group",
           "repeated", "repeated_group"]

_MOST_BYTES = 1 << 30                   # kept of one call; with more, intermediate results are freed as soon as they have been read


class Step(NamedTuple):
    """What an engine did.

    Attributes
    ----------
    work : Plan or callable
        A plan, or a function of the library.
    arrays : tuple of array
        What it worked on: of a plan in the order of its problem's roles.
    plain : bool
        Whether it was launched without scalars.
    """

    work: Plan | Callable[..., Any]
    arrays: tuple[Any, ...]
    plain: bool = True


class Recorder:
    """The steps of one call, the arrays that it made, and what it counted.

    Attributes
    ----------
    steps : list of Step
        All of them, in order, while ``complete``; else the last one.
    steps_taken, arrays_made : int
        How many.
    made : list of array
        New arrays, while ``complete``.
    complete : bool
        Whether all arrays are kept.
    counted : list of (str, str, str)
        The counters that it advanced.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.steps_taken = self.arrays_made = 0
        self.made: list[Any] = []
        self.complete = True
        self.counted: list[tuple[str, str, str]] = []
        self._begins: dict[int, tuple[Any, Any]] = {}           # by its identity: a view, and what it begins with

    def note_array(self, new: Any) -> None:
        """Note a new array."""
        self.arrays_made += 1
        self.made.append(new)
        if sum(x.nbytes for x in self.made) > _MOST_BYTES:
            self.complete = False
        if not self.complete:
            self.steps, self.made, self._begins = self.steps[-1:], [], {}

    def note_view(self, view: Any, x: Any) -> None:
        """Note a view of ``x``, which begins where that begins or after it."""
        if self.complete:
            self._begins[id(view)] = view, self.beginning(x)

    def note_step(self, work: Plan | Callable[..., Any], *arrays: Any, plain: bool = True) -> None:
        """Note a step that is about to be taken."""
        self.steps_taken += 1
        if not self.complete:
            self.steps.clear()
        self.steps.append(Step(work, arrays, plain))

    def beginning(self, x: Any) -> Any:
        """The array that a view begins with; any other array itself."""
        return self._begins.get(id(x), (x, x))[1]


# -- calls that have run before ---------------------------------------------------------------------------------------------------
# They are few in practice; a program with ever new shapes starts over at this number.
MOST_READY = 8192


class _Ready(NamedTuple):
    """A call that has run: everything that one with the same key needs."""

    launch: Callable[..., Any]
    pick: Callable[[list[int]], tuple[int, ...]] | None # from the addresses of inputs and result those that the plan takes, or all
    tick: Callable[[], Any]
    several_devices: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None                     # none where they are those of the order
    order: str
    dtype: np.dtype
    nbytes: int
    near: tuple[tuple[int, int, int], ...]              # the number of an input, and between which distances from it the result
                                                        # reaches into its range
    types: tuple[np.dtype, ...]                         # those that the key has by their identity


_ready: dict[tuple, Any] = {}
_NDARRAY = cupy.ndarray                 # looked up where it is noticed
_BARE = cupy.ndarray.__mro__[1]


_new: Any = _BARE.__new__
_fill_in: Any = getattr(_BARE, "_init", None)


def _by_parts(shape: tuple[int, ...], dtype: np.dtype, memory: Any, strides: tuple[int, ...] | None, order: str) -> Any:
    """``cupy.ndarray(shape, dtype, memory, strides, order)``, by the two calls that this constructor in Python comes to."""
    made = _new(_NDARRAY)
    _fill_in(made, shape, dtype, memory, strides, order)
    return made


_made: Callable[..., Any] = cupy.ndarray if _fill_in is None else _by_parts


def key_of_call(head: Hashable, inputs: Sequence[Any], out: Any) -> tuple | None:
    """The key of a call; ``None`` if an array of it is not a plain CuPy array. At its end it says whether the first two operands
    begin at one address: a matrix and itself have a product of their own.

    Two calls with one key are the same call, whatever the arrays contain: a key has the head, a part for each operand in order, and
    last a part for ``out``, which is ``None`` without one, so that an operand is never taken for ``out``. An element type is there
    by its identity: types may be equal and differ in what NumPy makes of them, as ``long`` and ``longlong`` do, or types with
    metadata. Whoever keeps a key keeps the types, too.

    Parameters
    ----------
    head : hashable
        The function, and all arguments that are not arrays; equal ones have to mean the same.
    inputs : sequence
        The operands.
    out : array or None
        Receives the result.
    """
    if any(type(x) is not cupy.ndarray for x in (inputs if out is None else (*inputs, out))):
        return None
    same = (True,) if len(inputs) > 1 and inputs[0].data.ptr == inputs[1].data.ptr else ()
    return head, *map(_part, inputs), None if out is None else _part(out), *same


def _part(x: Any) -> tuple:
    """The part of a key for an array."""
    return x.shape, x.strides, id(x.dtype), x.data.ptr & 15, x.data.device_id


def repeated(head: Hashable, inputs: tuple[Any, ...], out: Any, scalars: tuple[Any, ...] = ()) -> Any:
    """The result of a call if one like it has run before, else ``None``.

    Shapes, strides, types, alignments and devices of a call that was accepted decide everything about it, except whether ``out``
    overlaps an input. Address ranges tell that here; where they meet, the long way finds out.

    Parameters
    ----------
    head : hashable
        The function, and all arguments that are not arrays: equal ones mean the same.
    inputs : tuple
        The operands.
    out : array or None
        Receives the result. An input that is ``out`` itself, element by element, is left out of ``inputs``.
    scalars : tuple
        What the launch takes after addresses and stream.
    """
    key, addresses = [head], []                         # as key_of_call, without its calls: they would be noticed here
    for x in inputs if out is None else (*inputs, out):
        if type(x) is not _NDARRAY:
            return None
        data = x.data
        address = data.ptr
        addresses.append(address)
        key.append((x.shape, x.strides, id(x.dtype), address & 15, data.device_id))
    if out is None:
        key.append(None)
    if len(inputs) > 1 and addresses[0] == addresses[1]:
        key.append(True)
    try:
        ready = _ready.get(tuple(key))
        if ready is None and (ready := _of_another_process(tuple(key), head, inputs, out)) is None:
            return None
    except TypeError:                                   # an argument without a hash
        return None
    launch, pick, tick, several, shape, strides, order, dtype, nbytes, near, _types = ready
    if several and current_device() != data.device_id:
        return None
    if out is None:
        memory = cupy.cuda.alloc(nbytes)
        address = memory.ptr
        if address & 15:
            return None
        addresses.append(address)
        out = _made(shape, dtype, memory, strides, order)
    else:
        for i, below, above in near:
            if below < address - addresses[i] < above:
                return None
    try:
        launch(addresses if pick is None else pick(addresses), current_stream(), *scalars)
    except cupy.cuda.memory.OutOfMemoryError:           # the long way has an alternative
        return None
    tick()
    return out


def forget() -> None:
    """Let every call be planned again."""
    _ready.clear()
    _unknown.clear()


_unknown: set[tuple] = set()
"""Keys of calls that no process has kept."""


def _of_another_process(key: tuple, head: Hashable, inputs: Sequence[Any], out: Any) -> _Ready | None:
    """A call that has not run in this process, if it has run in another one."""
    if key in _unknown or listeners:
        return None
    from .. import runtime

    if runtime.capturing():                             # nothing can be loaded now
        return None
    if (name := kept.name_of(head, inputs, out)) is not None and (record := kept.read(name)) is not None:
        with suppress(Exception), CUDA.on_device_of(inputs[0] if inputs else out):
            if (found := _from_record(record, inputs if out is None else (*inputs, out), inputs[0].data.device_id)) is not None:
                _keep(key, found)
                return found
    if len(_unknown) >= MOST_READY:
        _unknown.clear()
    _unknown.add(key)
    return None


def remember(recorder: Recorder, head: Hashable, inputs: Sequence[Any], out: Any, result: Any, roles: Sequence[str],
             scalars: bool) -> None:
    """Let :func:`repeated` answer calls like one that has run, if it was one launch on the operands and the result themselves,
    or if all of its steps are known.

    Parameters
    ----------
    recorder : Recorder
        The steps of the call.
    head, inputs, out
        As :func:`repeated` will get them.
    result : array
        What the call returned.
    roles : sequence of str
        What each input and, last, the result is to a plan.
    scalars : bool
        Whether :func:`repeated` will get those of the launch; a call of several steps has none.
    """
    if {type(x) for x in (*inputs, result)} != {cupy.ndarray} or not (scalars or all(step.plain for step in recorder.steps)):
        return
    found = _as_launch(recorder, inputs, out, result, roles)
    if found is None and not scalars:
        found = _as_program(recorder, inputs, out, result)
    if found is not None:
        launch, pick = found
        ready = _Ready(launch, pick, _counting(recorder.counted), several_devices(), *_made_like(result), _near(inputs, result),
                       tuple(x.dtype for x in (*inputs, result)))
        _keep(key_of_call(head, inputs, out), ready)
        if (name := kept.name_of(head, inputs, out)) is not None \
                and (record := _record_of(ready, recorder.counted, result.data.device_id)) is not None:
            kept.write(name, record)


def _record_of(ready: _Ready, counted: Sequence[tuple[str, str, str]], device: int) -> dict[str, Any] | None:
    """A call for other processes; ``None`` if something of it has no name there."""
    launch = _launch_record(ready.launch, device)
    if launch is None or not kept.is_usual(ready.dtype):
        return None
    return {"launch": launch, "pick": None if ready.pick is None else _numbers(ready.pick), "counted": counted,
            "shape": ready.shape, "strides": ready.strides, "order": ready.order, "dtype": ready.dtype.str, "nbytes": ready.nbytes,
            "near": ready.near}


def _from_record(record: Mapping[str, Any], arrays: Sequence[Any], device: int) -> _Ready | None:
    """A call of another process; ``None`` if the cache lacks a kernel of it."""
    launch = _launch_of(record["launch"], device)
    if launch is None:
        return None
    shape, strides = tuple(record["shape"]), record["strides"]
    return _Ready(launch, None if record["pick"] is None else itemgetter(*record["pick"]), _counting(record["counted"]),
                  several_devices(), shape, None if strides is None else tuple(strides), record["order"], np.dtype(record["dtype"]),
                  record["nbytes"], tuple((i, below, above) for i, below, above in record["near"]), tuple(x.dtype for x in arrays))


def _launch_record(launch: Any, device: int) -> dict[str, Any] | None:
    """What launches a call, or a step of it, as values that JSON has."""
    from ..runtime.kept import record_of

    if isinstance(launch, Program):
        steps = [_launch_record(step, device) for step in launch.steps]
        return None if None in steps else {"steps": steps, "offsets": launch.offsets, "nbytes": launch.nbytes}
    if isinstance(launch, (_Launch, _Shifted)):
        inner = _launch_record(launch.launch, device)
        shifts = launch.shifts if isinstance(launch, _Shifted) else None
        return None if inner is None else {"on": _numbers(launch.pick), "shifts": shifts, **inner}
    if isinstance(launch, _Call):
        known = getattr(launch.function, "__self__", None) is CUDA and all(kept.is_usual(place.dtype) for place in launch.places)
        places = [(place.number, place.shape, place.dtype.str, place.strides) for place in launch.places]
        return {"function": launch.function.__name__, "places": places} if known else None
    plan = getattr(getattr(launch, "__self__", None), "plan", None)
    found = None if plan is None else record_of(plan, device)
    return None if found is None else {"plan": found}


def _launch_of(record: Mapping[str, Any], device: int) -> Any:
    """The launch, or the step of a call, of a record."""
    from ..runtime.kept import executor_of

    if "steps" in record:
        steps = tuple(_launch_of(step, device) for step in record["steps"])
        return None if None in steps else Program(steps, tuple(record["offsets"]), record["nbytes"])
    if "function" in record:
        places = tuple(_Place(number, tuple(shape), np.dtype(dtype), tuple(strides))
                       for number, shape, dtype, strides in record["places"])
        return _Call(getattr(CUDA, record["function"]), places, device)
    ready = executor_of(record["plan"], device)
    if ready is None or "on" not in record:
        return None if ready is None else ready.launch
    pick = _picking(record["on"])
    return _Launch(ready.launch, pick) if record["shifts"] is None else _Shifted(ready.launch, pick, tuple(record["shifts"]))


def _picking(numbers: Sequence[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """What picks elements of a tuple, as a tuple."""
    first, *others = numbers
    return itemgetter(*numbers) if others else itemgetter(slice(first, first + 1))


def _numbers(pick: Any) -> list[int]:
    """Which elements something picks."""
    return [x.start if isinstance(x, slice) else x for x in pick.__reduce__()[1]]


def _keep(key: tuple | None, ready: _Ready | _ReadyGroup) -> None:
    if len(_ready) >= MOST_READY:
        _ready.clear()
    with suppress(TypeError):                           # an argument without a hash
        if key is not None:
            _ready[key] = ready


def _counting(counted: Sequence[Sequence[str]]) -> Callable[[], Any]:
    """What counts a call once more."""
    ticks = tuple(tally(*each).tick for each in counted)
    return ticks[0] if len(ticks) == 1 else lambda: [tick() for tick in ticks]


def _made_like(result: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None, str, np.dtype, int]:
    """Shape, strides, order, type and bytes of a new result."""
    order = "F" if result.flags.f_contiguous and not result.flags.c_contiguous else "C"
    usual = _made(result.shape, result.dtype, result.data, None, order).strides == result.strides
    return result.shape, None if usual else result.strides, order, result.dtype, result.nbytes


def _near(inputs: Sequence[Any], result: Any) -> tuple[tuple[int, int, int], ...]:
    *spans, (low, high) = (CUDA.memory(x).span for x in (*inputs, result))
    return tuple((i, first - high, end - low) for i, (first, end) in enumerate(spans))


def _as_launch(recorder: Recorder, inputs: Sequence[Any], out: Any, result: Any, roles: Sequence[str]) -> tuple[Any, Any] | None:
    """The launcher of a call that consisted of it alone, and what picks its addresses; one that copies an operand or a result has
    made an array."""
    from ..planning.plan import Plan

    if recorder.steps_taken != 1 or recorder.arrays_made != (out is None) or not isinstance(plan := recorder.steps[0].work, Plan):
        return None
    named, wanted = dict(zip(roles, (*inputs, result), strict=True)), plan.problem.roles
    if any(role not in named or x.data.ptr != named[role].data.ptr
           for role, x in zip(wanted, recorder.steps[0].arrays, strict=True)):
        return None
    pick = None if tuple(wanted) == tuple(roles) else itemgetter(*map(list(roles).index, wanted))
    return launcher_for(plan, result.data.device_id), pick


# -- calls of several steps -------------------------------------------------------------------------------------------------------
_ALIGNMENT = 256                        # bytes, of intermediate results

_Launcher = Callable[[tuple[int, ...], int], Any]
"""A function of the addresses of all places and of a stream. The places are the operands, the result, and intermediate results."""


class _Place(NamedTuple):
    """An array without its address."""

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]

    def at(self, address: int, device: int) -> Any:
        """The array."""
        memory = cupy.cuda.UnownedMemory(address, 1, None, device)
        return cupy.ndarray(self.shape, self.dtype, cupy.cuda.MemoryPointer(memory, 0), self.strides)


@dataclass(frozen=True)
class _Launch:
    """A plan on some places."""

    launch: Callable[..., Any]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.launch(self.pick(addresses), stream)


@dataclass(frozen=True)
class _Shifted:
    """A plan on memory some bytes after the beginnings of places."""

    launch: Callable[..., Any]
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    shifts: tuple[int, ...]

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.launch(tuple(map(add, self.pick(addresses), self.shifts)), stream)


@dataclass(frozen=True)
class _Call:
    """A function of CuPy on some places."""

    function: Callable[..., Any]
    places: tuple[_Place, ...]
    device: int

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        self.function(*(place.at(addresses[place.number], self.device) for place in self.places))


@dataclass(frozen=True)
class Program:
    """The steps of a call; it is launched as a plan is.

    Attributes
    ----------
    steps : tuple of callable
        In order.
    offsets : tuple of int
        The offsets of intermediate results in one allocation.
    nbytes : int
        The size of that allocation.
    """

    steps: tuple[_Launcher, ...]
    offsets: tuple[int, ...]
    nbytes: int

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Put all steps on a stream, CuPy's current one; the allocation goes back to CuPy's pool, which keeps to its order."""
        places = tuple(addresses)
        if self.offsets:
            memory = cupy.cuda.alloc(self.nbytes)
            address = memory.ptr
            places += tuple([address + offset for offset in self.offsets])
        for step in self.steps:
            step(places, stream)


def _as_program(recorder: Recorder, inputs: Sequence[Any], out: Any, result: Any) -> tuple[Program, None] | None:
    """All steps of a call; ``None`` if one works on an array that is not known."""
    arrays = (*inputs, result)
    between = [x for x in recorder.made if x is not result]
    places = {id(x): i for i, x in enumerate((*arrays, *between))}
    if not (recorder.complete and recorder.steps and result.size) or len(places) < len(arrays) + len(between) \
            or (out is not None and not _apart(inputs, out)):
        return None
    steps = tuple(_launcher(recorder, step, places, result.data.device_id) for step in recorder.steps)
    if None in steps:
        return None
    ends = list(accumulate((-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in between), initial=0))
    return Program(steps, tuple(ends[:-1]), ends[-1]), None                         # type: ignore[arg-type]


def _launcher(recorder: Recorder, step: Step, places: Mapping[int, int], device: int) -> _Launcher | None:
    """A step on numbered places; ``None`` if it works on another array."""
    beginnings = [recorder.beginning(x) for x in step.arrays]
    numbers = [places.get(id(x), -1) for x in beginnings]
    shifts = tuple(x.data.ptr - begin.data.ptr for x, begin in zip(step.arrays, beginnings, strict=True))
    from ..planning.plan import Plan

    work = step.work
    if -1 in numbers or (any(shifts) and not isinstance(work, Plan)):
        return None
    if isinstance(work, Plan):
        pick = _picking(numbers)
        if any(shifts):
            return _Shifted(launcher_for(work, device), pick, shifts)
        return _Launch(launcher_for(work, device), pick)
    return _Call(work, tuple(_Place(i, x.shape, x.dtype, x.strides) for i, x in zip(numbers, step.arrays, strict=True)), device)


def _apart(inputs: Sequence[Any], out: Any) -> bool:
    """Whether the range of ``out`` meets no operand's: then it was not for that that something was copied."""
    (start, end), *others = ((x.address + x.span[0], x.address + x.span[1]) for x in map(CUDA.memory, (out, *inputs)))
    return all(high <= start or end <= low for low, high in others)


# -- groups of products -----------------------------------------------------------------------------------------------------------
class _ReadyGroup(NamedTuple):
    """A group that has run. Arrays are numbered: the inputs and the result of the first product, then those of the second ..."""

    launch: Callable[..., Any]
    tick: Callable[[], Any]
    several_devices: bool
    results: tuple[Memory, ...]
    lows: np.ndarray                    # where the bytes of each array begin, relative to its address,
    highs: np.ndarray                   # and where they end
    read: np.ndarray                    # the numbers of those that have elements
    written: np.ndarray
    form: Form
    words: np.ndarray                   # of the table that hold an address,
    numbers: np.ndarray                 # the array that it belongs to,
    shifts: np.ndarray                  # and what is added to it
    types: tuple[np.dtype, ...]         # those that the key has by their identity


def _key(function: str, products: Sequence[Repeat]) -> tuple | None:
    """The key of a group, which has those of its products; ``None`` if an array is not a plain CuPy array."""
    keys: list[Any] = [function]
    for p in products:
        key = key_of_call(p.head, p.inputs, p.out)
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def repeated_group(function: str, products: Sequence[Repeat]) -> list[Any] | None:
    """The results of a group if one like it has run before, else ``None``.

    Where the address ranges of a result and of any other array meet, the long way finds out.
    """
    try:
        key = _key(function, products)
        ready = None if key is None else _ready.get(key)
    except TypeError:                   # an argument without a hash
        return None
    if ready is None or (ready.several_devices and current_device() != products[0].inputs[0].data.device_id):
        return None
    results = [CUDA.empty(like) if p.out is None else p.out for p, like in zip(products, ready.results, strict=True)]
    if any(p.out is None and result.data.ptr & 15 for p, result in zip(products, results, strict=True)):
        return None
    addresses = np.array([x.data.ptr for p, result in zip(products, results, strict=True) for x in (*p.inputs, result)], np.int64)
    if _meet(addresses + ready.lows, addresses + ready.highs, ready.read, ready.written):
        return None
    table = ready.form.blank.copy()
    table[ready.words] = addresses[ready.numbers] + ready.shifts
    for number in ready.form.numbers:
        number.write(table, products[number.problem].scalars[number.name == "beta"])
    ready.launch((uploaded(table).ptr,), current_stream())
    ready.tick()
    return results


def _meet(lows: np.ndarray, highs: np.ndarray, read: np.ndarray, written: np.ndarray) -> bool:
    """Whether a range that is written meets another one."""
    order = written[np.argsort(lows[written])]
    starts, ends = lows[order], highs[order]
    if (starts[1:] < ends[:-1]).any():
        return True
    after = np.searchsorted(ends, lows[read], "right")          # of those that are written the first that ends after the beginning
    within = after < len(starts)
    return bool((starts[after[within]] < highs[read[within]]).any())


def remember_group(function: str, recorder: Recorder, products: Sequence[Repeat], results: Sequence[Any]) -> None:
    """Let :func:`repeated_group` answer calls like one that has run, if it was one group of all products and nothing else."""
    key = _key(function, products)
    if key is None or recorder.steps_taken != 1 or recorder.arrays_made != sum(p.out is None for p in products):
        return
    from ..planning.plan import Plan
    from ..planning.problem import GroupedProblem

    plan: Any = recorder.steps[0].work
    if not (isinstance(plan, Plan) and isinstance(plan.problem, GroupedProblem)):
        return
    form: Form = plan.config.form                                # type: ignore[attr-defined]
    numbers: dict[tuple[int, str], int] = {}
    for i, p in enumerate(products):
        numbers |= {(i, role): len(numbers) + j for j, role in enumerate(p.roles)}
    memories = [CUDA.memory(x) for p, result in zip(products, results, strict=True) for x in (*p.inputs, result)]
    last = {numbers[i, p.roles[-1]] for i, p in enumerate(products)}
    with_elements = [i for i, x in enumerate(memories) if x.size]
    lows, highs = (np.array(ends, np.int64) for ends in zip(*(x.span for x in memories), strict=True))
    read, written = (np.array([i for i in with_elements if (i in last) == wanted], np.intp) for wanted in (False, True))
    _keep(key, _ReadyGroup(launcher_for(plan, results[0].data.device_id), _counting(recorder.counted), several_devices(),
                           tuple(map(CUDA.memory, results)), lows, highs, read, written, form,
                           np.array([address.word for address in form.addresses], np.intp),
                           np.array([numbers[address.problem, address.role] for address in form.addresses], np.intp),
                           np.array([address.shift for address in form.addresses], np.int64), tuple(x.dtype for x in memories)))


forget_in_children(forget)
planned_under_the_limit.append(forget)
register_repeater(cupy.ndarray, repeated)
