"""Estimators of scikit-learn on CuPy arrays, by its array API dispatch: the whole program with
``cuteblas.install()``, and without.

``fit`` and the calls after it are timed. Decompositions (SVD, eigenvectors, QR, Cholesky) are
CuPy's in both.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuteblas.array.install import enabled
from cuteblas.cli.bench import Measured, Row, Selection
from cuteblas.cli.machines import medians
from cuteblas.functions import reset_stats, stats

__all__ = ["CASES", "Case", "clients"]

_SECONDS = 4.0                  # for the timings of one case, which are at least two
_TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
_RANK, _CLUSTERS, _ITERATIONS = 64, 32, 10


@dataclass(frozen=True)
class Case:
    """A program.

    Attributes
    ----------
    name : str
        What it is, in a few words.
    size : tuple of int
        Samples and features, unless ``--sizes`` says otherwise.
    run : callable
        Takes the samples; returns the array of which both ways have to agree.
    """

    name: str
    size: tuple[int, int]
    run: Callable[[Any], Any]


def clients(machine: Any, which: Selection) -> Measured:
    """A row for every program, type and size.

    Raises
    ------
    ModuleNotFoundError
        Without scikit-learn, or without array-api-compat.
    """
    # scikit-learn insists on it, and SciPy reads it when it is imported
    os.environ["SCIPY_ARRAY_API"] = "1"
    import array_api_compat  # noqa: F401       # so that it is found missing here

    sizes = [(size[0], size[1]) for size in which.sizes if len(size) == 2]
    programs = [
        (dtype, case, size)
        for dtype in which.dtypes or ("float32",)
        for case in CASES
        for size in sizes or (case.size,)
    ]
    return len(programs), (_row(machine, which, *program) for program in programs)


def _row(machine: Any, which: Selection, dtype: str, case: Case, size: tuple[int, int]) -> Row:
    from sklearn import config_context

    x = _samples(machine.rival, *size, dtype)
    with config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*did not converge")
        return _measured(machine, which, f"{case.name} {dtype} {size[0]}x{size[1]}", case.run, x)


def _measured(machine: Any, which: Selection, name: str, run: Callable[[Any], Any], x: Any) -> Row:
    def installed() -> Any:
        with enabled():
            return run(x)

    with enabled():                             # the hooks check themselves, once
        reset_stats()
    mine = machine.get(installed())
    products = sum(count for groups in stats().values()
                   for route, count in groups.get("calls", {}).items()
                   if not route.startswith("delegated"))
    theirs = machine.get(run(x))
    ours, rival = medians(machine, installed, lambda: run(x), repeats=which.repeats,
                          seconds=_SECONDS)
    error = float(np.abs(mine - theirs).max() / np.abs(theirs).max())
    return {"case": name, "products": products, "installed_s": ours, "alone_s": rival,
            "ratio": rival / ours, "difference": error,
            "right": error <= _TOLERANCE.get(x.dtype.name, 0.0)}


def _samples(xp: Any, samples: int, features: int, dtype: str) -> Any:
    """Clusters around centres of low rank, so that principal components and mixtures are well
    defined."""
    random = xp.random.RandomState(0)
    rank = min(_RANK, features)
    centres = (random.standard_normal((_CLUSTERS, rank))
               * xp.arange(rank, 0, -1)) @ random.standard_normal((rank, features))
    noise = random.standard_normal((samples, rank)) * xp.arange(rank, 0, -1)
    mixed = noise @ random.standard_normal((rank, features)) / 8 + random.standard_normal((samples, features)) / 4
    return (centres[xp.arange(samples) % _CLUSTERS] / 4 + mixed).astype(dtype)


# -- the programs ----------------------------------------------------------------------------------
def _pca(**options: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        from sklearn.decomposition import PCA

        pca = PCA(min(16, *x.shape), **options)
        pca.fit_transform(x)
        return pca.explained_variance_

    return run


def _ridge(copies: int) -> Callable[[Any], Any]:
    """As many targets as features, times a number: encoding models fit one line of coefficients for
    each of many sensors."""
    def run(x: Any) -> Any:
        from array_api_compat import array_namespace
        from sklearn.linear_model import Ridge

        y = array_namespace(x).tile(x[:, ::-1] * x[:, :1], (1, copies))
        return Ridge(solver="svd").fit(x, y).predict(x)[:100]

    return run


def _mixture(x: Any) -> Any:
    from sklearn.mixture import GaussianMixture

    options = {"init_params": "random_from_data", "random_state": 0, "max_iter": _ITERATIONS,
               "tol": 0.0, "reg_covar": 1e-3}
    return GaussianMixture(_CLUSTERS, **options).fit(x).score_samples(x[:1000])


def _kernel(x: Any) -> Any:
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(x, x[:len(x) // 4], gamma=1e-5)[:100]


CASES = (Case("PCA", (200000, 768), _pca()), Case("PCA full", (20000, 2000),
                                                  _pca(svd_solver="full")),
         Case("PCA covariance_eigh", (20000, 2000), _pca(svd_solver="covariance_eigh")),
         Case("PCA randomized", (20000, 2000),
              _pca(svd_solver="randomized", power_iteration_normalizer="QR", random_state=0)),
         Case("Ridge svd", (20000, 1000), _ridge(1)),
         Case("Ridge svd, 64 targets a feature", (20000, 256), _ridge(64)),
         Case(f"GaussianMixture {_CLUSTERS}", (100000, 64), _mixture),
         Case(f"GaussianMixture {_CLUSTERS}", (1000000, 64), _mixture),
         Case("rbf_kernel", (20000, 256), _kernel),)
"""In the order of the table."""
