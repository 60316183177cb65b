"""Which architecture a kernel is compiled for."""

from __future__ import annotations

__all__ = ["launches_overlap", "target_architecture"]


def _number(arch: str) -> int:
    digits = arch.removeprefix("sm_").removesuffix("a")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise ValueError(f"an architecture is written sm_80 or sm_90a, got {arch!r}")
    return int(digits)


def launches_overlap(device_arch: str) -> bool:
    """Whether a launch can begin while the one before it still runs (programmatic dependent launch)."""
    return _number(device_arch) >= 90


def target_architecture(kernel_arch: str, device_arch: str) -> str:
    """The architecture to compile a kernel for so that it runs on a device.

    That is the device's own; kernels that use features of one architecture alone (``sm_90a``) keep the suffix.

    Parameters
    ----------
    kernel_arch : str
        The oldest architecture that runs the kernel; with a trailing ``a``, the only one.
    device_arch : str
        The device's architecture, without a suffix.

    Raises
    ------
    ValueError
        If the device cannot run the kernel.

    Examples
    --------
    >>> target_architecture("sm_70", "sm_90")
    'sm_90'
    >>> target_architecture("sm_90a", "sm_90")
    'sm_90a'
    """
    only_one, needed, have = kernel_arch.endswith("a"), _number(kernel_arch), _number(device_arch)
    if only_one and needed != have:
        raise ValueError(f"the kernel runs on {kernel_arch} alone and the device is {device_arch}")
    if needed > have:
        raise ValueError(f"the kernel needs {kernel_arch} or newer and the device is {device_arch}")
    return kernel_arch if only_one else device_arch
