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
    "RegisterOutOfBounds",
    "SharedOutOfBounds",
    "TensorMapError",
    "UnsetRegister",
    "UnwrittenRead",
]


class EmulatorError(RuntimeError):
    """The base of all errors that the emulator reports.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> s, r = k.shared("s", "int32", Layout(32)), k.registers("r", "int32", Layout(1))
    >>> k.do("load_shared", r(0), s(k.thread), of=1)
    >>> try:
    ...     emulator.compile(k.build()).launch((1,), [])
    ... except emulator.EmulatorError as error:
    ...     type(error).__name__
    'UnwrittenRead'
    """


class CompilerError(EmulatorError):
    """There is no C++17 compiler, or it refused a kernel.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.kernel import GeneratedKernel
    >>> emulator.compile(GeneratedKernel("example", "no C++", (), threads=32))
    Traceback (most recent call last):
    cuteblas.emulator.errors.CompilerError: the C++ compiler refuses kernel ...
    """


class GlobalOutOfBounds(EmulatorError):
    """An access to global memory outside the argument that the pointer belongs to.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> D, r = Tensor(k.pointer("D", "int32", const=False), Layout(64)), k.registers("r", "int32", Layout(1))
    >>> k.fill(r)
    >>> k.do("store_global", D(k.thread + 1), r(0), of=1)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.GlobalOutOfBounds: kernel example, block (0, 0, 0), thread 31, line ...: writes 4 bytes at byte ...
    """


class SharedOutOfBounds(EmulatorError):
    """An access to shared memory outside the block's allocation.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> s, r = k.shared("s", "int32", Layout(32)), k.registers("r", "int32", Layout(1))
    >>> k.fill(r)
    >>> k.do("store_shared", s(k.thread + 1), r(0), of=1)
    >>> emulator.compile(k.build()).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.SharedOutOfBounds: kernel example, block (0, 0, 0), thread 31, line ...: writes 4 bytes at ...
    """


class MisalignedAccess(EmulatorError):
    """An access whose address is not a multiple of its size.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S, r = Tensor(k.pointer("S", "int32"), Layout(64)), k.registers("r", "int32", Layout(4))
    >>> k.do("load_global", r(0), S(1), of=4)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.MisalignedAccess: kernel example, block (0, 0, 0), thread 0, line ...: reads 16 bytes at byte ...
    """


class ReadOnlyError(EmulatorError):
    """A write through a const pointer or into a read-only array.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> D, r = Tensor(k.pointer("D", "int32", const=False), Layout(64)), k.registers("r", "int32", Layout(1))
    >>> k.fill(r)
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x, writable=False)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.ReadOnlyError: kernel example, block (0, 0, 0), thread 0, line ...: writes 4 bytes through ...
    """


class UnwrittenRead(EmulatorError):
    """A read of shared memory, or of a plan's workspace, that nothing has written.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> s, r = k.shared("s", "int32", Layout(32)), k.registers("r", "int32", Layout(1))
    >>> k.do("load_shared", r(0), s(k.thread), of=1)
    >>> emulator.compile(k.build()).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.UnwrittenRead: kernel example, block (0, 0, 0), thread 0, line ...: reads shared bytes [0, 4), ...
    """


class RegisterOutOfBounds(EmulatorError):
    """An index, or an access, past the end of an array in registers.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.kernel import GeneratedKernel
    >>> body = 'extern "C" __global__ void example() { int r[4]; cb::load_shared<2>(&r[3], cb::shared_memory<int>(0)); }'
    >>> emulator.compile(GeneratedKernel("example", body, (), threads=32)).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.RegisterOutOfBounds: kernel example, block (0, 0, 0), thread 0, line 1: uses 8 bytes of registers, ...
    """


class UnsetRegister(EmulatorError):
    """A use of a register that nothing has set.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> D, r = Tensor(k.pointer("D", "int32", const=False), Layout(64)), k.registers("r", "int32", Layout(1))
    >>> k.do("store_global", D(k.thread), r(0), of=1)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.UnsetRegister: kernel example, block (0, 0, 0), thread 0, line ...: uses a register that ...
    """


class DataRace(EmulatorError):
    """Two accesses to the same memory, one a write, that no barrier orders; between blocks, that no
    flag orders.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> D, r = Tensor(k.pointer("D", "int32", const=False), Layout(64)), k.registers("r", "int32", Layout(1))
    >>> k.fill(r)
    >>> k.do("store_global", D(0), r(0), of=1)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.DataRace: kernel example, block (0, 0, 0), thread 1, line ...: writes bytes [0, 4) of argument ...
    """


class AsyncCopyError(EmulatorError):
    """A use of shared memory that an asynchronous copy still fills.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> S = Tensor(k.pointer("S", "int32"), Layout(32))
    >>> s, r = k.shared("s", "int32", Layout(32)), k.registers("r", "int32", Layout(1))
    >>> k.do("cp_async", s(k.thread), S(k.thread), True, of=1)
    >>> k.do("load_shared", r(0), s(k.thread), of=1)
    >>> x = np.zeros(32, np.int32)
    >>> emulator.compile(k.build()).launch((1,), [emulator.pointer(x)])
    Traceback (most recent call last):
    cuteblas.emulator.errors.AsyncCopyError: kernel example, block (0, 0, 0), thread 0, line ...: reads shared bytes [0, 4) ...
    """


class ProxyFenceError(EmulatorError):
    """Ordinary and asynchronous accesses to the same shared memory without ``fence_proxy_async`` in
    between.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas._dtypes import dtype
    >>> from cuteblas.codegen.tma import TmaBox, TmaStore
    >>> from cuteblas.layout import ComposedLayout, Layout, Swizzle, make_identity_tensor
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> box = TmaBox("int32", ComposedLayout(Swizzle(0, 0, 0), 0, Layout((32, 1))))
    >>> s, r = k.shared("s", "int32", box.layout), k.registers("r", "int32", Layout(1))
    >>> k.fill(r)
    >>> k.do("store_shared", s(k.thread, 0), r(0), of=1)
    >>> k.barrier()
    >>> with k.when(k.thread.eq(0)):
    ...     k.copy(TmaStore(k.tensor_map("map"), box), s, make_identity_tensor((32, 1)))
    >>> x = np.zeros((1, 32), np.int32)
    >>> emulator.compile(k.build()).launch((1,), [(box.map((32, 1), (1, 32)), emulator.pointer(x))])
    Traceback (most recent call last):
    cuteblas.emulator.errors.ProxyFenceError: kernel example, block (0, 0, 0), thread 0, line ...: the TMA store reads ...
    """


class AccumulatorError(EmulatorError):
    """A use of wgmma accumulators that are still in flight, or a missing ``wgmma_fence``.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.kernel import GeneratedKernel
    >>> body = 'extern "C" __global__ void __launch_bounds__(128) example() {'
    >>> body += "cb::half* s = cb::shared_memory<cb::half>(0); cb::half zero = {0}; float d[4] = {0, 0, 0, 0};"
    >>> body += "for (int i = threadIdx.x; i < 4096; i += 128) cb::store_shared<1>(&s[i], &zero);"
    >>> body += "cb::fence_proxy_async(); cb::syncthreads(); unsigned long long a = cb::wgmma_descriptor(s, 128, 256, 0);"
    >>> body += "cb::wgmma_m64k16<8, cb::half, 0, 0>(d, a, a, 1); }"
    >>> emulator.compile(GeneratedKernel("example", body, (), threads=128, shared_bytes=8192)).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.AccumulatorError: kernel example, block (0, 0, 0), thread 127, line ...: thread 0 issues a ...
    """


class DescriptorError(EmulatorError):
    """A wgmma descriptor that does not describe its operand.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.kernel import GeneratedKernel
    >>> head = 'extern "C" __global__ void __launch_bounds__(128) example() { '
    >>> multiply = "float d[4] = {0, 0, 0, 0}; cb::wgmma_m64k16<8, cb::half, 0, 0>(d, 0, 0, 1); }"
    >>> kernel = GeneratedKernel("example", head + multiply, (), threads=128, shared_bytes=8192)
    >>> emulator.compile(kernel).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.DescriptorError: kernel example, block (0, 0, 0), thread 127, line ...: operand A (start 0, ...
    """


class TensorMapError(EmulatorError):
    """A tensor map, or a TMA copy through one, that the hardware does not accept.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas._dtypes import dtype
    >>> from cuteblas.codegen.kernel import TensorMapSpec
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> name = k.tensor_map("map")
    >>> spec, x = TensorMapSpec(dtype("float16"), (64, 33), (128,), (16, 16)), np.zeros((32, 64), np.float16)
    >>> emulator.compile(k.build()).launch((1,), [(spec, emulator.pointer(x))])
    Traceback (most recent call last):
    cuteblas.emulator.errors.TensorMapError: tensor map 'map' of shape (64, 33) and strides (128,) spans 4224 bytes, but its ...
    """


class MbarrierError(EmulatorError):
    """A wrong use of an mbarrier: not initialised, too many arrivals, too many bytes.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.mbarrier import Mbarriers
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> came = Mbarriers(k, "came", 1, arrivals=1)
    >>> came.expect(0, 512)
    >>> emulator.compile(k.build()).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.MbarrierError: kernel example, block (0, 0, 0), thread 0, line ...: arrives at the mbarrier at ...
    """


class BarrierError(EmulatorError):
    """A wrong use of a block barrier or a named barrier.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> k = KernelBuilder("example", threads=32)
    >>> k.group_barrier(1, 48)
    >>> emulator.compile(k.build()).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.BarrierError: kernel example, block (0, 0, 0), thread 0, line ...: a named barrier counts whole ...
    """


class Deadlock(EmulatorError):
    """Every thread waits and nothing can wake one of them, or a thread runs for ever.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.layout import Layout, Tensor
    >>> from cuteblas.codegen.mbarrier import Mbarriers, initialise
    >>> k = KernelBuilder("example", threads=32, arch="sm_90")
    >>> came = Mbarriers(k, "came", 1, arrivals=1)
    >>> with k.when(k.thread.eq(0)):
    ...     initialise(k, came)
    >>> k.barrier()
    >>> k.do("mbarrier_wait", came.at(0), 0)
    >>> emulator.compile(k.build()).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.Deadlock: kernel example, block (0, 0, 0): deadlock: every thread ...
    """


class MisuseError(EmulatorError):
    """An instruction that the emulator does not support in this way.

    Examples
    --------
    >>> from cuteblas import emulator
    >>> from cuteblas.codegen.kernel import GeneratedKernel
    >>> head = 'extern "C" __global__ void __launch_bounds__(32) example() { '
    >>> multiply = "float d[4] = {0, 0, 0, 0}; cb::wgmma_m64k16<8, cb::half, 0, 0>(d, 0, 0, 1); }"
    >>> kernel = GeneratedKernel("example", head + multiply, (), threads=32, shared_bytes=8192)
    >>> emulator.compile(kernel).launch((1,), [])
    Traceback (most recent call last):
    cuteblas.emulator.errors.MisuseError: kernel example, block (0, 0, 0), thread 0, line ...: a wgmma needs a whole ...
    """


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
    RegisterOutOfBounds,
)
