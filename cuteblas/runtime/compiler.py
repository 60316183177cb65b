"""From a kernel's source to a cubin, by NVRTC and the cache on disk, without GPU or driver."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from .._cache import find, keep
from .errors import INSTALL, CompileError, MissingDependency, require

if TYPE_CHECKING:
    from ..codegen.kernel import GeneratedKernel

_OPTIONS = {"std": "c++17", "ftz": False, "prec_div": True, "prec_sqrt": True, "fma": True,
            "device_as_default_execution_space": True}


@cache
def _nvrtc() -> tuple[str, tuple[int, ...]]:
    nvrtc = require("cuda.bindings.nvrtc")
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    # what the bindings raise when they find no library differs between their versions
    except Exception as error:
        raise MissingDependency(
            f"compiling kernels needs the NVRTC library, which was not found; {INSTALL}"
        ) from error
    return f"{major}.{minor}", tuple(nvrtc.nvrtcGetSupportedArchs()[1])


def compiler_version() -> str:
    """Version of NVRTC, for example ``"13.0"``.

    Returns
    -------
    str
        Major and minor number.

    Raises
    ------
    MissingDependency
        If there is no NVRTC.

    Examples
    --------
    >>> int(compiler_version().split(".")[0]) >= 12
    True
    """
    return _nvrtc()[0]


def supported_architectures() -> tuple[str, ...]:
    """The architectures that the installed NVRTC compiles for, oldest first; CUDA 13 begins at
    ``sm_75``.

    Returns
    -------
    tuple of str
        For example ``("sm_75", "sm_80", ...)``.

    Examples
    --------
    >>> "sm_90" in supported_architectures()
    True
    """
    return tuple(f"sm_{number}" for number in _nvrtc()[1])


def cubin_name(kernel: GeneratedKernel, arch: str) -> str:
    """A kernel's file in the cache, by its source, options, architecture and compiler version."""
    what = kernel.name, arch, kernel.assembler, _OPTIONS, compiler_version()
    return hashlib.sha256(f"{what!r}\n{kernel.cuda_source}".encode()).hexdigest()


def is_compiled(kernel: GeneratedKernel, arch: str) -> bool:
    return find("entries", cubin_name(kernel, arch)) is not None


def compile(kernel: GeneratedKernel, arch: str, *, fresh: bool = False) -> bytes:
    """The cubin of a kernel for one architecture, from the cache on disk if it is there.

    Arithmetic is IEEE: denormals are kept, division and square root are rounded correctly, and
    products are fused into sums only as C++ permits within an expression.

    Parameters
    ----------
    kernel : GeneratedKernel
        The kernel.
    arch : str
        ``"sm_80"``, ``"sm_90a"`` ...
    fresh : bool
        Compile again, without looking in this cache or NVRTC's own. The result is cached as always.

    Returns
    -------
    bytes
        An ELF image for the driver to load.

    Raises
    ------
    CompileError
        If NVRTC refuses the source or does not know the architecture.
    MissingDependency
        If cuda.core or NVRTC are not installed.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> kernel = KernelBuilder("example", threads=32).build()
    >>> compile(kernel, "sm_90")[1:4]
    b'ELF'
    """
    if arch.removesuffix("a") not in supported_architectures():
        known = supported_architectures()
        raise CompileError(kernel.name, arch,
                           f"NVRTC {compiler_version()} compiles for {', '.join(known)} only")
    name = cubin_name(kernel, arch)
    if not fresh and (kept := find("entries", name)) is not None:
        return kept
    core = require("cuda.core")
    options = core.ProgramOptions(name=kernel.name, arch=arch,
                                  ptxas_options=list(kernel.assembler) or None, **_OPTIONS)
    try:
        if fresh:
            options = replace(options, no_cache=True)
        cubin = bytes(core.Program(kernel.cuda_source, "c++", options).compile("cubin").code)
    except Exception as error:     # cuda.core's own error classes are private
        log = str(error).replace("\0", "").strip()
        raise CompileError(kernel.name, arch, f"NVRTC {compiler_version()} says", log) from error
    keep("entries", name, cubin)
    return cubin
