"""What is passed to the driver for a tensor map."""

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cuteblas._dtypes import DTYPES, dtype
from cuteblas.codegen.kernel import TensorMapSpec
from cuteblas.runtime import DriverError, arguments
from cuteblas.runtime.arguments import EncodedTensorMap, tensor_map_encoder
from tests.runtime.samples import BOX


@pytest.fixture
def driver(monkeypatch):
    """The arguments of the calls of a driver that answers ``driver.status``."""
    bindings = pytest.importorskip("cuda.bindings.driver")

    class Driver(list):
        status = 0

        def encode(self, *arguments):
            where, kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill = arguments
            self.append(
                SimpleNamespace(
                    where=where,
                    rank=rank,
                    address=address,
                    extents=extents,
                    strides=strides,
                    box=box,
                    steps=steps,
                    fill=fill,
                    kind=bindings.CUtensorMapDataType(kind).name.removeprefix(
                        "CU_TENSOR_MAP_DATA_TYPE_"
                    ),
                    swizzle=bindings.CUtensorMapSwizzle(swizzle).name.removeprefix(
                        "CU_TENSOR_MAP_SWIZZLE_"
                    ),
                    promotion=bindings.CUtensorMapL2promotion(promotion).name,
                    interleave=interleave
                )
            )
            return self.status
    driver = Driver()
    monkeypatch.setattr(arguments, "_encoder", lambda: driver.encode)
    return driver


def test_the_description_reaches_the_driver(driver):
    spec = TensorMapSpec(dtype("float16"), shape=(100, 50, 3), strides=(208, 10400), box=(64, 8, 1),
                         swizzle=128)
    encoded = tensor_map_encoder(spec)(0x1000)
    (call,) = driver
    assert (call.where, call.rank, call.address) == (encoded.address, 3, 0x1000)
    assert (call.kind, call.swizzle) == ("FLOAT16", "128B")
    assert (list(call.extents), list(call.strides)) == ([100, 50, 3], [208, 10400])
    assert (list(call.box), list(call.steps)) == ([64, 8, 1], [1, 1, 1])
    assert [array._type_ for array in (call.extents, call.strides)] == [ctypes.c_uint64] * 2
    assert [array._type_ for array in (call.box, call.steps)] == [ctypes.c_uint32] * 2
    assert call.interleave == 0 and call.fill == 0 and call.promotion.endswith("128B")


@pytest.mark.parametrize("swizzle, name", [(0, "NONE"), (32, "32B"), (64, "64B"), (128, "128B")])
def test_swizzles(driver, swizzle, name):
    tensor_map_encoder(TensorMapSpec(dtype("uint8"), (64,), (), (32,), swizzle))(0)
    assert driver[0].swizzle == name


@pytest.mark.parametrize("name", DTYPES)
def test_elements_keep_their_size(driver, name):
    spec = TensorMapSpec(dtype(name), (64,), (), (16,))
    if dtype(name).bytes == 16:
        with pytest.raises(ValueError, match=f"cannot have elements of type {name} \\(16 bytes\\)"):
            tensor_map_encoder(spec)(0)
        return
    tensor_map_encoder(spec)(0)
    bits = int("".join(c for c in driver[0].kind if c.isdigit()))
    assert bits == 8 * dtype(name).bytes


@pytest.mark.parametrize("address", [1, 8, 0x1004])
def test_an_unaligned_address_is_refused(driver, address):
    with pytest.raises(ValueError, match=f"multiple of 16 bytes, got {address:#x}"):
        tensor_map_encoder(BOX)(address)
    assert not driver


def test_the_memory_is_aligned():
    assert all(EncodedTensorMap().address % 64 == 0 for _ in range(100))


def test_the_driver_may_refuse(driver, monkeypatch):
    from cuda.bindings import driver as bindings

    monkeypatch.setattr(bindings, "cuGetErrorString", lambda status: (0, b"invalid argument"))
    driver.status = 1
    with pytest.raises(
        DriverError,
        match=r"encoding TensorMapSpec\(.* at 0x40: CUDA_ERROR_INVALID_VALUE: invalid argument"
    ):
        tensor_map_encoder(BOX)(0x40)


@pytest.mark.gpu
def test_the_real_driver_encodes_and_refuses():
    import cupy

    memory = cupy.zeros((50, 104), cupy.float32)
    first, second = (tensor_map_encoder(BOX)(memory.data.ptr + 16 * i) for i in range(2))
    one, other = (ctypes.string_at(encoded.address, 128) for encoded in (first, second))
    assert any(one) and one != other
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        tensor_map_encoder(replace(BOX, box=(256, 256), dtype=dtype("float64")))(memory.data.ptr)
