"""Show or clear the cache on disk: compiled kernels, and calls that have run. A file carries those for GPUs to other machines.

  # the kernels of one card
  python -m cuteblas cache export kernels.zip --device h200
  # into the cache of this user
  python -m cuteblas cache import kernels.zip
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .._cache import Part, cache_directory, clear, export_to, import_from, usage
from ..codegen.architectures import number_of
from ..planning.devices import DEVICES, device_named
from .command import CommandError

_PARTS: dict[Part, str] = {"entries": "for GPUs", "calls": "calls on GPUs", "emulator": "for the emulator"}
_ARCHITECTURE = slice(48, 50)           # of a cubin: one of these bytes, by the version of its form


def configure(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--clear", action="store_true", help="remove all files from it")
    parser.add_argument("action", nargs="?", choices=("export", "import"), help="write kernels and calls to a file, or read it")
    parser.add_argument("file", nargs="?", metavar="FILE")
    parser.add_argument("--device", metavar="CARD", help=f"export what is for one of {', '.join(DEVICES)}; default: all")


def run(options: Namespace) -> int:
    """Print the directory and what it holds, clear it, or write or read a file.

    Raises
    ------
    CommandError
        If the card is unknown, there is no name of a file, or ``export`` did not write the file.
    """
    if options.action:
        try:
            if options.file is None:
                raise ValueError(f"cache {options.action} needs a FILE")
            arch = options.device and device_named(options.device).arch

            def wanted(part: str, data: bytes) -> bool:
                return not arch or (arch.encode() in data if part == "calls" else number_of(arch) in data[_ARCHITECTURE])

            count = import_from(options.file) if options.action == "import" else export_to(options.file, wanted)
        except ValueError as error:
            raise CommandError(error) from None
        print(f"files {options.action}ed: {count}")
        return 0
    print(cache_directory())
    for part, purpose in _PARTS.items():
        used = usage(part)
        cleared = f", {clear(part)} removed" if options.clear else ""
        print(f"  {purpose:18}{used.files:6} {'file ' if used.files == 1 else 'files'} {used.bytes / 2**20:8.1f} MiB{cleared}")
    return 0
