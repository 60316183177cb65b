"""Where kernels run."""

import pytest

from cuteblas.planning import plan_copy

from .engines import Cuda, Emulator


@pytest.fixture
def without_boxes(monkeypatch):
    """Permutations of short modes by the kernels of others."""
    plan_copy.cache_clear()
    monkeypatch.setattr("cuteblas.planning.copy._are_short", lambda *_: False)
    yield
    plan_copy.cache_clear()


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def engine(request):
    """The emulator (skipped without a C++ compiler), and a GPU where there is one."""
    if request.param == "cuda":
        return Cuda()
    from cuteblas import emulator

    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    return Emulator()
