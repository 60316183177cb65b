"""Argument blocks, read through their pointers as the driver reads them."""

import ctypes
from dataclasses import replace
from functools import partial

import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import GeneratedKernel, Param
from cuteblas.planning.plan import Argument, Launch
from cuteblas.runtime.arguments import ArgumentBlock, EncodedTensorMap
from tests.runtime.samples import BOX, F32, I32, I64

ROLES = ("a", "b", "c")
A, B, C = 0x7F00_0000_1000, 0x7F00_0000_2000, 0xFFFF_FFFF_FFFF_F000
C_TYPES = {"bool": ctypes.c_bool, "int8": ctypes.c_int8, "uint8": ctypes.c_uint8,
           "int16": ctypes.c_int16, "uint16": ctypes.c_uint16, "int32": ctypes.c_int32,
           "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
           "float32": ctypes.c_float, "float64": ctypes.c_double, "complex64": ctypes.c_float * 2,
           "complex128": ctypes.c_double * 2}


def launch(*pairs):
    """A launch of a kernel with these (parameter, argument) pairs."""
    params, arguments = zip(*pairs, strict=True)
    return Launch(GeneratedKernel("k", "", params, 32), (1, 1, 1), arguments)


def pointer(name, role, offset=0):
    return Param(name, "pointer", F32), Argument(role, offset=offset)


def scalar(name, type_name, **argument):
    return Param(name, "scalar", dtype(type_name)), Argument(**argument)


def no_maps(spec):
    raise AssertionError("no tensor map was expected")


def read(parameters, *types):
    """The values that ``kernelParams`` at this address points to."""
    pointers = (ctypes.c_void_p * len(types)).from_address(parameters)
    cells = [kind.from_address(address) for kind, address in zip(types, pointers, strict=True)]
    return [complex(*cell) if isinstance(cell, ctypes.Array) else cell.value for cell in cells]


def test_a_block_equals_the_c_struct_of_the_parameters():
    block = ArgumentBlock([launch(pointer("A", "a"), scalar("m", "int32", value=-7),
                                  pointer("B", "b"), scalar("s", "float64", value=0.1),
                                  pointer("C", "c"), scalar("ld", "int64", value=-2**40),
                                  scalar("f", "bool", value=True))], ROLES, no_maps)
    block.write((A, B, C))

    class Parameters(ctypes.Structure):
        _fields_ = [("A", ctypes.c_uint64), ("m", ctypes.c_int), ("B", ctypes.c_uint64),
                    ("s", ctypes.c_double), ("C", ctypes.c_uint64), ("ld", ctypes.c_longlong),
                    ("f", ctypes.c_bool)]
    want = Parameters(A, -7, B, 0.1, C, -2**40, True)
    got = Parameters(*read(block.parameters[0], *(kind for _, kind in Parameters._fields_)))
    assert bytes(got) == bytes(want)


def test_a_call_changes_the_addresses_of_every_launch():
    first = launch(pointer("B", "b"), scalar("n", "int32", value=5))
    second = launch(pointer("C", "c"), pointer("A", "a"), pointer("A2", "a", offset=256),
                    pointer("back", "b", offset=-16))
    block = ArgumentBlock([first, second], ROLES, no_maps)
    for a, b, c in ((A, B, C), (B, C, A)):
        block.write((a, b, c))
        assert read(block.parameters[0], ctypes.c_uint64, ctypes.c_int32) == [b, 5]
        assert read(block.parameters[1], *[ctypes.c_uint64] * 4) == [c, a, a + 256, b - 16]


@pytest.mark.parametrize("name, value, stored",
                         [("bool", 2, True), ("int8", -128, -128), ("uint8", 255, 255),
                          ("int16", -2**15, -2**15), ("uint16", 2**16 - 1, 2**16 - 1),
                          ("int32", -2**31, -2**31), ("uint32", 2**32 - 1, 2**32 - 1),
                          ("int64", -2**63, -2**63), ("uint64", 2**64 - 1, 2**64 - 1),
                          ("float32", 0.1, 0.10000000149011612), ("float32", 1e39, float("inf")),
                          ("float64", 0.1, 0.1), ("float64", 2, 2.0),
                          ("complex64", 0.5 - 1j, 0.5 - 1j), ("complex128", 0.1 + 0.2j, 0.1 + 0.2j),
                          ("complex128", 3, 3 + 0j),])
@pytest.mark.parametrize("role", [None, "alpha", "beta"])
def test_scalars_of_every_type(role, name, value, stored):
    argument = {"value": value} if role is None else {"role": role}
    block = ArgumentBlock([launch(scalar("s", name, **argument))], ROLES, no_maps)
    block.write((A, B, C), **({} if role is None else {role: value}))
    assert read(block.parameters[0], C_TYPES[name]) == [stored]


def test_scalars_of_a_call_default_to_one_and_zero_and_integers_wrap():
    block = ArgumentBlock([launch(scalar("x", "float32", role="alpha"),
                                  scalar("y", "float32", role="beta"),
                                  scalar("z", "int8", role="alpha"))], ROLES, no_maps)
    block.write((A, B, C))
    assert read(block.parameters[0], ctypes.c_float, ctypes.c_float, ctypes.c_int8) == [1, 0, 1]
    block.write((A, B, C), alpha=300, beta=-2)
    assert read(block.parameters[0], ctypes.c_float, ctypes.c_float, ctypes.c_int8) == [300, -2, 44]


def test_tensor_maps_are_encoded_for_new_addresses_and_the_latest_are_kept():
    encoded = []

    def encode(spec, address):
        encoded.append((spec, address))
        tensor_map = EncodedTensorMap()
        ctypes.c_uint64.from_address(tensor_map.address).value = address
        return tensor_map

    tensor_map = (Param("map", "tensor_map", F32), Argument("b", tensor_map=BOX, offset=64))
    block = ArgumentBlock([launch(pointer("A", "a"), tensor_map)], ROLES,
                          lambda spec: partial(encode, spec))
    for address in (B, B, C, B):
        block.write((A, address, C))
        assert read(block.parameters[0], ctypes.c_uint64,
                    ctypes.c_uint64) == [A, (address + 64) % 2**64]
        assert (ctypes.c_void_p * 2).from_address(block.parameters[0])[1] % 64 == 0
    assert encoded == [(BOX, B + 64), (BOX, C + 64)]
    for i in range(40):
        block.write((A, B + 4096 * i, C))
        assert read(block.parameters[0], ctypes.c_uint64, ctypes.c_uint64) == [A, B + 4096 * i + 64]
    block.write((A, C, C))
    assert encoded.count((BOX, C + 64)) == 2


def test_a_map_that_is_forgotten_by_the_cache_stays_alive_while_the_block_points_to_it():
    maps = []

    class Watched(EncodedTensorMap):
        __slots__ = ()

        def __del__(self):
            maps.append(self.address)

    watched = launch((Param("map", "tensor_map", F32), Argument("a", tensor_map=BOX)))
    block = ArgumentBlock([watched], ROLES, lambda spec: lambda address: Watched())
    for i in range(60):
        block.write((A + 4096 * i, B, C))
        assert (ctypes.c_void_p * 1).from_address(block.parameters[0])[0] not in maps
        maps.clear()


def test_the_number_of_addresses_is_checked():
    block = ArgumentBlock([launch(pointer("A", "a"))], ROLES, no_maps)
    with pytest.raises(ValueError, match="same size"):
        block.write((A, B))


@pytest.mark.parametrize("pair, error, words",
                         [((Param("A", "pointer", F32), Argument("src")), ValueError,
                           "parameter A takes an address, one of a, b, c, but .* is .*src"),
                          ((Param("A", "pointer", F32), Argument(value=3)), ValueError,
                           "parameter A takes an address"),
                          ((Param("A", "pointer", F32), Argument("alpha")), ValueError,
                           "parameter A takes an address"),
                          ((Param("n", "scalar", I32), Argument("a")), ValueError,
                           "parameter n is a scalar, but the plan's argument is .*role='a'"),
                          ((Param("n", "scalar", I32), Argument(value=2**31)), OverflowError,
                           "2147483648 does not fit in .* n of type int32"),
                          ((Param("n", "scalar", I64), Argument(value=2**63)), OverflowError,
                           "does not fit in kernel parameter n of type int64"),
                          ((Param("x", "scalar", dtype("float16")), Argument("alpha")), TypeError,
                           "parameter x cannot be a scalar of type float16"),
                          ((Param("m", "tensor_map", F32), Argument("a")), ValueError,
                           "parameter m is a tensor_map, but the plan's argument is"),
                          ((Param("m", "pointer", F32), Argument("a", tensor_map=BOX)), ValueError,
                           "parameter m is a pointer, but the plan's"),])
def test_arguments_that_do_not_match_are_refused(pair, error, words):
    with pytest.raises(error, match=words):
        ArgumentBlock([launch(pair)], ROLES, no_maps)


def test_as_many_arguments_as_parameters():
    one = launch(pointer("A", "a"))
    with pytest.raises(ValueError,
                       match="kernel k has 1 parameters, but the plan gives 2 arguments"):
        ArgumentBlock([replace(one, arguments=one.arguments * 2)], ROLES, no_maps)
