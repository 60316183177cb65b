"""Epilogues as typed expression graphs, from a traced function or by hand, and the code for them.

A graph is part of a kernel's source, so that no two graphs ever share a compiled kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from .._dtypes import DTYPES, dtype
from .builder import KernelBuilder
from .errors import CodegenError
from .intrinsics import INTRINSICS, called, result_of
from .values import Rendered, Term, Value, complex_of, rendered

LEAVES = ("acc", "c", "alpha", "beta", "operand", "scalar", "constant")
"""Nodes without arguments; an operand is laid out over C, a scalar is supplied by each call."""

FUNCTIONS: dict[str, int] = {"add": 2, "cast": 1,
                             **{row.name: len(row.parameters) for row in INTRINSICS.values()
                                if row.cuda == "values" and not row.of}}
"""Functions of a graph, under NumPy's names, and how many arguments they take."""

_LONGEST_TEXT = 400                     # a value that is used twice is spelled out twice


def epilogue_role(name: str) -> str:
    """The kernel parameter and argument role for a name in an epilogue."""
    return f"epi_{name}"


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One value of a graph."""

    op: str
    dtype: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: bool | int | float | complex | None = None
    digest: bytes = field(init=False)
    depth: int = field(init=False)
    _text: str = field(init=False)

    def __post_init__(self) -> None:
        if self.op not in LEAVES and len(self.args) != FUNCTIONS.get(self.op):
            raise CodegenError(
                f"epilogues have no function {self.op!r} with {len(self.args)} arguments"
            )
        kind = dtype(self.dtype)
        if self.op not in LEAVES and self.op != "cast":
            types = tuple(a.dtype for a in self.args)
            if any(dtype(name).is_stored for name in types):
                stored = " and ".join(d.name for d in DTYPES.values() if d.is_stored and d.package)
                raise CodegenError(
                    f"{self.op} of {' and '.join(types)}: cast {stored} to a wider type first"
                )
            if result_of(self.op, types) != kind:
                raise CodegenError(
                    f"{self.op} of {' and '.join(types)} is not of type {self.dtype}"
                )
        # What would be found recursively is found here, once: a value may be shared, and a chain of
        # them long.
        parts = repr((self.op, self.dtype, self.name,
                      self.value)).encode(), *(a.digest for a in self.args)
        object.__setattr__(self, "digest", hashlib.sha256(b"\0".join(parts)).digest())
        object.__setattr__(self, "depth", 1 + max((a.depth for a in self.args), default=0))
        object.__setattr__(self, "_text", self._spelled())

    def __eq__(self, other: object) -> bool:            # 0.0 is not -0.0 here, and NaN is NaN
        return isinstance(other, Node) and (self is other or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def _spelled(self) -> str:
        if self.op == "constant":
            return str(self.value)
        if self.op in LEAVES:
            return self.name or self.op
        name = self.dtype if self.op == "cast" else self.op
        text = f"{name}({', '.join(a._text for a in self.args)})"
        return text if len(text) <= _LONGEST_TEXT else f"{name}(...)"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<{self}: {self.dtype}>"


@dataclass(frozen=True)
class EpilogueGraph:
    """A function of the sums that the kernel applies to every element of C."""

    name: str
    result: Node
    outputs: tuple[tuple[str, Node], ...] = ()

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every value once, arguments first."""
        seen: dict[Node, None] = {}
        waiting = [node for _name, node in reversed(self.outputs)] + [self.result]
        while waiting:
            missing = [a for a in reversed(waiting[-1].args) if a not in seen]
            if missing:
                waiting += missing
            else:
                seen[waiting.pop()] = None
        return tuple(seen)

    def leaves(self, op: str) -> tuple[Node, ...]:
        """The leaves of one kind, in order of first use."""
        return tuple(node for node in self.nodes if node.op == op)

    def substituted(self, leaf: Callable[[Node], Node]) -> EpilogueGraph:
        """The graph with every leaf replaced; a cast to the type that a value has already is left
        out."""
        new: dict[Node, Node] = {}
        for node in self.nodes:
            args = tuple(new[a] for a in node.args)
            if node.op in LEAVES:
                new[node] = leaf(node)
            elif node.op == "cast" and args[0].dtype == node.dtype:
                new[node] = args[0]
            else:
                new[node] = node if args == node.args else replace(node, args=args)
        return replace(self, result=new[self.result],
                       outputs=tuple((name, new[node]) for name, node in self.outputs))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as a list of nodes, however deep the graph is."""
        return _from_rows, (self.name, *self._rows())

    def _rows(self) -> tuple[list[tuple], int, list[tuple[str, int]]]:
        """A row for each node, whose arguments are numbers of earlier ones; numbers of results."""
        numbers = {node: i for i, node in enumerate(self.nodes)}
        rows = [(n.op, n.dtype, tuple(numbers[a] for a in n.args), n.name, n.value)
                for n in self.nodes]
        return rows, numbers[self.result], [(name, numbers[node]) for name, node in self.outputs]

    @cached_property
    def digest(self) -> str:
        """A short hash of everything that the graph computes, for names of kernels."""
        rows, result, outputs = self._rows()
        lines = [f"{op} {kind} {name} {value!r} {[*args]}" for op, kind, args, name, value in rows]
        lines += [f"{result}", *(f"{name} {number}" for name, number in outputs)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _from_rows(name: str, rows: list[tuple], result: int,
               outputs: list[tuple[str, int]]) -> EpilogueGraph:
    """The graph of nodes whose arguments are numbers of earlier ones."""
    nodes: list[Node] = []
    for op, kind, args, leaf, value in rows:
        nodes.append(Node(op, kind, tuple(nodes[i] for i in args), leaf, value))
    return EpilogueGraph(name, nodes[result], tuple((output, nodes[i]) for output, i in outputs))


def literal(value: bool | int | float | complex, name: str) -> Term:
    """A number as a value of an element type, rounded to it once."""
    kind = dtype(name)
    if kind.is_complex:
        real, imag = (literal(x, kind.part.name)
                      for x in (complex(value).real, complex(value).imag))
        return complex_of(name, real, imag)
    if kind.kind == "f" and not kind.is_stored:
        x = float(value)                # type: ignore[arg-type]
        if x != x or x in (float("inf"), float("-inf")):
            return Term(called("not_a_number" if x != x else "infinity", (name,),
                               (-1 if x < 0 else 1,)))
        return Term(Rendered(f"static_cast<{kind.ctype}>({x!r})", kind))
    if kind.kind == "b":
        return Term(rendered(bool(value)))
    whole = int(value)                  # type: ignore[arg-type]
    suffix = "ull" if whole >= 2**63 else "ll"
    text = "(-9223372036854775807ll - 1)" if whole == -2**63 else f"{whole}{suffix}"
    return Term(Rendered(f"static_cast<{kind.ctype}>({text})", kind))


def emit(k: KernelBuilder, graph: EpilogueGraph, leaf: Callable[[Node], Value]) -> Iterator[Value]:
    """Write the values of a graph as named constants, and return the result and every output in
    order."""
    names: dict[Node, Value] = {}
    for node in graph.nodes:
        if node.op == "constant":
            names[node] = literal(node.value, node.dtype)       # type: ignore[arg-type]
            continue
        arguments = [names[a] for a in node.args]
        if node.op in LEAVES:
            value = leaf(node)
        else:
            value = k.convert(arguments[0], node.dtype) if node.op == "cast" else k.call(node.op, *arguments)
        names[node] = k.declare(f"e{len(names)}", node.dtype, value, const=True)
    return iter([names[graph.result], *(names[node] for _name, node in graph.outputs)])
