"""``python -m conformance.fuzz``: random calls on a backend, compared with NumPy."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter, deque
from dataclasses import replace
from functools import partial
from pathlib import Path

# before NumPy is imported: products are small, and processes many
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cuteblas.cli.command import INTERRUPTED, CommandError, ended

from .calls import Program, from_json, to_json
from .compare import Fault
from .registry import FUNCTIONS
from .report import python_of
from .shrink import shrunk, tidied
from .sides import BACKENDS, why_unavailable
from .worker import Broken, Found, Job, Team, attempt, first_failing

_LAST = 10.0
"""Seconds that calls may take to end when the time is over."""


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; 1 if a mismatch was found."""
    return ended(lambda: _main(_parser().parse_args(arguments)))


def _main(options: argparse.Namespace) -> int:
    if (reason := why_unavailable(options.backend)) is not None:
        raise CommandError(f"--backend {options.backend} cannot run here: {reason}")
    if options.replay is not None:
        return _replay(options)
    begin = time.monotonic()
    seconds = options.seconds if options.seconds is not None else 60.0 if options.calls is None else float("inf")
    limit = begin + seconds + max(options.shrink, _LAST)
    team = Team(options.backend, options.seed, options.processes, None, begin + seconds,
                options.hang, options.function)
    report, interrupted = _Report(options, limit), False
    try:
        while team and time.monotonic() < limit:
            for found in team.next(0.2):
                report.note(found)
            report.print_next()
            report.progress(team.counts.total(), time.monotonic() - begin)
            if options.calls is not None and team.counts.total() >= options.calls:
                break
        if team and time.monotonic() >= limit:
            print(f"{len(team)} of {options.processes} workers were still in a call",
                  file=sys.stderr)
    except Broken as broken:
        raise CommandError(f"a worker cannot work: {broken}") from broken
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        interrupted = True
    finally:
        team.end()
    report.limit = 0.0 if interrupted else min(limit, time.monotonic() + max(options.shrink, _LAST))
    while report.print_next():
        pass
    report.summary(team, time.monotonic() - begin)
    return 1 if report.faults else INTERRUPTED if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.fuzz",
        description="Random calls of every public function, "
        "compared with NumPy's own answers; a mismatch is shrunk to a few lines of Python. Exits with "
        "1 if there is one."
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="numpy",
        help="numpy; definition and host (CuPy arrays in host "
        "memory): all of our code but the kernels; emulator: the kernels on the CPU; cuda: the GPU"
    )
    parser.add_argument("--seconds", type=float, help="how long to run; 60 without --calls")
    parser.add_argument("--calls", type=int, help="about how many calls to make")
    parser.add_argument("--seed", type=int, default=0, help="of all choices")
    parser.add_argument("--function", choices=sorted(FUNCTIONS), metavar="NAME",
                        help="call this one only")
    parser.add_argument(
        "--replay",
        metavar="INDEX|FILE",
        help="run one program again, by its number with this seed or from a file "
        "that has its JSON line"
    )
    parser.add_argument("--processes", type=int, default=1, help="how many work side by side")
    parser.add_argument("--hang", type=float, default=180.0, metavar="SECONDS",
                        help="after which a call counts as hanging")
    parser.add_argument(
        "--shrink",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for shrinking a mismatch; 0: not at "
        "all. Those that are left when --seconds are over have this long together"
    )
    return parser


class _Report:
    """What is printed."""

    def __init__(self, options: argparse.Namespace, limit: float):
        self.options, self.limit = options, limit
        self._waiting: deque[Found] = deque()
        self.faults: Counter[tuple[str, str, str]] = Counter()
        self._terminal = sys.stderr.isatty()
        self._shown = 0.0

    def progress(self, calls: int, seconds: float) -> None:
        if self._terminal and seconds - self._shown > 0.5:
            self._shown = seconds
            print(
                f"\r{calls:,} calls in {seconds:.0f} s, {calls / seconds:,.0f} a second, {self.faults.total()} mismatches ",
                end="",
                file=sys.stderr,
                flush=True
            )

    def note(self, found: Found) -> None:
        """Count a mismatch; the first of its kind is to be printed."""
        call = found.program.calls[found.call]
        key = call.function, found.fault.what, re.sub(r"[-+0-9.e(), ]+", " ",
                                                      found.fault.detail)[:60]
        self.faults[key] += 1
        if self.faults[key] == 1:
            self._waiting.append(found)

    def print_next(self) -> bool:
        """Shrink and print one mismatch that waits for it, if there is one."""
        if not self._waiting:
            return False
        found = self._waiting.popleft()
        call = found.program.calls[found.call]
        if self._terminal:
            print(file=sys.stderr)
        print(
            f"=== {call.function}: {found.fault}   (--seed {self.options.seed} --replay {found.index})",
            flush=True
        )
        program = replace(found.program, calls=found.program.calls[:found.call + 1])
        simplest, fault = _isolated(program, found, self.options, self.limit)
        if simplest is None:
            late = time.monotonic() >= self.limit
            print(
                "    not shrunk: the time was over"
                if late
                else "    only after the calls before it in its process; its program by itself is answered rightly",
                flush=True
            )
            print(to_json(tidied(program)), flush=True)
            return True
        print(f"# {fault}")
        print(python_of(simplest, self.options.backend))
        print(f"# {to_json(simplest)}", flush=True)
        return True

    def summary(self, team: Team, seconds: float) -> None:
        if self._terminal:
            print(file=sys.stderr)
        calls = team.counts.total()
        print(
            f"\n{calls:,} calls on the backend {self.options.backend} in {seconds:.1f} s ({calls / seconds:,.0f} a second), seed "
            f"{self.options.seed}: {self.faults.total()} mismatches of {len(self.faults)} kinds"
        )
        routes: dict[str, list[str]] = {}
        families: Counter[str] = Counter()
        for (function, route), count in sorted(team.routes.items()):
            families[route.split(":")[0]] += count
            routes.setdefault(function, []).append(f"{route.split(':')[0]} {count}")
        for function, count in sorted(team.counts.items()):
            print(f"  {function:24}{count:8}")
        if families:
            print("answered by: " + ", ".join(f"{family} {count:,}"
                                              for family, count in families.most_common()))
        for (function, what, _detail), count in self.faults.most_common():
            print(f"  mismatch {count:6} x {function}: {what}")


def _isolated(program: Program, found: Found, options: argparse.Namespace,
              limit: float) -> tuple[Program | None, Fault | None]:
    """The simplest program that fails in the same way in a fresh process, with calls of the
    programs before it if it takes them; nothing is tried after the limit, on the clock
    ``time.monotonic``."""
    function = program.calls[-1].function

    def left() -> float:
        return max(min(options.hang, limit - time.monotonic()), 0.0)

    def fault_of(candidate: Program) -> Fault | None:
        if not (seconds := left()):
            return None
        fault = attempt([candidate], options.backend, seconds)
        return fault if fault is not None and fault.what == found.fault.what and candidate.calls[-1].function == function else None

    job = Job(options.backend, options.seed, found.began, options.processes, None, options.function)
    for before in (0, 10, 100, 1000):
        first = max(found.began, found.index - before * job.step)
        earlier = [call for index in range(first, found.index, job.step)
                   for call in job.program(index).calls]
        whole = replace(program, calls=(*earlier, *program.calls))
        if fault_of(whole) is not None:
            end = min(limit, time.monotonic() + options.shrink)
            failing = partial(first_failing, backend=options.backend, what=found.fault.what,
                              seconds=options.hang, end=end)
            simplest = shrunk(whole, failing, max(end - time.monotonic(), 0.0))
            return tidied(simplest), fault_of(simplest) or found.fault
        if first == found.began or not left():
            break
    return None, None


def _replay(options: argparse.Namespace) -> int:
    """Run one program again."""
    if options.replay.isdigit():
        program = Job(options.backend, options.seed, 0, 1, None,
                      options.function).program(int(options.replay))
    else:
        line = next(
            line
            for line in reversed(Path(options.replay).read_text(encoding="utf-8").splitlines())
            if '"calls"' in line
        )
        program = from_json(line.removeprefix("# "))
    failed = False
    for number in range(len(program.calls)):
        part = replace(program, calls=program.calls[:number + 1])
        fault = attempt([part], options.backend, options.hang)
        print(f"call {number}, {program.calls[number].function}: {fault or 'as NumPy'}")
        failed |= fault is not None
    print(python_of(tidied(program), options.backend))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
