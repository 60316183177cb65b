"""Compile kernels before they are needed: for the calls that cuteblas.record() saved to a file, for
products of two shapes each, or for the first calls of NumPy programs.

  # for this machine's GPU
  python -m cuteblas warmup calls.json
  # for another card, into the cache on disk; this needs no GPU
  python -m cuteblas warmup calls.json --device h200
  # the first kernels of NumPy programs
  python -m cuteblas warmup --numpy --device h200
  # two products
  python -m cuteblas warmup 4096x4096 4096x4096 1x4096 4096x512
"""

from __future__ import annotations

import os
from argparse import Namespace

from ..functions.warmup import warmup
from ..planning.problem import DEVICES
from .command import CommandError, Parser, refusals
from .problems import shapes


def configure(parser: Parser) -> None:
    parser.option("calls FILE|SHAPE",
                  "a file, or an even number of shapes: 64x32 32x48",
                  nargs="*")
    parser.option("--numpy", "the start set: typical products and transposes of NumPy arrays")
    parser.option("--dtype",
                  "element type of the operands (default: %(default)s)",
                  default="float32")
    parser.option("--order ORDERS",
                  "order of each operand: CF is a @ b.T (default: CC)",
                  default="CC")
    parser.precision()
    parser.option("--device CARD",
                  f"compile for one of {', '.join(DEVICES)} instead of this machine's GPU")


def run(options: Namespace) -> int:
    if options.numpy == bool(options.calls):
        raise CommandError("warmup takes files, shapes or --numpy")
    with refusals(TypeError, ValueError, OSError):
        files = options.numpy or os.path.exists(options.calls[0])
        for calls in options.calls or [None] if files else [_pairs(options.calls)]:
            print(warmup(calls, dtype=options.dtype, order=options.order.upper(),
                         precision=options.precision, device=options.device))
    return 0


def _pairs(words: list[str]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    try:
        found = [extents for extents, _axes in shapes(" ".join(words))]
    except ValueError as error:
        raise ValueError(f"{error}; no file has that name either") from None
    if len(found) % 2:
        raise ValueError(f"every product needs two shapes, got {len(found)} shapes in all")
    return list(zip(found[::2], found[1::2], strict=True))
