"""Arms are built from single numbers here; golden values are computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from analysis.comparison import Comparison, Verdict, compare_arms
from analysis.curve import Curve
from analysis.events import Event, EventState
from analysis.runs import Run, RunState
from analysis.summary import ArmSummary, RunSummary, WindowMean, summarize_arm
from harness.records.model import AnalysisSpec, PlannedRun

SPEC = AnalysisSpec(primary=("solve_rate", "mismatch_kl"), margin=0.02, alpha=0.05)
NO = Event(EventState.NO, None, 100)
YES = Event(EventState.YES, 50, 100)
UNDECIDABLE = Event(EventState.UNDECIDABLE)


def make_run(
    arm: str,
    seed: int,
    values: Mapping[str, float | None],
    *,
    state: RunState = RunState.DONE,
    collapsed: Event = NO,
    exploded: Event = NO,
    num_nonfinite: int = 0,
) -> RunSummary:
    point = Curve(np.array([100]), np.array([1.0]))
    run = Run(PlannedRun(arm, seed, "id", 100), state, curves=dict.fromkeys(values, point))
    means = {
        name: WindowMean(value, 0 if value is None else 20, num_nonfinite)
        for name, value in values.items()
    }
    return RunSummary(
        run, means if state is RunState.DONE else {}, exploded, collapsed, None, None, None
    )


def make_arm(
    name: str,
    solve_rates: Sequence[float | None],
    kls: Sequence[float | None] | None = None,
    **options: object,
) -> ArmSummary:
    kls = kls if kls is not None else [1e-3] * len(solve_rates)
    runs = [
        make_run(name, seed, {"solve_rate": solve_rate, "mismatch_kl": kl}, **options)  # type: ignore[arg-type]
        for seed, (solve_rate, kl) in enumerate(zip(solve_rates, kls, strict=True))
    ]
    return summarize_arm(name, runs, SPEC.alpha)


def compare(
    arm: ArmSummary, baseline: ArmSummary, *, pairing: str = "seed", spec: AnalysisSpec = SPEC
) -> dict[str, Comparison]:
    found = compare_arms([baseline, arm], baseline.arm, pairing=pairing, spec=spec)
    return {item.name: item for item in found}


def test_a_paired_difference_by_hand() -> None:
    arm = make_arm("icepop", [0.9, 0.8, 0.85, 0.95])
    base = make_arm("ipo", [0.5, 0.5, 0.5, 0.5])
    found = compare(arm, base)["solve_rate"]
    # Differences .4 .3 .35 .45: mean .375, sd sqrt(.0125 / 3); t(0.975, 3) = 3.182446.
    half = 3.182446 * math.sqrt(0.0125 / 3 / 4)
    assert found.test == "paired t"
    assert (found.num_arm, found.num_baseline) == (4, 4)
    assert found.effect == pytest.approx(0.375)
    assert found.low == pytest.approx(0.375 - half, rel=1e-6)
    assert found.high == pytest.approx(0.375 + half, rel=1e-6)
    assert found.verdict is Verdict.BETTER


def test_mismatch_kl_is_compared_as_a_geometric_ratio() -> None:
    arm = make_arm("a", [0.8] * 4, [2e-3, 4e-3, 2e-3, 4e-3])
    base = make_arm("b", [0.8] * 4, [1e-3, 1e-3, 1e-3, 1e-3])
    found = compare(arm, base)["mismatch_kl"]
    # Logs: ln 2, ln 4, ln 2, ln 4: mean 1.5 ln 2, sd (ln 2) / sqrt(3).
    half = 3.182446 * math.log(2) / math.sqrt(3) / 2
    assert found.scale == "ratio"
    assert found.effect == pytest.approx(2**1.5)
    assert found.low == pytest.approx(2**1.5 * math.exp(-half), rel=1e-6)
    assert found.high == pytest.approx(2**1.5 * math.exp(half), rel=1e-6)


def test_a_lower_kl_is_better_and_a_higher_one_worse() -> None:
    low = make_arm("low", [0.8] * 5, [1.0e-3, 1.1e-3, 0.9e-3, 1.0e-3, 1.0e-3])
    high = make_arm("high", [0.8] * 5, [1.0e-1, 1.1e-1, 0.8e-1, 1.0e-1, 1.2e-1])
    assert compare(low, high)["mismatch_kl"].verdict is Verdict.BETTER
    assert compare(high, low)["mismatch_kl"].verdict is Verdict.WORSE


def test_without_pairing_the_test_is_welchs() -> None:
    arm = make_arm("a", [0.2, 0.3, 0.4])
    base = make_arm("b", [0.4, 0.6, 0.8])
    found = compare(arm, base, pairing="none")["solve_rate"]
    assert found.test == "Welch t"
    assert found.effect == pytest.approx(-0.3)
    # t = -.3 / sqrt(.05 / 3) = -2.3238, df 2.9412; the two-sided p is between those of the
    # printed tables: t(0.95, 2.94) = 2.37 and t(0.90, 2.94) = 1.65.
    assert found.p is not None
    assert 0.10 < found.p < 0.20


def test_pairs_are_matched_by_seed_whatever_their_order() -> None:
    arm = make_arm("a", [0.5, 0.6, 0.7, 0.8])
    base = make_arm("b", [0.4, 0.5, 0.6, 0.7])
    shuffled = summarize_arm("a", [arm.runs[i] for i in (2, 0, 3, 1)], SPEC.alpha)
    found, again = compare(arm, base)["solve_rate"], compare(shuffled, base)["solve_rate"]
    assert found == again
    assert found.effect == pytest.approx(0.1)


@pytest.mark.parametrize(("number", "words"), [(1, "one seed"), (2, "two seeds")])
def test_one_or_two_seeds_decide_nothing(number: int, words: str) -> None:
    arm, base = make_arm("a", [0.9] * number), make_arm("b", [0.1] * number)
    for item in compare(arm, base).values():
        assert (item.verdict, item.detail) == (Verdict.NOT_DECIDABLE, words)


def test_equal_arms_are_within_the_margin() -> None:
    rates = [0.80, 0.85, 0.90]
    found = compare(make_arm("a", rates), make_arm("b", rates))["solve_rate"]
    assert found.words == "within margin (0.02)"
    assert found.p == 1.0


def test_a_small_sure_difference_stays_within_the_margin() -> None:
    rates = [0.80, 0.85, 0.90, 0.95]
    arm = make_arm("a", [rate + 0.005 for rate in rates])
    found = compare(arm, make_arm("b", rates))["solve_rate"]
    assert found.p is not None
    assert found.p < 1e-6
    assert found.verdict is Verdict.WITHIN_MARGIN


def test_an_interval_wider_than_the_margin_is_no_detectable_difference_with_its_mde() -> None:
    arm = make_arm("a", [0.80, 0.90, 0.75, 0.85])
    base = make_arm("b", [0.85, 0.80, 0.85, 0.80])
    found = compare(arm, base)["solve_rate"]
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.mde is not None
    assert found.detail == f"MDE {found.mde:.3g}"


def test_verdicts_use_the_adjusted_p() -> None:
    base = make_arm("b", [0.50, 0.52, 0.48, 0.50, 0.51])
    weak = make_arm("weak", [0.60, 0.56, 0.60, 0.58, 0.57])
    alone = compare(weak, base)["solve_rate"]
    assert alone.p is not None
    assert alone.verdict is Verdict.BETTER
    # 10 arms with 4 comparisons each, of which this one has the smallest p.
    others = [make_arm(f"same_{i}", [0.50, 0.52, 0.48, 0.50, 0.51]) for i in range(9)]
    found = compare_arms([base, weak, *others], "b", pairing="seed", spec=SPEC)
    [together] = [i for i in found if i.arm == "weak" and i.name == "solve_rate"]
    assert together.p == alone.p
    assert together.p_holm == pytest.approx(min(1.0, 40 * alone.p))
    assert together.verdict is Verdict.NO_DIFFERENCE


def test_events_are_compared_by_fishers_exact_test() -> None:
    arm = make_arm("a", [0.8] * 8)
    base = make_arm("b", [0.1] * 8, collapsed=YES)
    found = compare(arm, base)["collapsed"]
    # All of 8 against none of 8: 2 / C(16, 8).
    assert found.p == pytest.approx(2 / 12870)
    assert found.effect == -1.0
    assert found.verdict is Verdict.BETTER
    assert compare(base, arm)["collapsed"].verdict is Verdict.WORSE


def test_three_against_three_cannot_decide_an_event() -> None:
    arm, base = make_arm("a", [0.8] * 3), make_arm("b", [0.1] * 3, collapsed=YES)
    found = compare(arm, base)["collapsed"]
    assert found.words == "not decidable (3 against 3 runs can't reach 5%)"


def test_undecidable_events_are_never_counted_as_none() -> None:
    arm = make_arm("a", [0.8] * 5, exploded=UNDECIDABLE)
    base = make_arm("b", [0.8] * 5)
    assert compare(arm, base)["exploded"].words == "not decidable (5 runs can't be judged)"
    assert arm.exploded.share is None


def test_unfinished_runs_make_a_comparison_incomplete_and_interim() -> None:
    arm = make_arm("a", [0.9, 0.9, 0.8, 0.9])
    runs = [*arm.runs[:3], make_run("a", 3, {"solve_rate": 0.1}, state=RunState.UNFINISHED)]
    found = compare(summarize_arm("a", runs, 0.05), make_arm("b", [0.1] * 4))["solve_rate"]
    assert found.words == "incomplete (a: 3 of 4 runs finished)"
    assert found.is_interim
    assert found.num_arm == 3


def test_a_metric_that_nobody_logged_is_not_decidable_and_leaves_the_family() -> None:
    spec = replace(SPEC, primary=("solve_rate", "grad_norm"))
    base = make_arm("b", [0.5, 0.6, 0.5, 0.6])
    arm = make_arm("a", [0.7, 0.9, 0.7, 0.8])
    found = compare(arm, base, spec=spec)
    assert found["grad_norm"].words == "not decidable (not logged)"
    assert found["grad_norm"].p_holm is None
    # solve rate, collapsed and exploded are left.
    assert found["solve_rate"].p is not None
    assert found["solve_rate"].p_holm == pytest.approx(3 * found["solve_rate"].p)


def test_runs_without_a_finite_value_are_not_judged_by_the_survivors() -> None:
    arm = make_arm("a", [0.8] * 4, [1e-3, None, 1e-3, 1e-3])
    base = make_arm("b", [0.8] * 4)
    found = compare(arm, base)["mismatch_kl"]
    assert found.words == "not decidable (without a value in the final window in 1 run of a)"
    partly = make_arm("a", [0.8] * 4, num_nonfinite=2)
    words = "not decidable (not finite in the final window in 4 runs of a)"
    assert compare(partly, base)["mismatch_kl"].words == words


def test_a_kl_of_zero_has_no_ratio() -> None:
    arm = make_arm("a", [0.8] * 4, [0.0] * 4)
    found = compare(arm, make_arm("b", [0.8] * 4))["mismatch_kl"]
    assert found.words == "not decidable (0 in the final window in 4 runs of a)"
    assert found.effect is None


def test_the_kl_of_collapsed_runs_is_no_merit() -> None:
    arm = make_arm("a", [0.0] * 5, [1e-6, 2e-6, 1e-6, 2e-6, 1e-6], collapsed=YES)
    base = make_arm("b", [0.8] * 5)
    found = compare(arm, base)
    assert found["mismatch_kl"].words == (
        "not decidable (says little after the collapse of 5 runs)"
    )
    assert found["solve_rate"].verdict is Verdict.WORSE


def test_a_metric_without_a_direction_is_higher_or_lower() -> None:
    spec = replace(SPEC, primary=("entropy",))
    high = [make_run("a", s, {"entropy": 0.5 + 0.01 * s}) for s in range(4)]
    low = [make_run("b", s, {"entropy": 0.1}) for s in range(4)]
    a, b = (summarize_arm(name, runs, 0.05) for name, runs in (("a", high), ("b", low)))
    assert compare(a, b, spec=spec)["entropy"].verdict is Verdict.HIGHER
    assert compare(b, a, spec=spec)["entropy"].verdict is Verdict.LOWER


def test_ends_of_intervals_stay_within_what_is_possible() -> None:
    arm, base = make_arm("a", [1.0, 0.0, 1.0]), make_arm("b", [0.0, 1.0, 0.0])
    found = compare(arm, base)["solve_rate"]
    assert (found.low, found.high) == (-1.0, 1.0)
    assert found.detail == "MDE beyond 1"


def test_the_interval_of_wildly_spread_logs_ends_beyond_floats_and_says_so() -> None:
    arm = make_arm("a", [0.8] * 3, [1e-300, 1e300, 1.0])
    found = compare(arm, make_arm("b", [0.8] * 3, [1.0] * 3))["mismatch_kl"]
    assert found.effect == pytest.approx(1.0)
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.words == "no detectable difference (MDE not finite)"


@pytest.mark.parametrize("pairing", ["seed", "none"])
def test_differences_beyond_floats_are_not_decidable(pairing: str) -> None:
    def of_losses(arm: str, sign: float) -> ArmSummary:
        runs = [
            make_run(arm, seed, {"loss": sign * (1.0 + 0.1 * seed) * 1e308}) for seed in range(3)
        ]
        return summarize_arm(arm, runs, SPEC.alpha)

    spec = replace(SPEC, primary=("loss",))
    found = compare(of_losses("a", 1.0), of_losses("b", -1.0), pairing=pairing, spec=spec)["loss"]
    assert found.words == "not decidable (the differences are beyond the range of floats)"
    assert (found.p, found.p_holm, found.mde) == (None, None, None)


def test_an_interval_may_leave_out_zero_where_holm_finds_nothing() -> None:
    base = make_arm("b", [0.50, 0.52, 0.48, 0.50, 0.51])
    weak = make_arm("weak", [0.60, 0.56, 0.60, 0.58, 0.57])
    others = [make_arm(f"same_{i}", [0.50, 0.52, 0.48, 0.50, 0.51]) for i in range(9)]
    found = compare_arms([base, weak, *others], "b", pairing="seed", spec=SPEC)
    beside = {(i.arm, i.name) for i in found if i.has_interval_beside_zero}
    assert beside == {("weak", "solve_rate")}
    doubled = make_arm("doubled", [0.8] * 3, [2.0e-3, 2.1e-3, 1.9e-3])
    ratio = compare(doubled, make_arm("b", [0.8] * 3))["mismatch_kl"]
    assert (ratio.has_interval_beside_zero, ratio.no_effect) == (True, 1.0)


def test_a_plan_without_its_baseline_compares_nothing() -> None:
    assert compare_arms([make_arm("a", [0.5])], "b", pairing="seed", spec=SPEC) == []
