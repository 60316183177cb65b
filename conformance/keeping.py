"""``python -m conformance.keeping``: arrays that are written in every way between calls, and their
copies on a pretended device.

After each step the copy that a call would use is compared with the array, byte by byte. Linux
tracks the writes, or with ``--hashes`` the threads that move arrays hash them again.
"""

from __future__ import annotations

import argparse
import gc
import mmap
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import cuteblas
from cuteblas.emulator.compiler import build, why_unavailable
from cuteblas.engines.keeping import Keeper
from cuteblas.functions.devices import alone
from cuteblas.runtime.mover import BUILT, HASHED_BYTES, SOURCE, Mover
from cuteblas.runtime.tracking import Hashes, Watch, why_untracked
from tests.runtime.late_link import LateLink, at

from .writes import QUIET, WRITES

__all__ = ["Memories", "bytes_of", "image", "main", "pretended_ring"]


def pretended_ring() -> Mover:
    """The threads that move arrays, on a link between arrays of this process."""
    return Mover(LateLink(), build(SOURCE.read_text("utf-8"), **BUILT), 2, 1 << 19, 3)


class _Block(np.ndarray):
    """Memory of the pretended device."""

    live: Any = None

    def __del__(self) -> None:
        if self.live is not None:
            self.live.live -= 1


class Memories:
    """A pretended device, whose memory is the host's.

    Parameters
    ----------
    ring : Mover, optional
        What moves arrays and hashes them; without it Linux tracks writes.

    Attributes
    ----------
    watch : callable
        What sees writes.
    live : int
        Allocations that something refers to.
    moved : list of int
        The bytes of each upload.
    full : bool
        Whether there is no memory.
    pins : list of (int, int)
        Memory of the host that devices write to.
    before, after : callable, optional
        Called before and after each upload.
    """

    def __init__(self, ring: Mover | None = None) -> None:
        self.ring = ring
        self.watch: Any = Watch if ring is None else partial(Hashes, hashes=ring.hashes,
                                                             part_bytes=HASHED_BYTES)
        self.live, self.full = 0, False
        self.moved: list[int] = []
        self.pins: list[tuple[int, int]] = []
        self.before: Callable[[], Any] | None = None
        self.after: Callable[[], Any] | None = None

    def allocate(self, nbytes: int) -> np.ndarray:
        """New memory, with other bytes than any array has."""
        if self.full:
            raise MemoryError("no memory on the device")
        block = np.full(nbytes, 0xA5, np.uint8).view(_Block)
        block.live = self
        self.live += 1
        return block

    def upload(self, memory: np.ndarray, offset: int, low: int, high: int,
               hashes: np.ndarray | None) -> None:
        """Copy memory of the host."""
        if self.before is not None:
            self.before()
        if self.ring is None:
            memory.view(np.ndarray)[offset:offset + high - low] = at(low, high - low)
        else:
            self.ring.upload(at(low, high - low), memory.ctypes.data + offset,
                             hashes=hashes).wait()
            self.ring.link.synchronize()
        self.moved.append(high - low)
        if self.after is not None:
            self.after()

    def pinned(self, low: int, high: int) -> bool:
        """Whether devices write to some of it."""
        return any(low < end and start < high for start, end in self.pins)

    def copy(self, x: np.ndarray) -> np.ndarray:
        """The memory of a result."""
        new = self.allocate(x.nbytes)
        new[:] = x.ravel(order="K").view(np.uint8)
        return new


def image(found: tuple[Any, int], x: np.ndarray) -> np.ndarray:
    """The part of a copy that a call reads in the place of an array."""
    dtype = x.dtype
    memory = found[0].view(np.ndarray)[found[1]:][:dtype.itemsize].view(dtype) if x.size else np.empty(1, dtype)
    return as_strided(memory, x.shape, x.strides)


def bytes_of(x: np.ndarray) -> np.ndarray:
    """All elements, as bytes."""
    return np.ascontiguousarray(x).view(np.uint8)


_SHAPES = [(1 << 17,), (3, 1 << 16), (40, 8192), (700, 1000), (64, 64, 300), (1 << 22,)]
_TYPES = [np.float64, np.float32, np.uint8, np.int16]


def _new(rng: np.random.Generator, hashes: bool = False) -> np.ndarray:
    """An array of a MiB to 32 MiB or a little less, over memory of any kind; with hashes some is
    shared with other processes."""
    shape, dtype = _SHAPES[rng.integers(len(_SHAPES))], np.dtype(_TYPES[rng.integers(len(_TYPES))])
    nbytes = int(np.prod(shape)) * dtype.itemsize
    kind = rng.integers(6 + hashes)
    if kind == 0:
        return np.ndarray(shape, dtype, bytearray(nbytes))
    if kind == 6:
        return np.ndarray(shape, dtype, mmap.mmap(-1, nbytes))
    if kind == 1:
        return np.ndarray(shape, dtype, mmap.mmap(-1, nbytes + 512,
                                                  mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 512)
    if kind == 2:
        return np.zeros(shape, dtype)
    return np.array(rng.integers(100, size=shape), dtype, order="CF"[rng.integers(2)])


def _view(x: np.ndarray, rng: np.random.Generator, keeper: Keeper) -> np.ndarray:
    kind = rng.integers(6)
    if kind == 0:
        return x[rng.integers(len(x)):]
    if kind == 1:
        return x.T
    if kind == 2:
        return x[::-int(rng.integers(1, 4))]
    if kind == 3:
        return x[..., int(rng.integers(x.shape[-1])):]
    if kind == 4:                                       # what one of several devices computes with
        return alone(x[:len(x) // 2 + 1] if x.flags.c_contiguous else
                     x[..., :x.shape[-1] // 2 + 1], keeper)
    return x


class _Wrong(AssertionError):
    pass


def _use(keeper: Keeper, x: np.ndarray, meanwhile: Callable[[], Any] | None = None) -> bool:
    """Whether an array was kept; with something that happens meanwhile, its copy is read as it is
    first, as by a product that is replayed."""
    if meanwhile is not None:
        right, seen = False, x
        with keeper.lock:
            if (copies := keeper.copies([x])) is not None:
                _owner, memory, offset, _span = copies[0]
                seen = bytes_of(image((memory, offset), x)).copy()
                meanwhile()
                right = keeper.unchanged(copies)
        if right:
            if not np.array_equal(seen, bytes_of(x)):
                raise _Wrong
            return True
    found = keeper.find(x)
    if found is None:
        found = keeper.seen(x, x.nbytes)
    if found is not None and not np.array_equal(bytes_of(image(found, x)), bytes_of(x)):
        raise _Wrong
    return found is not None


def _run(options: argparse.Namespace) -> int:
    rng, counts = np.random.default_rng(options.seed), Counter[str]()
    ring = pretended_ring() if options.hashes else None
    memories = [Memories(ring) for _ in range(options.devices)]
    keepers = [Keeper(each, 80 << 20, each.watch) for each in memories]
    arrays = [_new(rng, options.hashes) for _ in range(6)]
    begun, acts = time.monotonic(), {**WRITES, **QUIET}
    costly = {"fill", "out", "masked", "part", "every_so_many", "reads", "column"}
    names = [*acts] + [name for name in acts if name not in costly] * 2
    try:
        for step in range(options.steps):
            i, at = int(rng.integers(len(arrays))), int(rng.integers(len(keepers)))
            x, did, keeper = arrays[i], "used", keepers[at]
            act = rng.random()
            if act < 0.45:
                did = names[rng.integers(len(names))]
                acts[did](x, rng)
            elif act < 0.47:
                did = "new"
                arrays[i] = x = _new(rng, options.hashes)
            elif act < 0.475 and x.base is None:
                did = "resized"
                for each in keepers:              # NumPy resizes no array that has a weak reference
                    each.leave(x)
                with suppress(ValueError):        # as of a part
                    x.resize((max(1, x.size + int(rng.integers(-5000, 9000))),), refcheck=False)
            elif act < 0.5:
                did = "result"
                if rng.random() < 0.5:
                    keeper.leave(x)
                np.multiply(x, 3, out=x)
                keeper.result(x, memories[at].copy(x), int(rng.integers(3)))
            elif act < 0.51:
                did = "shrunk"
                keeper.shrink(int(rng.integers(1, 40 << 20)))
            elif act < 0.515:
                did = "overlapping"
                arrays[i] = x = np.frombuffer(
                    memoryview(x.ravel(order="K").view(np.uint8))[int(rng.integers(5000)) :],
                    np.uint8
                )
                arrays[i] = x = x if x.nbytes > 1 << 20 else _new(rng)
            counts[did] += 1
            for _ in range(rng.integers(1, 4)):
                keeper, meanwhile = keepers[rng.integers(len(keepers))], None
                if rng.random() < 0.5:
                    name = names[rng.integers(len(names))]
                    meanwhile = partial(acts[name], x, rng) if rng.random() < 0.1 else list
                counts["kept" if _use(keeper, _view(x, rng, keeper), meanwhile) else "moved"] += 1
            if step % 50 == 0:
                for x in arrays:
                    for keeper in keepers:
                        _use(keeper, x)
        failed = None
    except _Wrong:
        failed = f"seed {options.seed}, step {step}: the copy of an array {x.shape} of {x.dtype} is wrong after {did}"
    for keeper in keepers:
        keeper.release()
    del x
    arrays.clear()
    gc.collect()
    if failed is None and (live := sum(each.live for each in memories)):
        failed = f"seed {options.seed}: {live} copies were not freed"
    print(
        failed
        or f"seed {options.seed}: {options.steps} steps in {time.monotonic() - begun:.0f} s, no copy was wrong"
    )
    print("  ", dict(counts))
    print("  ", cuteblas.stats().get("arrays", {}).get("kept", {}))
    return failed is not None


@np.errstate(all="ignore")
def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; 1 if a copy was wrong."""
    parser = argparse.ArgumentParser("python -m conformance.keeping", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000,
                        help="acts and the calls after them (100000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--hashes", action="store_true", help="compare hashes")
    options = parser.parse_args(arguments)
    if (reason := why_unavailable() if options.hashes else why_untracked()) is not None:
        parser.exit(2, f"writes cannot be seen: {reason}\n")
    return _run(options)


if __name__ == "__main__":
    raise SystemExit(main())
