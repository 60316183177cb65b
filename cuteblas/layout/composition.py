"""Composition: the layout ``R`` with ``R(c) == A(B(c))`` whose shape refines that of ``B``.

*By division*: a mode ``s:d`` of ``B`` walks through the modes of ``A``, right where digits cannot
carry, also symbolic ones. *By fitting*: where that fails and all is static, values are factored;
the first factor, the longest run with one difference, is forced, so a failure is a proof.
docs/layout-semantics.md says why both are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as _cartesian
from math import prod
from typing import Any

from .basis import ScaledBasis, scale_of
from .checks import Tiler, checked
from .core import Layout, Plain, make_layout, on_domain, trusted
from .errors import LayoutError, described
from .inttuple import (
    basis_like,
    dot_digits,
    entry_at,
    map_leaves,
    merge_modes,
    quotient,
    size,
    surely_less,
)
from .swizzle import ComposedLayout, Swizzle, compose_swizzles, swizzle_through
from .symbolic import Expr, bounds

FIT_LIMIT = 1 << 18
"""Values that fitting looks at, at most; larger layouts that the division refuses are refused."""

_Factors = list[tuple[Any, Any]]                         # (extent, stride), leftmost fastest


@checked
def composition(layout: Any, tiler: Tiler) -> Any:
    """The layout of ``c -> layout(tiler(c))``.

    Parameters
    ----------
    layout : Layout, ComposedLayout, Swizzle or Tensor
        The outer function; of a composed layout or tensor, its domain side. A swizzle gives a
        ComposedLayout, or a Swizzle where the inner function is one too.
    tiler : Layout, int, None, tuple, ComposedLayout or Swizzle
        The inner function. An integer ``n`` is ``n:1``; a tuple composes mode by mode (modes beyond
        it are dropped) and ``None`` leaves a mode as it is: see :func:`tiler_to_layout`. A stride
        ``d@i`` reads mode ``i`` of ``layout``. A swizzle as the inner function becomes the outer
        swizzle with equal values, if there is one.

    Returns
    -------
    as ``layout``
        The layout of the composed function.

    Raises
    ------
    LayoutError
        If the tiler reaches outside the domain of ``layout`` or no layout (swizzle) is this
        function. With symbolic leaves also where the divisibility is not certain.

    Examples
    --------
    >>> str(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    '((2,2),3):((24,2),8)'
    """
    if isinstance(layout, Swizzle):
        return compose_swizzles(layout, tiler)
    return _on_layout(layout, tiler)


@checked
def tiler_to_layout(tiler: Tiler, layout: Plain | None = None) -> Layout:
    """Convert a tiler by modes to one layout, whose strides are multiples of basis elements.

    Parameters
    ----------
    tiler : Layout, int, None or tuple
        ``n`` is ``n:1``; entry ``i`` of a tuple reads mode ``i`` of the tiled layout.
    layout : Layout, optional
        The tiled layout; needed where an entry is ``None``, the whole mode.

    Returns
    -------
    Layout
        The tiler by modes as one layout.

    Raises
    ------
    LayoutError
        If it is not a tiler, has more modes than the layout, or has ``None`` for a mode that is not
        given.

    Examples
    --------
    >>> str(tiler_to_layout((4, 5))), str(tiler_to_layout((Layout(4, 2), (Layout(5, 3), 2))))
    ('(4,5):(1@0,1@1)', '(4,(5,2)):(2@0,(3@0@1,1@1@1))')
    """
    return _tiler(tiler, layout, ())


def _tiler(tiler: Any, mode: Any, path: tuple[int, ...]) -> Layout:
    if isinstance(tiler, tuple):
        if mode is not None and len(tiler) > mode.rank:
            raise LayoutError("composition", f"the tiler has more than {mode.rank} modes", mode,
                              tiler)
        return make_layout(*(_tiler(t, None if mode is None else mode[i], (*path, i))
                             for i, t in enumerate(tiler)))
    if tiler is None:
        if mode is None:
            raise LayoutError("tiler_to_layout",
                              "a whole mode (None) needs the layout that is tiled", tiler)
        return Layout(mode.shape, basis_like(mode.shape, *path))
    if isinstance(tiler, (int, Expr)):
        tiler = Layout(tiler)
    if not isinstance(tiler, Layout):
        raise LayoutError(
            "composition",
            f"a tiler is a layout, an integer, None or a tuple, got {described(tiler)}",
            mode
        )
    if not path:
        return tiler
    return Layout(tiler.shape, map_leaves(tiler.stride,
                                          lambda d: ScaledBasis(scale_of(d), (*path, *_kind(d)))))


def compose(layout: Layout, tiler: Any, beyond: bool = False) -> Layout:
    """:func:`composition`; ``beyond`` continues the last mode of ``layout`` past its extent."""
    if tiler is None:
        return layout
    if not isinstance(tiler, Layout):
        tiler = tiler_to_layout(tiler, layout)
    if tiler.has_basis:
        factors = _by_position(layout, tiler, beyond)
    else:
        factors = _factor(layout, list(tiler.pairs), beyond, tiler)
    return _arrange(tiler.shape, iter(factors))


@on_domain
def _on_layout(layout: Any, tiler: Any) -> Any:
    if isinstance(tiler, Swizzle):
        return swizzle_through(layout, ComposedLayout(tiler, 0, Layout(size(layout))), layout)
    if isinstance(tiler, ComposedLayout):
        return swizzle_through(layout, tiler, compose(layout, tiler.inner))
    return compose(layout, tiler)


def with_shape(layout: Any, shape: Any) -> Any:
    """Give a layout another shape, with its values in their order:
    ``composition(layout, Layout(shape))``.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Tensor
        What has the values.
    shape : int, Expr or tuple
        The new shape.

    Returns
    -------
    as ``layout``
        Of a shape that refines ``shape``.

    Raises
    ------
    LayoutError
        If the shape has more coordinates than the layout, or no layout of that shape has these
        values.

    Examples
    --------
    >>> str(with_shape(Layout((4, 6), (6, 1)), (2, (2, 3), 2)))
    '(2,(2,3),2):(6,(12,1),3)'
    """
    return _on_layout(layout, Layout(shape))


def _arrange(shape: Any, factors: Iterator[_Factors]) -> Layout:
    if isinstance(shape, tuple):
        return make_layout(*(_arrange(s, factors) for s in shape))
    f = next(factors)
    return trusted(*f[0]) if len(f) == 1 else trusted(*zip(*f, strict=True))


def _by_position(layout: Layout, tiler: Layout, beyond: bool) -> list[_Factors]:
    """Compose modes ``s:d@i`` of the tiler with mode ``i`` of the layout."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, (s, d) in enumerate(tiler.pairs):
        if isinstance(d, ScaledBasis):
            groups.setdefault(d.modes, []).append(i)
        elif d == 0 or s == 1:
            groups.setdefault((), []).append(i)
        else:
            raise LayoutError("composition",
                              f"mode {i} of the tiler has an integer stride beside basis strides",
                              layout, tiler)
    paths = [p for p in groups if p]
    for p in paths:
        if any(q != p and q[:len(p)] == p for q in paths):
            raise LayoutError("composition",
                              f"the tiler reads mode {p} of the layout as a whole and in part",
                              layout, tiler)
    out: list[_Factors] = [[]] * len(tiler.flat_shape)
    for path, indices in groups.items():
        entry_at(layout.shape, path)
        inner = [(tiler.flat_shape[i], d.value if isinstance(d := tiler.flat_stride[i], ScaledBasis)
                  else d) for i in indices]
        for i, f in zip(indices, _factor(layout[path] if path else layout, inner, beyond, tiler),
                        strict=True):
            out[i] = f
    return out


def _runs(layout: Layout) -> list[tuple[Any, Any]]:
    """Coalesced modes; those of extent 1 count only where there is no other."""
    return merge_modes(layout.pairs) or [(layout.flat_shape[-1], layout.flat_stride[-1])]


def _factor(layout: Layout, inner: Sequence[tuple[Any, Any]], beyond: bool,
            tiler: Layout) -> list[_Factors]:
    """``layout`` after each of the modes ``inner``, or a LayoutError."""
    if any(s == 0 for s, _ in inner):    # no coordinates there: any stride is right for those modes
        rest = iter(_factor(layout, [mode for mode in inner if mode[0] != 0], beyond, tiler))
        return [next(rest) if s != 0 else [(0, 0)] for s, _ in inner]
    runs = _runs(layout)
    _check_image(layout, runs, inner, beyond, tiler)
    load: list[Any] = [0] * len(runs)
    out: list[_Factors | None] = [_divide_mode(runs, s, d, load) for s, d in inner]
    carries = not all(surely_less(load[k], runs[k][0]) for k in range(len(runs) - 1))
    if not carries and None not in out:
        return out  # type: ignore[return-value]
    if any(isinstance(x, Expr) for x in (*(c for c, _ in runs[:-1]),
                                         *(x for mode in inner for x in mode))):
        i = out.index(None) if None in out else None
        which = "the sum of the modes" if i is None else f"the mode {inner[i][0]}:{inner[i][1]}"
        raise LayoutError(
            "composition",
            f"with symbolic leaves it is not certain that {which} of the tiler divides",
            layout,
            tiler
        )
    fit = _Fit(layout, tiler, runs, inner)
    for i, f in enumerate(out):
        if f is None:
            out[i] = fit.mode(i)
    fit.check_sum()
    return out  # type: ignore[return-value]


def _check_image(layout: Layout, runs: list, inner: Sequence, beyond: bool, tiler: Layout) -> None:
    if beyond and len(runs) == 1:
        return                                  # one stride: the function is linear on all integers
    top: Any = 0
    for i, (s, d) in enumerate(inner):
        if s != 1 and bounds(d)[0] < 0:
            raise LayoutError("composition",
                              f"mode {i} of the tiler, {s}:{d}, reaches below the coordinate 0",
                              layout, tiler)
        top = top + (s - 1) * d
    if beyond and all(c != 0 for c, _ in runs[:-1]):
        return
    n = size(layout)
    if bounds(top)[0] >= bounds(n)[1]:
        raise LayoutError(
            "composition",
            f"the tiler reaches the coordinate {top}, and the layout has {n} coordinates",
            layout,
            tiler
        )


def _divide_mode(runs: Sequence[tuple[Any, Any]], s: Any, d: Any,
                 load: list[Any]) -> _Factors | None:
    """``runs`` after ``s:d``, or None; adds each run's largest digit to ``load``."""
    if s == 1 or d == 0:
        return [(s, 0)]
    factors: _Factors = []
    last = len(runs) - 1
    for k, (c, a) in enumerate(runs):
        if k == last or surely_less((s - 1) * d, c):
            load[k] = load[k] + (s - 1) * d
            factors.append((s, d * a))
            return factors
        if (q := quotient(d, c)) is not None:
            d = q
            continue
        r = quotient(c, d)
        rest = None if r is None else quotient(s, r)
        if r is None or rest is None:
            return None
        load[k] = load[k] + (r - 1) * d
        factors.append((r, d * a))
        s, d = rest, 1
    return factors


class _Fit:
    """Layouts found from the values of a layout, integers or coordinates."""

    def __init__(self, layout: Layout, tiler: Layout, runs: Sequence[tuple[Any, Any]],
                 inner: Sequence[tuple[int, int]]):
        self.layout, self.tiler, self.inner = layout, tiler, inner
        self.shape, self.stride = zip(*runs, strict=True)
        if (n := prod(s for s, _ in inner)) > FIT_LIMIT:
            raise self.refuse(
                f"the modes do not divide, and {n} values are too many to search for a layout"
            )

    def value(self, index: int) -> Any:
        value = dot_digits(index, self.shape, self.stride)
        return value.as_tuple() if isinstance(value, ScaledBasis) else value

    def mode(self, i: int) -> _Factors:
        """The factors of mode ``i``; each is forced, so a failure is a proof."""
        s, d = self.inner[i]
        values = [self.value(x * d) for x in range(s)]
        factors: _Factors = []
        step = 1
        while len(values) > 1:
            e = values[1]
            run = 2
            while run < len(values) and values[run] == run * e:
                run += 1
            where = next((x for x in range(run, len(values))
                          if values[x] != values[x % run] + values[x - x % run]),
                         None) if len(values) % run == 0 else run
            if where is not None:
                raise self.refuse(
                    f"mode {i} of the tiler, {s}:{d}, goes in steps of {_spelled(e)} up to its coordinate "
                    f"{(run - 1) * step}; no layout then has {_spelled(values[where])} at {where * step}"
                )
            if len(found := _elements(e)) > 1:
                raise self.refuse(
                    f"mode {i} of the tiler steps by {_spelled(e)}, which is not a multiple of one basis element"
                )
            factors.append((run, found[0] if found else 0))
            values, step = values[::run], step * run
        return factors

    def check_sum(self) -> None:
        """Refuse modes that are layouts alone but carry into each other together."""
        alone = [[self.value(x * d) for x in range(s)] for s, d in self.inner]
        for coord in _cartesian(*(range(s) for s, _ in self.inner)):
            parts = sum((values[x] for values, x in zip(alone, coord, strict=True)), 0)
            whole = self.value(sum(x * d for x, (_, d) in zip(coord, self.inner, strict=True)))
            if parts != whole:
                raise self.refuse(
                    f"at the coordinate {coord} of the tiler's leaves the value is {_spelled(whole)}, "
                    f"and its leaves alone add up to {_spelled(parts)}: they carry into each other"
                )

    def refuse(self, why: str) -> LayoutError:
        return LayoutError("composition", why, self.layout, self.tiler)


def _elements(value: Any, *position: int) -> list[Any]:
    """The multiples of basis elements of which a value is the sum, or an integer alone."""
    if isinstance(value, tuple):
        return [found for i, x in enumerate(value) for found in _elements(x, *position, i)]
    return [ScaledBasis(value, position) if position else value] if value != 0 else []


def _spelled(value: Any) -> str:
    return " + ".join(map(str, _elements(value))) or "0"


def _kind(stride: Any) -> tuple[int, ...]:
    return stride.modes if isinstance(stride, ScaledBasis) else ()
