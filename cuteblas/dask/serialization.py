"""How arrays of ours go from one worker to another: as the arrays that they hold, without a copy of contiguous memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from dask.base import normalize_token
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from ..array.wrapper import ndarray, unwrapped, wrap
from ..functions import ascontiguousarray

__all__: list[str] = []


def _register(serialize: Any, deserialize: Any) -> None:
    def dumps(x: ndarray) -> tuple[dict[str, Any], list[Any]]:
        data = unwrapped(x)
        if not (data.flags.c_contiguous or data.flags.f_contiguous or 0 in data.strides):
            data = ascontiguousarray(data)
        write: Callable[..., Any] = serialize.dispatch(type(data))
        header, frames = write(data)
        return {"library": type(data).__module__.partition(".")[0], "array": header}, frames

    def loads(header: dict[str, Any], frames: list[Any]) -> ndarray:
        read: Callable[..., Any] = deserialize.dispatch(import_module(header["library"]).ndarray)
        return wrap(read(header["array"], frames))

    serialize.register(ndarray, dumps)
    deserialize.register(ndarray, loads)


@dask_serialize.register_lazy("cupy")
@dask_deserialize.register_lazy("cupy")
def _register_cupy() -> None:
    """CuPy's arrays as distributed moves them where RMM is; without, by way of the host, into memory of CuPy's pool."""
    with suppress(ImportError):
        import_module("distributed.protocol.cupy")
    if find_spec("rmm") is None:
        import cupy

        dask_serialize.register(cupy.ndarray, _by_way_of_the_host)
        dask_deserialize.register(cupy.ndarray, _from_the_host)


def _by_way_of_the_host(x: Any) -> tuple[dict[str, Any], list[Any]]:
    import cupy

    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = ascontiguousarray(x)
    turned = not x.flags.c_contiguous
    flat = cupy.asnumpy((x.T if turned else x).ravel())
    return {"shape": x.shape, "dtype": pickle.dumps(x.dtype), "turned": turned}, [memoryview(flat.view(np.uint8))]


def _from_the_host(header: dict[str, Any], frames: list[Any]) -> Any:
    import cupy

    shape = tuple(header["shape"])[::-1 if header["turned"] else 1]
    x = cupy.asarray(np.ndarray(shape, pickle.loads(header["dtype"]), frames[0]))
    return x.T if header["turned"] else x


_register(dask_serialize, dask_deserialize)
_register(cuda_serialize, cuda_deserialize)


@normalize_token.register(ndarray)
def _token(x: ndarray) -> Any:
    return "cuteblas.ndarray", normalize_token(unwrapped(x))
