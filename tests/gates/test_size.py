"""The size of the package, which may shrink: tokens of code by part, parameters of functions, circles of imports for type checkers.

A change that needs more of one part finds it in another. Lower a number here as soon as code has gone.
"""

import ast
import io
import tokenize
from pathlib import Path

from tests.test_architecture import HOME, MODULES

BUDGETS: dict[str, int] = {}
MOST_FILES, MOST_PARAMETERS = 320, 7
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def tokens_of(file: Path) -> int:
    """Tokens of code without docstrings and comments: they stay the same where a line is broken."""
    text = file.read_text(encoding="utf-8")
    documented = {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                  and isinstance(node.value.value, str) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(token.type not in _LAYOUT and token.start[0] not in documented
               for token in tokenize.generate_tokens(io.StringIO(text).readline))


def files(part: str) -> list[Path]:
    return sorted((HOME / part).rglob("*.py")) if part != "." else sorted(HOME.glob("*.py"))


def functions_with_many_parameters() -> set[str]:
    """Functions of more parameters than a reader keeps in mind, by file and name; those of public modules are signatures."""
    found = set()
    for name, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                a = node.args
                if len([x for x in (*a.posonlyargs, *a.args, *a.kwonlyargs) if x.arg not in ("self", "cls")]) > MOST_PARAMETERS:
                    found.add(f"{name}:{node.name}")
    return found
