"""A differential fuzzer: random calls of every public function, compared with NumPy's own result of
the same call.

``python -m conformance.fuzz --help``; docs/conformance.md says what is compared.
"""
