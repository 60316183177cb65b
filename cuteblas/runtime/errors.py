"""Errors of the runtime, and the one way to import an optional dependency."""

from __future__ import annotations

import importlib
from operator import attrgetter
from threading import RLock
from types import ModuleType
from typing import Any

from .._forks import surviving

INSTALL = "pip install 'cuteblas[cuda13]' (or 'cuteblas[cuda12]' for a CUDA 12 driver)"

_WHOLE = attrgetter("cuda.runtime")
# cuda.core puts another module in its place while it is imported: one thread at a time
_importing = surviving(RLock())


class MissingDependency(ImportError, RuntimeError):
    """A call on a GPU needs a package, library, driver or device that this machine lacks. The
    message says which, and how to get it.

    Examples
    --------
    >>> issubclass(MissingDependency, ImportError) and issubclass(MissingDependency, RuntimeError)
    True
    """


class DriverError(RuntimeError):
    """The CUDA driver refused a call; the message has its name and text for the error.

    Examples
    --------
    >>> issubclass(DriverError, RuntimeError)
    True
    """


class CompileError(RuntimeError):
    """A generated kernel cannot be compiled.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    arch : str
        The architecture that it was compiled for.
    reason : str
        The compiler that refused the kernel, or why it was not called.
    log : str
        The compiler's messages; empty if it was not called.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> kernel = KernelBuilder("example", threads=32).build()
    >>> try:
    ...     cubin = compile(replace(kernel, body="nonsense"), "sm_90", fresh=True)
    ... except CompileError as error:
    ...     error.kernel, error.arch
    ('example', 'sm_90')
    """

    def __init__(self, kernel: str, arch: str, reason: str, log: str = ""):
        super().__init__(f"kernel {kernel} does not compile for {arch}: {reason}"
                         + (f"\n{log}" if log else ""))
        self.kernel = kernel
        self.arch = arch
        self.reason = reason
        self.log = log

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.kernel, self.arch, self.reason, self.log)


def require(module: str) -> ModuleType:
    try:
        with _importing:
            found = importlib.import_module(module)
        if module == "cupy":
            _WHOLE(found)               # an empty folder of that name is imported too
    except (Exception, SystemExit) as error:
        raise MissingDependency(
            f"GPU kernels need {module}, which cannot be imported ({in_one_line(error)}); {INSTALL}"
        ) from error
    return found


def in_one_line(error: BaseException) -> str:
    """The first line of an error that says something, or its type."""
    return next((line.strip() for line in str(error).splitlines() if any(map(str.isalpha, line))),
                type(error).__name__)


def check(result: tuple, what: str) -> Any:
    """The first value of a ``cuda.bindings.driver`` call; ``None`` if it has none."""
    status, *values = result
    if status:
        driver = require("cuda.bindings.driver")
        text = driver.cuGetErrorString(status)[1] or b"unknown error"
        raise DriverError(f"{what}: {status.name}: {text.decode()}")
    return values[0] if values else None
