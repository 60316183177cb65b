"""The exception of the layout algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LONGEST = 160                                           # characters of an operand in a message


class LayoutError(ValueError):
    """The layout algebra has no result, or cannot prove that it is right: the operation, its
    operands and the reason.

    Attributes
    ----------
    op : str
        The operation, as the caller named it.
    why : str
        One sentence: which mode or coordinate, and what is wrong with it.
    operands : tuple
        The layouts, tuples or coordinates that were given.

    Examples
    --------
    >>> composition(Layout((4, 3), (1, 5)), Layout(6, 3))
    Traceback (most recent call last):
    cuteblas.layout.errors.LayoutError: composition((4,3):(1,5), 6:3): the tiler reaches the coordinate 15, and the layout ...
    """

    def __init__(self, op: str, why: str, *operands: object):
        super().__init__(op, why, *operands)
        self.op = op
        self.why = why
        self.operands = operands

    def __str__(self) -> str:
        operands = f"({', '.join(_brief(spell, x) for x in self.operands)})" if self.operands else ""
        return f"{self.op}{operands}: {self.why}"


def described(x: object) -> str:
    """The type and the text of an argument of the wrong type."""
    return f"{type(x).__name__} {_brief(repr, x)}"


def _brief(spelled: Callable[[Any], str], x: object) -> str:
    """The text of an operand, however large or deep it is."""
    try:
        text = spelled(x).replace("\n", " ")
    # an integer beyond what Python prints, a tuple beyond its stack
    except (ValueError, RecursionError):
        return "..."
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST // 2]} ... {text[-_LONGEST // 2:]}"


def spell(x: object) -> str:
    """CuTe's text of an IntTuple: ``((2,2),6)``; ``None`` prints as ``_``."""
    if isinstance(x, tuple):
        return f"({','.join(map(spell, x))})"
    return "_" if x is None else str(x)
