"""``einsum`` of NumPy arrays in pairs, by NumPy's BLAS where a pair is a product of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._dtypes import element_of
from ..engines.dispatch import Func
from ..engines.exact import WITHOUT_BLAS, product_of
from ..engines.memory import Ints, Memory, shadow, without_imaginary_part
from .expressions import Expression
from .subscripts import whole_path

# Nanoseconds, on one core of a Xeon of 2023: of a call and of each of its steps, and of a product
# of elements by NumPy's loop over one to four operands.
_CALL, _STEP, _LOOP_CALL, _OF_A_STACK = 5000.0, 4500.0, 2000.0, 150.0
_RATES = {"b": (0.1, 1.7, 2.0, 4.0), "i": (0.9, 0.45, 1.2, 3.0), "f": (0.8, 0.3, 0.8, 2.5),
          "c": (1.0, 1.1, 2.3, 4.0), "e": (3.0, 4.5, 9.0, 13.0)}
_MOVED, _BY_BLAS, _BY_VECTORS, _EXACT = 0.6, 0.04, 0.25, 2e4


def loop_ns(dtype: np.dtype, operands: int, products: int) -> float:
    rates = _RATES["e" if dtype.char == "e" else dtype.kind if dtype.kind in "bfc" else "i"]
    return _LOOP_CALL + products * rates[min(operands, len(rates)) - 1]


class _Step(NamedTuple):
    """A product: ``compute`` makes a tensor with the indices ``kept`` from its factors. If there is
    a shape ``stacked``, it also writes to an array of that shape, ``by_blas`` to matrices."""

    kept: str
    compute: Func
    expected_ns: float
    stacked: Ints | None = None
    by_blas: bool = False


def program(settled: Expression, operands: Sequence[Memory],
            out: Memory | None = None) -> tuple[Func, float]:
    """What computes a call from its operands and ``out``, which shares no memory with them, and the
    expected nanoseconds."""
    extents, shape, dtype = settled.extents, settled.shape, settled.dtype
    native = dtype.newbyteorder("=")
    row = element_of(native)
    wide = native if row is None else np.dtype(row.computed)
    loads, terms = zip(*(_load("".join(term.axes), x.shape, native, wide)
                         for term, x in zip(settled.terms, operands, strict=True)), strict=True)
    target = out or settled.memory
    strides = {c: stride for c, stride in zip(settled.axes, target.strides, strict=True)
               if any(c in term for term in terms)}
    left, steps = [*terms], list[tuple[Ints, _Step]]()
    # along an index without elements nothing is multiplied
    for positions in whole_path(settled.path, len(terms)) if all(extents.values()) else ():
        chosen = [left[i] for i in positions]
        left = [term for i, term in enumerate(left) if i not in positions]
        later = {*strides}.union(*left)
        kept = dict.fromkeys(c for term in chosen for c in term if c in later) if left \
            else sorted(strides, key=lambda c: -abs(strides[c]))            # as they are in memory
        step = _step(chosen, "".join(kept), extents, wide)
        steps.append((positions, step))
        left.append(step.kept)
    write = _writing(settled, target, wide, [*strides], step) if steps else None
    ends = steps[-1][0] if steps else ()

    def run(*arrays: np.ndarray, out: np.ndarray | None = None) -> Any:
        result = np.ndarray(shape, dtype, strides=settled.strides) if out is None else out
        if write is None:
            result[...] = 0
        else:
            with np.errstate(all="ignore"):             # as NumPy's einsum, which warns of nothing
                left = [load(x) for load, x in zip(loads, arrays, strict=True)]
                for positions, step in steps[:-1]:
                    factors = [left[i] for i in positions]
                    left = [x for i, x in enumerate(left) if i not in positions]
                    left.append(step.compute(*factors))
                write(result, *[left[i] for i in ends])
        return result[()] if settled.scalar and not shape else result

    cast = sum(x.size for x in operands if x.dtype != wide)
    return run, _CALL + cast + sum(_STEP + step.expected_ns for _positions, step in steps)


def _load(term: str, shape: Ints, dtype: np.dtype, wide: np.dtype) -> tuple[Func, str]:
    """What makes an axis for each index of extent above 1 of an operand, and these indices."""
    letters, extents = "".join(dict.fromkeys(term)), dict(zip(term, shape, strict=True))
    left = "".join(c for c in letters if extents[c] != 1)
    own = tuple(extents[c] for c in left)

    def load(x: np.ndarray) -> np.ndarray:
        if letters != term:
            x = np.einsum(f"{term}->{letters}", x)
        return _cast(_cast(x if x.shape == own else x.reshape(own), dtype), wide)     # float16 first

    return load, left


def _writing(settled: Expression, target: Memory, wide: np.dtype, indices: Sequence[str],
             step: _Step) -> Func:
    """What writes the last product of a call to its result: at once, or by a copy."""
    extents = settled.extents
    shown = tuple(extents[c] if c in indices else 1 for c in settled.axes)
    squeezed, axes = tuple(extents[c] for c in indices), tuple(map([*indices].index, step.kept))
    if step.stacked is not None and target.dtype == wide and shown == settled.shape:
        def stacks(x: np.ndarray, copy: bool | None = None) -> np.ndarray:
            return x.reshape(squeezed).transpose(axes).reshape(step.stacked, copy=copy)

        with suppress(ValueError):
            x = stacks(shadow(target.shape, target.strides, wide.str), copy=False)
            if not step.by_blas or _is_for_blas(x):
                return lambda result, *factors: step.compute(*factors, out=stacks(result))
    back = tuple(map(step.kept.index, indices))

    def copied(result: np.ndarray, *factors: np.ndarray) -> None:
        product = step.compute(*factors).transpose(back).reshape(shown)
        np.copyto(result, without_imaginary_part(product, result.dtype), casting="unsafe")

    return copied


def _step(terms: Sequence[str], kept: str, extents: Mapping[str, int], wide: np.dtype) -> _Step:
    """The quicker of NumPy's loop and a product of two tensors."""
    loop = _loop(terms, kept, extents, wide)
    if len(terms) != 2:
        return loop
    pair = _pair(terms, kept, extents, wide)
    return min(pair, loop, key=lambda step: step.expected_ns)


def _loop(terms: Sequence[str], kept: Iterable[str], extents: Mapping[str, int],
          wide: np.dtype) -> _Step:
    text = f"{','.join(terms)}->{''.join(kept)}"
    products = prod(extents[c] for c in {*"".join(terms)})
    return _Step("".join(kept), lambda *factors: np.asarray(np.einsum(text, *factors)),
                 loop_ns(wide, len(terms), products))


def _pair(terms: Sequence[str], kept: str, extents: Mapping[str, int], wide: np.dtype) -> _Step:
    """A product of two tensors as one of stacks of matrices, or of elements if nothing is summed.

    A tensor is first summed over indices that nothing else has. NumPy's loop takes over where that
    sum overflows, because the products may not.
    """
    def size(indices: Iterable[str]) -> int:
        return prod(extents[c] for c in indices)

    rows, columns = ([c for c in kept if c not in other] for other in terms[::-1])
    swapped = bool(rows and columns) and kept.index(rows[0]) > kept.index(columns[0])
    if swapped:
        terms, rows, columns = terms[::-1], columns, rows
    both = [c for c in max(terms, key=size) if all(c in term for term in terms)]
    batch, summed = [c for c in kept if c in both], [c for c in both if c not in kept]
    order = "".join((*batch, *rows, *columns))
    full = tuple(extents[c] for c in order)
    m, n, k, stack = map(size, (rows, columns, summed, batch))
    parts = 4 if wide.kind == "c" else 1
    multiply: Func = partial(product_of, "einsum")
    if summed:
        groups = (*batch, *rows, *summed), (*batch, *summed, *columns)
        stacks = (stack,) if batch else ()
        shapes: tuple[Ints, ...] = (*stacks, m, k), (*stacks, k, n)
        stacked: Ints = (*stacks, m, n)
        products, read = stack * m * n * k, stack * k * (m + n)
        expected_ns = read * (_BY_VECTORS if min(m, n) == 1 else _MOVED) * parts
        expected_ns += stack * _OF_A_STACK if stack > 1 else 0
        expected_ns += min(loop_ns(wide, 2, products), _EXACT + products * _BY_BLAS * 2) \
            if wide.char in WITHOUT_BLAS else products * _BY_BLAS * parts
    else:
        groups, stacked, multiply = ((*batch, *rows), (*batch, *columns)), full, np.multiply
        shapes = tuple(tuple(extents[c] if c in group else 1 for c in order) for group in groups)
        expected_ns = prod(full) * parts
    by_blas = bool(summed) and wide.char not in WITHOUT_BLAS
    lefts = [[c for c in term if c in group] for term, group in zip(terms, groups, strict=True)]
    sums = [None if len(left) == len(term) else _loop([term], left, extents, wide)
            for term, left in zip(terms, lefts, strict=True)]
    axes = [tuple(map(left.index, group)) for left, group in zip(lefts, groups, strict=True)]
    views = [*zip(sums, axes, shapes, strict=True)]
    again = _loop(terms, order, extents, wide) if any(sums) and wide.kind in "fc" else None

    def compute(*factors: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if swapped:
            factors = factors[::-1]
        given = []
        for x, (first, order, shape) in zip(factors, views, strict=True):
            x = (x if first is None else first.compute(x)).transpose(order).reshape(shape)
            given.append(x if not by_blas or _is_for_blas(x) else np.ascontiguousarray(x))
        result = multiply(*given, out)
        if again is not None and not np.isfinite(result).all():
            result = again.compute(*factors)
            if out is not None:
                out[...] = result.reshape(stacked)
        return result if out is not None else np.asarray(result).reshape(full)

    expected_ns += sum(x.expected_ns for x in sums if x)
    return _Step(order, compute, expected_ns, stacked, by_blas)


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x if x.dtype == dtype else without_imaginary_part(x, dtype).astype(dtype)


def _is_for_blas(x: np.ndarray) -> bool:
    """Whether rows or columns of matrices are contiguous and do not overlap."""
    (m, n), (down, along), item = x.shape[-2:], x.strides[-2:], x.itemsize
    return (along == item and down >= n * item) or (down == item and along >= m * item)
