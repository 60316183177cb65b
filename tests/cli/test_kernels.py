"""``python -m cuteblas kernels``."""

import pytest

from cuteblas.cli import main
from cuteblas.cli.kernels import FAMILIES, example
from cuteblas.planning import H200, CopyProblem
from cuteblas.planning.variants import Variant, variants


def test_all_are_listed(capsys):
    assert main(["kernels"]) == 0
    chosen, named = capsys.readouterr().out.split("kernels that variant= names")
    for v in FAMILIES:
        assert f"\n  {v.name} ({v.arch})\n" in chosen and v.summary[:60] in chosen
    for v in variants().values():
        assert f"\n  {v.name} ({v.arch})\n" in named and v.summary[:60] in named and v.source[:60] in named
    assert "\ncopy\n" in chosen and "\ngemm\n" in chosen and "\ncopy\n" in named


@pytest.mark.parametrize("name", [v.name for v in (*FAMILIES, *variants().values())])
def test_every_kernel_has_an_example(name, capsys):
    assert main(["kernels", name]) == 0
    text = capsys.readouterr().out
    assert f"\n{name}: " in text and "was generated from" in text and "  problem  " in text
    assert "\n  launch " in text or "\n  launch\n" in text           # a long name begins a line of its own
    assert " takes\n  " in text


def test_examples_of_what_planning_chooses():
    assert [example(v).family for v in FAMILIES] == [v.name for v in FAMILIES]


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
    assert out == "" and "tma_copy" in err
    assert err.startswith("there is no kernel 'tranpose'; did you mean transpose? there are gemm_simt, ")


def test_an_example_of_its_own(monkeypatch):
    def refuse(problem, device):
        raise ValueError(f"not {problem.shape}")

    with pytest.raises(ValueError, match=r"not \(3, 5\)"):
        example(Variant("own", "copy", "a test", "refuses", "sm_70", refuse, CopyProblem((3, 5), (1, 3), (5, 1), 4)))
    usual = example(variants()["transpose_naive_read"])
    assert usual.device == H200 and usual.problem.shape == (4096, 4096) and usual.problem.variant == "transpose_naive_read"
