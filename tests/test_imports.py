"""Names that are imported when they are first used, while a handler of signals interrupts that
import."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import importlib.machinery, sys
import numpy as np, cuteblas
X = np.arange(3600).reshape(60, 60) % 7
CALLS = {"matmul": lambda: cuteblas.matmul(X, X), "einsum": lambda: cuteblas.einsum("ij,jk", X, X),
         "blas": lambda: cuteblas.blas.igemm(1, X.astype("i1"), X.astype("i1")), "asarray": lambda: cuteblas.asarray(X).T,
         "linalg": lambda: cuteblas.linalg.matrix_power(X, 2), "emulator": lambda: cuteblas.emulator.available()}
program, handler = sys.argv[1:]
said, within = set(), False

def interrupt():
    global within
    within = True
    try:
        CALLS[handler]()
        said.add("works")
    except Exception as error:
        said.add(f"{type(error).__name__}: {error}")
    within = False

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if within or not name.startswith("cuteblas."):
            return None
        spec = super().find_spec(name, path, target)
        execute = spec.loader.exec_module
        def exec_module(module):
            interrupt()
            execute(module)
            interrupt()
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
CALLS[program]()
CALLS[handler]()
print(*said, sep="\\n")
"""


@pytest.mark.parametrize("program, handler", [("matmul", "matmul"), ("matmul", "einsum"),
                                              ("einsum", "matmul"), ("blas", "blas"),
                                              ("matmul", "asarray"), ("linalg", "linalg"),
                                              ("emulator", "emulator")])
def test_a_handler_works_or_is_told_what_it_interrupted(program, handler):
    """Before and after each module of the package is executed; both calls work afterwards."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, program, handler], capture_output=True,
                          text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert done.returncode == 0, done.stderr
    said = set(done.stdout.splitlines()) - {"works"}
    assert all(line.startswith("RuntimeError: ") and "cuteblas is still being imported" in line
               for line in said) and done.stdout
