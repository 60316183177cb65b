"""A plan as HTML, for notebooks: one fragment that refers to nothing outside and follows the
colours of the page it is put into."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .estimates import estimate
from .pictures import bank_figures, tile_figure
from .plan import Plan
from .quantities import duration
from .words import kernel_words, plan_rows, time_words

__all__ = ["page", "page_of"]

_STYLE = """\
.cb-plan{font:13px/1.5 system-ui,sans-serif;max-width:62em;color:inherit}
.cb-plan table{border-collapse:collapse;margin:.4em 0;font-size:inherit;border:0}
.cb-plan td{padding:.1em .9em .1em 0;vertical-align:top;text-align:left;border:0;background:none;white-space:normal}
.cb-plan td:first-child{opacity:.65;white-space:nowrap}
.cb-plan .cb-call{font-weight:600}
.cb-plan code,.cb-plan pre{font:12px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;background:none}
.cb-plan pre{overflow:auto;max-height:32em;padding:.6em;border:1px solid rgba(128,128,128,.4);border-radius:6px}
.cb-plan .cb-bar{display:inline-block;height:.8em;min-width:2px;border-radius:3px;vertical-align:baseline}
.cb-plan .cb-bars td:nth-child(2){width:24em}
.cb-plan summary{cursor:pointer;opacity:.85}
.cb-plan .cb-pictures{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start;margin:.5em 0}"""
_COLOURS = {"expected": "#8a94a3", "arithmetic": "#4c8fe0", "memory traffic": "#e09a3e"}
_SHOWN = ("problem", "layouts", "epilogue")          # rows of a plan that are not folded


def page(call: str, rows: Iterable[tuple[str, str]], plan: Plan | None) -> str:
    """A fragment of HTML.

    Parameters
    ----------
    call : str
        The heading.
    rows : iterable of (str, str)
        Names and texts below it.
    plan : Plan or None
        Whose bars, layouts, pictures and source follow.
    """
    parts = [f'<div class="cb-plan"><style>{_STYLE}</style>',
             f'<div class="cb-call">{escape(call)}</div>', _table(rows)]
    if plan is not None and plan.launches:
        details = plan_rows(plan)
        parts += [_bars(plan), _table((row for row in details if row[0] in _SHOWN), code=True),
                  _pictures(plan), _folded("tile, launches, memory accesses",
                                           _table((row for row in details if row[0] not in _SHOWN),
                                                  code=True))]
        kernels = (launch.kernel for launch in plan.launches)
        parts += [_folded(f"CUDA C++ of {kernel.name}", f"<pre>{escape(kernel.body)}</pre>")
                  for kernel in kernels]
    return "\n".join((*parts, "</div>"))


def page_of(plan: Plan) -> str:
    """What a plan shows of itself."""
    copies = "; ".join(plan.copied) or "none"
    fallback = [("fallback", plan.fallback)] if plan.fallback else []
    return page(f"plan for {plan.device.name}",
                [("kernel", kernel_words(plan)), ("time", time_words(plan, estimate(plan))),
                 ("copies", copies), *fallback], plan)


def _table(rows: Iterable[tuple[str, str]], *, code: bool = False) -> str:
    lines, previous = [], None
    for name, text in rows:
        shown = f"<code>{escape(text)}</code>" if code else escape(text)
        lines.append(
            f"<tr><td>{escape(name) if name != previous else ''}</td><td>{shown}</td></tr>"
        )
        previous = name
    return f"<table>{''.join(lines)}</table>"


def _bars(plan: Plan) -> str:
    """What bounds it: the expected time beside both parts of the floor."""
    found = estimate(plan)
    times = {"expected": found.seconds, "arithmetic": found.floor.arithmetic_s,
             "memory traffic": found.floor.traffic_s}
    longest = max(seconds or 0.0 for seconds in times.values()) or 1.0
    lines = []
    for name, seconds in times.items():
        if seconds is not None:
            bar = f'<span class="cb-bar" style="width:{100 * seconds / longest:.1f}%;background:{_COLOURS[name]}"></span>'
            lines.append(
                f"<tr><td>{name}</td><td>{bar}</td><td>{escape(duration(seconds))}</td></tr>"
            )
    return f'<table class="cb-bars">{"".join(lines)}</table>'


def _pictures(plan: Plan) -> str:
    figures = [figure for figure in (tile_figure(plan), *bank_figures(plan)) if figure is not None]
    return f'<div class="cb-pictures">{"".join(figure.svg() for figure in figures)}</div>' if figures else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
