"""From accepted calls to results: stage the operands, plan, run, count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .engines import EMULATOR, Engine, plan_for
from .gufunc import judge
from .memory import overlap, strides_by_order
from .problems import Staged, Staging, copy_problem, has_kernels, in_place_problem, stage
from .products import delegate, host_operands

__all__ = ["EMULATOR", "copy_into", "emulated_matmul", "execute", "move", "new_like"]


def emulated_matmul(x1: Any, x2: Any, out: Any, precision: str, variant: str | None, arguments: Mapping[str, Any]) -> Any:
    """``matmul`` of operands on the host by the generated kernels in the emulator: see :func:`cuteblas.matmul`."""
    reason, x1, x2 = host_operands(x1, x2, out)
    if reason is not None:
        return delegate(reason, x1, x2, out, arguments, variant)
    memories = EMULATOR.memory(x1), EMULATOR.memory(x2), None if out is None else EMULATOR.memory(out)
    product = judge(*memories, arguments)
    if not has_kernels(product.dtype):
        return delegate(f"kernels have no {product.dtype}", x1, x2, out, arguments, variant)
    result = execute(EMULATOR, x1, x2, out, stage(*memories, product, precision, variant))
    return result[()] if out is None and product.shape == () else result


def execute(engine: Engine, x1: Any, x2: Any, out: Any, staging: Staging) -> Any:
    """Copy what must be copied, run the plan, and return ``out`` or the new array."""
    c = out if out is not None and staging.c.reason is None else engine.empty(staging.c.memory)
    if staging.c.memory.size:
        plan = plan_for(staging.problem, engine.device(x1))
        engine.run(plan, {"a": _staged(engine, x1, staging.a), "b": _staged(engine, x2, staging.b), "c": c})
        engine.count("matmul", "calls", plan.family)
    else:
        engine.count("matmul", "calls", "nothing")
    for copied in staging.copies:
        engine.count("matmul", "copies", copied)
    if out is None:
        return c
    if c is not out:
        engine.assign(out, c)
    return out


def _staged(engine: Engine, x: Any, staged: Staged) -> Any:
    if staged.reason is None:
        return x
    copy = engine.empty(staged.memory)
    engine.assign(copy, x)
    return copy


def new_like(function: str, engine: Engine, a: Any, order: str, variant: str | None = None) -> Any:
    """A new array with the elements of ``a``, laid out in the order C, F, A or K, by the copy kernels or a named one."""
    source = engine.memory(a)
    target = engine.empty(replace(source, strides=strides_by_order(source, order)))
    move(function, engine, a, target, variant)
    return target


def copy_into(function: str, engine: Engine, a: Any, out: Any, variant: str | None = None) -> None:
    """``out[...] = a``, of one shape and type, as if ``a`` were copied first; transposed square matrices change in place."""
    source, target = engine.memory(a), engine.memory(out)
    if source.address == target.address and all(s == t or n < 2 for n, s, t in zip(source.shape, source.strides, target.strides,
                                                                                   strict=True)):
        engine.count(function, "calls", "nothing")
    elif not overlap(source, target):
        move(function, engine, a, out, variant)
    elif (problem := in_place_problem(source, target)) is not None:
        plan = plan_for(replace(problem, variant=variant), engine.device(out))
        engine.run(plan, {"dst": out})
        engine.count(function, "calls", plan.family)
    else:
        move(function, engine, new_like(function, engine, a, "K", variant), out)
        engine.count(function, "copies", "out: shares memory with the array")


def move(function: str, engine: Engine, src: Any, dst: Any, variant: str | None = None) -> None:
    """Copy ``src`` into ``dst``, of the same shape and element size and without overlap, by the copy kernels or a named one."""
    source = engine.memory(src)
    if not source.size:
        engine.count(function, "calls", "nothing")
        return
    plan = plan_for(copy_problem(source, engine.memory(dst), variant), engine.device(src))
    engine.run(plan, {"src": src, "dst": dst})
    engine.count(function, "calls", plan.family)
