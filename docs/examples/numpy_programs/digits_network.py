"""A neural network with two hidden layers learns digits, in plain NumPy: nothing here knows of
cuteblas.

    python digits_network.py [HIDDEN [BATCH [STEPS]]]
    python -m cuteblas --numpy --compare digits_network.py

The digits are ten random pictures with noise, enlarged to 784 features.
"""

import sys
from itertools import pairwise
from time import perf_counter

import numpy as np


def digits(rng):
    """Samples of 64 features between 0 and 1, around a picture of each class, and their classes."""
    classes = rng.integers(0, 10, 1797)
    return (rng.random((10, 64))[classes] + 0.1
            * rng.random((1797, 64))).astype(np.float32), classes


def step(layers, x, targets, rate):
    """One step of gradient descent; returns the loss."""
    inputs = [x]
    for weights, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weights + bias, 0))
    weights, bias = layers[-1]
    scores = inputs[-1] @ weights + bias
    scores -= scores.max(axis=1, keepdims=True)
    shares = np.exp(scores)
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.log(shares[targets]).mean()
    slope = shares
    slope[targets] -= 1
    slope /= len(x)
    for (weights, bias), before in zip(reversed(layers), reversed(inputs), strict=True):
        gradient, along = before.T @ slope, slope.sum(axis=0)
        slope = (slope @ weights.T) * (before > 0)
        weights -= rate * gradient
        bias -= rate * along
    return float(loss)


def main(hidden=512, batch=512, steps=20):
    rng = np.random.default_rng(0)
    pixels, classes = digits(rng)
    enlarge = rng.standard_normal((64, 784), dtype=np.float32) / 8
    widths = [784, hidden, hidden, 10]
    layers = [(rng.standard_normal((m, n), dtype=np.float32) * np.float32((2 / m) ** 0.5),
               np.zeros(n, np.float32)) for m, n in pairwise(widths)]
    losses, seconds = [], 0.0
    for _ in range(steps):
        chosen = rng.integers(0, len(pixels), batch)
        x = pixels[chosen] @ enlarge + np.float32(0.05) * rng.standard_normal(
            (batch, 784), dtype=np.float32
        )
        start = perf_counter()
        losses.append(step(layers, x, (np.arange(batch), classes[chosen]), np.float32(0.05)))
        seconds += perf_counter() - start
    print(
        f"checksum {losses[0]:.4g} {losses[-1]:.3g} {float(np.abs(layers[1][0]).sum(dtype=float)):.4g}"
    )
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
