"""scikit-learn with array API dispatch: its own check of estimators, and its bundled data sets."""

from __future__ import annotations

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", minversion="1.8")
pytest.importorskip("array_api_compat")

from sklearn import datasets, metrics  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # noqa: E402
from sklearn.kernel_approximation import Nystroem  # noqa: E402
from sklearn.linear_model import (  # noqa: E402
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
)
from sklearn.metrics import pairwise  # noqa: E402
from sklearn.mixture import GaussianMixture  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_array_api_input_and_values  # noqa: E402

RANDOMIZED = PCA(n_components=2, svd_solver="randomized", power_iteration_normalizer="QR",
                 random_state=0)
MIXTURE = GaussianMixture(2, init_params="random_from_data", random_state=0)
SINCE = {LogisticRegression: "1.9", PoissonRegressor: "1.9", Nystroem: "1.9"}


def named(estimator):
    return type(estimator).__name__ + (f"-{solver}"
                                       if (solver := estimator.get_params().get("svd_solver"))
                                       else "")


def require(estimator):
    """Skip estimators that this version of scikit-learn does not dispatch."""
    pytest.importorskip("sklearn", minversion=SINCE.get(type(estimator), "1.8"))


# What scikit-learn asks of every estimator that it dispatches, on synthetic data of low rank.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("estimator", [PCA(n_components=2, svd_solver="full", whiten=True),
                                       PCA(n_components=2, svd_solver="covariance_eigh"),
                                       RANDOMIZED, Ridge(solver="svd"), RidgeCV(),
                                       RidgeClassifier(solver="svd"), LogisticRegression(),
                                       PoissonRegressor(), LinearDiscriminantAnalysis(),
                                       Nystroem(n_components=5, random_state=0), MIXTURE],
                         ids=named)
def test_estimators(arrays, estimator, dtype):
    require(estimator)
    if estimator is MIXTURE:
        pytest.skip(
            "the features of this data depend on each other: data that differ by one rounding have other scores"
        )
    with arrays.multiplied("matmul"):
        check_array_api_input_and_values(type(estimator).__name__, estimator,
                                         array_namespace=arrays.library, dtype_name=dtype)


# -- real data -------------------------------------------------------------------------------------
DIGITS, WINE, IRIS = datasets.load_digits(), datasets.load_wine(), datasets.load_iris()
CANCER, DIABETES = datasets.load_breast_cancer(), datasets.load_diabetes()

CASES = [(PCA(8, svd_solver="full"), DIGITS.data[:400], None, ("transform",),
          ("components_", "explained_variance_")),
         (PCA(8, svd_solver="covariance_eigh", whiten=True), DIGITS.data[:400], None,
          ("transform",), ("components_", "mean_")),
         (PCA(3, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0),
          IRIS.data, None, ("transform",), ("explained_variance_", "singular_values_")),
         (Ridge(solver="svd"), DIABETES.data, DIABETES.target, ("predict",), ("coef_",)),
         (RidgeCV(), DIABETES.data, DIABETES.target, ("predict",), ("coef_",)),
         (RidgeClassifier(solver="svd"), WINE.data, WINE.target, ("decision_function",),
          ("coef_", "intercept_")), (LogisticRegression(),
                                     StandardScaler().fit_transform(CANCER.data), CANCER.target,
                                     ("predict_proba",), ("coef_",)),
         (LinearDiscriminantAnalysis(), WINE.data, WINE.target,
          ("decision_function", "predict_proba"), ("coef_", "intercept_")),
         (Nystroem(gamma=0.1, n_components=20, random_state=0), IRIS.data, None, ("transform",),
          ("normalization_",)), (GaussianMixture(3, init_params="random_from_data", random_state=0),
                                 IRIS.data, None, ("predict_proba", "score_samples"),
                                 ("means_", "covariances_", "precisions_cholesky_")),]


@pytest.mark.parametrize("estimator, x, y, methods, attributes", CASES,
                         ids=[named(case[0]) for case in CASES])
def test_real_data(arrays, estimator, x, y, methods, attributes):
    require(estimator)
    fitted, expected = clone(estimator).fit(x, y), {}
    expected = {name: getattr(fitted, name)
                for name in attributes} | {name: getattr(fitted, name)(x) for name in methods}
    data, target = arrays.put(x), None if y is None else arrays.put(y)
    with sklearn.config_context(array_api_dispatch=True), arrays.multiplied("matmul", least=2):
        fitted = clone(estimator).fit(data, target)
        results = {name: getattr(fitted, name)
                   for name in attributes} | {name: getattr(fitted, name)(data) for name in methods}
    for name, result in results.items():
        arrays.agree(result, expected[name], rtol=1e-6)


@pytest.mark.parametrize("function, arguments",
                         [(pairwise.linear_kernel, {}), (pairwise.rbf_kernel, {"gamma": 0.01}),
                          (pairwise.polynomial_kernel, {"degree": 2}),
                          (pairwise.sigmoid_kernel, {"gamma": 1e-6}),
                          (pairwise.cosine_similarity, {}), (pairwise.cosine_distances, {}),
                          (pairwise.euclidean_distances, {}),
                          (metrics.pairwise_distances, {"metric": "cosine"}),
                          (metrics.pairwise_distances, {"metric": "euclidean"}),
                          (pairwise.pairwise_kernels, {"metric": "rbf", "gamma": 0.01})],
                         ids=lambda x: x.__name__ if callable(x)
                         else "-".join(map(str, x.values())))
def test_pairwise(arrays, function, arguments):
    x, y = WINE.data[:60], WINE.data[60:130]
    with sklearn.config_context(array_api_dispatch=True), arrays.multiplied("matmul"):
        result = function(arrays.put(x), arrays.put(y), **arguments)
    arrays.agree(result, function(x, y, **arguments), rtol=1e-8)


def test_without_dispatch_arrays_on_the_host_become_numpys(arrays):
    x = arrays.put(IRIS.data)
    if arrays.backend == "cuda":
        with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
            PCA(2).fit(x)
    else:
        fitted = PCA(2).fit(x)
        assert type(fitted.components_) is np.ndarray
        np.testing.assert_array_equal(fitted.components_, PCA(2).fit(IRIS.data).components_)


def test_mixed_libraries_are_refused(arrays):
    fitted = PCA(2, svd_solver="full").fit(IRIS.data)
    with sklearn.config_context(array_api_dispatch=True), pytest.raises(ValueError, match="must use the same namespace"):
        fitted.transform(arrays.put(IRIS.data))
