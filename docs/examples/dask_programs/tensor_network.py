"""The norm of a quantum state that is a chain of tensors (a matrix product state), on Dask.

    python tensor_network.py [SITES [BOND [CHUNK [DEVICES]]]]

Each tensor has two bonds of extent BOND and an axis of extent 2. DEVICES names GPUs, like 0 or 0,1;
without, two processes of this host compute.
"""

import sys
from time import perf_counter

import dask.array as da
import numpy as np
from workers import held, on_host, workers

import cuteblas.dask  # noqa: F401 - the products of Dask's arrays are its from here on


def tensor(block: np.ndarray, site=0, block_info=None):
    """A part of a tensor, the same for the same place, whoever makes it."""
    rng = np.random.default_rng((site,
                                 *(start for start, _stop in block_info[0]["array-location"])))
    return rng.standard_normal(block.shape, dtype=np.float32)


def squared_norm(sites):
    """<psi|psi> of the chain that begins and ends in the first index of its outer bonds, from left
    to right."""
    first, *others = sites
    left = da.tensordot(first[0], first[0], axes=((0,), (0,)))
    for site in others:
        # a bond of one chain, two axes of the other
        half = da.tensordot(left, site, axes=((1,), (0,)))
        left = da.tensordot(site, half, axes=((0, 1), (0, 1)))
    return left[0, 0]


def main(sites=6, bond=4096, chunk=2048, devices=""):
    with workers(devices) as place:
        shape, chunks = (bond, 2, bond), (chunk, 2, chunk)
        nothing = da.zeros(shape, chunks=chunks, dtype="float32")
        tensors = (nothing.map_blocks(tensor, site=i, dtype="float32") for i in range(sites))
        chain = held(*(place(x) / np.float32((2 * bond) ** 0.5) for x in tensors))
        start = perf_counter()
        found = float(on_host(squared_norm(chain).compute()))
        seconds = perf_counter() - start
    print(f"norm {found ** 0.5:.6g} of a chain of {sites} tensors with bonds of {bond}")
    print(f"{seconds:.2f} s")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
