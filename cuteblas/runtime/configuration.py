"""Where files of configuration are."""

from __future__ import annotations

import re
from pathlib import Path

from .._cache import user_directory

__all__ = ["HOST", "costs_file"]

HOST = "this host"
"""In place of a card's name, for the numbers of the host."""


def costs_file(device: str) -> Path:
    """Where the numbers of a card by its name belong: in ``CUTEBLAS_CONFIG_DIR``, else ``cuteblas``
    in the platform's directory for configuration. It need not exist."""
    directory = user_directory("CUTEBLAS_CONFIG_DIR", ("APPDATA", "~/AppData/Roaming"),
                               "~/Library/Application Support", ("XDG_CONFIG_HOME", "~/.config"))
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path(directory, "costs", f"{name}.json")
