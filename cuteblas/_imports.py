"""What is imported when it is first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["imported"]


def imported(module: str, name: str = "", package: str | None = None) -> Any:
    """A module, or what a name is in it.

    Raises
    ------
    RuntimeError
        If its import is going on in this very thread, which a handler of signals has interrupted.
    """
    try:
        home = import_module(module, package)
        if name:
            return getattr(home, name)
    except (AttributeError, ImportError) as error:
        if not any(_is_partial(each) for key, each in [*sys.modules.items()] if key.startswith(__package__)):
            raise
        raise RuntimeError(_REFUSAL.format(name or module)) from error
    if _is_partial(home):
        raise RuntimeError(_REFUSAL.format(module))
    return home


def _is_partial(module: Any) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


_REFUSAL = ("{} cannot be used here: cuteblas is still being imported by what this call interrupted, as handlers of signals do; "
            "use it once before such a handler may run")
