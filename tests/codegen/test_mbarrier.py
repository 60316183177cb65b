"""Barriers in shared memory, and words for other blocks."""

import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mbarrier import Mbarriers, store_async
from cuteblas.codegen.values import local
from cuteblas.layout import Layout, Tensor, _


def test_a_word_for_another_block_lies_there_as_it_would_here():
    k = KernelBuilder("probe", 32, arch="sm_90", cluster=2)
    words, came = k.shared("words", "float32", Layout((8, 2))), Mbarriers(k, "came", 1, arrivals=1)
    rank = k.let("rank", k.block_index("block", "x") % 2)
    word = Tensor(words.engine, Layout((1, 8, 2), (0, 1, 8)))[_, 3, rank]
    store_async(k, local("x", "float32"), word, 1 - rank, came.at(0))
    assert "cb::store_async(&words[rank * 8 + 3], x, -rank + 1, &came[0]);" in k.build().body
    with pytest.raises(CodegenError, match="a word is stored into shared memory"):
        store_async(k, local("x", "float32"), words[_, 0], 1, came.at(0))
