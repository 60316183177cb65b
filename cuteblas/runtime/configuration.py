"""The folder of configuration files."""

from __future__ import annotations

import re
from pathlib import Path

from .._cache import user_directory

HOST = "this host"
"""The numbers of the host have this name in place of a card's."""


def costs_file(device: str) -> Path:
    """The file for a card's numbers, in ``CUTEBLAS_CONFIG_DIR`` or the platform's directory."""
    directory = user_directory("CUTEBLAS_CONFIG_DIR", ("APPDATA", "~/AppData/Roaming"),
                               "~/Library/Application Support", ("XDG_CONFIG_HOME", "~/.config"))
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path(directory, "costs", f"{name}.json")
