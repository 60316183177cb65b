"""Groups of products of CuPy arrays, replayed with a new table of addresses and scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...planning.plan import Plan
from ...planning.problem import GroupedProblem
from ..cuda import CUDA, current_device, current_stream, launcher_for, several_devices, uploaded
from ..dispatch import Replayable
from ..memory import Memory
from .cupy import key_of_call, recorded
from .recording import Recorder, store, ticks_of

if TYPE_CHECKING:
    from ...planning.gemm.grouped import Form

__all__ = ["record_group", "replay_group"]


class _RecordedGroup(NamedTuple):
    """A group that has run, with its arrays numbered: each product's inputs and result in turn."""

    launch: Callable[..., Any]
    tick: Callable[[], Any]
    several_devices: bool
    results: tuple[Memory, ...]
    lows: np.ndarray                 # where the bytes of each array begin, relative to its address,
    highs: np.ndarray                # and where they end
    read: np.ndarray                 # the numbers of those that have elements
    written: np.ndarray
    form: Form
    words: np.ndarray                   # of the table that hold an address,
    numbers: np.ndarray                 # the array that it belongs to,
    shifts: np.ndarray                  # and what is added to it
    types: tuple[np.dtype, ...]         # those that the key has by their identity


def _key(function: str, products: Sequence[Replayable]) -> tuple | None:
    """The key of a group; ``None`` if an array is not a plain CuPy array."""
    keys: list[Any] = [function]
    for p in products:
        key = key_of_call(p.head, p.inputs, p.out)
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def replay_group(function: str, products: Sequence[Replayable]) -> list[Any] | None:
    """The results of a group if one like it was recorded, without overlaps; else ``None``."""
    try:
        key = _key(function, products)
        found = None if key is None else recorded.get(key)
    except TypeError:                   # an argument without a hash
        return None
    if found is None or (found.several_devices
                         and current_device() != products[0].inputs[0].data.device_id):
        return None
    results = [CUDA.empty(like) if p.out is None else p.out
               for p, like in zip(products, found.results, strict=True)]
    if any(p.out is None and result.data.ptr & 15
           for p, result in zip(products, results, strict=True)):
        return None
    addresses = np.array([x.data.ptr for p, result in zip(products, results, strict=True)
                          for x in (*p.inputs, result)], np.int64)
    if _meet(addresses + found.lows, addresses + found.highs, found.read, found.written):
        return None
    table = found.form.blank.copy()
    table[found.words] = addresses[found.numbers] + found.shifts
    for number in found.form.numbers:
        number.write(table, products[number.problem].scalars[number.name == "beta"])
    found.launch((uploaded(table).ptr,), current_stream())
    found.tick()
    return results


def _meet(lows: np.ndarray, highs: np.ndarray, read: np.ndarray, written: np.ndarray) -> bool:
    """Whether a range that is written meets another one."""
    order = written[np.argsort(lows[written])]
    starts, ends = lows[order], highs[order]
    if (starts[1:] < ends[:-1]).any():
        return True
    # of those that are written the first that ends after the beginning
    after = np.searchsorted(ends, lows[read], "right")
    within = after < len(starts)
    return bool((starts[after[within]] < highs[read[within]]).any())


def record_group(function: str, recorder: Recorder, products: Sequence[Replayable],
                 results: Sequence[Any]) -> None:
    """Let :func:`replay_group` answer calls like one that was one group and nothing else."""
    key = _key(function, products)
    if key is None or recorder.steps_taken != 1 or recorder.arrays_made != sum(p.out is None for p in products):
        return
    plan: Any = recorder.steps[0].work
    if not (isinstance(plan, Plan) and isinstance(plan.problem, GroupedProblem)):
        return
    form: Form = plan.config.form                                # type: ignore[attr-defined]
    numbers: dict[tuple[int, str], int] = {}
    for i, p in enumerate(products):
        numbers |= {(i, role): len(numbers) + j for j, role in enumerate(p.roles)}
    memories = [CUDA.memory(x) for p, result in zip(products, results, strict=True)
                for x in (*p.inputs, result)]
    last = {numbers[i, p.roles[-1]] for i, p in enumerate(products)}
    with_elements = [i for i, x in enumerate(memories) if x.size]
    lows, highs = (np.array(ends, np.int64) for ends in zip(*(x.span for x in memories),
                                                            strict=True))
    read, written = (np.array([i for i in with_elements if (i in last) == wanted], np.intp)
                     for wanted in (False, True))
    store(recorded, key, _RecordedGroup(launcher_for(plan, results[0].data.device_id),
                                        ticks_of(recorder.counted), several_devices(),
                                        tuple(map(CUDA.memory, results)), lows, highs, read,
                                        written, form,
                                        np.array([address.word for address in form.addresses],
                                                 np.intp),
                                        np.array([numbers[address.problem, address.role]
                                                  for address in form.addresses], np.intp),
                                        np.array([address.shift for address in form.addresses],
                                                 np.int64), tuple(x.dtype for x in memories)))
