"""Our arrays and CuPy's between Dask's workers, without copies; GPUs of a host copy directly."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import dask
import numpy as np
from dask.base import normalize_token
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from ..array.wrapper import ndarray, unwrapped, wrap
from ..functions import ascontiguousarray
from .offers import Memory, fetch, offers, possible

_LEAST_BYTES = 1 << 21             # of an array that is worth a question to the process that has it
_memory = cache(Memory)


def _register(serialize: Any, deserialize: Any) -> None:
    def dumps(x: ndarray, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
        data = unwrapped(x)
        if not (data.flags.c_contiguous or data.flags.f_contiguous or 0 in data.strides):
            data = ascontiguousarray(data)
        write: Callable[..., Any] = serialize.dispatch(type(data))
        header, frames = write(data, context=context) if write is _from_a_gpu else write(data)
        return {"library": type(data).__module__.partition(".")[0], "array": header}, frames

    def loads(header: dict[str, Any], frames: list[Any]) -> ndarray:
        read: Callable[..., Any] = deserialize.dispatch(import_module(header["library"]).ndarray)
        return wrap(read(header["array"], frames))

    serialize.register(ndarray, dumps)
    deserialize.register(ndarray, loads)


@dask_serialize.register_lazy("cupy")
@dask_deserialize.register_lazy("cupy")
def _register_cupy() -> None:
    """Let distributed move CuPy's arrays if RMM is installed, else move them through the host."""
    with suppress(ImportError):
        import_module("distributed.protocol.cupy")
    if find_spec("rmm") is None:
        import cupy

        dask_serialize.register(cupy.ndarray, _from_a_gpu)
        dask_deserialize.register(cupy.ndarray, _to_a_gpu)


def _from_a_gpu(x: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = ascontiguousarray(x)
    turned = not x.flags.c_contiguous
    plain = x.T if turned else x
    header = {"shape": plain.shape, "dtype": pickle.dumps(x.dtype), "turned": turned}
    if x.nbytes >= _LEAST_BYTES and _between_workers(context):
        held = offers()
        return {**header, "address": held.address}, [held.add(plain)]
    import cupy

    return header, [memoryview(cupy.asnumpy(plain.ravel()).view(np.uint8))]


def _between_workers(context: Any) -> bool:
    """Whether a message goes from a worker of a GPU to a process of this host."""
    ends = [(context or {}).get(end, {}).get("address", "") for end in ("sender", "recipient")]
    return dask.config.get("cuteblas.peer-copies") and possible() and all("://127.0.0.1:" in end for end in ends)


def _to_a_gpu(header: dict[str, Any], frames: list[Any]) -> Any:
    import cupy

    shape, dtype = tuple(header["shape"]), pickle.loads(header["dtype"])
    if "address" in header:
        x = fetch(_memory(), header["address"], bytes(frames[0]), shape, dtype)
    else:
        x = cupy.asarray(np.ndarray(shape, dtype, frames[0]))
    return x.T if header["turned"] else x


_register(dask_serialize, dask_deserialize)
_register(cuda_serialize, cuda_deserialize)


@normalize_token.register(ndarray)
def _token(x: ndarray) -> Any:
    return "cuteblas.ndarray", normalize_token(unwrapped(x))
