"""Exchange arrays of types that NumPy lacks, such as bfloat16, whose bits it takes as integers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .._dtypes import DTYPES, DType

_UNSIGNED = 1                           # DLPack's code
# Where the code of the element type is in a DLManagedTensor, and in one with a version: after the
# address, the device and the rank, which there follow the version, the manager's context, the
# deleter and the flags.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Relabelled:
    """An array with another type of the same size, DLPack's ``code``, in its capsules."""

    def __init__(self, owner: Any, code: int):
        self._owner = owner
        self._code = code

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._owner.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        try:
            capsule = self._owner.__dlpack__(**arguments)
        except TypeError:               # a library of the time before versions
            arguments = {name: value for name, value in arguments.items() if name == "stream"
                         and value is not None}
            capsule = self._owner.__dlpack__(**arguments)
        name = _name_of(capsule)
        if name not in _OFFSETS:
            raise BufferError(
                f"a DLPack capsule has the name {name!r}, but it has to be dltensor or dltensor_versioned"
            )
        code = ctypes.c_uint8.from_address(_pointer_of(capsule, name) + _OFFSETS[name])
        code.value = self._code
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
