"""Products of CuPy arrays, without a GPU: the arrays lie in host memory and launches are evaluated by the definition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
import cuteblas.linalg

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.functions import _cupy, _cupy_products, einsums, routing  # noqa: E402

from . import reference  # noqa: E402
from .agreement import agree, twin  # noqa: E402
from .arrays import DTYPES, laid_out, small_arrays  # noqa: E402
from .host_cupy import install, on_gpu, on_host  # noqa: E402
from .test_dots import fitting  # noqa: E402
from .test_einsum import SUBSCRIPTS, operands_for  # noqa: E402
from .test_vectors import calls  # noqa: E402

INVERSE = _cupy_products.CupyOfProducts.inverse         # host_cupy has another


@pytest.fixture(scope="module", autouse=True)
def on_the_host(by_definition) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        yield
    _cupy._ready.clear()
    _cupy.launcher_for.cache_clear()


def call(name, *operands, **arguments):
    ours, numpys = cuteblas, np
    if name.startswith("linalg."):
        name, ours, numpys = name.removeprefix("linalg."), cuteblas.linalg, np.linalg
    return agree(getattr(ours, name), getattr(numpys, name), *operands, to=on_gpu, back=on_host, **arguments)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_dots(data):
    name = data.draw(st.sampled_from(("dot", "inner", "vdot", "outer", "kron", "tensordot")))
    a, b = (small_arrays(data.draw, shape) for shape in data.draw(fitting(name)))
    scales = () in (a.shape, b.shape) and 0 in (*a.strides, *b.strides)
    call(name, a, b, strides=name != "kron" and not scales, **({"axes": 0} if name == "tensordot" else {}))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_vectors(data):
    name, first, second, shape = data.draw(calls())
    x1, x2 = small_arrays(data.draw, first), small_arrays(data.draw, second)
    out = None if shape is None else small_arrays(data.draw, shape, (np.result_type(x1, x2).char, *DTYPES), writeable=True)
    call(name, x1, x2, out=out)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_einsum_of_anything(data):
    subscripts = data.draw(st.sampled_from(SUBSCRIPTS))
    call("einsum", subscripts, *operands_for(data.draw, subscripts))


def test_out_and_linalg():
    a, b, c = (laid_out((4, 4), "d", layout, seed) for seed, layout in enumerate(("F", "sliced", "C")))
    call("dot", a, b, out=c.copy())
    call("outer", a[0], b[0], out=np.zeros((2, 4, 4), "D"))
    call("einsum", "ij,jk,kl->li", a, b, c, out=np.zeros((4, 4), order="F"))
    call("linalg.multi_dot", [a, b, c, a[0]])
    call("linalg.vecdot", a, b, axis=0)
    call("linalg.outer", a[0], b[0])
    call("linalg.outer", a, b[0])
    call("linalg.tensordot", a, b, axes=1)
    for n in (0, 1, 3, 5):
        call("linalg.matrix_power", a, n)
    call("linalg.matrix_power", a, 1.5)
    call("linalg.matrix_power", a[:2], 2)


def test_inverse_comes_from_cupy():
    a = laid_out((3, 3), "d", "C") + 4 * np.eye(3)
    cuteblas.reset_stats()
    result = cuteblas.linalg.matrix_power(on_gpu(a), -1)
    np.testing.assert_allclose(on_host(result), np.linalg.inv(a))
    assert cuteblas.stats()["linalg.matrix_power"]["calls"] == {"inverse by CuPy": 1, "matmul": 1}


def test_numbers_and_views():
    x = laid_out((3, 3), "d", "F")
    call("dot", x, 2)
    call("einsum", "ij,->ji", x, 3)
    gpu = on_gpu(x)
    for subscripts in ("ij->ji", "ii->i", "...i->i..."):
        view, expected = cuteblas.einsum(subscripts, gpu), np.einsum(subscripts, x)
        assert (view.data.ptr, view.shape, view.strides) == (gpu.data.ptr, expected.shape, expected.strides)


def test_where_operands_are():
    x = laid_out((3, 3), "d", "F")
    launched = len(reference.LAUNCHED)
    for name in ("dot", "einsum", "vecdot"):
        with pytest.raises(ValueError, match=rf"{name} needs its operands on one device, but operand 0 \(cupy.ndarray\) is on "
                                             r"cuda:0 and operand 1 \(numpy.ndarray\) on the host"):
            getattr(cuteblas, name)(*(("ij,jk",) if name == "einsum" else ()), on_gpu(x), x)
        with pytest.raises(ValueError, match=r"is on cuda:0 and operand 1 .* on cuda:1"):
            getattr(cuteblas, name)(*(("ij,jk",) if name == "einsum" else ()), on_gpu(x), on_gpu(x, 1))
    with pytest.raises(ValueError, match=r"out .* on the host"):
        cuteblas.dot(on_gpu(x), on_gpu(x), out=x)
    with pytest.raises(TypeError, match="'out' must be an array"):
        cuteblas.dot(on_gpu(x), on_gpu(x), out=[1])
    assert len(reference.LAUNCHED) == launched


def test_no_copies_and_no_reshapes():
    cuteblas.reset_stats()
    a, b = (on_gpu(laid_out(shape, "e", layout)) for shape, layout in (((3, 4, 5), "permuted"), ((5, 3, 6), "negative")))
    cuteblas.tensordot(a, b, axes=((0, 2), (1, 0)))
    cuteblas.einsum("ijk,kil->jl", a, b)
    cuteblas.vecdot(a, a)
    assert cuteblas.stats() == {name: {"calls": {"reference": 1}} for name in ("einsum", "tensordot", "vecdot")}


def test_einsum_path_needs_shapes_only():
    arrays = [laid_out(shape, "d", "C") for shape in ((2, 3), (3, 4), (4, 5))]
    assert cuteblas.einsum_path("ij,jk,kl", *map(on_gpu, arrays)) == np.einsum_path("ij,jk,kl", *arrays)


def test_asfortranarray():
    x = laid_out((3, 4, 5), "f", "C")
    cuteblas.reset_stats()
    result = cuteblas.asfortranarray(on_gpu(x))
    assert result.flags.f_contiguous
    np.testing.assert_array_equal(on_host(result), x)
    again = on_gpu(x.T)
    assert cuteblas.asfortranarray(again) is again
    assert cuteblas.asfortranarray(on_gpu(np.float32(1).reshape(()))).shape == (1,)
    assert cuteblas.stats() == {"asfortranarray": {"calls": {"nothing": 2, "reference": 1}}}


A, B, OUT = (laid_out((4, 4), "d", layout, seed) for seed, layout in enumerate(("F", "sliced", "C")))
REPEATED = [
    ("dot", (A, B), {}), ("dot", (A, B), {"out": OUT}), ("dot", (A, B[0]), {}), ("dot", (A[0], B[0]), {}), ("inner", (A, B), {}),
    ("vdot", (A, B), {}), ("outer", (A, B), {}), ("kron", (A, B), {}), ("tensordot", (A, B), {}),
    ("tensordot", (A, B), {"axes": 1}), ("tensordot", (A, B), {"axes": ([1], (0,))}), ("tensordot", (A, B), {"axes": (0, -1)}),
    ("vecdot", (A, B), {}), ("vecdot", (A, B), {"axis": 0}), ("vecdot", (A, B), {"axes": [(0,), 1, ()]}),
    ("vecdot", (A, B), {"keepdims": True}), ("vecdot", (A, B), {"out": OUT[0]}), ("matvec", (A, B[0]), {}),
    ("vecmat", (A[0], B), {}), ("linalg.vecdot", (A, B), {"axis": 0}), ("einsum", ("ij,jk->ki", A, B), {}),
    ("einsum", ("ij,jk", A, B), {"out": OUT}), ("einsum", ("ij,kj->ki", A, B), {"order": "F"}),
    ("einsum", ("...j,j", A, B[0]), {"optimize": True})]


class LongWay(Exception):
    """A call that was not repeated."""


@pytest.fixture
def only_repeated(monkeypatch):
    """Forbids what comes behind the fast path."""
    def forbid():
        def take(*_):
            raise LongWay

        monkeypatch.setattr(routing, "take", take)
        monkeypatch.setattr(einsums, "take", take)

    return forbid


@pytest.mark.parametrize("name, operands, arguments", REPEATED)
def test_repeated_calls_take_the_fast_path(name, operands, arguments, only_repeated):
    operands = [twin(x) if isinstance(x, np.ndarray) else x for x in operands]
    arguments = {key: twin(x) if key == "out" else x for key, x in arguments.items()}
    cuteblas.reset_stats()
    call(name, *operands, **arguments)
    only_repeated()
    for x in operands:
        if isinstance(x, np.ndarray):
            x += 1
    call(name, *operands, **arguments)
    assert cuteblas.stats() == {name: {"calls": {"reference": 2}}}


@pytest.mark.parametrize("name, operands, arguments", [
    ("dot", (A, 2), {}), ("dot", (A, B), {"out": OUT[:, ::-1]}),
    ("dot", (A, B.astype("f")), {}), ("dot", (A[:0], B), {}), ("einsum", ("ij->i", A), {}), ("einsum", ("ij,jk,kl", A, B, A), {}),
    ("einsum", ("ij,jk,k->i", A, B, A[0]), {}), ("einsum", ("ii,jk", A, B), {}), ("einsum", ("ij,ij->ij", A, B), {}),
    ("vecdot", (A, B), {"dtype": "F"}), ("vecdot", (A, B), {"out": OUT[0].astype("F")}), ("einsum", (A, [0, 1], B, [1, 2]), {})])
def test_what_is_not_one_launch_on_the_operands_is_not_remembered(name, operands, arguments):
    _cupy._ready.clear()
    call(name, *operands, **arguments)
    assert not _cupy._ready


def test_fast_path_is_left_when_anything_differs(only_repeated):
    x = laid_out((4, 4, 4), "d", "C")
    cuteblas.tensordot(on_gpu(x), on_gpu(x), axes=1)
    cuteblas.tensordot(on_gpu(x), on_gpu(x), axes=((1, 2), (0, 1)))
    cuteblas.dot(on_gpu(x[0]), on_gpu(x[1]), on_gpu(np.empty((4, 4))))
    cuteblas.einsum("ij,jk", on_gpu(x[0]), on_gpu(x[1]))
    for wrong in (1.0, True, np.int64(1), ((1.0, 2), (0, 1)), ((True, 2), (0, 1)), ((1, 2), (False, 1))):
        call("tensordot", x, x, axes=wrong)
    for first in (0, 2, 4):                                          # out overlaps an input
        memory = np.zeros(64)
        a, b, out = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4), memory[4 * first:4 * first + 16].reshape(4, 4)
        a[...], b[...] = np.arange(16).reshape(4, 4), np.eye(4)
        expected = a @ b
        cuteblas.dot(on_gpu(a), on_gpu(b), on_gpu(out))
        np.testing.assert_array_equal(out, expected)
    only_repeated()
    two, three = x[0], x[1]
    cuteblas.dot(on_gpu(two), on_gpu(three), on_gpu(np.empty((4, 4))))
    for name, operands, arguments in (
            ("dot", (two.T, three), {}), ("dot", (two, three[:, :3]), {}), ("dot", (two, three), {}), ("inner", (two, three), {}),
            ("tensordot", (x, x), {"axes": 2}), ("einsum", ("ij,jk->ki", two, three), {}),
            ("einsum", ("ij,jk", two, three), {"order": "F"}), ("einsum", ("ij,jk", two.view("i8"), three), {}),
            ("einsum", ("ij,jk", two, three), {"optimize": True})):
        with pytest.raises(LongWay):
            getattr(cuteblas, name)(*(on_gpu(x) if isinstance(x, np.ndarray) else x for x in operands), **arguments)


@pytest.mark.parametrize("capturing", [False, True])
def test_singular_matrices_are_refused_as_by_numpy(monkeypatch, capturing):
    """CuPy sees them if it is told to look, which takes a word with the host."""
    import cupyx

    def inv(x):
        if cupyx.geterr()["linalg"] == "raise":
            raise np.linalg.LinAlgError("Error reported by getrf in cuSOLVER. devInfo = 1.")
        return "inverse"

    monkeypatch.setattr(cupy.linalg, "inv", inv)
    monkeypatch.setattr("cuteblas.runtime.capturing", lambda: capturing)
    monkeypatch.setattr(_cupy_products.CupyOfProducts, "inverse", INVERSE)
    if capturing:
        assert _cupy_products.CupyOfProducts().inverse(on_gpu(np.eye(2))) == "inverse"
    else:
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
            cuteblas.linalg.matrix_power(on_gpu(np.zeros((2, 2))), -1)
