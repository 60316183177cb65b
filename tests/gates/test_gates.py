"""Nothing moves unseen: kernels, choices of planning, and their regret (CONTRIBUTING.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuteblas.planning.gemm.dispatch import FAMILIES, PRECISIONS

from . import choices, kernels, regret
from .problems import problem_named

MOVED = "; if that is meant, python -m tests.gates.{0} --update writes the committed file again"


@pytest.fixture(scope="module")
def made():
    return kernels.texts()


def test_kernels_have_their_committed_text(made):
    changed, new, gone = kernels.changes(made, kernels.committed())
    assert not (changed or new or gone), (
        f"{len(changed)} kernels have another text, {len(new)} are new, {len(gone)} are gone, "
        "the first of them "
        f"{(changed + new + gone)[0]}: python -m tests.gates.kernels shows how"
        + MOVED.format("kernels")
    )


def test_kernels_are_of_all_families_and_architectures(made):
    assert len(made) >= 200
    assert {row.family for row in kernels.ROWS} >= {family.name for family in FAMILIES}
    assert {text.place for text in made.values()} == {
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_90",
        "sm_90a",
        "sm_100",
    }
    for part in (
        "grouped",
        "modes222",
        "reduce_split",
        "reduce_sum",
        "reduce_max",
        "reduce_dot",
        "copy_",
        "transpose_in_place",
        "g32c_",
        "ragged",
        "_if2",
        "modular_choice",
        "modular_survey",
        "modular_residues",
        "modular_restore",
        "split_fp16x3",
        "split_bf16x6",
    ):
        assert any(part in name for name in made), part


def test_a_changed_kernel_is_shown_with_its_difference(made):
    name = next(name for name in made if name.startswith("gemm_thin"))
    before = dict(made)
    now = made | {
        name: replace(made[name], source=made[name].source.replace("unroll 1", "unroll 2"))
    }
    assert kernels.changes(now, {each: text.digest for each, text in before.items()}) == (
        [name],
        [],
        [],
    )
    said = "\n".join(kernels.report(now, before, [name]))
    assert name in said and "-#pragma unroll 1" in said and "+#pragma unroll 2" in said


def test_resources_are_those_of_the_assembler(made):
    pytest.importorskip("cuda.core", reason="NVRTC comes with the extra 'test'")
    name = next(name for name in made if name.startswith("gemm_thin"))
    try:
        found = kernels.resources(made[name])
    except SystemExit as missing:
        pytest.skip(str(missing))
    assert 16 <= found.registers <= 255 and found.instructions > 100
    assert (found.stack, found.spilled) == (0, 0) and str(found.registers) in str(found)


@pytest.mark.parametrize("card", choices.CARDS)
def test_choices_are_the_committed_ones(card):
    moved = list(choices.moves(card, choices.part()))
    assert not moved, (
        f"{len(moved)} choices of {len(choices.part())} moved on {card}, the first {moved[0]}: "
        "python -m tests.gates.choices shows them" + MOVED.format("choices")
    )


def test_every_card_has_the_same_problems():
    assert len(choices.names()) > 400
    assert all(tuple(choices.committed(card)) == choices.names() for card in choices.CARDS)


def test_choices_reach_every_family_and_precision():
    lines = {line for card in choices.CARDS for line in choices.committed(card).values()}
    found = {line.partition(":")[0].partition(",")[0] for line in lines}
    assert found >= {family.name for family in FAMILIES} | {
        "gett",
        "reduce",
        "transpose",
        "copy",
        "transpose_in_place",
    }
    precisions = {getattr(problem_named(name), "precision", "auto") for name in choices.names()}
    assert precisions == set(PRECISIONS)
    own = choices.committed("h200")
    assert {own[name].partition(":")[0].partition(",")[0] for name in choices.part()} >= {
        family.name for family in FAMILIES
    }


@pytest.fixture(scope="module")
def regrets():
    return regret.groups(map(regret.regret, regret.cases()))


@pytest.mark.parametrize("card, kind", regret.BOUNDS)
def test_regrets_stay_within_their_bounds(card, kind, regrets):
    found, bound = regret.summary(regrets[card, kind]), regret.BOUNDS[card, kind]
    assert not regret.above(found, bound), (
        f"{regret.above(found, bound)} of {len(regrets[card, kind])} {kind} on {card}: "
        "python -m tests.gates.regret shows which families, and the worst"
    )


def test_a_wrong_number_is_above_the_bound(regrets):
    """Tensor cores are thought half as fast: others are chosen where they are slower, or were not
    measured."""
    own, name = regrets["h200", "products"], "tensor cores: share of rate"
    fitted = own[0].case.device.fitted
    wrong = fitted.changed({"units": {name: fitted["units"][name] / 2}})
    found = [
        regret.regret(each.case._replace(device=replace(each.case.device, costs=wrong)))
        for each in own
        if each.family == "gemm_wgmma"
    ]
    assert (
        len(found) > 100
        and regret.summary(found).percentile95 > 0.14
        and regret.summary(found).unmeasured > 0.08
    )


def test_regrets_are_those_of_measured_choices():
    sample = next(
        case for case in regret.cases() if case.kind == "products" and len(case.seconds) > 1
    )
    choice = regret.regret(sample).choice
    rest = {"another": 2.0}
    assert regret.regret(sample._replace(seconds=rest | {choice: 3.0})).regret == 0.5
    unmeasured = regret.regret(sample._replace(seconds=rest))
    outdated = regret.regret(sample._replace(seconds=rest, stale=(choice,)))
    assert (unmeasured.regret, unmeasured.stale, outdated.regret, outdated.stale) == (
        None,
        False,
        None,
        True,
    )
    half = regret.regret(sample._replace(seconds=rest | {choice: 3.0}))
    assert regret.summary([half, half, unmeasured, outdated]) == (0.5, 0.5, 0.25, 0.25)
    assert regret.above(
        regret.Summary(0.5, 0.5, 0.25, 0.25), regret.Summary(0.5, 0.4, 0.3, 0.2)
    ) == ["percentile95 50.00%, at most 40.0%", "stale 25.00%, at most 20.0%"]


def test_stale_rows_are_rows_of_the_data():
    for file, problems in regret.stale().items():
        times = regret.times_of(regret.TIMES / file)
        assert all(times[name].keys() >= set(rows) for name, rows in problems.items()), file
