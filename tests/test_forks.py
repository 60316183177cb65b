"""Children of ``os.fork``: locks that other threads hold do not stop them, and CUDA is refused
where it cannot work."""

import os
import subprocess
import sys
import textwrap

import pytest

from cuteblas import emulator

if not hasattr(os, "fork"):
    pytest.skip("there is no fork", allow_module_level=True)

IN_CHILD = """
import os, signal, sys, threading, time, warnings
import numpy as np
import cuteblas
warnings.simplefilter("ignore")

def child(call, seconds=60):
    '''What a call says in a child.'''
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(seconds)
        try:
            said = call()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, str(said).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(process, 0)
    with os.fdopen(reading) as said:
        return said.read() if status == 0 else f"ended with {status}"
"""


def run(program):
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", IN_CHILD + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_every_lock_of_the_package_is_free_in_a_child():
    """Those that modules have, whichever they are; another thread holds all of them."""
    found, held = run("""
        import importlib, pkgutil
        for module in pkgutil.walk_packages(cuteblas.__path__, "cuteblas."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    if error.name.partition(".")[0] not in ("cupy", "cupyx"):
                        raise
        kinds = type(threading.Lock()), type(threading.RLock())
        locks = {f"{name}.{key}": x for name, module in list(sys.modules.items()) if name.startswith("cuteblas")
                 for key, x in vars(module).items() if type(x) in kinds}
        holding, done = threading.Event(), threading.Event()
        def hold():
            for lock in locks.values():
                lock.acquire()
            holding.set()
            done.wait()
        threading.Thread(target=hold, daemon=True).start()
        holding.wait()
        print(sorted(locks))
        print(child(lambda: [name for name, lock in locks.items() if not lock.acquire(timeout=0.1)]))
        sys.stdout.flush()
        os._exit(0)
    """)[:2]
    assert "cuteblas.engines.counters._lock" in found and "cuteblas.runtime.loading._lock" in found and held == "[]"


@pytest.mark.skipif(not emulator.available(), reason="no C++ compiler for the emulator")
def test_a_child_goes_on_while_another_thread_works():
    """With NumPy and in the emulator, whose runtime was interrupted."""
    assert run("""
        a = np.ones((33, 17), np.float32)
        def work():
            with cuteblas.backend("emulator"):
                while True:
                    cuteblas.matmul(a, a.T)
        def products():
            host = cuteblas.matmul(a, a.T)[0, 0], cuteblas.einsum("ij->", a)
            with cuteblas.backend("emulator"):
                emulated = cuteblas.matmul(a, a.T)
            return host == (17, 561), (emulated == 17).all(), len(cuteblas.stats()) > 0
        with cuteblas.backend("emulator"):
            cuteblas.matmul(a, a.T)
        threading.Thread(target=work, daemon=True).start()
        said = set()
        for _ in range(5):
            time.sleep(0.05)
            said.add(child(products))
        print(said)
        sys.stdout.flush()
        os._exit(0)
    """)[0] == "{'(True, np.True_, True)'}"


@pytest.mark.parametrize("dtype", ["i4", "f2", "u8"])
def test_a_child_multiplies_while_other_threads_are_in_blas(dtype):
    """A fork waits until no thread is inside: locks of the BLAS would stay locked in the child."""
    assert run(f"""
        x = (np.arange(300 * 300).reshape(300, 300) % 7).astype({dtype!r})
        expected = cuteblas.matmul(x, x)
        def work():
            while True:
                cuteblas.matmul(x, x)
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        said = set()
        for _ in range(3):
            time.sleep(0.05)
            said.add(child(lambda: (cuteblas.matmul(x, x) == expected).all(), 20))
        print(said, (cuteblas.matmul(x, x) == expected).all())
        sys.stdout.flush()
        os._exit(0)
    """)[0] == "{'True'} True"


def test_a_handler_forks_inside_of_a_call_that_forks_wait_for():
    """Its own thread is not one to wait for, also while another thread forks."""
    assert run("""
        from cuteblas._forks import WHOLE
        said = []
        def handler(number, frame):
            with WHOLE.lock:
                said.append(child(lambda: cuteblas.matmul(np.ones((64, 64), "i4"), np.ones((64, 64), "i4"))[0, 0]))
        signal.signal(signal.SIGUSR1, handler)
        with WHOLE.lock:
            other = threading.Thread(target=lambda: said.append(child(lambda: "other")))
            other.start()
            time.sleep(0.1)
            signal.raise_signal(signal.SIGUSR1)
        other.join(20)
        print(sorted(said))
    """)[0] == "['64', 'other']"


def test_cuda_is_refused_in_a_child_of_a_process_that_used_it():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    before, *said = run("""
        sys.path.insert(0, os.getcwd())
        from tests.functions.host_cupy import installed, on_gpu
        from cuteblas import blas, epilogues, runtime
        import cuteblas.engines.replay.cupy
        with installed():
            print(child(lambda: "not refused" if runtime.why_unavailable() is not None else ""))
            x, y = on_gpu(np.ones((4, 4), "f4")), np.ones((4, 4), "f4")
            for _ in range(2):
                for call in (lambda: cuteblas.matmul(x, x), lambda: cuteblas.einsum("ij->ji", x), lambda: cuteblas.copy(x.T),
                             lambda: cuteblas.matmul(x, x, epilogue="relu"), lambda: blas.sgemm(1, x, x),
                             lambda: blas.gemm_grouped(1, [x, x], [x, x]), lambda: cuteblas.dot(x, x, out=on_gpu(y.copy())),
                             lambda: cuteblas.ascontiguousarray(x), lambda: blas.pointers.sgemm("N", "N", 1, 1, 1, 1, 16, 1, 16, 1,
                             0, 16, 1), lambda: runtime.why_unavailable()):
                    try:
                        call()
                    except Exception:
                        pass
                    print(child(call))
            print(child(lambda: cuteblas.matmul(y, y)[0, 0]))
    """)
    assert before == "not refused" and said[20] == "4.0"
    assert all("forked from one that had used CUDA" in line for line in said[:20]), said


def test_calls_on_numpy_arrays_are_replayed_in_a_child_of_a_process_that_used_cuda():
    said = run("""
        from cuteblas import blas
        from cuteblas._forks import use_cuda
        use_cuda()
        x = np.ones((4, 4), "f4")
        blas.sgemm(1, x, x)
        frames = []
        def replayed():
            sys.setprofile(lambda frame, event, _argument: frames.append(frame.f_code.co_name))
            blas.sgemm(1, x, x)
            sys.setprofile(None)
            return "replay" in frames and "prepare" not in frames
        print(child(replayed))
    """)
    assert said[0] == "True"


@pytest.mark.gpu
def test_a_child_of_a_process_whose_other_thread_launches():
    said = run("""
        import cupy
        a = cupy.ones((64, 64), "f4")
        cuteblas.matmul(a, a)
        def work():
            i = 0
            while True:
                i += 1
                cuteblas.matmul(a[:1 + i % 64], a)
        threading.Thread(target=work, daemon=True).start()
        for _ in range(10):
            time.sleep(0.05)
            print(child(lambda: cuteblas.matmul(np.ones((2, 2)), np.ones((2, 2)))[0, 0]), child(lambda: cuteblas.matmul(a, a)))
        sys.stdout.flush()
        os._exit(0)
    """)
    assert all(line.startswith("2.0 RuntimeError: this process was forked")
               for line in said[:10]), said
