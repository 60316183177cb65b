"""The one exception of the layout algebra."""

from __future__ import annotations

__all__ = ["LayoutError"]


class LayoutError(ValueError):
    """An operation that has no (or no provably right) result, with its operands and the reason.

    Attributes
    ----------
    op : str
        The operation, as the caller named it.
    why : str
        One sentence: which mode or coordinate, and what is wrong with it.
    operands : tuple
        The layouts, tuples or coordinates that were given.
    """

    def __init__(self, op: str, why: str, *operands: object):
        super().__init__(op, why, *operands)
        self.op = op
        self.why = why
        self.operands = operands

    def __str__(self) -> str:
        return f"{self.op}({', '.join(_spell(x) for x in self.operands)}): {self.why}"


def _spell(x: object) -> str:
    if isinstance(x, tuple):
        return f"({','.join(_spell(i) for i in x)})"
    return "_" if x is None else str(x)
