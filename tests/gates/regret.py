"""The regret of planning's choices, on committed times.

  # by card, kind and family, and the worst, of a part of the problems, those of the test
  python -m tests.gates.regret
  # of all problems
  python -m tests.gates.regret --all
  python -m tests.gates.regret --card h200 --kind products --worst 30
  # the choices that nobody has timed, those that promise most first
  python -m tests.gates.regret --all --unmeasured
  # find the rows of kernels that have changed since they were measured again; minutes
  python -m tests.gates.regret --stale

The *regret* of a problem is the time of planning's choice over the least time of the problem,
minus 1: 0 where the fastest of the plans that were measured is chosen. Both are committed times
of the same file (docs/performance/data/calibrate), each the median of five. The least time may be
that of a plan that planning no longer offers. The choice is that among all alternatives, by the
numbers that planning has for the card. Mean and 95th percentile are those of the problems whose
choice was measured.

A choice that was never measured has no regret and counts as *unmeasured*. Rows of kernels that
have changed since they were measured are *stale*: they count neither as choices nor as least
times, and problems that have no other rows are left out. A choice whose row is stale has no
regret either.

A row is stale if its gemm_simt or gemm_mma kernel has an operand or C by covering words, or C by
rows: an access ``w`` in the kernel's name; or if it is of boxes that are read by covering words.
Those kernels are younger than the times. Others
changed less since (16-bit stores of gemm_mma, sums in chains, parts of gemm_batched), and count
as measured. data/stale.json names the rows by file; who measures a file again takes it out by
hand.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from cuteblas.cli.calibrate import alternatives_of, choice_of
from cuteblas.cli.problems import Sample, sample_named
from cuteblas.kernels.copy.rearrange import RearrangeConfig
from cuteblas.planning.copy.dispatch import CopyKernel
from cuteblas.planning.plan import Alternative
from cuteblas.planning.problem import CopyProblem, DeviceInfo

ROOT = Path(__file__).parents[2]
TIMES = ROOT / "docs" / "performance" / "data" / "calibrate"
STALE = Path(__file__).parent / "data" / "stale.json"
PART, SEED = 3, 246  # one product of so many is in the test, with nearly the regrets of all
_COVERING = re.compile(r"gemm_(?:simt|mma)_.*_(?:[a-z]\d+c?)*[a-z]w")
_WORST = 10


class Summary(NamedTuple):
    """Mean and 95th percentile of regrets, and the shares of unmeasured and of stale choices."""

    mean: float
    percentile95: float
    unmeasured: float
    stale: float


BOUNDS = {
    ("h200", "products"): Summary(0.026, 0.155, 0.04, 0.003),
    ("h200", "copies"): Summary(0.039, 0.187, 0.017, 0.023),
    ("h100", "products"): Summary(0.033, 0.195, 0.08, 0.065),
    ("h100", "copies"): Summary(0.027, 0.14, 0.019, 0.0),
}
"""What they may be at most, by card and kind, of all problems and of those of the test: what
planning had in November 2026, rounded up."""


class Case(NamedTuple):
    """A problem of a file: its times by plan, and the plans whose times are stale."""

    file: str
    card: str
    kind: str
    sample: Sample
    device: DeviceInfo
    seconds: Mapping[str, float]
    stale: Collection[str]


class Regret(NamedTuple):
    """Planning's choice for a case, its regret if measured, whether its row is stale, its
    estimate."""

    case: Case
    family: str
    choice: str
    regret: float | None
    stale: bool
    expected: float


def stale() -> dict[str, dict[str, list[str]]]:
    """The rows that are stale, by file and problem."""
    return json.loads(STALE.read_text(encoding="utf-8"))


def cases(*, every: bool = False) -> Iterator[Case]:
    """The problems of all files, or a part of them, that have rows which are not stale."""
    dropped = stale()
    for file in sorted(TIMES.glob("*.json")):
        data = _read(file)
        card, device = file.name.partition("-")[0], DeviceInfo(**data["device"])
        device = replace(device, costs=device.fitted)
        for name, times in data["seconds"].items():
            gone = dropped.get(file.name, {}).get(name, ())
            seconds = {row: taken for row, taken in times.items() if row not in gone}
            sample = sample_named(name)
            kind = "copies" if isinstance(sample.problem, CopyProblem) else "products"
            if seconds and (
                every or kind == "copies" or crc32(f"{SEED} {name}".encode()) % PART == 0
            ):
                yield Case(file.name, card, kind, sample, device, seconds, gone)


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def times_of(file: Path) -> dict[str, dict[str, float]]:
    """The times of a file by problem and plan."""
    return _read(file)["seconds"]


def regret(case: Case) -> Regret:
    """The regret of today's choice."""
    everything = alternatives_of(case.sample, case.device) if case.kind == "copies" else []
    choice = choice_of(case.sample, everything)(case.device)
    taken = case.seconds.get(str(choice))
    return Regret(
        case,
        choice.family,
        str(choice),
        None if taken is None else taken / min(case.seconds.values()) - 1,
        str(choice) in case.stale,
        choice.seconds(case.device),
    )


def summary(found: Sequence[Regret]) -> Summary:
    """What :data:`BOUNDS` bound."""
    known = [each.regret for each in found if each.regret is not None] or [0.0]
    old = sum(each.stale for each in found)
    unmeasured = sum(each.regret is None for each in found) - old
    return Summary(
        fmean(known), float(np.percentile(known, 95)), unmeasured / len(found), old / len(found)
    )


def groups(found: Iterable[Regret]) -> dict[tuple[str, str], list[Regret]]:
    """Regrets by card and kind."""
    by_group: dict[tuple[str, str], list[Regret]] = defaultdict(list)
    for each in found:
        by_group[each.case.card, each.case.kind].append(each)
    return dict(sorted(by_group.items(), reverse=True))


def above(found: Summary, bound: Summary) -> list[str]:
    """The figures above their bounds, in words."""
    return [
        f"{name} {value:.2%}, at most {most:.1%}"
        for name, value, most in zip(Summary._fields, found, bound, strict=True)
        if value > most
    ]


# -- stale rows ----------------------------------------------------------------------------------
def stale_rows(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The problems of a file that have stale rows, with these; planning takes minutes."""
    data = _read(file)
    device = DeviceInfo(**data["device"])
    for name, times in data["seconds"].items():
        sample = sample_named(name)
        plans = {str(each): each for each in alternatives_of(sample, device)}
        rows = [row for row in times if row in plans and _changed(plans[row])]
        if rows:
            yield name, rows


def _changed(each: Alternative) -> bool:
    """Whether the kernels of a plan are younger than times."""
    if isinstance(each, CopyKernel):
        return isinstance(each.config, RearrangeConfig) and each.config.source.covering
    return each.family in ("gemm_simt", "gemm_mma") and any(
        _COVERING.match(launch.kernel.name) for launch in each.plan().launches
    )


# -- the command ---------------------------------------------------------------------------------
def table(found: Sequence[Regret]) -> Iterator[str]:
    """Regrets by card, kind and family of the choice, beside their bounds."""
    yield f"{'regret':<26}{'problems':>9}{'mean':>8}{'95th':>8}{'unmeasured':>12}{'stale':>8}"

    def line(name: str, own: Sequence[Regret]) -> str:
        return f"{name:<26}{len(own):9}{_row(summary(own), 2)}"

    for key, own in groups(found).items():
        yield line(" ".join(key), own)
        yield f"{'  at most':<35}{_row(BOUNDS[key], 1)}"
        for family in sorted({each.family for each in own}):
            yield line(f"  {family}", [each for each in own if each.family == family])


def _row(s: Summary, digits: int) -> str:
    shares = f"{s.unmeasured:12.1%}{s.stale:8.1%}"
    return f"{s.mean:8.{digits}%}{s.percentile95:8.{digits}%}{shares}"


def worst(found: Sequence[Regret], count: int) -> Iterator[str]:
    """The choices with the largest regrets, and what would have been better."""
    for each in sorted(found, key=lambda each: each.regret or 0.0, reverse=True)[:count]:
        seconds = each.case.seconds
        best = min(seconds, key=seconds.__getitem__)
        yield (
            f"  {each.regret or 0.0:6.1%}  {each.case.file}: {each.case.sample.name}: "
            f"{each.choice}; better {best}, "
            f"{seconds[best] * 1e6:.4g} us"
        )


def unmeasured(found: Sequence[Regret]) -> Iterator[str]:
    """The choices without a time, or with a stale one, by the part that they promise to save."""
    unknown = [each for each in found if each.regret is None]
    for each in sorted(unknown, key=lambda each: each.expected / min(each.case.seconds.values())):
        seconds = each.case.seconds
        best = min(seconds, key=seconds.__getitem__)
        yield (
            f"  {1 - each.expected / seconds[best]:6.1%}  {each.case.file}: {each.case.sample.name}: "
            f"{each.choice}{' (stale)' * each.stale}, expected {each.expected * 1e6:.4g} us; "
            f"measured {best}, {seconds[best] * 1e6:.4g} us"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if anything is above its bound."""
    parser = ArgumentParser(
        prog="python -m tests.gates.regret", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--all", action="store_true", help="all problems, not a part of the products"
    )
    parser.add_argument(
        "--card", choices=sorted({card for card, _kind in BOUNDS}), help="of one card"
    )
    parser.add_argument(
        "--kind", choices=sorted({kind for _card, kind in BOUNDS}), help="products or copies alone"
    )
    parser.add_argument(
        "--worst", type=int, default=_WORST, metavar="COUNT", help="how many of the worst to list"
    )
    parser.add_argument(
        "--unmeasured", action="store_true", help="list the choices without a time"
    )
    parser.add_argument(
        "--stale", action="store_true", help="find the rows of data/stale.json again; minutes"
    )
    options = parser.parse_args(arguments)
    if options.stale:
        found = {name: dict(stale_rows(TIMES / name)) for name in stale()}
        STALE.write_text(_as_text(found), encoding="utf-8")
        return 0
    regrets = [
        regret(case)
        for case in cases(every=options.all)
        if options.card in (None, case.card) and options.kind in (None, case.kind)
    ]
    print(
        *table(regrets), f"\nthe worst of {len(regrets)}", *worst(regrets, options.worst), sep="\n"
    )
    if options.unmeasured:
        print("\nnot measured", *unmeasured(regrets), sep="\n")
    failed = [
        f"{' '.join(key)}: {each}"
        for key, own in groups(regrets).items()
        for each in above(summary(own), BOUNDS[key])
    ]
    print(*(f"above its bound: {each}" for each in failed), sep="\n", end="\n" if failed else "")
    return 1 if failed else 0


def _as_text(rows: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """JSON with a line for each problem."""
    files = (
        f"{json.dumps(file)}: {{\n"
        + ",\n".join(f" {json.dumps(name)}: {json.dumps(own)}" for name, own in problems.items())
        + "\n}"
        for file, problems in rows.items()
    )
    return "{\n" + ",\n".join(files) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
