"""The values that a function reads besides its arguments; its trace holds only while they are
unchanged.

Values that cannot change in themselves are compared by identity at every place that the function
takes them from. What may change while it stays the same object (a list, an object with attributes)
makes the function opaque.
"""

from __future__ import annotations

import cmath
import dis
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import attrgetter
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ...engines.dispatch import ByName
from .epilogue import Epilogue
from .tracing import ARRAY_FUNCTIONS

_IMMUTABLE = frozenset({int, float, complex, str, bytes, bool, type(None), type(...), range})
_PURE = frozenset({"abs", "bool", "complex", "dict", "divmod", "enumerate", "float", "int",
                   "isinstance", "len", "list", "map", "max", "min", "pow", "range", "reversed",
                   "round", "sum", "tuple", "zip", "TypeError", "ValueError"})
_PURE_OF_NUMPY = frozenset({*ARRAY_FUNCTIONS, np.finfo, np.iinfo, np.dtype, np.result_type,
                            np.promote_types, np.can_cast, np.issubdtype, np.isscalar, np.ndim,
                            np.shape, np.size, np.asarray, np.array, np.prod, np.ndarray})
"""Those that ask for random numbers, files or settings are not among them."""
_STATEFUL_SCALARS = np.void, np.object_, np.datetime64
"""Types whose values refer to other memory, or that depend on the time."""
_OWN = "cuteblas.epilogues.", "cuteblas.functions.epilogues."
"""Modules of this package whose functions depend on their arguments alone."""
_ABSENT = object()
_BUILTINS = attrgetter("__builtins__")   # of a function; not every type checker knows the attribute


class _Opaque(Exception):
    """The function reads something that could change without a trace."""


class _Captures:
    def __init__(self) -> None:
        # an object, an expression of it, and its value
        self.checks: list[tuple[Any, str, Any]] = []
        self._seen: list[Any] = []

    def gather(self, owner: FunctionType | Epilogue) -> None:
        """Note what a function reads besides its arguments, and what an epilogue has."""
        if any(x is owner for x in self._seen):
            return
        self._seen.append(owner)
        if isinstance(owner, Epilogue):
            self._note_parts(owner, "function")
            self.gather(owner.function)
            return
        if _is_own(owner):
            return
        self._note_parts(owner, "__code__", "__defaults__", "__kwdefaults__")
        self._check(owner.__defaults__ or ())
        self._note_all(owner.__kwdefaults__ or {})
        free = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True))
        for name, captured, attributes in _reads(owner.__code__):
            if captured and name not in free:
                continue                # a variable of an enclosing function that is traced as well
            self._follow(self._captured(free[name]) if captured else self._named(owner, name),
                         attributes)

    def _note(self, names: ByName, name: str) -> Any:
        value = names.get(name, _ABSENT)
        self.checks.append((names, f".get({name!r}, absent)", value))
        return value

    def _note_parts(self, owner: Any, *names: str) -> None:
        for name in (*names, "__dict__"):
            self.checks.append((owner, f".{name}", getattr(owner, name)))
        self._note_all(vars(owner))

    def _note_all(self, names: ByName) -> None:
        self.checks.append((names, f".__len__() == {len(names)}", True))
        for name in names:
            if not name.startswith("__"):       # which no code reads that is followed
                self._check(self._note(names, name))

    def _captured(self, cell: CellType) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:
            raise _Opaque from None
        self.checks.append((cell, ".cell_contents", value))
        return value

    def _named(self, function: FunctionType, name: str) -> Any:
        value = self._note(function.__globals__, name)
        if value is not _ABSENT:
            return value
        if self._note(_BUILTINS(function), name) is _ABSENT or name not in _PURE:
            raise _Opaque
        return None

    def _follow(self, value: Any, attributes: tuple[str, ...]) -> None:
        """Note attributes of modules, up to what is not a module."""
        for name in attributes:
            if type(value) is not ModuleType:
                break
            value = self._note(vars(value), name)
        self._check(value)

    def _check(self, value: Any) -> None:
        """Follow helpers; refuse what could change inside while it stays the same object."""
        kind = type(value)
        if kind in _IMMUTABLE or _is_pure(value):
            return
        if kind is tuple or kind is frozenset:
            for item in value:
                self._check(item)
        elif kind is FunctionType or kind is Epilogue:
            self.gather(value)
        else:
            raise _Opaque


def unchanged_since(function: FunctionType) -> Callable[[], bool]:
    """A compiled test of whether all that a function reads is unchanged; always false if some of
    it could change unnoticed."""
    found, places, terms = _Captures(), {"absent": _ABSENT}, ["True"]
    try:
        found.gather(function)
    except _Opaque:
        return bool
    for i, (owner, expression, value) in enumerate(found.checks):
        places |= {f"x{i}": owner, f"y{i}": value}
        terms.append(f"(x{i}{expression}) is y{i}")
    # of an empty cell
    exec(f"def holds():\n try: return {' and '.join(terms)}\n except ValueError: return False",
         places)
    return places["holds"]                                      # type: ignore[return-value]


def _is_own(function: FunctionType) -> bool:
    """Whether a function is one of ours that depends on its arguments alone, by its globals:
    ``functools.wraps`` copies ``__module__``."""
    return f"{function.__globals__.get('__name__')}.".startswith(_OWN)


def _is_pure(value: Any) -> bool:
    """Whether a value never changes and, if it is called, depends on its arguments alone."""
    kind = type(value)
    if kind is np.ufunc:
        return True
    if isinstance(value, np.dtype):
        return value.metadata is None and not value.hasobject
    scalar = value if isinstance(value, type) else kind
    if issubclass(scalar, np.generic):
        return scalar.__module__ in ("numpy", "ml_dtypes") and not issubclass(scalar,
                                                                              _STATEFUL_SCALARS)
    if kind is BuiltinFunctionType and (value.__self__ is math or value.__self__ is cmath):
        return True
    return any(value is x for x in _PURE_OF_NUMPY)      # it may have no hash


# -- what a function's code reads ------------------------------------------------------------------
_Read = tuple[str, bool, tuple[str, ...]]
"""A name, whether an enclosing function has it, and its attributes that are taken at once."""
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NO_TELLING = frozenset({"IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_BUILD_CLASS",
                         "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS",
                         "LOAD_SUPER_ATTR", "LOAD_LOCALS"})


@lru_cache(maxsize=1024)
def _reads(code: CodeType) -> tuple[_Read, ...]:
    return tuple(dict.fromkeys(_walk(code)))


def _walk(code: CodeType) -> Iterator[_Read]:
    name: str | None = None
    captured, attributes = False, list[str]()
    for instruction in (*dis.get_instructions(code), None):
        what = None if instruction is None else instruction.opname
        if what == "EXTENDED_ARG":
            continue
        if what in _ATTRIBUTE:
            attribute = instruction.argval              # type: ignore[union-attr]
            if attribute.startswith("__"):
                raise _Opaque
            attributes.append(attribute)
            continue
        if name is not None:
            yield name, captured, tuple(attributes)
        name, attributes = None, []
        if what in _NO_TELLING:
            raise _Opaque
        captured = what == "LOAD_DEREF"
        if captured or what in _GLOBAL:
            name = instruction.argval                   # type: ignore[union-attr]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _walk(inner)
