"""Show or clear the compiled kernels on disk."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..runtime.cache import cache_directory, clear, usage


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--clear", action="store_true", help="remove every compiled kernel")


def run(options: Namespace) -> int:
    """Print the directory and its content."""
    count, size = usage()
    print(f"{cache_directory()}: {count} {'kernel' if count == 1 else 'kernels'}, {size / 2**20:.1f} MiB")
    if options.clear:
        print(f"removed {clear()}")
    return 0
