"""Two launches of one kernel as one: a block takes the parameters of the launch it belongs to."""

from __future__ import annotations

from dataclasses import replace

from ..layout.symbolic import Var
from .builder import KernelBuilder
from .kernel import Param
from .values import integer


class PairBuilder(KernelBuilder):
    """Writes one kernel that does the work of two launches; the kernel is written as for one
    launch."""

    def __init__(self, name: str, threads: int, **options: object):
        super().__init__(name, threads, **options)       # type: ignore[arg-type]
        super()._pass(Param("blocks_first", "scalar", self._int_dtype))
        first, block = Var("blocks_first", 0), self.block_index("block_of_both")
        second = self.flag("second", integer(block) >= first)
        self._block_index = self._c(self.let("own_block", block - second * first))

    def _pass(self, param: Param) -> None:
        name = param.name
        for i in range(2):
            super()._pass(replace(param, name=f"{name}{i}"))
        self._line(f"{param.ctype} const {self._fresh(name)} = second ? {name}1 : {name}0;")
