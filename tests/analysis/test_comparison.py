"""Arms are built from single numbers here; golden values are computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from analysis.comparison import compare_arms
from analysis.curve import Curve
from analysis.events import Event, EventState
from analysis.noise import SeedNoise
from analysis.runs import Run, RunState
from analysis.summary import ArmSummary, RunSummary, summarize_arm
from analysis.verdicts import Comparison, Verdict
from harness.records.model import AnalysisSpec, PlannedRun

SPEC = AnalysisSpec(
    primary=("solve_rate", "mismatch_kl"), margin=0.02, alpha=0.05, last_steps=20, max_left_out=0.2
)
STEPS = np.arange(1, 101)
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
    last_step: int = 100,
) -> RunSummary:
    """Return a run whose metrics are flat, but for NaN where a value is None or in the
    `num_nonfinite` last steps."""
    curves = {}
    for name, value in values.items():
        flat = np.full(last_step, math.nan if value is None else value)
        flat[last_step - num_nonfinite :] = math.nan
        curves[name] = Curve(STEPS[:last_step], flat)
    run = Run(PlannedRun(arm, seed, "id", 100), state, curves=curves)
    return RunSummary(run, {}, exploded, collapsed, None, None, None)


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


def test_equal_arms_are_equivalent_within_the_margin() -> None:
    rates = [0.80, 0.85, 0.90]
    found = compare(make_arm("a", rates), make_arm("b", rates))["solve_rate"]
    assert found.words == "equivalent within 0.02"
    assert found.rule == "two one-sided paired t tests, margin 0.02"
    assert (found.p, found.p_equivalent) == (1.0, 0.0)


def test_a_small_sure_difference_is_equivalent() -> None:
    rates = [0.80, 0.85, 0.90, 0.95]
    arm = make_arm("a", [rate + 0.005 for rate in rates])
    found = compare(arm, make_arm("b", rates))["solve_rate"]
    assert found.p is not None
    assert found.p < 1e-6
    assert found.verdict is Verdict.EQUIVALENT


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
    assert found.words == "better (collapse in 0 of 8 against 8 of 8)"
    assert compare(base, arm)["collapsed"].words == "collapsed (8 of 8, from step 50)"


def test_seeds_that_make_no_difference_at_all_decide_nothing_away_from_a_bound() -> None:
    arm, base = make_arm("a", [0.6] * 4), make_arm("b", [0.5] * 4)
    found = compare(arm, base)["solve_rate"]
    assert found.words == "not decidable (no spread between seeds)"
    assert found.effect == pytest.approx(0.1)
    at_bounds = compare(make_arm("a", [1.0] * 4), make_arm("b", [0.0] * 4))["solve_rate"]
    assert at_bounds.verdict is Verdict.BETTER


def test_three_against_three_cannot_decide_an_event() -> None:
    arm, base = make_arm("a", [0.8] * 3), make_arm("b", [0.1] * 3, collapsed=YES)
    found = compare(arm, base)["collapsed"]
    assert found.words == (
        "not decidable (3 v 3 runs can't reach 5 %: collapse in 0 of 3 against 3 of 3, p = 0.1)"
    )


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
    assert found.rule == "planned runs missing"
    assert found.is_interim
    assert found.num_arm == 3
    assert found.effect == pytest.approx(0.8 - 0.1 / 3)


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
    assert found.words == "not decidable (not finite in the final window in 1 run of a)"
    partly = make_arm("a", [0.8] * 4, num_nonfinite=2)
    words = "not decidable (not finite in the final window in 4 runs of a)"
    assert compare(partly, base)["mismatch_kl"].words == words


def test_a_kl_of_zero_has_no_ratio() -> None:
    arm = make_arm("a", [0.8] * 4, [0.0] * 4)
    found = compare(arm, make_arm("b", [0.8] * 4))["mismatch_kl"]
    assert found.words == "not decidable (not above 0 in the final window in 4 runs of a)"
    assert found.effect is None


def test_the_kl_of_collapsed_runs_is_no_merit() -> None:
    arm = make_arm("a", [0.0] * 5, [1e-6, 2e-6, 1e-6, 2e-6, 1e-6], collapsed=YES)
    base = make_arm("b", [0.8] * 5)
    found = compare(arm, base)
    words = "not decidable (says little after the collapse of 5 runs)"
    assert found["mismatch_kl"].words == words
    assert compare(base, arm)["mismatch_kl"].words == (
        "not decidable (says little after the collapse of 5 runs)"
    )


def test_a_metric_without_a_direction_is_neither_better_nor_worse() -> None:
    spec = replace(SPEC, primary=("entropy",))
    high = [make_run("a", s, {"entropy": 0.5 + 0.01 * s}) for s in range(4)]
    low = [make_run("b", s, {"entropy": 0.1}) for s in range(4)]
    a, b = (summarize_arm(name, runs, 0.05) for name, runs in (("a", high), ("b", low)))
    found = compare(a, b, spec=spec)["entropy"]
    assert found.p_holm is not None
    assert found.p_holm < 0.05
    assert found.words == "not decidable (entropy has no better side)"


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


def test_a_pair_is_compared_over_its_own_last_common_steps() -> None:
    spec = replace(SPEC, primary=("loss",))

    def of_losses(name: str, last_step: int) -> ArmSummary:
        runs = [make_run(name, seed, {"loss": 1.0}, last_step=last_step) for seed in range(3)]
        return summarize_arm(name, runs, 0.05)

    arms = [of_losses("b", 90), of_losses("long", 100), of_losses("short", 50)]
    found = compare_arms(arms, "b", pairing="seed", spec=spec)
    windows = {item.arm: item.window for item in found if item.name == "loss"}
    assert windows == {"long": (71, 90, 20), "short": (31, 50, 20)}


def test_the_value_of_a_run_is_its_mean_over_the_window_alone() -> None:
    def rising(name: str, last: float) -> ArmSummary:
        runs = []
        for seed in range(3):
            run = make_run(name, seed, {"solve_rate": 0.0})
            run.run.curves["solve_rate"].values[-20:] = last
            runs.append(run)
        return summarize_arm(name, runs, 0.05)

    found = compare(rising("a", 0.75), rising("b", 0.25))["solve_rate"]
    assert (found.effect, found.window) == (0.5, (81, 100, 20))


def test_failed_runs_within_the_declared_share_are_left_out_and_named() -> None:
    arm = make_arm("a", [0.9, 0.91, 0.89, 0.92])
    failed = make_run("a", 4, {"solve_rate": 0.1}, state=RunState.FAILED)
    found = compare(summarize_arm("a", [*arm.runs, failed], 0.05), make_arm("b", [0.1] * 5))
    assert found["solve_rate"].verdict is Verdict.BETTER
    assert found["solve_rate"].left_out == ("a/seed_4",)
    assert found["solve_rate"].num_arm == 4
    assert not found["solve_rate"].is_interim


def test_more_failed_runs_than_declared_make_an_arm_incomplete() -> None:
    arm = make_arm("a", [0.9, 0.91, 0.89])
    states = (RunState.FAILED, RunState.FAILED)
    lost = [make_run("a", 3 + i, {"solve_rate": 0.1}, state=s) for i, s in enumerate(states)]
    found = compare(summarize_arm("a", [*arm.runs, *lost], 0.05), make_arm("b", [0.1] * 5))
    assert found["solve_rate"].words == "incomplete (a: 2 of 5 runs failed)"
    assert found["solve_rate"].rule == "more than 20 % of planned runs left out"
    lost[1] = make_run("a", 4, {"solve_rate": 0.1}, state=RunState.TIMEOUT)
    found = compare(summarize_arm("a", [*arm.runs, *lost], 0.05), make_arm("b", [0.1] * 5))
    assert found["solve_rate"].words == "incomplete (a: 2 of 5 runs failed or ended early)"


def test_a_stopped_run_counts_in_events_and_forbids_a_verdict_on_means() -> None:
    arm = make_arm("a", [0.9] * 4)
    stopped = make_run("a", 4, {"solve_rate": 0.1}, state=RunState.STOPPED, exploded=YES)
    found = compare(summarize_arm("a", [*arm.runs, stopped], 0.05), make_arm("b", [0.5] * 5))
    assert found["solve_rate"].words == "not decidable (1 run of a stopped early)"
    assert found["solve_rate"].num_arm == 4
    assert (found["exploded"].num_arm, found["exploded"].effect) == (5, 0.2)
    collapsed = replace(stopped, collapsed=YES)
    found = compare(summarize_arm("a", [*arm.runs, collapsed], 0.05), make_arm("b", [0.5] * 5))
    assert found["solve_rate"].words == (
        "no detectable difference (collapse in 1 of 5 against 0 of 5, MDE 0.96)"
    )


def test_a_collapse_decides_the_solve_rate_by_fishers_test_and_leaves_other_metrics_open() -> None:
    runs = [make_run("a", seed, {"solve_rate": 0.0, "mismatch_kl": 1.0}) for seed in range(6)]
    steps = (34, 40, 50, 60, 70, 80)
    runs = [
        replace(run, collapsed=Event(EventState.YES, step, 100))
        for run, step in zip(runs, steps, strict=True)
    ]
    arm, base = summarize_arm("a", runs, 0.05), make_arm("b", [0.8, 0.81, 0.79] * 2)
    found = compare(arm, base)
    for name in ("solve_rate", "collapsed"):
        assert found[name].words == "collapsed (6 of 6, from step 34)"
        assert found[name].rule == "collapse, Fisher exact, Holm over 4"
        # 6 of 6 against none of 6: 2 / C(12, 6), of 4 comparisons.
        assert found[name].p == pytest.approx(2 / 924)
        assert found[name].p_holm == pytest.approx(8 / 924)
    assert found["solve_rate"].effect == pytest.approx(-0.8)
    assert found["solve_rate"].test == "paired t"
    words = "not decidable (says little after the collapse of 6 runs)"
    assert (found["mismatch_kl"].words, found["mismatch_kl"].p) == (words, None)
    assert compare(base, arm)["solve_rate"].words == "better (collapse in 0 of 6 against 6 of 6)"


def test_what_so_few_runs_allow_after_holm_is_said() -> None:
    arm, base = make_arm("a", [0.1] * 4, collapsed=YES), make_arm("b", [0.8] * 4)
    # 2 / C(8, 4) = 0.029 alone, but 0.11 among 4.
    words = (
        "not decidable (4 v 4 runs can't reach 5 % among 4 comparisons: collapse in 4 of 4 against"
        " 0 of 4, p = 0.0286)"
    )
    assert compare(arm, base)["collapsed"].words == words
    assert compare(arm, base)["solve_rate"].words == words


def test_one_collapse_of_many_is_no_detectable_difference() -> None:
    base = make_arm("b", [0.8] * 6)
    runs = [*make_arm("a", [0.8] * 5).runs, make_run("a", 5, {"solve_rate": 0.0}, collapsed=YES)]
    found = compare(summarize_arm("a", runs, 0.05), base)
    words = "no detectable difference (collapse in 1 of 6 against 0 of 6, MDE 0.96)"
    assert found["collapsed"].words == words
    assert found["solve_rate"].words == words
    assert found["mismatch_kl"].verdict is Verdict.NOT_DECIDABLE


def test_where_every_run_of_both_arms_exploded_the_mismatch_kl_keeps_its_own_test() -> None:
    arm = make_arm("a", [0.8, 0.81, 0.79] * 2, [2.0, 2.1, 1.9] * 2, exploded=YES)
    base = make_arm("base", [0.8, 0.81, 0.79] * 2, [1.0, 1.1, 0.9] * 2, exploded=YES)
    found = compare(arm, base)["mismatch_kl"]
    assert (found.verdict, found.rule) == (Verdict.WORSE, "paired t, Holm over 4")


def test_an_explosion_decides_the_mismatch_kl_but_not_the_solve_rate() -> None:
    arm = make_arm("a", [0.8, 0.81, 0.79] * 2, [1.0] * 6, exploded=YES)
    base = make_arm("b", [0.4, 0.42, 0.41] * 2, [1e-3] * 6)
    found = compare(arm, base)
    assert found["mismatch_kl"].words == "worse (explosion in 6 of 6 against 0 of 6)"
    assert found["mismatch_kl"].rule == "explosion, Fisher exact, Holm over 4"
    assert found["exploded"].words == found["mismatch_kl"].words
    assert found["solve_rate"].verdict is Verdict.BETTER
    assert found["solve_rate"].rule == "paired t, Holm over 4"


def test_exploratory_metrics_stay_outside_the_family_without_a_better_side() -> None:
    spec = replace(SPEC, primary=("solve_rate",), exploratory=("mismatch_kl", "solve_rate"))
    arm = make_arm("a", [0.8, 0.81, 0.79] * 2, [1e-4, 1.1e-4, 0.9e-4] * 2)
    base = make_arm("b", [0.8, 0.81, 0.79] * 2, [1e-3, 1.2e-3, 0.9e-3] * 2)
    found = compare(arm, base, spec=spec)
    assert found["mismatch_kl"].words == "not decidable (exploratory)"
    assert found["mismatch_kl"].is_exploratory
    assert found["mismatch_kl"].p_holm is None
    assert not found["solve_rate"].is_exploratory
    assert found["exploded"].rule == "explosion, Fisher exact, Holm over 3"
    same = compare(base, base_like(base), spec=spec)["mismatch_kl"]
    assert same.words == "no detectable difference (MDE \N{MULTIPLICATION SIGN}1)"


def base_like(base: ArmSummary) -> ArmSummary:
    return replace(base, arm="other")


def test_one_run_each_gives_an_effect_without_an_interval() -> None:
    found = compare(make_arm("a", [0.75]), make_arm("b", [0.5]))["solve_rate"]
    assert (found.effect, found.low, found.high, found.p, found.mde) == (0.25, *[None] * 4)
    assert found.words == "not decidable (one seed)"
    assert found.rule == "fewer than 3 seeds"


def test_noise_of_other_sweeps_adds_an_interval_at_one_run_each_and_no_verdict() -> None:
    noise = {"solve_rate": SeedNoise(0.1, 4, "2 arms of old")}

    def compared(number: int) -> Comparison:
        arms = [make_arm("b", [0.2] * number), make_arm("a", [0.5] * number)]
        found = compare_arms(arms, "b", pairing="seed", spec=SPEC, noise=noise)
        return next(item for item in found if item.name == "solve_rate")

    found = compared(1)
    # t(0.975, 4) = 2.776445 times 0.1 sqrt(2).
    half = 2.776445 * 0.1 * math.sqrt(2)
    assert found.noise is not None
    assert found.noise.low == pytest.approx(0.3 - half, rel=1e-6)
    assert found.noise.high == pytest.approx(0.3 + half, rel=1e-6)
    assert (found.noise.sd, found.noise.df, found.noise.label) == (0.1, 4, "2 arms of old")
    assert (found.low, found.words) == (None, "not decidable (one seed)")
    assert compared(3).noise is None


def test_interquartile_means_stand_beside_the_means_from_eight_runs_on() -> None:
    rates = [0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9]
    arm = make_arm("a", [rate + 0.05 for rate in rates])
    found = compare(arm, make_arm("b", rates), pairing="none")["solve_rate"]
    assert found.iqm is not None
    assert found.iqm.effect == pytest.approx(0.05)
    assert found.iqm.low <= 0.05 <= found.iqm.high
    seven = compare(make_arm("a", rates[:7]), make_arm("b", rates[:7]))
    assert seven["solve_rate"].iqm is None


def test_a_minimum_detectable_difference_has_the_uncertainty_of_its_spread() -> None:
    arm = make_arm("a", [0.80, 0.90, 0.75, 0.85])
    found = compare(arm, make_arm("b", [0.85, 0.80, 0.85, 0.80]))["solve_rate"]
    assert found.mde is not None
    # chi2(0.025, 3) = 0.215795 and chi2(0.975, 3) = 9.348404 (tables).
    assert found.mde_low == pytest.approx(found.mde * math.sqrt(3 / 9.348404), rel=1e-5)
    assert found.mde_high == pytest.approx(found.mde * math.sqrt(3 / 0.215795), rel=1e-5)


def test_the_difference_of_shares_has_an_interval() -> None:
    arm, base = make_arm("a", [0.8] * 5), make_arm("b", [0.8] * 5)
    found = compare(arm, base)["collapsed"]
    # Jeffreys' upper end for 0 of 5 (statsmodels' proportion_confint).
    assert found.effect == 0.0
    assert found.low == pytest.approx(-0.37937714, abs=1e-8)
    assert found.high == pytest.approx(0.37937714, abs=1e-8)
    assert found.window == (1, 100, 100)


def test_a_test_that_may_not_decide_makes_no_other_look_surer() -> None:
    # The values of `mismatch_kl` are lost in one run: its tiny p must not free the solve rate of
    # its full adjustment.
    kls: list[float | None] = [1e-6, 1.1e-6, 0.9e-6, 1e-6, None]
    arm = make_arm("a", [0.60, 0.56, 0.60, 0.58, 0.57], kls)
    found = compare(arm, make_arm("b", [0.50, 0.52, 0.48, 0.50, 0.51]))
    assert found["solve_rate"].p is not None
    assert found["solve_rate"].p_holm == pytest.approx(4 * found["solve_rate"].p)
    assert found["mismatch_kl"].p_holm is None


def test_an_arm_whose_runs_were_all_stopped_after_their_collapse_has_collapsed() -> None:
    arm = make_arm("a", [0.0] * 6, state=RunState.STOPPED, collapsed=YES)
    found = compare(arm, make_arm("b", [0.8] * 6))
    assert found["solve_rate"].words == "collapsed (6 of 6, from step 50)"
    assert (found["solve_rate"].effect, found["solve_rate"].window) == (None, None)
    assert found["collapsed"].effect == 1.0


def test_a_metric_that_ends_before_the_window_is_not_judged() -> None:
    spec = replace(SPEC, primary=("entropy",))
    arm = make_arm("a", [0.8] * 3)
    for summary in arm.runs:
        summary.run.curves["entropy"] = Curve(STEPS[:50], np.ones(50))
    found = compare(arm, make_arm_of_entropy("b", [1.0] * 3), spec=spec)["entropy"]
    assert found.words == "not decidable (without a value in the final window in 3 runs of a)"


def make_arm_of_entropy(name: str, values: Sequence[float]) -> ArmSummary:
    runs = [make_run(name, seed, {"entropy": value}) for seed, value in enumerate(values)]
    return summarize_arm(name, runs, SPEC.alpha)
