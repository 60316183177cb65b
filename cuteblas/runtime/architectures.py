"""Which architecture a kernel is compiled for."""

from __future__ import annotations

from ..codegen.architectures import number_of

__all__ = ["target_architecture"]


def target_architecture(kernel_arch: str, device_arch: str) -> str:
    """The architecture to compile a kernel for so that it runs on a device.

    That is the device's own; kernels that use features of one architecture alone (``sm_90a``) keep
    the suffix.

    Parameters
    ----------
    kernel_arch : str
        The oldest architecture that runs the kernel; with a trailing ``a``, the only one.
    device_arch : str
        The device's architecture, without a suffix.

    Examples
    --------
    >>> target_architecture("sm_70", "sm_90")
    'sm_90'
    >>> target_architecture("sm_90a", "sm_90")
    'sm_90a'
    """
    only_one, needed, have = kernel_arch.endswith("a"), number_of(kernel_arch), number_of(device_arch)
    if only_one and needed != have:
        raise ValueError(f"the kernel runs only on {kernel_arch}, but the device is {device_arch}")
    if needed > have:
        raise ValueError(
            f"the kernel needs {kernel_arch} or newer, but the device is {device_arch}"
        )
    return kernel_arch if only_one else device_arch
