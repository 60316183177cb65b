"""Epilogues: Python functions that products apply to their sums; traced for kernels, run as they
are by NumPy."""

from .epilogue import Bound, Epilogue, epilogue
from .resolution import Resolved, as_bound, evaluate, resolve

__all__ = ["Bound", "Epilogue", "Resolved", "as_bound", "epilogue", "evaluate", "resolve"]
