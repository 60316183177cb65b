"""float64 and complex128 products by residues: integers, the condition on them, the way back, what
is left to native arithmetic."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import cuteblas
from cuteblas.codegen.epilogue import EpilogueGraph, Node
from cuteblas.kernels.gemm.modular import MOST_DEPTH
from cuteblas.kernels.modular.survey import MODULI
from cuteblas.planning import H200, operands
from cuteblas.planning.gemm import modular
from cuteblas.planning.gemm.blocks import NoRoom
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.modular import plan_modular, why_not_modular
from cuteblas.planning.problem import Fusion, GemmProblem, Operand

from .engines import gemm_problem, outside, place

U = 2.0**-53
EXACT, NARROW, BROAD = 10, 14, 15


def hopper(engine):
    if engine.device.arch != "sm_90":
        pytest.skip("wgmma exists on sm_90 alone")


# -- the same in exact arithmetic ------------------------------------------------------------------
def product_of(count):
    return math.prod(MODULI[:count])


def parts(x):
    """Rows of real numbers."""
    return np.concatenate([x.real, x.imag], -1) if np.iscomplexobj(x) else x


def low_of(row):
    """The exponent of the lowest bit of a row."""
    return min((-(Fraction(float(x)).denominator.bit_length() - 1)
                if Fraction(float(x)).denominator > 1 else (int(x) & -int(x)).bit_length() - 1)
               for x in row if x)


def known(rows):
    """The least cosine, the most bits twice, norms squared and lowest bits of rows."""
    large, small = (f(abs(rows.real), abs(rows.imag)) for f in (np.maximum, np.minimum))
    sums, length = np.maximum(large, (large + small) * 0.7071067811865475).sum(-1), rows.shape[-1]
    rows = parts(rows)
    squares = (rows * rows).sum(-1)
    cosine, bits, low = 1.0, 0, []
    for square, total, row in zip(squares, sums, rows, strict=True):
        if total == 0:
            low.append(0)
            continue
        if not 2.0**-800 <= square < 2.0**800:
            return -1.0, 1e9, squares, [0] * len(rows)
        low.append(low_of(row))
        cosine = min(cosine, total / math.sqrt(square * length) * 0.999999)
        bits = max(bits, math.frexp(square)[1] - 2 * low[-1])
    return cosine, bits, squares, low


def chosen(a, b):
    """How many moduli the product of rows needs, and whether integers are the elements; 0: native
    arithmetic."""
    (cos_a, bits_a, *_), (cos_b, bits_b, *_) = known(a), known(b)
    for count in range(1, EXACT + 1):
        if bits_a + bits_b <= math.floor(2 * math.log2(product_of(count) * 0.49999)):
            return count, True
    if min(cos_a, cos_b) < 0:
        return 0, False
    together = cos_a * cos_b - math.sqrt((1 - cos_a**2) * (1 - cos_b**2))
    least = 0.25 if np.iscomplexobj(a) else 0.125
    return NARROW if together >= least else BROAD if together >= 0.08 * least else 0, False


def integers(rows, count, exact):
    """Rows as integers, and the powers of two that they are scaled by."""
    *_, squares, low = known(rows)
    scales = []
    for square, bit in zip(squares, low, strict=True):
        scales.append(0 if square == 0 else -bit if exact
                      else (math.frexp(product_of(count) * 0.49999 / square)[1] - 1) >> 1)
    rounded = [[int(np.rint(np.ldexp(float(x), s))) for x in row]
               for row, s in zip(parts(rows), scales, strict=True)]
    return rounded, scales


def multiplied(a, b):
    """The result of ``a @ b``, each integer rounded once."""
    count, exact = chosen(a, b.T)
    (x, sx), (y, sy) = integers(a, count, exact), integers(b.T, count, exact)
    k, half = a.shape[1], product_of(count) / 2

    def whole(i, j, turned):
        row = x[i]
        other = y[j] if not turned else [*y[j][k:], *y[j][:k]]
        signs = [1] * k + [-1] * k if np.iscomplexobj(a) and not turned else [1] * len(row)
        total = sum(s * p * q for s, p, q in zip(signs, row, other, strict=True))
        assert abs(total) < half and sum(abs(p * q) for p, q in zip(row, other, strict=True)) < half
        return math.ldexp(math.ldexp(float(total), -sx[i]), -sy[j])

    c = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[i, j] = whole(i, j, False) if a.dtype.kind == "f" else complex(whole(i, j, False), whole(i, j, True))
    return c


# -- plans -----------------------------------------------------------------------------------------
def product(engine, a, b, *, a_order="C", b_order="C", c_order="C", pad=0, scalars=(1, 0),
            before=None, alone=False, conj=(False, False), **kinds):
    """C of the plan, and the memory around it checked; ``alone``: without native arithmetic, which
    leaves NaNs."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    before = np.full(shape, np.nan, a.dtype) if before is None else before
    pa, pb = place(a, a_order, pad=pad), place(b, b_order, pad=pad)
    pc = place(before, c_order, pad=pad, poison=a.dtype.type(77))
    around = outside(pc)
    plan = plan_modular(gemm_problem(pa, pb, pc, conj=conj, **kinds), engine.device)
    engine.run(replace(plan, launches=plan.launches[:-1]) if alone else plan, *scalars, a=pa, b=pb,
               c=pc)
    assert (pc.base[around] == 77).all()
    return pc.view.copy(), plan


def values(rng, shape, element):
    x = rng.standard_normal(shape)
    return x if element == "float64" else x + 1j * rng.standard_normal(shape)


def units(c, a, b):
    """The largest error in units of u |A||B|."""
    wide = np.clongdouble if np.iscomplexobj(a) else np.longdouble
    exact = np.matmul(a.astype(wide), b.astype(wide))
    return float((abs(c - exact) / (abs(a) @ abs(b) * U + 1e-300)).max())


BOTH = pytest.mark.parametrize("element", ["float64", "complex128"])


def test_moduli_are_pairwise_coprime_and_bytes():
    assert all(math.gcd(p, q) == 1 for i, p in enumerate(MODULI)
               for q in MODULI[:i]) and max(MODULI) <= 256
    # What 2^39 / p is rounded by is worth less than 1 / p of a quotient.
    assert MOST_DEPTH * 128**2 == 2**30 and (2**30 + 2**30 + 256) * 255 < 2**39
    # What 10 moduli hold comes back to the bit: the error of the sum of fractions is below a half.
    assert product_of(EXACT) * 255 * EXACT < 2**95 <= product_of(EXACT + 1) * 255 * (EXACT + 1) * 2


@BOTH
@pytest.mark.parametrize("kind", ["normal", "uniform", "scaled", "few bits", "zeros", "one"])
def test_results_are_those_of_exact_integers(engine, element, kind):
    hopper(engine)
    rng = np.random.default_rng(3)
    m, n, k = (6, 5, 70) if kind != "one" else (3, 2, 1)
    a, b = values(rng, (m, k), element), values(rng, (k, n), element)
    if kind == "uniform":
        a, b = (abs(x) if element == "float64" else abs(x.real) + 1j * abs(x.imag) for x in (a, b))
    elif kind == "scaled":
        a, b = a * 2.0**rng.integers(-300, 300, (m, 1)), b * 2.0**rng.integers(-300, 300, n)
    elif kind == "few bits":
        a, b = np.rint(100 * a) / 8, np.rint(1000 * b) * 64
    elif kind == "zeros":
        a[2], b[:, 3] = 0, 0
    c, _plan = product(engine, a, b, alone=True)
    np.testing.assert_array_equal(c, multiplied(a, b))
    assert chosen(a, b.T)[1] == (kind in ("few bits",))


@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_integers_are_exact_and_need_few_moduli(engine, element):
    hopper(engine)
    rng = np.random.default_rng(5)
    for most, moduli in ((1, 1), (127, 3), (2000, 4), (2**20, 6)):
        a, b = (rng.integers(-most, most + 1, s).astype(element) for s in ((30, 60), (60, 20)))
        assert chosen(a, b.T) == (moduli, True)
        np.testing.assert_array_equal(product(engine, a, b, alone=True)[0], a @ b)


def test_quotients_of_sums_are_right_for_every_modulus():
    """As float32 rounds them: what is left of any sum is a signed byte, and the sum modulo p."""
    # 2^17 and less than p, and up to 2^17 below or above
    sums = np.arange(2**23, 2**23 + 2**18 + 256)
    for p in MODULI:
        powers = [((256**i + p // 2) % p) - p // 2 for i in range(8)]
        assert sum(128 * abs(x) for x in powers) < 2**17
        # of 48 bits: exact before it is rounded
        quotients = np.rint(sums * float(np.float32(1) / np.float32(p))).astype(int)
        left = (sums - quotients * p).astype(np.int8)
        assert not ((left - sums) % p).any()


@pytest.mark.parametrize("first", [-600, 2**44 - 600, -2**45])
def test_consecutive_integers_have_every_residue(engine, first):
    hopper(engine)
    a = (first + np.arange(1200.0))[:, None]
    np.testing.assert_array_equal(product(engine, a, np.ones((1, 2)), alone=True)[0],
                                  np.hstack([a, a]))


@pytest.mark.parametrize("count", [1, 2, 4, 7, 10])
def test_integers_at_the_limit_of_a_number_of_moduli(engine, count):
    """A product of two integers that is just too large for so many is exact by one more, or left to
    rounding."""
    hopper(engine)
    for over in (1.02, 0.98, 0.4):
        a = np.array([[math.isqrt(int(over * product_of(count) / 2)) | 1]], float)
        c, _plan = product(engine, a, a)
        np.testing.assert_array_equal(c, [[float(int(a[0, 0])**2)]])
    assert chosen(a, a) == (count, True)
    x, y = np.hstack([a, a]), np.vstack([a, 2 - a])              # the sum is small beside its terms
    np.testing.assert_array_equal(product(engine, x, y)[0], [[float(2 * int(a[0, 0]))]])


@BOTH
def test_scaling_rows_and_columns_changes_exponents_alone(engine, element):
    hopper(engine)
    rng = np.random.default_rng(6)
    a, b = values(rng, (12, 90), element), values(rng, (90, 15), element)
    rows, columns = 2.0**rng.integers(-300, 300, (12, 1)), 2.0**rng.integers(-300, 300, 15)
    plain = product(engine, a, b, alone=True)[0]
    np.testing.assert_array_equal(product(engine, rows * a, b * columns, alone=True)[0],
                                  plain * rows * columns)
    for a_order, b_order in ("FC", "CF", "FF"):
        np.testing.assert_array_equal(product(engine, a, b, a_order=a_order, b_order=b_order,
                                              alone=True)[0], plain)


def graded(rng, m, n, k, span):
    d = 2.0**np.linspace(-span, span, k)
    return rng.standard_normal((m, k)) * d, rng.standard_normal((k, n)) / d[:, None]


def patterns(rng, m, n, k):
    odd = np.arange(k) % 2
    return rng.standard_normal((m, k)) * odd, rng.standard_normal((k, n)) * (1 - odd)[:, None]


def outlier(rng, m, n, k, value, column=False):
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    (b.T if column else a)[1, 3] = value
    return a, b


ADVERSARIAL = {
    "graded pairs": lambda r, s: graded(r, *s, 20),
    "graded a little": lambda r, s: graded(r, *s, 0.6),
    "zero patterns": lambda r, s: patterns(r, *s),
    "an outlier in a row": lambda r, s: outlier(r, *s, 1e9),
    "an outlier in a column": lambda r, s: outlier(r, *s, 1e9, True),
    "infinity": lambda r, s: outlier(r, *s, np.inf),
    "infinity in a column": lambda r, s: outlier(r, *s, -np.inf, True),
    "nan": lambda r, s: outlier(r, *s, np.nan),
    "nan in a column": lambda r, s: outlier(r, *s, np.nan, True),
    "a subnormal": lambda r, s: outlier(r, *s, 5e-324),
    "subnormal rows": lambda r, s: (
        r.standard_normal(s[0::2]) * 1e-310,
        r.standard_normal(s[2:0:-1])
    ),
    "large norms": lambda r, s: (
        r.standard_normal(s[0::2]) * 2.0**420,
        r.standard_normal(s[2:0:-1])
    ),
    "small norms": lambda r, s: (
        r.standard_normal(s[0::2]),
        r.standard_normal(s[2:0:-1]) * 2.0**-420
    ),
    "large": lambda r, s: (
        r.standard_normal(s[0::2]) * 1e300,
        r.standard_normal(s[2:0:-1]) * 1e-300
    ),
    "wide": lambda r, s: (
        np.exp(8 * r.standard_normal(s[0::2])),
        np.exp(8 * r.standard_normal(s[2:0:-1]))
    ),
    "one column of ones": lambda r, s: (r.standard_normal(s[0::2]), np.eye(s[2])[:, : s[1]]),
    "cancellation": lambda r, s: (
        lambda x, y: (np.hstack([x, -x]), np.vstack([y, y * (1 + 1e-14)]))
    )(r.standard_normal((s[0], s[2] // 2)), r.standard_normal((s[2] // 2, s[1]))),
}
NATIVE = {"graded pairs", "zero patterns", "an outlier in a row", "an outlier in a column",
          "infinity", "infinity in a column", "nan", "nan in a column", "subnormal rows", "large",
          "large norms", "small norms", "wide"}


@pytest.mark.parametrize("case", ADVERSARIAL)
def test_what_ranges_too_far_is_left_to_native_arithmetic(engine, case):
    hopper(engine)
    m, n, k = 14, 11, 80
    a, b = ADVERSARIAL[case](np.random.default_rng(8), (m, n, k))
    alone, _plan = product(engine, a, b, alone=True)
    c, _plan = product(engine, a, b)
    assert np.isnan(alone).all() == (case in NATIVE) and (chosen(a, b.T)[0] == 0) == (
        case in NATIVE
    ), case
    if case in NATIVE:
        pa, pb, pc = place(a), place(b), place(np.full((m, n), np.nan))
        engine.run(plan_mma(gemm_problem(pa, pb, pc), engine.device), a=pa, b=pb, c=pc)
        np.testing.assert_array_equal(c, pc.view)
    else:
        np.testing.assert_array_equal(c, alone)
        assert units(c, a, b) <= 3
        if case != "cancellation":            # of which what the fractions of 96 bits leave is seen
            np.testing.assert_array_equal(c, multiplied(a, b))


@pytest.mark.parametrize("turn", [0, np.pi / 4, 1])
def test_magnitudes_of_complex_elements_are_what_counts(engine, turn):
    """Not their parts, of which one may be zero, or any other share."""
    hopper(engine)
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((7, 400)) + 0j, (rng.standard_normal((400, 6))
                                                * np.exp(turn * 1j * np.arange(400))[:, None])
    c = product(engine, a, b, alone=True)[0]
    np.testing.assert_array_equal(c, multiplied(a, b))
    assert units(c, a, b) <= 4


@pytest.mark.parametrize("value", [complex(np.inf, 1), complex(0, -np.inf), complex(np.nan, 0),
                                   1e9j])
def test_complex_parts_are_judged_too(engine, value):
    hopper(engine)
    a, b = (values(np.random.default_rng(1), s, "complex128") for s in ((6, 50), (50, 7)))
    a[3, 5] = value
    assert np.isnan(product(engine, a, b, alone=True)[0]).all()
    assert np.isfinite(product(engine, a, b)[0]).sum() == (35 if not np.isfinite(value) else 42)


@pytest.mark.parametrize("cosine, moduli", [(0.13, 14), (0.12, 15), (0.0102, 15), (0.0098, 0)])
def test_the_condition_is_on_angles(engine, cosine, moduli):
    """One row whose angle with ones, and that of a column, add up to a known one: the largest
    errors are within the bound."""
    hopper(engine)
    rng, k = np.random.default_rng(2), 64
    half = math.acos(cosine) / 2

    def row():
        x = np.ones(k)
        for _ in range(60):                          # an element grows until the angle is as wished
            if math.acos(min(1.0, x.sum() / math.sqrt(k * (x @ x)))) >= half:
                break
            x[0] *= 1.2
        low, high = x[0] / 1.2, x[0]
        for _ in range(60):
            x[0] = (low + high) / 2
            low, high = (x[0], high) if math.acos(x.sum() / math.sqrt(k * (x @ x))) < half else (low, x[0])
        return x * (1 + 2.0**-12 * rng.random(k))

    a, b = np.array([row() for _ in range(3)]), np.array([row() for _ in range(4)]).T
    assert chosen(a, b.T)[0] == moduli
    alone, _plan = product(engine, a, b, alone=True)
    if moduli:
        np.testing.assert_array_equal(alone, multiplied(a, b))
        assert units(alone, a, b) <= 6 * math.sqrt(k) + 1
    else:
        assert np.isnan(alone).all()


@pytest.mark.parametrize("row", [0, 31, 32, 100, 149])
@pytest.mark.parametrize("column", [False, True])
def test_any_block_of_rows_may_forbid_it(engine, row, column):
    """Of A or of B; and with elements of few bits in all rows but one, there are no fewer moduli
    than that row needs."""
    hopper(engine)
    rng = np.random.default_rng(14)
    a, b = (rng.integers(-9, 10, s).astype(float) for s in ((150, 40), (40, 150)))
    (b.T if column else a)[row, 3] = np.inf
    assert np.isnan(product(engine, a, b, alone=True)[0]).all()
    (b.T if column else a)[row, 3] = 2.0**30 + 1
    np.testing.assert_array_equal(product(engine, a, b, alone=True)[0], a @ b)


def test_epilogues(engine):
    hopper(engine)
    rng = np.random.default_rng(9)
    a, b = place(rng.standard_normal((30, 40))), place(rng.standard_normal((40, 50)))
    c, added = place(np.full((30, 50), np.nan)), place(rng.standard_normal((30, 50)), "F")
    graph = EpilogueGraph("add", Node("add", "float64",
                                      (Node("acc", "float64"),
                                       Node("operand", "float64", name="x"))))
    plan = plan_modular(replace(gemm_problem(a, b, c),
                                fusion=Fusion(graph, (("x", added.operand()),))), engine.device)
    engine.run(plan, operands={"a": a, "b": b, "c": c, "epi_x": added})
    np.testing.assert_allclose(c.view, a.view @ b.view + added.view, rtol=0, atol=1e-13)


@BOTH
@pytest.mark.parametrize("batch", [(), (3,)])
def test_blocks_of_c_are_the_whole(engine, monkeypatch, element, batch):
    hopper(engine)
    monkeypatch.setattr("cuteblas.planning.gemm.blocks._MULTIPLE", 16)
    rng = np.random.default_rng(2)
    a, b, before = (values(rng, (*batch, *s), element) for s in ((40, 70), (70, 50), (40, 50)))
    kinds = {"alpha": "value", "beta": "value", "scalars": (2, 3), "before": before, "a_order": "F"}
    whole, one = product(engine, a, b, **kinds)
    monkeypatch.setattr(modular, "_LINE", 16)
    cuts = set()
    for beside in (40000, 60000, 100000, 160000, 300000, 10**7):
        monkeypatch.setattr(modular, "_BESIDE", beside)
        try:
            found = plan_modular(one.problem, engine.device)
        except NoRoom:
            continue
        if len(found.launches) in cuts:
            continue
        cuts.add(len(found.launches))
        c, plan = product(engine, a, b, **kinds)
        np.testing.assert_array_equal(c, whole)
        assert "blocks of C" in plan.reason or len(plan.launches) == len(one.launches)
    assert len(cuts) > 1


def test_several_tiles_and_stages(engine, monkeypatch):
    hopper(engine)
    rng = np.random.default_rng(1)
    a, b = values(rng, (150, 700), "float64"), values(rng, (700, 280), "float64")
    results = []
    for tile in modular._TILES:
        monkeypatch.setattr(modular, "_TILES", (tile,))
        results.append(product(engine, a, b, alone=True)[0])
    assert units(results[0], a, b) <= 2
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@BOTH
@pytest.mark.parametrize("orders", ["CC", "FC", "CF", "FF"])
def test_offsets_of_64_bits(engine, monkeypatch, element, orders):
    hopper(engine)
    rng = np.random.default_rng(3)
    a, b = values(rng, (2, 33, 130), element), values(rng, (2, 130, 40), element)
    narrow, _plan = product(engine, a, b, a_order=orders[0], b_order=orders[1], alone=True)
    for module in (modular, operands):
        monkeypatch.setattr(module, "NARROW_SPAN", 1)
    wide, plan = product(engine, a, b, a_order=orders[0], b_order=orders[1], alone=True)
    of_modular = [each.kernel.name for each in plan.launches if "modular" in each.kernel.name]
    assert sum("_wide" in name for name in of_modular) == 4
    np.testing.assert_array_equal(wide, narrow)


@pytest.mark.gpu
@BOTH
def test_captured_products_are_replayed(element):
    """The number of moduli, and native arithmetic, follow what the arrays hold when a graph is
    launched."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(11)
    a, b = values(rng, (300, 400), element), values(rng, (400, 200), element)
    x, y = cupy.asarray(a), cupy.asarray(b)
    out = cupy.empty((300, 200), element)
    if cuteblas.explain(x, y, precision="modular").family != "gemm_modular":
        pytest.skip("wgmma exists on sm_90 alone")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        cuteblas.matmul(x, y, out=out, precision="modular")   # nothing can be compiled in a capture
        stream.synchronize()
        stream.begin_capture()
        cuteblas.matmul(x, y, out=out, precision="modular")
        graph = stream.end_capture()
    outlier = a.copy()
    outlier[3, 4] = np.inf
    for now in (a, np.rint(9 * a), 2 * a, outlier):
        x[...] = cupy.asarray(now)
        out[...] = 0
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        with np.errstate(all="ignore"):
            expected = now @ b
        if now is outlier:
            np.testing.assert_array_equal(np.isfinite(cupy.asnumpy(out)), np.isfinite(expected))
        else:
            assert units(cupy.asnumpy(out), now, b) <= 4
            np.testing.assert_array_equal(cupy.asnumpy(out),
                                          cupy.asnumpy(cuteblas.matmul(x, y, precision="modular")))


def of(element, m, n, k, **changes):
    return GemmProblem(m, n, k, Operand(element, (k, 1)), Operand(element, (1, n)),
                       Operand(element, (n, 1)), **changes)


@BOTH
def test_the_workspace_is_little_more_than_the_operands(element):
    shapes = [(n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384, 32768)]
    shapes += [(8192, 8192, 2048), (100000, 300, 5000), (300, 100000, 5000), (4096, 4096, 65536),
               (100000, 2000, 300)]
    item = 8 if element == "float64" else 16
    for m, n, k in shapes:
        plan = plan_modular(of(element, m, n, k), H200)
        assert plan.workspace_bytes <= 1.5 * item * (m * k + k * n + m * n) + (80 << 20)
        assert len(plan.launches) <= 24


def test_what_it_does_not_take():
    assert "float64 or complex128" in why_not_modular(of("float32", 8, 8, 8), H200)
    assert "do not fit into 31 bits" in why_not_modular(of("float64", 8, 8, MOST_DEPTH + 1), H200)
    assert why_not_modular(of("float64", 8, 8, MOST_DEPTH), H200) is None
    assert "wgmma" in why_not_modular(of("float64", 8, 8, 8), replace(H200, arch="sm_80"))
    assert "nothing" in why_not_modular(of("float64", 8, 8, 8, alpha="zero"), H200)
    with pytest.raises(ValueError, match="gemm_modular cannot compute this"):
        plan_modular(of("float64", 8, 8, 0), H200)
