"""The guard: what a new algorithm states, and that each verdict is followed. The algorithms here
write 1 or 2 all over C."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from cuteblas.codegen.builder import Guard, KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.mbarrier import initialise
from cuteblas.codegen.signature import TensorParam, View
from cuteblas.codegen.tiled import TiledCopy
from cuteblas.codegen.values import choose, number
from cuteblas.kernels.common import WARP
from cuteblas.kernels.guard import (
    HOLDS,
    NATIVE,
    NEXT,
    Field,
    Record,
    Verdict,
    gate_tag,
    leave_verdict,
)
from cuteblas.layout import Layout, Tensor, _, local_tile, make_identity_tensor
from cuteblas.layout.symbolic import equal
from cuteblas.planning import H200, Plan
from cuteblas.planning.gemm.blocks import Blocks
from cuteblas.planning.gemm.mma import plan_mma
from cuteblas.planning.gemm.simt import plan_simt
from cuteblas.planning.guard import VERDICT, Guarded, gate_values, guarded, otherwise, verdict_bytes
from cuteblas.planning.operands import launch, place, view
from cuteblas.planning.plan import Argument

from .engines import gemm_problem
from .engines import place as memory
from .test_gemm_split import hopper

RECORD = Record((Field("largest", "max", 0.0), Field("least", "min", 2.0**127)))
RECORDS = "SX", "SY"
M, N, K = 40, 24, 80


@cache
def read_numbers():
    """The pass that reads an operand: a warp leaves the largest and the least of its 32 numbers."""
    k = KernelBuilder("read_numbers", WARP)
    X, S = k.tensors(TensorParam("X", "m", "float32", (1,)), RECORD.parameter("S"), modes="m")
    block, own = k.block_index("block", "x"), TiledCopy(Layout((WARP, 1)), (1, 1))
    count = k.extent("m")

    def mine(tensor):
        return own.partition(local_tile(tensor, (WARP, 1), (block, 0)), k.thread)

    x, record = k.registers("x", "float32", Layout((1, 1, 1))), k.registers("record", "float32", Layout(2))
    exists = Guard(mine(make_identity_tensor((count, 1))), (count, 1))
    k.copy(Vector(1), mine(Tensor(X.address, Layout((count, 1)))), x, guard=exists)
    for at, field in enumerate(RECORD.fields):
        k.assign(record(at), field.start)
        with k.when(exists.at((0, 0, 0))):
            k.assign(record(at), x(0, 0, 0))
        k.fold_lanes(record(at), field.combine, [1, 2, 4, 8, 16])
    with k.when(equal(k.thread, 0)):
        RECORD.leave(k, record, S.address, block)
    return k.build()


def condition(k, found):
    """The largest of X within 10 of the least of Y: else the algorithm's own fallback computes,
    beyond 1000 native arithmetic."""
    (largest, _of_x), (_of_y, least) = found
    wide = k.declare("wide", "bool", largest - least > 10.0, const=True)
    return choose(largest - least > 1000.0, NATIVE, choose(wide, NEXT, HOLDS, "uint32"))


@cache
def write_all(value, *, checks=False, reports=False, gate=None, element="float32"):
    """The product, of sorts: C is this value everywhere. It checks the records first, or reports
    what it finds in X as it ends."""
    k = KernelBuilder(
        f"write_{value}_{element}{'_checks' * checks}{'_reports' * reports}{gate_tag(gate)}",
        2 * WARP,
        arch="sm_90" if checks else "sm_75"
    )
    k.gate(gate)
    seen = TensorParam("X", "k", element, (1,)), TensorParam("status", "", "uint32", written=True,
                                                             batch=False)
    C, *more = k.tensors(TensorParam("C", "mn", element, (None, None), written=True),
                         *(seen if reports else ()), modes="mnk" if reports else "mn")
    m, n = k.extent("m"), k.extent("n")
    verdict = Verdict(k, RECORD, RECORDS) if checks else None
    if verdict:
        judged = verdict.share()
        with k.when(equal(k.thread, 0)):
            initialise(k, judged)
        k.barrier()
        with k.when(equal(k.thread // WARP, 1)):
            verdict.make(partial(condition, k), "whether X and Y are alike")
    row = k.let("row", k.each_block("block") * 2 * WARP + k.thread)
    if verdict:
        verdict.leave_unless_it_holds()
    one = k.registers("one", element, Layout(1))
    k.fill(one, number(float(value), element))
    matrix = Tensor(C.address, Layout((1, m, n), (0, *C.strides)))
    with k.when(row < m), k.loop("column", n) as column:
        k.copy(Vector(1), one, matrix[_, row, column])
    if reports:
        X, status = more
        fails, x = k.declare("fails", "bool", False), k.registers("x", element, Layout(1))
        first = k.let("from", k.block_index("of_x", "x") * K)
        with k.loop("i", K, start=k.thread, step=k.threads) as i:
            k.copy(Vector(1), Tensor(X.address, Layout((1, k.extent("k"))))[_, first + i], x)
            k.assign(fails, fails | (x(0) > 10.0))
        leave_verdict(k, status.address, fails, NATIVE)
    return k.build()


def writes(p, value, gate=None, **values):
    """The launch of :func:`write_all`."""
    kernel = partial(write_all, gate=gate, checks="SX" in values, reports="X" in values,
                     element=p.c.dtype)
    return launch(kernel, value, -(-p.m // (2 * WARP)),
                  {"C": view(p.c, "c"), "M": p.m, "N": p.n, **values},
                  gate_values(gate))


def by_records(p):
    """An algorithm of three launches, with two fallbacks: its condition is known before it
    writes."""
    reads, values, at = [], {"status": Argument(role=VERDICT)}, 0
    for name, role, x, count in (("SX", "a", p.a, p.m * p.k), ("SY", "b", p.b, p.n * p.k)):
        blocks, records = -(-count // WARP), Argument(role="workspace", offset=at)
        reads.append(launch(lambda _: read_numbers(), None, blocks,
                            X=View(place(role, x.offset), (1,)), S=View(records, (1,)), M=count))
        values |= {name: records, f"{name}_count": blocks}
        at += 8 * blocks
    native = plan_simt(p, H200, gate=NATIVE)
    fallbacks = writes(p, 2, gate=NEXT), *native.launches
    return Guarded((*reads, writes(p, 1, **values)), fallbacks, max(at, native.workspace_bytes))


def by_report(p):
    """An algorithm of one launch whose blocks each report what they found when C has been
    written."""
    X = View(place("a", p.a.offset), (1,))
    multiply = writes(p, 1, X=X, status=View(place(VERDICT)), K=p.k)
    native = (plan_mma if p.c.dtype == "float64" else plan_simt)(p, H200, gate=NATIVE)
    return Guarded((multiply,), native.launches, native.workspace_bytes, multiply.grid[0])


def run(engine, a, b, algorithm, rows=1):
    """C of an algorithm, of so many blocks of rows with a verdict each."""
    hopper(engine)
    pa, pb, pc = memory(a), memory(b, "F"), memory(np.full((len(a), b.shape[1]), np.nan, a.dtype))
    problem, parts = gemm_problem(pa, pb, pc), []
    for block in Blocks(1, -(-len(a) // rows), b.shape[1]).of(problem):
        parts.append(algorithm(block.problem))
    # so that each block of a fallback computes several, one after the other
    single = replace(H200, multiprocessors=1)
    plan = Plan(problem, H200, "test", None, *guarded(parts, single, 64))
    engine.run(plan, a=pa, b=pb, c=pc)
    return pc.view.copy()


def operands(m=M, kind="f4"):
    """Numbers from 1 to 5, whose product is never 1 or 2."""
    rng = np.random.default_rng(m)
    return rng.integers(1, 6, (m, K)).astype(kind), rng.integers(1, 6, (K, N)).astype(kind)


@pytest.mark.parametrize("at", [(0, 0), (M - 1, K - 1)])
@pytest.mark.parametrize("largest, computes", [(10, 1), (12, 2), (999, 2), (1003, "native"),
                                               (np.inf, "native")])
def test_the_fallback_that_the_verdict_names_computes(engine, largest, computes, at):
    a, b = operands()
    a[at] = largest
    c = run(engine, a, b, by_records)
    np.testing.assert_array_equal(c, a @ b if computes == "native" else np.full((M, N), computes))


def test_what_another_operand_needs_is_part_of_the_condition(engine):
    a, b = operands()
    a[:], b[:] = 12, 2
    assert (run(engine, a, b, by_records) == 1).all()
    b[K - 1, N - 1] = 1
    assert (run(engine, a, b, by_records) == 2).all()


def test_blocks_of_c_have_verdicts_of_their_own(engine):
    a, b = operands(4 * M)
    a[M] = 100                                          # in the second block
    a[3 * M - 1] = 5000                                 # in the third one
    c = run(engine, a, b, by_records, rows=4)
    want = np.ones_like(c)
    want[M:2 * M] = 2
    want[2 * M:3 * M] = (a @ b)[2 * M:3 * M]
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("row, kind", [(0, "f4"), (64, "f4"), (129, "f4"), (129, "f8")])
def test_one_of_many_words_is_enough(engine, row, kind):
    """Each block of the launch leaves a word, and native arithmetic computes all of C if one of
    them asks for it."""
    a, b = operands(130, kind)
    assert (run(engine, a, b, by_report) == 1).all()
    a.ravel()[row // 64 * K + 3] = 11                   # block i of the launch reads row i of X
    np.testing.assert_array_equal(run(engine, a, b, by_report), a @ b)


def test_words_of_blocks_are_apart(engine):
    """Three of them each: the second block's say nothing about the first one."""
    a, b = operands(260)
    a[130, 3] = 11
    c = run(engine, a, b, by_report, rows=2)
    assert (c[:130] == 1).all()
    np.testing.assert_array_equal(c[130:], (a @ b)[130:])


def made(part):
    return [launch.kernel for launch in guarded([part], H200, 1)[0]]


def test_what_is_refused():
    p = gemm_problem(*map(memory, (*operands(), np.zeros((M, N), "f4"))))
    part = by_records(p)
    native = plan_simt(p, H200).launches
    with pytest.raises(ValueError, match="a fallback has no gate: gemm_simt"):
        made(replace(part, fallbacks=native))
    with pytest.raises(ValueError, match="no launch writes the verdict: gemm_simt"):
        made(replace(part, primary=native))
    with pytest.raises(ValueError, match="verdicts take 2 words, but there is room for 1"):
        guarded([part, part], H200, 1)
    with pytest.raises(CodegenError, match="1, 2 or 4 numbers"):
        Record(RECORD.fields[:1] * 3)


def test_fallbacks_come_last_with_few_blocks():
    """So that what has nothing to do is found out once, by launches that overlap."""
    p = gemm_problem(*map(memory, (np.zeros((4000, 64), "f4"), np.zeros((64, 3000), "f4"),
                                   np.zeros((4000, 3000), "f4"))))
    part = by_records(p)
    launches, nbytes = guarded([part, part], H200, 64)
    assert nbytes == verdict_bytes(64) + part.workspace_bytes == 256 + part.workspace_bytes
    count = len(part.primary)
    assert [launch.kernel.name for launch in launches[: 2 * count]] == [
        launch.kernel.name for launch in part.primary
    ] * 2
    assert all("gate" in launch.kernel.signature for launch in launches[2 * count:])
    native = launches[-1]
    assert native.grid[0] == H200.multiprocessors * native.kernel.min_blocks < part.fallbacks[-1].grid[0]


def test_the_workspace_has_room_for_every_part():
    p = gemm_problem(*map(memory, (np.zeros((40, 64), "f4"), np.zeros((64, 30), "f4"),
                                   np.zeros((40, 30), "f4"))))
    parts = [replace(by_records(p), workspace_bytes=nbytes) for nbytes in (1000, 3000, 2000)]
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        assert guarded([parts[i] for i in order], H200, 64)[1] == verdict_bytes(64) + 3000


def test_what_is_said():
    assert otherwise("it is so", "this", "that") == "if it is so, the device uses this, or that"
