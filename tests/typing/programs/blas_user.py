"""A user of BLAS: updates in place, batches and groups, a plan for calls to come."""

import numpy as np
from numpy.typing import NDArray

from cuteblas import blas

Matrix = NDArray[np.float32]


def update(a: Matrix, b: Matrix, c: Matrix) -> Matrix:
    """C := C - A B^T, in place."""
    return blas.sgemm(-1.0, a, b, beta=1.0, c=c, trans_b="T", overwrite_c=True)


def planned(a: Matrix, b: Matrix, times: int) -> Matrix:
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    step = blas.plan(a, b, c, beta=1.0, overwrite_c=True)
    for _ in range(times):
        step.execute(a, b, c, beta=1.0)
    return c


if __name__ == "__main__":
    a = np.ones((4, 3), np.float32)
    c = np.zeros((4, 4), np.float32)
    assert (update(a, a, c) == -3).all()
    products: list[Matrix] = blas.gemm_batched(1.0, [a, a], [a.T, a.T])
    assert all((product == 3).all() for product in products)
    assert (planned(a, a.T.copy(), 2) == 6).all()
    assert blas.ssyrk(1.0, a, lower=1).shape == (4, 4) and blas.sgemv(2.0, a,
                                                                      a[0]).tolist() == [6.0] * 4
    assert [x.shape for x in blas.gemm_grouped(1.0, [a, c], [a.T, c])] == [(4, 4), (4, 4)]
    z = np.ones((2, 2), np.complex128)
    assert (blas.zgemm(1.0, z, z, trans_a="C", epilogue=None) == 2).all()
