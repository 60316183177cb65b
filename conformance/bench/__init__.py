"""The measurements of docs/performance.

``python -m conformance.bench --help`` and ``python -m conformance.bench calibrate --help`` list what they take.
"""
