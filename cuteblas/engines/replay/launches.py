"""The steps of a recorded call as data, which files have too, and what launches them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...planning.plan import Plan
from ..cuda import CUDA
from .recording import Recorder, Step

__all__ = ["Launcher", "Placed", "Program", "as_one_step", "as_program", "made_ready"]

_ALIGNMENT = 256                        # bytes, of intermediate results

Launcher = Callable[[tuple[int, ...], int], Any]
"""A function of the addresses of operands, result and intermediate results, and of a stream."""


class Placed(NamedTuple):
    """A step on numbered addresses: a plan, or a method of the engine by name, on ``arrays``, each
    a shape, a type and strides."""

    work: Any
    numbers: tuple[int, ...]
    arrays: tuple[tuple[tuple[int, ...], np.dtype, tuple[int, ...]], ...] = ()


class Program(NamedTuple):
    """The steps of a call; intermediate results share an allocation."""

    steps: tuple[Placed, ...]
    offsets: tuple[int, ...] = ()
    nbytes: int = 0


def as_one_step(recorder: Recorder, inputs: Sequence[Any], out: Any, result: Any,
                roles: Sequence[str]) -> Program | None:
    """A call of one plan on its operands and result; ``None`` with other arrays."""
    if recorder.steps_taken != 1 or recorder.arrays_made != (out is None) or not isinstance(plan := recorder.steps[0].work, Plan):
        return None
    named, wanted = dict(zip(roles, (*inputs, result), strict=True)), plan.problem.roles
    if any(role not in named or x.data.ptr != named[role].data.ptr
           for role, x in zip(wanted, recorder.steps[0].arrays, strict=True)):
        return None
    return Program((Placed(plan, tuple(map(list(roles).index, wanted))),))


def as_program(recorder: Recorder, inputs: Sequence[Any], result: Any) -> Program | None:
    """All steps of a call; ``None`` if one works on an array that is not known."""
    arrays = (*inputs, result)
    between = [x for x in recorder.made if x is not result]
    places = {id(x): i for i, x in enumerate((*arrays, *between))}
    if not (recorder.complete and recorder.steps
            and result.size) or len(places) < len(arrays) + len(between):
        return None
    steps: list[Any] = [_placed(recorder, step, places) for step in recorder.steps]
    *offsets, nbytes = accumulate((-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in between),
                                  initial=0)
    return None if None in steps else Program(tuple(steps), tuple(offsets), nbytes)


def _placed(recorder: Recorder, step: Step, places: Mapping[int, int]) -> Placed | None:
    """A step on numbered places; ``None`` if it works on another array."""
    numbers = tuple(places.get(id(recorder.beginning(x)), -1) for x in step.arrays)
    if -1 in numbers:
        return None
    return Placed(step.work, numbers, tuple((x.shape, x.dtype, x.strides) for x in step.arrays
                                            * isinstance(step.work, str)))


def made_ready(program: Program, count: int, device: int,
               launcher_of: Callable[[Any, int], Launcher | None]) -> tuple[Any, Any] | None:
    """What launches a program, and what picks its addresses from those of ``count`` operands and
    result (``None``: all); ``None`` if a plan has no launcher."""
    steps, offsets, nbytes = program
    launches: list[Any] = [partial(_call, getattr(CUDA, step.work), device, step.arrays)
                           if step.arrays else launcher_of(step.work, device) for step in steps]
    if None in launches:
        return None
    if len(steps) == 1 and not (offsets or steps[0].arrays):
        numbers = steps[0].numbers
        return launches[0], None if numbers == tuple(range(count)) else _picking(numbers)
    ready = [(launch, _picking(step.numbers)) for launch, step in zip(launches, steps, strict=True)]

    def launch_all(addresses: Sequence[int], stream: int) -> None:
        """Put all steps on CuPy's current stream, whose pool gets the allocation back in order."""
        places = tuple(addresses)
        if offsets:
            memory = cupy.cuda.alloc(nbytes)
            address = memory.ptr
            places += tuple([address + offset for offset in offsets])
        for launch, pick in ready:
            launch(pick(places), stream)

    return launch_all, None


def _call(function: Callable[..., Any], device: int, arrays: Sequence[Any],
          addresses: tuple[int, ...], _stream: int) -> None:
    """Call a function that works on CuPy's current stream."""
    def array_at(address: int, array: Any) -> Any:
        memory = cupy.cuda.UnownedMemory(address, 1, None, device)
        shape, dtype, strides = array
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)

    function(*map(array_at, addresses, arrays))


def _picking(numbers: Sequence[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    first, *others = numbers
    return itemgetter(*numbers) if others else itemgetter(slice(first, first + 1))
