"""``cuteblas.ndarray``: a thin wrapper around a NumPy or CuPy array, with our products."""

from __future__ import annotations

import operator
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache, partial
from math import prod, trunc
from types import FunctionType
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np

from .. import functions
from ..engines.dispatch import Carrier, Func, kind_of, register_own_type
from ..functions import copy, dot, matmul
from ..functions.signatures import Order
from .libraries import (
    CPU,
    SIMPLE_TYPES,
    by_library,
    checked_device,
    copied_to,
    default_device,
    device_of,
    is_answered_here,
    leaves,
    made_on,
    ours_by_numpys,
    require_one_place,
)
from .members import Members

_new = object.__new__
_PUBLIC_FUNCTION = type(np.sum)       # what NumPy makes of functions that types may answer (NEP 18)


if TYPE_CHECKING:
    _Base = Members
else:
    # a class of this package's own: what it has from NumPy's arrays is defined after it
    _Base = object


@final
class ndarray(_Base):
    """A NumPy or CuPy array whose products run on the kernels of this package.

    It has the methods, attributes, operators and indexing of NumPy's arrays. Results have this type
    too, with 0-d arrays in place of NumPy's scalars. NumPy's functions and ufuncs accept it (NEP
    13, NEP 18), and it follows the Array API standard.

    Parameters
    ----------
    data : numpy.ndarray or cupy.ndarray
        It is wrapped without a copy. :func:`cuteblas.asarray` converts other objects.

    Raises
    ------
    TypeError
        If ``data`` is anything else.

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
    # NumPy looks for __array_ufunc__ alone. Dask looks for the operand with the highest priority,
    # above NumPy's and CuPy's.
    __array_priority__ = 101

    _data: Any

    def __new__(cls, data: Any) -> ndarray:
        """Wrap an array; one of ours is what it is."""
        if type(data) is ndarray:
            return data
        kind = kind_of(data)
        if kind not in ("numpy", "subclass", "cupy"):
            raise TypeError(
                f"cuteblas.ndarray wraps a NumPy or CuPy array, got {type(data).__name__}; use cuteblas.asarray"
            )
        return wrap(data.view(np.ndarray) if kind == "subclass" else data)

    # -- protocols ---------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        """NEP 13: generalized ufuncs on our kernels, all others by the library of the data."""
        if ufunc is np.matmul and not named and type(inputs[0]) is type(inputs[1]):
            return inputs[0] @ inputs[1]        # the most frequent call
        if any(type(x) is not ndarray and kind_of(x) == "foreign"
               for x in (*inputs, *named.get("out", ()))):
            return NotImplemented
        call = ours_by_numpys().get(ufunc, ufunc) if method == "__call__" else getattr(ufunc, method)
        if type(self._data) is not np.ndarray:
            from ._cupy_functions import ufunc_by_cupy, ufunc_operands

            if ufunc.signature is None and (method != "__call__" or "where" in named):
                call = ufunc_by_cupy(ufunc, method)
            if method in ("__call__", "outer"):
                # In comparisons, NumPy makes arrays of its scalars before it calls other types.
                inputs = ufunc_operands(ufunc, *unwrapped([
                    x[()] if type(x) is np.ndarray and x.ndim == 0 else x for x in inputs]))
        return call_on_data(call, ufunc.__name__, inputs, named)

    def __array_function__(self, function: Func, types: Any, arguments: Any,
                           named: dict[str, Any]) -> Any:
        """NEP 18: our function of that name, else that of the library of the data."""
        if not all(map(is_answered_here, types)):
            return NotImplemented
        if not isinstance(function, _PUBLIC_FUNCTION):
            return self._made_like(function.__name__, arguments, named)
        if function is np.array_repr:
            return _repr(*arguments, **named)
        return call_on_data(partial(by_library, function), function.__name__, arguments, named)

    def _made_like(self, name: str, arguments: Any, named: dict[str, Any]) -> Any:
        """A new array where this one is: NumPy's ``like=``, which also passes ``device=None``."""
        with made_on(self.device) as library:
            make, ours = getattr(library, name, None), getattr(functions, name, None)
            if ours is not None:
                make = lambda a, dtype=None: ours(library.asarray(a), dtype)  # noqa: E731
            given = {key: value for key, value in named.items() if key != "device"
                     or value is not None}
            return NotImplemented if make is None else call_on_data(make, name, arguments, given)

    def view(self, /, *arguments: Any, **named: Any) -> ndarray:
        """A view of the same memory with another element type: ``view([dtype][, type])``; this
        class is a valid ``type``.

        Raises
        ------
        TypeError
            On a GPU for a subclass of NumPy's array or for Python's objects, which CuPy's arrays
            cannot be or hold.
        """
        arguments = tuple(x for x in arguments if x is not ndarray)
        named = {name: x for name, x in named.items() if x is not ndarray}
        if self.device != CPU and any(np.dtype(x).hasobject for x in (*arguments, *named.values())
                                      if x is not None):
            raise TypeError(
                "on a GPU, view takes a dtype of numbers: arrays there have no subclasses and hold no Python objects"
            )
        return call_on_data(self._data.view, "view", arguments, named)

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        """The elements as a NumPy array. Their type is left to NumPy, which casts what comes back
        as strictly as it casts its own.

        Raises
        ------
        TypeError
            If they are on a GPU: nothing is moved unless that is said.
        """
        if self.device != CPU:
            raise TypeError(
                'Implicit conversion to a NumPy array is not allowed. Please use `.to_device("cpu")` first; '
                '`cupy.from_dlpack(x)` is a CuPy array of the same memory.'
            )
        return self._data.copy("K") if copy and dtype in (None, self._data.dtype) else self._data

    def __cupy_override_elementwise_kernel__(self, kernel: Func, *arguments: Any,
                                             **named: Any) -> Any:
        """CuPy's ufuncs and element-wise kernels by their own names, with an array of ours among
        the operands."""
        return call_on_data(kernel, getattr(kernel, "name", "a kernel"), arguments, named)

    # There is no __cuda_array_interface__: CuPy would take every ufunc with a CuPy array on the
    # left, our products among them.
    def __dlpack__(self, /, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[Any, int] | None = None, copy: bool | None = None) -> Any:
        """Export by DLPack, as the library of the data does it."""
        data = self._data
        if copy and self.device != CPU and dl_device in (None, self.__dlpack_device__()):
            data, copy = data.copy(), None          # CuPy copies to the host alone
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return data.__dlpack__(**{name: value for name, value in given.items()
                                  if value is not None})

    def __dlpack_device__(self, /) -> tuple[Any, int]:
        """DLPack's name of the device."""
        return self._data.__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        return ndarray, (self._data,)

    def __copy__(self) -> ndarray:
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any]) -> ndarray:
        return wrap(self._data.__deepcopy__(memo)) if self.device == CPU else self.copy("K")

    def __bytes__(self) -> bytes:
        if self.device != CPU:
            raise TypeError('Implicit conversion to bytes is not allowed. Please use `.tobytes()`.')
        # without this method, bytes(x) would be made of the elements, as of a list of integers
        return bytes(self._data)

    def __sizeof__(self) -> int:
        """With the elements, wherever they are; repeated ones (stride 0) count once. Dask calls
        it."""
        data = self._data
        count = prod(n for n, stride in zip(data.shape, data.strides, strict=True) if stride)
        return object.__sizeof__(self) + count * data.itemsize

    # -- places ------------------------------------------------------------------------------------
    @property
    def device(self) -> str:
        """``"cpu"``, or ``"cuda:0"`` and so on."""
        return device_of(self._data)

    def to_device(self, device: Any, /, *, stream: Any = None) -> ndarray:
        """A copy of the array on a device; the array itself if it is already there.

        Parameters
        ----------
        device : str or cupy.cuda.Device
            ``"cpu"``, ``"cuda"`` for CuPy's current device, ``"cuda:1"``.
        stream : cupy.cuda.Stream, optional
            The stream that copies elements from or to a GPU; by default CuPy's current one.

        Raises
        ------
        ValueError
            If there is no such device, and for a stream without a GPU.
        """
        device = checked_device(device)
        if stream is not None and device == self.device == CPU:
            raise ValueError(
                'The stream argument to to_device() is not supported between "cpu" and "cpu"'
            )
        with nullcontext() if stream is None else stream:
            data = copied_to(self._data, device)
        return self if data is self._data else wrap(data)

    # -- elements ----------------------------------------------------------------------------------
    @property
    def flat(self) -> flatiter:
        """The elements in C order, which can be read and written by index: see
        :class:`numpy.flatiter`."""
        return flatiter(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self._data.flat = unwrapped(value)

    @property
    def imag(self) -> ndarray:
        """The imaginary parts, as a view; of a real array new zeros in its order."""
        data = self._data
        if type(data) is np.ndarray:
            return wrap(data.imag)
        from ._cupy_functions import imag

        return wrap(imag(data))

    @imag.setter
    def imag(self, value: Any) -> None:
        self._data.imag = unwrapped(value)

    def __getitem__(self, key: Any) -> ndarray:
        data, raw = self._data, unwrapped(key)
        if type(data) is not np.ndarray:
            from ._cupy_functions import check_key

            check_key(raw)
        return _selected(data, data[raw])

    def __setitem__(self, key: Any, value: Any) -> None:
        data, raw, raw_value = self._data, unwrapped(key), unwrapped(value)
        require_one_place("assignment", (data, raw_value))
        if type(data) is not np.ndarray:
            from ._cupy_functions import check_key, elements_for

            check_key(raw)
            raw_value = elements_for(data, raw, raw_value)
        data[raw] = raw_value

    def tolist(self) -> Any:
        return self._data.tolist()              # Python's objects, as they are

    def item(self, *index: Any) -> Any:
        """An element as a Python object: the only one, or the one at an index, as in NumPy."""
        if type(self._data) is np.ndarray or not index:
            return self._data.item(*index)
        from ._cupy_functions import item

        return item(self._data, *index)

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[ndarray]:
        data = self._data
        return (_selected(data, x) for x in data)

    def __contains__(self, x: Any) -> bool:
        return bool(np.any(self == x))

    def __bool__(self) -> bool:
        data = self._data
        # CuPy's without elements are false, NumPy's ambiguous
        return bool(data if data.size else np.empty(data.shape))

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
        """The element of an array without dimensions, as NumPy's scalar; waits for the GPU."""
        if self._data.ndim:
            raise TypeError(refusal)
        return copied_to(self._data, CPU)[()]

    def __hash__(self) -> int:
        return hash(
            self._as_scalar(
                "unhashable type: 'cuteblas.ndarray'; only arrays without axes have a hash"
            )
        )

    def __round__(self, ndigits: SupportsIndex | None = None) -> Any:
        scalar = self._as_scalar(
            "type cuteblas.ndarray doesn't define __round__ method for arrays with axes"
        )
        return round(scalar) if ndigits is None else self.round(ndigits)

    def __trunc__(self) -> int:
        return trunc(
            self._as_scalar(
                "type cuteblas.ndarray doesn't define __trunc__ method for arrays with axes"
            )
        )

    # -- text --------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return _repr(self)

    def __str__(self) -> str:
        return str(copied_to(self._data, CPU))

    def __format__(self, spec: str) -> str:
        return format(copied_to(self._data, CPU), spec)

    # -- products ----------------------------------------------------------------------------------
    def dot(self, b: Any, out: Any = None) -> ndarray:
        """Dot product with another array: see :func:`cuteblas.dot`."""
        if isinstance(b, (list, tuple)) and type(self._data) is not np.ndarray:
            with made_on(self.device) as library:
                b = library.asarray(unwrapped(b))
        return call_on_data(dot, "dot", (self, b), {} if out is None else {"out": out})

    def copy(self, order: Order = "C") -> ndarray:
        """A copy in memory order ``order``: see :func:`cuteblas.copy`."""
        return wrap(copy(self._data, order))


class flatiter:
    """The elements of an array in C order, as ``numpy.flatiter``."""

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
            return wrapped(data.ravel()[raw].copy())      # CuPy's iterators take numbers and slices
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
        return wrap(self.base._data.flatten())

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        return wrap(self.base._data.ravel() if copy is False
                    else self.base._data.flatten()).__array__()


# -- to and from the data --------------------------------------------------------------------------
def wrap(data: Any) -> ndarray:
    """Wrap an array that is one."""
    x = _new(ndarray)
    x._data = data
    return x


def wrapped(result: Any, given: Sequence[Any] = ()) -> Any:
    """A result with arrays and scalars wrapped, in containers too; given arrays as given."""
    for x in given:
        if result is (x._data if type(x) is ndarray else x):
            return x
    if type(result) is np.ndarray:
        return wrap(result)
    if isinstance(result, np.generic):
        return wrap(np.asarray(result))
    if (kind := kind_of(result)) == "cupy":
        return wrap(result)
    if kind == "scalar":
        return result
    if isinstance(result, tuple):
        members = [wrapped(x, given) for x in result]
        return type(result)(*members) if hasattr(result, "_fields") else tuple(members)
    if type(result) is dict:
        return {name: wrapped(x, given) for name, x in result.items()}
    return [wrapped(x, given) for x in result] if type(result) is list else result


def unwrapped(argument: Any) -> Any:
    """An argument with the arrays inside ours, in containers too."""
    # What holds none of ours stays as it is, named tuples too; other sequences become lists, as
    # NumPy makes of them. Arrays of objects are searched only for arrays on a GPU, which NumPy
    # cannot read there.
    kind = type(argument)
    if kind is ndarray:
        return argument._data
    if kind in SIMPLE_TYPES:
        return argument
    if kind is dict:
        return {name: unwrapped(x) for name, x in argument.items()}
    if _is_container(kind):  # type: ignore[arg-type]    # mypy doubts that it is hashable
        members = [*argument]
        raw = [*map(unwrapped, members)]
        if all(map(operator.is_, raw, members)):
            return argument
        return tuple(raw) if kind is tuple else argument._make(raw) if hasattr(argument, "_make") else raw
    if isinstance(argument, Carrier):
        return argument.converted(lambda _name, x: unwrapped(x))
    if isinstance(argument, np.ndarray) and argument.dtype == object and any(
            type(x) is ndarray and x.device != CPU for x in argument.flat):
        return unwrapped(argument.tolist())
    return argument


@cache
def _is_container(kind: type) -> bool:
    """Whether objects of a type are sequences of anything, and no arrays."""
    return (issubclass(kind, Sequence) and not issubclass(kind, (str, bytes, bytearray, memoryview,
                                                                 range, array))
            and not hasattr(kind, "__array__"))


def _selected(data: Any, result: Any) -> Any:
    """What was selected: an element of an array of objects as it is, else wrapped."""
    element = data.dtype.char == "O" and not (isinstance(result, np.ndarray)
                                              and result.dtype.char == "O")
    return result if element else wrapped(result)


def _repr(arr: ndarray, max_line_width: int | None = None, precision: int | None = None,
          suppress_small: bool | None = None) -> str:
    """What Python makes the array of again, by :func:`cuteblas.array`; as ``numpy.array_repr``."""
    prefix = "cuteblas."
    width = np.get_printoptions()["linewidth"] if max_line_width is None else max_line_width
    text = np.array_repr(copied_to(arr._data, CPU), width - len(prefix), precision, suppress_small)
    text = re.sub(r"dtype=(\w+)\)$", r"dtype='\1')", text)       # a name needs no import then
    where = "" if arr.device == CPU == default_device() else f", device={arr.device!r}"
    if len(text.rpartition("\n")[2]) + len(where) > width - len(prefix):
        where = where.replace(", ", ",\n" + " " * len("array("))
    return f"{prefix}{text[:-1]}{where})".replace("\n", "\n" + " " * len(prefix))


def call_on_data(call: Func, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function on what our arrays wrap, and wrap its result; ``out`` as it was given."""
    # nothing to look for
    if len(arguments) == 1 and not named and type(x := arguments[0]) is ndarray:
        return wrapped(call(x._data), arguments)
    raw, raw_named = unwrapped(arguments), unwrapped(named) if named else named
    require_one_place(name, (*raw, *raw_named.values()))
    result = call(*raw, **raw_named)
    given = arguments if type(result) is not tuple else [x for x in leaves(arguments)
                                                         if type(x) is ndarray]
    return wrapped(result, given if named.get("out") is None else [*leaves(named["out"]), *given])


def _on_data(call: Func, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Our function on what our arrays wrap; arrays that it writes into come back."""
    result = call(*unwrapped(arguments), **unwrapped(named))
    return wrapped(result, [x for x in leaves((arguments, named)) if hasattr(x, "shape")])


# -- members of NumPy's arrays ---------------------------------------------------------------------
def _define_members() -> None:
    """Give the class all of NumPy's public methods and attributes that it does not define."""
    def method(name: str) -> Func:
        numpys = getattr(np.ndarray, name)

        def call(self: ndarray, /, *arguments: Any, **named: Any) -> Any:
            if not (arguments or named):
                result = getattr(self._data, name)()
                return self if result is self._data else wrapped(result)
            theirs = numpys if type(self._data) is np.ndarray else _method_by_cupy(name)
            return call_on_data(theirs, name, (self, *arguments), named)

        return call

    def attribute(name: str) -> property:
        return property(lambda self: wrapped(getattr(self._data, name), (self,)),
                        lambda self, value: setattr(self._data, name, unwrapped(value)))

    for name in dir(np.ndarray):
        own = vars(ndarray).get(name)
        if isinstance(own, FunctionType):
            own.__doc__ = own.__doc__ or getattr(np.ndarray, name).__doc__
        elif own is None and not name.startswith("_"):
            define(name, method(name) if callable(getattr(np.ndarray, name)) else attribute(name))


def _method_by_cupy(name: str) -> Func:
    """A method on an array of CuPy's that takes NumPy's arguments."""
    from ._cupy_functions import method_by_cupy

    return partial(method_by_cupy, name)


def define(name: str, member: Any) -> None:
    """Make a member of the class, with NumPy's description unless it has one."""
    member.__doc__ = member.__doc__ or getattr(np.ndarray, name).__doc__
    if not isinstance(member, property):
        member.__name__, member.__qualname__, member.__module__ = name, f"ndarray.{name}", ndarray.__module__
        if name in vars(Members):
            member.__wrapped__ = vars(Members)[name]    # whose signature help() shows
    setattr(ndarray, name, member)


_define_members()


def _product(x1: ndarray, x2: Any, out: Any, precision: Any) -> Any:
    """``cuteblas.matmul`` of two of ours, or one and what it wraps; ``None`` for other calls."""
    data, other = x1._data, x2._data if type(x2) is ndarray else x2
    if out is not None or type(other) is not type(data):
        return None
    result = matmul(data, other) if precision is None else matmul(data, other, precision=precision)
    return wrap(result) if type(result) is type(data) else wrapped(result)


register_own_type(ndarray, _on_data, _product)
