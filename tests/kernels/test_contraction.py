"""GETT: contractions with nested M, N and K, any strides, against ``numpy.einsum`` in wider
arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.nested import by_coordinate
from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm.simt import SimtConfig, gemm_simt
from cuteblas.kernels.reduce.slices import ReduceConfig, reduce_split
from cuteblas.layout import Layout, Tensor, _, local_tile
from cuteblas.layout.symbolic import Var, evaluate
from cuteblas.planning import H200, ContractionProblem, Storage, plan_contraction
from cuteblas.planning.gemm import contraction
from cuteblas.planning.gemm.contraction import canonical
from cuteblas.planning.gemm.simt import candidates
from tests.planning.contractions import contraction_problem

from .engines import UNIT, Strided, aligned, outside, poison, random


def storage(x: Strided, conj: bool = False) -> Storage:
    return Storage(x.base.dtype.name, conj, x.alignment)


def put(values: np.ndarray, order=None, *, pad=0, flip=(), offset=0, filler=0) -> Strided:
    """Values in memory: modes from the slowest to the fastest as in ``order``, the fastest padded,
    some walked backwards."""
    order = tuple(range(values.ndim)) if order is None else order
    strides, at = [0] * values.ndim, 1
    for i, mode in enumerate(reversed(order)):
        strides[mode] = at
        at = at * max(1, values.shape[mode]) + (pad if i == 0 else 0)
    base = aligned(offset + at + 1, values.dtype)
    base[:] = filler
    start = offset
    for mode in flip:
        start += (values.shape[mode] - 1) * strides[mode]
        strides[mode] = -strides[mode]
    x = Strided(base, start, values.shape, tuple(strides))
    x.view[...] = values
    return x


def widened(subscripts, a, b, dtype, alpha, beta, before):
    """(expected, bound of the error's scale) in arithmetic that is wider than the kernel's."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.einsum(subscripts, a.astype(int), b.astype(int)) > 0, None
    if kind.kind in "iu":
        want = alpha * np.einsum(subscripts, a, b) + (beta * before if beta else 0)
        return want.astype(kind), None
    wide = {"float64": np.longdouble, "complex128": np.clongdouble,
            "complex64": np.complex128}.get(dtype, np.float64)
    want = alpha * np.einsum(subscripts, a.astype(wide),
                             b.astype(wide)) + (beta * before.astype(wide) if beta else 0)
    scale = abs(alpha) * np.einsum(subscripts, abs(a).astype(float), abs(b).astype(float))
    return want, scale + (abs(beta) * abs(before).astype(float) if beta else 0)


def described(subscripts, a: Strided, b: Strided, c: Strided, conj=(False, False),
              **kinds) -> ContractionProblem:
    """The problem of a contraction between tensors in memory."""
    return contraction_problem(subscripts, (a.shape, b.shape), (a.strides, b.strides, c.strides),
                               (storage(a, conj[0]), storage(b, conj[1]), storage(c)), **kinds)


def contract(engine, subscripts, a, b, dtype="float32", *, alpha=1, beta=0, conj=(False, False),
             variant=None, a_put=None, b_put=None, c_put=None):
    """Run one contraction into poisoned memory and compare; returns the plan."""
    terms, out = subscripts.split("->")
    extent = {c: n for term, x in zip(terms.split(","), (a, b), strict=True)
              for c, n in zip(term, x.shape, strict=True)}
    shape = tuple(extent[c] for c in out)
    before = random(np.random.default_rng(9), shape,
                    dtype) if beta else np.full(shape, poison(dtype), dtype)
    pa, pb, pc = put(a, **(a_put or {})), put(b, **(b_put or {})), put(before, filler=poison(dtype), **(c_put or {}))
    around = outside(pc)
    untouched = pc.base[around].copy()
    kinds = {"alpha": "one" if alpha == 1 else "value",
             "beta": {0: "zero", 1: "one"}.get(beta, "value")}
    plan = plan_contraction(described(subscripts, pa, pb, pc, conj, variant=variant, **kinds),
                            engine.device)
    engine.run(plan, alpha, beta, a=pa, b=pb, c=pc)
    np.testing.assert_array_equal(pc.base[around], untouched,
                                  err_msg="memory outside of C was written")
    ca, cb = (np.conj(x) if f else x for x, f in zip((a, b), conj, strict=True))
    want, scale = widened(subscripts, ca, cb, dtype, alpha, beta, before)
    if scale is None:
        np.testing.assert_array_equal(pc.view, want)
    else:
        terms_of_sum = np.prod([n for c, n in extent.items() if c not in out],
                               initial=1) * (2 if dtype.startswith("c") else 1)
        limit = (1.01 if dtype == "float16" else 3 + np.sqrt(terms_of_sum)) * UNIT[dtype]
        error = abs(pc.view.astype(want.dtype) - want)
        assert not np.isnan(error).any(), "poison or NaN in the result"
        assert (error <= limit * scale + (dtype == "float16")
                * 2.0**-25).all(), float((error / (scale + 1e-300)).max())
    return plan


EXTENTS = {"a": 5, "b": 7, "c": 6, "d": 9, "e": 4, "k": 8, "l": 3, "i": 5, "j": 11}


def operands(subscripts, dtype="float32", seed=1, **extents):
    rng = np.random.default_rng(seed)
    n = EXTENTS | extents
    return [random(rng, tuple(n[c] for c in term), dtype)
            for term in subscripts.split("->")[0].split(",")]


# Modes of A and of C in different orders, so that nothing merges: M, N, K of one to three modes,
# contiguous or not.
NESTED = ["abk,kc->bac", "akb,kc->bca", "abk,kcd->bdac", "kal,lkc->ac", "kabl,lckd->bdac",
          "abk,ckd->dbca", "aklb,ckl->bca", "kail,ljkc->acij", "abck,kd->cbad", "ka,bkc->cab"]
@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16", "int32", "bool"])
@pytest.mark.parametrize("subscripts", ["abk,kc->bac", "kabl,lckd->bdac", "kail,ljkc->acij",
                                        "nakbl,lcnkd->bdnac", "nkabl,lckd->dnbac"])
def test_nested_modes_packed(engine, subscripts, dtype, monkeypatch):
    """Large ones are packed; these are where the other way is said to take long."""
    gett = contraction.plan_gett
    monkeypatch.setattr(contraction, "plan_gett",
                        lambda *problem: replace(gett(*problem), seconds=1.0))
    plan_contraction.cache_clear()
    plan = contract(engine, subscripts, *operands(subscripts, dtype, n=3), dtype,
                    a_put={"flip": (0,)}, c_put={"flip": (1,)})
    plan_contraction.cache_clear()
    assert plan.family != "gett" and plan.copied and "packed first" in plan.reason


def test_what_is_packed_is_within_the_limit():
    problem = contraction_problem("abcd,ebfd->acef", ((40,) * 4,) * 2, ((64000, 1600, 40, 1),) * 3,
                                  (Storage("float64"),) * 3)
    plan = plan_contraction(problem, H200)
    assert plan.family == "gemm_mma" and plan.seconds < 0.5 * contraction.plan_gett(problem, H200).seconds
    assert plan_contraction(problem, replace(H200, workspace_limit=1 << 20)).family == "gett"
    scaled = replace(problem, beta="value")
    assert plan_contraction(scaled, H200).family == "gemm_mma"          # C itself is a matrix
    strided = replace(scaled, c=Storage("float64"), m=((40, 64000, 1), (40, 40, 1600)),
                      n=((40, 64000, 40), (40, 40, 64000)))
    assert plan_contraction(strided, H200).family == "gett"   # C would have to be read and unpacked


MERGING = ["abk,kc->abc", "ak,kc->ac", "kab,kc->abc", "abkl,klc->abc", "ab,c->abc", "abk,bk->a",
           "abk,abk->", "abk,cbk->bac"]


@pytest.mark.parametrize("subscripts", NESTED)
def test_nested_modes(engine, subscripts):
    plan = contract(engine, subscripts, *operands(subscripts))
    assert plan.family == "gett" and max(plan.launches[0].kernel.name.split("modes")[-1]) > "1"


@pytest.mark.parametrize("subscripts", MERGING)
def test_modes_that_merge_are_a_plain_product(engine, subscripts):
    a, b = operands(subscripts)
    plan = contract(engine, subscripts, a, b)
    assert plan.family in (("reduce",) if subscripts.endswith("->")
                           else ("gemm_simt", "gemm_thin", "gemm_batched"))
    assert "the modes merge" in plan.reason
    assert contract(engine, subscripts, a, b, variant="gett").family == "gett"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32",
                                   "float64", "complex64", "complex128"])
def test_every_type(engine, dtype):
    contract(engine, "kabl,lckd->bdac", *operands("kabl,lckd->bdac", dtype), dtype)


@pytest.mark.parametrize("sizes", [{"a": 1}, {"b": 1, "k": 1}, {"k": 0}, {"a": 33, "b": 3},
                                   {"c": 65, "d": 2}, {"k": 17, "l": 5}, {"l": 40, "k": 2},
                                   {"a": 4, "b": 64, "c": 32, "d": 4, "k": 16, "l": 4}])
def test_extents(engine, sizes):
    contract(engine, "kabl,lckd->bdac", *operands("kabl,lckd->bdac", **sizes))


PUTS = {"padded": {"pad": 3}, "padded by a vector": {"pad": 4}, "unaligned": {"offset": 1},
        "backwards": {"flip": (0, 2)}, "backwards all": {"flip": (0, 1, 2, 3)},
        "permuted": {"order": (2, 0, 3, 1)}, "reversed": {"order": (3, 2, 1, 0)},
        "permuted and padded": {"order": (1, 3, 0, 2), "pad": 1}}


@pytest.mark.parametrize("where", PUTS)
@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_strides(engine, where, operand):
    contract(engine, "kabl,lckd->bdac", *operands("kabl,lckd->bdac"),
             **{f"{operand}_put": PUTS[where]})


@pytest.mark.parametrize("alpha, beta", [(1, 1), (2, 0), (-3, 1), (2, 5), (0, 2)])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_alpha_and_beta(engine, dtype, alpha, beta):
    contract(engine, "akb,ckd->dbca", *operands("akb,ckd->dbca", dtype), dtype, alpha=alpha,
             beta=beta)


@pytest.mark.parametrize("conj", [(True, False), (False, True)])
def test_conjugation_on_load(engine, conj):
    contract(engine, "akb,ckd->dbca", *operands("akb,ckd->dbca", "complex128"), "complex128",
             conj=conj)


@pytest.mark.parametrize("subscripts", ["iabk,kci->baic", "iakjb,jcik->jbaci", "iabk,ick->ibac"])
def test_batches(engine, subscripts):
    plan = contract(engine, subscripts, *operands(subscripts))
    assert plan.family == "gett" and "_b0" not in plan.launches[0].kernel.name


def test_an_index_that_one_operand_alone_has_is_summed(engine):
    contract(engine, "akb,c->cba", *operands("akb,c->cba"))
    contract(engine, "ka,bkl->ba", *operands("ka,bkl->ba"))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
@pytest.mark.parametrize("subscripts", ["kalb,lkc->bca", "kab,kc->bca", "ikalb,lkci->bcia"])
def test_slices_of_k_are_added_in_order(engine, dtype, subscripts):
    """Few outputs and a deep K: slices begin inside of K's modes, wherever a flat coordinate
    says."""
    a, b = operands(subscripts, dtype, k=150, l=7) if "l" in subscripts else operands(subscripts, dtype, k=1030)
    plan = contract(engine, subscripts, a, b, dtype, alpha=3, beta=2)
    assert plan.config.slices > 1 and len(plan.launches) == 2 and plan.workspace_bytes > 0 and "slices" in plan.reason


def test_vectors_where_they_are_provable(engine):
    """A's contiguous mode of M is a multiple of 4: copies of 16 bytes, and none where padding or an
    odd extent forbids them."""
    a, b = operands("kab,kc->bac", b=8)
    assert "cp_async<4>" in contract(engine, "kab,kc->bac", a, b).launches[0].kernel.body
    for odd, where in ((8, {"pad": 1}), (7, {}), (8, {"offset": 1})):
        a, b = operands("kab,kc->bac", b=odd)
        body = contract(engine, "kab,kc->bac", a, b, a_put=where).launches[0].kernel.body
        assert "cp_async<4>" not in body


TILES = [*(("float32", c) for c in candidates("float32")),
         ("complex128", candidates("complex128")[0])]


@pytest.mark.parametrize("dtype, candidate", TILES, ids=str)
def test_every_tile(engine, monkeypatch, dtype, candidate):
    """Every tile on modes a little larger than it, so that tiles end in the middle of nested
    modes."""
    monkeypatch.setattr("cuteblas.planning.gemm.simt.candidates", lambda element: (candidate,))
    monkeypatch.setattr("cuteblas.planning.gemm.family.MIN_SLICE", 10**9)
    plan_contraction.cache_clear()
    t = candidate
    a, b = operands("kabl,lckd->bdac", dtype, a=3, b=t.m // 3 + 4, c=t.n // 4 + 1, d=4, k=5,
                    l=t.k + 1)
    plan = contract(engine, "kabl,lckd->bdac", a, b, dtype)
    plan_contraction.cache_clear()
    assert (plan.config.tile.m, plan.config.tile.n, plan.config.tile.warps) == (t.m, t.n, t.warps)


def test_nan_and_inf_stay_where_they_are(engine):
    a, b = np.ones((4, 5, 6), "f4"), np.ones((6, 7), "f4")
    a[1, 2, 3], a[3, 4, 5], b[0, 6] = np.nan, np.inf, -np.inf
    pa, pb, pc = put(a), put(b), put(np.zeros((5, 4, 7), "f4"))
    engine.run(plan_contraction(described("abk,kc->bac", pa, pb, pc), engine.device), a=pa, b=pb,
               c=pc)
    np.testing.assert_array_equal(pc.view, np.einsum("abk,kc->bac", a, b))


def test_alpha_zero_reads_neither_a_nor_b(engine):
    a, b = np.full((4, 5, 6), np.nan, "f4"), np.full((6, 7), np.nan, "f4")
    pa, pb, pc = put(a), put(b), put(np.ones((5, 4, 7), "f4"))
    problem = described("abk,kc->bac", pa, pb, pc, alpha="zero", beta="value")
    engine.run(plan_contraction(problem, engine.device), 0, 3, a=pa, b=pb, c=pc)
    assert (pc.view == 3).all()


# -- the algebra underneath ------------------------------------------------------------------------
def test_flat_coordinates_of_nested_modes():
    """A tile of the composed layout, evaluated at its coordinates, is the nested layout there."""
    nested = Layout(((4, 6), (5, 3)), ((30, 120), (1, 7)))
    flat = by_coordinate(Tensor(_Offset(0), nested), (24, 15))
    tile = local_tile(flat, (8, 5), (2, _))
    for i in range(8):
        for j in range(5):
            for t in range(3):
                assert tile[i, j, t] == nested((16 + i, 5 * t + j))
    plain = Tensor(_Offset(0), Layout((24, 15), (15, 1)))
    assert by_coordinate(plain, (24, 15)) is plain


class _Offset:
    """An engine whose elements are their offsets."""

    def __init__(self, start):
        self.start = start

    def __add__(self, offset):
        return _Offset(self.start + offset)

    def __getitem__(self, offset):
        return self.start + offset


@pytest.mark.parametrize("multiple, arrays", [(1, True), (8, False)])
def test_offsets_are_evaluated_once_or_are_strides(multiple, arrays):
    """Of 8 elements along M, offsets are kept in registers unless the nested extent is a multiple
    of 8: then they are a stride."""
    k = KernelBuilder("kernel", 32)
    pointer, inner, outer = k.pointer("A", "float32"), k.integer("M0",
                                                                 multiple=multiple), k.integer("M1")
    nested = Layout(((inner, outer), k.integer("K")),
                    ((1, k.integer("ld", lo=None)), k.integer("dk", lo=None)))
    tile = local_tile(by_coordinate(Tensor(pointer, nested), (inner * outer, Var("K"))), (8, 4),
                      (k.thread, _))
    pinned = k.pin("tA", tile)
    k.copy(Vector(1), pinned[_, _, 2], k.registers("r", "float32", Layout((8, 4))))
    body = k.build().body
    assert ("int tA_0s[8];" in body) == arrays
    # Whatever was kept, offsets are those of the nested layout.
    values = {"M0": 16, "M1": 5, "K": 40, "ld": 1000, "dk": 33, "tid": 7}
    for i in range(8):
        for j in range(4):
            m, kk = 8 * 7 + i, 4 * 2 + j
            index = pinned(i, j, 2).index
            names = values | {n: evaluate(v, values | {"tA_0": 56})
                              for n, v in k._access.definitions.items() if n != "tA_offset"}
            names["tA_offset"] = evaluate(k._access.definitions["tA_offset"],
                                          names) if "tA_offset" in k._access.definitions else 0
            assert evaluate(index, names) == m % 16 + m // 16 * 1000 + kk * 33


def test_the_main_loop_divides_along_k_alone():
    """Offsets along M and N are entries of arrays that were filled before the loop."""
    tile = candidates("float32")[4]
    access = OperandAccess(None), OperandAccess(None), OperandAccess(None)
    body = gemm_simt(SimtConfig("float32", "float32", tile, *access, modes=(2, 2, 2))).body
    loop = body[body.index("// Main loop"):body.index("// Epilogue")]
    assert "% K0" in loop and "% M0" not in loop and "% N0" not in loop and "tAgA_0s[" in loop and "tBgB_0s[" in loop
    body = gemm_simt(SimtConfig("float32", "float32", tile, *access, modes=(2, 2, 1))).body
    assert "%" not in body[body.index("// Main loop"):body.index("// Epilogue")]


def test_nested_modes_have_predicates():
    access = OperandAccess(), OperandAccess(), OperandAccess()
    with pytest.raises(CodegenError, match="nested modes need predicates"):
        SimtConfig("float32", "float32", candidates("float32")[0], *access, aligned=True,
                   modes=(2, 1, 1))


@pytest.mark.parametrize("modes", [(2, 1, 1), (2, 2, 2), (1, 1, 3)])
@pytest.mark.parametrize("index", [0, 1, 2, 4])
def test_machine_code(modes, index, tmp_path):
    """Nested modes cost registers for offsets, and no tile spills for them."""
    from .test_cubins import cubin, resources

    access = OperandAccess(0, 4), OperandAccess(1), OperandAccess(0, 4)
    kernel = gemm_simt(SimtConfig("float32", "float32", candidates("float32")[index], *access,
                                  modes=modes))
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert stack == 0 and registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_architectures(arch):
    from .test_cubins import cubin

    access = OperandAccess(0, 1), OperandAccess(1), OperandAccess(None)
    for element in ("complex128", "float16"):
        tile = candidates(element)[-1]
        assert cubin(gemm_simt(SimtConfig(element, element, tile, *access, 2, True, alpha="value",
                                          beta="value", wide=True, modes=(3, 2, 2))), arch)
    assert cubin(reduce_split(ReduceConfig("float32", "float16", OperandAccess(0), 1, alpha="value",
                                           beta="value", modes=(2, 3))), arch)


# -- problems --------------------------------------------------------------------------------------
F4 = Storage("float32")


def problem(subscripts, a, b, **kinds):
    def compact(shape):
        return tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape)))

    terms, _arrow, out = subscripts.partition("->")
    extent = {c: n for term, shape in zip(terms.split(","), (a, b), strict=False)
              for c, n in zip(term, shape, strict=False)}
    strides = compact(a), compact(b), compact([extent.get(c, 1) for c in out])
    return contraction_problem(subscripts, (a, b), strides, (F4, F4, F4), **kinds)


def test_subscripts_become_groups():
    p = problem("abk,kbc->ac", (2, 3, 4), (4, 3, 5))
    assert p.m == ((2, 12, 5),) and p.n == ((5, 1, 1),) and set(p.k) == {(3, 4, 5), (4, 1, 15)} and p.batch == ()
    assert p.flops == 2 * 2 * 5 * 12
    p = problem("iak,ick->aic", (2, 3, 4), (2, 5, 4))
    assert p.batch == ((2, 12, 20, 5),)


def test_groups_are_merged_and_ordered():
    p = canonical(problem("abkl,klc->abc", (2, 3, 4, 5), (4, 5, 6)))
    assert (p.m, p.n, p.k) == (((6, 20, 6),), ((6, 1, 1),), ((20, 1, 6),))
    p = canonical(problem("kab,kc->bac", (2, 3, 4), (2, 5)))
    assert p.m == ((4, 1, 15), (3, 4, 5))                       # A's contiguous mode first
    assert canonical(replace(p, alpha="zero")).k == ((0, 0, 0),)
    assert canonical(replace(p, k=((1, 5, 5), (1, 7, 7)))).k == ((1, 0, 0),)


def test_contractions_that_cannot_be_planned():
    p = problem("abk,kc->bac", (2, 3, 4), (4, 5))
    with pytest.raises(ValueError, match=r"two tensors of the same type, got float32 and float64"):
        plan_contraction(replace(p, b=Storage("float64")), H200)
    with pytest.raises(TypeError, match="do not support element type"):
        plan_contraction(replace(p, a=Storage("float128"), b=Storage("float128")), H200)
    for q in (p, problem("ak,kc->ac", (2, 4), (4, 5))):
        with pytest.raises(
            ValueError,
            match=r"^precision is one of 'auto', 'ieee', 'fp16x3', .*'tf32', 'modular', got 'fast'$"
        ):
            plan_contraction(replace(q, precision="fast"), H200)
        with pytest.raises(
            ValueError,
            match=r"no contraction or gemm variant 'transpose_naive_read'; there are .*gett"
        ):
            plan_contraction(replace(q, variant="transpose_naive_read"), H200)
    nested = problem("abk,kbc->ac", (2, 3, 4), (4, 3, 5))
    with pytest.raises(
        ValueError,
        match=r"^precision='fp16x3' multiplies matrices, but the modes M \(\d+\), N \(\d+\), "
        r"K \(\d+,\d+\) of this contraction form none; pass precision='ieee'$"
    ):
        plan_contraction(replace(nested, precision="fp16x3"), H200)
    with pytest.raises(
        ValueError,
        match=r"^gemm_small multiplies matrices, but the modes M .*, K \(\d+,\d+\) of this"
    ):
        plan_contraction(replace(nested, variant="gemm_small"), H200)
    huge = ContractionProblem(((2**20, 1, 1), (2**20, 2**40, 2**20)), ((2**10, 1, 2**40),),
                              ((2, 1, 1),), F4, F4, F4)
    with pytest.raises(ValueError, match=r"needs .* blocks; a grid has at most"):
        plan_contraction(huge, H200)


def test_algorithms_and_kernels_for_matrices_take_contractions_that_are_products_of_matrices():
    p = problem("ak,kc->ac", (64, 128), (128, 64))
    assert plan_contraction(replace(p, precision="fp16x3"), H200).family == "gemm_split"
    assert plan_contraction(replace(p, precision="ieee"), H200).family == "gemm_simt"
    assert plan_contraction(replace(p, variant="gemm_small"), H200).problem.variant == "gemm_small"
    assert plan_contraction(replace(p, variant="gett"), H200).family == "gett"


def test_plans_say_what_they_do():
    plan = plan_contraction(problem("kabl,lckd->bdac", (2, 3, 4, 5), (5, 6, 2, 7)), H200)
    assert "nested modes M (" in plan.reason and plan.family == "gett"
    assert plan_contraction(problem("abk,kc->bac", (0, 3, 4), (4, 5)), H200).launches == ()
    assert plan_contraction(plan.problem, H200) is plan


def test_offsets_beyond_32_bits_are_wide():
    far = ContractionProblem(((3, 1, 1), (5, 2**28, 3)), ((7, 1, 15),), ((4, 3, 7),), F4, F4, F4)
    assert "_wide" in plan_contraction(far, H200).launches[0].kernel.name
    assert "_wide" not in plan_contraction(replace(far, m=((3, 1, 1), (5, 2**20, 3))),
                                           H200).launches[0].kernel.name
    # A tile reaches beyond the last of a few far rows: those offsets are never used, and must not
    # overflow either.
    assert "_wide" in plan_contraction(replace(far, m=((3, 1, 1), (2, 2**27, 3))),
                                       H200).launches[0].kernel.name
    assert contraction.VARIANTS[0].name == "gett"
