"""NumPy arrays in pinned memory."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["empty_pinned"]


def empty_pinned(shape: int | tuple[int, ...], dtype: Any = float,
                 order: Literal["C", "F"] = "C") -> NDArray[Any]:
    """A new NumPy array in pinned memory, as ``numpy.empty``: the GPU reads and writes it without a
    copy on the host.

    Parameters
    ----------
    shape : int or tuple of int
        The extents.
    dtype : dtype
        The element type, without references to Python objects; float64 by default.
    order : {"C", "F"}
        The order of the elements.

    Returns
    -------
    numpy.ndarray
        An array whose elements are not initialised. Its memory is freed with the last of its views.

    Raises
    ------
    RuntimeError
        If there is no GPU; the message has the reason.
    TypeError, ValueError
        As in ``numpy.empty``.

    See Also
    --------
    cuteblas.backend : chooses the backend for NumPy arrays.

    Examples
    --------
    >>> a = cuteblas.empty_pinned((4096, 4096), np.float32)            # doctest: +SKIP
    >>> a[:] = 1                                                       # doctest: +SKIP
    >>> with cuteblas.backend("cuda"):                                 # doctest: +SKIP
    ...     c = cuteblas.matmul(a, a)
    """
    like = np.empty(0, dtype, order=order)
    if like.dtype.hasobject:
        raise TypeError(
            f"empty_pinned takes an element type without references to Python objects, got {like.dtype}"
        )
    extents = np.broadcast_shapes(shape)
    from .placement import require_cuda

    require_cuda("empty_pinned")
    from .host_cuda import current_ring

    memory = current_ring().link.pinned(max(prod(extents) * like.itemsize, 1))
    return np.ndarray(extents, like.dtype, memory, order=order)
