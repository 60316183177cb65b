"""Norm and correlation of a chain of tensors (a matrix product state) by einsum, in plain NumPy:
nothing here knows of cuteblas.

    python tensor_network.py [SITES [BOND [STATES]]]
    python -m cuteblas --numpy --compare tensor_network.py
"""

import sys
from itertools import pairwise
from time import perf_counter

import numpy as np


def chain(sites, bond, states, rng):
    """Tensors (left bond, state, right bond)."""
    widths = [1, *[bond] * (sites - 1), 1]
    return [(rng.standard_normal((m, states, n)) + 1j
             * rng.standard_normal((m, states, n))) / (2 * states * max(m, n)) ** 0.5
            for m, n in pairwise(widths)]


def expectation(tensors, operators):
    """The product of one operator for each site, between the state and itself; ``None`` is the
    identity."""
    left = np.ones((1, 1), complex)
    for tensor, operator in zip(tensors, operators, strict=True):
        if operator is None:
            left = np.einsum("ab,asc,bsd->cd", left, tensor.conj(), tensor)
        else:
            left = np.einsum("ab,asc,st,btd->cd", left, tensor.conj(), operator, tensor)
    return left[0, 0]


def main(sites=12, bond=24, states=2):
    tensors = chain(sites, bond, states, np.random.default_rng(0))
    spin = np.diag(np.linspace(1, -1, states)).astype(complex)
    start = perf_counter()
    norm = expectation(tensors, [None] * sites)
    pair = expectation(tensors, [spin if site in (sites // 3, 2 * sites // 3) else None
                                 for site in range(sites)])
    seconds = perf_counter() - start
    print(f"checksum {norm.real:.8g} {(pair / norm).real:.8g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
