"""The notation of ``einsum``: subscripts, ellipses, implicit results and the interleaved form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from string import ascii_letters
from typing import Any

__all__ = ["Subscripts", "operands_of", "read", "text_of", "with_operands"]

_SORTED = "".join(sorted(ascii_letters))         # what the numbers of the interleaved form stand for


@dataclass(frozen=True)
class Subscripts:
    """Subscripts without abbreviations.

    Attributes
    ----------
    terms : tuple of str
        A letter for each axis of each operand. The axes of an ellipsis have letters beyond the alphabet.
    result : str
        A letter for each axis of the result.
    extents : dict of str to int
        Of every letter; 1 only if all its axes have extent 1.
    """

    terms: tuple[str, ...]
    result: str
    extents: dict[str, int]

    def __str__(self) -> str:
        return f"{','.join(self.terms)}->{self.result}"


def operands_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The operands among the positional arguments of ``einsum``."""
    if arguments and isinstance(arguments[0], str):
        return tuple(arguments[1:])
    return tuple(arguments[0:2 * (len(arguments) // 2):2])


def with_operands(arguments: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """The same arguments with other operands."""
    if arguments and isinstance(arguments[0], str):
        return arguments[0], *operands
    rest = list(arguments)
    rest[0:2 * (len(arguments) // 2):2] = operands
    return tuple(rest)


def read(arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]], out: tuple[int, ...] | None = None) -> Subscripts | None:
    """What the positional arguments of ``einsum`` say about operands of these shapes; ``None`` if that makes no sense.

    Parameters
    ----------
    arguments : sequence
        Subscripts and operands, or operands and lists of numbers in turn.
    shapes : sequence of tuple
        Of the operands.
    out : tuple, optional
        Shape of the result, which may be larger along an index whose extent is 1 in all operands.
    """
    text = text_of(arguments)
    if text is None:
        return None
    text = text.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    named = inputs.split(",")
    if len(named) != len(shapes) or not all(_well_formed(term) for term in (*named, result)):
        return None
    terms, longest = [], 0
    for term, shape in zip(named, shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term):
            return None
        longest = max(longest, hidden)
        terms.append(term.replace("...", _ellipsis(hidden)))
    if arrow:
        if longest and "..." not in result:
            return None
        result = result.replace("...", _ellipsis(longest))
    else:
        letters = inputs.replace(",", "").replace(".", "")
        result = _ellipsis(longest) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        return None
    extents = _extents(terms, shapes, (result, out))
    return None if extents is None else Subscripts(tuple(terms), result, extents)


def text_of(arguments: Sequence[Any]) -> str | None:
    """The subscripts among the positional arguments of ``einsum``, also of the interleaved form; ``None`` if there are none."""
    try:
        return arguments[0] if isinstance(arguments[0], str) else _written(arguments)
    except (IndexError, TypeError):
        return None


def _written(arguments: Sequence[Any]) -> str:
    """The interleaved form as text."""
    lists = list(arguments[1::2])
    result = "->" + _letters(arguments[-1]) if len(arguments) % 2 else ""
    return ",".join(map(_letters, lists)) + result


def _letters(numbers: Any) -> str:
    """Numbers as letters in the same order.

    Raises
    ------
    IndexError, TypeError
        For anything but an ellipsis or a number of at most 51.
    """
    given = ["..." if i is Ellipsis else index(i) for i in numbers]
    if any(i < 0 for i in given if not isinstance(i, str)):
        raise IndexError
    return "".join(i if isinstance(i, str) else _SORTED[i] for i in given)


def _well_formed(term: str) -> bool:
    """Whether a term has letters and at most one ellipsis."""
    letters = term.replace("...", "", 1)
    return all(c in ascii_letters for c in letters)


def _ellipsis(count: int) -> str:
    """Letters for the last ``count`` of the axes that ellipses stand for."""
    return "".join(chr(0x100 + i) for i in range(count))[::-1]


def _extents(terms: Sequence[str], shapes: Sequence[tuple[int, ...]],
             out: tuple[str, tuple[int, ...] | None]) -> dict[str, int] | None:
    """The extent of every letter; ``None`` if axes do not fit."""
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for c, n in zip(term, shape, strict=True):
            if own.setdefault(c, n) != n:
                return None
        for c, n in own.items():
            if extents.get(c, 1) != n and extents.get(c, 1) != 1 and n != 1:
                return None
            extents[c] = n if n != 1 else extents.get(c, 1)
    result, shape_of_result = out
    if shape_of_result is not None:
        if len(result) != len(shape_of_result):
            return None
        for c, n in zip(result, shape_of_result, strict=True):
            if extents[c] not in (1, n):
                return None
            extents[c] = n
    return extents
