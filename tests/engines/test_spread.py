"""Streams and events alone order devices: memory is read after it was written, and written again
after it was read."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

import cuteblas
from cuteblas.engines import peer_copies, spread
from cuteblas.engines.cuda import CUDA
from cuteblas.engines.streamed import Operand, Tiled
from cuteblas.planning import sharding
from tests.functions import host_cupy
from tests.functions.host_cupy import on_gpu, on_host
from tests.functions.late_peers import at

NVLINK, PCIE = 390e9, 25e9
TOPOLOGIES = {"all to all": lambda one, other: NVLINK,
              "pairs": lambda one, other: NVLINK if one // 2 == other // 2 else PCIE,
              "PCIe": lambda one, other: PCIE}


def words(address, width, modes, of):
    """The addresses of the elements of a box."""
    starts = [address + sum(i * mode[of] for i, mode in zip(index, modes, strict=True))
              for index in product(*(range(mode[0]) for mode in modes))]
    return [start + offset for start in starts for offset in range(0, width, 4)]


def of_array(x):
    """Those of an array."""
    modes = [(n, stride) for n, stride in zip(x.shape, x.strides, strict=True)]
    return words(x.data.ptr, 4, modes, 1) if x.size else []


class Witness:
    """Devices at which everything happens at once, and each access of a word is compared with those
    before it: it has to come after them by the order of streams and by events that were waited for.

    A stream's clock counts, of each stream, what has happened for sure before what it begins next.
    """

    def __init__(self, rate):
        self.rate, self.current = rate, 0
        self.clocks = defaultdict(lambda: defaultdict(int))
        self.written, self.read = {}, defaultdict(list)
        self.memory, self.left = [], defaultdict(int)
        self.between, self.touched = [], []

    @contextmanager
    def on(self, device):
        before, self.current = self.current, device
        try:
            yield
        finally:
            self.current = before

    def connected(self, device, other):
        return True

    def record(self, device, lane):
        return dict(self.clocks[device, lane])

    def wait(self, device, lane, event):
        clock = self.clocks[device, lane]
        for stream, count in event.items():
            clock[stream] = max(clock[stream], count)

    def happens(self, stream, reads, writes):
        clock = self.clocks[stream]
        clock[stream] += 1
        here = stream, clock[stream]
        for word in [*reads, *writes]:
            other, count = self.written.get(word, (stream, 0))
            assert clock[other] >= count, f"{stream} does not wait for what {other} writes"
        for word in writes:
            for other, count in self.read.pop(word, ()):
                assert clock[other] >= count, f"{stream} overwrites what {other} may still read"
            self.written[word] = here
        for word in reads:
            if not self.read[word] or self.read[word][-1] != here:
                self.read[word].append(here)

    def copy(self, lane, target, source, width, modes):
        accesses = words(source[1], width, modes, 2), words(target[1], width, modes, 1)
        self.happens(lane, *accesses)
        if source[0] != target[0]:
            self.between.append((lane, self.clocks[lane][lane], accesses))
            self.left[source[0], target[0]] += width * int(np.prod([mode[0] for mode in modes]))
        for index in product(*(range(mode[0]) for mode in modes)):
            to, origin = (base + sum(i * mode[j] for i, mode in zip(index, modes, strict=True))
                          for j, base in ((1, target[1]), (2, source[1])))
            at(to, width)[:] = at(origin, width)

    def touch(self, *arrays):
        self.touched += arrays

    def hold(self, events):
        """What devices copied between them is kept, until after the copy."""
        kept = {word for x in self.touched for word in of_array(x)}
        for lane, count, accesses in self.between:
            assert any(event.get(lane, 0) >= count for event in events), f"nobody follows {lane}"
            assert kept.issuperset(accesses[0]) and kept.issuperset(accesses[1])
        self.between, self.touched = [], []

    def let_go(self, _nbytes=0):
        return 0

    def kernels(self, reads, write):
        """Kernels on the current device."""
        assert all(x.data.device_id == self.current for x in (*reads, write))
        self.happens((self.current, "kernels"), [word for x in reads for word in of_array(x)],
                     of_array(write))

    def alloc(self, nbytes):
        pointer = host_cupy.allocate(nbytes)
        memory = cupy.cuda.UnownedMemory(pointer.ptr, max(nbytes, 4), pointer, self.current)
        new = cupy.cuda.MemoryPointer(memory, 0)
        self.memory.append(cupy.ndarray((nbytes // 4,), np.float32, new))
        return new


@pytest.fixture
def small(monkeypatch):
    for name, value in (("_ROWS", 4), ("_TILE_BYTES", 64), ("_LEAST_EXTENT", 3), ("_ASKING", 0.0),
                        ("_LAUNCHES", 0.0)):
        monkeypatch.setattr(sharding, name, value)
    monkeypatch.setattr(peer_copies, "_way", peer_copies._way.__wrapped__)


def installed(monkeypatch, rate, finer=1, least_run=4):
    """Replace all devices by a witness."""
    witness = Witness(rate)

    def move(src, dst):
        witness.kernels([src], dst)
        on_host(dst)[...] = on_host(src)

    monkeypatch.setattr(peer_copies, "_LEAST_RUN", least_run)
    monkeypatch.setattr(peer_copies, "Execution", lambda *_: SimpleNamespace(move=move))
    monkeypatch.setattr(CUDA, "empty", lambda memory: cupy.ndarray(
        memory.shape, memory.dtype, witness.alloc(int(np.prod(memory.shape)) * 4), memory.strides))
    monkeypatch.setattr(cupy.cuda, "alloc", witness.alloc)
    monkeypatch.setattr(spread, "peers", lambda: witness)
    plan = sharding.spread.__wrapped__
    monkeypatch.setattr(spread, "spread", lambda extents, held, devices, cost, rate, *_: plan(
        extents, held, devices, sharding.Cost(1.0), rate, finer,
        None if finer == 1 else spread._FEW_SLOTS))
    return witness


def in_parts(x, rng, count):
    """An array on one device, or divided along an axis among several."""
    axis, parts = int(rng.integers(x.ndim)), int(rng.integers(1, 5))
    cuts = sorted({int(cut) for cut in rng.integers(1, x.shape[axis] + 1, parts - 1)}
                  - {x.shape[axis]})
    order = "CF"[int(rng.integers(2))]
    return cuteblas.ShardedArray([on_gpu(part.copy(order), int(rng.integers(count)))
                                  for part in np.split(x, cuts, axis)], axis)


def whole(x):
    return np.concatenate([on_host(part) for part in x.shards], x.axis)


def matrices(x, y, z, multiply):
    """A product of matrices, or of stacks of them, in shards."""
    def operand(x, *core):
        return Operand(x, (0 if x.ndim > 2 else None, *(None if axis is None else x.ndim - axis
                                                        for axis in core), None))

    return Tiled("matmul", (operand(x, 2, None), operand(y, None, 1)), operand(z, 2, 1), multiply)


def by_the_caller(witness, *arrays):
    """What the caller does before and after a call; others may get the memory of slots."""
    for array in (*arrays, *witness.memory):
        with witness.on(array.data.device_id):
            witness.kernels([array], array)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_read_before_it_is_there_nor_overwritten_while_it_is_read(
    small, monkeypatch, seed, topology
):
    rng = np.random.default_rng(seed)
    count, finer = int(rng.choice([1, 2, 3, 4, 8])), int(rng.choice([1, 1, 2, 4]))
    batch = [int(rng.choice([1, 5]))][:seed % 3 == 0]
    m, n, k = (int(extent) for extent in rng.integers(1, 30, 3))
    a, b, c = (rng.integers(-8, 9, (*batch, *shape)).astype(np.float32)
               for shape in ((m, k), (k, n), (m, n)))
    reads_c = bool(rng.integers(2))
    expected = a @ b + c * reads_c
    witness = installed(monkeypatch, TOPOLOGIES[topology], finer,
                               int(rng.choice([4, 4, 24])))
    x, y, z = (in_parts(array, rng, count) for array in (a, b, c))
    by_the_caller(witness, *x.shards, *y.shards, *z.shards)

    def multiply(there, target):
        first, second = there
        witness.kernels([first, second, *[target] * reads_c], target)
        on_host(target)[...] = on_host(first) @ on_host(second) + (on_host(target) if reads_c
                                                                   else 0)

    spread.compute_over(range(count), matrices(x, y, z, multiply), sharding.Cost(1.0), reads_c)
    np.testing.assert_array_equal(whole(z), expected)
    assert not witness.between, "nothing keeps what is copied"
    by_the_caller(witness, *x.shards, *y.shards, *z.shards)


@pytest.mark.parametrize("tiles", range(4))
def test_what_has_begun_is_waited_for_after_an_error(small, monkeypatch, tiles):
    rng = np.random.default_rng(tiles)
    witness = installed(monkeypatch, TOPOLOGIES["all to all"])
    x, y, z = (in_parts(rng.random(shape, np.float32), rng, 4)
               for shape in ((30, 20), (20, 40), (30, 40)))
    by_the_caller(witness, *x.shards, *y.shards, *z.shards)
    begun = []

    def multiply(there, target):
        if len(begun) == tiles:
            raise RuntimeError("broken")
        begun.append(target)
        witness.kernels(there, target)

    with pytest.raises(RuntimeError, match="broken"):
        spread.compute_over(range(4), matrices(x, y, z, multiply), sharding.Cost(1.0))
    by_the_caller(witness, *x.shards, *y.shards, *z.shards)


@pytest.mark.parametrize("seed", range(24))
def test_arrays_are_assigned_in_any_shards(small, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    witness, count = installed(monkeypatch, TOPOLOGIES["all to all"]), int(rng.choice([1, 2, 4]))
    source, target = (rng.random((9, 12, 7), np.float32) for _ in range(2))
    x, y = (in_parts(array, rng, count) for array in (source, target))
    by_the_caller(witness, *x.shards, *y.shards)
    peer_copies.assign(witness, y, x)
    np.testing.assert_array_equal(whole(y), source)
    assert not witness.between, "nothing keeps what is copied"
    by_the_caller(witness, *x.shards, *y.shards)
