"""What the assembler makes of kernels: registers, stack and matrix instructions.

  # the kernels that tests of machine code ask for: how many are not in the committed file
  python -m tests.gates.cubins
  # compile these, and write the file again
  python -m tests.gates.cubins --update
  # compile all of them instead (6 minutes): nothing in the file is believed
  CUTEBLAS_COMPILE_ALL=1 python -m tests.gates.cubins

NVRTC makes the same machine code of the same text. The committed file has what tests ask of it, by
a hash of the text, the options, the architecture and NVRTC's version; a kernel that it lacks is
compiled.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from cuteblas.codegen.kernel import GeneratedKernel

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "data" / "cubins.json"
TESTS = (
    "tests/kernels/test_contraction.py",
    "tests/kernels/test_cubins.py",
    "tests/kernels/test_gemm_tutorial.py",
)
_ALL = "CUTEBLAS_COMPILE_ALL"
asked: dict[str, MachineCode] = {}  # by this process, and whether the file had it
compiled: set[str] = set()


class MachineCode(NamedTuple):
    """What tests ask of a kernel's machine code: registers and bytes of stack of a thread, and how
    many instructions of three kinds there are."""

    registers: int
    stack: int
    hgmma: int
    igmma: int
    arrive: int


def machine_code(kernel: GeneratedKernel, arch: str) -> MachineCode:
    """The machine code of a kernel for an architecture, from the committed file or from NVRTC."""
    from cuteblas.runtime.compiler import cubin_name

    name = cubin_name(kernel, arch)[:20]
    found = committed().get(name)
    if found is None:
        compiled.add(name)
        found = assembled(kernel, arch)
    return asked.setdefault(name, found)


@cache
def committed() -> dict[str, MachineCode]:
    """The committed file; empty for another NVRTC, and where all kernels are to be compiled."""
    if not FILE.exists() or os.environ.get(_ALL):
        return {}
    data = json.loads(FILE.read_text(encoding="utf-8"))
    if data.pop("NVRTC") != nvrtc():
        return {}
    return {name: MachineCode(*map(int, line.split())) for name, line in data.items()}


def nvrtc() -> str:
    """The version of NVRTC with its patch."""
    try:
        return version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        return "of a toolkit"


def assembled(kernel: GeneratedKernel, arch: str) -> MachineCode:
    """What two tools say of the machine code that NVRTC makes."""
    from cuteblas import runtime

    code = runtime.compile(kernel, arch)
    usage = _inspected("cuobjdump", code, "-res-usage")
    text = _inspected("nvdisasm", code, "-c") if arch.endswith("a") else ""  # which has wgmma
    registers, stack = (
        int(re.search(rf"{word}:(\d+)", usage).group(1)) for word in ("REG", "STACK")
    )
    counts = (text.count(word) for word in ("HGMMA", "IGMMA", "WARPGROUP.ARRIVE"))
    return MachineCode(registers, stack, *counts)


def _inspected(name: str, code: bytes, *options: str) -> str:
    """What a tool says of machine code: a toolkit's tool, or the one that comes as a Python
    package."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations if spec else None) or ()
    folders = os.pathsep.join(f"{place}/cu13/bin" for place in places)
    tool = shutil.which(name) or shutil.which(name, path=folders)
    if tool is None:
        pytest.skip(f"{name} is not installed (pip install nvidia-cuda-{name})")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(code)
        return subprocess.run(
            [tool, *options, str(file)], capture_output=True, text=True, check=True
        ).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests that look at machine code, and say which kernels the file lacks or write it."""
    parser = ArgumentParser(
        prog="python -m tests.gates.cubins", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--update", action="store_true", help="write the committed file again"
    )
    options = parser.parse_args(arguments)
    from tests.gates import cubins  # which the tests import

    failed = pytest.main(["-q", "-p", "no:cacheprovider", *(str(ROOT / file) for file in TESTS),
                          "-k", "not cuda and not emulator"])
    print(f"{len(cubins.asked)} kernels: {len(cubins.compiled)} were compiled")
    if not options.update or failed:
        return int(failed) or bool(cubins.compiled)
    lines = {name: " ".join(map(str, each)) for name, each in sorted(cubins.asked.items())}
    text = json.dumps({"NVRTC": nvrtc()} | lines, indent=0)
    FILE.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
