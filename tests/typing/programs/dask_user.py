"""A user of Dask: products of arrays in chunks run on the kernels."""

import importlib.util

import numpy as np


def gram(rows: int, columns: int) -> float:
    import dask.array as da

    import cuteblas.dask

    cuteblas.dask.install()
    try:
        x = da.ones((rows, columns), chunks=(rows // 2, columns), dtype=np.float32)
        return float((x.T @ x).sum().compute())
    finally:
        cuteblas.dask.uninstall()


if __name__ == "__main__":
    if importlib.util.find_spec("dask") is not None:
        assert gram(100, 4) == 1600.0
