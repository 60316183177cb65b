"""NumPy's functions on CuPy arrays where CuPy's have other parameters, types or results.

It imports CuPy, and is imported when the first of them arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache, partial, reduce
from importlib import import_module
from inspect import BoundArguments, Parameter, Signature, signature
from itertools import takewhile
from typing import Any

import cupy
import cupyx
import numpy as np

from ..engines.cuda import on_device_of
from ..engines.dispatch import Func

__all__ = ["by_cupy", "check_key", "elements_for", "imag", "item", "method_by_cupy", "raising"]

# Parameters of NumPy's functions that are arrays: lists and, of some functions, numbers in their
# places become arrays of CuPy's.
_ARRAYS = frozenset({"a", "a1", "a2", "append", "ar1", "ar2", "arr", "array", "ary", "b", "bins",
                     "condition", "element", "fill_value", "filt", "fp", "m", "p", "prepend",
                     "sample", "src", "test_elements", "to_begin", "to_end", "v", "val", "values",
                     "w", "weights", "where", "x", "x1", "x2", "xp", "y"})
_SEQUENCES = frozenset({"arrays", "choicelist", "condlist", "tup"})
_VARIADIC = frozenset({"args", "arys", "xi"})
_NUMBERS_TOO = frozenset({np.array_equal, np.array_equiv, np.broadcast_arrays, np.ediff1d,
                          np.interp, np.isin, np.atleast_1d, np.atleast_2d, np.atleast_3d,
                          np.broadcast_to})
# What makes no difference on a GPU: there are no subclasses, sorting is stable, and sets are
# sorted.
_WITHOUT_EFFECT = {"subok": (True, False), "stable": (None, True, False), "sorted": (True, False),
                   "device": (None,), "kind": (None, "quicksort", "heapsort", "mergesort", "stable",
                                               "introselect", "sort", "table")}
_WORDS = {**dict.fromkeys(("inv", "solve", "tensorinv", "tensorsolve", "matrix_power"),
                          "Singular matrix"), "cholesky": "Matrix is not positive definite",
          "lstsq": "SVD did not converge in Linear Least Squares",
          **dict.fromkeys(("svd", "svdvals", "pinv", "matrix_rank", "cond", "norm", "matrix_norm"),
                          "SVD did not converge"),
          **dict.fromkeys(("eig", "eigh", "eigvals", "eigvalsh", "roots"),
                          "Eigenvalues did not converge")}
_BY_PLACE = frozenset({Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD})
_UNCHANGED = nullcontext()
_UNSET: Any = np._NoValue
# which return NaN for it
_OF_NAN = frozenset({np.linalg.eigh, np.linalg.eigvalsh, np.linalg.inv, np.linalg.solve})
_TUPLES = frozenset({np.atleast_1d, np.atleast_2d, np.atleast_3d, np.gradient})
_BOOLS = frozenset({np.allclose, np.array_equal, np.array_equiv})
# Methods that are NumPy's functions of the same names.
_METHODS = frozenset({"all", "any", "argmax", "argmin", "argsort", "choose", "clip", "cumprod",
                      "cumsum", "max", "mean", "min", "prod", "put", "round", "searchsorted", "std",
                      "sum", "take", "var"})
_IGNORED_BY_METHODS = {"sort": ("kind", "stable"), "astype": ("subok",)}


def by_cupy(function: Func, ours: Func | None,
            arguments: tuple[Any, ...], named: dict[str, Any], some: cupy.ndarray) -> Any:
    """A function of NumPy on CuPy arrays, one of which is ``some``; ``NotImplemented`` without
    one."""
    own = ours or _OWN.get(function)
    theirs = () if own else _theirs(function)
    if not (own or theirs):
        return NotImplemented
    described = _signature(function)
    may_fail = function.__module__ == "numpy.linalg" and not (function is np.linalg.norm
                                                              and len(arguments) == 1
                                                              and "ord" not in named)
    with on_device_of(some), raising(function.__name__) if may_fail else _UNCHANGED:
        if described is None or (own and not any(isinstance(x, (list, tuple))
                                                 for x in (*arguments, *named.values()))):
            return (own or theirs[0])(*arguments, **named)
        # most calls: nothing to translate
        if not own and _fits(function, theirs[0], arguments, named):
            call = theirs[0]
        else:
            given = described.bind(*arguments, **named)
            _make_arrays(given, function)
            if own:
                return own(*given.args, **given.kwargs)
            chosen = next((x for x in theirs if not _unknown(function, x, given)), theirs[0])
            call, arguments, named = partial(_called, function, chosen), (given,), {}
        try:
            return _as_numpys(function, call(*arguments, **named))
        except np.linalg.LinAlgError:
            if function not in _OF_NAN or not cupy.isnan(some).any():
                raise
            with cupyx.errstate(linalg="ignore"):
                result = _as_numpys(function, call(*arguments, **named))
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
    """CuPy's function for NumPy's; that of the Array API standard if it has more parameters."""
    place, name = function.__module__.split(".")[1:], function.__name__
    found: list[Func] = []
    for package in (cupy, import_module("array_api_compat.cupy")):
        try:
            theirs = getattr(reduce(getattr, place, package), name)
        except AttributeError:
            continue
        if theirs is not function and (not found or place):
            found.append(theirs)
    return tuple(found)


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
        elif name in _VARIADIC or (name in _SEQUENCES and isinstance(value, (list, tuple))):
            given.arguments[name] = type(value)(map(made, value)) if type(value) in (list, tuple) else [*map(made, value)]
        # of einsum, whose lists may be subscripts
        elif name == "operands" and value and isinstance(value[0], str):
            given.arguments[name] = tuple(map(made, value))


def _called(function: Func, theirs: Func, given: BoundArguments) -> Any:
    """Call CuPy's function with what NumPy's was given, by CuPy's names."""
    for name, value in [*given.arguments.items()]:
        if _makes_no_difference(name, value):
            del given.arguments[name]
    names = _renamed(function, theirs)
    if names is None:
        return theirs(*given.args, **given.kwargs)
    unknown = _unknown(function, theirs, given)
    if unknown:
        raise TypeError(f"CuPy's {theirs.__name__} does not take {unknown[0]!r}")
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for name, (cupys, by_place, default) in names.items():
        value = given.arguments.get(name, default)
        if value is Parameter.empty:
            continue
        if by_place and not named:
            arguments.append(value)
        else:
            named[cupys] = value
    return theirs(*arguments, **named)


def _unknown(function: Func, theirs: Func,
             given: BoundArguments) -> list[str]:
    """The arguments of a call for which CuPy's function has no parameter."""
    numpys, names = given.signature.parameters, _renamed(function, theirs)
    return [] if names is None else [name for name, value in given.arguments.items()
                                     if name not in names
                                     and not (_makes_no_difference(name, value)
                                              or value is numpys[name].default
                                              or (isinstance(value, (tuple, dict)) and not value))]


@cache
def _renamed(
    function: Func, theirs: Func
) -> Mapping[str, tuple[str, bool, Any]] | None:
    """NumPy's parameters with CuPy's names, whether given by place, and NumPy's defaults; ``None``
    if CuPy's function takes anything."""
    numpys, cupys = _signature(function), _signature(theirs)
    known = (*_BY_PLACE, Parameter.KEYWORD_ONLY)
    if numpys is None or cupys is None or any(p.kind not in known
                                              for p in cupys.parameters.values()):
        return None
    in_order = list(cupys.parameters.values())
    names: dict[str, tuple[str, bool, Any]] = {}
    for i, parameter in enumerate(numpys.parameters.values()):
        other = in_order[i] if i < len(in_order) and in_order[i].name not in numpys.parameters else None
        theirs_of_place = other is not None and other.kind in _BY_PLACE and parameter.kind in _BY_PLACE
        found = cupys.parameters.get(parameter.name, other if theirs_of_place else None)
        if found is not None:
            required = parameter.default is Parameter.empty
            by_place = found.kind is Parameter.POSITIONAL_ONLY or (required
                                                                   and parameter.kind in _BY_PLACE)
            default = parameter.default if found.default is Parameter.empty else Parameter.empty
            names[parameter.name] = found.name, by_place, default
    return names


def _fits(function: Func, theirs: Func, arguments: tuple[Any, ...],
          named: dict[str, Any]) -> bool:
    least, most, names = _shared(function, theirs)
    return (least <= len(arguments) <= most and names.issuperset(named)
            and all(map(_is_plain, arguments)) and all(map(_is_plain, named.values()))
            and function not in _NUMBERS_TOO)


@cache
def _shared(
    function: Func, theirs: Func
) -> tuple[int, int, frozenset[str]]:
    """The arguments that both functions need, take by place alike, and call the same."""
    renamed, numpys, cupys = _renamed(function, theirs), _signature(function), _signature(theirs)
    if renamed is None or numpys is None or cupys is None:
        return 0, -1, frozenset()
    pairs = zip(numpys.parameters.values(), cupys.parameters.values(), strict=False)
    in_order = list(takewhile(lambda pair: renamed.get(pair[0].name, ("",))[0] == pair[1].name
                              and pair[0].kind in _BY_PLACE and pair[1].kind in _BY_PLACE
                              and pair[0].name not in _WITHOUT_EFFECT, pairs))
    least = sum(p.default is Parameter.empty for p in cupys.parameters.values())
    names = {name for name, (same, _by_place, _default) in renamed.items()
             if name == same} - _WITHOUT_EFFECT.keys()
    return least, len(in_order), frozenset(names)


def _is_plain(x: Any) -> bool:
    """Whether an argument needs no translation: arrays, numbers, names or nothing."""
    kind = type(x)
    return x is None or kind in (int, float, bool, str) or isinstance(x, cupy.ndarray) or (
        kind in (list, tuple) and bool(x) and all(isinstance(y, cupy.ndarray) for y in x))


def _makes_no_difference(name: str, value: Any) -> bool:
    """Whether an argument may be left out."""
    return value is _UNSET or (isinstance(value, (bool, str, type(None)))
                                    and value in _WITHOUT_EFFECT.get(name, ()))


def _as_numpys(function: Func, result: Any) -> Any:
    """A result of the type that NumPy's function returns."""
    if function in _BOOLS:
        return bool(result)
    if function in _TUPLES and type(result) is list:
        return tuple(result)
    named = _named_tuple(function) if type(result) is tuple else None
    # mode="raw"
    if named is None or (function is np.linalg.qr and result[0].ndim != result[1].ndim):
        return result
    return named(*result)


@cache
def _named_tuple(function: Func) -> Func | None:
    """The named tuple that a function of ``numpy.linalg`` returns."""
    if function not in (np.linalg.eig, np.linalg.eigh, np.linalg.qr, np.linalg.slogdet,
                        np.linalg.svd):
        return None
    return type(function(np.eye(1)))


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
    """``numpy.clip``, whose bounds have two names."""
    low, high = (other if bound is None or bound is _UNSET else bound
                 for bound, other in ((a_min, min), (a_max, max)))
    low, high = (cupy.asarray(x) if isinstance(x, (list, tuple)) else x for x in (low, high))
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


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    cupy.copyto(dst, src, casting, None if where is True else cupy.asarray(where))


def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Any:
    """``numpy.cov`` without weights: CuPy subtracts the mean of all numbers alike."""
    if fweights is not None or aweights is not None:
        raise TypeError(
            "CuPy's cov does not take fweights or aweights: it subtracts the mean without weights"
        )
    return cupy.cov(m, y, rowvar, bias, ddof, dtype=dtype)


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return (a != 0).sum(axis, dtype=np.intp, keepdims=True) if keepdims else cupy.count_nonzero(a, axis)


_JOINED = {"sum": ("add", 0), "prod": ("multiply", 1), "max": ("maximum", None),
           "min": ("minimum", None), "any": (None, False), "all": (None, True)}


def _reduction(name: str) -> Func:
    """A reduction with ``where`` and ``initial``, of which CuPy has neither."""
    join, identity = _JOINED[name]

    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
             initial: Any = _UNSET, where: Any = True) -> Any:
        has_initial = initial is not _UNSET
        if where is not True and where is not _UNSET:
            if identity is None and not has_initial:
                raise ValueError(
                    f"reduction operation '{name}imum' does not have an identity, so to use a where mask one has to "
                    "specify 'initial'"
                )
            a = cupy.where(cupy.asarray(where), a,
                           a.dtype.type(initial if identity is None else identity))
        named = {} if dtype is None else {"dtype": dtype}
        named |= {} if keepdims is _UNSET else {"keepdims": keepdims}
        if identity is None and has_initial and a.size == 0:
            a = cupy.full((1,) * a.ndim, initial, a.dtype) if axis is None else a
        result = getattr(a, name)(axis, out=out, **named)
        if has_initial and join is not None:
            result = getattr(cupy, join)(result, result.dtype.type(initial),
                                         **({} if out is None else {"out": out}))
        return result

    return call


def _without_dtype(call: Func) -> Func:
    """A reduction whose parameters do not have ``dtype`` between the axis and ``out``."""
    return lambda a, axis=None, out=None, keepdims=False, initial=_UNSET, where=True: call(
        a, axis, None, out, keepdims, initial, where)


def _mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
          where: Any = True) -> Any:
    keepdims = False if keepdims is _UNSET else keepdims
    if where is True or where is _UNSET:
        return a.mean(axis, dtype, out, keepdims)
    mask = cupy.broadcast_to(cupy.asarray(where), a.shape)
    total = _reduction("sum")(a, axis, dtype or (None if a.dtype.kind in "fc" else float), None,
                              keepdims, where=mask)
    mean = (total / mask.sum(axis, keepdims=keepdims)).astype(total.dtype, copy=False)
    if out is None:
        return mean
    out[...] = mean
    return out


def _deviation(name: str) -> Func:
    """``numpy.std`` and ``numpy.var``, whose ``ddof`` has two names."""
    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
             keepdims: Any = False, *, where: Any = True, mean: Any = _UNSET,
             correction: Any = _UNSET) -> Any:
        if not (where is True or where is _UNSET) or mean is not _UNSET:
            raise TypeError(
                f"CuPy's {name} does not take {'mean' if mean is not _UNSET else 'where'!r}"
            )
        ddof = ddof if correction is _UNSET else correction
        return getattr(a, name)(axis, dtype, out, ddof,
                                False if keepdims is _UNSET else keepdims)

    return call


def imag(val: cupy.ndarray) -> cupy.ndarray:
    """The imaginary parts; of a real array zeros in its order, where CuPy's are in C order."""
    return val.T.imag.T if val.flags.f_contiguous else val.imag


_OWN: dict[Func, Func] = {
    np.take: _take,
    np.choose: _choose,
    np.clip: _clip,
    np.lexsort: _lexsort,
    np.copyto: _copyto,
    np.cov: _cov,
    np.mean: _mean,
    np.imag: imag,
    np.count_nonzero: _count_nonzero,
    np.std: _deviation("std"),
    np.var: _deviation("var"),
    np.sum: _reduction("sum"),
    np.prod: _reduction("prod"),
    **{
        getattr(np, name): _without_dtype(_reduction(name[-3:]))
        for name in ("max", "min", "amax", "amin", "any", "all")
    }
}


# -- methods ---------------------------------------------------------------------------------------
def method_by_cupy(data: cupy.ndarray, name: str, arguments: tuple[Any, ...],
                   named: dict[str, Any]) -> Any:
    """A method of NumPy's arrays on a CuPy array, with NumPy's arguments."""
    if name in _METHODS:
        return by_cupy(getattr(np, name), None, (data, *arguments), named, data)
    ignored = _IGNORED_BY_METHODS.get(name, ())
    return getattr(data, name)(*arguments, **{key: value for key, value in named.items()
                                              if key not in ignored})


def item(data: cupy.ndarray, *index: Any) -> Any:
    """An element as a Python number: by no index, in C order, or one for each axis."""
    index = index[0] if len(index) == 1 and isinstance(index[0], tuple) else index
    if len(index) == 1 and data.ndim != 1:
        size, flat = data.size, index[0]
        if not -size <= flat < size:
            raise IndexError(f"index {flat} is out of bounds for size {size}")
        index = np.unravel_index(flat % size, data.shape)
    if index and len(index) != data.ndim:
        raise ValueError("incorrect number of indices for array")
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
    with on_device_of(data):
        return cupy.asarray(_element_of(value, data[key].dtype)
                            if _is_of_one_element(key, data.ndim) else value)


def _is_of_one_element(key: Any, ndim: int) -> bool:
    """Whether an index has an integer for each axis, so that a value is not broadcast."""
    parts = key if type(key) is tuple else (key,)
    return len(parts) == ndim and all(isinstance(x, (int, np.integer)) and not isinstance(x, bool)
                                      for x in parts)


def _element_of(value: Any, dtype: np.dtype) -> Any:
    """What NumPy makes of a sequence that is to be one element."""
    element = np.zeros(1, dtype)
    element[0] = value
    return element[0]
