"""Threads of a device run near to it."""

import os
from types import SimpleNamespace

import pytest

from cuteblas.runtime import link

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux's call")


def of(name):
    """The link of a device of that name on its bus."""
    found = link.Link.__new__(link.Link)
    found.ordinal, found._runtime = 3, SimpleNamespace(deviceGetPCIBusId=lambda ordinal: name[ordinal])
    return found


@pytest.mark.parametrize("words, processors", [
    ("0-3\n", {0, 1, 2, 3}), ("5", {5}), ("0-1,4,8-9\n", {0, 1, 4, 8, 9})])
def test_lists_of_processors(words, processors):
    assert link.processors_in(words) == processors


def test_processors_near_a_device(monkeypatch, tmp_path):
    mine = os.sched_getaffinity(0)
    one = min(mine)
    monkeypatch.setattr(link, "_PCI", tmp_path)
    for name, words in {"0000:1a:00.0": f"{one},4000", "0000:1b:00.0": "4000", "0000:1c:00.0": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "local_cpulist").write_text(words)
    with pytest.raises(KeyError), of({3: "0000:1A:00.0"}).nearby():
        assert os.sched_getaffinity(0) == {one}
        raise KeyError
    assert os.sched_getaffinity(0) == mine
    for name in ("0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"):     # none, no list, no device
        with of({3: name}).nearby():
            assert os.sched_getaffinity(0) == mine
