"""Epilogues: Python functions that products apply to their sums; traced for kernels, run as they
are by NumPy."""

from .epilogue import Bound, Epilogue, epilogue
from .evaluation import evaluate
from .resolution import Matrix, Resolved, Vector, as_bound, resolve

__all__ = ["Bound", "Epilogue", "Matrix", "Resolved", "Vector", "as_bound", "epilogue", "evaluate",
           "resolve"]
