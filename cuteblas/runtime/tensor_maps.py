"""Tensor maps: the 128-byte descriptions of tensors that TMA copies read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..codegen.kernel import TensorMapSpec
from .errors import check, require

__all__ = ["EncodedTensorMap", "tensor_map_encoder"]

_BYTES, _ALIGNMENT = 128, 64


class EncodedTensorMap:
    """The driver's encoding of a tensor map in aligned memory of the host; ``address`` is valid while the object lives."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
        self.address = -(-ctypes.addressof(self._memory) // _ALIGNMENT) * _ALIGNMENT


@cache
def _encoder() -> Callable[..., int]:
    """The driver's ``cuTensorMapEncodeTiled``.

    It is called by its address because cuda.bindings passes it memory without the alignment that it demands.
    """
    driver = require("cuda.bindings.driver")
    flags = driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
    address = check(driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, flags), "looking up cuTensorMapEncodeTiled")
    pointer, enum = ctypes.c_void_p, ctypes.c_int
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, enum, ctypes.c_uint32, pointer, pointer, pointer, pointer, pointer,
                                 enum, enum, enum, enum)
    return prototype(address)


def tensor_map_encoder(spec: TensorMapSpec) -> Callable[[int], EncodedTensorMap]:
    """Prepare the encoding of a tensor map for many addresses.

    Parameters
    ----------
    spec : TensorMapSpec
        Shape, strides, box and swizzle.

    Returns
    -------
    callable
        From the address in global memory of the tensor's first element, a multiple of 16, to the encoded map. It raises a
        :class:`ValueError` if the address is not aligned and a :class:`DriverError` if the driver refuses the description.

    Raises
    ------
    ValueError
        If no tensor map has elements of that size.

    References
    ----------
    CUDA driver API, ``cuTensorMapEncodeTiled``.
    """
    if spec.dtype.tensor_map is None:
        raise ValueError(f"a tensor map has no elements of type {spec.dtype.name} ({spec.dtype.bytes} bytes)")
    driver = require("cuda.bindings.driver")
    call = _encoder()
    rank = len(spec.shape)
    data_type = int(getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{spec.dtype.tensor_map}"))
    extents = (ctypes.c_uint64 * rank)(*spec.shape)
    strides = (ctypes.c_uint64 * max(rank - 1, 1))(*spec.strides)
    box = (ctypes.c_uint32 * rank)(*spec.box)
    element_strides = (ctypes.c_uint32 * rank)(*[1] * rank)
    interleave = int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE)
    swizzle = int(getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{spec.swizzle}B' if spec.swizzle else 'NONE'}"))
    promotion = int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B)
    fill = int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)

    def encode(address: int) -> EncodedTensorMap:
        if address % 16:
            raise ValueError(f"a tensor map needs an address that is a multiple of 16 bytes, got {address:#x}")
        encoded = EncodedTensorMap()
        status = call(encoded.address, data_type, rank, address, extents, strides, box, element_strides,
                      interleave, swizzle, promotion, fill)
        if status:
            check((driver.CUresult(status),), f"encoding {spec} at {address:#x}")
        return encoded

    return encode
