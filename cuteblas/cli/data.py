"""What the demonstration multiplies: handwritten digits of scikit-learn, or arrays of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from .command import CommandError

__all__ = ["Task", "task"]

_INSTALL = "pip install 'cuteblas[demo]'"
_CORNER, _IMAGES = 96, 4        # extents of what the emulator works on
_ARCHIVE = b"PK"                # how zip files begin, .npz among them


@dataclass(frozen=True)
class Task:
    """A product, an array to transpose, and a small product for the emulator, whose second operand
    has ``images`` side by side."""

    title: str
    product: str
    transposed: str
    a: np.ndarray
    b: np.ndarray
    x: np.ndarray
    piece: tuple[np.ndarray, np.ndarray]
    images: int = 0


def task(files: Sequence[str]) -> Task:
    """The product of two files, the Gram matrix of one, or without files the digits."""
    if not files:
        return _digits()
    if len(files) > 2:
        raise CommandError(f"demo multiplies one or two .npy files, got {len(files)}")
    arrays = [_load(name) for name in files]
    names = [Path(name).name for name in files]
    title = "; ".join(f"{name}: {x.dtype} {x.shape}" for name, x in zip(names, arrays, strict=True))
    if len(arrays) == 2:
        a, b = arrays
        return Task(title, f"{names[0]} @ {names[1]}", f"the transpose of {names[0]}", a, b,
                    np.atleast_2d(a), (_corner(a), _corner(b)))
    x = np.atleast_2d(arrays[0])
    turned = np.matrix_transpose(x.conj() if x.dtype.kind == "c" else x)
    mark = "A^H" if x.dtype.kind == "c" else "A^T"
    wide = x.shape[-2] <= x.shape[-1]                  # the smaller of the two Gram matrices
    a, b, formula = (x, turned, f"A {mark}") if wide else (turned, x, f"{mark} A")
    product, transposed = f"the Gram matrix {formula} of {names[0]}", f"the transpose of {names[0]}"
    return Task(title, product, transposed, a, b, x, (_corner(a), _corner(b)))


def _corner(x: np.ndarray) -> np.ndarray:
    x = x[(0,) * max(0, x.ndim - 2)]
    return x[(slice(_CORNER),) * x.ndim]


def _digits() -> Task:
    """Products of all pairs of pixels, centred: their Gram matrix is the digits' kernel of degree
    2."""
    if find_spec("sklearn") is None:
        raise CommandError(
            f"the handwritten digits need scikit-learn: {_INSTALL}; or name one or two .npy files"
        )
    from sklearn.datasets import load_digits

    images = load_digits().images.astype(np.float32)
    pixels = images.reshape(len(images), -1)
    pixels = (pixels - pixels.mean(axis=0)) / 16
    features = (pixels[:, :, None] * pixels[:, None, :]).reshape(len(pixels), -1)
    count, height, width = images.shape
    upside_down = np.eye(height, dtype=images.dtype)[::-1]
    title = (
        f"{count} handwritten digits of {height}x{width} pixels, from scikit-learn. Each row of X describes a digit by the "
        f"products of all pairs of its pixels: {features.dtype} {features.shape}."
    )
    return Task(title, "X @ X.T, the similarity of every two digits", "X.T", features, features.T,
                features, (upside_down, np.hstack(images[:_IMAGES])), _IMAGES)


def _load(name: str) -> np.ndarray:
    try:
        with open(name, "rb") as file:
            begins = file.read(len(MAGIC_PREFIX))
        if begins.startswith(_ARCHIVE):
            raise CommandError(
                f"{name} holds several arrays; save the one to multiply with numpy.save"
            )
        if begins != MAGIC_PREFIX:
            raise CommandError(f"{name} is not a .npy file; numpy.save('x.npy', x) writes one")
        x = np.load(name, allow_pickle=False)
    except OSError as error:
        raise CommandError(
            f"{name or repr(name)} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, EOFError, MemoryError) as error:
        if "allow_pickle" in str(error):
            raise CommandError(f"{name} holds Python objects, which are not numbers") from None
        raise CommandError(f"{name} cannot be read as a .npy file: {error}") from error
    if x.dtype.kind not in "biufc":
        raise CommandError(f"{name} holds {x.dtype}, which is not a type of numbers")
    if not x.size or not x.ndim:
        raise CommandError(f"{name} has shape {x.shape}: there is nothing to multiply")
    return x
