"""Faults in the library's text, each of which a named test has to see.

  # all of them, or those of files whose name has a part: which survive
  python -m tests.mutations
  python -m tests.mutations keeping layout

Each is put into a copy of the tree, in which its tests run until one fails. A fault whose text is
no longer in its file is reported too: mend its row.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 600  # in which the tests of one fault end


class Mutation(NamedTuple):
    """A text that occurs once in a file below ``cuteblas/``, what takes its place, and tests of
    which one fails."""

    file: str
    text: str
    replacement: str
    tests: str


MUTATIONS = [
    Mutation(*row)
    for row in (
        # layout
        (
            "layout/swizzle.py",
            "self.base + max(0, self.shift))",
            "self.base + abs(self.shift))",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "self.base - min(0, self.shift))",
            "self.base)",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "abs(self.shift) < self.bits:",
            "abs(self.shift) <= self.bits:",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "return x ^ (picked >> self.shift",
            "return x | (picked >> self.shift",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "self.offset + start, sub)",
            "self.offset, sub)",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "return (n + (block - 1)) // block * block",
            "return n",
            "layout/test_swizzle.py"
        ),
        (
            "layout/swizzle.py",
            "return offset - offset % period, offset % period",
            "return offset, 0 * offset",
            "layout"
        ),
        (
            "layout/core.py",
            "if not -len(modes) <= i < len(modes):",
            "if not -len(modes) <= i <= len(modes):",
            "layout"
        ),
        (
            "layout/core.py",
            "type(s) is int and s < 0 for s in self.flat_shape",
            "type(s) is int and s < -1 for s in self.flat_shape",
            "layout/test_core.py layout/test_arguments.py"
        ),
        (
            "layout/core.py",
            "if n is not None and n > MODES:",
            "if n is not None and n > MODES + 1:",
            "layout"
        ),
        # planning
        (
            "planning/plan.py",
            "return -(-nbytes // _ALIGNMENT) * _ALIGNMENT",
            "return nbytes // _ALIGNMENT * _ALIGNMENT",
            "planning/test_plans.py"
        ),
        (
            "planning/gemm/thin.py",
            "if min(p.m, p.n) > MOST_COLUMNS:",
            "if min(p.m, p.n) >= MOST_COLUMNS:",
            "kernels/test_gemm_thin.py gates"
        ),
        (
            "planning/gemm/thin.py",
            "if deepest % depth or read.a.width % width:",
            "if read.a.width % width:",
            "kernels/test_gemm_thin.py"
        ),
        (
            "planning/floors.py",
            "if self.arithmetic_s > self.traffic_s",
            "if self.arithmetic_s < self.traffic_s",
            "planning cli/test_explain.py"
        ),
        (
            "planning/sharding.py",
            "self.there.get(piece.key, {}).pop(device, None)",
            "pass",
            "planning/test_sharding.py"
        ),
        (
            "planning/sharding.py",
            "self.sent[piece.key, origin] += 1",
            "self.sent[piece.key, origin] += 0",
            "planning/test_sharding.py"
        ),
        # kept arrays
        (
            "engines/keeping.py",
            "            if owner.moved > owner.patience * owner.nbytes:",
            "            if owner.moved > 99 * owner.nbytes:",
            "engines/test_keeping.py"
        ),
        (
            "engines/keeping.py",
            "while self._copies and before - self.nbytes < nbytes:",
            "while self._copies and before - self.nbytes <= nbytes:",
            "engines/test_keeping.py"
        ),
        ("engines/keeping.py", "or base.nbytes < _LEAST_BYTES or", "or", "engines/test_keeping.py"),
        ("engines/keeping.py", "or not base.flags.forc or", "or", "engines/test_keeping.py"),
        ("engines/keeping.py", "if owner.nbytes > self.limit or", "if", "engines/test_keeping.py"),
        # memory
        (
            "engines/scratch.py",
            "if piece is None or piece.size < nbytes:",
            "if piece is None:",
            "engines/test_scratch.py"
        ),
        ("engines/scratch.py", "if len(_waiting) < _MOST:", "if True:", "engines/test_scratch.py"),
    )
]


def outcome(mutation: Mutation, tree: Path) -> tuple[str, str]:
    """Whether a fault is caught, survives, is not there, or keeps its tests from ending; and what
    the tests say last."""
    path = tree / "cuteblas" / mutation.file
    before = path.read_text(encoding="utf-8")
    if before.count(mutation.text) != 1:
        return "MISSING", f"its text occurs {before.count(mutation.text)} times"
    path.write_text(before.replace(mutation.text, mutation.replacement), encoding="utf-8")
    try:
        ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                              *(f"tests/{x}" for x in mutation.tests.split())],
                             cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
                             capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "ENDLESS", f"its tests take more than {SECONDS} s"
    finally:
        path.write_text(before, encoding="utf-8")
    last = next((x for x in ran.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))),
                ran.stdout.strip().rpartition("\n")[2])
    return {0: "SURVIVES", 1: "caught", 2: "caught"}.get(ran.returncode, "ERROR"), last[:120]


def main(parts: list[str]) -> int:
    """Run the faults of files whose name has one of the parts; 1 if one is not caught."""
    chosen = [x for x in MUTATIONS if not parts or any(part in x.file for part in parts)]
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "build", ".*_cache"))
        for mutation in chosen:
            began = time.perf_counter()
            word, said = outcome(mutation, tree)
            caught += word == "caught"
            print(
                f"{word:8} {time.perf_counter() - began:5.0f} s  {mutation.file}: "
                f"{mutation.replacement.strip()}  ({said})",
                flush=True
            )
    print(f"{caught} of {len(chosen)} are caught")
    return caught != len(chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
