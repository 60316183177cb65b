"""xarray, with our arrays as data."""

from __future__ import annotations

import numpy as np
import pytest

xr = pytest.importorskip("xarray")

RNG = np.random.default_rng(9)
A, B, V = RNG.standard_normal((20, 30)), RNG.standard_normal((30, 16)), RNG.standard_normal(30)


def named(x, dims):
    return xr.DataArray(x, dims=tuple(dims))


CALLS = {"@": lambda put: named(put(A), "ij") @ named(put(B), "jk"),
         "dot": lambda put: xr.dot(named(put(A), "ij"), named(put(B), "jk"), dim="j"),
         "dot-three": lambda put: xr.dot(named(put(A), "ij"), named(put(B), "jk"),
                                         named(put(V), "j"), dim=["j"]),
         "weighted": lambda put: named(put(A), "ij").weighted(named(put(abs(V)), "j")).mean("j"),
         "apply_ufunc": lambda put: xr.apply_ufunc(np.matmul, named(put(A), "ij"),
                                                   named(put(B), "jk"),
                                                   input_core_dims=[["i", "j"], ["j", "k"]],
                                                   output_core_dims=[["i", "k"]]),}


@pytest.mark.parametrize("by_opt_einsum", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_products(arrays, name, by_opt_einsum):
    if by_opt_einsum:
        pytest.importorskip("opt_einsum")
    with xr.set_options(use_opt_einsum=by_opt_einsum):
        expected = CALLS[name](np.asarray).data
        with arrays.multiplied("tensordot", "einsum", "matmul"):
            result = CALLS[name](arrays.put)
    arrays.agree(result.data, expected)


def test_statistics(arrays):
    x, y = named(arrays.put(A), "ij"), named(A, "ij")
    for call in (lambda z: z.mean("i"), lambda z: z.std("j"), lambda z: xr.cov(z, z, "i"),
                 lambda z: (z - z.mean("i")).transpose()):
        arrays.agree(call(x).data, call(y).data)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z.rolling(i=3).mean(),
        lambda z: z.shift(i=1),
        lambda z: z.pad(j=1),
        lambda z: z.differentiate("i"),
        lambda z: z.T,
        lambda z: z.assign_coords(i=np.arange(20.0)).cumulative_integrate("i"),
        lambda z: z.quantile(0.5, "i"),
        lambda z: z.diff("j"),
        lambda z: z.where(z > 0),
        lambda z: z.stack(k=("i", "j")),
        lambda z: z.groupby_bins("i", 2).mean(),
        lambda z: z.sortby("i")
    ]
)
def test_what_looks_for_more_than_the_standard_has(arrays, call):
    if arrays.backend == "cuda":
        pytest.skip("xarray asks for functions that CuPy does not have, nanquantile among them")
    result, expected = (call(named(x, "ij").assign_coords(i=np.arange(20)))
                        for x in (arrays.put(A), A))
    arrays.agree(result.data, expected.data)
