"""Show or clear the cache on disk: compiled kernels, and calls that have run. A file carries those
for GPUs to other machines.

  # the kernels of one card
  python -m cuteblas cache export kernels.zip --device h200
  # into the cache of this user
  python -m cuteblas cache import kernels.zip
"""

from __future__ import annotations

from argparse import Namespace

from .._cache import Part, cache_directory, clear, export_to, import_from, usage
from ..planning.problem import DEVICES, device_named
from .command import Parser, refusals

_PARTS: dict[Part, str] = {"entries": "for GPUs", "calls": "calls on GPUs",
                           "choices": "measured choices", "emulator": "for the emulator"}


def configure(parser: Parser) -> None:
    parser.option("--clear", "remove all files from it")
    parser.option("action",
                  "write kernels and calls to a file, or read it",
                  nargs="?", choices=("export", "import"))
    parser.add_argument("file", nargs="?", metavar="FILE")
    parser.option("--device CARD", f"export what is for one of {', '.join(DEVICES)}; default: all")


def run(options: Namespace) -> int:
    """Print the directory and what it holds, clear it, or write or read a file."""
    if options.action:
        with refusals(ValueError):
            if options.file is None:
                raise ValueError(f"cache {options.action} needs a FILE")
            arch = device_named(options.device).arch if options.device else ""
            count = export_to(options.file,
                              arch) if options.action == "export" else import_from(options.file)
        print(f"files {options.action}ed: {count}")
        return 0
    print(cache_directory())
    for part, purpose in _PARTS.items():
        used = usage(part)
        cleared = f", {clear(part)} removed" if options.clear else ""
        print(
            f"  {purpose:18}{used.files:6} {'file ' if used.files == 1 else 'files'} {used.bytes / 2**20:8.1f} MiB{cleared}"
        )
    return 0
