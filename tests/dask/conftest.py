"""A cluster of two workers that all tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """Other tests of this process may have Dask's own products."""
    import cuteblas.dask

    cuteblas.dask.install()
    yield
    cuteblas.dask.uninstall()


@pytest.fixture(scope="package")
def client():
    """Two processes with one thread each."""
    distributed = pytest.importorskip("distributed",
                                      reason="distributed, of the extra dask, is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None,
                                  memory_limit=0) as cluster, cluster.get_client() as client:
        yield client
