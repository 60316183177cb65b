"""A ring of stages: which role waits for which, for which phase."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import CpAsync, Vector
from cuteblas.codegen.mbarrier import initialise
from cuteblas.codegen.pipeline import Pipeline
from cuteblas.layout import Layout, Tensor, _

STAGES, ROWS, WARP = 3, 8, 32


def column_sums():
    """One warp loads rows, another one adds them up."""
    k = KernelBuilder("column_sums", 2 * WARP, arch="sm_90")
    A, S, N = k.pointer("A", "float32"), k.pointer("S", "float32", const=False), k.integer("N")
    ring = k.shared("ring", "float32", Layout((1, WARP, STAGES)))
    pipeline = Pipeline(k, STAGES, filled=WARP, emptied=WARP)
    with k.when(k.thread.eq(0)):
        initialise(k, *pipeline.barriers)
    k.barrier()
    lane = k.let("lane", k.thread % WARP)
    with k.when(k.thread < WARP):
        stage = pipeline.state()
        with k.loop("row", N) as row:
            pipeline.acquire(stage)
            k.copy(CpAsync(1), Tensor(A, Layout((1, WARP, N)))[_, lane, row],
                   ring[_, lane, stage.index])
            k.commit()
            k.wait(0)
            pipeline.commit(stage.index)
            stage.advance()
    with k.otherwise():
        stage = pipeline.state()
        total, value = (k.registers(name, "float32", Layout(1)) for name in ("total", "value"))
        k.fill(total)
        with k.loop("row", N):
            pipeline.wait(stage)
            k.copy(Vector(1), ring[_, lane, stage.index], value)
            k.fold(total, value)
            pipeline.release(stage.index)
            stage.advance()
        k.copy(Vector(1), total, Tensor(S, Layout((1, WARP)))[_, lane])
    return k.build()


def sums(kernel, seed=None):
    a, s = np.arange(float(ROWS * WARP), dtype="f4").reshape(ROWS, WARP), np.full(WARP, np.nan, "f4")
    emulator.compile(kernel).launch((1, 1, 1), [emulator.pointer(a), emulator.pointer(s), ROWS],
                                    seed=seed)
    return a.sum(axis=0), s


def test_rows_go_round_the_ring():
    kernel = column_sums()
    for seed in (None, 1, 2):
        np.testing.assert_array_equal(*sums(kernel, seed))
    assert kernel.body.count("parity = stage == 2 ? parity ^ 1 : parity;") == 2
    assert "cb::mbarrier_wait(&empty[stage], parity ^ 1);" in kernel.body and "cb::mbarrier_init(&full[2], 32);" in kernel.body


@pytest.mark.parametrize("fault", [(r"cb::mbarrier_wait\(&empty[^;]*;", ""),
                                   (r"cb::mbarrier_wait\(&full[^;]*;", ""),
                                   (r"(&empty\[stage\], parity) \^ 1", r"\1"),
                                   (r"(&full\[stage\], parity)\)", r"\1 ^ 1)"),
                                   (r"parity = stage == 2 \?[^;]*;", ""),
                                   (r"cb::cp_async_wait<0>\(\);", ""),
                                   (r"cb::mbarrier_arrive\(&full[^;]*;", ""),
                                   (r"cb::mbarrier_arrive\(&empty[^;]*;", "")])
def test_a_fault_is_seen(fault):
    kernel = column_sums()
    body, found = re.subn(*fault, kernel.body)
    assert found

    def is_right(seed):
        try:
            want, got = sums(replace(kernel, body=body), seed)
        except emulator.EmulatorError:
            return False
        return np.array_equal(want, got)

    assert not all(is_right(seed) for seed in (None, 1, 2))


def test_a_second_ring_has_names_of_its_own():
    k = KernelBuilder("probe", 32, arch="sm_90", cluster=2)
    buffers = Pipeline(k, 2, filled=1, emptied=1, names=("ready", "free"), stage="buffer")
    at = buffers.state()
    buffers.acquire(at)
    buffers.expect(at, 512)
    buffers.release(at.index, rank=1)
    assert k.build().body.endswith("""\
  int buffer = 0;
  int parity_of_buffer = 0;
  cb::mbarrier_wait(&free[buffer], parity_of_buffer ^ 1);
  cb::mbarrier_arrive_expect_tx(&ready[buffer], 512);
  cb::mbarrier_arrive_at(&free[buffer], 1);
}
""")
    assert buffers.barrier(at).address == "&ready[buffer]"
