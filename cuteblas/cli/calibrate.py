"""Measure this GPU, so that cuteblas estimates times on it better and chooses faster kernels.

  # measure and fit for later plans, in four minutes
  python -m cuteblas calibrate
  # only NumPy on this host, copies, and transfers to the GPU
  python -m cuteblas calibrate --host

The command times several plans of each of many random products and permutations. It prints the
regret of cuteblas's choices before and after: how much longer the chosen plan takes than the
fastest one, 0 where they are the same.
"""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .. import runtime
from ..codegen.architectures import target_architecture
from ..functions import ascontiguousarray, backend, matmul
from ..planning.cost import Costs, hosts, written
from ..planning.cost.fit import Measured, Regret, fit, regrets
from ..planning.floors import duration
from ..planning.gemm.contraction import alternatives
from ..planning.gemm.dispatch import gemm_choice
from ..planning.plan import Alternative, Plan
from ..planning.problem import CopyProblem, DeviceInfo
from ..runtime.costs import HOST, costs_file
from ..runtime.ring import processors
from .command import CommandError, Parser, command_line, positive, print_about, refuse_unwritable
from .machines import Gpu, Host, Machine, medians, random_array, random_elements, versions
from .problems import Sample, sample_named, usual_samples
from .terminal import Progress

_MEASURING, _MISSING = 0.72, 0.93    # of the time: when measuring ends, and that of new choices
_AHEAD = 48                          # problems whose kernels are being compiled
_REPEATS, _OF_A_PROBLEM = 5, 0.3     # timings of which the median is taken; seconds for all plans
                                     # of a problem
_NEAR, _FAMILY_NEAR = 2.0, 4.0       # times the least estimate, up to which plans are measured; and
                                     # the best of each family
_OF_A_TILE, _TILES, _MOST = 2, 5, 7  # plans of a tile, of different tiles, and in all
_BELOW = 100                         # integers
_MOST_PROCESSES = 32


def configure(parser: Parser) -> None:
    declare(parser)
    parser.option("--host", "measure only this host: NumPy, copies, and transfers to the GPU")


def declare(parser: Parser) -> None:
    parser.option("--seconds",
                  "seconds for the whole command (default: %(default)s)",
                  type=positive, default=240)
    parser.option("--json FILE",
                  "write the numbers to FILE instead of this user's configuration folder",
                  type=Path)


def run(options: Namespace) -> int:
    refuse_unwritable(options.json)
    if (unavailable := runtime.why_unavailable()) is not None:
        raise CommandError(f"calibrate{' --host' * options.host} needs a GPU: {unavailable}")
    if not options.host:
        about = versions()
        print_about(about)
        machine = Card(runtime.device_info())
        with machine.workers:
            first, last = ends(options.seconds)
            problems = measured(machine, usual_samples(), first)
            before = summary(regrets(problems, machine.device))
            print(f"regret before: {before}", flush=True)
            costs, found = fitted(machine, problems, last)
            after = summary(found)
            print(f"regret after:  {after}")
        save_costs(
            costs,
            {**about, **regret_of(problems, before, after)},
            machine.device.name,
            options.json,
        )
        if options.json:
            return 0
    print("measuring NumPy on this host and transfers to the GPU ...", flush=True)
    _save(
        host_rates().written(command_line(), processors()),
        options.json,
        costs_file(HOST),
        'backend("auto") uses it from now on',
    )
    return 0


def save_costs(
    costs: Costs,
    about: Mapping[str, Any],
    card: str,
    chosen: Path | None,
    program: str = "cuteblas",
) -> None:
    text = written(replace(costs, device=card, command=command_line(program), about=about))
    _save(text, chosen, costs_file(card), "plans for this card use it from now on")


def _save(text: str, chosen: Path | None, usual: Path, consequence: str) -> None:
    """Write a file of numbers, and say what uses it if it is at the usual place."""
    file = chosen or usual
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(f"wrote {file}" + ("" if chosen else f"; {consequence}"))


# -- plans -----------------------------------------------------------------------------------------
Made = Plan | str
"""A plan whose kernels are compiled, or why there is none."""


def alternatives_of(sample: Sample, device: DeviceInfo) -> list[Alternative]:
    """All plans among which planning chooses, of the same estimate the first one."""
    return list({str(each): each for each in alternatives(sample.problem, device)}.values())


def choice_of(
    sample: Sample, alternatives: Sequence[Alternative]
) -> Callable[[DeviceInfo], Alternative]:
    problem = sample.problem
    if isinstance(problem, CopyProblem):
        return lambda device: min(alternatives, key=lambda each: each.seconds(device))
    return partial(gemm_choice, problem)


def to_measure(sample: Sample, device: DeviceInfo) -> Measured:
    """A problem and plans that may be the best: the least estimates of several tiles and
    families."""
    everything = alternatives_of(sample, device)
    choice = choice_of(sample, everything)
    ranked = sorted(everything, key=lambda each: each.seconds(device))
    tiles, families, first = Counter[str](), set[str](), choice(device)
    wanted = {str(first): first}
    for each in ranked:
        times, tile = each.seconds(device) / ranked[0].seconds(device), str(each).partition(", ")[0]
        room = tiles[tile] < _OF_A_TILE and (tile in tiles or len(tiles) < _TILES)
        if (room and times <= _NEAR and len(wanted) < _MOST) or (times <= _FAMILY_NEAR
                                                 and each.family not in families):
            tiles[tile] += 1
            families.add(each.family)
            wanted[str(each)] = each
    return Measured(sample.name, choice, list(wanted.values()), [], everything)


def make(problem: str, names: Sequence[str], device: DeviceInfo) -> list[Made]:
    """The plans of these names with their kernels compiled, in a process of :class:`Workers`."""
    by_name = {str(each): each for each in alternatives_of(sample_named(problem), device)}
    made: list[Made] = []
    for name in names:
        try:
            plan = by_name[name].plan()
            for launch in plan.launches:
                runtime.compile(launch.kernel, target_architecture(launch.kernel.arch, device.arch))
        # one plan of thousands does not end the command: it is named and left out
        except Exception as error:
            made.append(f"{problem}, {name}: {type(error).__name__}: {error}".splitlines()[0])
        else:
            made.append(replace(plan, device=replace(device, costs=None)))
    return made


# -- measuring and fitting -------------------------------------------------------------------------
def timings(
    machine: Any, what: str, problems: Iterable[Measured], count: int, end: float
) -> Iterator[tuple[Measured, dict[int, float]]]:
    """Time the plans of each problem, by place, when compiled, until the time ``end``."""
    remaining, waiting = iter(problems), dict[Future[list[Made]], Measured]()
    with Progress(what, count) as progress:
        while (left := end - perf_counter()) > 0:
            for problem in islice(remaining, _AHEAD - len(waiting)):
                names = [str(each) for each in problem.alternatives]
                future = machine.workers.submit(make, problem.name, names, machine.device)
                waiting[future] = problem
            wait(waiting, left, FIRST_COMPLETED)
            if (ready := next((each for each in waiting if each.done()), None)) is None:
                break
            problem = waiting.pop(ready)
            try:
                seconds = machine.times(problem, ready.result())
            # CUDA's: nothing can be timed after it
            except (RuntimeError, MemoryError) as error:
                print(f"measuring stopped at {problem.name}: {error}", file=sys.stderr)
                break
            yield problem, seconds
            progress.advance()
    for future in waiting:
        future.cancel()


def ends(seconds: float) -> tuple[float, float]:
    """When measuring ends, and when that of new choices does, on the clock of :func:`timings`."""
    return perf_counter() + seconds * _MEASURING, perf_counter() + seconds * _MISSING


def measured(machine: Any, samples: Sequence[Sample], end: float) -> list[Measured]:
    start, problems = perf_counter(), list[Measured]()
    wanted = (to_measure(sample, machine.device) for sample in samples)
    for problem, times in timings(machine, "calibrate", wanted, len(samples), end):
        if times:
            plans, seconds = [problem.alternatives[i] for i in times], list(times.values())
            problems.append(replace(problem, alternatives=plans, seconds=seconds))
    if not problems:
        raise CommandError("no problem was measured in the time; --seconds allows more", 1)
    count = sum(len(problem.seconds) for problem in problems)
    print(
        f"\nmeasured {len(problems)} of {len(samples)} problems, {count} plans, in {duration(perf_counter() - start)}"
    )
    return problems


def fitted(machine: Any, problems: list[Measured], end: float) -> tuple[Costs, list[Regret]]:
    """Fit, measure new choices, and return the old or the new numbers: those of least regret."""
    device, own = machine.device, {problem.name: problem for problem in problems}
    for _round in range(2):
        costs = fit(problems, device)
        # Beside the best plan that was measured before, so that both see the same clocks.
        new = [
            replace(own[each.name], alternatives=[each.choice, own[each.name].fastest])
            for each in regrets(problems, replace(device, costs=costs))
            if each.regret is None
        ]
        if not new:
            break
        for each, times in timings(machine, "new choices", new, len(new), end):
            problem = own[each.name]
            if len(times) == 2:
                problem.add(each.alternatives[0], times[0] * problem.best / times[1])
    return least_regret(problems, device, costs)


def least_regret(
    problems: Sequence[Measured], device: DeviceInfo, new: Costs
) -> tuple[Costs, list[Regret]]:
    """Of new numbers and those of the device the ones with the least regret, and that."""
    choices = [
        (costs, list(regrets(problems, replace(device, costs=costs))))
        for costs in (new, device.fitted)
    ]
    return min(choices, key=lambda each: _rank(each[1]))


def _rank(found: Sequence[Regret]) -> float:
    """The 95th percentile and the mean; a choice that was not measured counts as 10 % behind."""
    values = [0.1 if each.regret is None else each.regret for each in found]
    return fmean(values) + 0.2 * float(np.percentile(values, 95))


class Summary(NamedTuple):
    """How many problems there are, how many choices were measured, and quantiles of regret."""

    problems: int
    measured: int
    median: float
    percentile95: float
    largest: float
    mean: float

    def __str__(self) -> str:
        return (
            f"{self.mean:.1%} in the mean, {self.percentile95:.1%} at the 95th percentile of "
            f"{self.problems} problems; "
            f"{self.problems - self.measured} choices were not measured"
        )


def summary(found: Iterable[Regret]) -> Summary:
    found = list(found)
    known = [each.regret for each in found if each.regret is not None] or [0.0]
    quantiles = (round(float(x), 4) for x in (*np.percentile(known, (50, 95, 100)), fmean(known)))
    return Summary(len(found), sum(each.regret is not None for each in found), *quantiles)


def regret_of(problems: Sequence[Measured], before: Summary, after: Summary) -> dict[str, Any]:
    return {
        "problems": len(problems),
        "regret": {"before": before._asdict(), "after": after._asdict()},
    }


# -- a card ----------------------------------------------------------------------------------------
class Card:
    """The current GPU, and processes that compile for it."""

    def __init__(self, device: DeviceInfo):
        self.device, self.workers, self._gpu = device, Workers(spared=1), Gpu()

    def times(self, problem: Measured, plans: Sequence[Made]) -> dict[int, float]:
        """Times of plans, side by side, but of those that device or compiler refuses."""
        sample, xp = sample_named(problem.name), self._gpu.rival
        try:
            numbers = xp.asarray(_numbers(sample.dtype))
            # slices and reversed axes reach further than their elements
            *operands, result = (
                xp.resize(
                    numbers,
                    sample.offset
                    + x.item * (1 + sum((n - 1) * max(0, stride) for n, stride in x.modes)),
                )
                for x in sample.problem.tensors
            )
        except MemoryError:
            return {}
        addresses = *(x.data.ptr + sample.offset for x in operands), result.data.ptr
        stream, calls = xp.cuda.get_current_stream().ptr, dict[int, Callable[[], None]]()
        for index, plan in enumerate(plans):
            try:
                if isinstance(plan, str):
                    raise ValueError(plan)
                call = partial(runtime.executor(plan).launch, addresses, stream)
                call()
                calls[index] = call
            except (runtime.CompileError, runtime.DriverError, ValueError) as error:
                print(f"  {error}".splitlines()[0], file=sys.stderr)
        if not calls:
            return {}
        taken = medians(self._gpu, *calls.values(), repeats=_REPEATS, seconds=_OF_A_PROBLEM)
        return dict(zip(calls, taken, strict=True))


@cache
def _numbers(name: str) -> np.ndarray:
    """The bytes of normal or small whole numbers of a type."""
    if name == "bfloat16":                                  # which NumPy has not
        return random_elements(np.dtype("float32")).view(np.uint16)[1::2].copy().view(np.uint8)
    return random_elements(np.dtype(name), below=_BELOW).view(np.uint8)


# -- other processes -------------------------------------------------------------------------------
def _processors() -> int:
    """Processors that this process may use, which in a container are fewer than there are."""
    count = processors()
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        count = min(count, round(int(quota) / int(period)))    # without a limit the quota is a word
    return max(1, min(count, _MOST_PROCESSES))


class Workers(ProcessPoolExecutor):
    """Processes that plan and compile, into the cache on disk; ``spared`` processors stay free."""

    def __init__(self, spared: int = 0):
        # Ctrl-C is for the process that measures
        super().__init__(max(1, _processors() - spared), get_context("spawn"), signal.signal,
                         (signal.SIGINT, signal.SIG_IGN))

    def __exit__(self, *error: object) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        for child in active_children():                 # which may have minutes of work before them
            child.terminate()


# -- NumPy on this host, and the way to its GPU ----------------------------------------------------
_EXTENT = 2048                          # of products; a quarter where NumPy has no BLAS
_COPIED = 8192                          # rows and columns of a matrix that is copied


def _seconds(call: Callable[..., Any], *operands: Any, on: Machine | None = None) -> float:
    (taken,) = medians(on or Host(), partial(call, *operands), repeats=_REPEATS)
    return taken


def host_rates(extent: int = _EXTENT, copied: int = _COPIED) -> hosts.HostCosts:
    """Measure this host and its GPU; ``extent`` and ``copied`` are those of square matrices."""
    count = processors()
    here, there = {}, {}
    for name in hosts.HOST.multiplications:
        n = extent if name in ("float32", "float64", "complex64", "complex128") else extent // 4
        a, b = _matrices(n, name)
        with backend("numpy"):
            seconds = _seconds(matmul, a, b)
        here[name] = n**3 / max(seconds - 3 * a.nbytes / (hosts.HOST.product_bytes * count),
                                seconds / 2) / count
        there[name] = _on_gpu(*_matrices(extent, name))
    x = np.ones((copied, copied), np.float32)
    vector, into = x[0].copy(), np.zeros_like(x)
    with backend("numpy"):
        product = _seconds(np.matmul, x, vector)
        transposed = _seconds(ascontiguousarray, x.T)
    copy = _seconds(np.copyto, into, x)
    pageable, pinned = _link(x.reshape(-1).view(np.uint8))
    few = np.ones((64, 64), np.float32)
    with backend("cuda"):
        call = _seconds(matmul, few, few)
    return hosts.HOST.changed({"multiplications": here, "gpu_multiplications": there,
                         "product_bytes": x.nbytes / product / count,
                         "copied_bytes": x.nbytes / copy,
                         "transposed_bytes": x.nbytes / transposed / min(count, 16),
                         "packed_bytes": pageable / min(count, 16)**0.7, "link_bytes": pinned,
                         "call": call})


def _matrices(n: int, name: str) -> Iterator[np.ndarray]:
    return (random_array(np, (n, n), name, seed, below=_BELOW) for seed in range(2))


def _on_gpu(a: np.ndarray, b: np.ndarray) -> float:
    """Multiplications in a second of matrices that are there."""
    gpu = Gpu()
    x, y = map(gpu.rival.asarray, (a, b))
    return len(a)**3 / _seconds(matmul, x, y, matmul(x, y), on=gpu)


def _link(x: np.ndarray) -> tuple[float, float]:
    """Bytes in a second to the device, from pageable memory and from pinned memory."""
    import cupy

    from ..engines.host_cuda import current_ring

    ring = current_ring()
    there, pinned = cupy.cuda.alloc(x.nbytes), ring.link.pinned(x.nbytes)

    def staged() -> None:
        ring.upload(x, there.ptr, True).wait()
        ring.link.synchronize()

    def direct() -> None:
        ring.link.upload(there.ptr, pinned.ctypes.data, x.nbytes)
        ring.link.synchronize()

    return x.nbytes / _seconds(staged), x.nbytes / _seconds(direct)
