"""Products of fragments by fused multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass

from ..layout import Tensor
from ..layout.symbolic import equal, select
from .builder import KernelBuilder
from .engine import CodegenError, static_extents

__all__ = ["Fma"]


@dataclass(frozen=True)
class Fma:
    """``c += a b^T`` on fragments: c ``((vm, vn), rest_m, rest_n)``, a ``(vm, rest_m)``, b
    ``(vn, rest_n)``.

    Each element of B stays while the loop runs over A; for sums in float32 it runs forwards and
    backwards in turn. So the operand that stays and the one at the turn come from the operand
    cache: the register file has two ports for three operands.

    Attributes
    ----------
    conj_a, conj_b : bool
        Whether elements are conjugated.
    in_order : bool
        Whether the compiler keeps this order in float32; the assembler is asked to reorder less.

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> from cuteblas.codegen.fma import Fma
    >>> from cuteblas.layout import Layout
    >>> k = KernelBuilder("example", threads=32)
    >>> a, b = (k.registers(name, "float32", Layout((2, 1))) for name in "ab")
    >>> c = k.registers("c", "float32", Layout(((2, 2), 1, 1)))
    >>> k.gemm(Fma(), c, a, b)
    >>> k.build().body.splitlines()[-4].strip()
    'cb::mac(c[at + j * 2], a[at], b[j]);'
    """

    conj_a: bool = False
    conj_b: bool = False
    in_order: bool = False

    def __post_init__(self) -> None:
        if self.in_order and (self.conj_a or self.conj_b):
            raise CodegenError(
                "in_order multiply-adds take float32 operands that are not conjugated"
            )

    def gemm(self, k: KernelBuilder, c: Tensor, a: Tensor, b: Tensor) -> None:
        """Write the product."""
        (vm, rm), (vn, rn) = static_extents(a), static_extents(b)
        if static_extents(c) != (vm * vn, rm, rn):
            raise CodegenError(
                f"fma: C {c.layout} is not the outer product of A {a.layout} and B {b.layout}"
            )
        call = "mac_in_order" if self.in_order else "mac_dp4a" if a.engine.dtype.name == "int8x4" else "mac"
        if self.in_order:
            k.assembler = ("-O1",)
        flags = (self.conj_a, self.conj_b) if self.conj_a or self.conj_b else ()
        last, turns = vm * rm - 1, vm * rm > 1 and vn > 1 and c.engine.dtype.name == "float32"
        with k.loops((vm * rm, vn, rn)) as (at, j, n):
            at = k.let("at", select(equal(j % 2, 0), at, last - at) if turns else at)
            i, m = at % vm, at // vm
            k.do(call, c((i, j), m, n), a(i, m), b(j, n), of=flags)
