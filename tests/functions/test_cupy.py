"""CuPy arrays, without a GPU: the arrays are in host memory and launches are evaluated by the
definition."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
from cuteblas import blas, emulator

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines import cuda, dispatch, execution, tuning  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from cuteblas.engines.replay import recording  # noqa: E402
from cuteblas.engines.tuning import plan_for  # noqa: E402
from cuteblas.planning.variants import variants  # noqa: E402

from . import host_cupy, reference  # noqa: E402
from .arrays import DTYPES, LAYOUTS, laid_out, small_arrays  # noqa: E402
from .comparisons import check_same_refusal, check_same_strides, outcome  # noqa: E402
from .host_cupy import installed, on_gpu, on_host  # noqa: E402
from .test_matmul import products  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def on_the_host(by_definition) -> Iterator[None]:
    with installed():
        yield


@pytest.fixture(autouse=True)
def fresh() -> None:
    replay_cupy.recorded.clear()
    cuteblas.reset_stats()


def agree(x1, x2, out=None, **arguments):
    """Compare a call on CuPy arrays with NumPy's: shape, dtype, strides, values or the refusal.
    Twice, for the fast path."""
    expected_out = None if out is None else out.copy(order="K")
    expected, refusal = outcome(np.matmul, x1, x2, out=expected_out, **arguments)
    if refusal is not None:
        launched = len(reference.LAUNCHED)
        check_same_refusal(cuteblas.matmul, refusal, on_gpu(x1), on_gpu(x2),
                           None if out is None else on_gpu(out), **arguments)
        assert len(reference.LAUNCHED) == launched
        return
    for _ in range(2):
        target = None if out is None else on_gpu(out)
        result = cuteblas.matmul(on_gpu(x1), on_gpu(x2), target, **arguments)
        assert type(result) is cupy.ndarray and (out is None or result is target)
        assert result.dtype == expected.dtype
        if out is None:
            check_same_strides(result, expected)
        np.testing.assert_array_equal(on_host(result) if out is None else out, expected)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    first, second, shape = data.draw(products())
    x1, x2 = small_arrays(data.draw, first), small_arrays(data.draw, second)
    out = None
    if shape is not None:
        out = small_arrays(data.draw, shape, (np.result_type(x1, x2).char, *DTYPES), writeable=True)
    arguments = data.draw(st.sampled_from(({}, {}, {"order": "F"}, {"dtype": "f8"},
                                           {"axes": [(0, 1), (0, 1), (1, 0)]}, {"axis": 0},
                                           {"casting": "unsafe"}, {"where": 1})))
    agree(x1, x2, out, **arguments)


def test_a_second_call_is_replayed(monkeypatch):
    x1, x2, out = (on_gpu(laid_out(shape, "f", "C")) for shape in ((3, 4), (4, 5), (3, 5)))
    cuteblas.matmul(x1, x2, out)
    cuteblas.matmul(x1, x2)
    monkeypatch.setattr(execution, "Execution", None)
    assert cuteblas.matmul(x1, x2, out) is out
    assert cuteblas.matmul(x1, x2, out=out, precision="auto") is out
    assert cuteblas.matmul(x1, x2).shape == (3, 5)
    assert cuteblas.stats()["matmul"]["calls"] == {"reference": 5}


def test_a_second_call_is_few_frames():
    """The host's time for small products is that of Python's frames."""
    x1, x2, out = (on_gpu(laid_out(shape, "f", "C")) for shape in ((3, 4), (4, 5), (3, 5)))
    cuteblas.matmul(x1, x2, out)
    frames = []
    sys.setprofile(lambda frame, event, _argument: frames.append(frame.f_code.co_name)
                   if event == "call" else None)
    cuteblas.matmul(x1, x2, out)
    sys.setprofile(None)
    assert frames[:4] == ["matmul", "replay", "<lambda>", "launch"], "the last two are of host_cupy"


@pytest.mark.parametrize("call", [cuteblas.matmul, cuteblas.dot,
                                  partial(cuteblas.einsum, "ij,jk->ik"), partial(blas.sgemm, 1),
                                  partial(cuteblas.matmul, epilogue="relu")])
def test_a_program_of_one_function_replays_it(monkeypatch, call):
    """The replay of CuPy arrays is not known before the first of them."""
    name = "cuteblas.engines.replay.cupy"
    monkeypatch.delitem(dispatch.replays, cupy.ndarray)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(name, replay_cupy)              # is put back
    planned = []
    monkeypatch.setattr(tuning, "plan_for",
                        lambda *problem: planned.append(problem) or plan_for(*problem))
    for _ in range(4):
        call(on_gpu(np.ones((4, 4), "f4")), on_gpu(np.ones((4, 4), "f4")))
    assert 1 <= len(planned) <= 2


def test_alignment_is_on_the_account_of_its_caller():
    x = np.ndarray((6, 6), "f4", np.zeros(161, np.uint8), 1)
    for call, function in ((cuteblas.dot, "dot"), (cuteblas.matmul, "matmul"),
                           (cuteblas.inner, "inner")):
        cuteblas.reset_stats()
        call(on_gpu(x), on_gpu(x.astype("f8")))
        assert sorted(cuteblas.stats()) == [function, f"{function}: alignment"]


@pytest.mark.parametrize("change", ["dtype", "shape", "strides", "alignment", "out strides",
                                    "precision", "overlap", "argument"])
def test_a_call_is_not_replayed_when_anything_differs(monkeypatch, change):
    memory = np.zeros(1000, np.float32)
    x1, x2, out = memory[:16].reshape(4, 4), memory[16:32].reshape(4, 4), memory[32:48].reshape(4, 4)
    cuteblas.matmul(on_gpu(x1), on_gpu(x2), on_gpu(out))
    arguments = {}
    if change == "dtype":
        x1 = x1.view(np.int32)
    elif change == "shape":
        x1, out = x1[:3], out[:3]
    elif change == "strides":
        x2 = x2.T
    elif change == "alignment":
        x2 = memory[17:33].reshape(4, 4)
        out = memory[48:64].reshape(4, 4)
    elif change == "out strides":
        out = out.T
    elif change == "precision":
        arguments = {"precision": "ieee"}
    elif change == "overlap":
        out = memory[16 + 12:32 + 12].reshape(4, 4)
    elif change == "argument":
        arguments = {"order": "C"}
    monkeypatch.setattr(execution, "Execution", None)
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        cuteblas.matmul(on_gpu(x1), on_gpu(x2), on_gpu(out), **arguments)


def test_overlapping_out_acts_as_if_copied_also_when_replayed():
    for shift in (0, 4, 8):
        memory = laid_out((32,), "f", "C", shift)
        x, out = memory[:16].reshape(4, 4), memory[shift:shift + 16].reshape(4, 4)
        expected = x @ x
        cuteblas.matmul(on_gpu(x), on_gpu(x), on_gpu(out))
        np.testing.assert_array_equal(out, expected)


def test_what_arguments_ask_for_is_not_replayed_without_them():
    x = laid_out((3, 3), "f", "C")
    for arguments in ({"axes": [(1, 0), (0, 1), (0, 1)]}, {"order": "F"}, {"dtype": "f8"}):
        cuteblas.matmul(on_gpu(x), on_gpu(x), **arguments)
        agree(x, x)


def test_a_result_that_is_not_in_c_order_is_laid_out_so_every_time():
    x1, x2 = np.ones((3, 2, 4, 5)).transpose(1, 0, 2, 3), np.ones((5, 6))
    assert not np.matmul(x1, x2).flags.c_contiguous
    agree(x1, x2)


class Movable:
    """As much of a CuPy array as an assignment needs; like CuPy's own kernels it refuses elements
    that are not aligned."""

    def __init__(self, x):
        self.x, self.data = x, SimpleNamespace(ptr=x.__array_interface__["data"][0], device_id=0)

    def __getattr__(self, name):
        return getattr(self.x, name)

    def __setitem__(self, index, value):
        assert self.x.flags.aligned and value.flags.aligned
        self.x[index] = value.x

    def astype(self, dtype):
        assert self.x.flags.aligned
        return Movable(self.x.astype(dtype))


@pytest.mark.parametrize("layout1", ["C", "offset", "field"])
@pytest.mark.parametrize("layout2", ["C", "offset", "field"])
def test_assignments_move_unaligned_elements_by_our_kernel(monkeypatch, layout1, layout2):
    monkeypatch.setattr(cuda.Cuda, "cast", lambda self, dst, src: dst.__setitem__(..., src))
    monkeypatch.setattr(
        cuda.Cuda,
        "empty",
        lambda self, like: Movable(np.ndarray(like.shape, like.dtype, strides=like.strides))
    )
    for dtypes in (("f4", "f8"), ("c16", "c16"), ("f8", "i2")):
        target, source = laid_out((3, 4), dtypes[0], layout1), laid_out((3, 4), dtypes[1], layout2, seed=1)
        execution.Execution("assign", cuda.CUDA).assign(Movable(target), Movable(source))
        np.testing.assert_array_equal(target, source)


def test_operands_on_the_host_and_on_the_gpu():
    x = np.ones((2, 2))
    for call in ((on_gpu(x), x), (x, on_gpu(x)), (on_gpu(x), [[1, 2], [3, 4]]),
                 (on_gpu(x), on_gpu(x), x), (x, x, on_gpu(x))):
        with pytest.raises(
            ValueError,
            match=r"^matmul needs its operands on one device, but .* is on (cuda:0|the host) and .* on "
            r"(cuda:0|the host); cupy.asarray and cupy.asnumpy move arrays$"
        ):
            cuteblas.matmul(*call)


def test_operands_on_different_devices():
    x = np.ones((2, 2))
    with pytest.raises(ValueError,
                       match=r"x1 \(cupy.ndarray\) is on cuda:0 and x2 \(cupy.ndarray\) on cuda:1"):
        cuteblas.matmul(on_gpu(x), on_gpu(x, device=1))
    cuteblas.matmul(on_gpu(x), on_gpu(x), on_gpu(np.empty((2, 2))))
    with pytest.raises(
        ValueError, match=r"x1 \(cupy.ndarray\) is on cuda:0 and out \(cupy.ndarray\) on cuda:1"
    ):
        cuteblas.matmul(on_gpu(x), on_gpu(x), on_gpu(np.empty((2, 2)), device=1))


def test_current_device_follows_the_operands(monkeypatch):
    entered = []

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        def __enter__(self):
            entered.append(self.ordinal)

        def __exit__(self, *_):
            entered.append("left")

    for module in (cuda, replay_cupy):
        monkeypatch.setattr(module, "several_devices", lambda: True)
        monkeypatch.setattr(module, "current_device", lambda: 0)
    monkeypatch.setattr(cupy.cuda, "Device", Device)
    x = np.ones((2, 2))
    for device, expected in ((0, []), (1, [1, "left"])):
        for _ in range(2):
            entered.clear()
            cuteblas.matmul(on_gpu(x, device), on_gpu(x, device), on_gpu(np.empty((2, 2)), device))
            assert entered == expected


@pytest.mark.parametrize("x2", [3, 2.5, 1j, True, np.float32(3)])
def test_scalars_are_refused_in_numpys_words(x2):
    x = np.ones((2, 2))
    check_same_refusal(cuteblas.matmul, outcome(np.matmul, x, x2)[1], on_gpu(x), x2)


@pytest.mark.parametrize("out", [3.0, "ab", [[1, 2], [3, 4]], object()])
def test_out_that_is_no_array(out):
    x = on_gpu(np.ones((2, 2)))
    with pytest.raises(TypeError, match=r"^return arrays must be of ArrayType$"):
        cuteblas.matmul(x, x, out=out)


def test_types_without_kernels():
    x = on_gpu(np.ones((2, 2)))
    with pytest.raises(
        TypeError,
        match="no kernel on the GPU for float64 and float64, which NumPy computes in object"
    ):
        cuteblas.matmul(x, x, dtype=object)
    swapped = on_gpu(np.ones((2, 2), ">f8"))
    with pytest.raises(TypeError, match="no kernel on the GPU for >f8 and float64"):
        cuteblas.matmul(swapped, x)


def test_vectors_give_an_array_without_dimensions():
    result = cuteblas.matmul(on_gpu(np.arange(3.0)), on_gpu(np.arange(3.0)))
    assert type(result) is cupy.ndarray and result.shape == () and on_host(result) == 5


class Answers:
    def __array_ufunc__(self, ufunc, method, *inputs, **arguments):
        return ufunc.__name__, method, arguments


def test_other_types_are_asked():
    assert cuteblas.matmul(on_gpu(np.ones((2, 2))), Answers(), order="C") == (
        "matmul",
        "__call__",
        {"order": "C"}
    )


@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy(order, layout):
    for shape, dtype in (((3, 4, 5), "f4"), ((0, 3), "i8"), ((), "c16"), ((1, 7, 1), "i1"),
                         ((2, 3), "c16")):
        x = laid_out(shape, dtype, layout)
        # a repeated one
        expected, result = np.copy(x, order=order), [cuteblas.copy(on_gpu(x), order=order)
                                                     for _ in range(2)][1]
        assert type(result) is cupy.ndarray and (result.shape, result.dtype) == (
            expected.shape,
            expected.dtype
        )
        assert result.flags.c_contiguous == expected.flags.c_contiguous and result.flags.f_contiguous == expected.flags.f_contiguous
        np.testing.assert_array_equal(on_host(result), expected)


def test_copies_into_an_array_and_in_place(monkeypatch):
    cuteblas.reset_stats()
    x, y = laid_out((4, 4), "d", "C", 1), laid_out((4, 4), "d", "C", 2)
    for _ in range(2):
        expected = x.T.copy()
        gpu = on_gpu(x)
        assert cuteblas.copy(gpu.T, out=gpu) is gpu
        np.testing.assert_array_equal(x, expected)
        cuteblas.copy(on_gpu(x), out=on_gpu(y.T))
        np.testing.assert_array_equal(y.T, x)
        monkeypatch.setattr(execution, "Execution", None)            # the long way
    assert cuteblas.stats() == {"copy": {"calls": {"reference": 4}}}
    other = laid_out((4, 4), "d", "C", 3)
    expected = other.T.copy()
    cuteblas.copy(on_gpu(other).T, out=on_gpu(other))            # another address, in place as well
    np.testing.assert_array_equal(other, expected)
    memory = np.zeros(48)
    for source, out in ((memory[8:24].reshape(4, 4), memory[:16].reshape(4, 4).T), (x, x),
                        (x[::-1], x[::-1].T[::-1]), (x.T, x.view("i8"))):
        # not replayed: these overlap otherwise, or are something else
        with pytest.raises((TypeError, ValueError)):
            cuteblas.copy(on_gpu(source), out=on_gpu(out))


def test_copies_with_overlap_are_those_of_a_copy():
    for view in (lambda x: (x[::-1], x), lambda x: (x[1:, :5], x[:5, 1:].T), lambda x: (x, x),
                 lambda x: (x[:5, :5].T, x[1:, 1:])):
        x, y = laid_out((6, 6), "f", "C"), laid_out((6, 6), "f", "C")
        for _ in range(2):
            source, out = view(x)
            theirs, expected = view(y)
            expected[...] = theirs.copy()
            cuteblas.copy(on_gpu(source), out=on_gpu(out))
            np.testing.assert_array_equal(x, y)
    x = np.ones((2, 2))
    for source, out in ((on_gpu(x), on_gpu(x, 1)), (on_gpu(x), x), (x, on_gpu(x))):
        with pytest.raises(
            ValueError,
            match=r"copy needs its operands on one device, but the array .* is on .* and out .* on"
        ):
            cuteblas.copy(source, out=out)


def test_a_repeated_copy_is_replayed(monkeypatch):
    x = laid_out((6, 5), "f", "C")
    cuteblas.copy(on_gpu(x).T, order="C")
    cuteblas.ascontiguousarray(on_gpu(x).T)
    monkeypatch.setattr(execution, "Execution", None)
    np.testing.assert_array_equal(on_host(cuteblas.copy(on_gpu(x + 1).T, order="C")), x.T + 1)
    np.testing.assert_array_equal(on_host(cuteblas.ascontiguousarray(on_gpu(x - 1).T)), x.T - 1)
    assert cuteblas.stats()["copy"]["calls"] == cuteblas.stats()["ascontiguousarray"]["calls"] == {"reference": 2}
    for other, order in ((x[:5], "C"), (x.view("i4"), "C"), (x, "F"), (x[1:], "C")):
        with pytest.raises(TypeError):
            cuteblas.copy(on_gpu(other).T, order=order)


@pytest.mark.parametrize("layout", ["C", "F", "permuted", "padded"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 5), (5,), ()])
def test_repeated_copies_are_numpys(shape, layout):
    """The first call and those after it: the array itself where NumPy returns that, else its order
    of axes."""
    x = laid_out(shape, "f", layout)
    for ours, numpys in ((cuteblas.ascontiguousarray, np.ascontiguousarray),
                         (cuteblas.asfortranarray, np.asfortranarray),
                         *((partial(cuteblas.copy, order=order), partial(np.copy, order=order))
                           for order in "KCFA")):
        expected = numpys(x)
        for _ in range(3):
            gpu = on_gpu(x)
            result = ours(gpu)
            assert (result is gpu) == (expected is x)
            assert (result.shape, result.flags.c_contiguous, result.flags.f_contiguous) == (
                expected.shape, expected.flags.c_contiguous, expected.flags.f_contiguous)
            check_same_strides(on_host(result), expected)
            np.testing.assert_array_equal(on_host(result), expected)


def test_a_repeated_copy_into_an_array():
    x, out = laid_out((6, 5), "f", "C"), on_gpu(np.empty((5, 6), "f"))
    for number in range(3):
        assert cuteblas.copy(on_gpu(x + number).T, out=out) is out
        np.testing.assert_array_equal(on_host(out), x.T + number)
        with pytest.raises(ValueError, match="order must be one of 'C', 'F', 'A', or 'K'"):
            cuteblas.copy(on_gpu(x).T, "X", out=out)
        with pytest.raises(ValueError, match="order must be one of 'C', 'F', 'A', or 'K'"):
            cuteblas.copy(on_gpu(x).T, "X")
    assert cuteblas.stats()["copy"]["calls"] == {"reference": 3}


def test_contiguous():
    x = on_gpu(laid_out((3, 4), "f", "C"))
    assert cuteblas.ascontiguousarray(x) is x
    result = cuteblas.ascontiguousarray(x.T)
    assert result.flags.c_contiguous and (on_host(result) == on_host(x).T).all()
    assert cuteblas.ascontiguousarray(on_gpu(np.array(3.0))).shape == (1,)
    assert cuteblas.stats()["ascontiguousarray"]["calls"] == {"nothing": 2, "reference": 1}


@pytest.mark.parametrize("dtype", [{}, "V4", "S3", "O", "M8[s]", "g", ">f4", [("x", "f4")]])
def test_types_that_a_gpu_cannot_hold_are_refused(dtype):
    x = on_gpu(laid_out((3, 4), "f", "C"))
    for call in (cuteblas.ascontiguousarray, cuteblas.asfortranarray):
        with pytest.raises(
            TypeError, match=f"{call.__name__} has no kernel on the GPU that converts float32 to "
        ):
            call(x, dtype)


FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("kind", FLOAT8)
def test_casts_of_numbers_of_8_bits_are_ml_dtypes(monkeypatch, kind):
    """To the bit, by our kernels: CuPy holds such arrays and has no kernels for them."""
    monkeypatch.setattr("cuteblas.runtime.executor", host_cupy.emulated)
    every = np.arange(256, dtype=np.uint8).view(kind).reshape(16, 16)
    for target in ("f2", "f4", "f8", "F", "?", ml_dtypes.bfloat16, *FLOAT8):
        if kind != target:
            for x in (every, every.T):
                result = cuteblas.ascontiguousarray(on_gpu(x), target)
                assert result.dtype == target and on_host(result).tobytes() == x.astype(target).tobytes()
    halves = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    with np.errstate(all="ignore"):
        for x in (halves.view("f2"), halves.view(ml_dtypes.bfloat16), halves.astype("f4"),
                  halves.astype("f8") - 3e4, halves.astype("i4")):
            result = cuteblas.asfortranarray(on_gpu(x), kind)
            assert result.flags.f_contiguous and on_host(result).tobytes() == x.astype(kind).tobytes()
    counted = cuteblas.stats()
    assert not any("delegated" in route for calls in counted.values() for route in calls["calls"])
    assert counted["asfortranarray"]["calls"][f"changes float16 to {np.dtype(kind)}"] == 1


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@pytest.mark.parametrize("kind", FLOAT8)
def test_products_of_numbers_of_8_bits_are_numpys_or_refused(monkeypatch, kind):
    """NumPy multiplies them in float32; BLAS has no such routine."""
    a = np.arange(-32, 32).reshape(8, 8).astype(kind)
    with pytest.raises(TypeError, match=f"gemm multiplies arrays of float32, .*, not of {a.dtype}"):
        blas.gemm(1, on_gpu(a), on_gpu(a))
    monkeypatch.setattr("cuteblas.runtime.executor", host_cupy.emulated)
    result = cuteblas.matmul(on_gpu(a), on_gpu(a.T))
    assert result.dtype == np.float32 and (on_host(result) == np.matmul(a, a.T)).all()
    assert cuteblas.stats()["matmul"]["copies"] == {f"{x}: is {a.dtype}, computed in float32": 1
                                                    for x in ("x1", "x2")}


def test_transposes_are_views_and_refuse_in_numpys_words():
    x = np.ones((2, 3, 4))
    gpu = on_gpu(x)
    for axes in (None, (1, 2, 0), (-1, 0, 1), (0, 0, 1), (0, 1), (0, 1, 7), "abc", (), {}, 1.5):
        expected, refusal = outcome(np.transpose, x, axes)
        if refusal is not None:
            check_same_refusal(cuteblas.transpose, refusal, gpu, axes)
        else:
            view = cuteblas.transpose(gpu, axes)
            assert view.data.ptr == gpu.data.ptr and view.strides == expected.strides
    assert cuteblas.matrix_transpose(gpu).strides == np.matrix_transpose(x).strides
    with pytest.raises(ValueError, match="Input array must be at least 2-dimensional, but it is 1"):
        cuteblas.matrix_transpose(on_gpu(np.ones(3)))


def test_explain_names_the_device():
    x = on_gpu(laid_out((3, 4), "f", "C"))
    told = cuteblas.explain(x, x.T)
    assert "cuda:0, NVIDIA H200" in told.verbose() and told.plan.problem.k == 4
    assert "cuda:0" in cuteblas.explain_copy(x.T).runs_on
    assert "NumPy: Answers answers ufuncs itself" in str(cuteblas.explain(x, Answers()))


def test_recorded_calls_are_bounded(monkeypatch):
    monkeypatch.setattr(recording, "MOST_RECORDED", 4)
    for n in range(1, 9):
        cuteblas.matmul(on_gpu(np.ones((n, n))), on_gpu(np.ones((n, n))))
        cuteblas.copy(on_gpu(np.ones((n, n))))
    assert 0 < len(replay_cupy.recorded) <= 4


def test_cupy_is_not_imported_before_a_cupy_array_comes():
    program = (
        "import sys, numpy, cuteblas; cuteblas.matmul([1], [2]); cuteblas.transpose(numpy.ones((2, 3))); "
        "print([name for name in sys.modules if name.startswith(('cupy', 'cuda'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True).stdout.strip() == "[]"


def test_problems_carry_the_name_of_a_kernel() -> None:
    a = np.arange(40 * 70, dtype="f4").reshape(40, 70)
    x, before = on_gpu(a).T, len(reference.LAUNCHED)
    for _ in range(2):
        results = [cuteblas.copy(x, "C", variant="transpose_smem_padded"), cuteblas.copy(x, "C"),
                   cuteblas.ascontiguousarray(x, variant="transpose_naive_read")]
        for result in results:
            np.testing.assert_array_equal(on_host(result), a.T)
    names = [plan.problem.variant for plan in reference.LAUNCHED[before:]]
    assert names == ["transpose_smem_padded", None, "transpose_naive_read"] * 2
    assert cuteblas.explain_copy(x, variant="tma_transpose").plan.problem.variant == "tma_transpose"
    for call in (cuteblas.copy, cuteblas.ascontiguousarray, cuteblas.explain_copy):
        with pytest.raises(ValueError, match="there is no copy variant 'gemm'"):
            call(x, variant="gemm")
    with pytest.raises(ValueError, match="names a kernel, but changes float32 to float64"):
        cuteblas.ascontiguousarray(x, "f8", variant="transpose_naive_read")


def test_a_product_by_name_is_another_product() -> None:
    name = next(v.name for v in variants().values() if v.operation == "gemm")
    a, b = (on_gpu(np.arange(64 * 64, dtype="f4").reshape(64, 64) % 7) for _ in range(2))
    before = len(reference.LAUNCHED)
    for variant in (None, name, name, None):
        result = cuteblas.matmul(a, b, variant=variant)
        np.testing.assert_array_equal(on_host(result), on_host(a) @ on_host(b))
    assert [plan.problem.variant for plan in reference.LAUNCHED[before:]] == [
        None,
        name,
        name,
        None
    ]
    assert cuteblas.explain(a, b, variant=name).plan.problem.variant == name


# -- epilogues -------------------------------------------------------------------------------------
def test_a_repeated_call_with_an_epilogue_is_replayed(monkeypatch):
    """The second call of a kind plans nothing; other numbers and other memory are the same kind,
    another bias type is not."""
    launched = []
    monkeypatch.setattr(
        "cuteblas.runtime.executor",
        lambda plan: SimpleNamespace(
            launch=lambda *arguments: launched.append((plan.problem.roles, arguments))
        )
    )
    planned = []
    monkeypatch.setattr("cuteblas.engines.tuning.plan_for",
                        lambda *a: planned.append(a) or plan_for(*a))
    low = cuteblas.epilogues.clamp
    a, b = on_gpu(np.ones((8, 6), "f4")), on_gpu(np.ones((6, 5), "f4"))
    for number, (lo, count) in enumerate([(0.0, 1), (0.5, 1), (1, 2), (0.25, 2)]):
        result = cuteblas.matmul(a, b, epilogue=low(lo=lo, hi=2.0))
        assert result.shape == (8, 5) and len(planned) == count and len(launched) == number + 1
        assert launched[-1][1][-1] == {"epi_lo": lo, "epi_hi": 2.0}
    for kind, count in (("f4", 3), ("f4", 3), ("f8", 4)):
        bias = on_gpu(np.ones((1, 5), kind))
        cuteblas.matmul(a, b, epilogue=cuteblas.epilogues.bias(bias=bias))
        assert len(planned) == count
        assert launched[-1][1][0][launched[-1][0].index("epi_bias")] == bias.data.ptr
    assert sum(cuteblas.stats()["matmul"]["calls"].values()) == 7


def test_an_epilogue_that_changes_is_traced_again(monkeypatch):
    launched = []
    monkeypatch.setattr(
        "cuteblas.runtime.executor",
        lambda plan: SimpleNamespace(
            launch=lambda *arguments: launched.append(plan.problem.fusion.graph.digest)
        )
    )

    def shifted(by):
        @cuteblas.epilogue
        def shift(acc):
            return acc + by
        return shift

    a, b = on_gpu(np.ones((8, 6), "f4")), on_gpu(np.ones((6, 5), "f4"))
    one, two = shifted(1.0), shifted(2.0)
    for f in (one, two, one, two):
        cuteblas.matmul(a, b, epilogue=f)
    assert launched[:2] == launched[2:] and launched[0] != launched[1]


@pytest.mark.parametrize("share, blocks", [(2, True), (10, False), (1000, False)])
def test_less_workspace_where_there_is_no_memory(monkeypatch, share, blocks):
    """Blocks, then another family: for the first call and those like it. An algorithm by name has
    no substitute."""
    from cuteblas.planning.gemm.dispatch import plan_gemm

    launched, most = [], []
    cuda.launcher_for.cache_clear()
    replay_cupy.recorded.clear()

    def executor(plan):
        def launch(*_arguments):
            most.append(plan.workspace_bytes)
            if plan.workspace_bytes > most[0] // share:
                raise cupy.cuda.memory.OutOfMemoryError(plan.workspace_bytes, 0)
            launched.append((plan.family, len(plan.launches)))
        return SimpleNamespace(launch=launch)

    monkeypatch.setattr("cuteblas.runtime.executor", executor)
    for module in (execution, tuning):
        monkeypatch.setattr(module, "plan_for", plan_gemm)
    a = on_gpu(np.ones((1536, 1536), "f4"))
    for _ in range(2):
        assert cuteblas.matmul(a, a).shape == (1536, 1536)
    family, launches = launched[0]
    assert launched == [(family, launches)] * 2 and (launches > 3,
                                                     family == "gemm_split") == (blocks, blocks)
    (text, count), = cuteblas.stats()["workspace"]["calls"].items()
    assert count == 2 and text.startswith(
        f"{family}{' in blocks' * blocks} instead of gemm_split: no memory for a workspace of {most[0]} bytes"
    )
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cuteblas.matmul(a, a, precision="fp16x3")
