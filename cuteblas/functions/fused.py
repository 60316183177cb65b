"""``matmul`` with an epilogue: NumPy's rules for the product, and the kernels or NumPy for what follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from .backends import current_backend
from .engines import EMULATOR, Engine
from .epilogues import as_bound
from .gemms import gemm
from .gufunc import Product, judge
from .host_gemm import host_gemm
from .kinds import kind_of
from .memory import Memory, contiguous_strides
from .named import BY_NUMPY, check_variant, refuse_variant
from .problems import has_kernels, readable
from .products import host_operands

__all__ = ["fused_matmul"]


def fused_matmul(x1: Any, x2: Any, out: Any, epilogue: Any, precision: str, variant: str | None,
                 arguments: Mapping[str, Any]) -> Any:
    """``matmul`` with an epilogue: see :func:`cuteblas.matmul`."""
    bound = as_bound(epilogue)
    check_variant(variant, "gemm")
    engine: Engine = EMULATOR
    multiply: Callable[..., Any]
    place: AbstractContextManager[Any] = nullcontext()
    if "cupy" in {kind_of(x) for x in (x1, x2, out)}:
        from ._cupy import CUPY, judged, on_device_of

        engine, product = CUPY, judged(x1, x2, out, arguments)
        place = on_device_of(x1)
    else:
        reason, x1, x2 = host_operands(x1, x2, out)
        if reason is not None:
            raise TypeError(f"matmul with an epilogue takes plain NumPy or CuPy arrays, but {reason}")
        product = judge(EMULATOR.memory(x1), EMULATOR.memory(x2), None if out is None else EMULATOR.memory(out), arguments)
        if not has_kernels(product.dtype):
            raise TypeError(f"kernels have no {product.dtype}, and so no epilogue")
    if engine is EMULATOR and current_backend() == "numpy":
        refuse_variant(variant, BY_NUMPY)
        multiply = host_gemm
    else:
        def multiply(a: Any, b: Any, **others: Any) -> Any:
            return gemm(engine, a, b, precision=precision, variant=variant, **others)
    with place:
        return _fused(engine, multiply, product, x1, x2, out, bound)


def _fused(engine: Engine, multiply: Callable[..., Any], product: Product, x1: Any, x2: Any, out: Any, bound: Any) -> Any:
    a = _matrices(_of_type(engine, x1, product.dtype), product.core1, 0)
    b = _matrices(_of_type(engine, x2, product.dtype), product.core2, 1)
    casts = out is not None and out.dtype != product.dtype
    strides = product.strides if out is None else contiguous_strides(product.shape, product.dtype.itemsize)
    result = out if out is not None and not casts else engine.empty(Memory(product.shape, strides, product.dtype))
    missing = (len(product.core1) == 1, len(product.core2) == 1)
    _c, auxiliary = multiply(a, b, out=_result_matrices(result, product.core3, missing), epilogue=bound, function="matmul")
    if casts:
        engine.assign(out, result)
    elif out is None and product.shape == () and isinstance(result, np.ndarray):
        result = result[()]
    answer = out if out is not None else result
    return (answer, auxiliary) if auxiliary else answer


def _of_type(engine: Engine, x: Any, dtype: np.dtype) -> Any:
    """An operand in the type of the product."""
    staged = readable(engine.memory(x), dtype)
    if staged.reason is None:
        return x
    copy = engine.empty(staged.memory)
    engine.assign(copy, x)
    return copy


def _matrices(x: Any, core: tuple[int, ...], missing: int) -> Any:
    """A view of shape (..., rows, columns): the axes ``core`` last, and one of extent 1 where a vector lacks it."""
    others = [axis for axis in range(x.ndim) if axis not in core]
    view = x.transpose((*others, *core))
    if len(core) == 2:
        return view
    return view[..., None, :] if missing == 0 else view[..., None]


def _result_matrices(x: Any, core: tuple[int, ...], missing: tuple[bool, bool]) -> Any:
    """The same of the result, which lacks the rows, the columns, or both, where operands were vectors."""
    others = [axis for axis in range(x.ndim) if axis not in core]
    view = x.transpose((*others, *core))
    if missing[1]:
        view = view[..., None]
    return view[..., None, :] if missing[0] else view
