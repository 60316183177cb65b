"""An author of epilogues: functions of the accumulator, with operands and scalars, fused into products."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cuteblas
from cuteblas import epilogues


@cuteblas.epilogue
def gated(acc: Any, *, gate: Any, bias: Any, slope: float = 0.1) -> Any:
    y = acc + bias
    return np.where(y > 0, y, slope * y) * epilogues.sigmoid(gate)


def layer(x: NDArray[np.float32], w: NDArray[np.float32], gate: NDArray[np.float32]) -> NDArray[np.float32]:
    bound = gated(gate=gate, bias=np.zeros((1, w.shape[1]), np.float32), slope=0.2)
    result: NDArray[np.float32] = cuteblas.matmul(x, w, epilogue=bound)
    return result


if __name__ == "__main__":
    x, w = np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32)
    y = layer(x, w, np.zeros((2, 3), np.float32))
    assert np.allclose(y, 0.5)
    assert (cuteblas.matmul(x, -w, epilogue=epilogues.relu) == 0).all()
    assert (epilogues.relu(np.array([-1.0, 2.0])) == [0.0, 2.0]).all()
