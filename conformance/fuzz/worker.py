"""Calls in child processes: what crashes or hangs there is found, and its call is known."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from multiprocessing import connection, get_context, set_forkserver_preload
from typing import Any

import cuteblas

from .calls import Call, Program
from .compare import Fault, compare
from .generate import program
from .sides import POOLS, Side, side

__all__ = ["METHODS", "Broken", "Found", "Job", "Team", "attempt", "first_failing"]

METHODS = {"cuda": "forkserver", "cuda-host": "forkserver"}
"""How processes begin, by backend, where it is not by ``fork``: a child of a process that has used
CUDA cannot use it. They come from a process that has imported what they need, and nothing that
knows of CUDA."""
_POISONED = ("cudaErrorMisaligned", "cudaErrorIllegal", "cudaErrorLaunchFailure",
             "CUDA_ERROR_MISALIGNED", "CUDA_ERROR_ILLEGAL", "CUDA_ERROR_LAUNCH_FAILED",
             "cudaErrorAssert")
"""Errors after which a process cannot use its GPU any more."""
_EVERY = 0.5                                    # seconds between two reports of a worker


class Broken(Exception):
    """A worker cannot work, whatever it should call."""


def _context(backend: str) -> Any:
    """What makes processes and what they share."""
    method = METHODS.get(backend, "fork")
    if method == "forkserver":
        set_forkserver_preload([__name__])
    return get_context(method)


def _compared(call: Call, answers: Side) -> Fault | None:
    """The result of :func:`compare`; an error that reaches it, as of a kernel that shows when
    memory is read, is a fault."""
    try:
        return compare(call, answers)
    except Exception as error:
        return Fault("error", f"{type(error).__name__}: {str(error)[:300]}, {_place_of(error)}")


def _place_of(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {frame.name} of {os.path.basename(frame.filename)}"


@dataclass(frozen=True)
class Job:
    """What a worker does: programs ``first``, ``first + step`` ... of a seed, until a number or a
    time is reached."""

    backend: str
    seed: int
    first: int
    step: int
    stop: int | None
    function: str | None = None

    def program(self, index: int) -> Program:
        """The program of an index."""
        return program(self.seed * 10**9 + index, POOLS[self.backend], self.function)


@dataclass
class Found:
    """A fault, and the programs that ran before in the same process."""

    index: int
    call: int
    fault: Fault
    began: int
    program: Program = field(default_factory=lambda: Program(()))


def attempt(programs: Sequence[Program], backend: str, seconds: float = 60.0) -> Fault | None:
    """Run programs in a fresh process; the fault of the last call, a crash or a hang."""
    context = _context(backend)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_attempt, args=(programs, backend, sender), daemon=True)
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return Fault("hang", f"no answer after {seconds:.0f} s")
        return receiver.recv()
    except EOFError:
        child.join()
        return Fault("crash", _ended(child.exitcode))
    finally:
        receiver.close()
        child.kill()
        child.join()


def first_failing(programs: Iterator[Program], backend: str, what: str, seconds: float = 60.0,
                  end: float = float("inf")) -> Program | None:
    """The first program with a fault of a kind at its last call, of those that are tried until
    ``end`` on the clock ``time.monotonic``: one after the other in one process, and then alone."""
    known: list[Program] = []
    context = _context(backend)
    while batch := list(islice(programs, 400)):
        current = context.Value("q", 0, lock=False)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_try, args=(batch, backend, what, end, current, sender),
                                daemon=True)
        child.start()
        sender.close()
        try:
            seen = -1
            while not receiver.poll(max(min(seconds, end - time.monotonic()), 0.0)):
                if time.monotonic() >= end:
                    return None
                if current.value == seen:
                    break
                seen = current.value
            else:
                index = receiver.recv()
                if index is None:
                    continue
                known = [batch[index]]
        except EOFError:
            known = [batch[current.value]]
        finally:
            receiver.close()
            child.kill()
            child.join()
        at = batch.index(known[0]) if known else current.value
        fault = attempt([batch[at]], backend, seconds)
        if fault is not None and fault.what == what:
            return batch[at]
        programs = chain(batch[at + 1:], programs)
        known = []
    return None


def _try(programs: Sequence[Program], backend: str, what: str, end: float, current: Any,
         sender: Any) -> None:
    _quiet()
    answers = side(backend)
    found = None
    with answers.ready():
        for index, each in enumerate(programs):
            if time.monotonic() >= end:
                break
            current.value = index
            faults = [_compared(call, answers) for call in each.calls]
            fault = faults[-1]
            if fault is not None and fault.what == what:
                found = index
                break
    sender.send(found)
    sender.close()
    os._exit(0)


def _attempt(programs: Sequence[Program], backend: str, sender: Any) -> None:
    _quiet()
    answers = side(backend)
    fault = None
    with answers.ready():
        for each in programs:
            for call in each.calls:
                fault = _compared(call, answers)
    sender.send(fault)
    sender.close()
    os._exit(0)


def _quiet() -> None:
    """Crashes are reported by the parent."""
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with status {code}"


def _work(job: Job, current: Any, deadline: float, sender: Any) -> None:
    _quiet()
    try:
        _compare_all(job, current, deadline, sender)
    except Exception:
        sender.send(("broken", traceback.format_exc()))
    sender.close()
    os._exit(0)


def _compare_all(job: Job, current: Any, deadline: float, sender: Any) -> None:
    """Send what is found, and what was done."""
    answers = side(job.backend)
    counts: Counter[str] = Counter()
    reported = time.monotonic()
    index = job.first
    cuteblas.reset_stats()
    with answers.ready():
        while (job.stop is None or index < job.stop) and time.monotonic() < deadline:
            current.value = index
            made = job.program(index)
            for number, call in enumerate(made.calls):
                fault = _compared(call, answers)
                counts[call.function] += 1
                if fault is not None:
                    sender.send(("fault", Found(index, number, fault, job.first)))
                    if any(words in fault.detail for words in _POISONED):
                        sender.send(("counts", counts))
                        sender.send(("poisoned", None))
                        return
            index += job.step
            if time.monotonic() - reported > _EVERY:
                sender.send(("counts", counts))
                counts, reported = Counter(), time.monotonic()
    sender.send(("counts", counts))
    sender.send(("routes", _routes()))
    sender.send(("end", None))


def _routes() -> Counter[tuple[str, str]]:
    """Which families of kernels and other routes answered, for each function."""
    found: Counter[tuple[str, str]] = Counter()
    for function, groups in cuteblas.stats().items():
        for route, count in groups.get("calls", {}).items():
            found[function, route] += count
    return found


class _Member:
    """A worker process and what is known of it."""

    def __init__(self, job: Job, deadline: float):
        self.job = job
        context = _context(job.backend)
        self.current = context.Value("q", job.first, lock=False)
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(job, self.current, deadline, sender),
                                       daemon=True)
        self.process.start()
        sender.close()
        self.seen = job.first
        self.since = time.monotonic()

    def end(self) -> None:
        self.receiver.close()
        self.process.kill()
        self.process.join()


class Team:
    """Workers that share the programs of a seed.

    Parameters
    ----------
    backend : str
    seed : int
    processes : int
    programs : int, optional
        How many programs there are.
    deadline : float
        On the clock ``time.monotonic``.
    hang : float
        Seconds after which a program counts as hanging.
    function : str, optional
        The only one to be called.
    """

    def __init__(self, backend: str, seed: int, processes: int, programs: int | None,
                 deadline: float, hang: float, function: str | None = None):
        self.counts: Counter[str] = Counter()
        self.routes: Counter[tuple[str, str]] = Counter()
        self._deadline, self._hang = deadline, hang
        self._members = [_Member(Job(backend, seed, i, processes, programs, function), deadline)
                         for i in range(processes)]

    def __len__(self) -> int:
        return len(self._members)

    def next(self, seconds: float) -> list[Found]:
        """What was found within some time.

        Raises
        ------
        Broken
            If a worker cannot work.
        """
        found: list[Found] = []
        waiting = {member.receiver: member for member in self._members}
        for ready in connection.wait(list(waiting), seconds):
            member = waiting[ready]                 # type: ignore[index]
            while member in self._members and member.receiver.poll():
                found += self._received(member)
        for member in self._members:
            if member.current.value != member.seen:
                member.seen, member.since = member.current.value, time.monotonic()
            elif time.monotonic() - member.since > self._hang:
                found.append(self._lost(member,
                                        Fault("hang", f"no answer after {self._hang:.0f} s")))
                break
        return found

    def _received(self, member: _Member) -> list[Found]:
        """Take note of one message."""
        try:
            kind, what = member.receiver.recv()
        except EOFError:
            return [self._lost(member, None)]
        if kind == "fault":
            what.program = member.job.program(what.index)
            return [what]
        if kind == "counts":
            self.counts += what
        elif kind == "routes":
            self.routes += what
        elif kind == "poisoned":
            self._lost(member, Fault("poisoned", ""))
        elif kind == "broken":
            raise Broken(what)
        else:
            member.end()
            self._members.remove(member)
        return []

    def _lost(self, member: _Member, fault: Fault | None) -> Found:
        """A worker crashed or hangs: another continues after its program."""
        index = member.current.value
        member.process.join(1 if fault is None else 0)
        fault = fault or Fault("crash", _ended(member.process.exitcode))
        member.end()
        self._members.remove(member)
        job = member.job
        self._members.append(_Member(replace(job, first=index + job.step), self._deadline))
        made = job.program(index)
        return Found(index, len(made.calls) - 1, fault, job.first, made)

    def end(self) -> None:
        """End all workers."""
        for member in self._members:
            member.end()
        self._members.clear()
