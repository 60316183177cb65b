"""The plans of several hundred products, copies, reductions and contractions on four cards.

  # which choices of a quarter of the problems, those of the test, are not the committed ones
  python -m tests.gates.choices
  # of all problems
  python -m tests.gates.choices --all
  # write the files again, of all problems: their diff shows which choices move
  python -m tests.gates.choices --update

A file of a card has a line for each problem: the family, slices of the sum if there are some,
bytes of workspace, and for each launch the kernel, its blocks and a hash of the kernel's body and
all arguments. An H200 has a second file, with a limit of 16 MiB for workspaces.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from zlib import crc32

from conformance.bench.samples import large_products, random_permutations, random_products
from cuteblas.planning.plan import Launch, Plan

from .kernels import ROWS
from .problems import planned

FOLDER = Path(__file__).parent / "data" / "choices"
CARDS = ("h200", "h200-16mib", "h100", "a100", "t4")
PART = 4  # one problem of so many is in the test
_SAME, _SHOWN = "with the same choice, but another text or other arguments", 5
_SEVERAL = 8  # launches
_ITEMS = {"int8": 1, "float16": 2, "float32": 4, "float64": 8, "complex128": 16}
_BENCH = ("float32", "float64", "complex64", "complex128", "float16")
_MORE = (
    "",
    "",
    "",
    "",
    "",
    "pad1",
    "pad3",
    "pad8",
    "align4",
    "beta=one",
    "alpha=value beta=value",
    "step2",
    "bias",
    "bias kept",
    "by=ieee",
    "alpha=device beta=device",
)
_NAMED = (
    "float32 1000x900x800 NTN by=tf32",
    "float32 300x200x100 NNN by=fp16x3",
    "float32 2048x2048x2048 TNN by=bf16x6",
    "complex64 500x500x500 NNN by=fp16x3",
    "float64 500x500x500 NNN by=modular",
    "complex128 300x700x2000 TTN by=modular",
    "float64 4096x4096x4096 NNN by=ieee",
    "float32 4096x4096x4096 NNN by=ieee",
    "float16 4096x4096x4096 NNN by=ieee",
    "float32 40000x20x300 NNN by=tf32",
    "float32 6000x7000x4 NNN",
    "complex64 4000x4000x2 NNN",
    "int8 2000x2000x2 NNT",
    "float32 20000x3x3x3 NNN",
)


def drawn() -> tuple[str, ...]:
    """All problems: those of bench, those whose kernels are kept, others by name and at random."""
    bench = [
        f"{dtype} {n}x{n}x{n} {orders}N"
        for n, dtype, orders in product((1024, 4096), _BENCH, ("NN", "NT", "TN", "TT"))
    ]
    bench += [
        f"{item}B {shape}:1,0"
        for item, shape in product((1, 2, 4, 8, 16), ("8192x8192", "8191x8193"))
    ]
    bench += [
        f"{dtype} {n}x{n}x{n} TNN triangle=both" for dtype, n in product(_BENCH, (1024, 4096))
    ]
    kept = [row.name for row in ROWS if row.family != "variant"]
    rng = Random(39)
    products = [
        re.sub(r" by (\w+)", r" by=\1", sample.name)
        for sample in (*random_products(150, 39), *large_products(30, 39))
    ]
    some = [
        f"{name} {rng.choice(_MORE)}".strip() if "by=" not in name else name for name in products
    ]
    copies = [
        " ".join(
            (
                f"{_ITEMS[dtype]}B {'x'.join(map(str, p.extents))}:{','.join(map(str, p.axes))}",
                *([f"pad{p.beyond}"] if p.beyond else ()),
                *([f"reversed{p.backwards}"] if p.backwards is not None else ()),
                *rng.choice(((), (), (), ("align4",), ("gap1",))),
            )
        )
        for dtype, p in random_permutations(70, 39, _ITEMS)
    ]
    return tuple(dict.fromkeys((*bench, *kept, *_NAMED, *some, *copies)))


def names() -> tuple[str, ...]:
    """The problems of the committed files, which no other machine draws otherwise."""
    return tuple(committed(CARDS[0]))


def part() -> tuple[str, ...]:
    """The problems of the test: of every family and precision, others by a hash of the name."""
    return tuple(name for name in names() if name in _NAMED or crc32(name.encode()) % PART == 0)


def line(plan: Plan) -> str:
    """What was chosen, in a line."""
    slices = getattr(plan.config, "slices", 1)
    split = f", {slices} slices" if not isinstance(slices, bool) and slices != 1 else ""
    workspace = f", {plan.workspace_bytes} bytes" if plan.workspace_bytes else ""
    launches = (
        _together(plan.launches)
        if len(plan.launches) > _SEVERAL
        else map(_launched, plan.launches)
    )
    return f"{plan.family}{split}{workspace}: {'; '.join(launches) or plan.reason}"


def _launched(launch: Launch) -> str:
    grid = "x".join(map(str, launch.grid)).removesuffix("x1").removesuffix("x1")
    return f"{launch.kernel.name} {grid} {_digest(launch)}"


def _together(launches: Sequence[Launch]) -> Iterator[str]:
    """Those of each kernel, of a product in blocks."""
    for name in dict.fromkeys(launch.kernel.name for launch in launches):
        own = [launch for launch in launches if launch.kernel.name == name]
        yield f"{len(own)} of {name} {sum(prod(launch.grid) for launch in own)} {_digest(*own)}"


def _digest(*launches: Launch) -> str:
    texts = (f"{launch.kernel.body}\n{launch.grid}\n{launch.arguments}" for launch in launches)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def choices(card: str, problems: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Problems and what is planned for them on a card, or why nothing is."""
    for name in problems:
        try:
            yield name, line(planned(name, card))
        except ValueError as refused:
            if not str(refused).startswith("precision="):
                raise
            yield name, f"refused: {refused}"


def committed(card: str) -> dict[str, str]:
    """The lines of a committed file."""
    return json.loads((FOLDER / f"{card}.json").read_text(encoding="utf-8"))


def without_hashes(text: str) -> str:
    """A line without what says that a kernel's text or arguments are others."""
    return re.sub(r" [0-9a-f]{8}(?=;|$)", "", text)


def moves(card: str, problems: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Problems whose line is not the committed one, with both lines."""
    then = committed(card)
    for name, now in choices(card, problems):
        if then.get(name) != now:
            yield name, then.get(name, "not in the file"), now


def main(arguments: Sequence[str] | None = None) -> int:
    """Say which choices moved; 1 if any did."""
    parser = ArgumentParser(
        prog="python -m tests.gates.choices", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--all", action="store_true", help="all problems, not a quarter of them")
    parser.add_argument("--update", action="store_true", help="write the files again")
    parser.add_argument(
        "--cards", nargs="+", choices=CARDS, default=CARDS, help="cards (default: all)"
    )
    options = parser.parse_args(arguments)
    if options.update:
        for card in CARDS:
            text = json.dumps(dict(choices(card, drawn())), indent=0)
            (FOLDER / f"{card}.json").write_text(f"{text}\n", encoding="utf-8")
        return 0
    problems, counts = names() if options.all else part(), Counter[str]()
    for card in options.cards:
        counts["problems"] += len(problems)
        for name, then, now in moves(card, problems):
            if without_hashes(then) == without_hashes(now):
                counts[_SAME] += 1
                if counts[_SAME] <= _SHOWN:
                    print(f"{card}: {name}: another text or other arguments\n  {now}")
            else:
                counts["choices moved"] += 1
                print(f"{card}: {name}\n  - {without_hashes(then)}\n  + {without_hashes(now)}")
    print(*(f"{count} {what}" for what, count in counts.items()), sep=", ")
    return 1 if counts.total() > counts["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
