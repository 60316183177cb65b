"""What architectures have."""

from dataclasses import fields

import pytest

from cuteblas.codegen.architectures import (
    FEATURES,
    Capabilities,
    capabilities,
    number_of,
    oldest_with,
    why_lacking,
)


@pytest.mark.parametrize("arch, has", [("sm_75", set()),
                                       ("sm_80", {"async_copies", "float64_tensor_cores"}),
                                       ("sm_89", {"async_copies"}), ("sm_90", set(FEATURES)),
                                       ("sm_90a", set(FEATURES)),
                                       ("sm_100",
                                        {"async_copies", "tma", "clusters",
                                         "overlapping_launches"}),
                                       ("sm_120f",
                                        {"async_copies", "tma", "clusters",
                                         "overlapping_launches"})])
def test_one_table_says_what_they_have(arch, has):
    found = capabilities(arch)
    assert {name for name in FEATURES if getattr(found, name)} == has
    assert {name for name in FEATURES if why_lacking(name, arch) is None} == has


def test_every_feature_has_a_row():
    assert {field.name for field in fields(Capabilities)} == set(FEATURES)


def test_what_kernels_are_compiled_for():
    assert {name: oldest_with(name) for name in ("async_copies", "tma", "wgmma")} == {
        "async_copies": "sm_80", "tma": "sm_90", "wgmma": "sm_90a"}


def test_why_a_device_cannot_run_it():
    assert why_lacking("wgmma", "sm_100") == "wgmma exists on sm_90 alone, not on sm_100"
    assert why_lacking("tma", "sm_89") == "tma exists from sm_90 on, not on sm_89"
    assert why_lacking("float64_tensor_cores", "sm_86") == "float64_tensor_cores exists on sm_80 and sm_90 alone, not on sm_86"
    for arch in ("90", "sm_", "sm_x", "compute_90"):
        with pytest.raises(ValueError, match="arch is written like 'sm_80' or 'sm_90a'"):
            number_of(arch)
