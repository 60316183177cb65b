"""The grade table, printed after the tests."""

from typing import Any

import pytest

from .grades import ROWS, table


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was graded."""
    if ROWS:
        backend = config.getoption("--backend")
        terminalreporter.section(f"accuracy on the backend {backend}, in units of u |A||B|")
        for line in table(ROWS, "cuBLAS" if backend == "cuda" else "NumPy"):
            terminalreporter.write_line(line)
