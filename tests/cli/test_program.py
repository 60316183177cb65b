"""``python -m cuteblas PROGRAM``: programs run as Python runs them, and are reported on."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas import cli, runtime

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "pca.py"
SCRIPT = """
import sys, helper
seen = {name: globals().get(name) for name in ("__name__", "__file__", "__package__", "__cached__", "__doc__")}
print(seen, __spec__ and __spec__.name, type(__loader__).__name__, sys.argv, sys.path[0])
print(sys.modules["__main__"].__dict__ is globals(), helper.here)
def end(how, *rest):
    if how == "raise":
        raise ValueError("a program's own")
    if how == "chain":
        try:
            {}["x"]
        except KeyError as error:
            raise RuntimeError("because") from error
    if how == "interrupt":
        raise KeyboardInterrupt
    sys.exit({"status": 7, "text": "the last words", "nothing": None}[how])
if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
    end(*sys.argv[1:])
"""


FILES = {
    "script.py": SCRIPT,
    "helper.py": "here = True",
    "broken.py": "x = (\n",
    "empty/data.txt": "",
    "package/__init__.py": "",
    "package/__main__.py": SCRIPT,
    "package/tool.py": SCRIPT,
    "app/__main__.py": SCRIPT,
    "app/helper.py": "here = 'app'",
    "tools/script.py": SCRIPT,
    "tools/helper.py": "here = 'tools'",
    "latin.py": "# coding: latin-1\nprint(len('\xe9'))",
    "annotations.py": "def f(x: 1 + 1): pass\nprint(f.__annotations__)",
    "hook.py": """
import sys
def shown(kind, error, trace):
    print("caught", trace.tb_frame.f_code.co_name, file=sys.stderr)
sys.excepthook = shown
1 / 0
""",
    "threads.py": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.3), print("late"))).start()
"""
}


@pytest.fixture
def folder(tmp_path):
    for path, text in FILES.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode("latin-1"))
    return tmp_path


def python(folder, *arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder,
                          timeout=60, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
                          | environment)


@pytest.mark.parametrize("arguments", [["script.py"], ["script.py", "-m", "--compare", "x"],
                                       ["./script.py", "status"], ["script.py", "text"],
                                       ["script.py", "nothing"], ["script.py", "raise"],
                                       ["script.py", "chain"], ["broken.py"], ["missing.py"],
                                       ["-m", "script", "-c", "--help"], ["-m", "package", "raise"],
                                       ["-m", "package.tool", "status"], ["-m", "missing"],
                                       ["-m", "empty"], ["-c", SCRIPT, "raise", "-x"],
                                       ["-c", SCRIPT], ["app", "raise"], ["tools/script.py"],
                                       ["empty"], ["hook.py"], ["latin.py"], ["annotations.py"],
                                       ["threads.py"]],
                         ids=lambda arguments: " ".join("CODE" if a == SCRIPT else a
                                                        for a in arguments))
def test_programs_end_as_without_us(folder, arguments):
    expected, result = python(folder, *arguments), python(folder, "-m", "cuteblas", *arguments)
    assert (result.returncode, result.stdout) == (expected.returncode, expected.stdout)
    told, _, report = result.stderr.partition("\ncuteblas: ")
    wanted = expected.stderr.replace(f"{sys.executable}: ", "python -m cuteblas: ")
    # Python shows its own way to -m; ours is not shown
    lines = [line for line in wanted.splitlines() if "runpy" not in line]
    assert told.splitlines() == lines
    started = "can't" not in told and "No module" not in told and "broken.py" not in arguments
    assert report.strip() == (
        "the program has not imported CuPy; python -m cuteblas --numpy serves NumPy arrays"
        if started
        else ""
    )


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_is_one(folder):
    for arguments in ([], ["-m", "cuteblas"]):
        result = python(folder, *arguments, "script.py", "interrupt")
        assert result.returncode in (-signal.SIGINT, 130)
        assert "KeyboardInterrupt" in result.stderr and "cuteblas/cli" not in result.stderr


def test_the_word_run_may_be_said(folder):
    for arguments in (["run", "script.py"], ["run", "--compare", "script.py"],
                      ["--compare", "script.py"], ["run", "-m", "script"]):
        result = python(folder, "-m", "cuteblas", *arguments, "status")
        assert result.returncode == 7 and "'status']" in result.stdout, result.stderr
    assert python(folder, "-m", "cuteblas", "run").returncode == python(folder, "-m", "cuteblas", "-m").returncode == 2


def test_a_command_is_no_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").write_text("1 / 0")
    assert cli.main(["cache"]) == 0
    assert "for the emulator" in capsys.readouterr().out


def test_a_program_that_makes_no_product(folder):
    pytest.importorskip("cupy", reason="CuPy is not installed")
    (folder / "idle.py").write_text("import cupy\nprint('dot' in vars(cupy.ndarray))")
    result = python(folder, "-m", "cuteblas", "--compare", "idle.py")
    assert result.stdout == "True\n"
    assert result.stderr.strip() == "cuteblas: the program made no product of CuPy arrays"


@pytest.mark.skipif(runtime.available(), reason="there is a GPU")
def test_a_program_where_kernels_cannot_run(folder):
    pytest.importorskip("cupy", reason="CuPy is not installed")
    (folder / "product.py").write_text("""
import cupy
memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(4096, 1 << 20, None, 0), 0)
a = cupy.ndarray((4, 4), "f4", memory)
try:
    a @ a
except Exception as error:
    print(type(error).__name__)
""")
    expected, result = python(folder, "product.py"), python(folder, "-m", "cuteblas", "product.py")
    assert result.stdout == expected.stdout != ""
    assert f"CuPy ran all products: cuteblas cannot be installed: {runtime.why_unavailable()}"[:60] in result.stderr


# -- reports on programs that make products --------------------------------------------------------
@pytest.fixture
def on_the_host(monkeypatch):
    """CuPy on the host, and what is to be done at the end of the process."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    import cupy

    from cuteblas.array import hooks, patches
    from cuteblas.engines import cuda
    from cuteblas.engines.replay import cupy as replay_cupy

    from ..functions import host_cupy, reference

    host_cupy.install(monkeypatch)
    for name in ("plan_gemm", "plan_copy", "plan_contraction"):
        monkeypatch.setattr(f"cuteblas.planning.{name}", reference.fake_plan)
    for name, value in (("why_unavailable", None), ("available", True), ("capturing", False)):
        monkeypatch.setattr(runtime, name, lambda value=value: value)
    monkeypatch.setattr(cupy, "asarray", host_cupy.on_gpu)
    monkeypatch.setattr(cupy, "asnumpy", host_cupy.on_host)
    def by_cupy(a, b, *rest):
        return host_cupy.on_gpu(host_cupy.on_host(a) @ host_cupy.on_host(b))

    for owner, name in ((cupy.ndarray, "__matmul__"), (cupy.ndarray, "dot"),
                        (cupy.matmul, "_try_fastcall_func")):
        monkeypatch.setattr(owner, name, by_cupy, raising=False)
    monkeypatch.setattr(hooks, "SWITCH", hooks.Switch("cupy", hooks.PATCHES))
    monkeypatch.setattr(patches, "MADE_BY_CHECKS", Counter())
    at_end = []
    monkeypatch.setattr(atexit, "register", at_end.append)
    monkeypatch.setattr(atexit, "unregister", at_end.remove)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    cuteblas.reset_stats()
    yield at_end
    cuteblas.uninstall()
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()


PRODUCTS = """
import numpy as np, cupy
from tests.functions.host_cupy import on_gpu
class Sub(cupy.ndarray): pass
a, b = on_gpu(np.ones((3, 4), "f4")), on_gpu(np.ones((4, 5), "f4"))
for _ in range(5):
    c = a @ b
a.dot(on_gpu(np.ones((4, 5), "f8")))
a.dot(b.view(Sub))
cupy.matmul(a, on_gpu(np.ones((5, 4), "f4")).T[:, ::-1])
"""
NUMPYS = "\nimport cuteblas\ncuteblas.matmul(np.eye(2), np.eye(2))"


def test_what_was_served_and_what_was_not(on_the_host, capsys):
    assert cli.main(["-c", PRODUCTS + NUMPYS]) == 0
    assert capsys.readouterr().err == "" and len(on_the_host) == 1
    on_the_host[0]()
    assert capsys.readouterr().err.splitlines() == [
        "", "cuteblas ran 7 of 9 products and copies on its own kernels",
        "          1  dot: CuPy: Sub is a subclass of cupy.ndarray",
        "          7  matmul: reference",
        "          1  matmul: numpy",
        "          1  matmul: copied x1: is float32, computed in float64"]


def test_the_report_comes_before_cupys_own_ends(on_the_host, monkeypatch):
    def imported(then):
        on_the_host.append("what CuPy's import registers")
        then()

    monkeypatch.setattr("cuteblas.cli.run.install_with_cupy", imported)
    cli.main(["-c", "pass"])
    assert [callable(each) for each in on_the_host] == [False, True]  # the last one is called first


def test_an_exception_still_leaves_a_report(on_the_host, capsys):
    with pytest.raises(ZeroDivisionError):
        cli.main(["-c", f"{PRODUCTS}\n1 / 0"])
    on_the_host[0]()
    assert "cuteblas ran 7 of 8" in capsys.readouterr().err


class Clock:
    """A GPU that is this process's memory; calls are told apart by who serves them."""

    def __init__(self, counted):
        import cupy

        from ..functions.host_cupy import on_gpu, on_host

        self.rival = SimpleNamespace(asarray=on_gpu, ndarray=cupy.ndarray,
                                     resize=lambda x, n: on_gpu(np.resize(on_host(x), n)))
        self._counted = counted

    def _seconds(self, call):
        before = self._counted()
        call()
        return 0.001 if self._counted() > before else 0.004

    def interval(self, call, times):
        return self._seconds(call) * times

    def host_interval(self, call, times):
        return self._seconds(call) * times / 10


def test_times_are_compared_by_kind_of_call(on_the_host, monkeypatch, capsys):
    from cuteblas.array import hooks
    from cuteblas.cli import comparison

    monkeypatch.setattr(comparison, "Gpu",
                        lambda: Clock(lambda: cuteblas.stats()["matmul"]["calls"]["reference"]))
    cli.main(["--compare", "-c", PRODUCTS])
    on_the_host[0]()
    table = capsys.readouterr().err.partition("\ntime of one call")[2].splitlines()[2:]
    assert [" ".join(line.split()) for line in table] == [
        "5 1 ms (100 us) 4 ms (400 us) 4.00 ndarray.__matmul__(float32 3x4, float32 4x5)",
        "1 1 ms (100 us) 4 ms (400 us) 4.00 ndarray.dot(float32 3x4, float64 4x5)",
        "1 1 ms (100 us) 4 ms (400 us) 4.00 matmul(float32 3x4, float32 4x5 strided)",
        "in all 7 ms (700 us) 28 ms (2.8 ms) 4.00"]
    assert hooks.SWITCH.watch is None


def test_arrays_are_made_again_as_they_were(on_the_host):
    from cuteblas.cli.comparison import described, frozen
    from cuteblas.cli.machines import random_array_at

    from ..functions.arrays import LAYOUTS, laid_out
    from ..functions.host_cupy import on_gpu, on_host

    cupy = Clock(lambda: 0).rival
    for layout in LAYOUTS:
        for dtype in ("f4", "i2", "?", "c16", "i1"):
            x = on_gpu(laid_out((3, 4, 5), dtype, layout))
            again = random_array_at(cupy, frozen(x, []).memory)
            assert (again.shape, again.strides, again.dtype,
                    again.data.ptr % 16) == (x.shape, x.strides, x.dtype, x.data.ptr % 16)
            if layout == "C":
                assert len(np.unique(on_host(again))) > 1 and described(frozen(x, []).memory) == f"{x.dtype} 3x4x5"
    assert described(frozen(on_gpu(np.ones((3, 4)).T), []).memory) == "float64 4x3 F"
    assert random_array_at(cupy, frozen(on_gpu(np.ones((0, 4))), []).memory).shape == (0, 4)


def test_what_cannot_be_timed_is_counted(on_the_host):
    from cuteblas.array import hooks
    from cuteblas.cli.comparison import CupyCalls

    from ..functions.host_cupy import on_gpu

    a = on_gpu(np.ones((3, 3), "f4"))
    counter = CupyCalls()
    assert list(counter.compared()) == []
    function = hooks.PATCHES[1]
    counter.note(function, (a, a, None, [(0, 1)]))
    counter.note(function, (a, a, None))
    function.link()
    function.original = lambda *call: NotImplemented
    lines = list(counter.compared(Clock(lambda: 0)))
    function.unlink()
    assert lines[-1].split() == ["2", "calls", "were", "not", "timed"]


@pytest.mark.gpu
def test_the_example_is_served(folder):
    without = python(folder, str(EXAMPLE), "20000", "32")
    assert without.returncode == 0, without.stderr
    result = python(folder, "-m", "cuteblas", "--compare", str(EXAMPLE), "20000", "32")
    assert result.returncode == 0, result.stderr
    assert result.stdout.partition(";")[0] == without.stdout.partition(";")[0]
    assert "matmul: gemm" in result.stderr and "in all" in result.stderr and "CuPy:" not in result.stderr
