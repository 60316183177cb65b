"""``matmul``: NumPy's semantics over NumPy's BLAS, the emulator and the GPU."""

from __future__ import annotations

from functools import cache
from typing import Any, Unpack

import numpy as np

from ..engines.dispatch import ByName, Func, fast_paths, own_call, replays
from ..engines.exact import FLOAT32, FLOAT64, SMALL, WITHOUT_BLAS
from ..engines.exact import matmul as matmul_by_blas
from ..engines.placement import FEW, Work, staying, stays
from ..engines.replay.recording import store
from ..engines.settings import backend_of_environment, chosen_backend
from .algorithms import (
    AS_PLANNED,
    NATIVE,
    check_variant,
    checked_precision,
    refuse_with_devices,
)
from .gufunc import MatmulArguments, Product, resolve_product, single_out
from .routing import UFUNC, NumpyCall, NumpyProduct, Resolved, answer, offloaded
from .signatures import Devices, EpilogueLike, Precision, typed_product

_NDARRAY = np.ndarray                  # a look-up less
_MANY = (FEW // 2)**2                  # of the sizes of operands that may be worth the way to a GPU
HEAD = "matmul", "auto", None         # of calls without arguments


@typed_product
def matmul(x1: Any, x2: Any, /, out: Any = None, *, epilogue: EpilogueLike = None,
           precision: Precision | None = None, variant: str | None = None,
           devices: Devices | None = None, **arguments: Unpack[MatmulArguments]) -> Any:
    """Matrix product of two arrays, as ``numpy.matmul`` defines it.

    Parameters
    ----------
    x1, x2 : array_like
        Operands of shapes (..., m, k) and (..., k, n), batch dimensions broadcast; a vector is a
        row on the left and a column on the right, and its dimension is dropped from the result.
        Both on the host (NumPy arrays and what NumPy converts to them) or both CuPy arrays on one
        device. Any strides: an operand is copied only to cast it, or if it is not aligned to its
        elements.
    out : array or 1-tuple of array, optional
        Receives the result and is returned. It may have any strides and may overlap the inputs.
    epilogue : epilogue, optional
        A function that the kernel applies to every element before it rounds and writes it: one
        decorated with :func:`cuteblas.epilogue`, with its operands, or the name of a predefined one
        (:mod:`cuteblas.epilogues`). The result has the same type as without an epilogue.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm on the GPU. ``"ieee"`` uses the native arithmetic of the dtype. ``"auto"``
        (the default) uses the fastest algorithm that is not less accurate on these operands. The
        others name an algorithm for float32, whatever the operands are: sums of products of float16
        or bfloat16 on tensor cores, or one product of operands rounded to 11 bits (``"tf32"``).
        Only ``"tf32"`` is less accurate than native arithmetic: errors are up to 2^-11 of each
        operand. Operands below 2^-126 are rounded to multiples of 2^-136; up to 2^-137 they
        become 0.
    variant : str, optional
        The name of a kernel to use instead of the planned one; ``python -m cuteblas kernels`` lists
        the names.
    devices : "all" or sequence of int, optional
        The GPUs of this host that may compute. Operands may then be NumPy arrays, CuPy arrays on
        any of them, :class:`cuteblas.ShardedArray` or arrays of ``cupyx.distributed``. The result
        goes to ``out`` if it is given. Otherwise it is divided like the rows of ``x1`` or the
        columns of ``x2``; if neither is divided, it is where ``x1`` is.
    axes, axis, keepdims, casting, order, dtype, subok, signature
        As in ``numpy.matmul``.

    Returns
    -------
    array or scalar
        NumPy in, NumPy out; CuPy in, CuPy out. The product of two vectors is a scalar on the host,
        a 0-d array on the GPU. With an epilogue that has auxiliary outputs, a pair: the product and
        a dict of these outputs.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``numpy.matmul``, in its words and before anything runs; also for operands on
        different devices, an unknown precision, a variant that is unknown, does not take this
        product or cannot run here, and an epilogue that does not fit.

    See Also
    --------
    cuteblas.explain : what a call runs, and why.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.matmul([[1, 2], [3, 4]], [1, 1])
    array([3, 7])
    >>> cuteblas.matmul([[1.0, 2.0], [3.0, 4.0]], [[1.0], [-1.0]], epilogue="relu")
    array([[0.],
           [0.]])
    """
    if variant is None and epilogue is None and devices is None and not arguments:
        kind, result = type(x1), None
        if kind is _NDARRAY:    # plain arrays by BLAS or by NumPy's loop, without further questions
            if type(x2) is _NDARRAY and (precision is None or precision in NATIVE) and (
                    out is None or type(out) is _NDARRAY):
                where = chosen_backend() or backend_of_environment()
                if where == "numpy" or (where == "auto"
                                        and (x1.size * x2.size <= _MANY or stays(x1, x2)
                                             or (x1.shape, x1.dtype.char, x2.shape,
                                                 x2.dtype.char) in staying)):
                    dtype = x1.dtype
                    if dtype is not FLOAT64 and dtype is not FLOAT32 and dtype.char in WITHOUT_BLAS \
                            and (x1.size > SMALL or x2.size > SMALL) \
                            and (result := matmul_by_blas("matmul", x1, x2, out)) is not None:
                        return result
                    result = np.matmul(x1, x2) if out is None else np.matmul(x1, x2, out)
                    _count()
                    return result
                if precision != "ieee":
                    result = _like_before(x1, x2, out, where)
        elif (fast := fast_paths.get(kind)) is not None:
            result = fast(x1, x2, out, precision)
        elif precision is None and (replay := replays[kind]) is not None:
            result = replay(HEAD, (x1, x2), out)
        if result is not None:
            return result
    if devices is not None:
        refused = {"epilogue": epilogue, "variant": variant, **arguments}
        return _over_devices(x1, x2, single_out(out), devices, checked_precision(precision),
                             refused)
    if epilogue is not None:
        return _fused_matmul()(x1, x2, out, epilogue, precision, variant, arguments)
    if (call := own_call(x1, x2, single_out(out))) is not None:
        return call(matmul, (x1, x2, out), {"precision": precision, "variant": variant,
                                            **arguments})
    check_variant(variant, "gemm")
    return answer(_MATMUL, x1, x2, single_out(out), precision, variant, arguments)


@cache
def _fused_matmul() -> Func:
    """What multiplies with an epilogue; its module is imported with the first one."""
    from .fused import fused_matmul

    return fused_matmul


def _over_devices(x1: Any, x2: Any, out: Any, devices: Any, precision: str,
                  refused: ByName) -> Any:
    refuse_with_devices("matmul", refused)
    if (call := own_call(x1, x2, out)) is not None:
        return call(matmul, (x1, x2, out), {"precision": precision, "devices": devices})
    from .devices import matmul_over

    return matmul_over(x1, x2, out, devices, precision)


_known: dict[tuple[Any, ...], tuple[Product, Work]] = {}
"""Products of operands that may go to the GPU, by shapes, strides and types."""
_MOST_KNOWN = 4096


def _like_before(x1: np.ndarray, x2: np.ndarray, out: np.ndarray | None, where: str) -> Any:
    """A product of NumPy arrays that may go to the GPU, if one like it was resolved before."""
    if not _known or where == "emulator":
        return None
    found = _known.get((x1.shape, x1.strides, x1.dtype.char, x2.shape, x2.strides, x2.dtype.char))
    if found is None or (out is not None and (out.shape != found[0].shape
                                              or out.dtype is not found[0].dtype
                                              or not out.flags.writeable)) or stays(x1, x2):
        return None
    operands = x1, x2
    result = offloaded(NumpyCall("matmul", np.matmul, operands, out, again=matmul), *found, operands,
                       out)
    return result[()] if out is None and found[0].shape == () else result


def _note(call: NumpyCall, resolved: Resolved, product: Product, work: Work) -> None:
    """Let later calls know that the host is faster, or what was resolved."""
    a, b = resolved.arrays
    if len(staying) < _MOST_KNOWN and work.never_moves():
        staying.add((a.shape, a.dtype.char, b.shape, b.dtype.char))
    if not call.arguments and call.algorithm == AS_PLANNED \
            and a.dtype.isnative and b.dtype.isnative and not np.may_share_memory(a, b):
        new = product if resolved.out is None else resolve_product(*resolved.memories)
        store(_known, (a.shape, a.strides, a.dtype.char, b.shape, b.strides, b.dtype.char),
              (new, work))


_MATMUL = NumpyProduct("matmul", np.matmul, resolve_product, rules=UFUNC._replace(note=_note))
_count = _MATMUL.count
