"""NumPy arrays that go to a GPU and come back, without one: CuPy's arrays in this process's memory,
and a link that is late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace

import pytest

import cuteblas
from cuteblas.emulator.errors import CompilerError
from cuteblas.engines import host_cuda, keeping, placement, settings
from cuteblas.functions import tiles
from cuteblas.runtime import mover
from tests.runtime.late_link import LateLink

from . import host_cupy, reference


def raise_compiler_error(*_source: object, **_how: object) -> None:
    raise CompilerError("there is no compiler")


@contextmanager
def linked(*, threads: int = 2, slot_bytes: int = 1 << 12, free: int = 1 << 40,
           backend: str = "cuda", native: bool = True, few_bytes: int = 0,
           hashes: bool = False) -> Iterator[LateLink]:
    """The backend "cuda" on such a device while this lasts; arrays of ``few_bytes`` go without
    threads. ``hashes`` alone tell whether kept arrays were written."""
    with pytest.MonkeyPatch.context() as patch, host_cupy.installed():
        if hashes:
            mover._key()                                # as long as parts are elsewhere
            for module in (mover, host_cuda):
                patch.setattr(module, "HASHED_BYTES", slot_bytes // 4)
            for module in (keeping, host_cuda):
                patch.setattr(module, "hashes_arrays", lambda: True)
        reference.install(patch)
        if not native:
            patch.setattr(host_cuda, "build", raise_compiler_error)
        ring = host_cuda.new_ring(LateLink(free=free), threads=threads, slot_bytes=slot_bytes)

        def executor(plan):
            ready = host_cupy.executor(plan)

            def launch(*arguments):
                ring.link.kernels_are_new = True
                ring.link.kernels += 1
                ring.link.log.append(f"kernel {ring.link.kernels}")
                # the kernel is NumPy's, which may be served by this package
                with cuteblas.backend("numpy"):
                    ready.launch(*arguments)

            return SimpleNamespace(launch=launch)

        def download(*arguments, begin=ring.download):
            assert not ring.link.kernels_are_new, "a download may begin before the kernel has ended"
            return begin(*arguments)

        patch.setattr(ring, "download", download)
        patch.setattr("cuteblas.runtime.executor", executor)
        for module in (host_cuda, tiles):
            patch.setattr(module, "current_ring", lambda: ring)
        patch.setattr(host_cuda, "_homes", {})
        patch.setattr(host_cuda, "current_device", lambda: 0)
        patch.setattr(host_cuda, "FEW_BYTES", few_bytes)
        patch.setattr(settings, "driver_is_there", lambda: True)
        patch.setattr(placement, "_possible", lambda: True)
        patch.setattr(placement, "_started", True)
        patch.setattr(placement, "_compiling", {})
        patch.setattr(placement, "_NOTICED", inf)            # what the late link takes says nothing
        patch.setattr("cuteblas.runtime.loading.are_compiled", lambda kernels, ordinal: True)
        try:
            with cuteblas.backend(backend):
                yield ring.link
        finally:
            cuteblas.release()
            ring.close()
