"""``python -m cuteblas layout``."""

import pytest

from cuteblas.cli import main
from cuteblas.layout import (
    Layout,
    Swizzle,
    bank_picture,
    composition,
    copy_picture,
    layout_picture,
    layout_table,
    mma_picture,
    tv_picture,
    tv_table,
    zipped_divide,
)

C_TV = "((4,8),(2,2)):((32,1),(16,8))"
B_TV = "((4,8),2):((16,1),8)"


def printed(capsys, *arguments):
    assert main(["layout", *arguments]) == 0
    return capsys.readouterr().out


def test_a_layout_with_its_measures(capsys):
    out = printed(capsys, "(4,3):(1,8)")
    assert out == layout_table(Layout((4, 3),
                                      (1, 8))) + "\nsize 12, cosize 20, one to one, not compact\n"


@pytest.mark.parametrize("text, line", [("(8,8):(8,1)", "size 64, cosize 64, one to one, compact"),
                                        ("(4,4):(1,2)",
                                         "size 16, cosize 10, not one to one, not compact"),
                                        ("(4,3):(0,2)",
                                         "size 12, cosize 5, not one to one, not compact"),
                                        ("(M,8):(8,1)",
                                         "size M * 8, cosize M * 8, one to one, compact"),
                                        ("(M,N):(1,5)", "not certain to be one to one"),
                                        ("(4,5):(1@0,1@1)",
                                         "size 20, cosize 20, one to one, compact"),
                                        ("(0,4)", "size 0, cosize 0, one to one, compact")])
def test_measures(text, line, capsys):
    assert line in printed(capsys, text).splitlines()[-1]


def test_operations_are_done_in_turn(capsys):
    a, b = Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))
    assert layout_table(composition(a, b)) in printed(capsys, str(a), "--compose", str(b))
    swizzled = composition(Swizzle(3, 0, 3), Layout((8, 8), (8, 1)))
    assert layout_table(swizzled) in printed(capsys, "(8,8):(8,1)", "--swizzle", "3,0,3")
    assert layout_table(zipped_divide(swizzled, (4, 2))) in printed(capsys, "(8,8):(8,1)",
                                                                    "--swizzle", "3,0,3", "--tile",
                                                                    "(4,2)")
    assert layout_table(zipped_divide(Layout((6, 4)), (None, 2))) in printed(
        capsys, "(6,4)", "--tile", "(_,2)"
    )
    assert layout_table(zipped_divide(Layout(12), Layout(3, 4))) in printed(
        capsys, "12", "--tile", "3:4"
    )
    assert "complement up to 24: (2,3):(1,8)\n" in printed(capsys, "4:2", "--complement", "24")


def test_bank_conflicts(capsys):
    lines = printed(capsys, "(32,32):(32,1)", "--bytes", "4").splitlines()
    assert lines[-2:] == ["reading a row: 1 wavefront, no bank conflict",
                          "reading a column: 32 wavefronts where 1 would do: bank conflicts"]
    assert "reading a column: 1 wavefront, no" in printed(capsys, "(32,32):(32,1)", "--bytes", "4",
                                                          "--swizzle", "5,0,5")


def test_large_and_symbolic_layouts_have_no_table(capsys):
    assert printed(capsys, "(128,2)").startswith("(128,2):(1,128)\n(no table: 256 values)\n")
    assert "(no table: 256 values)" in printed(capsys, "(2,128)")
    assert "(no table: extents are symbolic)" in printed(capsys, "(M,2)")


@pytest.mark.parametrize(
    "arguments, figure",
    [
        (["(4,3):(1,8)"], layout_picture(Layout((4, 3), (1, 8)))),
        (
            ["(8,8):(8,1)", "--swizzle", "3,0,3", "--bytes", "16"],
            bank_picture(composition(Swizzle(3, 0, 3), Layout((8, 8), (8, 1))), 16)
        ),
        ([C_TV, "--tv", "(16,8)"], tv_picture(Layout.parse(C_TV), (16, 8))),
        (
            ["(8,4):(4,1)", "--tv", "(4,8)", "--to", "(8,4):(1,8)"],
            copy_picture(Layout((8, 4), (4, 1)), Layout((8, 4), (1, 8)), (4, 8))
        ),
        (
            [C_TV, "--tv", "(16,8)", "--mma", C_TV, B_TV],
            mma_picture(*map(Layout.parse, (C_TV, B_TV, C_TV)), (16, 8, 8))
        )
    ]
)
def test_pictures_are_written(arguments, figure, tmp_path, capsys):
    svg, tex = tmp_path / "out.svg", tmp_path / "out.tex"
    out = printed(capsys, *arguments, "--svg", str(svg), "--latex", str(tex))
    assert out.endswith(f"\nwrote {svg} (SVG)\nwrote {tex} (LaTeX)\n")
    assert svg.read_text(encoding="utf-8") == figure.svg() and tex.read_text(encoding="utf-8") == figure.latex()


def test_thread_value_layouts_as_text(capsys):
    assert printed(capsys, C_TV, "--tv", "(16,8)").startswith(tv_table(Layout.parse(C_TV), (16, 8)))


@pytest.mark.parametrize("arguments, sentence",
                         [(["(4,3:1"], "'(' was never closed"),
                          (["(4,3):(1,8)", "--compose", "6:1"], "no layout then has 8 at 4"),
                          (["(8,8)", "--swizzle", "3"], "a swizzle is written B,M,S"),
                          (["(8,8)", "--swizzle", "3,0,1"], "|shift| >= bits"),
                          (["(8,8)", "--tile", "(2,2,2)"], "the tiler has more than 2 modes"),
                          (["(8,8)", "--bytes", "3"], "1, 2, 4, 8 or 16 bytes"),
                          (["(2,2):(1,3)", "--complement", "12"],
                           "does not start at a multiple of 2"),
                          (["(8,8)", "--to", "8"], "give the tile with --tv"),
                          ([C_TV, "--tv", "(4,8)"], "is at 32, outside the tile [0,32)"),
                          ([C_TV, "--tv", "128", "--mma", C_TV, B_TV], "has a tile (M,N)"),
                          (["(8,8)", "--svg", "missing/out.svg"], "missing/out.svg"),
                          (["8", "--swizzle", "1,0,1", "--complement", "9"], "expected a layout"),
                          (["8", "--svg", "."], "it is a directory"),
                          (["8", "--tile", ""], "expected an integer, a name or a tuple"),
                          (["8", "--compose", ""], "expected an integer, a name or a tuple"),
                          (["8", "--swizzle", ""], "B,M,S"),
                          (["8", "--swizzle", "99999999999,1,99999999999"],
                           "reaches beyond 1024 bits")])
def test_what_is_refused_is_one_sentence(arguments, sentence, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["layout", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
