"""Products over several GPUs, on devices in this process's memory whose copies are late."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy")

import cuteblas
from cuteblas import blas
from cuteblas.engines import peer_copies, spread
from cuteblas.engines.cuda import CUDA
from cuteblas.planning import sharding, streaming
from cuteblas.planning.cost.hosts import HOST, HostCosts

from . import host_cupy
from .late_peers import at, several

on_gpu, on_host = host_cupy.on_gpu, host_cupy.on_host


@pytest.fixture
def small(monkeypatch):
    """Small products count as large ones."""
    monkeypatch.setattr(sharding, "_ROWS", 4)
    monkeypatch.setattr(sharding, "_TILE_BYTES", 64)
    monkeypatch.setattr(sharding, "_LEAST_EXTENT", 3)
    monkeypatch.setattr(sharding, "_ASKING", 0.0)
    monkeypatch.setattr(sharding, "_LAUNCHES", 0.0)
    monkeypatch.setattr(peer_copies, "_LEAST_RUN", 16)
    monkeypatch.setattr(peer_copies, "_way", peer_copies._way.__wrapped__)
    # the time of a product on one device is as long as it takes to be worth while
    whole = spread.spread.__wrapped__
    monkeypatch.setattr(
        spread,
        "spread",
        lambda extents, held, devices, cost, *rest: whole(
            extents, held, devices, sharding.Cost(1.0), *rest
        )
    )


def shards(x, cuts, devices, axis=0):
    parts = np.split(x, cuts, axis)
    return cuteblas.ShardedArray([on_gpu(part.copy("K"), device)
                                  for part, device in zip(parts, devices, strict=True)], axis)


def gathered(x):
    if isinstance(x, cuteblas.ShardedArray):
        return np.concatenate([on_host(part) for part in x.shards], x.axis)
    return on_host(x)


def integers(rng, shape, dtype=np.float32, order="C"):
    return np.asarray(rng.integers(-8, 9, shape), dtype, order=order)


CASES = [((20, 30), (30, 26)), ((64, 8), (8, 3)), ((3, 40), (40, 50)), ((30,), (30, 20)),
         ((20, 30), (30,)), ((5, 7, 9), (5, 9, 8)), ((6, 7, 9), (9, 8)),
         ((2, 3, 7, 9), (2, 3, 9, 8)), ((20, 0), (0, 20))]


@pytest.mark.parametrize("shapes", CASES)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("orders", ["CC", "FC", "CF"])
def test_whole_operands_on_one_device(small, shapes, count, orders):
    rng = np.random.default_rng(0)
    a, b = (integers(rng, shape, order=order) for shape, order in zip(shapes, orders, strict=True))
    with several(count) as late:
        c = cuteblas.matmul(on_gpu(a), on_gpu(b), devices="all")
        assert c.data.device_id == 0
        np.testing.assert_array_equal(on_host(c), a @ b)
        if count > 1 and a.ndim == b.ndim == 2 and a.size and min(a.shape[0], b.shape[1]) > 10:
            assert late.moved(0, 1) and late.moved(1, 0)
            assert late.moved(0, 1) <= a.nbytes + b.nbytes                  # nothing moves twice


@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("where", [(0, 1), (1, 0), (2, 1)])
def test_operands_in_shards(small, axes, where):
    rng = np.random.default_rng(1)
    a, b = integers(rng, (20, 30)), integers(rng, (30, 26), order="F")
    with several(3):
        x, y = shards(a, [9], where, axes[0]), shards(b, [11], (0, 1), axes[1])
        c = cuteblas.matmul(x, y, devices=[0, 1])
        np.testing.assert_array_equal(gathered(c), a @ b)
        expected = where if axes[0] == 0 else (0, 1) if axes[1] == 1 else None
        assert (c.devices == expected) if expected else c.data.device_id == where[0]


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 1), (2, None), (None, 3),
                                  (1, None)])
def test_stacks_along_two_axes_in_shards(small, axes):
    rng = np.random.default_rng(9)
    a, b = integers(rng, (4, 3, 20, 30)), integers(rng, (4, 3, 30, 26))
    with several(3):
        x, y = (on_gpu(z) if axis is None else shards(z, [z.shape[axis] // 2], (0, 1), axis)
                for z, axis in zip((a, b), axes, strict=True))
        c = cuteblas.matmul(x, y, devices=[0, 1])
        np.testing.assert_array_equal(gathered(c), a @ b)
        flat = cuteblas.matmul(on_gpu(a[0, 0]), y, devices=[0, 1])
        np.testing.assert_array_equal(gathered(flat), a[0, 0] @ b)


def test_out_anywhere_and_of_any_type(small):
    rng = np.random.default_rng(2)
    a, b = integers(rng, (20, 30)), integers(rng, (30, 26))
    with several(3):
        for out in (on_gpu(np.full((20, 26), 7, np.float32), 2),
                    on_gpu(np.full((20, 26), 7, np.float64), 1),
                    shards(np.full((20, 26), 7, np.float32), [5, 6], (2, 1, 0)),
                    on_gpu(np.full((26, 20), 7, np.float32), 1).T):
            assert cuteblas.matmul(on_gpu(a), on_gpu(b), out, devices=[0, 1]) is out
            np.testing.assert_array_equal(gathered(out), a @ b)
        square = integers(rng, (20, 20))
        x = on_gpu(square.copy())
        cuteblas.matmul(x, x, x, devices="all")    # a device may write what another one still reads
        np.testing.assert_array_equal(on_host(x), square @ square)


def test_strided_and_reversed_operands(small):
    rng = np.random.default_rng(3)
    a, b = integers(rng, (40, 60))[::-2, ::2], integers(rng, (30, 52))[:, ::-2]
    with several(2):
        c = cuteblas.matmul(on_gpu(a), on_gpu(b), devices="all")
        np.testing.assert_array_equal(on_host(c), a @ b)


def test_types_are_numpys(small):
    with several(2):
        a, b = on_gpu(np.ones((20, 30), np.float32)), on_gpu(np.ones((30, 20), np.int32))
        c = cuteblas.matmul(a, b, devices="all")
        assert c.dtype == np.float64
        np.testing.assert_array_equal(on_host(c), np.full((20, 20), 30.0))


@pytest.mark.parametrize("free", [700, 400])
def test_little_memory_makes_smaller_tiles(small, free):
    rng = np.random.default_rng(4)
    a, b = integers(rng, (40, 10)), integers(rng, (10, 60))
    with several(2) as late:
        x, y, out = on_gpu(a), on_gpu(b), on_gpu(np.zeros((40, 60), np.float32))
        late.free = {1: free}
        cuteblas.reset_stats()
        cuteblas.matmul(x, y, out, devices="all")
        np.testing.assert_array_equal(on_host(out), a @ b)
        assert cuteblas.stats()["matmul"]["moved"]["smaller tiles: no memory on a GPU"] > 0


def test_no_memory_at_all(small):
    with several(2) as late:
        x, out = on_gpu(np.ones((40, 40), np.float32)), on_gpu(np.zeros((40, 40), np.float32))
        late.free = {1: 0}
        with pytest.raises(spread.CUDA.out_of_memory):
            cuteblas.matmul(x, x, out, devices="all")


def test_small_products_stay_on_one_device():
    with several(4) as late:
        x = on_gpu(np.ones((40, 40), np.float32))
        cuteblas.matmul(x, x, devices="all")
        assert not any(late.copies.values())


@pytest.mark.parametrize(("devices", "words"),
                         [("some", "devices='all'"), ([], "each once"), ([0, 0], "each once"),
                          ([2], "devices 0 to 1"), ([-1], "each once"), ([0.0], "device numbers"),
                          ([True], "device numbers")])
def test_wrong_devices(devices, words):
    with several(2):
        x = on_gpu(np.ones((4, 4), np.float32))
        with pytest.raises((TypeError, ValueError), match=words):
            cuteblas.matmul(x, x, devices=devices)


def test_wrong_calls():
    with several(2):
        x = on_gpu(np.ones((4, 4), np.float32))
        for arguments in ({"epilogue": "relu"}, {"variant": "simt"}, {"dtype": "float32"}):
            with pytest.raises(TypeError, match="takes no"):
                cuteblas.matmul(x, x, devices="all", **arguments)
        with pytest.raises(ValueError, match="core dimension"):
            cuteblas.matmul(x, x[1:], devices="all")
        with pytest.raises(ValueError, match="batch axes"):
            cuteblas.matmul(on_gpu(np.ones((2, 4, 4), np.float32)),
                            on_gpu(np.ones((1, 4, 4), np.float32)), devices="all")


def test_shards_fit_together():
    x = on_gpu(np.ones((4, 5), np.float32))
    with pytest.raises(ValueError, match="at least one"):
        cuteblas.ShardedArray([])
    with pytest.raises(TypeError, match="CuPy"):
        cuteblas.ShardedArray([np.ones(3)])
    with pytest.raises(ValueError, match="only along axis 0"):
        cuteblas.ShardedArray([x, x.T])
    with pytest.raises(ValueError, match="one type"):
        cuteblas.ShardedArray([x, on_gpu(np.ones((4, 5)))])
    both = cuteblas.ShardedArray([x, on_gpu(np.ones((2, 5), np.float32), 1)])
    assert (both.shape, both.devices, both.nbytes, both.starts) == ((6, 5), (0, 1), 120, (0, 4))
    assert repr(both) == "ShardedArray(shape=(6, 5), dtype=float32, axis=0, devices=(cuda:0, cuda:1))"


def test_shards_of_an_array_and_back(monkeypatch):
    monkeypatch.setattr(peer_copies, "_LEAST_RUN", 1)
    monkeypatch.setattr(peer_copies, "_way", peer_copies._way.__wrapped__)
    x = np.arange(35.0).reshape(7, 5)
    with several(3) as late:
        for axis in (0, 1):
            divided = cuteblas.ShardedArray.of(on_gpu(x), (2, 0, 1), axis)
            assert divided.devices == (2, 0, 1)
            np.testing.assert_array_equal(gathered(divided), x)
            whole = divided.gathered(1)
            assert whole.data.device_id == 1
            np.testing.assert_array_equal(on_host(whole), x)
        assert late.moved(0, 2)


class Distributed:
    """As much of an array of ``cupyx.distributed`` as tells where its chunks are."""

    def __init__(self, shape, chunks, mode=None):
        self.shape, self.mode, self._chunks = shape, mode, chunks

    @property
    def index_map(self):
        return {device: [box for box, _array in chunks] for device, chunks in self._chunks.items()}

    def all_chunks(self):
        return {device: [array for _box, array in chunks]
                for device, chunks in self._chunks.items()}


Distributed.__module__ = "cupyx.distributed.array._array"


def test_arrays_of_cupyx_distributed(small):
    rng = np.random.default_rng(5)
    a, b = integers(rng, (20, 30)), integers(rng, (30, 26))
    cut = (slice(0, 9), slice(None)), (slice(9, 20), slice(None))
    with several(2):
        one, other = on_gpu(a[:9].copy(), 1), on_gpu(a[9:].copy(), 0)
        # a chunk may be on several
        x = Distributed(a.shape, {0: [(cut[1], other)], 1: [(cut[0], one), (cut[1], other)]})
        c = cuteblas.matmul(x, on_gpu(b), devices="all")
        assert c.devices == (1, 0)
        np.testing.assert_array_equal(gathered(c), a @ b)
        with pytest.raises(ValueError, match="change_mode"):
            cuteblas.matmul(Distributed(a.shape, {0: [(cut[0], one)]}, "sum"), on_gpu(b),
                            devices="all")
        with pytest.raises(ValueError, match="gaps"):
            gap = {0: [(cut[0], one), ((slice(10, 20), slice(None)), other)]}
            cuteblas.matmul(Distributed((20, 30), gap), on_gpu(b), devices="all")
        quarters = {0: [((slice(0, 9), slice(0, 15)), one), ((slice(9, 20), slice(15, 30)), other)]}
        with pytest.raises(ValueError, match="axes 0, 1"):
            cuteblas.matmul(Distributed((20, 30), quarters), on_gpu(b), devices="all")


@pytest.mark.parametrize("shapes", CASES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_arrays_of_the_host(monkeypatch, shapes, count):
    from contextlib import nullcontext
    from types import SimpleNamespace

    import cupy

    from cuteblas.runtime import peers

    from .host_link import linked

    monkeypatch.setattr(peers, "peers", lambda: SimpleNamespace(count=lambda: count))
    monkeypatch.setattr(cupy.cuda, "Device", lambda device: nullcontext())
    monkeypatch.setattr(HostCosts, "over_devices", lambda costs, alone, nbytes, count: -count)
    monkeypatch.setattr("cuteblas.functions.devices._exchange", lambda *arguments: None)
    rng = np.random.default_rng(6)
    a, b = (integers(rng, shape) for shape in shapes)
    with linked():
        cuteblas.reset_stats()
        np.testing.assert_array_equal(cuteblas.matmul(a, b, devices="all"), a @ b)
        if shapes == ((5, 7, 9), (5, 9, 8)):
            assert cuteblas.stats()["matmul"]["spread"] == {f"on cuda:{device}": 1
                                                            for device in range(count)}
        out = np.full((a @ b).shape, 7, np.float64)
        assert cuteblas.matmul(a, b, out, devices="all") is out
        np.testing.assert_array_equal(out, a @ b)
        if a.shape == b.shape[::-1] and a.ndim == 2 and a.shape[0] == a.shape[1]:
            assert cuteblas.matmul(a, b, a, devices="all") is a


@pytest.mark.parametrize(("dtype", "n", "count"), [
    ("float32", 2048, 1), ("float32", 8192, 1), ("float64", 8192, 1), ("float32", 16384, 2),
    ("float64", 16384, 2), ("float64", 32768, 3)])
def test_as_many_devices_as_end_first(dtype, n, count):
    size = n * n * np.dtype(dtype).itemsize
    alone = HOST.gpu_call(dtype, n**3, 2 * size, size, 16)
    assert min((1, 2, 3, 4), key=lambda each: HOST.over_devices(alone, 3 * size, each)) == count


class Together:
    """Devices with a link each: what one takes from another's memory has been waited for."""

    def __init__(self, count, monkeypatch):
        import threading
        from contextlib import contextmanager
        from types import SimpleNamespace

        import cupy

        from cuteblas.engines import host_cuda, streamed
        from cuteblas.functions import devices, tiles
        from cuteblas.runtime import peers

        from ..runtime.late_link import LateLink

        self.current, self.copied, self.count, self.waited = threading.local(), [], lambda: count, set()
        self.rings = [host_cuda.new_ring(LateLink(device), threads=1, slot_bytes=1 << 12)
                      for device in range(count)]

        @contextmanager
        def device(ordinal):
            self.current.device = ordinal
            yield

        monkeypatch.setattr(peers, "peers", lambda: self)
        monkeypatch.setattr("cuteblas.engines.exchange.peers", lambda: self)
        monkeypatch.setattr(cupy.cuda, "Device", device)
        pool = SimpleNamespace(free_all_blocks=lambda: None)
        monkeypatch.setattr(cupy, "get_default_memory_pool", lambda: pool)
        for module in (host_cuda, tiles, streamed):
            monkeypatch.setattr(module, "current_ring", lambda: self.rings[self.current.device])
        monkeypatch.setattr(HostCosts, "over_devices", lambda costs, alone, nbytes, count: -count)
        monkeypatch.setattr(devices, "_ROWS", 2)
        monkeypatch.setattr(tiles, "_STRAIGHT_BYTES", 0)
        monkeypatch.setattr("cuteblas.planning.streaming._PANEL_BYTES", 1 << 7)
        monkeypatch.setattr("cuteblas.planning.streaming._ROWS", 2)
        monkeypatch.setattr("cuteblas.planning.streaming._panels", streaming._panels.__wrapped__)

    def touch(self, *arrays):
        pass

    def hold(self, events):
        assert not events, "panels are kept by the exchange"

    def connected(self, device, other):
        return True

    def rate(self, device, other):
        return 1e12

    def record(self, device, lane):
        return device

    def wait(self, device, lane, event):
        self.waited.add((device, event))

    def copy(self, lane, target, source, width, modes):
        assert not modes and (target[0], source[0]) in self.waited
        self.copied.append((target[0], source[0], width))
        memoryview(at(target[1], width))[:] = at(source[1], width)

    def close(self):
        for ring in self.rings:
            ring.close()


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shapes", [((24, 40), (40, 30)), ((9, 40), (40, 64)), ((64, 40), (40, 9)),
                                    ((40,), (40, 64))])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("fails", [None, "first", "last", "all", "with an error"])
def test_devices_share_what_all_of_them_need(monkeypatch, count, shapes, order, fails):
    from cuteblas.engines import exchange

    from .host_link import linked

    rng = np.random.default_rng(7)
    a, b = (np.asarray(integers(rng, shape), np.float32, order) for shape in shapes)
    with linked():
        devices = Together(count, monkeypatch)
        cuteblas.reset_stats()
        if fails:
            begin, begun = exchange.Exchange.begin, []

            def without_memory(self, way, part):
                if fails == "with an error" and way.ring.link.ordinal == 1:
                    raise RuntimeError("broken")
                begun.append(way.ring.link.ordinal)
                if way.ring.link.ordinal == 0 and (
                    fails == "all" or begun.count(0) == (1 if fails == "first" else 3)
                ):
                    raise CUDA.out_of_memory(1, 1, 1)
                return begin(self, way, part)

            monkeypatch.setattr(exchange.Exchange, "begin", without_memory)
        try:
            if fails == "with an error" and min(a.ndim, b.ndim) == 2:
                with pytest.raises(RuntimeError, match="broken"):
                    cuteblas.matmul(a, b, devices="all")
                return
            np.testing.assert_array_equal(cuteblas.matmul(a, b, devices="all"), a @ b)
        finally:
            devices.close()
        shared = max((a, b), key=lambda x: x.size) if min(a.ndim, b.ndim) < 2 else None
        between = sum(width for _to, _origin, width in devices.copied)
        if fails is None and shared is None:
            assert between == (count - 1) * (b if len(a) >= b.shape[-1] else a).nbytes
        assert cuteblas.stats()["matmul"]["spread"].keys() == {f"on cuda:{device}"
                                                               for device in range(count)}


def test_devices_of_the_environment(monkeypatch):
    from cuteblas.engines import settings

    for named, found in (("", None), ("all", "all"), ("0", (0,)), ("1, 0", (1, 0))):
        monkeypatch.setenv("CUTEBLAS_DEVICES", named)
        assert settings.devices_of_environment.__wrapped__() == found
    monkeypatch.setenv("CUTEBLAS_DEVICES", "both")
    with pytest.raises(ValueError, match="CUTEBLAS_DEVICES"):
        settings.devices_of_environment.__wrapped__()


@pytest.mark.parametrize(("growth", "leaves", "expected"), [
    (8, False, [1 / 8, 7 / 8]), (8, True, [1 / 8, 6 / 8, 1 / 8]), (0, True, [7 / 8, 1 / 8]),
    (2, False, [1 / 8, 2 / 8, 4 / 8, 1 / 8]), (1, False, [1 / 8] * 8)])
def test_tiles_grow(growth, leaves, expected):
    assert sharding._growing(1 / 8, growth, leaves) == pytest.approx(expected)


# -- further functions -----------------------------------------------------------------------------
CONTRACTIONS = {
    "tensordot": (lambda x, y, **named: cuteblas.tensordot(x, y, 1, **named), (20, 30), (30, 26)),
    "two axes": (
        lambda x, y, **named: cuteblas.tensordot(x, y, ((0, 2), (1, 0)), **named),
        (5, 20, 6),
        (6, 5, 24)
    ),
    "outer": (lambda x, y, **named: cuteblas.tensordot(x, y, 0, **named), (5, 4), (24,)),
    "einsum": (
        lambda x, y, **named: cuteblas.einsum("abk,kc->cab", x, y, **named),
        (5, 6, 30),
        (30, 26)
    ),
    "batch": (
        lambda x, y, **named: cuteblas.einsum("iak,kib->bia", x, y, **named),
        (6, 12, 10),
        (10, 6, 14)
    ),
    "implicit": (lambda x, y, **named: cuteblas.einsum("ka,kb", x, y, **named), (30, 20), (30, 26)),
    "dot": (lambda x, y, **named: cuteblas.einsum("ab,ab->", x, y, **named), (30, 20), (30, 20)),
    "number": (lambda x, y, **named: cuteblas.einsum(",a->a", x, y, **named), (), (30,)),
    "alone": (lambda x, y, **named: cuteblas.einsum("ij,kl->il", x, y, **named), (20, 7), (6, 30)),
    "diagonal": (
        lambda x, y, **named: cuteblas.einsum("iik,ij->ji", x, y, **named),
        (20, 20, 6),
        (20, 30)
    ),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("orders", ["CC", "FC", "CF"])
def test_contractions(small, name, count, orders):
    call, *shapes = CONTRACTIONS[name]
    rng = np.random.default_rng(7)
    a, b = (integers(rng, shape, order=order) for shape, order in zip(shapes, orders, strict=True))
    expected = call(a, b)
    with several(count) as late:
        c = call(on_gpu(a), on_gpu(b), devices="all")
        np.testing.assert_array_equal(gathered(c), expected)
        for axis_a in range(a.ndim):
            x = shards(a, [a.shape[axis_a] // 3], (0, count - 1), axis_a)
            np.testing.assert_array_equal(gathered(call(x, on_gpu(b, count - 1), devices="all")),
                                          expected)
            y = shards(b, [b.shape[-1] // 2], (count - 1, 0), b.ndim - 1)
            np.testing.assert_array_equal(gathered(call(x, y, devices="all")), expected)
        if name in ("tensordot", "two axes", "einsum") and count > 1:
            assert late.moved(0, 1)


def test_contractions_into_out(small):
    rng = np.random.default_rng(8)
    a, b = integers(rng, (5, 6, 30)), integers(rng, (30, 26))
    expected = np.einsum("abk,kc->cab", a, b)
    with several(3):
        for out in (on_gpu(np.full(expected.shape, 7, np.float32), 2),
                    on_gpu(np.full(expected.shape, 7, np.float64, order="F"), 1),
                    shards(np.full(expected.shape, 7, np.float32), [5, 9], (2, 1, 0)),
                    shards(np.full(expected.shape, 7, np.float32), [2], (0, 1), 2)):
            assert cuteblas.einsum("abk,kc->cab", on_gpu(a), on_gpu(b), out=out,
                                   devices="all") is out
            np.testing.assert_array_equal(gathered(out), expected)


def test_wrong_contractions():
    with several(2):
        x = on_gpu(np.ones((4, 4), np.float32))
        with pytest.raises(ValueError, match="one extent"):
            cuteblas.einsum("ij,jk->ik", x, x[:1], devices="all")
        with pytest.raises(ValueError, match="out has shape"):
            cuteblas.einsum("ij,jk->ik", x, x, out=on_gpu(np.ones((2, 4), np.float32)),
                            devices="all")
        with pytest.raises(TypeError, match="two arrays"):
            cuteblas.einsum("ij,jk,kl->il", x, x, x, devices="all")
        for name, value in (("optimize", True), ("variant", "simt"), ("order", "F")):
            with pytest.raises(TypeError, match=f"takes no {name}"):
                cuteblas.einsum("ij,jk->ik", x, x, devices="all", **{name: value})
        with pytest.raises(TypeError, match="takes no variant"):
            cuteblas.tensordot(x, x, 1, variant="simt", devices="all")
        with pytest.raises(ValueError, match="shape-mismatch"):
            cuteblas.tensordot(x, x[1:], 1, devices="all")
        with pytest.raises(ValueError):
            cuteblas.einsum("ij,jk->im", x, x, devices="all")


def blocks_of_c(c, where):
    if where == "rows":
        return shards(c, [7], (1, 0))
    return shards(c, [4, 11], (0, 2, 1), 1) if where == "columns" else on_gpu(c.copy(), where)


@pytest.mark.parametrize("letters", ["NN", "TN", "NT", "CR"])
@pytest.mark.parametrize("where", [0, 1, 2, "rows", "columns"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2, 1), (-1, 3), (0, 2), (1, 1)])
def test_gemm(small, letters, where, alpha, beta):
    rng = np.random.default_rng(9)
    dtype, routine = (np.complex64, blas.cgemm) if "C" in letters else (np.float32, blas.sgemm)
    a, b, c = integers(rng, (20, 30), dtype), integers(rng, (30, 26),
                                                       dtype), integers(rng, (20, 26), dtype)
    if dtype is np.complex64:
        a, b, c = (x + 1j * integers(rng, x.shape) for x in (a, b, c))
        a, b, c = (x.astype(dtype) for x in (a, b, c))
    expected = alpha * (a @ b) + beta * c
    given = [x.conj().T.copy() if way == "C" else x.T.copy() if way == "T" else x.conj()
             if way == "R" else x for x, way in zip((a, b), letters, strict=True)]
    named = {"trans_a": letters[0], "trans_b": letters[1], "devices": [0, 1]}
    with several(3) as late:
        x, y = on_gpu(given[0]), on_gpu(given[1])
        z = blocks_of_c(c, where)
        kept = routine(alpha, x, y, beta, z, **named)
        np.testing.assert_array_equal(gathered(kept), expected)
        np.testing.assert_array_equal(gathered(z), c)                      # only read
        assert routine(alpha, x, y, beta, z, overwrite_c=1, **named) is z
        np.testing.assert_array_equal(gathered(z), expected)
        out, z = blocks_of_c(np.full_like(c, np.nan), where), on_gpu(c, 2)
        assert routine(alpha, x, y, beta, z, out=out, **named) is out
        np.testing.assert_array_equal(gathered(out), expected)
        if alpha == 0 and where == 0:
            assert not late.moved(0, 1)                                  # A and B are not looked at


def test_gemm_of_stacks_and_types(small):
    rng = np.random.default_rng(10)
    a, b, c = (integers(rng, shape) for shape in ((6, 20, 30), (6, 30, 26), (6, 20, 26)))
    with several(2):
        result = blas.sgemm(1, shards(a, [2], (0, 1)), on_gpu(b), 2, on_gpu(c), devices="all")
        assert result.devices == (0, 1)
        np.testing.assert_array_equal(gathered(result), a @ b + 2 * c)
        x, y = integers(rng, (20, 30), np.float16), integers(rng, (30, 26), np.float16)
        wide = blas.gemm(1, on_gpu(x), on_gpu(y), dtype="float32", devices="all")
        assert wide.dtype == np.float32
        np.testing.assert_array_equal(on_host(wide), x.astype("f4") @ y.astype("f4"))
        x, y = integers(rng, (20, 30), np.int8), integers(rng, (30, 26), np.int8)
        np.testing.assert_array_equal(on_host(blas.igemm(1, on_gpu(x), on_gpu(y), devices="all")),
                                      x.astype("i4") @ y.astype("i4"))
        empty = blas.sgemm(1, on_gpu(a[0, :, :0].copy()), on_gpu(b[0, :0].copy()), 3,
                           on_gpu(c[0].copy(), 1), devices="all")
        np.testing.assert_array_equal(on_host(empty), 3 * c[0])


@pytest.mark.parametrize("free", [900, 500])
def test_gemm_with_little_memory(small, free):
    rng = np.random.default_rng(11)
    a, b, c = integers(rng, (40, 10)), integers(rng, (10, 60)), integers(rng, (40, 60))
    with several(2) as late:
        x, y, z = on_gpu(a), on_gpu(b), on_gpu(c.copy())
        late.free = {1: free}
        blas.sgemm(1, x, y, 1, z, overwrite_c=1, devices="all")
        np.testing.assert_array_equal(on_host(z), a @ b + c)


def test_wrong_gemm():
    with several(2):
        x, itself = on_gpu(np.ones((4, 4), np.float32)), np.lib.stride_tricks.as_strided(np.zeros(16, "f4"), (4, 4), (8, 4))
        for words, error, call in [("does not take epilogue", TypeError,
                                    lambda: blas.sgemm(1, x, x, epilogue="relu", devices="all")),
                                   ("does not take variant", TypeError,
                                    lambda: blas.sgemm(1, x, x, variant="simt", devices="all")),
                                   ("does not take stream", TypeError,
                                    lambda: blas.sgemm(1, x, x, stream=3, devices="all")),
                                   ("takes arrays, but b is None", TypeError,
                                    lambda: blas.sgemm(1, x, None, devices="all")),
                                   ("devices 0 to 1", ValueError,
                                    lambda: blas.sgemm(1, x, x, devices=[2])),
                                   ("a number as alpha", TypeError,
                                    lambda: blas.sgemm(x[0, 0], x, x, devices="all")),
                                   ("takes a in float64", TypeError,
                                    lambda: blas.dgemm(1, x, x, devices="all")),
                                   ("CuPy arrays", TypeError,
                                    lambda: blas.sgemm(1, x, [[1.0]], devices="all")),
                                   ("k is 4 in a and 3 in b", ValueError,
                                    lambda: blas.sgemm(1, x, x[1:], devices="all")),
                                   ("c of", ValueError,
                                    lambda: blas.sgemm(1, x, x, 1, x[1:], devices="all")),
                                   ("share memory", ValueError,
                                    lambda: blas.sgemm(1, x, x, out=x, devices="all")),
                                   ("elements of out share memory", ValueError,
                                    lambda: blas.sgemm(1, x, x, out=on_gpu(itself), devices="all")),
                                   ("elements of c share memory", ValueError,
                                    lambda: blas.sgemm(1, itself.copy(), itself.copy(), 1, itself,
                                                       overwrite_c=1, devices="all")),
                                   ("needs c, because", ValueError,
                                    lambda: blas.sgemm(1, x, x, 1,
                                                       out=on_gpu(np.ones((4, 4), np.float32)),
                                                       devices="all")),
                                   ("matrices", ValueError,
                                    lambda: blas.sgemm(1, x[0], x, devices="all"))]:
            with pytest.raises(error, match=words):
                call()


def test_more_of_the_host(monkeypatch):
    from contextlib import nullcontext
    from types import SimpleNamespace

    import cupy

    from cuteblas.runtime import peers

    from .host_link import linked

    monkeypatch.setattr(peers, "peers", lambda: SimpleNamespace(count=lambda: 2))
    monkeypatch.setattr(cupy.cuda, "Device", lambda device: nullcontext())
    rng = np.random.default_rng(12)
    with linked():
        for name, (call, *shapes) in CONTRACTIONS.items():
            a, b = (integers(rng, shape) for shape in shapes)
            result = call(a, b, devices="all")
            assert type(result) is type(call(a, b)), name
            np.testing.assert_array_equal(result, call(a, b))
        a, b, c = (np.asfortranarray(integers(rng, shape))
                   for shape in ((20, 30), (30, 26), (20, 26)))
        np.testing.assert_array_equal(blas.sgemm(2, a, b, 3, c, devices="all"), 2 * (a @ b) + 3 * c)
        np.testing.assert_array_equal(blas.sgemm(1, a, b, devices="all"), a @ b)
        assert blas.sgemm(1, a, b, out=c, devices="all") is c
        np.testing.assert_array_equal(c, a @ b)
        with pytest.raises(TypeError, match="summed in the same type"):
            blas.hgemm(1, a.astype("f2"), b.astype("f2"), devices="all")


@pytest.fixture
def keeps(monkeypatch):
    """Arrays of 4 KiB are kept from their second use on."""
    from cuteblas.engines import keeping
    from cuteblas.runtime.tracking import why_untracked

    if why_untracked() is not None:
        pytest.skip(why_untracked())
    monkeypatch.setattr(keeping, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(keeping, "_PATIENCE", 1)
    monkeypatch.setattr(keeping, "_limit", 1 << 30)
    return keeping


class Keeping:
    """Some such devices, and what moved up since the last question."""

    def __init__(self, count, monkeypatch, straight):
        from cuteblas.functions import tiles

        self.devices = Together(count, monkeypatch)
        self._before = 0
        monkeypatch.setattr(tiles, "_STRAIGHT_BYTES", straight)

    def moved(self):
        total = sum(ring.link.moved["up"] for ring in self.devices.rings)
        before, self._before = self._before, total
        return total - before


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("shapes", [((96, 40), (40, 30)), ((48, 400), (400, 96)),
                                    ((6, 48, 40), (6, 40, 30)), ((6, 48, 40), (40, 30)),
                                    ((4000,), (4000, 12))])
@pytest.mark.parametrize("orders", ["CC", "FC", "CF", "FF"])
@pytest.mark.parametrize("straight", [0, 64 << 20])
def test_devices_keep_their_parts(monkeypatch, keeps, count, shapes, orders, straight):
    from .host_link import linked

    rng = np.random.default_rng(7)
    a, b = (integers(rng, shape, np.float64, order)
            for shape, order in zip(shapes, orders, strict=True))
    with linked(few_bytes=256):
        there = Keeping(count, monkeypatch, straight)
        try:
            for _ in range(8):
                np.testing.assert_array_equal(cuteblas.matmul(a, b, devices="all"), a @ b)
            there.moved()
            np.testing.assert_array_equal(cuteblas.matmul(a, b, devices="all"), a @ b)
            assert not there.moved()
            for step in range(12):
                x = (a, b)[step % 2]
                x.reshape(-1, order="A")[rng.integers(x.size)] += 1
                for _ in range(step % 3 + 1):
                    np.testing.assert_array_equal(cuteblas.matmul(a, b, devices="all"), a @ b)
        finally:
            there.devices.close()


def test_results_in_parts_become_operands(monkeypatch, keeps):
    from .host_link import linked

    rng = np.random.default_rng(8)
    c, b = integers(rng, (96, 60), np.float64), np.eye(60)
    b[rng.permutation(60)] = b.copy()
    with linked():
        there = Keeping(2, monkeypatch, 0)
        try:
            for _ in range(7):
                expected = c @ b
                there.moved()
                c = cuteblas.matmul(c, b, devices="all")
                np.testing.assert_array_equal(c, expected)
            assert not there.moved()
            c[3] += 1
            np.testing.assert_array_equal(cuteblas.matmul(c, b, devices="all"), c @ b)
        finally:
            there.devices.close()


def test_parts_leave_with_their_array(monkeypatch, keeps):
    from .host_link import linked

    rng = np.random.default_rng(9)
    a, b = integers(rng, (96, 60), np.float64), integers(rng, (60, 40), np.float64)
    with linked():
        there = Keeping(2, monkeypatch, 0)
        try:
            for _ in range(2):
                cuteblas.matmul(a, b, devices="all")
            assert there.devices.copied                 # until it is kept, they share what all need
            for _ in range(2):
                cuteblas.matmul(a, b, devices="all")
            kept = [keeper.nbytes for keeper in keeps.keepers() if keeper.nbytes]
            assert kept == [a.nbytes / 2 + b.nbytes] * 2
            del a
            assert [keeper.nbytes for keeper in keeps.keepers() if keeper.nbytes] == [b.nbytes] * 2
        finally:
            there.devices.close()
