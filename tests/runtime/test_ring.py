"""The ring of pinned slots, over a link whose copies happen as late as may be."""

from math import prod

import numpy as np
import pytest

from cuteblas.planning.streaming import boxes
from cuteblas.runtime.ring import Piece, Ring

from .late_link import LateLink


@pytest.fixture
def ring():
    made = Ring(LateLink(), threads=3, slot_bytes=1 << 12)
    yield made
    made.close()


def pieces(x, memory, most=1 << 12):
    return [Piece(x[box], memory.ctypes.data + offset) for box, offset in boxes(x.shape, x.itemsize, most)]


@pytest.mark.parametrize(("shape", "most"), [((), 8), ((5,), 8), ((3, 4, 5), 40), ((3, 4, 5), 39), ((7, 3), 1),
                                             ((2, 1, 9), 10 ** 6), ((4, 4), 32), ((2, 3, 1, 4), 16)])
def test_boxes_are_all_elements_once_in_c_order(shape, most):
    x = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    copied, found = np.full(x.size, -1), 0
    for box, offset in boxes(shape, 8, most):
        part = x[box]
        assert part.nbytes <= max(most, 8)
        assert offset == found
        copied[offset // 8:offset // 8 + part.size] = part.ravel()
        found += part.nbytes
    assert (copied.reshape(shape) == x).all()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::3, 1::2], lambda x: x[::-1]])
def test_what_goes_up_comes_down(ring, view):
    """Far more pieces than slots: a slot is filled again only when its copy has happened."""
    x = view(np.random.default_rng(0).standard_normal((300, 500)))
    device, back = np.zeros(x.nbytes, np.uint8), np.zeros(x.shape)
    ring.upload(pieces(x, device)).wait()
    ring.link.kernels_follow_uploads()
    assert (device.view(x.dtype).reshape(x.shape) == x).all()
    ring.download(pieces(back, device)).wait()
    assert (back == x).all()


def test_short_transfers_wake_nobody(ring, monkeypatch):
    monkeypatch.setattr(ring._uploads, "_jobs", None)
    x, device = np.arange(1000.0), np.zeros(8000, np.uint8)
    ring.upload(pieces(x, device)).wait()
    ring.link.synchronize()
    assert (device.view(float) == x).all()


def test_an_error_of_a_thread_is_raised_by_who_waits(ring):
    x, device = np.zeros(1 << 18), np.zeros(1 << 21, np.uint8)
    ring.link.fail_at = 3
    with pytest.raises(RuntimeError, match="the link is down"):
        ring.upload(pieces(x, device)).wait()
    ring.link.fail_at = None
    ring.upload(pieces(x + 1, device)).wait()               # and the ring goes on
    ring.link.synchronize()
    assert (device.view(float) == 1).all()


def test_what_is_cancelled_is_left_out_but_not_abandoned(ring):
    x, device = np.ones(1 << 18), np.zeros(1 << 21, np.uint8)
    transfer = ring.upload(pieces(x, device))
    transfer.cancel()
    ring.link.synchronize()
    before = device.copy()
    x[:] = 2                                                # nobody reads it any more
    assert (device == before).all()
