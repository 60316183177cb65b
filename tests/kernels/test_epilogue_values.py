"""Every predefined epilogue, and others, as code of a kernel: against the Python function, in the
emulator and on a GPU."""

import inspect

import numpy as np
import pytest

from cuteblas import epilogue, epilogues
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.codegen.epilogue import emit
from cuteblas.functions.epilogues import evaluate, resolve
from cuteblas.layout import Layout, Tensor
from cuteblas.planning import H200, Plan
from cuteblas.planning.plan import Argument, Launch
from tests.kernels.engines import UNIT, place
from tests.runtime.samples import GEMM

SHAPE = 16, 40


def graphs_kernel(graphs, accumulator, output, operand):
    """c[g, i] = result of graph g for the sum a[i]; all operands are b[i], alpha is 1."""
    k = KernelBuilder("graphs", 128, waits=False)
    a, b, c = k.pointer("a", accumulator), k.pointer("b", operand), k.pointer("c", output, const=False)
    n = k.integer("n")
    i = k.let("i", k.block_index("block", "x") * 128 + k.thread)
    x, y, z = (k.registers(name, element, Layout(1))
               for name, element in zip("xyz", (accumulator, operand, output), strict=True))
    for pointer, fragment in ((a, x), (b, y)):
        k.copy(Vector(1), Tensor(pointer + i, Layout(1)), fragment, when=i < n)

    def leaf(node):
        if node.op == "alpha":
            return k.call("one", of=node.dtype)
        return x(0) if node.op == "acc" else k.convert(y(0), node.dtype)

    for g, graph in enumerate(graphs):
        with k.when(i < n):
            k.assign(z(0), k.convert(next(emit(k, graph, leaf)), output))
            k.copy(Vector(1), z, Tensor(c + (g * n + i), Layout(1)))
    return k.build()


def compare(engine, bounds, acc, operand, output, units=8):
    """A kernel with all of them, against each by NumPy."""
    kinds = {"accumulator": acc.dtype.name, "output": output}
    resolved = [resolve(bound, **kinds, shape=acc.shape) for bound in bounds]
    kernel = graphs_kernel([r.trace.graph for r in resolved], acc.dtype.name, output, operand.dtype.name)
    c = place(np.zeros((len(bounds), acc.size), output))
    launch = Launch(kernel, (-(-acc.size // 128), 1, 1),
                    (Argument("a"), Argument("b"), Argument("c"), Argument(value=acc.size)))
    engine.run(Plan(GEMM, H200, "test", None, (launch,)), a=place(acc.reshape(1, -1)),
               b=place(operand.reshape(1, -1)), c=c)
    for bound, row in zip(bounds, c.view, strict=True):
        with np.errstate(all="ignore"):
            want, _ = evaluate(bound, acc, output=output)
        got = row.reshape(acc.shape)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=str(bound))
        scale = np.fmax(abs(want), abs(acc).astype(want.real.dtype) if want.dtype.kind in "fc"
                        else 0)
        error = np.where(got == want, 0, abs(got - want))
        error = error[~np.isnan(want)] / scale[~np.isnan(want)].clip(1e-30)
        assert error.max() <= units * UNIT.get(output, 0), f"{bound.epilogue}: {error.max() / UNIT[output]} units"


def operands_of(name, array):
    """A matrix for every operand that has to be given."""
    ready = getattr(epilogues, name)
    return dict.fromkeys((n for n, default in ready.operands.items()
                          if default is inspect.Parameter.empty), array)


@pytest.mark.parametrize("kind, operand", [("float32", "float32"), ("float32", "float16"),
                                           ("float64", "float64")])
def test_ready_epilogues(engine, kind, operand):
    rng = np.random.default_rng(0)
    acc = (rng.standard_normal(SHAPE) * 3).astype(kind)
    acc.flat[:8] = 0, -0.0, 1, -1, 20, -20, 1e-6, np.nan
    x = rng.standard_normal(SHAPE).astype(operand)
    names = [n for n in epilogues.ready if n not in ("bgrad_a", "bgrad_b")]
    compare(engine, [getattr(epilogues, n)(**operands_of(n, x)) for n in names], acc, x, kind)


@epilogue
def many_types(acc, *, x):
    inside = (acc > -50) & (acc < 50)
    return np.where(inside, acc.astype(np.int16) * 3, x.astype(np.int16)).astype(np.float32) + x


@epilogue
def through_half(acc, *, x):
    return (acc.astype(np.float16) * x.astype(np.float16) + np.float16(0.1)).astype(np.float32)


@epilogue
def chosen(acc, *, x):
    return np.where(np.isnan(x) | (x >= 0.5), np.clip(acc, -1, np.inf), np.rint(acc * 4) / 4)


def test_types_and_choices(engine):
    rng = np.random.default_rng(1)
    acc, x = ((rng.standard_normal(SHAPE) * 40).astype(np.float32) for _ in range(2))
    x.flat[3] = np.nan
    compare(engine, [chosen(x=x / 64), through_half(x=x / 64)], acc, x / 64, "float32", units=0)
    compare(engine, [many_types(x=np.abs(np.nan_to_num(x)))], acc, np.abs(np.nan_to_num(x)),
            "float32", units=0)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_epilogues(engine, kind):
    rng = np.random.default_rng(2)
    acc, x = ((rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)).astype(kind)
              for _ in range(2))

    @epilogue
    def rotated(acc, *, x):
        return np.where(acc.real > 0, np.conj(acc) * x, acc / (x + 2j)) + abs(acc) * 1j - acc.imag

    compare(engine, [rotated(x=x)], acc, x, kind, units=16)


def test_dequantized_sums(engine):
    rng = np.random.default_rng(3)
    acc, x = rng.integers(-2**31, 2**31, SHAPE,
                          np.int32), rng.standard_normal(SHAPE).astype(np.float32)
    compare(engine, [epilogues.dequantize(scale=x), epilogues.dequantize(scale=x, column_scale=x)],
            acc, x, "float32", units=0)
