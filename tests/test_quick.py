"""The quick subset has tests of every layer."""

from pathlib import Path

import pytest

import cuteblas

from . import quick

ROOT = Path(__file__).parents[1]
LAYERS = {path.parent.name for path in Path(cuteblas.__file__).parent.glob("*/__init__.py")}


def test_every_layer_is_there():
    assert set(quick.QUICK) == LAYERS | {"conformance", "packaging"} and all(quick.QUICK.values())


@pytest.mark.parametrize("entry", [entry for entries in quick.QUICK.values() for entry in entries])
def test_what_is_named_exists(entry):
    file, _, function = entry.partition("::")
    assert (ROOT / file).exists() and (
        not function or f"\ndef {function}(" in (ROOT / file).read_text(encoding="utf-8")
    )


def test_this_very_test_is_marked(request):
    assert request.node.get_closest_marker("quick")
