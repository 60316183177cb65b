"""Problems and plans: what is computed, and by which kernels. Pure: nothing here needs a GPU."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

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

_PLANNERS = {"plan_contraction": ".gemm.contraction", "plan_copy": ".copy.dispatch",
             "plan_gemm": ".gemm.dispatch", "plan_reduction": ".reductions"}

if not TYPE_CHECKING:
    def __getattr__(name: str) -> object:
        """Import a planner, and with it all kernels, when it is first used."""
        if name not in _PLANNERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(_import_module(_PLANNERS[name], __name__), name)
        return globals()[name]


def _repr_html_(plan: Plan) -> str:
    from .pages import page_of

    return page_of(plan)


Plan._repr_html_ = _repr_html_  # type: ignore[attr-defined]        # here, because pages are made of plans
