"""Calls of einsum and einsum_path."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..calls import Argument, Call, Code
from ..draw import Building, Draw
from .products import CASTINGS, PRECISIONS, result_dtype

__all__ = ["MAKERS"]

_OPTIMIZE = ("True", "False", "'greedy'", "'optimal'", "'auto'", "('greedy', 1000)",
             "['einsum_path', (0, 1)]")
_LETTERS = "ijklmnABz"


def _einsum(draw: Draw) -> Call:
    b = Building(draw)
    count = draw.weighted({1: 2, 2: 6, 3: 1.5, 4: 0.5, 5: 0.2})
    letters = draw.random.sample(_LETTERS, draw.integer(1, 5))
    extents = dict(zip(letters, draw.extents(len(letters)), strict=True))
    dotted = draw.extents(draw.integer(0, 2)) if draw.chance(0.15) else None
    if prod(max(n, 1) for n in extents.values()) * prod(dotted or ()) > draw.pools.work:
        return _einsum(draw)
    terms, operands = [], []
    for _ in range(count):
        term = [draw.choice(letters) for _ in range(draw.weighted({0: 0.2, 1: 2, 2: 5, 3: 2,
                                                                   4: 0.4}))]
        if not draw.chance(0.15):
            term = list(dict.fromkeys(term))
        shape = [1 if draw.chance(0.03) else extents[x] for x in term]
        text = "".join(term)
        if dotted is not None and draw.chance(0.8):
            at = draw.integer(0, len(term))
            lead = [1 if draw.chance(0.15) else n for n in dotted[draw.integer(0, len(dotted)):]]
            shape[at:at] = lead
            text = text[:at] + "..." + text[at:]
        terms.append(text)
        operands.append(b.operand(tuple(shape)))
    present = list(dict.fromkeys("".join(terms).replace(".", "")))
    draw.random.shuffle(present)
    kept = "".join(present[:draw.integer(0, min(len(present), 4))])
    output = None
    if draw.chance(0.75):
        output = kept
        if dotted is not None and (any("..." in term for term in terms) and draw.chance(0.95)):
            at = draw.integer(0, len(kept))
            output = kept[:at] + "..." + kept[at:]
    keywords = _keywords(b, operands, output, extents, dotted)
    return b.call("einsum", _spelled(b, terms, output, operands), keywords)


def _spelled(b: Building, terms: list[str], output: str | None,
             operands: list[Argument]) -> list[Argument]:
    """Subscripts as one string, or now and then as a list after each operand."""
    if b.draw.chance(0.1):
        arguments: list[Argument] = []
        for term, operand in zip(terms, operands, strict=True):
            arguments += [operand, Code(_sublist(term))]
        return arguments if output is None else [*arguments, Code(_sublist(output))]
    text = ",".join(terms) + ("" if output is None else f"->{output}")
    if b.draw.chance(0.05):
        text = text.replace(",", " , ").replace("->", " -> ")
    return [Code(repr(text)), *operands]


def _sublist(term: str) -> str:
    return "[" + ", ".join("..." if x == "." else str(_LETTERS.index(x))
                           for x in term.replace("...", ".")) + "]"


def _keywords(b: Building, operands: list[Argument], output: str | None, extents: dict[str, int],
              dotted: tuple[int, ...] | None) -> dict[str, Argument]:
    draw = b.draw
    keywords: dict[str, Argument] = {}
    if draw.chance(0.35):
        keywords["optimize"] = Code(draw.choice(_OPTIMIZE))
    if draw.chance(0.2) and output is not None and dotted is None:
        keywords["out"] = b.out(tuple(extents[x] for x in output), result_dtype(b, operands))
    if draw.chance(0.07):
        # NumPy adds in native order and says that it did not
        keywords["dtype"] = Code(repr(draw.dtype().replace(">", "<")))
    if draw.chance(0.08):
        keywords["casting"] = Code(repr(draw.choice(CASTINGS)))
    if draw.chance(0.08):
        keywords["order"] = Code(repr(draw.choice("KCFA")))
    if draw.chance(0.03):
        keywords["precision"] = Code(repr(draw.choice(PRECISIONS)))
    return keywords


def _einsum_path(draw: Draw) -> Call:
    call = _einsum(draw)
    kept = tuple(
        (key, value) for key, value in call.keywords if key == "optimize" and value.text != "'auto'"
    )  # type: ignore[union-attr]
    return Call("einsum_path", call.arguments, kept, call.views, call.memories)


def _matrices(draw: Draw) -> Call:
    """Plain products of matrices in einsum's notation, where repeated calls are replayed."""
    b = Building(draw)
    m, n, k = draw.extents(3)
    x1, x2 = b.array((m, k)), b.array((k, n))
    arguments: list[Argument] = [Code("'ij,jk->ik'"), x1, x2]
    keywords: dict[str, Argument] = {}
    if draw.chance(0.5):
        out = b.out((m, n), result_dtype(b, (x1, x2)))
        if draw.chance(0.1):
            arguments.append(out)
        else:
            keywords["out"] = out
    return b.call("einsum", arguments, keywords)


def _any(draw: Draw) -> Call:
    return _matrices(draw) if draw.chance(0.15) else _einsum(draw)


MAKERS: dict[str, Callable[[Draw], Call]] = {"einsum": _any, "einsum_path": _einsum_path}
