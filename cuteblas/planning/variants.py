"""Named kernels: what ``variant=`` chooses instead of planning's own choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal

from .plan import Plan
from .problem import DeviceInfo

CHOSEN = "planning chooses it"
"""The source of a variant that calls without ``variant=`` run."""

# Modules of this package that define ``VARIANTS``, a tuple of Variant.
_MODULES: tuple[str, ...] = (
    "gemm.dispatch",
    "copy.dispatch",
    "tutorial.gemm",
    "gemm.contraction",
    "tutorial.copies",
)


@dataclass(frozen=True)
class Variant:
    """A family, or one kernel of a document. ``source`` is the document's section; ``arch`` is the
    oldest architecture, alone if it ends in ``a``; ``plan`` raises ValueError with a sentence."""

    name: str
    operation: Literal["gemm", "copy", "contraction"]
    source: str
    summary: str
    arch: str
    plan: Callable[[Any, DeviceInfo], Plan]
    example: Any = None


@cache
def variants() -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for module in _MODULES:
        for v in import_module(f"{__package__}.{module}").VARIANTS:
            if v.name in found:
                raise ValueError(f"two variants are named {v.name!r}")
            found[v.name] = v
    return found


def variant(name: str, *operations: str) -> Variant:
    known = [v.name for v in variants().values() if v.operation in operations]
    if name not in known:
        raise ValueError(
            f"there is no {' or '.join(operations)} variant {name!r}; there are {', '.join(known)}"
        )
    return variants()[name]
