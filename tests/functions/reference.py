"""Executors for tests: they evaluate problems by the definition, with NumPy on strided views of raw memory."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import cuteblas.emulator
import cuteblas.planning
from cuteblas.planning.plan import Plan
from cuteblas.planning.problem import ContractionProblem, CopyProblem, DeviceInfo, GemmProblem, ReductionProblem

LAUNCHED: list[Plan] = []
"""Every plan that was run, in order."""


def fake_plan(problem: GemmProblem | CopyProblem | ContractionProblem | ReductionProblem, device: DeviceInfo) -> Plan:
    """A plan without launches."""
    return Plan(problem, device, "reference", None, (), reason="by the definition")


def run_at(plan: Plan, addresses: tuple[int, ...]) -> None:
    """Run a plan on memory of this process."""
    LAUNCHED.append(plan)
    problem = plan.problem
    if isinstance(problem, GemmProblem):
        batch = problem.batch
        assert all(n != 1 for n in batch)
        for operand, address in zip((problem.a, problem.b, problem.c), addresses, strict=True):
            assert len(operand.batch_strides) == len(batch)
            assert address % np.dtype(operand.dtype).itemsize == 0 and address % operand.alignment == 0
        a = _view(addresses[0], problem.a.dtype, (*batch, problem.m, problem.k), (*problem.a.batch_strides, *problem.a.strides))
        b = _view(addresses[1], problem.b.dtype, (*batch, problem.n, problem.k), (*problem.b.batch_strides, *problem.b.strides))
        c = _view(addresses[2], problem.c.dtype, (*batch, problem.m, problem.n), (*problem.c.batch_strides, *problem.c.strides))
        c[...] = _product(a, np.swapaxes(b, -1, -2))
    elif isinstance(problem, ContractionProblem):
        _contract(problem, addresses)
    elif isinstance(problem, ReductionProblem):
        _reduce(problem, addresses)
    else:
        addresses = (addresses[-1], addresses[-1]) if problem.in_place else addresses
        assert addresses[0] % problem.src_alignment == 0 and addresses[1] % problem.dst_alignment == 0
        assert problem.itemsize in (1, 2, 4, 8, 16) and not any(address % problem.itemsize for address in addresses)
        word = f"V{problem.itemsize}"
        dst = _view(addresses[1], word, problem.shape, problem.dst_strides)
        dst[...] = _view(addresses[0], word, problem.shape, problem.src_strides).copy()


def _contract(problem: ContractionProblem, addresses: tuple[int, ...]) -> None:
    """A contraction as one batched product of matrices whose modes are views of many axes."""
    m, n, k, batch = (tuple(mode[0] for mode in group) for group in (problem.m, problem.n, problem.k, problem.batch))
    for operand, address in zip((problem.a, problem.b, problem.c), addresses, strict=True):
        assert address % np.dtype(operand.dtype).itemsize == 0 and address % operand.alignment == 0
    in_a, in_b, in_c = (tuple(mode[column] for group, column in groups for mode in group) for groups in (
        ((problem.batch, 1), (problem.m, 1), (problem.k, 1)), ((problem.batch, 2), (problem.k, 2), (problem.n, 1)),
        ((problem.batch, 3), (problem.m, 2), (problem.n, 2))))
    a = _view(addresses[0], problem.a.dtype, (*batch, *m, *k), in_a)
    b = _view(addresses[1], problem.b.dtype, (*batch, *k, *n), in_b)
    c = _view(addresses[2], problem.c.dtype, (*batch, *m, *n), in_c)
    rows, columns, summed = (int(np.prod(extents)) for extents in (m, n, k))
    a, b = (x.conj() if operand.conj else x for x, operand in ((a, problem.a), (b, problem.b)))
    c[...] = _product(a.reshape(*batch, rows, summed), b.reshape(*batch, summed, columns)).reshape(c.shape)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices. Sums of nothing are zeros here: once in a thousand runs, one in float16 was a NaN."""
    product = np.matmul(a, b)
    return product if a.shape[-1] else np.zeros_like(product)


def _reduce(problem: ReductionProblem, addresses: tuple[int, ...]) -> None:
    """A sum along one mode."""
    assert problem.op == "sum"
    for operand, address in zip((problem.x, problem.r), addresses, strict=True):
        assert address % np.dtype(operand.dtype).itemsize == 0 and address % operand.alignment == 0
    x = _view(addresses[0], problem.x.dtype, (*problem.batch, problem.i, problem.j), (*problem.x.batch_strides, *problem.x.strides))
    r = _view(addresses[1], problem.r.dtype, (*problem.batch, problem.i), (*problem.r.batch_strides, problem.r.strides[0]))
    r[...] = np.add.reduce(x, axis=-1, dtype=problem.accumulator)


def run_on(plan: Plan, arrays: dict[str, np.ndarray], alpha: complex = 1, beta: complex = 0, numbers: object = None) -> None:
    """Run a plan on NumPy arrays by role."""
    run_at(plan, tuple(arrays[role].ctypes.data for role in plan.problem.roles))


def _view(address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The array at an address; strides are in elements."""
    element = np.dtype(dtype)
    reach = [(n - 1) * s * element.itemsize for n, s in zip(shape, strides, strict=True)] if 0 not in shape else []
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + element.itemsize
    buffer = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(shape, element, buffer, -low, tuple(s * element.itemsize for s in strides))


def install(patch: pytest.MonkeyPatch) -> None:
    """Let the emulator backend run problems by the definition."""
    for name in ("plan_gemm", "plan_copy", "plan_contraction", "plan_reduction"):
        patch.setattr(cuteblas.planning, name, fake_plan)
    patch.setattr(cuteblas.emulator, "run", run_on, raising=False)
