"""A worker for each GPU of this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from distributed import LocalCluster
except ImportError:                     # dask[array] alone: schedulers of this process
    LocalCluster = object               # type: ignore[assignment,misc]

__all__ = ["GPUCluster"]


class GPUCluster(LocalCluster):
    """Workers of this host, each of which sees one GPU, with one thread.

    Parameters
    ----------
    devices : "all" or sequence of int or str
        What ``CUDA_VISIBLE_DEVICES`` is for each worker: ordinals, or UUIDs.
    **arguments
        Those of ``distributed.LocalCluster``: ``memory_limit``, ``local_directory``, ... ``env`` is passed on, too.

    Raises
    ------
    ImportError
        If ``distributed`` is not installed.
    ValueError
        If there is no device.

    See Also
    --------
    cuteblas.matmul : with ``devices=``, one product over the GPUs of a host in one process.

    Examples
    --------
    >>> from cuteblas.dask import GPUCluster
    >>> cluster = GPUCluster(devices=[0, 1])  # doctest: +SKIP
    >>> client = cluster.get_client()  # doctest: +SKIP
    """

    def __init__(self, devices: str | Sequence[int | str] = "all", **arguments: Any):
        if LocalCluster is object:
            raise ImportError("GPUCluster needs distributed: pip install 'cuteblas[dask]'")
        self._devices = [str(device) for device in (_all_devices() if isinstance(devices, str) and devices == "all" else devices)]
        if not self._devices:
            raise ValueError("a GPUCluster has a worker for each device, but there is none")
        self._env = {**arguments.pop("env", {})}
        given = {"threads_per_worker": 1, "preload": ["cuteblas.dask"], "dashboard_address": None, "memory_limit": "auto",
                 **arguments, "n_workers": 0}
        super().__init__(**given)
        self.scale(len(self._devices))
        self.sync(self._correct_state)

    def new_worker_spec(self) -> dict[Any, Any]:
        """The next worker: the first device that has none."""
        (name, spec), = super().new_worker_spec().items()
        env = {**self._env, "CUDA_VISIBLE_DEVICES": self._devices[name % len(self._devices)]}
        return {name: {**spec, "options": {**spec["options"], "env": env}}}


def _all_devices() -> Sequence[int | str]:
    """The GPUs that this process may see, without a context on any of them."""
    import os

    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    from ..runtime.peers import peers

    return range(peers().count())
