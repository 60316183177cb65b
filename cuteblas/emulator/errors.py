"""Errors in kernels that the emulator reports: one class for each kind of mistake."""

from __future__ import annotations

__all__ = [
    "AccumulatorError",
    "AsyncCopyError",
    "BarrierError",
    "CompilerError",
    "DataRace",
    "Deadlock",
    "DescriptorError",
    "EmulatorError",
    "GlobalOutOfBounds",
    "MbarrierError",
    "MisalignedAccess",
    "MisuseError",
    "ProxyFenceError",
    "ReadOnlyError",
    "SharedOutOfBounds",
    "TensorMapError",
    "UnsetRegister",
    "UnwrittenRead",
]


class EmulatorError(RuntimeError):
    """The base of all errors that the emulator reports."""


class CompilerError(EmulatorError):
    """There is no C++17 compiler, or it refused a kernel."""


class GlobalOutOfBounds(EmulatorError):
    """An access to global memory outside the argument that the pointer belongs to."""


class SharedOutOfBounds(EmulatorError):
    """An access to shared memory outside the block's allocation."""


class MisalignedAccess(EmulatorError):
    """An access whose address is not a multiple of its size."""


class ReadOnlyError(EmulatorError):
    """A write through a const pointer or into a read-only array."""


class UnwrittenRead(EmulatorError):
    """A read of shared memory that nothing has written."""


class UnsetRegister(EmulatorError):
    """A use of a register that nothing has set."""


class DataRace(EmulatorError):
    """Two accesses to the same memory, one a write, that no barrier orders, nor a flag if the threads are of different blocks."""


class AsyncCopyError(EmulatorError):
    """A use of shared memory that an asynchronous copy still fills."""


class ProxyFenceError(EmulatorError):
    """Ordinary and asynchronous accesses to the same shared memory without ``fence_proxy_async`` in between."""


class AccumulatorError(EmulatorError):
    """A use of wgmma accumulators that are still in flight, or a missing ``wgmma_fence``."""


class DescriptorError(EmulatorError):
    """A wgmma descriptor that does not describe its operand."""


class TensorMapError(EmulatorError):
    """A tensor map, or a TMA copy through one, that the hardware does not accept."""


class MbarrierError(EmulatorError):
    """A wrong use of an mbarrier: not initialised, too many arrivals, too many bytes."""


class BarrierError(EmulatorError):
    """A wrong use of a block barrier or a named barrier."""


class Deadlock(EmulatorError):
    """Every thread waits and nothing can wake one of them."""


class MisuseError(EmulatorError):
    """A use that the emulator does not cover."""


# In the order of cb::emulator::Error; 0 is success.
BY_CODE: tuple[type[EmulatorError], ...] = (
    EmulatorError,
    GlobalOutOfBounds,
    SharedOutOfBounds,
    MisalignedAccess,
    ReadOnlyError,
    UnwrittenRead,
    DataRace,
    AsyncCopyError,
    ProxyFenceError,
    AccumulatorError,
    DescriptorError,
    TensorMapError,
    MbarrierError,
    BarrierError,
    Deadlock,
    MisuseError,
    UnsetRegister,
)
