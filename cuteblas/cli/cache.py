"""Show or clear the cache on disk: compiled kernels, and calls that have run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .._cache import Part, cache_directory, clear, usage

_PARTS: dict[Part, str] = {"entries": "for GPUs", "calls": "calls on GPUs", "emulator": "for the emulator"}


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--clear", action="store_true", help="remove all files from it")


def run(options: Namespace) -> int:
    """Print the directory and what it holds, or clear it."""
    print(cache_directory())
    for part, purpose in _PARTS.items():
        used = usage(part)
        cleared = f", {clear(part)} removed" if options.clear else ""
        print(f"  {purpose:18}{used.files:6} {'file ' if used.files == 1 else 'files'} {used.bytes / 2**20:8.1f} MiB{cleared}")
    return 0
