"""The groups ``einsum`` and ``gram`` of ``bench``: contractions in unusual letters, and matrices
times their own transpose."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from cuteblas import blas
from cuteblas.cli.bench import GEMM_DTYPES, Measured, Row, Selection
from cuteblas.cli.machines import medians, random_array, torch_of
from cuteblas.functions import einsum, matmul

__all__ = ["contractions", "gram_matrices"]

_CONTRACTIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,ij->i", ((100000, 300),) * 2),
    ("bi,bi->b", ((4096, 1000),) * 2),
    ("bthd,bshd->bhts", ((8, 1024, 16, 64),) * 2),
    ("abcd,ebfd->acef", ((40,) * 4,) * 2),
    ("bi,ij,bj->b", ((4096, 512), (512, 512), (4096, 512))),
    ("ij->i", ((8192, 8192),)),
)
_SIZES = ((1024,), (2048,), (4096,), (8192,))
_TRIANGLES = {"float32": "ssyrk", "float64": "dsyrk", "complex64": "cherk", "complex128": "zherk"}


def contractions(machine: Any, which: Selection) -> Measured:
    """``einsum`` of two or three arrays, or one, beside that of the other library and torch's."""
    cases = list(product(which.dtypes or GEMM_DTYPES, _CONTRACTIONS))
    return len(cases), (_contracted(machine, which, dtype, *case) for dtype, case in cases)


def _contracted(
    machine: Any, which: Selection, dtype: str, subscripts: str, shapes: tuple[tuple[int, ...], ...]
) -> Row:
    xp = machine.rival
    arrays = [random_array(xp, shape, dtype, i) for i, shape in enumerate(shapes)]
    result, expected = einsum(subscripts, *arrays), xp.einsum(subscripts, *arrays)
    calls = [partial(einsum, subscripts, *arrays), partial(xp.einsum, subscripts, *arrays)]
    if (torch := torch_of(machine)) is not None:
        calls.append(partial(torch.einsum, subscripts, *map(torch.from_dlpack, arrays)))
    ours, rival, *others = medians(machine, *calls, repeats=which.repeats)
    moved = sum(x.nbytes for x in (*arrays, result))
    return {
        "case": f"{subscripts} {dtype}",
        "ours_s": ours,
        "rival_s": rival,
        "torch_s": others[0] if others else None,
        "ratio": min(rival, *others) / ours if others else rival / ours,
        "gb_s": moved / ours / 1e9,
        "right": _near(xp, result, expected),
    }


def gram_matrices(machine: Any, which: Selection) -> Measured:
    """``a.T @ a`` beside the same product of a copy, which is any other product, and beside the
    other library's; and a triangle."""
    cases = list(product(which.dtypes or GEMM_DTYPES, which.sizes or _SIZES))
    return len(cases), (_gram_matrix(machine, which, *case) for case in cases)


def _gram_matrix(machine: Any, which: Selection, dtype: str, size: tuple[int, ...]) -> Row:
    xp = machine.rival
    n, k = (size * 2)[:2] if len(size) == 1 else (size[0], size[-1])
    a = random_array(xp, (k, n), dtype, 1)
    other = a.copy()
    calls = [partial(matmul, a.T, a), partial(matmul, other.T, a), partial(xp.matmul, a.T, a)]
    if (name := _TRIANGLES.get(dtype)) is not None:
        calls.append(partial(getattr(blas, name), 1, a.T, 0, xp.zeros((n, n), dtype, order="F"),
                             overwrite_c=1))
    ours, plain, rival, *triangle = medians(machine, *calls, repeats=which.repeats)
    result = matmul(a.T, a)
    return {
        "case": f"{n}x{n}x{k} {dtype}",
        "ours_s": ours,
        "plain_s": plain,
        "to_plain": plain / ours,
        "rival_s": rival,
        "ratio": rival / ours,
        "triangle_s": triangle[0] if triangle else None,
        "right": bool((result == result.T).all()) and _near(xp, result, matmul(other.T, a)),
    }


def _near(xp: Any, x: Any, y: Any) -> bool:
    """Whether two results differ by no more than roundings of their sums can."""
    wide = "complex128" if x.dtype.kind == "c" else "float64"
    some, others = (z.reshape(-1)[:1 << 20].astype(wide) for z in (x, y))
    return bool(abs(some - others).max() <= 64 * float(np.finfo(x.dtype).eps) * abs(others).max())
