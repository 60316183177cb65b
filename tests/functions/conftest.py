"""Backends for these tests: the slow, obvious executors of ``reference`` take the place of planner,
emulator and GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cuteblas

from . import reference


@pytest.fixture(scope="module")
def by_definition() -> Iterator[None]:
    """Run the emulator backend's problems by the definition."""
    with pytest.MonkeyPatch.context() as patch, cuteblas.backend("emulator"):
        reference.install(patch)
        yield
