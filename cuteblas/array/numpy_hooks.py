"""Where programs reach NumPy's products and copies, and what serves them while installed.

The loops of ``matmul``, ``vecdot``, ``matvec`` and ``vecmat`` serve ``a @ b`` and these functions
under all names; the attributes of ``numpy`` and ``numpy.linalg`` in :data:`FUNCTIONS` do not reach
modules that imported a name before. Plain arrays go to our function of that name; calls of this
package reach NumPy's own.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np

from ..engines.dispatch import Func
from ..engines.placement import FEW
from .libraries import ours_by_numpys
from .numpy_loops import TYPES, Loop, count_failure, raised_elsewhere, why_unavailable
from .patches import Patch, Switch

_LEAST, _LEAST_WITH_BLAS = 1 << 16, 1 << 25
"""Multiplications in one call of a loop, by its type; calls of fewer are left to NumPy at once."""
_LEAST_TERMS = 1 << 17
_BLAS_TYPES = "fdFD"
_OWN = __name__.partition(".")[0] + "."


as_a_program: Func = eval("lambda function, *args, **named: function(*args, **named)",
                                        {})
"""Call a function as a program does: not from a module of this package."""


def _from_here(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_OWN)


# -- loops -----------------------------------------------------------------------------------------
_PRODUCTS: dict[str, Func] = {ufunc.__name__: ours_by_numpys()[ufunc]
                              for ufunc in (np.matmul, np.vecdot, np.matvec, np.vecmat)}


def _serve(loop: Loop, *pointers: Any) -> bool:
    if not (SWITCH.everywhere or SWITCH.here.get()) or _from_here(sys._getframe(2)):
        return False
    a, b, c = loop.arrays(*pointers)
    if SWITCH.watch is not None:
        SWITCH.watch(loop.ufunc, (a, b), {})
        if c.size * a.shape[-1] < loop.least:
            return False
    _PRODUCTS[loop.ufunc.__name__](a, b, c)
    return True


LOOPS = [Loop(ufunc, types, _LEAST_WITH_BLAS if types[0] in _BLAS_TYPES else _LEAST, _serve)
         for ufunc in (getattr(np, name) for name in _PRODUCTS) for types in ufunc.types
         if set(types) <= {*TYPES, *"->"}]


# -- attributes ------------------------------------------------------------------------------------
_NDARRAY = np.ndarray
_PLAIN = frozenset({int, bool, str, type(None), type})


def _elements(arguments: Iterable[Any]) -> int:
    """How many elements all arrays have; -1 if something could answer itself (NEP 18)."""
    total = 0
    for x in arguments:
        if (kind := type(x)) is _NDARRAY:
            total += x.size
        elif kind is tuple or kind is list:
            if (inner := _elements(x)) < 0:
                return -1
            total += inner
        elif kind not in _PLAIN and not isinstance(x, np.dtype):
            return -1
    return total


def _have_blas(arguments: Iterable[Any]) -> bool:
    for x in arguments:
        kind = type(x)
        if (x.dtype.char not in _BLAS_TYPES) if kind is _NDARRAY else kind in (tuple, list) and not _have_blas(x):
            return False
    return True


def _terms(arguments: Iterable[Any]) -> int:
    """The most terms of a product's sums, none for too few of float16; -1 as :func:`_elements`."""
    total = 1
    for x in arguments:
        if type(x) is _NDARRAY:
            total *= x.size * (_LEAST_TERMS if x.itemsize == 2 and x.dtype.char == "e" else 1)
        elif type(x) not in _PLAIN and _elements((x,)) < 0:
            return -1
    return total


class Function:
    """A function that takes the place of one of NumPy's, and equals it in tables (NEP 18)."""
    # ``place`` is "module:name". ``measure`` tells how much an argument tuple's arrays come to,
    # negative if it is not for us; NumPy serves calls of less than ``least``, ``with_blas`` times
    # that for types with a BLAS. ``operands`` arguments by position have all arrays but ``out``;
    # ``foreign`` ones NumPy lacks.

    # found without __getattr__, which makes attributes slow
    __slots__ = "__call__", "__dict__", "__weakref__"
    __call__: Func

    def __init__(self, place: str, measure: Callable[[Iterable[Any]], int], least: int,
                 operands: int = 2, with_blas: int = 1,
                 foreign: frozenset[str] = frozenset({"precision", "variant"})):
        module, _, name = place.partition(":")
        self._place, self._first, self._least = place, resolve_name(place), least
        self._ours = ours_by_numpys()[self._first]

        def call(*args: Any, **named: Any) -> Any:
            original = patch.original
            given = args if len(args) >= operands else [*args, *named.values()]
            much, least = measure(given), self._least
            few = much < least or (much < least * with_blas and _have_blas(given))
            if few and (much < 0 or SWITCH.watch is None):
                return original(*args, **named)
            if not (SWITCH.everywhere or SWITCH.here.get()) or _from_here(sys._getframe(1)) \
                    or (named and (measure(named.values()) < 0 or not foreign.isdisjoint(named))):
                return original(*args, **named)
            if SWITCH.watch is not None:
                SWITCH.watch(self, args, named)
                if few:
                    return original(*args, **named)
            try:
                return self._ours(*args, **named)
            except Exception as error:
                if raised_elsewhere(error):
                    raise
                failure = error
            # if it refuses the call as well, its exception is what the program gets
            result = original(*args, **named)
            count_failure(name, failure)
            return result

        self.__call__ = call
        self.patch = patch = Patch(place, resolve_name(module), name, self, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_first"], name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._first

    def __hash__(self) -> int:
        return hash(self._first)

    def __repr__(self) -> str:
        return f"{self._first!r}, served by cuteblas"

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_name, (self._place,)


_COPIES = "copy", "ascontiguousarray", "asfortranarray"
FUNCTIONS = [Function("numpy:einsum", _terms, _LEAST_TERMS, 0),
             *[Function(place, _elements, 1 << 10, with_blas=FEW >> 10)
               for place in ("numpy:dot", "numpy:inner", "numpy:vdot", "numpy:tensordot",
                             "numpy:kron", "numpy.linalg:tensordot")],
             *[Function(place, _elements, 1 << 10, 1, FEW >> 10)
               for place in ("numpy.linalg:multi_dot", "numpy.linalg:matrix_power")],
             *[Function(f"numpy:{name}", _elements, 1 << 12, 1,
                        foreign=frozenset({"out", "variant"})) for name in _COPIES]]
"""The attributes that are replaced."""


class _Switch(Switch):
    """The hooks in NumPy; observers are told of calls of few multiplications, too."""

    __slots__ = ()

    def link(self) -> None:
        if (reason := why_unavailable()) is not None:
            raise RuntimeError(f"cuteblas cannot be installed: {reason}")
        super().link()
        self.watch = self.watch             # which tells loops what few multiplications are

    def check(self) -> None:
        """Send a product or copy through all of them; ``MADE_BY_CHECKS`` counts these."""
        x = np.arange(4096, dtype=np.int8).reshape(64, 64) % 5 - 2
        operands: dict[str, tuple[Any, ...]] = {
            "matvec": (x, x[0]), "vecmat": (x[0], x), "einsum": ("ij,jk->ki", x, x),
            "matrix_power": (x, 3), "multi_dot": ([x, x, x],), "kron": (x[:20, :30], x[:30, :20]),
            **dict.fromkeys(_COPIES, (x.T,))}
        functions: list[Any] = [loop.ufunc for loop in LOOPS if loop.types[0] == "b"]
        with self.checking():
            for function in functions + FUNCTIONS:
                name = function.__name__
                arguments = operands.get(name, (x, x))
                self.check_place(function, partial(as_a_program, function, *arguments),
                                 function(*arguments),
                                 f"in NumPy {np.__version__}, calls of {name} do not reach cuteblas",
                                 f"result of {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "watch":
            for loop in LOOPS:
                loop.word.value = loop.least if value is None else 0


SWITCH = _Switch("numpy", (*LOOPS, *(function.patch for function in FUNCTIONS)))
# threads that the end of the process stops are not to be in a loop of ours
atexit.register(SWITCH.unlink)
