"""Errors of the generator."""

__all__ = ["CodegenError"]


class CodegenError(ValueError):
    """A kernel that cannot be generated as asked: an access that is not provably aligned, a mode
    that is not covered, ...

    Examples
    --------
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> from cuteblas.codegen.copies import Vector
    >>> from cuteblas.layout import Layout, Tensor
    >>> S, r = Tensor(k.pointer("S", "float32", alignment=4), Layout(4)), k.registers("r", "float32", Layout(4))
    >>> k.copy(Vector(4), S, r)
    Traceback (most recent call last):
    cuteblas.codegen.errors.CodegenError: copy: vectors of 4 elements of S 4:1 are not provably aligned to 16 bytes
    """
