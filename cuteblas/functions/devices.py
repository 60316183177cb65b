"""Calls with ``devices=``: products over the GPUs of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.background import short_turns
from ..engines.counters import tally
from ..engines.dispatch import Func, kind_of
from ..engines.memory import Ints, Memory, array_at, contiguous_strides, new_memory
from ..engines.reuse import empty_array
from ..engines.sharded import ShardedArray, as_sharded
from .algorithms import Algorithm
from .expressions import Expression, Term, stand_in
from .gemm import new_matrices
from .gufunc import Product, resolve_product

if TYPE_CHECKING:
    from ..engines.exchange import Exchange
    from ..engines.keeping import Keeper
    from ..engines.streamed import Tiled
    from ..planning.problem import DeviceInfo
    from ..planning.sharding import Cost
    from ..planning.streaming import Tile

_ROWS = 128                 # of which parts have a multiple


def as_devices(function: str, devices: Any) -> Ints:
    from ..runtime.peers import peers

    if isinstance(devices, str) and devices == "all":
        return tuple(range(peers().count()))
    found = tuple(devices) if isinstance(devices, Iterable) else (None,)
    if not all(isinstance(device, (int, np.integer)) and not isinstance(device, bool)
               for device in found):
        wrong = ValueError if isinstance(devices, str) else TypeError
        raise wrong(
            f"{function} takes devices='all' or a sequence of device numbers, got {devices!r}"
        )
    if not found or len({*found}) < len(found) or min(found) < 0:
        raise ValueError(
            f"{function} takes device numbers from 0 up, each once and at least one, got devices={devices!r}"
        )
    if max(found) >= (count := peers().count()):
        raise ValueError(
            f"{function} takes devices 0 to {count - 1} of this host, got devices={devices!r}"
        )
    return tuple(map(int, found))


def on_host_alone(*arrays: Any) -> bool:
    """Whether all arrays of a call with ``devices=`` are NumPy's or converted by NumPy."""
    return all(kind_of(x) not in ("cupy", "foreign") and not isinstance(x, ShardedArray)
               for x in arrays if x is not None)


def matmul_over(x1: Any, x2: Any, out: Any, devices: Any, precision: str) -> Any:
    """``matmul`` over devices; the result is in shards where an operand is."""
    if on_host_alone(x1, x2, out):
        return matmul_of_host("matmul", x1, x2, out, devices, precision)
    return _of_shards("matmul", _settle, (x1, x2, out), as_devices("matmul", devices), precision)


@lru_cache(maxsize=1024)
def _settle(first: Memory, second: Memory, target: Memory | None) -> Expression:
    product = resolve_product(first, second, target)
    for name, x in (("x1", first), ("x2", second)):
        if x.shape[:-2] not in ((), product.batch):
            raise ValueError(f"matmul with devices= takes operands with all batch axes or none, "
                             f"but {name} has shape {x.shape} and the batch has shape "
                             f"{product.batch}")
    return product


def matmul_of_host(function: str, x1: Any, x2: Any, out: np.ndarray | None, devices: Any,
                   precision: str) -> np.ndarray:
    """``matmul`` of NumPy arrays; each device moves rows, columns or matrices by its own link."""
    def tiled(product: Product, *arrays: np.ndarray) -> Tiled | None:
        from .tiles import tiled_product

        return tiled_product(function, *product.matrices(*arrays), precision) \
            if all(product.extents.values()) else None

    return _of_host(function, resolve_product, np.matmul, tiled, (x1, x2, out),
                    as_devices(function, devices))


def _of_host(function: str, settle: Callable[..., Expression], by_numpy: Func,
             tiled: Callable[..., Tiled | None], arrays: tuple[Any, Any, Any],
             ordinals: Sequence[int]) -> Any:
    """A call on NumPy arrays in parts of the result, one for each device that is worth it."""
    from ..engines.emulator import HOST_CUDA
    from ..engines.placement import work_of

    a, b, out = np.asarray(arrays[0]), np.asarray(arrays[1]), arrays[2]
    settled = settle(*(x if x is None else HOST_CUDA.memory(x) for x in (a, b, out)))
    whole = out
    if out is None or (out.dtype, out.shape) != (settled.dtype, settled.shape) or any(
            np.may_share_memory(out, x) for x in (a, b)):
        whole = empty_array(settled.shape, settled.dtype, settled.strides if out is None else None)
    call = tiled(settled, a, b, whole)
    if call is None:
        np.copyto(whole, by_numpy(a, b), casting="unsafe")
    else:
        work = work_of(settled.products, settled.dtype, (a, b), None, settled.shape)
        count = min(range(1, len(ordinals) + 1), key=work.over_devices)
        _in_parts(call, by_numpy, ordinals[:count])
    if out is None:
        return whole[()] if settled.scalar and not whole.ndim else whole
    if whole is not out:
        np.copyto(out, whole, casting="unsafe")
    return out


def _in_parts(call: Tiled, by_numpy: Func, ordinals: Sequence[int]) -> None:
    """Compute matrices of the batch if there are as many as devices, else rows or columns."""
    x, count = call.extents, len(ordinals)
    axis = "batch" if x.batch >= count > 1 else "m" if x.m >= x.n else "n"
    step = -(-getattr(x, axis) // count)
    parts = x.whole.parts(axis, -(-step // _ROWS) * _ROWS if step >= _ROWS and axis != "batch"
                          else step)
    exchange = _exchange(ordinals[:len(parts)], call, axis)

    def work(device: int, tile: Tile) -> None:
        import cupy

        from ..engines.host_cuda import current_home
        from ..engines.keeping import noted
        from ..engines.streamed import exchanged, stream_tiles

        exchanged.set(exchange)
        noted.set(None)                                 # this is a part
        try:
            with cupy.cuda.Device(device):
                part = call.within(tile, partial(alone, keeper=current_home().keeper))
                done = stream_tiles(part)
        finally:
            if exchange is not None:
                exchange.leave(device)
        if not done:
            first, second = (operand.array for operand in part.operands)
            np.copyto(part.result.array, by_numpy(first, second), casting="unsafe")
        tally(call.function, "spread", f"on cuda:{device}" if done
              else "no memory on the GPU: by NumPy").tick()

    with short_turns(), ThreadPoolExecutor(len(parts)) as pool:
        running = [pool.submit(copy_context().run, work, device, part)
                   for device, part in zip(ordinals, parts, strict=False)]
    for each in running:
        each.result()


def alone(x: np.ndarray, keeper: Keeper) -> np.ndarray:
    """A part whose memory is kept by itself; ``x`` if all of it is kept or it has gaps."""
    from ..engines.keeping import owning

    if not (keeper.limit and x.flags.forc) or keeper.expected(x):
        return x
    return array_at(x.__array_interface__["data"][0], x.shape, x.strides, f"|V{x.itemsize}",
                    not x.flags.writeable, owning(x)).view(x.dtype)


def _exchange(devices: Sequence[int], call: Tiled, axis: str) -> Exchange | None:
    """How devices share the operand that all need; ``None`` if the host reaches them faster."""
    from ..engines.keeping import expected

    if len(devices) < 2 or call.extents.batch > 1:
        return None
    shared, c = call.operands[axis == "m"].array, call.result.array
    if any(stride <= 0 for stride in shared.strides) or expected([shared]):
        return None
    from ..engines.exchange import Exchange
    from ..runtime.costs import host_costs
    from ..runtime.peers import peers

    between = peers()
    if any(between.rate(one, other) <= host_costs().link_bytes for one in devices
           for other in devices if one != other):
        return None
    return Exchange(shared, devices, axis == "n", (shared.nbytes + c.nbytes) // len(devices))


def spread_product(function: str, devices: Sequence[int], settled: Expression,
                   arrays: Sequence[ShardedArray], precision: str,
                   compute: Callable[[Sequence[Any], Any], None] | None = None,
                   reads_c: bool = False) -> None:
    """Compute an expression of A and B into C; ``compute`` does that with tiles if it is given."""
    from ..engines.cuda import CUDA
    from ..engines.spread import compute_over
    from .tiles import contraction_by_tiles

    c = arrays[2]
    divided = {axes[x.axis] for axes, x in zip((*(term.axes for term in settled.terms),
                                                settled.axes), arrays, strict=True)
               if len(x.shards) > 1}
    call = contraction_by_tiles(function, settled, arrays, Algorithm(precision), divided)
    call = replace(call, compute=compute or call.compute)
    if all(settled.extents.values()):
        compute_over(devices, call, _cost(settled, call, precision, CUDA.device(c.shards[0])),
                     reads_c)
        return
    for shard in c.shards if c.nbytes else ():          # sums of nothing
        extents = {**settled.extents, settled.axes[c.axis]: shard.shape[c.axis]}
        with CUDA.on_device_of(shard):
            call.compute([CUDA.empty(_merged(extents, term.axes, term, stand_in_of(x, None)))
                          for term, x in zip(settled.terms, arrays, strict=False)], shard)


def _merged(extents: Mapping[str, int], groups: Sequence[Iterable[str]], term: Term,
            x: Memory) -> Memory:
    """Gapless memory with an axis for each group of an operand's indices, in its order."""
    shape = tuple(prod(extents[c] for c in group) for group in groups)
    steps = [max((step for c, step in zip(term.axes, x.strides, strict=True) if c in group),
                 default=0) for group in groups]
    axes = sorted(range(len(shape)), key=lambda axis: -steps[axis])
    return Memory(shape, contiguous_strides(shape, x.dtype.itemsize, axes), x.dtype)


def _cost(settled: Expression, call: Tiled, precision: str, device: DeviceInfo) -> Cost:
    """The cost of an expression: that of one product of matrices with as many elements."""
    from ..planning.sharding import Cost

    a, b = ({*"".join(term.axes)} for term in settled.terms)
    kept = {*"".join(settled.axes)}
    batch, m, k, n = a & b & kept, a - b & kept, (a & b) - kept, b - a & kept
    first, second = (
        _merged(settled.extents, [*[batch] * bool(batch), *core], term,
                stand_in_of(operand.array, None))
        for operand, term, core in zip(call.operands, settled.terms, ((m, k), (k, n)), strict=True))
    whole, columns = _seconds(first, second, precision, device), second.shape[-1]
    if columns < 4 * _ROWS:
        return Cost(whole)
    half = replace(second, shape=(*second.shape[:-1], columns // 2))
    return Cost.from_halves(whole, _seconds(first, half, precision, device),
                            *(prod(x.extents) for x in call.operands))


@lru_cache(maxsize=1024)
def _seconds(first: Memory, second: Memory, precision: str, device: DeviceInfo) -> float:
    from ..engines.tuning import plan_for
    from ..planning.floors import floor_of
    from .staging import problem_of

    problem = problem_of(first, second, Algorithm(precision))
    plan = plan_for(problem, device)
    return plan.seconds or floor_of(problem, plan.family, device).seconds


def _shape(x: ShardedArray, like: Any) -> Ints:
    return x.shape if getattr(like, "ndim", 1) else ()


def stand_in_of(x: ShardedArray, like: Any) -> Memory:
    """What NumPy's rules ask of an operand; the first shard says in which order elements lie."""
    shape = _shape(x, like)
    first = x.shards[0].strides
    axes = sorted(range(len(shape)), key=lambda axis: -abs(first[axis]))
    return Memory(shape, contiguous_strides(shape, x.dtype.itemsize, axes), x.dtype)


def _cast(x: ShardedArray, dtype: np.dtype) -> ShardedArray:
    if x.dtype == dtype:
        return x
    from ..engines.cuda import CUDA
    from ..engines.execution import Execution

    shards = []
    for shard in x.shards:
        with CUDA.on_device_of(shard):
            new = CUDA.empty(new_memory(replace(CUDA.memory(shard), dtype=dtype), "C"))
            Execution("matmul", CUDA).assign(new, shard)
            shards.append(new)
    return ShardedArray(shards, x.axis)


def shares_memory(c: ShardedArray, others: Sequence[ShardedArray]) -> bool:
    """Whether C shares memory with an operand, which another device may still read."""
    from ..engines.cuda import CUDA
    from ..engines.memory import overlap

    return any(overlap(CUDA.memory(x), CUDA.memory(y)) for x in c.shards for other in others
               for y in other.shards)


def new_result(settled: Expression, dtype: np.dtype, a: ShardedArray, b: ShardedArray,
               order: str = "C") -> ShardedArray:
    """A new result, divided as the first operand that is divided along an index of the result; else
    on A's first device."""
    import cupy

    from ..engines.cuda import CUDA

    shape = settled.shape
    axis, devices, cuts = 0, a.devices[:1], [shape[0]]
    for x, term in zip((a, b), settled.terms, strict=True):
        if len(x.shards) > 1 and term.axes[x.axis] in settled.axes:
            axis, devices = settled.axes.index(term.axes[x.axis]), x.devices
            cuts = [shard.shape[x.axis] for shard in x.shards]
            break
    shards = []
    for device, extent in zip(devices, cuts, strict=True):
        with cupy.cuda.Device(device):
            shards.append(CUDA.empty(new_matrices((*shape[:axis], extent, *shape[axis + 1:]), dtype,
                                                  order)))
    return ShardedArray(shards, axis)


def put(c: ShardedArray, target: ShardedArray) -> None:
    from ..engines.peer_copies import assign
    from ..runtime.peers import peers

    assign(peers(), target, _cast(c, target.dtype))


# -- contractions ----------------------------------------------------------------------------------
def contraction_over(function: str, settle: Callable[..., Expression | None],
                     call: Func, arrays: tuple[Any, Any, Any],
                     devices: Any, precision: str) -> Any:
    """A contraction over devices; ``settle`` makes an expression of memories."""
    ordinals = as_devices(function, devices)

    def settled_for(*memories: Memory | None) -> Expression:
        if (settled := settle(*memories)) is None:
            call(*(stand_in(x) for x in memories[:2] if x is not None))         # NumPy says why
            raise ValueError(f"{function} cannot read this call")
        return settled

    if not on_host_alone(*arrays):
        return _of_shards(function, settled_for, arrays, ordinals, precision)

    def tiled(settled: Expression, *arrays: np.ndarray) -> Tiled | None:
        from .tiles import tiled_contraction

        return tiled_contraction(function, settled, arrays, Algorithm(precision))

    return _of_host(function, settled_for, call, tiled, arrays, ordinals)


def _of_shards(function: str, settle: Callable[..., Expression], arrays: tuple[Any, Any, Any],
               ordinals: Sequence[int], precision: str) -> Any:
    """A call on GPU arrays, each in shards or one shard itself."""
    x1, x2, out = arrays
    a, b = as_sharded(x1), as_sharded(x2)
    target = None if out is None else as_sharded(out)
    settled = settle(stand_in_of(a, x1), stand_in_of(b, x2),
                     None if target is None else stand_in_of(target, out))
    if target is not None and _shape(target, out) != settled.shape:
        raise ValueError(f"{function} with devices= writes a result of shape {settled.shape}, but "
                         f"out has shape {_shape(target, out)}")
    is_number = not settled.shape
    # a shard has an axis: that of a number has no index
    settled = replace(settled, axes=settled.axes or ("",), shape=settled.shape or (1,), terms=tuple(
        replace(term, axes=term.axes or ("",)) for term in settled.terms))
    a, b = (_cast(x, settled.dtype) for x in (a, b))
    direct = target is not None and target.dtype == settled.dtype \
        and not shares_memory(target, (a, b))
    c = new_result(settled, settled.dtype, a, b) if not direct or target is None else target
    spread_product(function, ordinals, settled, (a, b, c), precision)
    if target is None:
        return c if len(c.shards) > 1 else c.shards[0].reshape(()) if is_number else c.shards[0]
    if c is not target:
        put(c, target)
    return out
