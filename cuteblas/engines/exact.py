"""Products on the host of types without a BLAS, by BLAS: integers exactly, float16 in float32.

Integers are split into balanced digits, -2^(b-1) to 2^(b-1), whose sums of K products a float
holds in any order: A B K <= 2^24 or 2^53 for digits up to A and B. Shifted products are added in
the integer type, where they wrap as NumPy's. Small elements have fewer digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._forks import WHOLE
from .counters import tally
from .memory import contiguous_strides, shadow
from .scratch import Scratch

__all__ = ["FLOAT32", "FLOAT64", "LEAST", "SMALL", "WITHOUT_BLAS", "least_products", "matmul",
           "product_of", "words_for"]

WITHOUT_BLAS = frozenset("?bBhHiIlLqQe")
SMALL = 256
"""Elements of both operands that NumPy's loop multiplies before another call would begin."""
LEAST = 1 << 13
"""Products of float16 that repay anything else than NumPy's loop."""
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
"""Types compared by identity: a third of the time of a look at the character."""

_LEAST_INTEGERS = 1 << 16               # the same of integers and bool
_BITS = {"float32": 24, "float64": 53}  # integers up to 2^bits are exact
# Nanoseconds of each product of two elements and of each element that is converted, on two cores of
# a Xeon of 2023.
_LOOP, _LOOP_OF_FLOAT16 = 0.4, 2.2      # NumPy's loop
# where sums of so many terms read a cache line of so many bytes for each
_LOOP_FAR, _FAR = 1.5, (1 << 10, 64)
_GEMM = {"float32": 0.015, "float64": 0.03}
_TO_FLOAT = 0.5
_DIGIT = 1.2                            # the same of some of the bits
_FROM_FLOAT = 1.8
_SURE = 1.5                  # how much longer NumPy's loop is expected to take where it is not used
_CALL = 15e3                 # of this module, and for each matrix of a stack
_MATRIX = 300
_BLOCK = 1 << 20         # elements of each array of scratch memory
_NARROW_BLOCK = 1 << 18  # the same where few rows or columns are multiplied, and conversions are
                         # most of the work
_NARROW = 64
_CHUNKS = 7, 8, 9, 10, 11, 12  # binary logarithms of the numbers of terms in a sum of products of
                               # digits
_MOST_DIGITS = 8               # of an operand for one of the other
_SAMPLES = 16                  # rows and columns that tell how soon NumPy's loop on bool ends
_SAMPLED = 4096                # elements of each


class _Digit(NamedTuple):
    """Some bits of an integer: ``((x + carry) << left) >> right`` in the type of the sums."""

    shift: int
    carry: int
    left: int
    right: int


class Scheme(NamedTuple):
    """How integers are multiplied: in ``floats``, ``chunk`` terms a sum. ``digits`` of the first
    operand come with those of the second; ``None`` for elements as they are."""

    floats: str
    chunk: int
    digits: tuple[tuple[_Digit | None, tuple[_Digit | None, ...]], ...]

    @property
    def products(self) -> int:
        return sum(len(others) for _digit, others in self.digits)

    @property
    def words(self) -> str:
        count = self.products
        return f"numpy: exact integers by {self.floats} BLAS, {count} product{'s' * (count > 1)}"


_IN_FLOAT32 = Scheme("float32", 1 << 30, ((None, (None,)),))


# -- functions of NumPy ----------------------------------------------------------------------------
def matmul(function: str | None, x1: np.ndarray, x2: np.ndarray, out: np.ndarray | None = None,
           dtype: np.dtype | None = None) -> Any:
    """``numpy.matmul`` of plain arrays of such a type; ``None`` where NumPy's loop is quicker, has
    another type, or refuses."""
    # ``out`` may overlap operands; ``dtype`` is an integer type that holds both.
    shape1, shape2 = x1.shape, x2.shape
    if not shape1 or not shape2:
        return None
    m, k = shape1[-2:] if len(shape1) > 1 else (1, shape1[0])
    terms, n = shape2[-2:] if len(shape2) > 1 else (shape2[0], 1)
    products = m * n * k if len(shape1) < 3 > len(shape2) else m * n * k * max(prod(shape1[:-2]), prod(shape2[:-2]))
    if terms != k or products < least_products(x1, x2):
        return None
    if dtype is None:
        try:
            dtype = x1.dtype if x1.dtype is x2.dtype and x1.dtype.isnative else np.promote_types(x1.dtype, x2.dtype)
        except TypeError:
            return None
    if dtype.char not in WITHOUT_BLAS:
        return None
    batch, other = shape1[:-2], shape2[:-2]
    if batch != other:
        try:
            batch = np.broadcast_shapes(batch, other)
        except ValueError:
            return None
    shape = batch + (m,) * (len(shape1) > 1) + (n,) * (len(shape2) > 1)
    if not shape or (out is not None and (out.shape != shape or out.dtype != dtype
                                          or not out.flags.writeable)):
        return None
    a = x1 if len(shape1) > 1 else x1[None]
    b = x2 if len(shape2) > 1 else x2[:, None]
    found = _method(a, b, dtype, prod(batch))
    if found is None:
        return None
    run, words = found
    if out is not None and out.flags.forc and not (np.may_share_memory(out, x1)
                                                   or np.may_share_memory(out, x2)):
        result = out
    elif len(batch) < 2 or out is not None:
        result = np.empty(shape, dtype)
    else:                                               # NumPy's order of batch axes
        strides = np.matmul(_shadow(x1, -1), _shadow(x2, max(-2, -x2.ndim))).strides
        order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        result = np.ndarray(shape, dtype, strides=contiguous_strides(shape, dtype.itemsize, order))
    matrices = result[..., None, :] if len(shape1) < 2 else result[..., None] if len(shape2) < 2 \
        else result
    with np.errstate(all="ignore"):
        for piece in _stacks(a, b, matrices):
            run(*piece)
    if dtype.char == "e":
        _warn(a, b, matrices)
    if function is not None:
        tally(function, "calls", words).tick()
    if out is None or result is out:
        return result
    out[...] = result
    return out


def _shadow(x: np.ndarray, sums: int) -> np.ndarray:
    """An operand for NumPy's decision on a result's order, without the axis ``sums``."""
    return shadow(tuple(0 if axis == x.ndim + sums else min(extent, 2)
                        for axis, extent in enumerate(x.shape)), x.strides)


def least_products(*arrays: np.ndarray) -> int:
    """Products of elements that NumPy's loop has done before anything else has begun."""
    for x in arrays:
        if x.dtype.char == "e":
            return LEAST
    return _LEAST_INTEGERS


def product_of(function: str, x1: np.ndarray, x2: np.ndarray,
               out: np.ndarray | None = None) -> np.ndarray:
    """``numpy.matmul``, by BLAS where that is quicker."""
    if x1.dtype.char in WITHOUT_BLAS and (result := matmul(function, x1, x2, out)) is not None:
        return result
    return np.matmul(x1, x2, out=out)


def words_for(x1: np.ndarray, x2: np.ndarray) -> str | None:
    """What would multiply arrays whose elements are not looked at; ``None`` for NumPy."""
    dtype = np.promote_types(x1.dtype, x2.dtype)
    m, k, n = *x1[None].shape[-2:], x2.shape[-1] if x2.ndim > 1 else 1
    if dtype.char not in WITHOUT_BLAS or prod(x1.shape[:-2]) * m * k * n < _LEAST_INTEGERS:
        return None
    if dtype.char in "e?":
        return f"{dtype} by float32 BLAS"
    bits = 8 * dtype.itemsize
    most_a, most_b = (1 if x.dtype.kind == "b"
                      else 1 << min(8 * x.itemsize - (x.dtype.kind == "i"), bits - 1)
                      for x in (x1, x2))
    return _scheme(most_a, most_b, bits, m, n, k).words.removeprefix("numpy: ") + " or fewer"


# -- what is quickest ------------------------------------------------------------------------------
def _method(a: np.ndarray, b: np.ndarray, dtype: np.dtype, count: int) -> Any:
    """What multiplies stacks of matrices, and its name; ``None`` if NumPy is quicker."""
    m, k, n = *a.shape[-2:], b.shape[-1]
    kind = dtype.char
    far = k >= _FAR[0] and max(abs(a.strides[-1]), abs(b.strides[-2])) >= _FAR[1]
    loop = count * m * n * k * (_LOOP_OF_FLOAT16 if kind == "e" else _LOOP_FAR if far
                                else _LOOP) / _SURE
    elements = a.size + b.size
    converted = elements * (0.9 if kind == "e" else 0.2 + 0.1 * dtype.itemsize)
    least = _CALL + count * _MATRIX + converted + count * m * n * (k * _GEMM["float32"] + 0.5)
    if loop < least or (kind == "?" and loop * _scanned(a, b) < least):
        return None
    if kind in "e?":
        return partial(_multiply, _IN_FLOAT32), f"numpy: {dtype} by float32 BLAS"
    bits = 8 * dtype.itemsize
    signed = np.dtype(f"i{dtype.itemsize}")
    scheme = _scheme(_magnitude(a, dtype), _magnitude(b, dtype), bits, m, n, min(k, 1 << 30))
    converted = elements * (_DIGIT if scheme.products > 1 else _TO_FLOAT)
    once = converted + count * m * n * (k * _GEMM[scheme.floats] + _FROM_FLOAT)
    if loop < scheme.products * once + _CALL + count * _MATRIX:
        return None
    return lambda a, b, c: _multiply(scheme, _as_signed(a, dtype), _as_signed(b, dtype),
                                     c.view(signed)), scheme.words


def _scanned(a: np.ndarray, b: np.ndarray) -> float:
    """The part of a row that NumPy's bool loop looks at before it finds two that are both true."""
    a, b = a[(0,) * (a.ndim - 2)], b[(0,) * (b.ndim - 2)]
    k = a.shape[1]
    meetings = np.count_nonzero(a[len(a) // 2]) * np.count_nonzero(b[:, b.shape[1] // 2]) / k
    if meetings > _SAMPLES:
        return 1 / meetings
    k = min(k, _SAMPLED)
    rows, columns = (np.arange(min(n, _SAMPLES)) * n // min(n, _SAMPLES)
                     for n in (a.shape[0], b.shape[1]))
    both = a[rows, None, :k].astype(bool) & b[:k, columns].T.astype(bool)
    return float(np.where(both.any(-1), both.argmax(-1) + 1, a.shape[1]).mean()) / a.shape[1]


def _as_signed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.view(x.dtype.str.replace("u", "i")) if x.dtype.kind == "u" and x.itemsize == dtype.itemsize else x


def _magnitude(x: np.ndarray, dtype: np.dtype) -> int:
    if x.dtype.kind == "b" or not x.size:
        return 1
    x = _as_signed(x, dtype)
    return max(-int(x.min()), int(x.max()), 1)


@lru_cache(maxsize=4096)
def _scheme(most_a: int, most_b: int, bits: int, m: int, n: int, k: int) -> Scheme:
    """The quickest scheme for operands of these absolute values."""
    def cost(scheme: Scheme) -> float:
        converted = _DIGIT if scheme.products > 1 else _TO_FLOAT
        return scheme.products * (_GEMM[scheme.floats] + _FROM_FLOAT / min(scheme.chunk, k)
                                  + converted * (1 / m + 1 / n))

    whole = ((None, (None,)),)
    schemes = [Scheme(floats, chunk, whole) for floats, exact in _BITS.items()
               if (chunk := (1 << exact) // (most_a * most_b)) > 31]
    wide = [(most - 1).bit_length() + 1 for most in (most_a, most_b)]
    if not schemes or schemes[-1].chunk < min(k, 1 << 10):
        for log in {min((k - 1).bit_length(), chunk) for chunk in _CHUNKS}:
            digits = _digits(min(wide[0], bits), min(wide[1], bits), bits,
                             _BITS["float64"] + 2 - log)
            schemes.append(Scheme("float64", 1 << log, digits))
    return min(schemes, key=cost)


@cache
def _digits(wide_a: int, wide_b: int, bits: int,
            together: int) -> tuple[tuple[_Digit, tuple[_Digit, ...]], ...]:
    """The fewest products of digits: digits of A times all bits of B that are not shifted out,
    with at most ``together`` bits in a pair."""
    @cache
    def best(shift: int) -> tuple[int, int, int]:
        """From a shift on: products, digits, and the bits of the next one."""
        if shift == wide_a:
            return 0, 0, 0
        left, found = min(wide_b, bits - shift), []
        for count in range(1, _MOST_DIGITS):
            # the widest of which so many are needed
            if (own := min(wide_a - shift, together - -(-left // count))) > 0:
                products, digits, _own = best(shift + own)
                found.append((products + count, digits + 1, own))
        return min(found)

    result, shift, widths = [], 0, list[int]()
    while shift < wide_a:
        own = best(shift)[2]
        left = min(wide_b, bits - shift)
        count = -(-left // (together - own))
        of_b = [left * (i + 1) // count - left * i // count for i in range(count)]
        widths.append(own)
        others = tuple(_digit(of_b[:i + 1], left, bits, left < wide_b) for i in range(count))
        result.append((_digit(widths, wide_a, bits), others))
        shift += own
    return tuple(result)


def _digit(widths: list[int], wide: int, bits: int, cut: bool = False) -> _Digit:
    """The last of digits of these widths; the highest is all that remains, unless ``cut``."""
    *lower, own = widths
    shift = sum(lower)
    carry = sum(1 << (sum(widths[:i]) + width - 1) for i, width in enumerate(lower))
    if shift + own == wide and not cut and wide < bits:
        return _Digit(shift, carry, 0, shift)
    return _Digit(shift, carry, bits - shift - own, bits - own)


# -- by BLAS ---------------------------------------------------------------------------------------
_Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]
_Terms = Iterator[tuple[np.ndarray, np.ndarray]]


def _stacks(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Iterator[_Matrices]:
    """Parts of stacks of matrices that scratch memory has room for, or single matrices."""
    batch = c.shape[:-2]
    if not batch or prod(batch) * max(a.shape[-2] * a.shape[-1], b.shape[-2] * b.shape[-1],
                                      c.shape[-2] * c.shape[-1]) <= _BLOCK:
        yield a, b, c
        return
    axis = batch.index(max(batch))
    n = batch[axis]
    for part in (slice(0, n // 2), slice(n // 2, n)) if n > 1 else (0,):
        yield from _stacks(*(_part(x, axis - c.ndim, part) for x in (a, b, c)))


def _part(x: np.ndarray, axis: int, part: slice | int) -> np.ndarray:
    """Some of the matrices of a stack; all if it lacks the axis or is broadcast along it."""
    if -axis > x.ndim:
        return x
    if isinstance(part, slice) and x.shape[axis] == 1:
        return x
    return x[(slice(None),) * (axis + x.ndim) + (part,)]


def _blocks(m: int, n: int, k: int, chunk: int) -> tuple[int, int, int]:
    narrow = min(m, n) < _NARROW
    room = _NARROW_BLOCK if narrow else _BLOCK
    depth = min(k, chunk, 256 if narrow else 2048)
    columns = min(n, max(room // max(depth, min(m, 1024)), 1))
    return min(m, max(room // max(depth, columns), 1)), columns, depth


def _parts(a: np.ndarray, b: np.ndarray, c: np.ndarray,
           chunk: int) -> Iterator[tuple[np.ndarray, _Terms]]:
    """Blocks of C, each with the blocks of A and B that it is the sum of products of."""
    m, k, n = *a.shape[-2:], b.shape[-1]
    rows, columns, depth = _blocks(m, n, k, chunk)
    for j in range(0, n, columns):
        for i in range(0, m, rows):
            first, second = a[..., i:i + rows, :], b[..., j:j + columns]
            terms = ((first[..., s:s + depth], second[..., s:s + depth, :])
                     for s in range(0, k, depth))
            yield c[..., i:i + rows, j:j + columns], terms


def _multiply(scheme: Scheme, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """C = A B in a signed type, which wraps, or of float16 and bool in float32, rounded once."""
    floats, scratch = np.dtype(scheme.floats), Scratch.taken()
    whole = None if c.dtype.kind in "bf" else np.int32 if floats == FLOAT32 else np.int64
    for target, terms in _parts(a, b, c, scheme.chunk):
        total: Any = None
        for first, second in terms:
            for digit, others in scheme.digits:
                left = _as_float("a", first, digit, floats, c.dtype, scratch)
                for other in others:
                    right = _as_float("b", second, other, floats, c.dtype, scratch)
                    sums = _product(left, right, scratch.array(
                        "sums" if total is None else "product", target.shape, floats))
                    if whole is not None:
                        floating, sums = sums, scratch.array("whole", target.shape, whole)
                        np.copyto(sums, floating, casting="unsafe")
                        if digit is not None and other is not None and (shift := digit.shift
                                                                        + other.shift):
                            np.left_shift(sums, shift, out=sums)
                    if total is not None:
                        np.add(total, sums.astype(total.dtype, copy=False), out=total)
                    elif whole is None:
                        total = sums
                    else:
                        total = target
                        np.copyto(target, sums, casting="unsafe")
        if c.dtype.kind == "b":
            np.not_equal(total, 0, out=target)              # in half the time of a cast
        elif whole is None:
            np.copyto(target, total, casting="unsafe")
    scratch.give_back()


def _as_float(name: str, x: np.ndarray, digit: _Digit | None, floats: np.dtype, dtype: np.dtype,
              scratch: Scratch) -> np.ndarray:
    """A digit of integers, or integers, in a floating-point type."""
    result = scratch.array(name, x.shape, floats, x)
    if digit is not None and (digit.left or digit.right):
        _shift, carry, left, right = digit
        part = scratch.array("part", x.shape, dtype, x)
        np.copyto(part, x)
        if carry:
            np.add(part, dtype.type(carry), out=part)
        if left:
            np.left_shift(part, left, out=part)
        x = np.right_shift(part, right, out=part)
    np.copyto(result, x, casting="unsafe")
    return result


def _product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
    with WHOLE.lock:
        return np.matmul(left, right, out=out)


def _warn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Warn of results that are not finite, or raise, as ``numpy.matmul`` does."""
    if np.isfinite(c).all():
        return
    for strange, left, right in ((np.isinf, 6e4, 6e4), (np.isnan, np.inf, 0)):
        if (strange(c) & ~(strange(a).any(-1)[..., None] | strange(b).any(-2)[..., None, :])).any():
            np.matmul(np.full((1, 1), left, np.float16), np.full((1, 1), right, np.float16))
