"""The numbers of planners that ``python -m cuteblas calibrate`` wrote for a card of this machine."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

from ..planning.cost import CostError, Costs, costs_from, hosts

__all__ = ["HOST", "costs_file", "host_costs", "own_costs"]

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


def own_costs(device: str) -> Costs | None:
    """What was measured on a card of that name here; ``None`` without a file, and, with a warning, if it cannot be used."""
    file = costs_file(device)
    try:
        costs = costs_from(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        return None
    except (CostError, OSError, UnicodeDecodeError) as error:
        warnings.warn(f"plans are made with the numbers that come with cuteblas: {error}", RuntimeWarning, stacklevel=2)
        return None
    if costs.device != device:
        warnings.warn(f"plans are made with the numbers that come with cuteblas: {file} has those of {costs.device}",
                      RuntimeWarning, stacklevel=2)
        return None
    return costs


def host_costs() -> hosts.HostCosts:
    """What was measured on this host, or what comes with the package: without a file, and, with a warning, if it cannot be used."""
    file = costs_file(HOST)
    try:
        return hosts.host_costs_from(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        pass
    except (CostError, OSError, UnicodeDecodeError) as error:
        warnings.warn(f"where calls on NumPy arrays run is decided by the numbers that come with cuteblas: {error}", RuntimeWarning,
                      stacklevel=2)
    return hosts.HOST
