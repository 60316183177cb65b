"""The measurements of docs/performance.

``python -m conformance.bench`` measures, ``python -m conformance.bench calibrate`` fits; ``--help``
lists what they take.
"""
