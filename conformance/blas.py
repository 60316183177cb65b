"""``python -m conformance.blas``: every routine against a residual that needs no second
matrix product.

For a random vector t the vectors C t and alpha op(A) (op(B) t) + beta (C0 t) have to agree. The
right side costs three products of a matrix and a vector, is computed in wider arithmetic, and knows
nothing of how the kernels work. The residual is the norm of the difference over u (|alpha| |op(A)|
(|op(B)| |t|) + |beta| |C0| |t|), where u is half the distance between 1 and the next number of the
result's type: how many roundings the result is off, whatever its size and scale. Integers have to
agree exactly.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cuteblas import emulator, functions, runtime
from cuteblas._dtypes import dtype as element
from cuteblas.blas import routines
from cuteblas.blas.types import ROUTINES, Types, dtype_named
from cuteblas.cli.command import CommandError, Parser, ended, refuse_unwritable
from cuteblas.cli.machines import random_array
from cuteblas.cli.terminal import Progress

__all__ = ["Case", "Outcome", "cases", "main", "residual", "run"]

_PASS, _MARGINAL = 1.0, 4.0
_STORAGE = {"C": "row-major", "F": "column-major", "P": "padded column-major",
            "S": "every second element", "N": "backwards"}


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes
    ----------
    routine : str
        Name of the routine.
    trans : str
        Two letters of N, T, C and R.
    storage : str
        Three letters, for A, B and C: row-major (C), column-major (F), padded (P), strided (S),
        backwards (N).
    m, n, k : int
        Extents.
    alpha, beta : number
        The scalars.
    """

    routine: str
    trans: str
    storage: str
    m: int
    n: int
    k: int
    alpha: Any
    beta: Any

    @property
    def name(self) -> str:
        """routine_trans_storage."""
        return f"{self.routine}_{self.trans.lower()}_{self.storage.lower()}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: its residual, and PASS, MARGINAL or FAIL."""

    case: Case
    residual: float
    verdict: str


def cases(names: Sequence[str], sizes: Sequence[tuple[int, int, int]], trans: Sequence[str],
          storage: Sequence[str], scalars: Sequence[tuple[Any, Any]]) -> Iterator[Case]:
    """All combinations that mean something: integer routines take integers, and real ones real
    numbers."""
    for name in names:
        types = ROUTINES[name]
        for t, s, (m, n, k), (alpha, beta) in product(trans, storage, sizes, scalars):
            if not types.is_complex:
                alpha, beta = alpha.real, beta.real
            if types.compute == "int32":
                whole = float(alpha).is_integer() and float(beta).is_integer()
                alpha, beta = (int(alpha), int(beta)) if whole else (3, -2)
            yield Case(name, t, s, m, n, k, alpha, beta)


def stored(values: np.ndarray, letter: str, empty: Callable[..., Any]) -> Any:
    """A matrix with these elements in the memory that a letter means; ``empty`` allocates it row by
    row."""
    rows, columns = values.shape
    if letter == "C":
        x = empty((rows, columns), values.dtype)
    elif letter == "F":
        x = empty((columns, rows), values.dtype).T
    elif letter == "P":
        x = empty((columns, rows + 3), values.dtype)[:, :rows].T
    elif letter == "S":
        x = empty((2 * rows, 2 * columns), values.dtype)[::2, ::2]
    else:
        x = empty((rows, columns), values.dtype)[::-1, ::-1]
    x[...] = values if isinstance(x, np.ndarray) else _cupy().asarray(values)
    return x


def _cupy() -> Any:
    import cupy

    return cupy


def residual(case: Case, c: np.ndarray, a: np.ndarray, b: np.ndarray, before: np.ndarray,
             rng: np.random.Generator) -> float:
    """How many roundings C is off, by a random vector; operands are as the product sees them."""
    types = ROUTINES[case.routine]
    t: np.ndarray = rng.integers(-3, 4, case.n)
    if types.compute == "int32":
        a, b, c, before, t = (x.astype(object) for x in (a, b, c, before, t))
        wrong = c @ t - (int(case.alpha) * (a @ (b @ t)) + int(case.beta) * (before @ t))
        return float(sum(int(x) % 2**32 != 0 for x in np.atleast_1d(wrong)))
    wide_type = np.clongdouble if types.is_complex else np.longdouble
    a, b, c, before, t = (x.astype(wide_type) for x in (a, b, c, before, t))
    wrong = c @ t - (case.alpha * (a @ (b @ t)) + (case.beta * (before @ t) if case.beta else 0))
    scale = abs(case.alpha) * (abs(a) @ (abs(b) @ abs(t))) + (abs(case.beta)
                                                              * (abs(before) @ abs(t)) if case.beta
                                                              else 0)
    size, error = float(np.linalg.norm(scale.astype(float))), float(np.linalg.norm(wrong.astype(complex)))
    return error / (2.0**-element(types.output).significand * size) if size else error


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    return random_array(np, shape, dtype, int(rng.integers(1 << 32)))


def _as_seen(x: np.ndarray, letter: str) -> np.ndarray:
    x = x.conj() if letter in "CR" and x.dtype.kind == "c" else x
    return x.T if letter in "TC" else x


def run(case: Case, backend: str, rng: np.random.Generator) -> Outcome:
    """Run one case and grade it. C is updated in place; where beta is 0 it is filled with NaN
    first."""
    types: Types = ROUTINES[case.routine]
    m, n, k = case.m, case.n, case.k
    a, b = (_random(rng, extents[::-1] if letter in "TC" else extents, types.operands)
            for letter, extents in zip(case.trans, ((m, k), (k, n)), strict=True))
    before = _random(rng, (m, n), types.output)
    if case.beta == 0 and before.dtype.kind != "i":
        before[...] = np.nan
    empty = _cupy().empty if backend == "cuda" else np.empty
    stored_a, stored_b, c = (stored(x, letter, empty)
                             for x, letter in zip((a, b, before), case.storage, strict=True))
    routine = getattr(routines, case.routine)
    with functions.backend("numpy" if backend == "cuda" else backend):  # type: ignore[arg-type]
        result = routine(case.alpha, stored_a, stored_b, case.beta, c, *case.trans, overwrite_c=1)
    got = result.get() if backend == "cuda" else result
    off = residual(case, got, _as_seen(a, case.trans[0]), _as_seen(b, case.trans[1]), before,
                   rng) if result is c else np.inf
    passes, marginal = (0.0, 0.0) if types.compute == "int32" else (_PASS, _MARGINAL)
    return Outcome(case, off, "PASS" if off <= passes else "MARGINAL" if off <= marginal
                   else "FAIL")


def _table(wanted: Sequence[Case], backend: str, rng: np.random.Generator) -> Iterator[Outcome]:
    print(
        f"{'routine_trans_storage':<24}{'m':>6}{'n':>6}{'k':>6}  {'alpha':>7} {'beta':>7}  {'residual':>9}  verdict"
    )
    with Progress("cases", len(wanted)) as progress:
        for case in wanted:
            outcome = run(case, backend, rng)
            alpha, beta = (f"{x:g}" for x in (case.alpha, case.beta))
            progress.print(
                f"{case.name:<24}{case.m:>6}{case.n:>6}{case.k:>6}  {alpha:>7} {beta:>7}  {outcome.residual:9.2e}  "
                f"{outcome.verdict}"
            )
            progress.advance()
            yield outcome


def _sizes(text: str) -> list[tuple[int, int, int]]:
    """``"64,17x33x5"``: a cube, and m x n x k."""
    sizes = []
    for part in text.split(","):
        try:
            extents = [int(x) for x in part.lower().split("x")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"sizes are n or MxNxK, got {part!r}") from None
        if len(extents) not in (1, 3) or min(extents) < 0:
            raise argparse.ArgumentTypeError(f"sizes are n or MxNxK, got {part!r}")
        m, n, k = extents * (3 if len(extents) == 1 else 1)
        sizes.append((m, n, k))
    return sizes


def _choices(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"there is no {what} {name!r}; choose from {', '.join(known)}"
                )
        return chosen

    return parse


def _letters(alphabet: str, count: int, what: str) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        if text.lower() == "all":
            return ["".join(letters) for letters in product(alphabet, repeat=count)]
        chosen = text.upper().split(",")
        for letters in chosen:
            if len(letters) != count or set(letters) - set(alphabet):
                raise argparse.ArgumentTypeError(
                    f"{what} is {count} letters of {alphabet}, or 'all', got {letters!r}"
                )
        return chosen

    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that the command line names; the exit status is 1 if one fails."""
    return ended(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    parser = Parser("python -m conformance.blas", "Check the BLAS routines by residuals.")
    parser.option("--routines NAMES",
                  f"of {','.join(ROUTINES)} (default: all that this machine has the types for)",
                  type=_choices(list(ROUTINES), "routine"))
    parser.option("--sizes",
                  "n or MxNxK, separated by commas",
                  type=_sizes, default=[(17, 33, 5), (64, 48, 40)])
    parser.option("--trans",
                  "pairs of N, T, C and R, or 'all'",
                  type=_letters("NTCR", 2, "trans"), default=["NN", "NT", "TN", "CR"])
    parser.option("--storage",
                  f"for A, B and C: {', '.join(f'{key} {meaning}' for key, meaning in _STORAGE.items())}; or 'all'",
                  type=_letters("".join(_STORAGE), 3, "storage"), default=["FFF", "CCC", "PSN"])
    parser.option("--scalars",
                  "alpha:beta, separated by commas",
                  type=_scalars, default=[(1, 0), (0.75, -2)])
    parser.add_argument("--backend", choices=("numpy", "emulator", "cuda"), default="numpy")
    parser.option("--seed", "of the random numbers (default: %(default)s)", type=_seed, default=0)
    parser.option("--json FILE", "write the outcomes there", type=Path)
    chosen = parser.parse_args(arguments)
    needed = {"emulator": emulator, "cuda": runtime}.get(chosen.backend)
    if needed is not None and (reason := needed.why_unavailable()) is not None:
        raise CommandError(f"--backend {chosen.backend} cannot run here: {reason}")
    refuse_unwritable(chosen.json)
    names = _possible(chosen.routines)
    for name, scalar in product(names, {x for pair in chosen.scalars for x in pair}):
        if ROUTINES[name].compute != "int32" and abs(scalar) > float(
            np.finfo(ROUTINES[name].compute).max
        ):
            raise CommandError(
                f"{name}: alpha and beta are {ROUTINES[name].compute}, which cannot hold {scalar:g}"
            )

    rng = np.random.default_rng(chosen.seed)
    wanted = cases(names, chosen.sizes, chosen.trans, chosen.storage, chosen.scalars)
    outcomes = list(_table(list(wanted), chosen.backend, rng))
    counts = {verdict: sum(outcome.verdict == verdict for outcome in outcomes)
              for verdict in ("PASS", "MARGINAL", "FAIL")}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([_record(outcome) for outcome in outcomes], indent=1)
                               + "\n", encoding="utf-8")
        print(f"wrote {chosen.json}")
    return int(counts["FAIL"] > 0)


def _possible(names: Sequence[str] | None) -> list[str]:
    """The routines to run: those that were named, else all but those of a type that is not
    installed, which stderr names."""
    possible = []
    for name in ROUTINES if names is None else names:
        try:
            for dtype in (ROUTINES[name].operands, ROUTINES[name].output):
                dtype_named(dtype)
        except TypeError as error:
            if names is not None:
                raise CommandError(f"{name}: {error}", 1) from None
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            possible.append(name)
    return possible


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"a seed is an integer of at least 0, got {text!r}")
    return int(text)


def _scalars(text: str) -> list[tuple[complex, complex]]:
    pairs = []
    for part in text.split(","):
        try:
            alpha, beta = (_number(x) for x in part.split(":"))
            if not np.isfinite([alpha, beta]).all():
                raise ValueError
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"scalars are alpha:beta, two finite numbers, got {part!r}"
            ) from None
        pairs.append((alpha, beta))
    return pairs


def _number(text: str) -> complex:
    number = complex(text)
    return number.real if number.imag == 0 else number


def _record(outcome: Outcome) -> dict[str, Any]:
    case = {name: str(value) if isinstance(value, complex) else value
            for name, value in asdict(outcome.case).items()}
    return {**case, "residual": outcome.residual, "verdict": outcome.verdict}


if __name__ == "__main__":
    sys.exit(main())
