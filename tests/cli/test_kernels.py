"""``python -m cuteblas kernels``."""

from dataclasses import replace

import numpy as np
import pytest

import cuteblas
from cuteblas.cli import main
from cuteblas.cli.kernels import example
from cuteblas.planning import H200, CopyProblem, plan_copy, plan_gemm
from cuteblas.planning.variants import CHOSEN, Variant, variants

FAMILIES = [v for v in variants().values() if v.source.startswith(CHOSEN)]


def test_all_are_listed(capsys):
    assert main(["kernels"]) == 0
    chosen, named = capsys.readouterr().out.split(
        "These run only on request, with variant= or --variant"
    )
    for v in variants().values():
        text, source = (chosen if v in FAMILIES else named), v.source.removeprefix(CHOSEN)[:60]
        assert f"\n  {v.name} ({v.arch})\n" in text and v.summary[:60] in text and source in text
    assert "\ncopy\n" in chosen and "\ngemm\n" in chosen and "\ncopy\n" in named


@pytest.mark.parametrize("name", variants())
def test_every_kernel_has_an_example(name, capsys):
    assert main(["kernels", name]) == 0
    text = capsys.readouterr().out
    assert f"\n{name}: " in text and "was generated from" in text and "  problem  " in text
    assert "\n  launch " in text or "\n  launch\n" in text    # a long name begins a line of its own
    assert " takes\n  " in text


@pytest.mark.parametrize("v", FAMILIES, ids=lambda v: v.name)
def test_families_are_variants(v):
    """A name in the list is a name that ``variant=`` takes, and planning chooses that family for
    its example by itself."""
    plan = example(v)
    assert plan.family == v.name
    planner = plan_copy if v.operation == "copy" else plan_gemm
    assert planner(replace(plan.problem, variant=None), H200).config == plan.config


def test_a_named_family_computes_or_refuses():
    a = np.ones((64, 64), np.float32)
    assert {cuteblas.explain(a, a, variant=name).family
            for name in ("gemm_simt", "gemm_skinny")} == {"gemm_simt", "gemm_skinny"}
    with pytest.raises(ValueError, match="gemm_outer cannot compute this"):
        cuteblas.explain(a, a, variant="gemm_outer")
    with pytest.raises(ValueError, match="gemm_modular does not support it"):
        cuteblas.explain(a, a, variant="gemm_modular", precision="ieee")
    with pytest.raises(ValueError, match="variant 'transpose' cannot make this copy; 'copy' can"):
        cuteblas.explain_copy(a[:, ::2], variant="transpose")


def test_layouts_conflicts_and_source(capsys):
    assert main(["kernels", "transpose_smem_conflict_read"]) == 0
    text = capsys.readouterr().out
    assert "  sT: shared b32 (32,64):(64,1), 8192 bytes\n" in text
    assert "4 bytes a lane: 32 wavefronts of at least 1\n" in text and text.count("32 wavefronts") == 1
    assert "__global__" not in text
    assert main(["kernels", "tma_transpose", "--source"]) == 0
    text = capsys.readouterr().out
    assert 'extern "C" __global__ void' in text and "cb::tma_load(&sT[0], &S" in text and "swizzled over 128 bytes" in text


def test_unknown_names(capsys):
    assert main(["kernels", "tranpose"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == "there is no kernel 'tranpose'; did you mean transpose?\n"


def test_an_example_of_its_own(monkeypatch):
    def refuse(problem, device):
        raise ValueError(f"not {problem.shape}")

    with pytest.raises(ValueError, match=r"not \(3, 5\)"):
        example(Variant("own", "copy", "a test", "refuses", "sm_70", refuse,
                        CopyProblem((3, 5), (1, 3), (5, 1), 4)))
    usual = example(variants()["transpose_naive_read"])
    assert usual.device == H200 and usual.problem.shape == (4096, 4096) and usual.problem.variant == "transpose_naive_read"
