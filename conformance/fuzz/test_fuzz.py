"""The fuzzer itself: broken functions are found and shrunk, calls are data, crashes and hangs are
known by their call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import cuteblas

from . import sides, worker
from .__main__ import main
from .calls import Call, Code, Memory, Operand, Program, View, from_json, to_json
from .compare import compare
from .generate import program
from .registry import FUNCTIONS
from .report import python_of
from .run import perform
from .shrink import shrunk, tidied
from .sides import POOLS, Reference, Side, side, why_unavailable

CALLS = 400


class Broken(Side):
    """NumPy's backend with one function replaced."""

    def __init__(self, name, function):
        super().__init__()
        self.functions[name] = function


def found(answers, function, calls=CALLS):
    """The first program with a fault and the fault, within some calls."""
    count = 0
    for seed in range(10**9, 10**9 + calls):
        made = program(seed, POOLS["numpy"], function)
        for number, call in enumerate(made.calls):
            count += 1
            fault = compare(call, answers)
            if fault is not None:
                return replace(made, calls=made.calls[:number + 1]), fault
            if count >= calls:
                return None, None
    return None, None


def of_array(change):
    """``matmul`` whose new results are changed."""
    def broken(*arguments, **keywords):
        result = cuteblas.matmul(*arguments, **keywords)
        fresh = keywords.get("out") is None and len(arguments) == 2
        return change(result) if fresh and type(result) is np.ndarray and result.size else result

    return broken


def one_element_off(x):
    if x.dtype.kind in "fc":
        x[(-1,) * x.ndim] *= 1.001
    return x


def replaced(x, where):
    if x.dtype.kind == "f":
        x[where(x)] = 3
    return x


def overwriting(*arguments, **keywords):
    result = cuteblas.matmul(*arguments, **keywords)
    out = keywords.get("out")
    if isinstance(out,
                  np.ndarray) and out.ndim == 2 and out.dtype.kind == "f" and out.base is not None:
        address = out.__array_interface__["data"][0] + out.nbytes
        memory = out.base
        offset = address - memory.__array_interface__["data"][0]
        if 0 <= offset < memory.nbytes and out.flags.c_contiguous and memory.dtype == np.uint8:
            memory[offset] ^= 1
    return result


def input_overwritten(a, b, *arguments, **keywords):
    result = cuteblas.matmul(a, b, *arguments, **keywords)
    if isinstance(a, np.ndarray) and a.flags.writeable and a.size and a.dtype.kind == "f" and not keywords:
        a[(0,) * a.ndim] += 1
    return result


MUTATIONS = {
    "dtype": of_array(lambda x: x.astype("f8") if x.dtype == np.float32 else x),
    "values": of_array(one_element_off),
    "strides": of_array(lambda x: np.asfortranarray(x) if x.ndim == 2 else x),
    "shape": of_array(lambda x: x[None]),
    "type": lambda *arguments, **keywords: np.asarray(cuteblas.matmul(*arguments, **keywords)),
    "memory": overwriting,
    "input": input_overwritten,
    "identity": lambda *arguments, **keywords: np.copy(
        cuteblas.matmul(*arguments, **keywords), "K"
    ),
    "nan lost": of_array(lambda x: replaced(x, np.isnan)),
    "infinity lost": of_array(lambda x: replaced(x, np.isinf)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_functions_are_found_and_shrunk(name):
    answers = Broken("matmul", MUTATIONS[name])
    made, fault = found(answers, "matmul")
    assert made is not None, "not found"

    def fails(candidate):
        again = compare(candidate.calls[-1], answers)
        return again is not None and again.what == fault.what

    simplest = shrunk(made, lambda candidates: next(filter(fails, candidates), None), 5.0)
    assert len(simplest.calls) == 1
    assert sum(memory.count for memory in simplest.calls[0].memories) <= 24, python_of(
        simplest, "numpy"
    )
    expected = {"input": ("memory",), "nan lost": ("values",), "infinity lost": ("values",),
                "type": ("type", "identity")}
    assert fault.what in expected.get(name, (name,))


def test_exceptions_are_compared():
    def refusing(*arguments, **keywords):
        try:
            return cuteblas.einsum(*arguments, **keywords)
        except ValueError as refusal:
            raise RuntimeError("something else") from refusal

    assert found(Broken("einsum", refusing), "einsum")[1].what == "exception"


def test_answers_to_wrong_calls_are_found():
    def answering(a, b, *arguments, **keywords):
        try:
            return cuteblas.inner(a, b, *arguments, **keywords)
        except (TypeError, ValueError):
            return np.zeros(3)

    assert found(Broken("inner", answering), "inner")[1].what == "acceptance"


def test_wrong_replays_are_found():
    """A function that answers by the shapes it saw first: two calls are needed, and no more are
    left."""
    class Remembering(Broken):
        def __init__(self):
            seen = {}

            def remembered(*arguments, **keywords):
                result = cuteblas.outer(*arguments, **keywords)
                return result if keywords or len(arguments) > 2 else result.astype(seen.setdefault(result.shape, result.dtype))

            super().__init__("outer", remembered)

    def fails(candidate):
        fresh = Remembering()
        return "dtype" in [fault.what for call in candidate.calls
                           if (fault := compare(call, fresh))]

    made = next(p for p in (program(seed, POOLS["numpy"], "outer") for seed in range(2000))
                if fails(p))
    assert len(shrunk(made, lambda candidates: next(filter(fails, candidates), None),
                      5.0).calls) == 2


def test_programs_are_data():
    for seed in range(300):
        made = program(seed, POOLS["numpy"])
        assert from_json(to_json(made)) == made
        assert program(seed, POOLS["numpy"]) == made
        again = tidied(made)
        assert from_json(to_json(again)) == again


def test_every_function_answers_most_calls():
    """Generators make calls that NumPy takes; what is refused everywhere tests little."""
    answers = Reference()
    for name in FUNCTIONS:
        calls = [call for seed in range(60) for call in program(seed, POOLS["numpy"], name).calls]
        taken = sum(perform(call, answers).error is None for call in calls)
        assert taken > len(calls) / (8 if "cuda" in FUNCTIONS[name].left_out else 2), name


def test_reproducers_run_alone(tmp_path):
    """What is printed is a whole program that calls as the fuzzer did."""
    for seed, name in ((3, "matmul"), (4, "einsum"), (5, "copy"), (11, "linalg.multi_dot")):
        made = tidied(Program(program(seed, POOLS["emulator"], name).calls[:1]))
        if any(memory.count > 200 for memory in made.calls[0].memories):
            continue
        outcome = perform(made.calls[0], Reference())
        ran = subprocess.run([sys.executable, "-c", python_of(made, "numpy")], capture_output=True,
                             text=True, check=False)
        assert (ran.returncode == 0) == (outcome.error is None), ran.stderr


def call_of(function, *shapes):
    views = tuple(View(i, "<f8", shape, tuple(8 * int(np.prod(shape[j + 1:]))
                                              for j in range(len(shape))))
                  for i, shape in enumerate(shapes))
    memories = tuple(Memory("<f8", int(np.prod(shape))) for shape in shapes)
    return Call(function, tuple(Operand(i) for i in range(len(shapes))), (), views, memories)


@pytest.mark.parametrize("ending, what", [(os.abort, "crash"), (lambda: os._exit(3), "crash"),
                                          (lambda: time.sleep(60), "hang")])
def test_crashes_and_hangs_are_known_by_their_call(monkeypatch, ending, what):
    def dying(*arguments, **keywords):
        return ending()

    monkeypatch.setitem(FUNCTIONS, "inner", replace(FUNCTIONS["inner"], ours=dying))
    program_of_it = Program((call_of("outer", (2,), (3,)), call_of("inner", (2,), (2,))))
    assert worker.attempt([program_of_it], "numpy", 2.0).what == what
    assert worker.attempt([Program(program_of_it.calls[:1])], "numpy", 60.0) is None
    team = worker.Team("numpy", 0, 1, 2, time.monotonic() + 60, 1.0, "inner")
    found = []
    while team and not found:
        found += team.next(0.2)
    team.end()
    assert found[0].fault.what == what and found[0].program.calls[-1].function == "inner"


FROM_NOTHING = """
from conformance.fuzz import worker
from conformance.fuzz.__main__ import main
from conformance.fuzz.calls import Call, Program
from conformance.fuzz.generate import program
from conformance.fuzz.sides import POOLS

worker.METHODS[{backend!r}] = worker.METHODS["cuda"]
right, wrong = program(1, POOLS["numpy"], "outer"), Program((Call("nothing", ()),))
assert worker.attempt([right], {backend!r}) is None
fault = worker.attempt([right, wrong], {backend!r})
assert fault.what == "error" and "KeyError: 'nothing'" in fault.detail, fault
assert worker.first_failing(iter([right] * 3 + [wrong] + [right]), {backend!r}, "error") == wrong
assert worker.first_failing(iter([right] * 3), {backend!r}, "error") is None
assert worker.first_failing(iter([wrong]), {backend!r}, "error", end=0.0) is None
assert main(["--backend", {backend!r}, "--calls", "200", "--processes", "2", "--seed", "5"]) == 0
"""


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_processes_that_inherit_nothing(backend):
    """As on a GPU: a child of a process that has used CUDA could not use it."""
    if reason := why_unavailable(backend):
        pytest.skip(reason)
    assert worker.METHODS == {"cuda": "forkserver", "cuda-host": "forkserver"}
    ran = subprocess.run([sys.executable, "-c", FROM_NOTHING.format(backend=backend)],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"calls on the backend {backend}" in ran.stdout and "outer" in ran.stdout


def test_what_workers_import_leaves_cuda_alone():
    code = "import sys, conformance.fuzz.worker; print([x for x in sys.modules if x.startswith(('cupy', 'cuda'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout == "[]\n"


def test_workers_that_cannot_work(monkeypatch, capsys):
    """The command ends: another worker would fare no better."""
    def nothing(self):
        raise RuntimeError("no kernels here")

    monkeypatch.setattr(Side, "ready", nothing)
    assert main(["--calls", "10"]) == 2
    assert "RuntimeError: no kernels here" in capsys.readouterr().err


def test_many_mismatches_end_in_time(monkeypatch, capsys):
    """Shrinking stops soon after the given time, however much was found; the rest is printed as it
    is."""
    def failing(*arguments, **keywords):
        time.sleep(0.02)
        raise RuntimeError("".join(chr(97 + int(digit)) for digit in str(time.monotonic_ns())))

    for name in FUNCTIONS:
        monkeypatch.setitem(FUNCTIONS, name, replace(FUNCTIONS[name], ours=failing))
    monkeypatch.setitem(main.__globals__, "_LAST", 1.0)
    began = time.monotonic()
    assert main(["--seconds", "3", "--shrink", "1", "--processes", "2"]) == 1
    assert time.monotonic() - began < 8
    printed = capsys.readouterr().out
    assert printed.count("=== ") > 50 and "not shrunk: the time was over" in printed and "import numpy as np" in printed


def test_the_command(capsys):
    assert main(["--calls", "300", "--function", "matmul", "--seed", "5"]) == 0
    assert "calls on the backend numpy" in capsys.readouterr().out
    assert main(["--replay", "3", "--seed", "5"]) == 0
    assert "as NumPy" in capsys.readouterr().out


def test_a_mismatch_is_printed_and_ends_with_1(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(FUNCTIONS, "matmul", replace(FUNCTIONS["matmul"], ours=MUTATIONS["values"]))
    assert main(["--calls", "400", "--function", "matmul", "--seed", "5", "--shrink", "2"]) == 1
    printed = capsys.readouterr().out
    assert "cuteblas.matmul(" in printed and "import numpy as np" in printed
    line = next(line for line in printed.splitlines() if line.startswith("# {"))
    (tmp_path / "found").write_text(line, encoding="utf-8")
    assert main(["--replay", str(tmp_path / "found")]) == 1


@pytest.mark.parametrize("backend", ["numpy", "definition", "host"])
def test_a_short_run(backend):
    """Backends that need no compiler answer as NumPy."""
    if reason := why_unavailable(backend):
        pytest.skip(reason)
    answers = side(backend)
    with answers.ready():
        for seed in range(150):
            for call in program(seed, POOLS[backend]).calls:
                assert compare(call, answers) is None, python_of(Program((call,)), backend)


def test_bounds_are_narrow():
    """A relative error of 2^-20 in one element of a float32 product of ones is seen."""
    call = replace(call_of("matmul", (4, 4), (4, 4)), memories=(Memory("<f8", 16, "ones"),) * 2)
    narrow = replace(call, views=tuple(replace(v, dtype="<f4", strides=(16, 4))
                                       for v in call.views),
                     memories=(Memory("<f4", 16, "ones"),) * 2)

    def off(a, b):
        result = cuteblas.matmul(a, b)
        result[1, 2] += 4 * 2.0**-20
        return result

    assert compare(narrow, Broken("matmul", off)).what == "values"
    assert Code("1") != Operand(1)


@pytest.mark.parametrize(("values", "power", "by", "seen"),
                         [((2.0, 1.0, 1.0, 3.0), "-1", 1e-6, False),
                          ((2.0, 1.0, 1.0, 3.0), "-1", 1e-3, True),
                          ((2.0, 1.0, 1.0, 3.0), "-3", 1e-2, True),
                          ((1.0, 1.0, 1.0, 1.0 + 2.0**-23), "-1", 1.0, False),
                          ((2.0, 1.0, 1.0, 3.0e38), "2", 1.0, False)])
def test_bounds_of_powers(values, power, by, seen):
    """An inverse is known as well as its condition allows; large numbers have a bound, too."""
    call = call_of("linalg.matrix_power", (2, 2))
    memory = replace(call.memories[0], dtype="<f4", count=4, values=tuple(map(str, values)))
    call = replace(call, arguments=(*call.arguments, Code(power)), memories=(memory,),
                   views=(replace(call.views[0], dtype="<f4", strides=(8, 4)),))

    def off(a, n):
        result = np.linalg.matrix_power(a, n)
        result[1, 1] *= 1 + by
        return result

    fault = compare(call, Broken("linalg.matrix_power", off))
    assert (fault is not None and fault.what == "values") == seen, fault


def test_backends_that_cannot_work_here(monkeypatch, capsys):
    monkeypatch.setattr("cuteblas.runtime.why_unavailable", lambda: "none was asked for")
    monkeypatch.setattr(sides, "find_spec", lambda name: name)
    assert main(["--backend", "cuda"]) == 2
    assert capsys.readouterr() == ("", "--backend cuda cannot run here: none was asked for\n")
    monkeypatch.setattr(sides, "find_spec", lambda name: None)
    assert main(["--backend", "host"]) == 2 and "CuPy is not installed" in capsys.readouterr().err
