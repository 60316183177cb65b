"""What CuPy 14.2 copies, converts, computes otherwise than NumPy or does not have, each with a test
of what is done here.

CuPy's arrays are in host memory and launches are evaluated by the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import cuteblas
import cuteblas.linalg
from cuteblas import blas
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


from . import reference  # noqa: E402
from .arrays import laid_out  # noqa: E402
from .host_cupy import allocate, installed, on_gpu, on_host  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_host(by_definition) -> Iterator[None]:
    with installed():
        yield


def same(result, expected):
    """Compare; the argument keeps the memory of the result."""
    np.testing.assert_array_equal(on_host(result), expected)


def one_product(call, *arrays, expected):
    """The problem of a call that comes to one launch on the operands themselves."""
    cuteblas.reset_stats()
    launched = len(reference.LAUNCHED)
    result = call(*map(on_gpu, arrays))
    (plan,) = reference.LAUNCHED[launched:]
    np.testing.assert_array_equal(on_host(result), expected)
    assert result.dtype == expected.dtype and not any("copies" in counts
                                                      for counts in cuteblas.stats().values())
    return plan.problem


def test_batches_of_float16_are_neither_converted_nor_copied():
    a, b = laid_out((3, 4, 5), "e", "C", 1), laid_out((3, 5, 6), "e", "C", 2)
    p = one_product(cuteblas.matmul, a, b, expected=a @ b)
    assert {p.a.dtype, p.b.dtype,
            p.c.dtype} == {"float16"} and p.accumulator == "float32" and p.batch == (3,)


def test_batches_of_bfloat16_are_multiplied():
    """By the BLAS routine: NumPy has no such type, and ``matmul`` takes NumPy's."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = (laid_out(shape, "f", "C", i).astype(bfloat16)
            for i, shape in enumerate(((3, 4, 5), (3, 5, 6))))
    with cuteblas.backend("numpy"):
        got = blas.bgemm(1, a, b)
    np.testing.assert_array_equal(np.asarray(got, "f"), a.astype("f") @ b.astype("f"))


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D", "e", "i"])
@pytest.mark.parametrize("layouts", [("F", "C"), ("permuted", "F"), ("sliced", "negative"),
                                     ("negative", "permuted")])
def test_batches_of_any_strides_are_not_copied(dtype, layouts):
    a, b = laid_out((3, 4, 5), dtype, layouts[0], 1), laid_out((3, 5, 6), dtype, layouts[1], 2)
    one_product(cuteblas.matmul, a, b, expected=a @ b)
    one_product(cuteblas.matmul, a, b.swapaxes(1, 2)[:, :5, :].swapaxes(1, 2),
                expected=a @ b[:, :, :5])


@pytest.mark.parametrize("call", [cuteblas.matmul, cuteblas.dot])
def test_matrices_with_longer_rows_and_every_other_element_are_not_copied(call):
    whole = laid_out((9, 11), "f", "C")
    a, b, x = whole[:4, :5], whole[::2, 1::3], whole[1, :5]
    for first, second in ((a, b), (a, x), (x, b), (a.T, a), (whole[:5, :4].T, b)):
        one_product(call, first, second, expected=np.dot(first, second))


def test_broadcast_batches_are_strides():
    a, b = laid_out((3, 1, 4, 5), "d", "C", 1), laid_out((2, 5, 6), "d", "C", 2)
    p = one_product(cuteblas.matmul, a, b, expected=a @ b)
    assert 0 in p.a.batch_strides and 0 in p.b.batch_strides


@pytest.mark.parametrize("dtype", "bBhHiIlLqQ?")
def test_integers_are_products_of_their_own_type(dtype):
    a, b = laid_out((4, 5), dtype, "F", 1), laid_out((5, 6), dtype, "sliced", 2)
    p = one_product(cuteblas.matmul, a, b, expected=a @ b)
    assert p.a.dtype == p.c.dtype == np.dtype(dtype).name
    one_product(lambda a, b: cuteblas.tensordot(a, b, 1), a, b, expected=np.tensordot(a, b, 1))


def test_many_batches_are_one_launch():
    """More than the 65535 blocks along a grid's second and third axis."""
    a, b = Operand("int32", (4, 1), (16,)), Operand("int32", (1, 4), (16,))
    p = GemmProblem(4, 4, 4, a, b, a, (70_000,), variant="gemm_simt")
    plan = plan_gemm(p, H200)
    assert len(plan.launches) == 1 and plan.launches[0].grid[1:] == (1, 1) and plan.launches[0].grid[0] >= 70_000


@pytest.mark.parametrize("extents, ld", [((8, 8, 2**31 + 8), 2**32), ((2**31 + 64, 8, 8), 16),
                                         ((64, 64, 64), 2**31)])
def test_extents_and_strides_may_exceed_32_bits(extents, ld):
    m, n, k = extents
    p = GemmProblem(m, n, k, Operand("float32", (ld, 1)), Operand("float32", (1, n)),
                    Operand("float32", (n, 1)), precision="ieee")
    assert "wide" in plan_gemm(p, H200).launches[0].kernel.name


def test_the_product_of_two_vectors_needs_no_temporary(monkeypatch):
    x, y = laid_out((1000,), "f", "C", 1), laid_out((1000,), "f", "C", 2)
    made = []
    monkeypatch.setattr(cupy.cuda, "alloc", lambda nbytes: (made.append(nbytes),
                                                            allocate(nbytes))[1])
    for call in (cuteblas.matmul, cuteblas.dot, cuteblas.vdot, cuteblas.inner):
        made.clear()
        same(call(on_gpu(x), on_gpu(y)), x @ y)
        assert made == [4]


@pytest.mark.parametrize("name, operands", [("vecdot", ((3, 4), (3, 4))),
                                            ("matvec", ((2, 3, 4), (4,))),
                                            ("vecmat", ((3,), (2, 3, 4))),
                                            ("linalg.vecdot", ((3, 4), (3, 4))),
                                            ("linalg.outer", ((3,), (4,))),
                                            ("linalg.tensordot", ((2, 3, 4), (3, 4, 5))),
                                            ("linalg.matmul", ((2, 3), (3, 4)))])
def test_functions_that_cupy_does_not_have(name, operands):
    module, _, name = name.rpartition(".")
    ours, numpys = (getattr(library, module) if module else library for library in (cuteblas, np))
    arrays = [laid_out(shape, "D", "F", i) for i, shape in enumerate(operands)]
    result, expected = getattr(ours, name)(*map(on_gpu, arrays)), getattr(numpys, name)(*arrays)
    np.testing.assert_array_equal(on_host(result), expected)


def test_chains_and_paths():
    arrays = [laid_out(shape, "d", "F", i) for i, shape in enumerate(((2, 3), (3, 4), (4, 5)))]
    same(cuteblas.linalg.multi_dot(list(map(on_gpu, arrays))), np.linalg.multi_dot(arrays))
    assert cuteblas.einsum_path("ij,jk,kl", *map(on_gpu, arrays)) == np.einsum_path(
        "ij,jk,kl", *arrays
    )


def test_einsum_has_out_order_dtype_and_casting():
    a, b = laid_out((3, 4), "f", "F", 1), laid_out((4, 5), "f", "C", 2)
    out = np.empty((5, 3), "d").T
    cuteblas.einsum("ij,jk->ik", on_gpu(a), on_gpu(b), out=on_gpu(out))
    np.testing.assert_array_equal(out, a @ b)
    assert cuteblas.einsum("ij,jk->ik", on_gpu(a), on_gpu(b), order="F").flags.f_contiguous
    assert cuteblas.einsum("ij,jk->ik", on_gpu(a), on_gpu(b), dtype="D").dtype == "D"
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        cuteblas.einsum("ij,jk->ik", on_gpu(a), on_gpu(b), dtype="b")
    assert cuteblas.einsum("ij,jk->ik", on_gpu(a), on_gpu(b), dtype="b",
                           casting="unsafe").dtype == "b"


def test_epilogues_and_scalars_of_blas():
    """CuPy has no epilogue, and its ``cublas.gemm`` takes no slices, no float16 and no ``"C"``, and
    asserts."""
    a, b = laid_out((4, 6), "e", "C", 1)[:, ::2], laid_out((4, 3), "e", "F", 2)
    with cuteblas.backend("numpy"):
        np.testing.assert_array_equal(blas.hgemm(2, a, b, trans_b="C"), 2 * (a @ b.T))
        with pytest.raises(ValueError, match="trans_a"):
            blas.hgemm(2, a, b, trans_a="X")
        np.testing.assert_array_equal(cuteblas.matmul(a, b.T - 2, epilogue="relu"),
                                      np.maximum(a @ (b.T - 2), 0))


@pytest.mark.parametrize("call", [lambda a, b: (cuteblas.matmul, np.matmul, (a, b)),
                                  lambda a, b: (cuteblas.matmul, np.matmul, (a[0, 0], b)),
                                  lambda a, b: (cuteblas.matmul, np.matmul,
                                                (np.ones((2, 3, 4)), np.ones((3, 4, 5)))),
                                  lambda a, b: (cuteblas.dot, np.dot, (a, b)),
                                  lambda a, b: (cuteblas.dot, np.dot,
                                                (a, a.T, np.empty((2, 2), "f")))], ids=range(5))
def test_refusals_are_in_numpys_words(call):
    ours, numpys, operands = call(np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises((TypeError, ValueError)) as expected:
        numpys(*operands)
    with pytest.raises(type(expected.value)) as refused:
        ours(*(on_gpu(np.asarray(x)) for x in operands))
    assert str(refused.value) == str(expected.value)


def test_out_may_have_more_batches_and_overlap():
    a, b = laid_out((2, 4), "d", "C", 1), laid_out((4, 4), "d", "C", 2)
    wide = np.empty((3, 2, 4))
    cuteblas.matmul(on_gpu(a), on_gpu(b), on_gpu(wide))
    np.testing.assert_array_equal(wide, np.broadcast_to(a @ b, (3, 2, 4)))
    expected = b @ b
    cuteblas.matmul(on_gpu(b), on_gpu(b), on_gpu(b))
    np.testing.assert_array_equal(b, expected)


def test_empty_sums_are_zero():
    """CuPy's ``inner`` divides by the extent of the sum."""
    a, b = np.ones((2, 0), "f"), np.ones((3, 0), "f")
    for call in (cuteblas.inner, lambda a, b: cuteblas.matmul(a, b.T),
                 lambda a, b: cuteblas.tensordot(a, b, (1, 1))):
        same(call(on_gpu(a), on_gpu(b)), np.zeros((2, 3), "f"))


@pytest.mark.parametrize("dtype", ["b", "e", "f", "d", "F", "D"])
@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_permutations_of_any_type_are_written_out_by_a_kernel(dtype, axes):
    x = laid_out((3, 4, 5), dtype, "C")
    cuteblas.reset_stats()
    same(cuteblas.copy(on_gpu(x).transpose(axes), "C"), x.transpose(axes))
    assert cuteblas.stats() == {"copy": {"calls": {"reference": 1}}}


def test_wrong_arrays_do_not_reach_a_kernel():
    """CuPy checks no device."""
    x = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"on cuda:0 and .* on cuda:1"):
        cuteblas.matmul(on_gpu(x), on_gpu(x, 1))
    p = GemmProblem(2, 2, 2, Operand("float64", (2, 1)), Operand("float64", (1, 2)),
                    Operand("float64", (2, 1)))
    with pytest.raises(TypeError, match="element type"):
        plan_gemm(replace(p, a=Operand("float128", (2, 1))), H200)
