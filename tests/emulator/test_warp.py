"""Instructions that a warp executes as one: what ldmatrix and mma.sync compute, and how their
misuse is reported."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.mma import MMA_ATOMS, UNSIGNED_BYTES, MmaAtom

from ..codegen.ptx_fragments import fragments
from .kernels import launch, ptr

FILL = """
unsigned short* s = cb::shared_memory<unsigned short>(0);
int const t = threadIdx.x;
unsigned short e[8];
for (int i = 0; i < 8; ++i) e[i] = 100 * t + i;
cb::store_shared<8>(&s[8 * t], e);
"""
LOAD = FILL + """
{barrier}
unsigned r[4] = {{}};
cb::ldmatrix_x4{form}(r, &s[{row}]);
cb::store_global<4>(&C[4 * t], r);
"""


def load(form: str = "", row: str = "8 * (t ^ 1)", barrier: str = "cb::syncthreads();",
         threads: int = 32, shared: int = 512):
    out = np.zeros((threads, 4), np.uint32)
    launch(LOAD.format(form=form, row=row, barrier=barrier), (ptr("C", "uint32"),), (out,),
           threads=threads, shared=shared)
    return out.view(np.uint16).reshape(threads, 4, 2)


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_pairs_of_a_row_or_of_a_column(transposed: bool) -> None:
    """Row r of matrix j is at the address of lane 8 j + r, here the row that its neighbour
    wrote."""
    got = load("_trans" if transposed else "")
    for lane in range(32):
        for matrix in range(4):
            for i in range(2):
                row, column = (2 * (lane % 4) + i, lane // 4) if transposed else (lane // 4, 2 * (lane % 4) + i)
                assert got[lane, matrix, i] == 100 * ((8 * matrix + row) ^ 1) + column


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"row": "8 * t + 4"}, emulator.MisalignedAccess, "not a multiple of 16"),
        ({"row": "8 * t + 512"}, emulator.SharedOutOfBounds, "shared memory"),
        (
            {"barrier": "", "row": "8 * (t > 0 ? t - 1 : 0)"},
            emulator.DataRace,
            "no barrier orders the two"
        ),
        ({"shared": 1024, "row": "8 * t + 256"}, emulator.UnwrittenRead, "nothing has written"),
        (
            {
                "barrier": "cb::syncthreads(); if (t == 7) cb::ldmatrix_x4(reinterpret_cast<unsigned*>(e), &s[8 * t]);"
            },
            emulator.BarrierError,
            "as one"
        ),
        (
            {"barrier": "cb::syncthreads(); if (t == 31) return;"},
            emulator.Deadlock,
            "warp 0 at the same warp-wide instruction: 31 of 32"
        ),
        ({"threads": 16}, emulator.MisuseError, "a whole warp"),
    ],
    ids=lambda x: x if isinstance(x, str) else ""
)
def test_misuse_of_ldmatrix(change: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        load(**change)


def test_bank_conflicts_of_ldmatrix_are_counted() -> None:
    """Rows of 16 bytes side by side use every bank once; rows 128 bytes apart use the same four
    banks, eight at a time."""
    statements = FILL.replace("8 * t]", "64 * t]") + "cb::syncthreads(); unsigned r[4]; cb::ldmatrix_x4(r, &s[64 * t]);"
    for spread, wavefronts in ((8, 4), (64, 32)):
        counts = launch(statements.replace("64 * t", f"{spread} * t"), threads=32, shared=4096,
                        count=True)
        assert [(c.transactions, c.bytes) for c in counts if c.space == "shared"
                and not c.write] == [(wavefronts, 16)]


def product(atom: MmaAtom, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One instruction; every register is placed as PTX says, those of complex numbers by the atom's
    own layouts."""
    m, n, _k = atom.shape
    element = dtype(atom.element)
    places = (atom.tv_a, atom.tv_b,
              atom.tv_c) if element.is_complex else fragments(8 * element.bytes, atom.shape)
    word = dtype(atom.register).ctype
    out = np.zeros((32, m * n // 32), c.dtype)

    def registers_of(matrix: np.ndarray, tv) -> np.ndarray:
        flat = matrix.ravel(order="F")
        values = len(flat) // 32
        return np.array([[flat[tv(lane, v)] for v in range(values)] for lane in range(32)])

    registers = [registers_of(x, tv) for x, tv in zip((a, b, c), places, strict=True)]
    counts = [r.shape[1] // (atom.per_register if i < 2 else 1) for i, r in enumerate(registers)]
    accumulator = dtype(atom.accumulator).ctype
    # a product of complex numbers may conjugate B
    of = "false" if element.is_complex else element.ctype
    launch(
        f"""
        int const t = threadIdx.x;
        {word} a[{counts[0]}], b[{counts[1]}]; {accumulator} d[{counts[2]}];
        for (int i = 0; i < {counts[0]}; ++i) cb::load_global<1>(&a[i], &A[{counts[0]} * t + i]);
        for (int i = 0; i < {counts[1]}; ++i) cb::load_global<1>(&b[i], &B[{counts[1]} * t + i]);
        for (int i = 0; i < {counts[2]}; ++i) cb::load_global<1>(&d[i], &C[{counts[2]} * t + i]);
        cb::{atom.function}<{of}>(d, a, b);
        for (int i = 0; i < {counts[2]}; ++i) cb::store_global<1>(&D[{counts[2]} * t + i], &d[i]);
        """,
        (
            ptr("A", atom.register, const=True),
            ptr("B", atom.register, const=True),
            ptr("C", atom.accumulator, const=True),
            ptr("D", atom.accumulator)
        ),
        (*registers, out),
    )
    result = np.zeros(m * n, c.dtype)
    for lane in range(32):
        for v in range(m * n // 32):
            result[places[2](lane, v)] = out[lane, v]
    return result.reshape((m, n), order="F")


def numpy_type(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def integers(rng, shape, name: str, bound: int) -> np.ndarray:
    if dtype(name).is_complex:
        return integers(rng, shape, "float64", bound) + 1j * integers(rng, shape, "float64", bound)
    return rng.integers(-bound, bound + 1, shape).astype(numpy_type(name))


@pytest.mark.parametrize("atom", MMA_ATOMS, ids=lambda a: f"{a.element}-{a.shape}")
def test_small_integers_are_exact(atom: MmaAtom) -> None:
    rng = np.random.default_rng(0)
    m, n, k = atom.shape
    a, b, c = (integers(rng, s, t, 7) for s, t in (((m, k), atom.element), ((n, k), atom.element),
                                                   ((m, n), atom.accumulator)))
    wide = complex if dtype(atom.element).is_complex else float
    want = c.astype(wide) + a.astype(wide) @ b.astype(wide).T
    np.testing.assert_array_equal(product(atom, a, b, c), want.astype(c.dtype))


def test_eight_bit_products_wrap_in_32_bits() -> None:
    atom = next(a for a in MMA_ATOMS if a.element == "int8")
    m, n, k = atom.shape
    a, b = np.full((m, k), -128, np.int8), np.full((n, k), -128, np.int8)
    got = product(atom, a, b, np.full((m, n), 2**31 - 5, np.int32))
    assert (got == np.int32(2**31 - 5 + k * 2**14 - 2**32)).all()


def test_unsigned_bytes_are_multiplied_as_such() -> None:
    m, n, k = UNSIGNED_BYTES.shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (rows, k), np.uint8) for rows in (m, n))
    a[0], b[0] = 255, 255
    np.testing.assert_array_equal(product(UNSIGNED_BYTES, a, b, np.ones((m, n), np.int32)),
                                  1 + a.astype(int) @ b.T.astype(int))


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_sums_of_16_bit_products_are_truncated_as_a_whole(element: str) -> None:
    """To 1, 16 terms of 2^-26 add nothing: each is below the 2 bits that are kept; terms of 2^-25
    add up exactly."""
    atom = next(a for a in MMA_ATOMS if a.element == element)
    m, n, k = atom.shape
    kind = numpy_type(element)
    a, b = np.full((m, k), 2.0**-13, kind), np.full((n, k), 2.0**-13, kind)
    assert (product(atom, a, b, np.ones((m, n), np.float32)) == 1).all()
    a[:] = 2.0**-12
    assert (product(atom, a, b, np.ones((m, n), np.float32)) == 1 + k * 2.0**-25).all()
    a[:, 0] = np.inf
    assert np.isinf(product(atom, a, b, np.ones((m, n), np.float32))).all()


def test_float64_is_fused_in_the_order_of_k() -> None:
    rng = np.random.default_rng(1)
    for atom in (a for a in MMA_ATOMS if a.element == "float64"):
        m, n, k = atom.shape
        a, b, c = rng.standard_normal((m, k)), rng.standard_normal((n, k)), rng.standard_normal((m, n))
        want = c.astype(np.longdouble)
        for i in range(k):
            want = (want + a[:, i:i + 1].astype(np.longdouble)
                    * b[:, i]).astype(np.float64).astype(np.longdouble)
        np.testing.assert_allclose(product(atom, a, b, c), want.astype(float), rtol=0,
                                   atol=2 * np.spacing(8.0))


def test_dp4a() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-128, 128, (32, 4), np.int8) for _ in range(2))
    c, out = rng.integers(-2**31, 2**31, 32, np.int32), np.zeros(32, np.int32)
    launch(
        """
        unsigned a, b; int c; int const t = threadIdx.x;
        cb::load_global<1>(&a, &A[t]); cb::load_global<1>(&b, &B[t]); cb::load_global<1>(&c, &C[t]);
        int d = cb::dp4a(c, a, b);
        cb::store_global<1>(&D[t], &d);
        """,
        (
            ptr("A", "uint32", const=True),
            ptr("B", "uint32", const=True),
            ptr("C", "int32", const=True),
            ptr("D", "int32")
        ),
        (a.reshape(-1), b.reshape(-1), c, out),
    )
    want = c.astype(np.int64) + (a.astype(np.int64) * b).sum(1)
    np.testing.assert_array_equal(out, want.astype(np.uint32).view(np.int32))


def exchange(call: str, threads: int = 64) -> np.ndarray:
    out = np.zeros(threads, np.float32)
    launch(f"int const t = threadIdx.x; float x = 100 + t; {call} cb::store_global<1>(&C[t], &x);",
           (ptr("C", "float32"),), (out,), threads=threads)
    return out


@pytest.mark.parametrize("mask", [1, 4, 16, 31])
def test_a_shuffle_exchanges_lanes_of_a_warp(mask: int) -> None:
    np.testing.assert_array_equal(exchange(f"x = cb::shuffle_xor(x, {mask});"),
                                  100 + (np.arange(64) ^ mask))


@pytest.mark.parametrize("call, error, words",
                         [("x = cb::shuffle_xor(x, 32);", emulator.MisuseError,
                           "a shuffle's mask is 0 to 31, got 32"),
                          ("x = cb::shuffle_xor(x, t == 3 ? 2 : 1);", emulator.BarrierError,
                           "as one"), ("if (t < 40) x = cb::shuffle_xor(x, 1);", emulator.Deadlock,
                                       "warp 1 at the same warp-wide instruction: 8 of 32"),],
                         ids=["mask", "masks", "half a warp"])
def test_misuse_of_shuffles(call: str, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        exchange(call)
