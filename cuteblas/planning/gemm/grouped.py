"""Products of any sizes in one launch: a kernel for each set of types, and a table of the rest.

The kernel fixes which strides are 1, vector widths and what is known of alpha and beta.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import product
from math import gcd
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..._dtypes import dtype
from ...codegen.grouped import WORD_BYTES, first_blocks, word_offsets
from ...codegen.kernel import GeneratedKernel
from ...codegen.mma import mma_atom
from ...kernels.gemm.mma import MmaConfig, gemm_mma
from ...kernels.gemm.simt import SimtConfig, gemm_simt
from ..cost.work import Work, blocks_in_turns
from ..floors import compulsory_bytes
from ..operands import (
    alpha_kind,
    gemm_span,
    gemm_values,
    launch,
    specialised,
    tiles_of_c,
    vector_access,
)
from ..plan import Argument, Plan, aligned, place
from ..problem import DeviceInfo, GemmProblem, GroupedProblem, Operand, transposed, with_matrices
from .blocks import beginning
from .dispatch import plan_gemm
from .mma import mma_tiles, why_not_mma
from .mma import resident_blocks as resident_on_mma
from .mma import tile_work as mma_work
from .simt import candidates, resident_blocks, simt_access, summing
from .simt import tile_work as simt_work

_NUMBERS = {"zero": 0, "one": 1}
_NAMES, _OTHER = {"a": "A", "b": "B", "c": "C"}, {"A": "B", "B": "A"}
_MOST_MEMBERS = 64  # of a batch: more of them are a launch by themselves
_BUSY = 16          # launches: a product that keeps a device busy for so long saves nothing by
                    # sharing one


@dataclass(frozen=True)
class Member:
    """A product of a table, without batch modes, perhaps as C^T; ``places`` are its matrices."""

    index: int
    problem: GemmProblem
    places: tuple[tuple[str, Argument], ...] = ()


@dataclass(frozen=True)
class Part:
    """What one launch computes; ``first`` has the blocks before those of each member, ``start``
    and ``row_words`` are 64-bit words of the table."""

    kernel: GeneratedKernel
    family: str
    tile: Any
    members: tuple[Member, ...]
    first: tuple[int, ...]
    start: int
    row_words: int
    blocks: int
    seconds: float

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
    bytes: int
    dtype: str
    problem: int
    name: str

    def write(self, table: np.ndarray, value: Any) -> None:
        table[self.word:self.word + max(1, self.bytes // WORD_BYTES)].view(self.dtype)[0] = value


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
                values = part.kernel.row_signature.bind(_values(member, part.kernel))
                for param, offset, value in zip(part.kernel.row, offsets, values, strict=True):
                    word = part.start + part.entries + row * part.row_words + offset
                    if param.kind == "pointer":
                        addresses.append(Address(word, member.index, value.role, value.offset))
                        continue
                    number = Number(word, param.dtype.bytes, param.dtype.name, member.index,
                                    param.name)
                    if isinstance(value, Argument):
                        numbers.append(number)
                    else:
                        number.write(blank, value)
        return Form(blank, tuple(addresses), tuple(numbers))

    def __str__(self) -> str:
        return "; ".join(f"{len(part.members)} products by {part.family}, tile {part.tile}"
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
    values = gemm_values(p, dict(member.places)) | numbers
    return {name: value for name, value in values.items() if name in kernel.row_signature}


# -- plans -----------------------------------------------------------------------------------------
@lru_cache(maxsize=256)
def plan_grouped(problem: GroupedProblem, device: DeviceInfo) -> Plan:
    """Plan a group of products; launches take the address of role ``table`` (:func:`table_of`)."""
    groups: dict[tuple, list[Member]] = {}
    for index, p in enumerate(problem.problems):
        if refusal := _refusal(p):
            raise ValueError(f"problem {index}: {refusal}")
        for member in _members(index, p):
            family = _family(member.problem, device)
            oriented = family.oriented(member)
            groups.setdefault(_key(family, oriented.problem), []).append(oriented)
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
                sum(part.seconds for part in parts))


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
    members = (Member(0, p),) * p.matrices
    seconds = min(choice.seconds(members, device) for choice in family.choices(members, device))
    if seconds > device.seconds(launches=_BUSY) and (own := plan_gemm(p, device).family) != family.name:
        return f"{own} alone is faster than {family.name} in a group"
    return None


def _members(index: int, p: GemmProblem) -> list[Member]:
    """The rows of a problem: one for every index of its batch, none if it has no elements."""
    members = []
    for at in product(*map(range, p.batch)) if p.outputs else ():
        part, offsets = beginning(p, at)
        flat = with_matrices(part, lambda _role, x: replace(x, batch_strides=()))
        places = {_NAMES.get(role, role): place(role, offset) for role, offset in offsets.items()}
        members.append(Member(index, replace(flat, batch=()), tuple(places.items())))
    return members


def _blocks(p: GemmProblem, tile: Any) -> int:
    return -(-p.m // tile.m) * -(-p.n // tile.n)


def _meet(problems: Sequence[GemmProblem]) -> GemmProblem:
    """A product that is read and written as all of these can be."""
    # Its extents and strides divide theirs, but for strides that are 1 where not all are; strides
    # of modes of extent 1 do not count.
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
        return replace(first, strides=strides, batch_strides=(), alignment=alignment)  # type: ignore[arg-type]

    def divisor(extents: Sequence[int]) -> int:
        return gcd(*extents) if gcd(*extents) > 1 else max(extents) | 1

    m, n, k = map(divisor, zip(*((p.m, p.n, p.k) for p in problems), strict=True))
    alpha, beta = (_scalar(kinds) for kinds in ({alpha_kind(p.alpha) for p in problems},
                                                {p.beta for p in problems}))
    return replace(with_matrices(problems[0], common), m=m, n=n, k=k, alpha=alpha, beta=beta)


def _scalar(kinds: Collection[str]) -> Any:
    """What is known of the alphas (or betas) of all; else each row has its own."""
    return next(iter(kinds)) if len(kinds) == 1 and {*kinds} <= {*_NUMBERS} else "device"


def _key(family: _Simt, p: GemmProblem) -> tuple:
    """Products with the same key share a kernel."""
    matrices = tuple((name, x.dtype) for name, x in p.fusion.matrices) if p.fusion else ()
    return (family, p.a.dtype, p.b.dtype, p.c.dtype, p.accumulator, p.a.conj, p.b.conj,
            p.fusion and p.fusion.graph, matrices)


def _family(p: GemmProblem, device: DeviceInfo) -> _Simt:
    """Half precision goes to tensor cores; empty sums go where others go."""
    whole = replace(p, k=max(1, p.k), alpha="one" if p.alpha == "zero" else p.alpha)
    return _Mma() if dtype(p.a.dtype).is_stored and why_not_mma(whole, device) is None else _Simt()


class _Choice(NamedTuple):
    """A tile, what one of ``steps`` does, and blocks that a multiprocessor has at once."""

    tile: Any
    of_depth: Callable[[int], Work]
    resident: int

    def seconds(self, members: Sequence[Member], device: DeviceInfo) -> float:
        """The estimated time: of all blocks, evenly, or of the longest one alone."""
        tile, problems = self.tile, [member.problem for member in members]
        blocks = [_blocks(p, tile) for p in problems]
        depths, moved = [p.depth for p in problems], sum(map(compulsory_bytes, problems))
        mean = sum(n * depth for n, depth in zip(blocks, depths, strict=True)) // sum(blocks)
        of_c = tile.m * tile.n * problems[0].c.item

        def expected(depth: int, count: int, nbytes: int) -> float:
            turns = blocks_in_turns(count, self.resident, -(-depth // tile.k), tile.stages, device)
            return self.of_depth(depth)._replace(**turns, moved=nbytes,
                                                 written=turns["tiles"] * of_c).seconds(device)

        return max(expected(mean, sum(blocks), moved), expected(max(depths), 1, 0))


@dataclass(frozen=True)
class _Simt:
    """Products on fused multiply-adds, C M-major where it can be."""

    name = "gemm_simt"
    run_mode = 0

    def oriented(self, member: Member) -> Member:
        p = member.problem
        runs, across = (p.c.strides[mode] == 1 or p.shape[mode] <= 1
                        for mode in (self.run_mode, 1 - self.run_mode))
        if runs or not across:
            return member
        places = tuple((_OTHER.get(name, name), there) for name, there in member.places)
        return replace(member, problem=transposed(p), places=places)

    def choices(self, members: Sequence[Member], device: DeviceInfo) -> Iterator[_Choice]:
        p = _meet([member.problem for member in members])
        a, b = p.map_inputs(simt_access)
        for t in candidates(p.accumulator):
            depth, blocks = 0, 0                       # large tiles have one chain
            if t.chains > 1:
                depth = max(member.problem.k for member in members)
                blocks = sum(tiles_of_c(member.problem, (t.m, t.n)) for member in members)
            yield _Choice(summing(t, depth, blocks, p.sum_bytes, device),
                          partial(simt_work, p, t, a=a, b=b, device=device), resident_blocks(t))

    def kernel(self, p: GemmProblem, tile: Any, reach: int) -> GeneratedKernel:
        """The kernel for products that meet in ``p``, whose offsets are below ``reach``."""
        a, b = p.map_inputs(simt_access)
        c = simt_access(p.c, p.shape, tile.values[0])
        return gemm_simt(specialised(SimtConfig, p, c, reach, 0, tile=tile, a=a, b=b, grouped=True))


@dataclass(frozen=True)
class _Mma(_Simt):
    name = "gemm_mma"
    run_mode = 1

    def choices(self, members: Sequence[Member], device: DeviceInfo) -> Iterator[_Choice]:
        atom = mma_atom(members[0].problem.a.dtype, device.arch)
        assert atom is not None
        for tile in mma_tiles(atom, device):
            yield _Choice(tile, partial(mma_work, members[0].problem, tile, device=device),
                          resident_on_mma(tile, device))

    def kernel(self, p: GemmProblem, tile: Any, reach: int) -> GeneratedKernel:
        a, b = p.map_inputs(vector_access)
        c = vector_access(p.c, p.shape, 2 * p.c.item)
        c = c if c.unit == 1 else replace(c, width=1)
        return gemm_mma(specialised(MmaConfig, p, c, reach, accumulator=None, tile=tile, a=a, b=b,
                                    grouped=True))


def _part(family: _Simt, members: tuple[Member, ...], device: DeviceInfo, start: int) -> Part:
    seconds, tile = min(((choice.seconds(members, device), choice.tile)
                         for choice in family.choices(members, device)), key=itemgetter(0))
    problems = [member.problem for member in members]
    kernel = family.kernel(_meet(problems), tile, max(map(gemm_span, problems)))
    first, blocks = first_blocks([_blocks(p, tile) for p in problems])
    return Part(kernel, family.name, tile, members, tuple(first), start, word_offsets(kernel.row)[1],
                blocks, seconds)
