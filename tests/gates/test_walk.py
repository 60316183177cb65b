"""How far a call of NumPy arrays goes: :mod:`tests.gates.walk`."""

import os
import subprocess
import sys

import pytest

# how often a first call and one like it change file, there and back
MOST = {"matmul": (12, 1), "sgemm": (25, 7), "einsum": (62, 9), "copy": (10, 3)}


@pytest.mark.parametrize("name", MOST)
def test_a_call_does_not_go_further(name):
    done = subprocess.run([sys.executable, "-m", "tests.gates.walk", name], check=True, text=True,
                          capture_output=True, env=os.environ | {"CUTEBLAS_BACKEND": "numpy"})
    changes = [int(line.split()[-2]) for line in done.stdout.splitlines() if line.endswith("times")]
    assert len(changes) == 2 and all(map(int.__le__, changes, MOST[name])), done.stdout
