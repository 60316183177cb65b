"""A call compared with the same call of NumPy: on NumPy arrays by the definition, or on CuPy arrays
in this process's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import reference
from .comparisons import check_same_refusal, check_same_strides, outcome


def agree(ours: Callable[..., Any], numpys: Callable[..., Any], *operands: Any,
          out: np.ndarray | None = None, to: Callable[[Any], Any] | None = None,
          back: Callable[[Any], np.ndarray] | None = None, strides: bool = True,
          **arguments: Any) -> Any:
    """Check that two functions return equal results or raise the same error.

    Parameters
    ----------
    ours, numpys : callable
        The functions.
    *operands, **arguments
        Their arguments. Arrays are compared as small integers: exactly.
    out : array, optional
        Where the result goes.
    to, back : callable, optional
        What makes a CuPy array of a NumPy array, and the reverse.
    strides : bool
        Whether new arrays must have the same strides.

    Returns
    -------
    array or scalar
        The result, on the host; ``None`` if both refused.
    """
    named = dict(arguments)
    if out is not None:
        named["out"] = twin(out)
    with np.errstate(all="ignore"):
        expected, refusal = outcome(numpys, *operands, **named)
    moved = [to(x) if to and isinstance(x, np.ndarray)
             else [to(y) if isinstance(y, np.ndarray) else y for y in x] if to
             and isinstance(x, list) else x for x in operands]
    if out is not None:
        arguments["out"] = to(out) if to else out
    if refusal is not None:
        launched = len(reference.LAUNCHED)
        check_same_refusal(ours, refusal, *moved, **arguments)
        assert len(reference.LAUNCHED) == launched, "something ran before the call was refused"
        return None
    # NumPy's vecmat does not heed all strides of ``out`` (2.4)
    if out is not None and isinstance(numpys, np.ufunc):
        with np.errstate(all="ignore"):
            np.copyto(expected, numpys(*operands,
                                       **{name: x for name, x in named.items() if name != "out"}),
                      casting="unsafe")
    result = ours(*moved, **arguments)
    if out is not None:
        assert result is arguments["out"] or result.ndim == 0
        got = out
    else:
        got = back(result) if back else result
        assert back or type(result) is type(expected), f"{type(result)}, not {type(expected)}"
        if strides and isinstance(expected, np.ndarray):
            check_same_strides(result, expected)
    assert np.shape(got) == np.shape(expected) and np.asarray(got).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(got, expected)
    return got


def twin(x: np.ndarray) -> np.ndarray:
    """A copy with the same strides and alignment."""
    low, high = np.lib.array_utils.byte_bounds(x) if x.size else (0, 0)
    address = x.__array_interface__["data"][0] if x.size else 0
    room = np.zeros(high - low + 32, np.uint8)
    start = (low - room.ctypes.data) % 16
    result = np.ndarray(x.shape, x.dtype, room, start + address - low, x.strides)
    result[...] = x
    result.flags.writeable = x.flags.writeable
    return result
