"""What is kept of plans for other processes."""

import ctypes
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cuteblas._cache import cache_directory, keep
from cuteblas.planning import H200, CopyProblem, GemmProblem, Operand, plan_copy, plan_gemm
from cuteblas.runtime import Executor
from cuteblas.runtime.arguments import ArgumentBlock
from cuteblas.runtime.compiler import compile, cubin_name
from tests.runtime.samples import MULTIPLY, multiply_plan

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines.replay import kept  # noqa: E402


def product(name, n, **more):
    return plan_gemm(GemmProblem(n, n, n, Operand(name, (n, 1)), Operand(name, (1, n)),
                                 Operand(name, (n, 1)), **more), H200)


PLANS = {"simt": lambda: product("float32", 33),
         "scalars": lambda: product("float32", 100, alpha="value", beta="value"),
         "complex scalars": lambda: product("complex64", 100, alpha="value"),
         "tensor maps": lambda: product("float16", 1024), "split": lambda: product("float32", 1024),
         "modular": lambda: product("float64", 4096),
         "copy": lambda: plan_copy(CopyProblem((300, 200), (1, 300), (200, 1), 4), H200)}


def encoder(spec):
    """Stands for the driver's encoding of tensor maps: 128 bytes for each description and
    address."""
    def encode(address):
        text = repr((spec.dtype.name, spec.shape, spec.strides, spec.box, spec.swizzle,
                     address)).encode()
        memory = ctypes.create_string_buffer(text[:128])
        return SimpleNamespace(address=ctypes.addressof(memory), memory=memory)
    return encode


def arguments_of(plan, launches):
    """The bytes of all arguments of launches on certain addresses."""
    roles = (*plan.roles, "workspace")
    block = ArgumentBlock(launches, roles, encoder)
    block.write(range(0x1000, 0x1000 + 0x1000 * len(roles), 0x1000), 2.5,
                1.5 - 2j if "complex" in repr(launches[0]) else 1.5)
    found = []
    for launch, parameters in zip(launches, block.parameters, strict=True):
        pointers = (ctypes.c_void_p * len(launch.kernel.params)).from_address(parameters)
        found.append([ctypes.string_at(pointer) if param.kind == "tensor_map" else
                      ctypes.string_at(pointer, 8 if param.kind == "pointer" else param.dtype.bytes)
                      for pointer, param in zip(pointers, launch.kernel.params, strict=True)])
    return found


@pytest.fixture
def loaded(monkeypatch):
    """Kernels that are loaded without a device: by their names in the cache."""
    found = []

    def load_cubin(kernel, cubin, ordinal):
        found.append((kernel.name, kernel.shared_bytes, kernel.cluster, cubin, kernel.cubin,
                      ordinal))
        return SimpleNamespace(function=len(found))

    monkeypatch.setattr(sys.modules["cuteblas.runtime.executor"], "tensor_map_encoder", encoder)
    monkeypatch.setattr(kept, "is_loaded", lambda kernel, ordinal: True)
    monkeypatch.setattr(kept, "load_cubin", load_cubin)
    return found


@pytest.mark.parametrize("name", PLANS)
def test_a_kept_plan_launches_what_the_plan_launches(name, loaded, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    plan = PLANS[name]()
    record = kept.tuples(json.loads(json.dumps(kept.plan_to_json(plan, 0))))
    for i, launch in enumerate(plan.launches):
        keep("entries", cubin_name(launch.kernel, record_arch(launch)), b"cubin %d" % i)
    ready = kept.executor_from_json(record, 0)
    assert isinstance(ready, Executor)
    again = ready.plan
    assert (again.roles, again.arch, again.workspace_bytes) == (plan.roles, plan.arch,
                                                                plan.workspace_bytes)
    for one, other in zip(plan.launches, again.launches, strict=True):
        same = "name", "threads", "shared_bytes", "cluster", "waits"
        assert [getattr(one.kernel, x) for x in same] == [getattr(other.kernel, x)
                                                          for x in same] and one.grid == other.grid
        assert [(x.name, x.kind, x.dtype) for x in one.kernel.params] == [
            tuple(x) for x in other.kernel.params
        ]
    assert arguments_of(plan, plan.launches) == arguments_of(again, again.launches)
    assert [x[0] for x in loaded] == [launch.kernel.name for launch in plan.launches]


def record_arch(launch):
    return launch.kernel.arch if launch.kernel.arch.endswith("a") else "sm_90"


def test_what_was_not_launched_here_is_not_kept():
    assert kept.plan_to_json(product("float32", 33), 0) is None


def test_without_its_machine_code_a_plan_is_made_again(loaded, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    plan = product("float32", 33)
    record = kept.plan_to_json(plan, 0)
    assert kept.executor_from_json(record, 0) is None
    keep("entries", cubin_name(plan.launches[0].kernel, "sm_90"), b"a cubin")
    (entry,) = (cache_directory() / "entries").iterdir()
    entry.write_bytes(entry.read_bytes()[1:])
    assert kept.executor_from_json(record, 0) is None and not loaded


def test_the_machine_code_is_the_compilers(loaded, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path))
    cubin = compile(MULTIPLY, "sm_90")
    kept.executor_from_json(kept.plan_to_json(multiply_plan(7), 3), 3)
    (found,) = loaded
    assert found[3:] == (cubin, cubin_name(MULTIPLY, "sm_90"),
                         3) and (cache_directory() / "entries" / found[4]).exists()


def test_numbers_that_are_complex_stay(loaded):
    assert kept._argument(("role", (1.5, -2.0), 0, None)).value == 1.5 - 2j
    assert np.isinf(kept._argument(json.loads(json.dumps([None, float("inf"), 0, None]))).value)
