"""Run an unchanged CuPy or NumPy program with cuteblas's products and copies.

  python -m cuteblas program.py
  python -m cuteblas --numpy program.py

PROGRAM is what Python takes: a script, a directory or zip file with a __main__.py, -m MODULE or -c
CODE. When the program ends, stderr lists which products cuteblas ran, which it left to CuPy or
NumPy, and why.
"""

from __future__ import annotations

import atexit
import os
import sys
from argparse import REMAINDER, Namespace
from collections import Counter
from importlib.machinery import BuiltinImporter, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

from ..array import patches
from ..array.install import install, install_with_cupy
from ..functions import stats
from .command import PROGRAM, CommandError, Parser, ended
from .terminal import wrapped

_DELEGATED = "delegated to "
_BY_OTHERS = "numpy", "element by element"


def configure(parser: Parser) -> None:
    parser.option("--numpy", "serve NumPy arrays (the default is CuPy arrays)")
    parser.option("--compare",
                  "when the program ends, time each kind of product that cuteblas ran beside CuPy's or NumPy's own")
    program = parser.add_mutually_exclusive_group()
    program.add_argument("-m", dest="module", nargs=REMAINDER, metavar="MODULE ARGUMENT",
                         help="run a module, as python -m does")
    program.add_argument("-c", dest="code", nargs=REMAINDER, metavar="CODE ARGUMENT",
                         help="run code, as python -c does")
    parser.option("program PROGRAM ARGUMENT", "run a file, as python does", nargs=REMAINDER)


def run(options: Namespace) -> int:
    """Run the program and report at its end; without one, return 1 or 2 as Python does."""
    # The program's exceptions, SystemExit included, are not caught here, so the process ends as it
    # would have without us.
    try:
        main, code = _program(options)
    except SyntaxError as error:
        _show_from(None)
        raise error.with_traceback(None) from None
    except OSError as error:
        print(
            f"{PROGRAM}: can't open file {error.filename!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr
        )
        return 2
    except CommandError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.status
    counter: Any = None
    if options.compare:                 # for which much has to be imported
        from .comparison import CupyCalls, NumpyCalls

        counter = NumpyCalls() if options.numpy else CupyCalls()
    refused: list[str] = []

    def tell() -> int:
        print(f"\n{report_on_numpy(*refused) if options.numpy else report()}", file=sys.stderr)
        if counter is not None:
            for line in counter.compared():
                print(line, file=sys.stderr, flush=True)
        return 0

    def at_exit() -> None:
        ended(tell)               # an exception here would be shown as one of the interpreter's end

    def with_cupy() -> None:
        # CuPy does not free memory after its own functions for the end; ours must come before
        atexit.unregister(at_exit)
        atexit.register(at_exit)

    def installed() -> None:
        with_cupy()
        if counter is not None:
            counter.begin()

    atexit.register(at_exit)
    if options.numpy:
        try:
            install(numpy=True)
            installed()
        except RuntimeError as error:
            refused.append(str(error))
    else:
        install_with_cupy(installed)
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except BaseException:
        _show_from(vars(main))
        raise
    finally:
        if options.numpy and "cupy" in sys.modules:     # ours for its arrays, if not the program's
            with_cupy()
    return 0


# -- programs as Python runs them ------------------------------------------------------------------
class _NoProgram(CommandError):
    """The program's code is missing."""

    def __init__(self, message: object):
        super().__init__(message, 1)


def _program(options: Namespace) -> tuple[ModuleType, CodeType]:
    """The module ``__main__`` and its code; ``sys.argv`` and ``sys.path`` become the program's."""
    if options.module is not None:
        return _module(_first(options.module, "-m"), [*options.module[1:], *options.program])
    if options.code is not None:
        text = _first(options.code, "-c")
        _enter("", ["-c", *options.code[1:], *options.program])
        return _main(__loader__=BuiltinImporter), compile(text, "<string>", "exec",
                                                          dont_inherit=True)
    path = _first(options.program, "run")
    full = os.path.join(os.getcwd(), path)
    folder: Any = PathFinder.find_spec("__main__", [full])
    _enter(full if folder else os.path.dirname(os.path.realpath(full)), options.program)
    if folder is not None:
        return _main_of(folder)
    if os.path.isdir(full):
        raise _NoProgram(f"can't find '__main__' module in {full!r}")
    loader = SourceFileLoader("__main__", full)
    code = loader.source_to_code(loader.get_data(full), full)
    return _main(__file__=full, __loader__=loader, __cached__=None), code


def _first(arguments: list[str], of: str) -> str:
    if not arguments:
        raise CommandError(f"{of} needs a program; {PROGRAM} run --help says more")
    return arguments[0]


def _module(name: str, arguments: list[str]) -> tuple[ModuleType, CodeType]:
    _enter(os.getcwd(), ["-m", *arguments])
    spec = _specified(name)
    if spec.submodule_search_locations is not None:
        try:
            spec = _specified(f"{name}.__main__")
        except _NoProgram as error:
            raise _NoProgram(
                f"{error}; {name!r} is a package and cannot be directly executed"
            ) from None
    sys.argv[0] = spec.origin
    return _main_of(spec)


def _specified(name: str) -> Any:
    """A module's specification, or the message of ``python -m``; its package is imported."""
    try:
        spec = find_spec(name)
    except ImportError as error:
        # raised inside of the package, whose traceback is shown
        if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
            raise
        hint = f". Try using {name[:-3]!r} instead of {name!r} as the module name."
        raise _NoProgram(
            f"Error while finding module specification for {name!r} ({type(error).__name__}: "
            f"{error}){hint if name.endswith('.py') else ''}"
        ) from None
    if spec is None:
        raise _NoProgram(f"No module named {name}")
    return spec


def _main_of(spec: Any) -> tuple[ModuleType, CodeType]:
    if (code := spec.loader.get_code(spec.name)) is None:
        raise _NoProgram(f"No code object available for {spec.name}")
    return _main(__file__=spec.origin, __loader__=spec.loader, __package__=spec.parent,
                 __spec__=spec, __cached__=spec.cached), code


def _main(**attributes: Any) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update(attributes, __builtins__=sys.modules["builtins"])
    return module


def _enter(folder: str, arguments: list[str]) -> None:
    sys.argv[:] = arguments
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _show_from(namespace: dict[str, Any] | None) -> None:
    """Let the uncaught exception be shown without the frames that led to the program."""
    show = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_globals is not namespace:
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


# -- the report ------------------------------------------------------------------------------------
def report() -> str:
    """What ran on the kernels, what did not and why, as lines of text."""
    if "cupy" not in sys.modules:
        return f"cuteblas: the program has not imported CuPy; {PROGRAM} --numpy serves NumPy arrays"
    hooks: Any = sys.modules.get("cuteblas.array.hooks")
    refused = hooks.SWITCH.refused if hooks is not None else "the hooks did not fit CuPy"
    if refused is not None:
        return wrapped(f"CuPy ran all products: {refused}")
    counts = _counts()
    if not counts:
        return "cuteblas: the program made no product of CuPy arrays"
    calls = [(route.startswith(_DELEGATED) or route in _BY_OTHERS, n)
             for _, group, route, n in counts if group == "calls"]
    total, others = sum(n for _, n in calls), sum(n for by_others, n in calls if by_others)
    return _listed(
        f"cuteblas ran {total - others} of {total} products and copies on its own kernels", counts
    )


def report_on_numpy(refused: str | None = None) -> str:
    if refused is not None:
        return wrapped(f"NumPy ran all products: {refused}")
    counts = _counts()
    calls = sum(n for _, group, _, n in counts if group == "calls")
    if not calls:
        return "cuteblas: no product or copy of NumPy arrays in the program was large enough for cuteblas"
    there = sum(n for _, group, detail, n in counts
                if group == "moved" and detail.startswith("to "))
    return _listed(f"cuteblas answered {calls} products and copies of NumPy arrays, {there} of "
                   "them on a GPU", counts)


def _listed(title: str, counts: list[_Count]) -> str:
    return wrapped("\n".join([title, *(
        f"  {n:>9}  {function}: {f'copied {detail}' if group == 'copies' else detail.removeprefix(_DELEGATED)}"
        for function, group, detail, n in counts
    )]))


_Count = tuple[str, str, str, int]          # function, group, detail, how often


def _counts() -> list[_Count]:
    without = Counter(patches.MADE_BY_CHECKS)
    counts = ((function, group, detail, n - without[function, detail] * (group == "calls"))
              for function, groups in stats().items() for group, details in groups.items()
              for detail, n in details.items())
    return sorted((each for each in counts if each[3] > 0), key=lambda each: (*each[:2], -each[3]))
