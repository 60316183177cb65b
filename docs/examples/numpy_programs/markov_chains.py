"""Distributions of a Markov chain after many steps, by powers of its matrix, in plain NumPy:
nothing here knows of cuteblas.

    python markov_chains.py [STATES [DOUBLINGS [STARTS]]]
    python -m cuteblas --numpy --compare markov_chains.py
"""

import sys
from time import perf_counter

import numpy as np


def main(states=1000, doublings=10, starts=200):
    rng = np.random.default_rng(0)
    # which mostly stays where it is
    chain = rng.random((states, states)) ** 8 + states * np.eye(states)
    chain /= chain.sum(axis=1, keepdims=True)
    first = np.eye(states)[rng.integers(0, states, starts)]
    start = perf_counter()
    distances = []
    for _ in range(doublings):
        chain = chain @ chain
        chain /= chain.sum(axis=1, keepdims=True)
        after = first @ chain
        distances.append(np.abs(after - after.mean(axis=0)).sum(axis=1).mean())
    seconds = perf_counter() - start
    print(f"checksum {' '.join(f'{x:.6g}' for x in distances[::3])}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
