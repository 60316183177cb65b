"""Epilogues: Python functions of a product's sums, traced for kernels and run as such by NumPy."""

from .epilogue import Bound, Epilogue, epilogue
from .traces import Resolved, as_bound, evaluate, resolve

__all__ = ["Bound", "Epilogue", "Resolved", "as_bound", "epilogue", "evaluate", "resolve"]
