"""The backends of the tests of functions, and what sees writes to kept arrays."""

import pytest

from cuteblas.emulator.compiler import available
from cuteblas.runtime.tracking import why_untracked
from tests.functions.conftest import by_definition

__all__ = ["by_definition"]


@pytest.fixture(params=["Linux", "hashes"])
def hashes(request):
    """Whether hashes alone tell what was written."""
    if request.param == "Linux" and why_untracked() is not None:
        pytest.skip(why_untracked())
    if request.param == "hashes" and not available():
        pytest.skip("there is no compiler")
    return request.param == "hashes"
