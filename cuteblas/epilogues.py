"""Predefined epilogues for ``epilogue=``, and functions that NumPy lacks for epilogues of your own.

A predefined epilogue is also a function: called with positional arguments it computes, on arrays
and inside other epilogues.

>>> import numpy as np
>>> from cuteblas import epilogue, epilogues
>>> epilogues.relu(np.array([-1.0, 2.0]))
array([0., 2.])
>>> @epilogue
... def gated(acc, *, gate):
...     return epilogues.sigmoid(gate) * acc
"""

from numpy import maximum, minimum, where

from .functions.epilogues import Bound, Epilogue, epilogue
from .functions.epilogues.functions import erf
from .functions.epilogues.predefined import *  # noqa: F403
from .functions.epilogues.predefined import __all__ as ready

__all__ = ["Bound", "Epilogue", "epilogue", "erf", "maximum", "minimum", "ready", "where", *ready]
