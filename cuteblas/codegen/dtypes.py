"""Element types: their NumPy names, sizes, C++ types and accumulators."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DTYPES", "DType", "accumulator_of", "dtype"]


@dataclass(frozen=True)
class DType:
    """An element type of kernels.

    Attributes
    ----------
    name : str
        NumPy's name (``bfloat16`` is ml_dtypes').
    bytes : int
        Size of one element.
    ctype : str
        C++ type in generated source.
    accumulator : str
        Name of the type in which products are summed. Integers wrap modulo 2^n in their own type, as in NumPy; float16 and
        bfloat16 sum in float32 and round once.
    tag : str
        Short tag used in kernel names.
    """

    name: str
    bytes: int
    ctype: str
    accumulator: str
    tag: str

    @property
    def is_complex(self) -> bool:
        return self.name.startswith("complex")

    @property
    def part(self) -> DType:
        """The type of the real and the imaginary part."""
        return DTYPES[f"float{4 * self.bytes}"] if self.is_complex else self

    @property
    def is_integer(self) -> bool:
        return "int" in self.name


DTYPES = {d.name: d for d in (
    DType("bool", 1, "bool", "bool", "b1"),
    DType("int8", 1, "signed char", "int8", "i8"),
    DType("uint8", 1, "unsigned char", "uint8", "u8"),
    DType("int16", 2, "short", "int16", "i16"),
    DType("uint16", 2, "unsigned short", "uint16", "u16"),
    DType("int32", 4, "int", "int32", "i32"),
    DType("uint32", 4, "unsigned int", "uint32", "u32"),
    DType("int64", 8, "long long", "int64", "i64"),
    DType("uint64", 8, "unsigned long long", "uint64", "u64"),
    DType("float16", 2, "cb::half", "float32", "f16"),
    DType("bfloat16", 2, "cb::bfloat16", "float32", "bf16"),
    DType("float32", 4, "float", "float32", "f32"),
    DType("float64", 8, "double", "float64", "f64"),
    DType("complex64", 8, "cb::complex<float>", "complex64", "c64"),
    DType("complex128", 16, "cb::complex<double>", "complex128", "c128"),
    # float32 of which tensor cores read 10 bits of the fraction; TMA rounds to them on the way to shared memory.
    DType("tfloat32", 4, "float", "float32", "tf32"),
    # Four int8 that are neighbours along K: what dp4a multiplies.
    DType("int8x4", 4, "unsigned int", "int32", "i8x4"),
    # Untyped words: what copies and transposes move.
    DType("b8", 1, "unsigned char", "b8", "b8"),
    DType("b16", 2, "unsigned short", "b16", "b16"),
    DType("b32", 4, "unsigned int", "b32", "b32"),
    DType("b64", 8, "unsigned long long", "b64", "b64"),
    DType("b128", 16, "cb::b128", "b128", "b128"),
)}


def dtype(name: str) -> DType:
    """The element type of that name.

    Raises
    ------
    TypeError
        If kernels have no such element type.
    """
    try:
        return DTYPES[name]
    except KeyError:
        raise TypeError(f"kernels have no element type {name!r}; they have {', '.join(DTYPES)}") from None


def accumulator_of(a: str, b: str, c: str) -> str:
    """The type in which products of elements of types ``a`` and ``b`` are summed, for a result of type ``c``.

    Integers of any width wrap in the result's type. Real numbers sum in float64 if any of the three is float64, else in float32.

    Raises
    ------
    TypeError
        If there is none: bool and complex numbers do not mix with other types, integers do not mix with real numbers, and float64
        would be rounded twice on the way to a 16-bit result.
    """
    kinds = [dtype(name) for name in (a, b, c)]
    names = {d.name for d in kinds}
    if len(names) == 1:
        return kinds[0].accumulator
    if all(d.is_integer for d in kinds):
        return c
    if names <= {"float16", "bfloat16", "float32", "float64"} and ("float64" not in names or dtype(c).bytes > 2):
        return "float64" if "float64" in names else "float32"
    raise TypeError(f"products of {a} and {b} cannot be summed into {c}")
