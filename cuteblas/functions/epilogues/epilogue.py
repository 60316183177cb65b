"""Epilogues: Python functions of a product's sums, and their operands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import update_wrapper
from types import FunctionType
from typing import Any, overload

import numpy as np

from ..._dtypes import element_of
from ...engines.dispatch import ByName, Carrier, Func, kind_of
from ...engines.memory import Ints
from .tracing import Traced

COMPUTED = frozenset("?bBhHiIlLqQfdFD")
"""Element types of NumPy arrays that epilogues compute with as they are."""
_new = object.__new__
_DEFAULTS = {"alpha": 1, "beta": 0, "c": 0}
_OF_PRODUCT = "acc", *_DEFAULTS


def is_choice(x: Any) -> bool:
    """Whether an argument selects what the function does, rather than being computed with."""
    return x is None or isinstance(x, str | bool)


def is_number(x: Any) -> bool:
    return isinstance(x, int | float | complex | np.generic) and not isinstance(x, bool)


class Epilogue:
    """A Python function that a product applies to its sums before it writes them; made by
    :func:`epilogue`.

    Called with keywords alone it binds operands, for ``epilogue=``; called with positional
    arguments it computes, on arrays or inside another epilogue.

    Attributes
    ----------
    function : function
        The Python function.
    parameters : tuple of str
        All of its parameters.
    operands : dict
        Its own parameters and their defaults (``inspect.Parameter.empty`` where there is none).
    inputs : tuple of str
        ``"a"`` and ``"b"`` where the function reduces the product's operands.

    Examples
    --------
    >>> @epilogue
    ... def halved(acc, *, bias):
    ...     return (acc + bias) / 2
    >>> halved(np.array([3.0, 5.0]), bias=1.0)
    array([2., 3.])
    >>> halved(bias=1.0)
    halved(bias=1.0)
    """

    # other attributes are those of the function and what a program adds, which it may read
    __slots__ = ("__dict__", "accepted", "function", "inputs", "known", "operands", "parameters")

    def __init__(self, function: FunctionType, inputs: bool = False):
        if isinstance(function, Epilogue):
            raise TypeError(f"{function.__name__} is already an epilogue")
        if not isinstance(function, FunctionType):
            raise TypeError(f"epilogue takes a Python function, got {type(function).__name__}")
        update_wrapper(self, function)
        self.function = function
        given = inspect.signature(function).parameters
        self.parameters = tuple(given)
        self._check_parameters(given)
        self.inputs = tuple(name for name in "ab" if inputs and name in given)
        product = (*_OF_PRODUCT, *self.inputs)
        self.operands = {name: p.default for name, p in given.items() if name not in product}
        self.known: Any = None           # traces, and what they depend on: see traces.py
        self.accepted: set[tuple[str, ...]] = set()             # names that have been bound

    def _check_parameters(self, given: Mapping[str, inspect.Parameter]) -> None:
        for name, p in given.items():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
                raise TypeError(
                    f"epilogue {self} has a parameter {p}; each parameter must be one that a call can pass by name"
                )
            if not name.isascii():
                raise TypeError(
                    f"epilogue {self} has a parameter {name!r}; names of parameters must be ASCII"
                )
            if name in _OF_PRODUCT and p.default is not p.empty:
                raise TypeError(
                    f"epilogue {self} gives {name} a default, but every product supplies it"
                )
            if p.default is not p.empty and not (is_choice(p.default) or is_number(p.default)):
                raise TypeError(
                    f"epilogue {self} gives operand {name!r} a default of type {type(p.default).__name__}; defaults "
                    f"are numbers, strings, bools or None"
                )
        if not given or next(iter(given)) != "acc":
            raise TypeError(
                f"the first parameter of epilogue {self} is {next(iter(given), 'missing')}, but it must be acc, the "
                f"sums"
            )
        if "beta" in given and "c" not in given:
            raise TypeError(
                f"epilogue {self} takes beta without c; take both, or neither and let acc include beta * c"
            )

    def __str__(self) -> str:
        return self.function.__name__

    def __repr__(self) -> str:
        return f"<epilogue {self}{inspect.signature(self.function)}>"

    def __reduce__(self) -> str:
        return self.function.__qualname__        # pickled as functions are: by name

    def __call__(self, *values: Any, **operands: Any) -> Any:
        """Compute if there are positional arguments, else bind operands.

        Parameters
        ----------
        *values : array
            ``acc``, then ``c`` or whatever parameter comes next.
        **operands
            Arguments by name; ``c`` and ``beta`` default to 0, ``alpha`` to 1.

        Returns
        -------
        array, (array, dict) or Bound
            What the function returns, in float32 for half-precision arrays; or the epilogue with
            its operands.

        Raises
        ------
        TypeError
            For missing, unknown or repeated arguments.
        """
        if not values:
            if tuple(operands) not in self.accepted:
                return Bound(self, operands)
            bound: Bound = _new(Bound)
            bound.epilogue, bound.operands, bound.outputs = self, operands, {}
            return bound
        if len(self.parameters) == len(values) == 1 and not operands and _is_computed(values[0]):
            return self.function(*values)
        if len(values) > len(self.parameters):
            raise TypeError(
                f"epilogue {self} takes {len(self.parameters)} arguments, got {len(values)}"
            )
        arguments = dict(zip(self.parameters, values, strict=False))
        for name, value in operands.items():
            if name not in self.parameters:
                raise self.unknown(name, self.parameters[1:])
            if name in arguments:
                raise TypeError(
                    f"epilogue {self} got two values for {name!r}; its parameters are {', '.join(self.parameters)}"
                )
            arguments[name] = value
        if "beta" in self.parameters and "c" in arguments and "beta" not in arguments:
            raise TypeError(f"epilogue {self} got c without beta")
        defaults = {name: x for name, x in _DEFAULTS.items() if name in self.parameters}
        arguments = defaults | arguments
        self._refuse_missing(arguments, (*self.operands, *self.inputs))
        return self.computed(arguments)

    def unknown(self, name: str, known: Iterable[str]) -> TypeError:
        """The error for an argument that is none of the known ones."""
        return TypeError(
            f"unknown argument {name!r}; {self} takes {', '.join(map(repr, known)) or 'none'}"
        )

    def _refuse_missing(self, given: ByName, wanted: Iterable[str],
                        others: Iterable[str] = ()) -> None:
        none = inspect.Parameter.empty
        missing = [name for name in wanted if name not in given
                   and self.operands.get(name, none) is none]
        if missing:
            for name in others:                 # an array for an output, or a misspelled operand
                if get_close_matches(name, missing):
                    raise self.unknown(name, self.operands)
            raise TypeError(
                f"epilogue {self} needs {', '.join(missing)}: {self}({', '.join(f'{name}=...' for name in missing)})"
            )

    def of_product(self, acc: Any, c: Any, alpha: Any, beta: Any, ones: Collection[str],
                   operands: ByName) -> Any:
        """What the function returns for a product, which applies what it does not name: ``c``, if
        there is one, ``alpha`` and ``beta``, unless they are among the ``ones``."""
        if "alpha" not in self.parameters and "alpha" not in ones:
            acc = alpha * acc
        if c is not None and not {"c", "alpha"} & {*self.parameters}:
            if not np.can_cast(c.dtype, acc.dtype, "safe"):
                raise TypeError(
                    f"epilogue {self} takes no c, so the product adds beta * c to acc, but c is {c.dtype} and "
                    f"acc {acc.dtype}; let the epilogue take c and beta"
                )
            # one times an infinite complex number is not that number
            before = c.astype(acc.dtype)
            acc = acc + (before if "beta" in ones else beta * before)
        values = {"acc": acc, "c": c, "alpha": alpha, "beta": beta, **self.operands, **operands}
        return self.computed({name: values[name] for name in self.parameters})

    def computed(self, arguments: ByName) -> Any:
        """What the function returns for arguments by name, all checked; half-precision arrays are
        float32 to it."""
        if any(isinstance(x, Traced) for x in arguments.values()):
            return self.function(**arguments)
        arguments = {name: widened(x) for name, x in arguments.items()}
        try:
            return self.function(**arguments)
        except ValueError:                      # in words about the operand, if that is why
            for name in self.operands.keys() & arguments.keys():
                check_shape(self, name, np.shape(arguments[name]), np.shape(arguments["acc"]))
            raise


class Bound(Carrier):
    """An epilogue with its operands, for ``epilogue=``; calling an :class:`Epilogue` with keywords
    makes one.

    Parameters
    ----------
    epilogue : Epilogue
        The function.
    values : mapping
        Arrays, numbers and choices for its operands and outputs, by name.

    Attributes
    ----------
    epilogue : Epilogue
        The function.
    operands : dict
        Arrays, numbers and choices by name.
    outputs : dict
        Arrays for auxiliary outputs, by name.

    Examples
    --------
    >>> bound = bias(bias=np.array([[1.0, 2.0]]))
    >>> bound
    bias(bias=<array (1, 2)>)
    >>> cuteblas.matmul(np.eye(2), np.ones((2, 2)), epilogue=bound)
    array([[2., 3.],
           [2., 3.]])
    """

    __slots__ = ("epilogue", "operands", "outputs")

    def __init__(self, epilogue: Epilogue, values: ByName):
        self.epilogue = epilogue
        self.operands = {name: x for name, x in values.items() if name in epilogue.operands}
        self.outputs = {name: x for name, x in values.items() if name not in epilogue.operands}
        for name, x in self.outputs.items():
            if name in epilogue.parameters:
                raise TypeError(
                    f"epilogue {epilogue} takes {name} from the product, not as an operand"
                )
            # as the array for an output has
            if not hasattr(x, "shape") or isinstance(x, np.generic):
                raise epilogue.unknown(name, epilogue.operands)
        epilogue._refuse_missing(self.operands, epilogue.operands, self.outputs)
        if not self.outputs:
            epilogue.accepted.add(tuple(values))

    @property
    def given(self) -> dict[str, Any]:
        """Operands and outputs."""
        return {**self.operands, **self.outputs}

    def __call__(self, acc: Any, *values: Any, **others: Any) -> Any:
        """Compute with the bound operands: see :meth:`Epilogue.__call__`."""
        return self.epilogue(acc, *values, **self.operands, **others)

    def __repr__(self) -> str:
        shown = [
            f"{name}={f'<array {tuple(x.shape)}>' if hasattr(x, 'shape') and x.shape else repr(x)}"
            for name, x in self.given.items()
        ]
        return f"{self.epilogue}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Bound, (self.epilogue, self.given)

    def converted(self, convert: Callable[[str, Any], Any]) -> Bound:
        """This epilogue with every array replaced by the result of ``convert(name, array)``."""
        return Bound(self.epilogue, {name: x if is_choice(x) or is_number(x) else convert(name, x)
                                     for name, x in self.given.items()})


@overload
def epilogue(function: Func, /) -> Epilogue: ...
@overload
def epilogue(*, inputs: bool = False) -> Callable[[Func], Epilogue]: ...
def epilogue(function: Any = None, /, *, inputs: bool = False) -> Any:
    """Make an epilogue from a Python function, which a product applies to its sums before it writes
    them.

    The function computes with arrays as NumPy does, and NumPy runs it unchanged. For a kernel it is
    traced: it is called once with values that record the operations on them.

    Parameters
    ----------
    function : function
        The first parameter is ``acc``, the sums. ``c``, ``alpha`` and ``beta`` are those of the
        product, which itself applies the ones that the function does not name: if it names none,
        ``acc`` is ``alpha * sum + beta * c``. All other parameters are operands: numbers, or arrays
        that broadcast over the result as in NumPy. Values for columns have shape (n,), values for
        rows (m, 1). Strings, bools and ``None`` are passed to the function unchanged. The function
        returns the result, or a pair of the result and a dictionary of auxiliary outputs: values,
        or sums, maxima and minima of values over axis -1 or -2.
    inputs : bool
        If true, parameters named ``a`` and ``b`` are the operands of the product; the function may
        return their sums, maxima and minima over K.

    Returns
    -------
    Epilogue
        Called with keywords alone it binds operands, and arrays for auxiliary outputs, for the
        ``epilogue=`` of a product. Called with positional arguments it computes.

    Raises
    ------
    TypeError
        If the parameters are not of this kind.

    Examples
    --------
    >>> import numpy as np
    >>> from cuteblas import epilogue
    >>> @epilogue
    ... def shifted_relu(acc, *, bias, ceiling=6.0):
    ...     return np.clip(acc + bias, 0, ceiling)
    >>> shifted_relu(np.array([[1.0, -2.0], [3.0, 9.0]]), bias=np.array([[1.0], [0.0]]))
    array([[2., 0.],
           [3., 6.]])
    """
    if function is not None:
        return Epilogue(function)
    return lambda function: Epilogue(function, inputs)


def _is_computed(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype.char in COMPUTED


def widened(x: Any) -> Any:
    """An array that can be computed with: half precision becomes float32, a list an array."""
    if _is_computed(x):
        return x
    if kind_of(x) == "like" and not is_choice(x):
        x = np.asarray(x)
    row = element_of(x.dtype) if isinstance(getattr(x, "dtype", None), np.dtype) else None
    return x.astype(row.computed) if row is not None and row.is_stored else x


def check_shape(epilogue: Epilogue, name: str, given: Ints,
                shape: Ints) -> None:
    extra = len(shape) - len(given)
    if extra < 0 or any(n not in (1, wanted) for n, wanted in zip(given, shape[extra:],
                                                                  strict=True)):
        hint = f": pass {name}[:, None] for a value of each row" if given == shape[-2:-1] else ""
        raise ValueError(
            f"operand {name!r} of epilogue {epilogue} has shape {tuple(given)}, which does not broadcast to the "
            f"result's {shape}{hint}"
        )
