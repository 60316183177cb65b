"""CuPy arrays over this process's memory: what CuPy would hold on a GPU, readable by the executors
of ``reference``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from types import SimpleNamespace

import cupy
import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.codegen.epilogue import epilogue_role
from cuteblas.codegen.grouped import word_offsets
from cuteblas.engines import cuda
from cuteblas.engines.memory import without_imaginary_part
from cuteblas.engines.replay import cupy as replay_cupy
from cuteblas.engines.replay import groups, kept
from cuteblas.planning.plan import Plan
from cuteblas.planning.problem import H200, GemmProblem, GroupedProblem, ReductionProblem

from . import reference


def on_gpu(x: np.ndarray, device: int = 0) -> cupy.ndarray:
    """A CuPy array with the memory, strides and alignment of ``x``."""
    address = x.__array_interface__["data"][0]
    memory = cupy.cuda.UnownedMemory(address, max(x.nbytes, 1), x, device)
    return cupy.ndarray(x.shape, x.dtype, cupy.cuda.MemoryPointer(memory, 0), x.strides)


def on_host(x: cupy.ndarray) -> np.ndarray:
    """The elements of such an array."""
    return _any_view(x) if x.size else np.empty(x.shape, x.dtype)


def allocate(nbytes: int) -> cupy.cuda.MemoryPointer:
    """Host memory in place of ``cupy.cuda.alloc``, aligned to 256 bytes as CuPy's."""
    buffer = np.full(nbytes + 256, 0xEE, np.uint8)
    address = buffer.ctypes.data
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, buffer.nbytes, buffer, 0),
                                   -address % 256)


def executor(plan: Plan) -> SimpleNamespace:
    """A ready plan that runs by the definition."""
    def launch(addresses, stream, *scalars):
        if not isinstance(plan.problem, GroupedProblem):
            reference.run_at(plan, addresses, *scalars)
            return
        table, form = reference._view(addresses[0], "int64", (plan.config.table_words,),
                                      (1,)), plan.config.form
        for i, problem in enumerate(plan.problem.problems):
            named = {role: int(table[word]) - shift for word, member, role, shift in form.addresses
                     if member == i}
            numbers = {x.name: table[x.word:x.word + max(1, x.dtype.itemsize // 8)].view(x.dtype)[0]
                       for x in form.numbers if x.problem == i}
            if named:
                reference.multiply(problem, named, numbers.get("alpha", 1), numbers.get("beta", 0),
                                   numbers)

    return SimpleNamespace(launch=launch)


def emulated(plan: Plan) -> SimpleNamespace:
    """A ready plan of products or a reduction that runs in the emulator, on memory that it knows by
    its address only."""
    def launch(addresses, stream, alpha=1, beta=0, numbers=None):
        p = plan.problem
        if isinstance(p, GemmProblem):
            arrays = _matrices(p, dict(zip(p.roles, addresses, strict=True)))
            emulator.run(plan, arrays, alpha, beta, numbers=numbers)
        elif isinstance(p, ReductionProblem):
            src, dst = (reference._view(address, x.dtype, (*p.batch, p.i, p.j),
                                        (*x.batch_strides, *x.strides))
                        for address, x in zip(addresses, (p.x, p.r), strict=True))
            emulator.run(plan, {"src": src, "dst": dst})
        else:
            table = reference._view(addresses[0], "int64", (plan.config.table_words,), (1,))
            emulator.run(plan, {"table": table}, reached=_reached(plan, table))

    return SimpleNamespace(launch=launch)


def _matrices(p: GemmProblem, addresses: dict[str, int]) -> dict[str, np.ndarray]:
    """The arrays of a product, by role."""
    fused = (*p.fusion.operands, *p.fusion.outputs) if p.fusion else ()
    over_c = {"c": p.c} | {epilogue_role(name): x for name, x in fused}
    operands = {"a": (p.a, (p.m, p.k)), "b": (p.b, (p.n, p.k)),
                **{role: (x, (p.m, p.n)) for role, x in over_c.items()}}
    scalars = {role: reference._view(addresses[role], p.accumulator, (), ())
               for role in ("alpha", "beta") if role in p.roles}
    return scalars | {role: reference._view(addresses[role] + x.offset, x.dtype, (*p.batch, *extents),
                                            (*x.batch_strides, *x.strides))
                      for role, (x, extents) in operands.items()}


def _reached(plan: Plan, table: np.ndarray) -> list[np.ndarray]:
    """The arrays of the products of a group, by the addresses in its table."""
    reached = []
    for part in plan.config.parts:
        offsets, _words = word_offsets(part.kernel.row)
        for i, member in enumerate(part.members):
            row = table[part.start + part.entries + i * part.row_words:]
            words = {param.name: int(row[offset])
                     for param, offset in zip(part.kernel.row, offsets, strict=True)}
            reached += _matrices(member.problem,
                                 {"a": words["A"], "b": words["B"], "c": words["C"],
                                  **words}).values()
    return [x for x in reached if x.size]


def install(patch: pytest.MonkeyPatch) -> None:
    """Let CuPy arrays live on the host, as far as ``cuteblas.functions`` is concerned."""
    def cast(_engine: cuda.Cuda, dst: cupy.ndarray, src: cupy.ndarray) -> None:
        np.copyto(read(dst), without_imaginary_part(read(src), dst.dtype), casting="unsafe")

    def contiguous(function):
        return lambda x, dtype=None: on_gpu(function(read(x), dtype))

    patch.setattr("cuteblas.runtime.executor", executor)
    patch.setattr("cuteblas.runtime.device_info", lambda ordinal: H200)
    for module in (cuda, replay_cupy, groups, kept):
        patch.setattr(module, "several_devices", lambda: False)
        patch.setattr(module, "current_stream", lambda: 0, raising=module is not kept)
        patch.setattr(module, "uploaded", lambda table: on_gpu(table).data, raising=False)
    allocators = [allocate]
    patch.setattr(cupy.cuda, "alloc", lambda nbytes: allocators[-1](nbytes))
    patch.setattr(cupy.cuda, "get_allocator", lambda: allocators[-1])
    patch.setattr(cupy.cuda, "set_allocator", allocators.append)
    patch.setattr(
        cupy,
        "empty",
        lambda shape, dtype: cupy.ndarray(
            shape, dtype, allocate(prod(shape) * np.dtype(dtype).itemsize)
        )
    )
    patch.setattr(cuda.Cuda, "cast", cast)
    patch.setattr(cuda.Cuda, "number", lambda self, value: on_gpu(value))
    patch.setattr(cuda.Cuda, "identity",
                  lambda self, extent, dtype: on_gpu(np.eye(extent, dtype=dtype)))
    patch.setattr(
        cuda.Cuda, "multiply", lambda self, x, y, out: np.multiply(read(x), read(y), read(out))
    )
    patch.setattr("cuteblas.runtime.capturing", lambda: False)
    patch.setattr(cupy.linalg, "inv", lambda x: on_gpu(np.linalg.inv(read(x))))
    for name in ("ascontiguousarray", "asfortranarray"):
        patch.setattr(cupy, name, contiguous(getattr(np, name)))


def read(x: cupy.ndarray) -> np.ndarray:
    """The elements of an array as CuPy's kernels read and write them."""
    assert cuda.CUDA.memory(x).whole_elements, "CuPy's kernels fault on elements that are not aligned to their size"
    return on_host(x)


def _any_view(x: cupy.ndarray) -> np.ndarray:
    """Any elements, aligned or not."""
    low, high = cuda.CUDA.memory(x).span
    buffer = (ctypes.c_char * (high - low)).from_address(x.data.ptr + low)
    buffer.owner = x                    # lives as long as its elements are looked at
    return np.ndarray(x.shape, x.dtype, buffer, -low, x.strides)


@contextmanager
def installed() -> Iterator[None]:
    """CuPy's arrays in host memory while this lasts; recorded calls are forgotten after it."""
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        yield
    replay_cupy.recorded.clear()
    cuda.launcher_for.cache_clear()
