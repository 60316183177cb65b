"""The copies of NumPy arrays on a device: right after every kind of write, kept where it is worth
it, gone when they should be."""

import ctypes
import gc
import mmap
import os
import threading
import warnings
import weakref
from multiprocessing import shared_memory

import numpy as np
import pytest

import cuteblas
from conformance import keeping as fuzzer
from conformance.keeping import Memories, bytes_of, image, pretended_ring
from conformance.writes import QUIET, WRITES
from cuteblas.emulator.compiler import why_unavailable
from cuteblas.engines import keeping, settings
from cuteblas.engines.keeping import Keeper
from cuteblas.runtime import tracking
from cuteblas.runtime.mover import HASHED_BYTES
from cuteblas.runtime.tracking import Hashes, Untracked, Watch, why_untracked

MIB = 1 << 20
PART = 2 * MIB


@pytest.fixture(params=["Linux", "hashes"])
def memories(request):
    ring = None
    if request.param == "Linux" and why_untracked() is not None:
        pytest.skip(why_untracked())
    if request.param == "hashes":
        if why_unavailable() is not None:
            pytest.skip(why_unavailable())
        ring = pretended_ring()
    yield Memories(ring)
    if ring is not None:
        ring.close()


def keeper_of(memories, limit=1 << 30):
    return Keeper(memories, limit, memories.watch)


@pytest.fixture
def keeper(memories):
    made = keeper_of(memories)
    yield made
    made.release()
    gc.collect()
    assert not tracking._watches
    assert not memories.live


@pytest.fixture(autouse=True)
def _counted(monkeypatch):
    monkeypatch.setattr(keeping, "_PATIENCE", 1)       # arrays are tracked from their second use on
    cuteblas.reset_stats()


def test_an_array_that_is_used_twice_between_writes_is_never_tracked(keeper, monkeypatch):
    """As the weights of a network: forwards, backwards, and then they change."""
    monkeypatch.setattr(keeping, "_PATIENCE", 2)
    weights, fixed = np.ones(2 * MIB // 8), np.ones(2 * MIB // 8)
    for _ in range(5):
        assert used(keeper, weights) is None
        assert used(keeper, weights) is None
        weights *= 1.5
    assert [used(keeper, fixed) is not None for _ in range(4)] == [False, False, True, True]
    assert counts() == {"moved": 1, "unchanged": 1}


def counts():
    return cuteblas.stats().get("arrays", {}).get("kept", {})


def used(keeper, x):
    """The copy of an operand, if it is kept, as a call finds it; its elements have to be those of
    the host."""
    found = keeper.find(x) or keeper.seen(x, x.nbytes)
    if found is not None:
        assert np.array_equal(bytes_of(image(found, x)), bytes_of(x))
    return found


def kept(keeper, x):
    assert used(keeper, x) is None
    assert used(keeper, x) is not None
    return x


def array(nbytes=8 * MIB, dtype=np.float32, rows=16):
    """An array that shares no page with others: those raise false alarms."""
    n = nbytes // np.dtype(dtype).itemsize
    x = np.ndarray((rows, n // rows), dtype, mmap.mmap(-1, nbytes + 64,
                                                       mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 64)
    x[:] = np.arange(n).reshape(rows, -1)
    return x


# -- when an array is kept -------------------------------------------------------------------------
def test_an_array_is_kept_at_its_second_use(keeper, memories):
    x = array()
    assert keeper.find(x) is None
    assert keeper.seen(x, x.nbytes) is None
    assert keeper.expected(x) == keeper.nbytes == 0
    assert not tracking._watches
    found = keeper.seen(x, x.nbytes)
    assert found[1] == 0
    assert memories.moved == [x.nbytes]
    assert keeper.expected(x) == keeper.nbytes == x.nbytes
    for _ in range(3):
        assert keeper.find(x)[0] is found[0]
    assert memories.moved == [x.nbytes]
    assert counts() == {"moved": 1, "unchanged": 3}


def test_an_array_that_changes_between_its_uses_is_not_tracked(keeper):
    x = array()
    for i in range(20):
        x[:] = i
        assert used(keeper, x) is None
    assert not tracking._watches


def test_a_change_that_the_sample_misses_is_moved_with_the_rest(keeper):
    x = array()
    assert used(keeper, x) is None
    step = (x.nbytes - 64) // 63
    x.ravel().view(np.uint8)[step // 2] ^= 255
    assert used(keeper, x) is not None


@pytest.mark.parametrize("nbytes", [8, MIB - 8])
def test_small_arrays_are_not_kept(keeper, nbytes):
    x = np.ones(nbytes // 8)
    for _ in range(5):
        assert used(keeper, x) is None
    assert not keeper._owners


def test_a_part_has_to_be_used_as_often_as_moving_all_costs(keeper, memories):
    x = array(8 * MIB)
    for _ in range(8):
        assert used(keeper, x[4:6]) is None             # an eighth
    assert used(keeper, x[4:6])[1] == 4 * x.strides[0]
    assert sum(memories.moved) <= x.nbytes / 4
    for rows in (slice(0, 9), slice(3, 5), slice(14, 16), slice(0, 16)):
        assert used(keeper, x[rows]) is not None        # what has not moved moves
    memories.moved.clear()
    assert used(keeper, x) is not None
    assert memories.moved == []


def _read_only(x):
    y = x[:]
    y.setflags(write=False)
    return y


VIEWS = {"all": lambda x: x, "rows": lambda x: x[3:9], "columns": lambda x: x[:, 5:100],
         "transposed": lambda x: x.T, "steps": lambda x: x[::3, ::7],
         "backwards": lambda x: x[::-1, ::-1], "one": lambda x: x[7:8, 3:4],
         "empty": lambda x: x[:, :0], "bytes": lambda x: x.view(np.uint8)[2],
         "int": lambda x: x.view(np.int32), "flat": lambda x: x.reshape(-1)[77:],
         "broadcast": lambda x: np.broadcast_to(x[2], (5, x.shape[1])),
         "new axis": lambda x: x[None, :, None], "subclass": lambda x: x.view(np.matrix),
         "masked": lambda x: np.ma.MaskedArray(x).data, "diagonal": lambda x: x.diagonal(),
         "part of a part": lambda x: x[2:9][1:4].T[5:], "read-only": _read_only,
         "complex": lambda x: x.view(np.complex64).imag,}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_the_copy_of_their_owner(keeper, memories, name):
    x = array()
    kept(keeper, x)
    view = VIEWS[name](x)
    found = keeper.find(view)
    assert np.array_equal(image(found, view), view)
    assert found[1] == view.ctypes.data - x.ctypes.data or not view.size
    if view.size:
        np.copyto(x[2:7], 9)                            # the view's elements among them
        found = keeper.find(view)
        assert found is None or np.array_equal(image(found, view), view)


@pytest.mark.parametrize("order", "CF")
def test_an_owner_that_dies_frees_its_copy_at_once(keeper, memories, order):
    x = np.array(array(), order=order)
    kept(keeper, x)
    view = x[1:]
    del x
    assert memories.live == 1
    assert keeper.find(view) is not None
    del view
    assert memories.live == 0
    assert keeper.nbytes == 0
    assert not tracking._watches


def test_a_copy_in_use_outlives_its_array(keeper, memories):
    x = kept(keeper, array())
    found = keeper.find(x)
    expected = bytes_of(x).copy()
    del x
    keeper.release()
    assert memories.live == 1
    assert np.array_equal(found[0], expected.ravel())
    del found
    assert memories.live == 0


def test_an_array_in_a_circle_frees_its_copy(keeper, memories):
    class Node:
        pass

    node = Node()
    node.self, node.x = node, array()
    kept(keeper, node.x)
    del node
    gc.collect()
    assert memories.live == 0


# -- writes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*WRITES, *QUIET])
def test_a_copy_is_right_after_every_write(keeper, name):
    rng = np.random.default_rng(5)
    for dtype in (np.float64, np.uint8):
        x = array(7 * MIB + 4096, dtype)
        x %= 100
        for _ in range(4):
            for _ in range(4):
                used(keeper, x)
            {**WRITES, **QUIET}[name](x, rng)
            used(keeper, x)


@pytest.mark.parametrize("view", ["rows", "transposed", "read-only", "steps"])
def test_a_write_through_a_view_or_its_owner_is_seen_by_both(keeper, view):
    x = kept(keeper, array())
    y = VIEWS[view](x)
    if y.flags.writeable:
        y[2, 3] = -5
        assert used(keeper, x) is not None
    x[3:6] = 8
    used(keeper, y)


def test_only_parts_that_were_written_move_again(keeper, memories):
    x = kept(keeper, array(16 * MIB))
    memories.moved.clear()
    x[5, 7] = -1
    assert used(keeper, x) is not None
    assert sum(memories.moved) <= PART + mmap.PAGESIZE  # with bytes on pages that others share
    memories.moved.clear()
    x[1, 0], x[-2, -1] = 4, 5
    assert used(keeper, x) is not None
    assert sum(memories.moved) <= 2 * PART + mmap.PAGESIZE
    memories.moved.clear()
    x[0, 0] = 6
    assert used(keeper, x) is not None
    assert sum(memories.moved) <= (mmap.PAGESIZE if memories.ring is None else HASHED_BYTES)
    memories.moved.clear()
    assert used(keeper, x) is not None
    assert memories.moved == []
    assert counts() == {"moved": 1, "moved in part": 3, "unchanged": 1}


def test_a_part_is_protected_before_it_is_read(memories):
    """A write while a part moves is seen by the next call."""
    keeper = keeper_of(memories)
    x = array()
    memories.after = lambda: x.__setitem__((5, 5), x[5, 5] + 1)
    keeper.seen(x, x.nbytes)
    keeper.seen(x, x.nbytes)
    keeper.find(x)
    memories.after = None
    assert used(keeper, x) is not None
    keeper.release()


def test_what_is_mostly_written_is_dropped_and_tried_again_later_each_time(keeper, memories):
    x = array()
    uses = []
    for round in range(5):
        x[:] = round
        count = 0
        while keeper.nbytes == 0:
            used(keeper, x)
            count += 1
        uses.append(count)
        x[:9] = -1
        assert keeper.find(x) is None
        assert memories.live == 0
        assert not tracking._watches
    assert uses == [2, 3, 5, 9, 17]
    assert counts()["dropped: written over"] == 5


def test_what_was_unchanged_for_long_is_dropped_too_when_most_of_it_is_written(keeper):
    x = kept(keeper, array())
    for _ in range(60):
        assert keeper.find(x) is not None
    x[:9] = -1
    assert keeper.find(x) is None


def test_a_program_that_writes_over_an_array_in_each_step_pays_once(keeper, memories):
    x = array()
    watches = 0
    for step in range(50):
        x[:] = step
        for _ in range(2):
            used(keeper, x)
        watches += bool(tracking._watches)
    assert watches <= 1


def test_a_program_that_writes_parts_of_an_array_that_cost_more_than_they_save_pays_once(keeper,
                                                                                         memories):
    """Each write to a tracked page takes as long as moving 25: a third of an array in each step is
    not worth it. Where hashes are compared, writes cost nothing."""
    x = kept(keeper, array(24 * MIB))
    for _ in range(3):
        x[:5] += 1
        used(keeper, x)
    assert keeper.nbytes == (0 if memories.ring is None else x.nbytes)
    x = kept(keeper, array(24 * MIB))
    for step in range(60):
        x[step % 16, :1000] += 1                        # a page or two
        assert used(keeper, x) is not None


def _direct_file(tmp_path, nbytes):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(nbytes))
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        pytest.skip(f"this file system reads no files past its cache: {error}")


def test_a_disk_that_writes_to_another_part_of_an_array_meanwhile(keeper, tmp_path):
    """A read with O_DIRECT marks pages as written when it begins; its data arrive later. Calls with
    other parts leave the marks."""
    file = _direct_file(tmp_path, 16 * MIB)
    x = np.frombuffer(mmap.mmap(-1, 16 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
                      np.uint8).reshape(16, MIB)
    kept(keeper, x)
    for i in range(150):
        slot = 1 + i % 15
        thread = threading.Thread(target=os.preadv,
                                  args=(file, [memoryview(x[slot])], i * 7 % 16 * MIB))
        thread.start()
        while thread.is_alive():
            keeper.find(x[0])
        thread.join()
        assert used(keeper, x[slot]) is not None
        used(keeper, x)
        if keeper.nbytes == 0:
            keeper.release()
            kept(keeper, x)
    os.close(file)


@pytest.mark.parametrize("where", ["written", "upload", "between"])
def test_an_interrupted_call(keeper, memories, monkeypatch, where):
    """As Ctrl-C in a notebook, which goes on with the same arrays."""
    x = kept(keeper, array())
    x[3, 3] = -1

    ask = tracking._ask if memories.ring is None else Hashes._hashed

    def interrupted(*given):
        if where == "written":
            ask(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if where == "written":
            patch.setattr(*(tracking, "_ask") if memories.ring is None else (Hashes, "_hashed"),
                          interrupted)
        elif where == "upload":
            patch.setattr(memories, "upload", interrupted)
        else:
            patch.setattr(memories, "pinned", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keeper.find(x)
    for _ in range(4):
        used(keeper, x)
    assert keeper.nbytes


def test_a_handler_of_signals_that_multiplies_while_parts_move(keeper, memories):
    x, found = kept(keeper, array()), []
    x[3, 3] = -1
    memories.before = lambda: found.append(used(keeper, x))
    assert used(keeper, x) is not None
    assert set(found) == {None}
    memories.before = None


def test_strides_of_an_owner_that_reach_past_its_bytes(keeper):
    buffer = bytearray(16 * MIB)
    x = kept(keeper, np.frombuffer(buffer, np.float64, MIB))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.strides = (16,)
    assert keeper.find(x) is None
    assert keeper.seen(x, x.nbytes) is None


# -- what is never kept, and what is whose ---------------------------------------------------------
def _shared():
    block = shared_memory.SharedMemory(create=True, size=4 * MIB)
    block.unlink()
    return np.ndarray(4 * MIB, np.uint8, block.buf), block


def _memmap(path):
    path.write_bytes(bytes(4 * MIB))
    return np.memmap(path, np.uint8, "r+")


@pytest.mark.parametrize("make", [_shared, lambda: np.frombuffer(mmap.mmap(-1, 4 * MIB), np.uint8)],
                         ids=["shared_memory", "mmap"])
def test_shared_memory_is_not_tracked(keeper, memories, make):
    x = make()
    x, _block = x if isinstance(x, tuple) else (x, None)
    if memories.ring is not None:
        kept(keeper, x)
        if not (process := os.fork()):
            x[3 * MIB] = 7
            os._exit(0)
        os.waitpid(process, 0)
        assert x[3 * MIB] == 7
        assert used(keeper, x) is not None
        return
    for _ in range(5):
        assert used(keeper, x) is None
    assert [why for why in counts() if "shared memory" in why]
    assert list(counts().values()) == [3]               # at the second, third and fifth use


@pytest.mark.parametrize("mode", ["r+", "r", "c"])
def test_files_are_not_tracked(keeper, memories, tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * MIB))
    for x in (np.memmap(path, np.uint8, mode), np.asarray(np.memmap(path, np.uint8, mode))[5:]):
        for _ in range(2 if memories.ring is not None else 5):
            assert used(keeper, x) is None or memories.ring is not None
        if memories.ring is not None:                   # others write to the file
            with path.open("r+b") as file:
                for at in (0, 2 * MIB, 4 * MIB - 1):
                    file.seek(at)
                    file.write(b"5")
                    file.flush()
                    assert used(keeper, x) is not None


@pytest.mark.parametrize("kind", ["bytearray", "bytes", "ctypes", "mmap", "memoryview"])
def test_arrays_over_memory_of_other_objects_are_kept(keeper, kind):
    n = 16 * MIB
    make = {"bytearray": lambda: bytearray(n), "bytes": lambda: bytes(n),
            "ctypes": lambda: (ctypes.c_uint8 * n)(),
            "mmap": lambda: mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
            "memoryview": lambda: memoryview(np.zeros(n, np.uint8))}
    buffer = make[kind]()
    x = kept(keeper, np.frombuffer(buffer, np.uint8))
    # an owner of its own, of the same pages
    y = kept(keeper, np.frombuffer(buffer, np.uint8, offset=100))
    if kind != "bytes":
        memoryview(buffer).cast("B")[n // 2] = 77
    for z in (x, y, x[1:], y[1:]):
        assert used(keeper, z) is not None
    if kind != "bytes":
        x[150] = 3
        for z in (y, x):
            assert used(keeper, z) is not None


def test_a_read_only_array_whose_owner_is_written(keeper):
    x = array()
    y = x[:]
    y.setflags(write=False)
    kept(keeper, y)
    x[1, 1] = 7
    assert used(keeper, y) is not None
    x.setflags(write=False)
    assert used(keeper, x) is not None
    x.setflags(write=True)
    x[2, 2] = 7
    assert used(keeper, x) is not None


def test_objects_and_gaps_are_not_kept(keeper):
    for x in (np.empty(MIB, object), np.ndarray((2, MIB), np.float64, strides=(0, 8))):
        for _ in range(3):
            assert keeper.find(x) is None
            assert keeper.seen(x, x.nbytes) is None


def test_an_array_whose_base_is_not_where_its_memory_is(keeper):
    """Bases that only keep memory alive have other addresses."""
    class Elsewhere:
        def __init__(self, x, keeps):
            self.__array_interface__ = x.__array_interface__
            self.keeps = keeps

    x, other = array(), kept(keeper, array())
    as_other = np.asarray(Elsewhere(x, other))
    for _ in range(3):
        used(keeper, as_other)
    x[3] = 1
    used(keeper, as_other)


@pytest.mark.parametrize("nbytes", [80 * MIB, 3 * MIB, 8 * MIB - 4096, 8 * MIB])
def test_resized_arrays(keeper, memories, nbytes):
    """NumPy resizes no array that has weak references: one that was only seen has none."""
    x = np.arange(MIB, dtype=np.float64)
    assert used(keeper, x) is None
    x.resize(nbytes // 8, refcheck=False)
    used(keeper, x)
    used(keeper, x)
    with pytest.raises(ValueError, match="cannot resize"):
        x.resize(MIB + 1, refcheck=False)
    keeper.leave(x)
    x.resize(MIB + 1, refcheck=False)
    for _ in range(3):
        used(keeper, x)


def test_memory_that_is_moved_under_an_array(keeper, memories):
    """As C code may do."""
    libc, word = ctypes.CDLL(None), ctypes.c_size_t
    libc.mremap.restype = ctypes.c_void_p
    x = kept(keeper, array())
    page = mmap.PAGESIZE
    low = -(-x.ctypes.data // page) * page
    # it cannot grow where it is
    at = libc.mremap(ctypes.c_void_p(low), word(MIB), word(2 * MIB), 1)
    assert at != low
    assert keeper.find(x) is None
    assert memories.live == 0
    assert libc.mremap(ctypes.c_void_p(at), word(2 * MIB), word(MIB), 3,
                       ctypes.c_void_p(low)) == low
    x[5] = 2
    for _ in range(4):
        used(keeper, x)
    x[6, 6] = 2
    assert used(keeper, x) is not None


def test_addresses_that_are_used_again(keeper, memories):
    addresses = set()
    for i in range(40):
        x = np.full(MIB, i, np.float64)
        addresses.add(x.ctypes.data)
        assert keeper.find(x) is None
        kept(keeper, x)
        del x
        assert memories.live == 0
    assert len(addresses) < 40


def test_shape_type_and_strides_of_an_owner_may_be_set(keeper):
    x = kept(keeper, array())
    x.shape = -1
    assert used(keeper, x) is not None
    x.dtype = np.uint16
    x[5] = 7
    assert used(keeper, x) is not None


# -- children --------------------------------------------------------------------------------------
@pytest.mark.parametrize("uses_cuda", [False, True])
def test_children_of_fork(keeper, memories, monkeypatch, uses_cuda):
    """A child has no copies, and frees none where that would be a call of its parent's driver; the
    parent keeps its own. Threads that make hashes are its parent's, too."""
    if memories.ring is not None and not uses_cuda:
        pytest.skip("there are no such threads without CUDA")
    monkeypatch.setattr("cuteblas._forks._uses_cuda", uses_cuda)
    x = kept(keeper, array())
    process = os.fork()
    if not process:
        status = 1
        try:
            if uses_cuda:
                assert keeper.expected(x) == 0
                assert memories.live == 1
            assert keeper.find(x) is None
            if memories.ring is not None:
                status = 0
                return
            x[:] = 2
            for _ in range(4):
                used(keeper, x)
            x[3] = 5
            for _ in range(4):
                used(keeper, x)
            before = memories.live
            del x
            assert memories.live == before - 1
            assert memories.live == uses_cuda
            status = 0
        finally:
            os._exit(status)
    x[2, 2] = 9
    assert used(keeper, x) is not None
    assert os.waitpid(process, 0)[1] == 0
    assert used(keeper, x) is not None
    x[3, 3] = 9
    assert used(keeper, x) is not None


# -- limits ----------------------------------------------------------------------------------------
def test_the_least_recently_used_leave_first(memories):
    keeper = keeper_of(memories, 5 * MIB)
    a, b, c = (array(2 * MIB) for _ in range(3))
    kept(keeper, a)
    kept(keeper, b)
    assert used(keeper, a) is not None
    kept(keeper, c)
    assert keeper.find(b) is None
    assert keeper.find(a) is not None
    assert keeper.find(c) is not None
    assert keeper.nbytes == 4 * MIB
    large = array(6 * MIB)
    for _ in range(5):
        assert used(keeper, large) is None
    assert keeper.nbytes == 4 * MIB
    keeper.limit = 3 * MIB
    kept(keeper, b)
    assert keeper.nbytes == 2 * MIB
    assert counts()["dropped: memory was wanted"] == 3
    assert keeper.shrink(1) == 2 * MIB
    assert keeper.shrink(1) == 0
    keeper.release()
    assert not tracking._watches


def test_no_more_samples_than_some_are_remembered(keeper, monkeypatch):
    monkeypatch.setattr(keeping, "_MOST_OWNERS", 4)
    x, others = kept(keeper, array(2 * MIB)), [array(MIB) for _ in range(9)]
    for y in others:
        assert used(keeper, y) is None
        assert len(keeper._owners) <= 4
    assert keeper.find(x) is not None
    assert used(keeper, others[0]) is None              # forgotten


def test_shrink_drops_no_more_than_it_has_to(memories):
    keeper = keeper_of(memories)
    arrays = [kept(keeper, array(2 * MIB)) for _ in range(6)]
    assert keeper.shrink(3 * MIB) == 4 * MIB
    assert [keeper.find(x) is not None for x in arrays] == [False] * 2 + [True] * 4
    assert keeper.shrink(2 * MIB) == 2 * MIB
    keeper.release()
    assert memories.live == 0


def test_a_device_without_memory(keeper, memories):
    x = array()
    memories.full = True
    for _ in range(4):
        assert used(keeper, x) is None
    assert not tracking._watches
    assert [why for why in counts() if why.startswith("not: ")]
    memories.full = False
    assert used(keeper, x) is not None


def test_an_upload_that_fails_leaves_no_copy(keeper, memories):
    x = kept(keeper, array())
    x[0, 0] = 5

    def fail():
        raise RuntimeError("refused")

    memories.after = fail
    with pytest.raises(RuntimeError, match="refused"):
        keeper.find(x)
    assert keeper.nbytes == memories.live == 0
    assert not tracking._watches
    keeper.seen(x, x.nbytes)
    with pytest.raises(RuntimeError, match="refused"):
        keeper.seen(x, x.nbytes)
    assert keeper.nbytes == memories.live == 0
    memories.after = None
    kept(keeper, x)


def test_memory_that_devices_write_to_is_not_kept(keeper, memories):
    x = array()
    memories.pins = [(x.ctypes.data + 5 * MIB, x.ctypes.data + 6 * MIB)]
    for _ in range(4):
        assert used(keeper, x) is None
    memories.pins = []
    assert used(keeper, x) is not None
    x[0, 0] = 5                                         # pinning writes
    memories.pins = [(x.ctypes.data, x.ctypes.data + 1)]
    assert keeper.find(x) is None
    assert memories.live == 0
    keeper._useful.add("a")
    keeper.result(x, memories.copy(x), "a")
    assert keeper.nbytes == memories.live == 0


def test_uploads_may_free_copies(keeper, memories):
    """As an allocation does that fails: the copy in use stays right."""
    x, y = kept(keeper, array()), kept(keeper, array())
    x[0, 0] = 5
    memories.after = lambda: keeper.shrink(1 << 40)
    assert used(keeper, x) is not None
    memories.after = None
    assert keeper.nbytes == memories.live * x.nbytes == 0
    assert used(keeper, y) is None


def test_without_room_nothing_is_remembered(memories):
    keeper, x = keeper_of(memories, 0), array()
    for _ in range(4):
        assert used(keeper, x) is None
    keeper.result(x, memories.copy(x), "kind")
    assert not keeper._owners


@pytest.mark.parametrize("value, keeps", [("0", False), ("", False), ("1", True)])
def test_the_environment_turns_it_on(monkeypatch, value, keeps):
    monkeypatch.setenv("CUTEBLAS_KEEP_ARRAYS", value)
    settings.keeps_arrays.cache_clear()
    try:
        assert settings.keeps_arrays() is keeps
    finally:
        monkeypatch.undo()
        settings.keeps_arrays.cache_clear()


def test_where_nothing_is_tracked_nothing_is_kept(memories):
    class Never:
        def __init__(self, low, high):
            raise Untracked("no tracking here")

    keeper, x = Keeper(memories, 1 << 30, Never), array()
    for _ in range(6):
        assert used(keeper, x) is None
    assert counts() == {"not: no tracking here": 3}
    assert memories.live == 0


def test_another_kind_of_watch(memories):
    """One that compares, where the kernel sees nothing."""
    class Compared:
        bytes_written = 0

        def __init__(self, low, high):
            self.low, self.high, self.before = low, high, b""           # nothing is as before

        def moving(self, low, high):
            pass

        def protect(self):
            self.before = ctypes.string_at(self.low, self.high - self.low)

        def written(self, low=0, high=0, again=False):
            now = ctypes.string_at(self.low, self.high - self.low)
            parts = [(self.low + i, min(self.low + i + PART, self.high))
                     for i in range(0, len(now), PART)
                     if now[i:i + PART] != self.before[i:i + PART]]
            self.before = now
            return parts

        def end(self):
            self.before = b""

    keeper, x = Keeper(memories, 1 << 30, Compared), array()
    kept(keeper, x)
    x[4, 4] = 9
    assert used(keeper, x) is not None
    assert memories.moved[-1] == PART
    assert sum(memories.moved) == x.nbytes + PART


# -- results ---------------------------------------------------------------------------------------
def test_results_are_kept_once_their_kind_was_used(keeper, memories):
    def made():
        x = array()
        keeper.result(x, memories.copy(x), "product")
        return x

    first = made()
    assert keeper.nbytes == 0
    assert used(keeper, first) is None               # it shows that results of this kind come again
    second = made()
    assert keeper.nbytes == second.nbytes
    moved = len(memories.moved)
    assert used(keeper, second) is not None
    assert len(memories.moved) == moved
    second[1, 1] = -3
    assert used(keeper, second) is not None
    assert used(keeper, first) is not None              # a second use


def test_results_that_are_thrown_away_are_not_kept_again(keeper, memories):
    def made(kind):
        x = array()
        keeper.result(x, memories.copy(x), kind)
        return x

    used(keeper, made("a"))
    assert keeper.nbytes == 0
    made("a")                                           # kept, and not used
    x = made("a")
    assert keeper.nbytes == 0
    used(keeper, x)
    y = made("a")
    assert keeper.nbytes
    y[:] = 3
    assert used(keeper, y) is None                      # written over before it was used
    z = made("a")
    assert keeper.nbytes == 0
    made("b")
    assert keeper.nbytes == 0
    z[:] = 4
    used(keeper, z)                                     # not as it was
    made("a")
    assert keeper.nbytes == 0


def test_a_result_that_is_written_after_it_was_kept(keeper, memories):
    keeper._useful.add("a")
    x = array()
    keeper.result(x, memories.copy(x), "a")
    x[2, 2] = 1
    assert used(keeper, x) is not None
    keeper.result(x[:4], memories.copy(x[:4]), "a")     # not all of it
    assert used(keeper, x) is not None
    x[:] = 8
    keeper.result(x, memories.copy(x), "a")
    assert used(keeper, x) is not None
    assert memories.live == 1
    keeper.result(x.T, memories.copy(x), "b")
    assert keeper.nbytes == 0


def test_an_array_that_a_call_writes_over_is_left_first(keeper, memories):
    x = kept(keeper, array())
    keeper.leave(x[:2])
    assert keeper.nbytes
    keeper.leave(x)
    assert keeper.nbytes == memories.live == 0
    assert not tracking._watches
    kept(keeper, x)                                     # at no cost to its patience
    keeper.leave(array())


# -- threads ---------------------------------------------------------------------------------------
def test_an_owner_that_dies_in_another_thread_meanwhile(keeper, memories):
    x = [kept(keeper, array())]
    with keeper.lock:
        thread = threading.Thread(target=x.clear)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        assert memories.live == 1
    y = array()
    keeper.find(y)
    assert memories.live == 0
    assert not tracking._watches


def test_an_owner_that_dies_inside_of_a_call(keeper, memories):
    x, y = kept(keeper, array()), [kept(keeper, array())]
    x[0, 0] = 2
    memories.after = y.clear
    assert used(keeper, x) is not None
    memories.after = None
    assert memories.live == 1
    assert keeper.nbytes == x.nbytes


def test_threads_with_arrays_of_their_own(memories):
    keeper, errors = keeper_of(memories, 12 * MIB), []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            x = array(2 * MIB)
            for _ in range(150):
                if rng.random() < 0.05:
                    x = array(2 * MIB)
                elif rng.random() < 0.5:
                    x[rng.integers(16), rng.integers(1000)] += 1
                elif rng.random() < 0.05:
                    keeper.shrink(2 * MIB)
                used(keeper, x)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    keeper.release()
    assert memories.live == 0


def test_two_keepers_of_one_array(memories):
    """Each device has its copy, and sees all writes."""
    keepers, x = [keeper_of(Memories(memories.ring)), keeper_of(memories)], array()
    for keeper in keepers:
        kept(keeper, x)
    for i in range(4):
        x[i, i] = -1
        for keeper in keepers[::1 - 2 * (i % 2)]:
            assert used(keeper, x) is not None
    keepers[0].release()
    x[5, 5] = -1
    assert used(keepers[1], x) is not None
    keepers[1].release()


@pytest.mark.parametrize("order", [1, -1])
def test_two_keepers_of_parts_with_gaps(memories, order):
    """Neither covers the first and the last 2 MiB: each is told of them once after every write."""
    others, x = Memories(memories.ring), array(24 * MIB)
    keepers = {"left": keeper_of(memories), "right": keeper_of(others)}
    views = {"left": x[:, :x.shape[1] // 2], "right": x[:, x.shape[1] // 2:]}
    turns = [*keepers][::order]
    for _ in range(4):
        for name in turns:
            used(keepers[name], views[name])
    rng = np.random.default_rng(3)
    for step in range(40):
        row, column = rng.integers((0, 0), x.shape) if step % 4 else (0, 7)
        x[row, column] += 1
        for name in turns[::1 - 2 * (step % 2)]:
            assert used(keepers[name], views[name]) is not None
        if step % 3:
            used(keepers[turns[0]], x[row:])
        for name in turns:
            used(keepers[name], views[name])
        memories.moved.clear()
        others.moved.clear()
        for name in turns:
            assert used(keepers[name], views[name]) is not None
        assert memories.moved == others.moved == []
    for keeper in keepers.values():
        keeper.release()


def test_random_programs(memories):
    options = [] if memories.ring is None else ["--hashes"]
    assert fuzzer.main(["--steps", "1500", "--seed", "3", *options]) == 0


def test_the_fuzzer_sees_a_copy_that_is_not_right(memories, monkeypatch):
    watch, options = (Watch, []) if memories.ring is None else (Hashes, ["--hashes"])
    look = watch.written
    monkeypatch.setattr(
        watch,
        "written",
        lambda self, low=0, high=0, again=False: look(self, low, high, again) and []
    )
    assert fuzzer.main(["--steps", "400", "--seed", "3", *options]) == 1


def test_every_kind_of_owner_is_known_by_a_weak_reference(keeper):
    x = kept(keeper, np.ndarray.__new__(type("Own", (np.ndarray,), {}), (16, MIB // 4), np.float32))
    alive = weakref.ref(x)
    del x
    assert alive() is None
    assert keeping._LEAST_BYTES == MIB
