"""Kernel arguments and tensor maps in C memory: a launch only writes addresses that change."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from .._dtypes import DType
from .driver import check_status, driver_function

if TYPE_CHECKING:
    from ..codegen.kernel import Param, TensorMapSpec
    from ..planning.plan import Argument

# -- tensor maps -----------------------------------------------------------------------------------
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


# -- arguments -------------------------------------------------------------------------------------
MapEncoder = Callable[[int], EncodedTensorMap]

_ADDRESS = ctypes.c_uint64
_TENSOR_MAPS_KEPT = 16
SCALARS = 1 << 62
"""The bit of numbers, beside those of roles."""


def _c_type(dtype: DType) -> Any:
    if dtype.is_complex:
        return 2 * _c_type(dtype.part)
    return getattr(ctypes, f"c_{dtype.ctype if dtype.kind == 'f' else dtype.name}")


class _Scalar:
    def __init__(self, param: Param):
        try:
            self.cell = _c_type(param.dtype)()
        except AttributeError:
            raise TypeError(
                f"kernel parameter {param.name} cannot be a scalar of type {param.dtype.name}"
            ) from None
        self.param = param
        self.is_complex = param.dtype.is_complex
        self.python_type = int if param.dtype.is_integer else bool if param.dtype.kind == "b" else float

    def store(self, value: Any) -> None:
        """Store a number, rounded to the parameter's type; integers wrap."""
        if self.is_complex:
            self.cell[:] = value.real, value.imag
        else:
            self.cell.value = self.python_type(value)

    def store_constant(self, value: Any) -> None:
        """Store a plan's number, which an integer parameter must hold exactly."""
        self.store(value)
        if self.python_type is int and self.cell.value != value:
            raise OverflowError(
                f"{value} does not fit in kernel parameter {self.param.name} of type {self.param.dtype.name}"
            )


class ArgumentBlock:
    """The arguments of all launches of a plan, for one thread at a time."""
    # The driver takes an array of pointers to arguments, ``parameters`` for each launch. An
    # unshifted address is stored once for all pointers, so that :meth:`write` is one assignment
    # without tensor maps. Tensor maps are encoded for new addresses; the latest few are kept.
    # ``reads`` has, for each launch, a bit for each role that it depends on, and :data:`SCALARS`
    # for numbers.

    def __init__(self, launches: Sequence[Any], roles: Sequence[str],
                 map_encoder: Callable[[TensorMapSpec], MapEncoder]):
        self._positions = {role: position for position, role in enumerate(roles)}
        self._addresses = (_ADDRESS * len(roles))()
        self._map_encoder = map_encoder
        # by the position of an address: cells of it plus a constant; and entries of pointers, each
        # to the tensor map over it plus a constant
        self._shifted: list[list[tuple[Any, int]]] = [[] for _ in roles]
        self._maps: list[list[tuple[Any, int, MapEncoder, int]]] = [[] for _ in roles]
        self._written: Any = None       # the addresses that are there
        self._scalars: dict[str, list[_Scalar]] = {}
        self._cells: list[Any] = []     # keeps alive what the pointers point to
        self._pointers = [self._point(launch) for launch in launches]
        self.parameters = tuple(ctypes.addressof(pointers) for pointers in self._pointers)
        self.reads = tuple(self._read_by(launch) for launch in launches)
        self._plain = len(launches) == 1 and not (any(self._shifted) or any(self._maps))

    def write(self, addresses: Sequence[int], alpha: complex = 1.0, beta: complex = 0.0,
              numbers: Mapping[str, complex] | None = None) -> int:
        """Fill in what a call supplies; return what may have changed, as bits of :attr:`reads`."""
        changed = 0
        if self._scalars:
            changed = SCALARS
            for role, scalars in self._scalars.items():
                value = alpha if role == "alpha" else beta if role == "beta" else (numbers or {}).get(role)
                if value is None:
                    raise ValueError(
                        f"the plan takes a number {role!r}, but the call gives {', '.join(numbers or ()) or 'none'}"
                    )
                for scalar in scalars:
                    scalar.store(value)
        if self._plain:
            self._addresses[:] = addresses     # type: ignore[call-overload]
            return -1
        addresses, before = tuple(addresses), self._written
        if addresses != before:
            self._written = None
            self._addresses[:] = addresses     # type: ignore[call-overload]
            for position, address in enumerate(addresses):
                if before is None or address != before[position]:
                    changed |= 1 << position
                    for cell, offset in self._shifted[position]:
                        cell.value = address + offset
                    for pointers, entry, encode, offset in self._maps[position]:
                        # alive, being the latest of those that are kept
                        pointers[entry] = encode(address + offset).address
            self._written = addresses
        return changed

    def forget(self) -> None:
        self._written = None

    def _read_by(self, launch: Any) -> int:
        return sum({1 << self._positions[argument.role] if argument.role in self._positions
                    else SCALARS for argument in launch.arguments if argument.role is not None})

    def _point(self, launch: Any) -> ctypes.Array[ctypes.c_void_p]:
        params, arguments = launch.kernel.params, launch.arguments
        if len(params) != len(arguments):
            raise ValueError(
                f"kernel {launch.kernel.name} has {len(params)} parameters, but the plan gives {len(arguments)} "
                "arguments"
            )
        pointers = (ctypes.c_void_p * len(params))()
        for index, (param, argument) in enumerate(zip(params, arguments, strict=True)):
            pointers[index] = self._place(param, argument, pointers, index)
        return pointers

    def _place(self, param: Param, argument: Argument, pointers: ctypes.Array[ctypes.c_void_p],
               index: int) -> int | None:
        """Address of an argument's memory; ``None`` for a tensor map, pointed to by each call."""
        if (param.kind == "tensor_map") != (argument.tensor_map is not None):
            raise ValueError(
                f"kernel parameter {param.name} is a {param.kind}, but the plan's argument is {argument}"
            )
        if argument.tensor_map is not None:
            encode = lru_cache(_TENSOR_MAPS_KEPT)(self._map_encoder(argument.tensor_map))
            self._maps[self._position(argument, param)].append((pointers, index, encode,
                                                                argument.offset))
            return None
        if param.kind == "scalar":
            scalar = _Scalar(param)
            self._cells.append(scalar.cell)
            if argument.role is None:
                scalar.store_constant(argument.value)
            elif argument.role in self._positions:
                raise ValueError(
                    f"kernel parameter {param.name} is a scalar, but the plan's argument is {argument}"
                )
            else:
                self._scalars.setdefault(argument.role, []).append(scalar)
            return ctypes.addressof(scalar.cell)
        position = self._position(argument, param)
        if not argument.offset:
            return ctypes.addressof(self._addresses) + position * ctypes.sizeof(_ADDRESS)
        cell = _ADDRESS()
        self._cells.append(cell)
        self._shifted[position].append((cell, argument.offset))
        return ctypes.addressof(cell)

    def _position(self, argument: Argument, param: Param) -> int:
        try:
            return self._positions[str(argument.role)]
        except KeyError:
            raise ValueError(
                f"kernel parameter {param.name} takes an address, one of {', '.join(self._positions)}, but the plan's "
                f"argument is {argument}"
            ) from None
