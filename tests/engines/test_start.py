"""Programs that end, fork, or are interrupted while CUDA starts: of a machine with a GPU, which is
pretended to start slowly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRELUDE = """
import atexit, os, signal, sys, threading, time
import numpy as np
import cuteblas
from cuteblas.engines import placement, settings
settings.driver_is_there = placement.driver_is_there = lambda: True
placement._processors = lambda: 1
begun, ends = threading.Event(), threading.Event()

def start():
    begun.set()
    ends.wait({seconds})
    {then}
real_start, placement._start_and_make_ready = placement._start_and_make_ready, start
x = np.arange(800 * 800, dtype=np.float32).reshape(800, 800) % 7

def multiply():
    return np.array_equal(cuteblas.matmul(x, x), np.matmul(x, x))

placement._prepare()
"""


def output(program, seconds=0.3, then="pass"):
    """The words that a program prints before it ends well; Python 3.12 warns of forks while there
    are threads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEBLAS_BACKEND": "auto"}
    text = PRELUDE.format(seconds=seconds, then=then) + program
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.split()


@pytest.mark.parametrize("then", ["pass", "1 / 0", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_calls_go_on_while_it_starts_and_after_it_failed(then):
    assert output("""
print(multiply() and begun.wait(9), placement._starting.done(), multiply())
placement._starting.exception()
print(multiply(), cuteblas.stats()["matmul"]["calls"])
""", then=then)[:5] == ["True", "False", "True", "True", "{'numpy':"]


@pytest.mark.parametrize(
    "how",
    [
        "pass",
        "sys.exit(0)",
        "threading.Thread(target=lambda: [multiply() for _ in range(3)]).start()",
        "threading.Thread(target=lambda: [multiply() for _ in range(10**6)], daemon=True).start()"
    ]
)
def test_a_program_may_end_meanwhile(how):
    assert output(f"print(multiply() and begun.wait(9))\n{how}") == ["True"]


@pytest.mark.parametrize("then, steps", [
    ("", ["end", "driver"]),
    ("threading.Thread(target=time.sleep, args=(1,)).start()",
     ["end", "driver", "context", "libraries"])])
def test_the_end_waits_for_a_step_of_the_start(then, steps):
    """Other steps are left out, unless a thread of the program goes on."""
    found = output(f"""
from cuteblas.runtime import devices
devices.start_driver = lambda: [ends.wait(0.4), print("driver")]
devices.create_context = lambda: print("context")
devices.load_libraries = lambda: [time.sleep(0.1), print("libraries")]
placement._start_and_make_ready = real_start
cuteblas.install(numpy=True)
time.sleep(0.1)
print("end", flush=True)
{then}
""")
    assert found == steps


def test_products_of_the_end():
    """Python refuses threads by then; the product is NumPy's."""
    assert output("atexit.register(lambda: print(multiply()))") == ["True"]
    assert output(
        "print(multiply() and begun.wait(9))\natexit.register(lambda: print(multiply()))"
    ) == ["True", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_fork_multiplies():
    assert output("""
print(multiply() and begun.wait(9), flush=True)
child = os.fork()
if not child:
    print(multiply(), placement._possible(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], multiply())
""") == ["True", "True", "False", "0", "True"]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no signals")
def test_an_interrupt_ends_a_call_that_waits():
    assert output(
        """
placement._START = 0.01                         # of which all but nothing is left: the call waits
def alarm(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, alarm)
placement.Work.seconds = lambda work: (1e3, 0.0)
threading.Thread(target=lambda: (begun.wait(), time.sleep(0.2), os.kill(os.getpid(), signal.SIGALRM))).start()
try:
    multiply()
    print("not interrupted")
except TimeoutError:
    print("interrupted", placement._starting.done())
ends.set()
placement._starting.exception()
print(multiply())
""",
        seconds=9
    ) == ["interrupted", "False", "True"]
