"""The sides that are compared: NumPy itself, or this package on one of its backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

import cuteblas
from cuteblas import emulator, runtime
from cuteblas.runtime.errors import INSTALL

from .calls import View
from .draw import Pools
from .registry import FUNCTIONS

__all__ = ["BACKENDS", "GUARD", "Reference", "Side", "side", "why_unavailable"]

BACKENDS = ("numpy", "definition", "emulator", "host", "cuda", "linked", "cuda-host")
GUARD = 64
"""Guard bytes before and after every memory, which nothing may write."""

_FLOATS = {"<f4": 8.0, "<f8": 6.0, "<c8": 2.0, "<c16": 2.0, "<f2": 2.0}
_INTEGERS = {"|b1": 0.7, "|i1": 0.8, "<i2": 0.4, "<i4": 0.8, "<i8": 1.2, "|u1": 0.5, "<u2": 0.2,
             "<u4": 0.2, "<u8": 0.3}
_LAYOUTS = {"C": 10.0, "F": 4.0, "padded": 2.0, "sliced": 2.0, "negative": 2.0, "permuted": 1.5,
            "broadcast": 1.5, "misaligned": 1.2, "odd": 0.8}
_SMALL = {0: 0.5, 1: 2.0, 2: 3.0, 3: 3.0, 4: 2.0, 5: 2.0, 7: 2.0, 8: 2.0, 16: 1.0, 17: 1.0}
_FEW_FLOATS = {"<f4": 8.0, "<f8": 4.0, "<c8": 1.0, "<c16": 0.5, "<f2": 1.5}
_FEW_INTEGERS = {"|b1": 0.2, "|i1": 0.5, "<i4": 0.4, "<i8": 0.6, "|u1": 0.2}
_ODD = (">f8", ">f4", ">i4", ">c8", "O", "<g", "G", "M8[D]", "m8[s]", ">u2", "S3", "U2")
_LARGER = _SMALL | {31: 0.5, 33: 0.5, 64: 0.4, 65: 0.4}
_LARGEST = _SMALL | {31: 0.5, 33: 0.5, 64: 0.7, 65: 0.4, 128: 0.4, 129: 0.3, 257: 0.2}
_NUMBERS = _FLOATS | _INTEGERS
POOLS = {pools.backend: pools for pools in (Pools(_NUMBERS, _ODD, _LARGER, 2**15, _LAYOUTS,
                                                  "numpy"),
                                            Pools(_NUMBERS, _ODD, _LARGER, 2**15, _LAYOUTS,
                                                  "definition"),
                                            Pools(_FEW_FLOATS | _FEW_INTEGERS, _ODD,
                                                  _SMALL | {33: 0.3, 64: 0.2, 65: 0.2}, 2**13,
                                                  _LAYOUTS, "emulator"),
                                            Pools(_NUMBERS, ("<f4",), _LARGER, 2**15, _LAYOUTS,
                                                  "host"),
                                            Pools(_NUMBERS, _ODD, _LARGER, 2**15, _LAYOUTS,
                                                  "linked"),
                                            Pools(_NUMBERS, _ODD, _LARGEST, 2**20, _LAYOUTS,
                                                  "cuda-host"),
                                            Pools(_NUMBERS, ("<f4",), _LARGEST, 2**20, _LAYOUTS,
                                                  "cuda"))}
"""What calls are made from, by backend."""


def why_unavailable(name: str) -> str | None:
    """Why a backend cannot work here; ``None`` if it can."""
    if name in ("host", "linked", "cuda", "cuda-host") and find_spec("cupy") is None:
        return f"CuPy is not installed: {INSTALL}"
    if name == "emulator":
        return emulator.why_unavailable()
    return runtime.why_unavailable() if name in ("cuda", "cuda-host") else None


class Side:
    """A library that calls are made to.

    Attributes
    ----------
    name : str
    functions : dict
        What is called, by name.
    on_gpu : bool
        Whether plain arrays are CuPy's.
    """

    name = "numpy"
    on_gpu: bool = False

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {name: function.ours
                                                         for name, function in FUNCTIONS.items()}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Set up what calls need for as long as this lasts."""
        with cuteblas.backend("numpy"):
            yield

    def memory(self, content: np.ndarray) -> Any:
        """An allocation with these bytes between two guards."""
        if content.dtype.hasobject:             # no bytes to be looked at
            return np.concatenate([np.zeros(GUARD // 8, object), content,
                                   np.zeros(GUARD // 8, object)])
        raw = np.empty(content.nbytes + 2 * GUARD + 64, np.uint8)
        start = -raw.ctypes.data % 64
        raw = raw[start:start + content.nbytes + 2 * GUARD]
        raw[:GUARD] = raw[GUARD + content.nbytes:] = 0xA5
        raw[GUARD:GUARD + content.nbytes] = content.view(np.uint8)
        return raw

    def array(self, memory: Any, view: View) -> Any:
        """The array of a view."""
        array = _plain(memory, view)
        return cuteblas.ndarray(array) if view.holder == "ours" else array

    def bytes_of(self, memory: Any) -> np.ndarray:
        """A copy of all bytes of an allocation, guards included."""
        return np.zeros(memory.nbytes, np.uint8) if memory.dtype.hasobject else memory.copy()

    def address(self, memory: Any) -> int:
        return memory.__array_interface__["data"][0]


def _plain(memory: np.ndarray, view: View) -> np.ndarray:
    """The NumPy array of a view."""
    if memory.dtype.hasobject:
        array = np.lib.stride_tricks.as_strided(memory[(GUARD + view.offset) // 8:], view.shape,
                                                view.strides)
    else:
        array = np.ndarray(view.shape, view.dtype, memory, GUARD + view.offset, view.strides)
    if not view.writeable:
        array.flags.writeable = False
    return array


class Reference(Side):
    """NumPy, on its own arrays."""

    def __init__(self) -> None:
        self.functions = {name: function.reference for name, function in FUNCTIONS.items()}

    def array(self, memory: Any, view: View) -> Any:
        return _plain(memory, view)


class Emulated(Side):
    """The kernels on the CPU."""

    name = "emulator"

    @contextmanager
    def ready(self) -> Iterator[None]:
        if reason := emulator.why_unavailable():
            raise RuntimeError(f"the backend emulator cannot work here: {reason}")
        with cuteblas.backend("emulator"):
            yield


class Defined(Side):
    """All of our code but the kernels, which are evaluated by their definition."""

    name = "definition"

    @contextmanager
    def ready(self) -> Iterator[None]:
        import pytest

        from tests.functions import reference

        with pytest.MonkeyPatch.context() as patch, cuteblas.backend("emulator"):
            reference.install(patch)
            yield


class OnGpu(Side):
    """CuPy arrays on the current device."""

    name = "cuda"
    on_gpu = True

    @contextmanager
    def ready(self) -> Iterator[None]:
        if reason := runtime.why_unavailable():
            raise RuntimeError(f"the backend cuda cannot work here: {reason}")
        yield

    def memory(self, content: np.ndarray) -> Any:
        import cupy

        return cupy.asarray(super().memory(content))

    def array(self, memory: Any, view: View) -> Any:
        import cupy

        if view.holder == "host":
            return np.zeros(view.shape, view.dtype)
        array = cupy.ndarray(view.shape, view.dtype, memory.data + (GUARD + view.offset),
                             view.strides)
        return cuteblas.ndarray(array) if view.holder == "ours" else array

    def bytes_of(self, memory: Any) -> np.ndarray:
        return memory.get()

    def address(self, memory: Any) -> int:
        return memory.data.ptr


class OnHost(OnGpu):
    """CuPy arrays in the memory of this process, and kernels by their definition: the way of calls
    on a GPU without one."""

    name = "host"

    @contextmanager
    def ready(self) -> Iterator[None]:
        import pytest

        from tests.functions import host_cupy, reference

        with pytest.MonkeyPatch.context() as patch, host_cupy.installed():
            reference.install(patch)
            yield

    def memory(self, content: np.ndarray) -> Any:
        return Side.memory(self, content)

    def array(self, memory: Any, view: View) -> Any:
        import cupy

        if view.holder == "host":
            return np.zeros(view.shape, view.dtype)
        owner = cupy.cuda.UnownedMemory(self.address(memory), memory.nbytes, memory, 0)
        array = cupy.ndarray(view.shape, view.dtype,
                             cupy.cuda.MemoryPointer(owner, GUARD + view.offset), view.strides)
        return cuteblas.ndarray(array) if view.holder == "ours" else array

    def bytes_of(self, memory: Any) -> np.ndarray:
        return memory.copy()

    def address(self, memory: Any) -> int:
        return Side.address(self, memory)


class ByWayOfTheGpu(Side):
    """NumPy arrays that move to the GPU."""

    name = "cuda-host"

    @contextmanager
    def ready(self) -> Iterator[None]:
        with cuteblas.backend("cuda"):
            yield


class Linked(Side):
    """The same without a GPU: its memory is this process's, its kernels are evaluated by their
    definition."""

    name = "linked"

    @contextmanager
    def ready(self) -> Iterator[None]:
        from tests.functions.host_link import linked

        with linked():
            yield


def side(backend: str) -> Side:
    """The side of a backend by its name."""
    return {"numpy": Side, "definition": Defined, "emulator": Emulated, "host": OnHost,
            "cuda": OnGpu, "linked": Linked, "cuda-host": ByWayOfTheGpu}[backend]()
