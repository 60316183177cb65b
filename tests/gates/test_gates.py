"""Nothing moves unseen: the text of kernels and the choices of planning are the committed ones (docs: CONTRIBUTING.md, "Gates")."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuteblas.planning.gemm.dispatch import FAMILIES, PRECISIONS

from . import choices, kernels
from .problems import problem_named

MOVED = "; if that is meant, python -m tests.gates.{0} --update writes the committed file again"


@pytest.fixture(scope="module")
def made():
    return kernels.texts()


def test_kernels_have_their_committed_text(made):
    changed, new, gone = kernels.changes(made, kernels.committed())
    assert not (changed or new or gone), (
        f"{len(changed)} kernels have another text, {len(new)} are new, {len(gone)} are made no more, the first of them "
        f"{(changed + new + gone)[0]}: python -m tests.gates.kernels shows how" + MOVED.format("kernels"))


def test_kernels_are_of_all_families_and_architectures(made):
    assert len(made) >= 200
    assert {row.family for row in kernels.ROWS} >= {family.name for family in FAMILIES}
    assert {text.place for text in made.values()} == {"sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100"}
    for part in ("grouped", "modes222", "reduce_split", "reduce_sum", "reduce_max", "reduce_dot", "copy_", "transpose_in_place",
                 "short", "ragged", "_if2", "modular_choice", "modular_survey", "modular_residues", "modular_restore",
                 "split_fp16x3", "split_bf16x6"):
        assert any(part in name for name in made), part


def test_a_changed_kernel_is_shown_with_its_difference(made):
    name = next(name for name in made if name.startswith("gemm_thin"))
    before = dict(made)
    now = made | {name: replace(made[name], source=made[name].source.replace("unroll 1", "unroll 2"))}
    assert kernels.changes(now, {each: text.digest for each, text in before.items()}) == ([name], [], [])
    said = "\n".join(kernels.report(now, before, [name]))
    assert name in said and "-#pragma unroll 1" in said and "+#pragma unroll 2" in said


@pytest.mark.parametrize("card", choices.CARDS)
def test_choices_are_the_committed_ones(card):
    moved = list(choices.moves(card, choices.part()))
    assert not moved, (f"{len(moved)} choices of {len(choices.part())} moved on {card}, the first {moved[0]}: "
                       "python -m tests.gates.choices shows them" + MOVED.format("choices"))


def test_every_card_has_the_same_problems():
    assert len(choices.names()) > 400
    assert all(tuple(choices.committed(card)) == choices.names() for card in choices.CARDS)


def test_choices_reach_every_family_and_precision():
    lines = {line for card in choices.CARDS for line in choices.committed(card).values()}
    found = {line.partition(":")[0].partition(",")[0] for line in lines}
    assert found >= {family.name for family in FAMILIES} | {"gett", "reduce", "transpose", "copy", "transpose_in_place"}
    precisions = {getattr(problem_named(name), "precision", "auto") for name in choices.names()}
    assert precisions == set(PRECISIONS)
    own = choices.committed("h200")
    assert {own[name].partition(":")[0].partition(",")[0] for name in choices.part()} >= {family.name for family in FAMILIES}
