"""The table of device functions: both texts of every row, calls that are checked, and what kernels
are found to use."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from cuteblas import emulator, kernels
from cuteblas.codegen import prelude
from cuteblas.codegen.builder import KernelBuilder
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.intrinsics import INTRINSICS
from cuteblas.codegen.prelude import cuda_prelude
from cuteblas.codegen.values import Use, cast, choose, complex_of, integer, local, number
from cuteblas.kernels.gemm.divided import clear_words
from cuteblas.layout import Layout
from cuteblas.layout.symbolic import Var, maximum
from cuteblas.planning import H200, CopyProblem, plan_copy, plan_gemm, plan_reduction
from cuteblas.planning.problem import GemmProblem, Operand, ReductionProblem

ELEMENTARY = re.compile(r"CB_ELEMENTARY\((\w+)")
MMA = re.compile(r"CB_MMA\((\d+), (\d+), (\d+), (?!IN)")


def defined(text):
    """The names of the functions that a text of C++ defines or declares in ``cb``."""
    names = set(re.findall(r"\b(\w+)(?:<[^<>]*>)?\((?=[^;{}]*\)[^;{}]*[;{])",
                           text)) | set(ELEMENTARY.findall(text))
    return names | {"mma_m{}n{}k{}".format(*shape) for shape in MMA.findall(text)}


def cuda_text(row):
    files_of = {"wgmma": "hopper"}          # declared there
    if row.cuda == "mma":
        return cuda_prelude([Use(row.name, ("cb::half",))])
    return files(prelude).joinpath(f"{files_of.get(row.cuda, row.cuda)}.cuh").read_text()


@pytest.mark.parametrize("name", INTRINSICS)
def test_every_row_has_both_texts(name):
    row = INTRINSICS[name]
    assert name in defined(cuda_text(row)), f"{name} is not in {row.cuda}"
    header = files(emulator).joinpath(row.emulator).read_text()
    # TMA's functions have one macro for every number of coordinates, and some of the elementary
    # ones are made by a macro.
    made = set(re.findall(r"^CB_\w+\((\w+)", header,
                          re.MULTILINE)) | set(re.findall(r"\b(tma_\w+)\(", header))
    assert name in defined(header) | made, f"{name} is not in {row.emulator}"


def test_a_row_that_is_missing_is_seen():
    assert "sinh" not in defined(cuda_text(INTRINSICS["sin"])) and "split_pair" not in defined(
        cuda_text(INTRINSICS["add"])
    )


def gemm(element, n, **options):
    x = Operand(element, (n, 1))
    return plan_gemm(GemmProblem(n, n, n, x, x, x, **options), H200)


PLANS = {
    "float32 by planes": lambda: gemm("float32", 4096),
    "float32": lambda: gemm("float32", 512, precision="ieee"),
    "bf16x6": lambda: gemm("float32", 2048, precision="bf16x6"),
    "tf32": lambda: gemm("float32", 2048, precision="tf32"),
    "complex64": lambda: gemm("complex64", 2048),
    "float64": lambda: gemm("float64", 1024),
    "float16": lambda: gemm("float16", 4096),
    "bfloat16": lambda: gemm("bfloat16", 300),
    "complex128": lambda: gemm("complex128", 512),
    "int8": lambda: gemm("int8", 512),
    "bool": lambda: gemm("bool", 100),
    "scalars on the device": lambda: gemm("float32", 512, alpha="device", beta="device"),
    "modular": lambda: gemm("float64", 512, precision="modular"),
    "complex128 modular": lambda: gemm("complex128", 512, precision="modular"),
    "skinny": lambda: plan_gemm(
        GemmProblem(8192, 16, 8192, *(Operand("float32", (n, 1)) for n in (8192, 8192, 16))), H200
    ),
    "transpose": lambda: plan_copy(
        CopyProblem((4096, 4096), (1, 4096), (4096, 1), 4, 16, 16), H200
    ),
    "bytes": lambda: plan_copy(CopyProblem((4095, 4097), (1, 4095), (4097, 1), 1, 16, 16), H200),
    "reduction": lambda: plan_reduction(
        ReductionProblem(
            512, 512, Operand("float32", (512, 1)), Operand("float32", (1, 0)), op="max"
        ),
        H200
    ),
    "in place": lambda: plan_copy(
        CopyProblem((4096, 4096), (1, 4096), (4096, 1), 2, 16, 16, in_place=True), H200
    ),
}


def uses_in(text):
    """What a kernel's text calls."""
    called = re.findall(r"cb::(\w+)(?:<((?:[^<>()]|<[^<>]*>)*)>)?\(", text)
    return {Use(name, tuple(of.split(", ")) if of else ()) for name, of in called
            if name in INTRINSICS}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_recorded_is_what_the_text_calls(name):
    for launch in PLANS[name]().launches:
        kernel = launch.kernel
        assert kernel.uses == uses_in(kernel.body), kernel.name
        assert kernel.waits == ("cb::wait_for_launch_before()" in kernel.body)
        assert all(kernel.body.count(declaration) for declaration, _name in kernel.registers)
        assert len(kernel.registers) == len(set(re.findall(r"alignas\(16\) .*", kernel.body)))


def test_a_prelude_holds_what_is_used_and_what_that_needs():
    kernel = clear_words()
    assert Use("store_global", ("1",)) in kernel.uses and "mbarrier" not in kernel.cuda_source
    assert "wgmma_fence" in replace(kernel, uses=kernel.uses
                                    | {Use("wgmma_m64k8_tf32", ("64",))}).cuda_source
    assert "mma_m8n8k4<double>(" in cuda_prelude([Use("complex_mma_m8n8k8", ("false",))])


@pytest.fixture
def k():
    return KernelBuilder("k", 32, waits=False)


def lines(k):
    return [line.strip() for line in k.build().body.splitlines()]


def test_calls_are_spelled_and_recorded(k):
    x, words = k.registers("x", "float32", Layout(4)), k.pointer("words", "uint32")
    k.assign(x(0), k.call("add", x(1), k.convert(k.call("max", words[0], 3), "float32")))
    k.do("load_global", k.declare("word", "uint32"), words[maximum(Var("i", -5, 5), 0)], of=1)
    k.do("wgmma_delivered", x)
    text = lines(k)
    assert "x[0] = cb::add(x[1], cb::convert<float>(cb::max(words[0], 3u)));" in text
    assert "cb::load_global<1>(&word, &words[cb::max(i, 0)]);" in text and "cb::wgmma_delivered(x);" in text
    uses = Use("add"), Use("convert", ("float",)), Use("max"), Use("load_global",
                                                                   ("1",)), Use("wgmma_delivered")
    assert k.build().uses == set(uses)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda k, x, p: k.call("sinh", x(0)), "no device function 'sinh'"),
        (lambda k, x, p: k.call("add", x(0)), "cb::add takes 2 to 2 arguments, got 1"),
        (lambda k, x, p: k.call("add", x(0), p[0]), "cb::add takes float32, got uint32"),
        (
            lambda k, x, p: k.call("between_words", x(0), x(0), 3),
            "cb::between_words takes uint32, got float32"
        ),
        (
            lambda k, x, p: k.do("store_global", p[0], p[1], of=1),
            "cb::store_global writes to words, which is read-only"
        ),
        (lambda k, x, p: k.call("convert", x(0)), "cb::convert takes 1 to 1 template arguments"),
        (
            lambda k, x, p: k.do("cp_async_wait", of="float32"),
            "template argument of type int32 was expected, got 'float32'"
        ),
        (lambda k, x, p: k.do("wgmma_delivered", 3), "cb::wgmma_delivered takes A as array, got 3"),
        (lambda k, x, p: k.assign(x(0), p[0]), r"words\[0\] has type uint32, expected float32"),
        (lambda k, x, p: x(0) + p[0], r"x\[0\] \+ words\[0\]: float32 and uint32 do not mix"),
        (lambda k, x, p: k.assign(x(0), float("inf")), "inf is not a number of type float32"),
        (lambda k, x, p: p[0] + 0.5, "0.5 is not a number of type uint32"),
        (lambda k, x, p: p[0] + -1, "-1 is not a number of type uint32"),
        (lambda k, x, p: x(0).im, r"x\[0\] is not a complex number"),
    ]
)
def test_wrong_calls_are_refused(k, wrong, words):
    with pytest.raises(CodegenError, match=words):
        wrong(k, k.registers("x", "float32", Layout(4)), k.pointer("words", "uint32"))


@pytest.mark.parametrize(
    "name, arch, message",
    [
        (
            "tma_store_commit",
            "sm_80",
            "k is for sm_80, where there is no cb::tma_store_commit: it needs sm_90"
        ),
        ("wgmma_fence", "sm_90", "it needs sm_90a"),
        ("wgmma_fence", "sm_100a", "it needs sm_90a"),
        ("cluster_sync", "sm_86", "it needs sm_90"),
    ]
)
def test_a_kernel_calls_what_its_architecture_has(name, arch, message):
    with pytest.raises(CodegenError, match=message):
        KernelBuilder("k", 32, arch=arch).do(name)
    for able in ("sm_90a", *(("sm_90", "sm_120") if "wgmma" not in name else ())):
        KernelBuilder("k", 32, arch=able).do(name)


def test_operators_are_those_of_cpp():
    a, b, u, p = local("a", "float32"), local("b", "float32"), local("u", "uint32"), local("p", "bool")
    z, i = local("z", "complex128"), Var("i", 0, 9)
    assert (a - (b - 1.5)).c == "a - (b - 1.5f)" and ((a - b) * 2 + a).c == "(a - b) * 2 + a" and (-(a.__neg__())).c == "-(-a)"
    assert (u >> 8 | u << (i + 1) & 7).c == "u >> 8 | u << i + 1 & 7u" and (~u).c == "~u"
    assert (p | (a < b) & ~p).c == "p || a < b && !p" and ((p | p) & p).c == "(p || p) && p"
    assert a.differs(0.0).c == "a != 0.0f" and u.equals(1).c == "u == 1u" and (integer(i) >= 3).c == "i >= 3"
    assert choose(a < b, 2, choose(p, 1, 0, "uint32")).c == "a < b ? 2u : p ? 1u : 0u"
    assert choose(p | p, a, b).c == "(p || p) ? a : b" and choose(choose(p, p, p), a,
                                                                  b).c == "(p ? p : p) ? a : b"
    assert z.im.dtype.name == "float64" and (0 - z.im).c == "0 - z.im" and complex_of("complex128", z.im, 1.0).c == \
        "cb::complex<double>{z.im, 1.0}"
    assert number(2.0**-11,
                  "float32").c == "0.00048828125f" and (u + (2**32 - 1)).c == "u + 4294967295u"
    assert cast(u >> 8, "b8").c == "static_cast<unsigned char>(u >> 8)"


def test_folds(k):
    total, part, wrong = (k.registers(name, "float32", Layout(n))
                          for name, n in (("total", 2), ("part", 2), ("wrong", 3)))
    k.fold(total, part)
    k.fold(total, part, "maximum")
    k.fold_lanes(total(1), "max", (1, 2))
    assert [line for line in lines(k) if "cb::" in line] == [
        "total[i] = cb::add(total[i], part[i]);", "total[i] = cb::maximum(total[i], part[i]);",
        *(f"total[1] = cb::max(total[1], cb::shuffle_xor(total[1], {mask}));" for mask in (1, 2))]
    with pytest.raises(CodegenError, match="fold: extents differ: 3:1 into 2:1"):
        k.fold(total, wrong)


def test_statements(k):
    flag = k.declare("flag", "bool", False)
    x = k.declare("x", "float32", 2.0**127)
    k.stop(flag | (x < 1.0))
    k.spin(k.call("load_flag", k.pointer("flags", "uint32")).equals(0))
    with k.when(flag):
        k.assign(x, -x)
    words = k.words("w", [local("a", "uint32"), local("b", "uint32")])
    k.do("transpose_b16x2", words)
    assert lines(k)[-10:-1] == ["bool flag = false;", "float x = 1.7014118346046923e+38f;",
                                "if (flag || x < 1.0f) return;",
                                "while (cb::load_flag(flags) == 0u) {}", "if (flag) {", "x = -x;",
                                "}", "unsigned w[2] = {a, b};", "cb::transpose_b16x2(w);"]


def test_kernels_have_no_statement_of_cpp():
    """They ask the builder for them."""
    for path in Path(kernels.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"cb::|static_cast|reinterpret_cast|\.emit\(|_line\(", text), path
