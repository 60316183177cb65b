"""Pictures of layouts as SVG and LaTeX: docs/pictures.md."""
