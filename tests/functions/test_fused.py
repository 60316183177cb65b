"""``matmul`` with an epilogue, on the host by NumPy and by kernels in the emulator, and on CuPy
arrays."""

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas import epilogues

RNG = np.random.default_rng(5)


@cuteblas.epilogue
def observed(acc, *, bias, low=0.0):
    before = acc + bias
    return np.maximum(before, low), {"before": before, "peak": before.max(axis=-1),
                                     "total": before.sum(axis=-2)}


def on_device(x):
    import cupy

    return cupy.asarray(x, order="K")


BACKENDS = [pytest.param("numpy"), pytest.param("emulator"),
            pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=BACKENDS)
def to(request):
    """Puts an array where the backend works."""
    if request.param == "cuda":
        pytest.importorskip("cupy")
        yield on_device
        return
    with cuteblas.backend(request.param):
        yield lambda x: x


def host(x):
    return x.get() if hasattr(x, "get") else x


def close(got, want, terms):
    np.testing.assert_allclose(host(got), want, rtol=0, atol=2.0**-24 * 16 * terms)


def test_results_and_auxiliary_results(to):
    a, b, bias = (RNG.standard_normal(s).astype("f4") for s in ((3, 20, 9), (9, 14), (14,)))
    result, more = cuteblas.matmul(to(a), to(b), epilogue=observed(bias=to(bias), low=0.5))
    want = a.astype("f8") @ b + bias
    close(result, np.maximum(want, 0.5), 9)
    assert set(more) == {"before", "peak", "total"} and type(result) is type(to(a))
    close(more["before"], want, 9)
    close(more["peak"], want.max(axis=-1), 9)
    close(more["total"], want.sum(axis=-2), 9 * 20)


@pytest.mark.parametrize("name", ["f\nacc = planted; //", "f\\", "f??/", "f\u2028planted",
                                  "*/ planted /*", '"\n#error "', "\ud800", "\0", "größe"],
                         ids=ascii)
def test_names_of_functions_are_not_code(to, name):
    def function(acc, *, bias, factor=2.0):
        return acc * factor + bias, {"after": acc}

    function.__name__ = name
    a, b, c = (RNG.integers(-8, 8, s).astype("f4") for s in ((3, 5), (5, 4), (1, 4)))
    result, more = cuteblas.matmul(to(a), to(b),
                                   epilogue=cuteblas.epilogue(function)(bias=to(c), factor=3.0))
    np.testing.assert_array_equal(host(result), a @ b * 3 + c)
    np.testing.assert_array_equal(host(more["after"]), a @ b)


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
                                  ml_dtypes.bfloat16])
def test_types_that_are_only_stored(to, kind):
    """Operands, auxiliary outputs and C of types in which nothing is computed: what was computed in
    float32 is rounded once."""
    a, b = (RNG.integers(-3, 4, s).astype("f4") / 8 for s in ((20, 9), (9, 14)))
    bias = np.linspace(-1, 1, 14).astype(kind)
    bits = f"u{bias.itemsize}"                          # what CuPy can move
    out, before = (to(np.zeros((20, 14), bits)).view(kind) for _ in range(2))
    result, more = cuteblas.matmul(to(a), to(b), out=out,
                                   epilogue=observed(bias=to(bias.view(bits)).view(kind),
                                                     before=before))
    want = a @ b + bias.astype("f4")
    assert result is out and more["before"] is before and more["peak"].dtype == np.float32
    np.testing.assert_array_equal(host(before.view(bits)), want.astype(kind).view(bits))
    np.testing.assert_array_equal(host(out.view(bits)), np.maximum(want, 0).astype(kind).view(bits))


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
                                  ml_dtypes.bfloat16, np.float16])
def test_values_that_are_rounded_in_between(to, kind):
    """``astype`` to a type in which nothing is computed, and what follows: every operation rounds,
    as on an array."""
    def squared(acc):
        x = acc.astype(kind)
        return (x * x).astype(np.float32) - x.astype(np.float32)

    a, b = (RNG.integers(-3, 4, s).astype("f4") / 8 for s in ((20, 9), (9, 14)))
    result = cuteblas.matmul(to(a), to(b), epilogue=cuteblas.epilogue(squared))
    np.testing.assert_array_equal(host(result), squared(a @ b))


def test_vectors_keep_numpys_shapes(to):
    a, b = RNG.standard_normal((20, 9)).astype("f4"), RNG.standard_normal((9, 14)).astype("f4")
    for x, y in ((a, b[:, 0]), (a[0], b), (a[0], b[:, 0])):
        result = cuteblas.matmul(to(x), to(y), epilogue="relu")
        assert result.shape == np.matmul(x, y).shape
        close(result, np.maximum(np.matmul(x, y), 0), 9)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5), (5,)), ((5, 4), (4, 5), (5,)),
                                    ((5, 4), (4, 5), (5, 1)), ((1, 4), (4, 5), (5,)),
                                    ((3, 4), (4, 1), (3, 1)), ((2, 5, 4), (4, 5), (5,)),
                                    ((2, 5, 4), (4, 5), (2, 1, 1)), ((2, 2, 4), (2, 4, 2), (2,)),
                                    ((2, 2, 4), (2, 4, 2), (2, 1)), ((3, 4), (4,), (3,)),
                                    ((4,), (4, 5), (5,)), ((4,), (4,), ()),
                                    ((2, 3, 4), (4,), (2, 3)), ((3, 3, 4), (4,), (3, 1)),
                                    ((3, 3, 4), (4,), (3,)), ((4,), (3, 4, 3), (3, 1)),
                                    ((4,), (2, 4, 5), (2, 5)), ((0, 4), (4, 5), (5,))])
def test_operands_broadcast_over_c_as_in_numpy(to, shapes):
    """Over the result as the caller sees it: that of a vector has no axis of extent 1 in
    between."""
    a, b, bias = (RNG.integers(-9, 9, shape).astype("f4") for shape in shapes)
    for x in (bias, bias[..., ::-1] if bias.ndim else bias):
        result = cuteblas.matmul(to(a), to(b), epilogue=epilogues.bias(bias=to(x)))
        np.testing.assert_array_equal(host(result), np.matmul(a, b) + x)


@pytest.mark.parametrize("axes, operand", [([(0, 1), (0, 1), (1, 0)], (3,)),
                                           ([(0, 1), (0, 1), (1, 0)], (5, 1)),
                                           ([(0, 2), (2, 0), (0, 2)], (2, 5)),
                                           ([(0, 2), (2, 0), (0, 2)], (3, 1, 1))])
def test_operands_follow_the_axes_of_c(to, axes, operand):
    ranks = 2 if len(operand) < 3 and axes[0] == (0, 1) else 3
    a, b = (RNG.integers(-9, 9, shape).astype("f4")
            for shape in (((3, 4), (4, 5)) if ranks == 2 else ((3, 2, 4), (5, 2, 4))))
    bias = RNG.integers(-9, 9, operand).astype("f4")
    result = cuteblas.matmul(to(a), to(b), axes=axes, epilogue=epilogues.bias(bias=to(bias)))
    np.testing.assert_array_equal(host(result), np.matmul(a, b, axes=axes) + bias)


def test_operands_broadcast_over_an_out_with_more_axes(to):
    a, b, bias = (RNG.integers(-9, 9, shape).astype("f4") for shape in ((3, 4), (4, 5), (2, 1, 5)))
    out = to(np.zeros((2, 3, 5), "f4"))
    cuteblas.matmul(to(a), to(b), out=out, epilogue=epilogues.bias(bias=to(bias)))
    np.testing.assert_array_equal(host(out), a @ b + bias)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5), (3,)), ((3, 4), (4, 1), (3,)),
                                    ((3, 4), (4,), (3, 1)), ((4,), (4, 5), (1, 5)),
                                    ((2, 3, 4), (4,), (2,)), ((4,), (4,), (1,)),
                                    ((3, 4), (4, 5), (1, 3, 5)), ((2, 3, 4), (4, 5), (2, 5))])
def test_operands_that_do_not_broadcast(to, shapes):
    a, b, bias = (np.ones(shape, "f4") for shape in shapes)
    with pytest.raises(
        ValueError,
        match=r"operand 'bias' of epilogue bias has shape .*, which does not broadcast to the result's"
    ):
        cuteblas.matmul(to(a), to(b), epilogue=epilogues.bias(bias=to(bias)))


@pytest.mark.parametrize("strides", [(8, 4), (0, 4), (4, 0), (4, 4), (-8, 4), (8, -4), (0, 0)])
def test_an_out_that_overlaps_itself_is_refused(to, strides):
    """Whichever axes; without an epilogue NumPy takes it, and so does this package. The bytes
    around it stay."""
    memory, x = to(np.full(64, 7, "f4")), to(np.ones((4, 4), "f4"))
    as_strided = np.lib.stride_tricks.as_strided
    if not isinstance(memory, np.ndarray):
        from cupy.lib.stride_tricks import as_strided
    out = as_strided(memory[30:], (4, 4), strides)
    with pytest.raises(
        ValueError,
        match="epilogue relu writes every element of out once, but elements of out share memory"
    ):
        cuteblas.matmul(x, x, out=out, epilogue="relu")
    with pytest.raises(ValueError, match="every element of the output 'pre' once, but elements"):
        cuteblas.matmul(x, x, epilogue=epilogues.gelu_aux(pre=out))
    assert (host(memory) == 7).all()
    assert cuteblas.matmul(x, x, out=out) is out and (host(out) == 4).all()
    touched = 30 + np.unique(np.add.outer(np.arange(4) * (strides[0] // 4),
                                          np.arange(4) * (strides[1] // 4)))
    assert (np.delete(host(memory), touched) == 7).all()


def test_an_out_of_disjoint_elements_is_written(to):
    x, memory = to(np.ones((2, 2), "f4")), to(np.zeros(16, "f4"))
    out = memory.reshape(4, 4)[::3, ::-2]
    assert cuteblas.matmul(x, x, out=out, epilogue="relu") is out and host(memory).sum() == 8


def test_out_of_another_type_order_and_overlap(to):
    a, b = RNG.standard_normal((16, 16)).astype("f4"), RNG.standard_normal((16, 16)).astype("f4")
    want = np.maximum(a.astype("f8") @ b, 0)
    wide, transposed, itself = to(np.full((16, 16), np.nan)), to(np.full((16, 16), np.nan, "f4")).T, to(a.copy())
    for out, x in ((wide, to(a)), (transposed, to(a)), (itself, itself)):
        assert cuteblas.matmul(x, to(b), out=out, epilogue="relu") is out
        close(out, want, 16)


@cuteblas.epilogue
def thirds(acc, *, by=None):
    result = acc / np.float64(3) if by is None else acc * by
    return result, {"same": result}


@pytest.mark.parametrize("kinds, operand", [(("f4", "f8"), None), (("f4", "D"), None),
                                            (("i4", "f8"), None),
                                            (("f4", "f8"), np.full((1, 14), 1 / 3)),
                                            (("f8", "f4"), None), (("f2", "f8"), None),
                                            (("f4", "D"), np.full((1, 14), 1j / 3)),
                                            (("f4", ">f8"), None), (("f4", "g"), None)])
def test_out_of_another_type_gets_what_the_function_computes(to, kinds, operand):
    """The sums have the type of the product, the function computes from them as in NumPy, and that
    is rounded once."""
    source, target = kinds
    a, b = (RNG.integers(-3, 4, s).astype(source) for s in ((20, 9), (9, 14)))
    if target in (">f8", "g") and not isinstance(to(a), np.ndarray):
        pytest.skip("a GPU has no such type")
    out = to(np.zeros((20, 14), target))
    e = thirds() if operand is None else thirds(by=to(operand))
    result, more = cuteblas.matmul(to(a), to(b), out=out, epilogue=e)
    acc = a.astype("f4" if source == "f2" else source) @ b.astype("f4" if source == "f2"
                                                                  else source)
    want = acc / np.float64(3) if operand is None else acc * operand
    assert result is out
    np.testing.assert_array_equal(host(out), want.astype(target))
    assert host(more["same"]).dtype == want.dtype and host(more["same"]).flags.c_contiguous


@pytest.mark.parametrize("shapes", [((1, 3), (3, 1), (1,)), ((1, 3), (3,), ()),
                                    ((3,), (3, 1), (1,)), ((1, 3), (3, 1), (1, 1))])
def test_further_results_where_out_lacks_axes(to, shapes):
    a, b, out = (np.ones(shape, "f") for shape in shapes)
    out = to(out)
    result, more = cuteblas.matmul(to(a), to(b), out=out, epilogue="gelu_aux")
    assert result is out and more["pre"].shape == (1, 1)


def test_mixed_types_are_promoted_as_without(to):
    a, b = RNG.integers(-9, 9, (7, 8)).astype("i2"), RNG.standard_normal((8, 5)).astype("f4")
    result = cuteblas.matmul(to(a), to(b), epilogue=epilogues.clamp(lo=-3.0, hi=3.0))
    assert result.dtype == np.matmul(a, b).dtype
    close(result, np.clip(a @ b.astype("f8"), -3, 3), 8 * 9)


def test_an_out_that_shares_memory_with_an_operand_of_the_epilogue(to):
    """The residual may be the output itself: each element is read before it is written. Shifted
    memory is not."""
    a, b, base = (RNG.standard_normal(s).astype("f4") for s in ((12, 6), (6, 10), (13, 10)))
    want = a.astype("f8") @ b
    memory = to(base.copy())
    cuteblas.matmul(to(a), to(b), out=memory[:12],
                    epilogue=epilogues.residual_add(residual=memory[:12]))
    close(memory[:12], want + base[:12], 6)
    memory = to(base.copy())
    cuteblas.matmul(to(a), to(b), out=memory[1:],
                    epilogue=epilogues.residual_add(residual=memory[:12]))
    close(memory[1:], want + base[:12], 6)


def test_auxiliary_outputs_need_memory_of_their_own():
    a = np.ones((4, 4), "f4")
    bias, out, memory = np.ones((1, 4), "f4"), np.zeros((4, 4), "f4"), np.zeros(32, "f4")
    for name in ("numpy", "emulator"):
        with cuteblas.backend(name):
            for outputs, text in (
                ({"before": out}, "'before' of epilogue observed shares memory with out"),
                ({"total": out[1]}, "'total' of epilogue observed shares memory with out"),
                ({"before": a}, "'before' of epilogue observed shares memory with x1"),
                (
                    {"peak": bias[0]},
                    "'peak' of epilogue observed shares memory with its operand 'bias'"
                ),
                (
                    {"before": memory[:16].reshape(4, 4), "peak": memory[15:19]},
                    "'peak' of epilogue observed shares memory with the output 'before'"
                ),
                (
                    {"total": np.lib.stride_tricks.as_strided(memory, (4,), (0,))},
                    "elements of the output 'total' share memory"
                )
            ):
                with pytest.raises(ValueError, match=text):
                    cuteblas.matmul(a, a, out=out, epilogue=observed(bias=bias, **outputs))
                # also where the result is computed elsewhere
                with pytest.raises(ValueError, match=text):
                    cuteblas.matmul(a, a, out=out.view("i4").view("f4").T,
                                    epilogue=observed(bias=bias, **outputs))


def test_auxiliary_outputs_of_any_alignment_and_byte_order(to):
    a, b, bias = (RNG.standard_normal(s).astype("f4") for s in ((6, 4), (4, 5), (5,)))
    want = cuteblas.matmul(a, b, epilogue=observed(bias=bias))[1]
    for place in (lambda shape: unaligned(to, shape),
                  lambda shape: to(np.zeros(shape, "f4")).T.copy().T):
        given = {name: place(x.shape) for name, x in want.items()}
        more = cuteblas.matmul(to(a), to(b), epilogue=observed(bias=to(bias), **given))[1]
        for name, x in want.items():
            assert more[name] is given[name]
            close(bytewise(more[name]), x, 30)
    if isinstance(to(a), np.ndarray):
        swapped = {name: np.zeros(x.shape, ">f4") for name, x in want.items()}
        cuteblas.matmul(a, b, epilogue=observed(bias=bias, **swapped))
        for name, x in want.items():
            close(swapped[name], x, 30)


def unaligned(to, shape):
    """An array that begins one byte after a multiple of the size of its elements."""
    memory = to(np.zeros(4 * int(np.prod(shape)) + 4, np.uint8))
    if isinstance(memory, np.ndarray):
        return np.ndarray(shape, "f4", memory, 1)
    return type(memory)(shape, np.float32, memory.data + 1)


def bytewise(x):
    """The elements of an array that CuPy cannot read."""
    if isinstance(x, np.ndarray):
        return x
    copied = np.zeros(x.shape, x.dtype, order="F" if x.flags.f_contiguous else "C")
    x.data.copy_to_host(copied.ctypes.data, x.nbytes)
    return copied


def test_the_array_for_a_reduction_of_an_operand_has_its_shape(to):
    a, b = to(np.ones((3, 4, 5), "f4")), to(np.ones((5, 6), "f4"))
    for shape in ((4,), (2, 4), (2, 3, 4)):
        with pytest.raises(
            ValueError,
            match=r"output 'bgrad' of epilogue bgrad_a has shape .* but the output has \(3, 4\)"
        ):
            cuteblas.matmul(a, b, epilogue=epilogues.bgrad_a(bgrad=to(np.zeros(shape, "f4"))))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda a: cuteblas.matmul(a, a, epilogue="relo"), ValueError, "unknown epilogue 'relo'"),
        (lambda a: cuteblas.matmul(a, a, epilogue=observed), TypeError, "needs bias"),
        (
            lambda a: cuteblas.matmul(a, a[:, :1], epilogue=epilogues.bias(bias=np.ones(4, "f4"))),
            ValueError,
            r"bias\[:, None\]"
        ),
        (
            lambda a: cuteblas.matmul(a.astype(object), a, epilogue="relu"),
            TypeError,
            "there are no kernels for object"
        ),
        (
            lambda a: cuteblas.matmul(a, a, epilogue="relu", variant="gemm_huge"),
            ValueError,
            "variant='gemm_huge' names a kernel"
        ),
        (
            lambda a: cuteblas.matmul(a, np.ones((3, 3), "f4"), epilogue="relu"),
            ValueError,
            "mismatch in its core dimension"
        ),
    ]
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(np.ones((4, 4), "f4"))


def test_explain_shows_the_graph_and_where_operands_lie():
    a, bias = np.ones((8, 16), "f4"), np.ones((1, 4), "f4")
    text = cuteblas.explain(a, np.ones((16, 4), "f4"),
                            epilogue=epilogues.bias_relu(bias=bias)).verbose()
    assert "epilogue" in text and "maximum(" in text and "bias (M,N) (8,4):(0,1) float32" in text
