"""What architectures have: one table, which kernels, planning and the runtime ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["FEATURES", "Capabilities", "Feature", "capabilities", "number_of", "oldest_with",
           "why_lacking"]


@dataclass(frozen=True)
class Feature:
    """A feature that some architectures have.

    Attributes
    ----------
    on : tuple of int
        Their compute capabilities, 90 for 9.0.
    later : bool
        Whether all that came later have it too.
    suffix : str
        What is added to the name of the architecture that code with it is compiled for.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import Feature
    >>> Feature((90,)).on
    (90,)
    """

    on: tuple[int, ...]
    later: bool = True
    suffix: str = ""

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
    """The features of one architecture.

    Attributes
    ----------
    async_copies : bool
        ``cp.async``; older ones copy through registers.
    tma : bool
        Tensor maps and mbarriers that count bytes.
    clusters : bool
        Blocks that run together and reach each other's shared memory.
    overlapping_launches : bool
        A launch can begin while the one before it still runs (programmatic dependent launch).
    wgmma : bool
        Matrix multiplications of warpgroups, from shared memory.
    float64_tensor_cores : bool
        Tensor cores with twice the rate of the float64 unit, which round every multiply-add as that
        unit does.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import capabilities
    >>> capabilities("sm_90a").wgmma, capabilities("sm_80").wgmma
    (True, False)
    """

    async_copies: bool
    tma: bool
    clusters: bool
    overlapping_launches: bool
    wgmma: bool
    float64_tensor_cores: bool


def number_of(arch: str) -> int:
    """The compute capability of an architecture: 90 of ``"sm_90"`` and of ``"sm_90a"``.

    Parameters
    ----------
    arch : str
        ``"sm_80"``, ``"sm_90a"`` ...

    Returns
    -------
    int
        The compute capability, times ten.

    Raises
    ------
    ValueError
        If ``arch`` is not written like this.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import number_of
    >>> number_of("sm_90a"), number_of("sm_80")
    (90, 80)
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise ValueError(f"arch is written like 'sm_80' or 'sm_90a', got {arch!r}")
    return int(digits)


@cache
def capabilities(arch: str) -> Capabilities:
    """The features of an architecture.

    Parameters
    ----------
    arch : str
        ``"sm_80"``, ``"sm_90a"`` ...

    Returns
    -------
    Capabilities
        The features.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import capabilities
    >>> capabilities("sm_90").wgmma, capabilities("sm_100").wgmma, capabilities("sm_100").tma
    (True, False, True)
    """
    number = number_of(arch)
    return Capabilities(**{name: feature.is_on(number) for name, feature in FEATURES.items()})


def oldest_with(feature: str) -> str:
    """The oldest architecture with a feature, as kernels that use the feature name it.

    Parameters
    ----------
    feature : str
        A name of :class:`Capabilities`.

    Returns
    -------
    str
        The architecture.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import oldest_with
    >>> oldest_with("tma"), oldest_with("wgmma")
    ('sm_90', 'sm_90a')
    """
    return f"sm_{FEATURES[feature].on[0]}{FEATURES[feature].suffix}"


def why_lacking(feature: str, arch: str) -> str | None:
    """Why an architecture cannot run code with a feature, or ``None`` if it can.

    Parameters
    ----------
    feature : str
        A name of :class:`Capabilities`.
    arch : str
        ``"sm_80"``, ``"sm_90"`` ...

    Returns
    -------
    str or None
        The reason, or ``None`` if it is there.

    Examples
    --------
    >>> from cuteblas.codegen.architectures import why_lacking
    >>> why_lacking("wgmma", "sm_80"), why_lacking("wgmma", "sm_90")
    ('wgmma exists on sm_90 alone, not on sm_80', None)
    """
    row = FEATURES[feature]
    if row.is_on(number_of(arch)):
        return None
    where = f"from sm_{row.on[0]} on" if row.later else f"on {' and '.join(f'sm_{n}' for n in row.on)} alone"
    return f"{feature} exists {where}, not on {arch}"
