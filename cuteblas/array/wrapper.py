"""``cuteblas.ndarray``: a thin wrapper around a NumPy or CuPy array, whose products are those of this package."""

from __future__ import annotations

import operator
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import prod, trunc
from types import FunctionType
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np

from ..functions import ascontiguousarray, asfortranarray, copy, dot, matmul
from ..functions.kinds import Carrier, kind_of, register_own_type
from .devices import CPU, checked_device, copied_to, default_device, device_of, made_on
from .members import Members

__all__ = ["as_given", "define", "flatiter", "leaves", "ndarray", "require_one_place", "unwrapped", "wrapped"]

_new = object.__new__
_PUBLIC_FUNCTION = type(np.sum)         # what NumPy makes of functions that types may answer (NEP 18)
_NOT_LOOKED_INTO = frozenset({int, float, complex, bool, str, bytes, slice, type, type(None), type(...)})
_SOME = np.empty(0)


if TYPE_CHECKING:
    _Base = Members
else:
    _Base = object                      # a class of this package's own: what it has from NumPy's arrays is defined below


@final
class ndarray(_Base):
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
    cuteblas.array([[3., 3.],
                    [3., 3.]])
    >>> np.linalg.norm(x, axis=1).shape
    (2,)
    """

    __slots__ = ("__weakref__", "_data")
    __module__ = "cuteblas"
    # NumPy asks for __array_ufunc__ alone. Dask looks for the operand that answers for all: this type does for NumPy's and CuPy's.
    __array_priority__ = 101

    _data: Any

    def __new__(cls, data: Any) -> ndarray:
        """Wrap an array; one of ours is what it is."""
        if type(data) is ndarray:
            return data
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
        if type(self._data) is not np.ndarray and method in ("__call__", "outer"):
            from ._cupy_ufuncs import operands

            # NumPy makes arrays of its scalars before it asks other types, in comparisons.
            inputs = operands(ufunc, *unwrapped([x[()] if type(x) is np.ndarray and x.ndim == 0 else x for x in inputs]))
        if named:
            return _call(call, ufunc.__name__, inputs, named)
        raw = unwrapped(inputs)
        require_one_place(ufunc.__name__, raw)
        return wrapped(call(*raw))

    def __array_function__(self, function: Callable[..., Any], types: Any, arguments: Any, named: dict[str, Any]) -> Any:
        """NEP 18: our function of that name, else that of the library of the data."""
        if not all(map(_known, types)):
            return NotImplemented
        if not isinstance(function, _PUBLIC_FUNCTION):
            return self._made_like(function.__name__, arguments, named)
        if function is np.array_repr:
            return _repr(*arguments, **named)
        return _call(partial(_by_library, function), function.__name__, arguments, named)

    def _made_like(self, name: str, arguments: Any, named: dict[str, Any]) -> Any:
        """A new array where this one is: NumPy's ``like=``, which also passes ``device=None`` where CuPy has no such argument."""
        with made_on(self.device) as library:
            ours = {"ascontiguousarray": ascontiguousarray, "asfortranarray": asfortranarray}.get(name)
            make: Any = partial(_of_anything, library, ours) if ours else getattr(library, name, None)
            given = {key: value for key, value in named.items() if key != "device" or value is not None}
            return NotImplemented if make is None else _call(make, name, arguments, given)

    def view(self, /, *arguments: Any, **named: Any) -> Any:
        """The same memory with other elements: ``view([dtype][, type])``, where this class is a type as well.

        Raises
        ------
        TypeError
            On a GPU for a subclass of NumPy's array or for Python's objects, which CuPy's arrays cannot be or hold.
        """
        arguments = tuple(x for x in arguments if x is not ndarray)
        named = {name: x for name, x in named.items() if x is not ndarray}
        if self.device != CPU and any(np.dtype(x).hasobject for x in (*arguments, *named.values()) if x is not None):
            raise TypeError("arrays on a GPU are no subclasses and hold no Python objects: view takes a dtype of numbers there")
        return _call(self._data.view, "view", arguments, named)

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        """The elements as a NumPy array. Their type is left to NumPy, which casts what comes back as strictly as it casts its own.

        Raises
        ------
        TypeError
            If they are on a GPU: nothing is moved unless that is said.
        """
        if self.device != CPU:
            raise TypeError('Implicit conversion to a NumPy array is not allowed. Please use `.to_device("cpu")` first; '
                            '`cupy.from_dlpack(x)` is a CuPy array of the same memory.')
        return self._data.copy("K") if copy and dtype in (None, self._data.dtype) else self._data

    def __cupy_override_elementwise_kernel__(self, kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """CuPy's ufuncs and element-wise kernels by their own names, with an array of ours among the operands."""
        return _call(kernel, getattr(kernel, "name", "a kernel"), arguments, named)

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
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any]) -> ndarray:
        return _wrap(self._data.__deepcopy__(memo)) if self.device == CPU else self.copy("K")

    def __bytes__(self) -> bytes:
        if self.device != CPU:
            raise TypeError('Implicit conversion to bytes is not allowed. Please use `.tobytes()`.')
        return bytes(self._data)        # without this method, bytes(x) would be made of the elements, as of a list of integers

    def __sizeof__(self) -> int:
        """With the elements, wherever they are; repeated ones (stride 0) count once. Dask asks for it."""
        data = self._data
        count = prod(n for n, stride in zip(data.shape, data.strides, strict=True) if stride)
        return object.__sizeof__(self) + count * data.itemsize

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
    @property
    def flat(self) -> flatiter:
        """The elements in C order, to be read and written by index: see :class:`numpy.flatiter`."""
        return flatiter(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self._data.flat = unwrapped(value)

    @property
    def imag(self) -> ndarray:
        """The imaginary parts, as a view; of a real array new zeros in its order."""
        data = self._data
        if type(data) is np.ndarray:
            return _wrap(data.imag)
        from ._cupy_functions import imag

        return _wrap(imag(data))

    @imag.setter
    def imag(self, value: Any) -> None:
        self._data.imag = unwrapped(value)

    def __getitem__(self, key: Any) -> Any:
        data, raw = self._data, unwrapped(key)
        if type(data) is not np.ndarray:
            _check_key(raw)
        return _selected(data, data[raw])

    def __setitem__(self, key: Any, value: Any) -> None:
        data, raw, raw_value = self._data, unwrapped(key), unwrapped(value)
        require_one_place("assignment", (data, raw_value))
        if type(data) is not np.ndarray:
            _check_key(raw)
            if isinstance(raw_value, (list, tuple)):
                if _is_of_one_element(raw, data.ndim):
                    raw_value = _element_of(raw_value, data[raw].dtype)
                with made_on(self.device) as library:
                    raw_value = library.asarray(raw_value)
        data[raw] = raw_value

    def item(self, *index: Any) -> Any:
        """An element as Python's object: the only one, or by an index, as of NumPy's arrays."""
        if type(self._data) is np.ndarray or not index:
            return self._data.item(*index)
        from ._cupy_functions import item

        return item(self._data, *index)

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        data = self._data
        return (_selected(data, x) for x in data)

    def __contains__(self, x: Any) -> bool:
        return bool(np.any(self == x))

    def __bool__(self) -> bool:
        data = self._data
        return bool(data if data.size else np.empty(data.shape))       # CuPy's without elements are false, NumPy's ambiguous

    def __int__(self) -> int:
        return int(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def __complex__(self) -> complex:
        return complex(self._data)

    def __index__(self) -> int:
        data = self._data
        return operator.index(data.get() if data.ndim == 0 and self.device != CPU else data)

    def _as_scalar(self, refusal: str) -> Any:
        """NumPy's scalar of what would be one of NumPy's; of a GPU, which is waited for.

        Raises
        ------
        TypeError
            If there are axes, as NumPy's arrays have none of what is asked for.
        """
        if self._data.ndim:
            raise TypeError(refusal)
        return copied_to(self._data, CPU)[()]

    def __hash__(self) -> int:
        return hash(self._as_scalar("unhashable type: 'cuteblas.ndarray' with axes, of which == compares elements"))

    def __round__(self, ndigits: SupportsIndex | None = None) -> Any:
        scalar = self._as_scalar("type cuteblas.ndarray doesn't define __round__ method for arrays with axes")
        return round(scalar) if ndigits is None else self.round(ndigits)

    def __trunc__(self) -> int:
        return trunc(self._as_scalar("type cuteblas.ndarray doesn't define __trunc__ method for arrays with axes"))

    # -- text ---------------------------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return _repr(self)

    def __str__(self) -> str:
        return str(copied_to(self._data, CPU))

    def __format__(self, spec: str) -> str:
        return format(copied_to(self._data, CPU), spec)

    # -- products -----------------------------------------------------------------------------------------------------------------
    def __matmul__(self, other: Any, /) -> Any:
        data = self._data
        if type(other) is ndarray:
            result = matmul(data, other._data)
            return _wrap(result) if type(result) is type(data) else wrapped(result)
        return _times(self, other)

    def __rmatmul__(self, other: Any, /) -> Any:
        return _times_from_left(self, other)

    def __imatmul__(self, other: Any, /) -> ndarray:
        own: int | tuple[int, ...] = (-2, -1) if self._data.ndim > 1 else (-1,)
        axes: list[int | tuple[int, ...]] = [own, (-2, -1), own]
        try:
            return _in_place(partial(_matmul_into, axes), np.matmul, axes=axes)(self, other)
        except np.exceptions.AxisError:
            raise ValueError("inplace matrix multiplication requires the first operand to have at least one and the second "
                             "at least two dimensions.") from None

    def dot(self, b: Any, out: Any = None) -> Any:
        """Dot product with another array: see :func:`cuteblas.dot`."""
        if isinstance(b, (list, tuple)) and type(self._data) is not np.ndarray:
            with made_on(self.device) as library:
                b = library.asarray(unwrapped(b))
        return _call(dot, "dot", (self, b), {} if out is None else {"out": out})

    def copy(self, order: str = "C") -> ndarray:
        """A copy in memory order ``order``: see :func:`cuteblas.copy`."""
        return _wrap(copy(self._data, order))


class flatiter:
    """The elements of an array in C order, as ``numpy.flatiter``: to be read and written by index, and one after the other.

    Parameters
    ----------
    base : ndarray
        The array.
    """

    __slots__ = ("_iterator", "base")
    __hash__ = None         # type: ignore[assignment]
    __module__ = "cuteblas"

    def __init__(self, base: ndarray):
        self.base = base
        self._iterator = base._data.flat

    @property
    def index(self) -> int:
        """How many elements have been passed."""
        return self._iterator.index

    @property
    def coords(self) -> tuple[int, ...]:
        """The index of the next element, by axes."""
        return self._iterator.coords

    def __iter__(self) -> flatiter:
        return self

    def __next__(self) -> Any:
        return _selected(self.base._data, next(self._iterator))

    def __len__(self) -> int:
        return len(self._iterator)

    def __getitem__(self, key: Any) -> Any:
        data, raw = self.base._data, unwrapped(key)
        if self.base.device != CPU and not isinstance(raw, (int, np.integer, slice)):
            return wrapped(data.ravel()[raw].copy())        # CuPy's iterators take numbers and slices
        return _selected(data, self._iterator[raw])

    def __setitem__(self, key: Any, value: Any) -> None:
        data, raw, raw_value = self.base._data, unwrapped(key), unwrapped(value)
        require_one_place("assignment", (data, raw_value))
        if self.base.device == CPU:
            self._iterator[raw] = raw_value
        else:
            flat = data.ravel()
            ndarray(flat)[raw] = raw_value
            data[...] = flat.reshape(data.shape)

    def copy(self) -> ndarray:
        """The elements as a 1-D array."""
        return _wrap(self.base._data.flatten())

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        return _wrap(self.base._data.ravel() if copy is False else self.base._data.flatten()).__array__()


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
    """An argument with the arrays of NumPy or CuPy in place of ours, in tuples, lists, dictionaries and other sequences too.

    A named tuple stays what it is, and so does everything that holds none of ours; other sequences become lists, which is what
    NumPy makes of them. An array of Python's objects is looked into only for arrays on a GPU, which NumPy cannot read there.
    """
    kind = type(argument)
    if kind is ndarray:
        return argument._data
    if kind in _NOT_LOOKED_INTO:
        return argument
    if isinstance(argument, Carrier):
        return argument.converted(lambda _name, x: unwrapped(x))
    if kind is dict:
        return {name: unwrapped(x) for name, x in argument.items()}
    if isinstance(argument, np.ndarray):
        on_gpu = argument.dtype == object and any(type(x) is ndarray and x.device != CPU for x in argument.flat)
        return unwrapped(argument.tolist()) if on_gpu else argument
    if not (kind is tuple or kind is list or _is_container(kind)):      # type: ignore[arg-type]    # mypy doubts that it is hashable
        return argument
    members = argument if kind is tuple or kind is list else [*argument]
    raw = [unwrapped(x) for x in members]
    for before, after in zip(members, raw, strict=True):
        if after is not before:
            return tuple(raw) if kind is tuple else argument._make(raw) if hasattr(argument, "_make") else raw
    return argument


@cache
def _is_container(kind: type) -> bool:
    """Whether objects of a type are sequences of anything, and no arrays."""
    return (issubclass(kind, Sequence) and not issubclass(kind, (str, bytes, bytearray, memoryview, range, array))
            and not hasattr(kind, "__array__"))


def _selected(data: Any, result: Any) -> Any:
    """What was selected of an array: an element of an array of objects as it is, everything else wrapped."""
    element = data.dtype.char == "O" and not (isinstance(result, np.ndarray) and result.dtype.char == "O")
    return result if element else wrapped(result)


def _check_key(key: Any) -> None:
    """Refuse what CuPy takes for an index and NumPy does not.

    Raises
    ------
    IndexError
        In NumPy's words.
    """
    for part in key if type(key) is tuple else (key,):
        if isinstance(part, (float, complex, str, bytes, np.inexact)):
            np.empty(0)[part]           # type: ignore[index]


def _is_of_one_element(key: Any, ndim: int) -> bool:
    """Whether an index has an integer for each axis, so that a value is not broadcast."""
    parts = key if type(key) is tuple else (key,)
    return len(parts) == ndim and all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in parts)


def _element_of(value: Any, dtype: np.dtype) -> Any:
    """What NumPy makes of a sequence that is to be one element.

    Raises
    ------
    TypeError, ValueError
        As it does, unless its truth is taken.
    """
    element = np.zeros(1, dtype)
    element[0] = value
    return element[0]


def _repr(arr: ndarray, max_line_width: int | None = None, precision: int | None = None,
          suppress_small: bool | None = None) -> str:
    """What Python makes the array of again, by :func:`cuteblas.array`; as ``numpy.array_repr``."""
    prefix = "cuteblas."
    width = np.get_printoptions()["linewidth"] if max_line_width is None else max_line_width
    text = np.array_repr(copied_to(arr._data, CPU), width - len(prefix), precision, suppress_small)
    text = re.sub(r"dtype=(\w+)\)$", r"dtype='\1')", text)       # a name needs no import then
    where = "" if arr.device == CPU == default_device() else f", device={arr.device!r}"
    return f"{prefix}{text[:-1]}{where})".replace("\n", "\n" + " " * len(prefix))


def leaves(argument: Any) -> Iterator[Any]:
    """The members of nested tuples, lists and dictionaries, and the operands of epilogues."""
    members = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else (argument,)
    for member in members:
        if isinstance(member, (tuple, list, dict)):
            yield from leaves(member)
        elif isinstance(member, Carrier):
            yield from leaves(member.given)
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
        from ..functions.engines.cuda import require_one_device

        require_one_device(function, {f"operand {i}": x for i, x in enumerate(arrays)})


def _call(call: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: dict[str, Any], *owner: ndarray) -> Any:
    """Call a function on what our arrays wrap, and wrap what it returns; of ``out``, of arguments returned, and of the array whose
    method it is, the given array."""
    raw, raw_named = unwrapped(arguments), unwrapped(named)
    require_one_place(name, (*(x._data for x in owner), raw, raw_named))
    result = call(*raw, **raw_named)
    if result is not None and named.get("out") is None and any(result is x for x in arguments):
        return result                   # a plain array that was written into
    if type(result) not in (tuple, np.ndarray) and kind_of(result) != "cupy":
        return wrapped(result)
    given = [x for x in leaves((owner, arguments)) if type(x) is ndarray] + [x for x in leaves(named.get("out")) if x is not None]
    return as_given(result, given)


def as_given(result: Any, given: list[Any]) -> Any:
    """A result, wrapped; where it is a given array or the data of one, in tuples, lists and dictionaries too, that array."""
    for x in given:
        if result is (x._data if type(x) is ndarray else x):
            return x
    if type(result) is tuple or type(result) is list:
        return type(result)(as_given(member, given) for member in result)
    return {name: as_given(x, given) for name, x in result.items()} if type(result) is dict else wrapped(result)


def _on_data(call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A function of this package on what our arrays wrap; it looks itself where they are. Arrays that it writes into come back."""
    result = call(*unwrapped(arguments), **unwrapped(named))
    return as_given(result, [x for x in leaves((arguments, named)) if hasattr(x, "shape")])


def _by_library(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A function of NumPy by ours, or the library whose arrays the arguments are; by NumPy where there are none to be seen.

    Each library is asked as NumPy asks it (NEP 18), and only once: NumPy's function itself would look for our arrays again, in
    containers that are not known here.
    """
    ours = _ours().get(function)
    on_gpu = next((x for x in leaves((arguments, named)) if kind_of(x) == "cupy"), None)
    if on_gpu is not None:
        from ._cupy_functions import by_cupy

        return by_cupy(function, ours, arguments, named, on_gpu)
    if ours is not None:
        return ours(*arguments, **named)
    return np.ndarray.__array_function__(_SOME, function, (), arguments, named)


def _of_anything(library: Any, make: Callable[..., Any], a: Any, dtype: Any = None) -> Any:
    """A function of arrays, on whatever the library makes one of."""
    return make(library.asarray(a), dtype)


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
    """``call`` on the data of ``x`` and another operand, which the library of the data may leave the answer to."""
    data = x._data
    if type(other) is ndarray:
        other = other._data
    if type(other) is not type(data):
        other = unwrapped(other)
        require_one_place("an operator", (data, other))
        if type(data) is not np.ndarray:
            return _operated_on_gpu(call, data, other)
    return call(data, other)


def _operated_on_gpu(call: Callable[[Any, Any], Any], data: Any, other: Any) -> Any:
    """The same with what CuPy does not take."""
    from ._cupy_ufuncs import operands

    if call in (operator.eq, operator.ne) and (other is None or isinstance(other, (str, bytes))):
        with made_on(device_of(data)) as library:
            return library.full(data.shape, call is operator.ne)
    return call(data, operands(np.power if call in (operator.pow, operator.ipow) else np.add, data, other)[1])


def _forward(call: Callable[[Any, Any], Any], ufunc: np.ufunc) -> Callable[[ndarray, Any], Any]:
    """``x + y``, by the ufunc where ``y`` has an answer to that (NEP 13)."""
    def operate(self: ndarray, other: Any, /) -> Any:
        if kind_of(other) == "foreign" and type(other) is not ndarray:
            return NotImplemented if other.__array_ufunc__ is None else ufunc(self, other)
        return wrapped(_operated(call, self, other))

    return operate


def _reflected(call: Callable[[Any, Any], Any], ufunc: np.ufunc) -> Callable[[ndarray, Any], Any]:
    """``y + x`` where ``y`` has no answer."""
    def operate(self: ndarray, other: Any, /) -> Any:
        if kind_of(other) == "foreign":
            return ufunc(other, self)
        return wrapped(_operated(lambda data, other: call(other, data), self, other))

    return operate


def _in_place(call: Callable[[Any, Any], Any], ufunc: np.ufunc, **named: Any) -> Callable[[ndarray, Any], Any]:
    """``x += y``, written into ``x`` unless ``y`` takes the answer upon itself."""
    def operate(self: ndarray, other: Any, /) -> Any:
        if kind_of(other) == "foreign" and type(other) is not ndarray:
            answers = type(other).__array_ufunc__
            if answers is None or not hasattr(type(other), "__array__"):
                return ufunc(self, other, out=(self,), **named)         # NumPy refuses it, or it answers
            result = answers(other, ufunc, "__call__", self, other, out=(self,), **named)
            if result is not NotImplemented:
                return self if getattr(result, "data", None) is self else result        # xarray's hold what was written
            other = np.asarray(other)                           # pandas writes into NumPy's arrays alone
        result = _operated(call, self, other)
        return self if result is self._data else wrapped(result)

    return operate


def _matmul(data: Any, other: Any) -> Any:
    """``data @ other``, by a type that has a priority over arrays itself, as sparse matrices have."""
    if kind_of(other) == "like" and getattr(other, "__array_priority__", 0) > 0:
        return operator.matmul(data, other)
    return matmul(data, other)


def _matmul_into(axes: list[int | tuple[int, ...]], data: Any, other: Any) -> Any:
    """``data @= other`` of matrices, or of a vector and matrices."""
    if kind_of(other) == "like" and getattr(other, "__array_priority__", 0) > 0:
        return operator.imatmul(data, other)
    return matmul(data, other, data, axes=axes)


def _unary(call: Callable[[Any], Any]) -> Callable[[ndarray], Any]:
    def operate(self: ndarray) -> Any:
        return wrapped(call(self._data))

    return operate


def _of_elements(compare: Callable[[Any, Any], Any]) -> Callable[[flatiter, Any], Any]:
    def operate(self: flatiter, other: Any, /) -> Any:
        return compare(self.copy(), other.copy() if type(other) is flatiter else other)

    return operate


def _define_operators() -> None:
    """Give the class Python's arithmetic, bitwise and comparison operators."""
    arithmetic = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
                  "mod": np.remainder, "pow": np.power, "lshift": np.left_shift, "rshift": np.right_shift,
                  "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    comparisons = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
                   "ge": np.greater_equal}
    for name, ufunc in (arithmetic | comparisons | {"divmod": np.divmod}).items():
        call = divmod if name == "divmod" else getattr(operator, f"__{name}__")
        define(f"__{name}__", _forward(call, ufunc))
        if name in arithmetic:
            define(f"__i{name}__", _in_place(getattr(operator, f"__i{name}__"), ufunc))
        if name not in comparisons:
            define(f"__r{name}__", _reflected(call, ufunc))
        else:
            setattr(flatiter, f"__{name}__", _of_elements(call))
    for name in ("neg", "pos", "abs", "invert"):
        define(f"__{name}__", _unary(getattr(operator, f"__{name}__")))


def _define_members() -> None:
    """Give the class every public method and attribute of NumPy's arrays that it does not define itself."""
    def method(name: str) -> Callable[..., Any]:
        if name == "tolist":                    # Python's objects, as they are
            return lambda self, /: self._data.tolist()

        def call(self: ndarray, /, *arguments: Any, **named: Any) -> Any:
            if arguments or named:
                return _call(_method(self._data, name), name, arguments, named, self)
            result = getattr(self._data, name)()
            return self if result is self._data else wrapped(result)

        return call

    def attribute(name: str) -> property:
        return property(lambda self: as_given(getattr(self._data, name), [self]),
                        lambda self, value: setattr(self._data, name, unwrapped(value)))

    for name in dir(np.ndarray):
        if not (name.startswith("_") or name in vars(ndarray)):
            define(name, method(name) if callable(getattr(np.ndarray, name)) else attribute(name))
    for name, member in vars(ndarray).items():
        if isinstance(member, FunctionType) and member.__doc__ is None:
            member.__doc__ = getattr(getattr(np.ndarray, name, None), "__doc__", None)


def _method(data: Any, name: str) -> Callable[..., Any]:
    """A method of the wrapped array that takes NumPy's arguments."""
    if type(data) is np.ndarray:
        return getattr(data, name)
    from ._cupy_functions import method_by_cupy

    return lambda *arguments, **named: method_by_cupy(data, name, arguments, named)


def define(name: str, member: Any) -> None:
    """Make a function or property a member of the class, with the description of NumPy's unless it has one."""
    member.__doc__ = member.__doc__ or getattr(np.ndarray, name).__doc__
    if not isinstance(member, property):
        member.__name__, member.__qualname__, member.__module__ = name, f"ndarray.{name}", ndarray.__module__
        if name in vars(Members):
            member.__wrapped__ = vars(Members)[name]    # whose signature help() shows
    setattr(ndarray, name, member)


_define_operators()
_define_members()
_times = _forward(_matmul, np.matmul)
_times_from_left = _reflected(matmul, np.matmul)


def _product(x1: ndarray, x2: Any, out: Any, precision: str | None) -> Any:
    """``cuteblas.matmul`` of two of ours, or of one and of what it wraps; ``None`` for other calls."""
    data, other = x1._data, x2._data if type(x2) is ndarray else x2
    return wrapped(matmul(data, other, precision=precision)) if out is None and type(other) is type(data) else None


register_own_type(ndarray, _on_data, _product)
