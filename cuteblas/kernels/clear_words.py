"""``clear_words``: words in device memory are set to zero, before a launch whose blocks tell each other something by them."""

from __future__ import annotations

from functools import cache

from ..codegen.builder import KernelBuilder
from ..codegen.kernel import GeneratedKernel
from ..layout import Layout, Tensor, _

__all__ = ["clear_words"]

_THREADS = 32                        # there is room for one warp beside a block of any other kernel


@cache
def clear_words() -> GeneratedKernel:
    """Generate the kernel. Parameters: a pointer to words, and their number. One block."""
    k = KernelBuilder("clear_words", _THREADS, summary="words[i] = 0")
    words = k.pointer("words", "uint32", const=False, alignment=4)
    cleared = Tensor(words, Layout((1, k.integer("count"))))
    nothing = k.registers("nothing", "uint32", Layout(1))
    k.fill(nothing)
    with k.loop("i", cleared.layout.shape[1], start=k.thread, step=_THREADS) as i:
        k.copy(nothing, cleared[_, i], width=1)
    return k.build()
