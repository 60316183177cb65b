"""NumPy arrays on the GPU: operands move there, CuPy's engine takes the steps, results move back.

NumPy's shapes, types and errors are settled before; operands keep their order, without gaps, so
that kernels read transposed views in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple

import cupy
import numpy as np

from .._forks import forget_in_children, surviving, use_cuda
from ..emulator.compiler import build
from ..emulator.errors import CompilerError
from ..planning.cost.hosts import HostCosts
from ..runtime.link import Link
from ..runtime.mover import BUILT, HASHED_BYTES, SOURCE, Mover
from ..runtime.ring import Ring
from ..runtime.tracking import Hashes, Untracked, Watch
from .counters import tally
from .cuda import CUDA, current_device, spare_memory, wait_from_now_on
from .emulator import HOST_CUDA
from .execution import Execution
from .keeping import Keeper, is_large, noted
from .memory import Memory, array_at, contiguous_strides
from .reuse import empty_array
from .settings import hashes_arrays, keeps_arrays

__all__ = ["FEW_BYTES", "Crossing", "carry", "compact", "crossing", "current_home", "current_ring",
           "free_bytes", "keep_soon", "native", "straight"]

_WORTH_ASKING = 1 << 18                 # bytes of memory that may be pinned
FEW_BYTES = HostCosts.few_bytes

_PINNED_STEP = 1 << 21                # bytes after which memory is asked again whether it is pinned
_KEPT_SHARE = 0.5                     # of the device's free memory, for copies of arrays

_lock = surviving(RLock())              # of the rings
_rings: dict[int, Ring | Mover] = {}
# of the parent process: to free their memory would be a call of its driver
_orphans: list[Any] = []


def current_ring() -> Ring | Mover:
    """The slots and threads of the current device, which stay."""
    ordinal = current_device()
    with _lock:
        if ordinal not in _rings:
            use_cuda()
            link = Link(ordinal)
            with link.nearby():
                _rings[ordinal] = new_ring(link)
        return _rings[ordinal]


def new_ring(link: Any, **sizes: int) -> Ring | Mover:
    """Slots and threads: those that a C++ compiler makes, or Python's, which is counted."""
    try:
        return Mover(link, build(SOURCE.read_text("utf-8"), **BUILT), **sizes)
    except CompilerError as error:
        tally("threads", "moved", f"by Python's threads: {error}").tick()
        return Ring(link, **sizes)


def _forget() -> None:
    _orphans.extend((*_rings.values(), *_homes.values()))
    _rings.clear()
    _homes.clear()


forget_in_children(_forget)


class _Home:
    """A device as its keeper sees it: the way that is under way moves what is kept."""

    def __init__(self, link: Any):
        self.link = link
        self.way: Any = None
        self.staging = link.pinned(3 * FEW_BYTES)       # of two operands and a result
        self.staged = self.staging.ctypes.data
        self.keeper = Keeper(self, int(_KEPT_SHARE * link.free_bytes()) if keeps_arrays() else 0,
                             self.watch)

    def allocate(self, nbytes: int) -> Any:
        return cupy.cuda.alloc(nbytes)

    def watch(self, low: int, high: int) -> Any:
        try:
            if hashes_arrays():
                raise Untracked("CUTEBLAS_KEEP_ARRAYS=hash")
            return Watch(low, high)
        except Untracked as why:
            if isinstance(self.way.ring, Ring):
                raise Untracked(f"{why}; hashes need a C++ compiler") from None
        return Hashes(low, high, self.way.ring.hashes, HASHED_BYTES)

    def upload(self, memory: Any, offset: int, low: int, high: int,
               hashes: np.ndarray | None) -> None:
        self.way.begun.append(memory)
        self.way.send(bytes_at(low, high - low), memory + offset, hashes)

    def pinned(self, low: int, high: int) -> bool:
        """Whether some of this memory of the host is pinned."""
        return any(map(self.link.is_pinned, (*range(low, high, _PINNED_STEP), high - 1)))


_homes: dict[Any, _Home] = {}           # by the device's link


class _Image(NamedTuple):
    """An operand on the device: the bytes of a host region, ``low`` to ``high``, or ``packed``
    elements. ``first`` bytes are before the first element; ``key`` is equal for equal packed
    elements."""

    nbytes: int
    strides: tuple[int, ...]
    first: int = 0
    low: int = 0
    high: int = 0
    packed: np.ndarray | None = None
    key: tuple[Any, ...] = ()


def _image(x: np.ndarray) -> _Image:
    """An array's layout on the device: as on the host without gaps, broadcast axes kept."""
    memory = HOST_CUDA.memory(x)
    low, high = memory.span
    if not x.size:
        return _Image(0, x.strides)
    own = x[(*(slice(None, None, -1) if s < 0 else slice(None if s else 1)
               for s in x.strides), ...)]
    if high - low <= own.nbytes and x.dtype.isnative:
        return _Image(high - low, x.strides, -low, memory.address + low, memory.address + high)
    steps = compact(own).strides
    axes = sorted(range(x.ndim), key=lambda axis: -steps[axis])
    strides = tuple(-t if s < 0 else s and t for s, t in zip(x.strides, steps, strict=True))
    modes = tuple((own.strides[axis], n) for axis in axes if (n := own.shape[axis]) > 1)
    return _Image(own.nbytes, strides, -Memory(x.shape, strides, x.dtype).span[0],
                  packed=own.transpose(axes), key=(memory.address + low, modes, x.dtype.str))


def bytes_at(address: int, nbytes: int) -> np.ndarray:
    """A region of the host as an array of bytes; the caller keeps its owner alive."""
    return array_at(address, (nbytes,), (1,), "|u1")


class Crossing:
    """One call's way to the GPU and back, made by :func:`crossing`: ``streams`` if other arrays
    follow soon, ``inner`` if a signal handler calls during another way."""

    def __init__(self, ring: Ring | Mover, keeper: Keeper, inner: bool = False):
        self.ring, self.streams, self.keeper, self.inner = ring, False, keeper, inner
        self.kind: Any = None                           # of its results
        self._noted: set[tuple[int, int]] = set()       # operands that were looked for
        # the addresses of those that have a copy, and what an address is there
        self._found: list[tuple[int, int, Any, int]] = []
        self.begun: list[Any] = []              # copies that it moves something to
        self.uploads: list[Any] = []
        self.downloads: list[Any] = []
        self._pairs: list[tuple[np.ndarray, Any]] = []          # of operands that were moved
        self._targets: list[tuple[np.ndarray, Any]] = []        # and of results
        self._kept: list[Any] = []
        self.bytes_down = 0
        self._direct = False                        # whether the driver writes into an array itself

    # -- to the device -----------------------------------------------------------------------------
    def bring(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Arrays on the device for kernels launched from now on; shared memory moves once."""
        kept = [self.kept(x) for x in arrays]
        moved = iter(self.begin([x for x, there in zip(arrays, kept, strict=True)
                                 if there is None])[0])
        found = [next(moved) if there is None else there for there in kept]
        self._pairs += zip(arrays, found, strict=True)
        self.arrived([*self.uploads], helps=True)
        return found

    def kept(self, x: np.ndarray) -> Any:
        """An array in the copy that stays, after uploads :meth:`arrived`; ``None`` without."""
        if self.inner or not self.keeper.limit or not x.dtype.isnative or not is_large(x):
            return None
        memory = HOST_CUDA.memory(x)
        low, high = (memory.address + end for end in memory.span)
        found = None
        for start, end, copy, ahead in self._found:
            if start <= low and high <= end:
                found = copy, memory.address + ahead
            elif start < high and low < end:    # what moves there must not pass what is under way
                self.arrived([*self.uploads], helps=True)
        found = found or self.keeper.find(x)
        if found is None and (low, high) not in self._noted:
            self._noted.add((low, high))
            found = self.keeper.seen(x, high - low)
        if found is None:
            return None
        self._found.append((low, high, found[0], found[1] - memory.address))
        return cupy.ndarray(x.shape, native(x.dtype), found[0] + found[1], x.strides)

    def arrived(self, transfers: Sequence[Any], helps: bool = False) -> None:
        """Let kernels that are launched from now on find what these transfers bring."""
        for transfer in transfers:
            transfer.wait(helps)
            self.uploads.remove(transfer)
        self.ring.link.kernels_follow_uploads()

    def begin(self, arrays: Sequence[np.ndarray]) -> tuple[list[Any], list[Any]]:
        """The arrays, and what to pass to :meth:`arrived` before kernels are launched."""
        before = len(self.uploads)
        images = [_image(x) for x in arrays]
        regions: list[list[int]] = []
        for low, high in sorted((image.low, image.high) for image in images if image.packed is None
                                and image.nbytes):
            if regions and low < regions[-1][1]:
                regions[-1][1] = max(high, regions[-1][1])
            else:
                regions.append([low, high])
        moved = {low: (high, self.send_bytes(low, high)) for low, high in regions}
        packed: dict[tuple[Any, ...], Any] = {}
        found = []
        for x, image in zip(arrays, images, strict=True):
            if not image.nbytes:
                memory = cupy.cuda.alloc(1)
            elif image.packed is None:
                low = next(low for low, (high, _memory) in moved.items() if low <= image.low < high)
                memory = moved[low][1] + (image.low - low)
            else:
                if image.key not in packed:
                    packed[image.key] = cupy.cuda.alloc(image.nbytes)
                    self.send(image.packed, packed[image.key])
                memory = packed[image.key]
            dtype = native(x.dtype)
            found.append(cupy.ndarray(x.shape, dtype, memory + image.first, image.strides))
        return found, self.uploads[before:]

    def send_bytes(self, low: int, high: int) -> Any:
        """Begin to move a region; return the device's memory."""
        memory = cupy.cuda.alloc(high - low)
        if high - low >= _WORTH_ASKING and self.ring.link.is_pinned(low) and self.ring.link.is_pinned(high - 1):
            self.ring.link.upload(memory.ptr, low, high - low)
        else:
            self.send(bytes_at(low, high - low), memory)
        return memory

    def copy_up(self, x: np.ndarray) -> Any:
        """A small gapless array, copied by the kernels' own stream: no threads or events."""
        there = cupy.ndarray(x.shape, x.dtype, cupy.cuda.alloc(x.nbytes), x.strides)
        self.ring.link.copy_up(there.data.ptr, _span(x)[0], x.nbytes)
        return there

    def send(self, x: np.ndarray, memory: Any, hashes: np.ndarray | None = None) -> None:
        """Begin to move elements, which are contiguous on the device."""
        self.uploads.append(self.ring.upload(x, memory.ptr, self.streams, hashes))

    # -- and back ----------------------------------------------------------------------------------
    def target(self, out: np.ndarray) -> Any:
        """A new device array for what goes to ``out``; the operand itself if that is one."""
        self.keeper.leave(out)
        for here, there in self._pairs:
            if here is out:
                self._targets.append((out, there))
                return there
        there = CUDA.empty(compact(out))
        self._targets.append((out, there))
        return there

    def back(self, result: Any) -> Any:
        """The NumPy array to return: ``out``, an operand, or one that :meth:`finish` fills."""
        for here, there in (*self._targets, *self._pairs):
            if result is there:
                return here
        new = empty_array(result.shape, result.dtype, compact(result).strides)
        self._targets.append((new, result))
        return new

    def finish(self) -> None:
        self.ring.link.downloads_follow_kernels()
        for here, there in self._targets:
            self.fetch(there, here)
        self.returned()
        for here, there in self._targets:
            self.arrive(here, there)

    def home_of(self, out: np.ndarray) -> Any:
        """A new device array for a result that should stay there; else ``None``."""
        return CUDA.empty(Memory(out.shape, out.strides, out.dtype)) if out.flags.forc and out.dtype.isnative \
            and self.keeper.keeps((self.kind, out.shape, out.dtype)) else None

    def arrive(self, here: np.ndarray, there: Any) -> None:
        """Offer an arrived result to the keeper, if it lies on the device as on the host."""
        if here.flags.forc and (there is None or (there.strides == here.strides
                                                  and there.dtype == here.dtype)):
            self.keeper.result(here, None if there is None else there.data,
                               (self.kind, here.shape, here.dtype))

    def returned(self, most: int = 0) -> None:
        """Wait until at most ``most`` results are under way."""
        while len(self.downloads) > most:
            self.downloads[0].wait(helps=not most)
            del self.downloads[0]
        if self._direct and not most:
            self.ring.link.await_downloads()

    def fetch(self, there: Any, here: np.ndarray) -> None:
        """Begin to bring an array; what has gaps or another type is first copied on the device."""
        if not here.size:
            return
        like = compact(here)
        if there.dtype != like.dtype or any(
            s != t for s, t, n in zip(there.strides, like.strides, here.shape, strict=True) if n > 1
        ):
            copied = CUDA.empty(like)
            Execution("download", CUDA).assign(copied, there)
            self.ring.link.downloads_follow_kernels()
            there = copied
        axes = sorted(range(here.ndim), key=lambda axis: -there.strides[axis])
        view = here.transpose(axes)
        if view.flags.c_contiguous and here.dtype.isnative:
            self.fetch_bytes(there, *_span(view))
            return
        wait_from_now_on()
        self.bytes_down += here.nbytes
        self.downloads.append(self.ring.download(view, there.data.ptr, there, self.streams))

    def fetch_bytes(self, there: Any, low: int, high: int) -> None:
        """Begin to bring the memory of an array to a region of the host."""
        wait_from_now_on()
        self.bytes_down += high - low
        if high - low >= _WORTH_ASKING and self.ring.link.is_pinned(low):
            self.ring.link.download(low, there.data.ptr, high - low)
            self._direct = True
            self._kept.append(there)
        else:
            self.downloads.append(self.ring.download(bytes_at(low, high - low), there.data.ptr,
                                                     there, self.streams))

    def abandon(self) -> None:
        for transfer in (*self.uploads, *self.downloads):
            transfer.cancel()
        self.uploads.clear()
        self.downloads.clear()
        self.ring.link.synchronize()


def native(dtype: np.dtype) -> np.dtype:
    """The type in the machine's byte order: the same object if it is, for look-ups by identity."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def compact(x: Any) -> Memory:
    """Gapless memory for the elements of an array, axes in order, in the machine's byte order."""
    axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    return Memory(x.shape, contiguous_strides(x.shape, x.itemsize, axes), native(x.dtype))


def current_home() -> _Home:
    link = current_ring().link
    return _homes.get(link) or _homes.setdefault(link, _Home(link))


@contextmanager
def crossing() -> Iterator[Crossing]:
    """A way to the current device; kernels and CuPy work on its stream meanwhile."""
    ring = current_ring()
    with ring.lock, ring.link.computing():
        home = current_home()
        if home.keeper.limit:
            spare_memory(_shrunk)
        # one in a handler of signals comes between the steps of another
        before = home.way
        home.way = way = Crossing(ring, home.keeper, before is not None)
        try:
            yield way
            if not way.bytes_down:                      # else they have followed all else
                ring.link.synchronize()
        except BaseException:
            way.abandon()
            home.keeper.distrust(way.begun)             # which may lack what was under way
            raise
        finally:
            home.way = before


def free_bytes() -> int:
    home = current_home()
    return home.link.free_bytes() + home.keeper.nbytes


def _shrunk(nbytes: int) -> int:
    """Bytes of copies that leave the device for others."""
    here = current_device()
    return sum(home.keeper.shrink(nbytes) for link, home in [*_homes.items()]
               if link.ordinal == here)


def keep_soon(arrays: Sequence[np.ndarray]) -> None:
    """Keep arrays that calls would gain from: move them now."""
    with crossing() as way:
        for x in arrays:
            way.kept(x)
        way.arrived([*way.uploads], helps=True)


def straight(x1: np.ndarray, x2: np.ndarray, c: np.ndarray,
             multiply: Callable[[Any, Any, Any], None], head: Any) -> None:
    """Multiply gapless matrices that move as they are; ``head`` is ``multiply``'s replay."""
    with crossing() as way:
        found, notes = [(x, way.kept(x)) for x in (x1, x2)], noted.get()
        if any(there is None and x.nbytes > FEW_BYTES for x, there in found) or way.uploads:
            found = [(x, cupy.ndarray(x.shape, x.dtype, way.send_bytes(*_span(x)), x.strides)
                      if there is None else there) for x, there in found]
            way.arrived([*way.uploads], helps=True)
            notes = None
        a, b = (there if there is not None else way.copy_up(x) for x, there in found)
        way.keeper.leave(c)
        there = cupy.ndarray(c.shape, c.dtype, cupy.cuda.alloc(c.nbytes), c.strides)
        multiply(a, b, there)
        if c.nbytes <= FEW_BYTES:
            wait_from_now_on()
            way.bytes_down = c.nbytes
            way.ring.link.copy_down(_span(c)[0], there.data.ptr, c.nbytes)
            way.ring.link.await_kernels()
            if notes is not None:
                notes[:] = way.ring, head, (a, b), there
        else:
            way.ring.link.downloads_follow_kernels()
            way.fetch_bytes(there, *_span(c))
            way.returned()
        way.arrive(c, there)


def _span(x: np.ndarray) -> tuple[int, int]:
    address = x.__array_interface__["data"][0]
    return address, address + x.nbytes


def carry(function: str, work: Callable[..., Any], arrays: Sequence[np.ndarray],
          out: np.ndarray | None = None, written: Sequence[np.ndarray] = ()) -> Any:
    """Do the work of a call on the GPU; ``None`` if the device has too little memory."""
    # ``work`` takes the :class:`Execution`, CuPy arrays for ``arrays`` and ``written``, and one
    # for ``out`` or ``None``; it returns an array, or one with a dict of others. ``out`` may share
    # memory with operands, which have been read by then; ``written`` shares memory with nothing
    # else.
    try:
        with crossing() as way:
            way.kind = function
            there = [*way.bring(arrays), *map(way.target, written)]
            result = work(Execution(function, CUDA), there,
                          None if out is None else way.target(out))
            if isinstance(result, tuple):
                result = way.back(result[0]), {name: way.back(x) for name, x in result[1].items()}
            else:
                result = way.back(result)
            way.finish()
    except CUDA.out_of_memory:
        return None
    tally(function, "moved", f"to cuda:{way.ring.link.ordinal}").tick()
    return result
