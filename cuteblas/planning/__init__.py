"""Problems and plans: what is computed, and by which kernels. Pure: nothing here needs a GPU."""

from typing import TYPE_CHECKING

from .._imports import at_first_use as _at_first_use
from .plan import Argument, Launch, Plan
from .problem import (
    H200,
    ContractionProblem,
    CopyProblem,
    DeviceInfo,
    GemmProblem,
    Operand,
    ReductionProblem,
    Storage,
)

if TYPE_CHECKING:
    from .copy.dispatch import plan_copy as plan_copy
    from .gemm.contraction import plan_contraction as plan_contraction
    from .gemm.dispatch import plan_gemm as plan_gemm
    from .reductions import plan_reduction as plan_reduction

__all__ = ["H200", "Argument", "ContractionProblem", "CopyProblem", "DeviceInfo", "GemmProblem",
           "Launch", "Operand", "Plan", "ReductionProblem", "Storage", "plan_contraction",
           "plan_copy", "plan_gemm", "plan_reduction"]
__dir__ = __all__.copy

if not TYPE_CHECKING:                   # a planner imports all kernels
    __getattr__ = _at_first_use(__name__, {"plan_contraction": "gemm.contraction",
                                           "plan_copy": "copy.dispatch",
                                           "plan_gemm": "gemm.dispatch",
                                           "plan_reduction": "reductions"})


def _repr_html_(plan: Plan) -> str:
    from .pages import page_of

    return page_of(plan)


Plan._repr_html_ = _repr_html_  # type: ignore[attr-defined]        # here, because pages are made of plans
