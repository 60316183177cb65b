"""complex64 products on 16-bit tensor cores: the equivalent real product, conjugation, and the
guard of accuracy."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.split.planes import FORMATS, SplitOperand
from cuteblas.planning import H200, plan_gemm
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.split import plan_guarded, why_not_split
from cuteblas.planning.problem import Fusion

from .engines import gemm_problem, place, plan_split, random
from .test_gemm_split import U, hopper, limit, product
from .test_gemm_split import square as square_of

ORDERS = ["CCC", "CFF", "FCC", "FFF"]
CONJUGATED = [(False, False), (True, False), (False, True), (True, True)]


def by_name(name):
    return lambda problem, device: plan_split(problem, device, name)


def conjugated(x, conj):
    return x.conj() if conj else x


def parts(x):
    """Real and imaginary parts in float64."""
    return x.real.astype("f8"), x.imag.astype("f8")


def units(c, a, b):
    """The largest error of a real or imaginary part, in units of u times the sum of the magnitudes
    of all its terms."""
    (ar, ai), (br, bi) = parts(a), parts(b)
    scale = np.stack([abs(ar) @ abs(br) + abs(ai) @ abs(bi), abs(ar) @ abs(bi) + abs(ai) @ abs(br)])
    want = a.astype("c16") @ b.astype("c16")
    error = np.stack([abs(c.real - want.real), abs(c.imag - want.imag)])
    assert not np.isnan(error).any(), "poison or NaN in the result"
    return float((error / (scale * U + 1e-300)).max())


@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("conj", CONJUGATED)
def test_small_integers_are_exact(engine, orders, conj):
    """Every sign and every place of a real or imaginary part shows, in vectors and in single
    elements."""
    hopper(engine)
    rng = np.random.default_rng(4)
    for form, (m, n, k) in itertools.product(FORMATS, ((34, 20, 66), (35, 21, 65))):
        a, b = (rng.integers(-60, 61, s) + 1j * rng.integers(-60, 61, s) for s in ((m, k), (k, n)))
        a, b = a.astype("c8"), b.astype("c8")
        c, _plan = product(engine, a, b, by_name(form), a_order=orders[0], b_order=orders[1],
                           c_order=orders[2], conj=conj)
        np.testing.assert_array_equal(c, conjugated(a, conj[0]) @ conjugated(b, conj[1]))


def test_strided_flipped_and_broadcast_operands(engine):
    hopper(engine)
    rng = np.random.default_rng(12)
    a, b = random(rng, (3, 20, 40), "complex64"), random(rng, (3, 40, 18), "complex64")
    pa, pb = place(a, step=3, flip=(False, True, True)), place(b, "F", step=2,
                                                               flip=(True, False, True))
    pc = place(np.full((3, 20, 18), np.nan, "c8"), "F", step=2, pad=1)
    engine.run(plan_split(gemm_problem(pa, pb, pc), engine.device, "fp16x3"), a=pa, b=pb, c=pc)
    assert units(pc.view, a, b) <= limit(80)
    for shared in (0, 1):
        operands = [place(x) for x in (a, b)]
        operands[shared] = replace(operands[shared], strides=(0, *operands[shared].strides[1:]))
        pc.view[...] = np.nan
        engine.run(plan_split(gemm_problem(*operands, pc), engine.device, "fp16x3"), a=operands[0],
                   b=operands[1], c=pc)
        assert units(pc.view, *(x[:1] if i == shared else x
                                for i, x in enumerate((a, b)))) <= limit(80)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_any_magnitude(engine, form):
    """A row of complex elements is scaled by one power of two: nothing overflows or underflows
    where the result does not."""
    hopper(engine)
    rng = np.random.default_rng(3)
    a, b = random(rng, (40, 70), "complex128"), random(rng, (70, 24), "complex128")
    exponents = rng.integers(-140, 120, (40, 1))
    exponents[0], exponents[1] = 126, -148
    with np.errstate(over="ignore"):
        a = (a / 8 * np.exp2(exponents)).astype("c8")
    b = (b * np.exp2(rng.integers(-3, 3, (1, 24)))).astype("c8")
    a[2] = 0
    c, _plan = product(engine, a, b, by_name(form))
    want = a.astype("c16") @ b.astype("c16")
    sums = abs(a.astype("c16")) @ abs(b.astype("c16"))
    fits = (abs(want.real) < 3e38) & (abs(want.imag) < 3e38)
    assert not np.isnan(c).any() and fits[1:].all()
    assert (abs(c - want)[fits] <= 2 * limit(140) * U * sums[fits] + 2.0**-148).all()


@pytest.mark.parametrize("alpha, beta", [(2 - 1j, 3j), (0, 3), (2, 0), (0, 0)])
def test_scalars_in_device_memory(engine, alpha, beta):
    hopper(engine)
    rng = np.random.default_rng(2)
    a, b, before = ((rng.integers(-3, 4, s) + 1j * rng.integers(-3, 4, s)).astype("c8")
                    for s in ((24, 40), (40, 20), (24, 20)))
    want = alpha * (a @ b) + beta * before
    if not alpha:
        a[:], b[:] = np.nan, np.inf
    if not beta:
        before[:] = np.nan
    pa, pb, pc = place(a), place(b), place(before)
    scalars = {name: place(np.full((1, 1), value, "c8"))
               for name, value in (("alpha", alpha), ("beta", beta))}
    problem = gemm_problem(pa, pb, pc, alpha="device", beta="device")
    for planner in (plan_guarded, by_name("fp16x3")):
        pc.view[...] = before
        engine.run(planner(problem, engine.device), operands=scalars, a=pa, b=pb, c=pc)
        np.testing.assert_array_equal(pc.view, want)


def test_epilogues(engine):
    """The conjugate of what is left of C below a residual, with the sum's magnitude as an
    output."""
    hopper(engine)
    rng = np.random.default_rng(6)
    t = "complex64"
    acc, residual = Node("acc", t), Node("operand", t, name="residual")
    graph = EpilogueGraph("turned", Node("conj", t, (Node("add", t, (acc, residual)),)),
                          (("size", Node("absolute", "float32", (acc,))),))
    a, b, x = (random(rng, s, t) for s in ((20, 50), (50, 18), (20, 18)))
    px, psize = place(x, "F", pad=1), place(np.full((20, 18), np.nan, "f4"), pad=2)
    for c_order in "CF":
        pa, pb, pc = place(a), place(b), place(np.full((20, 18), np.nan, "c8"), c_order)
        fusion = Fusion(graph, (("residual", px.operand()),), (("size", psize.operand()),))
        plan = plan_guarded(replace(gemm_problem(pa, pb, pc), fusion=fusion), engine.device)
        engine.run(plan, operands={"epi_residual": px, "epi_size": psize}, a=pa, b=pb, c=pc)
        want = a.astype("c16") @ b.astype("c16")
        bound = (limit(100) + 3) * 2 * U * (abs(a) @ abs(b) + abs(x))
        assert (abs(pc.view - (want + x).conj()) <= bound).all() and (
            abs(psize.view - abs(want)) <= bound
        ).all()


# -- who decides -----------------------------------------------------------------------------------
def graded(span, rng, m=33, n=20, k=100):
    """A D and D^-1 B: all products have one magnitude, elements range over 2^span."""
    d = np.exp2(np.linspace(-span / 2, span / 2, k))
    return (random(rng, (m, k), "complex128") * d).astype("c8"), (
        random(rng, (k, n), "complex128") / d[:, None]
    ).astype("c8")


@pytest.mark.parametrize("span, expected", [(0, "fp16x3"), (14, "fp16x3"), (60, "bf16x6"),
                                            (80, "bf16x6"), (140, "ieee")])
def test_the_device_takes_what_is_accurate_enough(engine, monkeypatch, span, expected):
    hopper(engine)
    # as if the product were large enough for three algorithms
    monkeypatch.setattr("cuteblas.planning.gemm.split._THIRD", -1e9)
    a, b = graded(span, np.random.default_rng(6))
    c, plan = product(engine, a, b, plan_guarded)
    assert len(plan.launches) == 5
    want, _plan = product(engine, a, b, plan_simt if expected == "ieee" else by_name(expected))
    np.testing.assert_array_equal(c, want)
    assert units(c, a, b) <= limit(200) + (14 if expected == "ieee" else 0)


def test_without_bf16x6_the_device_falls_back_to_native_arithmetic(engine):
    hopper(engine)
    a, b = graded(60, np.random.default_rng(7))
    c, plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, plan_simt)
    assert len(plan.launches) == 3
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("span", [20, 40])
def test_parts_of_different_magnitude(engine, side, span):
    """Imaginary parts of one operand are far below the real ones, the other operand is imaginary:
    they alone make a real part."""
    hopper(engine)
    rng = np.random.default_rng(13)
    a, b = random(rng, (30, 64), "complex64"), random(rng, (64, 20), "complex64")
    small, other = (a, b) if side == "a" else (b, a)
    small.imag *= np.float32(2.0**-span)
    other.real = 0
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= limit(128) + (10 if span == 40 else 0)     # that is native arithmetic


def test_a_few_tiny_elements_among_many_do_not_matter(engine):
    """A part of an element is far below the others: the row of the other operand offers enough."""
    hopper(engine)
    rng = np.random.default_rng(8)
    a, b = random(rng, (40, 200), "complex64"), random(rng, (200, 24), "complex64")
    a.imag[3, 7], b.real[9, 4] = 2.0**-40, -(2.0**-33)
    c, _plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, by_name("fp16x3"))
    np.testing.assert_array_equal(c, want)
    assert units(c, a, b) <= limit(400)


def test_a_tiny_element_that_is_alone_matters(engine):
    """Where the other operand is zero except at the tiny element, fp16x3 would lose it."""
    hopper(engine)
    rng = np.random.default_rng(9)
    a, b = random(rng, (40, 200), "complex64"), np.zeros((200, 24), "c8")
    a[:, 7] *= np.float32(2.0**-40)
    b[7] = random(rng, 24, "complex64")
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= 2


def test_cancellation_across_the_parts(engine):
    """The two real products of a part nearly undo each other: what is left is as accurate as their
    magnitudes allow."""
    hopper(engine)
    rng = np.random.default_rng(14)
    x, y = rng.standard_normal((30, 96)), rng.standard_normal((96, 20))
    a = (x * (1 + 1j)).astype("c8")
    b = (y * (1 + 1j * (1 + 2.0**-12 * rng.standard_normal(y.shape)))).astype("c8")
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= limit(192)


@pytest.mark.parametrize("value", [complex(np.inf, 0), complex(1, -np.inf), complex(np.nan, 2),
                                   complex(0, np.nan), complex(np.inf, np.nan)])
@pytest.mark.parametrize("where", ["a", "b"])
def test_infinities_and_nans_are_where_native_arithmetic_puts_them(engine, value, where):
    hopper(engine)
    rng = np.random.default_rng(10)
    a, b = random(rng, (20, 70), "complex64"), random(rng, (70, 24), "complex64")
    (a if where == "a" else b)[3, 5] = value
    c, plan = product(engine, a, b, plan_guarded)
    want, _plan = product(engine, a, b, plan_simt)
    np.testing.assert_array_equal(c.view("f4"), want.view("f4"))
    assert plan.family == "gemm_split" and not np.isfinite(c).all() and np.isfinite(c).any()


def test_subnormal_operands_keep_their_bits(engine):
    hopper(engine)
    rng = np.random.default_rng(11)
    a = ((rng.integers(-1000, 1001, (20, 70)) + 1j * rng.integers(-1000, 1001, (20, 70)))
         * 2.0**-149).astype("c8")
    b = (random(rng, (70, 24), "complex128") * 2.0**100).astype("c8")
    c, _plan = product(engine, a, b, plan_guarded)
    assert units(c, a, b) <= limit(140)


# -- planning --------------------------------------------------------------------------------------
square = partial(square_of, element="c8")


def test_large_products_are_split_small_ones_are_not():
    assert all(plan_gemm(square(n), H200).family == "gemm_simt" for n in (64, 128, 256))
    assert all(plan_gemm(square(n), H200).family == "gemm_split" for n in (1024, 4096, 8192))
    assert plan_gemm(square(4096, precision="ieee"), H200).family == "gemm_simt"
    assert plan_gemm(replace(square(4096), k=16), H200).family == "gemm_simt"
    assert plan_gemm(square(4096), replace(H200, arch="sm_80")).family == "gemm_simt"


def test_doubled_long_rows_along_k_beside_rows_across_it_are_slow_to_split():
    """As measured: 80 us of 129 for 156x95x17830 in TT, where gemm_simt takes 70 in all."""
    p = replace(square(64), m=156, n=95, k=17830)
    a, b, c = (replace(x, strides=s) for x, s in ((p.a, (1, 156)), (p.b, (17830, 1)),
                                                  (p.c, (95, 1))))
    assert plan_gemm(replace(p, a=a, b=b, c=c), H200).family == "gemm_simt"


def test_the_plan_says_what_runs():
    plan = plan_gemm(square(2048), H200)
    assert "complex64 as fp16x3 on tensor cores as a real product with twice the N and K" in plan.reason
    formats = [launch.kernel.name.split("_")[2] for launch in plan.launches
               if launch.kernel.name.startswith("gemm_split")]
    assert formats == ["fp16x3", "bf16x6", "bf16x6"] and plan.config.tile == (128, 64)
    for name, form in FORMATS.items():
        plan = plan_gemm(square(256, precision=name), H200)
        assert plan.config.format == name and form.element in plan.reason and len(plan.launches) == 2


@pytest.mark.parametrize("m, n, swapped", [(1024, 4096, True), (4096, 1024, False),
                                           (4096, 4096, False)])
@pytest.mark.parametrize("c_strides", [(4096, 1), (1, 4096)])
def test_the_smaller_operand_is_doubled(m, n, swapped, c_strides):
    p = square(4096, precision="fp16x3")
    plan = plan_gemm(replace(p, m=m, n=n, c=replace(p.c, strides=c_strides)), H200)
    sums = 132 * (4 * 128 * 128 + 8)           # of tiles that are divided
    assert plan.workspace_bytes <= 4096 * (m + n + min(m, n)) * 8 + (m + n) * 12 + 4096 + sums
    if m != n:
        assert ("C^T = B A^T, so that the smaller operand is doubled" in plan.reason) == swapped
        contiguous = plan.config.c.unit
        assert contiguous == (c_strides[0] == 1) ^ (not swapped)


def test_what_is_broadcast_is_split_once():
    """Two products with one B, which is the smaller operand although a product has more of it."""
    p = square(512, precision="fp16x3")
    a, b, c = (replace(x, batch_strides=(step,))
               for x, step in ((p.a, 512 * 300), (p.b, 0), (p.c, 512 * 300)))
    plan = plan_gemm(replace(p, m=300, a=a, b=b, c=c, batch=(2,)), H200)
    sums = 132 * (4 * 64 * 64 + 8)             # of tiles that are divided
    assert plan.workspace_bytes <= 512 * (600 + 2 * 512) * 8 + (600 + 512) * 12 + 4096 + sums
    assert "C^T" not in plan.reason


@pytest.mark.parametrize("change, why", [({"k": 0}, "nothing to multiply"),
                                         ({"m": 2**30}, "coordinates"),
                                         ({"compute": "complex128"}, "summed in complex128"),])
def test_refusals(change, why):
    p = replace(square(64), **change)
    assert why in why_not_split(p, H200)
    with pytest.raises(ValueError, match=why):
        plan_split(p, H200, "fp16x3")


def test_what_is_doubled_is_complex():
    operand = partial(SplitOperand, OperandAccess(), threads=(16, 32))
    assert operand(element="complex64", doubled=True).copies == 2
    for wrong in ({"doubled": True}, {"element": "complex128"}, {"element": "float16"}):
        with pytest.raises(CodegenError, match="float32 and complex64 are split"):
            operand(**wrong)
