"""Pictures of layouts as SVG and LaTeX.

Each function of ``drawings`` returns a ``Figure``, which can be written (``svg``, ``latex``,
``save``) and is displayed in a notebook. See docs/pictures.md.
"""
