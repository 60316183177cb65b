"""Random problems: products and permutations of all kinds, drawn by a seed.

``cuteblas/cli/problems.txt`` has the names of :func:`random_samples`, a line for each: what
``python -m cuteblas calibrate`` measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, prod
from random import Random

from cuteblas._dtypes import dtype
from cuteblas.cli.problems import Permutation, Sample, copied, product

__all__ = ["large_products", "random_copies", "random_permutations", "random_products",
           "random_samples"]

_DTYPES = {"float32": 6, "float16": 4, "bfloat16": 2, "float64": 4, "complex64": 4, "complex128": 2,
           "int8": 1, "int16": 1, "int32": 2, "int64": 2, "uint8": 1, "bool": 1}
_KINDS = ("square", "square", "thin", "thin", "few", "few", "batched", "batched", "tiny", "tiny",
          "deep", "any", "any", "outer")
_MOST_BYTES = 1 << 27                # of an operand
_MOST_SECONDS = 2e-3
_LARGE = {"float32": 4, "float32 ieee": 2, "float32 tf32": 2, "float16": 4, "bfloat16": 2,
          "float64": 4, "complex64": 2, "complex128": 3}
_LARGE_BYTES, _LARGE_SECONDS = 1 << 28, 2e-2
# Real multiply-adds in a second, roughly: no product may take long.
_RATES = {"float16": 3e14, "bfloat16": 3e14, "float32": 4e13, "complex64": 4e13, "float64": 2e13,
          "complex128": 2e13, "bool": 2e12}
_INTEGERS = 5e12
_BYTES, _MODES, _LONGEST = (1 << 20, 1 << 28), (2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 14, 20, 26), 300
_SLICED, _REVERSED, _MOST_BEYOND = 0.07, 0.14, 7


def random_samples(
    products: int = 300, large: int = 100, copies: int = 200, seed: int = 0
) -> list[Sample]:
    """Problems of all kinds in turns, so that whenever time runs out there are some of each."""
    kinds = (
        list(random_products(products, seed)),
        list(large_products(large, seed)),
        list(random_copies(copies, seed)),
    )
    places = [((i + 0.5) / len(group), sample) for group in kinds for i, sample in enumerate(group)]
    return [sample for _place, sample in sorted(places, key=lambda each: each[0])]


def random_products(count: int, seed: int) -> Iterator[Sample]:
    """Products of all types: square, thin, of a vector or a few, batches, tiny ones too, long sums
    and short ones; operands and results in every order.
    """
    rng = Random(seed)
    while count > 0:
        name = rng.choices(list(_DTYPES), list(_DTYPES.values()))[0]
        kind = rng.choice(_KINDS)
        m, n, k, batch = _extents(rng, kind)
        orders = "".join(rng.choice("NNT") for _ in range(3))
        if _fits(name, m, n, k, batch, _MOST_BYTES, _MOST_SECONDS):
            yield product(name, m, n, k, batch, orders)
            count -= 1


def large_products(count: int, seed: int) -> Iterator[Sample]:
    """Products that fill a GPU: squares and rectangles of the floating types from 512 on, float32
    also by the native and by one rounded product.
    """
    rng = Random(seed)
    while count > 0:
        name, _, precision = rng.choices(list(_LARGE), list(_LARGE.values()))[0].partition(" ")
        step = rng.choice((1, 8, 64, 256))

        def extent(step: int = step) -> int:
            return round(exp(rng.uniform(log(512), log(8192)))) // step * step

        m, n, k = (extent(),) * 3 if rng.random() < 0.7 else (extent(), extent(), extent())
        orders = rng.choice("NT") + rng.choice("NT") + "N"
        if _fits(name, m, n, k, (), _LARGE_BYTES, _LARGE_SECONDS):
            yield product(name, m, n, k, (), orders, precision or "auto")
            count -= 1


def _fits(name: str, m: int, n: int, k: int, batch: tuple[int, ...], most_bytes: int,
          most_seconds: float) -> bool:
    """Whether operands are small and the product is short enough."""
    work = m * n * k * prod(batch) * (4 if name.startswith("complex") else 1)
    nbytes = max(m * k, n * k, m * n) * prod(batch) * dtype(name).bytes
    return work / _RATES.get(name, _INTEGERS) <= most_seconds and nbytes <= most_bytes


def _extents(rng: Random, kind: str) -> tuple[int, int, int, tuple[int, ...]]:
    """M, N, K and the batch."""
    step = rng.choice((1, 1, 4, 16, 64))

    def extent(least: int, most: int) -> int:
        drawn = round(exp(rng.uniform(log(least), log(most))))
        return max(1, drawn // step * step) if drawn >= step else drawn

    if kind == "square":
        return *(extent(64, 6144),) * 3, ()
    if kind in ("thin", "few"):
        m, n, k = extent(512, 1 << 17), rng.randint(1, 128 if kind == "thin"
                                                    else 8), extent(64, 4096)
        m, k = (k, m) if kind == "few" and rng.random() < 0.4 else (m, k)
        return *((m, n, k) if rng.random() < 0.6 else (n, m, k)), ()
    if kind == "batched":
        return extent(8, 512), extent(8, 512), extent(8, 512), (rng.choice((2, 3, 8, 16, 50, 200)),)
    if kind == "tiny":
        extents = (extent(2, 64),) * 3 if rng.random() < 0.5 else (extent(1, 64), extent(1, 64),
                                                                   extent(1, 64))
        return *extents, (extent(64, 1 << 17),)
    if kind == "deep":
        return extent(1, 256), extent(1, 256), extent(4096, 1 << 18), ()
    if kind == "outer":
        return extent(64, 8192), extent(64, 8192), rng.randint(1, 32), ()
    return extent(32, 8192), extent(32, 8192), extent(32, 8192), ()


_ITEMS = {"int8": 1, "float16": 2, "float32": 4, "float64": 8, "complex128": 16}


def random_copies(count: int, seed: int) -> Iterator[Sample]:
    """Permutations of axes that are written out in C order."""
    return (copied(*drawn) for drawn in random_permutations(count, seed, _ITEMS))


def random_permutations(count: int, seed: int,
                        sizes: dict[str, int]) -> list[tuple[str, Permutation]]:
    """Random permutations of random types, which are given with the bytes of an element: 1 to 256
    MiB, 2 to 26 modes of 1 to 300 elements (of two, as many as there have to be), some of slices,
    some reversed.
    """
    rng = Random(seed)
    found: list[tuple[str, Permutation]] = []
    while len(found) < count:
        dtype = rng.choice(sorted(sizes))
        elements = exp(rng.uniform(*map(log, _BYTES))) / sizes[dtype]
        modes = rng.choice(_MODES)
        if modes >= 14:
            extents = [2] * min(modes, int(log(elements, 2)))
        else:
            weights = [rng.random() ** 1.5 + 0.05 for _ in range(modes)]
            most = _LONGEST if modes > 2 else int(elements)
            extents = [max(1, min(most, round(elements ** (weight / sum(weights)))))
                       for weight in weights]
            while prod(extents) < elements / 1.5 and (short := [n
                                                                for n, extent in enumerate(extents)
                                                                if extent < most]):
                n = rng.choice(short)
                extents[n] = min(most, max(extents[n] + 1, round(extents[n] * 1.3)))
        axes = rng.sample(range(len(extents)), len(extents))
        kind = rng.random()
        if prod(extents) * sizes[dtype] >= _BYTES[0] // 2:
            beyond = rng.randint(1, _MOST_BEYOND) if kind < _SLICED else 0
            backwards = rng.randrange(len(extents)) if _SLICED <= kind < _REVERSED else None
            found.append((dtype, Permutation(tuple(extents), tuple(axes), False, beyond,
                                             backwards)))
    return found
