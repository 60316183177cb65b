"""Signatures of kernels: declarations, the order of parameters, and errors when a plan is made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.copies import Vector
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.signature import TensorParam, View
from cuteblas.kernels.gemm.simt import OperandAccess, SimtConfig, TileShape, gemm_simt
from cuteblas.layout import Layout, Tensor, flatten
from cuteblas.layout.symbolic import Expr, evaluate
from cuteblas.planning import H200, GemmProblem, Operand, plan_gemm
from cuteblas.planning.operands import launch


def product(**options):
    """The kernel of a product of float32 matrices."""
    access = [OperandAccess(unit) for unit in (1, 1, 0)]
    return gemm_simt(SimtConfig("float32", "float32", TileShape(64, 64, 8), *access, **options))


def views():
    return {name: View(name.lower(), strides) for name, strides in (("A", (5, 1)), ("B", (6, 1)),
                                                                    ("C", (1, 7)))}


EXTENTS = {"M": 2, "N": 3, "K": 4}


def test_arguments_are_in_the_order_of_the_parameters():
    kernel = product()
    assert [q.name for q in kernel.params] == ["A", "B", "C", "M", "N", "K", "dA_m", "dB_n", "dC_n"]
    assert kernel.signature.bind(views(), **EXTENTS) == ("a", "b", "c", 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("lacking", ["A", "C", "N"])
def test_a_forgotten_value_is_named(lacking):
    values = {name: value for name, value in {**views(), **EXTENTS}.items() if name != lacking}
    with pytest.raises(
        TypeError, match=rf"^gemm_simt_f32_f32_.* is missing {lacking}; it takes A, B, C, M, N, K$"
    ):
        product().signature.bind(values)


def test_scalars_are_forgotten_too():
    with pytest.raises(TypeError, match="is missing alpha, beta"):
        product(alpha="value", beta="value").signature.bind(views(), EXTENTS)
    with pytest.raises(TypeError, match="is missing blocks"):
        product(gate=1).signature.bind(views(), EXTENTS, gate="g", gate_words=1)


@pytest.mark.parametrize("name", ["chunk", "alpha", "D", "dA_m", "L"])
def test_an_unknown_value_is_named(name):
    with pytest.raises(TypeError, match=rf"takes no {name};"):
        product().signature.bind(views(), EXTENTS, {name: 1})


def test_one_of_two_tensors_of_a_name_is_refused():
    with pytest.raises(TypeError, match="got A twice"):
        product().signature.bind(views(), EXTENTS, A=View("other", (1, 2)))
    k = KernelBuilder("two", 32)
    k.tensors(TensorParam("A", "mk", "float32"), modes="mk")
    with pytest.raises(TypeError, match="two has two tensors with the name A"):
        k.tensors(TensorParam("A", "mk", "float32"))


@pytest.mark.parametrize("values, message", [({"A": "a"}, "A of .* is a tensor and takes a View"),
                                             ({"M": View("a", (1, 2))}, "M of .* is not a tensor"),
                                             ({"A": View("a", (1, 2, 3))},
                                              "A of .* has the modes m, k and 0 batch modes"),
                                             ({"A": View(None, (1, 2))},
                                              "A of .* takes its address"),
                                             ({"A": View("a", (1, 2), map="map")},
                                              "A of .* takes its address, got"),])
def test_a_value_of_the_wrong_kind_is_refused(values, message):
    with pytest.raises(TypeError, match=message):
        product().signature.bind({**views(), **EXTENTS, **values})


def test_batch_modes_are_counted():
    kernel, strided = product(batch_modes=2), {name: View(v.memory, v.strides, (8, 9))
                                               for name, v in views().items()}
    assert kernel.signature.bind(strided, EXTENTS, L=(2, 3))[-8:] == (2, 3, 8, 9, 8, 9, 8, 9)
    with pytest.raises(TypeError, match=r"L of .* takes a tuple of 2 extents, got"):
        kernel.signature.bind(strided, EXTENTS, L=(2,))
    with pytest.raises(TypeError, match=r"A of .* has the modes m, k and 2 batch modes"):
        kernel.signature.bind({**strided, "A": views()["A"]}, EXTENTS, L=(2, 3))


def test_values_that_the_kernel_was_not_generated_for_are_refused():
    access = OperandAccess(0, 4)
    kernel = gemm_simt(SimtConfig("float32", "float32", TileShape(64, 64, 8), access,
                                  OperandAccess(1), OperandAccess(0)))
    strided = {**views(), "A": View("a", (1, 8))}
    assert kernel.signature.bind(strided, M=4, N=3, K=2)
    with pytest.raises(ValueError, match=r"M of .* must be a multiple of 4, got 5"):
        kernel.signature.bind(strided, M=5, N=3, K=2)
    with pytest.raises(ValueError, match=r"dA_k of .* must be a multiple of 4, got 6"):
        kernel.signature.bind({**strided, "A": View("a", (1, 6))}, M=4, N=3, K=2)
    assert kernel.signature.bind({**strided, "A": View("a", (1, 6))}, M=4, N=3,
                                 K=1), "any stride will do for one column"


def test_a_stride_that_is_known_is_not_another():
    strided = {**views(), "A": View("a", (5, 2))}
    with pytest.raises(ValueError, match=r"A of .* must have stride 1 along k, got 2"):
        product().signature.bind(strided, EXTENTS)
    assert product().signature.bind(strided, {**EXTENTS,
                                              "K": 1}), "any stride will do for one column"


def test_rows_without_gaps_have_no_stride_of_their_own():
    k = KernelBuilder("k", 32)
    A, = k.tensors(TensorParam("A", "mk", "float32", ("k", 1)), modes="mk", typical={"k": 7})
    kernel = k.build()
    assert [q.name for q in kernel.params] == ["A", "M",
                                               "K"] and str(A.at().layout) == "(M,K):(K,1)"
    assert kernel.signature.bind(A=View("a", (4, 1)), M=3, K=4) == ("a", 3, 4)
    assert "strides (k, 1)" in str(kernel.signature)
    with pytest.raises(ValueError, match=r"A of k must have stride 4 along m, got 5"):
        kernel.signature.bind(A=View("a", (5, 1)), M=3, K=4)
    assert kernel.signature.bind(A=View("a", (5, 1)), M=1, K=4), "any stride will do for one row"


def test_costs_are_counted_for_typical_extents():
    def conflicts(typical):
        k = KernelBuilder("k", 32)
        k.tensors(TensorParam("A", "mk", "float32", ("k", 1)), modes="mk", typical=typical)
        s = Tensor(k.shared("s", "float32", Layout(1024)).engine,
                   Layout((32, 32), (k.extent("k"), 1)))
        k.copy(Vector(1), s(k.thread, 0), k.registers("r", "float32", Layout(1)))
        return k.build().facts["shared load s"]

    assert "1 wavefronts of" in conflicts({"k": 7}) and "8 wavefronts of" in conflicts({"k": 8})


def test_what_is_read_comes_before_what_is_written():
    k = KernelBuilder("k", 32)
    k.tensors(TensorParam("D", "m", "int32", written=True), TensorParam("S", "m", "int32"),
              modes="m", batch=1)
    assert [q.name for q in k.build().params] == ["S", "D", "M", "dD_m", "dS_m", "L0", "dD_l0",
                                                  "dS_l0"]


def test_a_plan_with_a_role_that_nobody_asked_for_is_refused():
    """What is neither constant nor memory of a role is forgotten, not a role of its own name."""
    incomplete = launch(lambda _config: product(), None, 1,
                        {name: view for name, view in views().items() if name != "C"}, EXTENTS)
    with pytest.raises(TypeError, match="is missing C"):
        repr(incomplete.kernel)
    p = GemmProblem(64, 64, 64, Operand("float32", (64, 1)), Operand("float32", (64, 1)),
                    Operand("float32", (1, 64)), alpha="value", precision="ieee")
    made = plan_gemm(p, H200).launches[0]
    assert {a.role for a in made.arguments if a.role} == {"a", "b", "c", "alpha"}


def test_declarations_are_consistent():
    with pytest.raises(CodegenError, match="has the modes m, k and 1 strides"):
        TensorParam("A", "mk", "float32", (1,))
    with pytest.raises(CodegenError, match="need a mode with stride 1"):
        TensorParam("A", "mk", "float32", width=4)
    (mapped,) = KernelBuilder("k", 32, arch="sm_90a").tensors(
        TensorParam("A", "mk", "float32", map="mapA", addressed=False)
    )
    assert mapped.map == "mapA"
    with pytest.raises(CodegenError, match="tensor map only"):
        mapped.at()


def test_a_tensor_map_is_an_argument_of_its_own():
    k = KernelBuilder("k", 32, arch="sm_90a")
    k.tensors(TensorParam("A", "mk", "float32", map="mapA", addressed=False),
              TensorParam("C", "m", "float32", written=True), modes="m")
    signature = k.build().signature
    assert signature.bind(A=View(map="box"), C=View("c", (3,)), M=2) == ("box", "c", 2, 3)
    with pytest.raises(TypeError, match="A of k takes a tensor map, got"):
        signature.bind(A=View("a"), C=View("c", (3,)), M=2)


def test_a_signature_prints_itself():
    text = str(product(alpha="value", batch_modes=1).signature)
    assert text.splitlines()[1:] == [
        "  A (m, k) float32, read, strides (dA_m, 1), of batch modes (dA_l0)",
        "  B (n, k) float32, read, strides (dB_n, 1), of batch modes (dB_l0)",
        "  C (m, n) float32, written, strides (1, dC_n), of batch modes (dC_l0)",
        "  M int32", "  N int32", "  K int32", "  L (L0) int32", "  alpha float32"]


@given(data=st.data())
def test_what_is_bound_is_what_the_kernel_reads(data):
    """Offsets by the layout of the declared tensor, with arguments for parameters, are those of the
    view."""
    nested = data.draw(st.dictionaries(st.sampled_from("mk"), st.integers(2, 3)))
    batch, unit = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([None, 0, 1]))
    width = 1 if unit is None else data.draw(st.sampled_from([1, 2, 4]))
    present = data.draw(st.one_of(st.booleans(), st.tuples(*[st.booleans()] * batch)))
    k = KernelBuilder("k", 32)
    declared = TensorParam("X", "mk", "float32", tuple(1 if i == unit else None for i in range(2)),
                           width, batch=present)
    (tensor,) = k.tensors(declared, modes="km", batch=batch, nested=nested)
    signature = k.build().signature

    def group(mode, values):
        found = tuple(data.draw(values) for _ in range(nested.get(mode, 1)))
        return found if mode in nested else found[0]

    steps = st.integers(-9, 9).map(lambda n: n * width)
    extents = {mode: group(mode, st.integers(1, 3).map(lambda n: n * width)) for mode in "mk"}
    strides = []
    for i, mode in enumerate("mk"):
        stride = group(mode, steps)
        strides.append(((1, *stride[1:]) if mode in nested else 1) if i == unit else stride)
    view = View("x", tuple(strides), tuple(data.draw(steps) for _ in range(batch)))
    items = tuple(data.draw(st.integers(1, 3)) for _ in range(batch))
    values = {"X": view, "M": extents["m"], "K": extents["k"], **({"L": items} if batch else {})}
    arguments = dict(zip((q.name for q in signature.params), signature.bind(values), strict=True))

    symbols = flatten((*tensor.extents, *tensor.strides, *tensor.batch, *tensor.batch_strides))
    known = {str(x): arguments[str(x)] for x in symbols if isinstance(x, Expr)}

    def at(shape):
        return tuple(data.draw(st.integers(0, n - 1)) for n in shape)

    leaves, index = at(flatten((extents["m"], extents["k"]))), at(items)
    m, place = [], iter(leaves)
    for mode in "mk":
        m.append(tuple(next(place) for _ in range(nested[mode])) if mode in nested else next(place))
    found = tensor.at(index if batch else 0)(*m).index
    has = (present,) * batch if isinstance(present, bool) else present
    expected = sum(c * s for c, s in zip(leaves, flatten(view.strides), strict=True))
    expected += sum(c * s for c, s, there in zip(index, view.batch, has, strict=True) if there)
    assert evaluate(found, known) == expected
    assert [arguments[q.name] for q in signature.params
            if q.name[0] in "KM"] == list(flatten((extents["k"], extents["m"])))
