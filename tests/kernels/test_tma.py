"""Copies and transposes by TMA: exact, inside their memory, without bank conflicts; and what the
hardware does not take."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.tutorial.tma import TmaTransposeConfig, tma_transpose

from .engines import Strided, aligned, copy_problem
from .moves import SIZES, check_counts, move, scrambled

ITEMS = [item for item in SIZES if item <= 8]


@pytest.fixture
def hopper(engine):
    if engine.device.arch < "sm_90":
        pytest.skip(f"TMA needs sm_90, this is {engine.device.arch}")
    return engine


# -- copies ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("shape, pads", [((70, 512), (0, 0)), ((33, 112), (16, 32)),
                                         ((5, 16), (32, 16)), ((1, 16), (0, 0)),
                                         ((300, 48), (16, 32))])
def test_copies(hopper, item, shape, pads):
    plan = move(hopper, scrambled(shape, item), (0, 1), src_pad=pads[0], dst_pad=pads[1],
                variant="tma_copy")
    assert plan.family == "tma_copy" and "load_global" not in plan.launches[0].kernel.body


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (0, 2, 1, 3), (2, 1, 0, 3),
                                  (1, 3, 0, 2, 4)])
@pytest.mark.parametrize("item", [2, 8])
def test_batches_of_rows(hopper, item, axes):
    move(hopper, scrambled((3, 5, 2, 4, 24)[5 - len(axes):], item), axes, variant="tma_copy")


@pytest.mark.parametrize("n", [256, 5000, 5004, 4, 48, 4096])
def test_one_mode(hopper, n):
    move(hopper, scrambled((n,), 4), (0,), variant="tma_copy")


def test_rows_backwards_and_moved(hopper):
    move(hopper, scrambled((20, 64), 4), (0, 1), src_offset=8, dst_offset=4, variant="tma_copy")
    move(hopper, scrambled((20, 64), 4), (0, 1), flip=(("src", 0), ("dst", 0)), variant="tma_copy")


# -- transposes ------------------------------------------------------------------------------------
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("extents", [(128, 128), (144, 160), (130, 48), (131, 80), (16, 16),
                                     (1, 64), (64, 16)])
def test_transposes(hopper, item, extents):
    plan = move(hopper, scrambled(extents, item), (1, 0), variant="tma_transpose")
    assert plan.family == "tma_transpose"
    assert plan.config.store == np.gcd(16, extents[0] * item)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("options", [{"dst_offset": 1}, {"dst_pad": 2}, {"src_pad": 16},
                                     {"src_offset": 16, "dst_offset": 3, "dst_pad": 5}], ids=str)
def test_padding_and_alignment(hopper, item, options):
    move(hopper, scrambled((144, 48), item), (1, 0), variant="tma_transpose", **options)


def test_columns_past_a_multiple_of_16_bytes(hopper):
    move(hopper, scrambled((64, 37), 4), (1, 0), src_pad=3, variant="tma_transpose")
    move(hopper, scrambled((64, 37), 1), (1, 0), src_pad=11, variant="tma_transpose")


def test_offsets_of_64_bits(hopper):
    values = scrambled((68, 40), 4)
    src, dst = (Strided(aligned(68 * 40, "u4"), 0, (40, 68), s) for s in ((1, 40), (68, 1)))
    src.view[...] = values.T
    plan = plan_copy(replace(copy_problem(src, dst), variant="tma_transpose"), hopper.device)
    wide = tma_transpose(replace(plan.config, wide=True))
    hopper.run(replace(plan, launches=(replace(plan.launches[0], kernel=wide),)), src=src, dst=dst)
    np.testing.assert_array_equal(dst.view, src.view)
    assert plan_copy(CopyProblem((2**16, 2**15), (1, 2**16), (2**15, 1), 1,
                                 variant="tma_transpose"), H200).config.wide


@pytest.mark.parametrize("item", ITEMS)
def test_vectors_of_16_bytes_and_no_bank_conflicts(item):
    facts = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item,
                                  variant="tma_transpose"), H200).facts
    assert facts["global store D"] == "16 bytes a lane: 16 sectors of at least 16"
    assert "no bank conflict" in facts["shared load sT"]
    assert "swizzled over 128 bytes" in facts["tensor map S"]


@pytest.mark.parametrize("item", ITEMS)
def test_the_emulator_counts_what_the_plan_says(item):
    check_counts((256, 256), item, "tma_transpose")


@pytest.mark.parametrize("item", ITEMS)
def test_narrow_vectors_have_no_bank_conflicts_either(item):
    for m in (8191, 8190, 8188, 8184):
        facts = plan_copy(CopyProblem((8192, m), (1, 8192), (m, 1), item, variant="tma_transpose"),
                          H200).facts
        assert "no bank conflict" in facts["shared load sT"], (m, facts)


def test_the_tile_is_what_the_box_fills():
    """The words that threads read are those of the elements of the box."""
    for config in (TmaTransposeConfig(1), TmaTransposeConfig(2), TmaTransposeConfig(2, 2),
                   TmaTransposeConfig(8)):
        vector, vectors, line = config.tile
        for v in range(vector):
            for h in (0, 3, vectors - 1):
                for n in range(0, line, config.packed):
                    assert config.shared(v, h, n // config.packed) * config.word == config.box.layout(v, h, n) * config.item


# -- what the hardware does not take ---------------------------------------------------------------
GOOD = CopyProblem((64, 128), (128, 1), (128, 1), 4, variant="tma_copy")
TRANSPOSE = CopyProblem((64, 128), (128, 1), (1, 64), 4, variant="tma_transpose")


@pytest.mark.parametrize(
    "problem, message",
    [
        (replace(GOOD, itemsize=16), "elements of 1, 2, 4 or 8 bytes, got 16"),
        (
            replace(GOOD, src_alignment=8),
            "addresses that are multiples of 16 bytes; that of the source is a multiple of 8"
        ),
        (
            replace(GOOD, dst_alignment=4),
            "addresses that are multiples of 16 bytes; that of the target is a multiple of 4"
        ),
        (
            CopyProblem((64, 10), (16, -1), (16, -1), 4, variant="tma_copy"),
            "that of the source is a multiple of 4"
        ),
        (
            CopyProblem((64, 9), (16, -1), (32, -1), 4, dst_alignment=8, variant="tma_copy"),
            "that of the target is a multiple of 8"
        ),
        (
            replace(GOOD, src_strides=(130, 1)),
            "positive multiples of 16 bytes, below 2\\^40, got 130 elements of 4 bytes"
        ),
        (replace(GOOD, dst_strides=(129, 1)), "got 129 elements of 4 bytes in the target"),
        (replace(GOOD, src_strides=(0, 1)), "got 0 elements of 4 bytes in the source"),
        (
            replace(GOOD, src_strides=(1, 64)),
            "tma_copy moves rows: one mode has stride 1 in source and target"
        ),
        (
            CopyProblem(
                (2,) * 5 + (8,),
                (8, 16, 32, 64, 128, 1),
                (128, 64, 32, 16, 8, 1),
                4,
                variant="tma_copy"
            ),
            "at most 5 modes"
        ),
        (
            CopyProblem((2, 2**31), (2**31, 1), (2**32, 1), 1, variant="tma_copy"),
            "at most 2\\^31 - 256 elements"
        ),
        (
            CopyProblem((33, 100), (112, 1), (128, 1), 1, variant="tma_copy"),
            "rows are multiples of that, got 100 elements of 1 bytes"
        ),
        (CopyProblem((5001,), (1,), (1,), 4, variant="tma_copy"), "got 5001 elements of 4 bytes"),
        (replace(TRANSPOSE, itemsize=16), "elements of 1, 2, 4 or 8 bytes, got 16"),
        (replace(TRANSPOSE, src_alignment=4), "that of the source is a multiple of 4"),
        (replace(TRANSPOSE, src_strides=(129, 1)), "got 129 elements of 4 bytes in the source"),
        (replace(TRANSPOSE, dst_strides=(132, 1)), "transposes matrices"),
    ]
)
def test_refusals(problem, message):
    with pytest.raises(ValueError, match=message):
        plan_copy(problem, H200)


def test_one_long_mode_is_divided_into_rows():
    plan = plan_copy(CopyProblem((2**33,), (1,), (1,), 4, variant="tma_copy"), H200)
    assert "(256, 33554432) elements of 4 bytes, strides (1024,) bytes, box (256, 16), not swizzled" in plan.facts["tensor map S"]


@pytest.mark.parametrize("arch", ["sm_70", "sm_89"])
def test_older_devices(arch):
    for problem in (GOOD, TRANSPOSE):
        with pytest.raises(
            ValueError, match=f"needs the tensor memory accelerator of sm_90 and later, got {arch}"
        ):
            plan_copy(problem, replace(H200, arch=arch))
    assert plan_copy(GOOD, replace(H200, arch="sm_120")).launches


def test_configurations_that_do_not_exist():
    with pytest.raises(CodegenError, match="1, 2, 4 or 8 bytes"):
        TmaTransposeConfig(16)
    with pytest.raises(CodegenError, match="does not divide among 1024 threads"):
        tma_transpose(TmaTransposeConfig(1, threads=1024))
