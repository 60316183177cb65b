"""Where files of configuration are."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

__all__ = ["HOST", "costs_file"]

HOST = "this host"
"""In place of a card's name, for the numbers of the host."""


def costs_file(device: str) -> Path:
    """Where the numbers of a card by its name belong: in ``CUTEBLAS_CONFIG_DIR``, else ``cuteblas`` in the platform's directory for
    configuration. It need not exist.
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
    return directory.expanduser() / "costs" / f"{name}.json"
