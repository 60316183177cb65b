"""opt_einsum, which finds ``tensordot`` and ``einsum`` in the module that an array's type is
from."""

from __future__ import annotations

import numpy as np
import pytest

opt_einsum = pytest.importorskip("opt_einsum")

RNG = np.random.default_rng(5)
SHAPES = {"i": 6, "j": 7, "k": 5, "l": 4, "m": 3}

EXPRESSIONS = ["ij,jk->ik", "ij,jk->ki", "ij,jk,kl->il", "ijk,jkl->il", "ijk,ljk->li", "ij,ij->",
               "ijk,jl,km->ilm", "ii,ij->j", "bij,bjk->bik", "i,j->ij"]


@pytest.mark.parametrize("optimize", ["optimal", "greedy"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_contractions(arrays, expression, optimize):
    extents = SHAPES | {"b": 2}
    operands = [RNG.standard_normal([extents[letter] for letter in term])
                for term in expression.partition("->")[0].split(",")]
    # which multiplies element by element
    by_cupy = arrays.library == "cupy" and expression == "i,j->ij"
    with arrays.multiplied("tensordot", "einsum", "matmul", least=0 if by_cupy else 1):
        result = opt_einsum.contract(expression, *map(arrays.put, operands), optimize=optimize)
    arrays.agree(result, np.asarray(np.einsum(expression, *operands)))


def test_expressions_are_compiled_once(arrays):
    a, b, c = (RNG.standard_normal(shape) for shape in ((6, 7), (7, 5), (5, 4)))
    product = opt_einsum.contract_expression("ij,jk,kl->il", a.shape, arrays.put(b), c.shape,
                                             constants=[1])
    with arrays.multiplied("tensordot", "einsum", "matmul", least=2):
        result = product(arrays.put(a), arrays.put(c))
    arrays.agree(result, a @ b @ c)
