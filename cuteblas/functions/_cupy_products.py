"""Products on CuPy arrays besides ``matmul``. Like ``_cupy``, imported when the first CuPy array arrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import cupy
import cupyx
import numpy as np

from . import _cupy
from ._cupy_programs import ProgramRecorder, multiply
from .elementwise import flushed_by_a_product, product_of, scaled_of
from .kinds import kind_of
from .routing import Taken

__all__ = ["CupyOfProducts", "taken"]

_BY_OPERANDS = frozenset({"dot", "inner", "kron", "outer", "tensordot", "vdot"})
"""Functions of NumPy that refuse what is no array by its type or shape, whatever their other arguments are."""


class CupyOfProducts(ProgramRecorder):
    """CuPy arrays, and kernels on their device in CuPy's current stream, for one call."""

    on_host = False

    def on_device_of(self, x: Any) -> AbstractContextManager[None]:
        """Make the device of an array the current one."""
        return _cupy.on_device_of(x)

    def view(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view that begins at the first element of ``x``, with these strides in bytes."""
        return self.derived(cupy.ndarray(shape, x.dtype, x.data, strides), x)

    def number(self, value: np.ndarray) -> Any:
        """A new 0-d array, filled on the current device: nothing is copied from the host."""
        return cupy.full((), value[()], value.dtype)

    def identity(self, extent: int, dtype: np.dtype) -> Any:
        """The unit matrix, on the current device."""
        return cupy.eye(extent, dtype=dtype)

    def multiply(self, x: Any, y: Any, out: Any) -> None:
        """``out[...] = x * y``: by CuPy, except of different types and where its kernels flush subnormal numbers to zero."""
        if flushed_by_a_product(out.dtype) or not x.dtype == y.dtype == out.dtype:
            self.compute(product_of(x.dtype.name, y.dtype.name, out.dtype.name), {"x": x, "y": y}, out)
        else:
            self.note(multiply, x, y, out)
            multiply(x, y, out)

    def real(self, x: Any) -> Any:
        """The real parts of a complex array, as a view."""
        return self.derived(x.real, x)

    def scale(self, x: Any, exponent: int, out: Any) -> None:
        """``out[...] = x * 2**exponent`` by our kernels."""
        self.compute(scaled_of(x.dtype.name, exponent), {"x": x}, out)

    def inverse(self, x: Any) -> Any:
        """The inverses of square matrices by CuPy.

        Raises
        ------
        numpy.linalg.LinAlgError
            If one is singular, in NumPy's words. The host waits to see that, which it cannot while a CUDA graph is captured.
        """
        from .. import runtime

        x = self.aligned(x, "linalg.matrix_power")
        if runtime.capturing():
            return cupy.linalg.inv(x)
        try:
            with cupyx.errstate(linalg="raise"):
                return cupy.linalg.inv(x)
        except np.linalg.LinAlgError:
            return np.linalg.inv(np.zeros((1, 1)))


def taken(function: str, operands: Sequence[Any], out: Any, arguments: Mapping[str, Any]) -> Taken:
    """The arrays of a call of which one is a CuPy array; numbers are brought to its device.

    Raises
    ------
    TypeError
        If ``out`` is no array; what NumPy raises for an operand that is not, and that becomes none of numbers.
    ValueError
        For operands on different devices, and for arrays on the host.
    """
    if out is ... and function in _cupy.UFUNCS:
        out = None
    if out is not None and not isinstance(out, (cupy.ndarray, np.ndarray)):
        raise TypeError("'out' must be an array")
    if function in _BY_OPERANDS and any(map(_is_no_array, operands)):
        small = (np.zeros([min(n, 2) for n in x.shape], x.dtype) if isinstance(x, cupy.ndarray) else x for x in operands)
        getattr(np, function)(*small, **arguments)
    named = {f"operand {i}": x for i, x in enumerate(operands) if kind_of(x) != "scalar"} | ({} if out is None else {"out": out})
    _cupy.require_one_device(function, named)
    with _cupy.on_device_of(next(iter(named.values()))):
        engine = CupyOfProducts()
        arrays = tuple(engine.number(np.asarray(x)) if kind_of(x) == "scalar" else x for x in operands)
        # An operand that is given twice may be two in a call like this one.
        arrays = tuple(x.view() if any(x is y for y in arrays[:i]) else x for i, x in enumerate(arrays))
    return Taken(engine, arrays, tuple(engine.memory(x) for x in arrays), out)


def _is_no_array(x: Any) -> bool:
    """Whether it is something else than arrays, numbers and lists, and not made of numbers."""
    return kind_of(x) == "like" and not isinstance(x, (list, tuple)) and np.asarray(x).dtype.kind not in "biufc"
