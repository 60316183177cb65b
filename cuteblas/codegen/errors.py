"""Errors of the generator."""

__all__ = ["CodegenError"]


class CodegenError(ValueError):
    """A kernel that cannot be generated as asked: an access that is not provably aligned, a mode that is not covered, ..."""
