"""Algorithms and kernels by name in calls: ``precision=`` and ``variant=``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .signatures import PRECISIONS, Precision

NATIVE = "auto", "ieee"
"""Those that every product has; the others are refused for some types and shapes."""

BY_NUMPY = "kernels run on a GPU (CuPy arrays) or in the emulator (backend('emulator')), not in NumPy"


class Algorithm(NamedTuple):
    """How products are computed: arithmetic (``precision``) and a named kernel (``variant``)."""

    precision: str = "auto"
    variant: str | None = None


_ALGORITHMS = {precision: Algorithm(precision) for precision in PRECISIONS}
AS_PLANNED = _ALGORITHMS["auto"]


def checked_precision(precision: str | None) -> Precision:
    if precision is None:
        return "auto"
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision is one of {', '.join(map(repr, PRECISIONS))}, got {precision!r}"
        )
    return precision  # type: ignore[return-value]


def checked_algorithm(precision: str | None, variant: str | None = None,
                      *operations: str) -> Algorithm:
    if variant is None:
        return AS_PLANNED if precision is None else _ALGORITHMS[checked_precision(precision)]
    check_variant(variant, *operations or ("gemm", "contraction"))
    return Algorithm(checked_precision(precision), variant)


def check_variant(name: str | None, *operations: str) -> None:
    """Refuse a variant of none of the ``operations`` ("gemm", "copy", "contraction")."""
    if name is not None:
        from ..planning.variants import variant

        variant(name, *operations)


def refuse_variant(name: str | None, reason: str) -> None:
    if name is not None:
        raise ValueError(f"variant={name!r} names a kernel, but {reason}")


def refuse_with_devices(function: str, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{function} with devices= takes no {name}=")
