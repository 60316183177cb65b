"""The site: ``python -m sphinx -W -b html docs build/html``, with the extra ``docs``."""

from __future__ import annotations

import os
import re
from operator import attrgetter
from pathlib import Path

import numpy

import cuteblas

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/cuteblas/cuteblas"

project = "cuteblas"
author = copyright = "cuteblas contributors"
version = release = cuteblas.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_nb",
              "sphinx_design"]
exclude_patterns = ["README.md"]                   # the list of pages for readers of the repository
templates_path = ["templates"]

# for file systems without case
autosummary_filename_map = {"cuteblas.epilogues.Epilogue": "cuteblas.epilogues.Epilogue-class"}
autodoc_typehints = "none"                               # the docstrings have the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "force"                              # tutorials/ are notebooks
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "cuteblas"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "github_url": REPOSITORY,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": {"**": ["page-toc"]},
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {name: [] for name in ("index", "search", "genindex")}   # they belong to no section
html_show_sourcelink = False

_SHADED = re.compile(r"^!\[([^\]]*)\]\((\S+)-light\.svg\)$", re.M)


def _shaded(app, docname, source):
    """A chart that has a light and a dark version is displayed in the one that fits the theme."""
    def both(found):
        return "".join(
            f"```{{image}} {found[2]}-{shade}.svg\n:alt: {found[1]}\n:class: only-{shade}\n```\n"
            for shade in ("light", "dark")
        )

    source[0] = _SHADED.sub(both, source[0])


_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


_NAMED = re.compile(r"\[[\w./-]+\.md\](?=\((?!https?:)[^)]+\.md(?:#[^)]*)?\))")


def _outward(app, docname, source):
    """Links to files that are not pages of the site lead to the repository; on its own viewer they
    are relative.

    A link that has the name of a page has its title, or that of the section, on the site.
    """
    def target(link):
        path = Path(os.path.normpath(DOCS / Path(docname).parent / link[1]))
        if path.suffix == ".svg" or (path.suffix in (".md", ".rst") and path.is_relative_to(DOCS)
                                     and path != DOCS / "README.md"):
            return link[0]
        kind = "tree" if path.is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{path.relative_to(DOCS.parent).as_posix()}{link[2] or ''}"

    source[0] = _NAMED.sub("[]", _LINK.sub(target, source[0]))


_NEEDS_GPU = re.compile(r"^<!-- needs: gpu(?:, run ([\d-]+))? -->$", re.M)


def _marked(app, docname, source):
    """Examples that the build does not run say so."""
    source[0] = _NEEDS_GPU.sub(lambda found: f"*Needs a GPU{'; run on an NVIDIA H200 on ' + found[1] if found[1] else ''}:*\n",
                               source[0])


_NUMPYS = re.compile(r"``numpy\.((?:linalg\.)?[a-z_]+)``")


def _linked(found):
    """A link to the page of a function in NumPy's reference."""
    try:
        function = attrgetter(found[1])(numpy)
    except AttributeError:
        return found[0]
    page = f"https://numpy.org/doc/stable/reference/generated/numpy.{found[1]}.html"
    return f"`numpy.{found[1]} <{page}>`__" if callable(function) else found[0]


def _without_numpys_labels(app, what, name, subject, options, lines):
    """Drop references to NumPy's pages in inherited docstrings, and link NumPy's functions to its
    reference."""
    lines[:] = [_NUMPYS.sub(_linked, line) for line in lines]
    lines[:] = [re.sub(r":ref:`([^`<]*?)(?: <[^`>]*>)?`", r"\1", line) for line in lines]


def setup(app):
    app.connect("autodoc-process-docstring", _without_numpys_labels)
    app.connect("source-read", _outward)
    app.connect("source-read", _marked)
    app.connect("source-read", _shaded)
