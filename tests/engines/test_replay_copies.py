"""Products of NumPy arrays that are replayed on the copies of their operands. Without a GPU: see
:mod:`.test_host_cuda`."""

import sys
import threading
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cuteblas
from cuteblas.engines import host_cuda, keeping, placement
from cuteblas.engines.replay import copies
from cuteblas.runtime.tracking import Hashes, Watch

from ..functions.comparisons import check_same_strides
from ..functions.host_link import linked

RNG = np.random.default_rng(0)


def small(*shape, dtype=np.float64, order="C"):
    return np.array(RNG.integers(-4, 5, shape), dtype, order=order)


@pytest.fixture(params=[((80, 70), (70, 2)), ((6, 900), (900, 5))], ids=["one is kept", "both are kept"])
def link(request, monkeypatch, hashes):
    """Arrays of 4 KiB are kept; those up to 2 KiB move with every call."""
    monkeypatch.setattr(keeping, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(keeping, "_PATIENCE", 1)
    monkeypatch.setattr(keeping, "_limit", 1 << 30)
    cuteblas.reset_stats()
    with linked(few_bytes=1 << 11, hashes=hashes) as made:
        made.shapes = request.param
        yield made


@pytest.fixture
def replays(monkeypatch):
    """One entry for each product that was replayed."""
    found, whole = [], copies._OnCopies.__call__

    def counted(self, arrays, out):
        result = whole(self, arrays, out)
        if result is not None:
            found.append(result)
        return result

    monkeypatch.setattr(copies._OnCopies, "__call__", counted)
    return found


def operands(link):
    """A matrix that is kept, and what it is multiplied by."""
    a, x = (small(*shape) for shape in link.shapes)
    for _ in range(4):
        cuteblas.matmul(a, x)
    return a, x


def check(a, x, *out):
    got = cuteblas.matmul(a, x, *out)
    assert (got == np.matmul(a, x)).all()
    return got


@pytest.mark.parametrize("shapes", [((80, 70), (70, 3)), ((80, 70), (70,)), ((70,), (70, 80)),
                                    ((6, 900), (900, 5)), ((900,), (900,)), ((16, 500), (500, 16)),
                                    ((80, 70), (70, 60))])
@pytest.mark.parametrize("orders", ["CC", "FC", "CF"])
def test_what_has_a_copy_or_is_small_does_not_move_by_threads(link, replays, shapes, orders):
    a, b = (small(*shape, order=order) for shape, order in zip(shapes, orders, strict=True))
    expected = np.matmul(a, b)
    for _ in range(8):
        got = cuteblas.matmul(a, b)
        assert type(got) is type(expected) and (got == expected).all()
        if expected.ndim:
            check_same_strides(got, expected)
    if expected.nbytes <= 1 << 11:
        assert len(replays) >= 4
        assert cuteblas.stats()["matmul"]["calls"] == {"in tiles": 8}
        assert cuteblas.stats()["matmul: tiles"]["calls"]["reference"] == 8
        up = link.moved["up"]
        check(a, b)
        assert link.moved["up"] == up


def test_the_kernel_runs_while_linux_is_asked(link, hashes, replays, monkeypatch):
    a, x = operands(link)
    watch = Hashes if hashes else Watch
    look = watch.written
    monkeypatch.setattr(watch, "written", lambda *given, **named: link.log.append("asked")
                        or look(*given, **named))
    del link.log[:], replays[:]
    check(a, x)
    steps = [step for step in link.log if isinstance(step, str) and step.split()[0] in ("kernel", "asked")]
    assert len(replays) == 1 and steps[0].startswith("kernel") and {*steps[1:]} == {"asked"}


def test_few_functions_are_called_before_the_kernel_is_launched(link):
    a, x = operands(link)
    before, calls = link.kernels, []
    sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name)
                   if event == "call" and link.kernels == before else None)
    cuteblas.matmul(a, x)
    sys.setprofile(None)
    assert len(calls) < 50, calls


def _handler(a, x):
    """A handler of signals that multiplies, too."""
    a[5] += 1
    check(a, x)


MEANWHILE = {"a write": lambda a, x: a.__setitem__(3, 7), "a handler": _handler,
             "another thread's write": lambda a, x: _in_thread(a.__setitem__, 3, 7),
             "release": lambda a, x: cuteblas.release(),
             "a write and release": lambda a, x: (a.__setitem__(3, 7), cuteblas.release()),
             "a limit": lambda a, x: (cuteblas.keep_limit(0), cuteblas.keep_limit(1 << 30)),
             "nothing": lambda a, x: None}


def _in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


@pytest.mark.parametrize("name", MEANWHILE)
@pytest.mark.parametrize("when", ["before", "found", "launched", "asked", "waiting"])
def test_whatever_happens_meanwhile(link, replays, monkeypatch, name, when):
    """A write is seen if it comes before Linux is asked: the array has its elements from then
    on."""
    a, x = operands(link)
    whole, done = {"found": keeping.Keeper.copies, "launched": keeping.Keeper.unchanged,
                   "asked": keeping.Keeper.unchanged}, []

    def act():
        if not done:
            done.append(True)
            MEANWHILE[name](a, x)

    def found(self, arrays):
        result = whole["found"](self, arrays)
        act()
        return result

    def launched(self, given):
        if when == "launched":
            act()
        result = whole["asked"](self, given)
        if when == "asked":
            act()
        return result

    before = a.copy()
    if when == "before":
        act()
    elif when == "waiting":
        wait = type(link).await_kernels
        monkeypatch.setattr(link, "await_kernels", lambda: (act(), wait(link)))
    elif when == "found":
        monkeypatch.setattr(keeping.Keeper, "copies", found)
    else:
        monkeypatch.setattr(keeping.Keeper, "unchanged", launched)
    got = cuteblas.matmul(a, x)
    assert done
    assert (got == (before if when in ("asked", "waiting") else a) @ x).all()
    for _ in range(4):
        check(a, x)
        a[1] += 1
        check(a, x)


def test_results_of_every_layout(link, replays):
    a, x = (small(*shape) for shape in link.shapes)
    new = np.matmul(a, x)
    fixed = np.empty_like(new)
    fixed.flags.writeable = False
    outs = [None, np.empty_like(new, order="F"), np.empty_like(new),
            np.empty((*new.shape, 2))[..., 0], None, np.empty(new.shape, np.complex128)]
    for out in outs:
        for _ in range(6):
            got = check(a, x, *() if out is None else (out,))
            assert got is out or out is None
            check_same_strides(got, new if out is None else out)
    assert len(replays) > 9
    with pytest.raises(ValueError):
        cuteblas.matmul(a, x, fixed)


def test_a_result_in_the_memory_of_an_operand(link, replays):
    a, x = small(16, 600), small(600, 16)
    for _ in range(4):
        cuteblas.matmul(a, x, np.empty((16, 16)))
    assert replays
    for out in (x[:16], a.reshape(-1)[77:333].reshape(16, 16), x[300:316], x[16:32].T):
        expected = a @ x
        assert (cuteblas.matmul(a, x, out) == expected).all()
        check(a, x)
        a[:] = small(16, 600)
        x[:] = small(600, 16)
        for _ in range(5):
            check(a, x, np.empty((16, 16)))


def test_a_matrix_and_itself_have_a_product_of_their_own(link, replays):
    a, b = small(900, 12), small(900, 12)
    for _ in range(5):
        check(a.T, b)
    assert replays
    del replays[:]
    for _ in range(3):
        check(a.T, a)
    assert not replays


def test_other_types_of_one_character(link, replays):
    a, x = operands(link)
    for dtype in (">f8", np.dtype("f8", metadata={"of": 1})):
        del replays[:]
        for y in (a.view(dtype), a.astype(dtype)):
            for z in (x, x.view(dtype), x.astype(dtype)):
                with np.errstate(all="ignore"):
                    expected = np.matmul(y, z)
                for _ in range(4):
                    got = cuteblas.matmul(y, z)
                    assert np.array_equal(got, expected, equal_nan=True) and got.dtype == expected.dtype
    check(a, x)


def test_settings_that_change(link, replays):
    a, x = operands(link)
    before = cuteblas.set_workspace_limit(1 << 20)
    try:
        del replays[:]
        check(a, x)
        assert not replays
    finally:
        cuteblas.set_workspace_limit(before)
    for backend in ("numpy", "emulator", "cuda"):
        with cuteblas.backend(backend):
            check(a, x)
    for _ in range(2):
        check(a, x)
    assert replays
    cuteblas.keep_limit(0)
    del replays[:]
    check(a, x)
    assert not replays


def test_whether_it_is_faster_is_asked_each_time(link, replays, monkeypatch):
    a, x = (small(*shape) for shape in link.shapes)
    there = 0.5
    monkeypatch.setattr(placement.Work, "seconds", lambda work: (1.0, there))
    monkeypatch.setattr(placement.Work, "never_moves", lambda work: False)
    monkeypatch.setattr(placement, "FEW", 0)
    monkeypatch.setattr(import_module("cuteblas.functions.matmul"), "_MANY", 0)
    placement.staying.clear()
    with cuteblas.backend("auto"):
        for _ in range(5):
            check(a, x)
        assert replays
        there = 2.0
        del replays[:]
        check(a, x)
        assert not replays and cuteblas.stats()["matmul"]["calls"]["numpy"] == 1


def test_a_kernel_that_fails(link, replays, monkeypatch):
    a, x = operands(link)
    with monkeypatch.context() as patch:
        def fail(*_):
            raise MemoryError("none")
        patch.setattr(keeping.Keeper, "unchanged", fail)
        with pytest.raises(MemoryError):
            cuteblas.matmul(a, x)
    del replays[:]
    check(a, x)
    assert replays


def test_no_memory(link, replays, monkeypatch):
    a, x = operands(link)
    real, refused = host_cuda.cupy.cuda.alloc, []

    def allocate(nbytes):
        if not refused:
            refused.append(nbytes)
            raise host_cuda.CUDA.out_of_memory(nbytes, 0, 0)
        return real(nbytes)

    monkeypatch.setattr("cupy.cuda.alloc", allocate)
    del replays[:]
    check(a, x)
    assert refused and not replays
    check(a, x)
    check(a, x)
    assert replays
