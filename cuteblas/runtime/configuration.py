"""Where files of configuration are."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from .._cache import expanded

__all__ = ["HOST", "costs_file"]

HOST = "this host"
"""In place of a card's name, for the numbers of the host."""


def costs_file(device: str) -> Path:
    """Where the numbers of a card by its name belong: in ``CUTEBLAS_CONFIG_DIR``, else ``cuteblas`` in the platform's directory for
    configuration. It need not exist.

    Raises
    ------
    OSError
        If that is in a home directory and there is none.
    """
    if chosen := os.environ.get("CUTEBLAS_CONFIG_DIR"):
        directory = Path(chosen)
    elif sys.platform == "win32":
        directory = Path(os.environ.get("APPDATA") or "~/AppData/Roaming") / "cuteblas"
    elif sys.platform == "darwin":
        directory = Path("~/Library/Application Support/cuteblas")
    else:
        directory = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "cuteblas"
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path(expanded(str(directory), "CUTEBLAS_CONFIG_DIR"), "costs", f"{name}.json")
