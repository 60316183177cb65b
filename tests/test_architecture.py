"""The layers: which part may import which, and what ``import cuteblas`` does not import."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import cuteblas

HOME = Path(cuteblas.__file__).parent
BELOW_PLANNING = {"kernels", "tutorial", "codegen", "layout"}
BELOW_ENGINES = BELOW_PLANNING | {"planning", "runtime", "emulator"}
BELOW_FUNCTIONS = BELOW_ENGINES | {"engines"}
MAY_IMPORT = {
    "layout": set(),
    "codegen": {"layout"},
    "kernels": {"codegen", "layout"},
    "tutorial": {"kernels.common", "codegen", "layout"},
    "planning": BELOW_PLANNING,
    "runtime": {"codegen.architectures", "codegen.kernel", "planning.cost",
                "planning.plan", "planning.problem", "planning.streaming"},
    "emulator": {"codegen.intrinsics", "codegen.kernel", "planning.plan", "planning.problem"},
    "engines": BELOW_ENGINES,
    "functions": BELOW_FUNCTIONS,
    "blas": BELOW_FUNCTIONS | {"functions"},
    "array": BELOW_FUNCTIONS | {"functions"},
    "dask": BELOW_FUNCTIONS | {"functions", "blas", "array"},
}
# and what the standard library lacks
EVERYWHERE = {"__version__", "_cache", "_dtypes", "_forks", "_imports"}
STANDARD_LIBRARY_ONLY = {"layout", "codegen"}
# parts with circles of imports under TYPE_CHECKING
CIRCLES_OF_TYPES = {"array", "codegen", "kernels"}


@cache
def imports(file, checking=False):
    """Absolute names of the modules that a file imports; those under ``if TYPE_CHECKING`` count if
    ``checking``."""
    package = ["cuteblas", *file.relative_to(HOME).parts[:-1]]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_checkers = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
                    and "TYPE_CHECKING" in ast.unparse(node.test) for inner in ast.walk(node)}
    names = []
    for node in ast.walk(tree):
        if id(node) in for_checkers and not checking:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_arrows_go_down(part):
    allowed = {f"cuteblas.{name}" for name in MAY_IMPORT[part] | {part} | EVERYWHERE}
    wrong = [f"{file.relative_to(HOME)} imports {name}" for file in (HOME / part).rglob("*.py")
             for name in imports(file)
             if name.startswith("cuteblas") and not any(name == a or name.startswith(a + ".")
                                                        for a in allowed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", sorted(STANDARD_LIBRARY_ONLY))
def test_standard_library_only(part):
    wrong = [f"{file.relative_to(HOME)} imports {name}" for file in (HOME / part).rglob("*.py")
             for name in imports(file)
             if (root := name.partition(".")[0]) not in sys.stdlib_module_names
             and root != "cuteblas"]
    assert not wrong, "\n".join(wrong)


def module_of(file):
    """The name of the module in a file."""
    path = file.relative_to(HOME.parent).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)


MODULES = {module_of(file): file for file in HOME.rglob("*.py")}
PARTS = sorted({name.split(".")[1] for name, file in MODULES.items() if file.parent != HOME})


def imported_modules(file, checking=False):
    """The modules of this package that a file imports, inside functions too."""
    for name in imports(file, checking):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        if name:
            yield name


def circles(graph):
    """Sets of nodes each of which leads to all others of its set."""
    reached = {}
    for start in graph:
        reached[start], open_nodes = set(), [start]
        while open_nodes:
            new = graph[open_nodes.pop()] - reached[start]
            reached[start] |= new
            open_nodes += new
    return {frozenset(other for other in reached[node] if node in reached[other])
            for node in graph} - {frozenset()}


@pytest.mark.parametrize("part", PARTS)
def test_no_circle_inside_a_part(part):
    """Imports inside functions count: what a module needs is written before it."""
    inside = {name: file for name, file in MODULES.items()
              if f"{name}.".startswith(f"cuteblas.{part}.")}
    checking = part not in CIRCLES_OF_TYPES
    found = circles({name: {other for other in imported_modules(file, checking) if other in inside
                            and other != name} for name, file in inside.items()})
    assert not found, "\n".join(" ".join(sorted(circle)) for circle in found)


@pytest.mark.parametrize("owner", PARTS)
def test_private_modules_stay_inside_their_package(owner):
    """A module whose name begins with an underscore is imported in its own folder and below."""
    wrong = []
    for name, file in MODULES.items():
        for other in imported_modules(file):
            package, _, module = other.rpartition(".")
            if module.startswith("_") and other.startswith(f"cuteblas.{owner}.") and not f"{name}.".startswith(f"{package}."):
                wrong.append(f"{name} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {frozenset("bc")}


def test_every_part_has_a_rule():
    parts = {folder.name for folder in HOME.iterdir() if (folder / "__init__.py").exists()}
    assert parts == set(MAY_IMPORT) | {"cli"}


def test_import_touches_no_driver_and_no_compiler():
    program = """
import sys
started = []
sys.addaudithook(lambda event, args: started.append(args) if event in ("subprocess.Popen", "os.exec", "os.posix_spawn") else None)
import cuteblas
print(sorted({"cupy", "cuda", "cupy_backends", "dask", "distributed", "scipy", "torch", "sklearn"} & set(sys.modules)), started)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True)
    assert result.stdout.strip() == "[] []"


def test_where_a_call_runs_is_decided_without_the_generator():
    program = """
import sys
from cuteblas.engines import placement
placement._prepare()
print(sorted({"cuteblas.layout", "cuteblas.codegen.builder", "cuteblas.planning.gemm"}
             & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True)
    assert result.stdout.strip() == "[]"
