"""SciPy with ``SCIPY_ARRAY_API=1``: functions that follow the standard, and what happens in those
that do not."""

from __future__ import annotations

import numpy as np
import pytest

scipy = pytest.importorskip("scipy", minversion="1.16")
pytest.importorskip("array_api_compat")

from scipy import fft, interpolate, linalg, ndimage, signal, special, stats  # noqa: E402
from scipy.cluster import vq  # noqa: E402
from scipy.spatial.transform import RigidTransform, Rotation  # noqa: E402

RNG = np.random.default_rng(7)
A, B, X, Y = RNG.standard_normal((40, 6)), RNG.standard_normal((40, 6)), RNG.standard_normal(200), RNG.standard_normal(200)
S = A.T @ A + 6 * np.eye(6)
QUATERNIONS, VECTORS = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 3))
ROTATIONS = Rotation.from_quat(QUATERNIONS).as_matrix()
MOTIONS = np.concatenate([np.concatenate([ROTATIONS, VECTORS[:, :, None]], 2),
                          np.tile([[[0.0, 0, 0, 1]]], (5, 1, 1))], 1)

PRODUCTS = {
    "linalg.orthogonal_procrustes": lambda put: linalg.orthogonal_procrustes(put(A), put(B)),
    "stats.pearsonr": lambda put: stats.pearsonr(put(X), put(Y)).statistic,
    "stats.pearsonr-axis": lambda put: stats.pearsonr(put(A), put(B), axis=0).statistic,
    "stats.f_oneway": lambda put: stats.f_oneway(put(X), put(Y)).statistic,
    "stats.f_oneway-welch": lambda put: stats.f_oneway(put(X), put(Y), equal_var=False).statistic,
    "cluster.vq.kmeans2": lambda put: vq.kmeans2(put(A), 3, rng=np.random.default_rng(1)),
    "signal.savgol_filter": lambda put: signal.savgol_filter(put(X), 7, 3),
    "Rotation.apply": lambda put: Rotation.from_quat(put(QUATERNIONS)).apply(put(VECTORS)),
    "Rotation.from_matrix": lambda put: Rotation.from_matrix(put(ROTATIONS)).as_quat(),
    "Rotation.mean": lambda put: Rotation.from_quat(put(QUATERNIONS)).mean().as_matrix(),
    "Rotation.align_vectors": lambda put: Rotation.align_vectors(
        put(VECTORS), put(VECTORS[::-1].copy())
    )[0].as_quat(),
    "RigidTransform.apply": lambda put: RigidTransform.from_matrix(put(MOTIONS)).apply(
        put(VECTORS)
    ),
    "RigidTransform.**": lambda put: (RigidTransform.from_matrix(put(MOTIONS)) ** 2).as_matrix(),
}
SINCE = {"signal.savgol_filter": "1.17", "stats.f_oneway": "1.17", "stats.f_oneway-welch": "1.17"}
# Parts of these are compiled for the host. SciPy has other code for CuPy's own type, in cupyx or
# its namespace.
FOR_THE_HOST = frozenset({"stats.pearsonr", "stats.pearsonr-axis", "stats.f_oneway",
                          "stats.f_oneway-welch", "cluster.vq.kmeans2", "signal.savgol_filter",
                          "signal.convolve", "signal.detrend", "ndimage.gaussian_filter",
                          "special.gammaln"})
NOT_FOR_CUPY = {
    "signal.savgol_filter": "SciPy hands CuPy's arrays to cupyx.scipy.signal, whose algorithm is another one",
    "cluster.vq.kmeans2": "compiled for the host"
}

OTHERS = {"stats.zscore": lambda put: stats.zscore(put(A)),
          "cluster.vq.whiten": lambda put: vq.whiten(put(A)),
          "signal.convolve": lambda put: signal.convolve(put(X), put(Y)),
          "signal.detrend": lambda put: signal.detrend(put(X)),
          "fft.fft": lambda put: fft.fft(put(X)), "fft.rfft2": lambda put: fft.rfft2(put(A)),
          "ndimage.gaussian_filter": lambda put: ndimage.gaussian_filter(put(A), 1.0),
          "special.logsumexp": lambda put: special.logsumexp(put(A), axis=0),
          "special.gammaln": lambda put: special.gammaln(put(abs(A))),
          "stats.kurtosis": lambda put: stats.kurtosis(put(A)),}


def refused(arrays, name, call):
    """Whether code for the host rejects arrays of this package on the GPU, rather than moving them
    silently."""
    if name not in FOR_THE_HOST or (arrays.library, arrays.backend) != ("cuteblas", "cuda"):
        return False
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        call(arrays.put)
    return True


def test_scipy_has_read_the_variable():
    assert scipy._lib._array_api.SCIPY_ARRAY_API


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(arrays, name):
    pytest.importorskip("scipy", minversion=SINCE.get(name, "1.16"))
    if arrays.library == "cupy" and name in NOT_FOR_CUPY:
        pytest.skip(NOT_FOR_CUPY[name])
    if refused(arrays, name, PRODUCTS[name]):
        return
    with arrays.multiplied("matmul", "vecdot"):
        result = PRODUCTS[name](arrays.put)
    arrays.agree(result, PRODUCTS[name](np.asarray))


@pytest.mark.parametrize("name", OTHERS)
def test_functions_without_products(arrays, name):
    if not refused(arrays, name, OTHERS[name]):
        arrays.agree(OTHERS[name](arrays.put), OTHERS[name](np.asarray))


def test_interpolation(arrays, request):
    if arrays.library == "cuteblas":
        request.applymarker(
            pytest.mark.xfail(
                reason="SciPy calls xp.diag, which the standard does not have",
                strict=False,
                raises=AttributeError
            )
        )

    def interpolated(put):
        return interpolate.RBFInterpolator(put(A[:, :2]), put(A[:, 2]))(put(B[:, :2]))

    arrays.agree(interpolated(arrays.put), interpolated(np.asarray), rtol=1e-8)


@pytest.mark.parametrize("call", [linalg.inv, linalg.expm, linalg.svdvals, linalg.det],
                         ids=lambda call: call.__name__)
def test_what_does_not_follow_the_standard_takes_numpys(arrays, call):
    if arrays.backend == "cuda":
        with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
            call(arrays.put(S))
    else:
        result = call(arrays.put(S))
        assert isinstance(result, (np.ndarray, np.generic, float))
        np.testing.assert_array_equal(result, call(S))
