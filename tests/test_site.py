"""The site: every public name has an entry in the API reference, and every page is in a list of
contents."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
API = DOCS / "api"
MODULES = re.findall(r"^   (cuteblas\S*)$", (API / "index.rst").read_text(encoding="utf-8"), re.M)


def entries(text):
    """The names in the tables of a page."""
    return re.findall(r"^   ([A-Za-z]\S*)$", text, re.M)


def public(module, by_part):
    """The names of a module, or those of its parts for a package whose page lists them so."""
    if not by_part:
        return set(importlib.import_module(module).__all__)
    parts = [path.stem
             for path in Path(importlib.import_module(module).__file__).parent.glob("[a-z]*.py")]
    return {f"{part}.{name}" for part in parts
            for name in getattr(importlib.import_module(f"{module}.{part}"), "__all__", ())
            if getattr(getattr(importlib.import_module(f"{module}.{part}"), name), "__module__",
                       "") == f"{module}.{part}"}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_entry(module):
    text = (API / f"{module}.rst").read_text(encoding="utf-8")
    listed = entries(text)
    names = public(module, any("." in name for name in listed))
    assert len(listed) == len(set(listed)) and set(listed) <= names
    others = names - set(listed)
    assert not [name for name in others if f"``{name}``" not in text
                and f":doc:`{module}.{name}`" not in text]


def test_the_modules_of_the_reference():
    assert {path.stem for path in API.glob("*.rst")} == {*MODULES, "index"}
    assert {"cuteblas", "cuteblas.blas", "cuteblas.codegen", "cuteblas.emulator",
            "cuteblas.epilogues", "cuteblas.layout", "cuteblas.linalg", "cuteblas.planning",
            "cuteblas.runtime"} <= set(MODULES)


def test_every_page_is_in_the_contents():
    contents = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "site").glob("*.md"))
    first = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\./(\S+)$", contents, re.M) + re.findall(r"^(\w[\w/-]*)$", first, re.M)
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted((pages | {"api/index"}) - {"index", "README"})


def test_ci_builds_it_by_the_command_of_the_guide():
    command = r"python -m sphinx (?:-q )?-W -b html docs "
    assert re.search(command, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert re.search(command, (ROOT / ".ci" / "run").read_text(encoding="utf-8"))


def test_every_environment_variable_is_on_its_page():
    page = (DOCS / "environment.md").read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "cuteblas").rglob("*.py"))
    used = {*re.findall(r"environ(?:\.\w+\(|\[)\s*\"(\w+)\"", text),
            *re.findall(r"\bCUTEBLAS_[A-Z_]+", text)}
    # a platform's directories, for `user_directory`
    used |= set(re.findall(r"\(\"([A-Z_]+)\", \"~/", text))
    assert "getenv" not in text and set(re.findall(r"environ\.\w+\(([a-zA-Z_]\w*)",
                                                   text)) == {"_VARIABLE", "variable", "name"}
    assert {"CUTEBLAS_BACKEND", "CXX", "NO_COLOR"} <= used <= set(re.findall(r"`([A-Z_]+)(?:=1)?`", page))
    own = page.partition("## Variables of other packages")[0]
    assert {name for row in re.findall(r"^\| (`[A-Z].*?) \|", own, re.M)
            for name in re.findall(r"`([A-Z_]+)`", row)} <= used
