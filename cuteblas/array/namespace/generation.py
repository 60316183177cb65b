"""Functions of the Array API standard, made from their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from ... import functions
from ...engines.dispatch import Func, kind_of
from ...functions import linalg
from ..devices import CPU, checked_device, copied_to, device_of, made_on
from ..libraries import leaves
from ..wrapper import call_on_data
from .standard import LISTS

__all__ = ["generated"]

_OURS = {"": functions, "linalg": linalg}


def generated(table: Mapping[str, str], part: str, module: str) -> dict[str, Func]:
    """The functions of a part of the standard; ``table`` has names, by blanks, by parameters."""
    return {name: _function(name, parameters, part, module) for parameters, names in table.items()
            for name in names.split()}


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
            from .._cupy_functions import raising

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
