"""The forward pass of a transformer, in plain NumPy: nothing here knows of cuteblas.

    python transformer.py [TOKENS [WIDTH [LAYERS [SEQUENCES]]]]
    python -m cuteblas --numpy --compare transformer.py
"""

import sys
from time import perf_counter

import numpy as np

HEADS = 8


def normalised(x):
    """Rows with mean 0 and variance 1."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5))


def softmax(x):
    """Rows that are positive and add up to 1."""
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def attention(x, queries_keys_values, out):
    """Every token looks at all tokens of its sequence."""
    batch, tokens, width = x.shape
    each = (x @ queries_keys_values).reshape(batch, tokens, 3, HEADS, width // HEADS)
    queries, keys, values = each.transpose(2, 0, 3, 1, 4)
    scores = softmax(queries @ keys.swapaxes(-1, -2) * np.float32((width // HEADS) ** -0.5))
    return (scores @ values).transpose(0, 2, 1, 3).reshape(batch, tokens, width) @ out


def main(tokens=128, width=256, layers=2, sequences=4):
    rng = np.random.default_rng(0)

    def weights(rows, columns):
        return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)

    shapes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    model = [[weights(*shape) for shape in shapes] for _ in range(layers)]
    x = rng.standard_normal((sequences, tokens, width), dtype=np.float32)
    start = perf_counter()
    for queries_keys_values, out, wide, narrow in model:
        x = x + attention(normalised(x), queries_keys_values, out)
        x = x + np.maximum(normalised(x) @ wide, 0) @ narrow
    seconds = perf_counter() - start
    print(f"checksum {float(np.abs(x).mean(dtype=float)):.5g}")
    print(f"{seconds:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
