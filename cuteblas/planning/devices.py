"""Cards that plans can be made for without one: facts of NVIDIA's datasheets.

Sources: the datasheets and architecture whitepapers of A100 (SXM4, 80 GB), L40S, GeForce RTX 4090,
H100 (SXM5) and B200 (HGX), and the "Technical Specifications per Compute Capability" of the CUDA
C++ Programming Guide for shared memory. Clocks are boost clocks. Only the H200 was there to be
measured; its numbers stand in for those of the others (:mod:`cuteblas.planning.cost`).
"""

from __future__ import annotations

from .problem import COPY_EFFICIENCY, H200, DeviceInfo

__all__ = ["DEVICES", "device_named", "is_measured"]

_KIB = 1 << 10


def _card(name: str, arch: str, multiprocessors: int, shared_kib: int, clock_mhz: int, gb_s: int,
          l2_mib: int) -> DeviceInfo:
    return DeviceInfo(name, arch, multiprocessors, shared_kib * _KIB, clock_mhz * 1e6,
                      COPY_EFFICIENCY * gb_s * 1e9, l2_mib * _KIB * _KIB)


DEVICES = {
    "a100": _card("NVIDIA A100-SXM4-80GB", "sm_80", 108, 163, 1410, 2039, 40),
    "l40s": _card("NVIDIA L40S", "sm_89", 142, 99, 2520, 864, 96),
    "rtx4090": _card("NVIDIA GeForce RTX 4090", "sm_89", 128, 99, 2520, 1008, 72),
    "h100": _card("NVIDIA H100 80GB HBM3", "sm_90", 132, 227, 1980, 3352, 50),
    "h200": H200,
    "b200": _card("NVIDIA B200", "sm_100", 148, 227, 1965, 8000, 126),
}
"""By the name that ``device=`` and ``--device`` take."""


def device_named(name: str) -> DeviceInfo:
    """A card by its name, in capitals or not.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    found = DEVICES.get(name.lower().replace(" ", "").removeprefix("nvidia")) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"device is one of {', '.join(map(repr, DEVICES))}, got {name!r}")
    return found


def is_measured(device: DeviceInfo) -> bool:
    """Whether the numbers that planners estimate with were fitted to measurements on such a
    card."""
    return device.fitted.device == device.name
