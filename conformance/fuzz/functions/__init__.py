"""Generators of calls, by the kind of function."""
