"""Pictures: what they say, that they are well-formed and legible, and that the committed ones are
what the commands make."""

import pathlib
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from cuteblas.cli import main
from cuteblas.codegen.mma import MMA_ATOMS
from cuteblas.codegen.tiled import TiledCopy, TiledMma
from cuteblas.codegen.wgmma import WgmmaAtom
from cuteblas.layout import (
    ComposedLayout,
    E,
    Layout,
    LayoutError,
    Swizzle,
    Var,
    bank_picture,
    bank_report,
    composition,
    copy_picture,
    counting_iterator,
    draw,
    layout_picture,
    make_identity_layout,
    make_tensor,
    mma_picture,
    size,
    to_latex,
    to_svg,
    tv_owners,
    tv_picture,
    tv_table,
    wavefronts,
)
from cuteblas.layout.banks import meeting
from cuteblas.layout.pictures.grids import by_bank, by_position, by_thread

DOCS = pathlib.Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
C_TV = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
FIGURES = {
    "plain": layout_picture(Layout((8, 8), (8, 1))),
    "nested": layout_picture(Layout(((2, 4), (3, 2)), ((1, 6), (2, 24)))),
    "one mode": layout_picture(Layout(12, 5)),
    "coordinates": layout_picture(make_identity_layout((4, 5))),
    "mixed coordinates": layout_picture(Layout((2, 2), (E(0, 1), E(1)))),
    "negative": layout_picture(Layout((4, 3), (-1, 8))),
    "symbolic strides": layout_picture(Layout((4, 3), (1, Var("ld")))),
    "swizzled": layout_picture(composition(Swizzle(3, 0, 3), Layout((8, 8), (8, 1)))),
    "tensor": layout_picture(make_tensor(counting_iterator(42), (4, 5))),
    "banks": bank_picture(Layout((16, 32), (32, 1)), 4),
    "tv": tv_picture(C_TV, (16, 8)),
    "copy": copy_picture(Layout((8, 4), (4, 1)), Layout((8, 4), (1, 8)), (4, 8)),
    "shared and free": tv_picture(Layout((4, 2), (0, 3)), 7),
    "mma": MMA_ATOMS[0].picture(),
    "tiled mma": TiledMma(Layout((4, 4)), (2, 2)).picture(),
}


def texts(svg, style=None):
    """The texts of an SVG; those of one class."""
    root = ElementTree.fromstring(svg)
    if style == "cell":
        return [t.text for g in root.iter(f"{SVG}g") if g.get("class") == "cell"
                for t in g.iter(f"{SVG}text")]
    return [t.text for t in root.iter(f"{SVG}text") if style is None or t.get("class") == style]


# -- what they say ---------------------------------------------------------------------------------
def test_a_layout_shows_its_values_by_rows():
    a = Layout((4, (3, 2)), (2, (8, 1)))
    grid = layout_picture(a).panels[0][0]
    assert [[cell.lines for cell in row] for row in grid.cells] == [[(str(a(r, c)),)
                                                                     for c in range(6)]
                                                                    for r in range(4)]
    assert grid.breaks == ((), (3,)) and layout_picture(a).title == "(4,(3,2)):(2,(8,1))"
    svg = to_svg(a)
    assert texts(svg, "cell") == [str(a(r, c)) for r in range(4) for c in range(6)]
    assert texts(svg, "axis") == [*map(str, range(6)),
                                  *map(str, range(4))] and texts(svg, "title") == [str(a)]


def test_colours_follow_the_value():
    cells = layout_picture(Layout((2, 3), (3, 1))).panels[0][0].cells
    assert [cells[r][c].colour for r in range(2) for c in range(3)] == [
        by_position(i, 6) for i in range(6)
    ]
    repeated = layout_picture(Layout((2, 3), (0, 1))).panels[0][0].cells
    assert repeated[0] == repeated[1]


def test_elements_of_a_tensor_and_coordinates():
    assert texts(FIGURES["tensor"].svg(), "cell")[:5] == ["42", "46", "50", "54", "58"]
    assert texts(to_svg(make_identity_layout((2, 2))), "cell") == ["(0,0)", "(0,1)", "(1,0)",
                                                                   "(1,1)"]
    assert texts(FIGURES["symbolic strides"].svg(), "cell")[1] == "ld"


def test_thread_values():
    svg = tv_picture(C_TV, (16, 8)).svg()
    cells = texts(svg, "cell")
    for i in range(size(C_TV)):
        t, v = i % 32, i // 32
        row, column = C_TV(i) % 16, C_TV(i) // 16
        assert cells[2 * (8 * row + column):][:2] == [f"T{t}", f"V{v}"]
    grid = tv_picture(C_TV, (16, 8)).panels[0][0]
    assert grid.cells[9][2].colour == by_thread(5) and not tv_picture(C_TV, (16, 8)).notes


def test_shared_elements_and_elements_without_an_owner():
    figure = FIGURES["shared and free"]
    assert [cell.lines for cell in figure.panels[0][0].cells[0]][:4] == [
        ("T0+3", "V0"),
        ("-", ""),
        ("-", ""),
        ("T0+3", "V1")
    ]
    assert figure.notes == ("+n: n more owners of the same element",
                            "-: an element without an owner")
    assert tv_owners(Layout((2, 2), (0, 1)), 2) == {0: [(0, 0), (1, 0)], 1: [(0, 1), (1, 1)]}


def test_a_matrix_instruction_has_a_left_b_above_and_c_in_the_corner():
    atom = MMA_ATOMS[0]
    (nothing, above), (left, corner) = mma_picture(atom.tv_a, atom.tv_b, atom.tv_c,
                                                   atom.shape).panels
    assert nothing is None and [(g.title, len(g.cells), len(g.cells[0]))
                                for g in (above, left, corner)] == [("B", 16, 8), ("A", 16, 16),
                                                                    ("C", 16, 8)]
    lane, value = 9, 3
    n, k = atom.tv_b(lane, value) % 8, atom.tv_b(lane, value) // 8
    assert above.cells[k][n].lines == ("T9", "V3")
    scene = atom.picture().scene()
    columns = [{b.x for b in scene.rectangles[start:stop]}
               for start, stop in ((0, 128), (128 + 256, 512))]
    rows = [{b.y for b in scene.rectangles[start:stop]} for start, stop in ((128, 384), (384, 512))]
    # the edges of B and C, and of A and C, line up
    assert columns[0] == columns[1] and rows[0] == rows[1]
    assert max(b.y for b in scene.rectangles[:128]) < min(b.y for b in scene.rectangles[128:])


def test_the_sides_of_a_copy_stand_beside_each_other():
    (source, target), = FIGURES["copy"].panels
    assert (source.title, target.title) == ("source", "target")
    assert source.cells[3][1].lines == ("T1", "V3") and target.cells[3][1].lines == ("T7", "V0")


# -- banks -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("text, swizzle, nbytes, row, column", [
    ("(32,32):(32,1)", (0, 0, 0), 4, (1, 1), (32, 1)),
    ("(32,32):(33,1)", (0, 0, 0), 4, (1, 1), (1, 1)),                      # padded
    ("(32,32):(32,1)", (5, 0, 5), 4, (1, 1), (1, 1)),
    ("(16,32):(32,1)", (3, 2, 3), 4, (1, 1), (2, 1)),
    ("(32,32):(32,1)", (0, 0, 0), 1, (1, 1), (8, 1)),                   # four elements share a word
    ("(32,32):(32,1)", (0, 0, 0), 8, (2, 2), (32, 2)),
    ("(8,8):(8,1)", (3, 0, 3), 16, (1, 1), (1, 1))])
def test_bank_conflicts(text, swizzle, nbytes, row, column):
    layout = ComposedLayout(Swizzle(*swizzle), 0, Layout.parse(text))
    report = bank_report(layout, nbytes)
    assert set(report.rows) == {row} and max(report.columns) == column
    notes = bank_picture(layout, nbytes).panels[0][0].column_notes
    assert notes[0] == ("!" if column[0] > column[1] else "") + f"x{column[0]}"
    framed = [cell for r in bank_picture(layout, nbytes).panels[0][0].cells for cell in r
              if cell.marked]
    assert bool(framed) == (column[0] > column[1])


def test_frames_show_different_words_of_one_bank():
    cells = FIGURES["banks"].panels[0][0].cells
    assert [[cell.marked for cell in row] for row in cells] == [[c == 0 for c in range(32)]
                                                                for _ in range(16)]
    assert [cell.lines[0] for cell in cells[3]] == [str(b) for b in range(32)]
    assert "meet in bank 0" in FIGURES["banks"].notes[1]
    # bytes 0 and 1 are in one word, 4 and 132 in two words of bank 1
    assert meeting([0, 1, 4, 8, 132]) == [2, 4]
    assert wavefronts([0, 1, 4, 8, 132], 1) == (2, 1)


def test_bank_reports_in_words():
    assert str(bank_report(Layout((32, 32), (32, 1)), 4)) == (
        "reading a row: 1 wavefront, no bank conflict\nreading a column: 32 wavefronts where 1 would do: bank conflicts"
    )


@pytest.mark.parametrize("layout, nbytes, why",
                         [(Layout((4, 4)), 3, "1, 2, 4, 8 or 16 bytes"),
                          (Layout((4, Var("n"))), 4, "conflicts are counted for 1 to"),
                          (Layout((4, 4), (-1, 4)), 4, "integers from 0"),
                          (make_identity_layout((2, 2)), 4, "integers from 0"),
                          (Layout((1 << 11, 1 << 11)), 4, "conflicts are counted for 1 to")])
def test_bank_reports_that_are_refused(layout, nbytes, why):
    with pytest.raises(LayoutError, match=why):
        bank_report(layout, nbytes)


# -- that they can be read -------------------------------------------------------------------------
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_overlaps_and_nothing_leaves_the_paper(name):
    scene = FIGURES[name].scene()
    spans = []
    for label in scene.labels:
        width = 0.6 * label.font * len(label.text)
        left = label.x - {"start": 0, "middle": width / 2, "end": width}[label.anchor]
        assert left >= 0 and left + width <= scene.width and label.font / 2 <= label.y <= scene.height - label.font / 2
        spans.append((label.y, left, left + width, label.font))
    for i, (y, left, right, font) in enumerate(spans):
        for y2, left2, right2, font2 in spans[:i]:
            assert abs(y - y2) >= (font + font2) / 2 - 1 or right <= left2 + 0.01 or right2 <= left + 0.01, scene.labels[i]
    for r in scene.rectangles:
        assert r.x >= 0 and r.x + r.width <= scene.width and r.y >= 0 and r.y + r.height <= scene.height
        for t in scene.labels:
            if t.style == "cell" and r.x < t.x < r.x + r.width and r.y < t.y < r.y + r.height:
                assert 0.6 * t.font * len(t.text) <= r.width


def luminance(colour):
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_on_every_colour_in_light_and_dark():
    cells = [by_thread(t) for t in range(64)] + [by_bank(b, 32) for b in range(32)] + [by_position(i, 50) for i in range(50)]
    svg = FIGURES["banks"].svg()
    light, dark = svg.split("@media (prefers-color-scheme: dark){")
    rule = r"\.cb \.{}{{fill:(#[0-9a-f]{{6}})"
    assert min(contrast(re.search(rule.format("cell"), light)[1], colour) for colour in cells) > 7
    for style in (light, dark):
        paper = re.search(rule.format("paper"), style)[1]
        for kind in ("title", "axis", "note", "warning"):
            assert contrast(re.search(rule.format(kind), style)[1], paper) > 4.5
    assert len({by_thread(t) for t in range(32)}) == 32 and by_thread(0) == by_thread(32)


@pytest.mark.parametrize("name", FIGURES)
def test_documents_are_whole(name):
    figure = FIGURES[name]
    root = ElementTree.fromstring(figure.svg())
    assert root.find(f"{SVG}title").text == figure.title and "http" not in re.sub(
        r'xmlns="[^"]*"', "", figure.svg()
    )
    assert float(root.get("width")) > 0 and root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    # CairoSVG takes height:auto there for no height, and draws nothing
    assert root.get("style") is None
    tex = figure.latex()
    assert tex.count("{") - tex.count(r"\{") == tex.count("}") - tex.count(r"\}") and tex.endswith(
        "\\end{document}\n"
    )
    for row in figure.panels:
        for grid in filter(None, row):
            for cell in (cell for line in grid.cells for cell in line):
                assert all(f"{{{text}}};" in tex for text in cell.lines)
    colours = set(re.findall(r"\\definecolor\{(c\d+)\}\{HTML\}\{[0-9A-F]{6}\}", tex))
    assert colours == set(re.findall(r"fill=(c\d+)", tex))


def test_latex_escapes():
    assert r"S\textless{}1,0,1\textgreater{} o 0 o (2,2):(1,2)" in to_latex(
        composition(Swizzle(1, 0, 1), Layout((2, 2)))
    )
    assert r"a\_b\^{}" not in to_latex(Layout((2, 2), (1, Var("a_b")))) and r"a\_b" in to_latex(
        Layout((2, 2), (1, Var("a_b")))
    )


def has_latex():
    return shutil.which("pdflatex") and subprocess.run(["kpsewhich", "standalone.cls"],
                                                       capture_output=True).returncode == 0


@pytest.mark.skipif(not has_latex(), reason="needs pdflatex with the class standalone")
@pytest.mark.parametrize("name", ["nested", "banks", "mma"])
def test_latex_compiles(name, tmp_path):
    FIGURES[name].save(tmp_path / "picture.tex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "picture.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert result.returncode == 0 and (tmp_path / "picture.pdf").exists(), result.stdout.decode()[
        -800:
    ]


# -- limits and refusals ---------------------------------------------------------------------------
def test_large_pictures_are_cut_and_say_so():
    figure = layout_picture(Layout((128, 256)))
    assert figure.notes == ("the first 64 of 128 rows and 64 of 256 columns",)
    assert len(figure.panels[0][0].cells) == 64 and len(texts(figure.svg(), "cell")) == 64 * 64
    assert figure.notes[0] in texts(figure.svg(), "note")
    atom = WgmmaAtom(128, "float16").picture()
    assert atom.notes == ("the first 64 of 128 columns",) and to_svg(atom) == atom.svg()
    # at once: only what is drawn is computed
    assert layout_picture(Layout((1 << 20, 1 << 20))).notes
    assert bank_picture(Layout((4, 100)), 4).notes[-1] == "the first 64 of 100 columns"


def test_a_layout_shows_itself_in_a_notebook():
    assert Layout((4, 4))._repr_svg_() == to_svg(Layout((4, 4)))
    assert FIGURES["swizzled"].svg() == composition(Swizzle(3, 0, 3),
                                                    Layout((8, 8), (8, 1)))._repr_svg_()
    assert make_tensor(counting_iterator(42), (4, 5))._repr_svg_() == FIGURES["tensor"].svg()
    assert "the first 32 of 128 columns" in Layout((4, 128))._repr_svg_()
    assert Layout((4, Var("M")))._repr_svg_() is None and Layout((0, 4))._repr_svg_() is None
    assert FIGURES["mma"]._repr_svg_() == MMA_ATOMS[0]._repr_svg_()
    assert TiledCopy(Layout((4, 2)), (1, 4))._repr_svg_().startswith("<svg")


def test_drawings_that_are_refused(tmp_path):
    with pytest.raises(LayoutError, match="no elements"):
        draw(Layout((0, 3)))
    with pytest.raises(LayoutError, match="symbolic number"):
        draw(Layout(Var("M")))
    with pytest.raises(LayoutError, match="expected a layout, a tensor or a figure, got str"):
        draw("(4,4)")
    with pytest.raises(LayoutError, match=r"value 1 of thread 3 is at 7, outside the tile \[0,7\)"):
        tv_picture(Layout((4, 2), (1, 4)), 7)
    with pytest.raises(LayoutError, match="a mode of threads and a mode of values"):
        tv_picture(Layout(4), 4)
    with pytest.raises(LayoutError, match="one or two extents"):
        tv_picture(Layout((4, 2)), (2, 2, 2))
    with pytest.raises(LayoutError, match=r"\(M, N, K\)"):
        mma_picture(C_TV, C_TV, C_TV, (16, 8))
    with pytest.raises(LayoutError, match=r"ends in \.svg or \.tex"):
        FIGURES["plain"].save(tmp_path / "picture.png")


def test_thread_values_as_text():
    assert tv_table(Layout((2, 2), (2, 1)),
                    4).splitlines()[3] == " 0  | T0V0 | T0V1 | T1V0 | T1V1 |"
    assert tv_table(Layout((2, 2), (0, 2)),
                    4).splitlines()[3] == " 0  | T0V0+1 |      - | T0V1+1 |      - |"


# -- the committed pictures ------------------------------------------------------------------------
COMMANDS = re.findall(r"^python -m cuteblas (layout .*)$",
                      (DOCS / "pictures.md").read_text(encoding="utf-8").replace("\\\n   ", ""),
                      re.MULTILINE)


def test_every_committed_picture_is_shown_and_has_its_command():
    shown = set(re.findall(r"\((pictures/[\w-]+\.svg)\)",
                           (DOCS / "pictures.md").read_text(encoding="utf-8")))
    made = {shlex.split(command)[-1].removeprefix("docs/") for command in COMMANDS}
    assert shown == made == {f"pictures/{path.name}"
                             for path in (DOCS / "pictures").iterdir()} and len(shown) >= 4


@pytest.mark.parametrize("command", COMMANDS)
def test_committed_pictures_are_made_by_their_commands(command, tmp_path, capsys):
    arguments = shlex.split(command)
    name = pathlib.Path(arguments[-1]).name
    assert main([*arguments[:-1], str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == (DOCS / "pictures" / name).read_text(
        encoding="utf-8"
    )
