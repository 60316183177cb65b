"""Measure this GPU, so that cuteblas estimates times on it better and chooses faster kernels.

  # measure and fit: four minutes; later plans for this card use the result
  python -m cuteblas calibrate
  # measure other random problems, and change nothing
  python -m cuteblas calibrate --seed 1 --check
  # compile the kernels beforehand, without a GPU
  python -m cuteblas calibrate --prepare

The command times several plans of each of many random products and permutations. It prints the regret of cuteblas's choices before
and after: how much longer the chosen plan takes than the fastest one, 0 where they are the same.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import runtime
from ..codegen.dtypes import dtype
from ..planning.copy.dispatch import copy_alternatives
from ..planning.cost import CostError, Costs, written
from ..planning.cost.alternatives import Alternative
from ..planning.cost.fit import Measured, Regret, fit, regrets
from ..planning.devices import DEVICES, device_named
from ..planning.gemm.dispatch import gemm_alternatives, gemm_choice
from ..planning.plan import Plan
from ..planning.problem import H200, CopyProblem, DeviceInfo
from ..planning.quantities import duration
from ..runtime.architectures import target_architecture
from ..runtime.costs import HOST, costs_file
from ..runtime.ring import processors as usable
from .command import CommandError, command_line, positive, print_about, refuse_unwritable
from .machines import Gpu, medians, versions
from .progress import Progress
from .samples import NUMBERS_BYTES, Sample, is_product, large_products, numbers, product_named, random_copies, random_products
from .terminal import wrapped
from .workers import Workers, device_of_workers

__all__ = ["Summary", "calibrated", "prepare", "summary"]

_MEASURING, _MISSING = 0.72, 0.93    # parts of the time: when measuring ends, and when that of choices that were not measured
_AHEAD = 48                          # problems whose kernels are being compiled
_REPEATS, _OF_A_PROBLEM = 5, 0.3     # timings of which the median is taken; seconds for all plans of a problem
_NEAR, _FAMILY_NEAR = 2.0, 4.0       # times the least estimate, up to which plans are measured; and the best of each family
_OF_A_TILE, _TILES, _MOST = 2, 5, 7  # plans of a tile, of different tiles, and in all
_LARGEST = 1 << 28                   # bytes of an operand of a product
_LARGEST_COPY = 1 << 29
_SHOWN = 12                          # problems with the largest regret


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--seconds", type=positive, default=240, help="seconds for the whole command (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random problems (default: %(default)s)")
    parser.add_argument("--products", type=int, default=300, metavar="COUNT", help="random products (default: %(default)s)")
    parser.add_argument("--large", type=int, default=100, metavar="COUNT",
                        help="random products that fill a GPU (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=200, metavar="COUNT", help="random permutations (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="write the numbers to FILE instead of this user's configuration folder")
    parser.add_argument("--measurements", type=Path, metavar="FILE", help="write the time of every plan")
    parser.add_argument("--check", action="store_true", help="measure and print the regret; fit and write nothing")
    parser.add_argument("--refit", type=Path, nargs="+", metavar="FILE",
                        help="fit to files of --measurements instead of measuring; needs no GPU")
    parser.add_argument("--host", action="store_true",
                        help="measure only this host: NumPy, copies, and transfers to the GPU")
    parser.add_argument("--prepare", action="store_true", help="compile the kernels into the cache, and stop")
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
        raise CommandError("--products, --large and --copies are at least 0, and one of them is above 0")
    refuse_unwritable(options.json, options.measurements)
    if options.host:
        return _measure_host(options)
    if options.refit:
        return _refit(options)
    kinds = random_products, large_products, random_copies
    samples = [*_shuffled(*([*draw(count, options.seed)] for draw, count in zip(kinds, counts, strict=True)))]
    unavailable = runtime.why_unavailable()
    if options.prepare:
        device = runtime.device_info() if unavailable is None and options.device is None else _named(options.device)
        return prepare(device, samples, options.seconds)
    if unavailable is not None:
        raise CommandError(f"calibrate needs a GPU: {unavailable}")
    device = runtime.device_info()
    about = {**versions(), "seed": options.seed}
    print_about(about)

    def keep(problems: Sequence[Measured]) -> None:
        if options.measurements is not None:
            options.measurements.write_text(_as_text(device, options, problems, about) + "\n", encoding="utf-8")

    with Card(device) as machine:
        costs, _problems = calibrated(machine, samples, options.seconds, fits=not options.check, keep=keep)
    if options.measurements is not None:
        print(f"wrote {options.measurements}")
    if options.check:
        return 0
    _write(costs, device, options, about)
    return 0 if options.json else _measure_host(options)


def _measure_host(options: Namespace) -> int:
    """Measure this host, and write its numbers."""
    from .host_rates import measured

    if (unavailable := runtime.why_unavailable()) is not None:
        raise CommandError(f"calibrate --host needs a GPU: {unavailable}")
    print("measuring NumPy on this host and transfers to the GPU ...", flush=True)
    text = measured().written(command_line(), usable())
    return _save(text, options.json, costs_file(HOST), 'backend("auto") uses it from now on')


def _named(device: str | None) -> DeviceInfo:
    try:
        return device_named(device) if device else H200
    except ValueError as error:
        raise CommandError(error) from None


def _write(costs: Costs, device: DeviceInfo, options: Namespace, about: Mapping[str, Any]) -> int:
    text = written(replace(costs, device=device.name, command=command_line(), about={**about, **costs.about}))
    return _save(text, options.json, costs_file(device.name), "plans for this card use it from now on")


def _save(text: str, chosen: Path | None, usual: Path, consequence: str) -> int:
    """Write a file of numbers, and say what uses it if it is at the usual place."""
    file = chosen or usual
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(f"wrote {file}" + ("" if chosen else f"; {consequence}"))
    return 0


def _shuffled(*kinds: Sequence[Sample]) -> Iterator[Sample]:
    """Samples of all kinds in turns, so that whenever time runs out there are some of each."""
    places = [((i + 0.5) / len(group), sample) for group in kinds for i, sample in enumerate(group)]
    return (sample for _place, sample in sorted(places, key=lambda each: each[0]))


# -- what is measured -------------------------------------------------------------------------------------------------------------
def _alternatives(sample: Sample, device: DeviceInfo) -> list[Alternative]:
    """All plans among which planning chooses, of the same estimate the first one."""
    problem = sample.problem
    found = copy_alternatives(problem, device) if isinstance(problem, CopyProblem) else gemm_alternatives(problem, device)
    return list({str(each): each for each in found}.values())


def _choice(sample: Sample, alternatives: Sequence[Alternative]) -> Callable[[DeviceInfo], Alternative]:
    """Planning's choice by the numbers of a device."""
    problem = sample.problem
    if isinstance(problem, CopyProblem):
        return lambda device: min(alternatives, key=lambda each: each.seconds(device))
    return partial(gemm_choice, problem)


class Task(NamedTuple):
    """A problem, planning's choice, and the plans that are to be measured."""

    sample: Sample
    choice: Callable[[DeviceInfo], Alternative]
    alternatives: list[Alternative]


def _task(sample: Sample, device: DeviceInfo) -> Task:
    """Plans that may be the best: those with the least estimates, of several tiles and of each family, and planning's choice."""
    everything = _alternatives(sample, device)
    choice = _choice(sample, everything)
    ranked = sorted(((each.seconds(device), index, each) for index, each in enumerate(everything)))
    least, tiles, families = ranked[0][0], Counter[str](), Counter[str]()
    wanted = [choice(device)]
    names = {str(wanted[0])}
    for seconds, _index, each in ranked:
        tile = str(each).partition(", ")[0]
        another = seconds <= _NEAR * least and tiles[tile] < _OF_A_TILE and (tile in tiles or len(tiles) < _TILES)
        if (another and len(wanted) < _MOST) or (seconds <= _FAMILY_NEAR * least and not families[each.family]):
            tiles[tile] += 1
            families[each.family] += 1
            if str(each) not in names:
                names.add(str(each))
                wanted.append(each)
    return Task(sample, choice, wanted)


Made = Plan | str
"""A plan whose kernels are compiled, or why there is none."""


class Machine(Protocol):
    """Where plans are timed."""

    device: DeviceInfo

    def made(self, sample: Sample, alternatives: Sequence[Alternative]) -> Future[list[Made]]:
        """Begin to make plans and to compile their kernels."""

    def times(self, sample: Sample, alternatives: Sequence[Alternative], plans: Sequence[Made]) -> list[float | None]:
        """What plans take, timed side by side; ``None`` for one that cannot run."""


def calibrated(machine: Machine, samples: Sequence[Sample], seconds: float, *, fits: bool = True,
               keep: Callable[[Sequence[Measured]], None] = lambda _problems: None) -> tuple[Costs, list[Measured]]:
    """Measure as much as there is time for, fit, and print the regret before and after.

    Parameters
    ----------
    machine : Machine
        Where.
    samples : sequence of Sample
        The problems.
    seconds : float
        For everything.
    fits : bool
        Whether numbers are fitted; else those of the machine's device are returned.
    keep : callable, optional
        Takes what was measured, as soon as it is.

    Returns
    -------
    costs : Costs
        The numbers, with the regret in ``about``: never more than before.
    problems : list of Measured
        What was measured.
    """
    start, device = perf_counter(), machine.device
    problems = _measured(machine, samples, start + seconds * (_MEASURING if fits else _MISSING))
    if not problems:
        raise CommandError(f"no problem was measured in {seconds} seconds; --seconds allows more", 1)
    keep(problems)
    plans = sum(len(problem.seconds) for problem in problems)
    print(f"\nmeasured {len(problems)} of {len(samples)} problems, {plans} plans, in {duration(perf_counter() - start)}")
    before = list(regrets(problems, device))
    found = {"before": _told("before", before)}
    if not fits:
        _worst(before, problems)
        return device.fitted, problems
    costs, after = _best_fit(machine, problems, samples, start + seconds * _MISSING)
    keep(problems)
    found["after"] = _told("after", after)
    _worst(after, problems)
    about = {"problems": len(problems), "plans": plans, "regret": {when: each._asdict() for when, each in found.items()}}
    return replace(costs, about=about), problems


def _measured(machine: Machine, samples: Sequence[Sample], deadline: float) -> list[Measured]:
    """The times of problems, each as soon as its kernels are compiled."""
    problems: list[Measured] = []
    remaining, waiting = iter(samples), list[tuple[Task, Future[list[Made]]]]()
    with Progress("calibrate", len(samples)) as progress:
        while perf_counter() < deadline:
            ready = next((i for i, (_task_of, future) in enumerate(waiting) if future.done()), None)
            if ready is not None:
                task, future = waiting.pop(ready)
                problem = Measured(task.sample.name, task.choice, [], [])
                try:
                    _time(machine, task.sample, problem, task.alternatives, future.result())
                except (RuntimeError, MemoryError) as error:               # CUDA's: nothing can be timed after it
                    print(f"measuring stopped at {task.sample.name}: {error}", file=sys.stderr)
                    break
                problems += [problem] if problem.seconds else []
                progress.advance()
            elif len(waiting) < _AHEAD and (sample := next(remaining, None)) is not None:
                task = _task(sample, machine.device)
                waiting.append((task, machine.made(sample, task.alternatives)))
            elif waiting:
                wait([future for _task_of, future in waiting], max(0.0, deadline - perf_counter()), FIRST_COMPLETED)
            else:
                break
    for _task_of, future in waiting:
        future.cancel()
    return problems


def _time(machine: Machine, sample: Sample, problem: Measured, alternatives: Sequence[Alternative], plans: Sequence[Made]) -> None:
    """Note what plans take."""
    for alternative, seconds in zip(alternatives, machine.times(sample, alternatives, plans), strict=True):
        if seconds is not None:
            problem.add(alternative, seconds)


def _best_fit(machine: Machine, problems: list[Measured], samples: Sequence[Sample], deadline: float) -> tuple[Costs, list[Regret]]:
    """The numbers with the least regret, of those from before and those that were fitted; choices that are new are measured too."""
    device, by_name = machine.device, {sample.name: sample for sample in samples}
    fitted = fit(problems, device)
    for again in (True, False):
        missing = [(problem, each.choice)
                   for problem, each in zip(problems, regrets(problems, replace(device, costs=fitted)), strict=True)
                   if each.regret is None]
        missing = list({(problem.name, str(choice)): (problem, choice) for problem, choice in missing}.values())
        # Beside the best plan that was measured before, so that both see the same clocks.
        pairs = [(problem, [choice, problem.fastest]) for problem, choice in missing]
        futures = [machine.made(by_name[problem.name], pair) for problem, pair in pairs]
        with Progress("new choices", len(missing)) as progress:
            for (problem, pair), future in zip(pairs, futures, strict=True):
                wait([future], max(0.0, deadline - perf_counter()))
                if future.done() and perf_counter() < deadline:
                    try:
                        new, old = machine.times(by_name[problem.name], pair, future.result())
                    except (RuntimeError, MemoryError) as error:
                        print(f"measuring stopped at {problem.name}: {error}", file=sys.stderr)
                        break
                    if new is not None and old is not None:
                        problem.add(pair[0], new * problem.best / old)
                else:
                    future.cancel()
                progress.advance()
        if not again or not missing:
            break
        fitted = fit(problems, device)
    return _least_regret(problems, device, fitted)


def _least_regret(problems: Sequence[Measured], device: DeviceInfo, fitted: Costs) -> tuple[Costs, list[Regret]]:
    """The numbers with the least regret, and that."""
    choices = [(costs, list(regrets(problems, replace(device, costs=costs)))) for costs in (device.fitted, fitted)]
    return min(choices, key=lambda each: _rank(each[1]))


def _rank(found: Sequence[Regret]) -> tuple[float, float]:
    """By what numbers are compared: the 95th percentile and the mean, a choice that was not measured being 10 % behind."""
    values = [0.1 if each.regret is None else each.regret for each in found]
    return fmean(values) + 0.2 * float(np.percentile(values, 95)), fmean(values)


def _refit(options: Namespace) -> int:
    """Fit to files of measurements, beginning with the numbers that come with cuteblas; the card is that of the first."""
    problems: list[Measured] = []
    device = None
    for file in options.refit:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            own = DeviceInfo(**data["device"])
            copies = {sample.name: sample for sample in random_copies(data["copies"], data["seed"])}
            device = device or own
            problems += (_read_again(copies.get(name) or product_named(name), device, times)
                         for name, times in data["seconds"].items())
        except (CostError, KeyError, TypeError, ValueError) as error:
            raise CommandError(f"{str(file)!r} has no measurements of this version of cuteblas: {error}") from None
    assert device is not None
    print(f"{len(problems)} problems, {sum(len(problem.seconds) for problem in problems)} plans")
    found = {"before": _told("before", list(regrets(problems, device)))}
    costs, after = _least_regret(problems, device, fit(problems, device))
    found["after"] = _told("after", after)
    _worst(after, problems)
    about = {**data["about"], "problems": len(problems), "regret": {when: each._asdict() for when, each in found.items()}}
    return _write(replace(costs, about={}), device, options, about)


def _read_again(sample: Sample, device: DeviceInfo, times: Mapping[str, float]) -> Measured:
    by_name = {str(each): each for each in _alternatives(sample, device)}
    known = {name: seconds for name, seconds in times.items() if name in by_name}
    return Measured(sample.name, _choice(sample, list(by_name.values())), [by_name[name] for name in known], list(known.values()))


def _as_text(device: DeviceInfo, options: Namespace, problems: Sequence[Measured], about: Mapping[str, Any]) -> str:
    """The measurements as JSON."""
    own = asdict(replace(device, costs=None))
    seconds = {problem.name: {str(each): float(f"{x:.4g}") for each, x in zip(problem.alternatives, problem.seconds, strict=True)}
               for problem in problems}
    return json.dumps({"device": {name: x for name, x in own.items() if name != "costs"}, "seed": options.seed,
                       "copies": options.copies, "about": dict(about), "seconds": seconds}, indent=1)


# -- what is said -----------------------------------------------------------------------------------------------------------------
class Summary(NamedTuple):
    """The regret of problems: how many there are, how many of them have planning's choice measured, and their quantiles."""

    problems: int
    measured: int
    median: float
    percentile95: float
    largest: float
    mean: float


def summary(found: Sequence[Regret]) -> Summary:
    """The regret of problems, as far as it is known."""
    known = [each.regret for each in found if each.regret is not None] or [0.0]
    quantiles = (round(float(x), 4) for x in (*np.percentile(known, (50, 95, 100)), fmean(known)))
    return Summary(len(found), sum(each.regret is not None for each in found), *quantiles)


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
        print(f"  {name:<15}{s.problems:8}{s.median:9.1%}{s.percentile95:18.1%}{s.largest:10.1%}{s.mean:7.1%}{unknown}")
    return summary(found)


def _worst(found: Sequence[Regret], problems: Sequence[Measured]) -> None:
    """Print the problems with the largest regret, and what would have been better."""
    ranked = sorted(((each.regret or 0.0, i) for i, each in enumerate(found)), reverse=True)
    for regret, i in islice(ranked, _SHOWN):
        if regret > 0:
            print(wrapped(f"  {regret:6.1%}  {problems[i].name}: chosen {found[i].choice}; better {problems[i].fastest}, "
                          f"{duration(problems[i].best)}"))
    single = sum(len(problem.seconds) == 1 for problem in problems)
    if single:
        print(wrapped(f"  {single} problems have only one plan, so their regret is 0"))


# -- compiling --------------------------------------------------------------------------------------------------------------------
def _make(sample: Sample, names: Sequence[str]) -> list[Made]:
    device = device_of_workers()
    by_name = {str(each): each for each in _alternatives(sample, device)}
    made: list[Made] = []
    for name in names:
        try:
            plan = by_name[name].plan()
            for launch in plan.launches:
                runtime.compile(launch.kernel, target_architecture(launch.kernel.arch, device.arch))
        except Exception as error:     # one plan of thousands does not end the command: it is named and left out
            made.append(f"{sample.name}, {name}: {type(error).__name__}: {error}".splitlines()[0])
        else:
            made.append(replace(plan, device=replace(device, costs=None)))
    return made


def prepare(device: DeviceInfo, samples: Sequence[Sample], seconds: float) -> int:
    """Compile the kernels of all plans that would be measured into the cache, as far as there is time; 1 if one cannot be."""
    start, ready, failed = perf_counter(), 0, list[str]()
    waiting: set[Future[list[Made]]] = set()
    remaining = iter(samples)
    kernels: set[str] = set()
    with Workers(device) as workers, Progress("prepare", len(samples)) as progress:
        while (left := seconds - (perf_counter() - start)) > 0:
            if len(waiting) < _AHEAD and (sample := next(remaining, None)) is not None:
                waiting.add(workers.submit(_make, sample, [str(each) for each in _task(sample, device).alternatives]))
                continue
            if not waiting:
                break
            done, waiting = wait(waiting, left, FIRST_COMPLETED)
            for future in done:
                plans = future.result()
                failed += (plan for plan in plans if isinstance(plan, str))
                kernels |= {launch.kernel.digest for plan in plans if not isinstance(plan, str) for launch in plan.launches}
                ready += 1
                progress.advance()
    print(f"{len(kernels)} kernels of {ready} of {len(samples)} problems are compiled for {device.name}, in "
          f"{duration(perf_counter() - start)}")
    for sentence in failed[:_SHOWN]:
        print(f"  {sentence}")
    return 1 if failed else 0


# -- a card -----------------------------------------------------------------------------------------------------------------------
class Card:
    """The current GPU; a context manager."""

    def __init__(self, device: DeviceInfo):
        self.device = device
        self._gpu, self._workers = Gpu(), Workers(device, spared=1)
        self._xp, self._sources = self._gpu.rival, dict[tuple[str, int], Any]()
        free, _total = self._xp.cuda.runtime.memGetInfo()
        self._largest, self._largest_copy = (min(most, part // NUMBERS_BYTES * NUMBERS_BYTES)
                                             for most, part in ((_LARGEST, free // 64), (_LARGEST_COPY, free // 8)))
        self._target = self._xp.empty(max(self._largest, self._largest_copy), np.uint8)

    def __enter__(self) -> Card:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.__exit__(*error)

    def made(self, sample: Sample, alternatives: Sequence[Alternative]) -> Future[list[Made]]:
        """Begin to make plans and to compile their kernels."""
        return self._workers.submit(_make, sample, [str(each) for each in alternatives])

    def times(self, sample: Sample, alternatives: Sequence[Alternative], plans: Sequence[Made]) -> list[float | None]:
        """What plans take, timed side by side; ``None`` for one that the device or the compiler refuses."""
        addresses = self._addresses(sample)
        if addresses is None:
            return [None] * len(plans)
        stream, calls = self._xp.cuda.get_current_stream().ptr, dict[int, Callable[[], None]]()
        for index, plan in enumerate(plans):
            try:
                if isinstance(plan, str):
                    raise ValueError(plan)
                call = partial(runtime.executor(plan).launch, addresses, stream)
                call()
                calls[index] = call
            except (runtime.CompileError, runtime.DriverError, ValueError) as error:
                print(f"  {error}".splitlines()[0], file=sys.stderr)
        taken = medians(self._gpu, *calls.values(), repeats=_REPEATS, seconds=_OF_A_PROBLEM) if calls else []
        by_index = dict(zip(calls, taken, strict=True))
        return [by_index.get(index) for index in range(len(plans))]

    def _addresses(self, sample: Sample) -> tuple[int, ...] | None:
        """Of the problem's operands, which are of normal or small numbers; ``None`` if they are too large."""
        target = self._target.data.ptr
        if isinstance(sample.problem, CopyProblem):
            copy = sample.problem                                  # slices and reversed axes reach further than their elements
            reach = sum((n - 1) * max(0, stride) for n, stride in zip(copy.shape, copy.src_strides, strict=True))
            if max(sample.offset + (1 + reach) * copy.itemsize, copy.bytes // 2) > self._largest_copy:
                return None
            return self._source("float32", self._largest_copy) + sample.offset, target
        p, item = sample.problem, dtype(sample.dtype).bytes
        matrices = int(np.prod(p.batch, dtype=np.int64))
        if max(p.m * p.k, p.n * p.k, p.m * p.n) * matrices * item > self._largest:
            return None
        source = self._source(sample.dtype, 2 * self._largest)
        return source, source + self._largest, target

    def _source(self, name: str, nbytes: int) -> int:
        """The address of memory that is full of numbers of a type."""
        if (name, nbytes) not in self._sources:
            some = numbers(name)
            self._sources[name, nbytes] = self._xp.tile(self._xp.asarray(some), nbytes // some.nbytes)
        return self._sources[name, nbytes].data.ptr
