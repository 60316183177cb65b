"""Axes in another order: views, as in NumPy, and Fortran-contiguous copies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cuteblas

from .agreement import agree
from .arrays import LAYOUTS, laid_out
from .comparisons import check_same_refusal, outcome

CALLS = [*(("swapaxes", arguments) for arguments in ((0, 1), (-1, 0), (2, 2), (0, 3), (-4, 0),
                                                     (1.5, 0))),
         *(("moveaxis", arguments) for arguments in ((0, -1), ((0, 1), (-1, 0)), ([2], [0]), (0, 7),
                                                     (5, 0), ((0, 0), (1, 2)), ((0, 1), (2, 2)),
                                                     ((0, 1), (2,)), ("a", 0))),
         *(("rollaxis", arguments) for arguments in ((2,), (2, 1), (0, 3), (-1, -2), (3,), (0, 4),
                                                     (0, -4))),
         *(("permute_dims", arguments) for arguments in ((), ((2, 0, 1),), ((-1, 0, 1),),
                                                         ((0, 0, 1),), ((0, 1),), (None,),
                                                         ((0, 1, 5),))),
         *(("transpose", arguments) for arguments in ((), ((1, 0, 2),))),]


@pytest.mark.parametrize("name, arguments", CALLS, ids=str)
def test_views(name, arguments):
    x = laid_out((2, 3, 4), "f", "F")
    result = agree(getattr(cuteblas, name), getattr(np, name), x, *arguments)
    assert result is None or np.shares_memory(result, x)


@pytest.mark.parametrize("name, arguments", CALLS, ids=str)
def test_views_of_cupy_arrays(name, arguments):
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from .host_cupy import on_gpu

    x = laid_out((2, 3, 4), "f", "permuted")
    expected, refusal = outcome(getattr(np, name), x, *arguments)
    if refusal is not None:
        check_same_refusal(getattr(cuteblas, name), refusal, on_gpu(x), *arguments)
    else:
        result = getattr(cuteblas, name)(on_gpu(x), *arguments)
        assert (result.shape, result.strides, result.data.ptr) == (expected.shape, expected.strides,
                                                                   on_gpu(x).data.ptr)


class Index:
    """A number in places."""

    def __index__(self):
        return 1


AXES = (-3, -2, -1, 0, 1, 2, 3, 2**31, 2**63, 2**70, True, False, 1.0, None, "a", np.int64(1),
        np.int8(0), np.array(1), np.array([1]), np.True_, np.float32(1), Index(), (0,), [1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["swapaxes", "moveaxis", "rollaxis", "transpose"])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_what_are_axes_of_cupy_arrays(name, rank):
    """CuPy takes or refuses what NumPy does, and gives the same axes: it is asked before NumPy."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from .host_cupy import on_gpu

    x = laid_out((2, 3, 4)[:rank], "f", "F")
    gpu = on_gpu(x)
    calls = [(kind(axes),) for axes in product(AXES, repeat=min(rank, 2)) for kind in (tuple, list)]
    calls = [((*axes, 2),) if rank == 3 and type(axes) is tuple else (axes,) for axes, in calls]
    more = (*AXES, (), (0, 1), [1, 0], (-1, 0), (0, 0), (True, 0), (1.0, 0))
    for arguments in calls if name == "transpose" else product(more, repeat=2):
        expected, refusal = outcome(getattr(np, name), x, *arguments)
        result, ours = outcome(getattr(cuteblas, name), gpu, *arguments)
        assert type(ours) is type(refusal) and str(ours) == str(refusal), arguments
        assert refusal is not None or (result.shape, result.strides) == (
            expected.shape,
            expected.strides
        ), arguments


def test_lists():
    np.testing.assert_array_equal(cuteblas.moveaxis([[1, 2]], 0, 1), [[1], [2]])
    assert cuteblas.permute_dims is cuteblas.transpose


@pytest.mark.usefixtures("by_definition")
@pytest.mark.parametrize("dtype", ["f", "D", "e", "i1", "M8[s]", "S3", "O"])
def test_asfortranarray(dtype):
    for layout in LAYOUTS if dtype in ("f", "D") else ("C",):
        for shape in ((3, 4), (2, 3, 4), (5,), (), (0, 3)):
            x = laid_out(shape, dtype, layout) if dtype in ("f", "D") else np.zeros(shape, dtype)
            result = agree(cuteblas.asfortranarray, np.asfortranarray, x)
            assert result.flags.f_contiguous


@pytest.mark.usefixtures("by_definition")
def test_routes_of_asfortranarray():
    x = laid_out((3, 4), "f", "C")
    cuteblas.reset_stats()
    assert cuteblas.asfortranarray(x.T) is not x
    assert np.shares_memory(cuteblas.asfortranarray(x.T), x)
    cuteblas.asfortranarray(x)
    cuteblas.asfortranarray(x, "f8")
    assert cuteblas.stats()["asfortranarray"]["calls"] == {
        "delegated to NumPy: changes float32 to float64": 1,
        "nothing": 2,
        "reference": 1
    }
