"""The generator: kernels are written with layouts, and it writes their CUDA C++. Here are the words
that most kernels use; its modules have the others."""

from typing import TYPE_CHECKING

from .._imports import at_first_use as _at_first_use

if TYPE_CHECKING:
    from .architectures import oldest_with
    from .builder import Guard, KernelBuilder
    from .copies import CpAsync, Vector
    from .engine import CodegenError, Element, Pointer, static_extents
    from .fma import Fma
    from .kernel import GeneratedKernel
    from .mbarrier import Mbarriers
    from .nested import by_coordinate
    from .pipeline import Pipeline
    from .signature import GlobalTensor, TensorParam
    from .swizzled import operand_layout
    from .tiled import TiledCopy, partition
    from .tma import TmaBox
    from .values import Term, Value, cast, choose, integer
    from .wgmma import WgmmaMma, wgmma_delivered

__all__ = ["CodegenError", "CpAsync", "Element", "Fma", "GeneratedKernel",
           "GlobalTensor", "Guard", "KernelBuilder", "Mbarriers", "Pipeline", "Pointer",
           "TensorParam", "Term", "TiledCopy", "TmaBox", "Value", "Vector", "WgmmaMma",
           "by_coordinate", "cast", "choose", "integer", "oldest_with",
           "operand_layout", "partition", "static_extents", "wgmma_delivered"]
__dir__ = __all__.copy

_HOMES = {"CodegenError": "engine", "CpAsync": "copies", "Element": "engine", "Fma": "fma",
          "GeneratedKernel": "kernel", "GlobalTensor": "signature", "Guard": "builder",
          "KernelBuilder": "builder", "Mbarriers": "mbarrier", "Pipeline": "pipeline",
          "Pointer": "engine", "TensorParam": "signature", "Term": "values", "TiledCopy": "tiled",
          "TmaBox": "tma", "Value": "values", "Vector": "copies", "WgmmaMma": "wgmma",
          "by_coordinate": "nested", "cast": "values", "choose": "values", "integer": "values",
          "oldest_with": "architectures", "operand_layout": "swizzled", "partition": "tiled",
          "static_extents": "engine", "wgmma_delivered": "wgmma"}

if not TYPE_CHECKING:                   # what moves arrays needs none of them
    __getattr__ = _at_first_use(__name__, _HOMES)
