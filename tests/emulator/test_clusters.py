"""Clusters: blocks that run together, copies to several of them, arrivals at each other's
mbarriers."""

from __future__ import annotations

import numpy as np
import pytest

from cuteblas import emulator

from .kernels import aligned, launch, matrix_map, ptr, tensor_map

# Each of two blocks brings half of a tile to both, twice; then every block writes down what it has.
SHARE = """
int const rank = blockIdx.x % 2;
unsigned long long* full = cb::shared_memory<unsigned long long>(1024);
unsigned long long* empty = cb::shared_memory<unsigned long long>(1032);
cb::half* s = cb::shared_memory<cb::half>(0);
if (threadIdx.x == 0) { cb::mbarrier_init(full, 1); cb::mbarrier_init(empty, {arrivals}); {init_fence} }
cb::syncthreads();
{begin}
for (int step = 0; step < 2; ++step) {
  if (threadIdx.x == 0) {
    {before_load}
    cb::mbarrier_arrive_expect_tx(full, {bytes});
    cb::tma_load_multicast(s + rank * 256, &map, full, {mask}, 0, 32 * step + 16 * rank);
  }
  cb::mbarrier_wait(full, step & 1);
  for (int i = threadIdx.x; i < 512; i += 32) {
    cb::half r;
    cb::load_shared<1>(&r, &s[i]);
    cb::store_global<1>(&C[(blockIdx.x * 2 + step) * 512 + i], &r);
  }
  {release}
}
{end}
"""
SHARED = {
    "arrivals": "2",
    "bytes": "1024",
    "mask": "3",
    "init_fence": "cb::mbarrier_init_fence();",
    "begin": "cb::cluster_sync();",
    "before_load": "if (step > 0) cb::mbarrier_wait(empty, step - 1 & 1);",
    "release": "cb::syncwarp(); if (step < 1 && threadIdx.x < 2) cb::mbarrier_arrive_at(empty, threadIdx.x);",
    "end": "cb::cluster_sync();",
}


def share(grid: int = 2, seed: int | None = None, blocks: list[int] | None = None,
          **pieces: str) -> tuple[np.ndarray, np.ndarray]:
    """What every block had of the tiles in both steps, and the tiles."""
    statements = SHARE
    for name, piece in (SHARED | pieces).items():
        statements = statements.replace("{" + name + "}", piece)
    tiles, seen = aligned((64, 16), "float16"), np.zeros((grid, 2, 32, 16), np.float16)
    tiles[...] = np.arange(tiles.size).reshape(tiles.shape)
    arguments = (matrix_map(tiles, (16, 16)), seen)
    parameters = (tensor_map("map"), ptr("C", "float16"))
    launch(statements, parameters, arguments, shared=1040, grid=(grid,), cluster=(2, 1, 1),
           seed=seed, blocks=blocks)
    return seen, tiles.reshape(2, 32, 16)


# Reads of shared memory by threads are not asynchronous operations, so an arrival that says so has
# to be one that publishes them.
FENCED = {"release": "cb::cluster_sync();", "before_load": ""}


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_multicast_fills_every_block_of_its_set(seed: int | None) -> None:
    seen, tiles = share(seed=seed, release="break;")
    np.testing.assert_array_equal(seen[:, 0], [tiles[0], tiles[0]])


def test_only_clusters_that_are_asked_for_run() -> None:
    seen, tiles = share(grid=6, blocks=[3, 2], release="break;")
    np.testing.assert_array_equal(seen[2:4, 0], [tiles[0]] * 2)
    assert not seen[:2].any() and not seen[4:].any()
    with pytest.raises(ValueError, match=r"clusters of .* do not divide a grid"):
        share(grid=3)


def test_a_relaxed_arrival_does_not_tell_of_ordinary_reads() -> None:
    with pytest.raises(
        emulator.DataRace,
        match=r"the TMA load.* overwrites .* read at line .*, and no barrier orders the two"
    ):
        share()
    with pytest.raises(emulator.DataRace, match=r"overwrites"):
        share(**FENCED)


def test_mbarriers_must_be_initialised_for_the_whole_cluster() -> None:
    with pytest.raises((emulator.DataRace, emulator.MbarrierError), match=r"initialised"):
        share(begin="", release="break;")
    with pytest.raises(
        emulator.ProxyFenceError,
        match=r"thread 0 of block . of the cluster did not execute mbarrier_init_fence"
    ):
        share(init_fence="", release="break;")
    with pytest.raises(emulator.DataRace,
                       match=r"offset 1032 that thread 0 of block . of the cluster initialised"):
        share(init_fence="", begin="cb::cluster_sync(); cb::mbarrier_arrive_at(empty, 1 - rank);")


def test_a_block_may_not_end_while_others_still_reach_for_it() -> None:
    ends = r"the block ends and nothing in it has waited for the arrival of thread . of block . of the cluster"
    release = "if (threadIdx.x < 2) cb::mbarrier_arrive_at(empty, threadIdx.x); break;"
    share(release=release)
    with pytest.raises((emulator.MbarrierError, emulator.SharedOutOfBounds),
                       match=f"{ends}|which has ended"):
        share(release=release, end="")
    share(release=release, end="if (threadIdx.x == 0) cb::mbarrier_wait(empty, 0);")
    with pytest.raises((emulator.AsyncCopyError, emulator.SharedOutOfBounds),
                       match=r"without having waited|has ended|ends while"):
        share(begin="cb::cluster_sync(); if (rank == 1) return;", release="break;", end="")


def test_sets_and_ranks_lie_in_the_cluster() -> None:
    with pytest.raises(emulator.SharedOutOfBounds, match=r"block 2 of the cluster, which has 2"):
        share(mask="7")
    with pytest.raises(emulator.TensorMapError, match=r"blocks 0 to 15"):
        share(mask="0")
    with pytest.raises(emulator.SharedOutOfBounds, match=r"block 2 of the cluster"):
        share(release="if (threadIdx.x == 0) cb::mbarrier_arrive_at(empty, 2); break;")


def test_a_wait_without_enough_arrivals_says_which_block() -> None:
    with pytest.raises(emulator.Deadlock,
                       match=r"block 1 of the cluster: threads 0-31 wait at line \d+ for a phase"):
        share(mask="1", bytes="1024", release="break;")
    with pytest.raises(
        emulator.Deadlock,
        match=r"the cluster barrier \(cluster_sync\): 62 of 64 threads have arrived"
    ):
        share(release="if (threadIdx.x == 3) cb::mbarrier_wait(full, 1); break;")


def test_blocks_of_a_cluster_have_shared_memory_and_barriers_of_their_own() -> None:
    seen = np.zeros((6, 64), np.int32)
    launch(
        """
        int* s = cb::shared_memory<int>(0);
        int r = 1000 * (blockIdx.x + 3 * blockIdx.y) + threadIdx.x;
        cb::store_shared<1>(&s[threadIdx.x], &r);
        if (blockIdx.x == 1) cb::syncthreads();
        cb::syncthreads();
        bool const any = cb::syncthreads_or(blockIdx.x == 2 && threadIdx.x == 5);
        cb::named_barrier_sync(1 + threadIdx.x / 32, 32);
        cb::load_shared<1>(&r, &s[63 - threadIdx.x]);
        if (any) r = -r;
        cb::store_global<1>(&C[(blockIdx.x + 3 * blockIdx.y) * 64 + threadIdx.x], &r);
        """,
        (ptr("C"),),
        (seen,),
        threads=64,
        shared=256,
        grid=(3, 2),
        cluster=(3, 2, 1),
    )
    want = 1000 * np.arange(6)[:, None] + 63 - np.arange(64)
    want[[2, 5]] *= -1
    np.testing.assert_array_equal(seen, want)


def test_what_clusters_need() -> None:
    with pytest.raises(ValueError, match=r"whole warps in the emulator, got 48 threads"):
        launch("", threads=48, cluster=(2, 1, 1), grid=(2,))
    with pytest.raises(emulator.MisuseError, match=r"a whole warpgroup"):
        launch("float d[4]; cb::wgmma_m64k16<8, cb::half, 0, 0>(d, 0, 0, 0);", threads=160,
               cluster=(2, 1, 1), grid=(2,))


# Every block tells all four a word; they add up what they are told. Twice, in two places.
TELL = """
int const rank = blockIdx.x % 4;
unsigned long long* came = cb::shared_memory<unsigned long long>(64);
int* told = cb::shared_memory<int>(0);
if (threadIdx.x == 0) {
  for (int i = 0; i < 2; ++i) { cb::mbarrier_init(came + i, 1); }
  cb::mbarrier_init_fence();
  for (int i = 0; i < 2; ++i) cb::mbarrier_arrive_expect_tx(came + i, {bytes});
}
{begin}
for (int step = 0; step < 2; ++step) {
  if (threadIdx.x < 4) cb::store_async(&told[4 * {place} + rank], 100 * (step + 1) + rank, {to}, came + step);
  {wait}
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    int word;
    cb::load_shared<1>(&word, &told[4 * {place} + i]);
    sum += word;
  }
  if (threadIdx.x == 5) cb::store_global<1>(&C[2 * blockIdx.x + step], &sum);
  {step_end}
}
{end}
"""
TOLD = {
    "bytes": "16",
    "begin": "cb::cluster_sync();",
    "place": "step",
    "to": "threadIdx.x",
    "wait": "cb::mbarrier_wait(came + step, 0);",
    "step_end": "",
    "end": "",
}


def tell(seed: int | None = None, **pieces: str) -> np.ndarray:
    """What every block added up in both steps."""
    statements = TELL
    for name, piece in (TOLD | pieces).items():
        statements = statements.replace("{" + name + "}", piece)
    seen = np.zeros((8, 2), np.int32)
    launch(statements, (ptr("C"),), (seen,), shared=80, grid=(8,), cluster=(4, 1, 1), seed=seed)
    return seen


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_words_are_stored_into_other_blocks(seed: int | None) -> None:
    np.testing.assert_array_equal(tell(seed), [[406, 806]] * 8)


def test_words_must_be_waited_for() -> None:
    with pytest.raises(emulator.AsyncCopyError,
                       match=r"that a store_async at line \d+ fills, without having waited for"):
        tell(wait="cb::syncthreads();")
    with pytest.raises(emulator.AsyncCopyError,
                       match=r"ends without having waited for the last copy that completes on"):
        tell(wait="if (step == 1) return; cb::mbarrier_wait(came + step, 0);")
    with pytest.raises(emulator.Deadlock, match=r"1 of 1 arrivals are in and 4 bytes are missing"):
        tell(bytes="20")
    with pytest.raises(emulator.AsyncCopyError,
                       match=r"reads shared bytes \[12, 16\) that a store_async"):
        tell(bytes="12")


def test_words_do_not_overtake_those_who_read() -> None:
    either = (emulator.DataRace, emulator.AsyncCopyError)
    race = r"the store_async.* overwrites shared bytes|reads shared bytes .* that a store_async at line"
    for step_end in ("", "cb::syncthreads();"):
        with pytest.raises(either, match=race):
            tell(place="0", step_end=step_end)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_an_ordered_barrier_of_the_cluster_lets_words_come_where_others_were_read(
    seed: int | None
) -> None:
    np.testing.assert_array_equal(tell(seed, place="0", step_end="cb::cluster_sync_ordered();"),
                                  [[406, 806]] * 8)
    for relaxed in ("cb::cluster_sync();",
                    "if (rank == 1) cb::cluster_sync(); else cb::cluster_sync_ordered();"):
        with pytest.raises(emulator.DataRace, match=r"the store_async.* overwrites shared bytes"):
            tell(seed, place="0", step_end=relaxed)


def test_words_go_to_blocks_that_have_begun_and_not_ended() -> None:
    with pytest.raises((emulator.DataRace, emulator.MbarrierError), match=r"initialised"):
        tell(begin="")
    with pytest.raises(emulator.SharedOutOfBounds,
                       match=r"shared memory of block 4 of the cluster, which has 4"):
        tell(to="threadIdx.x + 1")
    with pytest.raises((emulator.SharedOutOfBounds, emulator.AsyncCopyError),
                       match=r"has ended|without having waited"):
        tell(begin="cb::cluster_sync(); if (rank == 1) return;")
