"""Modules and functions that are imported at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported(module: str, name: str = "", package: str | None = None) -> Any:
    try:
        home = import_module(module, package)
        if name:
            return getattr(home, name)
    except (AttributeError, ImportError) as error:
        if not any(_is_partial(each) for key, each in [*sys.modules.items()]
                   if key.startswith(__package__)):
            raise
        raise RuntimeError(_REFUSAL.format(name or module)) from error
    if _is_partial(home):
        raise RuntimeError(_REFUSAL.format(module))
    return home


def at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A package's ``__getattr__``, which imports the module of a name when that is first used."""
    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = imported(f"{package}.{homes[name]}", name)
        setattr(sys.modules[package], name, found)
        return found

    return get


def _is_partial(module: Any) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


_REFUSAL = (
    "{} cannot be used here: cuteblas is still being imported, and this call, perhaps in a signal handler, interrupts "
    "the import; use it once before such a handler can run"
)
