"""The quick subset, ``pytest -m quick``: some tests of every layer, in under two minutes.

An entry is a file, a folder or a test function with all of its parameters; tests/test_quick.py
checks that there are some for each subpackage and that they exist.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

__all__ = ["QUICK", "mark"]

QUICK = {
    "layout": [
        "tests/layout/test_arguments.py", "tests/layout/test_core.py",
        "tests/layout/test_inttuple.py", "tests/layout/test_semantics.py",
        "tests/layout/test_sentences.py", "tests/layout/test_tensor.py"
    ],
    "codegen": [
        "tests/codegen/test_access.py",
        "tests/codegen/test_builder.py",
        "tests/codegen/test_epilogue.py"
    ],
    "planning": ["tests/planning/"],
    "kernels": [
        "tests/kernels/test_products.py",
        "tests/kernels/test_gemm_mma.py::test_types",
        "tests/kernels/test_permute.py::test_three_modes"
    ],
    "tutorial": [
        "tests/kernels/test_gemm_tutorial.py::test_partitions_of_the_tutorial",
        "tests/kernels/test_gemm_tutorial.py::test_the_kernel_is_headed_by_these_layouts"
    ],
    "emulator": ["tests/emulator/test_memory.py", "tests/emulator/test_warp.py"],
    "runtime": [
        "tests/runtime/test_arguments.py",
        "tests/runtime/test_cache.py",
        "tests/runtime/test_devices.py"
    ],
    "engines": ["tests/engines/test_memory.py", "tests/engines/test_problems.py"],
    "functions": [
        "tests/functions/test_matmul.py", "tests/functions/test_dots.py",
        "tests/functions/test_einsum.py",
        "tests/functions/test_emulated_products.py::test_transposition_in_place",
        "tests/functions/test_emulated_products.py::test_sums_inside_products",
        "tests/functions/test_epilogues.py"
    ],
    "blas": ["tests/blas/test_refusals.py", "tests/blas/test_routines.py::test_in_the_emulator"],
    "array": [
        "tests/array/test_creation.py",
        "tests/array/test_dispatch.py",
        "tests/array/test_wrapper.py"
    ],
    "cli": ["tests/cli/test_commands.py", "tests/cli/test_explain.py", "tests/cli/test_layout.py"],
    "conformance": ["conformance/test_copy_values.py", "conformance/test_matmul_values.py"],
    "dask": [
        "tests/dask/test_products.py::test_values_are_numpys",
        "tests/dask/test_products.py::test_the_order_of_sums"
    ],
    "packaging": [
        "tests/test_architecture.py",
        "tests/test_help.py",
        "tests/test_packaging.py",
        "tests/test_quick.py",
        "tests/test_repository.py"
    ],
}
"""What is run of each layer."""

_TESTS = frozenset(entry for entries in QUICK.values() for entry in entries)
_PLACES = tuple(entry for entry in _TESTS if "::" not in entry)


def mark(items: Iterable[pytest.Item]) -> None:
    """Give the tests of the subset their mark."""
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in _TESTS or test.startswith(_PLACES):
            item.add_marker("quick")
