"""Check what this machine has, what is missing and how to get it."""

from __future__ import annotations

import ctypes
import os
import platform
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from textwrap import fill
from typing import NamedTuple

from .. import emulator
from .._cache import cache_directory, usable_folder, usage
from ..array import numpy_loops
from ..engines.settings import answered_libraries
from ..planning.cost.hosts import HOST
from ..planning.problem import DeviceInfo, is_measured
from ..runtime import (
    DriverError,
    MissingDependency,
    compiler_version,
    device_info,
    supported_architectures,
    why_unavailable,
)
from ..runtime.costs import host_costs
from ..runtime.driver import driver_function
from ..runtime.errors import INSTALL, require
from ..runtime.tracking import why_untracked
from .command import PROGRAM, Parser
from .terminal import columns, reflowed

_EDGE = 22                      # where what was found begins
_DRIVER = "GPU kernels need an NVIDIA GPU and a driver for CUDA 12 or newer: https://www.nvidia.com/drivers"


class Finding(NamedTuple):
    """What was found, or what is wrong and, as ``remedy``, what to do about it."""

    text: str
    remedy: str = ""
    name: str = ""


def configure(parser: Parser) -> None:
    """There are no options."""


def run(options: Namespace) -> int:
    """Print the findings; the status is 0 whatever they are."""
    for found in findings():
        print(_wrapped(f"{'--' if found.remedy else 'ok':4}{found.name:18}{found.text}"))
        if found.remedy:
            print(_wrapped(f"{'':{_EDGE}}-> {found.remedy}"))
    reason = why_unavailable()
    with_kernels = "and GPU kernels" if reason is None else f"alone: {reason}"
    print("\n" + reflowed(f"On this machine, cuteblas uses NumPy's BLAS {with_kernels}"))
    return 0


def _wrapped(line: str) -> str:
    return fill(line, columns(), subsequent_indent=" " * _EDGE, break_long_words=False,
                break_on_hyphens=False)


def findings() -> Iterator[Finding]:
    """Everything that is looked for, in the order in which it builds up."""
    for name, look in _CHECKS.items():
        try:
            for found in look():
                yield found._replace(name=found.name or name)
        except Exception as error:   # a broken installation is what this command is there to report
            yield Finding(f"{type(error).__name__}: {error}",
                          "this is unexpected: reinstall the package named above", name)


def _cuteblas() -> Iterator[Finding]:
    home = Path(__file__).parents[1]
    try:
        yield Finding(f"{metadata.version('cuteblas')}, {home}")
    except metadata.PackageNotFoundError:
        yield Finding(f"{home}, not installed", "pip install -e . in the directory above it")


def _python() -> Iterator[Finding]:
    yield Finding(
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )


def _numpy() -> Iterator[Finding]:
    import numpy

    blas = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    yield Finding(
        f"{numpy.__version__}, BLAS: {blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()
    )


def _package(distribution: str, remedy: str) -> Iterator[Finding]:
    try:
        yield Finding(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        yield Finding("not installed", remedy)


def _cuda_of_driver() -> int | None:
    """The newest CUDA that the driver runs, 13010 for 13.1; ``None`` without a driver."""
    version = ctypes.c_int()
    try:
        ask = driver_function("cuDriverGetVersion", ctypes.c_void_p)
        return None if ask(ctypes.addressof(version)) else version.value
    except DriverError:
        return None


def _install() -> str:
    """How to get the extra that this machine's driver runs, or both without a driver."""
    version = _cuda_of_driver()
    return INSTALL if version is None or version < 12000 else f"pip install 'cuteblas[cuda{13 if version >= 13000 else 12}]'"


def _cupy() -> Iterator[Finding]:
    try:
        yield Finding(require("cupy").__version__)
    except (AttributeError, MissingDependency) as error:
        yield Finding(str(error).partition("; ")[0], _install())


def _driver() -> Iterator[Finding]:
    version = _cuda_of_driver()
    if version is None:
        yield Finding("not found", _DRIVER)
        return
    runs = f"runs CUDA {version // 1000}.{version % 1000 // 10} and older"
    if version < 12000:
        yield Finding(runs, _DRIVER)
        return
    try:
        runtime = require("cupy").cuda.runtime
    except (AttributeError, MissingDependency):
        yield Finding(runs)
        return
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        yield Finding(f"{runs}; {error}", _DRIVER)
        return
    yield Finding(f"{runs}, {count} {'device' if count == 1 else 'devices'}")
    for ordinal in range(count):
        info = device_info(ordinal)
        yield Finding(
            f"{info.name}, {info.arch}, {info.multiprocessors} multiprocessors at "
            f"{info.clock_hz / 1e6:.0f} MHz, {info.bandwidth / 1e9:.0f} GB/s in a copy, "
            f"{info.shared_bytes_per_block // 1024} KiB of shared memory",
            name=f"device {ordinal}"
        )
        yield _costs(info)._replace(name=f"costs of {ordinal}")
    estimated = host_costs() is HOST
    yield Finding("estimated, and corrected while calls run" if estimated
                  else "measured by calibrate --host",
                  f"{PROGRAM} calibrate --host measures them" if estimated else "", "host rates")


def _costs(device: DeviceInfo) -> Finding:
    """The numbers from which planning estimates times on a device."""
    costs = device.fitted
    if not is_measured(device):
        return Finding(
            f"not measured on this card: scaled from {costs.device} by clock, multiprocessors and bandwidth",
            f"{PROGRAM} calibrate measures this card in four minutes"
        )
    return Finding("measured on this kind of card, shipped with cuteblas"
                   if costs.origin == "shipped" else f"measured here: {costs.origin}")


def _nvrtc() -> Iterator[Finding]:
    try:
        known = supported_architectures()
        yield Finding(f"{compiler_version()}, compiles for {known[0]} to {known[-1]}")
    except MissingDependency as error:
        yield Finding("not found", str(error).rpartition("; ")[2])


def _installed() -> Iterator[Finding]:
    reason = numpy_loops.why_unavailable()
    into = " and ".join(library for libraries in answered_libraries for library in libraries())
    yield Finding(
        f"cuteblas is installed in {into}"
        if into
        else "CuPy's and NumPy's own functions are unchanged; cuteblas.install() or CUTEBLAS_INSTALL replaces them"
    )
    if reason is not None:
        yield Finding(f"cannot be installed in NumPy: {reason}", "needs CPython and NumPy 2")


def _compiler() -> Iterator[Finding]:
    reason = emulator.why_unavailable()
    yield Finding(
        "found: the emulator can run, and compiled threads move NumPy arrays to a GPU"
        if reason is None
        else "not found: the emulator cannot run, and Python threads move NumPy arrays to a GPU",
        reason or ""
    )


def _cache() -> Iterator[Finding]:
    kernels, libraries = usage("entries"), usage("emulator")
    try:
        with TemporaryFile(dir=usable_folder("emulator")):
            yield Finding(
                f"{cache_directory()}: {kernels.files} kernels for GPUs, {libraries.files} for the emulator, "
                f"{(kernels.bytes + libraries.bytes) / 2**20:.1f} MiB"
            )
    except OSError as error:
        yield Finding(f"cannot be used ({error}), so every process compiles its kernels again",
                      "set CUTEBLAS_CACHE_DIR to a folder of your own")


def _writes() -> Iterator[Finding]:
    reason = why_untracked()
    yield Finding("tracked, of NumPy arrays that CUTEBLAS_KEEP_ARRAYS=1 keeps on the GPU"
                  if reason is None
                  else f"not tracked, so hashes of arrays that are kept are compared: {reason}")


_CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "cuteblas": _cuteblas,
    "Python": _python,
    "NumPy": _numpy,
    "array-api-compat": lambda: _package("array-api-compat", "pip install array-api-compat"),
    "CuPy": _cupy,
    "CUDA driver": _driver,
    "cuda.core": lambda: _package("cuda-core", _install()),
    "NVRTC": _nvrtc,
    "C++ compiler": _compiler,
    "kernel cache": _cache,
    "writes to arrays": _writes,
    "programs": _installed,
}
