"""The limit of workspaces."""

import numpy as np
import pytest

import cuteblas
from cuteblas.engines import settings
from cuteblas.planning import H200


@pytest.fixture(autouse=True)
def no_limit(monkeypatch):
    monkeypatch.delenv("CUTEBLAS_WORKSPACE_LIMIT", raising=False)
    monkeypatch.setattr(settings, "_asked", False)
    yield
    settings._asked = True
    cuteblas.set_workspace_limit(None)


def test_the_limit_is_that_of_plans():
    a = np.zeros((1024, 1024), "f4")
    with cuteblas.backend("emulator"):
        assert cuteblas.explain(a, a).plan.workspace_bytes > 8 << 20
        assert cuteblas.set_workspace_limit(4 << 20) is None
        plan = cuteblas.explain(a, a).plan
        assert plan.workspace_bytes <= 4 << 20 and "over the limit of 4194304" in plan.reason
        assert cuteblas.set_workspace_limit(None) == 4 << 20
        assert cuteblas.explain(a, a).plan.device == H200


def test_the_environment_sets_the_first_limit(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_WORKSPACE_LIMIT", "1000")
    assert settings.limited(H200).workspace_limit == 1000
    assert cuteblas.set_workspace_limit(7) == 1000 and settings.limited(H200).workspace_limit == 7


@pytest.mark.parametrize("value, error", [(-1, ValueError), ("many", TypeError), (1.5, TypeError),
                                          ([], TypeError)])
def test_other_limits_are_refused(value, error):
    with pytest.raises(error, match="the limit of workspaces has to be a number of bytes"):
        cuteblas.set_workspace_limit(value)


def test_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_WORKSPACE_LIMIT", "plenty")
    with pytest.raises(TypeError,
                       match="CUTEBLAS_WORKSPACE_LIMIT has to be a number of bytes, got 'plenty'"):
        settings.limited(H200)


def test_recorded_calls_are_planned_again():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuteblas.engines.replay import cupy as replay_cupy

    replay_cupy.recorded["a call",] = None
    cuteblas.set_workspace_limit(1)
    assert not replay_cupy.recorded
