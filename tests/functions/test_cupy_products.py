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

from cuteblas.functions import _cupy  # noqa: E402

from . import reference  # noqa: E402
from .agreement import agree  # noqa: E402
from .arrays import DTYPES, laid_out, small_arrays  # noqa: E402
from .host_cupy import install, on_gpu, on_host  # noqa: E402
from .test_dots import fitting  # noqa: E402
from .test_einsum import SUBSCRIPTS, operands_for  # noqa: E402
from .test_vectors import calls  # noqa: E402


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
