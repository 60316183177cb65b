"""A network with one hidden layer learns to tell two clouds of points apart: its products have
fused epilogues."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import cuteblas
from cuteblas import epilogues

Matrix = NDArray[np.float32]


class Network:
    def __init__(self, features: int, hidden: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.w1 = rng.standard_normal((features, hidden), dtype=np.float32) / np.float32(features)
        self.b1 = np.zeros((1, hidden), np.float32)
        self.w2 = rng.standard_normal((hidden, 1), dtype=np.float32) / np.float32(hidden)

    def forward(self, x: Matrix) -> tuple[Matrix, Matrix]:
        hidden = cuteblas.matmul(x, self.w1, epilogue=epilogues.bias_relu(bias=self.b1))
        return hidden, cuteblas.matmul(hidden, self.w2, epilogue="sigmoid")

    def step(self, x: Matrix, y: Matrix, rate: float) -> float:
        hidden, share = self.forward(x)
        error = (share - y) / np.float32(len(x))
        slope = cuteblas.matmul(error, self.w2.T, epilogue=epilogues.drelu(x=hidden))
        self.w2 -= rate * cuteblas.matmul(hidden.T, error)
        self.w1 -= rate * cuteblas.matmul(x.T, slope)
        self.b1 -= rate * slope.sum(axis=0, keepdims=True)
        return float(-np.log(np.where(y > 0.5, share, 1 - share)).mean())


def batches(seed: int, count: int) -> Iterator[tuple[Matrix, Matrix]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        y = rng.integers(0, 2, (64, 1)).astype(np.float32)
        yield rng.standard_normal((64, 8), dtype=np.float32) + 3 * y, y


if __name__ == "__main__":
    network = Network(8, 16)
    losses = [network.step(x, y, 0.5) for x, y in batches(1, 60)]
    assert losses[-1] < 0.3 < losses[0], losses
