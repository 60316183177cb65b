"""What all tests share: the ``gpu`` and ``quick`` marks, samples of parameters, and a cache of
their own."""

import gc
import os
from contextlib import suppress

import pytest

from cuteblas.runtime import why_unavailable

from . import pairs, quick


def pytest_addoption(parser):
    parser.addoption("--product", action="store_true",
                     help="run every combination of parameters, where a sample has every pair")


def pytest_collection_modifyitems(config, items):
    quick.mark(items)
    if not config.getoption("--product"):
        kept = pairs.without_the_rest(items)
        config.hook.pytest_deselected(items=list(set(items).difference(kept)))
        items[:] = kept
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := why_unavailable()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory, pytestconfig):
    """Compiled kernels go to a directory of this run, not to the user's, and every process plans
    its calls itself. Those of the emulator stay in pytest's cache for later runs: g++ takes half of
    the time of a first one."""
    base = tmp_path_factory.getbasetemp()
    # the workers share it
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    if (cache := getattr(pytestconfig, "cache", None)) is not None:
        compiled = cache.mkdir("emulator")
        compiled.chmod(0o700)
        with suppress(FileExistsError):
            (folder / "emulator").symlink_to(compiled, target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTEBLAS_CACHE_DIR", str(folder))
        patch.setenv("CUTEBLAS_KEEP_CALLS", "0")
        yield


@pytest.fixture(scope="module", autouse=True)
def no_garbage_of_others():
    """A search for garbage looks at what the tests of one file leave: among all tests and the
    kernels of other files it takes a second."""
    gc.collect()
    gc.freeze()
