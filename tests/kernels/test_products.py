"""Properties of every family of products, sampled as BLIS's testsuite samples its parameters:
types, extents, orders, strides, scalars, batches and conjugation, into poisoned memory.

Each family has a file of its own for tests that no other one needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from cuteblas import emulator
from cuteblas.codegen.mma import mma_atom
from cuteblas.planning.gemm.batched import plan_batched
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.modular import plan_modular
from cuteblas.planning.gemm.outer import plan_outer
from cuteblas.planning.gemm.packing import plan_packed
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.gemm.skinny import plan_skinny
from cuteblas.planning.gemm.thin import plan_thin
from cuteblas.planning.gemm.wgmma import plan_wgmma

from ..pairs import each_value, sample
from .engines import Cuda, Emulator, multiply, plan_split, random

FLOATS = ["float32", "float64", "complex64", "complex128"]
INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
PLACES = {"as it is": {}, "padded": {"pad": 3}, "padded by a vector": {"pad": 8},
          "unaligned": {"offset": 1}, "unaligned and padded": {"offset": 3, "pad": 5},
          "every other element": {"step": 2}, "backwards": {"flip": (True, True)},
          "rows backwards": {"flip": (True, False)}}
SCALARS = [(1, 0), (1, 1), (2, 0), (-3, 1), (2, 5), (0, 2)]
BATCHES = [(), (3,), (2, 3), (2, 1, 2)]
SHARED = ["", "A by all", "B by all", "a row of A by all rows"]


def of_planes(terms: int) -> float:
    """Units of rounding: planes and products that are left out (8 in the worst case, which longer
    sums do not come near), an addition for every 64 terms, truncation in tensor cores, scalars."""
    return 7 + 6 / terms + np.sqrt(terms / 64) + terms * 2.0**-9 / 8


@dataclass(frozen=True)
class Family:
    """How a family plans, and which of the parameters it takes."""

    plan: Callable
    types: list[str]
    extents: list[tuple[int, int, int]]
    places: list[str] = field(default_factory=lambda: list(PLACES))
    places_of_c: list[str] = field(default_factory=lambda: list(PLACES))
    scalars: list[tuple[int, int]] = field(default_factory=lambda: SCALARS)
    batches: list[tuple[int, ...]] = field(default_factory=lambda: BATCHES)
    shared: list[str] = field(default_factory=lambda: SHARED)
    units: Callable[[int], float] | None = None     # of rounding, by the number of terms
    on_hopper: bool = False
    several_kernels: bool = False                   # which take long to compile: few cases


FAMILIES = {
    "simt": Family(plan_simt, [*INTEGERS, "float16", *FLOATS], [(37, 45, 29), (68, 72, 36)]),
    "thin": Family(plan_thin, [*INTEGERS, "float16", *FLOATS],
                   [(40, 3, 72), (4, 64, 96), (33, 5, 18), (1, 19, 30)]),
    "outer": Family(plan_outer, [*INTEGERS, "float16", *FLOATS],
                    [(37, 64, 8), (41, 71, 3), (36, 67, 4), (40, 64, 1)],
                    places_of_c=[*PLACES][:5]),
    "batched": Family(plan_batched, [*INTEGERS, "float16", *FLOATS],
                      [(4, 4, 4), (3, 3, 3), (7, 5, 9), (8, 12, 4)], batches=[(67,), (4, 9)]),
    "mma": Family(plan_mma, ["float16", "bfloat16", "float64", "complex128"],
                  [(72, 136, 96), (40, 24, 37)]),
    "packed": Family(plan_packed, INTEGERS, [(70, 40, 140), (72, 88, 200)],
                     batches=BATCHES[:3], on_hopper=True),
    "split": Family(partial(plan_split, form="fp16x3"), ["float32", "complex64"],
                    [(33, 130, 65), (24, 33, 203), (5, 3, 64), (1, 1, 1)],
                    batches=BATCHES[:3], units=of_planes, on_hopper=True, several_kernels=True),
    "split by bfloat16": Family(partial(plan_split, form="bf16x6"), ["float32", "complex64"],
                                [(40, 24, 200), (1, 130, 7), (129, 2, 64)], [*PLACES][:5],
                                batches=BATCHES[:3], units=of_planes, on_hopper=True,
                                several_kernels=True),
    "modular": Family(plan_modular, ["float64", "complex128"],
                      [(40, 24, 200), (33, 70, 65), (1, 130, 7), (5, 3, 64), (1, 1, 1)],
                      batches=BATCHES[:3], units=lambda _: 4, on_hopper=True, several_kernels=True),
    "skinny": Family(plan_skinny, ["float32"], [(130, 20, 260), (33, 31, 330), (129, 2, 257)],
                     scalars=[(1, 0), (2, 0), (-3, 0)], batches=[(), (2,)], units=of_planes,
                     on_hopper=True, several_kernels=True),
    "wgmma": Family(plan_wgmma, ["float16", "bfloat16"],
                    [(72, 136, 96), (8, 8, 8), (136, 264, 72), (64, 8, 520)],
                    ["as it is", "padded by a vector"], [*PLACES][:5], batches=BATCHES[:3],
                    shared=SHARED[:3], on_hopper=True),
}


def cases(name: str) -> list[tuple]:
    """Some of the product of the parameters: more than enough for every pair."""
    family = FAMILIES[name]
    rng = np.random.default_rng([*name.encode()])
    columns = [
        family.types, family.extents, ["".join(x) for x in itertools.product("CF", repeat=3)],
        family.places, family.places, family.places_of_c, family.scalars, family.batches,
        family.shared,
        [(False, False), (True, False), (False, True), (True, True)]
    ]
    return [tuple(column[rng.integers(len(column))] for column in columns) for _ in range(400)]


def sampled(how: Callable) -> pytest.MarkDecorator:
    """A test's cases of all families."""
    return pytest.mark.parametrize("name, case", [(name, case) for name, family in FAMILIES.items()
                                                  for case in (each_value if family.several_kernels
                                                               else how)(cases(name))],
                                   ids=lambda x: x if isinstance(x, str) else " ".join(map(str, x)))


@sampled(each_value)
def test_in_the_emulator(name, case):
    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    check(Emulator(), name, *case)


@pytest.mark.gpu
@sampled(sample)
def test_on_a_gpu(name, case):
    check(Cuda(), name, *case)


def check(engine, name, dtype, extents, orders, a_place, b_place, c_place, scalars, batch, shared,
          conj):
    """One product of a family, compared with wider arithmetic."""
    arch = engine.device.arch
    if (FAMILIES[name].on_hopper and arch != "sm_90") or (name == "mma"
                                                          and mma_atom(dtype, arch) is None):
        pytest.skip(f"{arch} has no such instruction")
    rng, (m, n, k) = np.random.default_rng(1), extents
    a, b = random(rng, (*batch, m, k), dtype), random(rng, (*batch, k, n), dtype)
    alpha, beta = scalars if dtype != "bool" else (1, 0)
    if dtype.startswith("uint"):
        alpha = abs(alpha)
    elif dtype.startswith("complex"):
        alpha, beta = alpha + 0.5j * (alpha != 1), beta - 1.5j * (beta > 1)
    else:
        conj = False, False
    places = [dict(PLACES[where]) for where in (a_place, b_place, c_place)]
    for place in places:
        if "flip" in place:
            place["flip"] = (*(True for _ in batch), *place["flip"])
    everywhere = range(len(batch))
    repeat = {"A by all": ("a", everywhere), "B by all": ("b", everywhere),
              "a row of A by all rows": ("a", [len(batch)])}.get(shared)
    multiply(engine, FAMILIES[name].plan, a, b, orders, alpha=alpha, beta=beta, conj=conj,
             repeat=repeat, units=FAMILIES[name].units, a_place=places[0], b_place=places[1],
             c_place=places[2])
