"""How commands begin and end, whatever they are given: no traceback, one line, and the exit status
of other tools."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cuteblas
from cuteblas import cli
from cuteblas.cli import command, main
from cuteblas.cli.command import CommandError, ended
from cuteblas.cli.terminal import Progress

CUTEBLAS = [sys.executable, "-m", "cuteblas"]
TESTSUITE = [sys.executable, "-m", "conformance.blas", "--sizes", "3"]


def environment(**changes):
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | changes


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 5), "f4"))
    return str(tmp_path / "x.npy")


# -- help and version ------------------------------------------------------------------------------
def test_no_command_prints_help(capsys):
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert all(f"\n  {name} " in out for name in cli.COMMANDS) and "--version" in out and err == ""


@pytest.mark.parametrize("arguments, words", [(["help"], "commands:"),
                                              (["help", "cache"], "--clear")])
def test_help_may_be_a_word(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0 and words in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"cuteblas {cuteblas.__version__}\n"


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (["dmeo"], 2, "there is no command or file 'dmeo'; did you mean demo?"),
        (["zzz"], 2, "the commands are run, demo, explain"),
        (["kernels", "gemm_wgma"], 2, "did you mean gemm_wgmma?"),
        (["--nope"], 2, "unrecognized arguments: --nope"),
        (
            ["cache", "--nope"],
            2,
            "python -m cuteblas cache: unrecognized arguments: --nope; python -m cuteblas cache --help says more"
        ),
        (["layout"], 2, "required: LAYOUT"),
        (["demo", "missing.npy"], 2, "missing.npy cannot be read: No such file")
    ]
)
def test_errors_are_one_line(arguments, status, words, capsys):
    try:
        found = main(arguments)
    except SystemExit as stop:
        found = stop.code
    out, err = capsys.readouterr()
    assert found == status and words in err and err.count("\n") == 1 and out == ""


@pytest.mark.parametrize("width", ["64", "80"])
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_fits_the_terminal(name, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", width)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(width)


# -- the end of a command --------------------------------------------------------------------------
@pytest.mark.parametrize("error, status, sentence",
                         [(CommandError("so it is"), 2, "so it is"),
                          (CommandError("so it failed", 1), 1, "so it failed"),
                          (KeyboardInterrupt(), 130, None),
                          (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, None),
                          (OSError(errno.ENOSPC, "No space left on device"), 1,
                           "No space left on device"),
                          (PermissionError(errno.EACCES, "Permission denied", "/x"), 1,
                           "'/x': Permission denied"),
                          (MemoryError(), 1,
                           "there is not enough memory: the system has none to give"),
                          (MemoryError("Unable to allocate 9 TiB"), 1,
                           "there is not enough memory: Unable to allocate 9 TiB"),
                          (RecursionError("maximum"), 1, "the input is nested too deeply"),
                          (RuntimeError("no device"), 1, "no device"),
                          (ModuleNotFoundError("No module named 'x'"), 1, "No module named 'x'")])
def test_what_ends_a_command(error, status, sentence, capsys):
    def work():
        raise error

    assert ended(work) == status
    assert capsys.readouterr() == ("", f"{sentence}\n" if sentence else "")


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        ended(lambda: 1 // 0)


def test_closed_streams(monkeypatch):
    """``>&-`` leaves Python without a stream."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["layout", "(4,4)"]) == 0 and main(["dmeo"]) == 2


def test_files_that_cannot_be_written(tmp_path, monkeypatch):
    command.refuse_unwritable(None, tmp_path / "new", "/dev/null")
    for path in (tmp_path, tmp_path / "no" / "file", tmp_path / ("x" * 300), ""):
        with pytest.raises(CommandError, match="cannot be written: "):
            command.refuse_unwritable(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CommandError, match="permission denied"):
        command.refuse_unwritable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# -- processes -------------------------------------------------------------------------------------
@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("arguments", [["kernels"], ["layout", "(60,60)"], ["cache"], ["doctor"],
                                       ["explain", "64x64", "64x64"], ["--help"], [],
                                       ["bench", "--help"], ["demo", "FILE"],
                                       ["bench", "--backend", "numpy", "--sizes", "20", "--repeats",
                                        "1"], ["-m", "conformance.blas"]], ids=" ".join)
def test_a_closed_pipe_is_no_error(arguments, file):
    """As ``command | head -0``: silent, with the status of a tool that SIGPIPE ends."""
    ours = TESTSUITE if "conformance.blas" in arguments else [*CUTEBLAS, *(file if a == "FILE" else a for a in arguments)]
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(ours, stdout=writing, stderr=subprocess.PIPE,
                            env=environment(CXX="none", PATH=""), timeout=60)
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_said():
    with open("/dev/full", "w") as full:
        result = subprocess.run([*CUTEBLAS, "layout", "(4,4)"], stdout=full, stderr=subprocess.PIPE,
                                env=environment(), timeout=60)
    assert (result.returncode, result.stderr) == (1, b"No space left on device\n")


@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"},
                                      {"LC_ALL": "C", "PYTHONUTF8": "0",
                                       "PYTHONCOERCECLOCALE": "0"}])
def test_names_that_the_output_cannot_encode(settings, tmp_path):
    name = os.fsdecode(b"caf\xc3\xa9\xff.npy")
    np.save(tmp_path / name, np.ones((4, 5), "f4"))
    result = subprocess.run([*CUTEBLAS, "demo", name], capture_output=True,
                            env=environment(CXX="none", PATH="", **settings), cwd=tmp_path,
                            timeout=60)
    assert result.returncode == 0 and result.stderr == b"" and b"caf" in result.stdout


def as_in_a_terminal():
    """A shell's jobs in the background ignore SIGINT, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("arguments", [[*CUTEBLAS, "bench", "--backend", "numpy", "--repeats",
                                        "100000"],
                                       [*TESTSUITE, "--trans", "all", "--storage", "all"]],
                         ids=["bench", "testsuite"])
def test_an_interrupt_ends_with_130(arguments):
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(), preexec_fn=as_in_a_terminal)
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_inside_of_exec_ends_with_130_too(tmp_path):
    """CPython notes a KeyboardInterrupt that leaves ``exec``, as of dataclasses; ``-m`` then ends
    by SIGINT whatever the status."""
    (tmp_path / "program.py").write_text(
        "import sys, time; from cuteblas.cli.command import ended\n"
        "sys.exit(ended(lambda: exec('print(flush=True); time.sleep(50)')))\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "program"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=tmp_path, env=environment(),
                               preexec_fn=as_in_a_terminal)
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


def test_a_comparison_without_cupy():
    result = subprocess.run([*CUTEBLAS, "--compare", "-c", "pass"], capture_output=True, text=True,
                            env=environment(), timeout=60)
    assert (result.returncode, result.stderr) == (
        0,
        (
            "\ncuteblas: the program has not imported CuPy; python -m cuteblas --numpy serves NumPy arrays\n"
        )
    )


# -- progress --------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self):
        return True


def counted(monkeypatch, stream, **modules):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("cuteblas.cli.terminal._SECONDS", 0.0)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with Progress("cases", 2) as progress:
        progress.print("first")
        progress.advance()
        progress.advance()
    return stream.getvalue()


def test_progress_is_for_terminals(monkeypatch, capsys):
    assert counted(monkeypatch, io.StringIO()) == "" and capsys.readouterr().out == "first\n"


@pytest.mark.parametrize("without", ["tqdm", "a terminal that can write over a line"])
def test_progress_in_plain_lines(without, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm" if without == "tqdm" else "dumb")
    text = counted(monkeypatch, Terminal(), **({"tqdm": None} if without == "tqdm" else {}))
    assert text == "cases: 1 of 2 after 0 s\ncases: 2 of 2 after 0 s\n" and capsys.readouterr().out == "first\n"


def test_progress_as_a_bar(monkeypatch, capsys):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    monkeypatch.setenv("TERM", "xterm")
    assert "0/2" in counted(monkeypatch, Terminal()) and capsys.readouterr().out == "first\n"


@pytest.mark.parametrize("arguments, there, expected",
                         [(["--numpy", "program.py"], True, "20"),
                          (["run", "--compare", "--numpy", "program.py"], True, "20"),
                          (["--numpy", "program.py"], False, None), (["program.py"], True, None)])
def test_threads_of_openblas_wait_for_less_time_where_arrays_may_move(arguments, there, expected,
                                                                      monkeypatch):
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "")   # restored after the test
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT")
    monkeypatch.setattr(cli, "driver_is_there", lambda: there)
    monkeypatch.setattr(cli, "_run", lambda arguments: 0)
    assert cli.main(arguments) == 0
    assert os.environ.get("OPENBLAS_THREAD_TIMEOUT") == expected
