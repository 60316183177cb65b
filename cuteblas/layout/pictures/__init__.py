"""Pictures of layouts as SVG and LaTeX.

Each function returns a :class:`Figure`, which can be written (``svg``, ``latex``, ``save``) and is
displayed in a notebook. See docs/pictures.md.
"""

from .drawings import (
    bank_picture,
    copy_picture,
    draw,
    layout_picture,
    mma_picture,
    to_latex,
    to_svg,
    tv_picture,
)
from .figure import Figure

__all__ = ["Figure", "bank_picture", "copy_picture", "draw", "layout_picture", "mma_picture",
           "to_latex", "to_svg", "tv_picture"]
