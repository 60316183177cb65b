"""Programs that start without compiling: recorded calls are compiled and loaded before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from operator import index
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..engines.replay.recording import listening
from .explain import device_for
from .gemm import new_matrices, problem_of
from .signatures import Card, Precision

if TYPE_CHECKING:
    from ..planning.plan import Plan
    from ..planning.problem import DeviceInfo, Problem

_FORM = "cuteblas problems 1"

_START_SET = [*((n, n, n) for n in (1024, 1000, 2048, 2000, 4096, 4000, 8192, 1200, 1536, 5000,
                                    768)), (20000, 1024, 784), (60000, 256, 100),
              (20000, 100, 1024), (256, 1024, 20000)]
"""(m, n, k), the most probable first: kernels of these run many others."""


@dataclass
class Recording:
    """The problems that calls ran, each once, without elements or the card."""

    problems: list[Problem] = field(default_factory=list)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the problems to a file, as JSON; replace it if it exists."""
        import json

        text = json.dumps({"form": _FORM, "problems": self.problems}, indent=1, default=_written)
        Path(file).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Recording:
        """Read a file that :meth:`save` wrote."""
        import json

        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
            if data["form"] != _FORM:
                raise ValueError(f"its form is {data['form']!r}, not {_FORM!r}")
            return cls([_read(problem, _classes()) for problem in data["problems"]])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(file)} is not a recording of this version of cuteblas: {error}"
            ) from error


@dataclass(frozen=True)
class Warmup:
    """The summary that :func:`warmup` returns.

    Attributes
    ----------
    device : str
        The card.
    plans, kernels : int
        The numbers of plans and of kernels.
    compiled : int
        The number of kernels that the cache on disk did not have.
    loaded : bool
        Whether the kernels are loaded on the device.
    workspace_bytes : int
        Scratch memory that CuPy's pool now holds for the current stream.
    seconds : float
        The time that it took.
    """

    device: str
    plans: int
    kernels: int
    compiled: int
    loaded: bool
    workspace_bytes: int
    seconds: float

    def __str__(self) -> str:
        where = f"loaded, with {self.workspace_bytes / 2**20:.1f} MiB of workspace" if self.loaded else "in the cache on disk"
        return (
            f"{self.plans} {'plan' if self.plans == 1 else 'plans'} for {self.device}: {self.kernels} "
            f"{'kernel' if self.kernels == 1 else 'kernels'}, {self.compiled} compiled, {where}; {self.seconds:.2f} s"
        )


@contextmanager
def record() -> Iterator[Recording]:
    """Record what calls run inside a ``with`` block, in all threads, so that :func:`warmup` can
    prepare them elsewhere.

    Returns
    -------
    context manager
        It yields a ``Recording`` with the ``problems`` of the calls and ``save(file)``. Calls that
        NumPy computes are not recorded.

    See Also
    --------
    cuteblas.warmup : compiles and loads them.

    Examples
    --------
    >>> a = np.ones((40, 30), np.float32)
    >>> with cuteblas.backend("emulator"), cuteblas.record() as calls:
    ...     c = cuteblas.matmul(a, a.T)
    >>> [(p.m, p.n, p.k) for p in calls.problems]
    [(40, 40, 30)]
    """
    found: dict[Problem, None] = {}
    recording = Recording()
    with listening(lambda plan: found.setdefault(plan.problem)):
        try:
            yield recording
        finally:
            recording.problems.extend(found)


def warmup(calls: Recording | str | os.PathLike[str] | Iterable[tuple[Sequence[int], Sequence[int]]]
           | None = None, *, dtype: Any = np.float32, order: Literal["CC", "CF", "FC", "FF"] = "CC",
           precision: Precision = "auto", device: Card | DeviceInfo | None = None) -> Warmup:
    """Compile and load the kernels of calls, so that the first call does not wait and can be
    captured in a CUDA graph.

    On the current device, ``warmup`` loads the kernels and puts scratch memory for the largest call
    into CuPy's pool, for the current stream. For a named card, it compiles the kernels into the
    cache on disk; that needs no GPU.

    Parameters
    ----------
    calls : Recording, path, or iterable of pairs of shapes, optional
        The recording of :func:`record`, the file that it was saved to, or shapes of operands of
        ``matmul``. Without it, the start set: products and transposes of typical extents that NumPy
        programs move to the GPU, the most probable first.
    dtype : dtype
        The type of operands that are given by shapes; float32 by default.
    order : str
        C or F for each operand, the order of its last two axes: ``"CF"`` is ``matmul(a, b.T)`` of
        arrays in C order.
    precision : str
        As in :func:`matmul`, for operands that are given by shapes.
    device : str or DeviceInfo, optional
        A card by name instead of the current device: ``"h200"``, ``"a100"`` ...

    Returns
    -------
    Warmup
        A summary; ``print`` shows it in one line.

    Raises
    ------
    ValueError
        For operands that ``matmul`` refuses, a file that is not a recording, an unknown card, or
        without a GPU if no card is named.
    RuntimeError
        While CuPy's current stream is captured.
    CompileError, MissingDependency
        If a kernel does not compile, or NVRTC is missing.

    See Also
    --------
    cuteblas.record : records what calls run.

    Examples
    --------
    >>> done = cuteblas.warmup([((64, 32), (32, 48))], device="h200")
    >>> done.plans, done.loaded
    (1, False)
    """
    start = perf_counter()
    from concurrent.futures import ThreadPoolExecutor

    from .. import runtime
    from ..codegen.architectures import target_architecture
    from ..emulator.compiler import build
    from ..emulator.errors import CompilerError
    from ..engines.settings import limited
    from ..runtime.compiler import is_compiled
    from ..runtime.mover import BUILT, SOURCE

    card = device_for(device)
    here = card is None
    if card is None:
        if (reason := runtime.why_unavailable()) is not None:
            raise ValueError(
                f"warmup needs a GPU or the name of a card (device='h200', --device h200): {reason}"
            )
        if runtime.capturing():
            raise RuntimeError(
                "warmup cannot load kernels while a stream is being captured: call it before the capture"
            )
        card = runtime.device_info()
    target = limited(card)
    problems = _start_set() if calls is None else _problems(calls, np.dtype(dtype), order,
                                                            precision)
    if calls is None:
        with suppress(CompilerError):               # Python's threads move arrays, too
            build(SOURCE.read_text("utf-8"), **BUILT)
    plans = [_plan(problem, target) for problem in dict.fromkeys(problems)]
    kernels = {(launch.kernel.name, launch.kernel.digest): launch.kernel for plan in plans
               for launch in plan.launches}

    def compiled(kernel: Any) -> bool:
        arch = target_architecture(kernel.arch, target.arch)
        found = is_compiled(kernel, arch)
        runtime.compile(kernel, arch)
        return not found

    with ThreadPoolExecutor(min(len(kernels), os.cpu_count() or 1) or 1) as pool:
        new = sum(pool.map(compiled, kernels.values()))
    workspace = max((plan.workspace_bytes for plan in plans), default=0) if here else 0
    if here:
        from ..engines.cuda import current_device, keep_in_pool, launcher_for

        for plan in plans:
            launcher_for(plan, current_device())
        keep_in_pool(workspace)
    return Warmup(target.name, len(plans), len(kernels), new, here, workspace,
                  perf_counter() - start)


def _plan(problem: Problem, device: DeviceInfo) -> Plan:
    from ..engines.tuning import plan_for
    from ..planning.gemm.grouped import plan_grouped
    from ..planning.problem import ChainProblem, GroupedProblem

    assert not isinstance(problem, ChainProblem)        # no call is planned so
    return plan_grouped(problem, device) if isinstance(problem, GroupedProblem) else plan_for(problem, device)


def _start_set() -> Iterator[Any]:
    """Problems of the tiles of products, and of transposes, that move between host and GPU."""
    from itertools import product

    from ..engines.placement import gpu_seconds
    from ..engines.problems import copy_problem
    from ..planning.streaming import Extents, schedule

    types = map(np.dtype, ("float64", "float32", "complex128", "complex64"))
    for (m, n, k), dtype, order in product(_START_SET, types, ("CC", "CF", "FC")):
        size = dtype.itemsize
        moved = Extents(m, n, k, 1, size, size, size, seconds=gpu_seconds(dtype, m * n * k))
        plan = schedule(moved, 1 << 40)
        assert plan
        for shape in {(len(tile.m), len(tile.n)) for tile in plan.tiles}:
            yield from (found := _problems([((shape[0], k), (k, shape[1]))], dtype, order, "auto"))
            yield from (replace(each, triangle="both") for each in found if each.is_gram)
            yield copy_problem(new_matrices(shape, dtype, "F"), new_matrices(shape, dtype, "C"))


def _problems(calls: Any, dtype: np.dtype, order: str, precision: str) -> list[Any]:
    if isinstance(calls, Recording):
        return calls.problems
    if isinstance(calls, (str, os.PathLike)):
        return Recording.load(calls).problems
    from ..engines.problems import has_kernels
    from .algorithms import checked_algorithm

    if len(order) != 2 or set(order) - {"C", "F"}:
        raise ValueError(
            f"warmup takes order='CC', 'CF', 'FC' or 'FF', a letter for each operand, got {order!r}"
        )
    if not has_kernels(dtype):
        raise ValueError(
            f"warmup cannot prepare products of {dtype}: there are no kernels for that type"
        )
    problems: list[Problem] = []
    for i, pair in enumerate(calls):
        try:
            first, second = pair
            shapes = tuple(map(index, first)), tuple(map(index, second))
        except (TypeError, ValueError):
            raise ValueError(
                f"warmup takes pairs of shapes, ((m, k), (k, n)), got {pair!r}"
            ) from None
        x1, x2 = (replace(new_matrices(shape, dtype, letter), address=(2 * i + j + 1) << 44)
                  for j, (shape, letter) in enumerate(zip(shapes, order, strict=True)))
        problems.append(problem_of(x1, x2, checked_algorithm(precision)))
    return problems


def _classes() -> dict[str, type]:
    from ..codegen.epilogue import EpilogueGraph, Node
    from ..planning import problem as p

    kinds = (p.GemmProblem, p.GroupedProblem, p.CopyProblem, p.ContractionProblem,
             p.ReductionProblem, p.Operand, p.Storage, p.Fusion, EpilogueGraph, Node)
    return {kind.__name__: kind for kind in kinds}


def _written(x: Any) -> Any:
    """What stands for an object that JSON does not have."""
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    return {"is": type(x).__name__} | {each.name: getattr(x, each.name)
                                       for each in fields(x) if each.init}


def _read(x: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(x, list):
        return tuple(_read(each, classes) for each in x)
    if not isinstance(x, dict):
        return x
    if "complex" in x:
        return complex(*x["complex"])
    return classes[x["is"]](**{name: _read(value, classes) for name, value in x.items()
                               if name != "is"})
