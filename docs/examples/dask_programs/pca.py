"""Principal components of many samples by the covariance matrix, on Dask.

    python pca.py [ROWS [COLUMNS [COMPONENTS [DEVICES]]]]

200,000 samples of 4,000 features by default. DEVICES names GPUs, like 0 or 0,1; without, two
processes of this host compute.
"""

import sys
from time import perf_counter

import dask.array as da
import numpy as np
from workers import held, on_host, samples, workers

import cuteblas.dask  # noqa: F401 - the products of Dask's arrays are its from here on


def principal_components(x, components):
    """Directions of largest variance, as columns, and the variances."""
    centred = x - x.mean(axis=0)
    variances, directions = np.linalg.eigh(on_host((centred.T @ centred).compute()) / (len(x) - 1))
    return directions[:, :-components - 1:-1], variances[:-components - 1:-1]


def main(rows=200_000, columns=4000, components=32, devices=""):
    with workers(devices) as place:
        empty = da.zeros((rows, columns), chunks=(max(1, rows // 50), columns), dtype="float32")
        x = held(place(empty.map_blocks(samples, dtype="float32")))
        start = perf_counter()
        directions, variances = principal_components(x, components)
        seconds = perf_counter() - start
        scores = on_host((x[:1000] @ place(da.from_array(directions.astype("float32")))).compute())
    error = float(np.abs(directions.T @ directions - np.eye(components)).max())
    print(
        f"{components} components of {rows} samples: variances {variances[0]:.6g} to {variances[-1]:.6g}"
    )
    print(f"orthogonal to {error:.1e}")
    print(f"{seconds:.2f} s")
    return directions, variances, scores


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
