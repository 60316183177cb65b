"""Graphs of epilogues: their identity, and the C++ that is emitted for them."""

import math
import pickle

import pytest

from cuteblas._dtypes import dtype
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.epilogue import FUNCTIONS, LEAVES, EpilogueGraph, Node, emit, literal
from cuteblas.codegen.values import local

ACC, X = Node("acc", "float32"), Node("operand", "float32", name="x")
BOOL = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isnan")


def emitted(graph):
    """Names of the results, and lines; leaves are called by their names."""
    k = KernelBuilder("k", 32, waits=False)
    results = [value.c for value in emit(k, graph, lambda node: local(str(node), node.dtype))]
    return results, [line.strip() for line in k.build().body.splitlines() if " const e" in line]


def constant(value, kind="float32"):
    return Node("constant", kind, value=value)


@pytest.mark.parametrize("name", [f for f in FUNCTIONS if f != "cast"])
def test_every_function_is_a_call(name):
    conditions = 3 if name.startswith("logical") else name == "where"
    leaves = [Node("operand", "bool" if i < conditions else "float32", name=n)
              for i, n in enumerate("xyz"[:FUNCTIONS[name]])]
    kind = "bool" if name in BOOL or name.startswith("logical") else "float32"
    names, lines = emitted(EpilogueGraph("f", Node(name, kind, tuple(leaves))))
    arguments = [f"e{i}" for i in range(len(leaves))]
    assert lines[-1] == f"{dtype(kind).ctype} const e{len(leaves)} = cb::{name}({', '.join(arguments)});"
    assert names == [f"e{len(leaves)}"] and lines[0] == f"{dtype(leaves[0].dtype).ctype} const e0 = x;"


@pytest.mark.parametrize("kind", ["bool", "int8", "uint64", "float16", "bfloat16", "float64",
                                  "complex64"])
def test_casts(kind):
    _, lines = emitted(EpilogueGraph("f", Node("cast", kind, (ACC,))))
    assert lines == ["float const e0 = acc;",
                     f"{dtype(kind).ctype} const e1 = cb::convert<{dtype(kind).ctype}>(e0);"]


def test_shared_values_are_computed_once_and_constants_stand_where_they_are_used():
    square = Node("multiply", "float32", (ACC, ACC))
    total = Node("add", "float32", (square, constant(0.5)))
    names, lines = emitted(EpilogueGraph("f", total,
                                         (("square", square), ("x", X), ("half", constant(0.5)))))
    assert lines == ["float const e0 = acc;", "float const e1 = cb::multiply(e0, e0);",
                     "float const e3 = cb::add(e1, static_cast<float>(0.5));",
                     "float const e4 = x;"]
    assert names == ["e3", "e1", "e4", "static_cast<float>(0.5)"]


@pytest.mark.parametrize("value, kind, text", [
    (math.inf, "float32", "cb::infinity<float>(1)"), (-math.inf, "float64", "cb::infinity<double>(-1)"),
    (math.nan, "float32", "cb::not_a_number<float>(1)"), (-0.0, "float32", "static_cast<float>(-0.0)"),
    (0.1, "float32", "static_cast<float>(0.1)"), (3, "float64", "static_cast<double>(3.0)"),
    (1e-45, "float32", "static_cast<float>(1e-45)"), (2**63, "uint64", "static_cast<unsigned long long>(9223372036854775808ull)"),
    (-2**63, "int64", "static_cast<long long>((-9223372036854775807ll - 1))"), (-7, "int8", "static_cast<signed char>(-7ll)"),
    (True, "bool", "true"), (0, "bool", "false"),
    (complex(-0.0, math.inf), "complex64", "cb::complex<float>{static_cast<float>(-0.0), cb::infinity<float>(1)}"),
    (2, "complex128", "cb::complex<double>{static_cast<double>(2.0), static_cast<double>(0.0)}"),
])
def test_literals(value, kind, text):
    assert literal(value, kind).c == text and literal(value, kind).dtype == dtype(kind)


def test_nodes_are_checked():
    with pytest.raises(CodegenError, match="no function 'exp' with 2 arguments"):
        Node("exp", "float32", (ACC, X))
    with pytest.raises(CodegenError, match="no function 'sinh'"):
        Node("sinh", "float32", (ACC,))
    with pytest.raises(CodegenError, match="cb::add takes float32, got float64"):
        Node("add", "float32", (ACC, Node("operand", "float64", name="y")))
    with pytest.raises(CodegenError, match="less of float32 and float32 is not of type float32"):
        Node("less", "float32", (ACC, X))
    assert Node("absolute", "float32", (Node("acc", "complex64"),)).depth == 2
    with pytest.raises(TypeError, match="do not support element type 'float128'"):
        Node("acc", "float128")


def test_what_makes_values_different():
    assert constant(0.0) != constant(-0.0) and constant(math.nan) == constant(math.nan) and constant(1) != constant(1.0)
    assert constant(1.0) != constant(1.0, "float64")
    assert Node("scalar", "float32", name="x") != X and Node("operand", "float32", name="y") != X
    assert len({Node(op, "float32") for op in LEAVES}) == len(LEAVES)
    one, other = (Node("subtract", "float32", args) for args in ((ACC, X), (X, ACC)))
    assert one != other and EpilogueGraph("f", one).digest != EpilogueGraph("f", other).digest
    graphs = [EpilogueGraph("f", one, outputs)
              for outputs in ((), (("p", X),), (("q", X),), (("p", ACC),))]
    assert len({graph.digest for graph in graphs}) == 4


def test_deep_graphs_with_shared_values():
    node = ACC
    for _ in range(400):
        node = Node("multiply", "float32", (node, node))
    graph = EpilogueGraph("power", node)
    assert len(graph.nodes) == 401 == node.depth and len(str(node)) < 500 and "..." in str(node)
    assert pickle.loads(pickle.dumps(graph)) == graph


def test_leaves_and_their_substitution():
    cast = Node("cast", "float32", (Node("scalar", "float64", name="s"),))
    graph = EpilogueGraph("f", Node("add", "float32",
                                    (Node("multiply", "float32", (ACC, cast)), X)), (("p", cast),))
    assert graph.leaves("operand") == (X,) and [n.name for n in graph.leaves("scalar")] == ["s"]
    new = graph.substituted(lambda leaf: Node("scalar", "float32", name="s") if leaf.op == "scalar"
                            else leaf)
    assert str(new.result) == "add(multiply(acc, s), x)" and dict(new.outputs)["p"].op == "scalar"
    assert graph.substituted(lambda leaf: leaf) == graph
