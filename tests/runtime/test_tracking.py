"""Writes to memory that the kernel has to see: in every way that a program has, at every byte, with
watches that share pages."""

import ctypes
import errno
import gc
import mmap
import os
import random
import sys
import threading
from multiprocessing import shared_memory

import numpy as np
import pytest

from conformance.writes import QUIET, WRITES
from cuteblas.runtime import tracking
from cuteblas.runtime.tracking import Untracked, Watch, why_untracked

PAGE, PART = mmap.PAGESIZE, 2 << 20
tracked = pytest.mark.skipif(why_untracked() is not None, reason=f"{why_untracked()}")


@pytest.fixture(autouse=True)
def _ended():
    """No test leaves a watch behind."""
    yield
    gc.collect()
    for watch in list(tracking._watches):
        watch.end()


def span(x):
    return x.ctypes.data, x.ctypes.data + x.nbytes


def protected(x):
    watch = Watch(*span(x))
    watch.protect()
    return watch


def anonymous(nbytes, shared=False):
    flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags), np.uint8)


def alone(shape, value):
    """An array of float64 that shares no page with others, which would raise false alarms;
    ``None``: nothing has touched it."""
    x = np.ndarray(shape, np.float64, anonymous(8 * int(np.prod(shape)) + 64), 64)
    if value is not None:
        x[:] = value
    return x


def in_child(ask):
    """The result of a function in a child of ``fork``."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        try:
            said = repr(ask())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(process, 0)
    return said


LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if LIBC is not None:
    LIBC.mmap.restype, LIBC.mremap.restype = ctypes.c_void_p, ctypes.c_void_p
    LIBC.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    LIBC.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    LIBC.mremap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    LIBC.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
PRIVATE, FIXED = 0x22, 0x10


def mapped(nbytes, at=None, flags=PRIVATE, file=-1):
    """The address of new memory, which the test unmaps."""
    return LIBC.mmap(at, nbytes, 3, flags | (FIXED if at else 0), file, 0)


# -- what is seen ----------------------------------------------------------------------------------
@tracked
@pytest.mark.parametrize("nbytes", [1 << 20, (5 << 20) + 40], ids=["small", "huge pages"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_each_kind_is_seen(name, nbytes):
    """Also in memory that nothing has touched, and a second time after it was protected again."""
    rng = np.random.default_rng(1)
    for value in (None, 1):
        x = alone((8, nbytes // 64), value)
        watch = protected(x)
        for again in (False, True):
            before = x.copy()
            WRITES[name](x, rng)
            changed = np.flatnonzero(before.view(np.uint8) != x.view(np.uint8)) + x.ctypes.data
            parts = watch.written(again=again)
            assert all(any(low <= at < high for low, high in parts)
                       for at in changed[::101].tolist() + changed[-1:].tolist())
            if not again:
                assert watch.written() == parts
                watch.protect()
            assert watch.written() == []
        watch.end()


@tracked
@pytest.mark.parametrize("name", QUIET)
def test_what_does_not_write_raises_no_alarm_and_loses_no_mark(name):
    rng = np.random.default_rng(1)
    x = alone((8, 1 << 17), 1)
    watch = protected(x)
    for _ in range(5):
        QUIET[name](x, rng)
        if "fork" not in name and "child" not in name:
            assert watch.written() == []
    x[3, 5] += 1
    for _ in range(5):
        QUIET[name](x, rng)
    assert any(low <= x[3, 5:].ctypes.data < high for low, high in watch.written())


@tracked
@pytest.mark.parametrize("offset", [0, 1, 100, PAGE - 1, PAGE, PAGE + 7])
@pytest.mark.parametrize("nbytes", [1, PAGE - 1, PAGE, 3 * PAGE + 5, PART, PART + 1,
                                    2 * PART + PAGE])
def test_the_bytes_at_both_ends(offset, nbytes):
    memory = anonymous(4 * PART)
    memory[:] = 1
    low = memory.ctypes.data + offset
    watch = Watch(low, low + nbytes)
    for at in (0, nbytes - 1, nbytes // 2):
        watch.protect()
        assert watch.written() == []
        memory[offset + at] += 1
        (first, last), = watch.written()
        assert low <= first <= low + at < last <= low + nbytes
        assert last - first <= PART
    watch.end()


@tracked
def test_parts_of_two_mebibytes_are_merged_and_clipped():
    memory = anonymous(9 * PART)
    base = -(-memory.ctypes.data // PART) * PART
    first = base - memory.ctypes.data
    low, high = base + 100, base + 7 * PART + 300
    watch = Watch(low, high)
    watch.protect()
    for part in (0, 2, 3, 6):
        memory[first + part * PART + 5000] = 1
    assert watch.written() == [(low, base + PART), (base + 2 * PART, base + 4 * PART),
                               (base + 6 * PART, base + 7 * PART)]
    memory[first + 7 * PART + 299] = 1
    assert watch.written(again=True)[-1] == (base + 6 * PART, high)
    assert watch.written() == []
    assert watch.bytes_written >= 5 * PAGE


@tracked
def test_more_runs_than_one_scan_reports():
    x = anonymous(48 << 20)
    LIBC.madvise(x.ctypes.data, x.nbytes, 15)
    x[:] = 1
    watch = protected(x)
    x[::2 * PAGE] = 2
    before = watch.bytes_written
    assert watch.written(again=True) == [span(x)]
    assert watch.bytes_written - before == x.nbytes // 2
    assert watch.written() == []


@tracked
def test_a_write_between_two_looks_is_not_lost():
    """Another thread writes all the time, and stops; what it wrote last is seen by the next
    look."""
    x = np.zeros(PART, np.int64)
    watch = protected(x)
    copy = x.copy()
    stop = threading.Event()

    def write():
        rng, count = random.Random(1), 0
        while not stop.is_set():
            count += 1
            x[rng.randrange(len(x))] = count

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(300):
        for low, high in watch.written(again=True):
            part = slice((low - x.ctypes.data) // 8, (high - x.ctypes.data) // 8)
            copy[part] = x[part]
    stop.set()
    thread.join()
    for low, high in watch.written(again=True):
        part = slice((low - x.ctypes.data) // 8, (high - x.ctypes.data) // 8)
        copy[part] = x[part]
    assert np.array_equal(copy, x)


@tracked
def test_other_bytes_than_those_that_are_asked_for_stay_as_they_are():
    x = anonymous(5 * PART)
    x[:] = 1
    low = x.ctypes.data
    watch = protected(x)
    x[PAGE], x[3 * PART], x[-1] = 2, 2, 2
    assert watch.written(low + PART, low + 2 * PART, again=True) == []
    (start, end), = watch.written(low + 3 * PART - 7, low + 3 * PART + 100, again=True)
    assert low + 3 * PART - PAGE <= start <= low + 3 * PART < end
    first, last = watch.written()[0], watch.written()[-1]
    assert first[0] <= low + PAGE < first[1]
    assert last[0] <= low + 5 * PART - 1 < last[1]
    watch.protect()
    assert watch.written() == []


@tracked
def test_ends_inside_of_pages_that_are_asked_for_in_any_order():
    rng, x = random.Random(3), anonymous(3 * PART)
    copy, low = x.copy(), x.ctypes.data
    watch = Watch(low + 77, low + x.nbytes - 33)
    bounds = [77, 5000, PAGE, 2 * PAGE, PART - 1, PART + 9, 2 * PART, 2 * PART + 700,
              2 * PART + 1000, x.nbytes - 33]
    for _ in range(3000):
        if rng.random() < 0.6:
            at = max(77, min(x.nbytes - 34, rng.choice(bounds) + rng.randrange(-3, 3)))
            x[at] = rng.randrange(3)
        first, last = sorted(rng.sample(bounds, 2))
        for start, end in watch.written(low + first, low + last, again=True):
            copy[start - low:end - low] = x[start - low:end - low]
        assert np.array_equal(copy[first:last], x[first:last])


@tracked
def test_a_watch_over_pages_that_another_one_has_protected():
    """It has not protected them itself: all of them may have been written."""
    x = np.ones(3 * PART, np.uint8)
    first = protected(x)
    second = Watch(*span(x))
    assert second.written(again=True) == [span(x)]
    assert second.written() == first.written() == []


# -- several watches -------------------------------------------------------------------------------
@tracked
@pytest.mark.parametrize("seed", range(8))
def test_overlapping_watches_lose_nothing(seed):
    """Watches begin, end, protect and look in any order; each of them knows all writes since it
    protected those pages."""
    rng = random.Random(seed)
    memory = anonymous(3 * PART)
    memory[:] = 1
    base, watches = memory.ctypes.data, {}

    def missed(watch):
        """The bytes that were written and are not reported."""
        parts = watch.written()
        assert parts is not None
        return [at for at in watches[watch] if not any(low <= at < high for low, high in parts)]

    for _ in range(600):
        act = rng.choice(["begin", "end", "protect", "again", "write", "write", "write", "look"])
        some = rng.choice([*watches]) if watches else None
        if act == "begin" and len(watches) < 6:
            low = rng.randrange(len(memory) - 1)
            high = min(low + rng.choice([1, 100, PAGE, 5 * PAGE, PART, 2 * PART]), len(memory))
            new = Watch(base + low, base + high)
            new.protect()
            watches[new] = set()
        elif act == "write":
            at = base + rng.randrange(len(memory)) if some is None or rng.random() < 0.3 else rng.choice(
                [some.low, some.high - 1, rng.randrange(some.low, some.high)])
            ctypes.memset(at, (int(memory[at - base]) + 1) % 256, 1)
            for watch, written in watches.items():
                if watch.low <= at < watch.high:
                    written.add(at)
        elif some is None:
            continue
        elif act == "end":
            some.end()
            assert some.written() is None
            del watches[some]
        elif act == "protect":
            some.protect()
            watches[some].clear()
        elif act == "again":
            assert not missed(some)
            parts = some.written(again=True)
            assert all(any(low <= at < high for low, high in parts) for at in watches[some])
            watches[some].clear()
        else:
            assert not missed(some)
    assert not any(missed(watch) for watch in watches)
    for watch in watches:
        watch.end()
    assert not tracking._watches


@tracked
@pytest.mark.parametrize("page", [True, False], ids=["whole pages", "no whole page"])
def test_neighbours_on_a_page_raise_no_alarm(page):
    memory = anonymous(6 * PAGE)
    memory[:] = 1
    low, middle = memory.ctypes.data, (2 * PAGE if page else 0) + 100
    left, right = Watch(low + 50, low + middle), Watch(low + middle, low + middle * 2)
    left.protect()
    right.protect()
    memory[middle - 1] = 2
    assert right.written() == []
    (start, end), = left.written(again=True)
    assert low + 50 <= start < low + middle == end
    memory[middle] = 2
    memory[49] = memory[2 * middle] = 2
    assert left.written() == []
    (start, end), = right.written(again=True)
    assert low + middle == start < end <= low + 2 * middle
    left.end()
    memory[middle + 50] = 2
    assert right.written()


@tracked
def test_pages_that_a_watch_left_protected():
    """The next watch of them has not read them yet."""
    x = anonymous(4 * PART)
    x[:] = 1
    low, high = span(x)
    for last in (0, 1):
        watches = Watch(low, high - PART), Watch(low + PART, high)
        for watch in watches:
            watch.protect()
        watches[1 - last].end()
        watches[last].end()
        third = Watch(low, high)
        assert third.written() == [(low, high)]
        third.end()


@tracked
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_while_pages_are_protected(error, monkeypatch):
    """What was written is not known any more, in no watch of these pages."""
    x = np.ones(3 * PART, np.uint8)
    watches = [protected(x), Watch(*span(x))]
    watches[1].protect()
    x[PART] = 2

    ask = tracking._ask

    def interrupted(*given):
        ask(*given)
        raise error

    monkeypatch.setattr(tracking, "_ask", interrupted)
    with pytest.raises(error):
        watches[0].written(again=True)
    monkeypatch.undo()
    assert [watch.written() for watch in watches] == [None, None]


@tracked
def test_an_end_that_is_as_it_was_while_the_rest_has_moved():
    x = anonymous(3 * PART)
    low, _high = span(x)
    watch = protected(x)
    end = PAGE + 100                                    # inside of a page
    assert watch.written(low, low + end, again=True)
    assert watch.written(low, low + end, again=True) == []
    x[PAGE + 50] = 7
    assert watch.written(again=True)                    # its reader has the 7
    x[PAGE + 50] = 0
    (start, stop), = watch.written(low, low + end, again=True)
    assert start <= low + PAGE + 50 < stop


@tracked
def test_after_the_end_writes_leave_no_mark_and_cost_nothing():
    x = np.ones(4 * PART, np.uint8)
    watch = protected(x)
    watch.end()
    watch.end()
    x[:] = 2
    watch.protect()
    assert watch.written() is None
    tracking._watches.add(watch)                       # as if it had not: the kernel tracks nothing
    assert watch.written() is None
    assert not tracking._watches


# -- what cannot be told any more ------------------------------------------------------------------
@tracked
@pytest.mark.parametrize("where", [slice(0, 64), slice(10, 20), slice(0, 5), slice(60, 64),
                                   slice(63, 64)], ids=str)
@pytest.mark.parametrize("then", ["nothing", "mapped", "watched"])
def test_memory_that_was_unmapped_is_unknown(where, then):
    """So it is where other memory has its place, even if that is tracked."""
    low = mapped(64 * PAGE)
    ctypes.memset(low, 1, 64 * PAGE)
    watch = Watch(low + 5, low + 64 * PAGE)
    watch.protect()
    start, nbytes = low + where.start * PAGE, (where.stop - where.start) * PAGE
    LIBC.munmap(start, nbytes)
    other = None
    if then != "nothing":
        assert mapped(nbytes, start) == start
    if then == "watched":
        other = Watch(start, start + nbytes)
        other.protect()
    assert watch.written() is None
    assert watch.written(again=True) is None
    watch.end()
    if other is not None:
        assert other.written() == []
        ctypes.memset(start, 3, 1)
        assert other.written()
        other.end()
    LIBC.munmap(low, 64 * PAGE)


@tracked
def test_memory_that_moved_is_unknown_and_what_took_its_place_is_tracked():
    low = mapped(16 * PAGE)
    watch = Watch(low, low + 16 * PAGE)
    watch.protect()
    new = LIBC.mremap(low, 16 * PAGE, 4096 * PAGE, 1, None)
    if new == low:                                      # it grew where it was
        assert watch.written() == []
        ctypes.memset(low, 1, 1)
        assert watch.written()
    else:
        assert watch.written() is None
    LIBC.munmap(new, 4096 * PAGE)


@tracked
def test_shared_memory_in_the_place_of_an_array_is_unknown():
    low = mapped(16 * PAGE)
    watch = Watch(low, low + 16 * PAGE)
    watch.protect()
    file = os.memfd_create("shared")
    os.ftruncate(file, 16 * PAGE)
    mapped(16 * PAGE, low, 1, file)
    assert watch.written() is None
    LIBC.munmap(low, 16 * PAGE)
    os.close(file)


@tracked
def test_an_address_that_is_used_again():
    """Arrays come and go at the same addresses; the watch of each sees its writes and no earlier
    one's."""
    for i in range(60):
        x = np.full(3 << 20, i, np.uint8)
        watch = protected(x)
        assert watch.written() == []
        x[1 << 20] += 1
        assert watch.written()
        if i % 3:
            watch.end()
        del x


# -- fork ------------------------------------------------------------------------------------------
@tracked
def test_a_child_knows_nothing_and_leaves_the_parent_alone():
    x = np.ones(4 << 20, np.uint8)
    watch = protected(x)

    def child():
        said = [watch.written(), len(tracking._watches)]
        watch.protect()
        watch.end()
        x[:] = 2
        own = protected(x)
        x[5] = 3
        said.append(len(own.written()))
        own.end()
        return [*said, why_untracked()]

    assert in_child(child) == "[None, 0, 1, None]"
    assert watch.written() == []
    x[100] = 7
    assert watch.written()


@tracked
def test_a_child_finds_the_lock_free():
    entered, done = threading.Event(), threading.Event()

    def hold():
        with tracking._lock:
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    try:
        x = alone(9999, 1)
        assert in_child(lambda: protected(x).written()) == "[]"
    finally:
        done.set()
        thread.join()


@tracked
@pytest.mark.parametrize("child", ["waits", "writes", "is gone"])
def test_the_writes_of_a_parent_after_fork_are_seen(child):
    x = np.ones(6 << 20, np.uint8)
    watch = protected(x)
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        if child == "writes":
            x[:] = 9
        if child != "is gone":
            os.read(reading, 1)
        os._exit(0)
    if child == "is gone":
        os.waitpid(process, 0)
    for at in (0, 3 << 20, -1):
        x[at] = 5
        parts = watch.written(again=True)
        assert any(low <= x[at:].ctypes.data < high for low, high in parts)
    assert watch.written() == []
    os.write(writing, b"1")
    if child != "is gone":
        os.waitpid(process, 0)
    os.close(reading)
    os.close(writing)


# -- what is refused -------------------------------------------------------------------------------
def _file(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    return np.memmap(path, np.uint8, mode)


def _shared(tmp_path):
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    block.unlink()
    return np.ndarray(1 << 20, np.uint8, block.buf), block


def _memfd(tmp_path, flags):
    file = os.memfd_create("memory")
    os.ftruncate(file, 1 << 20)
    x = np.frombuffer(mmap.mmap(file, 1 << 20, flags), np.uint8)
    os.close(file)
    return x


REFUSED = {"a file": lambda path: _file(path, "r+"),
           "a file to read": lambda path: _file(path, "r"),
           "private pages of a file": lambda path: _file(path, "c"), "shared_memory": _shared,
           "anonymous shared memory": lambda path: anonymous(1 << 20, shared=True),
           "shared memfd": lambda path: _memfd(path, mmap.MAP_SHARED),
           "private memfd": lambda path: _memfd(path, mmap.MAP_PRIVATE),}


@pytest.fixture(params=["asked for", "listed"])
def _mappings(request, monkeypatch):
    """Mappings by the ioctl of Linux 6.11, and by the text."""
    if request.param == "listed":
        ask = tracking._ask

        def refuse(descriptor, request, *words):
            if request == tracking._MAPPING:
                raise OSError(errno.ENOTTY, "")
            return ask(descriptor, request, *words)

        monkeypatch.setattr(tracking, "_ask", refuse)


@tracked
@pytest.mark.usefixtures("_mappings")
@pytest.mark.parametrize("kind", REFUSED)
def test_memory_of_others_is_refused(kind, tmp_path):
    x = REFUSED[kind](tmp_path)
    x, _owner = x if isinstance(x, tuple) else (x, None)
    for touched in (False, True):
        with pytest.raises(Untracked, match="shared memory"):
            Watch(*span(x))
        if not touched:
            x.sum()
    assert not tracking._watches


@tracked
@pytest.mark.usefixtures("_mappings")
def test_a_stack_and_what_is_not_mapped_are_refused():
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if line.endswith("[stack]\n"))
    low, high = (int(x, 16) for x in line.split()[0].split("-"))
    with pytest.raises(Untracked):
        Watch(high - PAGE, high)
    low = mapped(8 * PAGE)
    LIBC.munmap(low + 3 * PAGE, 2 * PAGE)
    for start, end in ((0, 8), (2, 4), (3, 5), (4, 6)):
        with pytest.raises(Untracked):
            Watch(low + start * PAGE, low + end * PAGE)
    Watch(low, low + 3 * PAGE).end()
    LIBC.munmap(low, 8 * PAGE)
    assert not tracking._watches


@tracked
@pytest.mark.usefixtures("_mappings")
def test_a_part_of_a_file_beside_private_memory_is_refused(tmp_path):
    low = mapped(8 * PAGE)
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    with path.open("r+b") as file:
        mapped(PAGE, low + 4 * PAGE, 2, file.fileno())
    with pytest.raises(Untracked):
        Watch(low, low + 8 * PAGE)
    Watch(low, low + 4 * PAGE).end()
    LIBC.munmap(low, 8 * PAGE)


@tracked
@pytest.mark.usefixtures("_mappings")
@pytest.mark.parametrize("kind", ["numpy", "bytearray", "ctypes", "mmap", "array", "large",
                                  "in the heap"])
def test_memory_of_this_process_alone_is_tracked(kind):
    import array

    n = 64 << 20 if kind == "large" else 100 << 10 if kind == "in the heap" else 2 << 20
    make = {"bytearray": bytearray, "ctypes": lambda n: (ctypes.c_uint8 * n)(), "mmap": anonymous,
            "array": lambda n: array.array("B", bytes(n))}.get(kind,
                                                               lambda n: np.zeros(n, np.uint8))
    x = np.frombuffer(make(n), np.uint8)
    watch = protected(x)
    assert watch.written() == []
    x[n // 2] = 1
    assert watch.written()


# -- where it is not possible ----------------------------------------------------------------------
@pytest.fixture
def _fresh(monkeypatch):
    monkeypatch.setattr(tracking, "_opened", ())
    monkeypatch.setattr(tracking, "_watches", set())


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTTY])
def test_a_kernel_that_refuses_is_named(number, monkeypatch):
    calls = []

    def refuse(status):
        calls.append(status)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tracking, "_checked", refuse)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(tracking.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tracking, "_libc", lambda: type("Libc", (),
                                                        {"syscall": lambda self, *given: -1})())
    for words in (os.strerror(number), "Linux 6.7 or newer", "seccomp"):
        assert words in why_untracked()
    assert len(calls) == 1
    with pytest.raises(Untracked, match="seccomp"):
        Watch(0, PAGE)


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(("system", "machine"),
                         [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "riscv64")])
def test_other_systems_are_named(system, machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(tracking.platform, "machine", lambda: machine)
    assert why_untracked() == f"only Linux on x86-64 and AArch64 tracks writes; this is {system} on {machine}"


@tracked
@pytest.mark.usefixtures("_fresh")
def test_no_descriptor_is_left_where_the_kernel_is_too_old(monkeypatch):
    ask, before = tracking._ask, len(os.listdir("/proc/self/fd"))

    def refuse(descriptor, request, *words):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(tracking, "_ask", refuse)
    assert "6.7" in why_untracked()
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.setattr(tracking, "_ask", ask)


@tracked
def test_what_the_kernel_does_not_register_is_refused(monkeypatch):
    ask = tracking._ask

    def refuse(descriptor, request, *words):
        if request == tracking._REGISTER:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return ask(descriptor, request, *words)

    monkeypatch.setattr(tracking, "_ask", refuse)
    with pytest.raises(Untracked, match="busy"):
        protected(np.ones(PART))
    assert not tracking._watches
