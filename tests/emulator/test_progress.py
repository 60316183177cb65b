"""Progress of a long compilation or run of the emulator, and how it is stopped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

COMPILE = """
from cuteblas.emulator import compiler
try:
    compiler.build("int x;", "a trial")
    print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
RUN = """
from cuteblas import emulator
from cuteblas.codegen.kernel import GeneratedKernel

body = 'extern "C" __global__ void __launch_bounds__(32) trial(int n) { for (int i = 0; i < n; ++i) cb::syncthreads(); }'
from cuteblas.codegen.kernel import Param
from cuteblas._dtypes import dtype
trial = emulator.compile(GeneratedKernel("trial", body, (Param("n", "scalar", dtype("int32")),), 32, 0))
print("compiled", flush=True)
try:
    trial.launch((GRID,), [LOOPS])
    print("done", flush=True)
except KeyboardInterrupt:
    trial.launch((2,), [3])
    print("interrupted", flush=True)
"""


def _slow_compiler(folder: Path, seconds: float) -> dict[str, str]:
    """An environment in which the compiler takes a while and leaves the number of its process in
    ``folder / "pid"``."""
    script = folder / "c++"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo slow 1; exit;; esac\n'
        f'echo $$ > {folder}/pid\nsleep {seconds}\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n'
        "echo no >&2\nexit 1\n"
    )
    script.chmod(0o755)
    return {"CXX": str(script), "CUTEBLAS_CACHE_DIR": str(folder)}


class _Program:
    """A Python program in a process of its own; its standard error is a terminal, or a pipe."""

    def __init__(self, text: str, environment: dict[str, str] | None = None, terminal: bool = True):
        self.reading, writing = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", text],
            stdout=subprocess.PIPE,
            stderr=writing,
            text=True,
            env={**os.environ, **(environment or {})},
            # A shell's jobs in the background ignore SIGINT, and so
            # would their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        )
        os.close(writing)
        self.said = ""

    def read(self, until: Callable[[str], bool] = lambda said: False) -> str:
        """What the program has written to standard error, until that is enough or all."""
        while not until(self.said):
            try:
                piece = os.read(self.reading, 4096).decode()
            except OSError:                              # a terminal that nobody has open any more
                break
            if not piece:
                break
            self.said += piece
        return self.said

    def end(self) -> str:
        """What it has printed."""
        self.read()
        os.close(self.reading)
        return self.process.communicate(timeout=60)[0]


def _is_gone(number: int) -> bool:
    for _ in range(40):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_terminal_reads_what_is_compiled(tmp_path):
    program = _Program(COMPILE, _slow_compiler(tmp_path, 1))
    assert "compiling a trial" in program.read(lambda said: "compiling a trial" in said)
    program.end()
    assert program.said.split("Traceback")[0].endswith("\r\x1b[K")              # erased


def test_a_pipe_reads_nothing_of_it(tmp_path):
    program = _Program(COMPILE, _slow_compiler(tmp_path, 1), terminal=False)
    program.end()
    assert "compiling" not in program.said and "refuses a trial:\nno" in program.said


def test_an_interrupt_ends_the_compiler(tmp_path):
    program = _Program(COMPILE, _slow_compiler(tmp_path, 100))
    program.read(lambda said: "compiling" in said)
    began = time.monotonic()
    program.process.send_signal(signal.SIGINT)
    assert program.end() == "interrupted\n"
    assert time.monotonic() - began < 5
    assert _is_gone(int((tmp_path / "pid").read_text()))
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.parametrize(("grid", "loops"), [(10**9, 3), (1, 10**9)])
def test_an_interrupt_ends_a_run(grid, loops):
    program = _Program(RUN.replace("GRID", str(grid)).replace("LOOPS", str(loops)))
    said = program.read(lambda said: "emulating kernel trial" in said)
    assert said.split("\r\x1b[K")[1].startswith("cuteblas: ")
    began = time.monotonic()
    program.process.send_signal(signal.SIGINT)
    assert program.end() == "compiled\ninterrupted\n"
    assert time.monotonic() - began < 5
    assert program.said.endswith("\r\x1b[K")


def test_a_run_says_how_far_it_is():
    program = _Program(RUN.replace("GRID", str(10**9)).replace("LOOPS", "3"))
    assert " s emulating kernel trial, " in program.read(
        lambda said: f" of {10**9} blocks done" in said
    )
    program.process.send_signal(signal.SIGINT)
    program.end()


def test_a_short_run_says_nothing():
    program = _Program(RUN.replace("GRID", "1").replace("LOOPS", "1"))
    assert program.end() == "compiled\ndone\n"
    assert program.said.count("emulating") == 0
