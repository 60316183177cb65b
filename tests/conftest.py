"""What all tests share: the ``gpu`` and ``quick`` marks and a cache of their own."""

import pytest

from cuteblas.runtime import why_unavailable

from . import quick


def pytest_collection_modifyitems(items):
    quick.mark(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := why_unavailable()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    """Compiled kernels go to a directory of this run, not to the user's, and every process plans its calls itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        patch.setenv("CUTEBLAS_KEEP_CALLS", "0")
        yield
