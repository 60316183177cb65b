"""Problems and plans: what is computed, and by which kernels. Pure: nothing here needs a GPU."""

from .copy.dispatch import plan_copy
from .gemm.contraction import plan_contraction
from .gemm.dispatch import plan_gemm
from .plan import Argument, Launch, Plan
from .problem import H200, ContractionProblem, CopyProblem, DeviceInfo, GemmProblem, Operand, ReductionProblem, Storage
from .reductions import plan_reduction

__all__ = ["H200", "Argument", "ContractionProblem", "CopyProblem", "DeviceInfo", "GemmProblem", "Launch", "Operand", "Plan",
           "ReductionProblem", "Storage", "plan_contraction", "plan_copy", "plan_gemm", "plan_reduction"]
__dir__ = __all__.copy


def _repr_html_(plan: Plan) -> str:
    """The plan for a notebook."""
    from .pages import page_of

    return page_of(plan)


Plan._repr_html_ = _repr_html_          # type: ignore[attr-defined]        # here, because pages are made of plans
