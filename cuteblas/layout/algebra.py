"""Coalescing, complements and inverses of layouts."""

from __future__ import annotations

from typing import Any

from .basis import ScaledBasis
from .core import Layout, make_layout, on_domain
from .errors import LayoutError
from .inttuple import ceil_div, leaves, merge_modes, product, quotient, size, surely_less, transform_leaf

__all__ = ["coalesce", "complement", "filter_zeros", "filtered", "flatten", "left_inverse", "nullspace", "right_inverse"]


@on_domain
def coalesce(layout: Layout, profile: Any = None) -> Layout:
    """The same function on the same number of coordinates with as few modes as possible.

    With a ``profile`` (a tuple; its leaves do not matter) each of its modes is coalesced on its own, so that the coordinates of
    those modes stay coordinates.

    Examples
    --------
    >>> str(coalesce(Layout((2, (1, 6)), (1, (6, 2)))))
    '12:1'
    """
    if isinstance(profile, tuple):
        if len(profile) > layout.rank:
            raise LayoutError("coalesce", "the profile has more modes than the layout", layout, profile)
        modes = list(layout)
        return make_layout(*(coalesce(m, p) for m, p in zip(modes, profile, strict=False)), *modes[len(profile):])
    runs = merge_modes(layout.flat_shape, layout.flat_stride) or [(1, 0)]
    return Layout(*runs[0]) if len(runs) == 1 else Layout(*zip(*runs, strict=True))


@on_domain
def filter_zeros(layout: Layout) -> Layout:
    """The layout with modes of stride 0 shrunk to extent 1: the same values, each once for every other mode."""
    flat = iter([1 if d == 0 else s for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True)])
    return Layout(transform_leaf(layout.shape, lambda _: next(flat)), layout.stride)


@on_domain
def filtered(layout: Layout) -> Layout:
    """``coalesce(filter_zeros(layout))`` (CuTe's ``filter``)."""
    return coalesce(filter_zeros(layout))


def flatten(x: Any) -> Any:
    """The leaves of a tuple, layout or tensor as its modes; an integer stays an integer."""
    if isinstance(x, tuple):
        return leaves(x)
    if hasattr(x, "map_domain"):
        return x.map_domain(flatten)
    if not isinstance(x, Layout) or not isinstance(x.shape, tuple):
        return x
    return Layout(x.flat_shape, x.flat_stride)


# -- complement -------------------------------------------------------------------------------------------------------------------
def _sorted_modes(layout: Layout, op: str) -> list[tuple[Any, Any, Any]]:
    """Extent, stride and number of coordinates before each mode that has extent other than 1 and stride other than 0.

    The smallest stride comes first; symbolic ones stay in their order.
    """
    modes, before = [], 1
    for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True):
        if s != 1 and d != 0:
            modes.append((s, d, before))
        before = before * s
    for s, d, _ in modes:
        if isinstance(d, ScaledBasis):
            raise LayoutError(op, f"the basis stride {d} has no order", layout)
        if s == 0:
            raise LayoutError(op, "the layout is empty", layout)
        if isinstance(d, int) and d < 0:
            raise LayoutError(op, f"the stride {d} is negative", layout)
    if all(isinstance(d, int) for _, d, _ in modes):
        modes.sort(key=lambda mode: mode[1])
    return modes


def complement(layout: Layout, cotarget: Any = None) -> Layout:
    """The layout of what ``layout`` leaves out: ``(layout, complement)`` together reach every integer below ``cotarget`` once.

    Parameters
    ----------
    layout : Layout
        Its distinct values repeat with the strides of the complement. Modes of stride 0 do not count.
    cotarget : int, Expr or shape, optional
        How far to reach; by default no further than needed to fill the gaps. Where the layout does not divide it, the
        complement rounds up.

    Returns
    -------
    Layout
        Strides increase from left to right, and the complement starts at 0.

    Raises
    ------
    LayoutError
        If the values of the layout are not distinct or their repetitions cannot fill an interval: with the modes sorted by
        stride, each stride must be a multiple of extent times stride of the mode before.

    Examples
    --------
    >>> str(complement(Layout(4, 2), 24)), str(complement(Layout((2, 2), (1, 6)), 24))
    ('(2,3):(1,8)', '(3,2):(2,12)')
    """
    if isinstance(layout, int):
        layout = Layout(layout)
    target = 1 if cotarget is None else product(cotarget)
    shape, stride = [], []
    current: Any = 1
    for s, d, _ in _sorted_modes(layout, "complement"):
        gap = quotient(d, current)
        if gap is None:
            raise LayoutError("complement", f"the mode {s}:{d} does not start at a multiple of {current}, their end",
                              layout, target)
        shape.append(gap)
        stride.append(current)
        current = d * s
    shape.append(ceil_div(target, current))
    stride.append(current)
    return coalesce(Layout(tuple(shape), tuple(stride)))


# -- inverses ---------------------------------------------------------------------------------------------------------------------
def right_inverse(layout: Layout) -> Layout:
    """A layout ``R`` with ``layout(R(i)) == i`` for all ``i`` below its size.

    It is made of the modes of ``layout`` that follow each other without a gap from stride 1, so it is the whole inverse
    of a layout that is one to one onto an interval, and ``1:0`` if no mode has stride 1.

    Examples
    --------
    >>> str(right_inverse(Layout((4, 8), (8, 1))))
    '(8,4):(4,1)'
    """
    if isinstance(layout, int):
        layout = Layout(layout)
    flat = coalesce(layout)
    modes, before = [], 1
    for s, d in zip(flat.flat_shape, flat.flat_stride, strict=True):
        modes.append((s, d, before))
        before = before * s
    shape: list[Any] = []
    stride: list[Any] = []
    current: Any = 1
    while found := [mode for mode in modes if mode[1] == current and mode[0] != 0]:
        s, _, domain = found[0]
        modes.remove(found[0])
        shape.append(s)
        stride.append(domain)
        current = current * s
    return coalesce(Layout(tuple(shape), tuple(stride))) if shape else Layout(1, 0)


def left_inverse(layout: Layout) -> Layout:
    """A layout ``G`` with ``layout(G(layout(i))) == layout(i)`` for all ``i``: ``G(layout(i)) == i`` if ``layout`` is one to one.

    Between the values of ``layout``, ``G`` repeats the value before.

    Raises
    ------
    LayoutError
        If, with the modes sorted by stride, a stride is not a multiple of the one before it, or is less than extent times stride
        of the one before it.

    Examples
    --------
    >>> str(left_inverse(Layout((4, 8), (16, 1)))), str(left_inverse(Layout(4, 2)))
    ('(16,4):(4,1)', '(2,4):(0,1)')
    """
    if isinstance(layout, int):
        layout = Layout(layout)
    modes = _sorted_modes(layout, "left_inverse")
    shape: list[Any] = []                                # entry i: how many values from one mode's step to the next one's
    stride: list[Any] = [0]                              # and the number of coordinates that one step of the mode is worth
    reach: Any = 1
    last: Any = 1
    for s, d, domain in modes:
        gap = quotient(d, last)
        if gap is None or not surely_less(reach - 1, d):
            raise LayoutError("left_inverse", f"the stride of the mode {s}:{d} is not a multiple of {last} from {reach} on", layout)
        shape.append(gap)
        stride.append(domain)
        reach, last = s * d, d
    shape.append(modes[-1][0] if modes else 1)
    return coalesce(Layout(tuple(shape), tuple(stride)))


def nullspace(layout: Layout) -> Layout:
    """The layout of the coordinates that only count modes of stride 0: ``layout(nullspace(i)) == 0`` for all ``i``.

    Examples
    --------
    >>> str(nullspace(Layout((2, 3, 4), (0, 1, 0))))
    '(2,4):(1,6)'
    """
    shape, stride, before = [], [], 1
    for s, d in zip(layout.flat_shape, layout.flat_stride, strict=True):
        if d == 0:
            shape.append(s)
            stride.append(before)
        before = before * s
    return coalesce(Layout(tuple(shape), tuple(stride))) if shape else Layout(1, 0)


def is_bijective(layout: Layout) -> bool:
    """Whether the layout reaches every integer below its size exactly once (certainly, where leaves are symbolic)."""
    return size(right_inverse(layout)) == size(layout)
