"""What a contraction is estimated to cost does not depend on how its letters are named or ordered,
beyond what memory does."""

from math import prod
from random import Random

import numpy as np
import pytest

from cuteblas.engines.memory import contiguous_strides
from cuteblas.functions.contractions import _Evaluation, _Factor
from cuteblas.functions.expressions import Term, expression
from cuteblas.planning import H200, Storage, plan_contraction
from tests.planning.contractions import contraction_problem

EXTENTS = {
    "bthd,bshd->bhts": {"b": 8, "h": 16, "t": 256, "s": 256, "d": 64},
    "abcd,ebfd->acef": dict.fromkeys("abcdef", 20),
    "ij,jk->ik": {"i": 900, "j": 1100, "k": 700},
    "bij,bjk->bik": {"b": 16, "i": 300, "j": 200, "k": 400},
    "ij,ij->i": {"i": 30000, "j": 300},
}


def planned(terms, result, dtype, extents):
    """The plan of an ``einsum`` of arrays in C order, the result laid out as it is for CuPy
    arrays."""
    item = np.dtype(dtype).itemsize
    steps = [dict(zip(term, contiguous_strides(tuple(extents[c] for c in term), item), strict=True))
             for term in terms]
    evaluation = _Evaluation(None, extents, np.dtype(dtype), None)
    asked = expression([Term(tuple(term)) for term in terms], tuple(result), extents,
                       np.dtype(dtype))
    written = evaluation.strides_as_written(asked, [_Factor(None, None, s) for s in steps])
    strides = tuple(tuple(s // item for s in each)
                    for each in (*(x.values() for x in steps), written))
    shapes = tuple(tuple(extents[c] for c in term) for term in terms)
    return plan_contraction(contraction_problem(f"{','.join(terms)}->{result}", shapes, strides,
                                                (Storage(dtype),) * 3), H200)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("subscripts", EXTENTS)
def test_orders_of_letters(subscripts, dtype):
    """The most costs at most 1.4 of the least, and what it takes to pack both operands."""
    extents, draw = EXTENTS[subscripts], Random(subscripts)
    terms, _arrow, result = subscripts.partition("->")
    seconds = {}
    for _ in range(25):
        *given, out = ("".join(draw.sample(term, len(term)))
                       for term in (*terms.split(","), result))
        draw.shuffle(given)
        seconds[f"{','.join(given)}->{out}"] = planned(given, out, dtype, extents).seconds
    operands = sum(prod(extents[c] for c in term)
                   for term in terms.split(",")) * np.dtype(dtype).itemsize
    packing = H200.seconds(launches=16, nbytes=2 * operands / 0.8)
    worst = max(seconds, key=seconds.get)
    assert seconds[worst] <= 1.4 * min(seconds.values()) + packing, (worst, seconds[worst],
                                                                     min(seconds.values()))
