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

def compiles():
    for name in [name for name in sys.modules if name.startswith("cuteblas.emulator")]:
        del sys.modules[name]
    emulator = importlib.import_module("cuteblas.emulator")
    kernel = importlib.import_module("cuteblas.codegen.kernel").GeneratedKernel
    try:
        emulator.compile(kernel("probe", 'extern "C" __global__ void probe() { cb::moduli_of(1u); }', (), 32)).launch((1,), [])
    except emulator.CompilerError as error:
        assert "changed" in str(error), error
        return False
    return True

print(compiles() and compiles())
for path in map(pathlib.Path, sys.argv[1:]):
    text = path.read_text()
    path.write_text("#include <changed>\\n" + text)         # the compiler goes no further than a missing file
    if compiles():
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
    assert (done.stdout, done.stderr) == ("True\n", "")
