"""Comparisons with NumPy: the same result or the same refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def outcome(call: Callable[..., Any], *operands: Any,
            **arguments: Any) -> tuple[Any, Exception | None]:
    """What a call returns, or what it raises."""
    try:
        return call(*operands, **arguments), None
    except Exception as refusal:
        return None, refusal


def check_same_refusal(call: Callable[..., Any], expected: Exception, *operands: Any,
                       **arguments: Any) -> None:
    """Check that a call refuses with that type of exception in those words."""
    result, refusal = outcome(call, *operands, **arguments)
    assert refusal is not None, f"accepted with {result!r}, not refused with {expected!r}"
    assert type(refusal) is type(expected) and str(refusal) == str(expected)


def check_same_strides(got: Any, expected: np.ndarray) -> None:
    """Check that two arrays have the same strides; strides of modes of extent 1 and of empty arrays
    say nothing."""
    assert got.shape == expected.shape
    for stride, wanted, extent in zip(got.strides, expected.strides, expected.shape, strict=True):
        assert stride == wanted or extent == 1 or expected.size == 0, f"strides {got.strides}, not {expected.strides}"
