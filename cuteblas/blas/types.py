"""Which element types are multiplied into which, for routines and mixed products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from .._dtypes import DTYPES, element_of


@dataclass(frozen=True)
class Types:
    """NumPy's names of the types of A and B, of sums, alpha and beta, and of C, rounded once."""

    operands: str
    compute: str
    output: str

    @property
    def is_complex(self) -> bool:
        return self.operands.startswith("complex")

    def check_scalar(self, function: str, name: str, dtype: np.dtype) -> None:
        """Refuse a scalar of a type that would lose its imaginary or fractional part."""
        kind = kind_of_numbers(dtype)
        if kind not in "biufc":
            raise TypeError(f"{function} takes a number or a 0-d array as {name}, got {dtype}")
        if kind == "c" and not self.is_complex:
            raise TypeError(
                f"{function} computes in {self.compute}, so {name} has to be real, got {dtype.name}"
            )
        if kind == "f" and self.compute == "int32":
            raise TypeError(
                f"{function} computes in {self.compute}, so {name} has to be an integer, got {dtype.name}"
            )

    def number(self, function: str, name: str, value: Any) -> int | float | complex:
        if isinstance(value, int) and not -2**1000 < value < 2**1000:
            raise ValueError(
                f"{function} computes in {self.compute}, which cannot hold {name}: it has {value.bit_length()} bits"
            )
        self.check_scalar(function, name, np.dtype(np.int64) if isinstance(value, int)
                          else np.asarray(value).dtype)
        if self.compute == "int32":
            if not -2**31 <= int(value) < 2**31:
                raise ValueError(
                    f"{function} computes in int32, which cannot hold {name} = {int(value)}"
                )
            return int(value)
        number = complex(value) if self.is_complex else float(value)
        with np.errstate(over="ignore"):
            return dtype_named(self.compute).type(number).item()


ROUTINES = {
    "sgemm": Types("float32", "float32", "float32"),
    "dgemm": Types("float64", "float64", "float64"),
    "cgemm": Types("complex64", "complex64", "complex64"),
    "zgemm": Types("complex128", "complex128", "complex128"),
    "hgemm": Types("float16", "float32", "float16"),
    "bgemm": Types("bfloat16", "float32", "bfloat16"),
    "igemm": Types("int8", "int32", "int32"),
}

PRODUCTS = (
    *ROUTINES.values(),
    Types("float16", "float32", "float32"),
    Types("bfloat16", "float32", "float32"),
    Types("float32", "float64", "float32"),
    Types("float32", "float64", "float64"),
)
"""The products of ``gemm``; the first one of each type of operands is the default."""

_AFTER_EPILOGUE = {"int32": ("float32", "float16", "bfloat16", "int8")}
"""Further types of results after an epilogue, which scales sums, by the type of the sums."""


@lru_cache(maxsize=256)
def type_name(dtype: np.dtype) -> str:
    """The name of an element type, with the byte order where it is not the machine's."""
    return dtype.name if dtype.isnative else dtype.str


@cache
def dtype_named(name: str) -> np.dtype:
    return DTYPES[name].numpy if name in DTYPES else np.dtype(name)


def name_of(dtype: Any) -> str:
    known = isinstance(dtype, str) and dtype in DTYPES and DTYPES[dtype].package
    return dtype if known else np.dtype(dtype).name


def _asked(dtype: Any, argument: str) -> str | None:
    try:
        return None if dtype is None else name_of(dtype)
    except TypeError:
        raise TypeError(
            f"gemm takes the name of an element type as {argument}, got {dtype!r}"
        ) from None


def kind_of_numbers(dtype: np.dtype) -> str:
    """What elements are, in NumPy's letters, also for ml_dtypes' numbers."""
    row = element_of(dtype) if dtype.kind == "V" else None
    return dtype.kind if row is None else row.kind


def resolved(operands: str, *, dtype: Any = None, compute_dtype: Any = None,
             epilogue: bool = False) -> Types:
    """The product of ``operands`` that a caller asks of ``gemm``."""
    wanted, compute = _asked(dtype, "dtype"), _asked(compute_dtype, "compute_dtype")
    known = [types for types in PRODUCTS if types.operands == operands]
    if epilogue:
        known += [Types(operands, types.compute, output) for types in known
                  for output in _AFTER_EPILOGUE.get(types.compute, ())]
    for types in known:
        if wanted in (None, types.output) and compute in (None, types.compute):
            return types
    if not known:
        raise TypeError(
            f"gemm multiplies arrays of {', '.join(dict.fromkeys(t.operands for t in PRODUCTS))}, not of {operands}"
        )
    asked = ", ".join(f"{name}={value!r}" for name, value in (("dtype", wanted),
                                                              ("compute_dtype", compute)) if value)
    choices = "; ".join(f"dtype={t.output!r} summed in {t.compute}" for t in known)
    raise TypeError(f"gemm of {operands} arrays does not take {asked}; it takes {choices}")
