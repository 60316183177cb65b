"""``clear_words``: words are set to zero for a launch whose blocks signal each other by them."""

from __future__ import annotations

from functools import cache

from ...codegen import GeneratedKernel, KernelBuilder
from ..common import clear

_THREADS = 32                       # there is room for one warp next to a block of any other kernel


@cache
def clear_words() -> GeneratedKernel:
    """Generate the kernel, of one block: a pointer to words and their number."""
    k = KernelBuilder("clear_words", _THREADS, summary="words[i] = 0")
    clear(k, k.pointer("words", "uint32", const=False, alignment=4), k.integer("count"))
    return k.build()
