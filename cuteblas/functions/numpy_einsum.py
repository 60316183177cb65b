"""``einsum`` of NumPy arrays in pairs, by NumPy's BLAS where a pair is a product of matrices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from .._dtypes import element_of
from ..engines.dispatch import ByName, Func
from ..engines.exact import WITHOUT_BLAS, least_products, product_of
from ..engines.memory import Ints, Memory, without_imaginary_part
from .expressions import Expression, one_mode
from .gufunc import resolve_product
from .subscripts import whole_path

_FEW = 64         # products of a matrix that do not repay a call of BLAS for each matrix of a stack
# Nanoseconds, on one core of a Xeon of 2023: of a call and of each of its steps, and of a product
# of elements by NumPy's loop over one to four operands.
_CALL, _STEP, _LOOP_CALL, _OF_A_STACK = 5000.0, 4500.0, 2000.0, 150.0
_RATES = {"b": (0.1, 1.7, 2.0, 4.0), "i": (0.9, 0.45, 1.2, 3.0), "f": (0.8, 0.3, 0.8, 2.5),
          "c": (1.0, 1.1, 2.3, 4.0), "e": (3.0, 4.5, 9.0, 13.0)}
_MOVED, _BY_BLAS, _BY_VECTORS, _EXACT = 0.6, 0.04, 0.25, 2e4

_PRODUCT: Func = partial(product_of, "einsum")
_MOST_PROGRAMS = 4096
_exact_programs: dict[Hashable, Func] = {}


def loop_ns(dtype: np.dtype, operands: int, products: int) -> float:
    rates = _RATES["e" if dtype.char == "e" else dtype.kind if dtype.kind in "bfc" else "i"]
    return _LOOP_CALL + products * rates[min(operands, len(rates)) - 1]


@dataclass(frozen=True)
class _Loop:
    """NumPy's plain loop over all indices, of which there are so many products."""

    positions: Ints
    subscripts: str
    products: int

    def run(self, factors: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(np.einsum(self.subscripts, *factors))

    def expected_ns(self, dtype: np.dtype) -> float:
        return loop_ns(dtype, len(self.positions), self.products)


def rounded_once(subscripts: str, order: Any, dtype: np.dtype, wide: np.dtype,
                 *arrays: np.ndarray, out: np.ndarray | None = None) -> Any:
    """NumPy's plain loop in a wider type: on float16, it rounds sums on their way."""
    with np.errstate(all="ignore"):
        factors = (_cast(x, dtype) for x in arrays)
        result = np.einsum(subscripts, *factors, dtype=wide, order=order)
        if out is None:
            return result.astype(dtype)
        np.copyto(out, result, casting="unsafe")
        return out


@dataclass(frozen=True)
class _Pair:
    """A product of two tensors as a stack of products of matrices. ``positions`` are in the list
    of tensors left; ``swapped`` if the second is the left factor. ``sums`` come first, over axes
    that nothing else has; ``loop`` takes over where these overflow and the products would not.
    ``axes`` are in the order stack, rows, columns; ``groups`` say how many axes of the result each
    one stands for."""

    positions: Ints
    swapped: bool
    sums: tuple[_Loop | None, _Loop | None]
    axes: tuple[Ints, Ints]
    shapes: tuple[Ints, Ints]
    stacked: Ints
    groups: tuple[int, int, int]
    shape: Ints
    multiplies: np.ufunc
    loop: _Loop | None
    product: Func

    def run(self, factors: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(self.multiplied(factors)).reshape(self.shape)

    def expected_ns(self, dtype: np.dtype) -> float:
        first, second = (prod(shape) for shape in self.shapes)
        parts = 4 if dtype.kind == "c" else 1
        taken = sum(x.expected_ns(dtype) for x in self.sums if x is not None)
        if self.multiplies is np.multiply:
            return taken + prod(self.shape) * parts
        *stack, m, k = self.shapes[0]
        n, matrices = self.shapes[1][-1], prod(stack)
        products = matrices * m * n * k
        taken += (first + second) * (_BY_VECTORS if min(m, n) == 1 else _MOVED) * parts
        taken += matrices * _OF_A_STACK if matrices > 1 else 0
        if dtype.char in WITHOUT_BLAS:
            return taken + min(loop_ns(dtype, 2, products), _EXACT + products * _BY_BLAS * 2)
        return taken + products * _BY_BLAS * parts

    def multiplied(self, factors: Sequence[np.ndarray], out: np.ndarray | None = None) -> Any:
        """The product as a stack of matrices, in ``out`` if there is one."""
        first, second = (self._matrices(x, i) for i, x in enumerate(factors[::-1] if self.swapped
                                                                    else factors))
        multiply = np.multiply if self.multiplies is np.multiply else self.product
        result = multiply(first, second, out)
        if self.loop is None or np.isfinite(result).all():
            return result
        again = self.loop.run(factors)
        if out is not None:
            out[...] = again.reshape(out.shape)
        return again

    def _matrices(self, x: np.ndarray, i: int) -> np.ndarray:
        if (first := self.sums[i]) is not None:
            x = first.run([x])
        x = x.transpose(self.axes[i]).reshape(self.shapes[i])
        return x if self.multiplies is np.multiply or x.dtype.char in WITHOUT_BLAS else _for_blas(x)

    def writes(self, modes: Sequence[tuple[int, int]], itemsize: int) -> bool:
        """Whether the result can be written at once to these extents and strides in bytes."""
        if self.multiplies is np.multiply:
            return True
        stack, rows, _columns = self.groups
        parts = one_mode(modes[:stack]), one_mode(modes[stack:stack
                                                          + rows]), one_mode(modes[stack + rows:])
        if None in parts:
            return False
        _batch, (m, down), (n, along) = parts               # type: ignore[misc]
        return (along == itemsize and (m == 1 or down >= n * itemsize)) or (
            down == itemsize and (n == 1 or along >= m * itemsize)
        )


_Step = _Loop | _Pair


@dataclass(frozen=True)
class Program:
    """The steps of a call of ``einsum`` on NumPy arrays. Each of ``steps`` puts its result at the
    end of the list of tensors left; without steps an index is empty and the result zero. ``shown``
    is the last product's shape with 1 for indices that no operand has; ``written`` says how it is
    written at once."""

    loads: tuple[Func, ...]
    steps: tuple[_Step, ...]
    shape: Ints
    strides: Ints
    dtype: np.dtype
    scalar: bool
    wide: np.dtype | None = None
    axes: Ints = ()
    shown: Ints = ()
    written: tuple[Ints, Ints, Ints] | None = None

    @property
    def is_one_product(self) -> bool:
        """Whether all is one stack of products of matrices."""
        return len(self.steps) == 1 and isinstance(self.steps[0], _Pair)

    def expected_ns(self, arrays: Sequence[np.ndarray]) -> float:
        if self.wide is None:
            return _CALL
        cast = sum(x.size for x in arrays if x.dtype != self.wide)
        return _CALL + cast + sum(_STEP + step.expected_ns(self.wide) for step in self.steps)

    def run(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> Any:
        """The result; ``out`` shares no memory with the arrays."""
        result = np.ndarray(self.shape, self.dtype, strides=self.strides) if out is None else out
        if not self.steps:
            result[...] = 0
        else:
            with np.errstate(all="ignore"):              # as NumPy's einsum, which warns of nothing
                left = [load(x) for load, x in zip(self.loads, arrays, strict=True)]
                *first, last = self.steps
                for step in first:
                    new = step.run([left[i] for i in step.positions])
                    left = [x for i, x in enumerate(left) if i not in step.positions]
                    left.append(new)
                factors = [left[i] for i in last.positions]
                if self.written is not None and isinstance(last, _Pair):
                    squeezed, axes, shape = self.written
                    last.multiplied(factors,
                                    result.reshape(squeezed).transpose(axes).reshape(shape))
                else:
                    product = last.run(factors).transpose(self.axes).reshape(self.shown)
                    np.copyto(result, without_imaginary_part(product, result.dtype),
                              casting="unsafe")
        return result[()] if out is None and self.scalar and not self.shape else result


def program(settled: Expression, shapes: Sequence[Ints],
            out: tuple[Ints, np.dtype] | None = None,
            product: Func = _PRODUCT) -> Program | None:
    """How a call runs; ``None`` with too many indices for letters; ``out``: (strides, dtype);
    ``product`` multiplies stacks of matrices."""
    extents = settled.extents
    ends = settled.shape, settled.strides, settled.dtype, settled.scalar
    if 0 in extents.values():
        return Program((), (), *ends)
    native = settled.dtype.newbyteorder("=")
    row = element_of(native)
    wide = native if row is None else np.dtype(row.computed)
    loaded = [_load("".join(term.axes), shape, native, wide)
              for term, shape in zip(settled.terms, shapes, strict=True)]
    loads, terms = (tuple(part) for part in zip(*loaded, strict=True))
    result = "".join(c for c in settled.axes if any(c in term for term in terms))
    left, steps = list(terms), list[_Step]()
    for positions in whole_path(settled.path, len(terms)):
        chosen = [left[i] for i in positions]
        left = [term for i, term in enumerate(left) if i not in positions]
        later = {*result}.union(*left)
        kept = "".join(dict.fromkeys(c for x in chosen for c in x
                                     if c in later)) if left else result
        step, kept = _step(positions, chosen, kept, extents, wide, product)
        if step is None:
            return None
        steps.append(step)
        left.append(kept)
    term, = left
    shown = tuple(extents[c] if c in result else 1 for c in settled.axes)
    axes = tuple(term.index(c) for c in result)
    strides, kind = (settled.strides, settled.dtype) if out is None else out
    written = None
    if isinstance(steps[-1], _Pair) and kind == wide and shown == settled.shape:
        modes = {c: (extents[c], stride) for c, stride in zip(settled.axes, strides, strict=True)
                 if c in result}
        if steps[-1].writes([modes[c] for c in term], wide.itemsize):
            written = tuple(extents[c] for c in result), tuple(result.index(c)
                                                               for c in term), steps[-1].stacked
    return Program(loads, tuple(steps), *ends, wide, axes, shown, written)


def contract_by_blas(key: Hashable, settle: Callable[..., Expression | None] | None, a: np.ndarray,
                     b: np.ndarray, out: np.ndarray | None, arguments: ByName) -> Any:
    """A contraction of integers, bool or float16 as products of matrices; ``None`` where NumPy's
    loop is quicker, or refuses. ``key`` begins with the function's name."""
    if not (a.ndim and b.ndim) or a.size * b.size < least_products(a, b) * min(b.shape) \
            or not (out is None or out.flags.carray):
        return None
    if (run := _exact_programs.get(key)) is None:
        run = _exact_program(key[0], settle, a, b, arguments)     # type: ignore[index]
        if len(_exact_programs) >= _MOST_PROGRAMS:
            _exact_programs.clear()
        _exact_programs[key] = run
    result = run(a, b)
    if out is None or result is None:
        return result
    if (out.shape, out.dtype) != (result.shape, result.dtype):
        return None
    out[...] = result
    return out


def _exact_program(function: str, settle: Callable[..., Expression | None] | None, a: np.ndarray,
                   b: np.ndarray, arguments: ByName) -> Func:
    settle = settle or partial(resolve_product, ufunc=getattr(np, function))
    with suppress(TypeError, ValueError):               # NumPy's to refuse
        settled = settle(*(Memory(x.shape, x.strides, x.dtype) for x in (a, b)), None, **arguments)
        if settled and settled.products >= least_products(a, b) \
                and settled.dtype.char in WITHOUT_BLAS \
                and (found := program(settled, (a.shape, b.shape),
                                      product=partial(product_of, function, counts=True))) \
                and found.is_one_product:
            return found.run
    return lambda *_: None


def _load(term: str, shape: Ints, dtype: np.dtype, wide: np.dtype) -> tuple[Func, str]:
    """What makes an axis for each index of extent above 1 of an operand, and these indices."""
    letters = dict(zip(dict.fromkeys(term), ascii_letters, strict=False))
    extents = dict(zip(term, shape, strict=True))
    diagonal = f"{''.join(letters[c] for c in term)}->{''.join(letters.values())}"
    left = "".join(c for c in letters if extents[c] != 1)
    own = tuple(extents[c] for c in left)

    def load(x: np.ndarray) -> np.ndarray:
        if len(letters) < len(term):
            x = np.einsum(diagonal, x)
        return _cast(_cast(x if x.shape == own else x.reshape(own), dtype), wide)     # float16 first

    return load, left


def _step(positions: Ints, terms: Sequence[str], kept: str, extents: Mapping[str, int],
          wide: np.dtype, product: Func) -> tuple[_Step | None, str]:
    """One product with these indices, and in which order it has them."""
    def size(indices: Collection[str]) -> int:
        return prod(extents[c] for c in indices)

    given, plain = terms, _loop(positions, terms, kept, extents)
    if len(terms) != 2:
        return plain, kept
    rows, columns = ([c for c in kept if c in x and c not in y] for x, y in (terms, terms[::-1]))
    swapped = bool(rows and columns) and kept.index(rows[0]) > kept.index(columns[0])
    if swapped:
        terms, rows, columns = terms[::-1], columns, rows
    first, second = terms
    batch = [c for c in kept if c in first and c in second]
    summed = [c for c in (first if size(first) >= size(second) else second) if c in first
              and c in second and c not in kept]
    alone = [[c for c in x if c not in y and c not in kept] for x, y in (terms, terms[::-1])]
    order = "".join((*batch, *rows, *columns))
    m, n, k, stack = map(size, (rows, columns, summed, batch))
    if plain is not None and summed and stack > 1 and m * n * k <= _FEW and not any(alone):
        return plain, kept
    both, down, along = ([stack] if batch else []), [m], [n]
    if not summed:                              # any strides will do
        both, down, along = ([extents[c] for c in part] for part in (batch, rows, columns))
    first_shape = (*both, *down, *([k] if summed else [1] * len(along)))
    second_shape = (*both, *([k] if summed else [1] * len(down)), *along)
    groups = (*batch, *rows, *summed), (*batch, *summed, *columns)
    left = ["".join(c for c in x if c not in y) for x, y in zip(terms, alone, strict=True)]
    if any(alone) and plain is None:
        return None, order
    sums = tuple(_loop((0,), [x], y, extents) if x != y else None
                 for x, y in zip(terms, left, strict=True))
    overflows = any(alone) and wide.kind in "fc"
    pair = _Pair(
        positions,
        swapped,
        sums,  # type: ignore[arg-type]
        tuple(tuple(x.index(c) for c in group) for x, group in zip(left, groups, strict=True)),  # type: ignore[arg-type]
        (first_shape, second_shape),
        (*both, *down, *along),
        (len(batch), len(rows), len(columns)),
        tuple(extents[c] for c in order),
        np.matmul if summed else np.multiply,
        _loop(positions, given, order, extents) if overflows else None,
        product
    )
    if plain is not None and plain.expected_ns(wide) < pair.expected_ns(wide):
        return plain, kept
    return pair, order


def _loop(positions: Ints, terms: Sequence[str], kept: str,
          extents: Mapping[str, int]) -> _Loop | None:
    indices = dict.fromkeys("".join(terms))
    if len(indices) > len(ascii_letters):
        return None
    named = dict(zip(indices, ascii_letters, strict=False))
    inputs = ",".join("".join(named[c] for c in term) for term in terms)
    return _Loop(positions, f"{inputs}->{''.join(named[c] for c in kept)}",
                 prod(extents[c] for c in indices))


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x if x.dtype == dtype else without_imaginary_part(x, dtype).astype(dtype)


def _for_blas(x: np.ndarray) -> np.ndarray:
    """Matrices that BLAS can read: rows or columns are contiguous and do not overlap."""
    (m, n), (down, along), item = x.shape[-2:], x.strides[-2:], x.itemsize
    if (along == item and down >= n * item) or (down == item and along >= m * item):
        return x
    return np.ascontiguousarray(x)
