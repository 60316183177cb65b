"""Repeated calls are replayed: a call like one that has run skips checks and planning."""
