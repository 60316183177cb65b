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
_OWN = "cuteblas.epilogues", "cuteblas.functions.epilogues"
"""Modules of this package whose functions depend on their arguments alone."""
_FIELDS_OF_EPILOGUES = frozenset({"accepted", "function", "parameters", "inputs", "operands",
                                  "rows", "columns", "known"})
_ABSENT = object()
_BUILTINS = attrgetter("__builtins__")   # of a function; not every type checker knows the attribute


class _Opaque(Exception):
    """The function reads something that could change without a trace."""


class _Captures:
    def __init__(self) -> None:
        # an object, an expression of it, and its value
        self.checks: list[tuple[Any, str, Any]] = []
        self._seen: list[Any] = []

    def gather(self, function: FunctionType) -> None:
        if _is_own(function) or any(x is function for x in self._seen):
            return
        self._seen.append(function)
        own, keywords = function.__dict__, function.__kwdefaults__
        for name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__"):
            self.checks.append((function, f".{name}", getattr(function, name)))
        self._note_size(own)
        self._check(function.__defaults__ or ())
        for names in (keywords or {}, own):
            for name, value in names.items():
                self._note(names, name, value)
                self._check(value)
        free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for name, captured, attributes in _reads(function.__code__):
            if captured and name not in free:
                continue                # a variable of an enclosing function that is traced as well
            self._follow(self._captured(free[name]) if captured else self._named(function, name),
                         attributes)

    def _note(self, names: ByName, name: str, value: Any) -> None:
        self.checks.append((names, f".get({name!r}, absent)", value))

    def _note_size(self, names: ByName) -> None:
        self.checks.append((names, f".__len__() == {len(names)}", True))

    def _captured(self, cell: CellType) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:
            raise _Opaque from None
        self.checks.append((cell, ".cell_contents", value))
        return value

    def _named(self, function: FunctionType, name: str) -> Any:
        names: ByName = function.__globals__
        if name not in names:
            self._note(names, name, _ABSENT)
            names = _BUILTINS(function)
            if name not in names or name not in _PURE:
                raise _Opaque
            self._note(names, name, names[name])
            return None
        self._note(names, name, names[name])
        return names[name]

    def _follow(self, value: Any, attributes: tuple[str, ...]) -> None:
        """Note attributes of modules, up to what is not a module."""
        for name in attributes:
            if type(value) is not ModuleType:
                break
            names = vars(value)
            if name not in names:
                raise _Opaque
            self._note(names, name, names[name])
            value = names[name]
        self._check(value)

    def _check(self, value: Any) -> None:
        """Follow helpers; refuse what could change inside while it stays the same object."""
        kind = type(value)
        if kind in _IMMUTABLE or _is_pure(value):
            return
        if kind is tuple or kind is frozenset:
            for item in value:
                self._check(item)
        elif kind is FunctionType:
            self.gather(value)
        elif kind is Epilogue:
            self._gather_epilogue(value)
        else:
            raise _Opaque

    def _gather_epilogue(self, value: Epilogue) -> None:
        names = vars(value)
        if any(x is names for x in self._seen):
            return
        self._seen.append(names)
        self._note_size(names)
        own = {*_FIELDS_OF_EPILOGUES, *vars(Epilogue)}
        for name, attribute in names.items():
            if name not in own and not (name.startswith("__") and name.endswith("__")):
                self._note(names, name, attribute)
                self._check(attribute)
        self._note(names, "function", value.function)
        self.gather(value.function)


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
    name = function.__globals__.get("__name__", "")
    return type(name) is str and (name in _OWN or name.startswith(f"{_OWN[1]}."))


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
    try:
        return value in _PURE_OF_NUMPY if callable(value) else False
    except TypeError:                   # what has no hash
        return False


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
