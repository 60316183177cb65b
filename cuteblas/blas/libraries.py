"""Operands of any library as NumPy or CuPy arrays over the same memory, and results back.

Types with DLPack (torch, JAX) are viewed through it, without a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._dtypes import DTYPES, DType
from ..engines.dispatch import ByName, kind_of
from .types import kind_of_numbers

# -- types that NumPy lacks: their bits are exchanged as integers ----------------------------------
_UNSIGNED = 1                           # DLPack's code
# Where the code of the element type is in a DLManagedTensor, and in one with a version: after the
# address, the device and the rank, which there follow the version, the manager's context, the
# deleter and the flags.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Relabelled(NamedTuple):
    """An array with another type of the same size, DLPack's ``code``, in its capsules."""

    owner: Any
    code: int

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.owner.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        try:
            capsule = self.owner.__dlpack__(**arguments)
        except TypeError:               # a library of the time before versions
            arguments = {name: value for name, value in arguments.items() if name == "stream"
                         and value is not None}
            capsule = self.owner.__dlpack__(**arguments)
        name = _name_of(capsule)
        if name not in _OFFSETS:
            raise BufferError(
                f"a DLPack capsule has the name {name!r}, but it has to be dltensor or dltensor_versioned"
            )
        ctypes.c_uint8.from_address(_pointer_of(capsule, name) + _OFFSETS[name]).value = self.code
        return capsule


def _unknown_to_numpy(x: Any) -> DType | None:
    """The element type of another library's array, if NumPy does not exchange it."""
    row = DTYPES.get(str(getattr(x, "dtype", "")).rpartition(".")[2])
    return row if row is not None and row.dlpack else None


def imported(from_dlpack: Callable[[Any], Any], x: Any) -> Any:
    row = _unknown_to_numpy(x)
    return from_dlpack(x) if row is None else from_dlpack(Relabelled(x, _UNSIGNED)).view(row.numpy)


def exported(from_dlpack: Callable[[Any], Any], x: Any) -> Any:
    row = _unknown_to_numpy(x)
    return from_dlpack(x) if row is None else from_dlpack(Relabelled(x.view(f"u{row.bytes}"),
                                                                     row.dlpack))


# -- libraries -------------------------------------------------------------------------------------
# Types of devices in DLPack.
_HOST, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13


class Place(NamedTuple):
    """The root module of an operand's type, and its CUDA ordinal (``None``: the host)."""

    library: str
    device: int | None

    def __str__(self) -> str:
        return "the host" if self.device is None else f"cuda:{self.device}"


HOST = Place("numpy", None)


LISTS = list, tuple, range


class Gathered(NamedTuple):
    """The operands of one call by role, of one library and device; ``back`` converts a result,
    unless it is as they are."""

    arrays: dict[str, Any]
    place: Place
    back: Callable[[Any], Any] | None = None

    def returned(self, result: Any) -> Any:
        return result if self.back is None else self.back(result)


def gather(function: str, operands: ByName, needed: Container[str]) -> Gathered:
    """View the operands of a call, by role, without those that are ``None`` and not ``needed``."""
    arrays: dict[str, Any] = {}
    first: tuple[str, Place] | None = None
    back: Callable[[Any], Any] | None = None
    for name, x in operands.items():
        if x is None:
            if name in needed:
                raise TypeError(f"{function} takes arrays and lists of numbers, but {name} is None")
            continue
        if isinstance(x, LISTS):
            arrays[name] = x
            continue
        arrays[name], place = (x, HOST) if type(x) is np.ndarray else view_of(function, name, x)
        if first is None:
            first = name, place
            back = None if place is HOST else _way_back(function, name, x, place)
        elif place is not first[1] and place != first[1]:
            _refuse_mixture(function, *first, name, place)
    return Gathered(arrays, first[1] if first else HOST, back)


def view_of(function: str, name: str, x: Any) -> tuple[Any, Place]:
    """An operand as a NumPy or CuPy array over its own memory, and where it comes from."""
    kind = kind_of(x)
    if kind == "numpy":
        return x, HOST
    if kind == "cupy":
        return x, Place("cupy", x.data.device_id)
    if kind == "subclass":
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(
                f"{function} cannot leave out masked elements, but {name} is a masked array; pass {name}.filled(...)"
            )
        return np.asarray(x), HOST
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _through_dlpack(function, name, x)
    if kind == "scalar" or (kind == "like" and hasattr(x, "__array__")):
        return np.asarray(x), HOST
    raise TypeError(
        f"{function} takes arrays and lists of numbers, but {name} is a {type(x).__name__}"
    )


def _through_dlpack(function: str, name: str, x: Any) -> tuple[Any, Place]:
    device, ordinal = x.__dlpack_device__()
    library = type(x).__module__.partition(".")[0]
    try:
        if device in (_HOST, _CUDA_HOST):
            return imported(np.from_dlpack, x), Place(library, None)
        if device in (_CUDA, _CUDA_MANAGED):
            import cupy  # whose current stream waits for what that library has under way

            return imported(cupy.from_dlpack, x), Place(library, int(ordinal))
    except (BufferError, RuntimeError, TypeError, ValueError) as refusal:
        raise TypeError(
            f"{function} cannot view {name}, a {_described(x)}, through DLPack: {refusal}"
        ) from refusal
    raise TypeError(
        f"{function} takes arrays on the host and on CUDA devices, but {name}, a {_described(x)}, is on a device of "
        f"DLPack's type {int(device)}"
    )


def _described(x: Any) -> str:
    dtype = getattr(x, "dtype", None)
    return type(x).__name__ if dtype is None else f"{type(x).__name__} of {dtype}"


def _way_back(function: str, name: str, x: Any, place: Place) -> Callable[[Any], Any] | None:
    if kind_of(x) != "foreign" and place.library in ("numpy", "cupy"):
        return None
    from array_api_compat import array_namespace

    try:
        namespace = array_namespace(x)
    except TypeError:
        namespace = None
    from_dlpack = getattr(namespace, "from_dlpack", None)
    if from_dlpack is None:
        raise TypeError(
            f"{function} returns arrays of the operands' library, but {name} is a {type(x).__name__}, whose library "
            "has no from_dlpack"
        )
    return partial(exported, from_dlpack)


def _refuse_mixture(function: str, first: str, place: Place, second: str, other: Place) -> None:
    if place.library == other.library:
        raise ValueError(
            f"{function} needs its operands on one device, but {first} is on {place} and {second} on {other}"
        )
    raise TypeError(
        f"{function} needs operands of one array library, but {first} is a {place.library} array on {place} and "
        f"{second} a {other.library} array on {other}"
    )


def from_list(function: str, name: str, values: Any, dtype: np.dtype) -> np.ndarray:
    try:
        raw = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"{function} takes rectangular lists, but rows of {name} differ in length"
        ) from None
    kind = kind_of_numbers(raw.dtype)
    if kind not in "biufc":
        raise TypeError(
            f"{function} takes arrays and lists of numbers, but {name} is a list whose elements are {raw.dtype}"
        )
    target = kind_of_numbers(dtype)
    if kind == "c" and target != "c":
        raise TypeError(f"{function} takes {dtype.name} arrays, but {name} has complex elements")
    if target == "i" and raw.size:
        if kind not in "biu":
            raise TypeError(
                f"{function} takes {dtype.name} arrays, but {name} has elements that are not integers"
            )
        info = np.iinfo(dtype)
        if raw.min() < info.min or raw.max() > info.max:
            raise ValueError(
                f"{function} takes {dtype.name} arrays, but {name} has elements outside {info.min} to {info.max}"
            )
    with np.errstate(over="ignore"):
        return raw.astype(dtype)


def is_complex_list(values: Any) -> bool:
    """Whether a list of numbers has complex elements."""
    try:
        return kind_of(values) == "like" and np.asarray(values).dtype.kind == "c"
    except ValueError:
        return False
