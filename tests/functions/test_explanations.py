"""What ``explain`` reports."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import cuteblas
from cuteblas.engines.tuning import plan_for
from cuteblas.planning.floors import compulsory_bytes, floor_of, multiply_adds_per_clock
from cuteblas.planning.problem import (
    H200,
    ContractionProblem,
    CopyProblem,
    GemmProblem,
    Operand,
    ReductionProblem,
    Storage,
)
from cuteblas.planning.words import plan_rows


def test_product():
    a, b = np.ones((128, 64), "f4"), np.ones((64, 96), "f4")
    told = cuteblas.explain(a, b)
    text = told.verbose()
    assert repr(told) == str(told) and text.startswith(str(told).partition("  call")[0])
    assert "\nmatmul: float32 (128, 64) @ float32 (64, 96) -> float32 (128, 96)\n" in text
    for part in ("NumPy; the plan below is what NVIDIA H200 would run", "M = 128, N = 96, K = 64",
                 "A (M,K) (128,64):(64,1) float32", "B (N,K) (96,64):(1,96) float32",
                 "C (M,N) (128,96):(96,1)", "gemm_simt", "blocks of", "bank conflict", "1.57 Mflop",
                 "floor"):
        assert part in text, part
    assert told.plan.family == "gemm_simt" and 'extern "C"' in told.source and told.copies == ()
    assert "namespace cb" not in told.source and told.full_source.endswith(told.source)
    assert "namespace cb" in told.full_source
    with cuteblas.backend("emulator"):
        assert "the emulator, on this CPU" in cuteblas.explain(a, b).verbose()


def test_what_an_estimate_consists_of():
    a = np.ones((4096, 4096), np.float16)
    product, copy = cuteblas.explain(a, a, device="h200").verbose(), cuteblas.explain_copy(a.T, device="h200").verbose()
    for part in ("less without the unit (clocks 65536)",
                 "less without shared memory (wavefronts 65536)", "\n  estimate "):
        assert part in product, part
    assert "less without memory (read 3.35544e+07)" in copy and "less without waiting (passes" in copy
    assert "less without writing" in cuteblas.explain(a[:, :0], a[:0], device="h200").verbose()
    for told in (cuteblas.explain(a[:0], a, device="h200"),
                 cuteblas.explain(a[:8, :8], a[:8, :8], variant="gemm_small", device="h200")):
        assert "less without" not in told.verbose()


SINGLE, HALF = Operand("float32", (512, 1)), Operand("float16", (512, 1))
STACK = Operand("float32", (8, 1), (64,))
LIMITED = replace(H200, workspace_limit=1 << 20)


@pytest.mark.parametrize("device", [H200, LIMITED], ids=["all memory", "limited"])
@pytest.mark.parametrize("problem", [*(GemmProblem(512, 512, 512, x, x, x, triangle=which)
                                       for x in (SINGLE, HALF)
                                       for which in (None, "both", "lower")),
                                     GemmProblem(512, 512, 512, SINGLE, SINGLE, SINGLE,
                                                 precision="ieee"),
                                     GemmProblem(8, 8, 8, STACK, STACK, STACK, batch=(1000,)),
                                     ReductionProblem(1000, 5000, Operand("float32", (5000, 1)),
                                                      Operand("float32", (1, 0))),
                                     CopyProblem((512, 512), (1, 512), (512, 1), 4),
                                     CopyProblem((512, 512), (1, 512), (512, 1), 4, in_place=True),
                                     ContractionProblem(((512, 512, 512),), ((512, 1, 1),),
                                                        ((512, 1, 512),),
                                                        *[Storage("float32")] * 3),
                                     ContractionProblem(((4, 6, 5), (7, 24, 25)), ((5, 1, 1),),
                                                        ((6, 1, 5),), *[Storage("float32")] * 3)],
                         ids=str)
def test_every_plan_carries_what_its_estimate_counts(problem, device):
    plan = plan_for(problem, device)
    assert plan.seconds == pytest.approx(sum(work.seconds(device) for work in plan.works), rel=1e-9)
    assert all("less without" in text for name, text in plan_rows(plan) if name == "estimate")
    assert "estimate" in dict(plan_rows(plan))


def test_copies_are_announced():
    a = np.ones((8, 8), "f4")
    told = cuteblas.explain(a, np.ones((8, 8)), a)
    assert told.copies == ("x1: is float32, computed in float64",
                           "out: is float32, computed in float64")
    assert "x1: is float32, computed in float64" in str(told) and told.plan.problem.a.dtype == "float64"
    assert cuteblas.explain(a, a, out=(a,)).copies == ("out: shares memory with an input",)


@pytest.mark.parametrize("x1, x2, why", [(np.ones((2, 2), object), np.ones((2, 2)),
                                          "NumPy: there are no kernels for object"),
                                         (np.ones((2, 2), "g"), np.ones((2, 2)),
                                          "NumPy: there are no kernels for float128"),
                                         (np.ones((2, 2)).view(np.matrix), np.ones((2, 2)),
                                          "NumPy: matrix is a subclass of numpy.ndarray")])
def test_delegated(x1, x2, why):
    told = cuteblas.explain(x1, x2)
    assert why in str(told) and told.plan is None and told.source == ""


def test_arguments_are_resolved():
    with pytest.raises(ValueError, match="mismatch in its core dimension"):
        cuteblas.explain(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="precision is one of"):
        cuteblas.explain(np.ones((2, 2)), np.ones((2, 2)), precision="exact")
    with pytest.raises(ValueError, match="order must be one of"):
        cuteblas.explain_copy(np.ones(3), order="Z")
    for call in (cuteblas.explain_copy, cuteblas.copy):
        with pytest.raises(TypeError, match="'out' must be an array"):
            call(np.ones(3), out=3)
    assert cuteblas.explain(np.ones((2, 3, 4)), np.ones((4, 5)),
                            axes=[(0, 2), (0, 1), (0, 1)]).plan.problem.k == 4


def test_nothing_to_do():
    assert cuteblas.explain(np.ones((0, 3)), np.ones((3, 4))).plan.family == "nothing"
    assert "nothing" in str(cuteblas.explain_copy(np.ones((0, 3))))


def test_copy():
    told = cuteblas.explain_copy(np.ones((64, 32), "f4")[:, ::2])
    assert told.plan.family == "copy" and "words of 4 bytes" in str(told) and "traffic" in told.verbose() and told.source
    x = np.ones((64, 64))
    assert cuteblas.explain_copy(x.T, out=x).plan.problem.in_place and "in place" in str(
        cuteblas.explain_copy(x.T, out=x)
    )
    assert cuteblas.explain_copy(x[::-1], out=x).copies == ("out: shares memory with the array",)
    assert cuteblas.explain_copy(x.T, out=x.copy()).plan.family == "transpose"
    with pytest.raises(ValueError, match="out must have the shape and type of the array"):
        cuteblas.explain_copy(x.T, out=x[0])
    assert "NumPy: elements of object refer to other memory" in str(
        cuteblas.explain_copy(np.array([None]))
    )


def gemm(dtype, broadcast=False):
    return GemmProblem(64, 32, 16, Operand(dtype, (16, 1), (0 if broadcast else 1024,)),
                       Operand(dtype, (1, 32), (512,)), Operand(dtype, (32, 1), (2048,)), (10,))


def test_compulsory_bytes():
    assert compulsory_bytes(gemm("float32")) == 4 * 10 * (64 * 16 + 32 * 16 + 64 * 32)
    assert compulsory_bytes(gemm("complex128", broadcast=True)) == 16 * (
        64 * 16 + 10 * (32 * 16 + 64 * 32)
    )
    assert compulsory_bytes(CopyProblem((8, 5), (1, 0), (5, 1), 2)) == 2 * (8 + 40)


def test_floor():
    floor = floor_of(gemm("float32"), "gemm_simt", H200)
    assert floor.flops == 2 * 64 * 32 * 16 * 10
    assert floor.arithmetic_s == pytest.approx(floor.flops / (2 * 128 * 132 * 1.98e9))
    assert floor.traffic_s == pytest.approx(floor.bytes / 4.286e12)
    assert floor.seconds == max(floor.arithmetic_s,
                                floor.traffic_s) and floor.limit == "memory traffic"
    assert floor_of(gemm("complex64"), "gemm_simt",
                    H200).arithmetic_s == pytest.approx(4 * floor.arithmetic_s)


@pytest.mark.parametrize("family, dtype, arch, expected",
                         [("gemm_simt", "float32", "sm_90a", 128),
                          ("gemm_thin", "float32", "sm_90", 128),
                          ("gemm_simt", "float64", "sm_90", 64),
                          ("gemm_simt", "float64", "sm_86", 2), ("gemm_simt", "int8", "sm_80", 64),
                          ("gemm_simt", "uint64", "sm_80", 16),
                          ("gemm_simt", "complex128", "sm_80", 32),
                          ("gemm_simt", "float16", "sm_70", 64),
                          ("gemm_wgmma", "float16", "sm_90a", 2048),
                          ("gemm_mma", "float16", "sm_80", 1024),
                          ("gemm_mma", "float64", "sm_89", 2), ("gemm_mma", "int8", "sm_80", 2048),
                          ("gemm_wgmma", "float32", "sm_90", 1024),
                          ("gemm_skinny", "float32", "sm_90", 2048 / 6),
                          ("gemm_split", "float32", "sm_90", 2048 / 3)])
def test_rates(family, dtype, arch, expected):
    assert multiply_adds_per_clock(family, dtype, replace(H200, arch=arch)) == expected


def test_it_begins_with_what_a_user_needs():
    """The kernel, the expected time and what bounds it, copies and fallbacks; then the call, and no
    more."""
    a = np.ones((4096, 4096), "f4")
    kernel, time, copies, fallback, call = str(cuteblas.explain(a, a)).splitlines()
    assert kernel.startswith(
        "  kernel    NumPy does this here; on a GPU gemm_split: float32 on 16-bit tensor cores"
    )
    assert " us expected on NVIDIA H200, bound by arithmetic; no kernel takes less than " in time and "e+" not in time
    assert copies == "  copies    none" and fallback == (
        "  fallback  if elements of a row or column differ too much in size, the device uses bf16x6, or fused multiply-adds "
        "(sizes more than 2^100 apart, infinities, NaNs)"
    )
    assert call.endswith(
        "matmul: float32 (4096, 4096) @ float32 (4096, 4096) -> float32 (4096, 4096); .verbose() says more"
    )
    assert "2.75e+03" not in cuteblas.explain(a, a, precision="ieee").verbose()


def test_a_floor_is_told_where_it_bounds_the_time():
    """Not of a call that waits for its launch: there it is a few picoseconds."""
    small = np.ones((2, 2))
    told = str(cuteblas.explain(small, small)).splitlines()[1]
    assert told.endswith("bound by latency") and "floor" in cuteblas.explain(small, small).verbose()


def test_what_cannot_be_allocated_is_explained():
    """NumPy asks for memory of the size of an operand when it has accepted the call."""
    x = np.broadcast_to(np.float32(0), (10**6, 10**6))
    assert cuteblas.explain(x, x).plan.problem.m == 10**6
    with pytest.raises(ValueError, match="size 1000000 is different from 10000001"):
        cuteblas.explain(np.broadcast_to(np.float32(0), (10**7, 10**7 + 1)), x)


def test_operands_that_are_copied_first():
    a = np.ones((513, 515), "f2")
    told = cuteblas.explain(a, np.ones((515, 517), "f2"))
    assert "A is copied first: the strides (515, 1)" in str(told) and told.plan.copied[
        1
    ].startswith("B is copied first: ")
    bare = cuteblas.explain(np.ones((512, 512), "f2"), np.ones((512, 512), "f2"))
    assert told.estimate.seconds > bare.estimate.seconds
    mixed = cuteblas.explain(np.ones((4096, 64), "f8"), np.ones((64, 64), "f4"))
    assert mixed.copying_s > 0 and mixed.estimate.seconds == mixed.plan.seconds + mixed.copying_s


@pytest.mark.parametrize("name, arch, family",
                         [("a100", "sm_80", "gemm_mma"), ("RTX4090", "sm_89", "gemm_mma"),
                          ("h100", "sm_90", "gemm_wgmma"), ("b200", "sm_100", "gemm_mma")])
def test_plans_for_other_cards(name, arch, family):
    a = np.ones((1024, 1024), "f2")
    told = cuteblas.explain(a, a, device=name)
    assert (told.plan.device.arch, told.plan.family) == (arch, family)
    assert ("not measured there" in str(told)) == (name != "h100")
    assert cuteblas.explain_copy(a.T, device=name).plan.device == told.plan.device
    assert cuteblas.explain(a, a, device=told.plan.device).plan == told.plan
    assert "not measured" not in str(cuteblas.explain(a, a, device="H200"))


def test_unknown_cards_are_refused():
    with pytest.raises(
        ValueError,
        match="device is one of 'a100', 'l40s', 'rtx4090', 'h100', 'h200', 'b200', got 'v100'"
    ):
        cuteblas.explain(np.ones((2, 2)), np.ones((2, 2)), device="v100")
    with pytest.raises(ValueError, match="device is one of"):
        cuteblas.explain_copy(np.ones((2, 2)), device=3)


def test_floors_count_the_products_of_tensor_cores():
    a = np.ones((4096, 4096), "f4")
    split = cuteblas.explain(a, a).estimate.floor
    assert split.arithmetic_s == pytest.approx(3 * split.flops / (2 * 2048 * 132 * 1.98e9))
    six = cuteblas.explain(a, a, precision="bf16x6").estimate
    assert six.floor.arithmetic_s == pytest.approx(2 * split.arithmetic_s) and six.seconds > six.floor.seconds


@pytest.mark.parametrize("backend", ["numpy", "emulator"])
def test_nothing_is_written(backend):
    """Not even with an epilogue, whose kernel rounds to the type of `out` itself."""
    a, out = np.ones((64, 64), "f4"), np.full((64, 64), 7.0)
    with cuteblas.backend(backend):
        for epilogue in (None, "relu"):
            told = cuteblas.explain(a, a, out=out, epilogue=epilogue)
            cast = ("out: is float64, computed in float32",) if epilogue is None else ()
            assert told.copies == cast and (out == 7).all() and (told.copying_s > 0) == bool(cast)
        mixed = cuteblas.explain(a, a.astype("f8"), epilogue="relu")
    assert mixed.copies == ("x1: is float32, computed in float64",) and mixed.plan.problem.a.dtype == "float64"


def test_arrays_of_ours_are_explained_as_what_they_hold():
    x, y = cuteblas.asarray(np.ones((64, 32), "f4")), np.ones((64, 32), "f4")
    assert cuteblas.explain(x, x.T).plan == cuteblas.explain(y, y.T).plan
    assert cuteblas.explain_copy(x.T).plan.family == "transpose" and cuteblas.explain(x, x.T, epilogue="relu").plan is not None


class Elements(HTMLParser):
    """What a page is made of."""

    def __init__(self):
        super().__init__()
        self.names, self.values, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.values += [value for name, value in attrs
                        if name in ("src", "href", "style", "onclick", "action")]

    def handle_data(self, data):
        self.text.append(data)


def elements(html):
    assert ElementTree.fromstring(html) is not None                       # every element ends
    found = Elements()
    found.feed(html)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.names)
    assert not any("url(" in str(value) or "http" in str(value) for value in found.values)
    assert html.replace("http://www.w3.org/2000/svg",
                        "").count("http") == 0 and "@import" not in html
    return found


ONE = np.ones((1024, 1024), "f4")
PRODUCT = {"who owns the tile of C", "banks of sA", "banks of sB"}


@pytest.mark.parametrize("tell, figures", [(lambda: cuteblas.explain(ONE, ONE), PRODUCT),
                                           (lambda: cuteblas.explain(ONE, ONE, precision="ieee"),
                                            PRODUCT - {"banks of sB"}),
                                           (lambda: cuteblas.explain(ONE.astype("f2"),
                                                                     ONE.astype("f2"),
                                                                     device="a100"), PRODUCT),
                                           (lambda: cuteblas.explain_copy(ONE.T), {"banks of sT"}),
                                           (lambda: cuteblas.explain_copy(ONE[::2]), set())],
                         ids=["gemm_split", "gemm_simt", "gemm_mma", "transpose", "copy"])
def test_a_plan_shows_itself_in_a_notebook(tell, figures):
    told = tell()
    html = told._repr_html_()
    found = elements(html)
    shown = " ".join(found.text)
    assert told.call in shown and {
        title for title in figures if title in found.text
    } == figures == {text for text in found.text if text.startswith(("who owns", "banks of"))}
    assert found.names.count("details") == 1 + len(told.plan.launches) and 'extern "C" __global__' in shown
    assert (html.count('class="cb-bar"') == 3 and "memory traffic" in shown
            and "(1024,1024):(1024,1)" in html) or "(512" in html
    assert len(html) < 500_000 and elements(told.plan._repr_html_()).names.count(
        "details"
    ) == found.names.count("details")


def test_calls_without_kernels_show_themselves_too():
    told = cuteblas.explain(np.ones((3, 4), object), np.ones((4, 5)))
    assert "none, NumPy: there are no kernels for object" in " ".join(
        elements(told._repr_html_()).text
    )
    empty = cuteblas.explain(np.ones((0, 3)), np.ones((3, 4)))
    assert "nothing to do: the result has no elements" in " ".join(
        elements(empty._repr_html_()).text
    )
    html = cuteblas.functions.Explanation("<b>&amp;</b>", "NumPy: <script>")._repr_html_()
    assert elements(html).text.count("<b>&amp;</b>") == 1
