"""The architecture that a kernel is compiled for."""

from __future__ import annotations

from ..codegen.architectures import number_of


def target_architecture(kernel_arch: str, device_arch: str) -> str:
    """The device's own architecture, with the suffix of kernels for one alone ("sm_90a")."""
    only_one, needed, have = kernel_arch.endswith("a"), number_of(kernel_arch), number_of(device_arch)
    if only_one and needed != have:
        raise ValueError(f"the kernel runs only on {kernel_arch}, but the device is {device_arch}")
    if needed > have:
        raise ValueError(
            f"the kernel needs {kernel_arch} or newer, but the device is {device_arch}"
        )
    return kernel_arch if only_one else device_arch
