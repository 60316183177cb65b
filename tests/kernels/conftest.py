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
