"""The device functions that kernels call: a row for each, with types and where its texts stand.

In a signature, ``T*`` is an address, ``T&`` is written, ``T[]`` is all of a fragment; a capital
letter alone is deduced, ``<...>`` are template arguments, and ``?`` may be left out. From the
calls of a kernel follow its prelude and whether it waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TypeAlias

from .._dtypes import DTYPES, DType, dtype
from ..layout import Tensor
from .architectures import number_of, oldest_with
from .engine import Element, Pointer
from .errors import CodegenError
from .values import Operand, Rendered, Use, Value, local, rendered

Argument: TypeAlias = Operand | Tensor | Pointer | str
"""A value; for an address an element, a variable or a pointer; a fragment; a tensor map's name."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a device function."""

    type: str                           # an element type, a letter, "void" or "TensorMap"
    kind: str = "value"                 # or "address", "reference", "array"
    const: bool = False                 # whether the function only reads through the address
    optional: bool = False
    several: bool = False               # whether more arguments may follow

    @cached_property
    def element(self) -> DType | None:
        """The element type, if it is a certain one."""
        return DTYPES.get(self.type)


@dataclass(frozen=True)
class Intrinsic:
    """A device function: a row of the table."""

    name: str                           # without its namespace cb::
    of: tuple[Parameter, ...]           # template arguments of a call
    parameters: tuple[Parameter, ...]
    result: str                         # a type, "void", or "T.real", the type of T's parts
    arch: str                           # the oldest that runs it; ending in "a", this one alone
    cuda: str                           # a file of the prelude, or "wgmma", "mma": instructions that
                                        # are written one by one
    emulator: str                       # the header that has its twin
    needs: tuple[Use, ...] = ()         # functions of other files that its text calls

    def runs_on(self, arch: str) -> bool:
        """Whether a kernel for an architecture may call it."""
        if self.arch.endswith("a"):
            return arch == self.arch
        return number_of(arch) >= number_of(self.arch)

    def template(self, of: tuple[object, ...]) -> tuple[str, ...]:
        """Template arguments as C++."""
        least = sum(not p.optional for p in self.of)
        if not least <= len(of) <= len(self.of):
            raise CodegenError(
                f"cb::{self.name} takes {least} to {len(self.of)} template arguments, got {of}"
            )
        return tuple(_spelled(p, x) for p, x in zip(self.of, of, strict=False))

    def accepting(self, count: int) -> tuple[Parameter, ...]:
        """The parameters of a call with so many arguments."""
        last = self.parameters[-1:]
        parameters = (*self.parameters, *(last * (count - len(self.parameters)) if last
                                          and last[0].several else ()))
        least = sum(not p.optional for p in self.parameters)
        if not least <= count <= len(parameters):
            raise CodegenError(
                f"cb::{self.name} takes {least} to {len(parameters)} arguments, got {count}"
            )
        return parameters[:count]


def _spelled(parameter: Parameter, value: object) -> str:
    if parameter.type == "bool" and isinstance(value, bool):
        return str(value).lower()
    if parameter.type == "int32" and isinstance(value, int):
        return str(int(value))
    if parameter.element is None and isinstance(value, str):
        return dtype(value).ctype
    raise CodegenError(f"a template argument of type {parameter.type} was expected, got {value!r}")


def _parameter(text: str) -> Parameter:
    text, optional, several = text.strip(), text.endswith("?"), text.endswith("...")
    text = text.rstrip("?.")
    for ending, kind, const in ((" const*", "address", True), ("*", "address", False),
                                ("&", "reference", False), ("[]", "array", False)):
        if text.endswith(ending):
            return Parameter(text.removesuffix(ending), kind, const, optional, several)
    return Parameter(text, "value", False, optional, several)


def _parameters(text: str) -> tuple[Parameter, ...]:
    return tuple(_parameter(part) for part in text.split(",") if part)


def _row(signature: str, cuda: str, emulator: str, arch: str, needs: tuple[Use, ...]) -> Intrinsic:
    """A row from ``name<template arguments>(parameters) -> result``."""
    head, _, tail = signature.partition("(")
    name, _, of = head.rstrip(">").partition("<")
    parameters, _, result = tail.partition(")")
    result = result.removeprefix(" -> ") or "void"
    return Intrinsic(name, _parameters(of), _parameters(parameters), result, arch, cuda, emulator,
                     needs)


def _rows(signatures: str, cuda: str, emulator: str = "device.h", arch: str = "sm_70",
          needs: tuple[Use, ...] = ()) -> list[Intrinsic]:
    return [_row(line.strip(), cuda, emulator, arch, needs)
            for line in signatures.strip().splitlines()]


_COMPLEX_PRODUCTS = Use("mma_m16n8k16", ("double",)), Use("mma_m8n8k4", ("double",))

INTRINSICS = {
    row.name: row
    for row in (
        *_rows(
            """
        min(A, A) -> A
        max(A, A) -> A
        zero<T>() -> T
        one<T>() -> T
        is_zero(A) -> bool
        convert<T>(A) -> T
        add(A, A) -> A
        scale<T>(A, B) -> T
        mac<bool?, bool?>(C&, A, B)
        mac_in_order(float32&, float32, float32)
        mac_dp4a(int32&, uint32, uint32)
        shared_memory<T>(int32) -> T
        load_global<int32>(A*, A const*, bool?)
        store_global<int32>(A*, A const*, bool?)
        load_shared<int32>(A*, A const*)
        load_covering<int32>(A*, A const*)
        store_shared<int32>(A*, A const*)
        load_shared_between(b32&, b32 const*, int32)
        load_shared_pair(b32&, b16 const*, b16 const*)
        settled(A*) -> A
        aligned_down<T, int32>(A*) -> T
        between_words(uint32, uint32, int32) -> uint32
        load_flag(uint32 const*) -> uint32
        store_flag(uint32*, uint32)
        count_arrival(uint32*) -> uint32
        syncthreads()
        syncthreads_or(bool) -> bool
        syncwarp()
        shuffle_xor(A, int32) -> A
        named_barrier_sync(int32, int32)
        named_barrier_arrive(int32, int32)
        transpose_b16x2(uint32[])
        transpose_b8x4(uint32[])
        cp_async<int32>(A*, A const*, bool)
        cp_async_part<int32>(A*, A const*, int32)
        cp_async_commit()
        cp_async_wait<int32>()
        next_launch_may_begin()
        wait_for_launch_before()
        """,
            "core"
        ),
        *_rows(
            """
        infinity<T>(int32) -> T
        not_a_number<T>(int32) -> T
        multiply(A, A) -> A
        subtract(A, A) -> A
        divide(A, A) -> A
        power(A, A) -> A
        minimum(A, A) -> A
        maximum(A, A) -> A
        negative(A) -> A
        absolute(A) -> A.real
        sign(A) -> A
        square(A) -> A
        reciprocal(A) -> A
        floor(A) -> A
        ceil(A) -> A
        rint(A) -> A
        exp(A) -> A
        exp2(A) -> A
        expm1(A) -> A
        log(A) -> A
        log2(A) -> A
        log1p(A) -> A
        sqrt(A) -> A
        sin(A) -> A
        cos(A) -> A
        tanh(A) -> A
        erf(A) -> A
        sigmoid(A) -> A
        less(A, A) -> bool
        less_equal(A, A) -> bool
        greater(A, A) -> bool
        greater_equal(A, A) -> bool
        equal(A, A) -> bool
        not_equal(A, A) -> bool
        isnan(A) -> bool
        logical_and(bool, bool) -> bool
        logical_or(bool, bool) -> bool
        logical_xor(bool, bool) -> bool
        logical_not(bool) -> bool
        where(bool, A, A) -> A
        real(A) -> A.real
        imag(A) -> A.real
        conj(A) -> A
        """,
            "values",
            "values.h"
        ),
        *_rows(
            """
        power_of_two(int32) -> float32
        scalbn(float32, int32) -> float32
        row_factors(int32, float32&, float32&)
        scaled(float32, float32) -> float32
        largest_magnitude(float32, float32&)
        row_shift(float32, int32) -> int32
        row_need(int32, int32, float32) -> float32
        row_offer(float32, float32) -> float32
        add_magnitude(float32, float32&, float32&)
        count_magnitude(float32, float32, float32, int32&, int32&, float32&)
        opposite(A) -> A
        convert_pair(A&, A&, float32, float32)
        plane_rest(float32, A, float32) -> float32
        split_pair(float32, float32, uint32&, uint32&, uint32&, uint32&, uint32&, uint32&)
        pairs_are_between(uint32, uint32, uint32, int32, int32) -> bool
        wgmma_delivered(A[])
        """,
            "split",
            "split.h"
        ),
        *_rows(
            """
        modulus_of(int32) -> uint32
        product_of_moduli(int32, float64&, float64&)
        most_of_norms(float64) -> float64
        power_of_two_f64(int32) -> float64
        add_element(float64, float64&, float64&, int32&)
        add_complex_element(float64, float64, float64&, float64&, int32&)
        judge_row(float64, float64, int32, int32, float32&, float32&)
        choose_moduli(float32, float32, float32, float32, float32) -> uint32
        moduli_of(uint32) -> int32
        row_exponent(float64, int32, uint32, float64) -> int32
        scaled_integer(float64, float64) -> int64
        signed_bytes(int64, uint32&, uint32&)
        residue_weights(int32, uint32&, uint32&)
        residue_factors(int32, int32&, float32&, int32&)
        residue_bits(int32, float32, int32) -> uint32
        low_bytes(uint32, uint32, uint32, uint32) -> uint32
        residue_offset(uint32) -> uint32
        residue_reciprocal(uint32) -> uint32
        residue_of_sum(int32, uint32, uint32, uint32) -> uint8
        weights_of_moduli(int32, int32) -> uint32
        fraction_of_sums(uint32[], uint64&, uint32&)
        subtract_fraction(uint64&, uint32&, uint64, uint32)
        integer_of(uint64, uint32, float64, float64) -> float64
        unscaled(float64, int32, int32) -> float64
        """,
            "modular",
            "../codegen/prelude/modular.cuh"
        ),
        *_rows(
            """
        mbarrier_init(uint64*, int32)
        mbarrier_init_fence()
        mbarrier_arrive(uint64*)
        mbarrier_arrive_expect_tx(uint64*, int32)
        mbarrier_wait(uint64*, int32)
        fence_proxy_async()
        tma_prefetch(TensorMap const*)
        tma_load(A*, TensorMap const*, uint64*, int32...)
        tma_store(TensorMap const*, A const*, int32...)
        tma_store_commit()
        tma_store_wait_read<int32>()
        tma_store_wait<int32>()
        """,
            "hopper",
            arch=oldest_with("tma")
        ),
        *_rows(
            """
        mbarrier_arrive_at(uint64*, int32)
        cluster_sync()
        cluster_sync_ordered()
        store_async(A*, A, int32, uint64*)
        tma_load_multicast(A*, TensorMap const*, uint64*, int32, int32...)
        """,
            "hopper",
            arch=oldest_with("clusters")
        ),
        *_rows(
            """
        wgmma_descriptor(void const*, int32, int32, int32) -> uint64
        wgmma_descriptor_advance(uint64, int32) -> uint64
        wgmma_fence()
        wgmma_commit()
        wgmma_wait<int32>()
        setmaxnreg_inc<int32>()
        setmaxnreg_dec<int32>()
        """,
            "hopper",
            arch=oldest_with("wgmma")
        ),
        *_rows(
            """
        wgmma_m64k16<int32, T, int32, int32>(float32[], uint64, uint64, int32)
        wgmma_m64k16_rs<int32, T, int32>(float32[], uint32[], uint64, int32)
        wgmma_m64k8_tf32<int32>(float32[], uint64, uint64, int32)
        wgmma_m64k32<int32, T, T>(int32[], uint64, uint64, int32)
        """,
            "wgmma",
            arch=oldest_with("wgmma")
        ),
        *_rows(
            """
        ldmatrix_x4(uint32*, A const*)
        ldmatrix_x4_trans(uint32*, A const*)
        """,
            "warp",
            arch="sm_75"
        ),
        *_rows("mma_m16n8k8<T>(C*, A const*, A const*)", "mma", arch="sm_75"),
        *_rows(
            """
        mma_m16n8k16<T>(C*, A const*, A const*)
        mma_m16n8k32<T>(C*, A const*, A const*)
        mma_m8n8k4<T>(C*, A const*, A const*)
        """,
            "mma",
            arch="sm_80"
        ),
        *_rows(
            "complex_mma_m8n8k4<bool>(complex128*, complex128 const*, complex128 const*)",
            "complex",
            arch="sm_80",
            needs=_COMPLEX_PRODUCTS
        ),
        *_rows(
            "complex_mma_m8n8k8<bool>(complex128*, complex128 const*, complex128 const*)",
            "complex",
            arch="sm_90",
            needs=_COMPLEX_PRODUCTS
        ),
        *_rows(
            """
        split_mma_m16n8k16(float32*, uint32 const*, uint32 const*)
        split_complex_mma_m16n8k8<bool>(complex64*, uint32 const*, uint32 const*)
        """,
            "planes",
            arch="sm_80",
            needs=(Use("mma_m16n8k16", ("cb::bfloat16",)),)
        ),
    )
}

_BUILT_ON = {"wgmma": "hopper"}
"""Parts of the prelude that others declare."""


def intrinsic(name: str) -> Intrinsic:
    """The row of a function."""
    row = INTRINSICS.get(name)
    if row is None:
        raise CodegenError(f"there is no device function {name!r}")
    return row


_TYPES = {row.ctype: row for row in DTYPES.values()}


def parts_of(uses: Iterable[Use], types: Iterable[DType] = ()) -> dict[str, set[Use]]:
    """The functions that a kernel calls, directly or indirectly, by part of the prelude."""
    waiting = list(uses)
    named = {*types, *(_TYPES[argument] for use in waiting for argument in use.of
                       if argument in _TYPES)}
    parts: dict[str, set[Use]] = {"core": set(), **{row.prelude: set() for row in named}}
    while waiting:
        use = waiting.pop()
        row = intrinsic(use.name)
        if use not in parts.setdefault(row.cuda, set()):
            parts[row.cuda].add(use)
            if row.cuda in _BUILT_ON:
                parts.setdefault(_BUILT_ON[row.cuda], set())
            waiting += row.needs
    return parts


def called(name: str, of: tuple[object, ...], arguments: tuple[Argument, ...]) -> Rendered:
    """A call of a function."""
    row, parameters, types, use, head = _form(name, len(arguments), *of)
    types = dict(types)
    for p, x in zip(parameters, arguments, strict=True):
        kind = x.dtype if isinstance(x, Value) else _type_of(x)
        if kind is not None and p.type != "void":
            wanted = p.element or types.setdefault(p.type, kind)
            # than the row's, or than what the letter stands for already
            if wanted.ctype != kind.ctype:
                raise CodegenError(f"cb::{row.name} takes {wanted.name}, got {kind.name}")
    passed = [_passed(row, p, x, p.element or types.get(p.type))
              for p, x in zip(parameters, arguments, strict=True)]
    letter, _, part = row.result.partition(".")
    kind = DTYPES.get(letter) or types.get(letter)
    return Rendered(f"{head}({', '.join([text for text, _ in passed])})",
                    kind.part if part and kind else kind,
                    uses=use.union(*[uses for _, uses in passed]))


@lru_cache(None, typed=True)
def _form(name: str, count: int, *of: object) -> tuple[Intrinsic, tuple[Parameter, ...],
                                                       dict[str, DType], frozenset[Use], str]:
    """What calls with so many arguments and these template arguments share."""
    row = intrinsic(name)
    template = row.template(of)
    types = {p.type: dtype(x) for p, x in zip(row.of, of, strict=False) if p.element is None
             and isinstance(x, str)}
    listed = f"<{', '.join(template)}>" if template else ""
    return row, row.accepting(count), types, frozenset({Use(name, template)}), f"cb::{name}{listed}"


_NO_NUMBER = (Tensor, Pointer, str)


@cache
def result_of(name: str, elements: tuple[str, ...]) -> DType | None:
    """The type of a function's value, of arguments with these element types."""
    return called(name, (), tuple(local("x", element) for element in elements)).dtype


def _type_of(x: Argument) -> DType | None:
    """The element type of an argument that is not a value, if it has one."""
    pointer = x.engine if isinstance(x, Tensor) else x
    return pointer.dtype if isinstance(pointer, Pointer) else None


def _passed(row: Intrinsic, parameter: Parameter, x: Argument,
            kind: DType | None) -> tuple[str, frozenset[Use]]:
    """An argument as C++, and what it calls itself."""
    if isinstance(x, Value):
        if parameter.kind == "address" and isinstance(x, Element) and x.pointer.const and not parameter.const:
            raise CodegenError(f"cb::{row.name} writes to {x.pointer.name}, which is read-only")
        text, _kind, _level, uses = x.rendered()
        return f"&{text}" if parameter.kind == "address" else text, uses
    if isinstance(x, str) and parameter.type == "TensorMap":
        return f"&{x}", frozenset()
    if isinstance(x, Tensor) and parameter.kind == "array":
        return x.engine.name, frozenset()
    if isinstance(x, Pointer) and parameter.kind == "address":
        return (x.name, frozenset()) if x.offset == 0 and (parameter.const or not x.const) else _passed(row, parameter, x[0], kind)
    if isinstance(x, _NO_NUMBER) or parameter.kind != "value":
        raise CodegenError(f"cb::{row.name} takes {parameter.type} as {parameter.kind}, got {x!r}")
    number = rendered(x, kind)
    return number.c, number.uses
