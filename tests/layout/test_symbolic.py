"""Symbolic integers: every simplification is compared with Python's own integers."""

import random
import re

import pytest

from cuteblas.layout import symbolic as s
from cuteblas.layout.symbolic import Var

VARIABLES = [Var("a", 0, 31), Var("b", 0, 255), Var("c", 0, None), Var("d", None, None),
             Var("e", 0, 64, bits=0x58)]
NAMES = "abcde"


def draw(rng):
    return [rng.randint(0, 31), rng.randint(0, 255), rng.randint(0, 5000), rng.randint(-1000, 1000),
            rng.choice([0, 8, 16, 24, 64])]


def build(depth, rng, leaves):
    """A random integer expression over ``leaves``; the same seed gives the same expression for any
    leaves."""
    if depth == 0 or rng.random() < 0.15:
        leaf, const = rng.randrange(5), rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 32, -1, -4])
        return leaves[leaf] if rng.random() < 0.7 else const
    op = rng.choice("+-*//%%^&<?")
    n, mask, k = rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 64]), rng.choice([1, 3, 7, 8, 24, 0x30, -8]), rng.choice([2, 3, 4, 8, 16, 0])
    a, b = build(depth - 1, rng, leaves), build(depth - 1, rng, leaves)
    match op:
        case "/":
            return a // n
        case "%":
            return a % n
        case "&":
            return a & mask
        case "*":
            return a * (k or b)
        case "^":
            return a ^ b
        case "<":
            return s.minimum(a, b)
        case "?":
            return s.select(s._compare("le", a, b), a, b + 1)
    return a + b if op == "+" else a - b


@pytest.mark.parametrize("block", range(8))
def test_random_expressions_equal_python(block):
    for seed in range(block * 1500, (block + 1) * 1500):
        depth = 1 + seed % 4
        expr = build(depth, random.Random(seed), VARIABLES)
        lo, hi = s.bounds(expr)
        values = random.Random(seed + 1)
        for _ in range(4):
            leaves = draw(values)
            want = build(depth, random.Random(seed), leaves)
            got = s.evaluate(expr, dict(zip(NAMES, leaves, strict=True)))
            assert got == want, (seed, expr, leaves)
            assert lo <= want <= hi, (seed, expr, leaves, lo, hi)
            assert want & ~s.bits_of(expr) == 0, (seed, expr, leaves)


def c_value(text, values):
    """The value of an emitted expression under C's rules, for the operators that the emitter
    writes."""
    text = text.replace("&&", " and ").replace("LL", "").replace("cb::", "")
    while "?" in text:                     # innermost conditional in parentheses, or the whole text
        inner = re.findall(r"\(([^()?]*\?[^()?]*:[^()?]*)\)", text)
        pytest.skip("conditional") if not inner else None
        cond, rest = inner[0].split("?")
        yes, no = rest.rsplit(":", 1)
        text = text.replace(f"({inner[0]})", f"(({yes}) if ({cond}) else ({no}))")
    text = re.sub(r"(?<![/])/(?![/])", "//", text)
    return int(eval(text, {"min": min, "max": max}, values))


def test_emitted_c_evaluates_to_the_same_value():
    seen = 0
    for seed in range(6000):
        expr = build(1 + seed % 3, random.Random(seed), VARIABLES)
        try:
            text = s.to_c(expr)
        except ValueError:                 # a division that C would round differently
            continue
        if "?" in text:
            continue
        seen += 1
        leaves = draw(random.Random(seed + 7))
        values = dict(zip(NAMES, leaves, strict=True))
        assert c_value(text, values) == s.evaluate(expr, values), (seed, text)
    assert seen > 3000


def test_simplifications_that_kernels_rely_on():
    t, k = Var("t", 0, 255), Var("k", 0, None)
    assert (t * 8 + 5) // 8 == t and (t * 8 + 5) % 8 == 5
    assert (t % 32) // 8 == (t // 8) % 4
    assert str((t // 4) * 16 + t % 4) == "(t >> 2) * 16 + (t & 3)"
    assert not s.bits_of((t // 4) * 16) & s.bits_of(t % 4)
    assert ((t // 8) * 64) ^ ((t % 8) * 4) == (t // 8) * 64 + (t % 8) * 4
    assert (k * 2048 + t) & 0x380 == t & 0x80
    assert (t < 256) is True and (t > 255) is False and str(t < 100) == "t < 100"
    assert str(t < 100) == "t < 100" and str(t > 3) == str(t > 3) == "3 < t"
    assert s.all_of(True, t < 256) is True and s.all_of(t < 3, False) is False


def test_misuse_is_refused():
    t, d = Var("t", 0, 7), Var("d", None, None)
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(t < 3)
    with pytest.raises(ZeroDivisionError):
        t // 0
    with pytest.raises(ValueError, match="toward zero"):
        s.to_c(d // 3)
    with pytest.raises(ValueError, match="identifier"):
        Var("2x")
    with pytest.raises(AttributeError):
        t.lo = 3


def test_xor_parts_recombine_and_allow_linear_maps():
    for seed in range(3000):
        expr = build(1 + seed % 4, random.Random(seed), VARIABLES)
        parts = s.xor_parts(expr)
        values = dict(zip(NAMES, draw(random.Random(seed)), strict=True))
        folded = 0
        for p in parts:
            folded ^= s.evaluate(p, values)
        assert folded == s.evaluate(expr, values), (seed, expr, parts)


def test_a_swizzled_vector_stays_contiguous_symbolically():
    o = Var("o", 0, 4095, bits=0xFFC)

    def swizzle(x):
        out = 0
        for part in s.xor_parts(x):
            out = out ^ part ^ ((part & 0x380) >> 5)
        return out

    for v in range(4):
        assert swizzle(o + v) - swizzle(o) == v


def test_division_by_a_symbol_that_is_a_multiple():
    """Low bits that reach no multiple of the divisor stay outside of the division, so vectors along
    nested modes are provable."""
    n, i = Var("n", 1, bits=-4), Var("i", 0, 99)
    for v in range(4):
        assert (4 * i + v) % n - (4 * i) % n == v and (4 * i + v) // n == 4 * i // n
    assert (4 * i + 4) % n - 4 * i % n != 4                 # the next vector may begin anew
    assert s.bits_of(4 * i % n) & 3 == 0
    odd = Var("n", 1)
    for a, b in ((4 * i + 1, n), (7, odd), (i, 7), (i, odd)):
        assert divmod(a, b) == (a // b, a % b)
    assert (4 * i + 1) % odd - 4 * i % odd != 1
    for x in range(40):
        for m in (4, 12, 20):
            for v in range(8):
                at = {"i": x, "n": m}
                assert s.evaluate((4 * i + v) % n, at) == (4 * x + v) % m and s.evaluate((4 * i + v) // n, at) == (4 * x + v) // m
    half = Var("j", 0, 7) * 2 + Var("b", 0, 1)        # only the lowest bit is free: 2 divides n too
    assert half % n - (half - Var("b", 0, 1)) % n == Var("b", 0, 1)


def test_entries_of_arrays_are_their_values():
    i, m = Var("i", 0, 3), Var("m")
    value = (m + 8 * i) % 12
    x = s.entry("offsets", i, value)
    assert s.to_c(x + 1) == "offsets[i] + 1" and s.variables(x) == {"i", "m"} and s.bounds(x) == s.bounds(value)
    assert s.evaluate(x, {"i": 2, "m": 5}) == 9
    assert s.to_c(s.entry("offsets", 2, value)) == "offsets[2]"
    assert s.entry("offsets", i, 7) == 7
    assert x == s.entry("offsets", i, value) and x != s.entry("offsets", i + 1, value)
