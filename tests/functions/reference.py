"""Executors for tests: they evaluate problems by the definition, with NumPy on strided views of raw
memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import pytest

import cuteblas.emulator
import cuteblas.planning
from cuteblas.blas.types import dtype_named
from cuteblas.codegen.epilogue import epilogue_role
from cuteblas.planning.plan import Plan
from cuteblas.planning.problem import (
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    ReductionProblem,
)

from .graphs import interpret

LAUNCHED: list[Plan] = []
"""Every plan that was run, in order."""


def fake_plan(problem: GemmProblem | CopyProblem | ContractionProblem | ReductionProblem,
              device: DeviceInfo) -> Plan:
    """A plan without launches."""
    return Plan(problem, device, "reference", None, (), reason="by the definition")


def run_at(plan: Plan, addresses: tuple[int, ...], alpha: complex = 1, beta: complex = 0,
           numbers: Mapping[str, complex] | None = None) -> None:
    """Run a plan on memory of this process."""
    LAUNCHED.append(plan)
    problem = plan.problem
    if isinstance(problem, GemmProblem):
        multiply(problem, dict(zip(problem.roles, addresses, strict=True)), alpha, beta,
                 numbers or {})
    elif isinstance(problem, ContractionProblem):
        _contract(problem, addresses, alpha)
    elif isinstance(problem, ReductionProblem):
        _reduce(problem, addresses)
    else:
        addresses = (addresses[-1], addresses[-1]) if problem.in_place else addresses
        assert addresses[0] % problem.src_alignment == 0 and addresses[1] % problem.dst_alignment == 0
        assert problem.itemsize in (1, 2, 4, 8,
                                    16) and not any(address % problem.itemsize
                                                    for address in addresses)
        word = f"V{problem.itemsize}"
        dst = _view(addresses[1], word, problem.shape, problem.dst_strides)
        dst[...] = _view(addresses[0], word, problem.shape, problem.src_strides).copy()


def multiply(p: GemmProblem, addresses: Mapping[str, int], alpha: complex, beta: complex,
             numbers: Mapping[str, complex]) -> None:
    """A product with all that belongs to it: scalars, and an epilogue by its graph."""
    assert all(n != 1 for n in p.batch)
    named = (*p.fusion.operands, *p.fusion.outputs) if p.fusion else ()
    operands = {"a": (p.a, (p.m, p.k)), "b": (p.b, (p.n, p.k)), "c": (p.c, (p.m, p.n))}
    operands |= {epilogue_role(name): (x, (p.m, p.n)) for name, x in named}
    views = {}
    for role, (x, extents) in operands.items():
        assert len(x.batch_strides) == len(p.batch)
        address = addresses[role] + x.offset
        assert address % dtype_named(x.dtype).itemsize == 0 and address % x.alignment == 0
        views[role] = _view(address, x.dtype, (*p.batch, *extents),
                            (*x.batch_strides, *x.strides))
    scalars = {}
    for role, given in (("alpha", alpha), ("beta", beta)):
        if role in addresses:
            assert addresses[role] % dtype_named(p.accumulator).itemsize == 0
            given = _view(addresses[role], p.accumulator, (), ())[()]
        scalars[role] = {"zero": 0, "one": 1}.get(getattr(p, role), given)
    a, b = (views[role].conj() if x.conj else views[role] for role, x in (("a", p.a), ("b", p.b)))
    if (p.alpha, p.beta, p.fusion, p.compute) == ("one", "zero", None,
                                                  None) and a.dtype == views["c"].dtype:
        views["c"][...] = _product(a, np.swapaxes(b, -1, -2))
        return
    sums = np.dtype(p.accumulator)
    with np.errstate(all="ignore"):
        acc = _product(a.astype(sums), np.swapaxes(b.astype(sums), -1, -2))
        # alpha = 0 reads nothing
        acc = np.broadcast_to(acc if scalars["alpha"] != 0 else np.zeros_like(acc),
                              views["c"].shape)
        if p.fusion is None:
            total = sums.type(scalars["alpha"]) * acc
            result = total + sums.type(scalars["beta"]) * views["c"].astype(sums) if scalars["beta"] != 0 else total
            views["c"][...] = result
            return
        leaves = {("acc", ""): acc, ("c", ""): views["c"].copy(),
                  **{(role, ""): x for role, x in scalars.items()}}
        leaves |= {("operand", name): views[epilogue_role(name)].copy()
                   for name, _x in p.fusion.operands}
        leaves |= {("scalar", node.name): numbers[epilogue_role(node.name)]
                   for node in p.fusion.graph.leaves("scalar")}
        result, outputs = interpret(p.fusion.graph, leaves)
        views["c"][...] = result
        for name, _x in p.fusion.outputs:
            views[epilogue_role(name)][...] = outputs[name]


def _contract(problem: ContractionProblem, addresses: tuple[int, ...], alpha: complex) -> None:
    """A contraction as one batched product of matrices whose modes are views of many axes."""
    m, n, k, batch = (tuple(mode[0] for mode in group)
                      for group in (problem.m, problem.n, problem.k, problem.batch))
    for operand, address in zip((problem.a, problem.b, problem.c), addresses, strict=True):
        assert address % np.dtype(operand.dtype).itemsize == 0 and address % operand.alignment == 0
    in_a, in_b, in_c = (tuple(mode[column] for group, column in groups for mode in group)
                        for groups in (((problem.batch, 1), (problem.m, 1), (problem.k, 1)),
                                       ((problem.batch, 2), (problem.k, 2), (problem.n, 1)),
                                       ((problem.batch, 3), (problem.m, 2), (problem.n, 2))))
    a = _view(addresses[0], problem.a.dtype, (*batch, *m, *k), in_a)
    b = _view(addresses[1], problem.b.dtype, (*batch, *k, *n), in_b)
    c = _view(addresses[2], problem.c.dtype, (*batch, *m, *n), in_c)
    rows, columns, summed = (int(np.prod(extents)) for extents in (m, n, k))
    a, b = (x.conj() if operand.conj else x for x, operand in ((a, problem.a), (b, problem.b)))
    product = _product(a.reshape(*batch, rows, summed),
                       b.reshape(*batch, summed, columns)).reshape(c.shape)
    with np.errstate(all="ignore"):
        c[...] = product if problem.alpha == "one" else product * product.dtype.type(alpha)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices. Sums of nothing are zeros here: once in a thousand runs, one in
    float16 was a NaN."""
    product = np.matmul(a, b)
    return product if a.shape[-1] else np.zeros_like(product)


def _reduce(problem: ReductionProblem, addresses: tuple[int, ...]) -> None:
    """A sum along one mode."""
    for operand, address in zip((problem.x, problem.r), addresses, strict=True):
        assert address % np.dtype(operand.dtype).itemsize == 0 and address % operand.alignment == 0
    x = _view(addresses[0], problem.x.dtype, (*problem.batch, problem.i, problem.j),
              (*problem.x.batch_strides, *problem.x.strides))
    r = _view(addresses[1], problem.r.dtype, (*problem.batch, problem.i),
              (*problem.r.batch_strides, problem.r.strides[0]))
    ufunc = {"sum": np.add, "max": np.maximum, "min": np.minimum}[problem.op]
    r[...] = ufunc.reduce(x, axis=-1, dtype=problem.accumulator)


def run_on(plan: Plan, arrays: dict[str, np.ndarray], alpha: complex = 1, beta: complex = 0,
           numbers: Mapping[str, complex] | None = None) -> None:
    """Run a plan on NumPy arrays by role."""
    run_at(plan, tuple(arrays[role].ctypes.data for role in plan.problem.roles), alpha, beta,
           numbers)


def _view(address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The array at an address; strides are in elements."""
    element = dtype_named(dtype)
    reach = [(n - 1) * s * element.itemsize for n, s in zip(shape, strides,
                                                            strict=True)] if 0 not in shape else []
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + element.itemsize
    buffer = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(shape, element, buffer, -low, tuple(s * element.itemsize for s in strides))


def install(patch: pytest.MonkeyPatch) -> None:
    """Let the emulator backend run problems by the definition."""
    for name in ("plan_gemm", "plan_copy", "plan_contraction", "plan_reduction"):
        patch.setattr(cuteblas.planning, name, fake_plan)
    patch.setattr(cuteblas.emulator, "run", run_on, raising=False)
