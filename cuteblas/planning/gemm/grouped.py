"""Products of any sizes in one launch: a kernel for each set of types, and a table of the rest.

The kernel fixes which strides are 1, vector widths and what is known of alpha and beta.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import gcd
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from ..._dtypes import dtype
from ...codegen.grouped import WORD_BYTES, first_blocks, word_offsets
from ...codegen.kernel import GeneratedKernel
from ..operands import (
    NARROW_SPAN,
    VECTOR_BYTES,
    alpha_kind,
    gemm_span,
    gemm_values,
    launch,
    tiles_of_c,
)
from ..plan import Argument, Plan, aligned, least, place
from ..problem import DeviceInfo, GemmProblem, GroupedProblem, Operand, with_matrices
from .blocks import beginning
from .dispatch import plan_gemm
from .family import Choice, Family, OneKernel
from .mma import MMA, why_not_mma
from .simt import SIMT

_NUMBERS = {"zero": 0, "one": 1}
_MOST_MEMBERS = 64  # of a batch: more of them are a launch by themselves
_BUSY = 16          # launches: a product that keeps a device busy for so long saves nothing by
                    # sharing one


@dataclass(frozen=True)
class Member:
    """A row of a table: a product of a problem, without batch modes, perhaps as C^T."""

    index: int
    problem: GemmProblem


@dataclass(frozen=True)
class Part:
    """What one launch computes; ``first`` has the blocks before those of each member, ``start``
    and ``row_words`` are 64-bit words of the table."""

    kernel: GeneratedKernel
    family: str
    choice: Choice
    members: tuple[Member, ...]
    first: tuple[int, ...]
    start: int
    row_words: int
    blocks: int

    @property
    def entries(self) -> int:
        return len(self.first)

    @property
    def end(self) -> int:
        used = self.start + self.entries + len(self.members) * self.row_words
        return aligned(used * WORD_BYTES) // WORD_BYTES


class Address(NamedTuple):
    """A word of a table: the address of a problem's role, some bytes further."""

    word: int
    problem: int
    role: str
    shift: int


class Number(NamedTuple):
    """Words of a table with a number that a call passes to a problem."""

    word: int
    dtype: np.dtype
    problem: int
    name: str

    def write(self, table: np.ndarray, value: Any) -> None:
        words = max(1, self.dtype.itemsize // WORD_BYTES)
        table[self.word:self.word + words].view(self.dtype)[0] = value


class Form(NamedTuple):
    blank: np.ndarray
    addresses: tuple[Address, ...]
    numbers: tuple[Number, ...]


@dataclass(frozen=True)
class GroupedChoice:
    parts: tuple[Part, ...]

    @property
    def table_words(self) -> int:
        """Length of the table, in words of 64 bits."""
        return self.parts[-1].end if self.parts else 0

    @cached_property
    def form(self) -> Form:
        blank = np.zeros(self.table_words, np.int64)
        addresses: list[Address] = []
        numbers: list[Number] = []
        for part in self.parts:
            blank[part.start:part.start + part.entries] = part.first
            offsets, _words = word_offsets(part.kernel.row)
            for row, member in enumerate(part.members):
                begin = part.start + part.entries + row * part.row_words
                values = part.kernel.row_signature.bind(_values(member, part.kernel))
                for param, offset, value in zip(part.kernel.row, offsets, values, strict=True):
                    if param.kind == "pointer":
                        addresses.append(Address(begin + offset, member.index, value.role,
                                                 value.offset))
                        continue
                    number = Number(begin + offset, np.dtype(param.dtype.name), member.index,
                                    param.name)
                    if isinstance(value, Argument):
                        numbers.append(number)
                    else:
                        number.write(blank, value)
        return Form(blank, tuple(addresses), tuple(numbers))

    def __str__(self) -> str:
        return "; ".join(f"{len(part.members)} products by {part.family}, tile {part.choice.tile}"
                         for part in self.parts)


# -- the values of a call --------------------------------------------------------------------------
def table_of(plan: Plan, values: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The 64-bit words of a plan's table, from addresses and numbers by role for each problem."""
    problems: tuple[GemmProblem, ...] = plan.problem.problems  # type: ignore[union-attr,assignment]
    if len(values) != len(problems):
        raise ValueError(
            f"the plan computes {len(problems)} products, but the call passes operands for {len(values)}"
        )
    form: Form = plan.config.form  # type: ignore[attr-defined]
    table = form.blank.copy()
    table[[address.word for address in form.addresses]] = [
        values[i][role] + shift for _word, i, role, shift in form.addresses
    ]
    for number in form.numbers:
        number.write(table, values[number.problem][number.name])
    return table


def _values(member: Member, kernel: GeneratedKernel) -> dict[str, Any]:
    """What a row takes; alpha and beta may be numbers that the problem knows."""
    p = member.problem
    kinds = {"alpha": p.alpha, "beta": p.beta}
    numbers = {name: _NUMBERS[kind] for name, kind in kinds.items() if kind in _NUMBERS}
    values = gemm_values(p) | numbers
    return {name: value for name, value in values.items() if name in kernel.row_signature}


# -- plans -----------------------------------------------------------------------------------------
@lru_cache(maxsize=256)
def plan_grouped(problem: GroupedProblem, device: DeviceInfo) -> Plan:
    """Plan a group of products; launches take the address of role ``table`` (:func:`table_of`)."""
    groups: dict[tuple, list[Member]] = {}
    for index, p in enumerate(problem.problems):
        if refusal := _refusal(p):
            raise ValueError(f"problem {index}: {refusal}")
        for row in _rows(p):
            family = _family(row, device)
            p = family.facing(row)[0]
            groups.setdefault(_key(family, p), []).append(Member(index, p))
    parts: list[Part] = []
    for (family, *_types), members in groups.items():
        parts.append(_part(family, tuple(members), device, parts[-1].end if parts else 0))
    if not parts:
        return Plan.nothing(problem, device, GroupedChoice(()), "the results have no elements")
    choice = GroupedChoice(tuple(parts))
    launches = tuple(launch(lambda part: part.kernel, part, part.blocks,
                            table=place("table", part.start * WORD_BYTES), entries=part.entries,
                            levels=part.entries.bit_length() - 1, row_words=part.row_words)
                     for part in parts)
    reason = (
        f"{len(problem.problems)} products in {len(parts)} launch{'es' * (len(parts) > 1)} of "
        f"{', '.join(str(part.blocks) for part in parts)} blocks; each block finds its product in a table"
    )
    return Plan(problem, device, parts[0].family, choice, launches, 0, reason,
                sum(part.choice.work.seconds(device) for part in parts))


def _refusal(p: GemmProblem) -> str | None:
    if p.precision not in ("auto", "ieee"):
        return f"a group of products takes precision 'auto' or 'ieee', got {p.precision!r}"
    if p.variant is not None:
        return f"a group of products takes no variant, got {p.variant!r}"
    if "device" in (p.alpha, p.beta):
        return "alpha and beta of a group of products must be numbers, not addresses in device memory"
    return None


def why_alone(p: GemmProblem, device: DeviceInfo) -> str | None:
    """Why a product is not one of a group, or is faster on its own, else ``None``."""
    if (refusal := _refusal(p)) is not None or 0 in (p.m, p.n, *p.batch):
        return refusal
    if p.matrices > _MOST_MEMBERS:
        return f"a batch of {p.matrices} gets a launch of its own"
    if not p.depth:                     # C is written alike
        return None
    family = _family(p, device)
    shared = _choice(family, _meet([family.facing(p)[0]] * p.matrices), device)
    if shared.work.seconds(device) > device.seconds(launches=_BUSY) \
            and (own := plan_gemm(p, device).family) != family.name:
        return f"{own} alone is faster than {family.name} in a group"
    return None


def _rows(p: GemmProblem) -> Iterator[GemmProblem]:
    """The products of a problem: one for every index of its batch, none if it has no elements."""
    for at in product(*map(range, p.batch)) if p.outputs else ():
        part = with_matrices(beginning(p, at), lambda _role, x: replace(x, batch_strides=()))
        rows, columns = (s if n > 1 else 1 for n, s in zip(p.shape, p.c.strides, strict=True))
        yield replace(part, batch=(), c=replace(part.c, strides=(rows, columns)))


def _meet(problems: Sequence[GemmProblem]) -> GemmProblem:
    """Products alike that take as long, read and written as all of these can be."""
    # They have the mean extents of a multiply-add's product. Their extents and strides have the
    # powers of two of which all of theirs are multiples, but for strides that are 1 where not all
    # are; strides of modes of extent 1 do not count.
    every = dict[str, list[Operand]]()
    for p in problems:
        with_matrices(p, lambda role, x: every.setdefault(role, []).append(x) or x)  # type: ignore[func-returns-value]

    def common(role: str, first: Operand) -> Operand:
        extents = [(p.n if role == "b" else p.m, p.k if role in ("a", "b") else p.n)
                   for p in problems]
        steps = ({x.strides[mode] for x, sizes in zip(every[role], extents, strict=True)
                  if sizes[mode] > 1} for mode in (0, 1))
        strides = tuple(-gcd(*found) if len(found) > 1 else min(found, default=0)
                        for found in steps)
        alignment = min(x.alignment for x in every[role])
        return replace(first, strides=strides, batch_strides=(VECTOR_BYTES,), alignment=alignment)  # type: ignore[arg-type]

    work = [p.m * p.n * max(1, p.depth) for p in problems]

    def mean(extents: Sequence[int]) -> int:
        divisor, whole = max(1, gcd(*extents)), sum(map(mul, work, extents))
        return divisor * (-(-whole // (divisor * sum(work))) | 1)

    m, n, k = map(mean, zip(*((p.m, p.n, p.depth) for p in problems), strict=True))
    alpha, beta = (_scalar(kinds) for kinds in ({alpha_kind(p.alpha) for p in problems},
                                                {p.beta for p in problems}))
    return replace(with_matrices(problems[0], common), m=m, n=n, k=k,
                   batch=(max(1, round(sum(work) / (m * n * max(1, k)))),), alpha=alpha, beta=beta)


def _scalar(kinds: Collection[str]) -> Any:
    """What is known of the alphas (or betas) of all; else each row has its own."""
    return next(iter(kinds)) if len(kinds) == 1 and {*kinds} <= {*_NUMBERS} else "device"


def _key(family: Family, p: GemmProblem) -> tuple:
    """Products with the same key share a kernel."""
    matrices = tuple((name, x.dtype) for name, x in p.fusion.matrices) if p.fusion else ()
    return (family, p.a.dtype, p.b.dtype, p.c.dtype, p.accumulator, p.a.conj, p.b.conj,
            p.fusion and p.fusion.graph, matrices)


def _family(p: GemmProblem, device: DeviceInfo) -> Family:
    """Half precision goes to tensor cores; empty sums go where others go."""
    whole = replace(p, k=max(1, p.k), alpha="one" if p.alpha == "zero" else p.alpha)
    return MMA if dtype(p.a.dtype).is_stored and why_not_mma(whole, device) is None else SIMT


def _choice(family: Family, p: GemmProblem, device: DeviceInfo) -> Choice:
    """The tile of the least estimate for products alike, whose sums are not sliced."""
    return least(family.tilings(p, replace(device, workspace_limit=0)), device)


def _part(family: Family, members: tuple[Member, ...], device: DeviceInfo, start: int) -> Part:
    problems = [member.problem for member in members]
    meet, made = _meet(problems), family.made
    assert isinstance(made, OneKernel)
    choice = _choice(family, meet, device)
    config = replace(made.config(meet, device, choice), grouped=True, aligned=False, batch_modes=0,
                     wide=max(map(gemm_span, problems)) >= NARROW_SPAN)
    kernel, tile = made.kernel(config), (choice.tile.m, choice.tile.n)
    first, blocks = first_blocks([tiles_of_c(p, tile) for p in problems])
    return Part(kernel, family.name, choice, members, tuple(first), start,
                word_offsets(kernel.row)[1], blocks)
