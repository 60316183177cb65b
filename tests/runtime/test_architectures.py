"""The architecture that a kernel is compiled for."""

import pytest

from cuteblas.codegen.architectures import target_architecture


@pytest.mark.parametrize("kernel, device, target",
                         [("sm_70", "sm_70", "sm_70"), ("sm_70", "sm_90", "sm_90"),
                          ("sm_80", "sm_120", "sm_120"), ("sm_90", "sm_100", "sm_100"),
                          ("sm_90a", "sm_90", "sm_90a"),])
def test_compiled_for_the_device(kernel, device, target):
    assert target_architecture(kernel, device) == target


@pytest.mark.parametrize("kernel, device, words", [
    ("sm_80", "sm_75", "needs sm_80 or newer, but the device is sm_75"),
    ("sm_100", "sm_90", "needs sm_100 or newer"),
    ("sm_90a", "sm_80", "runs only on sm_90a, but the device is sm_80"),
    ("sm_90a", "sm_100", "runs only on sm_90a"),
    ("90", "sm_90", "written like 'sm_80' or 'sm_90a', got '90'"),
])
def test_what_the_device_cannot_run_is_refused(kernel, device, words):
    with pytest.raises(ValueError, match=words):
        target_architecture(kernel, device)
