"""Products of Dask arrays with cuteblas: ``import cuteblas.dask``, anywhere before the first
product.

>>> import dask.array as da
>>> import cuteblas.dask
>>> x = da.ones((6, 4), chunks=(2, 4))
>>> (x.T @ x).sum().compute()
np.float64(96.0)

It is the extra ``dask`` (``pip install 'cuteblas[dask]'``), and ``import cuteblas`` never imports
it. Chunks are NumPy arrays, CuPy arrays, or arrays of :class:`cuteblas.ndarray`; Dask itself
multiplies all others. Two settings of Dask's configuration apply to the products that are built
under them, wherever these are computed: ``cuteblas.precision``, as ``precision=`` in
:func:`cuteblas.matmul`, and ``cuteblas.backend``, as in :func:`cuteblas.backend`.
"""

from __future__ import annotations

from .clusters import GPUCluster
from .products import einsum, matmul, tensordot
from .registration import install, uninstall

__all__ = ["GPUCluster", "einsum", "install", "matmul", "tensordot", "uninstall"]
__dir__ = __all__.copy

install()
