"""Measure a GPU as python -m cuteblas calibrate does, and fit planners' numbers to files of it.

  # measure other random problems than those of the fit, and change nothing
  python -m conformance.bench calibrate --seed 1 --check
  # compile the kernels beforehand, without a GPU
  python -m conformance.bench calibrate --prepare
  # time the choices of these files that nobody has timed, and write the files again
  python -m conformance.bench calibrate --again h200-*.json --without stale.json
  # fit to files of --measurements again, without a GPU
  python -m conformance.bench calibrate --refit h200-seed0.json h200-large0.json --json h200.json

The command prints the regret of planning's choices: how much longer the chosen plan takes than the
fastest one that was measured.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from cuteblas import runtime
from cuteblas.cli.calibrate import (
    Card,
    Made,
    Summary,
    Workers,
    alternatives_of,
    choice_of,
    declare,
    ends,
    fitted,
    least_regret,
    measured,
    regret_of,
    save_costs,
    summary,
    timings,
    to_measure,
)
from cuteblas.cli.command import (
    CommandError,
    Parser,
    positive,
    print_about,
    refuse_unwritable,
)
from cuteblas.cli.machines import versions
from cuteblas.cli.problems import Sample, sample_named
from cuteblas.cli.terminal import wrapped
from cuteblas.planning.cost import CostError
from cuteblas.planning.cost.fit import Measured, Regret, fit, regrets
from cuteblas.planning.floors import duration
from cuteblas.planning.problem import DEVICES, H200, DeviceInfo, GemmProblem, device_named

from .samples import random_samples

__all__ = ["is_product", "prepare", "read"]

_SHOWN = 12                          # problems with the largest regret


def configure(parser: Parser) -> None:
    """Declare the options."""
    declare(parser)
    parser.add_argument("--seed", type=int, default=0,
                        help="seed of the random problems (default: %(default)s)")
    parser.add_argument("--products", type=int, default=300, metavar="COUNT",
                        help="random products (default: %(default)s)")
    parser.add_argument("--large", type=int, default=100, metavar="COUNT",
                        help="random products that fill a GPU (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=200, metavar="COUNT",
                        help="random permutations (default: %(default)s)")
    parser.add_argument("--measurements", type=Path, metavar="FILE",
                        help="write the time of every plan")
    parser.add_argument("--check", action="store_true",
                        help="measure and print the regret; fit and write nothing")
    parser.add_argument("--refit", type=Path, nargs="+", metavar="FILE",
                        help="fit to files of --measurements instead of measuring; needs no GPU")
    parser.add_argument(
        "--again",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="time choices of products that files of --measurements lack, and outdated rows, beside the best "
        "ones of before; write the files again"
    )
    parser.add_argument(
        "--without",
        type=Path,
        metavar="FILE",
        help="with --refit or --again, a JSON file of outdated rows by file of measurements and problem"
    )
    parser.add_argument("--tries", type=positive, default=3000,
                        help="with --refit, random steps of the search (default: %(default)s)")
    parser.add_argument("--prepare", action="store_true",
                        help="compile the kernels into the cache, and stop")
    parser.add_argument("--device", metavar="CARD", help=f"with --prepare, without a GPU: one of {', '.join(DEVICES)} "
                                                         "(default: h200)")


def run(options: Namespace) -> int:
    """Measure, fit, write.

    Raises
    ------
    CommandError
        Without a GPU, and for files that cannot be read or written.
    """
    counts = options.products, options.large, options.copies
    if min(counts) < 0 or sum(counts) == 0:
        raise CommandError(
            "--products, --large and --copies are at least 0, and one of them is above 0"
        )
    refuse_unwritable(options.json, options.measurements)
    if options.refit:
        return _refit(options)
    samples, unavailable = random_samples(*counts, options.seed), runtime.why_unavailable()
    if options.prepare:
        device = runtime.device_info() if unavailable is None and options.device is None else _named(options.device)
        return prepare(device, samples, options.seconds)
    if unavailable is not None:
        raise CommandError(f"calibrate needs a GPU: {unavailable}")
    device, about = runtime.device_info(), {**versions(), "seed": options.seed}
    print_about(about)
    machine = Card(device)
    with machine.workers:
        first, last = ends(options.seconds)
        if options.again:
            return _again(machine, options, last)
        problems = measured(machine, samples, last if options.check else first)
        _keep(device, options, problems, about)
        found = list(regrets(problems, device))
        before = _told("before", found)
        if not options.check:
            costs, found = fitted(machine, problems, last)
            _keep(device, options, problems, about)
            about |= regret_of(problems, before, _told("after", found))
    _worst(found, problems)
    if options.measurements is not None:
        print(f"wrote {options.measurements}")
    if not options.check:
        save_costs(costs, about, device.name, options.json, "conformance.bench")
    return 0


def _named(device: str | None) -> DeviceInfo:
    try:
        return device_named(device) if device else H200
    except ValueError as error:
        raise CommandError(error) from None


# -- files of measurements -------------------------------------------------------------------------
def _keep(
    device: DeviceInfo, options: Namespace, problems: Sequence[Measured], about: Mapping[str, Any]
) -> None:
    """Write the measurements as JSON."""
    if options.measurements is None:
        return
    own = asdict(replace(device, costs=None))
    seconds = {problem.name: {str(each): float(f"{x:.4g}")
                              for each, x in zip(problem.alternatives, problem.seconds,
                                                 strict=True)} for problem in problems}
    text = json.dumps(
        {
            "device": {name: x for name, x in own.items() if name != "costs"},
            "seed": options.seed,
            "copies": options.copies,
            "about": dict(about),
            "seconds": seconds,
        },
        indent=1,
    )
    options.measurements.write_text(text + "\n", encoding="utf-8")


def read(
    files: Sequence[Path], without: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType({})
) -> tuple[DeviceInfo, dict[str, Any], list[Measured]]:
    """The card of the first file of measurements, the origin of the last, and the problems of all.

    Rows ``without``, by file and problem, are left out, and problems that have no others.

    Raises
    ------
    CommandError
        For a file that has none.
    """
    devices, problems = list[DeviceInfo](), list[Measured]()
    for file in files:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            devices.append(DeviceInfo(**data["device"]))
            for name, times in data["seconds"].items():
                gone = without.get(file.name, {}).get(name, ())
                known = {row: seconds for row, seconds in times.items() if row not in gone}
                problems.append(_read_again(sample_named(name), devices[0], known))
        except (CostError, KeyError, TypeError, ValueError) as error:
            raise CommandError(
                f"{str(file)!r} has no measurements of this version of cuteblas: {error}"
            ) from None
    return devices[0], data["about"], [problem for problem in problems if problem.seconds]


def _read_again(sample: Sample, device: DeviceInfo, times: Mapping[str, float]) -> Measured:
    by_name = {str(each): each for each in alternatives_of(sample, device)}
    known = {name: seconds for name, seconds in times.items() if name in by_name}
    return Measured(
        sample.name,
        choice_of(sample, list(by_name.values())),
        [by_name[name] for name in known],
        list(known.values()),
        list(by_name.values()),
    )


def _without(options: Namespace) -> dict[str, dict[str, list[str]]]:
    try:
        return json.loads(options.without.read_text(encoding="utf-8")) if options.without else {}
    except (OSError, ValueError) as error:
        raise CommandError(f"{str(options.without)!r} has no rows to leave out: {error}") from None


def _again(machine: Any, options: Namespace, end: float) -> int:
    """Time what nobody has timed; rows of before that stay are scaled to the clocks of now."""
    without, tasks = _without(options), list[tuple[Path, Measured]]()
    for file in options.again:
        outdated = without.get(file.name, {})
        for problem in read([file])[2]:
            chosen, gone = str(problem.choice(machine.device)), outdated.get(problem.name, [])
            ranked = [str(problem.alternatives[i]) for i in np.argsort(problem.seconds)]
            if is_product(problem.name) and (chosen not in ranked or gone):
                wanted = {chosen, *[row for row in ranked if row not in gone][:2], *gone}
                plans = [each for each in problem.all if str(each) in wanted]
                tasks.append((file, replace(problem, alternatives=plans)))
    files, found = {id(task): file for file, task in tasks}, dict[Path,
                                                                  dict[str, dict[str, float]]]()
    for task, times in timings(machine, "again", [task for _file, task in tasks], len(tasks), end):
        new = {str(task.alternatives[i]): x for i, x in times.items()}
        found.setdefault(files[id(task)], {})[task.name] = new
    for file, problems in found.items():
        data = json.loads(file.read_text(encoding="utf-8"))
        for name, new in problems.items():
            gone = without.get(file.name, {}).get(name, [])
            old = {row: x for row, x in data["seconds"][name].items() if row not in gone}
            by = median([new[row] / x for row, x in old.items() if row in new] or [1.0])
            rows = {row: x * by for row, x in old.items()} | new
            data["seconds"][name] = {row: float(f"{x:.4g}") for row, x in rows.items()}
        file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"timed {sum(map(len, found.values()))} of {len(tasks)} products again")
    return 0


def _refit(options: Namespace) -> int:
    """Fit to files of measurements, beginning with the numbers that come with cuteblas."""
    without = _without(options)
    device, about, problems = read(options.refit, without)
    print(f"{len(problems)} problems, {sum(len(problem.seconds) for problem in problems)} plans")
    before = _told("before", list(regrets(problems, device)))
    costs, found = least_regret(problems, device, fit(problems, device, options.tries))
    after = _told("after", found)
    _worst(found, problems)
    save_costs(
        costs,
        about | regret_of(problems, before, after),
        device.name,
        options.json,
        "conformance.bench",
    )
    return 0


def is_product(name: str) -> bool:
    """Whether a sample's name is that of a product, and not of a permutation."""
    return isinstance(sample_named(name).problem, GemmProblem)


# -- what is said ----------------------------------------------------------------------------------
def _told(when: str, found: Sequence[Regret]) -> Summary:
    """Print the regret of all, and of products by type and of copies."""
    groups: dict[str, list[Regret]] = {"all": list(found)}
    for each in found:
        named = each.name.partition(" ")[0]
        groups.setdefault(named if is_product(each.name) else "copies", []).append(each)
    print(f"\nregret {when:<10}problems   median   95th percentile   largest   mean")
    for name, own in groups.items():
        s = summary(own)
        unknown = f"   ({s.problems - s.measured} choices not measured)" if s.measured < s.problems else ""
        print(
            f"  {name:<15}{s.problems:8}{s.median:9.1%}{s.percentile95:18.1%}{s.largest:10.1%}{s.mean:7.1%}{unknown}"
        )
    return summary(found)


def _worst(found: Sequence[Regret], problems: Sequence[Measured]) -> None:
    """Print the problems with the largest regret, and what would have been better."""
    ranked = sorted(((each.regret or 0.0, i) for i, each in enumerate(found)), reverse=True)
    for regret, i in islice(ranked, _SHOWN):
        if regret > 0:
            print(
                wrapped(
                    f"  {regret:6.1%}  {problems[i].name}: chosen {found[i].choice}; better {problems[i].fastest}, "
                    f"{duration(problems[i].best)}"
                )
            )
    single = sum(len(problem.seconds) == 1 for problem in problems)
    if single:
        print(wrapped(f"  {single} problems have only one plan, so their regret is 0"))


# -- compiling -------------------------------------------------------------------------------------
class _Compiler:
    """A machine that times nothing."""

    def __init__(self, device: DeviceInfo):
        self.device, self.workers = device, Workers()
        self.kernels, self.failed, self.ready = set[str](), list[str](), 0

    def times(self, problem: Measured, plans: Sequence[Made]) -> dict[int, float]:
        """Note the kernels of plans."""
        self.ready += 1
        self.failed += (plan for plan in plans if isinstance(plan, str))
        self.kernels |= {
            launch.kernel.digest
            for plan in plans
            if not isinstance(plan, str)
            for launch in plan.launches
        }
        return {}


def prepare(device: DeviceInfo, samples: Sequence[Sample], seconds: float) -> int:
    """Compile the kernels of all plans that would be measured into the cache, as far as there is
    time; 1 if one cannot be."""
    start = perf_counter()
    compiler = _Compiler(device)
    with compiler.workers:
        wanted = (to_measure(sample, device) for sample in samples)
        for _problem, _times in timings(compiler, "prepare", wanted, len(samples), start + seconds):
            pass
    print(
        f"{len(compiler.kernels)} kernels of {compiler.ready} of {len(samples)} problems are "
        f"compiled for {device.name}, in {duration(perf_counter() - start)}"
    )
    for sentence in compiler.failed[:_SHOWN]:
        print(f"  {sentence}")
    return 1 if compiler.failed else 0
