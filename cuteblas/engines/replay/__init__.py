"""Repeated calls are replayed: a call like one that has run skips checks and planning.

A call is *recorded* as it runs (``recording.py``) and *replayed* from then on: ``cupy.py`` and
``groups.py`` replay launches, ``numpy.py`` what NumPy computes. ``kept.py`` *keeps* recorded calls
on disk for other processes, ``launches.py`` has the launches of a replay, and ``registry.py`` says
which types of arrays have a replay.
"""
