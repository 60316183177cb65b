"""Where kernels run."""

import pytest

from .engines import Cuda, Emulator


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def engine(request):
    """The emulator (skipped without a C++ compiler), and a GPU where there is one."""
    if request.param == "cuda":
        return Cuda()
    from cuteblas import emulator

    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    return Emulator()


@pytest.fixture
def tiles_alone(monkeypatch):
    """Permutations that planning would move by boxes are moved by the kernel for their kind of
    rows."""
    from cuteblas.planning import plan_copy

    plan_copy.cache_clear()
    monkeypatch.setattr("cuteblas.planning.copy.dispatch._in_boxes", lambda *_: False)
    yield
    plan_copy.cache_clear()
