"""Kernels written by hand, in a few lines each."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import GeneratedKernel, Param, TensorMapSpec

_REGISTERS = re.compile(r"(alignas\(\d+\) [\w:<>, ]+ (\w+)\[\d+\];)")
"""A declaration of registers, and their name."""


def ptr(name: str, element: str = "int32", *, const: bool = False) -> Param:
    return Param(name, "pointer", dtype(element), const)


def scalar(name: str, element: str = "int32") -> Param:
    return Param(name, "scalar", dtype(element))


def tensor_map(name: str, element: str = "float16") -> Param:
    return Param(name, "tensor_map", dtype(element))


def _declaration(p: Param) -> str:
    if p.kind == "tensor_map":
        return f"const __grid_constant__ cb::TensorMap {p.name}"
    return f"{p.dtype.ctype} {'const' if p.const else ''}{'*' if p.kind == 'pointer' else ''} {p.name}"


def kernel(statements: str, params: tuple[Param, ...] = (), threads: int = 32, shared: int = 0,
           cluster: tuple[int, int, int] = (1, 1, 1)) -> GeneratedKernel:
    """A kernel named ``probe`` with these statements; its first statement is on line 2."""
    head = f'extern "C" __global__ void __launch_bounds__({threads}) probe({", ".join(map(_declaration, params))}) {{'
    return GeneratedKernel(
        name="probe",
        body=f"{head}\n{statements.strip()}\n}}\n",
        params=params,
        threads=threads,
        shared_bytes=shared,
        cluster=cluster,
        registers=tuple(_REGISTERS.findall(statements)),
    )


def launch(
    statements: str,
    params: tuple[Param, ...] = (),
    args: tuple[Any, ...] = (),
    *,
    threads: int = 32,
    shared: int = 0,
    grid: tuple[int, ...] = (1,),
    cluster: tuple[int, int, int] = (1, 1, 1),
    **options: Any,
) -> Any:
    """Run such a kernel on arrays, numbers and (TensorMapSpec, array) pairs."""
    compiled = emulator.compile(kernel(statements, params, threads, shared, cluster))
    return compiled.launch(grid, [_argument(a) for a in args], **options)


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return emulator.pointer(value)
    if isinstance(value, tuple):
        return value[0], _argument(value[1])
    return value


def matrix_map(
    array: np.ndarray, box: tuple[int, int], swizzle: int = 0, element: str = "float16"
) -> tuple[TensorMapSpec, np.ndarray]:
    """The tensor map of a C-contiguous matrix, and the matrix."""
    rows, columns = array.shape
    return TensorMapSpec(dtype(element), (columns, rows), (array.strides[0],), box, swizzle), array


def aligned(shape: tuple[int, ...], element: str, alignment: int = 64) -> np.ndarray:
    """An array of ones bits (NaN in floating types) at a multiple of ``alignment`` bytes."""
    count = int(np.prod(shape)) * np.dtype(element).itemsize
    storage = np.full(count + alignment, 0xFF, np.uint8)
    start = -storage.ctypes.data % alignment
    return storage[start : start + count].view(element).reshape(shape)
