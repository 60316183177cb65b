"""Calls on NumPy arrays that come again: what moves, and that results are those of the arrays as
they are now. Without a GPU: see :mod:`.test_host_cuda`."""

from importlib import import_module
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

import cuteblas
from conformance.writes import QUIET, WRITES
from cuteblas import blas
from cuteblas.emulator.compiler import available
from cuteblas.engines import host_cuda, keeping, placement, streamed
from cuteblas.engines.memory import array_at
from cuteblas.functions import tiles
from cuteblas.planning import streaming
from cuteblas.runtime import tracking
from cuteblas.runtime.mover import HASHED_BYTES
from cuteblas.runtime.tracking import why_untracked

from ..functions import host_cupy
from ..functions.host_link import linked

RNG = np.random.default_rng(0)


def small(*shape, dtype=np.float32):
    return RNG.integers(-4, 5, shape).astype(dtype)


@pytest.fixture(params=["straight", "beside small ones", "in tiles", "as a whole"])
def link(request, monkeypatch, hashes):
    """Arrays of 4 KiB are kept."""
    small = request.param == "beside small ones"
    monkeypatch.setattr(keeping, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(keeping, "_PATIENCE", 1)
    if request.param != "straight" and not small:
        monkeypatch.setattr(tiles, "_STRAIGHT_BYTES", 0)
        monkeypatch.setattr(streaming, "_PANEL_BYTES", 1 << 13)
        monkeypatch.setattr(streaming, "_ROWS", 4)
        monkeypatch.setattr(streaming, "_panels", streaming._panels.__wrapped__)
        monkeypatch.setattr(streaming, "_LAUNCHED", 0.0)
    if request.param == "as a whole":
        monkeypatch.setattr(streamed, "schedule", lambda *_: None)
    monkeypatch.setattr(keeping, "_limit", 1 << 30)
    cuteblas.reset_stats()
    with linked(few_bytes=1 << 11 if small else 0, hashes=hashes) as made:
        yield made


def moved(link, call):
    """The bytes that go up in a call, and its result."""
    before = link.moved["up"]
    result = call()
    return link.moved["up"] - before, result


def test_operands_move_twice(link):
    a, b = small(80, 70), small(70, 60)
    for expected in (a.nbytes + b.nbytes, a.nbytes + b.nbytes, 0, 0):
        nbytes, c = moved(link, lambda: cuteblas.matmul(a, b))
        assert nbytes == expected and (c == a @ b).all()
    a[3, 4] += 1
    nbytes, c = moved(link, lambda: cuteblas.matmul(a, b))
    assert nbytes and (c == a @ b).all()
    for _ in range(2):
        nbytes, c = moved(link, lambda: cuteblas.matmul(a[::2, ::-1], b[::-1, 7:]))
        assert (c == a[::2, ::-1] @ b[::-1, 7:]).all()
    assert cuteblas.stats()["arrays"]["kept"]["unchanged"] > 4


@pytest.mark.parametrize("link", ["in tiles"], indirect=True)
def test_a_tile_leaves_while_the_next_one_is_computed(link, monkeypatch):
    """Where nothing moves up, all kernels would be launched before the first tile leaves."""
    # as long as the result takes to leave
    monkeypatch.setattr(streamed, "gpu_seconds", lambda *_: 4e-7)
    a, b = small(80, 70), small(70, 60)
    for _ in range(3):
        cuteblas.matmul(a, b)
    del link.log[:]
    first = link.kernels + 1
    assert (cuteblas.matmul(a, b) == a @ b).all()
    steps = [entry for entry in link.log if isinstance(entry, str) and entry[0] in "k0123456789"]
    kernels = range(first, link.kernels + 1)
    expected = [f"kernel {first}"]
    for kernel in kernels:
        expected += [f"kernel {kernel + 1}"] * (kernel
                                                + 1 in kernels) + [f"{kernel} kernels have ended"]
    assert len(kernels) > 2 and steps == expected


CALLS = {"matmul": lambda a, b: cuteblas.matmul(a, b),
         "of views": lambda a, b: cuteblas.matmul(b.T, a.T),
         "with itself": lambda a, b: cuteblas.matmul(a.T, a),
         "epilogue": lambda a, b: cuteblas.matmul(a, b, epilogue="relu"),
         "bias": lambda a, b: cuteblas.matmul(a[:, :40], b[:40],
                                              epilogue=cuteblas.epilogues.bias(bias=b[0])),
         "einsum": lambda a, b: cuteblas.einsum("ij,jk->ki", a, b),
         "of three": lambda a, b: cuteblas.einsum("ij,jk,ik->i", a, b, a[:, :60]),
         "tensordot": lambda a, b: cuteblas.tensordot(a, b, 1),
         "vector": lambda a, b: cuteblas.matmul(a, b[:, 0]),
         "by a vector": lambda a, b: cuteblas.matmul(a, b[:, 0].copy()),
         "row": lambda a, b: cuteblas.matmul(a[1], b),
         "into": lambda a, b: cuteblas.matmul(b.T, a[:70], np.ones((60, 70), np.float32)),
         "sgemm": lambda a, b: blas.sgemm(1.0, a, b),
         "beta": lambda a, b: blas.sgemm(2.0, a, b, 0.5, a[:, :60]),
         "ssyrk": lambda a, b: blas.ssyrk(1.0, a),
         "copy": lambda a, b: cuteblas.copy(a.T, order="C"),
         "asfortranarray": lambda a, b: cuteblas.asfortranarray(a),
         "chain": lambda a, b: cuteblas.linalg.multi_dot([a, b, b.T]),
         "power": lambda a, b: cuteblas.linalg.matrix_power(a[:60, :60], 3),
         "stack": lambda a, b: cuteblas.matmul(a.reshape(4, 20, 70), b),}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_the_arrays_as_they_are(link, name):
    call = CALLS[name]
    a, b = small(80, 70), small(70, 60)
    for step in range(9):
        with cuteblas.backend("numpy"):
            expected = call(a, b)
        got = call(a, b)
        assert got.dtype == expected.dtype and (got == expected).all(), step
        if step in (3, 6):
            a[step, 1] += 1
        if step in (4, 6):
            b[:, step] = 2


def test_whatever_is_written_between_calls(link):
    rng, acts = np.random.default_rng(7), [*WRITES.values(), *QUIET.values()]
    a, b = (rng.integers(-4, 5, (400, 400)).astype(float) for _ in range(2))
    calls = [CALLS[name] for name in ("matmul", "of views", "with itself", "einsum", "by a vector",
                                      "row", "copy", "epilogue")]
    for step in range(30):
        if rng.random() < 0.6:
            x = (a, b)[rng.integers(2)]
            with np.errstate(all="ignore"):
                acts[rng.integers(len(acts))](x, rng)
                x[~(abs(x) < 9)] = 1                    # what it made may be no number
                x[abs(x) < 1e-3] = 0
        call = calls[rng.integers(len(calls))]
        with cuteblas.backend("numpy"):
            expected = call(a, b)
        assert np.allclose(call(a, b), expected, rtol=1e-12, atol=1e-9), step
    assert cuteblas.stats()["arrays"]["kept"]["unchanged"] > 3


def test_results_become_operands(link):
    a, c = small(64, 64, dtype=np.float64) / 16, small(64, 64, dtype=np.float64)
    ups = []
    for _ in range(6):
        expected = a @ c
        nbytes, c = moved(link, lambda c=c: cuteblas.matmul(a, c))
        assert np.allclose(c, expected, rtol=1e-14, atol=1e-14)
        ups.append(nbytes)
    assert ups[0] == 2 * a.nbytes
    if "in tiles" not in cuteblas.stats()["matmul"]["calls"] or tiles._STRAIGHT_BYTES:
        assert ups[-1] == 0


def test_out_is_written_over(link):
    a, b, c = small(80, 70), small(70, 60), small(80, 60)
    d = small(60, 80)
    for step in range(6):
        assert cuteblas.matmul(a, b, out=c) is c and (c == a @ b).all()
        assert (cuteblas.matmul(d, c) == d @ c).all()
        a[step] += 1
        d @= np.eye(80, dtype=np.float32) if step % 2 else np.ones((80, 80), np.float32) / 16
        assert (cuteblas.matmul(c, d) == c @ d).all()
    x = small(64, 64)
    for _ in range(6):
        expected = np.matmul(x, x) % 5
        with np.errstate(all="ignore"):
            cuteblas.matmul(x, x, out=x)
        x %= 5
        assert (x == expected).all()


def test_an_error_keeps_nothing(link, monkeypatch):
    a, b = small(80, 70), small(70, 60)
    for _ in range(3):
        cuteblas.matmul(a, b)
    a[0] = small(70)
    link.fail_at = len(link._copies["up"])
    with pytest.raises(Exception):  # noqa: B017    # the threads' or the link's own
        cuteblas.matmul(a, b)
    link.fail_at = None
    assert sum(keeper.nbytes for keeper in keeping.keepers()) == b.nbytes
    for _ in range(3):
        assert (cuteblas.matmul(a, b) == a @ b).all()


def test_an_exception_of_another_kind_keeps_what_was_there(link, monkeypatch):
    """Such as :class:`~cuteblas.engines.cuda.Compiling`."""
    a, b = small(80, 70), small(70, 60)
    for _ in range(3):
        cuteblas.matmul(a, b)
    with monkeypatch.context() as patch:
        def refuse(*_):
            raise MemoryError("none")
        patch.setattr(link, "downloads_follow_kernels", refuse)
        with pytest.raises(MemoryError):
            cuteblas.matmul(a, b)
    assert moved(link, lambda: cuteblas.matmul(a, b))[0] == 0


class Little:
    """An allocator of a device with little memory: it refuses until that is enough."""

    def __init__(self, refusals):
        self.refusals = refusals

    def __call__(self, nbytes):
        if self.refusals:
            self.refusals -= 1
            raise host_cuda.CUDA.out_of_memory(nbytes, 0, 0)
        return host_cupy.allocate(nbytes)


@pytest.mark.parametrize("refusals", [1, 2, 3])
def test_memory_that_is_wanted(link, monkeypatch, refusals):
    """Copies leave, the oldest first, before tiles get smaller."""
    others = [small(80, 70), small(70, 60)]
    a, b = small(80, 70), small(70, 60)
    for x, y in (others, (a, b)):
        for _ in range(3):
            cuteblas.matmul(x, y)
    kept = sum(keeper.nbytes for keeper in keeping.keepers())
    little = Little(refusals)
    cupy.cuda.set_allocator(little)
    monkeypatch.setattr("cupy.get_default_memory_pool",
                        lambda: SimpleNamespace(free_all_blocks=lambda: None))
    assert (cuteblas.matmul(a, b) == a @ b).all() and not little.refusals
    assert "smaller tiles: no memory on the GPU" not in cuteblas.stats()["matmul"]["moved"]
    now = sum(keeper.nbytes for keeper in keeping.keepers())
    assert now < kept and (now or refusals > 1)


def test_memory_that_the_program_wants(link):
    """Arrays of the program push copies out by their age, as far as they need it."""
    a, b, c = small(80, 70), small(80, 70), small(70, 60)
    for x in (a, b):
        for _ in range(3):
            cuteblas.matmul(x, c)
    little = Little(0)
    cupy.cuda.set_allocator(little)
    cuteblas.matmul(b, c)                               # notes that there is another allocator
    little.refusals = 1
    cupy.cuda.alloc(10)
    assert keeping.expected([a]) == 0 and keeping.expected([b]) == b.nbytes
    little.refusals = 9
    with pytest.raises(host_cuda.CUDA.out_of_memory):
        cupy.cuda.alloc(10)
    assert not any(keeper.nbytes for keeper in keeping.keepers())
    assert little.refusals == 9 - 1 - 2


def test_limits(link):
    a, b = small(80, 70), small(70, 60)
    assert cuteblas.keep_limit(0) == 1 << 30
    try:
        for _ in range(4):
            assert moved(link, lambda: cuteblas.matmul(a, b))[0] == a.nbytes + b.nbytes
        assert cuteblas.keep_limit(a.nbytes) == 0
        for _ in range(4):
            assert (cuteblas.matmul(a, b) == a @ b).all()
        assert 0 < sum(keeper.nbytes for keeper in keeping.keepers()) <= a.nbytes
    finally:
        cuteblas.keep_limit(1 << 30)
    with pytest.raises(ValueError, match="limit of kept arrays"):
        cuteblas.keep_limit(-1)
    for _ in range(3):
        cuteblas.matmul(a, b)
    cuteblas.release()
    assert moved(link, lambda: cuteblas.matmul(a, b))[0] == a.nbytes + b.nbytes


def test_nothing_is_kept_unless_it_is_asked_for(link):
    a, b = small(80, 70), small(70, 60)
    cuteblas.keep_limit(None)
    for _ in range(4):
        assert moved(link, lambda: cuteblas.matmul(a, b))[0] == a.nbytes + b.nbytes
    assert "arrays" not in cuteblas.stats()


@pytest.mark.parametrize("owned", [True, False])
def test_what_calls_would_gain_from_is_moved(link, monkeypatch, owned):
    """In the background if it lives that long: memory of which only the address is known may be
    gone when the call has ended."""
    x, jobs = small(80, 70), []
    monkeypatch.setattr("cuteblas.engines.placement.later", lambda *job: jobs.append(job))
    monkeypatch.setattr(placement, "_moving", None)
    seen = x if owned else array_at(x.ctypes.data, x.shape, x.strides, x.dtype.str, True)
    work = placement.work_of(1e6, np.float32, [seen], None, (80,))
    placement._wish(work, 1.0, [seen])
    assert len(jobs) == owned and (keeping.expected([x]) == 0) == owned
    for function, *arguments in jobs:
        function(*arguments)
    assert keeping.expected([x]) == x.nbytes


def test_calls_like_others_go_where_their_operands_are_by_now(link, monkeypatch):
    a, x = small(400, 400), small(400)
    monkeypatch.setattr(placement, "FEW", 0)
    monkeypatch.setattr(placement.Work, "never_moves", lambda work: False)
    monkeypatch.setattr(import_module("cuteblas.functions.matmul"), "_MANY", 0)
    monkeypatch.setattr(placement, "_moving", None)
    monkeypatch.setattr(placement.Work, "seconds",
                        lambda work: (1.0, 0.5 if work.kept >= a.nbytes else 2.0))
    monkeypatch.setattr("cuteblas.engines.placement.later",
                        lambda function, *arguments: function(*arguments))
    with cuteblas.backend("auto"):
        for _ in range(4):
            assert (cuteblas.matmul(a, x) == np.matmul(a, x)).all()
    assert cuteblas.stats()["matmul"]["moved"] == {"stayed: NumPy is expected to be faster": 1,
                                                   "to cuda:0": 3}


def test_installed_into_numpy(link):
    """NumPy tells its loops addresses only."""
    a, b = small(340, 340), small(340, 340)
    with cuteblas.enabled(numpy=True):
        for step in range(12):
            c = a @ b
            with cuteblas.backend("numpy"):
                assert (c == a @ b).all(), step
            if step == 4:
                a[7] = 0
            if step == 8:
                del a
                a = small(340, 340)
    assert cuteblas.stats()["arrays"]["kept"]["unchanged"] > 4


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("reason", ["Linux", "a file"])
def test_hashes_serve_where_linux_does_not_track(monkeypatch, tmp_path, native, reason):
    if native and not available():
        pytest.skip("there is no compiler")
    if reason == "a file" and why_untracked() is not None:
        pytest.skip(why_untracked())
    if reason == "Linux":
        monkeypatch.setattr(tracking, "_opened", "this process cannot track writes")
    monkeypatch.setattr(keeping, "_LEAST_BYTES", 1 << 14)
    monkeypatch.setattr(keeping, "_PATIENCE", 1)
    monkeypatch.setattr(keeping, "_limit", 1 << 30)
    cuteblas.reset_stats()
    a, b = small(80, 70), small(70, 10)
    if reason == "a file":
        a.tofile(tmp_path / "file")
        a = np.memmap(tmp_path / "file", np.float32, "r+", shape=a.shape)
    with linked(native=native, slot_bytes=HASHED_BYTES):
        for _ in range(5):
            assert (cuteblas.matmul(a, b) == np.matmul(a, b)).all()
        counts = cuteblas.stats()["arrays"]
        if native:
            assert counts["known by"] == {"hashes": 1}
            assert counts["kept"] == {"moved": 1, "unchanged": 3}
            assert keeping.expected([a], hashed=True) == a.nbytes
            work = placement.work_of(1e6, np.float32, [a, b], None, (80, 10))
            assert work.hashed == work.kept == a.nbytes
            with cuteblas.backend("auto"):
                assert "compared by their hashes" in placement.where_it_runs(work, "0")
        else:
            assert [why for why in counts["kept"] if "hashes need a C++ compiler" in why]
            assert keeping.expected([a]) == 0
        a[3, 4] += 1
        assert (cuteblas.matmul(a, b) == np.matmul(a, b)).all()


def test_a_handler_of_signals_that_multiplies_while_a_copy_is_on_its_way(link, monkeypatch):
    """The copy is not there yet, although all of it has been asked for."""
    a, b = small(80, 70), small(70, 60)
    cuteblas.matmul(a, b)
    arrived, begin, goes_on, inside = host_cuda.Crossing.arrived, link._begin, Event(), []

    def late(stream, *given):
        goes_on.wait(0.1)
        return begin(stream, *given)

    def handled(way, *given, **named):
        if not inside:
            inside.append(True)
            inside.append(cuteblas.matmul(a, b))
            goes_on.set()
        return arrived(way, *given, **named)

    monkeypatch.setattr(link, "_begin", late)
    monkeypatch.setattr(host_cuda.Crossing, "arrived", handled)
    assert (cuteblas.matmul(a, b) == a @ b).all()
    assert (inside[1] == a @ b).all()
