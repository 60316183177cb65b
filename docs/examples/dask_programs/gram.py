"""The Gram matrix of an array on disk that is larger than all workers' memory, on Dask.

    python gram.py FOLDER [ROWS [COLUMNS [CHUNK [MEMORY [DEVICES]]]]]

The array is a stack of .npy files of CHUNK rows each in FOLDER, which are written if they are not
there and read by Dask's own reader as memory-mapped files: 6 GiB by default, ten times the memory
of two workers. MEMORY is what each worker may use, like 300MiB. DEVICES names GPUs, like 0 or 0,1;
without, two processes of this host compute.
"""

import sys
from pathlib import Path
from time import perf_counter

import dask.array as da
import numpy as np
from dask.utils import parse_bytes
from workers import on_host, samples, workers

import cuteblas.dask  # noqa: F401 - the products of Dask's arrays are its from here on


def main(folder, rows=6_291_456, columns=256, chunk=16384, memory="300MiB", devices=""):
    with workers(devices, memory) as place:
        if not (Path(folder) / "info").exists():
            x = da.zeros((rows, columns), chunks=(chunk, columns),
                         dtype="float32").map_blocks(samples, dtype="float32")
            da.to_npy_stack(folder, x, axis=0)
        x = place(da.from_npy_stack(folder, mmap_mode="r"))
        start = perf_counter()
        gram = on_host((x.T @ x).compute())
        seconds = perf_counter() - start
    print(
        f"Gram matrix of {x.shape[0]} x {x.shape[1]} numbers: trace {np.trace(gram):.8g}, symmetric: {(gram == gram.T).all()}"
    )
    if devices != "here":
        count = len(devices.split(",")) if devices else 2
        print(
            f"{x.nbytes / 2**20:.0f} MiB, {x.nbytes / count / parse_bytes(memory):.1f} times the memory of {count} workers"
        )
    print(f"{seconds:.2f} s")
    return gram


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, *numbers = sys.argv[1:]
    main(folder, *map(int, numbers[:3]), *numbers[3:])
