"""Pictures of grids side by side, which write themselves as SVG and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..errors import LayoutError
from .grids import Grid
from .scene import CELL_FONT, Label, Rectangle, Scene, scene_of


@dataclass(frozen=True)
class Figure:
    """A picture of layouts, which a notebook displays.

    Attributes
    ----------
    title : str
        One line.
    panels : tuple of tuples of (Grid or None)
        Arranged as written, in rows; grids in a row or column share their cells' edges.
    notes : tuple of str
        Lines below.

    Examples
    --------
    >>> figure = layout_picture(Layout((4, 8), (8, 1)))
    >>> figure.title, figure.svg()[:4]
    ('(4,8):(8,1)', '<svg')
    """

    title: str
    panels: tuple[tuple[Grid | None, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, panels: tuple[tuple[Grid | None, ...], ...], *notes: str) -> Figure:
        """A figure of grids, with notes of its own and theirs, each once."""
        theirs = (note for row in panels for grid in row if grid for note in grid.notes)
        return cls(title, panels, tuple(dict.fromkeys((*notes, *theirs))))

    def scene(self) -> Scene:
        """Rectangles, lines and labels with their positions."""
        return scene_of(self.title, self.panels, self.notes)

    def svg(self) -> str:
        """The picture as a self-contained SVG document."""
        return svg_of(self.scene())

    def latex(self) -> str:
        """The picture as a LaTeX document of class ``standalone`` (TikZ)."""
        return latex_of(self.scene())

    def save(self, path: str | Path) -> None:
        """Write the picture to a file whose name ends in ``.svg`` or ``.tex``."""
        path = Path(path)
        if path.suffix not in (".svg", ".tex"):
            raise LayoutError("save", f"a picture's file ends in .svg or .tex, not {path.suffix!r}",
                              str(path))
        path.write_text(self.svg() if path.suffix == ".svg" else self.latex(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()


# -- LaTeX: a document of class standalone that draws with TikZ ------------------------------------
_POINTS = 0.75                                           # per pixel
_ESCAPES = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%",
            "&": r"\&", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
            "<": r"\textless{}", ">": r"\textgreater{}"}
_ANCHORS = {"start": "west", "middle": "center", "end": "east"}
_COLOURS = {"cell": "black", "axis": "black!60", "warning": "red!75!black", "title": "black",
            "note": "black!75"}


def latex_of(scene: Scene) -> str:
    colours = {
        colour: f"c{i}"
        for i, colour in enumerate(
            dict.fromkeys(rectangle.colour for rectangle in scene.rectangles)
        )
    }
    out = [
        r"\documentclass[border=2pt]{standalone}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage{tikz}",
        *(
            rf"\definecolor{{{name}}}{{HTML}}{{{colour[1:].upper()}}}"
            for colour, name in colours.items()
        ),
        r"\begin{document}",
        r"\frenchspacing",
        rf"\begin{{tikzpicture}}[x={_POINTS}pt,y=-{_POINTS}pt,font=\ttfamily,inner sep=0pt,outer sep=0pt]"
    ]
    for marked in (False, True):                         # frames are drawn over their neighbours
        out += [
            rf"\path[fill={colours[b.colour]},draw={'black,line width=1.2pt' if marked else 'white'}] "
            rf"({b.x:g},{b.y:g}) rectangle ++({b.width:g},{b.height:g});"
            for b in scene.rectangles
            if b.marked == marked
        ]
    out += [
        rf"\draw[line width={r.thickness * _POINTS:g}pt] ({r.x1:g},{r.y1:g}) -- ({r.x2:g},{r.y2:g});"
        for r in scene.rules
    ]
    out += [_node(label) for label in scene.labels]
    out += [r"\end{tikzpicture}", r"\end{document}", ""]
    return "\n".join(out)


def _node(label: Label) -> str:
    size = label.font * _POINTS
    bold = r"\bfseries" if label.style == "title" else ""
    text = "".join(_ESCAPES.get(ch, ch) for ch in label.text)
    font = rf"\ttfamily{bold}\fontsize{{{size:g}}}{{{size:g}}}\selectfont"
    return (
        rf"\node[anchor={_ANCHORS[label.anchor]},text={_COLOURS[label.style]},font={font}] at ({label.x:g},{label.y:g}) "
        rf"{{{text}}};"
    )


# -- SVG in one file, which follows the reader's light or dark theme -------------------------------
_STYLE = """\
.cb text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.cb .paper{fill:#ffffff}.cb .box{stroke:#ffffff}.cb .rule,.cb .marked{stroke:#1f2328}.cb .cell{fill:#111418}
.cb .title{fill:#1f2328;font-weight:bold}.cb .axis{fill:#59636e}.cb .note{fill:#3d444d}.cb .warning{fill:#b3261e}
@media screen{.cb{max-width:100%;height:auto}}
@media (prefers-color-scheme: dark){
.cb .paper{fill:#14171c}
.cb .title{fill:#f0f2f4}.cb .axis{fill:#a3adb8}.cb .note{fill:#c5ccd3}.cb .warning{fill:#ff8f87}
}"""
_BASELINE = 0.35                               # of the font size, from the middle of a line of text


def svg_of(scene: Scene) -> str:
    w, h = _number(scene.width), _number(scene.height)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cb" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">',
        f"<title>{escape(scene.title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{w}" height="{h}" rx="6"/>'
    ]
    out += _group('class="box"', [_rectangle(b, 0) for b in scene.rectangles if not b.marked])
    out += _group('class="marked" stroke-width="2"',
                  [_rectangle(b, 1) for b in scene.rectangles if b.marked])
    out += _group(
        'class="rule"',
        [
            f'<line x1="{_number(r.x1)}" y1="{_number(r.y1)}" x2="{_number(r.x2)}" y2="{_number(r.y2)}" '
            f'stroke-width="{_number(r.thickness)}"/>'
            for r in scene.rules
        ]
    )
    out += _group(
        f'class="cell" font-size="{CELL_FONT}" text-anchor="middle"',
        [
            f'<text x="{_number(t.x)}" y="{_baseline(t)}">{escape(t.text, quote=False)}</text>'
            for t in scene.labels
            if t.style == "cell"
        ]
    )
    out += [
        f'<text class="{t.style}" x="{_number(t.x)}" y="{_baseline(t)}" font-size="{t.font}" text-anchor="{t.anchor}">'
        f"{escape(t.text, quote=False)}</text>"
        for t in scene.labels
        if t.style != "cell"
    ]
    out.append("</svg>\n")
    return "\n".join(out)


def _group(attributes: str, elements: list[str]) -> list[str]:
    """Elements that share attributes; no group without elements."""
    return [f"<g {attributes}>", *elements, "</g>"] if elements else []


def _rectangle(r: Rectangle, inset: int) -> str:
    return (
        f'<rect x="{_number(r.x + inset)}" y="{_number(r.y + inset)}" width="{_number(r.width - 2 * inset)}" '
        f'height="{_number(r.height - 2 * inset)}" fill="{r.colour}"/>'
    )


def _baseline(label: Label) -> str:
    return _number(label.y + _BASELINE * label.font)


def _number(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")
