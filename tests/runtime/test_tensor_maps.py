"""What the driver is told about a tensor map."""

import ctypes
from dataclasses import replace

import pytest

from cuteblas.codegen.dtypes import DTYPES, dtype
from cuteblas.codegen.kernel import TensorMapSpec
from cuteblas.runtime import DriverError, tensor_maps
from cuteblas.runtime.tensor_maps import EncodedTensorMap, encode_tensor_map
from tests.runtime.samples import BOX


@pytest.fixture
def driver(monkeypatch):
    """The arguments of the calls of a driver that answers ``driver.status``."""
    pytest.importorskip("cuda.bindings.driver")

    class Driver(list):
        status = 0

        def encode(self, *arguments):
            self.append(arguments)
            return self.status
    driver = Driver()
    monkeypatch.setattr(tensor_maps, "_encoder", lambda: driver.encode)
    return driver


def test_the_description_reaches_the_driver(driver):
    spec = TensorMapSpec(dtype("float16"), shape=(100, 50, 3), strides=(208, 10400), box=(64, 8, 1), swizzle=128)
    encoded = encode_tensor_map(spec, 0x1000)
    ((where, kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill),) = driver
    assert (where, rank, address) == (encoded.address, 3, 0x1000)
    assert (kind.name, swizzle.name) == ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "CU_TENSOR_MAP_SWIZZLE_128B")
    assert (list(extents), list(strides), list(box), list(steps)) == ([100, 50, 3], [208, 10400], [64, 8, 1], [1, 1, 1])
    assert (type(extents)._type_, type(strides)._type_, type(box)._type_) == (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
    assert interleave == 0 and fill == 0 and promotion.name.endswith("128B")


@pytest.mark.parametrize("swizzle, name", [(0, "NONE"), (32, "32B"), (64, "64B"), (128, "128B")])
def test_swizzles(driver, swizzle, name):
    encode_tensor_map(TensorMapSpec(dtype("uint8"), (64,), (), (32,), swizzle), 0)
    assert driver[0][9].name == f"CU_TENSOR_MAP_SWIZZLE_{name}"


@pytest.mark.parametrize("name", DTYPES)
def test_elements_keep_their_size(driver, name):
    spec = TensorMapSpec(dtype(name), (64,), (), (16,))
    if dtype(name).bytes == 16:
        with pytest.raises(ValueError, match=f"no elements of type {name} \\(16 bytes\\)"):
            encode_tensor_map(spec, 0)
        return
    encode_tensor_map(spec, 0)
    kind = driver[0][1].name.removeprefix("CU_TENSOR_MAP_DATA_TYPE_")
    bits = int("".join(c for c in kind if c.isdigit()))
    assert bits == 8 * dtype(name).bytes


@pytest.mark.parametrize("address", [1, 8, 0x1004])
def test_an_unaligned_address_is_refused(driver, address):
    with pytest.raises(ValueError, match=f"multiple of 16 bytes, got {address:#x}"):
        encode_tensor_map(BOX, address)
    assert not driver


def test_the_memory_is_aligned():
    assert all(EncodedTensorMap().address % 64 == 0 for _ in range(100))


def test_the_driver_may_refuse(driver, monkeypatch):
    from cuda.bindings import driver as bindings

    monkeypatch.setattr(bindings, "cuGetErrorString", lambda status: (0, b"invalid argument"))
    driver.status = 1
    with pytest.raises(DriverError, match=r"encoding TensorMapSpec\(.* at 0x40: CUDA_ERROR_INVALID_VALUE: invalid argument"):
        encode_tensor_map(BOX, 0x40)


@pytest.mark.gpu
def test_the_real_driver_encodes_and_refuses():
    import cupy

    memory = cupy.zeros((50, 104), cupy.float32)
    first, second = (encode_tensor_map(BOX, memory.data.ptr + 16 * i) for i in range(2))
    one, other = (ctypes.string_at(encoded.address, 128) for encoded in (first, second))
    assert any(one) and one != other
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        encode_tensor_map(replace(BOX, box=(256, 256), dtype=dtype("float64")), memory.data.ptr)
