"""What would end the process or never end: each is an error that names the line, and the process
goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import cuteblas.emulator.kernel
from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import TensorMapSpec
from cuteblas.planning.plan import Argument, Launch, Plan
from cuteblas.planning.problem import H200, CopyProblem

from .kernels import kernel, launch, ptr, scalar, tensor_map

A = (ptr("A"), scalar("n"))
REGISTERS = "alignas(16) {type} r[8];\nfor (int i = 0; i < 8; ++i) r[i] = {{}};\n{use}"
OUTSIDE, ELSEWHERE, MISUSE = emulator.RegisterOutOfBounds, emulator.GlobalOutOfBounds, emulator.MisuseError
TYPES = {"int": "int32", "cb::half": "float16", "signed char": "int8", "double": "float64",
         "cb::complex<float>": "complex64"}


@pytest.mark.parametrize("ctype", TYPES)
@pytest.mark.parametrize(
    "right, wrong, use",
    [
        (7, 8, "r[n] = {{}};"),
        (0, -1, "r[n] = {{}};"),
        (7, 8, "auto x = r[n];"),
        (0, 400, "r[16 * n] = {{}};"),
        (0, 1, "for (int i = 0; i < 8; ++i) r[i + n] = {{}};"),
        (7, 8, "cb::load_global<1>(&r[n], A);"),
        (0, 3, "for (int i = 0; i < n; ++i) cb::load_global<{N}>(&r[{N} * i], A);"),
        (6, 7, "cb::store_global<2>(A, &r[n]);"),
        (6, 7, "cb::load_global<2>(r + n, A, n == 7);"),
        (4, 5, "cb::store_shared<4>(cb::shared_memory<{type}>(0), &r[n]);"),
        (7, 400, "cb::load_global<1>(&r[n], A);"),
    ]
)
def test_registers_past_the_end(ctype, right, wrong, use):
    name, most = TYPES[ctype], 16 // np.dtype(TYPES[ctype]).itemsize
    if "<4>" in use and most < 4:
        use, right, wrong = use.replace("<4>", "<2>"), 6, 7
    if "for (int i = 0; i < n" in use:
        most = min(most, 8)
        right, wrong = 8 // most, 8 // most + 1
    text = REGISTERS.format(type=ctype, use=use.format(type=ctype, N=most))
    params, array = (ptr("A", name), scalar("n")), np.zeros(64, name)
    launch(text, params, (array, right), threads=1, shared=64)
    with pytest.raises(OUTSIDE, match=r"thread 0, line 4: uses "):
        launch(text, params, (array, wrong), threads=1, shared=64)


@pytest.mark.parametrize(
    "use",
    [
        "alignas(16) unsigned a[{0}] = {{}}, b[{1}] = {{}}; alignas(16) float d[{2}] = {{}}; cb::mma_m16n8k16<cb::half>(d, a, b);",
        "alignas(16) unsigned a[{0}] = {{}}, b[{1}] = {{}}; alignas(16) int d[{2}] = {{}}; cb::mma_m16n8k32<signed char>(d, a, b);",
        "alignas(16) double a[{0}] = {{}}, b[{1}] = {{}}, d[{2}] = {{}}; cb::mma_m16n8k8<double>(d, a, b);",
    ]
)
@pytest.mark.parametrize("short", range(3))
def test_products_need_all_their_registers(use, short):
    whole = [4, 2, 4]
    launch(use.format(*whole))
    with pytest.raises(OUTSIDE, match="line 2"):
        launch(use.format(*(n - (i == short) for i, n in enumerate(whole))))


@pytest.mark.parametrize(
    "statement, error, words",
    [
        (
            "A[n] = 1;",
            ELSEWHERE,
            r"dereferences a pointer to byte offset 400 of argument 'A' .* bytes \[0, 128\)"
        ),
        ("if (A[-n] == 3) A[1] = 2;", ELSEWHERE, "byte offset -400 of argument 'A'"),
        (
            "A[n - 100] = 1;",
            MISUSE,
            "byte offset 0 of argument 'A' instead of calling load_global or store_global"
        ),
        (
            "cb::shared_memory<int>(0)[n] = 1;",
            emulator.SharedOutOfBounds,
            "shared offset 400 .* has 64 bytes"
        ),
        (
            "cb::shared_memory<int>(0)[n - 100] = 1;",
            MISUSE,
            "shared offset 0 instead of calling load_shared or store_shared"
        ),
        ("*reinterpret_cast<int*>(n - 100ll) = 1;", ELSEWHERE, "belongs to no argument"),
        ("*reinterpret_cast<int*>(1ull << 63) = n;", ELSEWHERE, "belongs to no argument"),
        ("int volatile x = 5 / (n - 100);", MISUSE, "divides an integer by zero"),
        ("int volatile x = 5 % (n - 100);", MISUSE, "divides an integer by zero"),
        ("long long volatile x = 5ll / (n - 100);", MISUSE, "divides an integer by zero"),
        (
            "unsigned char volatile z = n - 100; int volatile x = 5u % z;",
            MISUSE,
            "divides an integer by zero"
        ),
        (
            "int volatile least = 1 << 31; int volatile x = least / (n - 101);",
            MISUSE,
            "divides an integer"
        ),
        (
            "int volatile x = 1 << (n - 68);",
            MISUSE,
            "shifts an integer by a negative number of bits"
        ),
        ("int volatile x = 1u >> (n - 101);", MISUSE, "shifts an integer"),
        ("__builtin_trap();", MISUSE, "trap"),
    ]
)
def test_what_would_end_the_process(statement, error, words):
    with pytest.raises(error, match=rf"block \(1, 0, 0\), thread 3, line 3: .*{words}"):
        launch(f"if (threadIdx.x == 3 && blockIdx.x == 1) {{\n{statement} }}", A,
               (np.zeros(32, np.int32), 100), shared=64, grid=(2,))
    x = np.zeros(32, np.int32)
    launch("int one = n; cb::store_global<1>(&A[threadIdx.x], &one);", A, (x, 7))
    assert (x == 7).all()


def test_a_stack_that_is_full():
    with pytest.raises(OUTSIDE, match="line 2: goes past the end of its registers"):
        launch("volatile char x[1 << 20]; for (int i = (1 << 20) - 1; i > 0; i -= 64) x[i] = n;", A,
               (np.zeros(1, np.int32), 7))


ENDLESS = {
    "loop": "for (;;) { asm volatile(\"\"); }",
    "spin": "int r = 0; if (threadIdx.x == 0) while (r == 0) cb::load_global<1>(&r, A);",
    "every thread spins": "int r = 0; while (r == 0) cb::load_global<1>(&r, A); cb::syncthreads();",
    "spin on shared memory": "int r = 0; auto* s = cb::shared_memory<int>(0); cb::store_shared<1>(s + threadIdx.x, &r);"
    " while (r == 0) cb::load_shared<1>(&r, s + threadIdx.x);",
    "a bound that is never met": "for (unsigned i = 0; i != 7; i += 2) { cb::store_global<1>(A + threadIdx.x, &n); }",
}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(cuteblas.emulator.kernel, "_ENDLESS_S", 0.3)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("seed", [None, 1])
def test_what_never_ends(impatient, name, seed):
    with pytest.raises(emulator.Deadlock, match=r"thread \d+, line 2: runs for ever"):
        launch(ENDLESS[name], A, (np.zeros(32, np.int32), 0), shared=128, grid=(2,), seed=seed)


def test_a_spin_on_memory_that_another_thread_writes(monkeypatch):
    monkeypatch.setattr(cuteblas.emulator.kernel, "_ENDLESS_S", 2.0)
    spin = """
        int r = 0, one = 1;
        if (threadIdx.x == 1) cb::store_global<1>(A, &one); else while (r == 0) cb::load_global<1>(&r, A);
        """
    with pytest.raises(emulator.DataRace, match=r"line 3: .*argument 'A'"):
        launch(spin, A, (np.zeros(32, np.int32), 0))


def test_long_work_is_no_endless_loop(impatient):
    """Each thread by itself takes less; all of them more."""
    x = np.zeros(32, np.uint32)
    work = "unsigned r = n; for (int i = 0; i < 30000000; ++i) { r = r * 5 + 1; asm volatile(\"\" : \"+r\"(r)); }" \
           "cb::store_global<1>(A + threadIdx.x, &r);"
    launch(work, (ptr("A", "uint32"), scalar("n")), (x, 7))
    power = pow(5, 30_000_000, 4 * 2**32)               # r becomes power * r + (power - 1) / 4
    assert (x == (power * 7 + (power - 1) // 4) % 2**32).all()


PROGRAM = """
import signal, sys, threading
import numpy as np
from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import TensorMapSpec
from tests.emulator.kernels import launch
print("ready", flush=True)
try:
    launch("for (;;) { asm volatile(\\"\\"); }")
except KeyboardInterrupt:
    launch("")
    print("interrupted", flush=True)
"""


def test_an_endless_loop_is_interrupted():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                           signal.SIG_DFL)) as program:
        assert program.stdout.readline() == "ready\n"
        while program.poll() is None:
            program.send_signal(signal.SIGINT)
            try:
                program.wait(1)
            except subprocess.TimeoutExpired:
                continue
        assert program.returncode in (0, -signal.SIGINT)


def test_signals_belong_to_others_afterwards():
    """Also those that come while a kernel runs, but not from it."""
    seen = []
    was = signal.signal(signal.SIGURG, lambda *_: seen.append(1))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGURG))
        timer.start()
        launch("for (int i = 0; i < n; ++i) { asm volatile(\"\"); }", A,
               (np.zeros(1, np.int32), 300_000_000), threads=1)
        timer.join()
        os.kill(os.getpid(), signal.SIGURG)
        assert len(seen) == 2
    finally:
        signal.signal(signal.SIGURG, was)
    crash = "import ctypes\nfrom tests.emulator.test_faults import *\nlaunch('')\nctypes.string_at(0)\n"
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", crash], capture_output=True,
                           text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV and "Fatal Python error: Segmentation fault" in ended.stderr


@pytest.mark.parametrize(
    "read",
    [
        "int r; cb::load_global<1>(&r, &W[threadIdx.x + n]);",
        "cb::cp_async<1>(cb::shared_memory<int>(0) + threadIdx.x, &W[threadIdx.x + n], true); cb::cp_async_commit();"
        "cb::cp_async_wait<0>();",
        "cb::load_flag(reinterpret_cast<unsigned*>(W) + threadIdx.x + n);",
    ]
)
def test_a_new_workspace_is_not_read(read):
    write = kernel("cb::store_global<1>(&W[threadIdx.x], &n);", (ptr("W"), scalar("n")))
    use = kernel(read, (ptr("W"), scalar("n")), shared=128)

    def plan(shift: int, first: int = 0) -> Plan:
        return Plan(CopyProblem((32,), (1,), (1,), 4), H200, "test", None,
                    tuple(Launch(x, (1, 1, 1),
                                 (Argument("workspace", offset=64), Argument(value=shift)))
                          for x in (write, use)[first:]), workspace_bytes=64 + 256)
    emulator.run(plan(0), {})
    with pytest.raises(
        emulator.UnwrittenRead,
        match=r"thread 31, line 2: reads bytes \[128, 132\) of argument 'W', the workspace"
    ):
        emulator.run(plan(1), {})
    with pytest.raises(emulator.UnwrittenRead, match="thread 0, "):
        emulator.run(plan(0, 1), {})


def test_tma_reads_and_writes_a_workspace():
    spec = TensorMapSpec(dtype("int32"), (32,), (), (32,))
    store = kernel(
        """
        int r = 7; int* s = cb::shared_memory<int>(0);
        cb::store_shared<1>(&s[threadIdx.x], &r); cb::fence_proxy_async(); cb::syncthreads();
        if (threadIdx.x == 0) { cb::tma_store(&map, s, n); cb::tma_store_commit(); cb::tma_store_wait<0>(); }
        """,
        (tensor_map("map", "int32"), scalar("n")),
        shared=128
    )
    load = kernel(
        """
        int* s = cb::shared_memory<int>(0); auto* bar = cb::shared_memory<unsigned long long>(128);
        if (threadIdx.x == 0) { cb::mbarrier_init(bar, 1); cb::mbarrier_init_fence(); }
        cb::syncthreads();
        if (threadIdx.x == 0) { cb::mbarrier_arrive_expect_tx(bar, 128);
        cb::tma_load(s, &map, bar, n); }
        cb::mbarrier_wait(bar, 0);
        """, (tensor_map("map", "int32"), scalar("n")), shared=136)

    def run(*launches):
        emulator.run(Plan(CopyProblem((32,), (1,), (1,), 4), H200, "test", None,
                          tuple(Launch(x, (1, 1, 1),
                                       (Argument("workspace", tensor_map=spec), Argument(value=at)))
                                for x, at in launches), workspace_bytes=128), {})
    run((store, 0), (load, 0))
    run((store, 4), (load, 4))
    for wrong in ([(load, 0)], [(store, 4), (load, 0)], [(store, -4), (load, 0)]):
        with pytest.raises(emulator.UnwrittenRead,
                           match=r"line 6: the TMA load reads bytes \[\d+, \d+\) of argument"):
            run(*wrong)
