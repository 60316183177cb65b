"""What a call would run, and why; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..engines.blocked import method
from ..engines.dispatch import NOTHING, ByName, kind_of, own_call
from ..engines.emulator import EMULATOR, REHEARSAL
from ..engines.engine import Engine
from ..engines.exact import words_for
from ..engines.execution import Execution
from ..engines.memory import Memory, new_memory
from ..engines.placement import Work, copy_work, may_move, where_it_runs
from ..engines.problems import copy_problem, has_kernels
from ..engines.settings import answered_libraries, current_backend, limited
from .algorithms import (
    AS_PLANNED,
    Algorithm,
    check_variant,
    checked_algorithm,
    checked_precision,
    refuse_variant,
)
from .copy import check_out, checked_order, why_not_words
from .gufunc import MatmulArguments, Product, resolve_product, single_out
from .routing import COPY, UFUNC, NumpyCall, Resolved, reason_of, resolve, settle_call
from .signatures import Card, EpilogueLike, Order, Precision

if TYPE_CHECKING:
    from ..planning.floors import Estimate
    from ..planning.plan import Plan
    from ..planning.problem import DeviceInfo


@dataclass(frozen=True, repr=False)
class Explanation:
    """The explanation of a call: the kernel that it would run, or why there is none.

    ``print`` shows the kernel, the expected time and what bounds it, copies and fallbacks.
    :meth:`verbose` shows everything that is known. A notebook displays an explanation as a page.

    Attributes
    ----------
    call : str
        The call: function, dtypes, shapes.
    runs_on : str
        What runs the call; for a delegated call, also why.
    copies : tuple of str
        The operands that are copied first and the results that are copied afterwards, and why.
    plan : Plan or None
        What the kernels would do; ``None`` if there are no kernels for the call.
    copying_s : float
        The expected time of ``copies``, in seconds.

    Examples
    --------
    >>> a = np.zeros((4096, 4096), np.float32)
    >>> explanation = cuteblas.explain(a, a.T, precision="ieee", device="h200")
    >>> explanation.family, explanation.estimate.bound, "__global__" in explanation.source
    ('gemm_simt', 'arithmetic', True)
    """

    call: str
    runs_on: str
    copies: tuple[str, ...] = ()
    plan: Plan | None = None
    copying_s: float = 0.0

    @property
    def family(self) -> str:
        """The family of the plan's kernels, such as ``"gemm_simt"``, empty without a plan."""
        return "" if self.plan is None else self.plan.family

    @property
    def source(self) -> str:
        """The CUDA C++ of the plan's kernels, empty without a plan. :attr:`full_source` has the
        device functions too."""
        return "" if self.plan is None else self.plan.source

    @property
    def full_source(self) -> str:
        """The CUDA C++ that the compiler gets, empty without a plan: each kernel with the device
        functions that it calls."""
        return "" if self.plan is None else self.plan.full_source

    @property
    def estimate(self) -> Estimate | None:
        """The expected time in seconds (``.seconds``), with that of ``copies``, what bounds it
        (``.bound``) and the floor of the plan (``.floor``); ``None`` without a plan.
        """
        if self.plan is None:
            return None
        from ..planning.floors import estimate

        found = estimate(self.plan)
        return found if found.seconds is None else replace(found, seconds=found.seconds
                                                           + self.copying_s)

    def verbose(self) -> str:
        """Everything that is known: layouts, kernel, tile, launches, memory accesses, work and
        floor.

        Examples
        --------
        >>> import cuteblas, numpy
        >>> "global load A" in cuteblas.explain(numpy.ones((64, 64)), numpy.ones((64, 64))).verbose()
        True
        """
        rows = [("runs on", self.runs_on), *(("copies", copied) for copied in self.copies)]
        if self.plan is not None:
            from ..planning.words import plan_rows

            rows += plan_rows(self.plan)
        if answered := [library for libraries in answered_libraries for library in libraries()]:
            rows.append(("installed in",
                         f"{' and '.join(answered)}, whose own functions run this way too"))
        return "\n".join((*_columns(self._rows()), "", self.call, *_columns(rows)))

    @property
    def _where(self) -> str:
        if self.plan is None or not self.plan.launches:
            return ""
        here = self.runs_on.partition(";")[0].partition(",")[0]
        if here.startswith("cuda:"):
            return f"on {here}, "
        return {"NumPy": "NumPy does this here; on a GPU ",
                "the emulator": "in the emulator, "}.get(here, "")

    def _rows(self) -> list[tuple[str, str]]:
        """What a user needs: kernel, time, copies and fallbacks."""
        if self.plan is None:
            return [("kernel", f"none, {self.runs_on}"), ("time", "NumPy's, not estimated"),
                    ("copies", "none")]
        from ..planning.words import kernel_words, time_words

        kernel = kernel_words(self.plan)
        copies = [*self.copies, *self.plan.copied]
        return [("kernel", self._where + kernel),
                ("time", time_words(self.plan, self.estimate)),     # type: ignore[arg-type]
                ("copies", "; ".join(copies) or "none"),
                *(row for row in (("measured", self.plan.measured),
                                  ("fallback", self.plan.fallback)) if row[1])]

    def __str__(self) -> str:
        return "\n".join(_columns([*self._rows(), ("call", f"{self.call}; .verbose() says more")]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from ..planning.pages import page

        return page(self.call, [*self._rows(), *([("runs on", self.runs_on)] if self.plan else [])],
                    self.plan)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    """Lines of names and texts; a text may have several, of which the first has the name."""
    width = max(len(name) for name, _ in rows)
    lines, previous = [], None
    for name, text in rows:
        for line in text.splitlines():
            lines.append(f"  {name if name != previous else '':<{width}}  {line}")
            previous = name
    return lines


def explain(x1: Any, x2: Any, /, out: Any = None, *, epilogue: EpilogueLike = None,
            precision: Precision | None = None, variant: str | None = None,
            device: Card | DeviceInfo | None = None,
            **arguments: Unpack[MatmulArguments]) -> Explanation:
    """Explain what :func:`cuteblas.matmul` would run for these arguments, and why.

    Without a GPU, and for NumPy arrays, plans are made for an H200.

    Parameters
    ----------
    x1, x2, out, epilogue, precision, variant, axes, axis, keepdims, casting, order, dtype, subok, signature
        As in :func:`cuteblas.matmul`. Elements are not read.
    device : {"a100", "l40s", "rtx4090", "h100", "h200", "b200"} or DeviceInfo, optional
        Plan for this card, whatever this machine has. Only the H200 was measured; plans for the
        others use their data sheets.

    Returns
    -------
    Explanation
        ``print`` it, or use ``.plan``, ``.estimate``, ``.copies``, ``.runs_on``, ``.source``,
        ``.full_source`` and ``.verbose()``.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        The errors of ``matmul``; also for an unknown device.

    Examples
    --------
    >>> import cuteblas, numpy
    >>> cuteblas.explain(numpy.ones((3, 4), object), numpy.ones((4, 5)))
      kernel  none, NumPy: there are no kernels for object
      time    NumPy's, not estimated
      copies  none
      call    matmul: object (3, 4) @ float64 (4, 5) -> object (3, 5); .verbose() says more
    """
    checked_precision(precision)
    out = single_out(out)
    if (call := own_call(x1, x2, out, epilogue)) is not None:
        options = {"epilogue": epilogue, "precision": precision, "variant": variant,
                   "device": device, **arguments}
        return call(explain, (x1, x2, out), options)
    algorithm = checked_algorithm(precision, variant, "gemm")
    card = device_for(device)
    if epilogue is not None:
        return _explain_fused(x1, x2, out, epilogue, algorithm, card, arguments)
    asked = NumpyCall("matmul", np.matmul, (x1, x2), out, arguments, rules=UFUNC)
    resolved = resolve(asked, EMULATOR)
    if isinstance(resolved, str):
        refuse_variant(variant, reason_of(resolved))
        return Explanation(f"matmul: {type(x1).__name__} @ {type(x2).__name__}",
                           f"NumPy: {reason_of(resolved)}")
    if not resolved.engine.on_host:
        settle_call(asked, resolve_product)
    (first, second), target = resolved.memories, resolved.out_memory
    planned, runs_on = _place(
        resolved, card, lambda: resolved.work(resolve_product(first, second, target, **arguments)),
        lambda: None if arguments else words_for(*resolved.arrays))
    return explain_product_of(first, second, target, planned, runs_on, algorithm, arguments)


class _Unexecuted(Execution):
    """A call that is planned and not run: its first plan, and the copies before and after."""

    def __init__(self, device: DeviceInfo, engine: Engine, element: str | None = None):
        super().__init__("explain", engine)
        self.recorder, self.device, self.element = None, device, element
        self.planned: Plan | None = None
        self.copies: list[str] = []
        self.copying_s = 0.0

    def plan(self, problem: Any, x: Any) -> Plan:
        from ..engines.tuning import plan_for
        from ..planning.problem import with_matrices

        if (element := self.element) is not None:
            problem = with_matrices(problem, lambda _role, x: replace(x, dtype=element))
        plan = plan_for(problem, self.device)
        if self.planned is None:
            self.planned = plan
        return plan

    def run_plan(self, plan: Plan, *_arrays: Any) -> Plan:
        return plan

    def count(self, kind: str, detail: str, purpose: str = "") -> None:
        if kind == "copies":
            self.copies.append(detail)

    def move(self, src: Any, dst: Any, variant: str | None = None, purpose: str = "") -> None:
        if self.planned is None:
            self.plan(copy_problem(self.memory(src), self.memory(dst), variant), src)
        else:
            self.assign(dst, src)

    def assign(self, dst: Any, src: Any) -> None:
        from ..planning.floors import casting_seconds

        x, y = self.memory(src), self.memory(dst)
        self.copying_s += casting_seconds(x.size * (x.dtype.itemsize + y.dtype.itemsize),
                                          self.device)

    def explanation(self, call: str, runs_on: str) -> Explanation:
        return Explanation(call, runs_on, tuple(self.copies), self.planned, self.copying_s)


def explain_product_of(x1: Memory, x2: Memory, out: Memory | None, device: DeviceInfo,
                       runs_on: str, algorithm: Algorithm = AS_PLANNED,
                       arguments: ByName = NOTHING,
                       element: str | None = None) -> Explanation:
    """The explanation of a product of operands that need not exist; ``element`` is a type of the
    same size that NumPy lacks."""
    from .gemm import GemmArguments
    from .staging import arrays_at, run_product

    product = resolve_product(x1, x2, out, **arguments)
    call = f"{'blas.gemm' if element else 'matmul'}: {_described(x1, x2, out or product, element)}"
    if not has_kernels(product.dtype):
        refuse_variant(algorithm.variant, f"there are no kernels for {product.dtype}")
        return Explanation(call, f"NumPy: there are no kernels for {product.dtype}")
    run = _Unexecuted(device, REHEARSAL, element)
    a, b, *c = arrays_at(x1, x2, *([] if out is None else [out]))
    run_product(run, product, GemmArguments(a, b, out=c[0] if c else None, algorithm=algorithm))
    return run.explanation(call, runs_on)


def _explain_fused(x1: Any, x2: Any, out: Any, epilogue: Any, algorithm: Algorithm,
                   card: DeviceInfo | None, arguments: Any) -> Explanation:
    from .epilogues import as_bound
    from .fused import resolve_fused, run_fused
    from .gemm import GemmArguments, gemm

    bound = as_bound(epilogue)
    resolved, product = resolve_fused(x1, x2, out, bound, arguments, EMULATOR)
    device, runs_on = _place(resolved, card, partial(resolved.work, product))
    run = _Unexecuted(device, REHEARSAL if resolved.engine.on_host else resolved.engine)
    with resolved.on_device() as (a, b):
        run_fused(run, gemm, product, GemmArguments(a, b, out=resolved.out, epilogue=bound,
                                                    algorithm=algorithm))
    first, second = resolved.memories
    shown = _described(first, second, resolved.out_memory or product)
    return run.explanation(f"matmul with an epilogue: {shown}", runs_on)


def _described(x1: Memory, x2: Memory, result: Memory | Product,
               element: str | None = None) -> str:
    first, second, c = (f"{element or x.dtype} {x.shape}" for x in (x1, x2, result))
    return f"{first} @ {second} -> {c}"


def explain_copy(a: Any, order: Order = "C", *, out: Any = None, variant: str | None = None,
                 device: Card | DeviceInfo | None = None) -> Explanation:
    """Explain what :func:`cuteblas.copy` would run, and why.

    ``explain_copy(a.T)`` explains a materialised transpose, ``explain_copy(a.T, out=a)`` one in
    place. Without a GPU, and for NumPy arrays, plans are made for an H200.

    Parameters
    ----------
    a, order, out, variant
        As in :func:`cuteblas.copy`. Elements are not read.
    device
        As in :func:`explain`.

    Returns
    -------
    Explanation
        ``print`` it, or use its attributes.

    Raises
    ------
    ValueError
        For an unknown order, in NumPy's words; for a variant that is unknown or does not take this
        copy; for an unknown device.

    Examples
    --------
    >>> explanation = cuteblas.explain_copy(np.zeros((8192, 8192), np.float32).T, device="h200")
    >>> explanation.family, explanation.copies
    ('transpose', ())
    """
    if (call := own_call(a, out)) is not None:
        return call(explain_copy, (a, order), {"out": out, "variant": variant, "device": device})
    order = checked_order(order)  # type: ignore[assignment]
    check_variant(variant, "copy")
    card = device_for(device)
    resolved = resolve(NumpyCall("copy", np.copy, (a,), out, rules=COPY), EMULATOR)
    assert isinstance(resolved, Resolved)
    (array,), (memory,) = resolved.arrays, resolved.memories
    if out is not None:
        check_out(array, out)
    strides = (new_memory(memory, order) if out is None else out).strides

    def in_blocks() -> str | None:
        apart = out is None or not np.may_share_memory(array, out)
        found = method(array.shape, strides, array.strides, array.dtype) if apart else None
        return None if found is None else f"in blocks, {found.threads} thread{'s' * (found.threads > 1)}"

    planned, runs_on = _place(resolved, card, lambda: copy_work(array, strides), in_blocks)
    return explain_copy_of(memory, resolved.out_memory, planned, runs_on, order, variant)


def explain_copy_of(source: Memory, out: Memory | None, device: DeviceInfo, runs_on: str,
                    order: str = "C", variant: str | None = None,
                    element: str | None = None) -> Explanation:
    """The explanation of a copy of an array that need not exist; ``element`` as for products."""
    from .staging import arrays_at

    call = f"copy: {element or source.dtype} {source.shape} " + (f"in order {order!r}"
                                                                 if out is None else "into out")
    if (reason := why_not_words(source.dtype)) is not None:
        refuse_variant(variant, reason)
        return Explanation(call, f"NumPy: {reason}")
    run = _Unexecuted(device, REHEARSAL)
    a, *target = arrays_at(source, *([] if out is None else [out]))
    if target:
        run.copy_into(a, target[0], variant)
    else:
        run.new_like(a, order, variant)
    return run.explanation(call, runs_on if run.planned else "out is the array itself")


def device_for(device: str | DeviceInfo | None) -> DeviceInfo | None:
    if device is None:
        return None
    from ..planning.problem import DeviceInfo as Info
    from ..planning.problem import device_named

    return device if isinstance(device, Info) else device_named(device)


def _place(resolved: Resolved, card: DeviceInfo | None, work: Callable[[], Work],
           by_numpy: Callable[[], str | None] = lambda: None) -> tuple[DeviceInfo, str]:
    """The device to plan for, and who does the work; ``by_numpy`` says how NumPy does it."""
    if card is not None:
        return limited(card), f"{card.name}, which was asked for"
    x = resolved.arrays[0]
    device = resolved.engine.device(x)
    if kind_of(x) == "cupy":
        return device, f"cuda:{x.data.device_id}, {device.name}"
    moves = may_move(*resolved.arrays, resolved.out)
    runs_on = where_it_runs(work(), device.name) if moves else on_the_host(device)
    if runs_on.startswith("NumPy;") and (words := by_numpy()) is not None:
        runs_on = runs_on.replace("NumPy;", f"NumPy, {words};", 1)
    return device, runs_on


def on_the_host(device: DeviceInfo) -> str:
    if current_backend() == "emulator":
        return "the emulator, on this CPU"
    return f"NumPy; the plan below is what {device.name} would run (backend('emulator') runs it on this CPU)"
