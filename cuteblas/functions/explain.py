"""What a call would run, and why; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..engines.blocked import method
from ..engines.dispatch import NOTHING, ByName, kind_of, own_call
from ..engines.exact import words_for
from ..engines.memory import Memory, new_memory, overlap
from ..engines.placement import Work, copy_work, may_move, where_it_runs
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
from .gufunc import MatmulArguments, resolve_product, single_out
from .routing import COPY, UFUNC, NumpyCall, Resolved, reason_of, resolve, resolve_matmul
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
        return None if self.plan is None else self._expected(self.plan)

    def _expected(self, plan: Plan) -> Estimate:
        from ..planning.floors import estimate

        found = estimate(plan)
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
                ("time", time_words(self.plan, self._expected(self.plan))),
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
    from ..engines.emulator import EMULATOR

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
        resolve_matmul(asked)
    planned, runs_on = _place(resolved, resolved.arrays[0], card,
                              partial(_work_of_product, resolved, arguments))
    if runs_on.startswith("NumPy;") and not arguments and (words := words_for(*resolved.arrays)) is not None:
        runs_on = runs_on.replace("NumPy;", f"NumPy, {words};", 1)
    first, second = resolved.memories
    return explain_product_of(first, second, resolved.out_memory, planned, runs_on, algorithm,
                              arguments)


def explain_product_of(x1: Memory, x2: Memory, out: Memory | None, device: DeviceInfo,
                       runs_on: str, algorithm: Algorithm = AS_PLANNED,
                       arguments: ByName = NOTHING,
                       element: str | None = None) -> Explanation:
    """The explanation of a product of operands that need not exist; ``element`` is a type of the
    same size that NumPy lacks."""
    from ..engines.problems import has_kernels
    from ..engines.tuning import plan_for
    from .staging import stage

    product = resolve_product(x1, x2, out, arguments)
    shown = [f"{element or x.dtype} {x.shape}" for x in (x1, x2, product if out is None else out)]
    call = f"{'blas.gemm' if element else 'matmul'}: {shown[0]} @ {shown[1]} -> {shown[2]}"
    if not has_kernels(product.dtype):
        refuse_variant(algorithm.variant, f"there are no kernels for {product.dtype}")
        return Explanation(call, f"NumPy: there are no kernels for {product.dtype}")
    staging = stage(x1, x2, out, product, algorithm)
    problem = staging.problem
    if element is not None:
        a, b, c = (replace(x, dtype=element) for x in (problem.a, problem.b, problem.c))
        problem = replace(problem, a=a, b=b, c=c)
    given = (x1, staging.a), (x2, staging.b), (out, staging.c)
    copying = sum(_copying_seconds(before, staged.memory, device) for before, staged in given
                  if before and staged.reason)
    return Explanation(call, runs_on, staging.copies, plan_for(problem, device), copying)


def _copying_seconds(x: Memory, y: Memory, device: DeviceInfo) -> float:
    from ..planning.floors import casting_seconds

    return casting_seconds(x.size * (x.dtype.itemsize + y.dtype.itemsize), device)


def _explain_fused(x1: Any, x2: Any, out: Any, epilogue: Any, algorithm: Algorithm,
                   card: DeviceInfo | None, arguments: Any) -> Explanation:
    from ..engines.tuning import plan_for
    from .fused import fused_call

    resolved, call, casts = fused_call(x1, x2, out, epilogue, algorithm, arguments)
    device, runs_on = _place(resolved, call.arrays["a"], card,
                             partial(_work_of_product, resolved, arguments))
    shown = (
        f"matmul with an epilogue: {_described(call.arrays['a'])} @ {_described(call.arrays['b'])} -> "
        f"{_described(call.result if resolved.out is None else resolved.out)}"
    )
    copies = (*(reason for reason, _memory in casts), *call.copies)
    computed = np.dtype(call.problem.a.dtype)
    copying = sum(_copying_seconds(x, replace(x, dtype=computed), device) for _reason, x in casts)
    return Explanation(shown, runs_on, copies, plan_for(call.problem, device), copying)


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
    from ..engines.emulator import EMULATOR

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
    planned, runs_on = _place(resolved, array, card, lambda: copy_work(array, strides))
    if runs_on.startswith("NumPy;"):
        apart = out is None or not np.may_share_memory(array, out)
        found = method(array.shape, strides, array.strides, array.dtype) if apart else None
        if found is not None:
            runs_on = runs_on.replace(
                "NumPy;", f"NumPy, in blocks, {found.threads} thread{'s' * (found.threads > 1)};", 1
            )
    return explain_copy_of(memory, resolved.out_memory, planned, runs_on, order, variant)


def explain_copy_of(source: Memory, out: Memory | None, device: DeviceInfo, runs_on: str,
                    order: str = "C", variant: str | None = None,
                    element: str | None = None) -> Explanation:
    """The explanation of a copy of an array that need not exist; ``element`` as for products."""
    from ..engines.problems import copy_problem, in_place_problem
    from ..engines.tuning import plan_for

    call = f"copy: {element or source.dtype} {source.shape} " + (f"in order {order!r}"
                                                                 if out is None else "into out")
    if (reason := why_not_words(source.dtype)) is not None:
        refuse_variant(variant, reason)
        return Explanation(call, f"NumPy: {reason}")
    new, copies, copying = new_memory(source, order), tuple[str, ...](), 0.0
    if out is None or not overlap(source, out):
        problem = copy_problem(source, out or new, variant)
    elif (in_place := in_place_problem(source, out)) is not None:
        problem = replace(in_place, variant=variant)
    else:
        problem = copy_problem(source, new, variant)
        copies, copying = ("out: shares memory with the array",), _copying_seconds(new, out, device)
    return Explanation(call, runs_on, copies, plan_for(problem, device), copying)


def device_for(device: str | DeviceInfo | None) -> DeviceInfo | None:
    if device is None:
        return None
    from ..planning.problem import DeviceInfo as Info
    from ..planning.problem import device_named

    return device if isinstance(device, Info) else device_named(device)


def _place(resolved: Resolved, x: Any, card: DeviceInfo | None,
           work: Callable[[], Work]) -> tuple[DeviceInfo, str]:
    """The device to plan for, and who does the work."""
    if card is not None:
        return limited(card), f"{card.name}, which was asked for"
    device = resolved.engine.device(x)
    if kind_of(x) == "cupy":
        return device, f"cuda:{x.data.device_id}, {device.name}"
    if not may_move(*resolved.arrays, resolved.out):
        return device, on_the_host(device)
    return device, where_it_runs(work(), device.name)


def _work_of_product(resolved: Resolved, arguments: ByName) -> Work:
    first, second = resolved.memories
    return resolved.work(resolve_product(first, second, resolved.out_memory, arguments))


def on_the_host(device: DeviceInfo) -> str:
    if current_backend() == "emulator":
        return "the emulator, on this CPU"
    return f"NumPy; the plan below is what {device.name} would run (backend('emulator') runs it on this CPU)"


def _described(x: Any) -> str:
    return f"{x.dtype} {x.shape}"
