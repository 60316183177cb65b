"""Layouts of tiles with the hardware's swizzles, which TMA and ``wgmma`` share."""

from __future__ import annotations

from .._dtypes import dtype
from ..layout import ComposedLayout, Layout, Swizzle
from .engine import CodegenError

__all__ = ["CHUNK", "ROW_BYTES", "SPANS", "operand_layout"]

ROW_BYTES = 128
"""One row of the widest swizzle."""

CHUNK = 16
"""Bytes that a swizzle moves as one."""

SPANS = {1: 32, 2: 64, 3: 128}
"""Bytes of the rows over which swizzles of so many bits go."""


def swizzle_over(span: int, element: str) -> Swizzle:
    """The hardware's swizzle over rows of 128, 64 or 32 bytes."""
    bits = {nbytes: bits for bits, nbytes in SPANS.items()}[span]
    return Swizzle(bits, (CHUNK // dtype(element).bytes).bit_length() - 1, 3)


def longest_row(extent: int, element: str) -> int:
    """Bytes of the longest swizzled row that divides an extent of contiguous elements; the longest
    of all if none does."""
    return next((span for span in sorted(SPANS.values(), reverse=True) if extent
                 * dtype(element).bytes % span == 0), ROW_BYTES)


def operand_layout(extent: int, depth: int, element: str, k_major: bool,
                   row_bytes: int = ROW_BYTES) -> ComposedLayout:
    """The swizzled layout of an (extent, depth) operand tile in shared memory.

    Rows have 128 bytes: 64 elements of a 16-bit type, 32 of a 32-bit one. K-major: slabs of one row
    along K, each ``extent`` rows. MN-major: slabs of one row along M (or N), each ``depth`` rows,
    which may also have 64 or 32 bytes.

    Parameters
    ----------
    extent : int
        Rows of A, or columns of B.
    depth : int
        Extent along K.
    element : str
        The type of the elements.
    k_major : bool
        Whether K is the contiguous mode.
    row_bytes : {128, 64, 32}
        Bytes of a row, over which the swizzle goes.

    Returns
    -------
    ComposedLayout
        From (row, k) to a place in shared memory, in elements.

    Raises
    ------
    CodegenError
        If the contiguous extent is not a multiple of a row.

    Examples
    --------
    >>> from cuteblas.codegen.swizzled import operand_layout
    >>> print(operand_layout(128, 64, "float16", k_major=True))
    S<3,3,3> o 0 o (128,64):(64,1)
    """
    row = row_bytes // dtype(element).bytes
    if k_major:
        if depth % row:
            raise CodegenError(
                f"a K-major tile of {element} must be a multiple of {row} deep, got {depth}"
            )
        slabs = Layout((row, depth // row), (1, row * extent)) if depth > row else Layout(row)
        inner = Layout((extent, slabs.shape), (row, slabs.stride))
    else:
        if extent % row:
            raise CodegenError(
                f"an MN-major tile of {element} must be a multiple of {row} wide, got {extent}"
            )
        inner = Layout(((row, extent // row), depth), ((1, row * depth), row))
    return ComposedLayout(swizzle_over(row_bytes, element), 0, inner)
