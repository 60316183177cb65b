"""The table of element types, and that other files ask it."""

import ast
import ctypes
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas._dtypes import DTYPES, DType, accumulator_of, dtype, element_of
from cuteblas.runtime.arguments import _c_type

OF_ARRAYS = [row for row in DTYPES.values() if row.package]
# Tables of instructions, routines and formats, each of which has rows for some types; commands have
# lists of cases.
HAVE_ROWS_OF_THEIR_OWN = {"_dtypes.py", "codegen/mma.py", "codegen/wgmma.py", "blas/types.py",
                          "kernels/gemm/skinny.py", "kernels/split/planes.py",
                          "planning/tutorial/gemm.py", "planning/cost/hosts.py",
                          "planning/gemm/mma.py", "array/standard.py"}


@pytest.mark.parametrize("row", OF_ARRAYS, ids=lambda row: row.name)
def test_rows_are_numpys_types(row: DType) -> None:
    kind = row.numpy
    assert (kind.name, kind.itemsize) == (row.name, row.bytes)
    assert element_of(kind) is element_of(kind.newbyteorder()) is row
    assert kind.kind == row.kind or (row.package == "ml_dtypes" and kind.kind == "V"
                                     and row.kind == "f")
    if row.kind in "fc":
        assert ml_dtypes.finfo(row.part.numpy).eps == 2.0 ** (1 - row.significand)
    assert ctypes.sizeof(_c_type(row)) == row.bytes if not row.is_stored else row.computed == "float32"


@pytest.mark.parametrize("row", DTYPES.values(), ids=lambda row: row.name)
def test_rows_fit_together(row: DType) -> None:
    assert dtype(row.accumulator).bytes >= row.bytes and not dtype(row.computed).is_stored
    assert row.is_complex == (row.part is not row) and row.part.bytes * (1 + row.is_complex) == row.bytes
    if row.tensor_map is not None:
        assert int("".join(c for c in row.tensor_map if c.isdigit())) == 8 * row.bytes
    assert row.is_stored == (row.kind == "f" and row.name not in ("float32", "float64"))


def test_names_and_tags_are_unique() -> None:
    assert len({row.tag for row in DTYPES.values()}) == len(DTYPES) == len(set(DTYPES))


@pytest.mark.parametrize("kind", [object, "S3", "M8[s]", "V1", np.longdouble, ml_dtypes.int4,
                                  [("x", "f4")]])
def test_other_types_have_no_row(kind: object) -> None:
    assert element_of(np.dtype(kind)) is None


def test_what_numpy_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="NumPy has no element type 'int8x4'"):
        _ = dtype("int8x4").numpy
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(
        TypeError,
        match="NumPy has bfloat16 from the package ml_dtypes, which is not installed: pip"
    ):
        _ = dtype("bfloat16").numpy


@pytest.mark.parametrize("types, sums", [(("float16", "bfloat16", "float32"), "float32"),
                                         (("float16", "float16", "float8_e5m2"), "float32"),
                                         (("float32", "float64", "float32"), "float64"),
                                         (("int8", "uint8", "int32"), "int32"),
                                         (("bool", "bool", "bool"), "bool"),
                                         (("complex64",) * 3, "complex64")])
def test_accumulators(types: tuple[str, str, str], sums: str) -> None:
    assert accumulator_of(*types) == sums


@pytest.mark.parametrize("types", [("bool", "bool", "int8"), ("float32", "float64", "float16"),
                                   ("int32", "float32", "float32"),
                                   ("tfloat32", "float32", "float32"),
                                   ("complex64", "complex64", "complex128")])
def test_products_without_accumulators(types: tuple[str, str, str]) -> None:
    with pytest.raises(TypeError, match="cannot be summed"):
        accumulator_of(*types)


@pytest.mark.parametrize("types", [("b32",) * 3, ("float8_e4m3fn",) * 3,
                                   ("float8_e5m2", "float16", "float32"),
                                   ("float16", "float8_e5m2", "float32")])
def test_what_is_not_multiplied(types: tuple[str, str, str]) -> None:
    with pytest.raises(
        TypeError,
        match=r"^kernels store and convert (b32|float8_e\w+) but do not multiply it: convert operands"
    ):
        accumulator_of(*types)


def test_the_page_of_types_has_all_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "element-types.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| (\d+) \|", page,
                      re.M) == [(row.name, str(row.bytes)) for row in OF_ARRAYS]


def test_no_other_file_lists_types_of_memory() -> None:
    """A type that is stored and not computed with is the first that a list of names forgets."""
    home, stored = Path(cuteblas.__file__).parent, {row.name for row in OF_ARRAYS if row.is_stored}
    listing = {file.relative_to(home).as_posix() for file in home.rglob("*.py")
               for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
               if isinstance(node, ast.Constant) and node.value in stored}
    assert {name for name in listing if not name.startswith("cli/")} <= HAVE_ROWS_OF_THEIR_OWN
