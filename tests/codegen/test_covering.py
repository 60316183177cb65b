"""Words that cover rows which begin anywhere: the layout of words against the places of elements,
and what is refused."""

from itertools import product

import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.covering import CoveredTiles, CpAsyncPart, CutWords, JoinPairs
from cuteblas.codegen.engine import CodegenError
from cuteblas.layout import Layout, Tensor, size
from cuteblas.layout.symbolic import evaluate


def tiles_of(shape=(8, 6, 3), stride=None, element="float16"):
    k = KernelBuilder("example", threads=32)
    ld = k.integer("ld")
    return k, Tensor(k.pointer("A", element) + k.integer("first"),
                     Layout(shape, stride or (1, ld, 8)))


@pytest.mark.parametrize("ld, first, before", list(product((9, 10, 13), (0, 3, 10), (0, 1))))
def test_words_begin_at_or_one_element_before_their_rows(ld, first, before):
    k, tiles = tiles_of()
    covered, known = CoveredTiles.of(k, "A", tiles), {"ld": ld, "first": first,
                                                      "A_words_before": before}
    for name, value in list(k._access.definitions.items()):
        known[name] = evaluate(value, known)
    held = covered.held(1)
    elements = covered.held_elements(k.shared("sA", "b16", Layout(200)).engine, 1)
    for row, tile in product(range(6), range(3)):
        place = before + first + row * ld + 8 * tile
        for word in range(5):
            assert evaluate(covered.words(word, row, tile).index, known) == place // 2 + word
            assert evaluate(covered.begin(word, row, tile), known) == 2 * word - place % 2
            assert covered.number(word, row, tile) == word
        assert evaluate(covered.early(0, row, tile), known) == place % 2
        for column in range(8):
            assert evaluate(elements(column, row, 0).index,
                            known) == 2 * held(0, row, 0) + place % 2 + column


def test_threads_copy_every_word_but_the_last_ones_once():
    k, tiles = tiles_of((64, 16, 2), (1, 65, 64))
    covered = CoveredTiles.of(k, "A", tiles)
    ring, found = Tensor(k.shared("sA", "b32", covered.held(1)).engine, covered.held(1)), []
    for thread in range(128):
        part = covered.partition(ring, 128, thread)
        found += [part(i).index for i in range(size(part.layout))]
    assert sorted(found) == sorted(ring(word, row, 0).index for word in range(32)
                                   for row in range(16))
    with pytest.raises(CodegenError, match="do not divide"):
        covered.partition(ring, 32 * 3, 0)


@pytest.mark.parametrize("shape, stride, element",
                         [((7, 6, 3), None, "float16"), ((8, 5, 3), None, "float16"),
                          ((8, 6, 3), (1, 9, 7), "float16"), ((8, 6, 3), (2, 9, 8), "float16"),
                          ((8, 6, 3), None, "float32")])
def test_other_tiles_are_refused(shape, stride, element):
    k, tiles = tiles_of(shape, stride, element)
    with pytest.raises(CodegenError, match="words cover tiles"):
        CoveredTiles.of(k, "A", tiles)


def test_atoms_refuse_other_memory():
    k = KernelBuilder("example", threads=32)
    words, halves = k.shared("sA", "b32", Layout(4)), k.shared("sB", "b16", Layout((2, 4)))
    registers, S = k.registers("r", "b32", Layout(4)), Tensor(k.pointer("S", "b16"), Layout(4))
    for atom, source, target in ((CpAsyncPart(2), S, words), (CutWords(16), S, registers),
                                 (CutWords(16), words, S), (JoinPairs(), words, registers),
                                 (JoinPairs(), halves, words)):
        with pytest.raises(CodegenError):
            k.copy(atom, source, target)
    k.copy(JoinPairs(), halves, registers)
    k.copy(CutWords(16), words, registers)
