"""Operands that are difficult in different ways, for products in float32 and complex64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["CASES", "Case"]

Generator = Callable[[np.random.Generator, int, int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """One pair of operands.

    Attributes
    ----------
    name : str
        What is difficult about it.
    make : callable
        From a random generator and extents m, n, k to A (m, k) and B (k, n), float64.
    exact : bool
        Whether the product is exact in float32.
    parts : bool
        Whether complex elements have two such real ones as parts; else they have the magnitude of
        one, and any argument.
    """

    name: str
    make: Generator
    exact: bool = False
    parts: bool = False

    def of_type(self, element: str, rng: np.random.Generator, m: int, n: int,
                k: int) -> tuple[np.ndarray, np.ndarray]:
        """A and B of a type, real or complex; arguments are the same in both halves of each sum."""
        a, b = self.make(rng, m, n, k)
        if element.startswith("complex") and self.parts:
            a, b = (x + 1j * y for x, y in zip((a, b), self.make(rng, m, n, k), strict=True))
        elif element.startswith("complex"):
            half = np.arange(k) % max(1, k // 2)
            a = a * np.exp(2j * np.pi * rng.random((m, k)))[:, half]
            b = b * np.exp(2j * np.pi * rng.random((k, n)))[half]
        return a.astype(element), b.astype(element)


def _uniform(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((m, k)), rng.random((k, n))


def _normal(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def _spread(phi: float) -> Generator:
    """(u - 1/2) exp(phi g): the usual test of emulated products (Ozaki and others)."""
    def make(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = ((rng.random(s) - 0.5) * np.exp(phi * rng.standard_normal(s))
                for s in ((m, k), (k, n)))
        return a, b
    return make


def _graded(bits: int) -> Generator:
    """A D and D^-1 B with a diagonal D that ranges over 2^bits: every product of elements has the
    same magnitude."""
    def make(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        d = np.exp2(np.linspace(-bits / 2, bits / 2, k))
        rng.shuffle(d)
        return rng.standard_normal((m, k)) * d, rng.standard_normal((k, n)) / d[:, None]
    return make


def _scaled_rows(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = _normal(rng, m, n, k)
    return a * np.exp2(rng.integers(-50, 50, (m, 1))), b * np.exp2(rng.integers(-50, 50, (1, n)))


def _cancelling(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The second half of each sum nearly undoes the first."""
    a, b = _normal(rng, m, n, k)
    half = k // 2
    a[:, half:2 * half], b[half:2 * half] = a[:, :half], -b[:half] * (1 + 2.0**-12 * rng.standard_normal((half, n)))
    return a, b


def _sparse(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of A is zero, as after a ReLU."""
    a, b = _normal(rng, m, n, k)
    return np.maximum(a, 0), b


def _outliers(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """An element of every row is 2^20 times larger than the others."""
    a, b = _normal(rng, m, n, k)
    a[np.arange(m), rng.integers(0, k, m)] *= 2.0**20
    return a, b


def _along_k(first: float, last: float) -> Generator:
    """Of one sign, from 2^first to 2^last along K: sums that grow to the end, or that get nothing
    but rounding after the start."""
    def make(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.random((m, k)) * np.exp2(np.linspace(first, last, k)), rng.random((k, n))
    return make


def _large_first(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Of one sign, the first product 2^12 times larger than the others, which are added to it one
    by one."""
    a, b = _uniform(rng, m, n, k)
    a[:, :1] *= 2.0**12
    return a, b


def _blocks_of_zeros(
    rng: np.random.Generator, m: int, n: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Two of three blocks of 64 along K are zero, and half of the rows; rows range over 2^20."""
    a, b = _normal(rng, m, n, k)
    return a * (np.arange(k) // 64 % 3 == 0) * np.exp2(rng.integers(-10, 11, (m, 1))) * (
        rng.random((m, 1)) < 0.5
    ), b


def _integers(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """No sum reaches 2^24, of real or imaginary parts neither."""
    most = max(1, int(np.sqrt(2.0**23 / k)))
    return (rng.integers(-most, most + 1, s).astype(float) for s in ((m, k), (k, n)))  # type: ignore[return-value]


def _cases() -> Iterator[Case]:
    yield Case("uniform [0, 1]", _uniform, parts=True)
    yield Case("normal", _normal)
    for phi in (0.5, 1.0, 2.0, 4.0):
        yield Case(f"(u - 1/2) exp({phi:g} normal)", _spread(phi))
    for bits in (8, 16, 24, 32, 48, 64, 100):
        yield Case(f"A D, D^-1 B over 2^{bits}", _graded(bits))
    yield Case("rows and columns over 2^100", _scaled_rows)
    yield Case("heavy cancellation", _cancelling)
    yield Case("half zeros", _sparse)
    yield Case("outliers of 2^20", _outliers)
    yield Case("growing along k", _along_k(-12, 12))
    yield Case("shrinking along k", _along_k(12, -12))
    yield Case("the first is 2^12 larger", _large_first)
    yield Case("rows over 2^20, blocks of zeros", _blocks_of_zeros)
    yield Case("small integers", _integers, exact=True, parts=True)


CASES = tuple(_cases())
"""Every pair of operands."""
