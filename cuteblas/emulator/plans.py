"""Whole plans in the emulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..planning.plan import Argument, Plan
from .kernel import Pointer, Table, compile, pointer
from .progress import watched

__all__ = ["run"]

# What a device allocation is aligned to at least.
_WORKSPACE_ALIGNMENT = 256


def run(plan: Plan, operands: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0, *,
        numbers: Mapping[str, Any] | None = None, reached: Iterable[np.ndarray] = (),
        seed: int | None = None) -> None:
    """Execute every launch of a plan on NumPy arrays, in order.

    Parameters
    ----------
    plan : Plan
        The plan; its problem must describe the arrays' strides and alignments.
    operands : mapping of str to numpy.ndarray
        The array of each role that the plan takes as an address (``plan.problem.roles``). A kernel
        gets the address of its first element.
    alpha, beta : number
        The values of those roles, unless they are among the operands.
    numbers : mapping of str to number, optional
        The numbers of an epilogue, by role.
    reached : iterable of numpy.ndarray
        Arrays that a plan for many problems reaches through the addresses in its ``table``.
    seed : int, optional
        Shuffles the order in which threads run.

    Returns
    -------
    None
        Results are written into the operands.

    Raises
    ------
    EmulatorError
        If a kernel does something wrong.
    KeyError
        If the plan names an operand that is not there.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
    >>> plan = plan_gemm(GemmProblem(8, 8, 8, *[Operand("float32", (8, 1))] * 3), H200)
    >>> a, b, c = np.eye(8, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)
    >>> emulator.run(plan, {"a": a, "b": b, "c": c})
    >>> np.array_equal(c, a @ b.T)
    True
    """
    memory = {role: pointer(array) for role, array in operands.items()}
    if targets := tuple(map(pointer, reached)):
        table = memory["table"]
        memory["table"] = Table(table.address, table.base, table.nbytes, False, table.owner,
                                targets=targets)
    memory["workspace"] = _workspace(plan.workspace_bytes)
    scalars = {"alpha": alpha, "beta": beta, **(numbers or {})}

    def value(argument: Argument) -> Any:
        if argument.role is None:
            return argument.value
        if argument.role not in memory:
            return scalars[argument.role]
        where = memory[argument.role] + argument.offset
        return where if argument.tensor_map is None else (argument.tensor_map, where)

    with watched():
        for launch in plan.launches:
            compile(launch.kernel).launch(launch.grid,
                                          [value(argument) for argument in launch.arguments],
                                          seed=seed)


def _workspace(nbytes: int) -> Pointer:
    """Scratch memory of ones bits (NaNs), so that kernels read only what they have written."""
    storage = np.full(nbytes + _WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    start = -storage.ctypes.data % _WORKSPACE_ALIGNMENT
    return replace(pointer(storage[start:start + nbytes], writable=True),
                   written=np.zeros(nbytes, np.uint8))
