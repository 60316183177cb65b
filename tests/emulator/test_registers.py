"""Registers that nothing has set."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas import emulator

from .kernels import launch, ptr

TYPES = {"float": "float32", "double": "float64", "int": "int32", "long long": "int64",
         "cb::complex<float>": "complex64", "cb::complex<double>": "complex128"}


def declared(ctype: str, count: int, statements: str) -> str:
    """A declaration as kernels have it, on a line of its own."""
    return f"  alignas(16) {ctype} r[{count}];\n{statements}"


@pytest.mark.parametrize("ctype", TYPES)
def test_what_is_stored_has_been_set(ctype):
    out, params = np.zeros(64, TYPES[ctype]), (ptr("A", TYPES[ctype]),)
    set_one = "if (threadIdx.x == 3 && blockIdx.x == 1) r[1] = {};"
    store = "cb::store_global<1>(&A[32 * blockIdx.x + threadIdx.x], &r[1]);"
    with pytest.raises(
        emulator.UnsetRegister,
        match=r"block \(0, 0, 0\), thread 0, line 3: uses a register that nothing has set"
    ):
        launch(declared(ctype, 2, set_one + store), params, (out,), grid=(2,))
    launch(declared(ctype, 2, "r[1] = {};" + store), params, (out,), grid=(2,))


def test_arithmetic_keeps_it():
    """Of floating types."""
    out = np.zeros(32, np.float32)
    store = "cb::store_global<1>(&A[threadIdx.x], &r[0]);"
    for statement in ("cb::mac(r[0], 2.0f, 3.0f);", "r[0] = cb::add(1.0f, r[0]);",
                      "r[0] = -(r[0] + 1);", "r[0] = cb::maximum(r[0], 0.0f);"):
        with pytest.raises(emulator.UnsetRegister, match="line 3"):
            launch(declared("float", 1, statement + store), (ptr("A", "float32"),), (out,))


@pytest.mark.parametrize("ctype, use", [
    ("float", "cb::convert<cb::half>(r[0]);"),
    ("float", "cb::shuffle_xor(r[0], 1);"),
    ("unsigned int", "float d[4] = {}; unsigned b[2] = {}; cb::mma_m16n8k16<cb::half>(d, r, b);"),
    ("unsigned int", "float d[4] = {}; unsigned a[4] = {}; cb::mma_m16n8k16<cb::half>(d, a, r);"),
    ("float", "unsigned a[4] = {}, b[2] = {}; cb::mma_m16n8k16<cb::half>(r, a, b);"),
    ("double", "double a[1] = {}, b[1] = {}; cb::mma_m8n8k4<double>(r, a, b);"),
])
def test_what_instructions_take_has_been_set(ctype, use):
    with pytest.raises(emulator.UnsetRegister, match="line 3"):
        launch(declared(ctype, 4, use))
    launch(declared(ctype, 4, "for (int i = 0; i < 4; ++i) r[i] = 0; " + use))


@pytest.mark.parametrize("ctype, name", [("cb::half", "float16"), ("signed char", "int8")])
def test_short_types_are_looked_at_by_the_word(ctype, name):
    out = np.zeros(128, name)
    many = 4 // np.dtype(name).itemsize
    with pytest.raises(emulator.UnsetRegister):
        launch(declared(ctype, 4, f"cb::store_global<{many}>(&A[{many} * threadIdx.x], r);"),
               (ptr("A", name),), (out,))


def test_it_goes_through_shared_memory():
    """Where it may be stored, as long as nothing reads it from there."""
    out = np.zeros(32, np.float32)
    keep = "auto* s = cb::shared_memory<float>(0); cb::store_shared<1>(s + threadIdx.x, r); cb::load_shared<1>(r, s + threadIdx.x);"
    launch(declared("float", 1, keep), shared=128)
    with pytest.raises(emulator.UnsetRegister):
        launch(declared("float", 1, keep + "cb::store_global<1>(A + threadIdx.x, r);"),
               (ptr("A", "float32"),), (out,), shared=128)


def test_each_turn_of_a_loop_has_new_registers():
    out = np.zeros(32, np.int32)
    loop = ("for (int i = 0; i < 2; ++i) {\n  alignas(16) int r[1];\n"
            "if (i == 0) r[0] = 1; cb::store_global<1>(A + threadIdx.x, r); }")
    with pytest.raises(emulator.UnsetRegister):
        launch(loop, (ptr("A"),), (out,))
