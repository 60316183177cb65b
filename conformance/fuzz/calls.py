"""Calls as data: what is called on which memory, so that a call can be made again, changed in one
aspect, and printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["Argument", "Call", "Code", "Items", "Memory", "Operand", "Program", "View", "from_json",
           "operands_in", "renamed", "to_json"]

Holder = Literal["plain", "ours", "host"]


@dataclass(frozen=True)
class Memory:
    """An allocation with its elements.

    Attributes
    ----------
    dtype : str
        Of the elements that fill it; views may have another.
    count : int
        Number of elements.
    fill : str
        A recipe of ``values.FILLS``.
    seed : int
        Of the recipe.
    values : tuple, optional
        The elements themselves instead of a recipe: numbers, or what ``complex`` and ``float``
        read.
    """

    dtype: str
    count: int
    fill: str = "small"
    seed: int = 0
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class View:
    """An array in a memory.

    Attributes
    ----------
    memory : int
        Which one.
    dtype : str
    shape, strides : tuple of int
        Strides in bytes.
    offset : int
        Of the first element, in bytes.
    writeable : bool
    holder : {"plain", "ours", "host"}
        A NumPy or CuPy array as the backend has it, a ``cuteblas.ndarray`` around one, or a NumPy
        array on every backend.
    """

    memory: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    writeable: bool = True
    holder: Holder = "plain"


@dataclass(frozen=True)
class Operand:
    """The argument is a view."""

    view: int


@dataclass(frozen=True)
class Code:
    """The argument is a Python expression over ``np``."""

    text: str


@dataclass(frozen=True)
class Items:
    """The argument is a list or a tuple of arguments."""

    kind: Literal["list", "tuple"]
    items: tuple[Argument, ...]


Argument = Operand | Code | Items


@dataclass(frozen=True)
class Call:
    """One call of a function by its name in ``registry.FUNCTIONS``."""

    function: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    views: tuple[View, ...] = ()
    memories: tuple[Memory, ...] = ()

    @property
    def base(self) -> str:
        """The function's name in ``cuteblas``; under NumPy's name it is called on arrays of
        ours."""
        return self.function.removeprefix("np.")

    def keyword(self, name: str) -> Argument | None:
        """The argument of that name, if it is given."""
        return dict(self.keywords).get(name)

    def without(self, *names: str) -> Call:
        """The call without some keyword arguments."""
        return replace(self, keywords=tuple((key, value) for key, value in self.keywords
                                            if key not in names))

    def used(self) -> list[int]:
        """Indices of the views that some argument names, in order."""
        return sorted({operand.view for argument in (*self.arguments,
                                                     *(value for _, value in self.keywords))
                       for operand in operands_in(argument)})


@dataclass(frozen=True)
class Program:
    """Calls that are made one after the other in one process; each has memory of its own.

    Attributes
    ----------
    calls : tuple of Call
    seed : int
        What it was made from, for messages.
    """

    calls: tuple[Call, ...]
    seed: int = field(default=0, compare=False)


def operands_in(argument: Argument) -> Iterator[Operand]:
    """The views in an argument."""
    if isinstance(argument, Operand):
        yield argument
    elif isinstance(argument, Items):
        for item in argument.items:
            yield from operands_in(item)


def renamed(argument: Argument, names: Mapping[int, int]) -> Argument:
    """The argument with other views in the place of those that have a new name."""
    if isinstance(argument, Operand):
        return Operand(names.get(argument.view, argument.view))
    if isinstance(argument, Items):
        return replace(argument, items=tuple(renamed(item, names) for item in argument.items))
    return argument


def to_json(program: Program) -> str:
    """A program as one line."""
    return json.dumps({"seed": program.seed, "calls": [{"function": call.function,
                                                        "arguments": [_plain(x)
                                                                      for x in call.arguments],
                                                        "keywords": [[key, _plain(x)]
                                                                     for key, x in call.keywords],
                                                        "views": [vars(view)
                                                                  for view in call.views],
                                                        "memories": [vars(memory)
                                                                     for memory in call.memories]}
                                                       for call in program.calls]})


def from_json(text: str) -> Program:
    """What :func:`to_json` wrote."""
    read = json.loads(text)
    calls = []
    for call in read["calls"]:
        views = tuple(View(**{**view, "shape": tuple(view["shape"]),
                              "strides": tuple(view["strides"])}) for view in call["views"])
        memories = tuple(Memory(**{**memory, "values": None if memory["values"] is None
                                   else tuple(memory["values"])}) for memory in call["memories"])
        calls.append(Call(call["function"], tuple(map(_argument, call["arguments"])),
                          tuple((key, _argument(x)) for key, x in call["keywords"]), views,
                          memories))
    return Program(tuple(calls), read["seed"])


def _plain(argument: Argument) -> Any:
    if isinstance(argument, Operand):
        return {"view": argument.view}
    if isinstance(argument, Code):
        return {"code": argument.text}
    return {argument.kind: [_plain(item) for item in argument.items]}


def _argument(plain: dict[str, Any]) -> Argument:
    (kind, value), = plain.items()
    if kind == "view":
        return Operand(value)
    if kind == "code":
        return Code(value)
    return Items("tuple" if kind == "tuple" else "list", tuple(map(_argument, value)))
