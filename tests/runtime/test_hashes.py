"""Hashes of memory that moves: every byte counts, nobody knows the key, and they are those of the
very bytes that moved."""

import ctypes
import mmap
import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from cuteblas.emulator.compiler import available
from cuteblas.runtime import mover
from cuteblas.runtime.mover import HASHED_BYTES, Mover
from cuteblas.runtime.tracking import Hashes

from .late_link import LateLink
from .test_ring import compiled

pytestmark = pytest.mark.skipif(not available(), reason="there is no compiler")
LENGTHS = [1, 7, 8, 31, 32, 33, 4095, 4096, 4097, 100_003, HASHED_BYTES - 1, HASHED_BYTES,
           HASHED_BYTES + 1, 5 * HASHED_BYTES + 4099]


@pytest.fixture(scope="module", params=[0, 3])
def ring(request):
    made = Mover(LateLink(), compiled(), request.param, 1 << 19, 3)
    yield made
    made.close()


def some(nbytes, seed=0, offset=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes + offset, np.uint8)[offset:]


def hashes(ring, x):
    return ring.hashes(x.ctypes.data, x.ctypes.data + x.nbytes)


def by_definition(part):
    """Sums of products of the halves of words, to each of which a word of the key is added."""
    words = np.frombuffer(part.tobytes() + bytes(-len(part) % 32), np.uint64)
    found = []
    for shift in range(4):
        keyed = words + mover._key()[shift:][:len(words)]
        products = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
        found.append((int(products.sum(dtype=np.uint64)) + len(part)) % 2**64)
    return found


@pytest.mark.parametrize("offset", [0, 3, 8])
@pytest.mark.parametrize("nbytes", LENGTHS)
def test_hashes_by_definition(ring, nbytes, offset):
    x = some(nbytes, nbytes, offset)
    assert hashes(ring, x).tolist() == [by_definition(x[first:first + HASHED_BYTES])
                                        for first in range(0, nbytes, HASHED_BYTES)]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("nbytes", LENGTHS)
def test_what_moves_is_hashed_on_its_way(ring, nbytes, streams):
    x, device = some(nbytes, nbytes, 5), np.zeros(nbytes, np.uint8)
    found = np.zeros((-(-nbytes // HASHED_BYTES), 4), np.uint64)
    ring.upload(x, device.ctypes.data, streams, found).wait()
    ring.link.synchronize()
    assert (device == x).all()
    assert (found == hashes(ring, x)).all()


@pytest.mark.parametrize("nbytes", [45, HASHED_BYTES - 3])
@pytest.mark.parametrize("value", [0, 255, None])
def test_every_byte_and_every_bit_counts(ring, nbytes, value):
    x = some(nbytes) if value is None else np.full(nbytes, value, np.uint8)
    (before,), rng = hashes(ring, x), random.Random(1)
    places = {*range(min(nbytes, 70)), *range(nbytes - 40, nbytes),
              *(rng.randrange(nbytes) for _ in range(1000))}
    for place in places:
        for bit in range(8) if place < 8 else (rng.randrange(8),):
            x[place] ^= 1 << bit
            (now,) = hashes(ring, x)
            x[place] ^= 1 << bit
            # each word is another; one of them might be the same once in 2**31 times
            assert (now != before).sum() >= 3, (place, bit)
    assert (hashes(ring, x) == before).all()


def test_changes_that_make_up_for_each_other(ring):
    x = some(HASHED_BYTES)
    (before,), words = hashes(ring, x), x.view(np.uint64)
    changed = [words[::-1], np.roll(words, 1), np.roll(words, 4), ~words, words ^ (1 << 63),
               np.concatenate([words[4:8], words[:4], words[8:]]),
               np.concatenate([words[1::-1], words[2:]]), words.byteswap(),
               words.view(np.uint32).reshape(-1, 2)[:, ::-1]]
    for y in changed:
        assert (hashes(ring, np.ascontiguousarray(y)) != before).all()


def test_lengths_count(ring):
    """As zeros follow the last byte."""
    zeros = np.zeros(HASHED_BYTES, np.uint8)
    found = {tuple(hashes(ring, zeros[:nbytes])[0]) for nbytes in range(1, 200)}
    assert len(found) == 199


def test_each_process_has_a_key_of_its_own(ring):
    program = """
import numpy as np
from cuteblas.runtime.mover import Mover
from tests.runtime.late_link import LateLink
from tests.runtime.test_ring import compiled

x = np.zeros(1000, np.uint8)
print(*Mover(LateLink(), compiled(), 0).hashes(x.ctypes.data, x.ctypes.data + 1000)[0])
"""
    found = [subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True,
                            text=True, timeout=60, check=True).stdout.split() for _ in range(2)]
    found.append([str(word) for word in hashes(ring, np.zeros(1000, np.uint8))[0]])
    assert [len(words) for words in found] == [4, 4, 4]
    assert len({word for words in found for word in words}) == 12
    key = mover._key()
    assert len({*key.tolist()}) == len(key) >= HASHED_BYTES // 8 + 3


@pytest.mark.parametrize("streams", [False, True])
def test_hashes_are_of_the_very_bytes_that_moved(ring, streams):
    """Other threads write meanwhile."""
    x = some(16 * HASHED_BYTES)
    device, stop = np.zeros_like(x), threading.Event()

    def write():
        words, step = x.view(np.uint64), 0
        while not stop.is_set():
            step += 1
            words[step % 512::512] += 1

    thread = threading.Thread(target=write)
    thread.start()
    changed = wrong = uploads = 0
    while uploads < 30 or (changed <= 5 and uploads < 2000):    # where the writer seldom gets its turn
        uploads += 1
        found = np.zeros((16, 4), np.uint64)
        before = x.copy()
        ring.upload(x, device.ctypes.data, streams, found).wait()
        ring.link.synchronize()
        changed += (device != before).any()
        wrong += (found != hashes(ring, device)).any()
    stop.set()
    thread.join()
    assert changed > 5
    assert not wrong


# -- parts that were written -----------------------------------------------------------------------
def region(ring, x):
    return Hashes(x.ctypes.data, x.ctypes.data + x.nbytes, ring.hashes, HASHED_BYTES)


def move(ring, seen, x, copy):
    """Move what differs, as a keeper does; the parts."""
    parts = seen.written(again=True)
    for start, end in parts:
        first, last = start - x.ctypes.data, end - x.ctypes.data
        ring.upload(x[first:last], copy.ctypes.data + first, hashes=seen.moving(start, end)).wait()
    ring.link.synchronize()
    assert (copy == x).all()
    return [((start - x.ctypes.data) // HASHED_BYTES, -(-(end - x.ctypes.data) // HASHED_BYTES))
            for start, end in parts]


def test_parts_are_merged_and_belong_to_the_region(ring):
    x = some(9 * HASHED_BYTES + 77, 0, 13)
    seen, copy, low = region(ring, x), np.zeros_like(x), x.ctypes.data
    assert seen.written() == [(low, low + x.nbytes)]
    assert move(ring, seen, x, copy) == [(0, 10)]
    assert seen.written() == move(ring, seen, x, copy) == []
    for place in (0, 3 * HASHED_BYTES - 1, 3 * HASHED_BYTES, x.nbytes - 1):
        x[place] ^= 1
    assert seen.written(low + HASHED_BYTES, low + 2 * HASHED_BYTES) == []
    assert seen.written(low + 3 * HASHED_BYTES - 9, low + 3 * HASHED_BYTES - 8) == [
        (low + 2 * HASHED_BYTES, low + 3 * HASHED_BYTES)]
    assert move(ring, seen, x, copy) == [(0, 1), (2, 4), (9, 10)]
    seen.written(low, low + 1, again=True)
    assert seen.written() == []
    x[5] ^= 1
    x[HASHED_BYTES] ^= 1
    assert seen.written(low, low + 6, again=True)
    x[5] ^= 1                       # as it was when it moved first; nobody knows what has moved now
    assert seen.written() == [(low, low + 2 * HASHED_BYTES)]
    seen.protect()
    assert seen.written() == []
    seen.end()


def test_memory_that_is_not_mapped_is_not_read(ring):
    memory = mmap.mmap(-1, 4 * HASHED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    x = np.frombuffer(memory, np.uint8)
    seen = region(ring, x)
    seen.protect()
    libc = ctypes.CDLL(None)
    libc.munmap(ctypes.c_void_p(x.ctypes.data + HASHED_BYTES), ctypes.c_size_t(HASHED_BYTES))
    assert seen.written() is None
    assert seen.written(x.ctypes.data, x.ctypes.data + 9) == []
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    libc.mmap(x.ctypes.data + HASHED_BYTES, HASHED_BYTES, 3, 0x32, -1, 0)
    assert seen.written() == []                         # zeros again
