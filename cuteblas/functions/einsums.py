"""``einsum`` and ``einsum_path``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from string import ascii_letters
from typing import Any

import numpy as np

from .counters import tally
from .expressions import Expression, Term, expression, stand_in
from .gufunc import shadow
from .kinds import kind_of
from .memory import Memory, contiguous_strides, is_contiguous
from .named import checked_how, refuse_variant
from .paths import contraction_path, optimal_path
from .routing import Taken, by_numpy, key_of, refused, repeaters, sent_back, take, without_kernels
from .subscripts import Subscripts, operands_of, read, with_operands

__all__ = ["einsum", "einsum_path"]

_ARGUMENTS = frozenset({"dtype", "order", "casting"})
_ROLES: dict[int, Sequence[str]] = {1: ("src", "dst"), 2: "abc"}             # of the operands and the result, in one plan
_MOST_FOR_NUMPY = 7                             # terms; NumPy's search for the optimal path takes factorial time


def einsum(*operands: Any, out: Any = None, optimize: Any = False, precision: str | None = None, variant: str | None = None,
           **arguments: Any) -> Any:
    """Sums of products in Einstein's notation, as ``numpy.einsum``.

    Parameters
    ----------
    *operands
        Subscripts and arrays, ``einsum("ij,jk->ik", a, b)``, or arrays and lists of numbers in turn. NumPy in, NumPy out; CuPy in,
        CuPy out. Any strides; diagonals, traces, transposes and broadcasting are strides of the kernels' operands, and nothing is
        reshaped.
    out : array, optional
        Receives the result.
    optimize : bool, str, tuple or list
        In which order more than two arrays are multiplied: as in ``numpy.einsum_path``, but by default (``False``, or ``"auto"``)
        the order with the fewest multiplications for up to 8 arrays, and a greedy one for more. Arrays are always multiplied in
        pairs.
    dtype, order, casting
        As in ``numpy.einsum``. All products are computed in the type of the result.
    precision : {"auto", "ieee", "fp16x3", "bf16x6", "tf32"}, optional
        The algorithm of every product on the GPU, as of :func:`cuteblas.matmul`.
    variant : str, optional
        A named kernel for every product instead of the one that planning chooses; ``python -m cuteblas kernels`` lists them.

    Returns
    -------
    array or scalar
        A view where that is possible: one array, no sum and no ``out``.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError, RuntimeError
        What ``numpy.einsum`` raises, in its words and before anything runs; also for operands on different devices, and for an
        algorithm or a kernel that is unknown or does not take a product.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1])
    array([3, 7])
    """
    arrays, how = operands_of(operands), checked_how(precision, variant)
    head: Hashable = None
    repeated = repeaters.get(type(arrays[0])) if arrays else None
    if repeated is not None and type(operands[0]) is str:
        head = ("einsum", operands[0], how) if optimize is False and not arguments else \
            key_of({"optimize": optimize, **arguments}, "einsum", operands[0], how)
        if head is not None and (result := repeated(head, arrays, out)) is not None:
            return result
    named = arguments if out is None else {"out": out, **arguments}
    taken = take("einsum", arrays, out)
    if isinstance(taken, str):
        result = sent_back(taken, how, partial(einsum, precision=precision, variant=variant), "einsum", operands,
                           {"optimize": optimize, **named})
        if result is not None:
            return result
        optimize = False if isinstance(optimize, str) and optimize == "auto" else optimize
        return by_numpy("einsum", taken, np.einsum, *operands, optimize=optimize, **named)

    def call(*arrays: Any, **named: Any) -> Any:
        how = False if isinstance(optimize, str) and optimize == "auto" else optimize
        return np.einsum(*with_operands(operands, arrays), optimize=how, **named)

    memories, out_memory = taken.memories, taken.out_memory
    subscripts = read(operands, [x.shape for x in memories], None if out_memory is None else out_memory.shape)
    from .problems import has_kernels

    strange = next((x.dtype for x in memories if not has_kernels(x.dtype)), None)
    if strange is not None:
        return without_kernels("einsum", call, taken, strange, taken.arrays, named, how)
    if subscripts is None or not arguments.keys() <= _ARGUMENTS:
        return refused("einsum", call, taken, taken.arrays, named, how)
    path = _path(operands, subscripts, memories, optimize)
    judged = _judged(operands, memories, out_memory, path if optimize is not False else (), arguments)
    if out_memory is None and len(memories) == 1 and set(subscripts.result) == set(subscripts.terms[0]):
        refuse_variant(variant, "the result is a view")
        return _view(taken, subscripts, call, named)
    if not has_kernels(judged[0]):
        return without_kernels("einsum", call, taken, judged[0], taken.arrays, named, how)
    from .contractions import evaluate

    with taken.on_device():
        result = evaluate("einsum", taken.engine, _settled(subscripts, memories, *judged, arguments.get("order", "K")),
                          taken.arrays, taken.out, path, how)
        if head is not None:
            taken.engine.remember("einsum", head, taken.arrays, taken.out, result, _ROLES.get(len(arrays), ""))
    return result


def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """The order in which ``einsum`` multiplies several arrays, and what it costs, as ``numpy.einsum_path``.

    Parameters
    ----------
    *operands
        As of :func:`einsum`.
    optimize : {bool, list, tuple, "greedy", "optimal", "auto"}
        As in ``numpy.einsum_path``; ``"auto"`` is what :func:`einsum` does by default.
    einsum_call : bool
        As in ``numpy.einsum_path``.

    Returns
    -------
    path : list of tuple
        To be passed as ``optimize``.
    report : str
        For people, as NumPy prints it.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError, RuntimeError
        What ``numpy.einsum_path`` raises.
    """
    arrays = operands_of(operands)
    if any(kind_of(x) == "cupy" for x in arrays):
        boolean = np.dtype(bool)
        operands = with_operands(operands, [stand_in(Memory(x.shape, (), boolean)) if kind_of(x) == "cupy" else x for x in arrays])
    if isinstance(optimize, str) and (optimize == "auto" or (optimize == "optimal" and len(arrays) > _MOST_FOR_NUMPY)):
        subscripts = read(operands, [np.shape(x) for x in operands_of(operands)])
        if subscripts is not None:
            optimize = ["einsum_path", *_own_path(subscripts, optimize)]
        elif optimize == "auto":
            optimize = "greedy"
    result = np.einsum_path(*operands, optimize=optimize, einsum_call=einsum_call)  # type: ignore[arg-type]
    tally("einsum_path", "calls", "numpy").tick()
    return result


def _own_path(subscripts: Subscripts, name: str | None) -> Sequence[tuple[int, ...]]:
    """The optimal order if it is asked for by name, else the one of choice."""
    if name == "optimal":
        return optimal_path(subscripts.terms, subscripts.result, subscripts.extents)
    return contraction_path(subscripts.terms, subscripts.result, tuple(subscripts.extents.items()))


def _path(operands: Sequence[Any], subscripts: Subscripts, memories: Sequence[Memory],
          optimize: Any) -> tuple[tuple[int, ...], ...]:
    """The order of products that ``optimize`` asks for.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError, RuntimeError
        If it is none, in NumPy's words.
    """
    named = optimize if isinstance(optimize, str) else None
    if optimize is False or named == "auto" or (named == "optimal" and len(memories) > _MOST_FOR_NUMPY):
        return tuple(_own_path(subscripts, named)) if len(memories) > 2 else ()
    arrays = [stand_in(x) for x in memories]
    return tuple(np.einsum_path(*with_operands(operands, arrays), optimize=optimize)[0][1:])


def _judged(operands: Sequence[Any], memories: Sequence[Memory], out: Memory | None, path: Sequence[tuple[int, ...]],
            arguments: Mapping[str, Any]) -> tuple[np.dtype, bool]:
    """The type in which NumPy computes and whether it returns a scalar, asked for on small arrays.

    Raises
    ------
    TypeError, ValueError
        For types, orders and casting rules, in NumPy's words.
    """
    most = 2 if path and max(len(x.shape) for x in memories) < 8 else 1         # NumPy's own products see the difference
    arrays = [stand_in(x, tuple(min(n, most) for n in x.shape)) for x in memories]
    shown = dict(arguments)
    if out is not None:
        shown["out"] = np.zeros(tuple(min(n, most) for n in out.shape), out.dtype)
        shown["out"].flags.writeable = out.writeable
    result = np.einsum(*with_operands(operands, arrays), optimize=["einsum_path", *path] if path else False, **shown)
    dtype = result.dtype if out is None else np.result_type(*(x.dtype for x in memories), out.dtype)
    if arguments.get("dtype") is not None:
        dtype = np.dtype(arguments["dtype"])
    return dtype, not isinstance(result, np.ndarray)


def _view(taken: Taken, subscripts: Subscripts, call: Callable[..., Any], named: Mapping[str, Any]) -> Any:
    """The same elements, their axes permuted or on a diagonal."""
    (x,), (memory,), (term,) = taken.arrays, taken.memories, subscripts.terms
    if taken.engine.on_host:
        return by_numpy("einsum", "a view", call, x, **named)
    strides = dict.fromkeys(term, 0)
    for c, stride in zip(term, memory.strides, strict=True):
        strides[c] += stride
    tally("einsum", "calls", "a view").tick()
    result = subscripts.result
    return taken.engine.view(x, tuple(subscripts.extents[c] for c in result), tuple(strides[c] for c in result))


def _settled(subscripts: Subscripts, memories: Sequence[Memory], dtype: np.dtype, scalar: bool, order: str | None) -> Expression:
    terms = [Term(tuple(term)) for term in subscripts.terms]
    settled = expression(terms, tuple(subscripts.result), subscripts.extents, dtype, scalar)
    axes = _order_of_axes(subscripts, memories, order)
    return replace(settled, strides=contiguous_strides(settled.shape, dtype.itemsize, axes))


def _order_of_axes(subscripts: Subscripts, memories: Sequence[Memory], order: str | None) -> Sequence[int]:
    """Axes of a new result in the order, outermost first, in which NumPy lays them out in memory.

    NumPy is asked on arrays of the same strides, extents cut to 2, and one without elements, so that nothing is read.
    """
    rank = len(subscripts.result)
    unused = sorted(set(ascii_letters) - set(str(subscripts)))
    if rank < 2 or not unused:
        return range(rank)
    text = f"{','.join(_abbreviated(term) for term in subscripts.terms)},{unused[0]}->{_abbreviated(subscripts.result)}"
    if order in ("A", "a"):                     # a question about the true extents
        order = "F" if all(is_contiguous(x, "F") for x in memories) else "C"
    shadows = [shadow(tuple(min(n, 2) for n in x.shape), x.strides) for x in memories]
    strides = np.einsum(text, *shadows, np.empty(0, np.int8), order=order).strides          # type: ignore[arg-type]
    return sorted(range(rank), key=lambda axis: -strides[axis])


def _abbreviated(term: str) -> str:
    """A term with its ellipsis as NumPy reads it."""
    hidden = [i for i, c in enumerate(term) if c not in ascii_letters]
    return term[:hidden[0]] + "..." + term[hidden[-1] + 1:] if hidden else term
