"""Figures as SVG, in one file; background and labels follow the reader's light or dark theme."""

from __future__ import annotations

from html import escape

from .scene import CELL_FONT, Label, Rectangle, Scene

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


def render(scene: Scene) -> str:
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
