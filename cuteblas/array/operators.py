"""Python's operators on ``cuteblas.ndarray``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..engines.dispatch import Func, kind_of
from ..engines.memory import Ints
from ..functions import matmul
from .libraries import device_of, made_on, require_one_place
from .wrapper import define, flatiter, ndarray, unwrapped, wrap, wrapped

_Operator = Callable[[Any, Any], Any]
_NUMBERS = frozenset({bool, int, float, complex})


def _operated(call: _Operator, x: ndarray, other: Any) -> Any:
    """``call`` on the data of ``x`` and another operand, which may get to answer."""
    data = x._data
    if type(other) is ndarray:
        other = other._data
    if type(other) is not type(data):
        other = unwrapped(other)
        require_one_place("an operator", (data, other))
        if call is matmul and _multiplies_itself(other):
            call = operator.matmul
        elif type(data) is not np.ndarray:
            return _operated_on_gpu(call, data, other)
    return call(data, other)


def _operated_on_gpu(call: _Operator, data: Any, other: Any) -> Any:
    """``call`` on CuPy's data and an operand that CuPy may not take."""
    from ._cupy_functions import ufunc_operands

    if call in (operator.eq, operator.ne) and (other is None or isinstance(other, (str, bytes))):
        with made_on(device_of(data)) as library:
            return library.full(data.shape, call is operator.ne)
    ufunc = np.power if call in (operator.pow, operator.ipow) else np.add
    return call(data, ufunc_operands(ufunc, data, other)[1])


def _forward(call: _Operator, ufunc: np.ufunc) -> _Operator:
    """``x + y``, by the ufunc where ``y`` has an answer to that (NEP 13)."""
    def operate(self: ndarray, other: Any, /) -> Any:
        data, kind = self._data, type(other)
        if kind is ndarray and type(other._data) is type(data):
            result = call(data, other._data)
        elif kind in _NUMBERS and (call is not operator.pow or type(data) is np.ndarray):
            result = call(data, other)
        elif kind is not ndarray and kind_of(other) == "foreign":
            return NotImplemented if other.__array_ufunc__ is None else ufunc(self, other)
        else:
            result = _operated(call, self, other)
        return wrap(result) if type(result) is type(data) else wrapped(result)

    return operate


def _reflected(call: _Operator, ufunc: np.ufunc) -> _Operator:
    """``y + x`` where ``y`` has no answer."""
    def operate(self: ndarray, other: Any, /) -> Any:
        if kind_of(other) == "foreign":
            return ufunc(other, self)
        return wrapped(_operated(lambda data, other: call(other, data), self, other))

    return operate


def _in_place(call: _Operator, ufunc: np.ufunc,
              **named: Any) -> _Operator:
    """``x += y``, written into ``x`` unless ``y`` computes it itself."""
    def operate(self: ndarray, other: Any, /) -> Any:
        if kind_of(other) == "foreign" and type(other) is not ndarray:
            answers = type(other).__array_ufunc__
            if answers is None or not hasattr(type(other), "__array__"):
                return ufunc(self, other, out=(self,), **named)    # NumPy refuses it, or it answers
            result = answers(other, ufunc, "__call__", self, other, out=(self,), **named)
            if result is not NotImplemented:
                # xarray's hold what was written
                return self if getattr(result, "data", None) is self else result
            other = np.asarray(other)                      # pandas writes into NumPy's arrays alone
        result = _operated(call, self, other)
        return self if result is self._data else wrapped(result)

    return operate


def _multiplies_itself(x: Any) -> bool:
    """Whether a type has a priority over arrays but no ufuncs, as sparse matrices have."""
    return kind_of(x) == "like" and getattr(x, "__array_priority__", 0) > 0


def _matmul_into(axes: list[int | Ints], data: Any, other: Any) -> Any:
    """``data @= other`` of matrices, or of a vector and matrices."""
    if _multiplies_itself(other):
        return operator.imatmul(data, other)
    return matmul(data, other, data, axes=axes)


def _matmul_in_place(self: ndarray, other: Any, /) -> Any:
    own: int | Ints = (-2, -1) if self._data.ndim > 1 else (-1,)
    axes: list[int | Ints] = [own, (-2, -1), own]
    try:
        return _in_place(partial(_matmul_into, axes), np.matmul, axes=axes)(self, other)
    except np.exceptions.AxisError:
        raise ValueError(
            "inplace matrix multiplication requires the first operand to have at least one and the second "
            "at least two dimensions."
        ) from None


def _unary(call: Func) -> Func:
    return lambda self: wrapped(call(self._data))


def _of_elements(compare: _Operator) -> _Operator:
    return lambda self, other, /: compare(self.copy(), other.copy() if type(other) is flatiter
                                          else other)


def define_operators() -> None:
    arithmetic = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
                  "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power,
                  "lshift": np.left_shift, "rshift": np.right_shift, "and": np.bitwise_and,
                  "or": np.bitwise_or, "xor": np.bitwise_xor}
    comparisons = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
                   "gt": np.greater, "ge": np.greater_equal}
    for name, ufunc in (arithmetic | comparisons | {"divmod": np.divmod}).items():
        call = divmod if name == "divmod" else getattr(operator, f"__{name}__")
        define(f"__{name}__", _forward(call, ufunc))
        if name in arithmetic:
            define(f"__i{name}__", _in_place(getattr(operator, f"__i{name}__"), ufunc))
        if name not in comparisons:
            define(f"__r{name}__", _reflected(call, ufunc))
        else:
            setattr(flatiter, f"__{name}__", _of_elements(call))
    for name in ("neg", "pos", "abs", "invert"):
        define(f"__{name}__", _unary(getattr(operator, f"__{name}__")))
    define("__matmul__", _forward(matmul, np.matmul))
    define("__rmatmul__", _reflected(matmul, np.matmul))
    define("__imatmul__", _matmul_in_place)
