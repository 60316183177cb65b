"""The functions of the Array API standard, version 2024.12, made from their parameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

import numpy as np

from .. import functions
from ..engines.dispatch import Func, kind_of
from ..functions import linalg
from .libraries import CPU, checked_device, copied_to, device_of, leaves, made_on
from .wrapper import call_on_data

VERSION = "2024.12"

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float32", "float64", "complex64", "complex128")

NUMPYS = ("cumsum", "float16", "gradient", "isin", "lib", "pad", "quantile", "transpose")
"""Names of NumPy beyond the standard, for which xarray looks."""

LISTS = frozenset({"broadcast_arrays", "meshgrid"})
"""Functions that return lists, where NumPy's and CuPy's return tuples."""

MAIN = {
    # creation
    "start, /, stop=None, step=1, *, dtype=None, device=None": "arange",
    "shape, *, dtype=None, device=None": "empty ones zeros",
    "x, /, *, dtype=None, device=None": "empty_like ones_like zeros_like",
    "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None": "eye",
    "shape, fill_value, *, dtype=None, device=None": "full",
    "x, /, fill_value, *, dtype=None, device=None": "full_like",
    "start, stop, /, num, *, dtype=None, device=None, endpoint=True": "linspace",
    "*arrays, indexing='xy'": "meshgrid",
    "x, /, *, k=0": "tril triu",
    # data types
    "x, dtype, /, *, copy=True, device=None": "astype",
    "from_, to, /": "can_cast",
    "type, /": "finfo iinfo",
    "dtype, kind": "isdtype",
    "*arrays_and_dtypes": "result_type",
    # elements
    "x, /": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log "
    "log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc "
    "matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values",
    "x1, x2, /": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul "
    "maximum minimum multiply nextafter not_equal pow remainder subtract",
    "x, /, min=None, max=None": "clip",
    # indices and searches
    "x, indices, /, *, axis=None": "take",
    "x, indices, /, *, axis=-1": "take_along_axis",
    "x, /, *, axis=None, keepdims=False": "all any argmax argmin count_nonzero max mean min",
    "x1, x2, /, *, side='left', sorter=None": "searchsorted",
    "condition, x1, x2, /": "where",
    "x, /, *, axis=-1, descending=False, stable=True": "argsort sort",
    # products
    "x1, x2, /, *, axes=2": "tensordot",
    "x1, x2, /, *, axis=-1": "vecdot",
    # shapes
    "*arrays": "broadcast_arrays",
    "x, /, shape": "broadcast_to",
    "arrays, /, *, axis=0": "concat stack",
    "x, /, axis": "expand_dims squeeze",
    "x, /, *, axis=None": "flip",
    "x, source, destination, /": "moveaxis",
    "x, /, axes": "permute_dims",
    "x, repeats, /, *, axis=None": "repeat",
    "x, /, shape, *, copy=None": "reshape",
    "x, /, shift, *, axis=None": "roll",
    "x, repetitions, /": "tile",
    "x, /, *, axis=0": "unstack",
    # sums
    "x, /, *, axis=None, dtype=None, include_initial=False": "cumulative_prod cumulative_sum",
    "x, /, *, axis=None, dtype=None, keepdims=False": "prod sum",
    "x, /, *, axis=None, correction=0.0, keepdims=False": "std var",
    "x, /, *, axis=-1, n=1, prepend=None, append=None": "diff",
}

LINALG = {
    "x, /, *, upper=False": "cholesky",
    "x1, x2, /, *, axis=-1": "cross vecdot",
    "x, /": "det eigh eigvalsh inv matrix_transpose slogdet svdvals",
    "x, /, *, offset=0": "diagonal",
    "x1, x2, /": "matmul outer solve",
    "x, /, *, keepdims=False, ord='fro'": "matrix_norm",
    "x, n, /": "matrix_power",
    "x, /, *, rtol=None": "matrix_rank pinv",
    "x, /, *, mode='reduced'": "qr",
    "x, /, *, full_matrices=True": "svd",
    "x1, x2, /, *, axes=2": "tensordot",
    "x, /, *, offset=0, dtype=None": "trace",
    "x, /, *, axis=None, keepdims=False, ord=2": "vector_norm",
}

FFT = {
    "x, /, *, n=None, axis=-1, norm='backward'": "fft hfft ifft ihfft irfft rfft",
    "x, /, *, s=None, axes=None, norm='backward'": "fftn ifftn irfftn rfftn",
    "n, /, *, d=1.0, dtype=None, device=None": "fftfreq rfftfreq",
    "x, /, *, axes=None": "fftshift ifftshift",
}

# -- functions -------------------------------------------------------------------------------------
_OURS = {"": functions, "linalg": linalg}


def generated(table: Mapping[str, str], part: str, module: str) -> dict[str, Func]:
    """The functions of a part of the standard; ``table`` has names, by blanks, by parameters."""
    return {name: _function(name, parameters, part, module) for parameters, names in table.items()
            for name in names.split()}


def submodule(module: str, table: Mapping[str, str]) -> ModuleType:
    """A module of the namespace, to import as ``os.path``."""
    made = sys.modules[module] = ModuleType(module, "Functions of the Array API standard.")
    found = generated(table, module.rpartition(".")[2], module)
    vars(made).update(found, __all__=sorted(found))
    return made


def _function(name: str, parameters: str, part: str, module: str) -> Func:
    """A function with exactly these parameters, which passes on what is not the default."""
    def answer(given: dict[str, Any]) -> Any:
        positional = given[by_place[0]] if variadic else tuple(map(given.__getitem__, by_place))
        named = {key: given[key] for key, default in defaults.items() if given[key] is not default}
        return _answer(part, name, positional, named, "device" in defaults)

    # the table is part of this package
    function: Func = eval(f"lambda {parameters}: answer(locals())", {"answer": answer})
    kinds = signature(function).parameters.values()
    by_place = [p.name for p in kinds if p.kind is not p.KEYWORD_ONLY]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in kinds)
    defaults = {p.name: p.default for p in kinds if p.kind is p.KEYWORD_ONLY}
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__doc__ = f"``{name}({parameters})`` of the Array API standard."
    return function


def _answer(part: str, name: str, positional: tuple[Any, ...], named: dict[str, Any],
            placed: bool) -> Any:
    """Call ours or that of array-api-compat on what our arrays wrap."""
    device = named.pop("device", None)

    def call(*raw: Any, **raw_named: Any) -> Any:
        arrays = [x for x in leaves((raw, raw_named)) if kind_of(x) in ("numpy", "cupy")]
        here = device_of(arrays[0]) if arrays else checked_device(device) if placed else CPU
        if arrays and device is not None:
            here = checked_device(device)
            raw = tuple(copied_to(x, here) if kind_of(x) in ("numpy", "cupy") else x for x in raw)
        with made_on(here) as library:
            ours = getattr(_OURS.get(part), name, None) if arrays else None
            function = ours or getattr(_compatible(library.__name__, part), name)
            if here == CPU or part != "linalg":
                return function(*raw, **raw_named)
            from ._cupy_functions import raising

            with raising(name):
                return function(*raw, **raw_named)

    result = call_on_data(call, name, positional, named)
    if isinstance(result, np.finfo):
        return _FloatInfo(result)
    return [*result] if name in LISTS else result


class _FloatInfo:
    __slots__ = ("_info",)

    def __init__(self, info: np.finfo):
        self._info = info

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._info, name)
        return float(value) if isinstance(value, np.floating) else value

    def __repr__(self) -> str:
        return repr(self._info)


@cache
def _compatible(library: str, part: str) -> Any:
    return import_module(f"array_api_compat.{library}" + (f".{part}" if part else ""))
