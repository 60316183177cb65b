"""Barriers and asynchronous copies: what they order, and that accesses which they do not order are
errors in every schedule."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas import emulator

from .kernels import launch, ptr

SEEDS = [None, 0, 1, 2]

# Each thread writes its element of shared memory, reads that of its neighbour, and writes again.
EXCHANGE = """
int const t = threadIdx.x, n = blockDim.x; int r = t, q;
int* s = cb::shared_memory<int>(0);
cb::store_shared<1>(&s[t], &r);
{written}
cb::load_shared<1>(&q, &s[(t + 1) % n]);
{read}
r = q + 1;
cb::store_shared<1>(&s[t], &r);
{again}
cb::load_shared<1>(&q, &s[(t + 1) % n]);
cb::store_global<1>(&C[t], &q);
"""
BLOCK = {"written": "cb::syncthreads();", "read": "cb::syncthreads();",
         "again": "cb::syncthreads();"}


def exchange(threads: int, barriers: dict[str, str], seed: int | None) -> np.ndarray:
    c = np.full(threads, -1, np.int32)
    launch(EXCHANGE.format(**barriers), (ptr("C"),), (c,), threads=threads, shared=4 * threads,
           seed=seed)
    return c


@pytest.mark.parametrize("seed", SEEDS)
def test_block_barriers_order(seed: int | None) -> None:
    np.testing.assert_array_equal(exchange(96, BLOCK, seed), (np.arange(96) + 2) % 96 + 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("missing", BLOCK)
def test_every_missing_block_barrier_is_noticed(missing: str, seed: int | None) -> None:
    with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
        exchange(96, BLOCK | {missing: ""}, seed)


def test_a_race_names_both_sides() -> None:
    with pytest.raises(
        emulator.DataRace,
        match=r"thread 1, line 9: writes shared bytes \[4, 8\) that thread 0 read at line 6, and no barrier"
    ):
        exchange(96, BLOCK | {"read": ""}, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_warp_barriers_order_a_warp_and_no_more(seed: int | None) -> None:
    warp = dict.fromkeys(BLOCK, "cb::syncwarp();")
    np.testing.assert_array_equal(exchange(32, warp, seed), (np.arange(32) + 2) % 32 + 1)
    for missing in warp:
        with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
            exchange(32, warp | {missing: ""}, seed)
    for weak in BLOCK:
        with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
            exchange(64, BLOCK | {weak: "cb::syncwarp();"}, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_named_barriers_order(seed: int | None) -> None:
    named = {name: f"cb::named_barrier_sync({i + 1}, 96);" for i, name in enumerate(BLOCK)}
    np.testing.assert_array_equal(exchange(96, named, seed), (np.arange(96) + 2) % 96 + 1)
    for missing in named:
        with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
            exchange(96, named | {missing: ""}, seed)


PRODUCER_CONSUMER = """
int const t = threadIdx.x; int* s = cb::shared_memory<int>(0);
for (int step = 0; step < 3; ++step) {
  if (t < 32) {
    if (step > 0) {empty};
    int const r = 100 * step + t; cb::store_shared<1>(&s[t], &r);
    {full_arrive};
  } else {
    {full_wait};
    int q; cb::load_shared<1>(&q, &s[t - 32]); cb::store_global<1>(&C[32 * step + t - 32], &q);
    {empty_arrive};
  }
}
"""


def produce_and_consume(seed: int | None, **pieces: str) -> np.ndarray:
    statements = PRODUCER_CONSUMER
    for name, piece in pieces.items():
        statements = statements.replace("{" + name + "}", piece)
    c = np.full((3, 32), -1, np.int32)
    launch(statements, (ptr("C"),), (c,), threads=64, shared=256, seed=seed)
    return c


ARRIVALS = {
    "empty": "cb::named_barrier_sync(2, 64)",
    "full_arrive": "cb::named_barrier_arrive(1, 64)",
    "full_wait": "cb::named_barrier_sync(1, 64)",
    "empty_arrive": "if (step < 2) cb::named_barrier_arrive(2, 64)",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_arriving_at_a_named_barrier_publishes(seed: int | None) -> None:
    np.testing.assert_array_equal(produce_and_consume(seed, **ARRIVALS),
                                  100 * np.arange(3)[:, None] + np.arange(32))
    with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
        produce_and_consume(seed, **ARRIVALS | {"full_arrive": "", "full_wait": ""})
    with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
        produce_and_consume(seed, **ARRIVALS | {"empty": "", "empty_arrive": ""})


def test_named_barriers_refuse_what_the_hardware_does_not_define() -> None:
    for call, message in (
        ("0, 32", "from 1 to 15, got 0"),
        ("16, 32", "got 16"),
        ("1, 31", "whole warps"),
        ("1, 64", "in a block of 32"),
    ):
        with pytest.raises(emulator.BarrierError, match=message):
            launch(f"cb::named_barrier_sync({call});")
    with pytest.raises(emulator.BarrierError,
                       match="barrier 3 is used with 32 threads, but others at it said 64"):
        launch("cb::named_barrier_sync(3, threadIdx.x < 32 ? 64 : 32);", threads=64)


def test_two_writers_of_one_element_race() -> None:
    with pytest.raises(emulator.DataRace,
                       match=r"thread 1, line 2: writes .* that thread 0 wrote at line 2"):
        launch("int const r = 1; cb::store_shared<1>(cb::shared_memory<int>(0), &r);", shared=16)


def test_neighbouring_bytes_do_not_race() -> None:
    launch(
        """
        unsigned char r = threadIdx.x; cb::store_shared<1>(cb::shared_memory<unsigned char>(threadIdx.x), &r);
        cb::syncthreads();
        int q[4]; cb::load_shared<4>(q, cb::shared_memory<int>(16 * (threadIdx.x % 2)));
        cb::syncthreads();
        cb::store_shared<1>(cb::shared_memory<unsigned char>(31 - threadIdx.x), &r);
        """,
        shared=32,
    )


READERS = """
unsigned long long* bar = cb::shared_memory<unsigned long long>(64);
int const t = threadIdx.x; int q[4] = {}; unsigned char const b = 1;
if (t == 0) { cb::store_shared<4>(cb::shared_memory<int>(0), q); cb::mbarrier_init(bar, 1); }
cb::syncthreads();
if (t == {aside}) cb::load_shared<4>(q, cb::shared_memory<int>(0));
for (int i = 0; i < {times}; ++i) {
  if (t < 3) cb::load_shared<4>(q, cb::shared_memory<int>(0));
  if ({times} > 1 && t < 32) cb::syncwarp();
}
{before_arrival}
if (t == {arrives}) cb::mbarrier_arrive(bar);
if (t == 40) {
  cb::mbarrier_wait(bar, 0);
  {write}
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("times", [1, 200])
@pytest.mark.parametrize("write", ["cb::store_shared<4>(cb::shared_memory<int>(0), q);",
                                   "cb::store_shared<1>(cb::shared_memory<unsigned char>(9), &b);"])
def test_a_writer_must_know_every_reader(seed: int | None, times: int, write: str) -> None:
    """Knowing one reader is not enough, however often they read and however small the part that is
    written."""
    pieces = {"times": str(times), "write": write, "aside": "-1"}

    def run(**more: str) -> None:
        statements = READERS
        for name, piece in (pieces | more).items():
            statements = statements.replace("{" + name + "}", piece)
        launch(statements, threads=64, shared=72, seed=seed)

    for reader in range(3):
        run(arrives=str(reader), before_arrival="if (t < 32) cb::syncwarp();")
        if times == 1:
            with pytest.raises(emulator.DataRace):
                run(arrives=str(reader), before_arrival="")
    for reader, aside in (("35", "-1"), ("0", "33")):
        with pytest.raises(emulator.DataRace):
            run(arrives=reader, aside=aside, before_arrival="if (t < 32) cb::syncwarp();")


# Asynchronous copies

COPIES = """
int const t = threadIdx.x; int* s = cb::shared_memory<int>(0); int q[4];
cb::cp_async<4>(&s[4 * t], &A[4 * t], t != 3);
{commit}
{wait}
{barrier}
cb::load_shared<4>(q, &s[4 * ((t + {shift}) % 32)]);
cb::store_global<4>(&C[4 * t], q);
"""
COPIED = {"commit": "cb::cp_async_commit();", "wait": "cb::cp_async_wait<0>();",
          "barrier": "cb::syncthreads();", "shift": "1"}


def copy(**pieces: str) -> np.ndarray:
    a, c = np.arange(1, 129, dtype=np.int32), np.full(128, -1, np.int32)
    launch(COPIES.format(**COPIED | pieces), (ptr("A", const=True), ptr("C")), (a, c), shared=512)
    return c.reshape(32, 4)


def test_asynchronous_copies_arrive_and_zero_fill() -> None:
    want = np.arange(1, 129).reshape(32, 4)
    want[3] = 0
    np.testing.assert_array_equal(copy(), np.roll(want, -1, 0))
    np.testing.assert_array_equal(copy(barrier="", shift="0"), want)


def test_asynchronous_copies_must_be_waited_for() -> None:
    own, other = (
        "of this thread at line 3 fills, which it has not waited for",
        "of thread 1 at line 3 fills, which that thread has not waited for",
    )
    for missing in ("commit", "wait"):
        with pytest.raises(emulator.AsyncCopyError, match=own):
            copy(**{missing: "", "shift": "0"})
        with pytest.raises(emulator.AsyncCopyError, match=other):
            copy(**{missing: ""})
    with pytest.raises(emulator.AsyncCopyError, match=own):
        copy(wait="cb::cp_async_wait<1>();", shift="0")
    with pytest.raises(emulator.AsyncCopyError, match="writes shared"):
        copy(barrier="", wait="int const z = 0; cb::store_shared<1>(&s[4 * t], &z);")


def test_a_barrier_is_needed_after_waiting_for_copies() -> None:
    with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
        copy(barrier="")


def test_waiting_leaves_the_newest_groups_in_flight() -> None:
    statements = """
        int* s = cb::shared_memory<int>(0); int q;
        for (int i = 0; i < 3; ++i) { cb::cp_async<1>(&s[i], &A[i], true); cb::cp_async_commit(); }
        cb::cp_async_wait<1>();
        cb::load_shared<1>(&q, &s[{index}]); cb::store_global<1>(&C[0], &q);
        """
    a, c = np.array([5, 6, 7], np.int32), np.zeros(1, np.int32)
    launch(statements.replace("{index}", "1"), (ptr("A", const=True), ptr("C")), (a, c), threads=1,
           shared=64)
    assert c[0] == 6
    with pytest.raises(emulator.AsyncCopyError):
        launch(statements.replace("{index}", "2"), (ptr("A", const=True), ptr("C")), (a, c),
               threads=1, shared=64)


def test_copies_of_one_and_two_bytes_are_synchronous() -> None:
    a, c = np.arange(32, dtype=np.int16), np.zeros(32, np.int16)
    launch(
        """
        short* s = cb::shared_memory<short>(0); short q; int const t = threadIdx.x;
        cb::cp_async<1>(&s[t], &A[t], t < 20);
        cb::load_shared<1>(&q, &s[t]); cb::store_global<1>(&C[t], &q);
        """,
        (ptr("A", "int16", const=True), ptr("C", "int16")),
        (a, c),
        shared=64,
    )
    np.testing.assert_array_equal(c, np.where(a < 20, a, 0))


# Deadlocks


def test_a_block_barrier_that_some_threads_never_reach() -> None:
    with pytest.raises(
        emulator.BarrierError,
        match="syncthreads needs every thread of the block, but thread 40 returned before it"
    ):
        launch("if (threadIdx.x < 40) cb::syncthreads();", threads=64)
    with pytest.raises(emulator.Deadlock) as caught:
        launch(
            """
            if (threadIdx.x == 7) cb::named_barrier_sync(3, 64);
            else if (threadIdx.x / 32 == 1) cb::syncwarp();
            cb::syncthreads();
            """,
            threads=64,
        )
    text = str(caught.value)
    assert "thread 7 waits at line 2 for named barrier 3: 1 of 64 threads have arrived" in text
    assert "threads 0-6, 8-63 wait at line 4 for the block barrier (syncthreads): 63 of 64 threads have arrived" in text


def test_a_warp_barrier_that_a_lane_never_reaches() -> None:
    with pytest.raises(emulator.Deadlock,
                       match=r"the barrier of warp 1 \(syncwarp\): 31 of 32 threads"):
        launch("if (threadIdx.x != 40) cb::syncwarp();", threads=64)


# mbarriers

MBARRIERS = {
    "empty": "cb::mbarrier_wait(bar + 1, step - 1 & 1)",
    "full_arrive": "cb::mbarrier_arrive(bar)",
    "full_wait": "cb::mbarrier_wait(bar, step & 1)",
    "empty_arrive": "cb::mbarrier_arrive(bar + 1)",
}
INIT = """
unsigned long long* bar = cb::shared_memory<unsigned long long>(128);
if (threadIdx.x == 0) { cb::mbarrier_init(bar, 32); cb::mbarrier_init(bar + 1, 32); cb::mbarrier_init_fence(); }
cb::syncthreads();
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_mbarriers_order(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PRODUCER_CONSUMER", INIT + PRODUCER_CONSUMER)
    np.testing.assert_array_equal(produce_and_consume(seed, **MBARRIERS),
                                  100 * np.arange(3)[:, None] + np.arange(32))
    with pytest.raises((emulator.DataRace, emulator.UnwrittenRead)):
        produce_and_consume(seed, **MBARRIERS | {"full_wait": ""})
    with pytest.raises(emulator.EmulatorError):
        produce_and_consume(seed, **MBARRIERS | {"empty": ""})
    with pytest.raises(
        emulator.Deadlock,
        match=r"mbarrier at shared offset 128: in phase 0, 31 of 32 arrivals are in and 0 bytes are missing"
    ):
        produce_and_consume(seed,
                            **MBARRIERS | {"full_arrive": "if (t != 5) cb::mbarrier_arrive(bar)"})


def mbarrier(statements: str, threads: int = 1) -> None:
    launch("unsigned long long* bar = cb::shared_memory<unsigned long long>(0);\n" + statements,
           threads=threads, shared=64)


def test_mbarriers_must_be_initialised_once_and_before_use() -> None:
    for call in ("cb::mbarrier_arrive(bar);", "cb::mbarrier_wait(bar, 0);",
                 "cb::mbarrier_arrive_expect_tx(bar, 16);"):
        with pytest.raises(emulator.MbarrierError, match="which nothing has initialised"):
            mbarrier(call)
    with pytest.raises(emulator.MbarrierError, match="a second time"):
        mbarrier("cb::mbarrier_init(bar, 1); cb::mbarrier_init(bar, 1);")
    with pytest.raises(emulator.MisalignedAccess):
        mbarrier("cb::mbarrier_init(cb::shared_memory<unsigned long long>(4), 1);")
    with pytest.raises(emulator.MbarrierError, match="counts 1 to"):
        mbarrier("cb::mbarrier_init(bar, 0);")
    with pytest.raises(emulator.DataRace, match="that thread 0 initialised, and no barrier"):
        mbarrier("if (threadIdx.x == 0) cb::mbarrier_init(bar, 2); cb::mbarrier_arrive(bar);",
                 threads=2)


def test_mbarriers_count_arrivals_and_bytes() -> None:
    with pytest.raises(emulator.MbarrierError,
                       match=r"whose 1 arrivals of phase 0 are all in \(16 bytes are missing\)"):
        mbarrier(
            "cb::mbarrier_init(bar, 1); cb::mbarrier_arrive_expect_tx(bar, 16); cb::mbarrier_arrive(bar);"
        )
    with pytest.raises(emulator.Deadlock, match="1 of 1 arrivals are in and 16 bytes are missing"):
        mbarrier(
            "cb::mbarrier_init(bar, 1); cb::mbarrier_arrive_expect_tx(bar, 16); cb::mbarrier_wait(bar, 0);"
        )
    with pytest.raises(emulator.MbarrierError, match="parity"):
        mbarrier("cb::mbarrier_init(bar, 1); cb::mbarrier_wait(bar, 2);")


def test_mbarriers_are_not_ordinary_memory() -> None:
    with pytest.raises(emulator.MbarrierError,
                       match=r"reads shared bytes \[0, 8\), which hold an mbarrier"):
        mbarrier("cb::mbarrier_init(bar, 1); unsigned long long r; cb::load_shared<1>(&r, bar);")
