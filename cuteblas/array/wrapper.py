"""``cuteblas.ndarray``: a thin wrapper around a NumPy or CuPy array, whose products are those of this package."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..functions import copy, dot, matmul
from ..functions.kinds import kind_of, own_types
from ..functions.products import fast_paths
from .devices import CPU, checked_device, copied_to, device_of, made_on

__all__ = ["leaves", "ndarray", "require_one_place", "unwrapped", "wrapped"]

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Versions of the Array API standard that ``__array_namespace__`` accepts."""

_new = object.__new__


@final
class ndarray:
    """A NumPy or CuPy array whose products run on the kernels of this package.

    Whatever NumPy's arrays have, these have too: methods, attributes, operators, indexing. Results are of this type again, 0-d
    arrays in place of NumPy's scalars. NumPy's functions and ufuncs take it (NEP 13, NEP 18), and it is an array of the Array API
    standard.

    Parameters
    ----------
    data : numpy.ndarray or cupy.ndarray
        Is wrapped where it lies; nothing is copied or moved. :func:`cuteblas.asarray` makes arrays of other things.

    Raises
    ------
    TypeError
        If it is none.

    Examples
    --------
    >>> import numpy as np, cuteblas
    >>> x = cuteblas.ndarray(np.ones((2, 3)))
    >>> x @ x.T
    cuteblas.ndarray([[3., 3.],
                      [3., 3.]])
    >>> np.linalg.norm(x, axis=1).shape
    (2,)
    """

    __slots__ = ("__weakref__", "_data")
    __hash__ = None         # type: ignore[assignment]      # as of NumPy's: == compares elements
    __module__ = "cuteblas"
    # NumPy asks for __array_ufunc__ alone. Dask looks for the operand that answers for all: this type does for NumPy's and CuPy's.
    __array_priority__ = 101

    _data: Any

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __new__(cls, data: Any) -> ndarray:
        """Wrap an array."""
        kind = kind_of(data)
        if kind not in ("numpy", "subclass", "cupy"):
            raise TypeError(f"cuteblas.ndarray wraps a NumPy or CuPy array, got {type(data).__name__}; use cuteblas.asarray")
        return _wrap(data.view(np.ndarray) if kind == "subclass" else data)

    # -- protocols ----------------------------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        """NEP 13: generalized ufuncs on our kernels, all others by the library of the data."""
        if ufunc is np.matmul and not named and type(inputs[0]) is type(inputs[1]):
            return inputs[0] @ inputs[1]        # nothing else is asked as often
        if any(type(x) is not ndarray and kind_of(x) == "foreign" for x in (*inputs, *named.get("out", ()))):
            return NotImplemented
        call = _ours().get(ufunc, ufunc) if method == "__call__" else getattr(ufunc, method)
        if (method != "__call__" or "where" in named) and ufunc.signature is None and self.device != CPU:
            from ._cupy_ufuncs import by_cupy

            call = by_cupy(ufunc, method)
        if named:
            return _call(call, ufunc.__name__, inputs, named)
        raw = unwrapped(inputs)
        require_one_place(ufunc.__name__, raw)
        return wrapped(call(*raw))

    def __array_function__(self, function: Callable[..., Any], types: Any, arguments: Any, named: dict[str, Any]) -> Any:
        """NEP 18: our function of that name, else that of the library of the data."""
        if not all(map(_known, types)):
            return NotImplemented
        if not any(type(x) is ndarray for x in leaves((arguments, named))):
            return self._made_like(function.__name__, arguments, named)
        return _call(_ours().get(function, function), function.__name__, arguments, named)

    def _made_like(self, name: str, arguments: Any, named: dict[str, Any]) -> Any:
        """A new array where this one is: NumPy's ``like=``, which also passes ``device=None`` where CuPy has no such argument."""
        with made_on(self.device) as library:
            make = getattr(library, name, None)
            given = {key: value for key, value in named.items() if key != "device" or value is not None}
            return NotImplemented if make is None else wrapped(make(*arguments, **given))

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The functions of the Array API standard for these arrays.

        Raises
        ------
        ValueError
            For an unknown version, in NumPy's words.
        """
        if api_version is not None and api_version not in VERSIONS:
            raise ValueError(f'Version "{api_version}" of the Array API Standard is not supported.')
        from . import namespace

        return namespace

    def view(self, /, *arguments: Any, **named: Any) -> ndarray:
        """The same memory with other elements.

        Raises
        ------
        TypeError
            On a GPU for a subclass of NumPy's array or for Python's objects, which CuPy's arrays cannot be or hold.
        """
        if self.device != CPU and any(np.dtype(x).hasobject for x in (*arguments, *named.values()) if x is not None):
            raise TypeError("arrays on a GPU are no subclasses and hold no Python objects: view takes a dtype of numbers there")
        return _call(self._data.view, "view", arguments, named)

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        """The elements as a NumPy array.

        Raises
        ------
        TypeError
            If they are on a GPU: nothing is moved unless that is said.
        """
        if self.device != CPU:
            raise TypeError('Implicit conversion to a NumPy array is not allowed. Please use `.to_device("cpu")` first.')
        return np.asarray(self._data, dtype, copy=copy)

    # There is no __cuda_array_interface__: CuPy would take every ufunc with a CuPy array on the left, our products among them.
    def __dlpack__(self, /, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[Any, int] | None = None, copy: bool | None = None) -> Any:
        """Export by DLPack, as the library of the data does it."""
        data = self._data
        if copy and self.device != CPU and dl_device in (None, self.__dlpack_device__()):
            data, copy = data.copy(), None          # CuPy copies to the host alone
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return data.__dlpack__(**{name: value for name, value in given.items() if value is not None})

    def __dlpack_device__(self, /) -> tuple[Any, int]:
        """DLPack's name of the device."""
        return self._data.__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        return ndarray, (self._data,)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> ndarray:
        return _wrap(self._data.__deepcopy__(memo)) if self.device == CPU else self.copy()

    # -- places -------------------------------------------------------------------------------------------------------------------
    @property
    def device(self) -> str:
        """``"cpu"``, or ``"cuda:0"`` and so on."""
        return device_of(self._data)

    def to_device(self, device: Any, /, *, stream: Any = None) -> ndarray:
        """The array on a device; itself if it is there.

        Parameters
        ----------
        device : str or cupy.cuda.Device
            ``"cpu"``, ``"cuda"`` for CuPy's current device, ``"cuda:1"``.
        stream : cupy.cuda.Stream, optional
            On which elements are copied from or to a GPU; CuPy's current stream by default.

        Raises
        ------
        ValueError
            If there is no such device, and for a stream without a GPU.
        """
        device = checked_device(device)
        if stream is None:
            data = copied_to(self._data, device)
        elif (device, self.device) == (CPU, CPU):
            raise ValueError('The stream argument to to_device() is not supported between "cpu" and "cpu"')
        else:
            with stream:
                data = copied_to(self._data, device)
        return self if data is self._data else _wrap(data)

    # -- elements -----------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        result = self._data[unwrapped(key)]
        return result if type(result) in (list, tuple) else wrapped(result)         # these are elements of object arrays

    def __setitem__(self, key: Any, value: Any) -> None:
        raw = unwrapped(value)
        require_one_place("assignment", (self._data, raw))
        self._data[unwrapped(key)] = raw

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        return map(wrapped, iter(self._data))

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    def __bool__(self) -> bool:
        return bool(self._data)

    def __int__(self) -> int:
        return int(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def __complex__(self) -> complex:
        return complex(self._data)

    def __index__(self) -> int:
        data = self._data
        return operator.index(data.get() if data.ndim == 0 and self.device != CPU else data)

    # -- text ---------------------------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        text = np.array_repr(copied_to(self._data, CPU)).removeprefix("array")
        where = "" if self.device == CPU else f", device={self.device!r}"
        name = "cuteblas.ndarray"
        return f"{name}{text[:-1]}{where})".replace("\n", "\n" + " " * (len(name) - len("array")))

    def __str__(self) -> str:
        return str(copied_to(self._data, CPU))

    def __format__(self, spec: str) -> str:
        return format(copied_to(self._data, CPU), spec)

    # -- products -----------------------------------------------------------------------------------------------------------------
    def __matmul__(self, other: Any) -> Any:
        data = self._data
        if type(other) is ndarray:
            result = matmul(data, other._data)
            return _wrap(result) if type(result) is type(data) else wrapped(result)
        return _operated(matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _operated(lambda data, other: matmul(other, data), self, other)

    def __imatmul__(self, other: Any) -> ndarray:
        own = (-2, -1) if self._data.ndim > 1 else (-1,)

        def into(data: Any, other: Any) -> Any:
            try:
                return matmul(data, other, data, axes=[own, (-2, -1), own])
            except np.exceptions.AxisError:
                raise ValueError("inplace matrix multiplication requires the first operand to have at least one and the second "
                                 "at least two dimensions.") from None

        return NotImplemented if _operated(into, self, other) is NotImplemented else self

    def dot(self, b: Any, out: Any = None) -> Any:
        """Dot product with another array: see :func:`cuteblas.dot`."""
        return _call(dot, "dot", (self, b), {} if out is None else {"out": out})

    def copy(self, order: str = "C") -> ndarray:
        """A copy in memory order ``order``: see :func:`cuteblas.copy`."""
        return _wrap(copy(self._data, order))


# -- ours and theirs --------------------------------------------------------------------------------------------------------------
def _wrap(data: Any) -> ndarray:
    """Wrap an array that is one."""
    x = _new(ndarray)
    x._data = data
    return x


def wrapped(result: Any) -> Any:
    """A result of NumPy or CuPy with its arrays and scalars wrapped, in tuples and lists too; everything else as it is."""
    kind = kind_of(result)
    if kind in ("numpy", "cupy"):
        return _wrap(result)
    if isinstance(result, np.generic):
        return _wrap(np.asarray(result))
    if isinstance(result, tuple):
        members = map(wrapped, result)
        return type(result)(*members) if hasattr(result, "_fields") else tuple(members)
    return [wrapped(x) for x in result] if type(result) is list else result


def unwrapped(argument: Any) -> Any:
    """An argument with the arrays of NumPy or CuPy in place of ours, in tuples, lists and dictionaries too."""
    kind = type(argument)
    if kind is ndarray:
        return argument._data
    if kind is tuple or kind is list:
        return kind(map(unwrapped, argument))
    return {name: unwrapped(x) for name, x in argument.items()} if kind is dict else argument


def leaves(argument: Any) -> Iterator[Any]:
    """The members of nested tuples, lists and dictionaries."""
    members = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else (argument,)
    for member in members:
        if isinstance(member, (tuple, list, dict)):
            yield from leaves(member)
        else:
            yield member


def require_one_place(function: str, arguments: Any) -> None:
    """Refuse arrays of NumPy together with those of CuPy, and CuPy's of different devices.

    Raises
    ------
    ValueError
        Naming two of them and where they are.
    """
    arrays = [x for x in leaves(arguments) if kind_of(x) in ("numpy", "subclass", "cupy")]
    if len(arrays) > 1 and len(set(map(device_of, arrays))) > 1:
        from ..functions._cupy import require_one_device

        require_one_device(function, {f"operand {i}": x for i, x in enumerate(arrays)})


def _call(call: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function on what our arrays wrap, and wrap what it returns; of ``out`` and of arguments returned, the given array."""
    raw, raw_named = unwrapped(arguments), unwrapped(named)
    require_one_place(name, (raw, raw_named))
    result = call(*raw, **raw_named)
    if type(result) not in (tuple, np.ndarray) and kind_of(result) != "cupy":
        return wrapped(result)
    given = [x for x in leaves(arguments) if type(x) is ndarray] + [x for x in leaves(named.get("out")) if x is not None]
    return _as_given(result, given)


def _as_given(result: Any, given: list[Any]) -> Any:
    """A result, wrapped; where it is the data of a given array, in tuples too, that array."""
    for x in given:
        if result is (x._data if type(x) is ndarray else x):
            return x
    return tuple(_as_given(member, given) for member in result) if type(result) is tuple else wrapped(result)


@cache
def _ours() -> dict[Any, Callable[..., Any]]:
    """Our functions by those of NumPy."""
    from .. import functions
    from ..functions import linalg

    pairs = ((theirs, ours) for library, package in ((np, functions), (np.linalg, linalg)) for name in package.__all__
             if callable(theirs := getattr(library, name, None)) and callable(ours := getattr(package, name)))
    return dict(pairs)


@cache
def _known(kind: type) -> bool:
    """Whether NumPy's functions on arrays of that type are answered by NumPy, CuPy or this package."""
    theirs = getattr(sys.modules.get("cupy"), "ndarray", ndarray)
    return issubclass(kind, (ndarray, theirs)) or getattr(kind, "__array_function__", None) is np.ndarray.__array_function__


# -- operators --------------------------------------------------------------------------------------------------------------------
def _operated(call: Callable[[Any, Any], Any], x: ndarray, other: Any) -> Any:
    """``call`` on the data of ``x`` and another operand; ``NotImplemented`` for one that is to answer itself (NEP 13)."""
    data = x._data
    if type(other) is ndarray:
        other = other._data
    else:
        kind = kind_of(other)
        if kind == "foreign" or (kind == "like" and getattr(other, "__array_priority__", 0) > 0):
            return NotImplemented
    if type(other) is not type(data):
        require_one_place("an operator", (data, other))
    return wrapped(call(data, other))


def _define_operators() -> None:
    """Give the class Python's arithmetic, bitwise and comparison operators."""
    def forward(call: Any) -> Callable[..., Any]:
        return lambda self, other: _operated(call, self, other)

    def reflected(call: Any) -> Callable[..., Any]:
        return lambda self, other: _operated(lambda data, other: call(other, data), self, other)

    def in_place(call: Any) -> Callable[..., Any]:
        return lambda self, other: NotImplemented if _operated(call, self, other) is NotImplemented else self

    def unary(call: Any) -> Callable[..., Any]:
        return lambda self: wrapped(call(self._data))

    arithmetic = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor")
    for prefix, kind, names in (("", forward, (*arithmetic, "divmod", "lt", "le", "eq", "ne", "gt", "ge")),
                                ("r", reflected, (*arithmetic, "divmod")),
                                ("i", in_place, arithmetic),
                                ("", unary, ("neg", "pos", "abs", "invert"))):
        for name in names:
            call = divmod if name == "divmod" else getattr(operator, f"__{'i' if kind is in_place else ''}{name}__")
            _define(f"__{prefix}{name}__", kind(call))


def _define_members() -> None:
    """Give the class every public method and attribute of NumPy's arrays that it does not define itself."""
    def method(name: str) -> Callable[..., Any]:
        if name in ("item", "tolist"):          # Python's objects, as they are
            return lambda self, /, *arguments: getattr(self._data, name)(*arguments)
        return lambda self, /, *arguments, **named: _call(getattr(self._data, name), name, arguments, named)

    def attribute(name: str) -> property:
        return property(lambda self: wrapped(getattr(self._data, name)),
                        lambda self, value: setattr(self._data, name, unwrapped(value)))

    for name in dir(np.ndarray):
        if not (name.startswith("_") or name in vars(ndarray)):
            _define(name, method(name) if callable(getattr(np.ndarray, name)) else attribute(name))


def _define(name: str, member: Any) -> None:
    """Make a function or property a member of the class, with the description of NumPy's."""
    member.__doc__ = getattr(np.ndarray, name).__doc__
    if not isinstance(member, property):
        member.__name__, member.__qualname__, member.__module__ = name, f"ndarray.{name}", ndarray.__module__
    setattr(ndarray, name, member)


_define_operators()
_define_members()


def _product(x1: ndarray, x2: Any, out: Any, precision: str | None) -> Any:
    """``cuteblas.matmul`` of two of ours; ``None`` for other calls."""
    if type(x2) is not ndarray or out is not None:
        return None
    return wrapped(matmul(x1._data, x2._data, precision=precision))


fast_paths[ndarray] = _product
own_types[ndarray] = _call
