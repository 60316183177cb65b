"""Arrays that go from one process to another by a copy between their GPUs: who asks whom for what,
and how long arrays are held."""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import threading
from contextlib import suppress
from time import monotonic, sleep

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")
pytest.importorskip("distributed", reason="distributed, of the extra dask, is not installed")

import dask

import cuteblas
import cuteblas.dask
from cuteblas.dask import offers, serialization

pytestmark = pytest.mark.skipif(sys.platform != "linux",
                                reason="processes open each other's memory on Linux")


class HostMemory:
    """NumPy arrays of this process in place of memory on GPUs; handles are places in a list."""

    def __init__(self, refuses=False):
        self.exported, self.refuses, self.asked = [], refuses, []

    def handle_of(self, x):
        self.asked.append("handle")
        self.exported.append(x.tobytes())
        return b"%064d" % (len(self.exported) - 1), 24

    def on_host(self, x):
        self.asked.append("bytes")
        return x.reshape(-1).view(np.uint8)

    def empty(self, shape, dtype):
        return np.full(shape, 99, dtype)

    def copy(self, x, handle, offset):
        if self.refuses:
            raise RuntimeError("invalid device ordinal")
        assert offset == 24
        x[...] = np.frombuffer(self.exported[int(handle)], x.dtype).reshape(x.shape)

    def put(self, x, elements):
        x[...] = np.frombuffer(elements, x.dtype).reshape(x.shape)


@pytest.fixture(autouse=True)
def nothing_refused(monkeypatch):
    monkeypatch.setattr(offers, "_refused", [])


def until_empty(held):
    end = monotonic() + 10
    while len(held) and monotonic() < end:
        sleep(0.001)
    return not len(held)


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (700, 1000)])
def test_by_handle(shape):
    memory = HostMemory()
    held = offers.Offers(memory)
    x = np.random.default_rng(0).random(shape).astype("float32")
    token = held.add(x)
    assert len(held) == 1
    cuteblas.reset_stats()
    got = offers.fetch(memory, held.address, token, shape, x.dtype)
    np.testing.assert_array_equal(got, x)
    assert until_empty(held)
    assert memory.asked == (["handle"] if x.size else [])
    assert not x.size or cuteblas.stats()["dask.chunks"]["moved"] == {"between GPUs": 1}


def test_by_the_socket_where_gpus_do_not_reach_each_other():
    memory = HostMemory(refuses=True)
    held = offers.Offers(memory)
    cuteblas.reset_stats()
    for i in range(2):
        x = np.random.default_rng(i).random((700, 1000))
        np.testing.assert_array_equal(offers.fetch(memory, held.address, held.add(x), x.shape,
                                                   x.dtype), x)
        assert until_empty(held)
    assert memory.asked == ["handle", "bytes", "bytes"]                   # it asks once
    assert cuteblas.stats()["dask.chunks"]["moved"] == {"by the host: invalid device ordinal": 2}


def test_by_the_socket_where_memory_has_no_handle():
    class Pooled(HostMemory):
        def handle_of(self, x):
            if x[0] == 0:
                raise RuntimeError("invalid argument")
            return super().handle_of(x)

    held = offers.Offers(memory := Pooled())
    cuteblas.reset_stats()
    for first in (0, 1, 0):                     # others have one
        x = np.arange(first, first + 5)
        np.testing.assert_array_equal(offers.fetch(memory, held.address, held.add(x), x.shape,
                                                   x.dtype), x)
        assert until_empty(held)
    assert cuteblas.stats()["dask.chunks"]["moved"] == {"by the host: invalid argument": 2,
                                                        "between GPUs": 1}


def test_what_nobody_holds_is_an_error_of_the_connection(monkeypatch):
    memory = HostMemory()
    held = offers.Offers(memory)
    token = held.add(np.ones(3))
    for address, asked in ((held.address, bytes(16)), ("cuteblas-0-0", token)):
        with pytest.raises(OSError):
            offers.fetch(memory, address, asked, (3,), np.dtype("f8"))
    assert len(held) == 1
    monkeypatch.setattr(offers, "_SECONDS", -1.0)
    held.add(np.ones(3))                                   # the first one was not asked for in time
    assert len(held) == 1
    with pytest.raises(OSError):
        offers.fetch(memory, held.address, token, (3,), np.dtype("f8"))


def fetched(held, memory):
    x = np.random.default_rng(0).random(5)
    np.testing.assert_array_equal(offers.fetch(memory, held.address, held.add(x), x.shape, x.dtype),
                                  x)
    return until_empty(held)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM,
                                   errno.ECONNABORTED, errno.EINTR])
def test_the_listener_outlives_what_accept_may_say(monkeypatch, error):
    accept, left = socket.socket.accept, [error] * 3

    def failing(self):
        if left:
            raise OSError(left.pop(), os.strerror(error))
        return accept(self)

    memory = HostMemory()
    held = offers.Offers(memory)
    monkeypatch.setattr(socket.socket, "accept", failing)
    assert fetched(held, memory) and not left and fetched(held, memory)


def test_the_listener_outlives_a_want_of_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory, files = HostMemory(), []
    held = offers.Offers(memory)
    client = socket.socket(socket.AF_UNIX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with suppress(OSError):
            while True:
                files.append(open(os.devnull, encoding="ascii"))        # noqa: SIM115
        client.connect(f"\0{held.address}")
        sleep(0.2)
    finally:
        for file in files:
            file.close()
        client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fetched(held, memory)


def test_the_listener_outlives_a_want_of_threads(monkeypatch):
    start, left = threading.Thread.start, [1]

    def failing(self):
        if left:
            left.pop()
            raise RuntimeError("can't start new thread")
        start(self)

    memory = HostMemory()
    held = offers.Offers(memory)
    monkeypatch.setattr(threading.Thread, "start", failing)
    with pytest.raises(OSError):
        fetched(held, memory)
    monkeypatch.setattr(threading.Thread, "start", start)
    x = np.ones(3)
    token = held.add(x)
    np.testing.assert_array_equal(offers.fetch(memory, held.address, token, x.shape, x.dtype), x)
    assert not left and len(held) <= 2                    # the first one is held for who asks again


@pytest.mark.parametrize("said", [b"", b"x", bytes(15), bytes(16), bytes(100)])
def test_connections_that_tell_no_token_have_no_threads(said):
    memory = HostMemory()
    held = offers.Offers(memory)
    before, clients = threading.active_count(), []
    for _ in range(300):
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"\0{held.address}")
        clients.append(client)
        with suppress(OSError):
            client.sendall(said)
    assert threading.active_count() <= before and fetched(held, memory)
    closed = 0
    for client in clients:
        client.settimeout(0 if not said else 10)
        with suppress(BlockingIOError):
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
            closed += 1
        client.close()
    assert closed == 300 if said else 0 < closed < 100


def test_an_array_stays_if_the_copy_fails():
    class Broken(HostMemory):
        def copy(self, x, handle, offset):
            raise OSError

    memory = Broken()
    held = offers.Offers(memory)
    x = np.ones(3)
    token = held.add(x)
    with pytest.raises(OSError):
        offers.fetch(memory, held.address, token, (3,), x.dtype)
    np.testing.assert_array_equal(offers.fetch(HostMemory(refuses=True), held.address, token, (3,),
                                               x.dtype), x)
    assert until_empty(held)


def test_what_cuda_is_asked_for(monkeypatch):
    """The handle of the whole allocation, and where in it the array begins; each allocation is
    mapped once, and 32 at most."""
    from contextlib import nullcontext
    from types import SimpleNamespace

    calls = []
    runtime = SimpleNamespace(deviceSynchronize=lambda: calls.append("wait"),
                              ipcGetMemHandle=lambda base: b"%064d" % base,
                              ipcOpenMemHandle=lambda handle, flags: calls.append(("open", flags))
                              or int(handle),
                              ipcCloseMemHandle=lambda address: calls.append("close"),
                              memcpyAsync=lambda *arguments: calls.append(arguments))
    stream = SimpleNamespace(ptr=7, synchronize=lambda: calls.append("wait"))
    driver = SimpleNamespace(cuMemGetAddressRange=lambda address: (0, address // 4096 * 4096,
                                                                   1 << 20))
    monkeypatch.setattr("cuteblas.runtime.errors.require", lambda name: driver)
    memory = offers.Memory.__new__(offers.Memory)
    memory._cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime,
                                                        get_current_stream=lambda: stream))
    memory._mapped = {}
    x = SimpleNamespace(device=nullcontext(), data=SimpleNamespace(ptr=3 * 4096 + 512), nbytes=600)
    handle, offset = memory.handle_of(x)
    assert (int(handle), offset, calls) == (3 * 4096, 512, ["wait"])
    calls.clear()
    target = SimpleNamespace(data=SimpleNamespace(ptr=10**6), nbytes=600)
    for _ in range(2):
        memory.copy(target, handle, offset)
    assert calls == [("open", 1), *[(10**6, 3 * 4096 + 512, 600, 4, 7), "wait"] * 2]
    for i in range(40):
        memory.copy(target, b"%064d" % (i + 4), 0)
        assert len(memory._mapped) <= 32
    assert calls.count("close") == 32


@pytest.mark.parametrize(("on", "sender", "recipient", "expected"),
                         [(True, "tcp://127.0.0.1:41", "tcp://127.0.0.1:42", True),
                          (True, "tcp://127.0.0.1:41", "tcp://10.0.0.2:42", False),
                          (None, "tcp://127.0.0.1:41", "tcp://127.0.0.1:42", False),
                          (True, "tcp://127.0.0.1:41", "", False)])
def test_workers_of_one_host_alone(on, sender, recipient, expected):
    context = {"sender": {"address": sender}, "recipient": {"address": recipient}}
    with dask.config.set({"cuteblas.peer-copies": on}):
        assert bool(serialization._between_workers(context)) is expected
        assert not serialization._between_workers(None) and not serialization._between_workers({})


@pytest.mark.parametrize("wrapped", [False, True])
def test_cupy_arrays_in_a_message(monkeypatch, wrapped):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    from distributed.protocol import deserialize, serialize
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    from tests.functions import host_cupy

    class CupyMemory(HostMemory):
        def handle_of(self, x):
            return super().handle_of(host_cupy.on_host(x))

        def empty(self, shape, dtype):
            return host_cupy.on_gpu(np.empty(shape, dtype))

        def copy(self, x, handle, offset):
            super().copy(host_cupy.on_host(x), handle, offset)

    memory = CupyMemory()
    held = offers.Offers(memory)
    monkeypatch.setattr(serialization, "offers", lambda: held)
    monkeypatch.setattr(serialization, "_memory", lambda: memory)
    monkeypatch.setattr(serialization, "_LEAST_BYTES", 1)
    for table, own in ((dask_serialize, serialization._from_a_gpu),
                       (dask_deserialize, serialization._to_a_gpu)):
        monkeypatch.setitem(table._lookup, cupy.ndarray, own)
    context = {end: {"address": "tcp://127.0.0.1:9"} for end in ("sender", "recipient")}
    a = np.random.default_rng(0).random((6, 7))
    with host_cupy.installed(), dask.config.set({"cuteblas.peer-copies": True}):
        for x in (a, a.T, a[::2, 1:]):
            there = cuteblas.ndarray(host_cupy.on_gpu(x)) if wrapped else host_cupy.on_gpu(x)
            header, frames = serialize(there, serializers=("dask",), context=context)
            assert sum(map(len, frames)) == offers.MESSAGE_BYTES and len(held) == 1
            back = deserialize(header, frames)
            assert type(back) is type(there)
            np.testing.assert_array_equal(host_cupy.on_host(back._data if wrapped else back), x)
            assert until_empty(held)
