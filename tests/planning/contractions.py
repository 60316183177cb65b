"""Contractions by subscripts, as ``einsum`` has them."""

from cuteblas.planning import ContractionProblem

__all__ = ["contraction_problem"]


def contraction_problem(subscripts, shapes, strides, storage, **kinds):
    """The contraction of two tensors of these shapes; all three strides are in elements."""
    inputs, c = subscripts.split("->")
    a, b = inputs.split(",")
    extent = {x: n for term, shape in zip((a, b), shapes, strict=True)
              for x, n in zip(term, shape, strict=True)}
    of_a, of_b, of_c = (dict(zip(term, s, strict=True))
                        for term, s in zip((a, b, c), strides, strict=True))
    return ContractionProblem(
        tuple((extent[x], of_a[x], of_c[x]) for x in c if x not in b),
        tuple((extent[x], of_b[x], of_c[x]) for x in c if x not in a),
        tuple((extent[x], of_a.get(x, 0), of_b.get(x, 0)) for x in extent if x not in c), *storage,
        tuple((extent[x], of_a[x], of_b[x], of_c[x]) for x in c if x in a and x in b), **kinds)
