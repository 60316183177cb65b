"""Products of CuPy arrays, without a GPU: the arrays are in host memory and launches are evaluated
by the definition."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
import cuteblas.linalg

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines import cuda, execution  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from cuteblas.engines.replay import recording  # noqa: E402
from cuteblas.functions import routing  # noqa: E402
from cuteblas.functions.gufunc import UFUNCS  # noqa: E402

from . import reference  # noqa: E402
from .agreement import agree, twin  # noqa: E402
from .arrays import DTYPES, laid_out, small_arrays  # noqa: E402
from .comparisons import outcome  # noqa: E402
from .host_cupy import installed, on_gpu, on_host  # noqa: E402
from .test_dots import fitting  # noqa: E402
from .test_einsum import SUBSCRIPTS, operands_for  # noqa: E402
from .test_vectors import calls  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def on_the_host(by_definition) -> Iterator[None]:
    with installed():
        yield


def call(name, *operands, **arguments):
    ours, numpys = cuteblas, np
    if name.startswith("linalg."):
        name, ours, numpys = name.removeprefix("linalg."), cuteblas.linalg, np.linalg
    # results lie as their products are written fastest
    if name == "einsum" and "order" not in arguments:
        arguments.setdefault("strides", False)
    return agree(getattr(ours, name), getattr(numpys, name), *operands, to=on_gpu, back=on_host,
                 **arguments)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_dots(data):
    name = data.draw(st.sampled_from(("dot", "inner", "vdot", "outer", "kron", "tensordot")))
    a, b = (small_arrays(data.draw, shape) for shape in data.draw(fitting(name)))
    scales = () in (a.shape, b.shape) and 0 in (*a.strides, *b.strides)
    call(name, a, b, strides=name != "kron" and not scales,
         **({"axes": 0} if name == "tensordot" else {}))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_vectors(data):
    name, first, second, shape = data.draw(calls())
    x1, x2 = small_arrays(data.draw, first), small_arrays(data.draw, second)
    out = None if shape is None else small_arrays(data.draw, shape,
                                                  (np.result_type(x1, x2).char, *DTYPES),
                                                  writeable=True)
    call(name, x1, x2, out=out)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_einsum_of_anything(data):
    subscripts = data.draw(st.sampled_from(SUBSCRIPTS))
    call("einsum", subscripts, *operands_for(data.draw, subscripts))


def test_results_lie_as_they_are_written():
    """With axes that both operands have outermost: NumPy's order would have one of them innermost
    here."""
    extents = {"b": 2, "t": 3, "h": 4, "d": 5, "s": 6}
    for subscripts in ("bthd,bshd->bhts", "bthd,bshd->tsbh", "bthd,bshd->stbh", "thbd,hsbd->bts",
                       "dbht,bsdh->hbts"):
        terms, _arrow, result = subscripts.partition("->")
        arrays = [np.arange(np.prod(shape), dtype="f").reshape(shape)
                  for shape in (tuple(extents[c] for c in term) for term in terms.split(","))]
        gpu = cuteblas.einsum(subscripts, *map(on_gpu, arrays))
        np.testing.assert_array_equal(on_host(gpu), np.einsum(subscripts, *arrays))
        both = set.intersection(*map(set, terms.split(",")))
        steps = dict(zip(result, gpu.strides, strict=True))
        assert all(steps[c] > steps[d] for c in result if c in both for d in result
                   if d not in both), subscripts
        assert gpu.flags.c_contiguous == (result in ("bhts", "bts", "hbts")), subscripts


def test_views_are_quick(monkeypatch):
    """Subscripts of a view are read once for each shape, and NumPy is not asked."""
    x = on_gpu(np.arange(12.0).reshape(3, 4))
    assert cuteblas.einsum("ij->ji", x).base is x
    monkeypatch.setattr(np, "einsum", None)
    assert cuteblas.einsum("ij->ji", x).shape == (4, 3)
    on_host(cuteblas.einsum("ii->i", x[:, :3])).fill(-1)
    assert on_host(x).diagonal().tolist() == [-1.0] * 3


def test_out_and_linalg():
    a, b, c = (laid_out((4, 4), "d", layout, seed)
               for seed, layout in enumerate(("F", "sliced", "C")))
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
    for subscripts in ("ij->ji", "ii->i", "...i->i...", "ij->ij"):
        view, expected = cuteblas.einsum(subscripts, gpu), np.einsum(subscripts, x)
        assert (view.data.ptr, view.shape, view.strides) == (gpu.data.ptr, expected.shape,
                                                             expected.strides)
        assert view.base is gpu
    y = laid_out((3, 4, 3, 2, 3, 4), "f", "permuted")[::-1, :, ::-1, :, ::-1]
    gpu = on_gpu(y)
    for subscripts in ("iajbia->bija", "ij...ik->...ikj", "iaibia->aib", "iaib...->bia..."):
        view, expected = cuteblas.einsum(subscripts, gpu), np.einsum(subscripts, y)
        assert (view.data.ptr, view.shape, view.strides) == (gpu.data.ptr, expected.shape,
                                                             expected.strides)
        assert view.base is gpu
    empty = on_gpu(np.zeros((0, 0, 2), "f"))
    assert cuteblas.einsum("iij->ji", empty).shape == (2, 0)
    number = on_gpu(np.zeros(()))
    assert cuteblas.einsum("", number).base is number


def test_where_operands_are():
    x = laid_out((3, 3), "d", "F")
    launched = len(reference.LAUNCHED)
    for name in ("dot", "einsum", "vecdot"):
        with pytest.raises(
            ValueError,
            match=rf"{name} needs its operands on one device, but operand 0 \(cupy.ndarray\) is on "
            r"cuda:0 and operand 1 \(numpy.ndarray\) on the host"
        ):
            getattr(cuteblas, name)(*(("ij,jk",) if name == "einsum" else ()), on_gpu(x), x)
        with pytest.raises(ValueError, match=r"is on cuda:0 and operand 1 .* on cuda:1"):
            getattr(cuteblas, name)(*(("ij,jk",) if name == "einsum" else ()), on_gpu(x),
                                    on_gpu(x, 1))
    with pytest.raises(ValueError, match=r"out .* on the host"):
        cuteblas.dot(on_gpu(x), on_gpu(x), out=x)
    with pytest.raises(TypeError, match="'out' must be an array"):
        cuteblas.dot(on_gpu(x), on_gpu(x), out=[1])
    assert len(reference.LAUNCHED) == launched


def test_no_copies_and_no_reshapes():
    cuteblas.reset_stats()
    a, b = (on_gpu(laid_out(shape, "e", layout))
            for shape, layout in (((3, 4, 5), "permuted"), ((5, 3, 6), "negative")))
    cuteblas.tensordot(a, b, axes=((0, 2), (1, 0)))
    cuteblas.einsum("ijk,kil->jl", a, b)
    cuteblas.vecdot(a, a)
    assert cuteblas.stats() == {name: {"calls": {"reference": 1}}
                                for name in ("einsum", "tensordot", "vecdot")}


def test_einsum_path_needs_shapes_only():
    arrays = [laid_out(shape, "d", "C") for shape in ((2, 3), (3, 4), (4, 5))]
    assert cuteblas.einsum_path("ij,jk,kl", *map(on_gpu, arrays)) == np.einsum_path(
        "ij,jk,kl", *arrays
    )


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


A, B, OUT = (laid_out((4, 4), "d", layout, seed)
             for seed, layout in enumerate(("F", "sliced", "C")))
REPEATED = [("dot", (A, B), {}), ("dot", (A, B), {"out": OUT}), ("dot", (A, B[0]), {}),
            ("dot", (A[0], B[0]), {}), ("inner", (A, B), {}), ("vdot", (A, B), {}),
            ("outer", (A, B), {}), ("kron", (A, B), {}), ("tensordot", (A, B), {}),
            ("tensordot", (A, B), {"axes": 1}), ("tensordot", (A, B), {"axes": ([1], (0,))}),
            ("tensordot", (A, B), {"axes": (0, -1)}), ("vecdot", (A, B), {}),
            ("vecdot", (A, B), {"axis": 0}), ("vecdot", (A, B), {"axes": [(0,), 1, ()]}),
            ("vecdot", (A, B), {"keepdims": True}), ("vecdot", (A, B), {"out": OUT[0]}),
            ("matvec", (A, B[0]), {}), ("vecmat", (A[0], B), {}),
            ("linalg.vecdot", (A, B), {"axis": 0}), ("einsum", ("ij,jk->ki", A, B), {}),
            ("einsum", ("ij,jk", A, B), {"out": OUT}),
            ("einsum", ("ij,kj->ki", A, B), {"order": "F"}),
            ("einsum", ("...j,j", A, B[0]), {"optimize": True})]


class LongWay(Exception):
    """A call that was not replayed."""


@pytest.fixture
def only_replayed(monkeypatch):
    """Allows the fast path only."""
    def forbid():
        def resolve(*_, **_arguments):
            raise LongWay

        monkeypatch.setattr(routing, "resolve", resolve)
        monkeypatch.setattr(import_module("cuteblas.functions.einsum"), "resolve", resolve)

    return forbid


@pytest.mark.parametrize("name, operands, arguments", REPEATED)
def test_repeated_calls_are_replayed(name, operands, arguments, only_replayed):
    operands = [twin(x) if isinstance(x, np.ndarray) else x for x in operands]
    arguments = {key: twin(x) if key == "out" else x for key, x in arguments.items()}
    cuteblas.reset_stats()
    call(name, *operands, **arguments)
    only_replayed()
    for x in operands:
        if isinstance(x, np.ndarray):
            x += 1
    call(name, *operands, **arguments)
    assert cuteblas.stats() == {name: {"calls": {"reference": 2}}}


def test_the_default_algorithm_by_name_is_the_same_call(only_replayed):
    x = on_gpu(np.ones((2, 2)))
    products = (cuteblas.dot, cuteblas.inner, lambda
                *pair, **named: cuteblas.einsum("ij,jk", *pair, **named))
    for product in products:
        product(x, x)
    only_replayed()
    for product in products:
        assert on_host(product(x, x, precision="auto"))[0, 0] == 2


UNALIGNED = laid_out((4, 4), "d", "offset", 3)
CUBE = laid_out((4, 4, 4), "d", "permuted", 4)
IN_STEPS = [("matmul", (A, B.astype("f")), {}), ("matmul", (A, UNALIGNED), {}),
            ("matmul", (A, B), {"out": OUT.astype("F")}), ("dot", (A, B.astype("f")), {}),
            ("dot", (CUBE, B.astype("i")), {}), ("dot", (UNALIGNED, CUBE), {}),
            ("inner", (CUBE, B.astype("b")), {}),
            ("tensordot", (CUBE, B.astype("f")), {"axes": ((1, 2), (0, 1))}),
            ("tensordot", (UNALIGNED, UNALIGNED), {}), ("einsum", ("ij->i", A), {}),
            ("einsum", ("ijk->j", CUBE), {}), ("einsum", ("ij->", UNALIGNED), {}),
            ("einsum", ("ij,jk,kl", A, B, A), {}), ("einsum", ("ij,jk,k->i", A, B, A[0]), {}),
            ("einsum", ("ii,jk", A, B), {}), ("einsum", ("ij,ij->ij", A, B), {}),
            ("einsum", ("ijk,kl->il", CUBE, B), {}),
            ("einsum", ("ij,kl->k", A, B), {"out": OUT[0].astype("D")}),
            ("einsum", ("ij->ji", A), {"out": OUT}),
            ("einsum", ("ij,jk", A, B), {"out": UNALIGNED}),
            ("einsum", ("ij,kl->k", A.astype("e"), B.astype("e")), {}),
            ("vecdot", (A, B), {"dtype": "F"}), ("vecdot", (A, B), {"out": OUT[0].astype("F")})]


@pytest.mark.parametrize("name, operands, arguments", IN_STEPS)
def test_repeated_calls_of_several_steps_are_replayed(name, operands, arguments, only_replayed,
                                                      monkeypatch):
    """Casts, copies of unaligned operands, sums, intermediate results and results that are copied
    to ``out``."""
    operands = [twin(x) if isinstance(x, np.ndarray) else x for x in operands]
    arguments = {key: twin(x) if key == "out" else x for key, x in arguments.items()}
    cuteblas.reset_stats()
    call(name, *operands, **arguments)
    before = cuteblas.stats()
    only_replayed()
    monkeypatch.setattr(execution, "Execution", None)                # the long way
    for x in operands:
        if isinstance(x, np.ndarray):
            x += x.dtype.type(1)
    for _ in range(2):
        call(name, *operands, **arguments)
    assert cuteblas.stats() == {function: {group: {detail: 3 * n for detail, n in details.items()}
                                           for group, details in x.items()}
                                for function, x in before.items()}


@pytest.mark.parametrize("subscripts", ["j,ij,kj->ik", "ij,jk,lk->il"])
def test_an_operand_that_is_given_twice_may_be_two_the_next_time(subscripts, only_replayed):
    """Types, shapes and strides are equal, so the calls are alike."""
    x, y = laid_out((4, 4), "d", "C", 5), laid_out((4, 4), "d", "C", 6)
    first = laid_out((4,) if subscripts.startswith("j,") else (4, 4), "d", "C", 7)
    call("einsum", subscripts, first, x, x)
    gpu = on_gpu(x)
    cuteblas.einsum(subscripts, on_gpu(first), gpu, gpu)
    only_replayed()
    call("einsum", subscripts, first, x, y)
    call("einsum", subscripts, first, y, x)


@pytest.mark.parametrize("name, given, transposed",
                         [("matmul", (), lambda x: x.T), ("einsum", ("ki,kj->ij",), lambda x: x),
                          ("dot", (), lambda x: x.T), ("tensordot", (), lambda x: x)])
def test_a_matrix_and_itself_are_a_call_of_their_own(name, given, transposed, only_replayed):
    """One triangle of a Gram matrix is computed: not where a call like it has two operands, at
    first or later."""
    x, y = laid_out((40, 24), "d", "C", 5), laid_out((40, 24), "d", "C", 6)
    rest, back = ((0, 0),) if name == "tensordot" else (), on_gpu(x)
    for second in (back, on_gpu(y), back, on_gpu(y)):
        result = getattr(cuteblas, name)(*given, transposed(back), second, *rest)
        np.testing.assert_array_equal(on_host(result), x.T @ on_host(second))
    replay_cupy.recorded.clear()
    for second in (on_gpu(y), back):
        getattr(cuteblas, name)(*given, transposed(back), second, *rest)
    only_replayed()
    for second in (back, on_gpu(y)):
        result = getattr(cuteblas, name)(*given, transposed(back), second, *rest)
        np.testing.assert_array_equal(on_host(result), x.T @ on_host(second))


def test_steps_are_not_replayed_where_out_meets_an_operand(only_replayed):
    """A result that was computed elsewhere because of an overlap says nothing of calls without one,
    and the reverse."""
    replay_cupy.recorded.clear()
    memory = np.zeros(128)
    a, b = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4)
    a[...], b[...] = np.arange(16).reshape(4, 4), np.arange(16).reshape(4, 4) % 3
    for first in (0, 2, 4):
        out, kept = memory[4 * first:4 * first + 16].reshape(4, 4), memory.copy()
        expected = np.einsum("ij,jk,kl->il", a, b, a)
        cuteblas.einsum("ij,jk,kl->il", on_gpu(a), on_gpu(b), on_gpu(a), out=on_gpu(out))
        np.testing.assert_array_equal(out, expected)
        memory[...] = kept
    assert not replay_cupy.recorded
    out = memory[64:80].reshape(4, 4)
    cuteblas.einsum("ij,jk,kl->il", on_gpu(a), on_gpu(b), on_gpu(a), out=on_gpu(out))
    assert len(replay_cupy.recorded) == 1
    only_replayed()
    cuteblas.einsum("ij,jk,kl->il", on_gpu(a), on_gpu(b), on_gpu(a), out=on_gpu(out))
    with pytest.raises(LongWay):
        cuteblas.einsum("ij,jk,kl->il", on_gpu(a), on_gpu(b), on_gpu(a),
                        out=on_gpu(memory[8:24].reshape(4, 4)))
    for operands in ((a.T, b, a), (a, b, UNALIGNED), (a.astype("f"), b, a), (a, b[:, :2], a[:2])):
        with pytest.raises(LongWay):
            cuteblas.einsum("ij,jk,kl->il", *map(on_gpu, operands))


def test_without_memory_for_what_lies_in_between_the_long_way_is_taken(monkeypatch, only_replayed):
    a, b = on_gpu(laid_out((4, 4), "d", "C")), on_gpu(laid_out((4, 4), "f", "C"))
    cuteblas.tensordot(a, b, 1)
    key, call = list(replay_cupy.recorded.items())[-1]

    def fail(*_):
        raise cupy.cuda.memory.OutOfMemoryError(0, 0, 0)

    only_replayed()
    cuteblas.tensordot(a, b, 1)
    replay_cupy.recorded[key] = call._replace(launch=fail)
    with pytest.raises(LongWay):
        cuteblas.tensordot(a, b, 1)


def test_large_intermediate_results_are_freed_as_soon_as_they_were_read(monkeypatch):
    replay_cupy.recorded.clear()
    monkeypatch.setattr(recording, "_MOST_BYTES", 200)
    call("einsum", "ij,jk,kl->il", A, B, A)
    call("einsum", "ij->", UNALIGNED)
    assert len(replay_cupy.recorded) == 1


@pytest.mark.parametrize("name, operands, arguments",
                         [("dot", (A, B), {"out": OUT[:, ::-1]}), ("dot", (A[:0], B), {}),
                          ("einsum", (A, [0, 1], B, [1, 2]), {}), ("einsum", ("ij->ji", A), {})])
def test_what_has_no_launch_or_no_key_is_not_recorded(name, operands, arguments):
    replay_cupy.recorded.clear()
    call(name, *operands, **arguments)
    assert not replay_cupy.recorded


def test_a_call_is_not_replayed_when_anything_differs(only_replayed):
    x = laid_out((4, 4, 4), "d", "C")
    cuteblas.tensordot(on_gpu(x), on_gpu(x), axes=1)
    cuteblas.tensordot(on_gpu(x), on_gpu(x), axes=((1, 2), (0, 1)))
    cuteblas.dot(on_gpu(x[0]), on_gpu(x[1]), on_gpu(np.empty((4, 4))))
    cuteblas.einsum("ij,jk", on_gpu(x[0]), on_gpu(x[1]))
    for wrong in (1.0, True, np.int64(1), ((1.0, 2), (0, 1)), ((True, 2), (0, 1)),
                  ((1, 2), (False, 1))):
        call("tensordot", x, x, axes=wrong)
    for first in (0, 2, 4):                                          # out overlaps an input
        memory = np.zeros(64)
        a, b, out = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4), memory[4 * first:4 * first + 16].reshape(4, 4)
        a[...], b[...] = np.arange(16).reshape(4, 4), np.eye(4)
        expected = a @ b
        cuteblas.dot(on_gpu(a), on_gpu(b), on_gpu(out))
        np.testing.assert_array_equal(out, expected)
    only_replayed()
    two, three = x[0], x[1]
    cuteblas.dot(on_gpu(two), on_gpu(three), on_gpu(np.empty((4, 4))))
    for name, operands, arguments in (("dot", (two.T, three), {}), ("dot", (two, three[:, :3]), {}),
                                      ("dot", (two, three), {}), ("inner", (two, three), {}),
                                      ("tensordot", (x, x), {"axes": 2}),
                                      ("einsum", ("ij,jk->ki", two, three), {}),
                                      ("einsum", ("ij,jk", two, three), {"order": "F"}),
                                      ("einsum", ("ij,jk", two.view("i8"), three), {}),
                                      ("einsum", ("ij,jk", two, three), {"optimize": True})):
        with pytest.raises(LongWay):
            getattr(cuteblas, name)(*(on_gpu(x) if isinstance(x, np.ndarray) else x
                                      for x in operands), **arguments)


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
    if capturing:
        assert cuda.CUDA.inverse(on_gpu(np.eye(2))) == "inverse"
    else:
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix$"):
            cuteblas.linalg.matrix_power(on_gpu(np.zeros((2, 2))), -1)


@pytest.mark.parametrize("precision", ["auto", "ieee", "fp16x3", "tf32"])
def test_sums_that_are_doubled_after_the_product(precision):
    """A sum along one operand alone, which an algorithm cannot read, is halved first; the launch
    after it doubles by its alpha."""
    x, y = np.float32([1, 2]), np.broadcast_to(np.float32([3]), (2,))
    assert float(on_host(cuteblas.inner(on_gpu(x), on_gpu(y), precision=precision))) == 9


def test_a_call_is_resolved_before_anything_runs(monkeypatch):
    """A number is brought to the device when NumPy has accepted the call."""
    monkeypatch.setattr(cuda.Cuda, "number", None)
    for name in ("vecdot", "matmul"):
        with pytest.raises(ValueError,
                           match=f"^{name}: Input operand 1 does not have enough dimensions"):
            getattr(cuteblas, name)(on_gpu(np.ones(2)), 3)
    with pytest.raises(TypeError, match="dot has no kernel on the GPU for float64 and object"):
        cuteblas.dot(on_gpu(np.ones(2)), 2**70)


def test_a_chain_of_nothing_is_refused_as_by_numpy():
    with pytest.raises(ValueError, match="Expecting at least two arrays"):
        cuteblas.linalg.multi_dot((), out=on_gpu(np.ones((2, 2))))


@pytest.mark.skipif(not UFUNCS, reason="NumPy takes no out=... yet")
def test_explain_resolves_as_matmul_does():
    x = on_gpu(np.ones((2, 2)))
    assert cuteblas.explain(x, x, out=...).plan == cuteblas.explain(x, x).plan
    assert cuteblas.explain(x, x, epilogue="relu",
                            out=...).plan == cuteblas.explain(x, x, epilogue="relu").plan


@pytest.mark.parametrize("bad", [slice(1), None, "x", {}, object()])
@pytest.mark.parametrize("name", ["dot", "inner", "outer", "kron", "vdot"])
def test_what_is_no_array_is_refused_as_by_numpy(name, bad):
    for shape in ((4,), (2, 2)):
        x = np.ones(shape)
        for pair in ((x, bad), (bad, x)):
            refusal = outcome(getattr(np, name), *pair)[1]
            ours = outcome(getattr(cuteblas, name), *(on_gpu(y) if y is x else y for y in pair))[1]
            assert type(ours) is type(refusal)


def test_einsum_of_an_operand_alone_is_refused_as_by_numpy():
    for x in (np.ones((1, 2)), np.ones(2), np.ones(())):
        with pytest.raises(ValueError, match="at least an operand and a subscripts list"):
            cuteblas.einsum(on_gpu(x))


@pytest.mark.parametrize("a, b, axes", [(np.ones(1, "f2"), None, np.ones(1)),
                                        ("x", np.ones((), "f4"), 0), (np.ones(2), None, 1),
                                        (None, np.ones((2, 2)), ([0], [0])),
                                        (np.ones((2, 2)), "x", None)])
def test_tensordot_refuses_axes_and_operands_as_numpy(a, b, axes):
    refusal = outcome(np.tensordot, a, b, axes)[1]
    a, b, axes = (on_gpu(x) if isinstance(x, np.ndarray) else x for x in (a, b, axes))
    ours = outcome(cuteblas.tensordot, a, b, axes)[1]
    assert isinstance(refusal, Exception) and type(ours) is type(refusal)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="NumPy takes no ellipsis")
def test_an_ellipsis_as_out_asks_for_an_array():
    a, b = np.ones((2, 3)), np.ones((3, 3))
    for name, pair in (("matmul", (a, b)), ("vecdot", (a, a)), ("vecmat", (a[0], b)),
                       ("matvec", (b, a[0]))):
        for _ in range(2):
            np.testing.assert_array_equal(
                on_host(getattr(cuteblas, name)(*map(on_gpu, pair), out=...)),
                getattr(np, name)(*pair)
            )
    with pytest.raises(TypeError, match="must be an array"):
        cuteblas.dot(on_gpu(a), on_gpu(b), out=...)
