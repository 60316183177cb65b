"""Products of Dask arrays in this process: values and types are NumPy's, and sums have one
order."""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")

import dask
import dask.array as da

import cuteblas
import cuteblas.dask
from cuteblas.dask import products

RNG = np.random.default_rng(0)
TYPES = ("float32", "float64", "complex64", "complex128", "float16", "int8", "uint16", "int32",
         "int64", "bool")


def integers(*shape, dtype="float64"):
    x = RNG.integers(-4, 5, shape)
    return (x + 1j
            * RNG.integers(-4, 5,
                           shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def chunked(x, chunks):
    return da.from_array(x, chunks=chunks)


def computed(x, **named):
    result = x.compute(**{"scheduler": "synchronous", **named})
    assert x.dtype == result.dtype and x.shape == np.shape(result)
    return result


CALLS = {
    "@": (lambda a, b: a @ b, (20, 33), (33, 17)),
    "dot": (np.dot, (20, 33), (33, 17)),
    "tensordot": (lambda a, b: np.tensordot(a, b, axes=((1, 2), (2, 0))), (7, 6, 5), (5, 4, 6)),
    "tensordot of nothing": (lambda a, b: np.tensordot(a, b, 0), (7, 3), (4,)),
    "negative axes": (lambda a, b: np.tensordot(a, b, axes=((-1,), (-2,))), (7, 6), (2, 6, 3)),
    "einsum": (lambda a, b: np.einsum("ijk,kl->lji", a, b), (5, 6, 7), (7, 4)),
    "diagonals": (lambda a, b: np.einsum("iij,jk->ik", a, b), (6, 6, 5), (5, 4)),
    "implicit": (lambda a, b: np.einsum("...j,jk", a, b), (3, 6, 5), (5, 4)),
    "stacks": (lambda a, b: np.matmul(a, b), (3, 7, 9), (3, 9, 8)),
    "broadcast stacks": (lambda a, b: np.matmul(a, b), (2, 1, 7, 9), (4, 9, 8)),
    "vector @": (lambda a, b: a @ b, (9,), (9, 8)),
    "@ vector": (lambda a, b: a @ b, (3, 7, 9), (9,)),
    "vectors": (lambda a, b: a @ b, (19,), (19,)),
    "vdot": (np.vdot, (19,), (19,)),
}


@pytest.mark.parametrize("chunks", [3, 100])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64"])
def test_values_are_numpys(name, chunks, dtype):
    call, *shapes = CALLS[name]
    a, b = (integers(*shape, dtype=dtype) for shape in shapes)
    expected = call(a, b)
    for x, y in ((chunked(a, chunks), chunked(b, chunks)), (chunked(a, chunks), b)):
        if name == "vdot" and y is b:
            continue
        result = computed(call(x, y))
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("second", TYPES)
def test_types_are_numpys_whatever_the_chunks(first, second):
    a, b = integers(6, 20, dtype=first), integers(20, 5, dtype=second)
    for chunks in (20, 3):
        for call in (lambda x, y: x @ y, lambda x, y: np.tensordot(x, y, 1),
                     lambda x, y: np.einsum("ij,jk->ik", x, y)):
            expected, result = call(a, b), computed(call(chunked(a, chunks), chunked(b, chunks)))
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64"])
def test_the_type_of_einsum(dtype):
    a, b = integers(6, 20, dtype="int8"), integers(20, 5, dtype="int8")
    for chunks in (20, 3):
        result = computed(da.einsum("ij,jk->ik", chunked(a, chunks), chunked(b, chunks),
                                    dtype=dtype, casting="unsafe"))
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.einsum("ij,jk->ik", a, b, dtype=dtype,
                                                        casting="unsafe"))


def test_integers_wrap_and_bool_is_or():
    a = np.full((3, 40), 100, np.int8)
    np.testing.assert_array_equal(computed(chunked(a, 7) @ chunked(a.T.copy(), 7)), a @ a.T)
    a = np.ones((3, 40), bool)
    assert computed(chunked(a, 7) @ chunked(a.T.copy(), 7)).all()


def test_half_precision_is_rounded_once():
    a, b = np.ones((1, 4096), np.float16), np.full((4096, 1), 1 + 2.0**-10, np.float16)
    for call in (np.matmul, lambda x, y: np.tensordot(x, y, 1),
                 lambda x, y: np.einsum("ij,jk->ik", x, y)):
        assert computed(call(chunked(a, (1, 8)),
                             chunked(b, (8, 1))))[0, 0] == np.float16(4096 * (1 + 2.0**-10))
        for ones in (2, 62):                # of which the first two are lost beside 2048
            x = chunked(np.array([[2048, *[1] * ones]], np.float16), 1)
            y = da.ones((ones + 1, 1), dtype=np.float16, chunks=1)
            assert computed(call(x, y))[0, 0] == np.float16(2048 + ones)


def test_unequal_and_empty_chunks():
    a, b = integers(11, 13), integers(13, 9)
    x = da.from_array(a, chunks=((4, 0, 7), (1, 0, 5, 7)))
    y = da.from_array(b, chunks=((6, 0, 2, 5), (0, 9)))
    np.testing.assert_array_equal(computed(x @ y), a @ b)
    np.testing.assert_array_equal(computed(np.tensordot(x, y, 1)), a @ b)
    for shapes in (((0, 5), (5, 3)), ((4, 0), (0, 3)), ((4, 5), (5, 0))):
        a, b = (integers(*shape) for shape in shapes)
        np.testing.assert_array_equal(computed(chunked(a, 2) @ chunked(b, 2)), a @ b)


def test_unknown_chunks():
    a, b = integers(12, 5), integers(12, 4)
    x, y = chunked(a, (3, 5)), chunked(b, (3, 4))
    keep = x[:, 0] > 0
    x, y = x[keep], y[keep]
    expected = a[a[:, 0] > 0].T @ b[a[:, 0] > 0]
    np.testing.assert_array_equal((x.T @ y).compute(scheduler="synchronous"), expected)
    np.testing.assert_array_equal((y @ chunked(b.T.copy(), 2)).compute(scheduler="synchronous"),
                                  b[a[:, 0] > 0] @ b.T)


@pytest.mark.parametrize("k, blocks", [(1, 1), (3, 1), (8, 1), (38, 1), (7, 3), (200, 1), (200, 3),
                                       (1000, 1), (20, 100)])
def test_the_order_of_sums(k, blocks):
    """Chains of consecutive terms whose number depends on the numbers of chunks; then groups of
    eight chains."""
    a, b = RNG.standard_normal((2, 2 * k), np.float32), RNG.standard_normal((2 * k, blocks), np.float32)
    terms = [[a[:, 2 * i:2 * i + 2].copy() @ b[2 * i:2 * i + 2, j:j + 1].copy() for i in range(k)]
             for j in range(blocks)]
    chains = max(1, min(k // 4, -(-64 // blocks)))
    expected = []
    for row in terms:
        ends = [reduce(np.add, row[k * i // chains:k * (i + 1) // chains]) for i in range(chains)]
        while len(ends) > 1:
            ends = [reduce(np.add, ends[i:i + 8]) for i in range(0, len(ends), 8)]
        expected.append(ends[0])
    x = chunked(a, (2, 2)) @ chunked(b, (2, 1))
    for scheduler in ("synchronous", "threads"):
        np.testing.assert_array_equal(computed(x, scheduler=scheduler), np.hstack(expected))


def test_one_partial_sum_for_a_chunk_of_the_result():
    """No task has more than the chunks of one product and what was summed before it, and none sums
    what is not there yet."""
    x, y = chunked(np.ones((8, 100)), (1, 1)), chunked(np.ones((100, 8)), (1, 1))
    graph = dict((x @ y).__dask_graph__())
    terms = [task for task in graph.values() if type(task) is tuple
             and isinstance(task[0], cuteblas.dask.chunks.Term)]
    assert len(terms) == 8 * 8 * 100 and all(len(task) == 4 for task in terms)
    assert sum(task[1] is None for task in terms) == 8 * 8


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
@pytest.mark.parametrize("chunks", [(4, 3), (20, 13), (7, 1)])
def test_gram_matrices_are_computed_once(dtype, chunks):
    a = integers(20, 13, dtype=dtype)
    x = chunked(a, chunks)
    for product, expected in ((x.T @ x, a.T @ a), (x @ x.T, a @ a.T),
                              (np.tensordot(x, x, ((0,), (0,))), a.T @ a),
                              (x.conj().T @ x, a.conj().T @ a), (x.T.conj() @ x, a.conj().T @ a)):
        graph = dict(product.__dask_graph__())
        terms = sum(type(task) is tuple and isinstance(task[0], cuteblas.dask.chunks.Term)
                    for task in graph.values())
        rows, columns = (x.numblocks if product.chunks[0] == x.chunks[1] else x.numblocks[::-1])
        assert terms == rows * columns * (columns + 1) // 2
        np.testing.assert_array_equal(computed(product), expected)
    other = chunked(a.copy(), chunks)
    assert sum(type(task) is tuple and isinstance(task[0], cuteblas.dask.chunks.Term)
               for task in dict((chunked(a + 1, chunks).T @ other).__dask_graph__()).values()) == prod(x.numblocks) * x.numblocks[1]
    z = chunked(integers(20, 13, dtype="float32") / 3, (4, 3))
    gram = computed(z.T @ z)
    np.testing.assert_array_equal(gram, gram.T)


def test_memory_that_chunks_share_does_not_matter():
    """BLAS multiplies an array by its own transpose in another way; chunks that came from elsewhere
    are other arrays."""
    x = RNG.standard_normal((300, 200)).astype(np.float32)
    term = cuteblas.dask.chunks.Term("matmul", (), "float32", "float32", alone=True, last=True)
    np.testing.assert_array_equal(term(None, x.T, x), term(None, x.T.copy("K"), x.copy()))
    once = cuteblas.dask.chunks.Term("tensordot", (("axes", ((0,), (0,))),), "float32", "float32",
                                     alone=True, last=True, operands=(0, 0))
    np.testing.assert_array_equal(once(None, x), x.T @ x)
    anywhere = np.empty(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    anywhere[...] = x
    np.testing.assert_array_equal(once(None, anywhere), x.T @ x)
    wide = np.empty((300, 400), np.float32)
    wide[:, ::2] = x
    np.testing.assert_array_equal(term(None, wide[:, ::2], x.T),
                                  term(None, x.copy(), x.T.copy("K")))


def test_no_task_writes_into_its_operands():
    term = cuteblas.dask.chunks.Term("matmul", (), "float32", "float32")
    a, b, before = (np.ones((3, 3), np.float32) for _ in range(3))
    for x in (a, b, before):
        x.flags.writeable = False
    np.testing.assert_array_equal(term(before, a, b), np.full((3, 3), 4))


def test_chunks_of_ours():
    a, b = integers(12, 15), integers(15, 8)
    x = da.from_array(cuteblas.asarray(a), chunks=4, asarray=False)
    y = da.from_array(cuteblas.asarray(b), chunks=4, asarray=False)
    for call in (lambda x, y: x @ y, lambda x, y: np.tensordot(x, y, 1),
                 lambda x, y: np.einsum("ij,jk->ki", x, y), lambda x, y: (x.T @ x).rechunk(7),
                 lambda x, y: x.rechunk((5, 15)) @ chunked(b, 6)):
        result = call(x, y)
        assert type(result._meta) is cuteblas.ndarray
        found = result.compute(scheduler="synchronous")
        assert type(found) is cuteblas.ndarray
        np.testing.assert_array_equal(np.asarray(found),
                                      call(a, b) if "rechunk" not in call.__code__.co_names
                                      else (a.T @ a if found.shape == (15, 15) else a @ b))


def test_what_dask_answers_itself():
    cuteblas.reset_stats()
    masked = da.ma.masked_array(chunked(integers(6, 6), 3), chunked(np.eye(6, dtype=bool), 3))
    np.tensordot(masked, masked, 1).compute(scheduler="synchronous")
    objects = chunked(integers(6, 6).astype(object), 3)
    np.tensordot(objects, objects, 1).compute(scheduler="synchronous")
    calls = cuteblas.stats()["dask.tensordot"]["calls"]
    assert calls == {
        "delegated to Dask: chunks are numpy.ma.MaskedArray": 1,
        "delegated to Dask: elements are object": 1
    } or set(calls) >= {"delegated to Dask: elements are object"}
    x = chunked(integers(6, 6), 3)
    expected = np.asarray(x) @ np.asarray(x)
    np.testing.assert_array_equal(da.einsum("ij,jk->ik", x, x,
                                            split_every=2).compute(scheduler="synchronous"),
                                  expected)
    assert cuteblas.stats()["dask.einsum"]["calls"] == {
        "delegated to Dask: split_every= is Dask's": 1
    }


def test_wrong_calls():
    x, y = chunked(np.ones((4, 5)), 2), chunked(np.ones((4, 5)), 2)
    with pytest.raises(ValueError, match=r"core dimension 0.*size 4 is different from 5"):
        x @ y
    with pytest.raises(ValueError, match="enough dimensions"):
        da.matmul(x, 3.0)
    for axes in (1, ((0,), (1,)), ((0, 0), (0, 1)), ((7,), (0,)), ((0, 1), (0,))):
        with pytest.raises(ValueError, match="shape-mismatch"):
            np.tensordot(x, y, axes)
    with pytest.raises(ValueError):
        np.einsum("ij,jk->ik", x, y)
    with dask.config.set({"cuteblas.precision": "best"}), pytest.raises(ValueError, match="best"):
        x @ y.T
    with dask.config.set({"cuteblas.backend": "best"}), pytest.raises(ValueError, match="best"):
        x @ y.T


def test_settings_are_those_under_which_a_product_was_built(monkeypatch):
    x = chunked(np.ones((4, 4), np.float32), 2)
    seen = []
    real = cuteblas.matmul

    def matmul(a, b, **named):
        seen.append((named.pop("precision"), cuteblas.current_backend()))
        return real(a, b, **named)

    monkeypatch.setitem(cuteblas.dask.chunks._FUNCTIONS, "matmul", matmul)
    with dask.config.set({"cuteblas.precision": "ieee", "cuteblas.backend": "numpy"}):
        product = x @ (x + 1)
    seen.clear()
    product.compute(scheduler="synchronous")
    assert {*seen} == {("ieee", "numpy")}
    assert (x @ (x + 1)).name != product.name


def test_results_of_einsum_have_chunks_like_those_of_its_operands():
    x = da.ones((400, 4), chunks=(200, 4))
    product = da.einsum("ij,kj->ik", x, x)
    assert max(product.chunks[0]) * max(product.chunks[1]) <= 1.25 * 200 * 4
    np.testing.assert_array_equal(computed(product), np.full((400, 400), 4))


def test_dasks_own_programs():
    a = RNG.standard_normal((60, 12))
    x = chunked(a, (20, 12))
    _u, s, _v = da.linalg.svd_compressed(x, 12, seed=0)
    np.testing.assert_allclose(s.compute(scheduler="synchronous"), np.linalg.svd(a)[1], rtol=1e-12)
    np.testing.assert_allclose(da.cov(x.T).compute(scheduler="synchronous"), np.cov(a.T),
                               rtol=1e-12)


def test_installed_and_uninstalled():
    x = chunked(integers(6, 6, dtype="int32"), 3)
    table = cuteblas.dask.registration.tensordot_lookup
    assert da.matmul is cuteblas.dask.matmul and table.dispatch(np.ndarray) is cuteblas.dask.chunks.tensordot_of_chunks
    cuteblas.dask.uninstall()
    try:
        assert da.matmul is da.routines.matmul is products.DASKS["matmul"] and table.dispatch(np.ndarray) is np.tensordot
        assert table.dispatch(cuteblas.ndarray) is np.tensordot
        dasks = (x @ x).compute(scheduler="synchronous")
    finally:
        cuteblas.dask.install()
        cuteblas.dask.install()
    np.testing.assert_array_equal(computed(x @ x), dasks)
    assert isinstance(dict((x @ x).__dask_graph__())[(x @ x).name, 0, 0], tuple)


def test_tables_of_dask_have_ours():
    cuteblas.reset_stats()
    products.DASKS["tensordot"](chunked(integers(6, 6), 3), chunked(integers(6, 6), 3),
                                1).compute(scheduler="synchronous")
    products.DASKS["einsum"]("ij,jk->ik", chunked(integers(6, 6), 3),
                             chunked(integers(6, 6), 3)).compute(scheduler="synchronous")
    stats = cuteblas.stats()
    assert sum(stats["tensordot"]["calls"].values()) >= 8 and sum(stats["einsum"]["calls"].values()) >= 8


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_chunks_of_numpy_stay_on_the_gpu(monkeypatch, scheduler):
    """As any NumPy arrays that come again, while Dask holds them."""
    pytest.importorskip("cupy")
    from cuteblas.engines import keeping
    from cuteblas.runtime.tracking import why_untracked
    from tests.functions.host_link import linked

    if (reason := why_untracked()) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(keeping, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(keeping, "_limit", 1 << 30)
    a, b = integers(120, 90), integers(90, 60)
    x, y = (chunked(z.copy(), 60).persist(scheduler="synchronous") for z in (a, b))
    with linked() as link, dask.config.set({"cuteblas.backend": "cuda"}):
        ups = []
        for function in (da.matmul, np.dot, da.matmul, da.matmul, np.dot, da.matmul):
            before = link.moved["up"]
            np.testing.assert_array_equal(computed(function(x, y), scheduler=scheduler), a @ b)
            ups.append(link.moved["up"] - before)
        assert ups[0] >= a.nbytes + b.nbytes and ups[-2:] == [0, 0]
        chunk = dict(x.__dask_graph__())[x.name, 0, 0]
        getattr(chunk, "value", chunk)[3] += 1          # newer versions hold it in an object
        a[3, :60] += 1
        np.testing.assert_array_equal(computed(x @ y, scheduler=scheduler), a @ b)
