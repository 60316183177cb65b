"""Whatever is given to a function of the algebra, the result is right or the refusal is one
sentence, in bounded time."""

import contextlib
import inspect
import io
import random
import signal
import threading

import numpy as np
import pytest

import cuteblas.layout as cl
from cuteblas.cli import main
from cuteblas.layout import (
    ComposedLayout,
    CountingIterator,
    E,
    Layout,
    LayoutError,
    Swizzle,
    Var,
    complement,
    composition,
    counting_iterator,
    downcast,
    left_inverse,
    make_identity_layout,
    make_identity_tensor,
    make_tensor,
    recast_layout,
    shape_div,
    size,
    upcast,
)

BIG = 2**200


def nested(levels, leaf=2):
    for _ in range(levels):
        leaf = (leaf,)
    return leaf


# -- seen before they were mended ------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [("1", 0, 1), (1.0, 0, 1), (1, True, 1), (1, 0, None),
                                       (1, 0, np.float32(1)), (999, 0, 999)])
def test_a_swizzle_takes_integers(arguments):
    with pytest.raises(LayoutError):
        Swizzle(*arguments)


def test_a_swizzle_takes_integers_of_numpy():
    assert repr(Swizzle(np.int64(1), np.int8(0),
                        np.uint8(1))) == repr(Swizzle(1, 0,
                                                      1)) == "Swizzle(bits=1, base=0, shift=1)"


@pytest.mark.parametrize("call", [lambda: recast_layout(Layout(4), 0, 8),
                                  lambda: recast_layout(Layout(4), 8, 0),
                                  lambda: recast_layout(Layout(4), 8, -4),
                                  lambda: downcast(Layout(4), 0), lambda: upcast(Layout(4), 0),
                                  lambda: downcast(Layout(4), -1), lambda: upcast(Layout(4), 1.0),
                                  lambda: downcast(composition(Swizzle(1, 0, 1), Layout(4)), 0),
                                  lambda: cl.domain_distribute((4, 2), 0), lambda: shape_div(4, 0),
                                  lambda: shape_div(4, -4), lambda: shape_div((4, 2), 0),
                                  lambda: shape_div(-4, 8)])
def test_sizes_and_divisors_are_above_0(call):
    with pytest.raises(LayoutError):
        call()


@pytest.mark.parametrize("arguments, words", [(["(" * 500 + "2" + ")" * 500],
                                               "tuples nest at most 64 levels deep"),
                                              (["1" * 5000], "a number of 5000 digits"),
                                              (["4:" + "1" * 5000], "a number of 5000 digits"),
                                              (["4:1@" + "1" * 5000], "a number of 5000 digits"),
                                              (["4", "--swizzle", "1,0," + "1" * 5000],
                                               "a swizzle is written"),
                                              (["4", "--tile", "(" * 90 + "2" + ")" * 90],
                                               "64 levels")])
def test_the_command_refuses_in_one_line(arguments, words, capsys):
    assert main(["layout", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and len(err.splitlines()) == 1 and len(err) < 400


@pytest.mark.parametrize("outer, expected", [(Layout((8, 8), (8 * BIG, BIG)),
                                              f"S<3,200,-3> o 0 o (8,8):({8 * BIG},{BIG})"),
                                             (Layout((8, 8), (BIG, 1)),
                                              f"S<3,0,-200> o 0 o (8,8):({BIG},1)"),
                                             (Layout((8, 8), (3 * BIG, 5)), None)])
def test_large_strides_in_a_swizzled_composition(outer, expected):
    with time_limit(5):
        if expected is None:
            with pytest.raises(LayoutError, match="no swizzle"):
                composition(outer, Swizzle(3, 0, 3))
        else:
            assert str(composition(outer, Swizzle(3, 0, 3))) == expected


@pytest.mark.parametrize("layout", [Layout(0, 0), Layout((4, 0), (1, 0)), Layout((0, 3))])
def test_empty_layouts_have_neither_complement_nor_left_inverse(layout):
    for f in (lambda x: complement(x, 8), left_inverse):
        with pytest.raises(LayoutError, match="empty"):
            f(layout)


def test_the_message_of_an_error_is_short():
    with pytest.raises(LayoutError) as caught:
        composition(Layout((BIG,) * 300), Layout(4, -1))
    assert len(str(caught.value)) < 600


def test_an_iterator_without_end_is_not_listed():
    with pytest.raises(TypeError):
        list(CountingIterator())


# -- anything at all -------------------------------------------------------------------------------
NUMBERS = [True, False, 1.0, 2.5, float("nan"), float("inf"), "1", "ab", "", b"x", None, 1j, [],
           [2, 3], {}, object(), np.int64(4), np.uint8(2), np.bool_(True), np.float32(2),
           np.arange(3), 0, -1, -7, 1, 2, 3, 4, 6, 128, BIG, -BIG, 10**5000]
TUPLES = [(), (2,), (2, 3), (4, (2, 3)), (0, 3), (-1, 2), (2, "a"), (True, 2), (2.0, 3), (None, 2),
          (2, (None, 3)), (BIG, BIG), (np.int64(2), 3), nested(60), nested(500), nested(5000),
          ([2], 3), (2,) * 30, (2,) * 300]
LAYOUTS = [Layout(4), Layout((4, (2, 3)), (2, (1, 8))), Layout((2, 2), (1, 1)),
           Layout((4, 3), (-1, 8)), Layout((4, 3), (0, 2)), Layout((0, 4)),
           Layout((BIG, 2), (1, BIG)), Layout((BIG, 3), (2, BIG * 7)), Layout((64, 64), (3, 190)),
           Layout((1 << 20, 1 << 20), (1, 1 << 21)), Layout((Var("M"), 4), (1, Var("ld"))),
           make_identity_layout((4, 5)), composition(Swizzle(2, 0, 2), Layout((4, 4), (4, 1))),
           ComposedLayout(abs, 0, Layout(4)), make_tensor(counting_iterator(0), Layout((4, 2))),
           make_identity_tensor((3, 4)), Swizzle(1, 0, 1), Swizzle(3, 4, 3), Var("i"),
           Var("k", 0, 7), E(0), 3 * E(1, 0), cl.ArithTuple(1, 2), counting_iterator(3)]
NOT_SWEPT = {"Expr": "expressions are made by Var and operators",
             "LayoutError": "takes whatever it is to say"}


class TooLong(Exception):
    pass


@contextlib.contextmanager
def time_limit(seconds):
    """Raise TooLong inside of the block; without the signals of POSIX, or outside of the main
    thread, do nothing."""
    if not hasattr(signal,
                   "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def number_of_arguments(f):
    parameters = inspect.signature(f).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most = len(positional) + (2 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else 0)
    return sum(p.default is p.empty for p in positional), most


def refusal_of(f, *arguments):
    try:
        with time_limit(5), contextlib.redirect_stdout(io.StringIO()):
            f(*arguments)
    except (ValueError, TypeError) as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("name", sorted(n for n in cl.__all__ if callable(getattr(cl, n))
                                        and n not in NOT_SWEPT))
def test_anything_is_answered_or_refused_in_one_sentence(name):
    f, rng = getattr(cl, name), random.Random(name)
    least, most = number_of_arguments(f)
    for _ in range(60):
        arguments = [rng.choice(LAYOUTS if i == 0 and rng.random() < 0.4 else NUMBERS + TUPLES
                                + LAYOUTS) for i in range(rng.randint(least, most))]
        said = refusal_of(f, *arguments)
        assert "\n" not in said and len(said) < 1500


WHOLE = {"product": 1, "product_each": 1, "tuple_sum": 1, "tuple_min": 1, "tuple_max": 1, "gcd": 1,
         "size": 1, "depth": 1, "rank": 1, "inner_product": 2, "elem_scale": 2, "ceil_div": 2,
         "round_up": 2, "shape_div": 2, "evenly_divides": 2, "congruent": 2, "weakly_congruent": 2,
         "compatible": 2, "elem_less": 2, "elem_leq": 2, "elem_gtr": 2, "elem_geq": 2,
         "lex_less": 2, "lex_leq": 2, "colex_less": 2, "colex_leq": 2, "crd2idx": 2, "idx2crd": 2,
         "Layout": 2, "make_layout": 2, "make_identity_layout": 1, "Swizzle": 3, "make_swizzle": 2}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("wrong", [True, 2.0, "2", [2], b"2", np.float32(2), np.bool_(True)],
                         ids=repr)
def test_what_is_no_integer_is_refused(name, wrong):
    f, n = getattr(cl, name), WHOLE[name]
    for place in range(n):
        for x in (wrong, (wrong, 2)):
            with pytest.raises(LayoutError):
                f(*(x if i == place else (2, 2) if isinstance(x, tuple) else 2 for i in range(n)))


@pytest.mark.parametrize("name", sorted(set(WHOLE) - {"Swizzle", "make_swizzle"}))
def test_integers_of_numpy_are_integers(name):
    f, n = getattr(cl, name), WHOLE[name]
    given, plain = ([(x(0), (x(1), x(1))) if name == "crd2idx" and i == 0 else (x(2), (x(4), x(2)))
                     for i in range(n)] for x in (np.int64, int))
    if name == "idx2crd":
        given[0], plain[0] = np.int64(3), 3
    assert repr(f(*given)) == repr(f(*plain))


def test_nesting_is_bounded():
    assert size(nested(64)) == 2 and cl.depth(nested(64)) == 64 and Layout(nested(64))(1) == 1
    for f in (Layout, size, cl.depth, cl.rank, cl.product, cl.flatten, cl.unwrap, cl.zero_of,
              make_identity_layout, Layout(4)):
        for levels in (65, 500, 5000):
            with pytest.raises(LayoutError):
                f(nested(levels))
