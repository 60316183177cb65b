"""An author of epilogues: functions of the accumulator, with operands and scalars, fused into
products."""

import numpy as np
from numpy.typing import NDArray

import cuteblas
from cuteblas import epilogues

Matrix = NDArray[np.float32]


@cuteblas.epilogue
def gated(acc: Matrix, *, gate: Matrix, bias: Matrix, slope: float = 0.1) -> Matrix:
    y = acc + bias
    activated: Matrix = np.where(y > 0, y, slope * y) * epilogues.sigmoid(gate)
    return activated


def layer(x: Matrix, w: Matrix, gate: Matrix) -> Matrix:
    bound = gated(gate=gate, bias=np.zeros((1, w.shape[1]), np.float32), slope=0.2)
    return cuteblas.matmul(x, w, epilogue=bound)


if __name__ == "__main__":
    x, w = np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32)
    y = layer(x, w, np.zeros((2, 3), np.float32))
    assert np.allclose(y, 0.5)
    assert (cuteblas.matmul(x, -w, epilogue=epilogues.relu) == 0).all()
    assert (epilogues.relu(np.array([-1.0, 2.0])) == [0.0, 2.0]).all()
