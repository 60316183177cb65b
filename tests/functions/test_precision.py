"""``precision=`` and ``variant=`` of the products besides ``matmul``, and on arrays of ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cuteblas
import cuteblas.linalg
from cuteblas.planning.problem import ReductionProblem

from . import reference
from .arrays import laid_out

A, B = (laid_out((4, 4), "f", layout, seed) for seed, layout in enumerate("CF"))
CUBE = laid_out((4, 4, 4), "f", "permuted")
CALLS = {"matmul": lambda a, b, **how: cuteblas.matmul(a, b, **how),
         "dot": lambda a, b, **how: cuteblas.dot(a, b, **how),
         "inner": lambda a, b, **how: cuteblas.inner(a, b, **how),
         "tensordot": lambda a, b, **how: cuteblas.tensordot(a, b, 1, **how),
         "einsum": lambda a, b, **how: cuteblas.einsum("ij,jk", a, b, **how),
         "einsum of three": lambda a, b, **how: cuteblas.einsum("ij,jk,kl", a, b, a, **how),
         "linalg.matmul": lambda a, b, **how: cuteblas.linalg.matmul(a, b, **how),
         "linalg.tensordot": lambda a, b, **how: cuteblas.linalg.tensordot(a, b, axes=1, **how)}
CHAINS = {
    "linalg.multi_dot": lambda a, b, **how: cuteblas.linalg.multi_dot([a, b, a], **how),
    "linalg.multi_dot of two": lambda a, b, **how: cuteblas.linalg.multi_dot([a, b], **how),
    "linalg.matrix_power": lambda a, b, **how: cuteblas.linalg.matrix_power(a, 3, **how),
    "linalg.matrix_power 6": lambda a, b, **how: cuteblas.linalg.matrix_power(a, 6, **how)}
EVERY = CALLS | CHAINS


@pytest.fixture
def numpys() -> Iterator[None]:
    """NumPy's own products."""
    with cuteblas.backend("numpy"):
        yield


def launched(call, *operands, **how):
    """The precisions and variants of all products that a call runs."""
    count = len(reference.LAUNCHED)
    result = call(*operands, **how)
    problems = [plan.problem for plan in reference.LAUNCHED[count:]]
    assert problems
    return result, {(p.precision, p.variant) for p in problems
                    if not isinstance(p, ReductionProblem)}


@pytest.mark.usefixtures("by_definition")
@pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("precision", ["auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular", None])
def test_every_product_is_told_the_algorithm(call, precision):
    result, how = launched(call, A, B, precision=precision)
    np.testing.assert_array_equal(result, call(A, B))
    assert how == {(precision or "auto", None)}


@pytest.mark.usefixtures("by_definition")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_product_is_told_the_kernel(call):
    result, how = launched(call, A, B, variant="gemm_small", precision="ieee")
    np.testing.assert_array_equal(result, call(A, B))
    assert how == {("ieee", "gemm_small")}


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
@pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
def test_unknown_algorithms_are_refused_in_one_sentence(call, backend):
    known = "'auto', 'ieee', 'fp16x3', 'bf16x6', 'tf32', 'modular'"
    with cuteblas.backend(backend), pytest.raises(ValueError, match=f"^precision is one of {known}, got 'high'$"):
        call(A, B, precision="high")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_unknown_kernels_are_refused_and_numpy_runs_none(call, numpys):
    with pytest.raises(
        ValueError, match=r"there is no gemm( or contraction)? variant 'fastest'; there are \w+"
    ):
        call(A, B, variant="fastest")
    with pytest.raises(ValueError,
                       match=r"^variant='gemm_small' names a kernel, but kernels run on a GPU"):
        call(A, B, variant="gemm_small")
    np.testing.assert_array_equal(call(A, B, precision="ieee"), call(A, B))


@pytest.mark.usefixtures("by_definition")
@pytest.mark.parametrize(
    "call, reason",
    [
        (lambda **how: cuteblas.dot(A.astype(object), B, **how), "there are no kernels for object"),
        (
            lambda **how: cuteblas.einsum("ij,jk", A.astype("g"), B, **how),
            "there are no kernels for "
        ),
        (
            lambda **how: cuteblas.tensordot(np.matrix(A), B, 1, **how),
            "matrix is a subclass of numpy.ndarray"
        ),
        (lambda **how: cuteblas.einsum("ij->i", A, **how), "nothing is multiplied"),
        (lambda **how: cuteblas.einsum("ij->ji", A, **how), "the result is a view")
    ]
)
def test_nothing_is_done_past_a_name(call, reason):
    count = len(reference.LAUNCHED)
    with pytest.raises(ValueError, match=rf"^variant='gett' names a kernel, but {reason}"):
        call(variant="gett")
    assert len(reference.LAUNCHED) == count


@pytest.mark.usefixtures("by_definition")
def test_a_kernel_that_is_named_multiplies_elements_too():
    _result, how = launched(lambda **how: cuteblas.einsum("ij,ij->ij", A, B, **how), variant="gett")
    assert how == {("auto", "gett")}


@pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
def test_what_numpy_computes_is_neither_counted_nor_recorded_as_planned(call, numpys):
    cuteblas.reset_stats()
    with cuteblas.record() as calls:
        call(A, B, precision="fp16x3")
    assert calls.problems == []
    counted, = cuteblas.stats().values()
    assert counted == {"calls": {"numpy": 1}}


# -- arrays of ours --------------------------------------------------------------------------------
@pytest.mark.usefixtures("by_definition")
@pytest.mark.parametrize("how", [{"precision": "ieee"}, {"variant": "gemm_small"},
                                 {"variant": "gemm_small", "precision": "ieee"}])
@pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
def test_arrays_of_ours(call, how):
    if call in CHAINS.values():
        how = {name: value for name, value in how.items() if name == "precision"}
    a, b = cuteblas.ndarray(A), cuteblas.ndarray(B)
    for operands in ((a, b), (a, B), (A, b)):
        result, told = launched(call, *operands, **how)
        assert type(result) is cuteblas.ndarray or (call in CHAINS.values() and operands[0] is A)
        np.testing.assert_array_equal(np.asarray(result), call(A, B))
        assert told == {(how.get("precision", "auto"), how.get("variant"))}


@pytest.mark.usefixtures("by_definition")
def test_results_of_ours():
    a, out = cuteblas.ndarray(A), cuteblas.ndarray(np.empty((4, 4), "f"))
    for call in (cuteblas.matmul, cuteblas.dot,
                 lambda *x, **named: cuteblas.einsum("ij,jk", *x, **named)):
        for operands in ((a, a), (A, A)):
            out[...] = 0
            result, told = launched(call, *operands, out=out, precision="ieee")
            assert result is out and told == {("ieee", None)}
            np.testing.assert_array_equal(np.asarray(out), A @ A)
    _result, told = launched(cuteblas.matmul, a, a, (out,), axes=[(0, 1), (0, 1), (1, 0)],
                             precision="ieee")
    assert told == {("ieee", None)}
    np.testing.assert_array_equal(np.asarray(out), (A @ A).T)


def test_arrays_of_ours_on_the_host_run_no_kernels(numpys):
    a = cuteblas.ndarray(A)
    for call in CALLS.values():
        with pytest.raises(ValueError,
                           match=r"^variant='gemm_small' names a kernel, but kernels run on a GPU"):
            call(a, a, variant="gemm_small")
        assert type(call(a, a, precision="ieee")) is cuteblas.ndarray


# -- CuPy's arrays ---------------------------------------------------------------------------------
class TestRepeated:
    """Calls that have run before are told apart by their algorithm."""

    @pytest.fixture(autouse=True)
    def on_the_host(self, by_definition) -> Iterator[None]:
        pytest.importorskip("cupy", reason="CuPy is not installed")
        from cuteblas.engines import cuda
        from cuteblas.engines.replay import cupy as replay_cupy

        from .host_cupy import install

        with pytest.MonkeyPatch.context() as patch:
            install(patch)
            yield
        replay_cupy.recorded.clear()
        cuda.launcher_for.cache_clear()

    @pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)
    def test_by_algorithm(self, call):
        from .host_cupy import on_gpu, on_host

        a, b = on_gpu(A), on_gpu(B)
        for precision in ("ieee", "fp16x3", "auto", None, "ieee", "fp16x3", None):
            result, how = launched(call, a, b, precision=precision)
            np.testing.assert_array_equal(on_host(result), call(A, B))
            assert how == {(precision or "auto", None)}
