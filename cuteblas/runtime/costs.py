"""The numbers of planners that ``python -m cuteblas calibrate`` wrote on this machine."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .._cache import user_directory
from ..planning.cost import CostError, Costs, costs_from

if TYPE_CHECKING:
    from ..planning.cost.hosts import HostCosts

HOST = "this host"
"""The numbers of the host have this name in place of a card's."""


def costs_file(device: str) -> Path:
    """The file for a card's numbers, in ``CUTEBLAS_CONFIG_DIR`` or the platform's directory."""
    directory = user_directory("CUTEBLAS_CONFIG_DIR", ("APPDATA", "~/AppData/Roaming"),
                               "~/Library/Application Support", ("XDG_CONFIG_HOME", "~/.config"))
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path(directory, "costs", f"{name}.json")


def own_costs(device: str) -> Costs | None:
    """The numbers measured on such a card; ``None`` without a file or, warned of, a bad one."""
    try:
        file = costs_file(device)
        costs = costs_from(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        return None
    except (CostError, OSError, UnicodeDecodeError) as error:
        warnings.warn(f"planning uses the numbers that come with cuteblas: {error}", RuntimeWarning,
                      stacklevel=2)
        return None
    if costs.device != device:
        warnings.warn(
            f"planning uses the numbers that come with cuteblas: {file} has those of {costs.device}",
            RuntimeWarning,
            stacklevel=2
        )
        return None
    return costs


def host_costs() -> HostCosts:
    """The numbers measured on this host; the shipped ones without a file, or with a bad one."""
    from ..planning.cost import hosts

    try:
        file = costs_file(HOST)
        return hosts.host_costs_from(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        pass
    except (CostError, OSError, UnicodeDecodeError) as error:
        warnings.warn(f"backend('auto') uses the numbers that come with cuteblas: {error}",
                      RuntimeWarning, stacklevel=2)
    return hosts.HOST
