"""The text of some 200 kernels of all families: which ones a change moves, and how.

  # the kernels whose text is not that of the committed file, with a diff of it
  python -m tests.gates.kernels
  # also registers, spills and instructions before and after
  python -m tests.gates.kernels --compile
  # write the file again
  python -m tests.gates.kernels --update

The committed file has a hash of each kernel's text. The text before a change comes from the
package of the last commit that wrote the file, or of --against REVISION.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cuteblas.cli.kernels import example
from cuteblas.codegen.architectures import target_architecture
from cuteblas.codegen.kernel import GeneratedKernel
from cuteblas.planning.copy.dispatch import copy_alternatives
from cuteblas.planning.gemm.dispatch import gemm_alternatives
from cuteblas.planning.plan import Alternative, Plan
from cuteblas.planning.problem import CopyProblem, GemmProblem
from cuteblas.planning.variants import variants

from .problems import CARDS, planned, problem_named

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
FILE = DATA / "kernels.json"
_SHOWN_LINES = 40  # of a diff


class Row(NamedTuple):
    """A problem on a card: two tiles of a product's family are kept, three kernels of a copy."""

    family: str
    card: str
    name: str


ROWS = tuple(
    Row(*line.split(" ", 2))
    for line in (DATA / "problems.txt").read_text(encoding="utf-8").splitlines()
)
"""The lines of data/problems.txt; the family may be a dash, or ``variant`` before its name."""


def _spread(alternatives: Sequence[Alternative], count: int) -> Iterator[Alternative]:
    """Plans of different tiles, by name: neither estimates nor an order decide."""
    tiles: dict[str, Alternative] = {}
    for each in sorted(alternatives, key=str):
        tiles.setdefault(str(each).partition(", ")[0], each)
    chosen = list(tiles.values())
    return (chosen[i * len(chosen) // count] for i in range(min(count, len(chosen))))


def plans(family: str, card: str, name: str) -> Iterator[Plan]:
    """The plans whose kernels are kept, of a problem on a card."""
    if family == "variant":
        yield example(variants()[name])
        return
    problem, device = problem_named(name), CARDS[card]
    if family != "-" and isinstance(problem, GemmProblem):
        found = gemm_alternatives(replace(problem, variant=family), device)
        yield from (each.plan() for each in _spread(list(found), 2))
    elif isinstance(problem, CopyProblem) and not problem.in_place:
        yield from (each.plan() for each in _spread(copy_alternatives(problem, device), 3))
    else:
        yield planned(name, card)


@dataclass(frozen=True)
class Text:
    """A kernel's text and what it is launched with.

    ``about`` is the problem that it computes; ``place`` the architecture that it is compiled for.
    """

    name: str
    source: str
    place: str
    assembler: tuple[str, ...]
    launched: str
    about: str

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        return hashlib.sha256(
            "\n".join((self.source, *self.assembler, self.launched)).encode()
        ).hexdigest()[:16]


def texts(rows: Sequence[Row] = ROWS) -> dict[str, Text]:
    """All kernels by name; a name that two texts have is followed by a number."""
    found: dict[str, Text] = {}
    for row in rows:
        for launch in (launch for plan in plans(*row) for launch in plan.launches):
            text = _text(launch.kernel, row)
            key, number = text.name, 2
            while key in found and found[key].digest != text.digest:
                key, number = f"{text.name} ({number})", number + 1
            found.setdefault(key, text)
    return found


def _text(kernel: GeneratedKernel, row: Row) -> Text:
    launched = (
        f"{kernel.threads} threads, {kernel.shared_bytes} bytes, {kernel.min_blocks} blocks, "
        f"cluster {kernel.cluster}, "
        f"{kernel.arch}"
    )
    return Text(
        kernel.name,
        kernel.cuda_source,
        target_architecture(kernel.arch, CARDS[row.card].arch),
        kernel.assembler,
        launched,
        f"{row.card}: {row.name}",
    )


def committed() -> dict[str, str]:
    """The hashes of the committed file by kernel."""
    return {
        name: line.partition(" ")[0]
        for name, line in json.loads(FILE.read_text(encoding="utf-8")).items()
    }


def changes(now: dict[str, Text], then: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    """The kernels whose text changed, those that are new, and those that are made no more."""
    return (
        [name for name, text in now.items() if then.get(name, text.digest) != text.digest],
        [name for name in now if name not in then],
        [name for name in then if name not in now],
    )


# -- before a change -----------------------------------------------------------------------------
def revision() -> str:
    """The last commit that wrote the file."""
    return _git("log", "-1", "--format=%H", "--", str(FILE)).strip()


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True
    ).stdout


def texts_of(commit: str) -> dict[str, Text]:
    """All kernels as the package of a commit writes them."""
    with TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "cuteblas", "tests/__init__.py", "tests/gates", "tests/planning"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        file = Path(folder) / "texts"
        program = (
            "import pickle; from tests.gates.kernels import texts; "
            f"pickle.dump(texts(), open({str(file)!r}, 'wb'))"
        )
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            check=True,
        )
        return pickle.loads(file.read_bytes())


# -- resources -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Resources:
    """What the assembler makes of a kernel."""

    registers: int
    stack: int
    spilled: int
    instructions: int

    def __str__(self) -> str:
        return (
            f"{self.registers} registers, {self.stack} bytes of stack, "
            f"{self.spilled} bytes spilled, "
            f"{self.instructions} instructions"
        )


def resources(text: Text) -> Resources:
    """Compile a kernel as the runtime does, with ptxas -v, and count its instructions."""
    from cuda import core

    from cuteblas.runtime.compiler import _OPTIONS

    log = StringIO()
    options = core.ProgramOptions(
        name=text.name,
        arch=text.place,
        ptxas_options=["-v", *text.assembler],
        no_cache=True,
        **_OPTIONS,
    )
    cubin = bytes(core.Program(text.source, "c++", options).compile("cubin", logs=log).code)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        code = subprocess.run(
            [_tool("nvdisasm"), "-c", str(file)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        ).stdout
    said = log.getvalue()

    def number(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, said)))

    return Resources(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill stores"),
        len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/", code, re.M)),
    )


def _tool(name: str) -> str:
    """A tool of a CUDA toolkit, or the one that comes as a Python package."""
    packages = [f"{place}/nvidia/cu13/bin" for place in sys.path]
    if (found := shutil.which(name) or shutil.which(name, path=os.pathsep.join(packages))) is None:
        raise SystemExit(
            f"--compile needs {name}, which is not installed (pip install nvidia-cuda-{name})"
        )
    return found


# -- the command ---------------------------------------------------------------------------------
def report(
    now: dict[str, Text], before: dict[str, Text], names: Sequence[str], compiles: bool = False
) -> Iterator[str]:
    """The kernels that changed, those with the same difference together."""
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    shown: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        lines = [*unified_diff(_lines(before[name]), _lines(now[name]), n=1, lineterm="")][2:]
        key = tuple(line for line in lines if line[0] in "+-")
        alike[key].append(name)
        shown.setdefault(key, [line for line in lines if not line.startswith("@@")])
    for key, own in alike.items():
        yield f"\n{len(own)} changed alike:" if len(own) > 1 else "\nchanged:"
        for name in own:
            yield f"  {name}   ({now[name].about})"
            if compiles:
                yield from (
                    f"    {when}  {resources(text)}"
                    for when, text in (("before", before[name]), ("now   ", now[name]))
                )
        lines = shown[key]
        yield from (f"    {line}" for line in lines[:_SHOWN_LINES])
        if len(lines) > _SHOWN_LINES:
            yield f"    ... {len(lines) - _SHOWN_LINES} lines more"


def _lines(text: Text) -> list[str]:
    return [
        *text.source.splitlines(),
        f"launched with {text.launched}",
        f"assembled with {' '.join(text.assembler) or 'nothing'}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Say what changed; 1 if anything did and the file is not written."""
    parser = ArgumentParser(
        prog="python -m tests.gates.kernels", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--update", action="store_true", help="write the committed file again")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="registers, spills and instructions before and after",
    )
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="compare with a commit's texts, not the file's hashes",
    )
    options = parser.parse_args(arguments)
    now = texts()
    before = texts_of(options.against) if options.against else None
    then = (
        {name: text.digest for name, text in before.items()}
        if before is not None
        else committed()
        if FILE.exists()
        else {}
    )
    changed, new, gone = changes(now, then)
    if changed:
        before = texts_of(revision()) if before is None else before
        if any(before[name].digest != then[name] for name in changed if name in before):
            print("the file is of another package than the texts: name its commit by --against")
        for line in report(
            now, before, [name for name in changed if name in before], options.compile
        ):
            print(line)
    for title, own in (("new", new), ("made no more", gone)):
        print(*(f"{title}: {name}" for name in own), sep="\n", end="\n" if own else "")
    print(f"{len(now)} kernels: {len(changed)} changed, {len(new)} new, {len(gone)} made no more")
    if options.update:
        lines = {
            name: f"{text.digest} {text.place} {text.about}" for name, text in sorted(now.items())
        }
        FILE.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")
        print(f"wrote {FILE.relative_to(ROOT)}")
        return 0
    return 1 if changed or new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
