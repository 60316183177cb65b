"""``einsum`` of NumPy arrays by NumPy's BLAS, and ``numpy.einsum``'s plain loop."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas

from .agreement import agree
from .arrays import DTYPES, LAYOUTS, laid_out
from .test_einsum import SUBSCRIPTS, operands_for

EINSUM = import_module("cuteblas.functions.einsum")   # the package has the function under this name
NUMPY_EINSUM = import_module("cuteblas.functions.numpy_einsum")
FLOATS = {"e": 6e4, "f": 3e38, "d": 1.7e308, "F": 1e38, "D": 1e308}


@pytest.fixture(autouse=True)
def no_call_is_small(monkeypatch):
    """Let NumPy's plain loop answer nothing."""
    monkeypatch.setattr(EINSUM, "SMALL", -1)
    monkeypatch.setattr(EINSUM, "_programs", {})
    monkeypatch.setattr(NUMPY_EINSUM, "_LOOP_CALL", 1e15)


def einsum(*operands, **arguments):
    return agree(cuteblas.einsum, np.einsum, *operands, **arguments)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    subscripts = data.draw(st.sampled_from(SUBSCRIPTS))
    arrays = operands_for(data.draw, subscripts)
    arguments = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.sampled_from((None, "f4", np.float64, "c16", "i4")),
                "order": st.sampled_from(("C", "F", "A", "K")),
                "casting": st.sampled_from(("safe", "unsafe"))
            }
        )
    )
    out = None
    if data.draw(st.booleans()):
        try:
            shape = np.einsum(subscripts, *arrays).shape
        except ValueError:
            shape = (2, 2)
        layout = data.draw(st.sampled_from([name for name in LAYOUTS if name != "broadcast"]))
        out = laid_out(shape, data.draw(st.sampled_from((np.result_type(*arrays).char, "d", "D"))),
                       layout)
    einsum(subscripts, *arrays, out=out, **arguments)


@pytest.mark.parametrize("layouts", [("C", "C"), ("F", "sliced"), ("negative", "permuted"),
                                     ("offset", "broadcast")])
@pytest.mark.parametrize("subscripts", ["abc,cbd->ad", "abc,cbd->da", "abc,bd->acbd",
                                        "abc,abd->bcd", "abc,dbc->adb", "aab,bc->ca", "abc,bd->dca",
                                        "abc,abc->", "abc,cd->d", "abc,d->bd", "abcd,bd->ca",
                                        "ab,bc,cd,de->ea"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_modes_merge_in_any_layout(subscripts, layouts, dtype):
    extents = dict(zip("abcde", (3, 4, 5, 4, 2), strict=True))
    terms = subscripts.partition("->")[0].split(",")
    arrays = [laid_out(tuple(4 if "aab" in subscripts else extents[c] for c in term), dtype,
                       layouts[i % 2], i) for i, term in enumerate(terms)]
    einsum(subscripts, *arrays)


@pytest.mark.parametrize("count", [16, 40, 70])
def test_chains_are_multiplied_in_pairs(count):
    rng = np.random.default_rng(0)
    matrices = [rng.integers(-1, 2, (4, 4)).astype(float) for _ in range(count)]
    labels = [[i % 51, (i + 1) % 51] for i in range(count)] if count > 51 else [[i, i + 1] for i in range(count)]
    if count > 51:            # more operands than NumPy's loop takes, on fewer indices than letters
        matrices[51:], labels[51:] = [np.ones(4)] * (count - 51), [[0]] * (count - 51)
        labels[50] = [50, 51]
    ends = [0, 51 if count > 51 else count]
    arguments = [x for pair in zip(matrices, labels, strict=True) for x in pair]
    product = np.linalg.multi_dot(matrices[:51]) if count > 51 else np.linalg.multi_dot(matrices)
    np.testing.assert_allclose(cuteblas.einsum(*arguments, ends), product, rtol=1e-12,
                               atol=1e-12 * abs(product).max())


def test_scalars_of_types_without_kernels_are_numpys():
    arrays = [np.ones((14, 14), "g") for _ in range(3)]
    result, expected = (call("ij,jk,kl->", *arrays) for call in (cuteblas.einsum, np.einsum))
    assert type(result) is type(expected) and result == expected


def test_many_matrices_through_arrays_of_ours():
    x = cuteblas.ndarray(np.eye(64))
    assert (np.asarray(np.einsum("ab,bc,cd,de->ae", x, x, x, x)) == np.eye(64)).all()


def test_subscripts_of_a_path_are_followed(monkeypatch):
    loops = []
    loop = np.einsum
    monkeypatch.setattr(np, "einsum", lambda *operands, **named: loops.append(operands[0])
                        or loop(*operands, **named))
    x = np.ones((3, 3))
    assert cuteblas.einsum("ij,jk,kl->", x, x, x, optimize=["einsum_path", (0, 1, 2)]) == 81
    assert loops[-1] == "ij,jk,kl->"            # three at once, as the path says


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("subscripts", ["i,j->", "ij,jk->j", "ij,k->ik", "i,jk->k", "ij,jk,kl->"])
def test_a_sum_alone_does_not_overflow(subscripts, dtype):
    huge = FLOATS[dtype]
    first, *others = subscripts.partition("->")[0].split(",")
    arrays = [np.full((4,) * len(first), huge, dtype),
              *(np.full((4,) * len(term), 1e-3, dtype) for term in others)]
    got, expected = cuteblas.einsum(subscripts, *arrays), np.einsum(subscripts, *arrays)
    assert np.isfinite(expected).all() == np.isfinite(got).all()
    if np.isfinite(expected).all():
        np.testing.assert_allclose(got, expected, rtol=2e-3)


@pytest.mark.parametrize("first", [[1.0, -2.0], [1.0, -1.0], [np.inf, 1.0], [np.nan, 0.0]])
@pytest.mark.parametrize("second", [np.inf, 0.0, np.nan])
def test_infinities_and_nans_are_where_numpy_has_them(first, second):
    np.testing.assert_array_equal(cuteblas.einsum("i,j->", np.array(first), np.full(2, second)),
                                  np.einsum("i,j->", np.array(first), np.full(2, second)))


@pytest.mark.parametrize("subscripts", ["ki,jk->i", "ki,jk,k->i", "ki,jl->i"])
def test_an_empty_sum_is_zero_whatever_it_is_multiplied_by(subscripts):
    arrays = [np.full((1, 1), np.inf), np.ones((0, 1)),
              np.full(1, np.nan)][:subscripts.count(",") + 1]
    assert cuteblas.einsum(subscripts, *arrays).tolist() == [0.0]


def test_float16_is_rounded_once():
    x = np.full(200, 300, np.float16)
    assert cuteblas.einsum("i,i,i->", x, x, np.full(200, 2.0**-14, np.float16)) == np.float16(
        200 * 300 * 300 / 2.0**14
    )


@pytest.mark.parametrize("products", [2000, 20000])
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
@pytest.mark.parametrize("text", ["i->", "ij->", "ij->i", "ij->j", "ijk->k", "ijk->j", "ijk->ik",
                                  "i...->...", "...i->...", "ii->", "iij->j", "i,i", "i,i->i",
                                  "ij,j->i", "ji,j->i", "ij,ij->", "ij,jk", "ij,kj->ki",
                                  "ij,jk,k->i", "ij,jk,kl", "ij,k->k"])
def test_float16_is_summed_in_float32(monkeypatch, text, layout, products):
    monkeypatch.undo()
    monkeypatch.setattr(EINSUM, "_programs", {})
    terms = text.replace("...", "jk").partition("->")[0].split(",")
    extent = int(products ** (1 / max(len({*"".join(terms)}), *map(len, terms), 0)))
    arrays = [laid_out((extent,) * len(term), "e", layout, i) for i, term in enumerate(terms)]
    for x in arrays:
        x *= (41, 5, 1)[len(terms) - 1]
    exact = np.einsum(text, *[x.astype(np.float64) for x in arrays])
    assert np.abs(exact).max() < 2**24          # whatever the order of additions
    with np.errstate(over="ignore"):
        expected = exact.astype("e")
    out = np.empty(np.shape(expected)[::-1], "e").T
    wide = [x.astype(np.float32) for x in arrays]
    for operands, arguments in [(arrays, {}), (arrays, {"optimize": True}),
                                (arrays, {"order": "F"}), (arrays, {"out": out}),
                                (arrays, {"out": out, "optimize": "greedy"}),
                                ([x.astype(">e") for x in arrays], {}),
                                (wide, {"dtype": "e", "casting": "unsafe"}),
                                (wide, {"out": out, "casting": "unsafe"})]:
        got = cuteblas.einsum(text, *operands, **arguments)
        assert np.shape(got) == np.shape(expected) and got.dtype.char == "e"
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("order", "KACF")
@pytest.mark.parametrize("text", ["i->i", "ij->ji", "ii->i"])
def test_views_of_float16_stay_views(monkeypatch, text, order):
    monkeypatch.undo()
    x = np.zeros((3,) * (text.index("-")), "e")
    assert np.shares_memory(cuteblas.einsum(text, x, order=order), x)


def test_operands_are_rounded_to_the_type_of_the_result_first():
    with np.errstate(all="ignore"):
        assert np.isnan(cuteblas.einsum(",->", np.float32(1.9e21), 0.0, optimize=True, dtype="f2",
                                        casting="unsafe"))


def test_an_object_is_no_number():
    assert cuteblas.einsum(np.ones(0), [0], 2 - 1j, [], [], optimize=("greedy", 1000),
                           dtype="O") == 0


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::-1],
                                  lambda x: x[:, ::-1]])
def test_out_may_overlap_the_inputs(view):
    x = np.arange(9.0).reshape(3, 3)
    expected = np.einsum("ij,jk,kl->il", x, view(x), x)
    assert cuteblas.einsum("ij,jk,kl->il", x, view(x), x, out=view(x)) is not None
    np.testing.assert_array_equal(view(x), expected)


def test_equal_types_of_other_names_are_told_apart():
    for name in "lqlq":
        x = np.ones((2, 2), name)
        assert cuteblas.einsum("ij,jk->ik", x, x).dtype.char == np.einsum("ij,jk->ik", x, x).dtype.char


@pytest.mark.parametrize(("text", "extent", "dtype", "loops"),
                         [("ij,jk->ik", 16, "d", True), ("ij,jk->ik", 64, "d", False),
                          ("ij,jk->ik", 24, "e", False), ("ij,ij->i", 150, "d", True),
                          ("ab,bc,cd->ad", 8, "d", True), ("ab,bc,cd->ad", 20, "d", False),
                          ("ab,bc,cd->ad", 20, "l", False), ("b,cfa->c", 14, "d", True)])
def test_numpys_loop_is_used_where_it_is_quicker(monkeypatch, text, extent, dtype, loops):
    monkeypatch.undo()
    monkeypatch.setattr(EINSUM, "_programs", {})
    arrays = [np.ones((extent,) * len(term), dtype) for term in text.partition("->")[0].split(",")]
    for _ in range(2):
        np.testing.assert_array_equal(cuteblas.einsum(text, *arrays), np.einsum(text, *arrays))
    (program,) = EINSUM._programs.values()
    assert (getattr(program, "func", None) is np.einsum) == loops
