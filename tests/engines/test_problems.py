"""The problems that calls turn into: extents, strides, merged modes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuteblas
from cuteblas.engines.emulator import EMULATOR
from cuteblas.engines.memory import Memory
from cuteblas.engines.problems import copy_problem
from cuteblas.planning.problem import GemmProblem, Operand

from ..functions import reference
from ..functions.arrays import laid_out

pytestmark = pytest.mark.usefixtures("by_definition")


def problem(x1, x2, out=None, **arguments):
    """The problem of a call, which is run."""
    cuteblas.matmul(x1, x2, out, **arguments)
    return reference.LAUNCHED[-1].problem


def gemm(m, n, k, a, b, c, batch=(), batches=((), (), ()), dtype="float64", alignment=(16, 16, 16)):
    return GemmProblem(
        m,
        n,
        k,
        *(
            Operand(dtype, strides, of_batch, alignment=bytes_)
            for strides, of_batch, bytes_ in zip((a, b, c), batches, alignment, strict=True)
        ),
        batch=batch
    )


def zeros(*shape, dtype="f8"):
    """A new array that is aligned to 16 bytes."""
    array = EMULATOR.empty(Memory(shape, np.empty(shape, dtype).strides, np.dtype(dtype)))
    array[...] = 0
    return array


def test_matrices_are_read_where_they_lie():
    a, b, out = zeros(3, 4), zeros(4, 5), zeros(3, 5)
    assert problem(a, b, out) == gemm(3, 5, 4, (4, 1), (1, 5), (5, 1))
    assert problem(b.T, a.T, out.T) == gemm(5, 3, 4, (1, 5), (4, 1), (1, 5))
    assert problem(a[::-1], b[:, ::-1]) == gemm(3, 5, 4, (-4, 1), (-1, 5), (5, 1))


def test_alignment_of_every_operand():
    a, b, out = zeros(4, 6), zeros(6, 6), zeros(4, 6)
    assert problem(a[:, 1:], b[1:, 2:5], out[:, 3:]) == gemm(4, 3, 5, (6, 1), (1, 6), (6, 1),
                                                             alignment=(8, 16, 8))


def test_vectors():
    v, a, b = zeros(4), zeros(4, 5), zeros(3, 4)
    assert problem(v, a) == gemm(1, 5, 4, (0, 1), (1, 5), (0, 1))
    assert problem(b, v) == gemm(3, 1, 4, (4, 1), (0, 1), (1, 0))
    assert problem(v, v[::-1]) == gemm(1, 1, 4, (0, 1), (0, -1), (0, 0), alignment=(16, 8, 16))


def test_a_contiguous_batch_becomes_rows():
    assert problem(zeros(7, 3, 4), zeros(4, 5)) == gemm(21, 5, 4, (4, 1), (1, 5), (5, 1))
    assert problem(zeros(2, 7, 3, 4), zeros(4, 5)) == gemm(42, 5, 4, (4, 1), (1, 5), (5, 1))
    assert problem(zeros(7, 1, 4), zeros(4, 5)) == gemm(7, 5, 4, (4, 1), (1, 5), (5, 1))
    assert problem(zeros(2, 3, 4), zeros(4)) == gemm(6, 1, 4, (4, 1), (0, 1), (1, 0))


def test_a_batch_of_second_operands_becomes_columns():
    assert problem(zeros(4), zeros(7, 4, 5).transpose(0, 1, 2)) == gemm(
        1, 5, 4, (0, 1), (1, 5), (0, 1), (7,), ((0,), (20,), (5,))
    )
    assert problem(zeros(3, 4), zeros(7, 5, 4).mT, zeros(7, 5, 3).mT) == gemm(
        3, 35, 4, (4, 1), (4, 1), (1, 3)
    )
    assert problem(zeros(3, 4), zeros(7, 4)[..., None]) == gemm(3, 7, 4, (4, 1), (4, 1), (1, 3))


def test_batch_modes_merge_and_ones_go():
    a, b = zeros(2, 1, 7, 3, 4), zeros(2, 1, 7, 4, 5)
    assert problem(a, b) == gemm(3, 5, 4, (4, 1), (1, 5), (5, 1), (14,), ((12,), (20,), (15,)))
    assert problem(a[:, :, ::2], b[:, :, ::2]) == gemm(3, 5, 4, (4, 1), (1, 5), (5, 1), (2, 4),
                                                       ((84, 24), (140, 40), (60, 15)))


def test_broadcast_modes_have_stride_zero():
    assert problem(zeros(7, 1, 3, 4), zeros(2, 4, 5), zeros(7, 2, 3, 5)) == gemm(
        3, 5, 4, (4, 1), (1, 5), (5, 1), (7, 2), ((12, 0), (0, 20), (30, 15)))
    assert problem(zeros(3, 4), zeros(4, 5), zeros(2, 3, 5)) == gemm(3, 5, 4, (4, 1), (1, 5),
                                                                     (5, 1), (2,),
                                                                     ((0,), (0,), (15,)))


def test_axes():
    a, b = zeros(4, 2, 3), zeros(5, 4)
    assert problem(a, b, axes=[(2, 0), (1, 0), (-2, -1)]) == gemm(6, 5, 4, (1, 6), (4, 1), (5, 1))
    assert problem(a[:, :, ::2], b, axes=[(2, 0), (1, 0), (0, 1)]) == gemm(
        2, 5, 4, (2, 6), (4, 1), (5, 1), (2,), ((3,), (0,), (10,)))


def test_flops():
    assert problem(zeros(7, 3, 4), zeros(7, 4, 5)).flops == 2 * 3 * 4 * 5 * 7
    assert problem(zeros(3, 4, dtype="c16"), zeros(4, 5, dtype="c16")).flops == 8 * 3 * 4 * 5


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_copies_move_words(data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3).map(tuple))
    dtype = np.dtype(data.draw(st.sampled_from(("i1", "f2", "f4", "c8", "c16", "S3", "S12", "U1",
                                                "V6", "S32"))))
    layout = data.draw(st.sampled_from(("C", "F", "sliced", "negative", "permuted", "offset")))
    x = laid_out(shape, dtype, layout)
    result = cuteblas.copy(x, order=data.draw(st.sampled_from("CFAK")))
    assert result.dtype == dtype and result.tobytes() == x.tobytes() and not np.shares_memory(x, result)


def test_words_are_as_large_as_alignment_allows():
    x = zeros(4, 6, dtype="c16")
    assert copy_problem(EMULATOR.memory(x.T),
                        EMULATOR.memory(zeros(6, 4, dtype="c16"))).itemsize == 16
    y = zeros(4, 6)
    assert copy_problem(EMULATOR.memory(y.T), EMULATOR.memory(zeros(6, 4))).itemsize == 8
    odd = np.ndarray((4, 6), "c16", np.empty(16 * 24 + 8, np.uint8), 8)
    words = copy_problem(EMULATOR.memory(odd), EMULATOR.memory(zeros(4, 6, dtype="c16")))
    assert words.itemsize == 8 and prod(words.shape) == 48
