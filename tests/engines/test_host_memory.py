"""Memory of large arrays that is used again."""

import ctypes
import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.engines import host_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not emulator.available(),
                                reason="needs Linux and a C++ compiler")
LARGE = 5 << 20                         # bytes
handler_of = np._core.multiarray.get_handler_name


@pytest.fixture(autouse=True)
def prepared():
    host_memory.prepare()
    host_memory.free_idle()
    yield
    host_memory.free_idle()


@pytest.fixture
def everywhere():
    """NumPy uses the handler for all that this thread makes."""
    before = host_memory._numpy()[0](host_memory._handler)
    yield
    host_memory._numpy()[0](before)


def test_an_array_gets_the_memory_of_one_that_is_gone_and_nearly_as_large():
    first = host_memory.empty_array((LARGE,), np.dtype("u1"))
    address, before = first.ctypes.data, np.asarray(first[:-4096])
    assert handler_of(first) == "cuteblas"
    assert first.flags.owndata
    assert address % (2 << 20) == 0
    other = host_memory.empty_array((LARGE,), np.dtype("u1"))
    assert other.ctypes.data != address
    del first
    assert host_memory.empty_array((LARGE,), np.dtype("u1")).ctypes.data != address      # a view keeps it
    del before
    assert host_memory.empty_array((LARGE // 2,), np.dtype("u1")).ctypes.data != address
    assert host_memory.empty_array((LARGE // 4096, 1024), np.dtype("f4"),
                             (4, LARGE // 1024)).ctypes.data == address


def test_small_arrays_and_all_other_arrays_of_the_program_are_numpys():
    assert handler_of(host_memory.empty_array((1000,), np.dtype("f8"))) == "default_allocator"
    host_memory.empty_array((LARGE,), np.dtype("u1"))
    assert handler_of(np.empty(LARGE, np.uint8)) == handler_of() == "default_allocator"


def test_zeros_are_zero_where_others_have_written(everywhere):
    written = np.full(LARGE, 7, np.uint8)
    address = written.ctypes.data
    del written
    kept = np.empty(LARGE, np.uint8)
    assert kept.ctypes.data == address
    del kept
    assert not np.zeros(LARGE, np.uint8).any()


def test_resizing_keeps_elements_in_every_direction(everywhere):
    for sizes in ((LARGE, 2 * LARGE), (2 * LARGE, LARGE + LARGE // 4), (LARGE, 100), (100, LARGE),
                  (4 * LARGE, LARGE, 3 * LARGE)):
        x = np.empty(sizes[0], np.uint8)
        x[...] = np.arange(sizes[0]) % 251
        for n in sizes[1:]:
            x.resize(n, refcheck=False)
        least = min(sizes)
        assert np.array_equal(x[:least], np.arange(least) % 251)
        assert not x[max(sizes[:-1]):].any()


def test_elements_of_any_size_and_arrays_without_elements(everywhere):
    for x in (np.empty(0, f"V{LARGE}"), np.empty((0, LARGE)), np.empty(1, f"V{LARGE}"),
              np.empty(2, f"U{LARGE}"), np.fromiter(range(LARGE // 4), np.int64),
              np.full(LARGE // 8, None), np.random.default_rng(0).random(LARGE)):
        copied = x.copy()
        del x
        assert copied.nbytes >= 0


def test_random_arrays_keep_their_elements_in_many_threads(everywhere):
    wrong = []

    def work(seed):
        rng, arrays = np.random.default_rng(seed), []
        for step in range(60):
            n = int(rng.integers(LARGE // 8, LARGE))
            arrays.append((host_memory.empty_array((n,), np.dtype("f4")), step))
            arrays[-1][0][...] = 1000 * seed + step
            if len(arrays) > 3:
                x, value = arrays.pop(int(rng.integers(4)))
                if not (x == 1000 * seed + value).all():
                    wrong.append((seed, value))

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_child_goes_on_while_other_threads_make_arrays():
    ends = []

    def work():
        while not ends:
            host_memory.empty_array((LARGE,), np.dtype("u1"))

    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                x = host_memory.empty_array((LARGE,), np.dtype("u1"))
                x[...] = 3
                os._exit(int(not (x == 3).all()))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        ends.append(True)
        thread.join()


def test_idle_memory_is_bounded_and_given_back():
    library = host_memory._library
    arrays = [host_memory.empty_array((LARGE,), np.dtype("u1")) for _ in range(300)]
    del arrays
    assert library.cuteblas_shrink(3 * LARGE) == 256 * LARGE     # a page more each would be counted
    assert host_memory.free_idle() == 3 * LARGE
    assert host_memory.free_idle() == 0


@pytest.mark.parametrize("variable, name", [("", "cuteblas"), ("0", "default_allocator")])
def test_a_program_uses_it_everywhere_unless_it_does_not_want_to(variable, name):
    program = """
import time, numpy as np
from cuteblas.engines import host_memory
before = np.empty(1 << 23)
host_memory.prepare(True)
for _ in range(1000):
    pass
print(np._core.multiarray.get_handler_name(), np._core.multiarray.get_handler_name(np.empty(1 << 23)))
x = np.random.default_rng(0).random((1500, 1500))
y = np.linalg.inv(x) @ x + np.zeros((1500, 1500))
assert np.allclose(y, np.eye(1500), atol=1e-6)
del before
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8",
                           check=True, env=os.environ | {"CUTEBLAS_REUSE_MEMORY": variable})
    assert found.stdout.split() == [name, name]


def test_a_handler_of_the_program_is_left_alone():
    own = ctypes.create_string_buffer(512)
    usual = host_memory._pointer(host_memory._numpy()[1](), b"mem_handler")
    ctypes.memmove(own, usual, 168)
    own[:5] = b"mine\0"
    before = host_memory._numpy()[0](host_memory._capsule(ctypes.addressof(own), b"mem_handler", None))
    try:
        host_memory.prepare(True)
        assert handler_of(host_memory.empty_array((LARGE,), np.dtype("u1"))) == handler_of() == "mine"
    finally:
        host_memory._numpy()[0](before)
