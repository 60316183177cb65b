"""Products that are planned once and executed often: ``plan(a, b).execute(a, b)``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..engines.dispatch import own_call
from ..engines.execution import Execution
from ..engines.memory import Ints, Memory
from ..engines.tuning import plan_for
from ..functions.explain import Explanation, on_the_host
from ..functions.gemm import finish, scalar_kind
from ..functions.gemm import prepare as prepare_product
from ..functions.signatures import Array, EpilogueLike, Flag, Precision, Promoted, Transposed
from ..planning.plan import Plan
from ..planning.problem import ScalarKind
from .arguments import Call, Request, prepare
from .calls import answered, execute, record, replayable, where
from .libraries import Place
from .types import type_name

_SCALARS = {"zero": "0", "one": "1", "value": "a number other than 0", "device": "a 0-d array"}


@dataclass(frozen=True)
class OperandLayout:
    """The layout of an operand that a plan requires; strides in bytes, 0 for extents of 1."""

    dtype: str
    shape: Ints
    strides: Ints
    alignment: int

    @classmethod
    def of(cls, x: Memory, dtype: str) -> OperandLayout:
        strides = tuple(s if n > 1 else 0 for s, n in zip(x.strides, x.shape, strict=True))
        return cls(dtype, x.shape, strides, x.alignment)

    def refusal(self, name: str, other: OperandLayout) -> str | None:
        """Why an operand is not the planned one; ``None`` if it is."""
        if other.dtype != self.dtype:
            return f"was made for {name} in {self.dtype}, but it is {other.dtype}"
        if other.shape != self.shape:
            return f"was made for {name} of shape {self.shape}, but it has shape {other.shape}"
        if other.strides != self.strides and 0 not in self.shape:
            return f"was made for {name} with strides {self.strides}, but it has {other.strides}"
        if other.alignment % self.alignment:
            return f"was made for {name} aligned to {self.alignment} bytes, but it is aligned to {other.alignment}"
        return None


@dataclass(frozen=True)
class GemmPlan:
    """A product that is planned once and executed often. It can be printed and pickled, and does
    not hold arrays.

    Attributes
    ----------
    place : Place
        Library and device of the operands.
    layouts : tuple of (str, OperandLayout)
        The layouts of ``a`` and ``b``, and of ``c`` and ``out`` if they were given.
    result : OperandLayout
        The layout of the result.
    alpha, beta : {"zero", "one", "value", "device"}
        The kinds of the scalars.
    trans_a, trans_b : str
        How the operands are read.
    overwrite_c : bool
        Whether ``c`` is updated in place.
    options : tuple of (str, object)
        ``dtype``, ``compute_dtype``, ``precision`` and ``variant``.
    plan : Plan
        The kernels and their launches.

    Examples
    --------
    >>> ready = plan(np.ones((2, 3)), np.ones((3, 2)), alpha=2)
    >>> ready.execute(np.eye(2, 3), np.ones((3, 2)), alpha=0.5)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    >>> print(ready.explain().call)
    gemm: a float64 (2, 3), b float64 (3, 2), trans NN -> float64 (2, 2)
    """

    place: Place
    layouts: tuple[tuple[str, OperandLayout], ...]
    result: OperandLayout
    alpha: ScalarKind
    beta: ScalarKind
    trans_a: str
    trans_b: str
    overwrite_c: bool
    options: tuple[tuple[str, Any], ...]
    plan: Plan
    # tells its calls from others
    _token: object = field(default_factory=object, init=False, repr=False, compare=False)

    def execute(self, a: Promoted[Array], b: Promoted[Array], c: Any = None, *, alpha: Any = 1,
                beta: Any = 0, out: Any = None, epilogue: EpilogueLike = None,
                stream: Any = None) -> Array:
        """Run the product.

        Parameters
        ----------
        a, b, c, out : array
            Operands of the planned types, shapes and strides, aligned as well as the planned ones.
        alpha, beta : number or 0-d array
            As in :func:`gemm`, of the planned kinds: 0, 1, another number, or a 0-d array.
        epilogue : epilogue, optional
            The planned function, with operands like the planned ones.
        stream : CUDA stream or handle, optional
            The stream for the kernels; CuPy's current stream by default.

        Returns
        -------
        array or (array, dict)
            As in :func:`gemm`.

        Raises
        ------
        TypeError, ValueError
            For operands that differ from the planned ones, with the first difference; also as in
            :func:`gemm`.
        """
        request = Request(alpha, a, b, beta, c, self.trans_a, self.trans_b, int(self.overwrite_c),
                          epilogue, out=out, stream=stream, **dict(self.options))
        candidate = replayable(self._token, request)
        if candidate is not None and (result := candidate.answer()) is not None:
            return result
        if (own := own_call(*request)) is not None:
            return own(self.execute, (a, b, c),
                       {"alpha": alpha, "beta": beta, "out": out, "epilogue": epilogue,
                        "stream": stream})
        call = prepare("plan.execute", None, request)
        if (refusal := self._objection(call)) is not None:
            raise ValueError(f"this plan {refusal}; cuteblas.blas.plan makes another one")
        by_numpy = not call.engine.kernels
        if by_numpy and epilogue is None and self.plan.problem.fusion is None:  # type: ignore[union-attr]
            return execute(call)
        run = Execution("plan.execute", call.engine)
        with where(call):
            product = prepare_product(run, call.given)
            if not _fits(self.plan.problem, product.problem):
                raise ValueError(
                    "this plan was made for another epilogue, or for epilogue operands of other layouts; "
                    "cuteblas.blas.plan makes another one"
                )
            if by_numpy:
                return execute(call)
            ran = run.run_plan(self.plan, product.arrays, product.alpha, product.beta,
                               product.numbers)
            run.count("calls", ran.family)
            finish(run, product)
            if candidate is not None:
                record(run, candidate, call.given.alpha, call.given.beta, product.result)
        return answered(call, product.result, product.auxiliary)

    def _objection(self, call: Call) -> str | None:
        if call.place != self.place:
            return (
                f"was made for {self.place.library} arrays on {self.place}, but these are {call.place.library} arrays on "
                f"{call.place}"
            )
        given, planned = _layouts(call), dict(self.layouts)
        for name in ("c", "out"):
            if name in planned and name not in given:
                return f"was made with {name}, which is missing"
        if "c" in given and "c" not in planned:
            return "was made without c"
        planned.setdefault("out", self.result)
        for name, layout in given.items():
            if (refusal := planned[name].refusal(name, layout)) is not None:
                return refusal
        for name, was, kind in (("alpha", self.alpha, scalar_kind(call.given.alpha)),
                                ("beta", self.beta, scalar_kind(call.given.beta))):
            if was != kind and not (was == "value" and kind == "one") and (name == "alpha" or call.given.c is not None):
                return f"was made for {name} = {_SCALARS[was]}, but it is {_SCALARS[kind]}"
        return None

    def explain(self) -> Explanation:
        """The kernels that the product runs, and why they were chosen."""
        operands = [f"{name} {layout.dtype} {layout.shape}" for name, layout in self.layouts]
        call = f"gemm: {', '.join(operands)}, trans {self.trans_a}{self.trans_b} -> {self.result.dtype} {self.result.shape}"
        device = self.plan.device
        runs_on = on_the_host(device) if self.place.device is None else f"{self.place}, {device.name}"
        return Explanation(call, runs_on, (), self.plan)

    def __str__(self) -> str:
        return str(self.explain())

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


def plan(a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = 0, trans_a: Transposed = 0,
         trans_b: Transposed = 0, overwrite_c: Flag = 0, dtype: Any = None,
         compute_dtype: Any = None, epilogue: EpilogueLike = None,
         precision: Precision | None = None, out: Any = None,
         variant: str | None = None) -> GemmPlan:
    """Plan a product of arrays like these, for later calls; nothing is multiplied.

    Parameters
    ----------
    a, b, c, out : array
        Operands of the types, shapes, strides, alignments and device of later calls; their elements
        do not matter.
    alpha, beta : number or 0-d array
        0, 1, another number, or a 0-d array; later calls pass one of the same kind. A plan for
        another number also takes 1.
    trans_a, trans_b, overwrite_c, dtype, compute_dtype, epilogue, precision, variant
        As in :func:`gemm`. Later calls pass the epilogue again, with operands like these.

    Returns
    -------
    GemmPlan
        The plan; its method ``execute`` multiplies.

    Raises
    ------
    TypeError, ValueError
        As in :func:`gemm`.

    Examples
    --------
    >>> import numpy as np
    >>> from cuteblas import blas
    >>> a, b = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)
    >>> plan = blas.plan(a, b, alpha=2)
    >>> plan.execute(a, b, alpha=0.5)[0, 0]
    np.float32(16.0)
    >>> plan.execute(a.T, b)
    Traceback (most recent call last):
        ...
    ValueError: plan.execute multiplies (m, k) by (k, n), but k is 64 in a and 32 in b: a (32, 64), b (32, 16)
    """
    return _planned(Request(**locals()))


def _planned(request: Request) -> GemmPlan:
    if (own := own_call(*request)) is not None:
        return own(_planned, (request,), {})
    call = prepare("plan", None, request, moves=False)
    engine, given = call.engine, call.given
    with where(call):
        product = prepare_product(Execution("plan", engine), given)
        chosen = plan_for(product.problem, engine.device(given.a))
    options = {"dtype": call.types.output, "compute_dtype": call.types.compute,
               **given.algorithm._asdict()}
    return GemmPlan(call.place, tuple(_layouts(call).items()),
                    OperandLayout.of(engine.memory(product.result), call.types.output),
                    scalar_kind(given.alpha), scalar_kind(given.beta), call.trans_a.letter,
                    call.trans_b.letter, given.c is not None and given.c is given.out,
                    tuple(options.items()), chosen)


def _layouts(call: Call) -> dict[str, OperandLayout]:
    """The layouts of the operands that a call was given, as the product sees them."""
    engine, given = call.engine, call.given
    arrays = {"a": given.a, "b": given.b, "c": given.c,
              "out": None if given.out is given.c else given.out}
    return {name: OperandLayout.of(engine.memory(x), type_name(x.dtype))
            for name, x in arrays.items() if x is not None}


def _fits(planned: Any, given: Any) -> bool:
    """Whether a product differs from the planned one only in scalars and better alignments."""
    if planned.fusion is None or given.fusion is None:
        return planned.fusion is given.fusion
    return planned.fusion.graph == given.fusion.graph and all(
        name == planned_name and not y.alignment % x.alignment
        and replace(y, alignment=x.alignment) == x
        for (planned_name, x), (name, y) in zip(planned.fusion.matrices, given.fusion.matrices,
                                                 strict=True))
