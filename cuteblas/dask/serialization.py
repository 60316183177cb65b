"""How arrays of ours go from one worker to another: as the arrays that they hold, without a copy of contiguous memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

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


_register(dask_serialize, dask_deserialize)
_register(cuda_serialize, cuda_deserialize)


@normalize_token.register(ndarray)
def _token(x: ndarray) -> Any:
    return "cuteblas.ndarray", normalize_token(unwrapped(x))
