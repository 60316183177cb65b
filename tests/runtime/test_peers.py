"""What devices copy between them outlives the copy."""

from __future__ import annotations

import gc
import weakref
from threading import Event, Thread

import numpy as np
import pytest

from cuteblas.runtime.peers import Holding


class Happens(Event):
    """An event that tests let happen."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error

    def synchronize(self):
        self.wait()
        if self.error:
            raise self.error


def held(holding, *events):
    """A weak reference to an array that is held until events happen."""
    x = np.zeros(3)
    holding.touch(x, x[:2])
    holding.hold(events)
    return weakref.ref(x)


@pytest.mark.parametrize("error", [None, RuntimeError("a device has failed")])
def test_arrays_are_held_until_all_events_have_happened(error):
    holding, events = Holding(), [Happens(error), Happens()]
    x = held(holding, *events)
    if not error:
        events[0].set()
    gc.collect()
    assert x() is not None
    for event in events:
        event.set()
    assert holding.let_go() <= 1
    assert x() is None
    later = held(holding, event)
    assert holding.let_go() <= 1 and later() is None


def test_what_other_threads_note_is_theirs():
    holding, event = Holding(), Happens()
    mine, released = np.zeros(3), Event()
    holding.touch(mine)
    other = Thread(target=lambda: (held(holding, event), event.set(), holding.let_go(),
                                   released.set()))
    other.start()
    assert released.wait(10)
    mine = weakref.ref(mine)
    assert mine() is not None
    holding.hold(())                    # nothing is under way
    assert mine() is None


def test_calls_ahead_are_waited_for():
    holding, event = Holding(), Happens()
    begun = Event()
    arrays = []

    def calls():
        for _ in range(4):
            arrays.append(held(holding, event))
        begun.set()

    Thread(target=calls).start()
    assert not begun.wait(0.2)
    assert 2 <= len(arrays) <= 3
    event.set()
    assert begun.wait(10)
    holding.let_go()
    assert not any(x() is not None for x in arrays)


def test_an_interrupted_wait_lets_go_of_nothing(monkeypatch):
    def interrupted(item):
        raise KeyboardInterrupt

    holding, event, x = Holding(), Happens(), np.zeros(3)
    holding.touch(x)
    x = weakref.ref(x)
    with monkeypatch.context() as patch:
        patch.setattr(holding._held, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            holding.hold([event])
    gc.collect()
    assert x() is not None
    event.set()
    held(holding, event)
    holding.let_go()
    assert x() is None
