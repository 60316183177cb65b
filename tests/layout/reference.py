"""Layouts as plain functions: what the algebra's results are compared with, written without it."""

import itertools

from cuteblas.layout import Layout, LayoutError


def layout(shape, stride):
    """A Layout from flat tuples; a single mode is an integer, not a tuple."""
    return Layout(*((shape, stride) if len(shape) > 1 else (shape[0], stride[0])))


def at(shape, stride, index):
    """The value of a flat layout at a 1-D index; the last mode is not reduced."""
    total = 0
    for s, d in zip(shape[:-1], stride[:-1], strict=True):
        total += index % s * d
        index //= s
    return total + index * stride[-1]


def values(x):
    """All values of a layout in colexicographic order."""
    n = 1
    for s in x.flat_shape:
        n *= s
    return [at(x.flat_shape, x.flat_stride, i) for i in range(n)]


def coordinates(shape):
    """All flat coordinates."""
    return itertools.product(*(range(s) for s in shape))


def factorizations(n):
    """All ways to write ``n`` as an ordered product of factors above 1."""
    if n == 1:
        yield ()
    for p in range(2, n + 1):
        if n % p == 0:
            for rest in factorizations(n // p):
                yield (p, *rest)


def is_layout(sequence):
    """Whether some layout has exactly these values, by trying every shape."""
    for shape in factorizations(len(sequence)):
        stride, step = [], 1
        for p in shape:
            stride.append(sequence[step])
            step *= p
        if all(v == at((*shape, 1), (*stride, 0), i) for i, v in enumerate(sequence)):
            return True
    return False


def composed(a, b):
    """The values of ``c -> a(b(c))`` for flat ``a`` and ``b`` given as (shape, stride), by flat
    coordinate of ``b``."""
    return {c: at(*a, sum(x * d for x, d in zip(c, b[1], strict=True))) for c in coordinates(b[0])}


def has_layout(function, shape):
    """Whether a function of flat coordinates is a layout whose shape refines ``shape``."""
    rank = len(shape)
    alone = [[function[tuple(x if j == i else 0 for j in range(rank))] for x in range(shape[i])]
             for i in range(rank)]
    return (all(v == sum(mode[x] for mode, x in zip(alone, c, strict=True))
                for c, v in function.items()) and all(map(is_layout, alone)))


def result_or_refusal(f, *args):
    """What ``f`` returns, or the LayoutError that it raises."""
    try:
        return f(*args)
    except LayoutError as refusal:
        return refusal
