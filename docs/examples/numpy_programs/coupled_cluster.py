"""Contractions like those of coupled-cluster theory, by einsum and tensordot, in plain NumPy:
nothing here knows of cuteblas.

    python coupled_cluster.py [OCCUPIED [VIRTUAL [STEPS]]]
    python -m cuteblas --numpy --compare coupled_cluster.py
"""

import sys
from time import perf_counter

import numpy as np


def main(occupied=10, virtual=40, steps=3):
    rng = np.random.default_rng(0)
    o, v = occupied, virtual
    ladder, rings, holes = (rng.standard_normal(shape) / (o * v)
                            for shape in ((v, v, v, v), (o, v, v, o), (o, o, o, o)))
    gaps = 4 + rng.random((o, o, v, v))
    driving = rng.standard_normal((o, o, v, v)) / (o * v)
    start = perf_counter()
    t = driving / gaps
    for _ in range(steps):
        residual = driving + np.tensordot(t, ladder, ((2, 3), (2, 3)))
        residual += np.einsum("klij,klab->ijab", holes, t, optimize=True)
        ring = np.einsum("kbcj,ikac->ijab", rings, t, optimize=True)
        residual += ring + ring.transpose(1, 0, 3, 2)
        t = residual / gaps
    energy = np.einsum("ijab,ijab->", driving, t)
    seconds = perf_counter() - start
    print(f"checksum {energy:.8g} {np.abs(t).sum():.8g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
