"""The command line, ``python -m cuteblas COMMAND``.

A command is a module with ``configure(parser)``, which declares its options, and ``run(options)``,
which returns the exit status; its docstring is its help. Another argument is a program to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ..engines.settings import driver_is_there
from .command import PROGRAM, CommandError, Parser, did_you_mean, ended

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "run": "run an unchanged CuPy or NumPy program with cuteblas; the word run is optional",
    "demo": "multiply and transpose real data, check the results, watch a kernel run",
    "explain": "show which kernel would run for given shapes, and why",
    "kernels": "list the kernels, or show one with its layouts and source",
    "layout": "print and draw a CuTe layout: values, swizzles, bank conflicts",
    "bench": "time cuteblas beside CuPy, or beside NumPy",
    "calibrate": "measure this GPU, so that cuteblas chooses faster kernels for it",
    "warmup": "compile kernels before they are needed",
    "doctor": "check what this machine has, what is missing and how to get it",
    "cache": "show or clear the compiled kernels on disk",
}
"""Names of the modules and one line about each."""

# 2^20 clocks: how long OpenBLAS's threads keep processors busy when they have no more work
_TIMEOUT = "20"


def names_program(argument: str) -> bool:
    """Whether an argument in the place of a command begins a program instead."""
    return argument in ("-m", "-c", "--compare",
                        "--numpy") or argument.endswith(".py") or os.path.exists(argument)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, ``sys.argv`` by default, and return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] not in COMMANDS and names_program(arguments[0]):
        arguments = ["run", *arguments]
    if arguments[:1] == ["run"] and "--numpy" in arguments[1:3] and driver_is_there():
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _TIMEOUT)      # before NumPy is imported
    if arguments[:1] == ["run"] and not {"-h", "--help"}.intersection(arguments[1:2]):
        return _run(arguments)              # a program's output and its exceptions are its own
    return ended(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    from .. import __version__

    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {line}" for name, line in COMMANDS.items())
    parser = Parser(PROGRAM, f"commands:\n\n{listing}")
    parser.add_argument("--version", action="version", version=f"cuteblas {__version__}")
    parser.add_argument("command", nargs="?", metavar="COMMAND")
    parser.option("rest ...", "options of the command; COMMAND --help lists them", nargs="...")
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 0
    if chosen.command not in COMMANDS:
        raise CommandError(f"there is no command or file {chosen.command!r}; "
                           f"{did_you_mean(chosen.command, COMMANDS, 'commands')}")
    module = import_module(f".{chosen.command}", __package__)
    options = Parser(f"{PROGRAM} {chosen.command}", module.__doc__)
    module.configure(options)
    return module.run(options.parse_args(chosen.rest))
