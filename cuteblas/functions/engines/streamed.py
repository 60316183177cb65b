"""Products of NumPy arrays on the GPU in tiles: operands arrive, tiles are multiplied, and results leave at the same time.

:mod:`cuteblas.planning.streaming` says which tiles, in which order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cupy
import numpy as np

from ...codegen.dtypes import accumulator_of
from ...planning.streaming import Extents, Schedule, Tile, panel_of, schedule
from ...runtime.ring import Transfer
from ..counters import tally
from ..gemm import gemm
from ..gufunc import Product, operand_matrices, result_matrices
from ..memory import Memory
from ..pipeline import Execution
from ..settings import workspace_limit
from .cuda import CUDA
from .host_cuda import Crossing, crossing, current_ring, dense, native, straight

__all__ = ["stream"]

_SURELY_FREE = 256 << 20                # bytes: whether there are so many is found out by asking for them
_MOST_HALVINGS = 4
_STRAIGHT_BYTES = 64 << 20              # of operands and result that move one after the other
_PATIENCE = 2.0                         # seconds that nobody wonders about
_MOST_RESULTS = 1                       # that leave while the next one is computed

Multiply = Callable[[Any, Any, Any], None]
"""A product of CuPy arrays: A, B and where C goes."""


def stream(function: str, product: Product, x1: np.ndarray, x2: np.ndarray, out: np.ndarray | None, precision: str,
           multiply: Multiply) -> np.ndarray | None:
    """Multiply NumPy arrays in tiles.

    Parameters
    ----------
    function : str
        On whose account.
    product : Product
        What NumPy accepted.
    x1, x2, out : numpy.ndarray
        The operands, and where the result goes; ``None`` for a new array.
    precision : str
        The algorithm.
    multiply : callable
        Multiplies tiles.

    Returns
    -------
    numpy.ndarray or None
        ``out`` or the new array; ``None`` if tiles cannot do it: ``out`` shares memory with an operand, there is nothing to
        multiply, or there is no memory for it in any tiles.
    """
    if out is not None and any(np.may_share_memory(out, x) for x in (x1, x2)):
        return None
    result = np.ndarray(product.shape, product.dtype, strides=product.strides) if out is None else out
    if not (product.k and result.size):
        return None
    if out is None and x1.nbytes + x2.nbytes + result.nbytes <= _STRAIGHT_BYTES and x1.ndim == x2.ndim == 2 and x1 is not x2 \
            and product.dtype is x1.dtype is x2.dtype and workspace_limit() is None \
            and all(x.flags.c_contiguous or x.flags.f_contiguous for x in (x1, x2)) and not np.may_share_memory(x1, x2):
        try:
            straight(x1, x2, result, multiply)
        except CUDA.out_of_memory:
            return None
        tally(function, "calls", "in tiles").tick()
        tally(function, "moved", f"to cuda:{current_ring().link.ordinal}").tick()
        return result
    missing = len(product.core1) == 1, len(product.core2) == 1
    a, b = operand_matrices(x1, product.core1, 0), operand_matrices(x2, product.core2, 1)
    c = result_matrices(result, product.core3, missing)
    if max(a.ndim, b.ndim) > c.ndim:                        # axes of extent 1 that out lacks
        return None
    extents = _extents(product, a, b, c)
    room = current_ring().link.free_bytes() if extents.a + extents.b + extents.c > _SURELY_FREE else 4 * _SURELY_FREE
    if (limit := workspace_limit()) is not None:
        room = min(room, limit)
    for _ in range(_MOST_HALVINGS):
        plan = schedule(extents, room)
        if plan is None:
            return None
        try:
            with crossing() as way:
                _Streamed(way, plan, a, b, c, product.dtype, precision, multiply).run()
        except CUDA.out_of_memory:
            cupy.get_default_memory_pool().free_all_blocks()
            tally(function, "moved", "smaller tiles: no memory on the GPU").tick()
            room //= 2
        else:
            tally(function, "calls", "in tiles").tick()
            tally(function, "moved", f"to cuda:{way.ring.link.ordinal}").tick()
            return result
    return None


def _extents(product: Product, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Extents:
    batch, others = (c.shape[0], int(np.prod(c.shape[1:-2]))) if c.ndim > 2 else (1, 1)
    shared = a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and a.nbytes == b.nbytes
    alike = a.dtype == b.dtype == product.dtype and product.dtype.kind in "iufc"
    return Extents(product.m, product.n, product.k, batch, others, a.itemsize, b.itemsize, c.itemsize, _has_batch(a, c),
                   _has_batch(b, c), shared, abs(c.strides[-2]) >= abs(c.strides[-1]), alike)


def _has_batch(x: np.ndarray, c: np.ndarray) -> bool:
    """Whether an operand has elements of its own for each index of the outermost batch axis."""
    return x.ndim == c.ndim > 2 and x.shape[0] > 1 and x.strides[0] != 0


def shown(tiles: Sequence[Tile]) -> Iterable[Tile]:
    """The tiles; with ``CUTEBLAS_PROGRESS=1`` and tqdm, a bar on stderr shows those that are done once there are some seconds of
    them."""
    if len(tiles) < 2 or os.environ.get("CUTEBLAS_PROGRESS", "0") in ("", "0"):
        return tiles
    try:
        from tqdm import tqdm
    except ImportError:
        return tiles
    return tqdm(tiles, "cuteblas", unit="tile", delay=_PATIENCE, leave=False)


class _Panels:
    """The panels of both operands that are on the device or on their way."""

    def __init__(self, way: Crossing, arrays: dict[str, np.ndarray], c: np.ndarray, shared: bool):
        self._way, self._arrays, self._c = way, arrays, c
        self._there: dict[tuple[Any, ...], tuple[Any, list[Transfer]]] = {}
        self._whole: dict[str, Any] = {}
        self._first: list[Transfer] = []
        if shared:
            both, self._first = way.begin([arrays["a"], arrays["b"]])
            self._whole = dict(zip("ab", both, strict=True))

    def _view(self, operand: str, x: Any, tile: Tile) -> Any:
        batch, *box = panel_of(operand, tile)
        if _has_batch(self._arrays[operand], self._c):
            x = x[batch]
        return x[(..., *box)]

    def ask(self, tile: Tile) -> None:
        """Begin to bring what a tile needs."""
        if self._whole:
            return
        for operand, x in self._arrays.items():
            key = _key(operand, tile)
            if key not in self._there:
                (panel,), transfers = self._way.begin([self._view(operand, x, tile)])
                self._there[key] = panel, transfers

    def take(self, tile: Tile) -> list[Any]:
        """The panels of a tile, for kernels that are launched from now on."""
        if self._whole:
            self._way.arrived(self._first, helps=True)
            self._first = []
            return [self._view(operand, x, tile) for operand, x in self._whole.items()]
        found = []
        for operand in self._arrays:
            panel, transfers = self._there[_key(operand, tile)]
            self._way.arrived(transfers, helps=not self._way.streams)
            transfers.clear()
            found.append(panel)
        return found

    def keep(self, tiles: Sequence[Tile]) -> None:
        """Give up all that these tiles do not need."""
        wanted = {_key(operand, tile) for tile in tiles for operand in self._arrays}
        for key in self._there.keys() - wanted:
            del self._there[key]


def _key(operand: str, tile: Tile) -> tuple[Any, ...]:
    return operand, *((part.start, part.stop) for part in panel_of(operand, tile))


class _Streamed:
    """One product on its way."""

    def __init__(self, way: Crossing, plan: Schedule, a: np.ndarray, b: np.ndarray, c: np.ndarray, dtype: np.dtype, precision: str,
                 multiply: Multiply):
        self.way, self.plan, self.c, self.precision, self.multiply = way, plan, c, precision, multiply
        shared = a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and a.nbytes == b.nbytes
        self.panels = _Panels(way, {"a": a, "b": b}, c, shared)
        self.sums = np.dtype(accumulator_of(dtype.name, dtype.name, dtype.name))

    def run(self) -> None:
        """Multiply all tiles, and wait for the result."""
        tiles, ahead = self.plan.tiles, self.plan.ahead
        self.way.streams = len(tiles) > 2
        asked = 0
        sum_so_far: Any = None
        for i, tile in enumerate(shown(tiles)):
            if asked and asked < len(tiles):
                self.way.ring.link.uploads_follow_kernels()         # panels may get the memory of others
            while asked < min(i + ahead + 1, len(tiles)):
                self.panels.ask(tiles[asked])
                asked += 1
            a, b = self.panels.take(tile)
            here = self.c[tile.batch] if self.c.ndim > 2 else self.c
            here = here[..., tile.m, tile.n]
            same = [i + d for d in (-1, 1) if 0 <= i + d < len(tiles) and tiles[i + d][:3] == tile[:3]]
            if same:
                first, last = i - 1 not in same, i + 1 not in same
                sum_so_far = self._added(a, b, None if first else sum_so_far)
                if last:
                    self._leave(here, sum_so_far)
                    sum_so_far = None
            else:
                there = CUDA.empty(Memory(here.shape, dense(here.shape, here.strides, here.itemsize), native(here.dtype)))
                self.multiply(a, b, there)
                self._leave(here, there)
            del a, b
            if ahead < len(tiles):
                self.panels.keep(tiles[i + 1:i + ahead + 1])
                self.way.returned(_MOST_RESULTS)
        self.way.finish()

    def _leave(self, here: np.ndarray, there: Any) -> None:
        """Begin to bring a tile of C."""
        self.way.ring.link.downloads_follow_kernels()
        self.way.fetch(there, here)

    def _added(self, a: Any, b: Any, sums: Any) -> Any:
        """A part of a sum added to those before it, in the type in which kernels sum."""
        run = Execution("matmul: tiles", CUDA)
        return gemm(run, a, b, beta=0 if sums is None else 1, c=sums, out=sums, output=self.sums.name, precision=self.precision,
                    order="C")[0]
