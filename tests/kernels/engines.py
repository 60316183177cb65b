"""Running plans for tests: in the emulator, or on a GPU, over memory whose layout the test
chooses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from cuteblas.planning import H200, CopyProblem, GemmProblem, Operand, Plan
from cuteblas.planning.gemm.grouped import table_of
from cuteblas.planning.gemm.split import SPLIT

UNIT = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53, "complex64": 2.0**-24,
        "complex128": 2.0**-53}


@dataclass
class Strided:
    """A strided array over a flat allocation: every element of the allocation can be inspected, not
    only the array's."""

    base: np.ndarray
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]                    # in elements

    @property
    def view(self) -> np.ndarray:
        item = self.base.itemsize                   # as_strided knows no types of 8 bits
        strides = [s * item for s in self.strides]
        return np.ndarray(self.shape, self.base.dtype, self.base.view(np.uint8), self.offset * item,
                          strides)

    @property
    def alignment(self) -> int:
        address = 256 + self.offset * self.base.itemsize
        return min(16, address & -address)

    def operand(self, modes: tuple[int, int] = (-2, -1), conj: bool = False) -> Operand:
        strides = self.strides[modes[0]], self.strides[modes[1]]
        return Operand(self.base.dtype.name, strides, self.strides[:-2], conj, self.alignment)


def aligned(elements: int, dtype) -> np.ndarray:
    """A flat array whose address is a multiple of 256."""
    dtype = np.dtype(dtype)
    raw = np.zeros(elements * dtype.itemsize + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start:start + elements * dtype.itemsize].view(dtype)


def place(values: np.ndarray, order: str = "C", *, pad: int = 0,
          flip: tuple[bool, ...] | None = None, step: int = 1, offset: int = 0,
          poison=None) -> Strided:
    """Put values into memory in an order ("C", "F"), rows padded, every ``step``-th element used,
    some modes walked backwards."""
    shape = values.shape
    *batch, row, column = range(values.ndim)
    order_of_modes = [*((column, row) if order == "C" else (row, column)), *reversed(batch)]
    strides, at = [0] * values.ndim, step
    for i, mode in enumerate(order_of_modes):
        strides[mode] = at
        at *= max(1, shape[mode])
        if i == 0:
            at += pad * step
    base = aligned(offset + at + 1, values.dtype)
    if poison is not None:
        base[:] = poison
    start = offset
    for mode, backwards in enumerate(flip or ()):
        if backwards:
            start += (shape[mode] - 1) * strides[mode]
            strides[mode] = -strides[mode]
    x = Strided(base, start, shape, tuple(strides))
    x.view[...] = values
    return x


def gemm_problem(a: Strided, b: Strided, c: Strided, *, conj=(False, False),
                 **kinds) -> GemmProblem:
    """C = A B of arrays (..., M, K), (..., K, N), (..., M, N) with equal batch modes."""
    *batch, m, n = c.shape
    return GemmProblem(m, n, a.shape[-1], a.operand(conj=conj[0]),
                       b.operand((-1, -2), conj=conj[1]), c.operand(), tuple(batch), **kinds)


def plan_split(problem: GemmProblem, device, form: str) -> Plan:
    """The plan on ``gemm_split`` in a format, whatever the elements are."""
    return SPLIT.plan(replace(problem, precision=form), device)


def copy_problem(src: Strided, dst: Strided) -> CopyProblem:
    return CopyProblem(src.shape, src.strides, dst.strides, src.base.itemsize, src.alignment,
                       dst.alignment)


class Emulator:
    """Plans in the emulator."""

    name = "emulator"
    device = H200

    def run(self, plan: Plan, alpha=1, beta=0, seed=None, numbers=None, operands=None,
            **named: Strided) -> None:
        from cuteblas import emulator

        memory = {role: x.view for role, x in {**named, **(operands or {})}.items()}
        emulator.run(plan, memory, alpha, beta, numbers=numbers, seed=seed)


    def run_group(self, plan: Plan, operands: list[dict[str, Strided]], numbers: list[dict],
                  seed=None) -> None:
        """A plan for many products: for each its matrices by role, and its numbers."""
        from cuteblas import emulator

        reached = [x.view for each in operands for x in each.values()]
        values = [{role: x.view.ctypes.data for role, x in each.items()} | n
                  for each, n in zip(operands, numbers, strict=True)]
        emulator.run(plan, {"table": table_of(plan, values)}, reached=reached, seed=seed)


class Cuda:
    """Plans on the current CUDA device."""

    name = "cuda"

    def __init__(self) -> None:
        from cuteblas import runtime

        self.device = runtime.device_info()

    def run(self, plan: Plan, alpha=1, beta=0, seed=None, numbers=None, operands=None,
            **named: Strided) -> None:
        import cupy

        from cuteblas import runtime

        operands = {**named, **(operands or {})}
        memory = {role: cupy.asarray(x.base.view(np.uint8)) for role, x in operands.items()}
        roles = plan.problem.roles
        addresses = tuple(memory[r].data.ptr + operands[r].offset * operands[r].base.itemsize
                          for r in roles)
        runtime.executor(plan).launch(addresses, cupy.cuda.get_current_stream().ptr, alpha, beta,
                                      numbers)
        for role, x in operands.items():
            x.base.view(np.uint8)[:] = memory[role].get()


    def run_group(self, plan: Plan, operands: list[dict[str, Strided]], numbers: list[dict],
                  seed=None) -> None:
        """A plan for many products: for each its matrices by role, and its numbers."""
        import cupy

        from cuteblas import runtime

        memory = {id(x.base): cupy.asarray(x.base.view(np.uint8)) for each in operands
                  for x in each.values()}
        values = [{role: memory[id(x.base)].data.ptr + x.offset * x.base.itemsize
                   for role, x in each.items()} | n
                  for each, n in zip(operands, numbers, strict=True)]
        table = cupy.asarray(table_of(plan, values))
        runtime.executor(plan).launch((table.data.ptr,), cupy.cuda.get_current_stream().ptr)
        for x in (x for each in operands for x in each.values()):
            x.base.view(np.uint8)[:] = memory[id(x.base)].get()


def repeated(x: Strided, modes: Iterable[int]) -> Strided:
    """An array whose elements are the same along some modes: their stride is 0."""
    return replace(x, strides=tuple(0 if i in modes else s for i, s in enumerate(x.strides)))


def outside(x: Strided) -> np.ndarray:
    """Which elements of the allocation are not the array's."""
    mask = np.ones(x.base.shape, bool)
    np.lib.stride_tricks.as_strided(mask[x.offset:], x.shape, x.strides)[...] = False
    return mask


def multiply_placed(engine, plan_for, a: Strided, b: Strided, c: Strided, *, alpha=1, beta=0,
                    conj=(False, False), units=None, **kinds) -> Plan:
    """One product, compared, without another byte of C's allocation written; the plan."""
    before, around = c.view.copy(), outside(c)
    untouched = c.base[around].copy()
    problem = gemm_problem(a, b, c, conj=conj, alpha="one" if alpha == 1 else "value",
                           beta={0: "zero", 1: "one"}.get(beta, "value"), **kinds)
    plan = plan_for(problem, engine.device)
    engine.run(plan, alpha, beta, a=a, b=b, c=c)
    wide_a, wide_b = (np.conj(x.view) if flag else x.view
                      for x, flag in zip((a, b), conj, strict=True))
    kind = c.base.dtype
    if a.base.itemsize == 2 and a.base.dtype.kind not in "iu":
        check_tensor_cores(c.view, wide_a, wide_b, alpha=alpha, beta=beta, before=before)
    else:
        check_product(c.view, wide_a.astype(kind), wide_b.astype(kind), kind.name, alpha=alpha,
                      beta=beta, before=before, units=units)
    np.testing.assert_array_equal(c.base[around].view(np.uint8), untouched.view(np.uint8),
                                  err_msg="memory outside of C was written")
    return plan


def multiply(engine, plan_for, a: np.ndarray, b: np.ndarray, orders: str = "CCC", *,
             output: str | None = None, beta=0, repeat: tuple[str, Iterable[int]] | None = None,
             a_place=None, b_place=None, c_place=None, **how) -> Plan:
    """A product of values that are put into memory, whose C and surroundings are poisoned."""
    dtype = output or a.dtype.name
    shape = (*a.shape[:-2], a.shape[-2], b.shape[-1])
    before = (random(np.random.default_rng(9), shape, dtype) if beta
              else np.full(shape, poison(dtype), element(dtype)))
    placed = {"a": place(a, orders[0], **(a_place or {})),
              "b": place(b, orders[1], **(b_place or {}))}
    if repeat is not None:
        placed[repeat[0]] = repeated(placed[repeat[0]], repeat[1])
    c = place(before, orders[2], **{"poison": poison(dtype), **(c_place or {})})
    return multiply_placed(engine, plan_for, **placed, c=c, beta=beta, **how)


def element(dtype: str) -> np.dtype:
    """The type of a name, of which NumPy does not know bfloat16."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def random(rng: np.random.Generator, shape, dtype: str) -> np.ndarray:
    """Random values of any kernel type; integers use the whole range, so that sums wrap, and any
    byte but 0 stands for true."""
    kind = element(dtype)
    if kind.kind == "b":
        true = rng.choice(np.array([1, 2, 4, 128, 255], np.uint8), shape)
        return np.where(rng.random(shape) < 0.1, true, np.uint8(0)).view(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    if kind.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def poison(dtype: str):
    """A value that no test expects in a result."""
    kind = element(dtype)
    return np.nan if kind.kind in "fcV" else True if kind.kind == "b" else np.array(0x5A5A5A5A5A5A5A5A).astype(kind)


def check_product(c: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: str, *, alpha=1, beta=0,
                  before=None, units=None) -> None:
    """Compare with wider (or wrapped integer) arithmetic: errors in units of u (|alpha| |A||B| +
    |beta| |C|), never loosely.

    Rounding errors of a sum of k terms add up like a random walk: 3 + sqrt(k) units are allowed,
    where the worst case is k, or ``units(k)``. float16 and bfloat16 sum in float32 and round once:
    one unit.
    """
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        product = np.matmul(a, b)
        want = product if kind.kind == "b" else (alpha * product
                                                 + (beta * before if beta else 0)).astype(kind)
        np.testing.assert_array_equal(c, want)
        assert kind.kind != "b" or (c.view(np.uint8) <= 1).all(), "a bool that is not 0 or 1"
        return
    wide = {"float64": np.longdouble, "complex128": np.clongdouble,
            "complex64": np.complex128}.get(dtype, np.float64)
    terms = a.shape[-1] * (2 if kind.kind == "c" else 1)
    limit = units(terms) if units else 1.01 if dtype == "float16" else 3 + np.sqrt(terms)
    want = alpha * np.matmul(a.astype(wide), b.astype(wide))
    scale = abs(alpha) * np.matmul(abs(a).astype(float), abs(b).astype(float))
    if beta:
        want, scale = want + beta * before.astype(wide), scale + abs(beta) * abs(before).astype(float)
    error = abs(c.astype(wide) - want)
    assert not np.isnan(error).any(), "poison or NaN in the result"
    within = error <= limit * UNIT[dtype] * scale + (dtype == "float16") * 2.0**-25
    assert within.all(), f"{float((error / (UNIT[dtype] * scale + 1e-300)).max())} units"


def check_tensor_cores(c: np.ndarray, a: np.ndarray, b: np.ndarray, *, alpha=1, beta=0,
                       before=None) -> None:
    """Compare a product of 16-bit elements on tensor cores with float64, componentwise.

    Products are exact; every step of 16 terms truncates in the float32 accumulator (two units at
    most), and the result is rounded to C's type once.
    """
    wide_a, wide_b = a.astype(float), b.astype(float)
    want = alpha * (wide_a @ wide_b) + (beta * before.astype(float) if beta else 0)
    scale = abs(alpha) * (abs(wide_a) @ abs(wide_b)) + (abs(beta * before.astype(float)) if beta
                                                        else 0)
    rounding = {"float32": 0.0, "float16": UNIT["float16"], "bfloat16": 2.0**-8}[c.dtype.name]
    bound = (2 + a.shape[-1] / 8) * UNIT["float32"] * scale + rounding * abs(want) * 1.01 + (c.dtype == "float16") * 2.0**-25
    error = abs(c.astype(float) - want)
    assert not np.isnan(error).any() and (error <= bound).all(), float((error / bound).max())
