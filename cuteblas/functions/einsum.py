"""``einsum`` and ``einsum_path``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from string import ascii_letters
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from ..engines.counters import tally
from ..engines.dispatch import ByName, Func, kind_of, own_call, own_types, replays
from ..engines.memory import Ints, Memory, contiguous_strides, is_contiguous, shadow
from ..engines.placement import stays
from ..engines.replay.recording import store
from .algorithms import (
    AS_PLANNED,
    checked_algorithm,
    checked_precision,
    refuse_variant,
    refuse_with_devices,
)
from .expressions import Expression, Term, expression, stand_in
from .routing import NumpyCall, Settle, answer_anew, by_numpy, key_of, resolve
from .signatures import Array, Casting, Devices, Order, Precision, Promoted
from .subscripts import (
    Subscripts,
    contraction_path,
    operands_of,
    read,
    text_of,
    with_operands,
)

_by_numpy = tally("einsum", "calls", "numpy")
_as_view = tally("einsum", "calls", "a view").tick
_NUMBERS = frozenset("?bhilqBHILQefdFD")        # characters of the types that kernels multiply
_ON_HOST = _NUMBERS | {"g", "G"}
_ARGUMENTS = frozenset({"dtype", "order", "casting"})
SMALL = 2048            # products that NumPy's plain loop does before a product of matrices has
                        # begun
_MOST_OPERANDS = 32     # that NumPy's plain loop takes, less the result (64 from NumPy 2 on)
_MOST_FOR_OPTIMAL = 12  # terms; 3^12 pairs of subsets take a quarter of a second
_MOST_FOR_NUMPY = 7     # terms; NumPy's search for the optimal path takes factorial time


Optimize = bool | Literal["auto", "greedy", "optimal"] | list[Any] | tuple[Any, ...]


class EinsumArguments(TypedDict, total=False):
    dtype: Any
    order: Order | None
    casting: Casting


def einsum(*operands: Promoted[Array], out: Any = None, optimize: Optimize = False,
           precision: Precision | None = None, variant: str | None = None,
           devices: Devices | None = None, **arguments: Unpack[EinsumArguments]) -> Array:
    """Sums of products in Einstein's notation, as ``numpy.einsum``.

    Parameters
    ----------
    *operands
        Subscripts and arrays, ``einsum("ij,jk->ik", a, b)``, or arrays and lists of numbers in
        turn. NumPy in, NumPy out; CuPy in, CuPy out. Any strides: kernels read diagonals, traces,
        transposes and broadcast axes in place, and nothing is reshaped.
    out : array, optional
        Receives the result.
    optimize : bool, str, tuple or list
        The order in which more than two arrays are multiplied, as in ``numpy.einsum_path``. The
        default (``False`` or ``"auto"``) is the order with the fewest multiplications for up to 8
        arrays, and a greedy order for more. Arrays are multiplied in pairs; a path for NumPy arrays
        may name more than two at once. NumPy's single loop over all indices runs where there are so
        few elements that it is faster.
    dtype, order, casting
        As in ``numpy.einsum``. All products are computed in the type of the result.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"}, optional
        The algorithm of every product on the GPU, as in :func:`cuteblas.matmul`.
    variant : str, optional
        The name of a kernel to use for every product instead of the planned one;
        ``python -m cuteblas kernels`` lists the names.
    devices : "all" or sequence of int, optional
        The GPUs of this host that may compute a product of two arrays, as in
        :func:`cuteblas.matmul`. There may be no diagonals and no sums over indices of one array
        alone.

    Returns
    -------
    array or scalar
        A view if there is one array, without a sum and without ``out``.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError, RuntimeError
        The errors of ``numpy.einsum``, in its words and before anything runs; also for operands on
        different devices, and for an algorithm or a kernel that is unknown or does not take a
        product.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1])
    array([3, 7])
    """
    if devices is not None:
        refused = {"variant": variant, **arguments} if optimize is False else {"optimize": optimize}
        return _over_devices(operands, out, devices, checked_precision(precision), refused)
    if operands and type(operands[-1]) is np.ndarray and precision is variant is None and not arguments \
            and type(operands[0]) is str and (out is None or type(out) is np.ndarray) and stays(*operands):
        most, half = 1, False
        for x in (arrays := operands[1:]):
            if type(x) is not np.ndarray:
                break
            most *= x.size
            if x.dtype.char == "e":
                half = True
        else:
            if out is None and optimize is False:
                count = len(operands)
                if not half and (count == 2 or (most <= SMALL and count <= _MOST_OPERANDS)
                                 or (count == 3
                                     and (operands[0], operands[1].shape,
                                          operands[2].shape) in _small)):
                    result = np.einsum(*operands)
                else:
                    program = _programs.get(_key_of_arrays(operands[0], arrays))
                    result = _on_host(operands, *arrays) if program is None else program(*arrays)
            else:
                result = _on_host(operands, *arrays, optimize=optimize, out=out)
            _by_numpy.tick()
            return result
    if not (arrays := operands_of(operands)):       # NumPy's to refuse
        alone: Any = operands
        shown: Any = (x if isinstance(x, str) else np.zeros(np.shape(x)) for x in alone)
        return np.einsum(*shown, optimize=optimize)
    algorithm = checked_algorithm(precision, variant)
    head: Hashable = None
    replay = replays[type(arrays[0])]
    if replay is not None and type(operands[0]) is str:
        head = ("einsum", algorithm, operands[0]) if optimize is False and not arguments else \
            key_of({"optimize": optimize, **arguments}, "einsum", algorithm, operands[0])
        if len(arrays) == 1 and algorithm is AS_PLANNED and out is None and optimize is False and not arguments:
            x = arrays[0]
            if kind_of(x) == "cupy" and x.dtype.char in _NUMBERS and (found := _viewed(operands[0], x.shape)) is not None:
                _as_view()
                return found(x)
        if head is not None and (result := replay(head, arrays, out)) is not None:
            return result
    again = partial(_again, operands, {"optimize": optimize, "precision": precision,
                                       "variant": variant})
    call = NumpyCall("einsum", partial(_on_host, operands, optimize=optimize), arrays, out,
                     arguments, algorithm, again=again)
    settle = partial(_settle, operands, optimize)
    if len(arrays) == 1 and out is None and (view := _view(call, settle)) is not None:
        return view
    return answer_anew(call, settle, head)


def _again(operands: Sequence[Any], given: ByName, *arrays: Any, **named: Any) -> Any:
    return einsum(*with_operands(operands, arrays), **given, **named)


def _over_devices(operands: Sequence[Any], out: Any, devices: Any, precision: str,
                  refused: ByName) -> Any:
    refuse_with_devices("einsum", refused)
    arrays = operands_of(operands)
    if len(arrays) != 2:
        raise TypeError(f"einsum with devices= takes two arrays, not {len(arrays)}")
    if (call := own_call(*arrays, out)) is not None:
        return call(einsum, tuple(operands), {"out": out, "precision": precision,
                                              "devices": devices})
    from .devices import contraction_over

    def settle(first: Memory, second: Memory, target: Memory | None) -> Expression | None:
        if target is not None:
            _settle(operands, False, first, second, target)             # NumPy's to refuse
        settled = _settle(operands, False, first, second, None)
        terms = [] if settled is None else zip(settled.terms, (first, second), strict=True)
        if settled is not None and any(n != settled.extents[c] for term, x in terms
                                       for c, n in zip(term.axes, x.shape, strict=True)):
            raise ValueError("einsum with devices= takes operands in which an index has one extent")
        return settled

    return contraction_over("einsum", settle, partial(_by_plain_numpy, operands), (*arrays, out),
                            devices, precision)


def _settle(operands: Sequence[Any], optimize: Any, *memories: Memory | None,
            **arguments: Any) -> Expression | None:
    """The expression of a call; ``None`` if NumPy has to refuse it."""
    *given, out = memories
    shown: list[Any] = given
    subscripts = read(operands, [x.shape for x in shown], None if out is None else out.shape)
    if subscripts is None or not arguments.keys() <= _ARGUMENTS:
        return None
    return _settled(operands, optimize, subscripts, shown, out, arguments)


def _settled(operands: Sequence[Any], optimize: Any, subscripts: Subscripts,
             memories: Sequence[Memory], out: Memory | None, arguments: ByName) -> Expression:
    path = _path(operands, subscripts, memories, optimize)
    dtype, scalar = _resolve_dtype(operands, memories, out, path, optimize, arguments)
    order = arguments.get("order", "K")
    settled = expression([Term(tuple(term)) for term in subscripts.terms],
                         tuple(subscripts.result), subscripts.extents, dtype, scalar)
    axes = _order_of_axes(subscripts, memories, order)
    return replace(settled, path=path, any_order=order in ("K", "k"),
                   strides=contiguous_strides(settled.shape, dtype.itemsize, axes))


def einsum_path(*operands: Any, optimize: Optimize = "greedy", einsum_call: bool = False) -> Any:
    """The order in which ``einsum`` multiplies several arrays, and what it costs, as
    ``numpy.einsum_path``.

    Parameters
    ----------
    *operands
        As in :func:`einsum`.
    optimize : {bool, list, tuple, "greedy", "optimal", "auto"}
        As in ``numpy.einsum_path``; ``"auto"`` is what :func:`einsum` does by default.
    einsum_call : bool
        As in ``numpy.einsum_path``.

    Returns
    -------
    path : list of tuple
        To be passed as ``optimize``.
    report : str
        A table for people, as NumPy prints it.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError, RuntimeError
        The errors of ``numpy.einsum_path``.

    Examples
    --------
    >>> path, report = cuteblas.einsum_path("ab,bc,cd->ad", np.ones((30, 2)), np.ones((2, 30)), np.ones((30, 2)), optimize="auto")
    >>> path
    ['einsum_path', (1, 2), (0, 1)]
    """
    arrays = operands_of(operands)
    operands = with_operands(operands, [
        stand_in(Memory(x.shape, (), np.dtype(bool)))
        if kind_of(x) == "cupy" or type(x) in own_types else x for x in arrays])
    if optimize is not False:
        subscripts = read(operands, [np.shape(x) for x in arrays])
        own = None if subscripts is None else _own_path(subscripts, optimize)
        if own is not None:
            optimize = ["einsum_path", *own]
        elif _is_default(optimize):
            optimize = "greedy"
    result = np.einsum_path(*operands, optimize=optimize, einsum_call=einsum_call)  # type: ignore[arg-type]
    tally("einsum_path", "calls", "numpy").tick()
    return result


# -- NumPy arrays by NumPy -------------------------------------------------------------------------
_programs: dict[Any, Func] = {}
"""Functions of the operands and ``out``, by all of a call that decides what it does."""
_small: dict[tuple[Any, ...], bool] = {}
"""Subscripts and shapes of pairs with few products, which NumPy's plain loop computes."""


def _key_of_arrays(subscripts: Any, arrays: Sequence[np.ndarray], *how: Any) -> tuple[Any, ...]:
    key = [subscripts, *how]
    for x in arrays:
        dtype = x.dtype
        key.append((x.shape, x.strides, dtype.num, dtype.isnative))      # which are all of a number
    return tuple(key)


def _on_host(operands: Sequence[Any], *given: Any, optimize: Any = False, out: Any = None,
             **arguments: Any) -> Any:
    """``einsum`` of NumPy arrays in pairs by BLAS, by the plain loop, or by ``numpy.einsum``."""
    arrays = [np.asarray(x) if _is_converted(x, optimize) else x for x in given]
    if out is not None and isinstance(out, np.ndarray):       # as if the operands were copied first
        arrays = [x.copy() if isinstance(x, np.ndarray) and np.may_share_memory(x, out) else x
                  for x in arrays]
    text = operands[0] if type(operands[0]) is str else text_of(operands)
    every = arrays if out is None else [*arrays, out]
    if text is None or any(type(x) is not np.ndarray for x in every):
        return _by_plain_numpy(operands, *arrays, optimize=optimize, out=out, **arguments)
    how: tuple[Any, ...] = ()
    if optimize is not False or arguments or out is not None:
        how = key_of({"optimize": optimize, **arguments}), out is not None and out.flags.writeable
    key = _key_of_arrays(text, every, *how)
    program = _programs.get(key)
    if program is None:
        program = _program(text, arrays, optimize, out, arguments)
        store(_programs, None if None in how else key, program)
    return program(*arrays, out=out)


def _is_converted(x: Any, optimize: Any) -> bool:
    """Whether NumPy makes a plain array of an object, which does not answer in its place."""
    kinds = ("scalar", "like", "subclass") if _is_default(optimize) else ("scalar", "like")
    return kind_of(x) in kinds and getattr(type(x), "__array_function__", _PLAIN) is _PLAIN


_PLAIN = np.ndarray.__array_function__


def _by_plain_numpy(operands: Sequence[Any], *arrays: Any, optimize: Any = False, out: Any = None,
                    **named: Any) -> Any:
    """``numpy.einsum``, for which our name for the order of choice means its plain loop."""
    if out is not None:
        named["out"] = out
    return np.einsum(*with_operands(operands, arrays),
                     optimize=False if _is_default(optimize) else optimize, **named)


def _is_default(optimize: Any) -> bool:
    return optimize is False or (isinstance(optimize, str) and optimize == "auto")


def _program(text: str, arrays: Sequence[np.ndarray], optimize: Any, out: np.ndarray | None,
             arguments: ByName) -> Func:
    """How a call on NumPy arrays runs: in pairs, by the plain loop, or by ``numpy.einsum``."""
    operands = text, *arrays
    by_numpy = partial(_by_plain_numpy, (text,), optimize=optimize, **arguments)
    memories = [_without_address(x) for x in arrays]
    out_memory = None if out is None else _without_address(out)
    subscripts = read(operands, [x.shape for x in memories],
                      None if out_memory is None else out_memory.shape)
    if subscripts is None or not arguments.keys() <= _ARGUMENTS or not all(x.dtype.char in _ON_HOST for x in arrays):
        return by_numpy
    count, products = len(arrays), prod(subscripts.extents.values())
    may_loop = _is_default(optimize) and count < _MOST_OPERANDS
    loops = may_loop and (products <= SMALL or count < 2)
    settled = _settled(operands, optimize, subscripts, memories, out_memory, arguments)
    sums = any(n > 1 and c not in subscripts.result for c, n in subscripts.extents.items())
    # NumPy's loop rounds sums of float16 on their way, and takes any bytes for the machine's
    in_steps = (sums and "e" in (settled.dtype.char, None if out is None else out.dtype.char)) \
        or ((sums or count > 1) and not settled.dtype.isnative)
    if settled.dtype.char not in _ON_HOST or (count < 2 and not in_steps):
        return by_numpy
    if not loops or in_steps:
        from .numpy_einsum import loop_ns, program

        found, expected_ns = program(settled, memories, out_memory)
        loops = loops or (may_loop and loop_ns(settled.dtype, count, products) < expected_ns)
        if loops and in_steps:
            at_once = replace(settled, path=(tuple(range(count)),))
            found, _ns = program(at_once, memories, out_memory)
        if in_steps or not loops:
            return found
    elif count == 2 and out is None and not arguments:
        store(_small, (text, *[x.shape for x in arrays]), True)
    return partial(np.einsum, text, **arguments)                # over all indices


def _without_address(x: np.ndarray) -> Memory:
    return Memory(x.shape, x.strides, x.dtype, writeable=x.flags.writeable)


def _own_path(subscripts: Subscripts, optimize: Any) -> tuple[Ints, ...] | None:
    """Our order of products; ``None`` where ``optimize`` asks for NumPy's."""
    if _is_default(optimize):
        return contraction_path(subscripts)
    if isinstance(optimize, str) and optimize == "optimal" and len(subscripts.terms) > _MOST_FOR_NUMPY:
        return contraction_path(subscripts, _MOST_FOR_OPTIMAL)
    return None


def _path(operands: Sequence[Any], subscripts: Subscripts, memories: Sequence[Memory],
          optimize: Any) -> tuple[Ints, ...]:
    if (own := _own_path(subscripts, optimize)) is not None:
        return own
    _name, *steps = np.einsum_path(*with_operands(operands, map(stand_in, memories)),
                                   optimize=optimize)[0]
    left, path = list(range(len(memories))), list[Ints]()
    # NumPy takes them out one after the other, so that (0, 0) means (0, 1)
    for step in steps:
        before = list(left)
        path.append(tuple(sorted(before.index(left.pop(i)) for i in sorted(step, reverse=True))))
        left.append(len(memories) + len(path))
    return tuple(path)


def _resolve_dtype(operands: Sequence[Any], memories: Sequence[Memory], out: Memory | None,
                   path: Sequence[Ints], optimize: Any,
                   arguments: ByName) -> tuple[np.dtype, bool]:
    """The type in which NumPy computes, and whether it returns a scalar: its answer, on small
    arrays, along the path that it would take."""
    ours = _is_default(optimize)
    path = () if ours and len(memories) < _MOST_OPERANDS else path
    # NumPy's own products see the difference
    most = 2 if path and max(len(x.shape) for x in memories) < 8 else 1
    arrays = [stand_in(x, tuple(min(n, most) for n in x.shape)) for x in memories]
    shown = dict(arguments)
    if out is not None:
        shown["out"] = np.zeros(tuple(min(n, most) for n in out.shape), out.dtype)
        shown["out"].flags.writeable = out.writeable
    result = np.einsum(*with_operands(operands, arrays),
                       optimize=["einsum_path", *path] if path else False, **shown)
    dtype = np.asarray(result).dtype if out is None else np.result_type(*(x.dtype for x in memories), out.dtype)
    if arguments.get("dtype") is not None:
        dtype = np.dtype(arguments["dtype"])
    return dtype, out is None and (ours or not isinstance(result, np.ndarray))


def _view(call: NumpyCall, settle: Settle) -> Any:
    """A view with axes permuted or on a diagonal; ``None`` if a call asks for anything else."""
    resolved = resolve(call)
    if isinstance(resolved, str) or resolved.strange is not None:
        return None
    (x,), (memory,) = resolved.arrays, resolved.memories
    settled = settle(memory, None, **call.arguments)
    if settled is None or {*settled.axes} != {*settled.terms[0].axes}:
        return None
    refuse_variant(call.algorithm.variant, "the result is a view")
    if resolved.engine.on_host:
        return by_numpy("einsum", "a view", call.numpys, x, **call.arguments)
    _as_view()
    if not memory.size:                         # CuPy has new arrays for these
        return resolved.engine.view(x, settled.shape, settled.strides)
    return _by_methods("".join(settled.terms[0].axes), "".join(settled.axes))(x)


@lru_cache(maxsize=4096)
def _viewed(text: str, shape: Ints) -> Callable[[Any], Any] | None:
    """What makes the view that subscripts ask for; ``None`` if they ask for anything else."""
    subscripts = read((text,), [shape])
    if subscripts is None or 0 in shape or {*subscripts.result} != {*subscripts.terms[0]}:
        return None
    return _by_methods(subscripts.terms[0], subscripts.result)


def _by_methods(term: str, result: str) -> Callable[[Any], Any]:
    """Diagonals and permutations by CuPy's methods, whose views know their base."""
    axes, diagonals = list(term), []
    for c in term:
        while axes.count(c) > 1:
            first = axes.index(c)
            second = axes.index(c, first + 1)
            diagonals.append((0, first, second))
            axes = [*axes[:first], *axes[first + 1:second], *axes[second + 1:], c]
    order = tuple(axes.index(c) for c in result)

    def view(x: Any) -> Any:
        for diagonal in diagonals:
            x = x.diagonal(*diagonal)
        return x.transpose(order)

    return view


def _diagonal(term: str, x: Memory) -> Memory:
    """An operand with one axis for each of its letters."""
    extents, strides = dict(zip(term, x.shape, strict=True)), dict.fromkeys(term, 0)
    for c, stride in zip(term, x.strides, strict=True):
        strides[c] += stride
    return replace(x, shape=tuple(extents.values()), strides=tuple(strides.values()))


def _order_of_axes(subscripts: Subscripts, memories: Sequence[Memory],
                   order: Any) -> Sequence[int]:
    """Axes of a new result as NumPy lays them out, outermost first: asked of NumPy with the true
    strides and extents of at most 2."""
    rank = len(subscripts.result)
    unused = sorted(set(ascii_letters) - subscripts.extents.keys())
    if rank < 2 or not unused:
        return range(rank)
    text = f"{','.join(subscripts.terms)},{unused[0]}->{subscripts.result}"
    if order in ("A", "a"):                 # a question about the true extents, and about diagonals
        order = "F" if all(is_contiguous(_diagonal(term, x), "F")
                           for term, x in zip(subscripts.terms, memories, strict=True)) else "C"
    shadows = [shadow(tuple(min(n, 2) for n in x.shape), x.strides) for x in memories]
    result = np.einsum(text, *shadows, np.empty(0, np.int8), order=order)
    return sorted(range(rank), key=lambda axis: (-result.strides[axis], result.shape[axis] == 1))
