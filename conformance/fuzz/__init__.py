"""A differential fuzzer: random calls of every public function, judged by NumPy's own answer to the same call.

``python -m conformance.fuzz --help``; docs/conformance.md says what is compared.
"""
