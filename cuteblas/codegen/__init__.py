"""The generator: kernels are written with layouts, and it writes their CUDA C++. Here are the words
that most kernels use; its modules have the others."""

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
