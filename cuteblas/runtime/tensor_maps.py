"""Tensor maps: the 128-byte descriptions of tensors that TMA copies read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from .driver import check_status, driver_function

if TYPE_CHECKING:
    from ..codegen.kernel import TensorMapSpec

_BYTES, _ALIGNMENT = 128, 64


class EncodedTensorMap:
    """The driver's encoding of a tensor map; ``address`` is valid while the object lives."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // _ALIGNMENT) * _ALIGNMENT


# Of CUtensorMapDataType, CUtensorMapSwizzle by its span in bytes, CUtensorMapL2promotion,
# CUtensorMapInterleave and CUtensorMapFloatOOBfill.
_TYPES = {"UINT8": 0, "UINT16": 1, "UINT32": 2, "INT32": 3, "UINT64": 4, "INT64": 5, "FLOAT16": 6,
          "FLOAT32": 7, "FLOAT64": 8, "BFLOAT16": 9, "TFLOAT32": 11}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTION_TO_128B, _NO_INTERLEAVE, _FILL_WITH_ZEROS = 2, 0, 0


@cache
def _encoder() -> Callable[..., int]:
    """The driver's ``cuTensorMapEncodeTiled``; ``cuda.bindings`` passes unaligned memory."""
    pointer, enum = ctypes.c_void_p, ctypes.c_int
    return driver_function("cuTensorMapEncodeTiled", pointer, enum, ctypes.c_uint32, pointer,
                           pointer, pointer, pointer, pointer, enum, enum, enum, enum)


def tensor_map_encoder(spec: TensorMapSpec) -> Callable[[int], EncodedTensorMap]:
    """What encodes a tensor map for an address, or raises ValueError or DriverError."""
    if spec.dtype.tensor_map is None:
        raise ValueError(
            f"a tensor map cannot have elements of type {spec.dtype.name} ({spec.dtype.bytes} bytes)"
        )
    call = _encoder()
    rank = len(spec.shape)
    data_type, swizzle = _TYPES[spec.dtype.tensor_map], _SWIZZLES[spec.swizzle]
    extents = (ctypes.c_uint64 * rank)(*spec.shape)
    strides = (ctypes.c_uint64 * max(rank - 1, 1))(*spec.strides)
    box = (ctypes.c_uint32 * rank)(*spec.box)
    element_strides = (ctypes.c_uint32 * rank)(*[1] * rank)

    def encode(address: int) -> EncodedTensorMap:
        if address % 16:
            raise ValueError(
                f"a tensor map needs an address that is a multiple of 16 bytes, got {address:#x}"
            )
        encoded = EncodedTensorMap()
        status = call(encoded.address, data_type, rank, address, extents, strides, box,
                      element_strides, _NO_INTERLEAVE, swizzle, _PROMOTION_TO_128B,
                      _FILL_WITH_ZEROS)
        if status:
            check_status(status, f"encoding {spec} at {address:#x}")
        return encoded

    return encode
