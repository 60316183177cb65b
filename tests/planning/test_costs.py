"""The numbers that planners estimate with."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from cuteblas.planning import H200, CopyProblem, GemmProblem, Operand, plan_gemm
from cuteblas.planning.copy.dispatch import copy_alternatives
from cuteblas.planning.cost import RANGES, CostError, costs_from, costs_of, default_costs, written
from cuteblas.planning.cost.fit import Measured, fit, regrets
from cuteblas.planning.cost.work import Work, worth
from cuteblas.planning.gemm import dispatch
from cuteblas.planning.gemm.dispatch import gemm_alternatives, gemm_choice
from cuteblas.planning.gemm.family import Choice, Family, Made
from cuteblas.planning.gemm.simt import SIMT, plan_simt
from cuteblas.planning.gemm.split import GUARDED
from cuteblas.planning.problem import DEVICES, is_measured

UNIT, INT32, BOOL = (f"fused multiply-adds{of}: share of rate"
                     for of in ("", " of int32", " of bool"))


def problem(dtype, m, n, k, order_a="N", order_b="N"):
    a, b = Operand(dtype, (k, 1) if order_a == "N" else (1, m)), Operand(dtype, (1, n) if order_b == "N" else (k, 1))
    return GemmProblem(m, n, k, a, b, Operand(dtype, (n, 1)))


PROBLEMS = [problem("float32", 512, 512, 512), problem("float32", 70000, 24, 512),
            problem("float32", 2048, 2048, 2048, "T"), problem("float16", 1024, 768, 512, "N", "T"),
            problem("float16", 1001, 333, 515), problem("bfloat16", 64, 64, 65536),
            problem("float64", 1000, 1000, 1000), problem("float64", 64, 64, 20000),
            problem("complex64", 600, 500, 400), problem("complex128", 300, 300, 300),
            problem("int32", 500, 400, 300, "T"), problem("bool", 128, 96, 64)]


@pytest.mark.parametrize("p", PROBLEMS, ids=lambda p: f"{p.a.dtype} {p.m}x{p.n}x{p.k}")
@pytest.mark.parametrize("card", ["h200", "a100"])
def test_the_choice_is_one_of_the_alternatives(p, card):
    """With the time that the plan has; each name is that of one."""
    device = DEVICES[card]
    plan, choice = plan_gemm(p, device), gemm_choice(p, device)
    alternatives = list(gemm_alternatives(p, device))
    assert choice.family == plan.family and str(choice) in map(str, alternatives)
    assert choice.seconds(device) == pytest.approx(plan.seconds) and choice.plan().launches == plan.launches


def test_all_families_are_compared_by_the_same_numbers():
    """A card half as fast in every respect takes twice as long, so that what is chosen is the
    same."""
    launch = {"launch": {"seconds": 2 * H200.fitted["launch"]["seconds"]}}
    slow = replace(H200, clock_hz=H200.clock_hz / 2, bandwidth=H200.bandwidth / 2,
                   costs=H200.fitted.changed(launch))
    for p in PROBLEMS:
        assert plan_gemm(p, slow).launches == plan_gemm(p, H200).launches
        assert plan_gemm(p, slow).seconds == pytest.approx(2 * plan_gemm(p, H200).seconds)
    for seconds in (SIMT.seconds, GUARDED.seconds):
        assert seconds(PROBLEMS[2], slow) == pytest.approx(2 * seconds(PROBLEMS[2], H200))


def test_numbers_are_believable():
    """Each shipped one lies where its meaning allows; there are 40 at most."""
    for card in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        numbers = costs_of(card).numbers
        assert {family: set(own) for family, own in numbers.items()} == {
            family: set(own) for family, own in RANGES.items()
        }
        for family, own in numbers.items():
            for name, x in own.items():
                assert RANGES[family][name][0] <= x <= RANGES[family][name][1], (card, name, x)
    assert sum(map(len, RANGES.values())) <= 40


WORK = Work("tensor cores", "TMA", clocks=1e4, wavefronts=8e3, instructions=10.0, lines=5e3,
            gathered=3.0, converted=1e3, tiles=3, passes=60, ahead=3, warps=8, blocks=130,
            written=1e5, exchanged=1e5, apart=0.1, moved=1e6, stored=1e5, launches=2, added=1e5,
            prepared=1e6)


@pytest.mark.parametrize("name", sorted({*Work._fields}
                                        - {"unit", "reads", "writes", "ahead", "beside", "warps",
                                           "rounds"}))
def test_more_of_anything_takes_longer(name):
    assert WORK._replace(**{name: 3 * getattr(WORK, name) + 1}).seconds(H200) > WORK.seconds(H200)


def test_counts_may_be_arrays():
    """The time of each is that of its counts."""
    works = [WORK, WORK._replace(moved=1e9, prepared=1e9), WORK._replace(exchanged=0.0, added=0.0)]
    stacked = WORK._replace(**{name: np.array([getattr(work, name) for work in works], float)
                               for name in ("moved", "prepared", "exchanged", "added")})
    assert stacked.seconds(H200) == pytest.approx([work.seconds(H200) for work in works])


def test_what_each_resource_is_worth():
    """All counts belong to a resource, but for those that say how blocks and steps follow each
    other."""
    found = worth(WORK, H200)
    assert [seconds for *_names, seconds in found] == sorted((seconds for
                                                              *_names, seconds in found),
                                                             reverse=True)
    counted = {field for _name, counts, _seconds in found for field in counts}
    assert counted == {*Work._fields} - {"unit", "reads", "writes", "tiles", "ahead", "beside",
                                         "warps", "blocks", "crowded", "fetched"}
    for name, counts, seconds in found:
        assert 0 < seconds < WORK.seconds(H200), name
        less = WORK._replace(**{field: count / 2 for field, count in counts.items()})
        assert 0 < WORK.seconds(H200) - less.seconds(H200) < seconds, name
    kernel = copy_alternatives(CopyProblem((4096, 4096), (1, 4096), (4096, 1), 4), H200)[0]
    assert {name for name, *_rest in worth(kernel.work, H200)} >= {"memory", "writing", "waiting",
                                                                   "runs"}


def rank_k(dtype, m, k):
    a = Operand(dtype, (k, 1))
    return GemmProblem(m, m, k, a, a, Operand(dtype, (m, 1)), triangle="both")


@pytest.mark.parametrize("p", [*PROBLEMS, rank_k("float32", 900, 500),
                               replace(PROBLEMS[0], precision="bf16x6"),
                               replace(PROBLEMS[0], precision="tf32"),
                               replace(PROBLEMS[6], precision="ieee"),
                               *(replace(problem(x, 1, 1, 70000), batch=())
                                 for x in ("float16", "float64"))])
@pytest.mark.parametrize("card", ["h200", "a100"])
def test_the_least_estimate_wins(p, card):
    """Whatever families are left out because their floors are above it."""
    device = DEVICES[card]
    if p.precision in ("bf16x6", "tf32") and card == "a100":
        with pytest.raises(ValueError, match="gemm_split cannot" if p.precision == "bf16x6"
                           else "gemm_wgmma cannot"):
            gemm_choice(p, device)
        return
    assert gemm_choice(p, device).seconds(device) == min(x.seconds(device)
                                                         for x in gemm_alternatives(p, device))


def test_a_family_is_a_row(monkeypatch):
    """One that says it is faster is chosen, explained and measured; one that is not for a
    precision, or refuses, is not."""
    p = PROBLEMS[0]

    def tilings(p, _device):
        yield Choice(None, 1, p.k, 1, Work("tensor cores", "TMA", written=1e-9, launches=0),
                     "as simt")

    def made(p, device, _choice):
        plan = plan_simt(p, device)
        return Made(plan.launches, plan.workspace_bytes, plan.reason)

    def why_not(p, _device):
        return "it multiplies float32" if p.a.dtype != "float32" else None

    row = Family("gemm_new", why_not, tilings, made, precisions=("auto",))
    monkeypatch.setattr(dispatch, "FAMILIES", (*dispatch.FAMILIES, row))
    dispatch.plan_gemm.cache_clear()
    assert plan_gemm(p, H200).family == gemm_choice(p, H200).family == "gemm_new"
    assert "gemm_new as simt" in map(str, gemm_alternatives(p, H200))
    # No estimate is below the time of the traffic and of most multiply-adds.
    assert gemm_choice(p, H200).seconds(H200) > 5e-7
    for other in (replace(p, precision="ieee"), PROBLEMS[6]):
        assert plan_gemm(other, H200).family != "gemm_new"
    dispatch.plan_gemm.cache_clear()


def test_a_family_without_room_gives_way():
    """To that of the next estimate; the plan says so."""
    p = problem("float32", 2048, 2048, 2048)
    assert plan_gemm(p, H200).family == "gemm_split"
    limited = plan_gemm(p, replace(H200, workspace_limit=1000))
    assert limited.family == "gemm_simt" and limited.workspace_bytes <= 1000
    assert limited.fallback == "not gemm_split: its workspace is over the limit of 1000 bytes even in small blocks"
    assert limited.reason.endswith(f"; {limited.fallback}")


def test_cards_without_numbers_have_those_of_an_h200():
    assert costs_of("NVIDIA H200") is default_costs() is costs_of("some other card") and default_costs().device == H200.name
    assert [name for name, card in DEVICES.items() if is_measured(card)] == ["h100", "h200"]
    assert is_measured(replace(DEVICES["a100"],
                               costs=replace(default_costs(), device=DEVICES["a100"].name)))
    assert "numbers" not in repr(H200) and hash(H200) == hash(replace(H200))


def test_files_are_read_back():
    costs = default_costs().changed({"units": {BOOL: 0.123456}})
    again = costs_from(written(costs), "x.json")
    assert again["units"][BOOL] == 0.123456 and again.origin == "x.json"
    assert {family: dict(own)
            for family, own in again.numbers.items()} == {family: {name: pytest.approx(x, rel=1e-5)
                                                                   for name, x in own.items()}
                                                          for family, own in costs.numbers.items()}
    data = json.loads(written(costs))
    data["numbers"] = {"units": {INT32: 1.1, "of another version": 1.0}, "unknown": {"x": 1.0}}
    partly = costs_from(json.dumps(data), "x.json")
    own, shipped = partly["units"], default_costs()["units"]
    assert own[INT32] == 1.1 and own[BOOL] == shipped[BOOL]
    assert "unknown" not in partly.numbers and "of another version" not in partly["units"]
    assert pickle.loads(pickle.dumps(costs))["units"][BOOL] == 0.123456
    with pytest.raises(KeyError, match="unknown number 'x'"):
        costs.changed({"launch": {"x": 1.0}})
    with pytest.raises(TypeError):
        costs.numbers["launch"]["seconds"] = 1.0


@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "has no valid planning numbers"),
        ("[]", "has no valid planning numbers"),
        ('{"version": 2}', "'device'"),
        (
            '{"version": 9, "device": "", "command": "", "numbers": {}}',
            "planning numbers of version 9"
        ),
        (
            '{"version": 2, "device": "", "command": "", "numbers": {"launch": {"seconds": -1}}}',
            "negative or not finite"
        ),
        (
            '{"version": 2, "device": "", "command": "", "numbers": {"launch": {"seconds": "x"}}}',
            "could not convert"
        )
    ]
)
def test_other_files_are_refused_in_one_sentence(text, why):
    with pytest.raises(CostError, match=why) as error:
        costs_from(text, "x.json")
    assert str(error.value).startswith("x.json") and "\n" not in str(error.value)


def measured(true, problems=PROBLEMS):
    """Times by other numbers."""
    found = []
    for p in problems:
        alternatives = sorted(gemm_alternatives(p, H200), key=lambda each: each.seconds(true))[:8]
        names = [str(each) for each in alternatives]
        alternatives += [] if str(gemm_choice(p, H200)) in names else [gemm_choice(p, H200)]
        found.append(Measured(str(p), lambda d, p=p: gemm_choice(p, d), alternatives,
                              [x.seconds(true) for x in alternatives]))
    return found


def test_the_fit_finds_the_numbers_that_times_come_from():
    names = {UNIT: 0.6, INT32: 0.7, "tensor cores: share of rate": 0.7}
    true = replace(H200, costs=H200.fitted.changed({"units": names}))
    problems = measured(true)
    costs = fit(problems, H200, 300)
    errors = [abs(x.seconds(replace(H200, costs=costs)) / seconds - 1) for problem in problems
              for x, seconds in zip(problem.alternatives, problem.seconds, strict=True)]
    assert sorted(errors)[len(errors) // 2] < 0.03 and max(errors) < 0.3

    def total(costs):
        return sum(each.regret for each in regrets(problems, replace(H200, costs=costs))
                   if each.regret is not None)

    assert total(costs) <= total(H200.fitted)
    assert costs["copy"]["a mode: instructions"] == pytest.approx(
        H200.fitted["copy"]["a mode: instructions"], rel=0.05
    )


def test_traffic_is_not_blamed_on_arithmetic():
    """What takes longer for its traffic leaves the numbers of units alone."""
    true = replace(H200, costs=H200.fitted.changed({"memory": {"share of bandwidth": 0.65}}))
    costs = fit(measured(true, [problem("float32", 8192, 8192, 1),
                                replace(PROBLEMS[2], precision="ieee")]), H200, 300)
    assert dict(costs["units"]) == pytest.approx(dict(H200.fitted["units"]), rel=0.2)
    assert costs["memory"]["share of bandwidth"] == pytest.approx(0.65, rel=0.1)


def test_the_fit_stays_within_what_is_believable():
    true = replace(H200, costs=H200.fitted.changed({"launch": {"seconds": 5e-5}}))
    assert fit(measured(true, PROBLEMS[:3]), H200,
               50)["launch"]["seconds"] <= RANGES["launch"]["seconds"][1] * 1.001


def test_regret_is_that_of_planning_and_unknown_where_it_was_not_measured():
    p = PROBLEMS[0]
    first, second, *_others = gemm_alternatives(p, H200)
    found = list(regrets([Measured("a", lambda d: first, [first, second], [3.0, 2.0]),
                          Measured("b", lambda d: first, [second], [2.0])], H200))
    assert [each.regret for each in found] == [0.5, None] and found[0].choice is first
