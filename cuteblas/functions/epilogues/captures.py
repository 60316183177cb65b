"""What a function reads besides its arguments, so that a trace of it is used again only while all of that is unchanged."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from functools import lru_cache
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["Captures", "captures"]

_TRUSTED = frozenset({"numpy", "math", "cmath", "ml_dtypes", "scipy", "cuteblas"})
"""Libraries whose functions do not change while a program runs."""
_UNCHANGING = (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype, np.ufunc)
_PURE = frozenset({"abs", "bool", "complex", "dict", "divmod", "enumerate", "float", "int", "isinstance", "len", "list", "map",
                   "max", "min", "pow", "range", "reversed", "round", "sum", "tuple", "zip", "TypeError", "ValueError"})
"""Builtins that depend on their arguments alone."""

_Found = list[tuple[Any, Any, Any]]


class _Opaque(Exception):
    """The function reads something that could change without a trace."""


class Captures:
    """Everything that a function and its helpers read, and what it was.

    Parameters
    ----------
    found : list of (place, key, value)
        A closure's cell and ``None``, a namespace and a name, or a function and the name of an attribute; and what was there.
    """

    def __init__(self, found: _Found):
        self._cells = [(place, value) for place, _key, value in found if isinstance(place, CellType)]
        self._names = [(place, key, value) for place, key, value in found if isinstance(place, dict)]
        self._functions = [(place, key, value) for place, key, value in found if isinstance(place, FunctionType)]

    def unchanged(self) -> bool:
        """Whether everything is still what it was."""
        try:
            return (all(getattr(function, name) is value for function, name, value in self._functions)
                    and all(cell.cell_contents is value for cell, value in self._cells)
                    and all(_look_up(namespace, name) is value for namespace, name, value in self._names))
        except ValueError:              # a cell was emptied
            return False


def captures(function: FunctionType) -> Captures | None:
    """What a function reads, or ``None`` if some of it could change unnoticed: a list, an object with attributes, a module of the
    user's, a random number."""
    found: _Found = []
    try:
        _gather(function, found, set())
    except _Opaque:
        return None
    return Captures(found)


def _look_up(namespace: dict[str, Any], name: str) -> Any:
    return namespace[name] if name in namespace else getattr(builtins, name, _Opaque)


def _gather(function: FunctionType, found: _Found, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    found += ((function, "__code__", function.__code__), (function, "__defaults__", function.__defaults__))
    _judge(function.__defaults__ or (), found, seen)
    for name, value in (function.__kwdefaults__ or {}).items():
        found.append((function.__kwdefaults__, name, value))
        _judge(value, found, seen)
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            raise _Opaque from None
        found.append((cell, None, value))
        _judge(value, found, seen)
    for name in _global_names(function.__code__):
        value = _look_up(function.__globals__, name)
        if value is _Opaque:
            raise _Opaque
        found.append((function.__globals__, name, value))
        if name in function.__globals__:
            _judge(value, found, seen)
        elif name not in _PURE:
            raise _Opaque


def _judge(value: Any, found: _Found, seen: set[int]) -> None:
    """Follow helpers; refuse what could change inside while it stays the same object."""
    if isinstance(value, tuple):
        for item in value:
            _judge(item, found, seen)
    elif isinstance(value, _UNCHANGING) or _of_trusted_library(value):
        return
    elif isinstance(value, FunctionType):
        _gather(value, found, seen)
    elif isinstance(getattr(value, "__wrapped__", None), FunctionType) and _of_trusted_library(type(value)):     # an epilogue
        _gather(value.__wrapped__, found, seen)
    else:
        raise _Opaque


def _of_trusted_library(value: Any) -> bool:
    if isinstance(value, ModuleType):
        name = value.__name__
    elif isinstance(value, type | BuiltinFunctionType | FunctionType | type(np.where)):
        name = value.__module__ or ""
    else:
        return False
    return name.partition(".")[0] in _TRUSTED


@lru_cache(maxsize=1024)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """The global names that a function reads, its inner functions included.

    Raises
    ------
    _Opaque
        If it imports something of the user's, writes a global name, or asks NumPy for random numbers.
    """
    return tuple(dict.fromkeys(_walk(code)))


def _walk(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                yield instruction.argval
            case "IMPORT_NAME" if instruction.argval.partition(".")[0] not in _TRUSTED:
                raise _Opaque
            case "STORE_GLOBAL" | "DELETE_GLOBAL" | "STORE_DEREF_GLOBAL":
                raise _Opaque
            case "LOAD_ATTR" | "LOAD_METHOD" if instruction.argval == "random":
                raise _Opaque
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _walk(inner)
