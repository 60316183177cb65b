"""The size of the package, which may shrink: tokens of code by part, parameters of functions,
circles of imports for type checkers.

A change that needs more code in one part removes some from it first. Lower a number here as soon as
code has gone.
"""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.test_architecture import HOME, MODULES, circles

BUDGETS = {                             # tokens
    ".": 3700, "array": 21120, "blas": 16960, "cli": 21570, "codegen": 30460, "dask": 7070,
    "emulator": 4880, "engines": 44520, "functions": 58870, "kernels": 66390, "layout": 33080,
    "planning": 75630, "runtime": 14360, "tutorial": 4750,
}
MOST_FILES, MOST_PARAMETERS, MOST_LONG_LINES = 266, 7, 651
WITH_MORE = {"array": 3, "blas": 14, "codegen": 1, "engines": 2, "functions": 3, "layout": 1,
             "runtime": 1}
# among builder, kernel and signature; among array and functions, by the types of results
CIRCLES = 2
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENCODING, tokenize.ENDMARKER}
_BEGIN, _END = (getattr(tokenize, f"FSTRING_{end}", None) for end in ("START", "END"))


def tokens_of(file: Path) -> int:
    """Tokens of code without docstrings and comments: they stay the same where a line is broken. A
    string with fields is one, as it is before Python 3.12."""
    text = file.read_text(encoding="utf-8")
    documented = {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)
                  and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
                  for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    count = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        inside -= token.type == _END
        count += not inside and token.type not in _LAYOUT | {_END} and token.start[0] not in documented
        inside += token.type == _BEGIN
    return count


def files(part: str) -> list[Path]:
    return sorted((HOME / part).rglob("*.py")) if part != "." else sorted(HOME.glob("*.py"))


def functions_with_many_parameters(part: str) -> list[str]:
    """Functions of more parameters than a reader keeps in mind; methods' own object does not
    count."""
    found = []
    for file in files(part):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                given = [x.arg for x in (*node.args.posonlyargs, *node.args.args,
                                         *node.args.kwonlyargs)]
                if len({*given} - {"self", "cls"}) > MOST_PARAMETERS:
                    found.append(f"{file.relative_to(HOME)}:{node.name}")
    return found


def imported_at_the_beginning(file: Path) -> set[str]:
    """Modules of the package that a file imports at its beginning, under ``if TYPE_CHECKING``
    too."""
    package, found = ["cuteblas", *file.relative_to(HOME).parts[:-1]], set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inner = {id(x) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
             for x in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in inner:
            base = ".".join([*package[:len(package) - node.level + 1],
                             *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found |= {module for module in (name, base) if module in MODULES
                          and MODULES[module].name != "__init__.py"}
    return found - {next(name for name, other in MODULES.items() if other == file)}


@pytest.mark.parametrize("part", BUDGETS)
def test_no_part_grows(part):
    assert sum(map(tokens_of, files(part))) <= BUDGETS[part]


def test_lines_end_at_column_100():
    long = sum(len(line) > 100 for file in HOME.rglob("*.py")
               for line in file.read_text(encoding="utf-8").splitlines())
    assert long <= MOST_LONG_LINES              # strings, and what a break would make longer


def test_all_parts_have_a_budget():
    assert {*BUDGETS} == {".", *(path.name for path in HOME.iterdir() if path.is_dir()
                                 and any(path.glob("*.py")))}
    assert len(MODULES) <= MOST_FILES


@pytest.mark.parametrize("part", BUDGETS)
def test_functions_take_few_parameters(part):
    found = functions_with_many_parameters(part)
    assert len(found) <= WITH_MORE.get(part, 0), "\n".join(found)


def test_no_circle_of_imports_even_for_type_checkers():
    found = circles({name: imported_at_the_beginning(file) for name, file in MODULES.items()})
    assert len(found) <= CIRCLES, "\n".join(" ".join(sorted(circle)) for circle in found)
