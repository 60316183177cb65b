"""The table of routines on arrays, from which types, operands and docstrings follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .types import ROUTINES, Types

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Routine(NamedTuple):
    """A row of the table: the extents of each operand, a letter for each axis, of which the last
    is updated; ``transpose`` "H" conjugates too."""

    name: str
    types: Types
    operands: Mapping[str, str]
    read: tuple[str, ...]
    transpose: str

    @property
    def operation(self) -> str:
        """The name without the letter of its types."""
        return self.name[1:]

_OPERATIONS = (
    ("gemm", "sdczhbi", {"a": "mk", "b": "kn", "c": "mn"}),
    ("gemv", "sdcz", {"a": "mn", "x": "n", "y": "m"}),
    ("ger", "sd", {"x": "m", "y": "n", "a": "mn"}),
    ("geru", "cz", {"x": "m", "y": "n", "a": "mn"}),
    ("gerc", "cz", {"x": "m", "y": "n", "a": "mn"}),
    ("syrk", "sdcz", {"a": "nk", "c": "nn"}),
    ("herk", "cz", {"a": "nk", "c": "nn"}),
    ("syr2k", "sdcz", {"a": "nk", "b": "nk", "c": "nn"}),
    ("her2k", "cz", {"a": "nk", "b": "nk", "c": "nn"}),
)

ROWS = {letter + operation: Routine(letter + operation, ROUTINES[f"{letter}gemm"], operands,
                                    (*operands,)[:-1],
                                    "H" if operation in ("gerc", "herk", "her2k") else "T")
        for operation, letters, operands in _OPERATIONS for letter in letters}


def rows(*operations: str) -> list[Routine]:
    return [row for row in ROWS.values() if row.operation in operations]


def with_signature(protocol: type, call: Callable[[dict[str, Any]], Any]) -> Any:
    """A function with the parameters of a protocol, which passes on its arguments by name."""
    _own, *parameters = signature(protocol.__call__).parameters.values()
    listed = Signature([p.replace(annotation=p.empty) for p in parameters])
    return eval(f"lambda {str(listed)[1:-1]}: call(locals())",
                {"call": call, "__name__": protocol.__module__})


def published(function: _Function, row: Routine, documentation: str, answer: Any = None,
              **words: str) -> _Function:
    """Name and document a function as a routine; ``answer`` is its example's result."""
    shown = "" if answer is None else f"\n{np.array(answer, row.types.output)!r}".replace("\n", "\n    ")
    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = documentation.format(name=row.name, operands=row.types.operands,
                                            output=row.types.output, answer=shown,
                                            transpose=row.transpose, **words)
    return function
