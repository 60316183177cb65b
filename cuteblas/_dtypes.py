"""The table of element types: a row has all that differs from type to type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class DType:
    """An element type of kernels, under NumPy's name (``bfloat16`` is ml_dtypes'). ``kind`` is
    NumPy's letter, but also right for ml_dtypes; ``accumulator`` sums products: integers wrap in
    their own type, 16 bits and less sum in float32 and round once. ``significand`` counts the
    hidden bit: a rounding is wrong by ``2**-significand``. ``tensor_map`` ends
    ``CU_TENSOR_MAP_DATA_TYPE_...``; ``package`` has NumPy's type, if any; ``dlpack`` is the code
    of a type that NumPy does not exchange. What is not ``is_multiplied`` is only moved and
    converted."""

    name: str
    bytes: int
    kind: Literal["b", "i", "u", "f", "c", "V"]
    ctype: str
    accumulator: str
    tag: str
    tensor_map: str | None = None
    package: str = "numpy"
    significand: int = 0
    dlpack: int = 0
    is_multiplied: bool = True
    prelude: str = "core"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def part(self) -> DType:
        return DTYPES[f"float{4 * self.bytes}"] if self.is_complex else self

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def computed(self) -> str:
        """The type to compute with: that of sums for shorter floating-point numbers."""
        return self.accumulator if self.kind == "f" else self.name

    @property
    def is_stored(self) -> bool:
        """Whether kernels only store the type and compute in a wider one."""
        return self.computed != self.name

    @property
    def numpy(self) -> Any:
        if not self.package:
            raise TypeError(f"NumPy has no element type {self.name!r}")
        try:
            scalar = getattr(import_module(self.package), self.name)
        except ImportError:
            raise TypeError(
                f"NumPy has {self.name} from the package {self.package}, which is not installed: "
                f"pip install {self.package.replace('_', '-')}"
            ) from None
        return import_module("numpy").dtype(scalar)


# Bits are what TMA copies, so its types only need the right size; floating types matter where the
# driver could fill with NaN.
DTYPES = {
    d.name: d
    for d in (
        DType("bool", 1, "b", "bool", "bool", "b1", "UINT8"),
        DType("int8", 1, "i", "signed char", "int8", "i8", "UINT8"),
        DType("uint8", 1, "u", "unsigned char", "uint8", "u8", "UINT8"),
        DType("int16", 2, "i", "short", "int16", "i16", "UINT16"),
        DType("uint16", 2, "u", "unsigned short", "uint16", "u16", "UINT16"),
        DType("int32", 4, "i", "int", "int32", "i32", "INT32"),
        DType("uint32", 4, "u", "unsigned int", "uint32", "u32", "UINT32"),
        DType("int64", 8, "i", "long long", "int64", "i64", "INT64"),
        DType("uint64", 8, "u", "unsigned long long", "uint64", "u64", "UINT64"),
        DType("float16", 2, "f", "cb::half", "float32", "f16", "FLOAT16", significand=11),
        DType(
            "bfloat16", 2, "f", "cb::bfloat16", "float32", "bf16", "BFLOAT16", "ml_dtypes",
            significand=8, dlpack=4
        ),
        DType(
            "float8_e4m3fn",
            1,
            "f",
            "cb::float8_e4m3fn",
            "float32",
            "e4m3fn",
            "UINT8",
            "ml_dtypes",
            significand=4,
            dlpack=10,
            is_multiplied=False,
            prelude="float8"
        ),
        DType(
            "float8_e5m2",
            1,
            "f",
            "cb::float8_e5m2",
            "float32",
            "e5m2",
            "UINT8",
            "ml_dtypes",
            significand=3,
            dlpack=12,
            is_multiplied=False,
            prelude="float8"
        ),
        DType("float32", 4, "f", "float", "float32", "f32", "FLOAT32", significand=24),
        DType("float64", 8, "f", "double", "float64", "f64", "FLOAT64", significand=53),
        DType(
            "complex64", 8, "c", "cb::complex<float>", "complex64", "c64", "UINT64", significand=24
        ),
        DType("complex128", 16, "c", "cb::complex<double>", "complex128", "c128", significand=53),
        # float32 of which tensor cores read 10 bits of the fraction; TMA rounds to them on the way to
        # shared memory.
        DType("tfloat32", 4, "f", "float", "float32", "tf32", "TFLOAT32", "", significand=11),
        # Four int8 that are neighbours along K: what dp4a multiplies.
        DType("int8x4", 4, "i", "unsigned int", "int32", "i8x4", "UINT32", ""),
        # Untyped words: what copies and transposes move.
        *(DType(name, nbytes, "V", ctype, name, name, tensor_map, "", is_multiplied=False)
          for name, nbytes, ctype, tensor_map in (("b8", 1, "unsigned char", "UINT8"),
                                                  ("b16", 2, "unsigned short", "UINT16"),
                                                  ("b32", 4, "unsigned int", "UINT32"),
                                                  ("b64", 8, "unsigned long long", "UINT64"),
                                                  ("b128", 16, "cb::b128", None)))
    )
}


def dtype(name: str) -> DType:
    try:
        return DTYPES[name]
    except KeyError:
        raise TypeError(
            f"kernels do not support element type {name!r}; they support {', '.join(DTYPES)}"
        ) from None


@lru_cache(maxsize=256)                 # numpy.dtype.name is spelled anew at every question
def element_of(numpy_dtype: Any) -> DType | None:
    """The row of a ``numpy.dtype`` in any byte order; ``None`` if kernels do not support it."""
    row = DTYPES.get(numpy_dtype.name)
    return row if row is not None and row.package else None


def accumulator_of(a: str, b: str, c: str) -> str:
    """The type in which products of ``a`` and ``b`` are summed for ``c``: integers wrap in ``c``,
    reals sum in float64 if one of the three is float64, else in float32."""
    kinds = [dtype(name) for name in (a, b, c)]
    if idle := next((d for d in kinds[:2] if not d.is_multiplied), None):
        raise TypeError(
            f"kernels store and convert {idle.name} but do not multiply it: convert operands to another type first"
        )
    if len({a, b, c}) == 1:
        return kinds[0].accumulator
    if all(d.is_integer for d in kinds):
        return c
    if all(d.kind == "f" and d.package for d in kinds):
        wide = "float64" if "float64" in (a, b, c) else "float32"
        if not (wide == "float64" and kinds[2].is_stored):
            return wide
    raise TypeError(f"products of {a} and {b} cannot be summed into {c}")
