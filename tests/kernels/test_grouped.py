"""Many differently sized products in one launch, in the emulator and on a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.epilogue import EpilogueGraph, Node, epilogue_role
from cuteblas.emulator.errors import GlobalOutOfBounds
from cuteblas.planning import H200, Operand, plan_gemm
from cuteblas.planning.gemm.grouped import plan_grouped, table_of
from cuteblas.planning.problem import Fusion, GroupedProblem

from .engines import (
    Strided,
    check_product,
    check_tensor_cores,
    gemm_problem,
    outside,
    place,
    poison,
    random,
)


def kind(scalar, known):
    return known.get(scalar, "value")


class Product:
    """One product of a group, its operands in memory."""

    def __init__(self, rng, m, n, k, dtype="float32", *, output=None, batch=(), orders="CCC", pad=0,
                 alpha=1, beta=0, flip=None, offset=0):
        output = output or dtype
        a, b = random(rng, (*batch, m, k), dtype), random(rng, (*batch, k, n), dtype)
        self.before = random(rng, (*batch, m, n), output) if beta else np.full((*batch, m, n), poison(output), output)
        self.alpha, self.beta = alpha, beta
        self.a, self.b = place(a, orders[0], pad=pad, flip=flip, offset=offset), place(b, orders[1], pad=pad, offset=offset)
        self.c = place(self.before, orders[2], pad=pad, poison=poison(output), offset=offset)
        around = outside(self.c)
        self._outside, self._untouched = around, self.c.base[around].copy()
        kinds = {"alpha": kind(alpha, {0: "zero", 1: "one"}),
                 "beta": kind(beta, {0: "zero", 1: "one"})}
        self.problem = gemm_problem(self.a, self.b, self.c, **kinds)

    @property
    def operands(self):
        return {"a": self.a, "b": self.b, "c": self.c}

    @property
    def numbers(self):
        return {"alpha": self.alpha, "beta": self.beta}

    def check(self):
        a, b, c, dtype = self.a.view, self.b.view, self.c.view, self.c.base.dtype.name
        np.testing.assert_array_equal(self.c.base[self._outside], self._untouched,
                                      err_msg="memory outside of C was written")
        if a.dtype == np.float16:
            check_tensor_cores(c, a, b, alpha=self.alpha, beta=self.beta, before=self.before)
        elif self.alpha == 0:
            np.testing.assert_array_equal(c, self.beta * self.before if self.beta
                                          else np.zeros_like(c))
        else:
            check_product(c, a, b, dtype, alpha=self.alpha, beta=self.beta, before=self.before)


def run(engine, products, launches=1, seed=None):
    """Compute a group and check all of it; returns the plan."""
    plan = plan_grouped(GroupedProblem(tuple(p.problem for p in products)), engine.device)
    engine.run_group(plan, [p.operands for p in products], [p.numbers for p in products], seed=seed)
    for p in products:
        p.check()
    assert len(plan.launches) == launches
    return plan


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32",
                                   "float16", "bool"])
def test_a_few_sizes(engine, dtype):
    rng = np.random.default_rng(1)
    output = "float32" if dtype == "float16" else dtype
    sizes = [(33, 17, 40), (1, 1, 1), (70, 130, 9), (5, 200, 64), (64, 64, 64)]
    plan = run(engine, [Product(rng, *size, dtype, output=output) for size in sizes])
    assert plan.family == ("gemm_mma" if dtype == "float16" else "gemm_simt")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_one_product(engine, dtype):
    for size in ((1, 1, 1), (40, 50, 60)):
        run(engine, [Product(np.random.default_rng(2), *size, dtype, output="float32")])


def test_a_hundred_products(engine):
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 40, (100, 3)).tolist()
    assert any(0 in size[:2] for size in sizes) and any(size[2] == 0 for size in sizes)
    run(engine, [Product(rng, *size) for size in sizes])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("empty", [(0, 5, 6), (5, 0, 6), (5, 6, 0), (0, 0, 0)])
@pytest.mark.parametrize("place_of_empty", [0, 1, 2])
def test_products_without_elements_or_terms(engine, empty, place_of_empty, dtype):
    rng = np.random.default_rng(4)
    sizes = [(40, 30, 20), (7, 9, 11)]
    sizes.insert(place_of_empty, empty)
    run(engine, [Product(rng, *size, dtype, output="float32", beta=beta)
                 for size, beta in zip(sizes, (0, 2, 3), strict=True)])


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
def test_alpha_and_beta_of_each(engine, dtype):
    """A beta of zero does not read C, an alpha of zero neither A nor B."""
    rng = np.random.default_rng(5)
    pairs = [(1, 0), (2, 0), (1, 1), (-3, 2), (0, 2), (0, 0), (1, 0)]
    products = [Product(rng, 20 + i, 30 - i, 10 + i, dtype, alpha=alpha, beta=beta)
                for i, (alpha, beta) in enumerate(pairs)]
    if dtype != "int64":
        for p in products:
            if p.alpha == 0:
                p.a.view[...] = np.nan
    run(engine, products)


@pytest.mark.parametrize("pairs", [[(1, 0), (1, 1)], [(0, 0), (1, 0)], [(1, 1), (0, 1), (1, 0)]])
def test_scalars_that_are_known_and_differ(engine, pairs):
    rng = np.random.default_rng(20)
    for order in (pairs, pairs[::-1]):
        run(engine, [Product(rng, 20, 30, 10, alpha=alpha, beta=beta) for alpha, beta in order])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("alpha, beta", [(1, 0), (2, 0), (1, 1), (2, 3)])
def test_alpha_and_beta_of_all(engine, alpha, beta, dtype):
    rng = np.random.default_rng(6)
    plan = run(engine, [Product(rng, m, 25, 20, dtype, output="float32", alpha=alpha, beta=beta)
                        for m in (3, 60)])
    row = {q.name for q in plan.launches[0].kernel.row}
    assert row & {"alpha", "beta"} == {name for name, x in (("alpha", alpha), ("beta", beta))
                                       if x not in (0, 1)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_all_orders_in_one_launch(engine, dtype):
    rng = np.random.default_rng(7)
    products = [Product(rng, 36, 44, 28, dtype, output="float32", orders=f"{a}{b}{c}", pad=pad)
                for a in "CF" for b in "CF" for c in "CF" for pad in (0, 3)]
    run(engine, products)


@pytest.mark.parametrize("orders, access", [("FFF", "m4k1m4"), ("CCC", "m4k1m4"), ("FCF", "m4m4m4"),
                                            ("CFC", "k1k1m4")])
@pytest.mark.parametrize("ragged", [False, True])
def test_common_vectors(engine, orders, access, ragged):
    """What all products have in common: row-major results are computed as C^T = B A^T."""
    rng = np.random.default_rng(8)
    sizes = [(36, 44, 28), (64, 20, 8), (32 + ragged, 20 + ragged, 12)]
    plan = run(engine, [Product(rng, *size, orders=orders) for size in sizes])
    # rows of C that are not whole vectors are written through shared memory
    access = access.replace("4", "1")[:-1] + "w" if ragged else access
    assert f"_{access}_" in plan.launches[0].kernel.name


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("orders", ["FCF", "CFC"])
def test_vectors_are_aligned_in_all_products(engine, orders, dtype):
    rng = np.random.default_rng(21)
    for offsets in ((0, 2), (2, 0), (0, 1)):
        run(engine, [Product(rng, 40, 48, 32, dtype, output="float32", orders=orders, offset=offset)
                     for offset in offsets])


def test_a_product_of_one_row_has_no_order_of_its_own(engine):
    rng = np.random.default_rng(9)
    products = [Product(rng, *size, orders=orders) for size, orders in (
        ((40, 44, 28), "FFF"), ((1, 44, 28), "CFC"), ((40, 1, 28), "FCC"), ((40, 44, 1), "CCF"))]
    assert "_m1k1mw_" in run(engine, products).launches[0].kernel.name


def test_strides(engine):
    rng = np.random.default_rng(10)
    flips = (True, False), (False, True), (True, True)
    products = [Product(rng, 20, 30, 25, flip=flip, pad=pad) for flip in flips for pad in (0, 1)]
    broadcast = Product(rng, 20, 30, 25)
    row = aligned_row(broadcast.a)
    broadcast.a, broadcast.problem = row, gemm_problem(row, broadcast.b, broadcast.c)
    run(engine, [*products, broadcast])


def aligned_row(x):
    """The first row in place of all others."""
    return Strided(x.base, x.offset, x.shape, (0, x.strides[1]))


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16"])
def test_equal_sizes_are_a_batch_bit_for_bit(engine, dtype, batch):
    """One problem with a batch, its products one by one, and the batched kernel where planning
    gives it the same tile."""
    rng = np.random.default_rng(11)
    whole = Product(rng, 50, 36, 44, dtype, output="float32" if dtype == "float16" else dtype,
                    batch=batch)
    run(engine, [whole, Product(rng, 10, 12, 44, dtype, output=whole.c.base.dtype.name)])
    grouped = whole.c.view.copy()
    whole.c.view[...] = 0
    plan = plan_gemm(replace(whole.problem, precision="ieee"), engine.device)
    tile = plan_grouped(GroupedProblem((whole.problem,)), engine.device).config.parts[0].choice.tile
    if getattr(plan.config, "tile", None) == tile:         # else the same sums are in another order
        engine.run(plan, a=whole.a, b=whole.b, c=whole.c)
        np.testing.assert_array_equal(grouped, whole.c.view)
    whole.c.view[...] = 0
    parts = []
    for at in np.ndindex(*batch):
        starts = (sum(i * s for i, s in zip(at, x.strides, strict=False))
                  for x in whole.operands.values())
        one = {role: Strided(x.base, x.offset + start, x.shape[-2:], x.strides[-2:])
               for (role, x), start in zip(whole.operands.items(), starts, strict=True)}
        parts.append((gemm_problem(**one), one))
    plan = plan_grouped(GroupedProblem(tuple(problem for problem, _ in parts)), engine.device)
    engine.run_group(plan, [operands for _, operands in parts], [{} for _ in parts])
    np.testing.assert_array_equal(grouped, whole.c.view)


def test_types_that_differ_take_a_launch_each(engine):
    rng = np.random.default_rng(12)
    products = [Product(rng, 20, 30, 10, dtype, output="float32" if dtype == "float16" else dtype)
                for dtype in ("float32", "complex128", "float16", "float32", "int8")]
    plan = run(engine, products, launches=4)
    offsets = [launch.arguments[0].offset for launch in plan.launches]
    assert offsets == sorted(set(offsets)) and all(offset % 256 == 0 for offset in offsets)


def test_conjugated_operands(engine):
    rng = np.random.default_rng(13)
    products = [Product(rng, m, 20, 30, "complex64") for m in (10, 33, 20)]
    for p, conj in zip(products, (True, False, True), strict=True):
        p.problem = replace(p.problem, a=replace(p.problem.a, conj=conj))
    plan = plan_grouped(GroupedProblem(tuple(p.problem for p in products)), engine.device)
    engine.run_group(plan, [p.operands for p in products], [{} for _ in products])
    for p in products:
        a = p.a.view.conj() if p.problem.a.conj else p.a.view
        check_product(p.c.view, a, p.b.view, "complex64")
    assert len(plan.launches) == 2


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("orders", ["C", "F", "CF"])
def test_an_epilogue_with_operands_of_each(engine, dtype, orders):
    """A vector along N, one along M and a number for each product, and an auxiliary output."""
    rng = np.random.default_rng(14)
    total = Node("add", "float32", (Node("acc", "float32"),
                                    Node("operand", "float32", name="bias")))
    scaled = Node("multiply", "float32", (Node("scalar", "float32", name="factor"), total))
    graph = EpilogueGraph("shifted", Node("maximum", "float32",
                                          (scaled, Node("constant", "float32", value=0))),
                          (("pre", total),))
    products, operands, numbers, problems = [], [], [], []
    for i, (m, n, k) in enumerate(((33, 20, 12), (8, 64, 16), (40, 36, 0))):
        p = Product(rng, m, n, k, dtype, output="float32", orders="CC" + orders[i % len(orders)])
        bias = place(random(rng, (m, 1) if i == 1 else (1, n), "float32"))
        stride = (1, 0) if i == 1 else (0, 1)
        pre = place(np.full((m, n), np.nan, "float32"), orders[i % len(orders)])
        fusion = Fusion(graph, (("bias", Operand("float32", stride)),), (("pre", pre.operand()),))
        products.append(p)
        problems.append(replace(p.problem, fusion=fusion))
        operands.append({**p.operands, epilogue_role("bias"): bias, epilogue_role("pre"): pre})
        numbers.append({epilogue_role("factor"): i + 1.5})
    plan = plan_grouped(GroupedProblem(tuple(problems)), engine.device)
    engine.run_group(plan, operands, numbers)
    assert len(plan.launches) == 1
    for i, (p, each) in enumerate(zip(products, operands, strict=True)):
        a, b, pre = p.a.view, p.b.view, each[epilogue_role("pre")].view
        bias = each[epilogue_role("bias")].view
        exact = a.astype("f8") @ b.astype("f8")
        assert (abs(pre - exact - bias) <= 40 * 2.0**-24
                * (abs(a.astype("f8")) @ abs(b.astype("f8")) + abs(bias) + 1)).all()
        np.testing.assert_array_equal(p.c.view, np.maximum(np.float32(i + 1.5) * pre, 0))


def test_the_order_of_threads_does_not_matter(engine):
    results = []
    for seed in (None, 1, 2):
        products = [Product(np.random.default_rng(15), *size)
                    for size in ((33, 17, 40), (70, 130, 9))]
        run(engine, products, seed=seed)
        results.append([p.c.view.tobytes() for p in products])
    assert results[0] == results[1] == results[2]


def test_offsets_of_64_bits(engine):
    products = [Product(np.random.default_rng(17), m, 20, 30, alpha=2, beta=1) for m in (10, 40)]
    plan = plan_grouped(GroupedProblem(tuple(p.problem for p in products)), engine.device)
    far = [replace(p.problem, a=replace(p.problem.a, strides=(2**30, 1))) for p in products]
    wide = plan_grouped(GroupedProblem(tuple(far)), engine.device)
    assert wide.launches[0].kernel.name.endswith("wide_grouped") and not plan.launches[
        0
    ].kernel.name.endswith("wide_grouped")
    part = replace(plan.config.parts[0], kernel=wide.launches[0].kernel)
    launch = replace(plan.launches[0], kernel=part.kernel)
    plan = replace(plan, config=replace(plan.config, parts=(part,)), launches=(launch,))
    engine.run_group(plan, [p.operands for p in products], [p.numbers for p in products])
    for p in products:
        p.check()


def test_the_emulator_knows_the_bounds_of_what_a_table_points_to():
    from cuteblas import emulator

    if not emulator.available():
        pytest.skip(emulator.why_unavailable())
    p = Product(np.random.default_rng(18), 20, 30, 10)
    longer = replace(p.problem, k=11)
    plan = plan_grouped(GroupedProblem((longer,)), H200)
    table = table_of(plan, [{role: x.view.ctypes.data for role, x in p.operands.items()}])
    reached = [x.view for x in p.operands.values()]
    with pytest.raises(GlobalOutOfBounds, match="of the table"):
        emulator.run(plan, {"table": table}, reached=reached)
    with pytest.raises(GlobalOutOfBounds, match="belongs to no argument"):
        emulator.run(plan, {"table": table})
