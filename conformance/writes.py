"""Ways to write to the memory of a NumPy array, and of doing things with it that write nothing.

Each takes an array without gaps of a MiB or more, of a numeric type, and a random generator.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["QUIET", "WRITES"]

Act = Callable[[np.ndarray, np.random.Generator], Any]
_FILE_BYTES = 1 << 16
_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None


def _flat(x: np.ndarray) -> np.ndarray:
    return x.ravel(order="K")                           # a view


def _bytes(x: np.ndarray) -> np.ndarray:
    return _flat(x).view(np.uint8)


def _part(x: np.ndarray, rng: np.random.Generator, most: int = _FILE_BYTES) -> memoryview:
    """Some bytes anywhere."""
    first = int(rng.integers(x.nbytes - 1))
    return memoryview(_bytes(x)[first:first + int(rng.integers(1, most))])


def _pages(x: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Address and bytes of whole pages that lie in an array."""
    low = -(-x.ctypes.data // _PAGE)
    high = (x.ctypes.data + x.nbytes) // _PAGE
    first = int(rng.integers(low, high))
    return first * _PAGE, min(int(rng.integers(1, 600)), high - first) * _PAGE


@cache
def _file() -> str:
    """A file of random bytes."""
    handle, name = tempfile.mkstemp()
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(_FILE_BYTES))
    return name


def _address(part: memoryview) -> int:
    return np.frombuffer(part, np.uint8).ctypes.data


def element(x: np.ndarray, rng: np.random.Generator) -> None:
    _flat(x)[rng.integers(x.size)] = rng.integers(128)


def last_byte(x: np.ndarray, rng: np.random.Generator) -> None:
    _bytes(x)[-1] ^= 1


def first_byte(x: np.ndarray, rng: np.random.Generator) -> None:
    _bytes(x)[0] ^= 1


def part(x: np.ndarray, rng: np.random.Generator) -> None:
    first = rng.integers(x.size)
    _flat(x)[first:first + rng.integers(1, x.size)] = rng.integers(100)


def fill(x: np.ndarray, rng: np.random.Generator) -> None:
    x.fill(rng.integers(100))


def every_so_many(x: np.ndarray, rng: np.random.Generator) -> None:
    _flat(x)[::int(rng.integers(2, 9000))] += 1


def column(x: np.ndarray, rng: np.random.Generator) -> None:
    x.T[..., rng.integers(x.shape[0])] += 1


def backwards(x: np.ndarray, rng: np.random.Generator) -> None:
    _flat(x)[::-1][:5] += 1


def out(x: np.ndarray, rng: np.random.Generator) -> None:
    np.add(x, 1, out=x)


def product(x: np.ndarray, rng: np.random.Generator) -> None:
    small = np.ones((20, 20), x.dtype)
    np.matmul(small, small, out=_flat(x)[:400].reshape(20, 20))


def put(x: np.ndarray, rng: np.random.Generator) -> None:
    np.put(x, rng.integers(x.size, size=50), rng.integers(100, size=50))


def add_at(x: np.ndarray, rng: np.random.Generator) -> None:
    np.add.at(_flat(x), rng.integers(x.size, size=50), 1)


def masked(x: np.ndarray, rng: np.random.Generator) -> None:
    x[x > 50] = 7


def copyto(x: np.ndarray, rng: np.random.Generator) -> None:
    np.copyto(x[:len(x) // 3], 3)


def sort(x: np.ndarray, rng: np.random.Generator) -> None:
    _flat(x)[:5000][::-1].sort()


def shuffle(x: np.ndarray, rng: np.random.Generator) -> None:
    rng.shuffle(_flat(x)[:3000])


def swapped_bytes(x: np.ndarray, rng: np.random.Generator) -> None:
    x[:5].byteswap(inplace=True)


def generator(x: np.ndarray, rng: np.random.Generator) -> None:
    rng.random(out=_bytes(x)[_offset(x):][:8000].view(np.float64))


def _offset(x: np.ndarray) -> int:
    return -x.ctypes.data % 8


def of_memoryview(x: np.ndarray, rng: np.random.Generator) -> None:
    memoryview(_bytes(x))[int(rng.integers(x.nbytes))] ^= 255


def packed(x: np.ndarray, rng: np.random.Generator) -> None:
    struct.pack_into("<I", memoryview(_bytes(x)), int(rng.integers(x.nbytes - 4)),
                     int(rng.integers(1 << 32)))


def buffer(x: np.ndarray, rng: np.random.Generator) -> None:
    np.frombuffer(_bytes(x), np.uint8)[int(rng.integers(x.nbytes))] ^= 255


def over_buffer(x: np.ndarray, rng: np.random.Generator) -> None:
    np.ndarray((10,), np.uint8, _bytes(x), int(rng.integers(x.nbytes - 10)))[3] ^= 255


def subclass(x: np.ndarray, rng: np.random.Generator) -> None:
    np.ma.MaskedArray(_flat(x), copy=False)[int(rng.integers(x.size))] = 5
    x.view(np.recarray).flat[0] += 1


def memset(x: np.ndarray, rng: np.random.Generator) -> None:
    given = _part(x, rng)
    ctypes.memset(_address(given), int(rng.integers(256)), len(given))


def memmove(x: np.ndarray, rng: np.random.Generator) -> None:
    given = _part(x, rng)
    ctypes.memmove(_address(given), os.urandom(len(given)), len(given))


def of_ctypes(x: np.ndarray, rng: np.random.Generator) -> None:
    ctypes.c_uint8.from_address(x.ctypes.data + int(rng.integers(x.nbytes))).value ^= 255


def thread(x: np.ndarray, rng: np.random.Generator) -> None:
    threads = [threading.Thread(target=act,
                                args=(x, np.random.default_rng(int(rng.integers(1 << 32)))))
               for act in (element, memmove, part)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def readinto(x: np.ndarray, rng: np.random.Generator) -> None:
    with open(_file(), "rb", buffering=0) as file:
        file.readinto(_part(x, rng))


def buffered_readinto(x: np.ndarray, rng: np.random.Generator) -> None:
    with open(_file(), "rb") as file:
        file.readinto(_part(x, rng))
    io.BytesIO(b"12345678").readinto(_part(x, rng))


def preadv(x: np.ndarray, rng: np.random.Generator) -> None:
    with open(_file(), "rb") as file:
        os.preadv(file.fileno(), [_part(x, rng), _part(x, rng)], 5)


def direct(x: np.ndarray, rng: np.random.Generator) -> None:
    """Past the cache of files, by the disk's own writes to memory, where the file system has
    that."""
    address, nbytes = _pages(x, rng)
    nbytes = min(nbytes, _FILE_BYTES // 2 // _PAGE * _PAGE)
    try:
        file = os.open(_file(), os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return
    try:
        os.preadv(file, [(ctypes.c_char * nbytes).from_address(address)], 0)
    finally:
        os.close(file)


def recv_into(x: np.ndarray, rng: np.random.Generator) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(os.urandom(3000))
        given = _part(x, rng)
        other.recv_into(given, min(3000, len(given)))


def pipe(x: np.ndarray, rng: np.random.Generator) -> None:
    reading, writing = os.pipe()
    os.write(writing, os.urandom(3000))
    os.readv(reading, [_part(x, rng, 2000), _part(x, rng, 900)])
    os.close(reading)
    os.close(writing)


def own_memory_as_file(x: np.ndarray, rng: np.random.Generator) -> None:
    given = _part(x, rng, 500)
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as file:
            file.seek(_address(given))
            file.write(os.urandom(len(given)))
    except OSError:
        pass


def vector_of_process(x: np.ndarray, rng: np.random.Generator) -> None:
    """As a debugger writes."""
    given, new = _part(x, rng, 500), ctypes.create_string_buffer(os.urandom(500), 500)
    pair = ctypes.c_void_p * 2
    _libc.process_vm_writev(os.getpid(), pair(ctypes.addressof(new), len(given)), 1,
                            pair(_address(given), len(given)), 1, 0)


def dontneed(x: np.ndarray, rng: np.random.Generator) -> None:
    address, nbytes = _pages(x, rng)
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), mmap.MADV_DONTNEED)


def of_child(x: np.ndarray, rng: np.random.Generator) -> None:
    """A child writes to its own memory; then the parent to its."""
    nothing_of_child(x, rng)
    element(x, rng)


def beside_child(x: np.ndarray, rng: np.random.Generator) -> None:
    """The parent writes while a child lives."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.read(reading, 1)
        os._exit(0)
    part(x, rng)
    os.write(writing, b"1")
    os.waitpid(process, 0)
    os.close(reading)
    os.close(writing)


def nothing_of_child(x: np.ndarray, rng: np.random.Generator) -> None:
    process = os.fork()
    if not process:
        _bytes(x)[:] = 1
        os._exit(0)
    os.waitpid(process, 0)


def reads(x: np.ndarray, rng: np.random.Generator) -> None:
    x.sum(), x.copy(), x[::3].tobytes(), hash(_bytes(x)[:1000].tobytes())


def sends(x: np.ndarray, rng: np.random.Generator) -> None:
    with open(os.devnull, "wb", buffering=0) as file:
        file.write(_part(x, rng))


def nothing(x: np.ndarray, rng: np.random.Generator) -> None:
    pass


def advised(advice: int) -> Act:
    """Where pages lie changes, not what is in them; a kernel that lacks it refuses it."""
    def advise(x: np.ndarray, rng: np.random.Generator) -> None:
        address, nbytes = _pages(x, rng)
        _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), advice)

    return advise


_POSIX = [memset, memmove, of_ctypes, readinto, buffered_readinto, recv_into, pipe]
_LINUX = [preadv, direct, own_memory_as_file, vector_of_process, dontneed, of_child, beside_child]
WRITES: dict[str, Act] = {act.__name__: act for act in [element, first_byte, last_byte, part, fill,
                                                        every_so_many, column, backwards, out,
                                                        product, put, add_at, masked, copyto, sort,
                                                        shuffle, swapped_bytes, generator,
                                                        of_memoryview, packed, buffer, over_buffer,
                                                        subclass, thread, *_POSIX, *_LINUX]}
"""What writes; few of them write what was there before."""

QUIET: dict[str, Act] = {"nothing": nothing, "reads": reads, "sends": sends,
                         "nothing_of_child": nothing_of_child,
                         **{f"advised {name}": advised(number)
                            for name, number in {"cold": 20, "pageout": 21, "hugepage": 14,
                                                 "nohugepage": 15, "collapse": 25,
                                                 "populate_read": 22}.items()}}
"""What does not change a byte."""
