"""Every option of every product, with values that are taken and values that are not: the verdict is
the same on every backend.

NumPy arrays by NumPy and in the emulator, and CuPy's arrays where CuPy is installed: the same call
is taken by all or refused by all, with the same exception in the same words. One is not here: a
kernel by name, ``variant=``, which NumPy cannot run and refuses.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec

import numpy as np
import pytest

import cuteblas
import cuteblas.linalg
from cuteblas import blas

NAMED = [{"precision": name} for name in ("auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular",
                                          None, "high", 3)]
UFUNC = [{"casting": name} for name in ("no", "safe", "same_kind", "unsafe", "any", 1)] \
    + [{"order": name} for name in ("C", "F", "A", "K", "c", None, "Z", 0)] \
    + [{"dtype": name} for name in ("f4", "f8", "c16", "i1", "i8", "?", "U1", "nothing", float)] \
    + [{"keepdims": value} for value in (True, False, None, 1)] + [{"subok": value} for value in (True, False)] \
    + [{"axis": value} for value in (0, -1, 5, "a", 1.0)] \
    + [{"signature": value} for value in ("dd->d", (None, None, "d"), "d", "xx->x")] \
    + [{"axes": value} for value in ([(0, 1), (0, 1), (0, 1)], [(-2, -1), (-2, -1), (-2, -1)], [(0,), (0,)], [(0,), (0,), ()],
                                     [0, 0, 0], [(0, 0), (0, 1), (0, 1)], (0, 1, 2), [(0, 9), (0, 1), (0, 1)], None)] \
    + [{"where": True}, {"nothing": 1}, {"axis": 0, "axes": [(0,), (0,), ()]}, {"out": 3}, {"out": (None, None)}]
EINSUM = [{"optimize": value} for value in (True, False, "greedy", "optimal", "auto", "none", None,
                                            ("greedy", 9), ["einsum_path", (0, 1)],
                                            ["einsum_path", (0, 9)], 1, [], "")] + UFUNC
TENSORDOT = [{"axes": value} for value in (
    0, 1, 2, 3, -1, ([0], [1]), ([0, 1], [0, 1]), ([0], [0, 1]), ([9], [0]), "ab", None, 1.0, True)]
COPY = [{"order": name} for name in ("C", "F", "A", "K", "k", None, "Z", 0)]
DTYPES = [{"dtype": name} for name in ("f4", "f8", "i1", "nothing", None, float)]
SCALARS = [{"alpha": x} for x in (0, 2, 0.5, 2j, "a", None, [1])] + [{"beta": x} for x in (0, 1, 2j, "a", None)] \
    + [{"trans_a": x, "trans_b": x} for x in ("N", "T", "C", 0, 1, 2, 3, "X", None, 1.0)] \
    + [{"overwrite_c": x} for x in (0, 1, True, 2, "a")] + [{"nothing": 1}]
EPILOGUES = [
    {"epilogue": x}
    for x in (
        "relu",
        "nothing",
        cuteblas.epilogues.bias,
        cuteblas.epilogues.scale(scale=2.0),
        3,
        cuteblas.epilogues.clamp(lo=0, hi="a")
    )
] + [{"epilogue": "relu", **more} for more in (*NAMED, *UFUNC)]

OPTIONS = {
    "matmul": (cuteblas.matmul, NAMED + UFUNC + EPILOGUES),
    "linalg.matmul": (cuteblas.linalg.matmul, NAMED),
    "dot": (cuteblas.dot, NAMED),
    "inner": (cuteblas.inner, NAMED),
    "vecdot": (cuteblas.vecdot, UFUNC),
    "matvec": (cuteblas.matvec, UFUNC),
    "vecmat": (cuteblas.vecmat, UFUNC),
    "tensordot": (cuteblas.tensordot, NAMED + TENSORDOT),
    "tensordot of two": (lambda a, b, **named: cuteblas.tensordot(a, b, 2, **named), NAMED),
    "outer": (cuteblas.outer, [{"out": 3}]),
    "linalg.vecdot": (cuteblas.linalg.vecdot, [{"axis": x} for x in (0, -1, 5, "a")]),
    "einsum": (lambda a, b, **named: cuteblas.einsum("ij,jk->ik", a, b, **named), NAMED + EINSUM),
    "einsum of nested modes": (
        lambda a, b, **named: cuteblas.einsum("ij,jk->jki", a, b, **named),
        NAMED
    ),
    "einsum of sums": (lambda a, b, **named: cuteblas.einsum("ij,kl->", a, b, **named), NAMED),
    "einsum of three": (
        lambda a, b, **named: cuteblas.einsum("ij,jk,kl->il", a, b, a, **named),
        NAMED + EINSUM
    ),
    "einsum of one": (lambda a, b, **named: cuteblas.einsum("ij->j", a, **named), NAMED + EINSUM),
    "multi_dot": (
        lambda a, b, **named: cuteblas.linalg.multi_dot([a, b], **named),
        [*NAMED, {"out": 3}]
    ),
    "multi_dot of three": (
        lambda a, b, **named: cuteblas.linalg.multi_dot([a, b, a], **named),
        NAMED
    ),
    "matrix_power": (lambda a, b, **named: cuteblas.linalg.matrix_power(a, 3, **named), NAMED),
    "copy": (lambda a, b, **named: cuteblas.copy(a, **named), COPY),
    "copy into": (lambda a, b, **named: cuteblas.copy(a, out=b, **named), COPY),
    "ascontiguousarray": (lambda a, b, **named: cuteblas.ascontiguousarray(a, **named), DTYPES),
    "asfortranarray": (lambda a, b, **named: cuteblas.asfortranarray(a, **named), DTYPES),
    "gemm": (
        lambda a, b, **named: blas.gemm(**{"alpha": 1, "a": a, "b": b, **named}),
        NAMED + SCALARS
    ),
}
TYPES = ("f4", "f8", "c8", "c16", "i4", "?", "f2")


def verdict(call, dtype, options, backend):
    """What a call on matrices comes to: nothing if it is taken, else its refusal."""
    a, b = np.ones((4, 4), dtype), np.ones((4, 4), dtype)
    with ExitStack() as stack:
        if backend == "cupy":
            from . import host_cupy

            stack.enter_context(host_cupy.installed())
            a, b = map(host_cupy.on_gpu, (a, b))
        else:
            stack.enter_context(cuteblas.backend(backend))
        stack.enter_context(np.errstate(all="ignore"))
        try:
            call(a, b, **options)
        except Exception as refusal:
            return type(refusal).__name__, str(refusal)
    return None


@pytest.fixture
def no_kernel_runs(monkeypatch):
    """Plans are real, but are not run."""
    monkeypatch.setattr(cuteblas.emulator, "run", lambda *plan, **others: None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("no_kernel_runs")
@pytest.mark.parametrize("backend", ["emulator", *(["cupy"] if find_spec("cupy") else [])])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_verdict_is_the_same_everywhere(name, backend):
    call, table = OPTIONS[name]
    for dtype in TYPES:
        for options in table:
            here, there = (verdict(call, dtype, options, where) for where in ("numpy", backend))
            assert here == there, f"{dtype} {options}: NumPy {here}, {backend} {there}"
