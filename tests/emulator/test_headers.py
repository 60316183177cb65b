"""Kernels and the runtime in the cache are of the headers that they were compiled with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cuteblas
from cuteblas.codegen.intrinsics import INTRINSICS

PROGRAM = """
import importlib, pathlib, sys
from unittest.mock import MagicMock

def compiled():
    # What is not found in the cache: the compiler is replaced, and libraries are not loaded.
    for name in [name for name in sys.modules if name.startswith("cuteblas.emulator")]:
        del sys.modules[name]
    compiler, made = importlib.import_module("cuteblas.emulator.compiler"), []
    compiler._compile = lambda command, source, what: made.append(what) or source.encode()
    compiler._load = lambda *_: MagicMock()
    kernel = importlib.import_module("cuteblas.codegen.kernel").GeneratedKernel
    importlib.import_module("cuteblas.emulator").compile(
        kernel("probe", 'extern "C" __global__ void probe() { cb::moduli_of(1u); }', (), 32))
    return made

print(len(compiled()), len(compiled()))
for path in map(pathlib.Path, sys.argv[1:]):
    text = path.read_text()
    path.write_text("// changed\\n" + text)
    if not compiled():
        print(path.name)
    path.write_text(text)
"""


def headers(path: Path) -> set[Path]:
    """A file and all that it includes of the package."""
    found = {path}
    for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE):
        found |= headers((path.parent / name).resolve())
    return found


def test_what_a_header_changes_is_compiled_again(tmp_path):
    package = tmp_path / "cuteblas"
    shutil.copytree(Path(cuteblas.__file__).parent, package,
                    ignore=shutil.ignore_patterns("__pycache__"))
    folder = package / "emulator"
    parts = "device.h", "runtime.cpp", *{row.emulator for row in INTRINSICS.values()}
    changed = set().union(*(headers((folder / part).resolve()) for part in parts))
    assert {"float8.cuh", "modular.cuh", "values.h", "races.h", "faults.h",
            "interface.h"} <= {path.name for path in changed}
    environment = os.environ | {"PYTHONPATH": str(tmp_path),
                                "CUTEBLAS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, sorted(changed))],
                          capture_output=True, text=True, check=False, cwd=tmp_path,
                          env=environment)
    assert (done.stdout, done.stderr) == ("2 0\n", "")
