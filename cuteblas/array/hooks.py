"""The four places where CuPy looks up a product, and the hooks that replace them.

``cupy.ndarray.__matmul__``: ``a @ b``, ``a @= b``. ``cupy.matmul._try_fastcall_func``:
``cupy.matmul`` under all its names, ``numpy.matmul``, ``einsum``, ``matrix_power``.
``cupy.ndarray.dot``: ``a.dot``, ``cupy.dot``, ``numpy.dot``. ``cupy._core.tensordot_core``:
``tensordot``, ``inner``, ``vdot``. This module imports CuPy; ``install`` imports it when hooks are
wanted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import cupy
import numpy as np
from cupy import _core

from .. import runtime
from .._forks import surviving
from ..engines.counters import tally
from ..engines.dispatch import Func, kind_of
from ..engines.problems import has_kernels
from ..engines.replay.cupy import replay
from ..functions.dot import dot, tensordot
from ..functions.matmul import HEAD, matmul
from ..functions.routing import replay_product
from . import patches
from .patches import Patch

_FAILURES = runtime.CompileError, runtime.DriverError, runtime.MissingDependency
# Compute types that a user has to ask CuPy for, and that are faster than float32 because they are
# less accurate.
_LESS_ACCURATE = frozenset({3, 6, 7})       # FP16, BF16, TF32
_WITH_COMPUTE_TYPES = "efdFD"
_READ_BY_CUPY = "__cuda_array_interface__", "__cupy_get_ndarray__"
_ROWS, _INNER, _COLUMNS = 5, 7, 3           # of the products of the self-test
_DEFAULTS = ("casting", "same_kind"), ("order", "K")


class Switch(patches.Switch):
    """The hooks in CuPy; the first product checks them if that is pending."""

    __slots__ = ()

    def asked(self) -> bool:
        """Whether hooks serve this thread, where not all are served."""
        return self.here.get() or (self.pending and self._settled())

    def check(self) -> None:
        """Send a small product through every hook, counted also in ``MADE_BY_CHECKS``."""
        if (reason := runtime.why_unavailable()) is not None:
            raise runtime.MissingDependency(f"cuteblas cannot be installed: {reason}")
        if runtime.capturing():
            raise RuntimeError(
                "cuteblas cannot be installed: a stream is being captured; install before the capture"
            )
        with self.checking():
            x, y = (np.arange(m * n, dtype=np.float32).reshape(m, n) % 5 - 2
                    for m, n in ((_ROWS, _INNER), (_INNER, _COLUMNS)))
            a, b = cupy.asarray(x), cupy.asarray(y)
            calls: dict[Patch, Callable[[], Any]] = {_OPERATOR: lambda: a @ b,
                                                     _FUNCTION: lambda: cupy.matmul(a, b),
                                                     _DOT: lambda: cupy.dot(a, b),
                                                     _TENSORDOT: lambda: cupy.tensordot(a, b, 1)}
            for patch, call in calls.items():
                # inside a hook, what goes wrong would go on to CuPy; here it is seen
                matmul(a, b)
                self.check_place(patch, lambda call=call: cupy.asnumpy(call()), x @ y,
                                 f"in CuPy {cupy.__version__}, calls do not reach the hook of "
                                 f"{patch.place}", f"product through {patch.place}")

    def _settled(self) -> bool:
        """Check the hooks, unless a stream is captured; CuPy serves other threads meanwhile."""
        if (runtime.available() and runtime.capturing()) or not _checking.acquire(blocking=False):
            return False
        try:
            if not self.checked:
                self.check()
            # it may have been uninstalled meanwhile
            self.everywhere, self.pending = self.pending, False
        except RuntimeError as error:
            self.pending = False
            self.refused = str(error)
            self.unlink()
            warnings.warn(self.refused, RuntimeWarning, stacklevel=4)
        finally:
            _checking.release()
        return self.everywhere


_checking = surviving(Lock())


# -- the hooks: what was recorded is replayed ------------------------------------------------------
def _matmul_operator(self: Any, other: Any) -> Any:
    if not (SWITCH.everywhere or SWITCH.asked()):
        return _OPERATOR.original(self, other)
    result = replay(HEAD, (self, other), None) if type(self) is cupy.ndarray else None
    if result is None:
        return _long_way(_OPERATOR, (self, other), lambda: _matmul(self, other, None))
    if SWITCH.watch is not None:
        SWITCH.watch(_OPERATOR, (self, other))
    return result


def _matmul_function(a: Any, b: Any, out: Any = None, axes: Any = None, axis: Any = None,
                     keepdims: Any = False, casting: Any = None, dtype: Any = None,
                     signature: Any = None, order: Any = None) -> Any:
    if (axes is None and axis is None and not keepdims and casting == "same_kind" and dtype is None
        and signature is None and order == "K" and type(a) is cupy.ndarray
        and (SWITCH.everywhere or SWITCH.asked())):
        result = replay(HEAD, (a, b), out)
        if result is not None:
            if SWITCH.watch is not None:
                SWITCH.watch(_FUNCTION, (a, b, out, axes, axis, keepdims, casting, dtype, signature,
                                         order))
            return result
    return _other_calls_of_matmul(a, b, out, axes, axis, keepdims, casting, dtype, signature, order)


def _other_calls_of_matmul(*call: Any) -> Any:
    if not (SWITCH.everywhere or SWITCH.asked()):
        return _FUNCTION.original(*call)
    a, b, out, *further = call
    named = zip(("axes", "axis", "keepdims", "casting", "dtype", "signature", "order"), further,
                strict=True)
    arguments = {name: value for name, value in named
                 if not (value is None or value is False or (name, value) in _DEFAULTS)}
    if _answers(a) or _answers(b):
        return np.matmul(a, b, out=out, **arguments)
    return _long_way(_FUNCTION, call, lambda: _matmul(a, b, out, **arguments))


def _dot_method(self: Any, b: Any, out: Any = None) -> Any:
    call = self, b, out
    if not (SWITCH.everywhere or SWITCH.asked()):
        return _DOT.original(*call)
    product: Func = dot
    result = None
    # matmul takes more of them
    if type(self) is type(b) is cupy.ndarray and (
        out is None
        or (
            type(out) is cupy.ndarray
            and out.flags.c_contiguous
            and out.ndim == self.ndim + b.ndim - 2
            and out.dtype == np.promote_types(self.dtype, b.dtype)
        )
    ):
        if self.ndim and 0 < b.ndim < 3:
            # with a vector or a matrix on the right, both products are the same
            product, result = _matmul, replay(HEAD, (self, b), out)
        else:
            result = replay_product("dot", (self, b), out)[1]
    if result is None:
        return _long_way(_DOT, call, lambda: product(*call))
    if SWITCH.watch is not None:
        SWITCH.watch(_DOT, call)
    return result


def _tensordot_core(a: Any, b: Any, out: Any, *sizes: Any) -> Any:
    call = a, b, out, *sizes
    if not (SWITCH.everywhere or SWITCH.asked()) or out is not None:
        return _TENSORDOT.original(*call)
    shape = tuple(sizes[-1])
    # The axes that are summed over come first in both. How many there are is not said, but follows
    # from the shape of the result.
    summed = (a.ndim + b.ndim - len(shape)) // 2
    if a.shape[:summed] != b.shape[:summed] or a.shape[summed:] + b.shape[summed:] != shape:
        return _long_way(_TENSORDOT, call, lambda: _refuse("vdot got arrays of two shapes"))
    axes = (tuple(range(summed)),) * 2
    result, matrices, turned = None, False, a
    if type(a) is type(b) is cupy.ndarray:
        if matrices := summed == 1 and a.ndim < 3 and b.ndim < 3:
            turned = a.T
            result = replay(HEAD, (turned, b), None)
        else:
            result = replay_product("tensordot", (a, b), arguments={"axes": axes})[1]
    if result is None:
        return _long_way(_TENSORDOT, call, lambda: _matmul(turned, b, None) if matrices
                         else tensordot(a, b, axes))
    if SWITCH.watch is not None:
        SWITCH.watch(_TENSORDOT, call)
    return result


_OPERATOR = Patch("cupy.ndarray.__matmul__", cupy.ndarray, "__matmul__", _matmul_operator, "matmul")
_FUNCTION = Patch("cupy.matmul", cupy.matmul, "_try_fastcall_func", _matmul_function, "matmul")
_DOT = Patch("cupy.ndarray.dot", cupy.ndarray, "dot", _dot_method, "dot")
_TENSORDOT = Patch("cupy.tensordot", _core, "tensordot_core", _tensordot_core, "tensordot")
PATCHES = _OPERATOR, _FUNCTION, _DOT, _TENSORDOT
SWITCH = Switch("cupy", PATCHES)


# -- calls that were not served before -------------------------------------------------------------
class _Refusal(Exception):
    """Why a call is left to CuPy."""


def _refuse(reason: str) -> Any:
    raise _Refusal(reason)


def _long_way(patch: Patch, call: tuple, ours: Callable[[], Any]) -> Any:
    """Serve a call, or let CuPy serve it and count why."""
    # What is not a product of CuPy arrays is not counted, nor what CuPy refuses as well.
    a, b, *rest = call
    if not (isinstance(a, cupy.ndarray) and isinstance(b, cupy.ndarray)):
        return patch.original(*call)
    try:
        _require_taken([x for x in (a, b, *rest[:1]) if isinstance(x, cupy.ndarray)])
        result = ours()
    except _Refusal as refusal:
        reason = str(refusal)
    except (TypeError, ValueError, IndexError) as error:
        reason = f"{type(error).__name__} where CuPy has none"
    except _FAILURES as error:
        reason = "a kernel could not be compiled or launched"
        warnings.warn(f"CuPy computes this product instead: {error}", RuntimeWarning, stacklevel=4)
    except MemoryError:
        reason = "no memory for a workspace or a copy"
    else:
        if SWITCH.watch is not None:
            SWITCH.watch(patch, call)
        return result
    result = patch.original(*call)
    tally(patch.function, "calls", f"delegated to CuPy: {reason}").tick()
    return result


def _require_taken(arrays: Sequence[Any]) -> None:
    """Refuse what our functions do not take, or would do otherwise than CuPy."""
    for x in arrays:
        if type(x) is not cupy.ndarray:
            raise _Refusal(f"{type(x).__name__} is a subclass of cupy.ndarray")
        if not has_kernels(x.dtype):
            raise _Refusal(f"there are no kernels for {x.dtype}")
        if x.dtype.char in _WITH_COMPUTE_TYPES and _core.get_compute_type(x.dtype) in _LESS_ACCURATE:
            raise _Refusal(f"CuPy is set to multiply {x.dtype} less accurately")
    if len({x.data.device_id for x in arrays}) > 1:
        raise _Refusal("the operands are on several devices")
    if runtime.capturing():
        raise _Refusal("a stream is being captured, and no call like this was served before")


def _matmul(a: Any, b: Any, out: Any, **arguments: Any) -> Any:
    """Our product, in C order as CuPy's, where NumPy would keep the order of batches."""
    if out is None and arguments.get("order", "K") == "K" and not (_in_order(a) and _in_order(b)):
        arguments["order"] = "C"
    return matmul(a, b, out, **arguments)


def _in_order(x: Any) -> bool:
    """Whether the batch modes of an array are in memory in the order of its axes."""
    strides = [abs(s) for s, n in zip(x.strides[:-2], x.shape[:-2], strict=True) if n > 1]
    return strides == sorted(strides, reverse=True)


def _answers(x: Any) -> bool:
    """Whether an operand has an ``__array_ufunc__`` and is not for CuPy to convert."""
    return kind_of(x) == "foreign" and not any(hasattr(type(x), name) for name in _READ_BY_CUPY)
