"""NumPy's functions on CuPy arrays where CuPy's have other parameters, types or results.

It imports CuPy, and is imported when the first of them arrives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from inspect import BoundArguments, Parameter, Signature, signature
from operator import attrgetter
from typing import Any

import cupy
import cupyx
import numpy as np

from ..engines.cuda import on_device_of
from ..engines.dispatch import Func

# Parameters of NumPy's functions that are arrays: lists and, of some functions, numbers in their
# places become arrays of CuPy's.
_ARRAYS = frozenset({"a", "a1", "a2", "a_max", "a_min", "append", "ar1", "ar2", "arr", "array",
                     "ary", "b", "bins", "condition", "element", "fill_value", "filt", "fp", "m",
                     "max", "min", "p", "prepend", "sample", "src", "test_elements", "to_begin",
                     "to_end", "v", "val", "values", "w", "weights", "where", "x", "x1", "x2", "xp",
                     "y"})
_SEQUENCES = frozenset({"args", "arrays", "arys", "choicelist", "condlist", "tup", "xi"})
_NUMBERS_TOO = frozenset({np.array_equal, np.array_equiv, np.broadcast_arrays, np.ediff1d,
                          np.interp, np.isin, np.atleast_1d, np.atleast_2d, np.atleast_3d,
                          np.broadcast_to})
# What makes no difference on a GPU: there are no subclasses, sorting is stable, and sets are
# sorted.
_WITHOUT_EFFECT = {"subok": (True, False), "stable": (None, True, False), "sorted": (True, False),
                   "device": (None,), "where": (True,),
                   "kind": (None, "quicksort", "heapsort", "mergesort", "stable", "introselect",
                            "sort", "table")}
_WORDS = {**dict.fromkeys(("inv", "solve", "tensorinv", "tensorsolve", "matrix_power"),
                          "Singular matrix"), "cholesky": "Matrix is not positive definite",
          "lstsq": "SVD did not converge in Linear Least Squares",
          **dict.fromkeys(("svd", "svdvals", "pinv", "matrix_rank", "cond", "norm", "matrix_norm"),
                          "SVD did not converge"),
          **dict.fromkeys(("eig", "eigh", "eigvals", "eigvalsh", "roots"),
                          "Eigenvalues did not converge")}
_BY_PLACE = frozenset({Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD})
_VARIABLE = frozenset({Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD})
_UNCHANGED = nullcontext()
_UNSET: Any = np._NoValue
# which return NaN for it
_OF_NAN = frozenset({np.linalg.eigh, np.linalg.eigvalsh, np.linalg.inv, np.linalg.solve})
_TUPLES = frozenset({np.atleast_1d, np.atleast_2d, np.atleast_3d, np.gradient})
_BOOLS = frozenset({np.allclose, np.array_equal, np.array_equiv})
_NAMED_TUPLES: dict[Func, Func] = {
    function: type(function(np.eye(1)))
    for function in (np.linalg.eig, np.linalg.eigh, np.linalg.qr, np.linalg.slogdet, np.linalg.svd)}
# Methods that are NumPy's functions of the same names.
_METHODS = frozenset({"all", "any", "argmax", "argmin", "argsort", "choose", "clip", "cumprod",
                      "cumsum", "max", "mean", "min", "prod", "put", "round", "searchsorted", "std",
                      "sum", "take", "var"})


def by_cupy(function: Func, ours: Func | None,
            arguments: tuple[Any, ...], named: dict[str, Any], some: cupy.ndarray) -> Any:
    """NumPy's function on CuPy arrays such as ``some``; ``NotImplemented`` if CuPy has none."""
    own = ours or _INSTEAD.get(function)
    theirs = (own,) if own else _theirs(function)
    if not theirs:
        return NotImplemented
    may_fail = function.__module__ == "numpy.linalg" and not (function is np.linalg.norm
                                                              and len(arguments) == 1
                                                              and "ord" not in named)
    with on_device_of(some), raising(function.__name__) if may_fail else _UNCHANGED:
        fits = (not any(isinstance(x, (list, tuple)) for x in (*arguments, *named.values()))
                if own else _fits(function, theirs[0], arguments, named))
        if fits or (described := _signature(function)) is None:
            call: Func = partial(theirs[0], *arguments, **named)
        else:
            given = described.bind(*arguments, **named)
            _make_arrays(given, function)
            call = _translated(function, theirs, given)
        try:
            return _as_numpys(function, call())
        except np.linalg.LinAlgError:
            if function not in _OF_NAN or not cupy.isnan(some).any():
                raise
            with cupyx.errstate(linalg="ignore"):
                result = _as_numpys(function, call())
            return _inverse_of_nan(some, result) if function is np.linalg.inv else result


def _inverse_of_nan(x: cupy.ndarray, inverse: cupy.ndarray) -> cupy.ndarray:
    """Inverses with NaN for matrices that have one, where cuSOLVER may leave an infinity."""
    of_nan = cupy.isnan(x).any((-2, -1), keepdims=True)
    if not (of_nan | cupy.isfinite(inverse)).all():
        raise np.linalg.LinAlgError(_WORDS["inv"])
    return cupy.where(of_nan, inverse.dtype.type(np.nan), inverse)


@contextmanager
def raising(function: str) -> Iterator[None]:
    """Let CuPy's linear algebra look for what did not succeed, and say it in NumPy's words."""
    try:
        with cupyx.errstate(linalg="raise"):
            yield
    except (np.linalg.LinAlgError, RuntimeError) as error:
        # else one of NumPy's own, or of another library
        if type(error).__name__ != "CUSOLVERError" and not (isinstance(error, np.linalg.LinAlgError)
                                                            and "info" in str(error).lower()):
            raise
        raise np.linalg.LinAlgError(_WORDS.get(function, str(error))) from error


@cache
def _theirs(function: Func) -> tuple[Func, ...]:
    """CuPy's function for NumPy's, then those with parameters that it lacks (ours, Array API)."""
    path = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
    found: list[Func] = []
    for package in (cupy, import_module("array_api_compat.cupy")):
        try:
            theirs = attrgetter(path)(package)
        except AttributeError:
            continue
        if theirs is not function and (not found or "." in path):
            found.append(theirs)
    return (*found, _FURTHER[function]) if function in _FURTHER else tuple(found)


@cache
def _signature(function: Func) -> Signature | None:
    try:
        return signature(function)
    except (TypeError, ValueError):
        return None


def _make_arrays(given: BoundArguments, function: Func) -> None:
    """Put arrays in the places of lists, and of numbers if these are not taken."""
    def made(x: Any) -> Any:
        of_numbers = function in _NUMBERS_TOO and isinstance(x, (int, float, complex, np.generic))
        return cupy.asarray(x) if of_numbers or isinstance(x, (list, tuple)) else x

    for name, value in given.arguments.items():
        if name in _ARRAYS:
            given.arguments[name] = made(value)
        # lists of einsum may be subscripts
        elif (name in _SEQUENCES and isinstance(value, (list, tuple))) or (
                name == "operands" and value and isinstance(value[0], str)):
            given.arguments[name] = [*map(made, value)]


def _translated(function: Func, theirs: Sequence[Func], given: BoundArguments) -> Func:
    """The call of CuPy's, or of the first further function that takes what NumPy's was given."""
    numpys, unknown = given.signature.parameters, []
    for name, value in [*given.arguments.items()]:
        if _makes_no_difference(name, value):
            del given.arguments[name]
    for call in theirs:
        names, described = _renamed(function, call), _signature(call)
        if names is None or described is None:
            return partial(call, *given.args, **given.kwargs)
        lacking = [name for name, value in given.arguments.items()
                   if name not in names and value is not numpys[name].default]
        if not lacking:
            # CuPy's may need what NumPy's has a default for
            values = {name: p.default for name, p in numpys.items()} | given.arguments
            bound = BoundArguments(described, OrderedDict(
                (cupys, values[name]) for name, cupys in names.items() if name in given.arguments
                or described.parameters[cupys].default is Parameter.empty))
            return partial(call, *bound.args, **bound.kwargs)
        unknown += lacking
    raise TypeError(f"CuPy's {function.__name__} does not take {unknown[0]!r}")


@cache
def _renamed(function: Func, theirs: Func) -> Mapping[str, str] | None:
    """CuPy's names for NumPy's parameters; ``None`` if CuPy's function takes anything."""
    numpys, cupys = _signature(function), _signature(theirs)
    if numpys is None or cupys is None or any(p.kind in _VARIABLE
                                              for p in cupys.parameters.values()):
        return None
    pairs = zip(numpys.parameters.values(), cupys.parameters.values(), strict=False)
    in_place = {p.name: q.name for p, q in pairs
                if {p.kind, q.kind} <= _BY_PLACE and q.name not in numpys.parameters}
    return in_place | {name: name for name in numpys.parameters if name in cupys.parameters}


def _fits(function: Func, theirs: Func, arguments: tuple[Any, ...],
          named: dict[str, Any]) -> bool:
    """Whether a call means the same to CuPy's function as it is."""
    return (_is_shared(function, theirs, len(arguments), (*named,))
            and all(map(_is_plain, arguments)) and all(map(_is_plain, named.values())))


@cache
def _is_shared(function: Func, theirs: Func, by_place: int, names: tuple[str, ...]) -> bool:
    """Whether so many arguments and those of these names are the same parameters of both."""
    renamed, both = _renamed(function, theirs), (_signature(function), _signature(theirs))
    if renamed is None or function in _NUMBERS_TOO:
        return False
    try:
        numpys, cupys = (described.bind(*range(by_place), **dict.fromkeys(names)).arguments
                         for described in both if described)
    except TypeError:
        return False
    return [*map(renamed.get, numpys)] == [*cupys] and numpys.keys().isdisjoint(_WITHOUT_EFFECT)


def _is_plain(x: Any) -> bool:
    """Whether an argument needs no translation: arrays, numbers, names or nothing."""
    kind = type(x)
    return x is None or kind in (int, float, bool, str) or isinstance(x, cupy.ndarray) or (
        kind in (list, tuple) and bool(x) and all(isinstance(y, cupy.ndarray) for y in x))


def _makes_no_difference(name: str, value: Any) -> bool:
    return value is _UNSET or (isinstance(value, (bool, str, type(None)))
                                    and value in _WITHOUT_EFFECT.get(name, ()))


def _as_numpys(function: Func, result: Any) -> Any:
    if function in _BOOLS:
        return bool(result)
    if function in _TUPLES and type(result) is list:
        return tuple(result)
    named = _NAMED_TUPLES.get(function)
    # mode="raw"
    if named is None or type(result) is not tuple or (function is np.linalg.qr
                                                      and result[0].ndim != result[1].ndim):
        return result
    return named(*result)


# -- what CuPy lacks -------------------------------------------------------------------------------
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str | None = None) -> Any:
    """``numpy.take``; indices wrap unless ``mode`` is named, since a check waits for the GPU."""
    size = a.size if axis is None else a.shape[axis]
    indices = cupy.asarray(indices)
    if mode == "raise" and ((indices < -size) | (indices >= size)).any():
        raise IndexError(
            f"index out of bounds for axis {0 if axis is None else axis} with size {size}"
        )
    if mode not in (None, "raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    return a.take(cupy.clip(indices, 0, size - 1) if mode == "clip" else indices, axis, out)


def _choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    if not isinstance(choices, cupy.ndarray):
        choices = cupy.stack(cupy.broadcast_arrays(*map(cupy.asarray, choices)))
    dtype = choices.dtype if out is None else out.dtype
    return cupy.asarray(a).choose(choices.astype(dtype, copy=False), out=out, mode=mode)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None,
          max: Any = None, dtype: Any = None, **named: Any) -> Any:
    low, high = (other if bound is None or bound is _UNSET else bound
                 for bound, other in ((a_min, min), (a_max, max)))
    if dtype is not None or named:
        raise TypeError(f"CuPy's clip does not take {next(iter(named), 'dtype')!r}")
    return cupy.positive(a, out) if low is high is None else cupy.clip(a, low, high, out)


def _lexsort(keys: Any, axis: int = -1) -> Any:
    keys = keys if isinstance(keys, cupy.ndarray) else cupy.stack([*map(cupy.asarray, keys)])
    if axis not in (-1, keys.ndim - 2) or keys.ndim > 2:
        raise TypeError(
            f"CuPy's lexsort takes vectors as keys, got keys of {keys.ndim - 1} dimensions and axis={axis}"
        )
    return cupy.lexsort(keys)


def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Any:
    """``numpy.cov`` without weights: CuPy subtracts the mean of all numbers alike."""
    if fweights is not None or aweights is not None:
        raise TypeError(
            "CuPy's cov does not take fweights or aweights: it subtracts the mean without weights"
        )
    return cupy.cov(m, y, rowvar, bias, ddof, dtype=dtype)


_JOINED = {"sum": ("add", 0), "prod": ("multiply", 1), "max": ("maximum", None),
           "min": ("minimum", None), "any": (None, False), "all": (None, True)}


def _reduction(name: str) -> Func:
    """A reduction with ``where`` and ``initial``, of which CuPy has neither."""
    join, identity = _JOINED[name]

    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: Any = False,
             initial: Any = _UNSET, where: Any = True) -> Any:
        has_initial = initial is not _UNSET
        if where is not True:
            if identity is None and not has_initial:
                raise ValueError(
                    f"reduction operation '{name}imum' does not have an identity, so to use a where mask one has to "
                    "specify 'initial'"
                )
            a = cupy.where(cupy.asarray(where), a,
                           a.dtype.type(initial if identity is None else identity))
        if identity is None and a.size == 0 and axis is None:
            a = cupy.full((1,) * a.ndim, initial, a.dtype)
        result = getattr(a, name)(axis, out=out, keepdims=keepdims,
                                  **({} if dtype is None else {"dtype": dtype}))
        if has_initial and join is not None:
            result = getattr(cupy, join)(result, result.dtype.type(initial),
                                         **({} if out is None else {"out": out}))
        return result

    return call


def _mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: Any = False,
          where: Any) -> Any:
    """``numpy.mean`` of some elements."""
    mask = cupy.broadcast_to(cupy.asarray(where), a.shape)
    total = _reduction("sum")(a, axis, dtype or (None if a.dtype.kind in "fc" else float),
                              keepdims=keepdims, where=mask)
    mean = (total / mask.sum(axis, keepdims=keepdims)).astype(total.dtype, copy=False)
    if out is None:
        return mean
    out[...] = mean
    return out


def _deviation(name: str) -> Func:
    """``numpy.std`` and ``numpy.var``, whose ``ddof`` has two names."""
    return lambda a, axis=None, dtype=None, out=None, *, keepdims=False, correction: getattr(
        a, name)(axis, dtype, out, correction, keepdims)


def imag(val: cupy.ndarray) -> cupy.ndarray:
    """The imaginary parts; of a real array zeros in its order, where CuPy's are in C order."""
    return val.T.imag.T if val.flags.f_contiguous else val.imag


# In the place of CuPy's, and for calls with parameters that CuPy's lack.
_INSTEAD: dict[Func, Func] = {np.take: _take, np.choose: _choose, np.clip: _clip,
                              np.lexsort: _lexsort, np.cov: _cov, np.imag: imag}
_FURTHER: dict[Func, Func] = {
    np.count_nonzero: lambda a, axis=None, *, keepdims: (a != 0).sum(axis, dtype=np.intp,
                                                                     keepdims=keepdims),
    np.mean: _mean, np.std: _deviation("std"), np.var: _deviation("var"),
    **{getattr(np, name): _reduction(name[-3:] if name[0] == "a" else name)
       for name in (*_JOINED, "amax", "amin")}}


# -- methods ---------------------------------------------------------------------------------------
def method_by_cupy(name: str, data: cupy.ndarray, *arguments: Any, **named: Any) -> Any:
    if name in _METHODS:
        return by_cupy(getattr(np, name), None, (data, *arguments), named, data)
    return getattr(data, name)(*arguments, **{key: value for key, value in named.items()
                                              if not _makes_no_difference(key, value)})


def item(data: cupy.ndarray, *index: Any) -> Any:
    """An element as a Python number: by no index, in C order, or one for each axis."""
    np.broadcast_to(False, data.shape).item(*index)         # NumPy's error for a wrong index
    index = index[0] if index and isinstance(index[0], tuple) else index
    if len(index) == 1:
        return data.flat[int(index[0])].item()
    return data[tuple(map(int, index))].item() if index else data.item()


def check_key(key: Any) -> None:
    """Refuse what CuPy takes for an index and NumPy does not."""
    for part in key if type(key) is tuple else (key,):
        if isinstance(part, (float, complex, str, bytes, np.inexact)):
            np.empty(0)[part]           # type: ignore[index]


def elements_for(data: cupy.ndarray, key: Any, value: Any) -> Any:
    """A value to be assigned to ``data[key]``, with an array in place of a list."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = key if type(key) is tuple else (key,)
    with on_device_of(data):
        if len(parts) == data.ndim and all(isinstance(x, (int, np.integer))
                                           and not isinstance(x, bool) for x in parts):
            # one element, to which a value is not broadcast
            element = np.zeros(1, data[key].dtype)
            element[0] = value
            value = element[0]
        return cupy.asarray(value)


# -- methods of ufuncs, and calls with where -------------------------------------------------------
# CuPy's do not take complex numbers
_LOGICAL = frozenset({np.logical_and, np.logical_not, np.logical_or, np.logical_xor})
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min",
               "logical_and": "all", "logical_or": "any"}


def ufunc_operands(ufunc: np.ufunc, *inputs: Any) -> tuple[Any, ...]:
    made = tuple([cupy.asarray(x) if isinstance(x, (list, tuple)) else x for x in inputs])
    if ufunc is np.power and isinstance(made[1], (int, np.integer)) and made[1] < 0 and made[0].dtype.kind in "iu":
        raise ValueError("Integers to negative integer powers are not allowed.")
    if ufunc in _LOGICAL:
        return tuple([x != 0 if isinstance(x, cupy.ndarray) and x.dtype.kind == "c" else x
                      for x in made])
    return made


def ufunc_by_cupy(ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    """A ufunc's ``method``, or its call with ``where``, on CuPy arrays, or a TypeError."""
    if method == "__call__":
        return lambda *inputs, **named: _masked(ufunc, *inputs, **named)
    name = ufunc.__name__

    def call(x: Any, *others: Any, out: Any = None, **named: Any) -> Any:
        if out is not None:
            named["out"], = out
        try:
            if method == "reduce" and name in _REDUCTIONS:
                return getattr(x, _REDUCTIONS[name])(**{"axis": 0, **named})
            return getattr(getattr(cupy, name), method)(x, *others, **named)
        except (AttributeError, NotImplementedError):
            raise TypeError(f"CuPy has no {name}.{method}") from None

    return call


def _masked(ufunc: np.ufunc, *inputs: Any, where: Any, out: tuple[Any, ...] | None = None,
            **named: Any) -> Any:
    """A call that writes those elements of the result of which ``where`` is true."""
    mask = where if isinstance(where, cupy.ndarray) else cupy.asarray(np.asarray(where, bool))

    def shown(x: Any) -> Any:
        return np.ones(1, x.dtype) if isinstance(x, cupy.ndarray) else x

    into = {} if out is None else {"out": tuple(map(shown, out))}
    with np.errstate(all="ignore"):
        # which also warns of a missing out
        ufunc(*map(shown, inputs), where=np.ones((1,) * min(mask.ndim, 1), mask.dtype), **into,
              **named)
    results = ufunc(*inputs, **named)
    written = []
    for result, given in zip(results if ufunc.nout > 1 else (results,), out or (None,) * ufunc.nout,
                             strict=True):
        if given is None:
            given = cupy.empty(np.broadcast_shapes(result.shape, mask.shape), result.dtype)
        cupy.copyto(given, result, named.get("casting", "same_kind"), mask)
        written.append(given)
    return tuple(written) if ufunc.nout > 1 else written[0]
