"""NumPy arrays that go to a GPU and come back, without one: CuPy's arrays in this process's memory, and a link that is late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import cuteblas
from cuteblas.engines import host_cuda, placement, settings, streamed
from cuteblas.functions import tiles
from cuteblas.runtime.ring import Ring
from tests.runtime.late_link import LateLink

from . import host_cupy, reference


@contextmanager
def linked(*, threads: int = 2, slot_bytes: int = 1 << 12, free: int = 1 << 40, backend: str = "cuda") -> Iterator[LateLink]:
    """The backend "cuda" on such a device while this lasts."""
    with pytest.MonkeyPatch.context() as patch, host_cupy.installed():
        reference.install(patch)
        ring = Ring(LateLink(free=free), threads, slot_bytes)

        def executor(plan):
            ready = host_cupy.executor(plan)

            def launch(*arguments):
                ring.link.kernels_are_new = True
                ready.launch(*arguments)

            return SimpleNamespace(launch=launch)

        patch.setattr("cuteblas.runtime.executor", executor)
        for module in (host_cuda, streamed, tiles):
            patch.setattr(module, "current_ring", lambda: ring)
        patch.setattr(settings, "driver_is_there", lambda: True)
        patch.setattr(placement, "_possible", lambda: True)
        patch.setattr(placement, "_started", True)
        try:
            with cuteblas.backend(backend):
                yield ring.link
        finally:
            ring.close()
