"""The numbers of planners that ``python -m cuteblas calibrate`` wrote on this machine."""

from __future__ import annotations

import warnings

from ..planning.cost import CostError, Costs, costs_from, hosts
from .configuration import HOST, costs_file


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


def host_costs() -> hosts.HostCosts:
    """The numbers measured on this host; the shipped ones without a file, or with a bad one."""
    try:
        file = costs_file(HOST)
        return hosts.host_costs_from(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        pass
    except (CostError, OSError, UnicodeDecodeError) as error:
        warnings.warn(f"backend('auto') uses the numbers that come with cuteblas: {error}",
                      RuntimeWarning, stacklevel=2)
    return hosts.HOST
