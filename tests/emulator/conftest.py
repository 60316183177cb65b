"""All of these tests compile kernels."""

from __future__ import annotations

import pytest

from cuteblas import emulator


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if not emulator.available():
        pytest.skip(str(emulator.why_unavailable()))
