"""The ring of pinned slots, over a link whose copies happen as late as may be."""

import os
import signal
import subprocess
import sys
from math import prod
from threading import Event, Timer
from time import monotonic

import numpy as np
import pytest

from cuteblas.emulator.compiler import available, build
from cuteblas.planning.streaming import boxes
from cuteblas.runtime import mover
from cuteblas.runtime.mover import SOURCE, Mover
from cuteblas.runtime.ring import Ring

from . import late_link
from .late_link import LateLink


def compiled():
    if not available():
        pytest.skip("there is no compiler")
    return build(SOURCE.read_text(), "threads that move NumPy arrays", headers=(),
                 flags=("-O3", "-pthread"))


@pytest.fixture(params=["Python's", "compiled"])
def ring(request):
    made = Ring(LateLink(), 3, 1 << 12) if request.param == "Python's" else Mover(LateLink(), compiled(), 3, 1 << 12, 4)
    yield made
    made.close()


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(mover, "_LEAST_PIECE", 1 << 10)
    monkeypatch.setattr(mover, "_LEAST_CHUNK", 1 << 11)
    monkeypatch.setattr(mover, "_MOST_PIECE", 1 << 13)


@pytest.mark.parametrize(("shape", "most"), [((), 8), ((5,), 8), ((3, 4, 5), 40), ((3, 4, 5), 39),
                                             ((7, 3), 1), ((2, 1, 9), 10 ** 6), ((4, 4), 32),
                                             ((2, 3, 1, 4), 16)])
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


VIEWS = {"as it is": lambda x: x, "transposed": lambda x: x.T, "gaps": lambda x: x[::3, 1::2],
         "reversed": lambda x: x[::-1, ::-1], "rows with gaps": lambda x: x[:, :-3],
         "three axes": lambda x: x.reshape(50, 6, 500)[::2, :, 3:].transpose(1, 0, 2),
         "broadcast": lambda x: np.broadcast_to(x[:, None, :9], (300, 5, 9)),
         "long rows": lambda x: np.tile(x[:2], 9)[:, 1:], "one": lambda x: x[7:8, 4:5],
         "none": lambda x: x[:0], "scalar": lambda x: x[0, 0, ...],
         "bytes": lambda x: x.view(np.uint8)[:, 3::5],
         "odd": lambda x: x.view("V3,V5")["f0"][:, ::2], "records": lambda x: x.view("V3,V5")["f1"],
         "wide": lambda x: x.view("V200")[:, ::2],}
TYPES = [np.int8, np.float16, np.float32, float, complex, ">f4", ">c16", ">i2", "U3", ">U3"]


def check(ring, x):
    device, back = np.zeros(max(x.nbytes, 1), np.uint8), np.zeros((*x.shape, 2), x.dtype)[..., 0]
    ring.upload(x, device.ctypes.data).wait(helps=True)
    ring.link.kernels_follow_uploads()
    there = device[:x.nbytes].view(x.dtype.newbyteorder("=")).reshape(x.shape)
    assert (there == x).all()
    ring.download(back, device.ctypes.data).wait(helps=True)
    assert (back == x).all()


@pytest.mark.parametrize("view", VIEWS)
def test_what_goes_up_comes_down(ring, short_pieces, view):
    """Far more pieces than slots: a slot is filled again only when its copy has happened."""
    check(ring, VIEWS[view](np.random.default_rng(0).standard_normal((300, 500))))


@pytest.mark.parametrize("dtype", TYPES)
def test_types_and_byte_orders(ring, short_pieces, dtype):
    check(ring, np.arange(30_000).astype(dtype).reshape(100, 300)[:, 5::2])


@pytest.mark.parametrize("streams", [False, True])
def test_long_runs_at_any_address(short_pieces, streams):
    """Stores past the cache are aligned, and what comes before and after them is not forgotten."""
    ring = Mover(LateLink(), compiled(), 2, 1 << 15, 3)
    x = np.random.default_rng(0).integers(0, 256, (3, 100_003), np.uint8)
    for first, last in ((0, 100_003), (1, 100_002), (7, 90_001), (15, 77_777)):
        device, back = np.zeros(x.size + 16, np.uint8), np.full(x.shape, 7, np.uint8)
        part, into = x[:, first:last], back[:, first:last]
        ring.upload(part, device.ctypes.data, streams).wait()
        ring.link.synchronize()
        assert (device[:part.size] == part.ravel()).all()
        ring.download(into, device.ctypes.data).wait()
        assert (into == part).all() and (back[:, :first] == 7).all() and (back[:, last:] == 7).all()
    ring.close()


def test_both_ways_at_once(ring, short_pieces):
    x = np.random.default_rng(0).integers(0, 256, (4, 300_000), np.uint8)
    device, back = x.copy(), np.zeros_like(x)
    new = 255 - x
    for _ in range(5):
        transfers = [ring.upload(new[0], device[0].ctypes.data),
                     ring.download(back[1], device[1].ctypes.data),
                     ring.upload(new[2], device[2].ctypes.data),
                     ring.download(back[3], device[3].ctypes.data)]
        for transfer in transfers:
            transfer.wait()
    ring.link.synchronize()
    assert (device[::2] == new[::2]).all() and (back[1::2] == x[1::2]).all()


def test_short_transfers_wake_nobody(monkeypatch):
    ring = Ring(LateLink(), 3, 1 << 12)
    monkeypatch.setattr(ring._uploads, "submit", None)
    x, device = np.arange(1000.0), np.zeros(8000, np.uint8)
    ring.upload(x, device.ctypes.data).wait()
    ring.link.synchronize()
    assert (device.view(float) == x).all()
    monkeypatch.undo()
    ring.close()


def test_an_error_of_a_thread_is_raised_by_who_waits(ring, short_pieces):
    x, device = np.zeros(1 << 18), np.zeros(1 << 21, np.uint8)
    ring.link.fail_at = 3
    with pytest.raises(
        RuntimeError, match=r"the link is down|refused a copy between host and device: CUresult 999"
    ):
        ring.upload(x, device.ctypes.data).wait()
    ring.link.fail_at = None
    ring.upload(x + 1, device.ctypes.data).wait()           # and the ring goes on
    ring.link.synchronize()
    assert (device.view(float) == 1).all()


def test_what_is_cancelled_is_left_out_but_not_abandoned(ring, short_pieces):
    x, device = np.ones(1 << 18), np.zeros(1 << 21, np.uint8)
    transfer = ring.upload(x, device.ctypes.data)
    transfer.cancel()
    ring.link.synchronize()
    before = device.copy()
    x[:] = 2                                                # nobody reads it any more
    assert (device == before).all() and ring.link.moved["up"] < x.nbytes
    transfer.cancel()


def test_a_transfer_that_is_dropped_ends_first():
    ring = Mover(LateLink(), compiled(), 2, 1 << 12, 3)
    x, device = np.ones(1 << 18), np.zeros(1 << 21, np.uint8)
    ring.upload(x, device.ctypes.data)
    x[:] = 2
    ring.link.synchronize()
    assert set(device.view(float).tolist()) <= {0.0, 1.0}
    ring.close()


def test_who_waits_hears_of_signals(ring, short_pieces, monkeypatch):
    """A link that never answers: Ctrl-C ends the waiting, and leaving the call waits for what is
    under way."""
    x, device = np.ones(1 << 18), np.zeros(1 << 21, np.uint8)
    goes_on, synchronize = Event(), late_link.Event.synchronize
    monkeypatch.setattr(late_link.Event, "synchronize",
                        lambda self: goes_on.wait(20) and synchronize(self))
    # which a shell's jobs in the background ignore
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        transfer = ring.upload(x, device.ctypes.data)
        Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        begin = monotonic()
        with pytest.raises(KeyboardInterrupt):
            transfer.wait()
        assert monotonic() - begin < 5
    finally:
        signal.signal(signal.SIGINT, before)
    Timer(0.2, goes_on.set).start()
    transfer.cancel()
    assert goes_on.is_set()


@pytest.mark.parametrize("forks", [False, True])
def test_threads_that_wait_keep_no_process_alive(forks):
    compiled()
    program = f"""
import os
import numpy as np
from cuteblas.runtime.mover import Mover
from tests.runtime.late_link import LateLink
from tests.runtime.test_ring import compiled

ring = Mover(LateLink(), compiled(), 3)
x = np.ones(1 << 20)
ring.upload(x, np.zeros_like(x).ctypes.data).wait()
if {forks} and (child := os.fork()):
    assert os.waitpid(child, 0)[1] == 0
print("ended", flush=True)
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True,
                           text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["ended"] * (1 + forks), ended.stderr
