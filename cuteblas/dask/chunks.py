"""The tasks of a graph: products of chunks added to a sum, sums of sums, and joined chunks.

Results do not depend on where a task runs: all chunks are contiguous and aligned, and an array
times its own transpose is that if the graph has it twice. No task writes into another's result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from threading import local
from typing import Any

import dask
import numpy as np

from ..array.wrapper import ndarray, unwrapped, wrap
from ..engines.dispatch import kind_of
from ..engines.engine import engine_of
from ..engines.memory import overlap
from ..engines.settings import Backend
from ..functions import ascontiguousarray, backend, copy, einsum, matmul, tensordot
from ..functions.signatures import Precision

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"einsum": einsum, "matmul": matmul,
                                                "tensordot": tensordot}


@dataclass(frozen=True)
class Term:
    """A product of chunks that is added to the sum so far. ``arguments`` are others than operands;
    ``sums`` is the type until the ``last`` one; ``alone``: nothing is summed outside of the
    function; ``operands`` number the chunks."""

    function: str
    arguments: tuple[tuple[str, Any], ...]
    dtype: str
    sums: str
    precision: Precision | None = None
    backend: Backend | None = None
    conj: bool = False
    alone: bool = False
    last: bool = False
    operands: tuple[int, ...] | None = None

    def __call__(self, so_far: Any, *chunks: Any) -> Any:
        """The sum so far, or nothing, and this product."""
        before, *given = unwrapped((so_far, *chunks))
        with nullcontext() if self.backend is None else backend(self.backend):
            arrays = _settled(given)
            if self.operands is not None:
                arrays = [arrays[i] for i in self.operands]
            if self.conj:
                arrays[0] = arrays[0].conj()
            if self.alone:
                total = self._product(arrays, None)
            else:
                total = _by_gemm(self, before, arrays)
                if total is None:
                    total = _sum(before, self._product([_cast(x, self.sums) for x in arrays],
                                                       self.sums))
                if self.last:
                    total = total.astype(self.dtype, copy=False)
        if kind_of(total) == "cupy":
            _keep_pace()
        return _as_operands(total, so_far, *chunks)

    def _product(self, arrays: Sequence[Any], dtype: str | None) -> Any:
        named = dict(self.arguments)
        subscripts = (named.pop("subscripts"),) if self.function == "einsum" else ()
        if dtype is not None and "dtype" in named:
            named["dtype"] = dtype
        return _FUNCTIONS[self.function](*subscripts, *arrays, precision=self.precision, **named)


def _as_operands(x: Any, *operands: Any) -> Any:
    """An array of our type if an operand is one."""
    return wrap(x) if ndarray in map(type, operands) and hasattr(x, "strides") else x


_AHEAD = 2                              # tasks of a thread whose kernels may not have ended
_running = local()


def _keep_pace() -> None:
    """Wait until few tasks are ahead of the GPU: others' chunks follow, and Dask times them."""
    import cupy

    events = vars(_running).setdefault("events", deque())
    events.append(cupy.cuda.Event(disable_timing=True))
    events[-1].record()
    if len(events) > _AHEAD:
        events.popleft().synchronize()


def _settled(chunks: Sequence[Any]) -> list[Any]:
    """The chunks as they would be if each had come from another worker."""
    found: list[Any] = []
    for x in chunks:
        x = x.view(np.ndarray) if type(x) is np.memmap else x               # files are arrays
        contiguous = x.flags.c_contiguous or x.flags.f_contiguous
        y = x if contiguous else ascontiguousarray(x)
        # what has arrived may begin anywhere: NumPy copies each operand that is not aligned
        moves = not getattr(x.flags, "aligned", True) or any(
            overlap(engine_of(x).memory(x), engine_of(other).memory(other)) for other in found)
        found.append(copy(x) if y is x and moves else y)
    return found


def _cast(x: Any, dtype: str) -> Any:
    """Half precision is summed in float32; other types are promoted by the product itself."""
    return x.astype(dtype) if x.dtype.itemsize == 2 and x.dtype.kind not in "iub" and dtype == "float32" else x


def _sum(before: Any, product: Any) -> Any:
    """The sum of both, written into the product, which no other task holds."""
    if before is None:
        return product
    where = product if getattr(product, "ndim", 0) and product.flags.c_contiguous else None
    add_up = np.logical_or if product.dtype.kind == "b" else np.add
    return add_up(before, product) if where is None else add_up(before, product, where)


def _by_gemm(term: Term, before: Any, arrays: Sequence[Any]) -> Any:
    """The sum and a product by one kernel; ``None`` if BLAS has no such product or type."""
    if any(kind_of(x) != "cupy" for x in arrays) or (matrices := _matrices(term, arrays)) is None:
        return None
    a, b = matrices
    if a.dtype != b.dtype or np.dtype(term.sums).kind not in "fc" or (
            a.dtype.itemsize != 2 and a.dtype != term.sums):
        return None
    import cupy

    from ..blas import gemm

    out = cupy.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]),
                     term.sums)
    given = {} if before is None else {"beta": 1, "c": before}
    return gemm(1, a, b, dtype=term.sums, out=out, precision=term.precision, **given)


def _matrices(term: Term, arrays: Sequence[Any]) -> tuple[Any, Any] | None:
    if term.function == "einsum" or any(x.ndim < 2 for x in arrays):
        return None
    a, b = arrays
    if term.function == "matmul":
        return a, b
    axes = dict(term.arguments)["axes"]
    if a.ndim > 2 or b.ndim > 2 or len(axes[0]) != 1:
        return None
    return (a.T if axes[0] == (0,) else a), (b if axes[1] == (0,) else b.T)


def add(*sums: Any, dtype: str | None = None) -> Any:
    """The sum of sums from the first to the last, rounded to a type if it is given."""
    first, second, *others = unwrapped(sums)
    total = first | second if first.dtype.kind == "b" else first + second
    for x in others:
        total = _sum(x, total)
    total = total if dtype is None else total.astype(dtype, copy=False)
    return _as_operands(total, *sums)


def mirrored(chunk: Any, conj: bool) -> Any:
    """The chunk beyond a Gram matrix's diagonal: a view, if it is not complex."""
    return chunk.conj().T if conj else chunk.T


# -- in Dask's own tables --------------------------------------------------------------------------
def tensordot_of_chunks(a: Any, b: Any, axes: Any = 2) -> Any:
    """``tensordot`` of two chunks, under the precision of Dask's configuration where it runs."""
    return tensordot(a, b, axes, precision=dask.config.get("cuteblas.precision", None))


def einsum_of_chunks(*operands: Any, **arguments: Any) -> Any:
    """``einsum`` of chunks, under the precision of Dask's configuration where it runs."""
    named = {name: x for name, x in arguments.items() if not (name == "dtype" and x is None)}
    return einsum(*operands, precision=dask.config.get("cuteblas.precision", None), **named)


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Chunks on a GPU, or of our type, one after the other, each moved by the copy kernels."""
    data, kinds = unwrapped(list(arrays)), {*map(kind_of, unwrapped(list(arrays)))}
    library: Any = np if kinds <= {"numpy"} else import_module("cupy")
    shape = [*data[0].shape]
    if kinds != {"cupy"} or not -len(shape) <= axis < len(shape) or len({
            (x.dtype, *x.shape[:axis], *x.shape[axis:][1:]) for x in data}) > 1:
        joined = library.concatenate(data, axis)                # which converts them, or refuses them
    else:
        extents = [x.shape[axis] for x in data]
        shape[axis] = sum(extents)
        joined = library.empty(shape, data[0].dtype)
        for x, part in zip(data, library.split(joined, np.cumsum(extents[:-1]).tolist(), axis),
                           strict=True):
            copy(x, out=part)
    return _as_operands(joined, *arrays)
