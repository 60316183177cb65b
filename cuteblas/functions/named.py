"""Named kernels in calls: ``variant=``."""

from __future__ import annotations

__all__ = ["BY_NUMPY", "check_variant", "refuse_variant"]

BY_NUMPY = "kernels run on a GPU (CuPy arrays) or in the emulator (backend('emulator')), not in NumPy"


def check_variant(name: str | None, operation: str) -> None:
    """See that a variant computes an operation: ``"gemm"``, ``"copy"`` or ``"contraction"``.

    Raises
    ------
    ValueError
        If there is no such variant.
    """
    if name is not None:
        from ..planning.variants import variant

        variant(name, operation)


def refuse_variant(name: str | None, reason: str) -> None:
    """Refuse to let something other than a kernel answer a call that names one.

    Raises
    ------
    ValueError
        If a kernel was named, with the reason why none would run.
    """
    if name is not None:
        raise ValueError(f"variant={name!r} names a kernel, but {reason}")
