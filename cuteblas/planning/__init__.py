"""Problems and plans: what is computed, and by which kernels. Pure: nothing here needs a GPU."""

from .copy import plan_copy
from .gemm import plan_gemm
from .plan import Argument, Launch, Plan
from .problem import H200, CopyProblem, DeviceInfo, GemmProblem, Operand

__all__ = ["H200", "Argument", "CopyProblem", "DeviceInfo", "GemmProblem", "Launch", "Operand", "Plan", "plan_copy", "plan_gemm"]
