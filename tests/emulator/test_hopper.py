"""TMA, mbarriers and wgmma: what they compute, and how their misuse is reported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import frexp, prod

import ml_dtypes
import numpy as np
import pytest

from cuteblas import emulator
from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import TensorMapSpec

from .kernels import aligned, launch, matrix_map, ptr, scalar, tensor_map

SETUP = """
unsigned long long* bar = cb::shared_memory<unsigned long long>({at});
if (threadIdx.x == 0) {{ cb::mbarrier_init(bar, 1); cb::mbarrier_init_fence(); }}
cb::syncthreads();
"""


def load_box(spec: TensorMapSpec, array: np.ndarray, corner: tuple[int, ...]) -> np.ndarray:
    """The bytes of shared memory after one TMA load at offset 0; what it does not write is zero."""
    nbytes = prod(spec.box) * spec.dtype.bytes
    size = nbytes if spec.swizzle == 0 else nbytes // (spec.box[0]
                                                       * spec.dtype.bytes) * spec.swizzle
    out = np.zeros(size // 4, np.uint32)
    launch(
        SETUP.format(at=size)
        + f"""
        unsigned* s = cb::shared_memory<unsigned>(0);
        unsigned r = 0;
        for (int i = threadIdx.x; i < {size // 4}; i += 32) cb::store_shared<1>(&s[i], &r);
        cb::fence_proxy_async();
        cb::syncthreads();
        if (threadIdx.x == 0) {{
          cb::mbarrier_arrive_expect_tx(bar, {nbytes});
          cb::tma_load(s, &map, bar, {", ".join(map(str, corner))});
        }}
        cb::mbarrier_wait(bar, 0);
        for (int i = threadIdx.x; i < {size // 4}; i += 32) {{
          cb::load_shared<1>(&r, &s[i]);
          cb::store_global<1>(&C[i], &r);
        }}
        """,
        (tensor_map("map", spec.dtype.name), ptr("C", "uint32")),
        ((spec, array), out),
        shared=size + 8,
    )
    return out.view(np.uint8)


def box_of(array: np.ndarray, box: tuple[int, ...], corner: tuple[int, ...]) -> np.ndarray:
    """The box of an array (modes innermost first), zero where it sticks out."""
    result = np.zeros(box[::-1], array.dtype)
    for index in product(*map(range, box[::-1])):
        at = tuple(i + c for i, c in zip(index, corner[::-1], strict=True))
        if all(0 <= i < n for i, n in zip(at, array.shape, strict=True)):
            result[index] = array[at]
    return result


def swizzle(data: np.ndarray, span: int) -> np.ndarray:
    """Where a swizzle of that span puts the bytes of a box that begins at a multiple of its
    pattern."""
    if span == 0:
        return data
    address = np.arange(data.size)
    result = np.zeros_like(data)
    result[address ^ ((address >> 7 & span // 16 - 1) << 4)] = data
    return result


@pytest.mark.parametrize(
    "element, shape, box, corner",
    [
        ("float32", (40,), (8,), (4,)),
        ("float32", (40,), (8,), (-4,)),
        ("float16", (24, 10), (16, 4), (16, 7)),
        ("int8", (48, 5, 3), (32, 2, 2), (-16, -1, 2)),
        ("float64", (6, 3, 4, 2), (2, 2, 3, 2), (4, 1, -1, 0)),
        ("uint8", (32, 3, 2, 2, 3), (16, 2, 2, 1, 2), (16, 2, 1, -1, 2)),
        ("float16", (24, 10), (16, 4), (64, 0)),
    ],
)
def test_tma_loads_boxes_and_fills_with_zeros(
    element: str, shape: tuple[int, ...], box: tuple[int, ...], corner: tuple[int, ...]
) -> None:
    array = aligned(shape[::-1], element)
    array[...] = np.arange(array.size).reshape(array.shape)
    spec = TensorMapSpec(dtype(element), shape,
                         tuple(array.strides[-2::-1]) if len(shape) > 1 else (), box)
    np.testing.assert_array_equal(load_box(spec, array, corner),
                                  box_of(array, box, corner).reshape(-1).view(np.uint8))


@pytest.mark.parametrize("span, inner", [(32, 32), (64, 64), (128, 128), (64, 32), (128, 64),
                                         (128, 48)])
def test_tma_swizzles(span: int, inner: int) -> None:
    """Rows of the box that are shorter than the span still take a whole span each."""
    array = aligned((32, 64), "float16")
    array[...] = np.arange(array.size).reshape(array.shape)
    spec, _ = matrix_map(array, (inner // 2, 32), span)
    rows = np.zeros((32, span // 2), np.float16)
    rows[:, : inner // 2] = box_of(array, spec.box, (8, 4))
    np.testing.assert_array_equal(load_box(spec, array, (8, 4)),
                                  swizzle(rows.reshape(-1).view(np.uint8), span))


STORE = """
unsigned short* s = cb::shared_memory<unsigned short>(0);
for (int i = threadIdx.x; i < 16 * 4; i += 32) { unsigned short r = 100 + i; cb::store_shared<1>(&s[i], &r); }
{fence}
cb::syncthreads();
if (threadIdx.x == 0) {
  cb::tma_store(&map, s, 8, -1);
  {commit}
  {wait}
}
{after}
"""
STORED = {
    "fence": "cb::fence_proxy_async();",
    "commit": "cb::tma_store_commit();",
    "wait": "cb::tma_store_wait_read<0>();",
    "after": "",
}


def store_box(writeable: bool = True, columns: int = 16, **pieces: str) -> np.ndarray:
    statements = STORE
    for name, piece in (STORED | pieces).items():
        statements = statements.replace("{" + name + "}", piece)
    target = aligned((4, 16), "uint16")[:, :columns]
    target[...] = 0
    target.flags.writeable = writeable
    launch(statements, (tensor_map("map", "uint16"),),
           (matrix_map(target, (16, 4), element="uint16"),), shared=128)
    return target


def test_tma_stores_what_lies_inside() -> None:
    want = np.zeros((4, 16), np.uint16)
    want[:3, 8:] = 100 + np.arange(64).reshape(4, 16)[1:, :8]
    np.testing.assert_array_equal(store_box(), want)


def test_tma_stores_over_an_edge_that_cuts_16_bytes() -> None:
    """An H200 writes the rest of the piece too, into what follows the row."""
    with pytest.raises(emulator.TensorMapError,
                       match="rows of 12 elements of 2 bytes are not a multiple of 16 bytes"):
        store_box(columns=12)


def test_tma_stores_need_fences_and_waits() -> None:
    with pytest.raises(emulator.ProxyFenceError,
                       match=r"the TMA store reads .* did not execute fence_proxy_async"):
        store_box(fence="")
    # the writing threads must fence, not the storing one
    with pytest.raises(emulator.ProxyFenceError):
        store_box(fence="cb::syncthreads(); if (threadIdx.x == 0) cb::fence_proxy_async();")
    late = "cb::syncthreads(); if (threadIdx.x > 0) cb::fence_proxy_async(); if (threadIdx.x > 31)"
    with pytest.raises(emulator.ProxyFenceError):  # and before the barrier, not after it
        store_box(fence=late)
    for missing in ("commit", "wait"):
        with pytest.raises(emulator.AsyncCopyError,
                           match="returns while its TMA stores may still read"):
            store_box(**{missing: ""})
    overwrite = "cb::syncthreads(); unsigned short const r = 0; if (threadIdx.x == 9) cb::store_shared<1>(&s[40], &r);"
    store_box(after=overwrite)
    with pytest.raises(emulator.DataRace,
                       match="that the TMA store of thread 0 at line 7 may still read"):
        store_box(wait="",
                  after=overwrite
                  + "cb::syncthreads(); if (threadIdx.x == 0) cb::tma_store_wait_read<0>();")
    with pytest.raises(emulator.ReadOnlyError, match="'map'"):
        store_box(writeable=False)


def test_a_fence_after_the_barrier_comes_too_late() -> None:
    """Looking at the flag lets the other threads run, and fence, before the store; but nothing
    tells the storing thread."""
    with pytest.raises(emulator.ProxyFenceError, match="thread 1 wrote them at line 3"):
        launch(
            """
            unsigned* s = cb::shared_memory<unsigned>(0); unsigned r = threadIdx.x;
            cb::store_shared<1>(&s[threadIdx.x], &r);
            if (threadIdx.x == 0) cb::fence_proxy_async();
            cb::syncthreads();
            if (threadIdx.x > 0) cb::fence_proxy_async();
            else if (cb::load_flag(flag) == 0) cb::tma_store(&map, s, 0);
            """,
            (tensor_map("map", "uint32"), ptr("flag", "uint32")),
            (
                (TensorMapSpec(dtype("uint32"), (32,), (), (32,)), aligned((32,), "uint32")),
                np.zeros(1, np.uint32)
            ),
            shared=128,
        )


LOAD = (
    SETUP.format(at=4096)
    + """
cb::half* s = cb::shared_memory<cb::half>({offset});
{before}
if (threadIdx.x == 0) {
  cb::mbarrier_arrive_expect_tx(bar, {bytes});
  cb::tma_load(s, &map, bar, {corner});
}
{wait}
{after}
"""
)
LOADED = {"offset": "0", "before": "", "bytes": "512", "corner": "0, 0",
          "wait": "cb::mbarrier_wait(bar, 0);", "after": ""}


def load(source: np.ndarray | None = None, span: int = 0, **pieces: str) -> None:
    statements = LOAD
    for name, piece in (LOADED | pieces).items():
        statements = statements.replace("{" + name + "}", piece)
    array = aligned((32, 64), "float16") if source is None else source
    launch(statements, (tensor_map("map"),), (matrix_map(array, (16, 16), span),), shared=4104)


def test_tma_loads_must_be_waited_for_by_whoever_reads() -> None:
    read = "cb::half r; cb::load_shared<1>(&r, &s[threadIdx.x]);"
    load(after=read)
    for wait in ("", "if (threadIdx.x == 0) cb::mbarrier_wait(bar, 0);"):
        with pytest.raises(
            emulator.AsyncCopyError,
            match=r"TMA load at line .* without having waited for the mbarrier at shared offset 4096"
        ):
            load(wait=wait, after=read)
    load(wait="if (threadIdx.x == 0) cb::mbarrier_wait(bar, 0); cb::syncwarp();", after=read)
    with pytest.raises(emulator.AsyncCopyError, match="the block ends without having waited"):
        load(wait="")


def test_tma_loads_count_the_whole_box() -> None:
    load(corner="56, 30")
    with pytest.raises(emulator.MbarrierError, match="12 bytes more than its phase 0 expects"):
        load(bytes="500")
    with pytest.raises(emulator.Deadlock, match="16 bytes are missing"):
        load(bytes="528")


def test_tma_loads_are_refused_where_the_hardware_would_misbehave() -> None:
    with pytest.raises(emulator.TensorMapError, match="must be a multiple of 128"):
        load(offset="64")
    with pytest.raises(emulator.TensorMapError, match="must be a multiple of 256"):
        load(offset="128", span=32)
    with pytest.raises(emulator.SharedOutOfBounds):
        load(offset="3840")
    with pytest.raises(emulator.TensorMapError, match=r"gives 1 coordinates .* of 2 modes"):
        load(corner="0")
    with pytest.raises(
        emulator.TensorMapError,
        match="innermost coordinate of a box is a multiple of 16 bytes, got 4 elements of 2 bytes"
    ):
        load(corner="4, 0")
    with pytest.raises(emulator.TensorMapError, match="not a multiple of 16"):
        load(aligned((33, 64), "float16").reshape(-1)[4 : 4 + 32 * 64].reshape(32, 64))
    spec = TensorMapSpec(dtype("float16"), (64, 33), (128,), (16, 16))
    with pytest.raises(emulator.TensorMapError, match="spans 4224 bytes, but its memory ends 4096"):
        launch("", (tensor_map("map"),), ((spec, aligned((32, 64), "float16")),))


def test_tma_loads_over_ordinary_accesses() -> None:
    write = "cb::half r = {0}; cb::store_shared<1>(&s[threadIdx.x], &r);"
    with pytest.raises((emulator.DataRace, emulator.AsyncCopyError)):
        # whoever comes second in the schedule is told
        load(before=write + "cb::fence_proxy_async();")
    with pytest.raises(emulator.ProxyFenceError, match="the TMA load overwrites"):
        load(before=write + "cb::syncthreads();")
    load(before=write + "cb::fence_proxy_async(); cb::syncthreads();")
    with pytest.raises((emulator.DataRace, emulator.AsyncCopyError)):
        load(
            before=write
            + "cb::fence_proxy_async(); cb::syncthreads(); cb::load_shared<1>(&r, &s[threadIdx.x]);"
        )


def test_initialised_mbarriers_must_be_made_visible_to_tma() -> None:
    with pytest.raises(emulator.ProxyFenceError, match="did not execute mbarrier_init_fence"):
        launch(
            """
            unsigned long long* bar = cb::shared_memory<unsigned long long>(512);
            cb::mbarrier_init(bar, 1);
            cb::tma_load(cb::shared_memory<cb::half>(0), &map, bar, 0, 0);
            """,
            (tensor_map("map"),),
            (matrix_map(aligned((16, 16), "float16"), (16, 16)),),
            threads=1,
            shared=520,
        )


# wgmma on operands that threads write themselves


def place(operand: np.ndarray, major: int, span: int, leading: int, stride: int, start: int,
          size: int) -> np.ndarray:
    """Shared memory that holds an operand (rows, 16), element by element as PTX ISA's canonical
    layouts say."""
    memory = np.zeros(size // 2, operand.dtype)
    unit = max(span, 16)
    for (row, k), value in np.ndenumerate(operand):
        if major == 0:
            at = row % 8 * unit + row // 8 * stride + (k // 8 * (16 if span
                                                                 else leading)) + k % 8 * 2
        else:
            across = unit // 2
            at = (
                row % across * 2
                + row // across * (leading if span else stride)
                + k % 8 * unit
                + k // 8 * (stride if span else leading)
            )
        at += start
        if span:
            at ^= (at >> 7 & span // 16 - 1) << 4
        memory[at // 2] = value
    return memory


MULTIPLY = """
unsigned* s = cb::shared_memory<unsigned>(0);
for (int i = threadIdx.x; i < bytes / 4; i += 128) {
  unsigned r;
  cb::load_global<1>(&r, &memory[i]);
  cb::store_shared<1>(&s[i], &r);
}
{fence}
cb::syncthreads();
float d[{columns} / 2];
for (int i = 0; i < {columns} / 2; ++i) {
  int const row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * (i / 2 % 2);
  int const column = 8 * (i / 4) + 2 * (threadIdx.x % 4) + i % 2;
  cb::load_global<1>(&d[i], &C[row * {columns} + column]);
}
{wgmma_fence}
{wgmma}
{commit}
{early}
{wait}
for (int i = 0; i < {columns} / 2; ++i) {
  int const row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * (i / 2 % 2);
  int const column = 8 * (i / 4) + 2 * (threadIdx.x % 4) + i % 2;
  cb::store_global<1>(&C[row * {columns} + column], &d[i]);
}
"""
MULTIPLIED = {
    "fence": "cb::fence_proxy_async();",
    "wgmma": "cb::wgmma_m64k16<{columns}, {element}, {a_major}, {b_major}>(d, {a}, {b}, accumulate);",
    "wgmma_fence": "cb::wgmma_fence();",
    "commit": "cb::wgmma_commit();",
    "early": "",
    "wait": "cb::wgmma_wait<0>();",
}


def multiply(memory: np.ndarray, c: np.ndarray, a: str, b: str, majors: tuple[int, int] = (0, 0),
             accumulate: int = 1, **pieces: str) -> None:
    """``c += A B^T`` in place, with A and B in that image of shared memory."""
    element = "cb::half" if memory.dtype == np.float16 else "cb::bfloat16"
    names = {"columns": str(c.shape[1]), "element": element, "a_major": str(majors[0]),
             "b_major": str(majors[1]), "a": a, "b": b}
    statements = MULTIPLY
    for name, piece in (MULTIPLIED | pieces | names).items():
        statements = statements.replace("{" + name + "}", piece)
    params = (ptr("memory", "uint32", const=True), ptr("C", "float32"), scalar("bytes"),
              scalar("accumulate"))
    launch(statements, params, (memory.view(np.uint32), c, memory.nbytes, accumulate), threads=128,
           shared=memory.nbytes)


def descriptor(start: int, leading: int, stride: int, span: int) -> str:
    return f"cb::wgmma_descriptor(cb::shared_memory<void>({start}), {leading}, {stride}, {span})"


# (major, span) -> leading and stride offsets of a 64-row operand that leave gaps, so that neither
# may be mistaken for the other.
LAYOUTS = {
    (0, 0): (128, 272),
    (0, 32): (16, 256),
    (0, 64): (16, 1024),
    (0, 128): (16, 2048),
    (1, 0): (2048, 256),
    (1, 32): (1024, 512),
    (1, 64): (2048, 512),
    (1, 128): (4096, 1024),
}


@pytest.mark.parametrize("major, span", LAYOUTS)
@pytest.mark.parametrize("which", ["A", "B"])
def test_wgmma_reads_every_canonical_layout(major: int, span: int, which: str) -> None:
    rng = np.random.default_rng(span + major)
    operands = {name: rng.integers(-8, 9, (64, 16)).astype(np.float16) for name in "AB"}
    leading, stride = LAYOUTS[major, span]
    start = 20480 if which == "B" else 0
    plain = 20480 - start
    image = place(operands[which], major, span, leading, stride, start, 40960)
    image[plain // 2 : plain // 2 + 1024] = place(operands["A" if which == "B" else "B"], 0, 0, 128,
                                                  256, 0, 2048)
    texts = {which: descriptor(start, leading, stride, span),
             "A" if which == "B" else "B": descriptor(plain, 128, 256, 0)}
    c = rng.integers(-9, 9, (64, 64)).astype(np.float32)
    want = c + operands["A"].astype(np.float32) @ operands["B"].astype(np.float32).T
    multiply(image, c, texts["A"], texts["B"], (major, 0) if which == "A" else (0, major))
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("step", range(4))
def test_advanced_descriptors_read_the_next_columns(step: int) -> None:
    operand = np.random.default_rng(step).integers(-8, 9, (64, 64)).astype(np.float16)
    image = swizzle(operand.reshape(-1).view(np.uint8), 128).view(np.float16)
    c = np.zeros((64, 64), np.float32)
    text = f"cb::wgmma_descriptor_advance({descriptor(0, 16, 1024, 128)}, {32 * step})"
    multiply(image, c, text, text)
    part = operand[:, 16 * step : 16 * step + 16].astype(np.float32)
    np.testing.assert_array_equal(c, part @ part.T)


# A of 64 rows, then B, without a swizzle.
PLAIN_A, PLAIN_B = descriptor(0, 128, 256, 0), descriptor(2048, 128, 256, 0)


def plain_image(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([place(x, 0, 0, 128, 256, 0, 32 * len(x)) for x in (a, b)])


def tensor_core(c: float, a: np.ndarray, b: np.ndarray) -> float:
    """One element of a k16 step, in exact arithmetic: align to the largest exponent with 2 extra
    bits, truncate, add, truncate."""
    terms = [(Fraction(float(x)) * Fraction(float(y)), frexp(float(x))[1] + frexp(float(y))[1] - 2)
             for x, y in zip(a, b, strict=True)]
    terms = [(v, e) for v, e in [*terms, (Fraction(float(c)), frexp(float(c))[1] - 1)] if v != 0]
    if not terms:
        return 0.0
    unit = Fraction(2) ** (max(e for _, e in terms) - 25)
    total = sum(int(v / unit) for v, _ in terms) * unit
    if total == 0:
        return 0.0
    last = Fraction(2) ** max(frexp(float(abs(total)))[1] - 24, -149)
    return float(int(total / last) * last)


@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [8, 24])
@pytest.mark.parametrize("spread", [0, 6, 14])
def test_wgmma_adds_as_the_tensor_cores_do(element: type, columns: int, spread: int) -> None:
    rng = np.random.default_rng(spread)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1,
                                                                shape) * (rng.random(shape) < 0.9)

    with np.errstate(over="ignore"):
        a, b = np.clip(random(64, 16), -6e4, 6e4).astype(element), np.clip(random(columns, 16), -6e4, 6e4).astype(element)
    normal = np.frexp(np.abs(np.concatenate([a, b]).astype(float)))[1] > -14
    a[~normal[:64]], b[~normal[64:]] = 0, 0
    c = random(64, columns).astype(np.float32)
    want = np.array([[tensor_core(c[i, j], a[i], b[j]) for j in range(columns)] for i in range(64)],
                    np.float32)
    multiply(plain_image(a, b), c, PLAIN_A, PLAIN_B)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"),
                                   ("uint8", "int8")], ids="-".join)
@pytest.mark.parametrize("columns, accumulate", [(8, 1), (24, 0), (48, 1)])
def test_wgmma_of_bytes_sums_modulo_2_to_the_32(types: tuple[str, str], columns: int,
                                                accumulate: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(0, 256, (rows, 32)).astype(np.uint8).view(t)
            for rows, t in zip((64, columns), types, strict=True))
    a[0], b[0] = np.array(-1).astype(types[0]), np.array(128).astype(types[1])
    c = rng.integers(-(2**31), 2**31, (64, columns)).astype(np.int32)
    c[0] = [2**31 - 1, -(2**31)] * (columns // 2)
    want = (accumulate * c.astype(np.int64)
            + a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    in_c = ", ".join("signed char" if t == "int8" else "unsigned char" for t in types)
    call = f"cb::wgmma_m64k32<{columns}, {in_c}>(reinterpret_cast<int (&)[{columns // 2}]>(d), {{a}}, {{b}}, accumulate);"
    image = plain_image(a.view(np.uint16), b.view(np.uint16))
    multiply(image, c.view(np.float32), PLAIN_A, PLAIN_B, accumulate=accumulate, wgmma=call)
    np.testing.assert_array_equal(c, want)


def test_wgmma_honours_subnormals_infinities_and_nans() -> None:
    a, b = np.zeros((64, 16), np.float16), np.zeros((8, 16), np.float16)
    a[0, 0], b[0, 0] = 2.0**-24, 1
    a[1, 0] = np.inf
    a[2, 3], b[1, 3] = np.nan, 1
    a[3, 0], a[3, 3], b[2, 0], b[2, 3] = np.inf, np.inf, 1, -1
    c = np.zeros((64, 8), np.float32)
    c[4, 0] = np.inf
    multiply(plain_image(a, b), c, PLAIN_A, PLAIN_B)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float32) @ b.astype(np.float32).T
    want[4, 0] = np.inf
    np.testing.assert_array_equal(c, want)
    assert c[0, 0] == 2.0**-24


def hardware_cases() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """A, B, C and whether to accumulate: float16 and bfloat16 in turn, of growing spread, then
    subnormals and arbitrary bits."""
    rng = np.random.default_rng(0)
    for t in range(48):
        element = np.dtype(ml_dtypes.bfloat16 if t % 2 else np.float16)
        spread = [0, 2, 5, 8, 12, 14, 20, 40][t // 2 % 8]
        if t % 2 == 0:
            spread = min(spread, 14)

        def random(shape: tuple[int, int], spread: int = spread,
                   density: float = 0.9 if t % 3 else 0.5) -> np.ndarray:
            return rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape) * (rng.random(shape) < density)

        with np.errstate(over="ignore"):
            a, b = (np.clip(random((64, 16)), -6e4, 6e4).astype(element) for _ in range(2))
        c = (random((64, 64)) * (2.0 ** rng.integers(-10, 4) if t % 4 == 3
                                 else 1)).astype(np.float32)
        if t >= 40:
            bits = rng.integers(0, 65536, (2, 64, 16)).astype(np.uint16)
            if t < 46:
                bits &= 0x807F if t % 2 else 0x83FF
            a, b = bits.view(element)
            if t in (44, 45):
                c[...] = 0
            if t in (42, 43):
                c = (rng.standard_normal((64, 64)) * 1e-44).astype(np.float32)
        yield a, b, c, int(t % 5 != 0)


def test_the_bits_are_those_of_an_h200() -> None:
    """The digest is that of the results of an H200 (driver 580.159) for these operands; NaNs count
    as equal, and so do zeros."""
    digest = hashlib.sha256()
    for a, b, c, accumulate in hardware_cases():
        multiply(plain_image(a, b), c, PLAIN_A, PLAIN_B, accumulate=accumulate)
        c[np.isnan(c)] = np.nan
        c[c == 0] = 0
        digest.update(c.tobytes())
    assert digest.hexdigest() == "8a9d4f737b782fa7fe9d7486d4633e7f66f63532313f29732a66851e1bd47449"


def ones() -> tuple[np.ndarray, np.ndarray]:
    return plain_image(np.ones((64, 16), np.float16),
                       np.ones((8, 16), np.float16)), np.zeros((64, 8), np.float32)


def test_without_accumulation_the_old_value_is_not_read() -> None:
    image, c = ones()
    c[...] = np.nan
    multiply(image, c, PLAIN_A, PLAIN_B, accumulate=0)
    np.testing.assert_array_equal(c, 16)


def test_accumulators_are_not_there_before_the_wait() -> None:
    used = "uses a wgmma accumulator before the wgmma_wait"
    for early in (
        "cb::store_global<1>(C, &d[0]);",
        "d[1] = cb::convert<float>(d[1]);",
        "cb::store_shared<1>(cb::shared_memory<float>(0), &d[0]);",
    ):
        with pytest.raises(emulator.AccumulatorError, match=used):
            multiply(*ones(), PLAIN_A, PLAIN_B, early=early)
    with pytest.raises(emulator.AccumulatorError, match=used):
        multiply(*ones(), PLAIN_A, PLAIN_B, wait="cb::wgmma_wait<1>();")
    with pytest.raises(emulator.AccumulatorError, match=used):
        multiply(*ones(), PLAIN_A, PLAIN_B, commit="")
    with pytest.raises(emulator.AccumulatorError,
                       match="register 2 of a wgmma accumulator was written"):
        multiply(*ones(), PLAIN_A, PLAIN_B, early="d[2] = 0;")
    with pytest.raises(emulator.AccumulatorError, match="returns while a wgmma"):
        multiply(*ones(), PLAIN_A, PLAIN_B, early="if (threadIdx.x == 77) return;")
    again = "cb::wgmma_wait<0>(); {fence} cb::wgmma_m64k16<8, cb::half, 0, 0>(d, "
    again += f"{PLAIN_A}, {PLAIN_B}, 1); cb::wgmma_commit();"
    image, c = ones()
    multiply(image, c, PLAIN_A, PLAIN_B, early=again.replace("{fence}", "cb::wgmma_fence();"))
    np.testing.assert_array_equal(c, 32)
    for pieces in ({"wgmma_fence": ""}, {"early": again.replace("{fence}", "")}):
        with pytest.raises(emulator.AccumulatorError, match="without wgmma_fence"):
            multiply(*ones(), PLAIN_A, PLAIN_B, **pieces)


def test_operands_of_wgmma_need_a_fence_and_stay_until_the_wait() -> None:
    with pytest.raises(emulator.ProxyFenceError, match="the wgmma of warpgroup 0 reads"):
        multiply(*ones(), PLAIN_A, PLAIN_B, fence="")
    overwrite = "unsigned const z = 0; cb::store_shared<1>(&s[threadIdx.x], &z);"
    with pytest.raises(emulator.DataRace,
                       match="the wgmma of warpgroup 0 at line 17 may still read: no wgmma_wait"):
        multiply(*ones(), PLAIN_A, PLAIN_B, early="cb::syncthreads();" + overwrite)
    multiply(*ones(), PLAIN_A, PLAIN_B, early="cb::wgmma_wait<0>(); cb::syncthreads();" + overwrite)


# A from shared memory into the registers of PTX ISA, "Register Fragments for
# wgmma.mma_async.m64nNk16": pairs along K of rows g and g + 8, then of the other half of K. Without
# a swizzle, chunks of 8 elements along K are 128 bytes apart, groups of 8 rows 256.
FROM_REGISTERS = """
unsigned a[4];
for (int i = 0; i < 4; ++i) {
  int const row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * (i % 2), k = 2 * (threadIdx.x % 4) + 8 * (i / 2);
  cb::load_shared<1>(&a[i], &s[(row / 8 * 256 + row % 8 * 16 + k / 8 * 128 + k % 8 * 2) / 4]);
}
{wgmma_fence}
cb::wgmma_m64k16_rs<{columns}, {element}, {b_major}>(d, a, {b}, accumulate);
"""


@pytest.mark.parametrize("element", [np.float16, None])
@pytest.mark.parametrize("columns", [8, 64])
def test_wgmma_with_a_in_registers(element: type | None, columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(-8, 9, (n, 16)).astype(np.float16) for n in (64, columns))
    c = rng.integers(-9, 9, (64, columns)).astype(np.float32)
    want = c + a.astype(np.float32) @ b.astype(np.float32).T
    if element is None:                 # as bfloat16: these integers are the upper halves of floats
        a, b = ((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    multiply(plain_image(a, b), c, "", PLAIN_B, wgmma=FROM_REGISTERS,
             wgmma_fence="cb::wgmma_fence();")
    np.testing.assert_array_equal(c, want)


def test_registers_of_a_stay_until_the_wait() -> None:
    image, c = ones()
    multiply(image, c, "", PLAIN_B, wgmma=FROM_REGISTERS, wait="cb::wgmma_wait<0>(); a[3] = 0;")
    with pytest.raises(
        emulator.AccumulatorError,
        match="registers of A were written between the issue of this wgmma and the wait"
    ):
        multiply(*ones(), "", PLAIN_B, wgmma=FROM_REGISTERS, early="a[3] = 0;")
    with pytest.raises(emulator.AccumulatorError, match="without wgmma_fence"):
        multiply(*ones(), "", PLAIN_B, wgmma=FROM_REGISTERS, wgmma_fence="")


def test_wrong_descriptors() -> None:
    def wrong(a: str, message: str) -> None:
        with pytest.raises((emulator.DescriptorError, emulator.SharedOutOfBounds), match=message):
            multiply(*ones(), a, PLAIN_B)

    wrong(descriptor(8, 128, 256, 0), "begins at a multiple of 16 bytes")
    wrong(descriptor(0, 128, 264, 0), "multiples of 16 bytes")
    wrong(descriptor(0, 128, 256, 16), "swizzle .* is 0, 32, 64 or 128 bytes, got 16")
    wrong(descriptor(256, 16, 1024, 128), "pattern begins at a multiple of 1024")
    wrong(descriptor(0, 128, 512, 0), "reaches shared address")
    wrong(descriptor(4096, 128, 256, 0), "describes 16 bytes at shared offset 4096")
    wrong(f"{PLAIN_A} | 1ull << 49", "bits outside its fields")
    wrong(f"{PLAIN_A} + (threadIdx.x == 5)", "executes a wgmma as one")


def test_a_wgmma_needs_its_whole_warpgroup() -> None:
    with pytest.raises(emulator.Deadlock,
                       match="the wgmma of warpgroup 0: 127 of 128 threads have arrived"):
        multiply(
            *ones(),
            PLAIN_A,
            PLAIN_B,
            early="cb::syncthreads();",
            wgmma_fence="cb::wgmma_fence(); if (threadIdx.x == 1) cb::syncthreads();",
        )
    with pytest.raises(emulator.MisuseError, match="the block has 32 threads"):
        launch("float d[4]; cb::wgmma_m64k16<8, cb::half, 0, 0>(d, 0, 0, 0);")


# The whole machinery

GEMM = """
cb::half* sA = cb::shared_memory<cb::half>(0);
cb::half* sB = cb::shared_memory<cb::half>(8192);
float d[32];
for (int k = 0; k < K / 64; ++k) {
  if (threadIdx.x == 0) {
    cb::mbarrier_arrive_expect_tx(bar, 16384);
    cb::tma_load(sA, &mapA, bar, 64 * k, 0);
    cb::tma_load(sB, &mapB, bar, {b_corner});
  }
  {wait}
  unsigned long long const a = cb::wgmma_descriptor(sA, 16, 1024, {swizzle}), b = cb::wgmma_descriptor(sB, {b_offsets}, 128);
  cb::wgmma_fence();
  for (int step = 0; step < 4; ++step)
    cb::wgmma_m64k16<64, cb::half, 0, {b_major}>(d, cb::wgmma_descriptor_advance(a, 32 * step),
                                                 cb::wgmma_descriptor_advance(b, {b_step} * step), k + step > 0);
  cb::wgmma_commit();
  {finish}
}
cb::wgmma_wait<0>();
for (int i = 0; i < 32; ++i) {
  int const row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * (i / 2 % 2);
  int const column = 8 * (i / 4) + 2 * (threadIdx.x % 4) + i % 2;
  cb::store_global<1>(&C[row * 64 + column], &d[i]);
}
"""
K_MAJOR = {"b_corner": "64 * k, 0", "b_offsets": "16, 1024", "b_major": "0", "b_step": "32"}
N_MAJOR = {"b_corner": "0, 64 * k", "b_offsets": "8192, 1024", "b_major": "1", "b_step": "2048"}
PIPELINE = {"wait": "cb::mbarrier_wait(bar, k & 1);", "swizzle": "128",
            "finish": "cb::wgmma_wait<0>(); cb::syncthreads();"}


def gemm(a: np.ndarray, b: np.ndarray, seed: int | None = None, **pieces: str) -> np.ndarray:
    statements = SETUP.format(at=16384) + GEMM
    for name, piece in (PIPELINE | pieces).items():
        statements = statements.replace("{" + name + "}", piece)
    c = np.full((64, 64), np.nan, np.float32)
    args = (matrix_map(a, (64, 64), 128), matrix_map(b, (64, 64), 128), c, a.shape[1])
    launch(
        statements,
        (tensor_map("mapA"), tensor_map("mapB"), ptr("C", "float32"), scalar("K")),
        args,
        threads=128,
        shared=16392,
        seed=seed,
    )
    return c


def operands(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = aligned((64, k), "float16"), aligned((64, k), "float16")
    a[...], b[...] = rng.integers(-8, 9, a.shape), rng.integers(-8, 9, b.shape)
    return a, b


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("k", [64, 192])
def test_a_product_by_tma_mbarriers_and_wgmma(k: int, seed: int | None) -> None:
    a, b = operands(k)
    want = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(gemm(a, b, seed, **K_MAJOR), want)
    transposed = aligned((k, 64), "float16")
    transposed[...] = b.T
    np.testing.assert_array_equal(gemm(a, transposed, seed, **N_MAJOR), want)


def test_what_can_be_left_out_of_the_product_and_is_noticed() -> None:
    a, b = operands(192)
    with pytest.raises(emulator.AsyncCopyError,
                       match=r"the wgmma of warpgroup 0 reads .* that a TMA load"):
        gemm(a, b, **K_MAJOR, wait="")
    with pytest.raises(
        emulator.DataRace,
        match=r"the TMA load overwrites .* that the wgmma of warpgroup 0 .* may still read"
    ):
        gemm(a, b, **K_MAJOR, finish="")
    with pytest.raises(
        emulator.DescriptorError,
        match=r"with a swizzle of 64 bytes, but the TMA load at line .* wrote them with one of 128"
    ):
        gemm(a, b, **K_MAJOR, swizzle="64")
