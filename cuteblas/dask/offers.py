"""CuPy arrays from one process to another by a copy between their GPUs.

Dask's message has a socket's address and a token. The receiver asks for CUDA's handle, copies, and
confirms; without access between GPUs, the elements follow through the socket.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from functools import cache
from math import prod
from secrets import token_bytes
from selectors import EVENT_READ, BaseSelector, DefaultSelector
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

import numpy as np

from .._forks import forget_in_children, surviving
from ..engines.counters import tally

MESSAGE_BYTES = 1 << 16
"""Length of an offer: workers read such messages in a separate thread, which may wait."""
_TOKEN_BYTES = 16
_SECONDS = 300.0                        # that an array is held for somebody who does not ask
_PATIENCE = 60.0                        # seconds that one waits for the other
_MOST_IDLE = 256                        # connections without a token
_BREATH = 0.05                          # seconds until a connection is accepted that could not be
_MAPPED = 32                            # allocations of other processes that stay mapped
_HANDLE, _BYTES, _DONE = b"h", b"b", b"d"
_PLACE = struct.Struct("<?64sQ")
"""A handle and where in its memory the array begins; false and the words of an error."""


def possible() -> bool:
    """Whether processes of this system open each other's memory on a GPU."""
    return sys.platform == "linux"


class Memory:
    """Calls to CUDA, which tests replace."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._mapped: dict[bytes, int] = {}             # memory of other processes

    def handle_of(self, x: Any) -> tuple[bytes, int]:
        """The handle of an array's allocation, all elements there, and the array's offset."""
        from ..runtime.errors import check, require

        driver = require("cuda.bindings.driver")
        with x.device:
            self._cupy.cuda.runtime.deviceSynchronize()
            base = int(check(driver.cuMemGetAddressRange(x.data.ptr), "cuMemGetAddressRange"))
            return self._cupy.cuda.runtime.ipcGetMemHandle(base), x.data.ptr - base

    def on_host(self, x: Any) -> np.ndarray:
        with x.device:
            return self._cupy.asnumpy(x.ravel(order="K")).view(np.uint8)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return self._cupy.empty(shape, dtype)

    def copy(self, x: Any, handle: bytes, offset: int) -> None:
        """Fill a new array from another process's memory."""
        runtime = self._cupy.cuda.runtime
        if handle not in self._mapped:
            if len(self._mapped) == _MAPPED:            # the copies from them have ended
                for address in self._mapped.values():
                    runtime.ipcCloseMemHandle(address)
                self._mapped.clear()
            # with peer access, where it is not there yet
            self._mapped[handle] = runtime.ipcOpenMemHandle(handle, 1)
        stream = self._cupy.cuda.get_current_stream()
        # whichever way
        runtime.memcpyAsync(x.data.ptr, self._mapped[handle] + offset, x.nbytes, 4, stream.ptr)
        stream.synchronize()

    def put(self, x: Any, elements: bytearray) -> None:
        """Fill a new array with bytes of the host."""
        x.set(np.frombuffer(elements, x.dtype).reshape(x.shape))


class Offers:
    """The arrays that this process holds for others, and a thread that hands them out."""

    def __init__(self, memory: Any):
        self._memory, self._lock = memory, surviving(Lock())
        self._held: dict[bytes, tuple[Any, float]] = {}
        self.address = f"cuteblas-{os.getpid()}-{token_bytes(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{self.address}")
        self._listener.listen(socket.SOMAXCONN)
        waiting = DefaultSelector()
        waiting.register(self._listener, EVENT_READ)
        Thread(target=self._listen, args=(waiting,), name="cuteblas-offers", daemon=True).start()

    def add(self, x: Any) -> bytes:
        """Hold an array until it is fetched; the message begins with its token."""
        token, now = token_bytes(_TOKEN_BYTES), monotonic()
        with self._lock:
            for old in [old for old, (_x, since) in self._held.items() if now - since > _SECONDS]:
                del self._held[old]
            self._held[token] = x, now
        return token.ljust(MESSAGE_BYTES, b"\0")

    def __len__(self) -> int:
        return len(self._held)

    def _listen(self, waiting: BaseSelector) -> None:
        """Start a thread for each connection; of too many idle ones the oldest is closed."""
        while True:
            try:
                for key, _events in waiting.select():
                    if key.fileobj is self._listener:
                        waiting.register(self._listener.accept()[0], EVENT_READ)
                    else:
                        waiting.unregister(key.fileobj)
                        self._hear(key.fileobj)
                if len(waiting.get_map()) > _MOST_IDLE:
                    oldest: Any = [*waiting.get_map().values()][1].fileobj
                    waiting.unregister(oldest)
                    oldest.close()
            except OSError:                             # no file is left now
                sleep(_BREATH)

    def _hear(self, connection: Any) -> None:
        # an unknown token, a closed connection, too many threads
        with suppress(KeyError, OSError, RuntimeError):
            token = connection.recv(_TOKEN_BYTES, socket.MSG_DONTWAIT)
            with self._lock:
                x, _since = self._held[token]
            Thread(target=self._answer, args=(connection, token, x), daemon=True).start()
            return
        connection.close()

    def _answer(self, connection: socket.socket, token: bytes, x: Any) -> None:
        try:
            with connection:
                connection.settimeout(_PATIENCE)
                while (wish := _received(connection, 1)) != _DONE:
                    if wish == _HANDLE:
                        try:
                            place = True, *self._memory.handle_of(x)
                        except RuntimeError as error:   # CUDA's: memory of a kind that has none
                            place = False, str(error).encode(), 0
                        connection.sendall(_PLACE.pack(*place))
                    else:
                        connection.sendall(memoryview(self._memory.on_host(x)))
        except OSError:
            return                            # they have seen it too, and ask again if they need it
        with self._lock:
            self._held.pop(token, None)


def fetch(memory: Any, address: str, message: bytes, shape: tuple[int, ...],
          dtype: np.dtype) -> Any:
    """A copy of an array that a process of this host holds, on the current GPU."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(f"\0{address}")
        connection.sendall(message[:_TOKEN_BYTES])
        x = memory.empty(shape, dtype)
        if not prod(shape):
            connection.sendall(_DONE)
            return x
        refusal = _by_handle(memory, connection, x)
        if refusal is not None:
            connection.sendall(_BYTES)
            memory.put(x, _received(connection, x.nbytes))
        tally("dask.chunks", "moved",
              "between GPUs" if refusal is None else f"by the host: {refusal}").tick()
        connection.sendall(_DONE)
    return x


def _by_handle(memory: Any, connection: socket.socket, x: Any) -> str | None:
    """Fill an array by a copy between GPUs; the reason if that cannot be."""
    if _refused:
        return _refused[0]
    connection.sendall(_HANDLE)
    found, handle, offset = _PLACE.unpack(_received(connection, _PLACE.size))
    if not found:
        return bytes(handle).rstrip(b"\0").decode(errors="replace")
    try:
        memory.copy(x, handle, offset)
    except RuntimeError as error:                       # CUDA's
        _refused.append(str(error))
        return _refused[0]
    return None


_refused: list[str] = []
"""Why memory of other processes could not be opened; it is not tried again."""


def _received(connection: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    view = memoryview(found)
    while view.nbytes:
        got = connection.recv_into(view)
        if not got:
            raise ConnectionError("the process that holds an array has closed the connection")
        view = view[got:]
    return found


@cache                                  # called twice at once, both of two are in use
def offers() -> Offers:
    return Offers(Memory())


forget_in_children(offers.cache_clear)
