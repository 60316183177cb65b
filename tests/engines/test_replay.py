"""Two calls with one key are the same call: what is replayed is what the long way would answer.

CuPy arrays are in host memory and launches are evaluated by the definition. All arrays of a call
are in one arena, of which everything that a call writes is compared; what is allocated for results
has guards around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e5m2

import cuteblas
import cuteblas.linalg
from cuteblas import blas, epilogues, planning
from cuteblas.planning.plan import Plan

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuteblas.engines.replay import cupy as replay_cupy  # noqa: E402
from cuteblas.engines.replay import groups  # noqa: E402
from cuteblas.functions import contractions  # noqa: E402

from ..functions import reference  # noqa: E402
from ..functions.comparisons import outcome  # noqa: E402
from ..functions.host_cupy import installed, on_gpu, on_host  # noqa: E402

PAIRS = 250                             # of calls, for each seed
ROOM = 1 << 15
GUARD = 256
ALLOCATED: list[tuple[np.ndarray, int, int]] = []


def guarded(nbytes: int) -> cupy.cuda.MemoryPointer:
    """Host memory in place of ``cupy.cuda.alloc``, in the middle of bytes that nobody may
    change."""
    buffer = np.full(nbytes + 3 * GUARD, 0xEE, np.uint8)
    start = GUARD + -buffer.ctypes.data % GUARD
    ALLOCATED.append((buffer, start, nbytes))
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(buffer.ctypes.data, buffer.nbytes,
                                                           buffer, 0), start)


def check_guards() -> None:
    """See that nothing around allocated memory was written."""
    for buffer, start, nbytes in ALLOCATED:
        assert (buffer[:start] == 0xEE).all() and (buffer[start + nbytes:] == 0xEE).all(), "written outside of an allocation"
    ALLOCATED.clear()


class Counting(dict):
    """Recorded calls, and how often one was replayed."""

    hits = 0

    def get(self, key: Any, default: Any = None) -> Any:
        """The entry for a key."""
        found = super().get(key, default)
        self.hits += found is not None
        return found


@pytest.fixture(autouse=True)
def on_the_host(by_definition: None) -> Iterator[None]:
    with installed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cupy.cuda, "alloc", guarded)
        calls = Counting()
        for module in (replay_cupy, groups):
            patch.setattr(module, "recorded", calls)
        yield
    ALLOCATED.clear()


# -- calls as data ---------------------------------------------------------------------------------
class Spec(NamedTuple):
    """An array in the arena; the offset is that of the lowest byte."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Call:
    """A call: operands are arrays by description, or whatever else a function takes."""

    function: str
    operands: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)


class Arena:
    """Memory with the same contents for every call that is compared."""

    def __init__(self, seed: int):
        buffer = np.zeros(ROOM + 64, np.uint8)
        start = -buffer.ctypes.data % 64
        self.memory = buffer[start:start + ROOM]
        # numbers about 1, of any type
        self.contents = np.random.default_rng(seed).integers(0x3C, 0x41, ROOM, np.uint8)

    def run(self, call: Call) -> tuple[Any, ...]:
        """What a call comes to: what is written, and the result or the refusal."""
        self.memory[:] = self.contents
        made: dict[Spec, Any] = {}

        def given(x: Any) -> Any:
            if isinstance(x, Spec):
                return made.setdefault(x, self.array(x))
            if isinstance(x, Bound):
                return x.epilogue(**{name: given(y) for name, y in x.operands.items()})
            return [given(y) for y in x] if type(x) is list else x

        operands, named = [given(x) for x in call.operands], {name: given(x)
                                                              for name, x in call.named.items()}
        result, refusal = outcome(FUNCTIONS[call.function], *operands, **named)
        check_guards()
        told = [type(refusal), str(refusal)] if refusal is not None else [self.told(x, made) for x in
                                                                         (result if isinstance(result, list) else [result])]
        return self.memory.tobytes(), *told

    def array(self, x: Spec) -> Any:
        """The array of a description."""
        low = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s < 0 and n)
        return on_gpu(np.ndarray(x.shape, x.dtype, self.memory, x.offset - low, x.strides))

    def told(self, result: Any, made: dict[Spec, Any]) -> Any:
        """A result as data."""
        given = next((spec for spec, x in made.items() if x is result), None)
        if not isinstance(result, cupy.ndarray):
            return type(result), repr(result)
        return given, result.shape, result.strides, result.dtype.char, result.dtype.metadata, on_host(result).tobytes()


class Bound(NamedTuple):
    """An epilogue and its operands."""

    epilogue: Any
    operands: dict[str, Any]


FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(cuteblas, name)
                                            for name in ("matmul", "dot", "inner", "vdot", "outer",
                                                         "kron", "tensordot", "vecdot", "matvec",
                                                         "vecmat", "einsum", "copy",
                                                         "ascontiguousarray", "asfortranarray")}
FUNCTIONS |= {name: getattr(blas, name) for name in ("sgemm", "igemm", "gemm", "gemm_grouped")}
FUNCTIONS["fused"] = cuteblas.matmul

TYPES = [np.dtype(x) for x in ("f4", "f4", "f8", "l", "q", "F", "e", "i1",
                               "?")] + [np.dtype("f4", metadata={"unit": "m"})]
SCALARS = (0, -0.0, 0.0, False, 1, 1.0, True, 1 + 0j, 2, 2.5, -3, 100, 300, 70000, 1e-40, 1e300,
           float("nan"), float("inf"), 2**40, 2**70, np.float32(2), np.float64(2), np.int64(2))


@cuteblas.epilogue
def shifted(acc: Any, *, by: Any, bias: Any = 0) -> Any:
    return acc + by + bias


@cuteblas.epilogue
def chosen(acc: Any, *, mode: Any, bias: Any) -> Any:
    return acc + bias if mode == 1 else acc - bias if mode else acc * bias


def array(random: Random, shape: tuple[int, ...], dtype: np.dtype) -> Spec:
    """An array of a shape with the strides of some order, perhaps padded, reversed or broadcast,
    somewhere."""
    strides, step = [0] * len(shape), dtype.itemsize * random.choice((1, 1, 1, 2))
    for axis in random.sample(range(len(shape)), len(shape)):
        strides[axis] = step * random.choice((1, 1, 1, 1, 1, -1, 0))
        step *= max(shape[axis], 1)
    return Spec(dtype, shape, tuple(strides), 16 * random.randrange(1900))


def drawn(random: Random) -> Call:
    """Some call."""
    m, n, k = (random.choice((1, 2, 3, 4)) for _ in "mnk")
    dtype = random.choice(TYPES)

    def new(*shape: int, kind: np.dtype = dtype) -> Spec:
        return array(random, shape, kind)

    def perhaps(*shape: int) -> dict[str, Any]:
        return random.choice(({}, {"out": None}, {"out": new(*shape)}))

    a, b, v, w, square = new(m, k), new(k, n), new(k), new(m), new(m, m)
    name = random.choice(sorted(FUNCTIONS))
    match name:
        case "matmul":
            return Call(name, (a, b), {**perhaps(m, n),
                                       **random.choice(({}, {"precision": "auto"},
                                                        {"precision": "ieee"}))})
        case "dot":
            return Call(name, random.choice(((a, b), (a, v), (a, 2.0), (a, new()))), perhaps(m, n))
        case "inner":
            return Call(name, (a, new(n, k)), random.choice(({}, {"precision": "ieee"},
                                                             {"precision": "fp16x3"})))
        case "vdot":
            return Call(name, (a, new(m, k)))
        case "outer":
            return Call(name, (v, w), perhaps(k, m))
        case "kron":
            return Call(name, (a, b))
        case "tensordot":
            return Call(name, (a, b), {"axes": random.choice((1, 0, True, ([1], [0]), ((1,), (0,)),
                                                              [[1], [0]], [1, 0], (-1, 0)))})
        case "vecdot":
            return Call(name, (a, v), random.choice((perhaps(m), {"axis": -1}, {"keepdims": True},
                                                     {"keepdims": 1})))
        case "matvec":
            axes = random.choice(([(-2, -1), (-1,), (-1,)], ((-2, -1), (-1,), (-1,)),
                                  [[-2, -1], [-1], [-1]]))
            return Call(name, (a, v), random.choice((perhaps(m), {"axes": axes})))
        case "vecmat":
            return Call(name, (v, b), perhaps(n))
        case "einsum":
            case = random.choice((("ij,jk->ik", a, b), ("ij,jk", a, b), ("ij->j", a), ("ij->", a),
                                  ("ij,ij->ij", a, new(m, k)), ("ij,jk,kl->il", a, b, new(n, m)),
                                  ("ii->i", square), ("ij,->ij", a, new())))
            extents = dict(zip("ijkl", (m, k, n, m), strict=True))
            result = case[0].partition("->")[2] if "->" in case[0] else "ik"
            options: tuple[dict[str, Any], ...] = ({}, {}, {}, {"optimize": True},
                                                   {"optimize": "auto"}, {"optimize": 1},
                                                   {"order": "F"}, {"dtype": "f8"},
                                                   {"casting": "unsafe"})
            return Call(name, case, {**perhaps(*(extents[c] for c in result)),
                                     **random.choice(options)})
        case "copy":
            named = random.choice(({}, {"order": "F"}, {"out": square}, perhaps(m, k)))
            return Call(name, (random.choice((a, square, new(2, m, k))),), named)
        case "ascontiguousarray" | "asfortranarray":
            other = np.dtype({"f": "f8", "d": "f4", "F": "c16"}.get(dtype.char, dtype))
            return Call(name, (a,), random.choice(({}, {"dtype": None}, {"dtype": dtype},
                                                   {"dtype": other}, {"dtype": other})))
        case "fused":
            number = random.choice(SCALARS)
            epilogue = random.choice(
                (
                    "relu",
                    Bound(epilogues.bias, {"bias": new(m, n)}),
                    Bound(epilogues.bias, {"bias": new(1, n)}),
                    Bound(shifted, {"by": number}),
                    Bound(shifted, {"by": number, "bias": new(m, n)}),
                    Bound(shifted, {"by": new(m, n)}),
                    Bound(
                        chosen,
                        {"mode": random.choice((1, True, False, None, "1", 1.0)), "bias": number}
                    )
                )
            )
            return Call(name, (a, b), {"epilogue": epilogue, **perhaps(m, n)})
        case "gemm_grouped":
            count = random.choice((2, 3))
            kind = random.choice(TYPES[:3])
            lists = [[new(*shape, kind=kind) for _ in range(count)]
                     for shape in ((m, k), (k, n), (m, n))]
            out = random.choice(({}, {"out": lists[2]},
                                 {"out": [lists[2][0], *[None] * (count - 1)]}))
            return Call(name, (random.choice((1, 2.0, [2.0] * count)), *lists[:2]), out)
    kind, output = {"sgemm": ("f4", "f4"), "igemm": ("i1", "i4")}.get(
        name, (dtype.str[1:], dtype.str[1:])
    )
    a, b, c = (new(*shape, kind=np.dtype(x)) for shape, x in (((m, k), kind), ((k, n), kind),
                                                              ((m, n), output)))
    trans = {"trans_a": random.choice((0, "N", "n", False, "C", 1)) if m == k else 0}
    named = random.choice(({}, {"out": c}, {"c": c}, {"c": c, "overwrite_c": 1},
                           {"c": c, "overwrite_c": True}, {"c": c, "out": c},
                           {"c": new(m, n, kind=np.dtype(output)), "out": c},
                           {"c": c, "overwrite_c": 0}))
    beta = {"beta": random.choice((1, 2.5, *SCALARS))} if "c" in named else {}
    alpha = random.choice((1, 2, 2.5, *SCALARS, new(kind=np.dtype("f4"))))
    return Call(name, (alpha, a, b), {**named, **beta, **trans})


# -- calls that are almost the same ----------------------------------------------------------------
def moved(random: Random, x: Any) -> Any:
    """An operand that is almost the same."""
    if type(x) is list:
        i = random.randrange(len(x))
        return random.choice(([*x[:i], moved(random, x[i]), *x[i + 1:]], x[:i] + x[i + 1:],
                              tuple(x)))
    if type(x) is tuple:
        return list(x)
    if isinstance(x, Bound):
        if not x.operands:
            return x
        name = random.choice(sorted(x.operands))
        return x._replace(operands={**x.operands, name: moved(random, x.operands[name])})
    if not isinstance(x, Spec):
        return random.choice(SCALARS) if isinstance(x, int | float | complex) else x
    match random.randrange(6):
        case 0:
            return x._replace(dtype=random.choice([t for t in TYPES
                                                   if t.itemsize == x.dtype.itemsize] or [x.dtype]))
        case 1:
            return x._replace(offset=x.offset + random.choice((1, 2, 4, 8, 16)))
        case 2:
            return x._replace(offset=16 * random.randrange(1900))
        case 3:
            return x._replace(strides=tuple(s if n > 1 else s + x.dtype.itemsize
                                            for n, s in zip(x.shape, x.strides, strict=True)))
        case 4:
            axes = random.sample(range(len(x.shape)), len(x.shape))
            return x._replace(shape=tuple(x.shape[i] for i in axes),
                              strides=tuple(x.strides[i] for i in axes))
    return x


def altered(random: Random, call: Call) -> Call:
    """A call that is almost the same, or the same on other memory."""
    operands, named = list(call.operands), dict(call.named)
    arrays = [i for i, x in enumerate(operands) if isinstance(x, Spec | list)]
    match random.randrange(8):
        case 0 if named.get("out") is not None:
            operands.append(named.pop("out"))                       # a result becomes an operand
        case 1 if len(operands) > 1 and isinstance(operands[-1], Spec):
            named["out"] = operands.pop()                           # and the other way round
        case 2 if isinstance(named.get("out"), Spec):
            del named["out"]
        case 3 if isinstance(named.get("out"), Spec):               # over an operand, or nearly
            near = random.choice([x for x in operands if isinstance(x, Spec)] or [named["out"]])
            named["out"] = named["out"]._replace(offset=near.offset + random.choice((0, 4, 16, 64)))
        case 4 if named:
            name = random.choice(sorted(named))
            named[name] = moved(random, named[name])
        case 5 if named:
            name = random.choice(sorted(named))
            if type(named[name]) in (int, bool, float):
                named[name] = random.choice((int, bool, float))(0 if named[name] != named[name]
                                                                else named[name] == 1)
        case 6:
            operands[0] = moved(random, operands[0])
        case _ if arrays:
            i = random.choice(arrays)
            operands[i] = moved(random, operands[i])
    return replace(call, operands=tuple(operands), named=named)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore")
def test_two_calls_with_one_key_are_the_same_call(seed: int) -> None:
    random, arena = Random(seed), Arena(seed)
    answered: dict[str, int] = dict.fromkeys(FUNCTIONS, 0)
    for _ in range(PAIRS):
        first = drawn(random)
        second = first
        for _again in range(random.choice((0, 1, 1, 1, 2))):
            second = altered(random, second)
        forget()
        arena.run(first)
        before = replay_cupy.recorded.hits
        replayed = arena.run(second)
        if replay_cupy.recorded.hits == before:
            continue
        forget()
        assert arena.run(second) == replayed, f"after {first}, {second} is another call"
        answered[second.function] += 1
        reference.LAUNCHED.clear()
    assert sum(answered.values()) > PAIRS // 10, answered


def forget() -> None:
    """Let every call go the long way."""
    replay_cupy.forget()


def test_an_operand_is_not_taken_for_out() -> None:
    a, b, c = (on_gpu(np.full((4, 4), x, "f4")) for x in (1, 2, 3))
    assert cuteblas.einsum("ij,jk->ik", a, b, out=c) is c
    with pytest.raises(ValueError, match="einstein sum"):
        cuteblas.einsum("ij,jk->ik", a, b, c)
    assert (on_host(c) == 8).all()


@pytest.mark.parametrize("call", [cuteblas.ascontiguousarray, cuteblas.asfortranarray])
@pytest.mark.parametrize("shape", [(), (5,), (509,), (3, 4), (263, 2)])
def test_casts_are_replayed(call: Callable[..., Any], shape: tuple[int, ...]) -> None:
    for source, target in (("f4", "f8"), ("f8", "f4"), ("F", "D"), ("f4", "?"), ("f4", bfloat16),
                           (float8_e5m2, "f2")):
        x, y = (np.arange(n, n + np.prod(shape)).reshape(shape).astype(source) for n in (0, 7))
        cuteblas.reset_stats()
        for again, given in enumerate((x, y)):
            before = replay_cupy.recorded.hits
            result = call(on_gpu(given), dtype=target)
            assert replay_cupy.recorded.hits == before + again
            assert (result.dtype, result.shape) == (np.dtype(target), shape or (1,))
            np.testing.assert_array_equal(on_host(result),
                                          given.reshape(shape or (1,)).astype(target))
        counted, = cuteblas.stats()[call.__name__]["calls"].items()
        assert counted == (f"changes {x.dtype} to {np.dtype(target)}", 2)


def test_a_cast_that_loses_something_warns_every_time() -> None:
    x = on_gpu(np.ones(3, "D"))
    for _ in range(3):
        with pytest.warns(np.exceptions.ComplexWarning):
            cuteblas.ascontiguousarray(x, dtype="f4")


def test_a_cast_to_a_type_that_is_not_numpy_s_own_is_not_replayed() -> None:
    meters, x = np.dtype("f4", metadata={"unit": "m"}), on_gpu(np.ones(3, "f8"))
    for dtype in (np.dtype("f4"), meters, np.dtype("f4")):
        assert cuteblas.ascontiguousarray(x, dtype=dtype).dtype is dtype
    with pytest.raises(ValueError, match="changes float64 to float32"):
        cuteblas.ascontiguousarray(x, dtype="f4", variant="tma_copy")


@pytest.mark.parametrize("extent", [5, 509, 1021])
def test_products_of_elements_are_replayed(extent: int) -> None:
    """In two parts where no row divides them."""
    for values in (1, 5):
        x = np.arange(values, extent + values, dtype="f4")
        before = replay_cupy.recorded.hits
        np.testing.assert_array_equal(on_host(cuteblas.einsum("i,i->i", on_gpu(x), on_gpu(2 * x))),
                                      2 * x * x)
        assert replay_cupy.recorded.hits == before + (values == 5)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dtype", ["f4", "f8", "F", "D"])
@pytest.mark.parametrize("subscripts", ["ij,i->i", "ij,jk->j", "ij,j->", "ij,k->i", "ij,jk->ik",
                                        "ijk,k->i"])
def test_sums_over_an_index_of_one_operand_alone_are_replayed(monkeypatch: pytest.MonkeyPatch,
                                                              subscripts: str, dtype: str,
                                                              first: bool) -> None:
    if first:
        monkeypatch.setattr(contractions, "_MOST_AT_ONCE", 0)
        monkeypatch.setattr(contractions, "_MOST_OF_ELEMENTS", 0)
    for values in (1, 5):
        pair = [np.arange(values, 3**len(term) + values).reshape((3,) * len(term)).astype(dtype)
                for term in subscripts.partition("->")[0].split(",")]
        before = replay_cupy.recorded.hits
        result = on_host(cuteblas.einsum(subscripts, *map(on_gpu, pair)))
        assert replay_cupy.recorded.hits == before + (values == 5)
        np.testing.assert_array_equal(result, np.einsum(subscripts, *pair))


def test_a_number_that_its_type_does_not_hold_is_refused_every_time() -> None:
    x = on_gpu(np.ones((2, 2), "i1"))
    for by, result in ((3, 5), (100, 102), (300, None), (2, 4), (-129, None), (2**70, None)):
        if result is None:
            with pytest.raises(
                OverflowError,
                match=f"operand 'by' of epilogue shifted is {by}, which is out of bounds for int8"
            ):
                cuteblas.matmul(x, x, epilogue=shifted(by=by))
        else:
            assert (on_host(cuteblas.matmul(x, x, epilogue=shifted(by=by))) == result).all()


def test_equal_types_that_are_not_the_same() -> None:
    meters = np.dtype("f4", metadata={"unit": "m"})
    for dtype in (np.dtype("f4"), meters, np.dtype("f4")):
        assert cuteblas.copy(on_gpu(np.ones((2, 3), dtype))).dtype is dtype
    for char in "lql":
        x = on_gpu(np.ones((2, 2), char))
        assert cuteblas.dot(x, x).dtype.char == char


EXTENTS = (1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 65)


def unwritten(random: Random, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array in any order, padded, sliced, reversed, or at any address of an element, of which
    nobody looks at the elements."""
    *batch, rows, columns = (1,) * (2 - len(shape)) + shape
    order = random.choice("CFCFPSN")
    step = 2 if order == "S" else 1
    stored = (*batch, columns, rows) if order == "F" else (*batch, rows,
                                                           step * columns + (order == "P")
                                                           * random.choice((1, 3, 8)))
    offset, kind = random.choice((0, 0, 0, 1, 3)), np.dtype(dtype)
    x = np.zeros(int(np.prod(stored)) + offset, kind)[offset:].reshape(stored)
    x = x.swapaxes(-1, -2) if order == "F" else x[..., :step * columns:step]
    return on_gpu((x[..., ::-1] if order == "N" else x).reshape(shape) if len(shape) < 2
                  else x[..., ::-1] if order == "N" else x)


def product_of(random: Random) -> Callable[[], Any]:
    """A random product of arrays of any kind."""
    types = "efdFDefbiqB?"
    first = random.choice(types)
    second = first if random.random() < 0.85 else random.choice("fdFD")
    m, n, k = (random.choice(EXTENTS) if random.random() < 0.7 else random.randint(1, 100)
               for _ in range(3))
    batch = random.choice(((), (), (), (3,), (2, 3)))
    names = ("matmul",) * 6 + ("dot", "inner", "tensordot", "einsum", "vecdot", "matvec", "vecmat",
                               "gemm", "gemm", "gemv")
    name = random.choice(names)
    function = getattr(cuteblas, name, None)
    match name:
        case "gemm" | "gemv" if second == first and first in "efdFDb" and (name == "gemm" or first in "fdFD"):
            k, sums = random.choice((k, k, 0)), {"e": "f", "b": "i"}.get(first, first)
            a, b = unwritten(random, (m, k), first), unwritten(random, (k, n), first)
            alpha, beta = (random.choice((1, 2, unwritten(random, (), sums))) for _ in range(2))
            if name == "gemm":
                c, overwrite = unwritten(random, (m, n),
                                         "i" if first == "b" else first), random.choice((0, 1))
                return lambda: blas.gemm(alpha, a, b, beta, c, overwrite_c=overwrite)
            routine, y = getattr(blas, {"f": "s", "d": "d", "F": "c", "D": "z"}[first]
                                 + "gemv"), unwritten(random, (m,), first)
            vector = unwritten(random, (k,), first)
            return lambda: routine(alpha, a, vector, beta, y, overwrite_y=1)
        case "inner" | "vecdot" | "matvec" | "vecmat":
            shapes = {"inner": ((*batch, m, k), (n, k)), "vecdot": ((*batch, m, k), (m, k)),
                      "matvec": ((*batch, m, k), (*batch, k)),
                      "vecmat": ((*batch, k), (*batch, k, n))}[name]
        case "einsum":
            shapes, subscripts = ((m, k), (k, n)), random.choice(("ij,jk->ik", "ij,jk->ki",
                                                                  "ij,jk->i", "ij,jk->k",
                                                                  "ij,jk->"))
            a, b = (unwritten(random, shape, kind)
                    for shape, kind in zip(shapes, (first, second), strict=True))
            return lambda: cuteblas.einsum(subscripts, a, b)
        case "tensordot":
            a, b = unwritten(random, (*batch, m, k), first), unwritten(random, (k, n), second)
            return lambda: cuteblas.tensordot(a, b, 1)
        case _:
            function = cuteblas.dot if name == "dot" else cuteblas.matmul
            shapes = random.choice((((*batch, m, k), (*batch, k, n)),) * 4
                                   + (((*batch, m, k), (k, n)), ((*batch, m, k), (k,)),
                                      ((k,), (k, n)), ((k,), (k,)), ((1, m, k), (3, k, n))))
    a, b = (unwritten(random, shape, kind) for shape, kind in zip(shapes, (first, second),
                                                                  strict=True))
    if function is not cuteblas.matmul or random.random() < 0.5:
        return lambda: function(a, b)
    result = function(a, b)
    out = unwritten(random, result.shape, np.result_type(result.dtype, random.choice((first, "D"))))
    return lambda: function(a, b, out=out)


@pytest.mark.filterwarnings("ignore")
def test_no_product_is_planned_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 random ones; what they would launch does not matter, so that plans are empty."""
    def planned(problem: Any, device: Any) -> Plan:
        return Plan(problem, device, "nothing", None, (), seconds=0.0)

    for name in ("gemm", "copy", "reduction", "contraction"):
        monkeypatch.setattr(planning, f"plan_{name}", planned)
    monkeypatch.setattr("cuteblas.runtime.executor",
                        lambda plan: SimpleNamespace(launch=lambda *_: None))
    monkeypatch.setattr("cuteblas.engines.cuda.Cuda.multiply", lambda *_: None)
    random = Random(23)
    for number in range(500):
        again = product_of(random)
        again()
        before = replay_cupy.recorded.hits
        again()
        assert replay_cupy.recorded.hits == before + 1, f"product {number} went the long way twice"
        ALLOCATED.clear()


@cuteblas.epilogue
def with_attribute(acc: Any) -> Any:
    return acc * with_attribute.factor


def test_what_an_epilogue_reads_is_part_of_the_key() -> None:
    x = on_gpu(np.ones((2, 2), "f4"))
    for factor in (2.0, 2.0, 3.0, 2.0):
        with_attribute.factor = factor
        assert (on_host(cuteblas.matmul(x, x, epilogue=with_attribute)) == 2 * factor).all()


def test_a_launch_with_a_number_is_not_replayed_without_it() -> None:
    """A sum along a stride of 0 may be a product whose result is doubled."""
    x, y = on_gpu(np.ones((3, 4), "f4")), on_gpu(np.broadcast_to(np.float32(3), (3, 4)))
    for call, want in ((lambda: cuteblas.vecdot(x, y), np.full(3, 12)),
                       (lambda: cuteblas.einsum("ij,ij->", x, y), 36),
                       (lambda: cuteblas.inner(x, y[0], precision="fp16x3"), np.full(3, 12))):
        for _ in range(3):
            np.testing.assert_array_equal(on_host(call()), want)
