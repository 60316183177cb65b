"""Running plans, compiling, and the message on a machine without a compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import TensorMapSpec
from cuteblas.emulator import compiler
from cuteblas.planning.plan import Argument, Launch, Plan
from cuteblas.planning.problem import H200, CopyProblem

from .kernels import aligned, kernel, ptr, scalar, tensor_map

PROBLEM = CopyProblem((32,), (1,), (1,), 4)


def test_a_plan_runs_its_launches_in_order_through_the_workspace() -> None:
    scale = kernel(
        """
        int r;
        cb::load_global<1>(&r, &A[threadIdx.x]);
        r = cb::scale<int>(r, alpha) + extra;
        cb::store_global<1>(&W[threadIdx.x], &r);
        """,
        (ptr("A", const=True), ptr("W"), scalar("alpha"), scalar("extra")),
    )
    copy = kernel(
        "int r; cb::load_global<1>(&r, &W[threadIdx.x]); cb::store_global<1>(&C[threadIdx.x], &r);",
        (ptr("W", const=True), ptr("C")),
    )
    workspace = Argument("workspace", offset=64)
    plan = Plan(PROBLEM, H200, "test", None, (Launch(scale, (1, 1, 1),
                                                     (Argument("src"), workspace, Argument("alpha"),
                                                      Argument(value=5))),
                                              Launch(copy, (1, 1, 1),
                                                     (workspace, Argument("dst"))),),
                workspace_bytes=64 + 128,)
    a, c = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    emulator.run(plan, {"src": a, "dst": c}, alpha=3)
    np.testing.assert_array_equal(c, 3 * a + 5)
    small = Plan(PROBLEM, H200, "test", None, plan.launches, workspace_bytes=64 + 64)
    with pytest.raises(emulator.GlobalOutOfBounds, match="argument 'W'"):
        emulator.run(small, {"src": a, "dst": c})
    with pytest.raises(KeyError):
        emulator.run(plan, {"src": a})


def test_a_plan_passes_tensor_maps() -> None:
    spec = TensorMapSpec(dtype("int32"), (8,), (), (8,))
    fill = kernel(
        """
        int r = 7; int* s = cb::shared_memory<int>(0);
        cb::store_shared<1>(&s[threadIdx.x], &r); cb::fence_proxy_async(); cb::syncthreads();
        if (threadIdx.x == 0) { cb::tma_store(&map, s, 4); cb::tma_store_commit(); cb::tma_store_wait<0>(); }
        """,
        (tensor_map("map", "int32"),),
        shared=128,
    )
    plan = Plan(PROBLEM, H200, "test", None, (Launch(fill, (1, 1, 1),
                                                     (Argument("dst", tensor_map=spec,
                                                               offset=16),)),))
    c = aligned((16,), "int32")
    c[...] = 0
    emulator.run(plan, {"dst": c})
    np.testing.assert_array_equal(c, [0] * 8 + [7] * 4 + [0] * 4)


def test_kernels_are_compiled_once_and_kept_on_disk(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    source = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
    assert compiler.build(source, "a test").answer() == 42
    (library,) = (tmp_path / "emulator").iterdir()
    before = library.stat().st_ino
    assert compiler.build(source, "a test").answer() == 42
    assert library.stat().st_ino == before
    compiler.build(source.replace("42", "43"), "a test")
    assert len(list((tmp_path / "emulator").iterdir())) == 2
    generated = kernel("")
    assert emulator.compile(generated) is emulator.compile(generated)


def test_what_the_compiler_refuses_is_quoted(tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    with pytest.raises(emulator.CompilerError,
                       match=r"(?s)refuses kernel probe:.*probe:3.*mistake"):
        emulator.compile(kernel("int i = 0;\ni = mistake;"))
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_compiler", lambda: None)
    assert not emulator.available()
    assert "C++17 compiler" in str(emulator.why_unavailable()) and "install" in str(
        emulator.why_unavailable()
    )
    with pytest.raises(emulator.CompilerError, match=r"C\+\+17 compiler"):
        compiler.build("", "nothing")


def test_cxx_names_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", "")
    assert compiler._compiler.__wrapped__() is None
