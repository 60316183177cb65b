"""The backends of the tests of functions."""

from tests.functions.conftest import by_definition

__all__ = ["by_definition"]
