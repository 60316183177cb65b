"""Arguments of every kind: right results or clear refusals, nothing else."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
from cuteblas import blas, emulator
from cuteblas.blas import pointers
from cuteblas.blas.types import ROUTINES

from .operands import STORAGES, TRANS, check, placed, random, seen

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int32",
          "int64", "bool", "object", ">f4", "U3")
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, True, np.int8(3), 0, 1, -2])
STRANGE = st.one_of(st.sampled_from([0.5, -0.0, 1j, 1 + 0j, np.float32(2), np.complex64(1j),
                                     float("nan"), float("inf"), 10**400, 1e300]),
                    st.integers(-2**40, 2**40))
JUNK = st.sampled_from([None, "N", b"N", [], [1], {}, object(), np.ones(1), np.array(2.0),
                        np.array(1j), np.datetime64("2020"), len])
TRANSPOSITIONS = st.sampled_from([*TRANS, *"ntcr", 0, 1, 2, np.int64(1), True])
NO_TRANSPOSITIONS = st.sampled_from([3, -1, "H", "", 1.0, None])


def rarely(draw, one_in=40):
    return draw(st.integers(1, one_in)) == one_in


@st.composite
def arrays(draw, shape, dtype):
    """An array of about that shape and probably of that type, in any memory."""
    if rarely(draw):
        return draw(JUNK)
    if rarely(draw):
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    if rarely(draw):
        dtype = draw(st.sampled_from(DTYPES))
    if dtype in ("object", "U3", ">f4", "bool", "int64"):
        return np.zeros(shape, dtype)
    values = random(np.random.default_rng(draw(st.integers(0, 99))), shape, dtype)
    if len(shape) < 2:
        return values
    if rarely(draw, 15):
        return values.tolist()
    return placed(values, draw(st.sampled_from(STORAGES))).view


@st.composite
def calls(draw):
    name = draw(st.sampled_from([*ROUTINES, "gemm"]))
    types = ROUTINES[name if name != "gemm" else draw(st.sampled_from(list(ROUTINES)))]
    m, n, k = (draw(st.integers(0, 5)) for _ in range(3))
    batch = [draw(st.sampled_from([(), (), (1,), (2,), (3, 1), (3, 2)] if rarely(draw, 4)
                                  else [()])) for _ in range(3)]
    trans = [draw(NO_TRANSPOSITIONS if rarely(draw) else TRANSPOSITIONS) for _ in range(2)]
    swapped = [t in (1, 2, "T", "C", "t", "c") for t in trans]
    a = draw(arrays((*batch[0], *((k, m) if swapped[0] else (m, k))), types.operands))
    b = draw(arrays((*batch[1], *((n, k) if swapped[1] else (k, n))), types.operands))
    keywords = {}
    if draw(st.booleans()):
        keywords["c"] = draw(arrays((*batch[2], m, n), types.output))
        keywords["overwrite_c"] = draw(st.sampled_from([2, "x"] if rarely(draw) else [0, 1]))
    if rarely(draw, 6):
        keywords["out"] = draw(arrays((*_together(batch), m, n), types.output))
    if rarely(draw):
        keywords[draw(st.sampled_from(["precision", "variant", "stream", "epilogue",
                                       "dtype"]))] = draw(JUNK)
    alpha, beta = (draw(JUNK if rarely(draw) else STRANGE if rarely(draw, 8) else NUMBERS)
                   for _ in range(2))
    return name, (alpha, a, b), {"beta": beta, "trans_a": trans[0], "trans_b": trans[1], **keywords}


def _together(batches):
    try:
        return np.broadcast_shapes(*batches)
    except ValueError:
        return ()


def check_sentence(refusal):
    assert "\n" not in str(refusal) and len(str(refusal)) > 20, refusal


def run_and_check(name, arguments, keywords):
    c = keywords.get("c")
    before = c.copy() if isinstance(c, np.ndarray) else c
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            got = getattr(blas, name)(*arguments, **keywords)
        except (TypeError, ValueError) as refusal:
            check_sentence(refusal)
            if isinstance(c, np.ndarray):
                np.testing.assert_array_equal(c, before)
            return False
    alpha, a, b = arguments
    beta = keywords["beta"]
    scalars = [complex(np.asarray(x)[()]) for x in (alpha, beta)]
    output = got.dtype.name
    if not all(np.isfinite(x) and abs(x) < 1e30 for x in scalars):
        return True
    trans = keywords["trans_a"], keywords["trans_b"]
    letters = ["NTC"[int(t)] if not isinstance(t, str) else t.upper().replace("H", "C")
               for t in trans]
    taken = ROUTINES[name].operands if name in ROUTINES else next((x.dtype for x in (a, b)
                                                                   if isinstance(x, np.ndarray)),
                                                                  output)
    operands = [seen(np.asarray(x).astype(taken), t) for x, t in zip((a, b), letters, strict=True)]
    alpha, beta = (x if output.startswith("complex") else int(x.real) if output == "int32"
                   else x.real for x in scalars)
    if output in ("float16", "bfloat16") and (abs(alpha) > 100 or abs(beta) > 100):
        return True                     # what overflows is infinite; the definition is not
    previous = None if before is None else np.broadcast_to(np.asarray(before).astype(output),
                                                           got.shape)
    check(np.asarray(got), *operands, output, alpha=alpha, beta=beta if previous is not None else 0,
          c=previous)
    return True


@settings(max_examples=600, deadline=None)
@given(calls())
def test_routines(call):
    run_and_check(*call)


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
@settings(max_examples=25, deadline=None)
@given(calls())
def test_routines_in_the_emulator(call):
    with cuteblas.backend("emulator"):
        run_and_check(*call)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_pointers(data):
    """The extents that fit the memory are the only ones tried with true addresses."""
    memory = np.zeros(3 * 64, np.float64)
    integers = st.one_of(st.integers(-2, 8), st.sampled_from([None, 1.5, "3", np.int64(4), True]))
    a, b, c = (memory.ctypes.data + 64 * 8 * i for i in range(3))
    leading = st.one_of(st.integers(0, 8), st.sampled_from([None, "8"]))
    arguments = [data.draw(TRANSPOSITIONS), data.draw(TRANSPOSITIONS),
                 *(data.draw(integers) for _ in range(3)), data.draw(st.one_of(NUMBERS, STRANGE)),
                 a, data.draw(leading), b, data.draw(leading), data.draw(st.one_of(NUMBERS, JUNK)),
                 c, data.draw(leading)]
    try:
        assert pointers.dgemm(*arguments, device="host") is None
    except (TypeError, ValueError) as refusal:
        check_sentence(refusal)


@settings(max_examples=200, deadline=None)
@given(calls())
def test_plans(call):
    name, (alpha, a, b), keywords = call
    if name != "gemm":
        return
    keywords = {key: value for key, value in keywords.items() if key != "stream"}
    try:
        plan = blas.plan(a, b, alpha=alpha, **keywords)
        given = {key: keywords[key] for key in ("c", "out", "epilogue") if key in keywords}
        got = plan.execute(a, b, alpha=alpha, beta=keywords["beta"], **given)
    except (TypeError, ValueError) as refusal:
        check_sentence(refusal)
        return
    assert got.shape == plan.result.shape
