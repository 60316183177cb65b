"""The small arguments of a BLAS call: transposition, flags, alpha and beta, lists of numbers."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from ..engines.dispatch import kind_of
from .libraries import Place, is_list, view_of
from .types import Types, dtype_named, kind_of_numbers, type_name

__all__ = ["TRANSPOSITIONS", "Arguments", "Transposition", "from_list", "is_complex_list"]


class Transposition(NamedTuple):
    """How an operand is read.

    Attributes
    ----------
    letter : {"N", "T", "C", "R"}
        As BLAS names it.
    swaps, conjugates : bool
        Whether rows and columns are exchanged, and complex elements conjugated.
    """

    letter: str
    swaps: bool
    conjugates: bool

    def view(self, x: Any) -> Any:
        """The array with its last two axes as the product sees them."""
        return x.swapaxes(-1, -2) if self.swaps else x


_BY_LETTER = {letter: Transposition(letter, letter in "TC", letter in "CR") for letter in "NTCR"}
_BY_LETTER["H"] = _BY_LETTER["C"]

TRANSPOSITIONS = "0 or 'N', 1 or 'T', 2, 'C' or 'H', or 'R'"
"""What transposition arguments accept, for error messages."""


class Arguments(dict[str, Any]):
    """The arguments of one call by name, each of which is checked when it is asked for.

    Parameters
    ----------
    function : str
        The routine, for refusals.
    values : dict
        What the caller gave.
    """

    __slots__ = ("function",)

    def __init__(self, function: str, values: dict[str, Any]):
        super().__init__(values)
        self.function = function

    def integer(self, name: str, accepted: str = "an integer") -> int:
        """An integer argument."""
        try:
            return operator.index(self[name])
        except TypeError:
            raise TypeError(
                f"{self.function} takes {accepted} as {name}, got {type(self[name]).__name__}"
            ) from None

    def transposition(self, name: str, accepted: str = TRANSPOSITIONS) -> Transposition:
        """The meaning of an argument like ``trans_a``."""
        value = self[name]
        if isinstance(value, str):
            known = _BY_LETTER.get(value.upper())
        else:
            number = self.integer(name, accepted)
            known = _BY_LETTER["NTC"[number]] if 0 <= number <= 2 else None
        if known is None:
            raise ValueError(f"{self.function} takes {accepted} as {name}, got {value!r}")
        return known

    def flag(self, name: str) -> bool:
        """A flag, which has to be 0 or 1."""
        number = self.integer(name, "0 or 1")
        if number not in (0, 1):
            raise ValueError(f"{self.function} takes 0 or 1 as {name}, got {self[name]!r}")
        return bool(number)

    def overwrites(self, name: str) -> bool:
        """Whether a routine updates an operand in place, as its flag ``overwrite_NAME`` says; a
        list cannot be updated."""
        overwrites = self.flag(f"overwrite_{name}")
        if overwrites and is_list(self[name]):
            raise TypeError(
                f"{self.function} updates an array in place with overwrite_{name}=1, but {name} is a list"
            )
        return overwrites

    def scalar(self, name: str, types: Types, place: Place) -> Any:
        """alpha or beta: a number rounded to the type of the sums, or a 0-d array on the device of
        the operands."""
        function, value = self.function, self[name]
        if isinstance(value, (bool, int, float, complex, np.generic)):
            return _number(function, name, value, types)
        if is_list(value) or not (hasattr(value, "__array__") or hasattr(value, "__dlpack__")):
            raise TypeError(
                f"{function} takes a number or a 0-d array as {name}, got {type(value).__name__}"
            )
        array, where = view_of(function, name, value)
        if array.ndim:
            raise ValueError(
                f"{function} takes a number or a 0-d array as {name}, got an array of shape {tuple(array.shape)}"
            )
        if where.device is None:
            if place.device is None and isinstance(array, np.ndarray) and type_name(array) == types.compute:
                return array
            return _number(function, name, array[()], types)
        if where != place:
            raise ValueError(
                f"{function} takes {name} in the library and on the device of the operands, but they are "
                f"{place.library} arrays on {place} and {name} is a {where.library} array on {where}"
            )
        _check_kind(function, name, array.dtype, types)
        return array


def _check_kind(function: str, name: str, dtype: np.dtype, types: Types) -> None:
    """Refuse a scalar of a type that would lose its imaginary or fractional part."""
    kind = kind_of_numbers(dtype)
    if kind not in "biufc":
        raise TypeError(f"{function} takes a number or a 0-d array as {name}, got {dtype}")
    if kind == "c" and not types.is_complex:
        raise TypeError(
            f"{function} computes in {types.compute}, so {name} has to be real, got {dtype.name}"
        )
    if kind == "f" and types.compute == "int32":
        raise TypeError(
            f"{function} computes in {types.compute}, so {name} has to be an integer, got {dtype.name}"
        )


def _number(function: str, name: str, value: Any, types: Types) -> int | float | complex:
    if type(value) is int and value in (0, 1):
        return value
    if isinstance(value, int) and not -2**1000 < value < 2**1000:
        raise ValueError(
            f"{function} computes in {types.compute}, which cannot hold {name}: it has {value.bit_length()} bits"
        )
    dtype = np.asarray(value).dtype if not isinstance(value, int) else np.dtype(np.int64)
    _check_kind(function, name, dtype, types)
    if types.compute == "int32":
        if not -2**31 <= int(value) < 2**31:
            raise ValueError(
                f"{function} computes in int32, which cannot hold {name} = {int(value)}"
            )
        return int(value)
    number = complex(value) if types.is_complex else float(value)
    with np.errstate(over="ignore"):
        return dtype_named(types.compute).type(number).item()


def from_list(function: str, name: str, values: Any, dtype: np.dtype) -> np.ndarray:
    """A list of numbers as an array of the type that the routine takes.

    Raises
    ------
    TypeError
        If its elements are not numbers of a kind that the type holds.
    ValueError
        If it is ragged, or an integer is out of range.
    """
    try:
        raw = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"{function} takes rectangular lists, but rows of {name} differ in length"
        ) from None
    kind = kind_of_numbers(raw.dtype)
    if kind not in "biufc":
        raise TypeError(
            f"{function} takes arrays and lists of numbers, but {name} is a list whose elements are {raw.dtype}"
        )
    target = kind_of_numbers(dtype)
    if kind == "c" and target != "c":
        raise TypeError(f"{function} takes {dtype.name} arrays, but {name} has complex elements")
    if target == "i" and raw.size:
        if kind not in "biu":
            raise TypeError(
                f"{function} takes {dtype.name} arrays, but {name} has elements that are not integers"
            )
        info = np.iinfo(dtype)
        if raw.min() < info.min or raw.max() > info.max:
            raise ValueError(
                f"{function} takes {dtype.name} arrays, but {name} has elements outside {info.min} to {info.max}"
            )
    with np.errstate(over="ignore"):
        return raw.astype(dtype)


def is_complex_list(values: Any) -> bool:
    """Whether a list of numbers has complex elements; ``False`` for what is not a list of
    numbers."""
    try:
        return kind_of(values) == "like" and np.asarray(values).dtype.kind == "c"
    except ValueError:
        return False
