"""Many products in one call."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import blas, emulator

from .operands import small

SIZES = [(3, 4, 5), (1, 7, 2), (6, 2, 0), (0, 3, 4), (9, 9, 9)]
BACKENDS = [
    "numpy",
    pytest.param(
        "emulator", marks=pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")
    )
]


def problems(dtypes=("float32",)):
    rng = np.random.default_rng(0)
    names = [dtypes[i % len(dtypes)] for i in range(len(SIZES))]
    return [[small(rng, shape, name) for (m, n, k), name in zip(SIZES, names, strict=True)
             for shape in [(m, k) if x == "a" else (k, n) if x == "b" else (m, n)]] for x in "abc"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups(backend):
    a, b, c = problems(("float32", "complex128"))
    alphas, betas = [1, 2, 3, 4, 5], [0, -1, 1, 2, 0.5]
    with cuteblas.backend(backend):
        cuteblas.reset_stats()
        got = blas.gemm_grouped(alphas, a, b, betas, c)
        for result, x, y, z, alpha, beta in zip(got, a, b, c, alphas, betas, strict=True):
            np.testing.assert_array_equal(result, alpha * (x @ y) + beta * z)
            assert result.dtype == x.dtype and result.flags.f_contiguous
        assert sum(cuteblas.stats()["gemm_grouped"]["calls"].values()) == len(SIZES)
        transposed = [x.T for x in a]
        trans = ["T", 1, "t", "T", "C"]
        for result, x, y in zip(blas.gemm_grouped(1, transposed, b, trans_a=[*trans[:4], "T"]), a,
                                b, strict=True):
            np.testing.assert_array_equal(result, x @ y)
        outs = [np.empty_like(z) for z in c]
        assert all(x is y for x, y in zip(blas.gemm_grouped(2, a, b, out=outs), outs, strict=True))
        before = [z.copy() for z in c]
        assert all(x is y for x, y in zip(blas.gemm_grouped(1, a, b, 1, c, overwrite_c=1), c,
                                          strict=True))
        for z, was, x, y in zip(c, before, a, b, strict=True):
            np.testing.assert_array_equal(z, x @ y + was)
    assert blas.gemm_grouped(1, [], []) == []


def test_all_problems_are_checked_first():
    a, b, c = problems()
    out = [np.zeros_like(x) for x in c]
    with pytest.raises(ValueError,
                       match=r"gemm_grouped, problem 4: multiplies \(m, k\) by \(k, n\)"):
        blas.gemm_grouped(1, a, [*b[:4], np.ones((2, 9), np.float32)], out=out)
    assert not any(x.any() for x in out)


def test_refused_groups():
    a, b, c = problems()
    with pytest.raises(ValueError, match="lists of one length, but a has 5 and b 4"):
        blas.gemm_grouped(1, a, b[:4])
    with pytest.raises(ValueError, match="a has 5 and alpha 2"):
        blas.gemm_grouped([1, 2], a, b)
    with pytest.raises(TypeError, match="takes a list as a, got ndarray"):
        blas.gemm_grouped(1, a[0], b)
    with pytest.raises(TypeError, match="takes a list as out, got ndarray"):
        blas.gemm_grouped(1, a, b, out=c[0])


def test_problems_are_independent():
    x = np.zeros((6, 4))
    a, b = [np.ones((3, 2)), np.ones((3, 2))], [np.ones((2, 4)), np.ones((2, 4))]
    blas.gemm_grouped(1, a, b, out=[x[:3], x[3:]])
    blas.gemm_grouped(1, [a[0]] * 2, [b[0]] * 2, out=[x[::2], x[1::2]])
    assert (x == 2).all()
    with pytest.raises(ValueError, match="in any order, but problem 1 writes memory of problem 0"):
        blas.gemm_grouped(1, a, b, out=[x[:3], x[2:5]])
    more = np.ones((5, 2))
    # of three open ranges the first one is met
    for others in ([x[::2], x[1::2], x[4:5]], [x[1::2], x[::2], x[5:]]):
        with pytest.raises(ValueError, match="problem 2 writes memory of problem 0"):
            blas.gemm_grouped(1, [*a, more[:1]], [*b, b[0]], out=others)
    one = np.ones((1, 1), "f")
    for at in (0, 3):                                    # a single element is met
        with pytest.raises(ValueError, match="in any order"):
            x = np.zeros(8, "f")
            blas.gemm_grouped(1, [one] * 2, [np.ones((1, n), "f") for n in (4, 1)],
                              out=[x[None, :4], x[None, at:at + 1]])
    chain = [np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2))]
    with pytest.raises(ValueError, match="problem 0 writes memory of problem 1"):
        blas.gemm_grouped(1, [chain[0], chain[1]], [chain[0], chain[1]], out=[chain[1], chain[2]])


def test_batched():
    a, b = np.ones((3, 2, 4)), np.ones((4, 5))
    np.testing.assert_array_equal(blas.gemm_batched(2, a, b), np.full((3, 2, 5), 8.0))
    got = blas.gemm_batched(2, list(a), [b, b, b], 1, [np.ones((2, 5))] * 3)
    assert isinstance(got, list) and all((x == 9).all() for x in got)
    assert blas.gemm_batched(1, a.tolist(), b.tolist()).shape == (3, 2, 5)
    with pytest.raises(
        ValueError,
        match=r"arrays of one shape, but those of a are \(2, 4\), \(3, 4\); gemm_grouped"
    ):
        blas.gemm_batched(1, [np.ones((2, 4)), np.ones((3, 4))], [b, b])
    with pytest.raises(TypeError, match="but b is not a list of arrays"):
        blas.gemm_batched(1, list(a), b)


HAS_COMPILER = pytest.mark.skipif(not emulator.available(), reason="no C++ compiler")


@contextmanager
def cupy_on_the_host():
    """From NumPy arrays to CuPy arrays over the same memory, and back; plans run in the
    emulator."""
    from cuteblas.engines import cuda
    from cuteblas.engines.replay import cupy as replay_cupy

    from ..functions import host_cupy

    with pytest.MonkeyPatch.context() as patch:
        host_cupy.install(patch)
        patch.setattr("cuteblas.runtime.executor", host_cupy.emulated)
        yield host_cupy.on_gpu, host_cupy.on_host
    replay_cupy.forget()
    cuda.launcher_for.cache_clear()


@pytest.fixture(params=[pytest.param("emulator", marks=HAS_COMPILER),
                        pytest.param("host CuPy", marks=HAS_COMPILER),
                        pytest.param("cuda", marks=pytest.mark.gpu)])
def there_and_back(request):
    """From NumPy arrays to those of a kind, and back: NumPy's in the emulator, CuPy's on the host,
    CuPy's on a GPU."""
    cuteblas.reset_stats()
    if request.param == "emulator":
        with cuteblas.backend("emulator"):
            yield lambda x: x.copy(order="K"), lambda x: x
        return
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if request.param == "cuda":
        yield lambda x: cupy.asarray(x, order="K"), cupy.asnumpy
        return
    with cupy_on_the_host() as (there, back):
        yield lambda x: there(x.copy(order="K")), back


def routes(function="gemm_grouped"):
    return cuteblas.stats()[function]["calls"]


@pytest.fixture
def launches(monkeypatch):
    """How many kernels each group of a test launches."""
    from cuteblas.engines.emulator import Emulator

    counted = []

    def counts(run_table):
        def counting(engine, plan, table, reached):
            counted.append(len(plan.launches))
            run_table(engine, plan, table, reached)

        return counting

    monkeypatch.setattr(Emulator, "run_table", counts(Emulator.run_table))
    if importlib.util.find_spec("cupy"):
        from cuteblas.engines import cuda

        monkeypatch.setattr(cuda.Cuda, "run_table", counts(cuda.Cuda.run_table))
    return counted


def test_one_launch(there_and_back, launches):
    there, back = there_and_back
    host = problems()
    a, b, c = ([there(x) for x in part] for part in host)
    alphas, betas = [1, 2, 0, 4, 5], [0, -1, 1, 2, 0.5]
    wanted = [
        alpha * (x @ y) + beta * z
        for x, y, z, alpha, beta in zip(*host, alphas, betas, strict=True)
    ]
    for result, want in zip(blas.gemm_grouped(alphas, a, b, betas, c, overwrite_c=1), wanted,
                            strict=True):
        np.testing.assert_array_equal(back(result), want)
    assert launches == [1] and routes() == {"gemm_simt in a group": 4, "nothing": 1}
    assert all(result is z for result, z in zip(blas.gemm_grouped(1, a, b, out=c), c, strict=True))
    for z, x, y in zip(c, *host[:2], strict=True):
        np.testing.assert_array_equal(back(z), x @ y)
    assert launches[:2] == [1, 1]


def test_each_type_takes_a_launch_of_its_own(there_and_back, launches):
    there, back = there_and_back
    a, b, c = problems(("float32", "complex128", "float16"))
    c = [x.astype("f4") if x.dtype == "f2" else x for x in c]
    got = blas.gemm_grouped(2, *([there(x) for x in part] for part in (a, b)), 3,
                            [there(x) for x in c], trans_a="R")
    for result, x, y, z in zip(got, a, b, c, strict=True):
        np.testing.assert_array_equal(back(result),
                                      2 * (x.conj().astype(z.dtype) @ y.astype(z.dtype)) + 3 * z)
    assert launches == [3]
    assert sum(routes().values()) == 5 and set(routes()) == {"gemm_simt in a group",
                                                             "gemm_mma in a group", "nothing"}


def test_batches_transpositions_and_strides(there_and_back, launches):
    there, back = there_and_back
    rng = np.random.default_rng(1)
    a = [small(rng, (2, 3, 7, 5), "float64"), small(rng, (6, 8), "float64")[::-1, ::2].T,
         small(rng, (5, 4), "float64")]
    b = [small(rng, (3, 5, 4), "float64"), small(rng, (6, 9), "float64")[:, ::-1],
         np.asfortranarray(small(rng, (5, 6), "float64"))]
    canvas = there(np.full((8, 40), 7.0))
    out = [there(np.zeros((2, 3, 7, 4))), canvas[::2, 3:30:3], there(np.zeros((4, 6), order="F"))]
    blas.gemm_grouped([1, -1, 2], [there(x) for x in a], [there(x) for x in b],
                      trans_a=["N", "N", "T"], out=out)
    for z, x, y, alpha in zip(out, (*a[:2], a[2].T), b, (1, -1, 2), strict=True):
        np.testing.assert_array_equal(back(z), alpha * (x @ y))
    assert launches == [1]
    untouched = np.ones((8, 40), bool)
    untouched[::2, 3:30:3] = False
    assert (back(canvas)[untouched] == 7).all()


def test_what_groups_do_not_take_is_computed_alone(there_and_back, launches):
    there, back = there_and_back
    host = problems()
    a, b = ([there(x) for x in part] for part in host[:2])
    two = there(np.array(2, np.float32))
    alphas = [1, two, 3, 1, two]
    for result, x, y, alpha in zip(blas.gemm_grouped(alphas, a, b), *host[:2], (1, 2, 3, 1, 2),
                                   strict=True):
        np.testing.assert_array_equal(back(result), alpha * (x @ y))
    counted = routes()
    assert launches == [1] and counted["gemm_simt in a group"] == 2 and counted["nothing"] == 1
    (alone, twice), = ((route, n) for route, n in counted.items() if "not in a group" in route)
    assert twice == 2 and alone.startswith(
        "gemm_simt, not in a group: alpha and beta of a group of products must be numbers"
    )


def test_one_product_is_no_group(there_and_back, launches):
    there, back = there_and_back
    x = np.arange(12, dtype="f4").reshape(3, 4)
    np.testing.assert_array_equal(back(blas.gemm_grouped(1, [there(x)], [there(x.T)])[0]), x @ x.T)
    assert launches == [] and routes() == {"gemm_simt": 1}


def test_epilogues_and_their_reductions(there_and_back, launches):
    there, back = there_and_back

    @cuteblas.epilogue
    def shifted(acc, *, bias):
        before = acc + bias
        return np.maximum(before, 0), {"before": before, "largest": before.max(axis=-1)}

    a, b = ([there(x) for x in part[:2]] for part in problems()[:2])
    bias = [np.arange(y.shape[1], dtype="f4")[None, :] for y in b]
    got = blas.gemm_grouped(1, a, b, epilogue=[shifted(bias=there(x)) for x in bias])
    for (result, further), x, y, z in zip(got, a, b, bias, strict=True):
        want = back(x) @ back(y) + z
        np.testing.assert_array_equal(back(result), np.maximum(want, 0))
        np.testing.assert_array_equal(back(further["before"]), want)
        np.testing.assert_array_equal(back(further["largest"]), want.max(axis=-1))
    counted = routes()
    assert launches == [1] and counted.pop("gemm_simt in a group") == 2 and sum(counted.values()) == 2


def test_lists_of_a_batch_are_a_group(there_and_back, launches):
    there, back = there_and_back
    a, b = np.ones((3, 2, 4), np.float32), np.ones((4, 5), np.float32)
    got = blas.gemm_batched(2, [there(x) for x in a], [there(b)] * 3)
    assert launches == [1] and all((back(x) == 8).all() for x in got)
    assert routes("gemm_batched") == {"gemm_simt in a group": 3}


def test_large_products_are_faster_alone():
    from cuteblas.planning import H200, GemmProblem, Operand
    from cuteblas.planning.gemm.grouped import why_alone

    def square(n, element, batch=()):
        return GemmProblem(n, n, n, *(Operand(element, (1, n), (n * n,) * len(batch))
                                      for _ in "abc"), batch)

    for element, family, group in (("float32", "gemm_split", "gemm_simt"),
                                   ("complex64", "gemm_split", "gemm_simt"),
                                   ("float16", "gemm_wgmma", "gemm_mma")):
        assert why_alone(square(256, element), H200) is None
        assert why_alone(square(4096, element),
                         H200) == f"{family} alone is faster than {group} in a group"
        assert why_alone(replace(square(4096, element), alpha="zero"), H200) is None
    assert why_alone(square(64, "float32", (64,)), H200) is None
    assert why_alone(square(64, "float32", (65,)), H200) == "a batch of 65 gets a launch of its own"
    assert why_alone(square(4096, "int32"),
                     H200) == "gemm_wgmma alone is faster than gemm_simt in a group"
    assert why_alone(square(64, "int32"), H200) is None


@pytest.mark.gpu
def test_captured_groups_are_replayed():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    host = problems()
    a, b, c = ([cupy.asarray(x) for x in part] for part in host)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        # nothing can be compiled in a capture, and alpha = 1 is another kernel
        blas.gemm_grouped(2, a, b, out=c)
        stream.synchronize()
        stream.begin_capture()
        blas.gemm_grouped(3, a, b, out=c)
        graph = stream.end_capture()
    for factor in (1, 2):
        for x, y in zip(a, host[0], strict=True):
            x[...] = cupy.asarray(factor * y)
        cupy.cuda.Device().synchronize()
        # where tables were that nobody keeps
        junk = [np.full(n, -1, np.int64) for n in range(1000)]
        graph.launch(stream)
        stream.synchronize()
        del junk
        for z, x, y in zip(c, *host[:2], strict=True):
            np.testing.assert_array_equal(cupy.asnumpy(z), 3 * factor * (x @ y))


@pytest.fixture
def on_host_cupy():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    if not emulator.available():
        pytest.skip("no C++ compiler for the emulator")
    cuteblas.reset_stats()
    with cupy_on_the_host() as both_ways:
        yield both_ways


@pytest.fixture
def only_replayed(monkeypatch):
    """Allows the fast path only."""
    return lambda: monkeypatch.setattr("cuteblas.blas.groups.prepare",
                                       lambda *call: pytest.fail("went the long way"))


@pytest.mark.parametrize("way", ["new", "out", "in place", "from c"])
def test_repeated_groups(way, on_host_cupy, only_replayed):
    on_gpu, on_host = on_host_cupy
    rng = np.random.default_rng(2)
    host = problems(("float32", "complex128"))
    for part, shape in zip(host, ((2, 3, 4, 5), (3, 5, 6), (2, 3, 4, 6)), strict=True):
        part[0] = np.zeros(shape, np.float32)
    alphas, betas = [1, 2.5, 3, 4, 5], [2, -1.5, 0, 2, 0.5] if way in ("in place", "from c") else [0] * 5
    for repeated in range(3):
        for part in host:
            for x in part:
                x[...] = small(rng, x.shape, x.dtype.name)
        a, b, c = ([on_gpu(x) for x in part] for part in host)
        before = [x.copy() for x in host[2]]
        given = {"new": {}, "out": {"out": c}, "in place": {"c": c, "overwrite_c": 1},
                 "from c": {"c": c}}[way]
        got = blas.gemm_grouped(alphas, a, b, betas, **given)
        for result, x, y, z, alpha, beta in zip(got, *host[:2], before, alphas, betas, strict=True):
            np.testing.assert_array_equal(on_host(result), alpha * (x @ y) + beta * z)
        assert way in ("new", "from c") or all(result is z
                                               for result, z in zip(got, c, strict=True))
        assert sum(routes().values()) == 5 * (repeated + 1)
        alphas[1], betas[1] = 3.5, betas[1] * 2
        only_replayed()


@pytest.mark.parametrize("change", ["none", "alpha", "shape", "alignment", "order", "number",
                                    "trans", "precision", "dtype", "function"])
def test_other_groups_go_the_long_way(change, on_host_cupy, monkeypatch):
    on_gpu, _on_host = on_host_cupy
    memory = np.zeros(1024, np.float32)

    def operands(start, *shapes):
        places = range(start, 1024, 16)
        return [memory[at:at + m * n].reshape(m, n)
                for at, (m, n) in zip(places, shapes, strict=False)]

    start = -memory.ctypes.data % 64 // 4
    a, b = operands(start, (4, 4), (2, 2)), operands(start + 64, (4, 4), (2, 2))
    blas.gemm_grouped(2.0, [on_gpu(x) for x in a], [on_gpu(x) for x in b])
    way = []
    checked = SimpleNamespace(_replace=lambda **_: None)
    monkeypatch.setattr("cuteblas.blas.groups.prepare", lambda *call: way.append(call) or checked)
    monkeypatch.setattr("cuteblas.blas.groups._check_independence", lambda *_: None)
    monkeypatch.setattr("cuteblas.blas.groups._execute_all", lambda *_: None)
    alpha, options = 2.0, {}
    if change == "alpha":
        alpha = [2.0, 1.0]
    elif change == "shape":
        a[0] = a[0][:3]
    elif change == "alignment":
        a = operands(start + 1, (4, 4), (2, 2))
    elif change == "order":
        a[1] = a[1].T
    elif change == "number":
        a, b = a + a, b + b
    elif change == "trans":
        options["trans_b"] = ["N", "T"]
    elif change == "precision":
        options["precision"] = "ieee"
    elif change == "dtype":
        options["compute_dtype"] = "float64"
    function = blas.gemm_batched if change == "function" else blas.gemm_grouped
    if change == "function":
        a, b = a[:1], b[:1]
    function(alpha, [on_gpu(x) for x in a], [on_gpu(x) for x in b], **options)
    assert bool(way) == (change != "none")


def test_overlap_of_repeated_groups(on_host_cupy):
    on_gpu, _on_host = on_host_cupy
    memory = np.ones(400, np.float32)
    memory = memory[-memory.ctypes.data % 64 // 4:]

    def squares(*starts):
        return [on_gpu(memory[start:start + 16].reshape(4, 4)) for start in starts]

    a, b = squares(0, 16, 16), squares(32, 32, 48)
    for _ in range(2):
        blas.gemm_grouped(1, a, b, out=squares(64, 80, 96))
        assert (memory[64:112] == 4).all()
    for starts in ((64, 80, 84), (64, 64, 96), (96, 64, 92), (0, 64, 80), (64, 80, 40),
                   (64, 52, 96), (60, 80, 112)):
        with pytest.raises(ValueError, match=r"writes (memory of problem|out while it uses)"):
            blas.gemm_grouped(1, a, b, out=squares(*starts))
    memory[:64] = 1
    blas.gemm_grouped(1, a, b, out=squares(160, 64, 112))
    interleaved = memory[200:232].reshape(4, 8)
    for _ in range(2):
        blas.gemm_grouped(1, a[:2], b[:2], out=[on_gpu(interleaved[:, ::2]),
                                                on_gpu(interleaved[:, 1::2])])
    assert (memory[160:176] == 4).all() and (interleaved == 4).all()


def test_groups_with_anything_else_are_not_recorded(on_host_cupy):
    on_gpu, _on_host = on_host_cupy
    from cuteblas.engines.replay import cupy as replay_cupy

    x = [np.ones((4, 4), np.float32), np.ones((3, 3), np.float32)]
    replay_cupy.recorded.clear()
    given = [on_gpu(y) for y in x]
    blas.gemm_grouped([on_gpu(np.array(2, np.float32)), 1], given, given)
    blas.gemm_grouped([1 + 1e-9, 1], given, given)
    blas.gemm_grouped(1, given, given, epilogue="relu")
    blas.gemm_grouped(1, given[:1], given[:1])
    assert not replay_cupy.recorded
    blas.gemm_grouped(1, given, given)
    assert len(replay_cupy.recorded) == 1
