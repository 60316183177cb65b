"""``help()`` of every public name says what it takes and returns: its signature, and a docstring in
numpydoc's form."""

import ast
import inspect
import re
import textwrap
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest

import cuteblas
import cuteblas.blas
import cuteblas.codegen
import cuteblas.epilogues
import cuteblas.layout
import cuteblas.linalg

if find_spec("dask"):
    import cuteblas.dask

MODULES = [cuteblas, cuteblas.array, cuteblas.blas, cuteblas.blas.pointers, cuteblas.epilogues,
           cuteblas.layout, cuteblas.linalg, *([cuteblas.dask] if find_spec("dask") else [])]
SECTION = re.compile(r"^([A-Z]\w+(?: \w+)?)\n-{3,}$", re.MULTILINE)
NAMES = {f"{module.__name__}.{name}": getattr(module, name) for module in MODULES
         for name in module.__all__ if callable(getattr(module, name))
         and not isinstance(getattr(module, name), ModuleType | np.ufunc)}
NAMES.pop("cuteblas.epilogues.where")                    # NumPy's own


def sections(doc):
    """The sections of a docstring by name."""
    parts = SECTION.split(inspect.cleandoc(doc))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(section):
    """The names that a section of parameters describes: ``a, b : int`` has two."""
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", section, re.MULTILINE)
    return {name.strip("* ") for head in heads for name in head.split(",")}


def parameters(f):
    """The names of the parameters; those of a typed ``**named`` are its keys."""
    names = []
    for p in inspect.signature(f).parameters.values():
        keys = re.fullmatch(r"Unpack\[(\w+)\]",
                            str(p.annotation)) if p.kind is p.VAR_KEYWORD else None
        if keys:
            names += inspect.getmodule(inspect.unwrap(f)).__dict__[keys[1]].__annotations__
        elif p.name != "self":
            names.append(p.name)
    return names


def raises(f):
    """Whether the code of a function itself has a ``raise``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(f))))
    except (OSError, TypeError):
        return False
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def faults(f):
    """What is missing in help()."""
    doc = inspect.getdoc(f)
    if not doc:
        return ["no docstring"]
    found, names = sections(doc), parameters(f)
    told = described(found.get("Parameters", "")) | (described(found.get("Attributes", ""))
                                                     if inspect.isclass(f) else set())
    out = [f"the parameter {name}" for name in names if name not in told]
    if not inspect.isclass(f):
        out += ["what it returns"] * (not {"Returns", "Yields"} & set(found))
        out += ["what it raises"] * (raises(f) and "Raises" not in found)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_help_is_complete(name):
    assert faults(NAMES[name]) == []


MEMBERS = sorted(name for name in dir(cuteblas.ndarray) if not name.startswith("_"))


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_arrays(name):
    member = inspect.getattr_static(cuteblas.ndarray, name)
    assert inspect.getdoc(member)
    if inspect.isfunction(member):
        kinds = [p.kind for p in inspect.signature(member).parameters.values()]
        numpys = getattr(np.ndarray, name, None)
        assert inspect.Parameter.VAR_KEYWORD not in kinds or name in ("clip", "view")
        assert len(kinds) > 1 or numpys is None or not re.search(rf"a\.{name}\([a-z]",
                                                                 numpys.__doc__ or "")


OPERATORS = ["add", "radd", "iadd", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul",
             "rmatmul", "imatmul", "lshift", "and", "or", "xor", "divmod", "lt", "le", "eq", "ne",
             "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "setitem", "len"]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_arrays(name):
    operator = getattr(cuteblas.ndarray, f"__{name}__")
    assert inspect.getdoc(operator) and "arguments" not in inspect.signature(operator).parameters
