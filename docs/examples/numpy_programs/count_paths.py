"""Paths of a directed graph, counted by powers of its adjacency matrix of integers, in plain NumPy:
nothing here knows of cuteblas.

    python count_paths.py [NODES [LENGTH [DEGREE]]]
    python -m cuteblas --numpy --compare count_paths.py
"""

import sys
from time import perf_counter

import numpy as np


def main(nodes=256, length=10, degree=6):
    rng = np.random.default_rng(0)
    links = np.zeros((nodes, nodes), np.int64)
    links[np.arange(nodes)[:, None], rng.integers(0, nodes, (nodes, degree))] = 1
    start = perf_counter()
    paths = np.linalg.matrix_power(links, length)  # entry i, j: the number of paths of that length
                                                   # from i to j
    cycles = np.einsum("ij,ji->", paths, links)    # closed ones that are longer by one
    within = np.linalg.multi_dot([np.ones(nodes, np.int64), links, paths, np.ones(nodes, np.int64)])
    seconds = perf_counter() - start
    print(
        f"checksum {paths.sum()} {paths.max()} {np.bitwise_xor.reduce(paths, axis=None)} {cycles} {within}"
    )
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
