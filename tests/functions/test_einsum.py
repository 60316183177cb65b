"""``einsum`` and ``einsum_path`` against NumPy, with problems evaluated by the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
from cuteblas.functions import contractions
from cuteblas.planning.problem import ReductionProblem

from . import reference
from .agreement import agree
from .arrays import DTYPES, LAYOUTS, laid_out, small_arrays

pytestmark = pytest.mark.usefixtures("by_definition")

SUBSCRIPTS = ("ij,jk->ik", "ij,jk", "ij,kj->ki", "ij,ij->ij", "ij,ij", "ij,ij->i", "ij->ji", "ij->",
              "ij->j", "ii", "ii->i", "iji->j", "i,j", "i,i", "ij,j->i", "ijk,kl->ijl",
              "ijk,jil->kl", "bij,bjk->bik", "ij,jk,kl->il", "ij,ij,ij->", "ij,jk,ki", "i,i,i->i",
              "ab,cd->abcd", "ij,k->i", "iij,jk->ik", "iij,jjk->ik", "ijk->ik", "ij,j", "i,ij,j",
              "ij,kl,mn->", "...ij,...jk->...ik", "...ij,jk", "i...,i...->...", "...,...",
              "ii...->...", "...", "...->...", "i...->...i", "ij,...j->...i", ",ij->ij", ",",
              "ij,,j->i", "ijij->ij", "abc,cd,be,ad->e", "ba,b")


def einsum(*operands, **arguments):
    return agree(cuteblas.einsum, np.einsum, *operands, **arguments)


def operands_for(draw, subscripts, dtypes=DTYPES):
    """Arrays whose shapes mostly fit."""
    extent = {c: draw(st.sampled_from((0, 1, 2, 2, 3))) for c in "abcdefghijklmnop"}
    hidden = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=2))
    arrays = []
    for term in subscripts.partition("->")[0].split(","):
        shape = [extent[c] for c in term.replace("...", "")]
        # NumPy takes the diagonal of a (0, 3) matrix to have 3 elements
        if len(set(term)) == len(term):
            shape = [1 if draw(st.integers(0, 19)) == 0 else n for n in shape]
        if draw(st.integers(0, 39)) == 0:
            shape.append(2)
        at = term.find("...")
        if at >= 0:
            shape[at:at] = [1 if draw(st.integers(0, 3)) == 0 else n
                            for n in hidden[draw(st.integers(0, len(hidden))):]]
        arrays.append(small_arrays(draw, tuple(shape), dtypes))
    return arrays


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_strides_types_and_shapes(data):
    subscripts = data.draw(st.sampled_from(SUBSCRIPTS))
    einsum(subscripts, *operands_for(data.draw, subscripts))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_arguments(data):
    subscripts = data.draw(st.sampled_from(SUBSCRIPTS))
    arrays = operands_for(data.draw, subscripts, ("i", "f", "d", "D"))
    arguments = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.sampled_from((None, "f4", "f8", "c16", "i4")),
                "order": st.sampled_from(("C", "F", "A", "K", "Z", None)),
                "casting": st.sampled_from(("no", "safe", "same_kind", "unsafe", "any")),
                "foo": st.just(1)
            }
        )
    )
    out = None
    if data.draw(st.booleans()):
        try:
            shape = np.einsum(subscripts, *arrays).shape
        except ValueError:
            shape = (2, 2)
        if data.draw(st.integers(0, 4)) == 0:
            shape = data.draw(st.sampled_from((tuple(3 if n == 1 else n for n in shape),
                                               (2, *shape))))
        out = small_arrays(data.draw, shape, (np.result_type(*arrays).char, "d", "D"),
                           writeable=True)
        out.flags.writeable = data.draw(st.integers(0, 9)) != 0
    einsum(subscripts, *arrays, out=out, **arguments)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_optimize(data):
    subscripts = data.draw(st.sampled_from([s for s in SUBSCRIPTS if s.count(",") > 1]))
    arrays = operands_for(data.draw, subscripts, ("i", "d"))
    optimize = data.draw(st.sampled_from((True, False, "greedy", "optimal", ("greedy", 10),
                                          ["einsum_path", (0, 1), (0, 1)],
                                          ["einsum_path", (0, 1, 2)], ["einsum_path", (0, 5)],
                                          "worst", ("einsum_path", (0, 1)), 3)))
    einsum(subscripts, *arrays, optimize=optimize, strides=False)


@pytest.mark.parametrize("subscripts", ["aa,aba->ba", "cb,cca->ac", "aab->ba"])
def test_order_of_results_of_diagonals(subscripts):
    """NumPy asks whether diagonals are in Fortran's order, not the operands."""
    terms = subscripts.partition("->")[0].split(",")
    for dtype, layout in (("d", "C"), ("f", "F")):
        arrays = [laid_out((4,) * len(term), dtype, layout) for term in terms]
        einsum(subscripts, *arrays, order="A", dtype="d")
    rows = np.ndarray((7, 3, 7), "d", np.ones(21), strides=(0, 56, 8))
    einsum("aba,->ba", rows, np.ones(()), order="A")


@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("layout2", ["C", "F"])
@pytest.mark.parametrize("layout1", ["C", "F", "permuted"])
def test_order_of_the_result(layout1, layout2, order):
    a, b = laid_out((2, 3, 5), "d", layout1, 1), laid_out((4, 3), "d", layout2, 2)
    for subscripts in ("...ft,mf->...mt", "abc,db->adbc", "abc,db->dca"):
        result = einsum(subscripts, a, b, order=order)
        assert result.flags.f_contiguous or not (order == "F"
                                                 or (order == "A" and layout1 == layout2 == "F"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("subscripts", ["aab,bc->ac", "ijk->j", "ij,jk,kl->il"])
def test_every_type_in_every_layout(subscripts, layout):
    shapes = [(3,) * len(term) for term in subscripts.split("->")[0].split(",")]
    for dtype in DTYPES:
        assert einsum(subscripts, *(laid_out(shape, dtype, layout, i)
                                    for i, shape in enumerate(shapes))) is not None


@pytest.mark.parametrize("operands", [(np.ones((3, 4)), [0, 1], np.ones((4, 2)), [1, 2], [0, 2]),
                                      (np.ones((3, 4)), [0, 1], np.ones((4, 2)), [1, 2]),
                                      (np.ones((3, 3)), [0, 0]), (np.ones((3, 2)), [1, 0]),
                                      (np.ones((3, 2)), [..., 0], [0, ...]),
                                      (np.ones((2, 3)), [30, 2]), (np.ones((2, 3)), [52, 0]),
                                      (np.ones((2, 3)), [-1, 0]), (np.ones((2, 3)), [0.5, 0]),
                                      (np.ones(3), "i"), (np.ones(3), [0], 5), ()], ids=repr)
def test_lists_in_place_of_letters(operands):
    einsum(*operands)


@pytest.mark.parametrize("subscripts", ["ij..", "i.j", "ij->ijk", "ij->ii", "ij,jk", "i", "ijk",
                                        "->", "i-j", "i>j", "i->j->k", "$i", "ij,", "...ij...",
                                        "ij->...", "ij->ij...",    "i...->i", "i j -> j i", "",
                                        "->ij", "iij", "ij->i...j", "...ij->ij", "ij->->"])
def test_odd_subscripts(subscripts):
    einsum(subscripts, laid_out((2, 3), "d", "F"))


@pytest.mark.parametrize("operands", [("i,i", 3, [1, 2]), ("i,i", [1.5, 2], [1, 2]), (",", 2, 3),
                                      ("", None), ("i", "ab"), ("i->", [True, False]), (5,), ("i",),
                                      ("i,i", np.ones(2, object), np.ones(2)),
                                      ("i->", np.ones(2, "g")), ("ij->ji", np.ones((2, 2), "O")),
                                      ("i,i", np.ones(2, "M8[s]"), [1, 2]),
                                      ("ii->i", np.array([["a", "b"], ["c", "d"]]))], ids=repr)
def test_operands_that_are_not_plain_arrays(operands):
    einsum(*operands)


@pytest.mark.parametrize("subscripts", ["ij->ji", "ii->i", "iij->ji", "ij->ij", "...i->i..."])
def test_views_stay_views(subscripts):
    x = np.arange(27.0).reshape(3, 3, 3) if subscripts == "iij->ji" else np.arange(9.0).reshape(3, 3)
    cuteblas.reset_stats()
    view = cuteblas.einsum(subscripts, x)
    view[...] = -1
    assert np.shares_memory(view, x) and (x == -1).any()
    assert cuteblas.stats() == {"einsum": {"calls": {"a view": 1}}}


def test_nothing_is_copied_or_reshaped():
    cuteblas.reset_stats()
    for layout in ("F", "sliced", "negative", "permuted"):
        einsum("iijk,klj->il", laid_out((2, 2, 3, 4), "d", layout, 1),
               laid_out((4, 2, 3), "d", layout, 2))
    assert cuteblas.stats() == {"einsum": {"calls": {"reference": 4}}}
    problem = reference.LAUNCHED[-1].problem
    assert [[mode[0] for mode in group] for group in (problem.m, problem.n,
                                                      problem.k)] == [[2], [2], [3, 4]]


def test_repeated_operands():
    x = laid_out((3, 3), "D", "F")
    einsum("ij,jk,ki->", x, x, x)
    einsum("ij,ij->i", x, x)


def reductions(subscripts, *operands, **arguments):
    """What an ``einsum`` runs, as the extents that each reduction sums over; ``None`` for another
    kernel."""
    launched = len(reference.LAUNCHED)
    einsum(subscripts, *operands, **arguments)
    return [plan.problem.j if isinstance(plan.problem, ReductionProblem) else None
            for plan in reference.LAUNCHED[launched:]]


@pytest.mark.parametrize("subscripts, layout, summed",
                         [("ij->i", "C", [4]), ("ij->j", "permuted", [3]), ("ij->", "C", [12]),
                          ("ij->", "sliced", [4, 3]), ("ijk->k", "C", [12]),
                          ("ijk->j", "C", [5, 3]), ("ijk->", "negative", [60]),
                          ("ijkl->jl", "C", [5, 3]), ("iij->j", "C", [3]), ("ii->", "F", [3]),
                          ("ij...->...", "C", [12]), ("ijk->ik", "broadcast", [4])])
def test_sums_over_one_operand_are_reductions(subscripts, layout, summed):
    """Modes that are one in memory are summed in one step, others one after the other, the longest
    first."""
    extents = dict(zip("ijkl", (3, 4, 5, 2), strict=True))
    shape = [extents[c] for c in subscripts.partition("->")[0].replace("...", "k")]
    assert reductions(subscripts, laid_out(tuple(shape), "d", layout)) == summed


ALONE = (("ijk,kl->il", [4, None]), ("ijk,k->i", [4, None]), ("ij,kl->k", [12, 6]),
         ("ij,kl->", [12, 30]), ("ij,j->ij", []), ("ij,i->i", [4]), ("ij,i->", [4, None]),
         ("ijk,jl->i", [5, 6, None]))


def arrays_over(subscripts, dtype):
    extents = dict(zip("ijkl", (3, 4, 5, 6), strict=True))
    return [laid_out(tuple(extents[c] for c in term), dtype, "C")
            for term in subscripts.partition("->")[0].split(",")]


@pytest.mark.parametrize("dtype", "ife")
@pytest.mark.parametrize("subscripts, expected", ALONE)
def test_sums_that_do_not_overflow_over_an_index_of_one_operand_alone_come_first(
    subscripts, expected, dtype
):
    """Integers wrap, and float32 is summed in float64, float16 in float32."""
    assert reductions(subscripts, *arrays_over(subscripts, dtype)) == expected


def test_sums_of_complex64_are_those_of_its_parts_in_complex128():
    x, y = laid_out((3, 4, 5), "F", "permuted"), laid_out((5, 6), "F", "F")
    assert reductions("ijk,kl->il", x, y) == [4, None]
    problem = reference.LAUNCHED[-2].problem
    assert (problem.x.dtype, problem.accumulator, problem.r.dtype) == (
        "float32",
        "float64",
        "float64"
    )
    for subscripts in ("ijk,kl->il", "ijk,kl->k", "ijk,kl->", "ijk,kl->kil"):
        expected = np.einsum(subscripts, x.astype("D"), y.astype("D"))
        np.testing.assert_allclose(cuteblas.einsum(subscripts, x, y), expected, rtol=1e-6)


@pytest.mark.parametrize("subscripts, expected", ALONE)
def test_sums_of_float64_over_an_index_of_one_operand_alone_are_part_of_the_product(
    subscripts, expected
):
    """The products are written and then summed where they are elements of vectors."""
    written = {"ij,i->i": [4], "ij,i->": [12]}
    assert reductions(subscripts, *arrays_over(subscripts, "d")) == written.get(
        subscripts, [None] * (len(expected) > 0)
    )


def test_an_index_that_only_one_operand_moves_along_is_summed_alone():
    x, y = laid_out((3, 4), "i", "C"), np.broadcast_to(np.int32(2), (3, 4))
    assert reductions("ij,ij->i", x, y) == [4]


HUGE = {"e": 6e4, "f": 3e38, "d": 1.7e308, "F": 1e38, "D": 1e308}


@pytest.fixture(params=["direct", "sums first"])
def order(request, monkeypatch):
    """Whether a product is small enough to be done in NumPy's order."""
    if request.param == "sums first":
        monkeypatch.setattr(contractions, "_MOST_AT_ONCE", 0)
        monkeypatch.setattr(contractions, "_MOST_OF_ELEMENTS", 0)
    return request.param


@pytest.mark.parametrize("dtype", HUGE)
@pytest.mark.parametrize("subscripts", ["i,i->", "ij,ij->j", "ij,jk->ik", "i,j->", "ij,jk->j",
                                        "ij,k->ik", "i,jk->k", "bij,bj->bi"])
def test_what_is_finite_in_numpy_is_finite(order, subscripts, dtype):
    """Whether the second operand lacks an index or does not move along it."""
    huge, terms = HUGE[dtype], subscripts.partition("->")[0].split(",")
    first = np.full((5,) * len(terms[0]), huge, dtype)
    second = np.broadcast_to(np.asarray(2.0**-7, dtype), (5,) * len(terms[1]))
    for pair in ((first, second), (first, second.copy())):
        expected = np.einsum(subscripts, *(x.astype("D") * 2.0**-30 for x in pair)) * 2.0**60
        expected = (expected if dtype in "FD" else expected.real).astype(dtype)
        np.testing.assert_allclose(cuteblas.einsum(subscripts, *pair), expected, rtol=1e-3)


@pytest.mark.parametrize("call", [lambda x, y: cuteblas.vecdot(x, y),
                                  lambda x, y: cuteblas.dot(x, y),
                                  lambda x, y: cuteblas.inner(x, y),
                                  lambda x, y: cuteblas.tensordot(x, y, 1),
                                  lambda x, y: cuteblas.vdot(x, y),
                                  lambda x, y: cuteblas.matvec(x[None], y)[0],
                                  lambda x, y: cuteblas.matmul(x, y),
                                  lambda x, y: cuteblas.vecmat(x, y[:, None])[0]])
def test_broadcast_vectors(order, call):
    x, y = np.full(2, 3e38, "f"), np.broadcast_to(np.float32(0.1), (2,))
    assert call(x, y) == np.float32(6e37) == call(y, x)


@pytest.mark.parametrize("first", [[1.0, -2.0], [1.0, -1.0], [np.inf, 1.0], [np.nan, 0.0]])
@pytest.mark.parametrize("second", [np.inf, 0.0, np.nan])
def test_infinities_and_nans_are_where_numpy_has_them(first, second):
    with np.errstate(all="ignore"):
        for y in (np.full(2, second), np.broadcast_to(second, (2,))):
            np.testing.assert_array_equal(cuteblas.einsum("i,j->", np.array(first), y),
                                          np.einsum("i,j->", np.array(first), y))
            np.testing.assert_array_equal(cuteblas.dot(np.array(first), y),
                                          np.dot(np.array(first), y))


@pytest.mark.parametrize("subscripts", ["ki,jk->i", "ki,jk,k->i", "k,ki,jl->i", "ki,jk,il->il"])
def test_an_empty_sum_is_zero_whatever_it_is_multiplied_by(subscripts):
    shape = {"j": 0, "k": 2, "i": 3, "l": 2}
    arrays = [np.full([shape[c] for c in term], np.inf)
              for term in subscripts.partition("->")[0].split(",")]
    assert not np.any(einsum(subscripts, *arrays))


def test_products_of_float16_are_rounded_once():
    x = np.full(3, 300, "e")
    assert cuteblas.einsum("i,i,i->i", x, x, np.full(3, 2.0**-14, "e")).tolist() == [np.float16(300 * 300 * 2.0**-14)] * 3
    assert cuteblas.einsum("i,i,i->", x, x, np.full(3, 2.0**-14, "e")) == np.float16(
        3 * 300 * 300 * 2.0**-14
    )


@pytest.mark.parametrize("subscripts", ["i,i->", "ij,ij->j", "ij,ik->jk", "i,i,i->"])
def test_an_empty_operand_that_does_not_move_is_not_read(subscripts):
    """NumPy and Dask make them: an empty array's strides mean nothing, and where it would begin may
    be memory of others."""
    terms = subscripts.partition("->")[0].split(",")
    still, *moving = (np.ndarray(tuple(0 if c == "i" else 3 for c in term), "d", np.full(9, np.nan),
                                 strides=[stride] * len(term))
                      for stride, term in zip((0, 8, 8), terms, strict=False))
    for operands in ((still, *moving), (*moving, still)):
        assert not np.any(cuteblas.einsum(subscripts, *operands))


@pytest.mark.parametrize("subscripts", ["ii->i", "ij->ji", "ij->j", "ij->", "ij,ij->ij",
                                        "ij,jk->ik", "ij,jk,kl->il"])
def test_any_byte_but_zero_is_true(subscripts):
    x = np.array([[0, 1, 2], [4, 0, 128], [255, 64, 0]], np.uint8)
    operands = [x[::-1]] * (subscripts.count(",") + 1)
    expected = np.einsum(subscripts, *(y != 0 for y in operands))
    got = cuteblas.einsum(subscripts, *(y.view(bool) for y in operands),
                          out=np.zeros(np.shape(expected), bool))
    np.testing.assert_array_equal(got.view(np.uint8), expected.astype(np.uint8))


def test_float16_sums_are_rounded_once():
    """Sums on the way are float32: they may exceed what float16 holds, and so may sums of parts of
    one operand."""
    x, y = np.full((8, 3, 16), 30000, "e"), np.full(4, 2.0**-12, "e")
    assert cuteblas.einsum("ijk,l->", x, y) == np.float16(30000 * 8 * 3 * 16 * 2.0**-10)
    assert cuteblas.einsum("ijk,lj->l", x, y[:, None] * np.ones(3, "e"))[0] == np.float16(
        30000 * 8 * 16 * 3 * 2.0**-12
    )
    launched = len(reference.LAUNCHED)
    cuteblas.einsum("ijk->j", x / np.float16(256))
    assert [(p.problem.x.dtype, p.problem.r.dtype) for p in reference.LAUNCHED[launched:]] == [
        ("float16", "float32"), ("float32", "float16")]


def test_a_broadcast_batch_is_a_mode_of_the_other_tensor():
    a, b = laid_out((3, 4, 5), "d", "C"), laid_out((5, 6), "d", "C")
    einsum("bij,bjk->bik", a, np.broadcast_to(b, (3, 5, 6)))
    problem = reference.LAUNCHED[-1].problem
    assert not problem.batch and [mode[0] for mode in problem.m] == [3, 4] and [mode[0] for mode in problem.n] == [6]


def test_chain_is_multiplied_in_the_cheap_order():
    launched = len(reference.LAUNCHED)
    einsum("ij,jk,k->i", laid_out((5, 6), "d", "C"), laid_out((6, 7), "d", "C"),
           laid_out((7,), "d", "C"))
    assert [plan.problem.flops for plan in reference.LAUNCHED[launched:]] == [2 * 6 * 7, 2 * 5 * 6]


@pytest.mark.parametrize("optimize", [True, "greedy", "optimal", "auto",
                                      ["einsum_path", (0, 2), (0, 1)]])
def test_path_is_followed(optimize):
    shapes = ((5, 6), (6, 7), (7, 5))
    arrays = [laid_out(shape, "d", "C") for shape in shapes]
    path, _report = cuteblas.einsum_path("ij,jk,kl->il", *arrays, optimize=optimize)
    assert cuteblas.einsum("ij,jk,kl->il", *arrays, optimize=path).shape == (5, 5)
    launched = len(reference.LAUNCHED)
    cuteblas.einsum("ij,jk,kl->il", *arrays, optimize=optimize)
    first = reference.LAUNCHED[launched].problem
    sizes = {(0, 1): 5 * 6 * 7, (1, 2): 6 * 7 * 5, (0, 2): 5 * 6 * 7 * 5}
    assert first.flops == 2 * sizes[tuple(sorted(path[1]))]


@pytest.mark.parametrize("optimize", ["greedy", "optimal", True, False, ("optimal", 100),
                                      ["einsum_path", (0, 1), (0, 1)]])
def test_einsum_path_prints_what_numpy_prints(optimize):
    arguments = ("ea,fb,abcd", np.ones((3, 4)), np.ones((5, 2)), np.ones((4, 2, 3, 3)))
    assert cuteblas.einsum_path(*arguments, optimize=optimize) == np.einsum_path(
        *arguments, optimize=optimize
    )


def test_einsum_path_of_our_own_order():
    arrays = [np.ones((10, 2)), np.ones((2, 20)), np.ones((20, 3)), np.ones((3, 10))]
    path, report = cuteblas.einsum_path("ab,bc,cd,da", *arrays, optimize="auto")
    assert path[0] == "einsum_path" and len(path) == 4 and "Optimized FLOP count" in report
    many = "ab,bc,cd,de,ef,fg,gh,hi,ij->aj"
    path, _ = cuteblas.einsum_path(many, *(np.ones((2, 2)) for _ in range(9)), optimize="optimal")
    assert len(path) == 9


@pytest.mark.parametrize("path", [[(0, 0), (0, 1)], [(1, 2), (0, 0)], [(0, 1, 2)], [(2, 0, 0)],
                                  [(0,), (0, 1), (1, 0)]])
@pytest.mark.parametrize("backend", ["numpy", "emulator"])
def test_paths_are_read_as_numpy_takes_operands_out(path, backend):
    """One after the other: (0, 0) is the first and the second."""
    arrays = [laid_out((3, 3), "d", "C", i) for i in range(3)]
    with cuteblas.backend(backend):
        got = cuteblas.einsum("ij,jk,kl->il", *arrays, optimize=["einsum_path", *path])
    np.testing.assert_array_equal(got, np.einsum("ij,jk,kl->il", *arrays))


def test_many_operands():
    letters = "abcdefghijklmnopqrstuvwxyz"
    terms = [letters[i] + letters[i + 1] for i in range(20)]
    arrays = [laid_out((2, 2), "q", "C", i) for i in range(20)]
    expected = np.linalg.multi_dot(arrays)
    np.testing.assert_array_equal(cuteblas.einsum(",".join(terms) + "->au", *arrays), expected)


def test_products_are_computed_in_the_type_of_the_result():
    a, b, c = np.full(3, 100, "b"), np.full(3, 100, "b"), np.full(3, 2.0)
    assert cuteblas.einsum("i,i,i->", a, b, c) == 60000.0


@pytest.mark.parametrize("subscripts", ["ij->i", "ij->", "ij,jk->ki", "ij,jk,kl->"])
def test_types_of_the_other_byte_order(subscripts):
    """NumPy sums as if they were in the machine's order."""
    arrays = [np.ones((3, 3), "f") for _ in subscripts.split(",")]
    expected = np.einsum(subscripts, *arrays)
    for backend in ("numpy", "emulator"):
        with cuteblas.backend(backend):
            got = cuteblas.einsum(subscripts, *arrays, dtype=">f4")
            assert got.dtype == (">f4" if expected.shape else "f4")
            np.testing.assert_array_equal(got, expected)


def test_out_may_overlap_the_inputs():
    x = laid_out((4, 4), "d", "C")
    expected = np.einsum("ij,kj->ik", x, x)
    assert cuteblas.einsum("ij,kj->ik", x, x, out=x.T) is not None
    np.testing.assert_array_equal(x.T, expected)
    x = laid_out((4, 4), "d", "C")
    expected = x.T.copy()
    cuteblas.einsum("ij->ji", x, out=x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,kj->ik", "ij,ij->ij", "ij,jk,kl->il",
                                        "ij,j->i", ",ij->ji"])
def test_out_may_overlap_each_operand_alone(backend, subscripts):
    terms, result = subscripts.split("->")
    for i, term in enumerate(terms.split(",")):
        if len(term) != len(result):
            continue
        for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1]):
            arrays = [laid_out((4,) * len(t), "d", "C") + n for n, t in enumerate(terms.split(","))]
            expected, out = np.einsum(subscripts, *arrays), view(arrays[i])
            with cuteblas.backend(backend):
                cuteblas.reset_stats()
                assert cuteblas.einsum(subscripts, *arrays, out=out) is out
                if backend == "emulator" and len(arrays) == 2:
                    assert cuteblas.stats()["einsum"]["copies"] == {
                        "out: shares memory with an input": 1
                    }
            np.testing.assert_array_equal(out, expected)


class Answers:
    """A type that answers NumPy's functions itself."""

    def __array_function__(self, function, types, arguments, named):
        return function.__name__, sorted(named)


def test_other_types_are_asked_first():
    assert cuteblas.einsum("i,i", np.ones(2), Answers()) == ("einsum", ["optimize"])
    assert cuteblas.einsum("i,i", np.ones(2), np.ones(2), out=Answers()) == (
        "einsum",
        ["optimize", "out"]
    )


def test_numpy_takes_numpy_arrays():
    with cuteblas.backend("numpy"):
        cuteblas.reset_stats()
        assert cuteblas.einsum("ij,jk,kl", *(np.ones((2, 2)),) * 3, optimize="auto").shape == (2, 2)
        with pytest.raises(ValueError, match="operands could not be broadcast together"):
            cuteblas.einsum("i,i", np.ones(2), np.ones(3))
        with pytest.raises(ValueError, match="must specify the einstein sum subscripts string"):
            cuteblas.einsum()
        assert cuteblas.stats() == {"einsum": {"calls": {"numpy": 1}}}


def test_plain_arrays_are_made_of_subclasses_as_by_numpy():
    arrays = [np.ones((20, 20)).view(np.matrix)] * 3
    for subscripts in ("ij,jk->ik", "ij,jk,kl->il"):
        operands = arrays[:subscripts.count(",") + 1]
        assert type(cuteblas.einsum(subscripts, *operands)) is type(np.einsum(subscripts, *operands))


def test_casts_of_long_doubles_are_refused_as_numpy_refuses_them():
    arrays = [np.ones((20, 20), np.longdouble)] * 3
    with cuteblas.backend("numpy"):
        for arguments in ({"dtype": "f8"}, {"out": np.zeros((20, 20))}):
            with pytest.raises(TypeError, match="according to the rule 'safe'"):
                cuteblas.einsum("ij,jk,kl->il", *arrays, **arguments)


@pytest.mark.parametrize("optimize", [False, True, "greedy"])
@pytest.mark.parametrize("operand", [0.0, np.zeros(()), np.zeros(3), np.zeros((2, 2)),
                                     np.zeros((0, 2))])
def test_an_operand_alone_is_refused_as_numpy_refuses_it(operand, optimize):
    errors = []
    for einsum in (np.einsum, cuteblas.einsum):
        with pytest.raises((TypeError, ValueError)) as refused:
            einsum(operand, optimize=optimize)
        errors.append(refused.type)
    assert errors[0] is errors[1]
