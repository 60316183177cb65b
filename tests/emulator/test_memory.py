"""Loads and stores: what they move, and every way in which they can be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas._dtypes import dtype

from .kernels import kernel, launch, ptr, scalar

COPY = "int r[{n}]; cb::load_global<{n}>(r, &A[{n} * threadIdx.x]); cb::store_global<{n}>(&C[{n} * threadIdx.x], r);"
AC = (ptr("A", const=True), ptr("C"))


@pytest.mark.parametrize("element", ["bool", "int8", "uint16", "float16", "int32", "float64",
                                     "complex64", "complex128", "b128"])
def test_every_element_type_passes_through_global_and_shared_memory(element: str) -> None:
    d = dtype(element)
    n = 16 // d.bytes
    source = np.random.default_rng(1).integers(0, 2, 32 * 16, np.uint8)
    target = np.full_like(source, 7)
    launch(
        f"""
        {d.ctype} r[{n}], q[{n}];
        cb::load_global<{n}>(&r[0], &A[threadIdx.x * {n}]);
        {d.ctype}* s = cb::shared_memory<{d.ctype}>(16);
        cb::store_shared<{n}>(&s[threadIdx.x * {n}], &r[0]);
        for (int i = 0; i < {n}; ++i) cb::load_shared<1>(&q[i], &s[threadIdx.x * {n} + i]);
        cb::store_global<{n}>(&C[threadIdx.x * {n}], &q[0]);
        """,
        (ptr("A", element, const=True), ptr("C", element)),
        (source, target),
        shared=16 + 512,
    )
    np.testing.assert_array_equal(target, source)


def test_predicated_off_loads_give_zeros_and_stores_do_nothing() -> None:
    a, c = np.arange(1, 21, dtype=np.int32), np.full(20, -1, np.int32)
    launch(
        """
        int r; int const i = threadIdx.x;
        cb::load_global<1>(&r, &A[i], (i < 10) & (i != 3));
        cb::store_global<1>(&C[i], &r, i < 20);
        """,
        AC,
        (a, c),
    )
    np.testing.assert_array_equal(c, np.where((np.arange(20) < 10) & (np.arange(20) != 3), a, 0))


def test_coordinates_of_threads_and_blocks() -> None:
    c = np.full((2, 3, 4, 32), -1, np.int32)
    launch(
        """
        int const block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        int const value = block * 100 + threadIdx.x + threadIdx.y + threadIdx.z + blockDim.y - blockDim.z;
        cb::store_global<1>(&C[block * blockDim.x + threadIdx.x], &value);
        """,
        (ptr("C"),),
        (c,),
        grid=(4, 3, 2),
    )
    np.testing.assert_array_equal(c.reshape(24, 32), np.arange(24)[:, None] * 100 + np.arange(32))


def test_only_the_blocks_asked_for_run() -> None:
    c = np.zeros((2, 3), np.int32)
    statements = "int const one = 1; cb::store_global<1>(&C[blockIdx.x + 3 * blockIdx.y], &one, threadIdx.x == 0);"
    launch(statements, (ptr("C"),), (c,), grid=(3, 2), blocks=[1, (2, 1)])
    np.testing.assert_array_equal(c, [[0, 1, 0], [0, 0, 1]])
    with pytest.raises(ValueError, match="block 6 is not in a grid"):
        launch(statements, (ptr("C"),), (c,), grid=(3, 2), blocks=[6])


def test_pointers_into_arrays_with_negative_strides() -> None:
    whole = np.arange(32, dtype=np.int32)
    c = np.zeros(32, np.int32)
    launch(
        "int r; cb::load_global<1>(&r, &A[-static_cast<int>(threadIdx.x)]); cb::store_global<1>(&C[threadIdx.x], &r);",
        AC,
        (whole[::-1], c),
    )
    np.testing.assert_array_equal(c, whole[::-1])


@pytest.mark.parametrize("offset", [-1, 32])
def test_global_reads_out_of_bounds(offset: int) -> None:
    a, c = np.zeros(32, np.int32), np.zeros(32, np.int32)
    where = r"kernel probe, block \(0, 0, 0\), thread 5, line 2: "
    message = rf"(?s){where}reads 4 bytes at byte offset {4 * offset} of argument 'A', .*\[0, 128\).*load_global"
    with pytest.raises(emulator.GlobalOutOfBounds, match=message):
        launch(f"int r; cb::load_global<1>(&r, &A[threadIdx.x == 5 ? {offset} : 0]);", AC, (a, c))


def test_arguments_are_apart_even_where_their_memory_is_not() -> None:
    both = np.zeros(64, np.int32)
    with pytest.raises(emulator.GlobalOutOfBounds,
                       match="writes 4 bytes at byte offset 128 of argument 'A'"):
        launch("int const r = 1; cb::store_global<1>(&A[32], &r);", (ptr("A"), ptr("C")),
               (both[:32], both[32:]))


def test_vectors_must_be_aligned_in_global_memory() -> None:
    a, c = np.zeros(64, np.int32), np.zeros(64, np.int32)
    launch(COPY.format(n=2), AC, (a, c))
    with pytest.raises(emulator.MisalignedAccess,
                       match="reads 8 bytes at byte offset 4 of argument 'A'"):
        launch("int r[2]; cb::load_global<2>(r, &A[1]);", AC, (a, c))


def test_writes_through_const_pointers_and_into_read_only_arrays() -> None:
    a, c = np.zeros(32, np.int32), np.zeros(32, np.int32)
    with pytest.raises(emulator.ReadOnlyError, match="argument 'A'"):
        launch("int const r = 0; cb::store_global<1>(const_cast<int*>(A), &r);", AC, (a, c))
    c.flags.writeable = False
    with pytest.raises(emulator.ReadOnlyError, match="argument 'C'"):
        launch(COPY.format(n=1), AC, (a, c))


def test_global_access_through_a_pointer_that_is_none() -> None:
    with pytest.raises(emulator.GlobalOutOfBounds, match="belongs to no argument"):
        launch("int r; cb::load_global<1>(&r, cb::shared_memory<int>(0));", shared=64)


@pytest.mark.parametrize("index", [-1, 16])
def test_shared_accesses_out_of_bounds(index: int) -> None:
    with pytest.raises(
        emulator.SharedOutOfBounds,
        match=f"writes 4 bytes at shared offset {4 * index}; the block has 64 bytes"
    ):
        launch(f"int const r = 0; cb::store_shared<1>(cb::shared_memory<int>(0) + ({index}), &r);",
               shared=64)


def test_shared_accesses_through_other_pointers() -> None:
    with pytest.raises(emulator.SharedOutOfBounds, match="pointer that does not point there"):
        launch("int r; cb::load_shared<1>(&r, A);", (ptr("A", const=True),),
               (np.zeros(4, np.int32),), shared=64)


def test_vectors_must_be_aligned_in_shared_memory() -> None:
    with pytest.raises(emulator.MisalignedAccess, match="writes 16 bytes at shared offset 8"):
        launch("int const r[4] = {}; cb::store_shared<4>(cb::shared_memory<int>(8), r);", shared=64,
               threads=1)


def test_reads_of_unwritten_shared_memory_by_the_byte() -> None:
    statements = """
        signed char const r = 1; signed char q;
        cb::store_shared<1>(cb::shared_memory<signed char>(2), &r);
        cb::load_shared<1>(&q, cb::shared_memory<signed char>({offset}));
        """
    launch(statements.replace("{offset}", "2"), shared=16, threads=1)
    with pytest.raises(emulator.UnwrittenRead, match=r"line 4: reads shared bytes \[3, 4\)"):
        launch(statements.replace("{offset}", "3"), shared=16, threads=1)


def test_shared_memory_is_fresh_in_every_block() -> None:
    with pytest.raises(emulator.UnwrittenRead, match=r"block \(1, 0, 0\)"):
        launch(
            """
            int r = 1;
            if (blockIdx.x == 0) cb::store_shared<1>(cb::shared_memory<int>(0), &r);
            cb::load_shared<1>(&r, cb::shared_memory<int>(0));
            """,
            shared=16,
            threads=1,
            grid=(2,),
        )


def test_flags_are_seen_and_endless_waiting_is_a_deadlock() -> None:
    wait = "while (cb::load_flag(A) != 1) {} if (threadIdx.x == 0) cb::store_flag(A + 1, 7);"
    flags = np.zeros(2, np.uint32)
    flag = (ptr("A", "uint32"),)
    launch(f"if (threadIdx.x == 9) cb::store_flag(A, 1); {wait}", flag, (flags,))
    np.testing.assert_array_equal(flags, [1, 7])
    flags[:] = 0
    with pytest.raises(emulator.Deadlock, match="flag in argument 'A'"):
        launch(wait, flag, (flags,))


@pytest.mark.parametrize("element, value, out_of_range",
                         [("int8", -128, 128), ("uint64", 2**64 - 1, -1), ("b16", 65535, 65536)])
def test_scalars_of_every_width(element: str, value: int, out_of_range: int) -> None:
    c = np.zeros(1, f"V{dtype(element).bytes}")
    params = (scalar("value", element), ptr("C", element))
    statements = "cb::store_global<1>(C, &value, threadIdx.x == 0);"
    launch(statements, params, (value, c))
    assert int.from_bytes(c.tobytes(), "little") == value % 2 ** (8 * dtype(element).bytes)
    with pytest.raises(OverflowError):
        launch(statements, params, (out_of_range, c))


@pytest.mark.parametrize(
    "element, value, bits",
    [
        ("float16", 1.5, 0x3E00),
        ("bfloat16", 1.0 + 2**-8, 0x3F80),
        ("bfloat16", 1.0 + 3 * 2**-8, 0x3F82),
        ("bfloat16", float("nan"), 0x7FC0),
    ],
)
def test_scalars_of_half_precision(element: str, value: float, bits: int) -> None:
    c = np.zeros(1, np.uint16)
    launch("cb::store_global<1>(C, &value, threadIdx.x == 0);",
           (scalar("value", element), ptr("C", element)), (value, c))
    assert c[0] == bits


def test_complex_scalars() -> None:
    c = np.zeros(1, np.complex128)
    launch("cb::store_global<1>(C, &value, threadIdx.x == 0);",
           (scalar("value", "complex128"), ptr("C", "complex128")), (2 - 3j, c))
    assert c[0] == 2 - 3j


def test_arguments_must_fit_the_parameters() -> None:
    compiled = emulator.compile(kernel("", AC))
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        compiled.launch((1,), [emulator.pointer(np.zeros(1))])
    with pytest.raises(TypeError, match="'A' of kernel probe is a pointer"):
        compiled.launch((1,), [1, 2])
    with pytest.raises(ValueError, match="positive extents"):
        compiled.launch((0,), [])


def test_transactions_are_counted() -> None:
    a, c = np.zeros(32 * 32, np.int32), np.zeros(32, np.int32)
    counts = launch(
        """
        int r; int const t = threadIdx.x;
        cb::load_global<1>(&r, &A[t]);
        cb::load_global<1>(&r, &A[8 * t]);
        cb::store_shared<1>(cb::shared_memory<int>(0) + 32 * t, &r);
        cb::store_shared<1>(cb::shared_memory<int>(4096) + 33 * t, &r);
        cb::store_global<1>(&C[t], &r, t < 8);
        cb::syncthreads();
        int q[4]; int const zero = 0; int* s = cb::shared_memory<int>(0);
        for (int i = 0; i < 32; ++i) cb::store_shared<1>(&s[32 * t + i], &zero);
        cb::syncthreads();
        cb::load_shared<4>(q, &s[4 * (t % 8)]);
        cb::store_global<1>(&C[t], &r, t >= 6 && t < 20);
        """,
        AC,
        (a, c),
        shared=4096 + 33 * 32 * 4,
        count=True,
    )
    found = {n.line: (n.space, n.write, n.requests, n.transactions, n.ideal, n.partial)
             for n in counts}
    assert found == {
        3: ("global", False, 1, 4, 4, 0),
        4: ("global", False, 1, 32, 4, 0),
        5: ("shared", True, 1, 32, 1, 0),
        6: ("shared", True, 1, 1, 1, 0),
        7: ("global", True, 1, 1, 1, 0),
        10: ("shared", True, 32, 1024, 32, 0),
        12: ("shared", False, 1, 4, 1, 0),
        13: ("global", True, 1, 3, 2, 2),
    }
