"""Arrays in parts on several devices, without one."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

import cuteblas
from cuteblas.runtime.errors import MissingDependency


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_the_error_says_how_to_get_it():
    with pytest.raises(MissingDependency, match=r"pip install 'cuteblas\[cuda13\]'"):
        cuteblas.ShardedArray.of(np.ones((3, 3)), [0], 0)
