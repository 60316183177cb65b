"""Integers, bool and float16 on the host by BLAS, against NumPy's loops and Python's integers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cuteblas
from cuteblas.engines import exact

INTEGERS = "bBhHiIlLqQ"


@pytest.fixture
def always(monkeypatch):
    """Let NumPy's loops answer nothing."""
    monkeypatch.setattr(exact, "_LEAST_INTEGERS", 1)
    monkeypatch.setattr(exact, "LEAST", 1)
    monkeypatch.setattr(exact, "_CALL", -1e15)


@pytest.fixture(params=[None, 64])
def blocks(request, monkeypatch):
    """Scratch memory as it is, and so little that everything is computed in blocks."""
    if request.param is not None:
        monkeypatch.setattr(exact, "_BLOCK", request.param)
        monkeypatch.setattr(exact, "_NARROW_BLOCK", request.param // 2)


def elements(rng, kind, shape):
    """All bits, only the ends of the range, one of its ends, or small numbers."""
    kind = np.dtype(kind)
    if kind.kind == "b":
        return rng.random(shape) < rng.choice([0.01, 0.1, 0.5])
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    match rng.integers(0, 4):
        case 0:
            return rng.integers(low, high, shape, dtype=kind, endpoint=True)
        case 1:
            return rng.choice(np.array([low, high], kind), shape)
        case 2:
            return np.full(shape, low if low and rng.random() < 0.5 else high, kind)
    return rng.integers(-100 if low else 0, 100, shape, dtype=kind)


def draw(rng, kinds):
    """Two operands of any types, strides and batches."""
    m, n = rng.integers(1, 12, 2)
    k = int(rng.choice([1, 3, 17, 129, 1025, 2500]))
    batch = tuple(rng.integers(1, 4, rng.integers(0, 3)))
    first, second = (tuple(1 if rng.random() < 0.3 else n
                           for n in batch[rng.integers(0, len(batch) + 1):]) for _ in range(2))
    a, b = elements(rng, kinds[0], (*first, m, k)), elements(rng, kinds[1], (*second, k, n))
    if rng.random() < 0.3:
        a = np.asfortranarray(a)
    if rng.random() < 0.3:
        b = np.repeat(b, 2, -1)[..., ::-2]
    if a.ndim == 2 and rng.random() < 0.2:
        a = a[0]
    elif b.ndim == 2 and rng.random() < 0.2:
        b = b[:, 0]
    return a, b


@pytest.mark.usefixtures("always", "blocks")
@pytest.mark.parametrize("first", "?" + INTEGERS)
def test_every_bit_is_that_of_numpys_loop(first):
    rng = np.random.default_rng(ord(first))
    for _ in range(60):
        a, b = draw(rng, (first, rng.choice([first, *"?" + INTEGERS])))
        expected = np.matmul(a, b)
        if expected.dtype.char not in exact.WITHOUT_BLAS or not expected.shape:
            continue
        result = exact.matmul("matmul", a, b)
        assert result.dtype.num == expected.dtype.num
        assert result.strides == expected.strides
        np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", INTEGERS)
def test_sums_wrap_as_pythons_integers_modulo_the_type(kind):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.array([low, low + 1, high, high - 1, 1, 0, high // 3, low // 3], kind)
    a, b = np.resize(values, (5, 2501)), np.resize(values[::-1], (2501, 7))
    bits = 8 * a.itemsize
    expected = [[(x + 2**bits) % 2**bits for x in row]
                for row in (a.astype(object) @ b.astype(object)).tolist()]
    result = exact.matmul("matmul", a, b)
    assert [[x % 2**bits for x in row] for row in result.tolist()] == expected


@pytest.mark.parametrize(("kind", "low", "high", "words"), [
    ("i8", -100, 100, "float32 BLAS, 1 product"), ("i8", -2**20, 2**20, "float64 BLAS, 1 product"),
    ("i4", -2**31, 2**31, "float64 BLAS, 2 products"), ("u1", 0, 256, "float32 BLAS, 1 product"),
    ("i8", -2**63, 2**63 - 1, "float64 BLAS, 5 products")])
def test_elements_say_how_many_products_there_are(kind, low, high, words):
    a = np.random.default_rng(0).integers(low, high, (300, 300)).astype(kind)
    cuteblas.reset_stats()
    result = cuteblas.matmul(a, a)
    assert cuteblas.stats()["matmul"] == {"calls": {f"numpy: exact integers by {words}": 1}}
    np.testing.assert_array_equal(result, np.matmul(a, a))


def test_all_functions_and_their_results():
    rng = np.random.default_rng(1)
    a, b, x = (rng.integers(-2**31, 2**31, shape).astype(np.int32)
               for shape in ((120, 200), (200, 100), (60, 200)))
    calls = [("matmul", (a, b)), ("dot", (a, b)),
             ("dot", (a.reshape(4, 30, 200), b.reshape(200, 10, 10).swapaxes(0, 1))),
             ("inner", (a, b.T)), ("matvec", (a, x)), ("vecmat", (x, b)),
             ("einsum", ("ij,jk->ki", a, b)), ("tensordot",
                                               (a.reshape(30, 4, 20, 10), b.reshape(20, 10, 100),
                                                ((2, 3), (0, 1))))]
    for name, operands in calls:
        cuteblas.reset_stats()
        result, expected = getattr(cuteblas, name)(*operands), getattr(np, name)(*operands)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
        assert "numpy: exact integers by float64 BLAS, 2 products" in cuteblas.stats()[name]["calls"], name
    for name, operands in [("multi_dot", ([a, b, a[:100]],)), ("matrix_power", (b[:100], 5))]:
        cuteblas.reset_stats()
        np.testing.assert_array_equal(getattr(cuteblas.linalg, name)(*operands),
                                      getattr(np.linalg, name)(*operands))
        assert "exact integers" in str(cuteblas.stats()), name
    np.testing.assert_array_equal(cuteblas.linalg.multi_dot([a[0], b, a[:100]]),
                                  np.linalg.multi_dot([a[0], b, a[:100]]))
    small = a.astype(np.int8)
    np.testing.assert_array_equal(cuteblas.blas.igemm(1, small, small, trans_b="T"),
                                  small.astype(np.int32) @ small.T.astype(np.int32))


@pytest.mark.usefixtures("always")
def test_results_are_laid_out_as_numpys():
    rng = np.random.default_rng(5)
    for shape in ((2, 2, 1), (2, 3, 4), (1, 5, 2)):
        x, y = rng.integers(-9, 9, (2, *shape[::-1])).transpose(0, 3, 2, 1)
        for name, operands in [("vecmat", (x, y[0].T[:shape[-1], :1])),
                               ("matvec", (y[0][:, :shape[-1]], x)), ("inner", (x, y)),
                               ("inner", (x[0, 0], y[0, 0])),
                               ("matmul", (x[..., None, :], y[..., None])), ("dot", (x, x.mT))]:
            result, expected = getattr(cuteblas, name)(*operands), getattr(np, name)(*operands)
            assert type(result) is type(expected), name
            assert result.strides == expected.strides, name
            np.testing.assert_array_equal(result, expected)
    a, b = np.arange(2, dtype=np.int8).reshape(1, 2, 1, 1), np.ones((1, 1), np.int8)
    assert cuteblas.blas.igemm(1, a, b).tolist() == [[[[0]], [[1]]]]
    with pytest.raises(ValueError, match="not acceptable"):
        cuteblas.dot(np.ones((8, 8), int), np.ones((8, 8), int),
                     np.zeros(8 * 65, np.int8)[1:513].view(int).reshape(8, 8))
    with pytest.raises(TypeError):
        cuteblas.vecmat(np.ones(1, np.uint8), np.zeros((1, 1), "M8[D]"))


def test_out_overlaps_is_cast_is_refused():
    rng = np.random.default_rng(2)
    a = rng.integers(-9, 9, (200, 200))
    expected = a @ a
    b = a.copy()
    assert cuteblas.matmul(b, b, out=b) is b
    np.testing.assert_array_equal(b, expected)
    b = np.zeros((200, 400), int)[:, ::2]
    np.testing.assert_array_equal(cuteblas.matmul(a, a, out=b), expected)
    np.testing.assert_array_equal(cuteblas.matmul(a, a, out=np.empty((200, 200))), expected)
    np.testing.assert_array_equal(cuteblas.dot(a, a, np.empty((200, 200), int)), expected)
    swapped = a.astype(">i8"), a.astype(">u2")
    np.testing.assert_array_equal(cuteblas.matmul(*swapped), np.matmul(*swapped))
    frozen = np.empty((200, 200), int)
    frozen.flags.writeable = False
    for out in (frozen, np.empty((200, 199), int), np.empty((200, 200), np.int16)[:, :0]):
        with pytest.raises(ValueError) as theirs:
            np.matmul(a, a, out=out)
        with pytest.raises(ValueError) as ours:
            cuteblas.matmul(a, a, out=out)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match="mismatch"):
        cuteblas.matmul(a, a[:199])


def warned(call, *operands):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        return call(*operands), [str(w.message) for w in seen]


@pytest.mark.usefixtures("always")
def test_float16_is_summed_in_float32_and_warns_as_numpy_does():
    rng = np.random.default_rng(3)
    for i in range(80):
        m, n, k = rng.integers(2, 9), rng.integers(2, 9), rng.integers(1, 300)
        a, b = (rng.standard_normal((m, k))
                * 10.0 ** rng.integers(-4, 4)).astype("e"), rng.standard_normal((k, n)).astype("e")
        if i % 4:
            a[0, 0] = (np.inf, np.nan, np.inf)[i % 4 - 1]
        if i % 4 == 3:
            b[0, 0] = 0
        (result, ours), (expected, theirs) = warned(cuteblas.matmul, a, b), warned(np.matmul, a, b)
        assert result.dtype == np.float16
        assert ours == theirs
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
        with np.errstate(all="ignore"):
            wide = a.astype(float) @ b.astype(float)
            bound = abs(wide) * 2.0**-11 + 2.0**-25 + k * 2.0**-24 * (abs(a.astype(float)) @ abs(b.astype(float)))
        finite = np.isfinite(result)
        assert (abs(result[finite].astype(float) - wide[finite]) <= bound[finite]).all()
    with np.errstate(over="raise"), pytest.raises(FloatingPointError,
                                                  match="overflow encountered in matmul"):
        cuteblas.matmul(np.full((200, 200), 300, np.float16), np.full((200, 200), 300, np.float16))


def test_numpys_loop_on_bool_ends_early():
    rng = np.random.default_rng(4)
    dense, sparse = rng.random((300, 300)) < 0.5, rng.random((300, 300)) < 0.002
    late = np.zeros((300, 300), bool)
    late[:, 0] = late[0] = True                         # few, but they meet at once
    for x, route in ((dense, "numpy"), (sparse, "numpy: bool by float32 BLAS"), (late, "numpy")):
        cuteblas.reset_stats()
        np.testing.assert_array_equal(cuteblas.matmul(x, x), x @ x)
        assert cuteblas.stats()["matmul"]["calls"] == {route: 1}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_what_is_not_plain_is_numpys():
    a = np.arange(40000).reshape(200, 200)
    masked = np.ma.masked_equal(a, 7)
    cuteblas.reset_stats()
    assert type(cuteblas.matmul(masked, a)) is type(np.matmul(masked, a))
    assert type(cuteblas.matmul(np.asmatrix(a), a)) is np.matrix
    assert cuteblas.matmul(a.astype(object), a).dtype == object
    record = np.zeros(200 * 200, np.dtype([("pad", "i1"), ("x", "i4")]))
    record["x"] = a.ravel() % 77
    x = record["x"].reshape(200, 200)                   # elements that are not aligned
    np.testing.assert_array_equal(cuteblas.matmul(x, x), np.matmul(x, x))
    with pytest.raises(TypeError):
        cuteblas.matmul(a.astype("M8[s]"), a)


def test_explain_says_what_multiplies():
    a = np.ones((500, 500), np.int32)
    assert "NumPy, exact integers by float64 BLAS, 2 products or fewer;" in cuteblas.explain(a, a).runs_on
    assert "NumPy, float16 by float32 BLAS;" in cuteblas.explain(a.astype("e"),
                                                                 a.astype("e")).runs_on
    assert cuteblas.explain(a[:3, :3], a[:3, :3]).runs_on.startswith("NumPy;")
    assert cuteblas.explain(a.astype(float), a.astype(float)).runs_on.startswith("NumPy;")


@pytest.mark.parametrize("axes", [([True], [True]), ([0], [False]), (True, 0)])
def test_axes_of_tensordot_are_no_bools(axes):
    x = np.arange(40000).reshape(200, 200)
    for tensordot in np.tensordot, cuteblas.tensordot:
        with pytest.raises(TypeError, match="an integer is required"):
            tensordot(x, x, axes)
