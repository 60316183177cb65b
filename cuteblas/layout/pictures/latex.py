"""Figures as LaTeX: a document of class ``standalone`` that draws with TikZ."""

from __future__ import annotations

from .scene import Label, Scene

_POINTS = 0.75                                           # per pixel
_ESCAPES = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%",
            "&": r"\&", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
            "<": r"\textless{}", ">": r"\textgreater{}"}
_ANCHORS = {"start": "west", "middle": "center", "end": "east"}
_COLOURS = {"cell": "black", "axis": "black!60", "warning": "red!75!black", "title": "black",
            "note": "black!75"}


def render(scene: Scene) -> str:
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
