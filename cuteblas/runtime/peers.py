"""The GPUs of one host: copies between them, and the streams and events that order them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from queue import Queue
from threading import Thread, local
from typing import Any, Literal

from .._forks import BACKGROUND, forget_in_children
from .devices import require_gpu
from .errors import check, require

Mode = tuple[int, int, int]
"""An extent, and its strides in the target and in the source, in bytes."""
Lane = Literal["kernels", "in", "inside", "out"]
"""A stream of a device: the current one, or that of copies to, within or from it."""

_AHEAD = 1                              # calls whose arrays are held behind those of another one

# bytes in a second from one GPU to another; the first measured between two H200
_NVLINK, _PCIE = 390e9, 25e9


class Holding:
    """Arrays in use by another device, kept: ``cudaFree`` waits for its own device alone."""

    def __init__(self) -> None:
        self._touched = local()
        self._held: Queue[tuple[Sequence[Any], list[Any]]] = Queue(_AHEAD)
        Thread(target=self._let_go, name=BACKGROUND, daemon=True).start()

    def touch(self, *arrays: Any) -> None:
        vars(self._touched).setdefault("arrays", []).extend(arrays)

    def hold(self, events: Sequence[Any]) -> None:
        """Keep what this thread noted until events happened, or until the next call."""
        noted = vars(self._touched)
        if events and noted.get("arrays"):
            self._held.put((events, noted["arrays"]))
        noted.clear()

    def let_go(self, _nbytes: int = 0) -> int:
        """Wait until nothing is held; the number of calls that held something."""
        calls = self._held.unfinished_tasks
        self._held.join()
        return calls

    def _let_go(self) -> None:
        while True:
            _happened(*self._held.get())
            self._held.task_done()


def _happened(events: Sequence[Any], arrays: list[Any]) -> None:
    with suppress(RuntimeError):                        # which CUDA tells the next caller, too
        for event in events:
            event.synchronize()
    arrays.clear()


class Peers(Holding):
    """All devices of this process; all calls to CUDA of products over GPUs, for tests."""

    def __init__(self) -> None:
        super().__init__()
        self._cupy = require("cupy")
        self._runtime = self._cupy.cuda.runtime
        self._driver = require("cuda.bindings.driver")
        self._streams: dict[tuple[int, str], Any] = {}

    def count(self) -> int:
        return self._runtime.getDeviceCount()

    def on(self, device: int) -> AbstractContextManager[Any]:
        return (nullcontext() if self._runtime.getDevice() == device
                else self._cupy.cuda.Device(device))

    # -- order -------------------------------------------------------------------------------------
    def _stream(self, device: int, lane: Lane) -> Any:
        if lane == "kernels":
            return self._cupy.cuda.get_current_stream(device)
        if (device, lane) not in self._streams:
            with self.on(device):
                self._streams[device, lane] = self._cupy.cuda.Stream(non_blocking=True)
        return self._streams[device, lane]

    def record(self, device: int, lane: Lane) -> Any:
        with self.on(device):
            event = self._cupy.cuda.Event(block=True, disable_timing=True)
            event.record(self._stream(device, lane))
        return event

    def wait(self, device: int, lane: Lane, event: Any) -> None:
        """Let what a stream begins from now on follow what was recorded."""
        with self.on(device):
            self._stream(device, lane).wait_event(event)

    def synchronize(self, device: int) -> None:
        with self.on(device):
            self._runtime.deviceSynchronize()

    # -- copies ------------------------------------------------------------------------------------
    @cache                                              # noqa: B019      # there is one object
    def connected(self, device: int, other: int) -> bool:
        """Whether a device reaches another's memory; else copies go through the host."""
        if device == other:
            return True
        if not self._runtime.deviceCanAccessPeer(device, other):
            return False
        with self.on(device):
            try:
                self._runtime.deviceEnablePeerAccess(other)
            except self._runtime.CUDARuntimeError as error:
                if "AlreadyEnabled" not in str(error):
                    return False
        return True

    @cache                                              # noqa: B019
    def rate(self, device: int, other: int) -> float:
        """Bytes in a second from a device to another one, as they are expected."""
        if not (self.connected(device, other) and self.connected(other, device)):
            return _PCIE / 2
        attribute = self._driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        native = check(self._driver.cuDeviceGetP2PAttribute(attribute, device, other),
                       "cuDeviceGetP2PAttribute")
        return _NVLINK if native else _PCIE             # which PCIe has not

    @cache                                              # noqa: B019
    def _context(self, device: int) -> Any:
        return check(self._driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")

    def copy(self, lane: tuple[int, Lane], target: tuple[int, int], source: tuple[int, int],
             width: int, modes: Sequence[Mode]) -> None:
        """Begin to copy runs of ``width`` bytes along at most two ``modes``, forwards."""
        rows, depth = (*modes, *[(1, width, width)] * 2)[:2]
        box = self._driver.CUDA_MEMCPY3D_PEER()
        box.srcMemoryType = box.dstMemoryType = self._driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        box.dstContext, box.srcContext = self._context(target[0]), self._context(source[0])
        box.dstDevice, box.srcDevice = target[1], source[1]
        box.dstPitch, box.srcPitch = rows[1], rows[2]
        box.WidthInBytes, box.Height, box.Depth = width, rows[0], depth[0]
        box.dstHeight, box.srcHeight = (max(rows[0], stride // pitch)
                                        for stride, pitch in zip(depth[1:], rows[1:], strict=True))
        with self.on(lane[0]):
            check(self._driver.cuMemcpy3DPeerAsync(box, self._stream(*lane).ptr),
                  "cuMemcpy3DPeerAsync")


_peers: list[Peers] = []
forget_in_children(_peers.clear)


def peers() -> Peers:
    if not _peers:
        require_gpu("devices=")
        _peers.append(Peers())
    return _peers[0]
