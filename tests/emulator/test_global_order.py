"""Global memory: what nothing orders between threads and between blocks, and flags that order it."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas import emulator

from .kernels import launch, matrix_map, ptr, tensor_map

A, F = ptr("A"), ptr("F", "uint32")
SCHEDULES = [{}, {"seed": 1}, {"seed": 2}, {"residents": 3}]
ONE = "int one[1] = {1}; int r[1];"
WAIT = "while (cb::load_flag(F) == 0u) {}"


def run(text: str, *, grid: int = 2, threads: int = 64, words: int = 256, **options) -> tuple[np.ndarray, np.ndarray]:
    a, f = np.zeros(words, np.int32), np.zeros(32, np.uint32)
    launch(ONE + text, (A, F), (a, f), threads=threads, grid=(grid,), **options)
    return a, f


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("text, words", [
    # within a block
    ("cb::store_global<1>(A + 64 * blockIdx.x + threadIdx.x, one); cb::load_global<1>(r, A + 64 * blockIdx.x + 63 - threadIdx.x);",
     "thread .* and no barrier orders the two"),
    ("cb::load_global<1>(r, A + 64 * blockIdx.x + 63 - threadIdx.x); cb::store_global<1>(A + 64 * blockIdx.x + threadIdx.x, one);",
     "thread .* and no barrier orders the two"),
    ("cb::store_global<1>(A + blockIdx.x, one);", r"writes bytes \[[04], [48]\) of argument 'A' that thread .* wrote at line 2"),
    # between blocks
    ("if (threadIdx.x == 0) cb::store_global<1>(A, one);",
     r"that thread 0 of block \([01], 0, 0\) wrote at line 2, and no flag orders"),
    ("if (blockIdx.x == 0) cb::store_global<1>(A + threadIdx.x, one); else cb::load_global<1>(r, A + threadIdx.x);",
     "no flag orders"),
    ("cb::load_global<1>(r, A + 3); if (blockIdx.x == 1 && threadIdx.x == 5) cb::store_global<1>(A + 3, one);", "orders the two"),
    ("long long two[1]; if (threadIdx.x == 0) { if (blockIdx.x == 0) cb::store_global<1>((long long*)A, two); "
     "else cb::store_global<1>(A + 1, one); }", "no flag orders"),
])
def test_what_nothing_orders_is_a_race(text, words, schedule):
    with pytest.raises(emulator.DataRace, match=words):
        run(text, **schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("text", [
    "int* own = A + 64 * blockIdx.x; cb::store_global<1>(own + threadIdx.x, one); cb::syncthreads(); "
    "cb::load_global<1>(r, own + 63 - threadIdx.x);",
    "cb::load_global<1>(r, A + threadIdx.x);",
    "int* own = A + 64 * blockIdx.x + threadIdx.x; cb::load_global<1>(r, own); cb::store_global<1>(own, one); "
    "cb::load_global<1>(r, own);",
])
def test_what_is_ordered_is_none(text, schedule):
    run(text, **schedule)


LAST = ("if (threadIdx.x == 0) {{ cb::store_global<1>(A + blockIdx.x, one); if (cb::count_arrival(F) == {0}u) "
        "for (unsigned i = 0; i < gridDim.x; ++i) {{ cb::load_global<1>(r, A + i); cb::store_global<1>(A + 64 + i, r); }} }}")


@pytest.mark.parametrize("schedule", [*SCHEDULES, {"blocks": [4, 2, 0, 1, 3]}])
def test_the_last_to_arrive_sees_what_all_have_written(schedule):
    a, f = run(LAST.format(4), grid=5, **schedule)
    assert (a[64:69] == 1).all() and f[0] == 5
    with pytest.raises(emulator.DataRace, match="no flag orders the two"):
        run(LAST.format(3), grid=5, **schedule)


RELEASE = "if (blockIdx.x == 0) {{ cb::store_global<1>(A + threadIdx.x, one); {0} if (threadIdx.x == 0) {1} }}"
ACQUIRE = "else {{ {0} {1} cb::load_global<1>(r, A + 63 - threadIdx.x); cb::store_global<1>(A + 64 + threadIdx.x, r); }}"
STORE = "cb::store_flag(F, 1u);"
LEADER = "if (threadIdx.x == 0) " + WAIT
BARRIER = "cb::syncthreads();"


@pytest.mark.parametrize("schedule", [*SCHEDULES, {"blocks": [1, 0]}])
@pytest.mark.parametrize("wait, barrier", [(WAIT, ""), (LEADER, BARRIER)])
def test_a_flag_orders_blocks(wait, barrier, schedule):
    a, _ = run(RELEASE.format(BARRIER, STORE) + ACQUIRE.format(wait, barrier), **schedule)
    assert (a[:128] == 1).all()


@pytest.mark.parametrize("schedule", [*SCHEDULES, {"blocks": [1, 0]}])
@pytest.mark.parametrize("release, acquire", [
    ((BARRIER, STORE), ("", "")),                                                                     # nobody waits
    (("", STORE), (WAIT, "")),                                                                        # not all have stored
    ((BARRIER, "{ unsigned v[1] = {1u}; cb::store_global<1>(F, v); }"), (WAIT, "")),                  # no release
    ((BARRIER, STORE), ("unsigned v[1] = {0u}; cb::load_global<1>(v, F);", "")),                      # no acquire
    ((BARRIER, STORE), (LEADER, "")),                                                                 # the others do not know
])
def test_a_flag_without_what_it_needs_orders_nothing(release, acquire, schedule):
    with pytest.raises(emulator.DataRace):
        run(RELEASE.format(*release) + ACQUIRE.format(*acquire), **schedule)


CHAIN = """
if (blockIdx.x > 0) {{ while (cb::load_flag(F + blockIdx.x - 1) == 0u) {{}} }}
cb::load_global<1>(r, A + 63 - threadIdx.x);
cb::load_global<1>(one, A + 64 * blockIdx.x + threadIdx.x);
one[0] = r[0] + 1;
cb::syncthreads();
cb::store_global<1>(A + threadIdx.x, one);
{0}
if (threadIdx.x == 0) cb::store_flag(F + blockIdx.x, 1u);
"""


@pytest.mark.parametrize("schedule", [*SCHEDULES, {"blocks": [3, 2, 1, 0]}])
def test_what_is_known_is_passed_on(schedule):
    """Each block adds one to what all blocks before it have left."""
    a, _ = run(CHAIN.format(BARRIER), grid=4, **schedule)
    assert (a[:64] == 4).all()
    with pytest.raises(emulator.DataRace):
        run(CHAIN.format(""), grid=4, **schedule)


def test_what_is_known_goes_around():
    """To a block and back: the first block knows what its own other threads had stored, by way of the second one."""
    around = """
    if (blockIdx.x == 0) {
        cb::store_global<1>(A + threadIdx.x, one);
        cb::named_barrier_sync(1, 64);
        if (threadIdx.x == 1) cb::store_flag(F, 1u);
        if (threadIdx.x == 2) { while (cb::load_flag(F + 1) == 0u) {} cb::load_global<1>(r, A + 128); }
    } else if (threadIdx.x == 0) {
        while (cb::load_flag(F) == 0u) {}
        cb::load_global<1>(r, A + 40);
        cb::store_global<1>(A + 128, one);
        cb::store_flag(F + 1, 1u);
    }"""
    for schedule in SCHEDULES:
        run(around, **schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_wait_for_each_other_in_any_order(schedule):
    """All blocks meet, as on a device that holds them all at once."""
    meet = f"""cb::store_global<1>(A + 64 * blockIdx.x + threadIdx.x, one); {BARRIER}
    if (threadIdx.x == 0) cb::store_flag(F + blockIdx.x, 1u);
    for (unsigned i = 0; i < gridDim.x; ++i) while (cb::load_flag(F + i) == 0u) {{}}
    cb::load_global<1>(r, A + 64 * ((blockIdx.x + 5) % gridDim.x) + threadIdx.x);
    cb::store_global<1>(A + 64 * (gridDim.x + blockIdx.x) + threadIdx.x, r);"""
    a, _ = run(meet, grid=12, words=64 * 24, **schedule)
    assert (a == 1).all()


def test_blocks_that_wait_for_nothing_are_a_deadlock():
    with pytest.raises(emulator.Deadlock, match=r"(?s)every thread of the 5 blocks that have begun waits.*flag in argument 'F'"):
        run("while (cb::load_flag(F + (blockIdx.x + 1) % gridDim.x) == 0u) {} " + STORE, grid=5)


def test_a_store_by_tma_is_known_once_it_has_been_waited_for():
    text = """
    auto* s = cb::shared_memory<int>(0);
    if (blockIdx.x == 0 && threadIdx.x == 0) {{
        int r[1] = {{7}};
        for (int i = 0; i < 32; ++i) cb::store_shared<1>(s + i, r);
        cb::fence_proxy_async();
        cb::tma_store(&map, s, 0, 0);
        cb::tma_store_commit();
        {0}
        cb::store_flag(F, 1u);
        cb::tma_store_wait<0>();
    }} else if (blockIdx.x == 1) {{
        int r[1];
        while (cb::load_flag(F) == 0u) {{}}
        cb::load_global<1>(r, A + threadIdx.x);
    }}"""
    for wait, right in (("cb::tma_store_wait<0>();", True), ("cb::tma_store_wait_read<0>();", False)):
        storage = np.zeros(64, np.int32)
        at = -storage.ctypes.data % 64 // 4
        a, f = storage[at:at + 32].reshape(1, 32), np.zeros(1, np.uint32)

        def both(wait=wait, a=a, f=f):
            launch(text.format(wait), (tensor_map("map", "int32"), A, F), (matrix_map(a, (32, 1), element="int32"), a, f),
                   grid=(2,), shared=1024)

        if right:
            both()
        else:
            with pytest.raises(emulator.DataRace, match="an asynchronous copy of another block wrote"):
                both()


def test_views_of_the_same_memory_are_one():
    memory = np.zeros(96, np.int32)
    text = ("int r[1] = {1}; "
            "if (blockIdx.x == 0) cb::store_global<1>(A + threadIdx.x, r); else cb::load_global<1>(r, B + threadIdx.x);")
    params = (ptr("A"), ptr("B", const=True))
    launch(text, params, (memory[:32], memory[32:]), grid=(2,))
    with pytest.raises(emulator.DataRace, match=r"reads bytes .* of argument 'B'"):
        launch(text, params, (memory[:32], memory[31:]), grid=(2,))
