"""``install``, ``enabled`` and ``uninstall``, without a GPU: CuPy arrays are in host memory,
launches are evaluated by the definition, and stand-ins that work on the host are what is called
CuPy's own path here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context

import numpy as np
import pytest
from ml_dtypes import bfloat16

import cuteblas
from cuteblas import runtime

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.array import hooks, patches  # noqa: E402
from cuteblas.array.install import install_with_cupy, installed, obey_environment  # noqa: E402
from cuteblas.engines import cuda  # noqa: E402
from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402

from ..functions import host_cupy, reference  # noqa: E402
from ..functions.host_cupy import on_gpu, on_host  # noqa: E402

PLACES = {"operator": (cupy.ndarray, "__matmul__"), "function": (cupy.matmul, "_try_fastcall_func"),
          "dot": (cupy.ndarray, "dot"), "tensordot": (cupy._core, "tensordot_core")}
CALLS = {"operator": lambda a, b: a @ b, "function": lambda a, b: cupy.matmul(a, b),
         "dot": lambda a, b: a.dot(b), "tensordot": lambda a, b: cupy.tensordot(a, b, 1)}


def attributes() -> dict[str, object]:
    """What is at the four places, ``None`` where it is inherited."""
    return {place: vars(owner).get(name) for place, (owner, name) in PLACES.items()}


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    host_cupy.install(monkeypatch)
    for name in ("plan_gemm", "plan_copy", "plan_contraction"):
        monkeypatch.setattr(f"cuteblas.planning.{name}", reference.fake_plan)
    monkeypatch.setattr(runtime, "why_unavailable", lambda: None)
    monkeypatch.setattr(runtime, "available", lambda: True)
    monkeypatch.setattr(runtime, "capturing", lambda: False)
    monkeypatch.setattr(cupy, "asarray", on_gpu)
    monkeypatch.setattr(cupy, "asnumpy", on_host)
    monkeypatch.setattr(hooks, "SWITCH", hooks.Switch("cupy", hooks.PATCHES))
    monkeypatch.setattr(patches, "MADE_BY_CHECKS", Counter())
    cuteblas.reset_stats()
    yield
    cuteblas.uninstall()
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()


@pytest.fixture
def by_cupy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins at the four places that work on the host; the list of those that were called."""
    called: list[str] = []

    def product(place, compute):
        def stand_in(a, b, *rest, **named):
            called.append(place)
            return on_gpu(np.asarray(compute(on_host(a), on_host(b), *rest)))
        return stand_in

    for place, compute in (
        ("operator", np.matmul),
        ("function", lambda x, y, *_: np.matmul(x, y)),
        ("dot", lambda x, y, *_: np.dot(x, y)),
        (
            "tensordot",
            lambda x, y, out, n, m, k, shape: (x.reshape(k, n).T @ y.reshape(k, m)).reshape(shape)
        )
    ):
        owner, name = PLACES[place]
        monkeypatch.setattr(owner, name, product(place, compute), raising=False)
    return called


def operands(*shapes: tuple[int, ...], dtype: str = "f4") -> list:
    return [on_gpu(np.arange(np.prod(shape)).reshape(shape).astype(dtype) % 5) for shape in shapes]


def served() -> dict[str, dict[str, int]]:
    """Calls by function and route, without those of the self-test."""
    return {function: left for function, groups in cuteblas.stats().items()
            if (left := {route: n - patches.MADE_BY_CHECKS.get((function, route), 0)
                         for route, n in groups["calls"].items()
                         if n != patches.MADE_BY_CHECKS.get((function, route), 0)})}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_is_served(by_cupy, place):
    a, b = operands((3, 4), (4, 5))
    expected = on_host(a) @ on_host(b)
    np.testing.assert_array_equal(on_host(CALLS[place](a, b)), expected)
    assert by_cupy == [place]
    cuteblas.install()
    for _ in range(2):                      # the long way and the short one
        result = CALLS[place](a, b)
        assert type(result) is cupy.ndarray
        np.testing.assert_array_equal(on_host(result), expected)
    assert by_cupy == [place] and served() == {"matmul": {"reference": 2}}


@pytest.mark.parametrize("leave", ["uninstall", "block"])
def test_what_was_there_is_put_back(by_cupy, leave):
    pristine = attributes()
    if leave == "block":
        with cuteblas.enabled():
            assert not any(now is before for now, before in zip(attributes().values(),
                                                                pristine.values(), strict=True))
    else:
        cuteblas.install()
        assert not any(now is before for now, before in zip(attributes().values(),
                                                            pristine.values(), strict=True))
        cuteblas.uninstall()
    assert all(now is before for now, before in zip(attributes().values(), pristine.values(),
                                                    strict=True))


def test_inherited_attributes_are_inherited_again():
    assert attributes()["operator"] is None and attributes()["dot"] is None
    pristine, own, method = attributes(), cupy.ndarray.__matmul__, cupy.ndarray.dot
    cuteblas.install()
    cuteblas.uninstall()
    assert attributes() == pristine and cupy.ndarray.__matmul__ is own and cupy.ndarray.dot is method


def test_installing_twice_is_the_same_as_once():
    pristine = attributes()
    cuteblas.install()
    cuteblas.install()
    with cuteblas.enabled(), cuteblas.enabled():
        pass
    assert installed() and attributes()["operator"] is not None
    cuteblas.uninstall()
    assert attributes() == pristine and not installed()
    cuteblas.uninstall()


def test_blocks_are_nested_and_outlive_uninstall(by_cupy):
    pristine = attributes()
    a, b = operands((3, 4), (4, 5))
    with cuteblas.enabled():
        with cuteblas.enabled():
            a @ b
        a @ b
        cuteblas.install()
        cuteblas.uninstall()
        a @ b
        assert by_cupy == [] and served() == {"matmul": {"reference": 3}}
    assert attributes() == pristine
    a @ b
    assert by_cupy == ["operator"]


def test_a_block_ends_with_an_exception():
    pristine = attributes()
    with pytest.raises(ZeroDivisionError), cuteblas.enabled():
        1 / 0  # noqa: B018
    assert attributes() == pristine


def test_blocks_are_for_their_thread_and_install_is_for_all(by_cupy):
    a, b = operands((3, 4), (4, 5))

    def elsewhere():
        thread = threading.Thread(target=lambda: a @ b)
        thread.start()
        thread.join()

    with cuteblas.enabled():
        elsewhere()
        assert by_cupy == ["operator"]
        copy_context().run(lambda: a @ b)       # as tasks of asyncio
        assert by_cupy == ["operator"]
    cuteblas.install()
    elsewhere()
    assert by_cupy == ["operator"] and served() == {"matmul": {"reference": 2}}


def test_another_threads_block_keeps_the_hooks(by_cupy):
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with cuteblas.enabled():
            inside.set()
            leave.wait(10)

    pristine = attributes()
    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    with cuteblas.enabled():
        pass
    a, b = operands((3, 4), (4, 5))
    assert attributes() != pristine
    a @ b
    assert by_cupy == ["operator"]
    leave.set()
    thread.join()
    assert attributes() == pristine


def test_a_patch_over_ours_is_left_alone(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    original = attributes()["operator"]
    cuteblas.install()
    ours = cupy.ndarray.__matmul__

    def theirs(self, other):
        return ours(self, other)

    cupy.ndarray.__matmul__ = theirs
    cuteblas.uninstall()
    assert attributes()["operator"] is theirs
    a @ b
    assert by_cupy == ["operator"]
    cuteblas.install()
    a @ b
    assert by_cupy == ["operator"]
    cupy.ndarray.__matmul__ = ours
    cuteblas.uninstall()
    assert attributes()["operator"] is original


def test_into_cupy_and_numpy_at_once(by_cupy):
    pristine, dot = attributes(), np.dot
    a, b = operands((3, 4), (4, 5))
    x, expected = np.arange(2500).reshape(50, 50), on_host(a) @ on_host(b)
    cuteblas.install(cupy=True, numpy=True)
    assert installed("cupy") and installed("numpy") and np.dot is not dot
    for call in (np.matmul, np.dot, lambda a, b: np.tensordot(a, b, 1), lambda a, b: a @ b):
        result = call(a, b)
        assert type(result) is cupy.ndarray
        np.testing.assert_array_equal(on_host(result), expected)
    assert by_cupy == [] and served() == {"matmul": {"reference": 4}}
    np.testing.assert_array_equal(x @ x, np.einsum("ij,jk", x, x))
    assert sum(served()["matmul"].values()) == 5
    cuteblas.uninstall()
    assert attributes() == pristine and np.dot is dot
    with cuteblas.enabled(numpy=True):
        np.matmul(a, b), np.dot(a, b)
    assert by_cupy == ["function", "dot"]


# -- what is served --------------------------------------------------------------------------------
def test_names_of_the_same_function(by_cupy):
    a, b = operands((4, 4), (4, 4))
    expected = on_host(a) @ on_host(b)
    cuteblas.install()
    for call in (np.matmul, cupy.linalg._product.matmul, np.dot, cupy.dot,
                 lambda a, b: np.tensordot(a, b, 1), lambda a, b: np.inner(a, b.T)):
        np.testing.assert_array_equal(on_host(call(a, b)), expected)
    assert by_cupy == [] and sum(served()["matmul"].values()) == 6


def test_in_place_product_and_out():
    a, b = operands((3, 4), (4, 5))
    expected = on_host(a) @ on_host(b)
    cuteblas.install()
    for call in (cupy.matmul, cupy.dot, lambda a, b, out: np.matmul(a, b, out=out)):
        out = on_gpu(np.zeros((3, 5), "f4"))
        for _ in range(2):
            assert call(a, b, out=out) is out
            np.testing.assert_array_equal(on_host(out), expected)
            on_host(out)[...] = 0
    c = a
    c @= b
    np.testing.assert_array_equal(on_host(c), expected)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((3, 4), (4,)), ((4,), (4, 5)), ((4,), (4,)),
                                    ((3, 4), (2, 4, 5)), ((), (4, 5))])
def test_an_out_that_numpys_dot_refuses_is_left_to_cupy(monkeypatch, shapes):
    """Also where ``matmul`` takes it, and was recorded with the like before."""
    def refusal(a, b, out=None):
        raise ValueError("CuPy's")

    a, b = operands(*shapes)
    owner, name = PLACES["dot"]
    with cuteblas.enabled():
        pass                                # the self-test
    monkeypatch.setattr(owner, name, refusal, raising=False)
    cuteblas.install()
    shape = np.dot(on_host(a), on_host(b)).shape
    assert cupy.dot(a, b, out=on_gpu(np.zeros(shape, "f4"))).shape == shape
    outs = [np.zeros(shape, "f8"), np.zeros(shape, "i4"), np.zeros((*shape, 2), "f4")[..., 0],
            np.zeros((2, *shape), "f4")]
    if len(shape) > 1:
        outs.append(np.zeros(shape, "f4", order="F"))
    for out in map(on_gpu, outs):
        with suppress(TypeError, ValueError):
            cuteblas.matmul(a, b, out=out)
        if out.flags.c_contiguous and out.dtype == "f4" and out.shape == shape:
            continue                        # strides of one element
        with pytest.raises(ValueError, match="CuPy's"):
            cupy.dot(a, b, out=out)


def test_vectors_and_numbers(by_cupy):
    x, y, m = operands((4,), (4,), (4, 5))
    cuteblas.install()
    for call, expected in ((lambda: x @ y, np.dot), (lambda: x.dot(y), np.dot),
                           (lambda: cupy.vdot(x, y), np.vdot),
                           (lambda: cupy.inner(x, y), np.inner)):
        result = call()
        assert result.shape == () and type(result) is cupy.ndarray
        assert on_host(result) == expected(on_host(x), on_host(y))
    np.testing.assert_array_equal(on_host(x @ m), on_host(x) @ on_host(m))
    np.testing.assert_array_equal(on_host(m.T.dot(x)), on_host(m).T @ on_host(x))
    number = on_gpu(np.array(3, "f4"))
    np.testing.assert_array_equal(on_host(m.dot(number)), 3 * on_host(m))
    np.testing.assert_array_equal(on_host(number.dot(m)), 3 * on_host(m))
    assert by_cupy == []


@pytest.mark.parametrize("shapes, axes", [(((2, 3, 4), (4, 3, 5)), ([1, 2], [1, 0])),
                                          (((2, 3, 4), (5, 4)), (2, 1)), (((3, 4), (3, 4)), 2),
                                          (((2, 3), (4, 5)), 0), (((2, 0), (0, 3)), 1),
                                          (((2, 3, 4), (3, 2, 5)), ([0, 1], [1, 0])),
                                          (((3,), (3, 4)), 1), (((2, 3, 4), (2, 3, 4)), 3)])
def test_tensordot_reads_nested_modes(by_cupy, shapes, axes):
    a, b = operands(*shapes)
    expected = np.tensordot(on_host(a), on_host(b), axes)
    cuteblas.install()
    for _ in range(2):
        result = cupy.tensordot(a, b, axes)
        assert result.shape == expected.shape and result.flags.c_contiguous
        np.testing.assert_array_equal(on_host(result), expected)
    assert by_cupy == []


def test_dot_of_stacks_is_not_matmul(by_cupy):
    a, b = operands((2, 3, 4), (2, 4, 5))
    cuteblas.install()
    a @ b                                   # recorded: dot must not take it for the same
    result = a.dot(b)
    np.testing.assert_array_equal(on_host(result), np.dot(on_host(a), on_host(b)))
    assert by_cupy == [] and "dot" in served()


def test_arguments_of_the_function(by_cupy):
    a, b = operands((3, 4), (4, 5))
    x, y = on_host(a), on_host(b)
    cuteblas.install()
    assert cupy.matmul(a, b, order="F").flags.f_contiguous
    assert cupy.matmul(a, b, dtype="f8").dtype == "f8"
    np.testing.assert_array_equal(on_host(cupy.matmul(a.T, b, axes=[(1, 0), (0, 1), (1, 0)])),
                                  (x @ y).T)
    assert by_cupy == []


def test_results_are_in_c_order_as_cupys():
    a = on_gpu(np.ones((3, 2, 4, 5), "f4")).transpose(1, 0, 2, 3)
    (b,) = operands((5, 6))
    assert not np.matmul(on_host(a), on_host(b)).flags.c_contiguous
    cuteblas.install()
    for _ in range(2):
        result = a @ b
        assert result.flags.c_contiguous
        np.testing.assert_array_equal(on_host(result), np.matmul(on_host(a), on_host(b)))


def test_a_repeated_product_is_replayed(monkeypatch):
    a, b = operands((3, 4), (4, 5))
    cuteblas.install()
    for call in CALLS.values():
        call(a, b)
    monkeypatch.setattr(hooks, "_long_way", None)
    for call in CALLS.values():
        call(a, b)
    cupy.matmul(a, b)


def test_repeated_products_of_tensors_are_replayed(monkeypatch):
    (a, b), c = operands((2, 3, 4), (2, 4, 5)), operands((4, 3, 5))[0]
    calls = (lambda: a.dot(b), lambda: cupy.tensordot(a, c, ([1, 2], [1, 0])),
             lambda: cupy.inner(a, a))
    cuteblas.install()
    expected = [call() for call in calls]
    monkeypatch.setattr(hooks, "_long_way", None)
    monkeypatch.setattr(runtime, "capturing", lambda: True)
    for call, first in zip(calls, expected, strict=True):
        again = call()
        np.testing.assert_array_equal(on_host(again), on_host(first))


class Answers:
    """As our own array type: it answers ufuncs, and CuPy does not know it."""

    def __array_ufunc__(self, ufunc, method, *inputs, **arguments):
        return ufunc.__name__, len(inputs)


class Exports(Answers):
    """CuPy would take it for its own."""

    __cuda_array_interface__ = None


def test_types_that_answer_ufuncs_are_asked(by_cupy):
    (a,) = operands((3, 3))
    cuteblas.install()
    assert cupy.matmul(a, Answers()) == ("matmul", 2) and cupy.matmul(Answers(), a) == ("matmul", 2)
    assert by_cupy == []
    with pytest.raises(Exception):  # noqa: B017        # CuPy's path, whose stand-in cannot read it; no endless recursion
        cupy.matmul(a, Exports())
    assert by_cupy == ["function"]


# -- what is not served ----------------------------------------------------------------------------
class Sub(cupy.ndarray):
    """A subclass, which CuPy's products forget."""


def test_what_falls_back_is_counted_with_its_reason(by_cupy, monkeypatch):
    a, b = operands((3, 3), (3, 3))
    cuteblas.install()
    a.view(Sub) @ b
    a @ b.view(Sub)
    cupy.matmul(a, on_gpu(on_host(b), device=1))
    monkeypatch.setattr(runtime, "capturing", lambda: True)
    a.dot(b[:, :2])
    monkeypatch.setattr(runtime, "capturing", lambda: False)
    half = on_gpu(np.ones((3, 3), bfloat16))
    cupy.tensordot(half, half, 1)
    assert by_cupy == ["operator", "operator", "function", "dot", "tensordot"]
    assert served() == {
        "matmul": {
            "delegated to CuPy: Sub is a subclass of cupy.ndarray": 2,
            "delegated to CuPy: the operands are on several devices": 1
        },
        "dot": {
            "delegated to CuPy: a stream is being captured, and no call like this was served before": 1
        },
        "tensordot": {"delegated to CuPy: there are no kernels for bfloat16": 1}
    }


def test_vectors_of_several_shapes_are_left_to_cupy(by_cupy):
    a, b = operands((2, 3), (3, 2))
    expected = np.vdot(on_host(a), on_host(b))
    cuteblas.install()
    assert on_host(cupy.vdot(a, b)) == expected and by_cupy == ["tensordot"]
    assert served() == {"tensordot": {"delegated to CuPy: vdot got arrays of two shapes": 1}}
    assert on_host(cupy.vdot(a, a)) == np.vdot(on_host(a), on_host(a)) and by_cupy == ["tensordot"]


def test_a_captured_call_that_was_served_before_is_served(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    cuteblas.install()
    a @ b
    monkeypatch.setattr(runtime, "capturing", lambda: True)
    a @ b
    assert by_cupy == []


def test_less_accurate_types_are_left_to_cupy(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    cuteblas.install()
    monkeypatch.setattr(cupy._core, "get_compute_type",
                        lambda dtype: cupy._core._routines_linalg.COMPUTE_TYPE_TF32)
    a @ b
    assert by_cupy == ["operator"]
    assert served() == {
        "matmul": {"delegated to CuPy: CuPy is set to multiply float32 less accurately": 1}
    }


def test_compute_types_have_the_numbers_of_cupy():
    linalg = cupy._core._routines_linalg
    assert {linalg.COMPUTE_TYPE_FP16, linalg.COMPUTE_TYPE_BF16,
            linalg.COMPUTE_TYPE_TF32} == hooks._LESS_ACCURATE


def test_wrong_calls_are_refused_by_cupy_and_not_counted(monkeypatch):
    class CupyRefuses(Exception):
        pass

    def refuse(*call, **named):
        raise CupyRefuses

    for owner, name in PLACES.values():
        monkeypatch.setattr(owner, name, refuse, raising=False)
    (a,) = operands((3, 4))
    cuteblas.install()
    for call in (lambda: a @ a, lambda: cupy.matmul(a, a), lambda: a.dot(a),
                 lambda: a @ np.ones((4, 2)), lambda: cupy.matmul(a, [1, 2]), lambda: a.dot(3),
                 lambda: cupy.matmul(a, a.T, axis=0)):
        with pytest.raises(CupyRefuses) as caught:
            call()
        assert caught.value.__context__ is None
    assert served() == {}


def test_a_kernel_that_cannot_be_compiled(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 6))
    cuteblas.install()

    def fails(plan):
        raise runtime.CompileError("gemm", "sm_90a", "no compiler")

    monkeypatch.setattr("cuteblas.runtime.executor", fails)
    with pytest.warns(
        RuntimeWarning,
        match="CuPy computes this product instead: kernel gemm does not compile for sm_90a"
    ):
        a @ b
    assert by_cupy == ["operator"]
    assert served() == {
        "matmul": {"delegated to CuPy: a kernel could not be compiled or launched": 1}
    }


# -- the self-test ---------------------------------------------------------------------------------
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("entry", [cuteblas.install, lambda: cuteblas.enabled().__enter__()])
def test_wrong_results_are_found(monkeypatch, place, entry):
    pristine, right = attributes(), reference.run_at
    count = iter(range(100))
    index = list(PLACES).index(place)

    # two products for each hook: one before it, one through it
    def wrong(plan, addresses, *scalars):
        right(plan, addresses, *scalars)
        if next(count) == 2 * index + 1:
            out = plan.problem.c
            reference._view(addresses[2], out.dtype, (1,), (1,))[...] += 1

    monkeypatch.setattr(reference, "run_at", wrong)
    named = hooks.PATCHES[index].place
    with pytest.raises(
        RuntimeError,
        match=rf"^cuteblas cannot be installed: a product through {named} differs from NumPy's$"
    ):
        entry()
    assert attributes() == pristine and not installed()


@pytest.mark.parametrize("place", PLACES)
def test_hooks_that_are_not_reached_are_found(by_cupy, monkeypatch, place):
    pristine = attributes()
    patch = hooks.PATCHES[list(PLACES).index(place)]
    monkeypatch.setattr(patch, "hook", attributes()[place])
    with pytest.raises(RuntimeError, match="calls do not reach the hook of cupy"):
        cuteblas.install()
    assert attributes() == pristine


def test_a_hook_that_is_reached_by_another_way_is_not_reached(monkeypatch):
    monkeypatch.setattr(hooks.PATCHES[2], "hook", lambda a, b, out=None: a @ b)
    with pytest.raises(RuntimeError, match=r"calls do not reach the hook of cupy\.ndarray\.dot"):
        cuteblas.install()


@pytest.mark.parametrize("name, value, reason",
                         [("why_unavailable", lambda: "there is no GPU", "there is no GPU"),
                          ("executor", lambda plan: 1 / 0, "division by zero"),
                          ("capturing", lambda: True,
                           "a stream is being captured; install before the capture")])
def test_reasons_not_to_install(monkeypatch, name, value, reason):
    pristine = attributes()
    monkeypatch.setattr(runtime, name, value)
    for attempt in (cuteblas.install, lambda: cuteblas.enabled().__enter__()):
        with pytest.raises(RuntimeError, match=f"^cuteblas cannot be installed: {reason}$"):
            attempt()
        assert attributes() == pristine and not installed()


def test_the_self_test_is_made_once(monkeypatch):
    cuteblas.install()
    made = dict(patches.MADE_BY_CHECKS)
    assert made == {("matmul", "reference"): 8}
    cuteblas.uninstall()
    with cuteblas.enabled():
        pass
    assert patches.MADE_BY_CHECKS == made == {("matmul", "reference"): cuteblas.stats()["matmul"]["calls"]["reference"]}


# -- with CuPy's import ----------------------------------------------------------------------------
def test_the_first_product_checks(by_cupy):
    pristine = attributes()
    install_with_cupy()
    assert installed() and attributes() != pristine and not patches.MADE_BY_CHECKS
    a, b = operands((3, 4), (4, 5))
    cupy.matmul(a, b)
    assert by_cupy == [] and served() == {"matmul": {"reference": 1}} and hooks.SWITCH.everywhere
    cuteblas.uninstall()
    assert attributes() == pristine


def test_a_captured_first_product_leaves_the_check_to_the_next(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    install_with_cupy()
    monkeypatch.setattr(runtime, "capturing", lambda: True)
    a @ b
    assert by_cupy == ["operator"] and hooks.SWITCH.pending
    monkeypatch.setattr(runtime, "capturing", lambda: False)
    a @ b
    assert by_cupy == ["operator"] and hooks.SWITCH.everywhere


def test_a_first_product_without_a_gpu_goes_to_cupy_with_a_warning(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    pristine = attributes()
    monkeypatch.setattr(runtime, "why_unavailable", lambda: "there is no GPU")
    install_with_cupy()
    with pytest.warns(RuntimeWarning, match="^cuteblas cannot be installed: there is no GPU$"):
        a @ b
    assert by_cupy == ["operator"] and attributes() == pristine and not installed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a @ b


def test_only_one_thread_checks(by_cupy, monkeypatch):
    a, b = operands((3, 4), (4, 5))
    install_with_cupy()
    check = hooks.Switch.check

    def slow(switch):
        thread = threading.Thread(target=lambda: a @ b)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        check(switch)

    monkeypatch.setattr(hooks.Switch, "check", slow)
    a @ b
    assert by_cupy == ["operator"] and served() == {"matmul": {"reference": 1}}


def test_uninstall_during_the_check(by_cupy, monkeypatch):
    pristine, check = attributes(), hooks.Switch.check
    a, b = operands((3, 4), (4, 5))
    install_with_cupy()
    monkeypatch.setattr(hooks.Switch, "check",
                        lambda switch: (check(switch), cuteblas.uninstall()))
    a @ b
    assert by_cupy == ["operator"] and attributes() == pristine and not installed()


def test_uninstall_before_the_first_product(by_cupy):
    pristine = attributes()
    install_with_cupy()
    cuteblas.uninstall()
    assert attributes() == pristine and not installed()


def python(program: str, **environment: str) -> str:
    """What a program prints."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
                          | environment).stdout.strip()


@pytest.mark.parametrize("wish, expected", [("1", "True False True True"),
                                            *((no, "False False False False") for no in ("0", ""))])
def test_the_environment_variable_waits_for_cupy(wish, expected):
    program = """
import sys, importlib.util, cuteblas
from cuteblas.array.install import installed
before, early = installed(), "cupy" in sys.modules
importlib.util.find_spec("cupy")
import cupy
assert type(cupy.__loader__).__name__ == "SourceFileLoader" and "exec_module" not in vars(cupy.__loader__)
print(before, early, installed(), "__matmul__" in vars(cupy.ndarray))
"""
    assert python(program, CUTEBLAS_INSTALL=wish) == expected


def test_the_environment_variable_where_cupy_came_first():
    assert python("import cupy, cuteblas; print('dot' in vars(cupy.ndarray))",
                  CUTEBLAS_INSTALL="1") == "True"


def test_uninstall_also_forgets_to_wait_for_cupy():
    program = "import cuteblas; cuteblas.uninstall(); import cupy; print('dot' in vars(cupy.ndarray))"
    assert python(program, CUTEBLAS_INSTALL="1") == "False"


def test_enabled_does_not_end_the_waiting_for_cupy():
    program = """
import cuteblas
from cuteblas.array.install import installed
try:
    cuteblas.enabled().__enter__()
except RuntimeError:
    pass
print(installed())
"""
    assert python(program, CUTEBLAS_INSTALL="1") == "True"


def test_wishes_that_are_not_understood(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_INSTALL", "yes")
    with pytest.warns(RuntimeWarning, match="CUTEBLAS_INSTALL is 'yes'; cupy .or 1. installs"):
        obey_environment()
    assert not installed()


def test_without_cupy():
    program = """
import sys
sys.modules["cupy"] = None
import cuteblas
try:
    cuteblas.install()
except RuntimeError as error:
    print(error)
cuteblas.uninstall()
"""
    assert python(program).startswith("cuteblas cannot be installed: ")


# -- on a GPU --------------------------------------------------------------------------------------
@pytest.mark.gpu
class TestOnTheGpu:
    """For real, in a process of its own: the fixture above does not reach there."""

    PRELUDE = """
import cupy, numpy, threading, warnings
import cuteblas
a = cupy.random.standard_normal((96, 64)).astype("f4")
b = cupy.random.standard_normal((64, 80)).astype("f4")
cuteblas.install()
cuteblas.reset_stats()
def calls(): return cuteblas.stats().get("matmul", {}).get("calls", {})
"""

    def test_all_hooks(self):
        assert python(self.PRELUDE + """
want = cupy.asnumpy(a).astype("f8") @ cupy.asnumpy(b).astype("f8")
for call in (lambda: a @ b, lambda: cupy.matmul(a, b), lambda: numpy.matmul(a, b), lambda: a.dot(b), lambda: cupy.dot(a, b),
             lambda: cupy.tensordot(a, b, 1), lambda: cupy.inner(a, b.T), lambda: cupy.einsum("ij,jk->ik", a, b)):
    for _ in range(2):
        assert abs(cupy.asnumpy(call()) - want).max() < 1e-4
assert not any(route.startswith("delegated") for route in calls()), calls()
print(sum(calls().values()))
""") == "16"

    def test_a_stream_of_its_own(self):
        assert python(self.PRELUDE + """
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    for _ in range(3):
        x = cupy.full((512, 512), 2, "f4")
        y = x @ x
        z = y + 1
stream.synchronize()
print(bool((z == 2049).all()))
""") == "True"

    def test_capture(self):
        assert python(self.PRELUDE + """
a @ b
c = cupy.empty((96, 80), "f4")
cupy.matmul(a, b, out=c)
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()
with stream:
    stream.begin_capture()
    cupy.matmul(a, b, out=c)
    graph = stream.end_capture()
    a *= 2
    graph.launch()
stream.synchronize()
print(bool(cupy.allclose(c, cupy.asarray(cupy.asnumpy(a) @ cupy.asnumpy(b)), atol=1e-3)),
      not any(route.startswith("delegated") for route in calls()))
""") == "True True"

    def test_errors_are_cupys(self):
        assert python("""
import cupy, cuteblas
a = cupy.ones((3, 4), "f4")
def words():
    texts = []
    for call in (lambda: a @ a, lambda: cupy.matmul(a, a), lambda: a.dot(a), lambda: cupy.tensordot(a, a, 1), lambda: a @ 3):
        try: call()
        except Exception as error: texts.append((type(error), str(error)))
    return texts
before = words()
cuteblas.install()
print(len(before), before == words())
""") == "5 True"

    def test_threads(self):
        assert python(self.PRELUDE + """
want, wrong = cupy.asnumpy(a @ b), []
def work():
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(200):
            c = a @ b
        stream.synchronize()
        if not numpy.array_equal(cupy.asnumpy(c), want): wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(wrong, sum(calls().values()))
""") == "[] 1601"
