"""Barriers in shared memory."""

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.mbarrier import Mbarriers, initialise


def test_all_barriers_are_initialised_by_one_thread():
    k = KernelBuilder("probe", 64, arch="sm_90")
    came, left = Mbarriers(k, "came", 2, arrivals=3), Mbarriers(k, "left", 1, arrivals=1)
    with k.when(k.thread.eq(0)):
        initialise(k, came, left)
    came.expect(1, 512)
    left.arrive_at(0, 5)
    lines = [line.strip() for line in k.build().body.splitlines() if "cb::mbarrier" in line]
    assert lines == ["cb::mbarrier_init(&came[0], 3);", "cb::mbarrier_init(&came[1], 3);",
                     "cb::mbarrier_init(&left[0], 1);", "cb::mbarrier_init_fence();",
                     "cb::mbarrier_arrive_expect_tx(&came[1], 512);",
                     "cb::mbarrier_arrive_at(&left[0], 5);"]
