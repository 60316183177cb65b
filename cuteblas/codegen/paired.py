"""Two launches of one kernel as one: every parameter is there twice, and a block takes those of the
launch that it belongs to."""

from __future__ import annotations

from .._dtypes import dtype
from ..layout.symbolic import Expr, Var
from .builder import KernelBuilder
from .engine import Pointer
from .values import integer

__all__ = ["PairBuilder"]


class PairBuilder(KernelBuilder):
    """Writes one kernel that does the work of two launches; the kernel is written as for one
    launch.

    The kernel's own parameters are ``blocks_first``, the blocks of the first launch, then each
    parameter ``x`` of the kernel for one as ``x0`` and ``x1``.

    Parameters
    ----------
    name, threads, **options
        As in :class:`KernelBuilder`.

    Examples
    --------
    >>> from cuteblas.codegen.paired import PairBuilder
    >>> k = PairBuilder("example", threads=32)
    >>> A = k.pointer("A", "float32")
    >>> [q.name for q in k.build().params]
    ['blocks_first', 'A0', 'A1']
    """

    def __init__(self, name: str, threads: int, **options: object):
        super().__init__(name, threads, **options)       # type: ignore[arg-type]
        first, block = super().integer("blocks_first"), super().block_index("block_of_both", "x")
        second = self.flag("second", integer(block) >= first)
        self._own = self.let("own_block", block - second * first)

    def block_index(self, name: str, axis: str, hi: int | None = None) -> Expr:
        """The block's index in its launch; there is only one axis."""
        return self._declare(name, self._c(self._own), Var(name, 0, hi))

    def pointer(self, name: str, element: str, *, const: bool = True,
                alignment: int = 16) -> Pointer:
        """The pointer of this block's launch."""
        first, second = (super(PairBuilder, self).pointer(f"{name}{i}", element, const=const,
                                                          alignment=alignment) for i in range(2))
        dt = dtype(element)
        qualifier = " const" if const else ""
        self._line(
            f"{dt.ctype}{qualifier}* const {self._fresh(name)} = second ? {second.name} : {first.name};"
        )
        return Pointer("gmem", name, dt, alignment=alignment, root=name, const=const)

    def integer(self, name: str, *, lo: int | None = 0, hi: int | None = None, multiple: int = 1,
                typical: int | None = None) -> Expr:
        """The integer of this block's launch."""
        first, second = (super(PairBuilder, self).integer(f"{name}{i}", lo=lo, hi=hi,
                                                          multiple=multiple, typical=typical)
                         for i in range(2))
        self._access.parameter(name, extent=lo is not None, value=typical)
        return self._declare(name, f"second ? {second} : {first}", Var(name, lo, hi, -multiple))
