"""What architectures have: one table, which kernels, planning and the runtime ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Feature:
    """A feature that some architectures have."""

    on: tuple[int, ...]                 # compute capabilities, 90 for 9.0
    later: bool = True                  # whether all that came later have it too
    suffix: str = ""                    # of the architecture that code with it is compiled for

    def is_on(self, number: int) -> bool:
        """Whether the architecture with a compute capability has it."""
        return number in self.on or (self.later and number > self.on[0])


FEATURES = {
    "async_copies": Feature((80,)),
    "tma": Feature((90,)),
    "clusters": Feature((90,)),
    "overlapping_launches": Feature((90,)),
    "wgmma": Feature((90,), later=False, suffix="a"),
    "float64_tensor_cores": Feature((80, 90), later=False),
}
"""By names of :class:`Capabilities` (CUDA C++ Programming Guide; PTX ISA, "Target ISA Notes")."""


@dataclass(frozen=True)
class Capabilities:
    """The features of one architecture."""

    async_copies: bool
    tma: bool
    clusters: bool
    overlapping_launches: bool
    wgmma: bool
    float64_tensor_cores: bool


def number_of(arch: str) -> int:
    """The compute capability of an architecture: 90 of ``"sm_90"`` and of ``"sm_90a"``."""
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise ValueError(f"arch is written like 'sm_80' or 'sm_90a', got {arch!r}")
    return int(digits)


@cache
def capabilities(arch: str) -> Capabilities:
    """The features of an architecture."""
    number = number_of(arch)
    return Capabilities(**{name: feature.is_on(number) for name, feature in FEATURES.items()})


def oldest_with(feature: str) -> str:
    """The oldest architecture with a feature, as kernels that use the feature name it."""
    return f"sm_{FEATURES[feature].on[0]}{FEATURES[feature].suffix}"


def why_lacking(feature: str, arch: str) -> str | None:
    """Why an architecture cannot run code with a feature, or ``None`` if it can."""
    row = FEATURES[feature]
    if row.is_on(number_of(arch)):
        return None
    where = f"from sm_{row.on[0]} on" if row.later else f"on {' and '.join(f'sm_{n}' for n in row.on)} alone"
    return f"{feature} exists {where}, not on {arch}"


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
