"""A worker for each GPU of this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask

from .offers import MESSAGE_BYTES

try:
    from distributed import LocalCluster, Nanny
except ImportError:                     # dask[array] alone: schedulers of this process
    LocalCluster = Nanny = object       # type: ignore[assignment,misc]

_OFFLOAD = "DASK_DISTRIBUTED__COMM__OFFLOAD"
"""The message size for a separate thread, which distributed reads when it is imported."""


class _Keeper(Nanny):
    """Starts, and restarts, a worker that reads offers of arrays in a separate thread."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        if _OFFLOAD not in os.environ:
            self.pre_spawn_env = {**self.pre_spawn_env, _OFFLOAD: str(MESSAGE_BYTES // 2)}


class GPUCluster(LocalCluster):
    """Workers on this host: one for each GPU, with one thread each.

    Chunks go from one worker to another by a copy between their GPUs, unless Dask's setting
    ``cuteblas.peer-copies`` is false when the cluster is made.

    Parameters
    ----------
    devices : "all" or sequence of int or str
        The GPUs, as ordinals or UUIDs. Each worker has one of them, and sees it as its first.
    **arguments
        Arguments of ``distributed.LocalCluster``: ``memory_limit``, ``local_directory``, ...
        Workers also get ``env``.

    Raises
    ------
    ImportError
        If ``distributed`` is not installed.
    ValueError
        If there is no device.

    See Also
    --------
    cuteblas.matmul : with ``devices=``, computes one product on several GPUs in one process.

    Examples
    --------
    >>> from cuteblas.dask import GPUCluster
    >>> cluster = GPUCluster(devices=[0, 1])  # doctest: +SKIP
    >>> client = cluster.get_client()  # doctest: +SKIP
    """

    def __init__(self, devices: str | Sequence[int | str] = "all", **arguments: Any):
        if LocalCluster is object:
            raise ImportError("GPUCluster needs distributed: pip install 'cuteblas[dask]'")
        self._devices = [str(device) for device in (_all_devices() if isinstance(devices, str)
                                                    and devices == "all" else devices)]
        if not self._devices:
            raise ValueError("GPUCluster starts one worker per device, but there is no device")
        self._env = {**arguments.pop("env", {})}
        self._peer_copies = dask.config.get("cuteblas.peer-copies", None) is not False
        given = {"threads_per_worker": 1, "preload": ["cuteblas.dask"], "dashboard_address": None,
                 "memory_limit": "auto", **arguments, "n_workers": 0}
        super().__init__(**given)
        self.scale(len(self._devices))
        self.sync(self._correct_state)

    if TYPE_CHECKING:                   # distributed has no types
        def get_client(self) -> Any: ...

    def new_worker_spec(self) -> dict[Any, Any]:
        """The next worker: the first device that has none."""
        (name, spec), = super().new_worker_spec().items()
        own = name % len(self._devices)
        env = {**self._env, "CUDA_VISIBLE_DEVICES": ",".join(self._devices[own:]
                                                             + self._devices[:own])}
        config = {"cuteblas": {"peer-copies": self._peer_copies}}
        keeper = _Keeper if self._peer_copies and spec["cls"] is Nanny else spec["cls"]
        return {name: {**spec, "cls": keeper, "options": {**spec["options"], "env": env,
                                                          "config": config}}}


def _all_devices() -> Sequence[int | str]:
    """The GPUs that this process may see, without a context on any of them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    from ..runtime.peers import peers

    return range(peers().count())
