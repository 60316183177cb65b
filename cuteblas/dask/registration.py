"""Choose the products of Dask arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array import backends, einsumfuncs, routines
from dask.array.core import Array
from dask.array.dispatch import concatenate_lookup, einsum_lookup, tensordot_lookup

from ..array.wrapper import ndarray
from . import chunks, products

dask.config.update_defaults({"cuteblas": {"precision": None, "backend": None, "peer-copies": None}})

with suppress(ImportError):             # without distributed, arrays do not move
    from . import serialization as serialization

_PLACES = {"matmul": (da, routines), "tensordot": (da, routines), "einsum": (da, einsumfuncs)}
_TABLES = ((tensordot_lookup, chunks.tensordot_of_chunks), (einsum_lookup, chunks.einsum_of_chunks),
           (concatenate_lookup, chunks.concatenate))
_undo: list[Callable[[], Any]] = []


def install() -> None:
    """Let this package multiply Dask arrays, in this process. ``import cuteblas.dask`` does it.

    ``matmul``, ``tensordot`` and ``einsum`` of ``dask.array`` become those of this module; ``@``,
    ``dot``, ``vdot`` and NumPy's functions of Dask arrays call them. Workers that compute their
    graphs have to be able to import this module. Dask's look-up tables get our ``tensordot`` and
    ``einsum`` for chunks of NumPy, CuPy and cuteblas, and our copies, which join chunks of CuPy and
    cuteblas. With Dask's ``array.query-planning``, only the tables change.

    Returns
    -------
    None
        Graphs that are built from now on use this package.

    Examples
    --------
    >>> import dask.array as da
    >>> import cuteblas.dask
    >>> cuteblas.dask.install()
    >>> da.matmul is cuteblas.dask.matmul
    True
    """
    if _undo:
        return
    for name, places in _PLACES.items():
        for place in places if da.Array is Array else ():
            _undo.append(partial(setattr, place, name, getattr(place, name)))
            setattr(place, name, getattr(products, name))
    for table, ours in _TABLES:
        for kind in (ndarray, np.ndarray)[:1 + (table is not concatenate_lookup)]:
            _undo.append(partial(table.register, kind, table.dispatch(kind)))
            table.register(kind, ours)
    if "cupy" in sys.modules:
        _register_cupy()
    else:
        for table, _ours in _TABLES:
            table.register_lazy("cupy", _register_cupy)
            _undo.append(partial(table.register_lazy, "cupy", backends.register_cupy))


def _register_cupy() -> None:
    import cupy

    backends.register_cupy()
    for table, ours in _TABLES:
        if _undo:
            _undo.append(partial(table.register, cupy.ndarray, table.dispatch(cupy.ndarray)))
            table.register(cupy.ndarray, ours)


def uninstall() -> None:
    """Give Dask its own products back, in this process. Graphs that exist stay as they are.

    Returns
    -------
    None
        Graphs that are built from now on use Dask's products.

    Examples
    --------
    >>> import dask.array as da
    >>> import cuteblas.dask
    >>> cuteblas.dask.uninstall()
    >>> da.matmul is cuteblas.dask.matmul
    False
    >>> cuteblas.dask.install()
    """
    while _undo:
        _undo.pop()()
