"""``variant=``: a kernel by name, or a sentence that says why not."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import cuteblas
from cuteblas.planning import plan_gemm
from cuteblas.planning.variants import Variant, variants


@pytest.fixture(autouse=True)
def clean_stats():
    cuteblas.reset_stats()


@pytest.fixture
def named_product(monkeypatch):
    """A variant of products that plans as usual under another name."""
    def plan(problem, device):
        if problem.a.dtype != "float32":
            raise ValueError(f"plain takes float32, got {problem.a.dtype}")
        return replace(plan_gemm(replace(problem, variant=None), device), problem=problem,
                       family="plain")

    known = {**variants(), "plain": Variant("plain", "gemm", "a test", "the usual kernel", "sm_70",
                                            plan)}
    monkeypatch.setattr("cuteblas.planning.variants.variants", lambda: known)
    plan_gemm.cache_clear()
    yield "plain"
    plan_gemm.cache_clear()


@pytest.fixture
def emulated():
    from cuteblas import emulator

    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    with cuteblas.backend("emulator"):
        yield


@pytest.mark.usefixtures("emulated")
def test_copies_by_name():
    a = np.arange(40 * 70, dtype="f4").reshape(40, 70)
    np.testing.assert_array_equal(cuteblas.copy(a.T, "C", variant="transpose_smem_padded"), a.T)
    np.testing.assert_array_equal(cuteblas.ascontiguousarray(a.T, variant="transpose_naive_write"),
                                  a.T)
    assert cuteblas.stats() == {"ascontiguousarray": {"calls": {"transpose_naive_write": 1}},
                                "copy": {"calls": {"transpose_smem_padded": 1}}}


@pytest.mark.usefixtures("emulated")
def test_products_by_name(named_product):
    a, b = np.arange(6, dtype="f4").reshape(2, 3), np.ones((3, 4), "f4")
    np.testing.assert_array_equal(cuteblas.matmul(a, b, variant=named_product), a @ b)
    assert cuteblas.stats() == {"matmul": {"calls": {"plain": 1}}}
    with pytest.raises(ValueError, match="plain takes float32, got float64"):
        cuteblas.matmul(a.astype("f8"), b, variant=named_product)


def test_numpy_runs_no_kernels(named_product):
    a = np.ones((4, 4), "f4")
    calls = (lambda: cuteblas.copy(a.T, variant="transpose_naive_read"),
             lambda: cuteblas.matmul(a, a, variant=named_product),
             lambda: cuteblas.ascontiguousarray(a.T, variant="transpose_naive_read"))
    for call in calls:
        with pytest.raises(
            ValueError,
            match=r"^variant='\w+' names a kernel, but kernels run on a GPU \(CuPy arrays\) or in"
        ):
            call()
    assert cuteblas.stats() == {}


@pytest.mark.usefixtures("emulated")
def test_nothing_is_delegated_past_a_name(named_product):
    objects, records = np.ones((4, 4), object), np.zeros((4, 4), "f4,f4")
    special = np.eye(4).view(type("Special", (np.ndarray,), {}))
    naive = "transpose_naive_read"
    for call, reason in ((lambda: cuteblas.matmul(objects, objects, variant=named_product),
                          "there are no kernels for object"),
                         (lambda: cuteblas.matmul(special, special, variant=named_product),
                          "is a subclass"), (lambda: cuteblas.explain(objects, objects,
                                                                      variant=named_product),
                                             "there are no kernels for object"),
                         (lambda: cuteblas.explain(special, special, variant=named_product),
                          "is a subclass"), (lambda: cuteblas.copy(records, variant=naive),
                                             "have fields"),
                         (lambda: cuteblas.explain_copy(objects, variant=naive),
                          "refer to other memory"),
                         (lambda: cuteblas.ascontiguousarray(np.eye(4), "f4", variant=naive),
                          "changes float64 to float32")):
        with pytest.raises(ValueError, match=rf"names a kernel, but .*{reason}"):
            call()


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
def test_unknown_names(backend):
    a = np.ones((4, 4), "f4")
    with cuteblas.backend(backend):
        for call in (lambda: cuteblas.copy(a.T, variant="tranpose"),
                     lambda: cuteblas.ascontiguousarray(a, variant="gemm"),
                     lambda: cuteblas.explain_copy(a.T, variant="x")):
            with pytest.raises(ValueError, match=r"there is no copy variant '\w+'; there are \w+"):
                call()
        for product in (cuteblas.matmul, cuteblas.explain):
            with pytest.raises(ValueError, match="there is no gemm variant 'transpose_naive_read'"):
                product(a, a, variant="transpose_naive_read")


def test_explanations_show_the_named_kernel(named_product):
    told = cuteblas.explain_copy(np.ones((64, 64), "f4").T,
                                 variant="transpose_smem_swizzled_unpredicated")
    assert told.plan.family == "transpose_smem_swizzled_unpredicated" and "S<5,0,6> o 0 o (32,64):(64,1)" in told.source
    assert cuteblas.explain(*np.ones((2, 64, 64), "f4"),
                            variant=named_product).plan.family == "plain"
    with pytest.raises(ValueError, match="has no predicates"):
        cuteblas.explain_copy(np.ones((65, 64), "f4").T,
                              variant="transpose_smem_swizzled_unpredicated")


def test_a_name_takes_the_long_way(monkeypatch, named_product):
    long_way = []
    monkeypatch.setattr(import_module("cuteblas.functions.matmul"), "answer",
                        lambda *call, **named: long_way.append(call))
    a = np.ones((4, 4), "f4")
    cuteblas.matmul(a, a)
    assert not long_way
    cuteblas.matmul(a, a, variant=named_product)
    assert len(long_way) == 1
