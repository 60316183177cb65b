"""Compiled kernels and how they are launched in the emulator."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.lib.array_utils import byte_bounds

from .._dtypes import DType
from .._forks import surviving
from ..codegen.intrinsics import INTRINSICS
from ..codegen.kernel import GeneratedKernel, Param, TensorMapSpec
from ..planning.plan import Argument, Plan
from .compiler import FOLDER, INTERVAL, build, show, watched
from .errors import BY_CODE, TensorMapError

_MESSAGE_CAPACITY = 1 << 16
_COUNT_CAPACITY = 4096
_WARP = 32
_RESIDENTS = 4              # clusters that run in turns where the order is shuffled
_ENDLESS_S = 10.0           # of processor time in which no thread waits or ends
# The compiler's checks call functions of these headers, which name the faulty line; its own library
# is not linked.
_FLAGS = ("-Og", "-g1", "-fsanitize=bounds,object-size,integer-divide-by-zero,shift-exponent",
          "-nodefaultlibs")
_PAUSED = -1             # what a launch returns instead of an error when it lets Python look around


@dataclass(frozen=True)
class Pointer:
    """A pointer argument and the memory that it may touch.

    Attributes
    ----------
    address : int
        What the kernel receives: the address of the first element, in bytes.
    base, nbytes : int
        The allocation: its first byte and its size.
    writable : bool
        Whether it may be written.
    owner : object
        Kept alive as long as the pointer.
    written : numpy.ndarray of uint8, optional
        A mark for each byte, 0 until a kernel writes it; a read before that is an error. By default
        every byte may be read.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> x = np.zeros(10, np.float32)
    >>> emulator.pointer(x).nbytes, emulator.pointer(x, writable=False).writable
    (40, False)
    """

    address: int
    base: int
    nbytes: int
    writable: bool = True
    owner: object = None
    written: np.ndarray | None = None

    def __add__(self, offset: int) -> Self:
        """Move the address ``offset`` bytes further on."""
        return replace(self, address=self.address + offset)


def pointer(array: np.ndarray, *, writable: bool | None = None) -> Pointer:
    """A pointer to the first element of an array; its bounds are those of the array's own elements.

    Parameters
    ----------
    array : numpy.ndarray
        Of any strides; negative ones are fine.
    writable : bool, optional
        Whether the kernel may write; by default whether NumPy may.

    Returns
    -------
    Pointer
        The argument of a launch.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> x = np.zeros(10, np.float32)
    >>> emulator.pointer(x).nbytes, emulator.pointer(x, writable=False).writable
    (40, False)
    """
    low, high = byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
    return Pointer(array.ctypes.data, low, high - low,
                   array.flags.writeable if writable is None else writable, array)


@dataclass(frozen=True)
class Table(Pointer):
    """A pointer to words that hold addresses, through which a kernel reaches further memory.

    Attributes
    ----------
    address, base, nbytes, writable, owner, written
        As of :class:`Pointer`.
    targets : tuple of Pointer
        The memory that words point into.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> x = np.zeros(2, np.int64)
    >>> p = emulator.pointer(x)
    >>> emulator.Table(p.address, p.base, p.nbytes, targets=(emulator.pointer(np.zeros(4)),)).nbytes
    16
    """

    targets: tuple[Pointer, ...] = ()


@dataclass(frozen=True)
class AccessCount:
    """How much one access of a kernel costs.

    Attributes
    ----------
    line : int
        Line of the kernel's body.
    space : str
        ``"global"`` or ``"shared"``.
    write : bool
        Whether it writes.
    bytes : int
        Bytes per thread.
    requests : int
        How often a warp executed it.
    transactions : int
        32-byte sectors of global memory, wavefronts of shared memory.
    ideal : int
        The fewest transactions that could have moved as many different bytes.
        ``transactions / ideal`` is 1 without bank conflicts and with whole sectors.
    partial : int
        Written sectors of which a request leaves bytes out. They cost the L2 cache as much as whole
        sectors.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, D = Tensor(k.pointer("S", "int32"), Layout(32)), Tensor(k.pointer("D", "int32", const=False), Layout(32))
    >>> r = k.registers("r", "int32", Layout(1))
    >>> k.do("load_global", r(0), S(31 - k.thread), of=1)
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    >>> counts = emulator.compile(k.build()).launch((1,), [emulator.pointer(x), emulator.pointer(y)], count=True)
    >>> [(count.write, count.transactions, count.ideal) for count in counts]
    [(False, 4, 4), (True, 4, 4)]
    """

    line: int
    space: str
    write: bool
    bytes: int
    requests: int
    transactions: int
    ideal: int
    partial: int


class _Extent3(Structure):
    _fields_ = [(name, c_uint) for name in "xyz"]


class _Coordinates(Structure):
    _fields_ = [(name, c_void_p) for name in ("thread", "block", "block_extent", "grid")]


class _Window(Structure):
    _fields_ = [("name", c_char_p), ("address", c_uint64), ("low", c_uint64), ("high", c_uint64),
                ("writable", c_int), ("written", c_void_p)]


class _AccessCount(Structure):
    _fields_ = [("line", c_int), ("bytes", c_int), ("shared", c_int), ("write", c_int),
                ("requests", c_uint64), ("transactions", c_uint64), ("ideal", c_uint64),
                ("partial", c_uint64)]


class _Launch(Structure):
    _fields_ = [("kernel", c_char_p), ("library", c_char_p), ("entry", c_void_p),
                ("coordinates", _Coordinates), ("arguments", c_void_p),
                ("windows", POINTER(_Window)), ("window_count", c_int), ("threads", c_int),
                ("shared_bytes", c_int), ("grid", _Extent3), ("cluster", _Extent3),
                ("clusters", POINTER(c_uint64)), ("cluster_count", c_uint64), ("residents", c_int),
                ("shuffled", c_int), ("seed", c_uint64), ("counting", c_int), ("slice", c_double),
                ("endless", c_double), ("finished", c_uint64), ("total", c_uint64),
                ("message", c_char_p), ("message_capacity", c_int), ("error_line", c_int),
                ("counts", POINTER(_AccessCount)), ("count_capacity", c_int), ("count_size", c_int)]


# The runtime keeps the running block in one place, so launches take turns.
_turn = surviving(threading.Lock())


@cache
def _runtime() -> ctypes.CDLL:
    """The library that runs blocks, compiled once per machine."""
    headers = tuple(sorted(path.name for path in FOLDER.glob("*.h")))
    library = build((FOLDER / "runtime.cpp").read_text("utf-8"),
                    "the emulator's runtime, once for this machine", headers=headers)
    library.cuteblas_runtime_table.restype = c_void_p
    library.cuteblas_launch.argtypes = [POINTER(_Launch)]
    library.cuteblas_continue.argtypes = []
    library.cuteblas_translate.argtypes = [POINTER(_Launch), c_uint]
    library.cuteblas_translate.restype = c_uint64
    return library


def compile(kernel: GeneratedKernel) -> EmulatedKernel:
    """Compile a kernel for the emulator, once for each source; the cache on disk keeps it.

    Parameters
    ----------
    kernel : GeneratedKernel
        The kernel.

    Returns
    -------
    EmulatedKernel
        The compiled kernel, ready to launch.

    Raises
    ------
    CompilerError
        If there is no compiler, or if it refuses the kernel.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, D = Tensor(k.pointer("S", "int32"), Layout(32)), Tensor(k.pointer("D", "int32", const=False), Layout(32))
    >>> r = k.registers("r", "int32", Layout(1))
    >>> k.do("load_global", r(0), S(31 - k.thread), of=1)
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    >>> compiled = emulator.compile(k.build())
    >>> compiled.launch((1,), [emulator.pointer(x), emulator.pointer(y)])
    ()
    >>> y[:4]
    array([31, 30, 29, 28], dtype=int32)
    """
    return _compile(kernel)


@cache
def _compile(kernel: GeneratedKernel) -> EmulatedKernel:
    name, marked = kernel.name, kernel.body
    arguments = ", ".join(f"*static_cast<{_ctype(p)}*>(a[{i}])"
                          for i, p in enumerate(kernel.params))
    for declaration, registers_name in kernel.registers:
        marked = marked.replace(declaration, f"{declaration} cb::unset({registers_name});")
    includes = {f'#include "{row.emulator}"\n' for row in INTRINSICS.values()
                if f"cb::{row.name}" in kernel.body}
    source = (
        f'#include "device.h"\n{"".join(sorted(includes))}#line 1 "{name}"\n{marked}\n#line 1 "arguments of {name}"\n'
        f'extern "C" __attribute__((visibility("default"))) void cuteblas_entry(void* const* a) {{ {name}({arguments}); }}\n'
    )
    library = build(source, f"kernel {name}", flags=_FLAGS)
    coordinates = _Coordinates()
    library.cuteblas_bind.argtypes = [c_void_p, POINTER(_Coordinates)]
    library.cuteblas_bind(_runtime().cuteblas_runtime_table(), ctypes.byref(coordinates))
    return EmulatedKernel(name, kernel.body, kernel.params, kernel.threads, kernel.shared_bytes,
                          kernel.cluster, library, coordinates)


def _run(library: ctypes.CDLL, launch: _Launch, name: str) -> int:
    """Run a launch in slices of time, between which Python shows progress and handles signals."""
    with watched():
        code = library.cuteblas_launch(ctypes.byref(launch))
        while code == _PAUSED:
            share = f", {launch.finished} of {launch.total} blocks done" if launch.total > 1 else ""
            show(f"emulating kernel {name}{share}")
            code = library.cuteblas_continue()
    return code


def _ctype(param: Param) -> str:
    if param.kind == "tensor_map":
        return "cb::TensorMap const"
    if param.kind == "pointer":
        return f"{param.dtype.ctype}{' const' if param.const else ''}* const"
    return f"{param.dtype.ctype} const"


@dataclass(frozen=True, eq=False)
class EmulatedKernel:
    """A kernel compiled for the host.

    Attributes
    ----------
    name, body, params, threads, shared_bytes, cluster
        Those of the :class:`~cuteblas.codegen.kernel.GeneratedKernel`.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, D = Tensor(k.pointer("S", "int32"), Layout(32)), Tensor(k.pointer("D", "int32", const=False), Layout(32))
    >>> r = k.registers("r", "int32", Layout(1))
    >>> k.do("load_global", r(0), S(31 - k.thread), of=1)
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    >>> compiled = emulator.compile(k.build())
    >>> compiled.launch((1,), [emulator.pointer(x), emulator.pointer(y)])
    ()
    >>> y[:4]
    array([31, 30, 29, 28], dtype=int32)
    """

    name: str
    body: str
    params: tuple[Param, ...]
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int]
    _library: ctypes.CDLL
    _coordinates: _Coordinates

    def launch(self, grid: Sequence[int], args: Sequence[Any], *, seed: int | None = None,
               residents: int | None = None, blocks: Iterable[int | tuple[int, ...]] | None = None,
               count: bool = False) -> tuple[AccessCount, ...]:
        """Run the kernel.

        Parameters
        ----------
        grid : sequence of int
            Blocks along x, y, z.
        args : sequence
            One for each parameter: a :class:`Pointer` for a pointer, a number for a scalar, a pair
            (:class:`~cuteblas.codegen.kernel.TensorMapSpec`, :class:`Pointer`) for a tensor map.
        seed : int, optional
            Shuffles the order of threads and blocks; by default they take turns.
        residents : int, optional
            How many clusters of blocks run in turns; by default one, with a ``seed`` four. More
            begin when these wait for flags.
        blocks : iterable of int or tuple of int, optional
            Which blocks to run, in this order, by linear index or coordinates; by default all.
            Those of a cluster run together.
        count : bool
            Count the transactions of each access (slow).

        Returns
        -------
        tuple of AccessCount
            With ``count``, in order of the lines; else empty.

        Raises
        ------
        EmulatorError
            The subclass says what is wrong; the message names the kernel, block, thread and line.
        TypeError, ValueError, OverflowError
            If the arguments do not fit the parameters.
        """
        extents = tuple(grid) + (1,) * (3 - len(grid))
        if len(extents) != 3 or min(extents) < 1:
            raise ValueError(f"a grid has up to three positive extents, got {tuple(grid)}")
        if len(args) != len(self.params):
            raise TypeError(
                f"kernel {self.name} takes {len(self.params)} arguments, got {len(args)}"
            )
        if any(n % width for n, width in zip(extents, self.cluster, strict=True)):
            raise ValueError(
                f"the clusters of kernel {self.name}, {self.cluster} blocks each, do not divide a grid of {extents}"
            )
        if self.cluster != (1, 1, 1) and self.threads % _WARP:
            raise ValueError(
                f"a block of a cluster consists of whole warps in the emulator, got {self.threads} threads"
            )
        windows: list[_Window] = []
        tables: list[_TranslatedTable] = []
        values = [self._encode(param, arg, windows, tables)
                  for param, arg in zip(self.params, args, strict=True)]
        message = ctypes.create_string_buffer(_MESSAGE_CAPACITY)
        counts = (_AccessCount * (_COUNT_CAPACITY if count else 1))()
        launch = _Launch(
            kernel=self.name.encode(), library=os.fsencode(getattr(self._library, "kept", "")),
            entry=ctypes.cast(self._library.cuteblas_entry, c_void_p).value,
            coordinates=self._coordinates, windows=(_Window * max(len(windows), 1))(*windows),
            window_count=len(windows), threads=self.threads, shared_bytes=self.shared_bytes,
            grid=_Extent3(*extents), cluster=_Extent3(*self.cluster),
            residents=residents or (1 if seed is None else _RESIDENTS), shuffled=seed is not None,
            seed=(seed or 0) % 2**64, counting=count, slice=INTERVAL, endless=_ENDLESS_S,
            message=ctypes.addressof(message), message_capacity=_MESSAGE_CAPACITY,
            counts=counts, count_capacity=_COUNT_CAPACITY
        )
        if blocks is not None:
            indices = list(dict.fromkeys(self._cluster_of(block, extents) for block in blocks))
            launch.clusters = (c_uint64 * max(len(indices), 1))(*indices)
            launch.cluster_count = len(indices)
        library = _runtime()
        with _turn:
            seen = partial(library.cuteblas_translate, ctypes.byref(launch))
            for table in tables:
                table.translate(seen)
            storage = [_aligned(value if isinstance(value, bytes)
                                else seen(value).to_bytes(8, "little")) for value in values]
            addresses = (c_void_p * max(len(storage), 1))(*(address for address, _ in storage))
            launch.arguments = ctypes.addressof(addresses)
            code = _run(library, launch, self.name)
        if code:
            raise BY_CODE[code](message.value.decode() + self._quote(launch.error_line))
        return tuple(AccessCount(c.line, "shared" if c.shared else "global", bool(c.write), c.bytes,
                                 c.requests, c.transactions, c.ideal, c.partial)
                     for c in counts[:launch.count_size])

    def _encode(self, param: Param, arg: Any, windows: list[_Window],
                tables: list[_TranslatedTable]) -> bytes | int:
        """The bytes of an argument, or for a pointer the index of its window."""
        if param.kind == "scalar":
            return _scalar_bytes(param.dtype, arg)
        spec, memory = arg if param.kind == "tensor_map" else (None, arg)
        if not isinstance(memory, Pointer):
            raise TypeError(
                f"argument {param.name!r} of kernel {self.name} is a pointer; pass emulator.pointer(array), "
                f"not {type(memory).__name__}"
            )
        if isinstance(memory, Table):
            tables.append(_TranslatedTable(memory, windows))
            memory = tables[-1].pointer
        windows.append(_Window(param.name.encode(), memory.address, memory.base,
                               memory.base + memory.nbytes,
                               memory.writable and not (param.kind == "pointer" and param.const),
                               None if memory.written is None else memory.written.ctypes.data))
        if spec is None:
            return len(windows) - 1
        return _tensor_map_bytes(spec, memory, len(windows) - 1, param.name)

    def _cluster_of(self, block: int | tuple[int, ...], grid: tuple[int, ...]) -> int:
        try:
            at = (block + (0,) * (3 - len(block)) if isinstance(block, tuple)
                  else np.unravel_index(block, grid, order="F"))
            return int(np.ravel_multi_index(np.floor_divide(at, self.cluster),
                                            np.floor_divide(grid, self.cluster), order="F"))
        except ValueError:
            raise ValueError(f"block {block} is not in a grid of {grid}") from None

    def _quote(self, line: int) -> str:
        lines = self.body.splitlines()
        return f"\n    {line}: {lines[line - 1].strip()}" if 0 < line <= len(lines) else ""


class _TranslatedTable:
    """A copy of a table whose addresses are those that kernels see."""

    def __init__(self, table: Table, windows: list[_Window]):
        self._address, self._owner = _aligned(ctypes.string_at(table.base, table.nbytes))
        self.pointer = Pointer(self._address + table.address - table.base, self._address,
                               table.nbytes, writable=False)
        self._words = table.nbytes // 8
        self._exact: dict[int, int] = {}
        self._windows: dict[int, _Window] = {}
        for target in table.targets:
            high = target.base + target.nbytes
            number = self._exact.setdefault(target.address, len(windows))
            if number == len(windows):
                name = f"array {len(self._exact) - 1} of the table"
                windows.append(_Window(name.encode(), target.address, target.base, high,
                                       target.writable))
                self._windows[number] = windows[-1]
            else:                   # two views that begin at one address: they reach what both hold
                known = windows[number]
                known.low, known.high = min(known.low, target.base), max(known.high, high)
                known.writable = known.writable or target.writable

    def translate(self, seen: Callable[[int], int]) -> None:
        """Replace addresses, once all windows are known."""
        words = (c_uint64 * self._words).from_address(self._address)
        lowest = min((window.low for window in self._windows.values()), default=0)
        end = max((window.high for window in self._windows.values()), default=0)
        for i, word in enumerate(words):
            if word in self._exact:
                words[i] = seen(self._exact[word])
            elif lowest <= word < end:        # an address within an array: of one matrix of a batch
                number = next((n for n, w in self._windows.items() if w.low <= word < w.high), None)
                if number is not None:
                    words[i] = seen(number) + word - self._windows[number].address


def _aligned(value: bytes) -> tuple[int, object]:
    """A copy of the bytes at an address that is a multiple of 64, and what owns it."""
    buffer = ctypes.create_string_buffer(len(value) + 64)
    address = -(-ctypes.addressof(buffer) // 64) * 64
    ctypes.memmove(address, value, len(value))
    return address, buffer


def _scalar_bytes(dtype: DType, value: Any) -> bytes:
    return int(value).to_bytes(dtype.bytes, "little") if dtype.kind == "V" else np.array(value, dtype.numpy).tobytes()


def _tensor_map_bytes(spec: TensorMapSpec, memory: Pointer, window: int, name: str) -> bytes:
    """The emulator's encoding of a tensor map (``TensorMapContent`` in interface.h)."""
    if memory.address % 16:
        raise TensorMapError(
            f"tensor map {name!r} begins at an address that is not a multiple of 16"
        )
    strides = (spec.dtype.bytes, *spec.strides)
    span = sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True)) + spec.dtype.bytes
    if memory.address < memory.base or memory.address + span > memory.base + memory.nbytes:
        raise TensorMapError(
            f"tensor map {name!r} of shape {spec.shape} and strides {spec.strides} spans {span} bytes, but its "
            f"memory ends {memory.base + memory.nbytes - memory.address} bytes after its first element"
        )
    rank = len(spec.shape)
    fill = (0,) * (5 - rank)
    return struct.pack("<IHBBq5Q4Q5HB", window, spec.dtype.bytes, rank, spec.swizzle,
                       memory.address, *spec.shape, *fill, *spec.strides, *fill, *spec.box, *fill,
                       spec.dtype.tensor_map == "TFLOAT32").ljust(128, b"\0")


# -- plans -----------------------------------------------------------------------------------------
# What a device allocation is aligned to at least.
_WORKSPACE_ALIGNMENT = 256


def run(plan: Plan, operands: Mapping[str, np.ndarray], alpha: Any = 1, beta: Any = 0, *,
        numbers: Mapping[str, Any] | None = None, reached: Iterable[np.ndarray] = (),
        seed: int | None = None) -> None:
    """Execute every launch of a plan on NumPy arrays, in order.

    Parameters
    ----------
    plan : Plan
        The plan; its problem must describe the arrays' strides and alignments.
    operands : mapping of str to numpy.ndarray
        The array of each role that the plan takes as an address (``plan.problem.roles``). A kernel
        gets the address of its first element.
    alpha, beta : number
        The values of those roles, unless they are among the operands.
    numbers : mapping of str to number, optional
        The numbers of an epilogue, by role.
    reached : iterable of numpy.ndarray
        Arrays that a plan for many problems reaches through the addresses in its ``table``.
    seed : int, optional
        Shuffles the order in which threads run.

    Returns
    -------
    None
        Results are written into the operands.

    Raises
    ------
    EmulatorError
        If a kernel does something wrong.
    KeyError
        If the plan names an operand that is not there.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
    >>> plan = plan_gemm(GemmProblem(8, 8, 8, *[Operand("float32", (8, 1))] * 3), H200)
    >>> a, b, c = np.eye(8, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)
    >>> emulator.run(plan, {"a": a, "b": b, "c": c})
    >>> np.array_equal(c, a @ b.T)
    True
    """
    memory = {role: pointer(array) for role, array in operands.items()}
    if targets := tuple(map(pointer, reached)):
        table = memory["table"]
        memory["table"] = Table(table.address, table.base, table.nbytes, False, table.owner,
                                targets=targets)
    memory["workspace"] = _workspace(plan.workspace_bytes)
    scalars = {"alpha": alpha, "beta": beta, **(numbers or {})}

    def value(argument: Argument) -> Any:
        if argument.role is None:
            return argument.value
        if argument.role not in memory:
            return scalars[argument.role]
        where = memory[argument.role] + argument.offset
        return where if argument.tensor_map is None else (argument.tensor_map, where)

    with watched():
        for launch in plan.launches:
            compile(launch.kernel).launch(launch.grid,
                                          [value(argument) for argument in launch.arguments],
                                          seed=seed)


def _workspace(nbytes: int) -> Pointer:
    """Scratch memory of ones bits (NaNs), so that kernels read only what they have written."""
    storage = np.full(nbytes + _WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    start = -storage.ctypes.data % _WORKSPACE_ALIGNMENT
    return replace(pointer(storage[start:start + nbytes], writable=True),
                   written=np.zeros(nbytes, np.uint8))
