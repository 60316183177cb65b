"""Running plans on NVIDIA GPUs: compile, cache, load, launch.

CuPy owns memory, streams and devices; ``cuda.core`` compiles and loads. Both are imported when
first needed, so that this package imports on any machine, and :func:`compile` needs no GPU.
"""

from .compiler import compile, compiler_version, supported_architectures
from .devices import available, capturing, device_info, why_unavailable
from .errors import CompileError, DriverError, MissingDependency
from .executor import Executor, executor, warmup

__all__ = ["CompileError", "DriverError", "Executor", "MissingDependency", "available", "capturing",
           "compile", "compiler_version", "device_info", "executor", "supported_architectures",
           "warmup", "why_unavailable"]
__dir__ = __all__.copy
