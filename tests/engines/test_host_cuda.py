"""NumPy arrays that go to the GPU, without one: memory and kernels of this process, behind a link
whose copies happen late."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import sleep

import numpy as np
import pytest

import cuteblas
from cuteblas import blas
from cuteblas.engines import background, placement, settings
from cuteblas.planning import streaming

pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.emulator.errors import CompilerError
from cuteblas.engines import cuda, host_cuda, keeping, streamed
from cuteblas.functions import tiles
from cuteblas.runtime.ring import Ring

from ..functions.comparisons import check_same_refusal, check_same_strides
from ..functions.host_link import linked

RNG = np.random.default_rng(0)


def small(*shape, dtype=np.float32):
    return RNG.integers(-4, 5, shape).astype(dtype)


@pytest.fixture(params=["Python's threads", "compiled threads"])
def link(request):
    cuteblas.reset_stats()
    with linked(native=request.param == "compiled threads") as made:
        yield made


@pytest.fixture
def short(monkeypatch):
    """Tiles of small products."""
    monkeypatch.setattr(streamed, "_SURELY_FREE", 0)
    monkeypatch.setattr(tiles, "_STRAIGHT_BYTES", 0)
    monkeypatch.setattr(streaming, "_PANEL_BYTES", 1 << 12)
    monkeypatch.setattr(streaming, "_ROWS", 4)
    monkeypatch.setattr(streaming, "_panels", streaming._panels.__wrapped__)


@pytest.fixture
def limited_to(monkeypatch):
    monkeypatch.setattr(settings, "_asked", True)
    return lambda nbytes: monkeypatch.setattr(settings, "_limit", nbytes)


A, B = small(50, 70), small(70, 40)
STACK = small(6, 20, 30)
PRODUCTS = {"NN": (A, B), "TN": (A.copy(order="F"), B), "TT": (B.T, A.T),
            "gaps": (A[::2, ::-1], B[::-1, 1:]), "stack": (STACK, small(6, 30, 10)),
            "broadcast": (STACK, small(30, 10)),
            "broadcast first": (small(20, 30), small(6, 30, 10)),
            "broadcast view": (np.broadcast_to(A, (3, 50, 70)), B),
            "outer batch": (small(3, 1, 20, 30), small(4, 30, 10)), "Gram": (A.T, A),
            "Gram of rows": (A, A.T), "vector": (A, small(70)), "row": (small(70), B),
            "inner": (small(70), small(70)), "types": (small(50, 70, dtype=np.int8),
                                                       small(70, 40, dtype=np.float64)),
            "byte order": (A.astype(">f4"), B),
            "overlapping": (np.lib.stride_tricks.sliding_window_view(small(90), 50)[:40],
                            small(50, 8)), "empty": (A[:0], B), "no sum": (A[:, :0], B[:0]),}


@pytest.mark.parametrize("limit", [None, 40_000, 16_000, 6_000])
@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul(link, short, limited_to, name, limit):
    limited_to(limit)
    x, y = PRODUCTS[name]
    expected, got = x @ y, cuteblas.matmul(x, y)
    assert type(got) is type(expected) and got.dtype == expected.dtype and (got == expected).all()
    check_same_strides(got, expected)


@pytest.mark.parametrize("out", [np.zeros((40, 50), np.float32).T,
                                 np.zeros((100, 80), np.float32)[::2, ::2], np.zeros((50, 40)),
                                 np.zeros((50, 40), ">f4"), np.zeros((50, 40), np.complex64)[::-1]])
@pytest.mark.parametrize("limit", [None, 16_000])
def test_out(link, short, limited_to, out, limit):
    limited_to(limit)
    assert cuteblas.matmul(A, B, out) is out
    assert (out == A @ B).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex64, np.int8, np.int64, bool])
def test_types_in_few_bytes(link, short, limited_to, dtype):
    """Sums in parts are rounded once, and wrap as NumPy's."""
    limited_to(9_000)
    x, y = (RNG.integers(-9, 9, shape).astype(dtype) for shape in ((20, 300), (300, 20)))
    got = cuteblas.matmul(x, y)
    exact = (x.astype(object) @ y.astype(object)) if dtype is np.int64 else x @ y
    if dtype is np.float16:
        exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float16)
    assert got.dtype == dtype and (got == exact).all()


@pytest.mark.parametrize("x, y", [(A, B), (A.copy(order="F"), B), (B.T, A.T), (A, A.T),
                                  (A.astype(np.int8), B.astype(np.int8))])
def test_small_products(link, x, y):
    expected, got = x @ y, cuteblas.matmul(x, y)
    assert (got == expected).all() and got.dtype == expected.dtype
    check_same_strides(got, expected)
    assert (cuteblas.matmul(x, y) == expected).all() and cuteblas.stats()["matmul"]["calls"] == {
        "in tiles": 2
    }


def test_products_like_those_before_take_any_out(link):
    expected = cuteblas.matmul(A, B)
    gaps = np.zeros((50, 80), np.float32)[:, ::2]
    for out in (np.zeros((50, 40), np.float32), np.zeros((40, 50), np.float32).T, gaps,
                np.zeros((50, 40))):
        assert cuteblas.matmul(A, B, out) is out and (out == expected).all()
    fixed = np.zeros((50, 40), np.float32)
    fixed.flags.writeable = False
    for out in (fixed, np.zeros((50, 41), np.float32), np.zeros((50, 40), np.int32)):
        with pytest.raises((TypeError, ValueError)) as refusal:
            np.matmul(A, B, out)
        check_same_refusal(cuteblas.matmul, refusal.value, A, B, out)
    assert not fixed.any() and cuteblas.stats()["matmul"]["moved"] == {"to cuda:0": 5}


def test_what_shares_memory_moves_once(link):
    cuteblas.matmul(A.T, A)
    assert link.moved == {"up": A.nbytes, "down": 70 * 70 * 4}
    cuteblas.tensordot(A[10:], A[:40].T, 1)                         # rows 0 to 50
    assert link.moved["up"] == 2 * A.nbytes
    cuteblas.einsum("ij,kj->ik", A[:, ::2], A[:, ::2])              # packed, and once
    assert link.moved["up"] == 2 * A.nbytes + A[:, ::2].nbytes
    cuteblas.matmul(np.broadcast_to(A, (9, 50, 70)), B)
    assert link.moved["up"] == 3 * A.nbytes + A[:, ::2].nbytes + B.nbytes


def test_out_that_shares_memory_with_operands(link, short):
    x = small(40, 40)
    expected = x.T @ x
    assert cuteblas.matmul(x.T, x, out=x) is x and (x == expected).all()
    y = np.zeros((41, 40), np.float32)
    y[1:] = x
    assert (cuteblas.matmul(y[1:], x, out=y[:-1]) == expected @ expected).all()


CALLS = {"dot": (cuteblas.dot, np.dot, (A, B)),
         "dot of vectors": (cuteblas.dot, np.dot, (A[0], A[1])),
         "inner": (cuteblas.inner, np.inner, (A, A)), "vdot": (cuteblas.vdot, np.vdot, (A, A)),
         "tensordot": (cuteblas.tensordot, np.tensordot, (STACK, STACK, ([0, 1], [0, 1]))),
         "tensordot of all": (cuteblas.tensordot, np.tensordot, (A, A, 2)),
         "vecdot": (cuteblas.vecdot, np.vecdot, (A, A)),
         "matvec": (cuteblas.matvec, np.matvec, (A, B[:, 0])),
         "vecmat": (cuteblas.vecmat, np.vecmat, (B[:, 0], B)),
         "outer": (cuteblas.outer, np.outer, (A, B[0])),
         "kron": (cuteblas.kron, np.kron, (A[:3], B[:2])),
         "einsum": (cuteblas.einsum, np.einsum, ("ij,jk,kl->li", A, B, B.T)),
         "trace": (cuteblas.einsum, np.einsum, ("ii->", A[:50, :50])),
         "sums": (cuteblas.einsum, np.einsum, ("ij->j", A)),
         "view": (cuteblas.einsum, np.einsum, ("ij->ji", A)),
         "multi_dot": (cuteblas.linalg.multi_dot, np.linalg.multi_dot, ([A, B, B.T, A.T[:, :3]],)),
         "chain of vectors": (cuteblas.linalg.multi_dot, np.linalg.multi_dot,
                              ([A[0], B, B.T[:, 0]],)),
         "matrix_power": (cuteblas.linalg.matrix_power, np.linalg.matrix_power, (small(9, 9), 5)),
         "power 0": (cuteblas.linalg.matrix_power, np.linalg.matrix_power, (small(9, 9), 0)),
         "inverse": (cuteblas.linalg.matrix_power, np.linalg.matrix_power,
                     (np.diag([1.0, 2.0, 4.0]), -3)), "copy": (cuteblas.copy, np.copy, (A.T,)),
         "copy in order": (cuteblas.copy, np.copy, (STACK.transpose(2, 0, 1), "F")),
         "C": (cuteblas.ascontiguousarray, np.ascontiguousarray, (STACK.transpose(2, 0, 1),)),
         "F": (cuteblas.asfortranarray, np.asfortranarray, (A,)),
         "times": (cuteblas.copy, np.copy, (A.view("m8[s]")[::-1].T, "C")),
         "strings": (cuteblas.ascontiguousarray, np.ascontiguousarray,
                     (np.array([["ab", "c"], ["d", "efg"]]).T,)),
         "complex128": (cuteblas.copy, np.copy, (A.astype(complex).T, "C")),
         "halves": (cuteblas.copy, np.copy, (A.astype(np.float16).T, "C")),}


@pytest.mark.parametrize("name", CALLS)
def test_functions(link, name):
    ours, numpys, operands = CALLS[name]
    got, expected = ours(*operands), numpys(*operands)
    assert type(got) is type(expected) and (np.asarray(got) == expected).all()
    if isinstance(got, np.ndarray):
        assert got.dtype == expected.dtype and got.flags.owndata >= expected.flags.owndata
        if name != "einsum":                            # NumPy's loop has an order of its own there
            check_same_strides(got, expected)


def test_copies_into_arrays(link):
    x = small(30, 30)
    expected = x.T.copy()
    assert cuteblas.copy(x.T, out=x) is x and (x == expected).all()
    y = np.zeros((60, 90), np.float32)[::2, ::-3]
    assert cuteblas.copy(x, out=y) is y and (y == x).all()


def test_blas_and_epilogues(link):
    c = small(50, 40)
    expected = 2 * (A @ B) + 3 * c
    assert (blas.sgemm(2, A, B, 3, c) == expected).all()
    assert (blas.sgemm(2, A.T, B.T, np.array(3, np.float32), c, trans_a="T",
                       trans_b="T") == expected).all()
    into = c.copy()
    assert blas.sgemm(2, A, B, 3, into, overwrite_c=1) is into and (into == expected).all()
    assert (cuteblas.matmul(A, B, epilogue="relu") == np.maximum(A @ B, 0)).all()

    @cuteblas.epilogue
    def shifted(acc, *, bias):
        return acc + bias, {"twice": acc * 2}

    twice = np.zeros((50, 40), np.float32)
    got, others = cuteblas.matmul(A, B, epilogue=shifted(bias=B[:1], twice=twice))
    assert (got == A @ B + B[:1]).all() and others["twice"] is twice and (twice == 2 * (A @ B)).all()
    got, others = blas.sgemm(1, A, B, epilogue=shifted(bias=[[1.0] * 40]))
    assert (got == A @ B + 1).all() and type(others["twice"]) is np.ndarray
    assert all((x == A @ B).all() for x in blas.gemm_batched(1, [A, A], [B, B]))


C, Z, STACK_B = small(50, 40), (small(70, 70) + 1j
                                * small(70, 70)).astype(np.complex128), small(6, 30, 10)
BIAS, ROWS, FOUR = small(40), small(50, 1), small(3, 7, 20, 30)


@cuteblas.epilogue
def scaled_and_shifted(acc, *, scale, shift, factor=1.0):
    return acc * scale + factor * shift


IN_TILES = {
    "sgemm": lambda: blas.sgemm(2, A, B, beta=-1, c=C),
    "transposed": lambda: blas.sgemm(1, A.T, B.T, trans_a=1, trans_b=1),
    "in place": lambda: blas.sgemm(1, A, B, beta=3, c=np.array(C, order="F"), overwrite_c=1),
    "conjugated": lambda: blas.zgemm(1j, Z, Z, beta=2, c=np.ones((70, 70), complex), trans_a=2),
    "beta in an array": lambda: blas.sgemm(1, A, B, beta=np.array(2, np.float32), c=C),
    "half precision": lambda: blas.gemm(1, A.astype(np.float16), B.astype(np.float16)),
    "stack": lambda: blas.sgemm(1, STACK, STACK_B, beta=1, c=small_c),
    "Gram": lambda: blas.sgemm(1, A, A, trans_b=1),
    "broadcast c": lambda: blas.sgemm(1, STACK, STACK_B, beta=1, c=small_c[0]),
    "epilogue of sgemm": lambda: blas.sgemm(2, A, B, beta=1, c=C, epilogue="relu"),
    "relu": lambda: cuteblas.matmul(A, B, epilogue="relu"),
    "bias": lambda: cuteblas.matmul(A, B, epilogue=cuteblas.epilogues.bias(bias=BIAS)),
    "bias of a square": lambda: cuteblas.matmul(
        A, A.T, epilogue=cuteblas.epilogues.bias(bias=small_rows[:, 0])
    ),
    "residual": lambda: cuteblas.matmul(
        A.T.copy().T, B, epilogue=cuteblas.epilogues.residual_add(residual=C)
    ),
    "out": lambda: cuteblas.matmul(A, B, np.zeros((40, 50), np.float32).T, epilogue="relu"),
    "rows": lambda: cuteblas.matmul(
        A, B, epilogue=scaled_and_shifted(scale=small_rows, shift=BIAS, factor=2.0)
    ),
    "bias of a stack": lambda: cuteblas.matmul(
        STACK, STACK_B, epilogue=scaled_and_shifted(scale=2.0, shift=small_c[:, :1])
    ),
    "einsum": lambda: cuteblas.einsum("abij,bcj->caib", FOUR, small_bcj),
    "outer": lambda: cuteblas.einsum("i,jk->jik", BIAS, A),
    "einsum of a diagonal": lambda: cuteblas.einsum("ii,ij->ji", Z[:10, :10], Z[:10]),
    "tensordot": lambda: cuteblas.tensordot(FOUR, STACK, ([2], [1])),
    "tensordot and Gram": lambda: cuteblas.tensordot(FOUR, FOUR, ([1, 3], [1, 3])),
    "inner": lambda: cuteblas.inner(FOUR, STACK[0]),
    "dot": lambda: cuteblas.dot(FOUR, STACK_B),
    "repeated b": lambda: cuteblas.matmul(STACK, np.broadcast_to(STACK_B[0], STACK_B.shape)),
    "repeated a": lambda: cuteblas.matmul(np.broadcast_to(STACK[0], STACK.shape), STACK_B),
    "types": lambda: cuteblas.einsum("ij,jk->ki", A.astype(np.int8), B.astype(float)),
    "transpose": lambda: cuteblas.ascontiguousarray(A.T),
    "order F": lambda: cuteblas.asfortranarray(FOUR),
    "gaps": lambda: cuteblas.copy(FOUR[::2, ::-1, 3:, ::3], "C"),
    "axes": lambda: cuteblas.ascontiguousarray(FOUR.transpose(0, 3, 1, 2)),
    "byte order": lambda: cuteblas.ascontiguousarray(A.astype(">f4").T),
    "out of copy": lambda: cuteblas.copy(A, out=np.zeros((70, 50), "f4").T),
}
small_c, small_rows, small_bcj = small(6, 20, 10), small(50, 1), small(7, 9, 30)


@pytest.mark.parametrize("limit", [None, 24_000])
@pytest.mark.parametrize("name", IN_TILES)
def test_calls_in_tiles(link, short, limited_to, monkeypatch, name, limit):
    with cuteblas.backend("numpy"):
        expected = IN_TILES[name]()
    limited_to(limit)
    monkeypatch.setattr(host_cuda, "carry", lambda *arguments: pytest.fail("as a whole"))
    cuteblas.reset_stats()
    got = IN_TILES[name]()
    assert type(got) is np.ndarray and got.dtype == expected.dtype and (got == expected).all()
    check_same_strides(got, expected)
    assert {route for counted in cuteblas.stats().values()
            for route in counted.get("moved", ())} == {"to cuda:0"}
    tiles = [sum(counted["calls"].values()) for function, counted in cuteblas.stats().items()
             if function.endswith(": tiles")]
    assert limit is None or sum(tiles) > (name != "einsum of a diagonal")


def test_a_number_moves_from_the_memory_of_its_array():
    x = np.array(2, ">f4")
    whole = streaming.Tile.whole(1, 1, 1, 1)
    assert np.shares_memory(x, streamed.Operand(x, (None,) * 4).part(whole))
    assert np.shares_memory(x, host_cuda._image(x).packed)


def test_what_numpy_refuses_moves_nothing(link):
    read_only = np.zeros((50, 40), np.float32)
    read_only.flags.writeable = False
    for arguments in ((A, A), (A, B, read_only), (A, B, np.zeros((50, 41), np.float32)),
                      (A, B, np.zeros((50, 40), np.int32))):
        with pytest.raises((TypeError, ValueError)) as refusal:
            np.matmul(*arguments)
        check_same_refusal(cuteblas.matmul, refusal.value, *arguments)
    assert link.moved == {"up": 0, "down": 0}


def test_what_is_no_plain_array_is_left_to_numpy(link):
    masked = np.ma.masked_array(np.ones((3, 3)), np.eye(3))
    assert type(cuteblas.dot(np.matrix(np.eye(2)), np.eye(2))) is np.matrix
    assert type(cuteblas.matmul(masked, masked)) is type(np.matmul(masked, masked))
    assert cuteblas.matmul(np.eye(2, dtype=object), np.eye(2, dtype=object)).dtype == object
    assert cuteblas.matmul(np.eye(2, dtype=np.longdouble), np.eye(2)).dtype == np.longdouble
    assert link.moved == {"up": 0, "down": 0}


@pytest.mark.parametrize("order", ["CC", "FC", "CF"])
def test_what_takes_long_is_computed_in_blocks(link, short, monkeypatch, order):
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(streaming, "_LONG", 0.0)
    x, y = (x.copy(order=kind) for x, kind in zip((small(71, 51), small(51, 62)), order,
                                                  strict=True))
    assert (cuteblas.matmul(x, y) == x @ y).all() and link.moved == {"up": x.nbytes + y.nbytes,
                                                                     "down": 71 * 62 * 4}
    assert sum(cuteblas.stats()["matmul: tiles"]["calls"].values()) == 16
    residual = cuteblas.epilogues.residual_add(residual=small(71, 62))
    assert (cuteblas.matmul(x, y, epilogue=residual) == x @ y + residual.operands["residual"]).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_into_arrays_are_known_again(link, monkeypatch, order):
    """With ``out`` and without, in whatever order that is."""
    x, y, out = small(33, 44), small(44, 55), np.zeros((33, 55), np.float32, order)
    assert cuteblas.matmul(x, y, out) is out and (out == x @ y).all()
    monkeypatch.setattr(sys.modules["cuteblas.functions.routing"], "settle_call",
                        lambda *arguments: pytest.fail("not known"))
    again = cuteblas.matmul(x, y)
    check_same_strides(again, np.matmul(x, y))
    into = np.zeros((33, 55), np.float32, order)
    assert cuteblas.matmul(x, y, into) is into and (into == x @ y).all() and (again == into).all()


def test_without_a_compiler_pythons_threads_move_arrays(monkeypatch):
    def refused(*arguments, **options):
        raise CompilerError("there is no compiler")

    monkeypatch.setattr(host_cuda, "build", refused)
    cuteblas.reset_stats()
    with linked():
        assert type(host_cuda.current_ring()) is Ring and (cuteblas.matmul(A, B) == A @ B).all()
    assert cuteblas.stats()["threads"]["moved"] == {"by Python's threads: there is no compiler": 1}


@pytest.mark.parametrize("few", [0, 300, 20000])
def test_small_arrays_move_by_the_stream_of_kernels(few):
    a, x = A[:50, :70], B[:70, 0].copy()
    with linked(few_bytes=few) as link:
        for _ in range(3):
            assert (cuteblas.matmul(a, x) == np.matmul(a, x)).all()
        # all operands, or none
        assert link.log.count(("copied up", x.nbytes)) == 3 * (few >= a.nbytes)
        assert link.log.count(("copied down", 200)) == 3 * (few >= 200)
        assert link.log.count("kernels follow uploads") == 3 * (few < a.nbytes)


def test_files_and_unaligned_records(link, tmp_path):
    file = np.memmap(tmp_path / "a", np.float32, "w+", shape=(50, 70))
    file[:] = A
    record = np.zeros((50, 70), [("flag", "i1"), ("x", "f4")])
    record["x"] = A
    expected, got = np.matmul(file, B), cuteblas.matmul(file, B)
    assert type(got) is type(expected) and (got == expected).all() and link.moved["up"] == A.nbytes + B.nbytes
    assert (cuteblas.matmul(record["x"], B) == A @ B).all()
    target = np.memmap(tmp_path / "c", np.float32, "w+", shape=(50, 40))
    assert cuteblas.matmul(A, B, target) is target and (target == A @ B).all()


def test_no_memory_makes_tiles_smaller_and_then_leaves_it_to_numpy(link, short, monkeypatch):
    largest = 30_000

    def alloc(nbytes, taken=cuda.cupy.cuda.alloc):
        if nbytes > largest:
            raise cuda.Cuda.out_of_memory(nbytes, 0, 0)
        return taken(nbytes)

    monkeypatch.setattr(cuda.cupy.cuda, "alloc", alloc)
    monkeypatch.setattr(link, "free", 400_000)
    monkeypatch.setattr(cuda.cupy, "get_default_memory_pool",
                        lambda: type("Pool", (), {"free_all_blocks": lambda self: None})())
    x, y = small(100, 100), small(100, 100)
    assert (cuteblas.matmul(x, y) == x @ y).all()
    assert cuteblas.stats()["matmul"]["moved"] == {"smaller tiles: no memory on the GPU": 2,
                                                   "to cuda:0": 1}
    largest = 10
    assert (cuteblas.matmul(x,
                            y) == x @ y).all() and cuteblas.stats()["matmul"]["calls"]["numpy"] == 1


def test_an_interrupt_leaves_nothing_behind(link, short, monkeypatch):
    calls = []

    def interrupted(self, here, there, leave=streamed._Streamed._leave):
        calls.append(here)
        if len(calls) == 2:
            raise KeyboardInterrupt
        leave(self, here, there)

    monkeypatch.setattr(streamed._Streamed, "_leave", interrupted)
    x, y = small(200, 100), small(100, 100)
    with pytest.raises(KeyboardInterrupt):
        cuteblas.matmul(x, y)
    monkeypatch.undo()
    with linked():
        assert (cuteblas.matmul(x, y) == x @ y).all()


def test_a_broken_link_is_an_error(link):
    link.fail_at = 3
    with pytest.raises(RuntimeError, match=r"the link is down|the CUDA driver refused a copy"):
        cuteblas.dot(A, B)
    link.fail_at = None
    assert (cuteblas.dot(A, B) == A @ B).all()


def test_pinned_arrays_move_without_slots(link, monkeypatch):
    monkeypatch.setattr(host_cuda, "_WORTH_ASKING", 0)
    shapes = ((50, 70), "F"), ((70, 40), "C"), ((50, 40), "C")
    a, b, c = (cuteblas.empty_pinned(shape, np.float32, order) for shape, order in shapes)
    assert a.flags.f_contiguous and cuteblas.empty_pinned(3).dtype == float
    a[:], b[:] = A, B
    assert cuteblas.dot(a, b, c) is c and (c == A @ B).all()
    copies = [entry for entry in link.log if isinstance(entry, tuple)]
    assert sorted(copies) == [("down", c.nbytes), ("up", b.nbytes), ("up", a.nbytes)]
    with pytest.raises(TypeError, match="without references to Python objects, got object"):
        cuteblas.empty_pinned(3, object)


def test_threads(link, short):
    operands = [(small(60, 50), small(50, 40)) for _ in range(24)]
    with ThreadPoolExecutor(6) as pool:
        def call(pair):
            with cuteblas.backend("cuda"):
                return cuteblas.matmul(*pair)
        results = list(pool.map(call, operands))
    assert all((got == x @ y).all() for got, (x, y) in zip(results, operands, strict=True))


def test_progress(link, short, monkeypatch, capsys):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    monkeypatch.setenv("CUTEBLAS_PROGRESS", "1")
    monkeypatch.setattr(streamed, "_PATIENCE", 0.0)
    cuteblas.matmul(small(200, 100), small(100, 100))
    assert "cuteblas" in capsys.readouterr().err


def test_a_child_frees_nothing_of_its_parent(monkeypatch):
    ring, home = object(), object()
    monkeypatch.setattr(host_cuda, "_rings", {0: ring})
    monkeypatch.setattr(host_cuda, "_homes", {0: home})
    monkeypatch.setattr(host_cuda, "_orphans", [])
    host_cuda._forget()
    assert host_cuda._rings == host_cuda._homes == {} and host_cuda._orphans == [ring, home]


def test_explanations(link):
    for told in (cuteblas.explain(A, B), cuteblas.explain(A, B, epilogue="relu"),
                 cuteblas.explain_copy(A.T)):
        assert told.runs_on.startswith("cuda:") and "backend('cuda')" in told.runs_on
    with cuteblas.backend("auto"):
        x = small(300, 300)
        told = cuteblas.explain(x, x)
        assert told.runs_on.startswith("NumPy, expected")
    with cuteblas.backend("numpy"):
        assert cuteblas.explain(A, B).runs_on.startswith("NumPy; the plan below")


# -- which of them ---------------------------------------------------------------------------------
class Job:
    """Work of another thread that ends when a test says so.

    Attributes
    ----------
    offered : list of float
        The seconds that calls would wait for it.
    """

    def __init__(self, work=lambda: None):
        self.work, self.offered, self.ended, self.error = work, [], False, None

    def end(self, error=None):
        if error is None:
            self.work()
        self.ended, self.error = True, error

    def done(self):
        return self.ended

    def exception(self):
        return self.error

    def wait(self, most):
        self.offered.append(most)
        return 0.0


@pytest.fixture
def not_started(monkeypatch):
    """A machine with a GPU that has not been used: the jobs that calls begin."""
    jobs = []

    def later(work, *_arguments, expected=0.0):
        jobs.append(Job())
        return jobs[-1]

    monkeypatch.setattr(settings, "driver_is_there", lambda: True)
    monkeypatch.setattr(placement, "_possible", lambda: True)
    for name, value in {"_starting": None, "_preparing": None, "_ready": False, "_started": False,
                        "_missed": defaultdict(float), "use_cuda": lambda: None}.items():
        monkeypatch.setattr(placement, name, value)
    monkeypatch.setattr(placement, "later", later)
    monkeypatch.setattr(os, "register_at_fork", lambda **_when: None)
    with cuteblas.backend("auto"):
        yield jobs


def test_auto_starts_cuda_when_a_call_would_gain(not_started, monkeypatch):
    monkeypatch.setattr(placement, "_processors", lambda: 2)
    small, large = (placement.work_of(products, np.float64, [], None, (100, 100))
                    for products in (4e7, 1e10))
    gains = [here - there for here, there in (small.seconds(), large.seconds())]
    assert 0 < 3 * gains[0] < placement._GAIN < gains[1]
    assert {placement._stays(small, ())
            for _ in range(3)} == {"CUDA is not started yet"} and not not_started
    assert {placement._stays(large, ()) for _ in range(3)} == {"CUDA is being started"}
    assert "CUDA is being started" in placement.where_it_runs(large, "a card")
    (job,) = not_started
    assert np.allclose(job.offered, [gains[1]] * 3, rtol=1e-9)      # for which they wait at most
    tiny = placement.work_of(1e4, np.float64, [], None, (10, 10))
    assert placement._stays(tiny, ())
    job.end()
    assert placement._stays(large, ()) == "there is no GPU"
    monkeypatch.setattr(placement, "_started", True)
    assert placement._stays(large, ()) is None and not_started == [job]


def test_calls_wait_for_no_more_than_calls_have_missed(not_started, monkeypatch):
    monkeypatch.setattr(Job, "wait", lambda job, most: job.offered.append(most) or most)
    large = placement.work_of(1e10, np.float64, [], None, (100, 100))
    here, there = large.seconds()

    def call():
        placement.offload("matmul", large, None, [], None, lambda: sleep(there + 0.05))

    call()
    (job,) = not_started
    assert job.offered == [here - there]
    call()                              # what the first one missed, less what it waited
    assert np.allclose(job.offered[1], here - there + max(0.05 - (here - there), 0), atol=0.02)
    monkeypatch.setattr(placement, "_started", True)
    job.end()
    kinds = [("matmul", large.dtype, shape) for shape in range(2)]
    compiled = Job()
    monkeypatch.setattr(placement, "_compiling", dict.fromkeys(kinds, compiled))
    placement._missed.update({kinds[0]: 3.0, None: 9.0})
    for kind in kinds[0], kinds[0], kinds[1]:
        assert placement._stays(large, kind) == "its kernels are being compiled"
    assert np.allclose(compiled.offered, [here - there + missed for missed in (3.0, 0.0, 0.0)])


def test_auto_starts_cuda_when_a_call_would_gain_by_an_array_that_stays(not_started, monkeypatch):
    x = np.ones((2000, 2000))
    work = placement.work_of(4e6, np.float64, [x, x[0]], None, (2000,))
    here, there = work.seconds()
    assert 1e-4 < here < there
    for limit, begins in ((0, 0), (1 << 30, 1)):
        monkeypatch.setattr(keeping, "_limit", limit)
        for _ in range(99):
            assert placement.offload("matmul", work, None, [x, x[0]], None, list) == []
        assert len(not_started) == begins


def test_cuda_starts_after_a_short_call(not_started, monkeypatch):
    work = placement.work_of(1e8, np.float64, [], None, (500, 500))
    here, there = work.seconds()
    assert 0 < here - there < placement._SHORT
    placement._missed[None] = placement._GAIN
    began = []
    placement.offload("matmul", work, None, [], None, lambda: began.append(len(not_started)))
    assert began == [0] and len(not_started) == 1


def test_the_first_call_imports_nothing(not_started):
    """What compares times is imported by another thread; until then, calls stay without further
    questions."""
    x = small(400, 400)
    for _ in range(2):
        assert (cuteblas.matmul(x, x) == x @ x).all()
    (job,) = not_started
    assert cuteblas.explain(x, x).runs_on.startswith("NumPy, expected")         # this waits
    job.end()
    assert placement._stays(placement.work_of(1e11, np.float64, [], None, (100, 100)),
                            ()) == "CUDA is being started"


@pytest.mark.parametrize("name, begins", [("auto", 3), ("numpy", 0), ("cuda", 0)])
def test_cuda_starts_at_once_where_a_program_asked_for_it(not_started, name, begins):
    with cuteblas.backend(name):
        placement.start_soon()
        placement.start_soon()
    assert len(not_started) == begins


def test_nothing_is_imported_while_the_driver_begins(monkeypatch):
    """Who imports waits for the driver then, and with it who waits for the interpreter."""
    order, begun = [], threading.Event()

    def start_driver():
        begun.wait(20)
        order.append("driver")

    for name, value in {"_possible": lambda: True, "_starting": None, "_preparing": None,
                        "_ready": False, "_started": False, "_START": 20.0,
                        "use_cuda": lambda: None, "_prepare": lambda: order.append("rates"),
                        "_build_threads": lambda: order.append("threads"),
                        "_import_planning": lambda: order.append("planning"),
                        "_start": lambda: order.append("CuPy")}.items():
        monkeypatch.setattr(placement, name, value)
    monkeypatch.setattr(settings, "driver_is_there", lambda: True)
    monkeypatch.setattr("cuteblas.runtime.devices.start_driver", start_driver)
    monkeypatch.setattr("cuteblas.runtime.devices.create_context", lambda: order.append("context"))
    monkeypatch.setattr("cuteblas.engines.reuse.prepare", lambda _all: order.append("memory"))
    monkeypatch.setattr(os, "register_at_fork", lambda **_when: None)
    with cuteblas.backend("auto"):
        placement.start_soon()
    preparing, starting = placement._preparing, placement._starting
    sleep(0.1)
    assert not order
    begun.set()
    assert starting.exception() is preparing.exception() is None
    all_of_them = {"driver", "context", "rates", "threads", "CuPy", "memory"}
    for _ in range(200):
        if all_of_them <= {*order}:
            break
        sleep(0.02)
    assert order[0] == "driver" and all_of_them <= {*order}


def test_a_job_is_waited_for_where_that_is_shorter():
    gate = threading.Event()
    job = background.later(gate.wait, expected=5.0)
    assert job.wait(1.0) == 0.0 and not job.done()
    timer = threading.Timer(0.2, gate.set)
    timer.start()
    assert 0.0 < job.wait(60.0) < 50 and job.done() and job.exception() is None and job.wait(60.0) == 0.0
    failed = background.later(lambda: 1 / 0)
    assert isinstance(failed.exception(), ZeroDivisionError)


def test_jobs_change_settings_of_python_only_while_they_run(monkeypatch):
    before = gc.get_threshold()
    try:
        with background.short_turns():
            with background.short_turns():
                pass
            assert sys.getswitchinterval() < 1e-3 and gc.get_threshold()[2] > 1e6
        assert gc.get_threshold() == before and sys.getswitchinterval() > 1e-3
        with background.short_turns():
            gc.set_threshold(500, 5, 5)
        assert gc.get_threshold() == (500, 5, 5)
    finally:
        gc.set_threshold(*before)


@pytest.fixture
def compilers(monkeypatch):
    """Kernels are compiled when a test says so: the futures, and how many of the next plans are
    compiled already."""
    class Compilers:
        ready, compiled = [], 0

    def are_compiled(_kernels, _ordinal):
        Compilers.compiled -= 1
        return Compilers.compiled >= 0

    def later(_make_ready, make, _ordinal, expected):
        Compilers.ready.append(Job(make))
        return Compilers.ready[-1]

    costs = replace(placement._costs(), multiplications={"float32": 1e5}, call=1e-4)
    monkeypatch.setattr(placement, "_costs", lambda: costs)
    with linked(backend="auto"):
        monkeypatch.setattr("cuteblas.runtime.loading.are_compiled", are_compiled)
        monkeypatch.setattr(cuda, "later", later)
        monkeypatch.setattr(cuda, "_planned", set())
        cuda.launcher_for.cache_clear()
        cuteblas.reset_stats()
        yield Compilers
    cuda.launcher_for.cache_clear()


def moved(function="matmul"):
    return cuteblas.stats()[function]["moved"]


def test_calls_stay_while_their_kernels_are_compiled(compilers):
    x = small(300, 300)
    for times in (1, 2):
        assert (cuteblas.matmul(x, x) == x @ x).all()
        assert moved() == {"stayed: its kernels are being compiled": times} and len(compilers.ready) == 1
    with cuteblas.backend("cuda"):                          # as always: it waits
        cuteblas.matmul(x.T, x)
    assert moved()["to cuda:0"] == 1 and len(compilers.ready) == 1
    compilers.ready[0].end()
    compilers.compiled = 9
    assert (cuteblas.matmul(x, x) == x @ x).all() and moved()["to cuda:0"] == 2
    assert (cuteblas.matmul(x, x) == x @ x).all() and moved()["to cuda:0"] == 3


def test_what_fails_to_compile_is_waited_for(compilers):
    x = small(300, 300)
    cuteblas.matmul(x, x)
    compilers.ready[0].end(ValueError("no compiler"))
    # which raises what is wrong, if something still is
    assert (cuteblas.matmul(x, x) == x @ x).all()
    assert moved() == {"stayed: its kernels are being compiled": 1,
                       "to cuda:0": 1} and len(compilers.ready) == 1


def test_what_was_written_is_not_computed_again(compilers, short, limited_to, monkeypatch):
    """C that is read and written in place: when its first tile has left, the others' kernels are
    waited for."""
    monkeypatch.setattr(placement, "FEW", 0)
    monkeypatch.setattr(cuda, "_planned", type("Everything", (set,),
                                               {"__contains__": lambda *_: True})())
    limited_to(30_000)
    a, b, c = small(70, 60), small(60, 301), np.array(small(70, 301), order="F")
    expected, compilers.compiled = a @ b + 3 * c, 1
    got = blas.sgemm(1, a, b, beta=3, c=c, overwrite_c=1)
    assert np.shares_memory(got, c) and (got == expected).all()
    assert moved("sgemm") == {"to cuda:0": 1} and not compilers.ready


def test_auto_takes_the_faster_one(monkeypatch):
    costs = replace(placement._costs(), multiplications={"float32": 1e12, "int64": 1e6}, call=1e-4)
    monkeypatch.setattr(placement, "_costs", lambda: costs)
    x = small(300, 300)
    with linked(backend="auto") as link:
        cuteblas.reset_stats()
        cuteblas.matmul(x, x)
        assert cuteblas.stats()["matmul"] == {
            "calls": {"numpy": 1},
            "moved": {"stayed: NumPy is expected to be faster": 1}
        }
        assert link.moved["up"] == 0
        assert (cuteblas.matmul(x, x) == x @ x).all() and cuteblas.stats()["matmul"]["calls"] == {
            "numpy": 2
        }
        y = x.astype(np.int64)
        assert (cuteblas.matmul(y, y) == y @ y).all()
        assert link.moved["up"] > 0
        small_ones = A[:10, :10]
        cuteblas.reset_stats()
        cuteblas.matmul(small_ones, small_ones)
        assert cuteblas.stats()["matmul"] == {"calls": {"numpy": 1}}


def test_without_a_gpu():
    program = """
import numpy as np, cuteblas
a = np.ones((300, 300))
with cuteblas.backend("auto"):
    cuteblas.matmul(a, a)
    print(cuteblas.current_backend(), cuteblas.stats())
try:
    with cuteblas.backend("cuda"):
        cuteblas.matmul(a, a)
except RuntimeError as error:
    print(str(error).count("the backend 'cuda' cannot work here"), "\\n" in str(error))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True, env={"CUDA_VISIBLE_DEVICES": "", "PATH": "",
                                             "PYTHONPATH": ":".join(sys.path)})
    assert result.stdout == "numpy {'matmul': {'calls': {'numpy': 1}}}\n1 False\n"
