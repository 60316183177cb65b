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
            "if deepest % depth or a.width % width:",
            "if a.width % width:",
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
            "return owner.moved > owner.patience * owner.nbytes",
            "return owner.moved > 99 * owner.nbytes",
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
        # hashes
        (
            "runtime/mover.cpp",
            "            from = near;",
            "            if (n % sizeof(Words)) from = near;",
            "runtime/test_hashes.py"
        ),
        (
            "runtime/mover.cpp",
            "std::memset(near + n, 0, -n % sizeof(Words));",
            "n -= n % sizeof(Words);",
            "runtime/test_hashes.py"
        ),
        ("runtime/mover.cpp", "uint64_t sum = nbytes;", "uint64_t sum = 0;", "runtime/test_hashes.py"),
        ("runtime/mover.cpp", "std::memcpy(&part, key + j,", "std::memcpy(&part, key,",
         "runtime/test_hashes.py"),
        ("runtime/mover.py", "os.urandom(HASHED_BYTES + 64)", "bytes(range(256)) * 1025",
         "runtime/test_hashes.py"),
        ("runtime/tracking.py", "known[differs] = 0", "pass", "runtime/test_hashes.py"),
        # memory
        (
            "engines/host_memory.py",
            "if piece is None or piece.size < nbytes:",
            "if piece is None:",
            "engines/test_scratch.py"
        ),
        ("engines/host_memory.py", "if len(_waiting) < _MOST_WAITING:", "if True:", "engines/test_scratch.py"),
        # kernels: guards and common parts
        (
            "kernels/guard.py",
            "k.stop(given(0).differs(HOLDS))",
            "k.stop(given(0).differs(NATIVE))",
            "kernels/test_guard.py"
        ),
        (
            "planning/guard.py",
            "first, end = first + part.words, max(",
            "first, end = first + 1, max(",
            "kernels/test_guard.py::test_words_of_blocks_are_apart"
        ),
        (
            "planning/guard.py",
            '"workspace": place("workspace", begin)}',
            '"workspace": place("workspace", 0)}',
            "kernels/test_guard.py"
        ),
        (
            "kernels/common.py",
            "with k.when(along < half):",
            "with k.when(along < half + 1):",
            "kernels/test_reduce_modes.py"
        ),
        (
            "kernels/common.py",
            "scaled(c, beta, accumulator)),",
            "scaled(c, alpha, accumulator)),",
            "kernels/test_products.py"
        ),
        (
            "kernels/gemm/triangle.py",
            "folded = row < column + even",
            "folded = row < column",
            "kernels/test_triangle.py"
        ),
        (
            "kernels/copy/rearrange.py",
            "(word - 1 if side.covering else 0)",
            "0",
            "kernels/test_short_rows.py::test_every_length_of_rows"
        ),
        (
            "kernels/copy/rearrange.py",
            "(self.lines.before + run) % border)",
            "(self.lines.before + run) % (border // 2))",
            "kernels/test_short_rows.py::test_every_length_of_rows"
        ),
        # epilogues
        (
            "kernels/epilogue.py",
            "if triangle.hermitian and isinstance(sums, Tensor):",
            "if isinstance(sums, Tensor):",
            "kernels/test_triangle.py"
        ),
        (
            "kernels/epilogue.py",
            'select(equal(self._absent["alpha"], 1), 0,',
            'select(equal(self._absent["alpha"], 0), 0,',
            "blas/test_scalars.py::test_a_group_knows_alphas_of_zero"
        ),
        (
            "codegen/epilogue.py",
            "self.value)).encode(), *(a.digest",
            "0)).encode(), *(a.digest",
            "codegen/test_epilogue.py"
        ),
        (
            "codegen/epilogue.py",
            'elif node.op == "cast" and args[0].dtype == node.dtype:',
            'elif node.op == "cast":',
            "codegen/test_epilogue.py"
        ),
        (
            "codegen/epilogue.py",
            "if whole >= 2**63 else",
            "if whole > 2**63 else",
            "codegen/test_epilogue.py"
        ),
        (
            "planning/operands.py",
            "width = vector_width(x, most, *others) if",
            "width = vector_width(x, most) if",
            "kernels/test_epilogue.py::test_every_family_fuses"
        ),
        (
            "functions/epilogues/traces.py",
            "if isinstance(x, np.ndarray) and not x.flags.writeable:",
            "if isinstance(x, np.ndarray) and not x.flags.owndata:",
            "functions/test_epilogues.py"
        ),
        (
            "functions/epilogues/tracing.py",
            "if not info.min <= value <= info.max:",
            "if not info.min < value <= info.max:",
            "functions/test_epilogues.py"
        ),
        (
            "functions/epilogues/traces.py",
            "rows if axis == -1 else columns)",
            "rows if axis == -2 else columns)",
            "functions/test_epilogues.py"
        ),
        # planning: what a kernel may take
        (
            "planning/operands.py",
            "if pitch <= 0 or pitch * operand.item",
            "if pitch < 0 or pitch * operand.item",
            "planning/test_plans.py"
        ),
        (
            "planning/operands.py",
            "if operand.alignment % _TMA_ALIGNMENT:",
            "if operand.alignment % (_TMA_ALIGNMENT // 2):",
            "planning/test_plans.py"
        ),
        (
            "planning/operands.py",
            "if p.n * item % _TMA_ALIGNMENT:",
            "if p.n % _TMA_ALIGNMENT and item == 1:",
            "planning/test_plans.py"
        ),
        (
            "planning/operands.py",
            "if n > 1),\n                        *operand.batch_strides)",
            "if n > 1))",
            "planning/test_plans.py"
        ),
        # dispatch rules and memory
        (
            "engines/dispatch.py",
            '"subclass" if kind.__array_ufunc__ is np.',
            '"subclass" if kind.__array_ufunc__ is not np.',
            "array/test_operands.py"
        ),
        (
            "engines/dispatch.py",
            "if own and not any(",
            "if own and any(",
            "array/test_operands.py"
        ),
        (
            "engines/placement.py",
            "return there < here, times",
            "return here < there, times",
            "engines/test_placement.py"
        ),
        (
            "functions/routing.py",
            'if kind == "subclass" and',
            'if kind == "scalar" and',
            "functions/test_dots.py"
        ),
        (
            "functions/routing.py",
            "if rules is COPY and out is not None and",
            "if rules is FUNCTION and out is not None and",
            "functions/test_copies.py"
        ),
        (
            "engines/memory.py",
            "sum(r for r in reach if r > 0) + self.dtype.itemsize",
            "sum(r for r in reach if r > 0)",
            "engines/test_memory.py"
        ),
        (
            "engines/memory.py",
            "all(n < 2 or s == t for n, s, t",
            "all(s == t for n, s, t",
            "engines/test_memory.py"
        ),
        (
            "engines/memory.py",
            "-abs(x.strides[axis])",
            "-x.strides[axis]",
            "functions/test_copies.py"
        ),
        # keys of replay
        (
            "engines/replay/numpy.py",
            "not out.flags.writeable or any(np.may_share_memory(x, out) for x in inputs):",
            "not out.flags.writeable:",
            "engines/test_replay_numpy.py"
        ),
        (
            "engines/replay/numpy.py",
            'if where == "numpy" or (where == "auto" and found.few):',
            'if where in ("numpy", "auto"):',
            "engines/test_replay_numpy.py"
        ),
        (
            "engines/replay/numpy.py",
            "key.append((x.shape, x.dtype))",
            "key.append((x.shape, x.dtype.kind))",
            "engines/test_replay_numpy.py"
        ),
        (
            "blas/calls.py",
            "dtype, compute, type(alpha), type(beta),",
            "dtype, compute,",
            "engines/test_replay_numpy.py"
        ),
        (
            "blas/calls.py",
            '"one" if x == 1 else "value" if',
            '"value" if',
            "engines/test_replay_numpy.py"
        ),
        (
            "blas/calls.py",
            "if overwrites and out is None:",
            "if out is None:",
            "engines/test_replay_numpy.py"
        ),
        (
            "engines/replay/recording.py",
            "if len(recorded) >= MOST_RECORDED:",
            "if len(recorded) > MOST_RECORDED:",
            "engines/test_replay_numpy.py"
        ),
        # flags of BLAS routines
        (
            "blas/rank_k.py",
            'part = "lower" if given.flag("lower") else "upper"',
            'part = "upper" if given.flag("lower") else "lower"',
            "blas/test_rank_k.py"
        ),
        (
            "blas/rank_k.py",
            'return ("N", other) if asked == "N" else (other, "N")',
            'return ("N", other) if asked != "N" else (other, "N")',
            "blas/test_rank_k.py"
        ),
        (
            "blas/rank_k.py",
            "alpha = product.alpha.conjugate() if hermitian else product.alpha",
            "alpha = product.alpha",
            "blas/test_rank_k.py"
        ),
        (
            "blas/vectors.py",
            "return chosen[::-1] if inc < 0 else chosen",
            "return chosen",
            "blas/test_vectors.py"
        ),
        (
            "blas/vectors.py",
            '"R" if row.transpose == "H" else "N", overwrites',
            '"N", overwrites',
            "blas/test_vectors.py"
        ),
        ("blas/arguments.py", 'letter in "CR")', 'letter in "C")', "blas/test_routines.py"),
        (
            "blas/arguments.py",
            "if number not in (0, 1):",
            "if number < 0:",
            "blas/test_refusals.py"
        ),
        (
            "blas/types.py",
            "if not -2**31 <= int(value) < 2**31:",
            "if not -2**31 <= int(value) <= 2**31:",
            "blas/test_refusals.py"
        ),
        (
            "functions/gemm.py",
            'where=written if triangle == "lower" else written.T)',
            'where=written if triangle == "upper" else written.T)',
            "blas/test_rank_k.py"
        ),
        # dask
        (
            "dask/products.py",
            "(mirrored, (name, *block[::-1]), conj)",
            "(mirrored, (name, *block[::-1]), False)",
            "dask/test_products.py::test_gram_matrices_are_computed_once"
        ),
        (
            "dask/products.py",
            "return a, 1, False",
            "return a, 0, False",
            "dask/test_products.py::test_gram_matrices_are_computed_once"
        ),
        (
            "dask/products.py",
            "alone=len(terms) == 1, last=last)",
            "alone=len(terms) == 1, last=True)",
            "dask/test_products.py::test_half_precision_is_rounded_once"
        ),
        ("dask/products.py", "at[index] if n > 1 else 0", "at[index]", "dask/test_products.py"),
        (
            "dask/offers.py",
            "            self._held.pop(token, None)",
            "            self._held.get(token, None)",
            "dask/test_offers.py"
        ),
        # sharding
        (
            "planning/sharding.py",
            "seen_from(box, own), seen_from(box, region)",
            "seen_from(box, whole), seen_from(box, region)",
            "planning/test_sharding.py"
        ),
        (
            "planning/sharding.py",
            "% (self.slots or len(tiles)))",
            "% (2 if self.slots else len(tiles)))",
            "planning/test_sharding.py"
        ),
        (
            "planning/sharding.py",
            "if [piece.device for piece in panel.pieces] == [device]",
            "if len(panel.pieces) == 1",
            "planning/test_sharding.py"
        ),
        (
            "planning/sharding.py",
            "if count % rows == 0 and rows <= m and",
            "if count % rows == 0 and",
            "planning/test_sharding.py"
        ),
        (
            "planning/sharding.py",
            "self.ready[device, action.name, panel.key] = end ",
            "self.ready[device, action.name, panel.key] = now ",
            "planning/test_sharding.py"
        ),
        # commands
        (
            "cli/layout.py",
            "n > 0 and max(rows, n // rows) <= _MOST:",
            "n > 0 and rows <= _MOST:",
            "cli/test_layout.py"
        ),
        (
            "cli/layout.py",
            "layout = composition(layout, Layout.parse(options.compose))",
            "layout = composition(Layout.parse(options.compose), layout)",
            "cli/test_layout.py"
        ),
        (
            "cli/cache.py",
            'arch) if options.action == "export"',
            '"") if options.action == "export"',
            "runtime/test_cache.py"
        ),
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
