"""What tasks do with CuPy chunks, on CuPy arrays over this process's memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")

import cuteblas
from cuteblas.dask import chunks
from cuteblas.dask.chunks import Term, concatenate
from tests.functions import host_cupy

RNG = np.random.default_rng(0)


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(chunks, "_keep_pace", lambda: None)
    with host_cupy.installed():
        yield host_cupy.on_gpu


def integers(*shape, dtype="float32"):
    return RNG.integers(-4, 5, shape).astype(dtype)


def tensordot(i, j):
    return "tensordot", (("axes", ((i,), (j,))),)


@pytest.mark.parametrize(("dtype", "sums"), [("float32", "float32"), ("float64", "float64"),
                                             ("complex64", "complex64"), ("float16", "float32")])
@pytest.mark.parametrize(("function", "arguments"), [("matmul", ()), tensordot(1, 0)])
def test_a_sum_is_one_kernel_for_each_term(on_gpu, dtype, sums, function, arguments):
    a, b = integers(9, 30, dtype=dtype), integers(30, 7, dtype=dtype)
    step, last = (Term(function, arguments, dtype, sums, last=last) for last in (False, True))
    cuteblas.reset_stats()
    so_far = None
    for i in range(0, 30, 10):
        before = None if so_far is None else host_cupy.on_host(so_far).copy()
        x, y = on_gpu(a[:, i:i + 10].copy()), on_gpu(b[i:i + 10].copy())
        kept, so_far = so_far, (last if i == 20 and dtype == sums else step)(so_far, x, y)
        assert so_far.flags.c_contiguous and (kept is None
                                              or (host_cupy.on_host(kept) == before).all())
        assert so_far.dtype == sums
    np.testing.assert_array_equal(host_cupy.on_host(so_far), a.astype(sums) @ b.astype(sums))
    assert sum(cuteblas.stats()["gemm"]["calls"].values()) == 3 and not {"matmul", "tensordot"} & cuteblas.stats().keys()


@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_axes_of_matrices(on_gpu, axes):
    shapes = [(30, 9) if axes[0] == 0 else (9, 30), (30, 7) if axes[1] == 0 else (7, 30)]
    a, b = (integers(*shape) for shape in shapes)
    term = Term(*tensordot(*axes), "float32", "float32")
    np.testing.assert_array_equal(host_cupy.on_host(term(on_gpu(np.ones((9, 7), np.float32)),
                                                         on_gpu(a), on_gpu(b))),
                                  np.tensordot(a, b, ((axes[0],), (axes[1],))) + 1)


def test_stacks_and_arrays_of_ours(on_gpu):
    a, b, c = integers(3, 4, 5), integers(3, 5, 6), integers(3, 4, 6)
    term = Term("matmul", (), "float32", "float32")
    result = term(on_gpu(c), cuteblas.ndarray(on_gpu(a)), on_gpu(b))
    assert type(result) is cuteblas.ndarray
    np.testing.assert_array_equal(host_cupy.on_host(result._data), a @ b + c)


def test_a_chunk_that_is_both_operands(on_gpu):
    a = integers(20, 6)
    term = Term(*tensordot(0, 0), "float32", "float32", operands=(0, 0))
    np.testing.assert_array_equal(host_cupy.on_host(term(None, on_gpu(a))), a.T @ a)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_chunks_become_one_by_copies(on_gpu, axis, order):
    shapes = [(n, 5, 4) if axis == 0 else (3, n, 4) if axis == 1 else (3, 5, n) for n in (2, 0, 7)]
    parts = [np.asarray(integers(*shape), order=order) for shape in shapes]
    cuteblas.reset_stats()
    joined = concatenate([on_gpu(x) for x in parts], axis)
    np.testing.assert_array_equal(host_cupy.on_host(joined), np.concatenate(parts, axis))
    assert sum(cuteblas.stats()["copy"]["calls"].values()) == 3
    ours = concatenate([cuteblas.ndarray(on_gpu(x)) for x in parts], axis)
    assert type(ours) is cuteblas.ndarray


@pytest.mark.parametrize("wrapped", [False, True])
def test_arrays_move_by_way_of_the_host(on_gpu, wrapped, monkeypatch):
    """Without RMM and Numba, which distributed asks for."""
    import cupy

    serialize = pytest.importorskip("distributed.protocol.serialize",
                                    reason="distributed, of the extra dask, is not installed")
    from cuteblas.dask import serialization

    monkeypatch.setattr(cupy, "asnumpy", host_cupy.on_host)
    monkeypatch.setattr(cupy, "asarray", lambda x: on_gpu(np.array(x)))
    for table, own in ((serialize.dask_serialize, serialization._from_a_gpu),
                       (serialize.dask_deserialize, serialization._to_a_gpu)):
        monkeypatch.setitem(table._lookup, cupy.ndarray, own)
    a = integers(6, 7, dtype="float64")
    for x in (a, a.T, a[::2, 1:], a[:0], integers(3, 4, 5, dtype="int8")):
        there = cuteblas.ndarray(on_gpu(x)) if wrapped else on_gpu(x)
        header, frames = serialize.serialize(there, serializers=("dask",))
        assert header["serializer"] == "dask"
        back = serialize.deserialize(header, [bytes(frame) for frame in frames])
        assert type(back) is type(there)
        np.testing.assert_array_equal(host_cupy.on_host(back._data if wrapped else back), x)


class Event:
    """In place of CUDA's."""

    waited_for: list[Event] = []            # noqa: RUF012

    def __init__(self, disable_timing):
        assert disable_timing

    def record(self):
        pass

    def synchronize(self):
        self.waited_for.append(self)


def test_few_tasks_are_ahead_of_the_gpu(monkeypatch):
    import cupy

    monkeypatch.setattr(cupy.cuda, "Event", Event)
    monkeypatch.setattr(chunks, "_running", type(chunks._running)())
    monkeypatch.setattr(Event, "waited_for", [])
    with host_cupy.installed():
        for count in range(1, 6):
            Term("matmul", (), "float32", "float32",
                 alone=True)(None, *(host_cupy.on_gpu(integers(8, 8)) for _ in range(2)))
            assert len(Event.waited_for) == max(0, count - 2)
        assert len({*Event.waited_for}) == 3
