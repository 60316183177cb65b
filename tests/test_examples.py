"""Every name of the API reference has an example in its docstring, and the examples run."""

import importlib
import inspect
import re
from doctest import ELLIPSIS, DocTestParser, DocTestRunner

import numpy as np
import pytest

import cuteblas
from cuteblas import emulator, runtime
from tests.test_help import faults
from tests.test_site import API, MODULES, entries


def found(module, name):
    """What a page of the reference calls ``name`` or ``part.name``."""
    if module == "cuteblas.dask":
        pytest.importorskip("dask.array", reason="Dask, of the extra dask, is not installed")
    part, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"{module}.{part}" if part else module), last)


NAMES = [(module, name) for module in MODULES
         for name in entries((API / f"{module}.rst").read_text(encoding="utf-8"))]
OF_NVRTC = {"CompileError", "compile", "compiler_version", "supported_architectures"}


def names_of(module):
    """What examples may use without an import: the names of the module, NumPy and the package."""
    subject = importlib.import_module(module)
    return {name: getattr(subject, name) for name in getattr(subject, "__all__", ())} | {
        "np": np,
        "cuteblas": cuteblas
    }


@pytest.mark.parametrize("module, name", NAMES, ids=lambda x: x)
def test_examples(module, name, monkeypatch):
    monkeypatch.setenv("CUTEBLAS_DEVICE", "cpu")              # as where there is no GPU
    subject = found(module, name)
    text = inspect.getdoc(subject) or ""
    assert re.search(r"^\s*>>> ", text, re.M), "no example"
    if "ml_dtypes" in text:
        pytest.importorskip("ml_dtypes",
                            reason="ml_dtypes, which the example uses, is not installed")
    if module == "cuteblas.emulator" and (reason := emulator.why_unavailable()):
        pytest.skip(reason)
    if module == "cuteblas.runtime" and name in OF_NVRTC:
        try:
            runtime.compiler_version()
        except runtime.MissingDependency as reason:
            pytest.skip(str(reason))
    test = DocTestParser().get_doctest(text, names_of(module), f"{module}.{name}", None, 0)
    output = []
    DocTestRunner(optionflags=ELLIPSIS).run(test, out=output.append)
    assert not output, "".join(output)


@pytest.mark.parametrize("module, name", NAMES, ids=lambda x: x)
def test_docstrings_are_complete(module, name):
    """What every name takes and returns; of those that users call, ``test_help`` asks for more."""
    subject = found(module, name)
    exempt = inspect.isclass(subject) and (issubclass(subject, Exception)
                                           or getattr(subject, "_is_protocol", False))
    if exempt or not callable(subject):
        pytest.skip("an exception, a protocol or a value")
    assert [fault for fault in faults(subject) if not fault.startswith("the parameter _")] == []
