from __future__ import annotations

import numpy as np
import pytest

from analysis.curve import Curve
from analysis.events import EventState
from analysis.runs import Run, RunState
from analysis.summary import summarize_arm, summarize_run
from analysis.windows import final_window
from harness.records.model import AnalysisSpec, PlannedRun

SPEC = AnalysisSpec(last_steps=10, baseline_steps=(2, 6), collapse_window=5)


def make_run(
    curves: dict[str, dict[int, float]], *, seed: int = 0, state: RunState = RunState.DONE
) -> Run:
    return Run(
        PlannedRun("ipo", seed, "id", 40),
        state,
        curves={
            name: Curve(np.array(list(points), dtype=np.int64), np.array(list(points.values())))
            for name, points in curves.items()
        },
    )


def flat(value: float, first: int = 1, last: int = 40) -> dict[int, float]:
    return dict.fromkeys(range(first, last + 1), value)


def test_nothing_after_the_last_judged_step_counts() -> None:
    run = make_run(
        {
            "mismatch_kl": {**flat(1e-3), **flat(1.0, 30, 36)},
            "loss": flat(0.0),
            "solve_rate": {**flat(0.8), **flat(0.0, 30, 40)},
        }
    )
    whole = summarize_run(run, None, SPEC)
    assert (whole.exploded.step, whole.collapsed.step) == (30, 32)
    assert (whole.kl_gone_from, whole.peak_kl_step) == (None, 34)
    cut = summarize_run(run, None, SPEC, judged_to=25)
    assert (cut.exploded.state, cut.exploded.last_step) == (EventState.NO, 25)
    assert (cut.collapsed.state, cut.collapsed.last_step) == (EventState.NO, 25)
    assert cut.peak_kl == pytest.approx(1e-3)
    assert cut.peak_kl_step is not None
    assert cut.peak_kl_step <= 25


def test_a_kl_that_is_gone_after_the_last_judged_step_is_not_gone() -> None:
    run = make_run({"mismatch_kl": flat(1e-3, 1, 30), "loss": flat(0.0)})
    assert summarize_run(run, None, SPEC).kl_gone_from == 31
    assert summarize_run(run, None, SPEC, judged_to=30).kl_gone_from is None


def test_events_after_too_short_a_common_range_are_undecidable() -> None:
    run = make_run({"mismatch_kl": flat(1e-3), "solve_rate": flat(0.8)})
    cut = summarize_run(run, None, SPEC, judged_to=6)
    assert (
        cut.exploded.reason == "mismatch KL is there up to step 6, not beyond the baseline window"
    )
    assert cut.collapsed.state is EventState.UNDECIDABLE


def test_means_and_peaks_near_the_largest_float_stay_finite() -> None:
    run = make_run({"mismatch_kl": flat(1e308)})
    summary = summarize_run(run, final_window([run], 10), SPEC)
    assert summary.means["mismatch_kl"].mean == pytest.approx(1e308)
    assert summary.peak_kl == pytest.approx(1e308)
    arm = summarize_arm("ipo", [summary, summary], 0.05)
    assert arm.means["mismatch_kl"].mean == pytest.approx(1e308)


def test_a_kl_that_is_gone_in_the_window_is_counted_as_not_finite() -> None:
    run = make_run({"mismatch_kl": flat(1e-3, 1, 36), "learning_rate": flat(0.1)})
    summary = summarize_run(run, final_window([run], 10), SPEC)
    mean = summary.means["mismatch_kl"]
    assert (mean.num_values, mean.num_nonfinite) == (6, 4)
    assert summary.kl_gone_from == 37
    assert (summary.exploded.state, summary.exploded.step) == (EventState.YES, 37)


def test_steps_without_trained_tokens_are_no_divergence() -> None:
    tokens = {step: 100.0 * min(step, 36) for step in range(1, 41)}
    run = make_run({"mismatch_kl": flat(1e-3, 1, 36), "loss": flat(0.0), "tokens": tokens})
    summary = summarize_run(run, final_window([run], 10), SPEC)
    assert summary.kl_gone_from is None
    assert summary.exploded.state is EventState.NO


def test_rewards_that_run_ahead_of_the_trainer_are_no_divergence() -> None:
    run = make_run(
        {
            "mismatch_kl": flat(1e-3, 1, 30),
            "loss": flat(0.0, 1, 30),
            "solve_rate": flat(0.8, 1, 38),
        }
    )
    assert summarize_run(run, None, SPEC).exploded.state is EventState.NO


def test_unfinished_runs_have_events_but_no_means() -> None:
    run = make_run({"mismatch_kl": flat(1e-3), "loss": flat(0)}, state=RunState.UNFINISHED)
    summary = summarize_run(run, None, SPEC)
    assert summary.means == {}
    assert summary.exploded.state is EventState.NO


def test_the_peak_is_the_highest_whole_window() -> None:
    kl = {**flat(1.0), 1: 50.0, **dict.fromkeys(range(20, 25), 7.0)}
    summary = summarize_run(make_run({"mismatch_kl": kl}), None, SPEC)
    assert summary.peak_kl == pytest.approx(10.8)
    assert summary.peak_kl_step == 5
    short = summarize_run(make_run({"mismatch_kl": {1: 1.0, 2: 2.0}}), None, SPEC)
    assert short.peak_kl is None


def test_an_arm_mean_of_kl_is_geometric_and_shares_are_cut_at_one() -> None:
    runs = [
        make_run({"mismatch_kl": flat(kl), "solve_rate": flat(rate)}, seed=seed)
        for seed, (kl, rate) in enumerate([(1e-3, 1.0), (1e-1, 0.9)])
    ]
    window = final_window(runs, 10)
    arm = summarize_arm("ipo", [summarize_run(run, window, SPEC) for run in runs], 0.05)
    assert arm.means["mismatch_kl"].mean == pytest.approx(1e-2)
    assert arm.means["solve_rate"].mean == pytest.approx(0.95)
    assert arm.means["solve_rate"].high == 1.0


def test_an_arm_with_a_zero_has_no_geometric_mean() -> None:
    runs = [make_run({"mismatch_kl": flat(kl)}, seed=seed) for seed, kl in enumerate((0.0, 1.0))]
    window = final_window(runs, 10)
    arm = summarize_arm("ipo", [summarize_run(run, window, SPEC) for run in runs], 0.05)
    assert "mismatch_kl" not in arm.means


def test_event_shares_count_finished_and_decidable_runs_only() -> None:
    runs = [
        make_run({"mismatch_kl": {**flat(1e-3), **flat(1.0, 20, 40)}}, seed=0),
        make_run({"mismatch_kl": flat(1e-3)}, seed=1),
        make_run({"loss": flat(0.0)}, seed=2),
        make_run({"mismatch_kl": flat(1e-3)}, seed=3, state=RunState.FAILED),
    ]
    arm = summarize_arm("ipo", [summarize_run(run, None, SPEC) for run in runs], 0.05)
    assert arm.exploded.share is not None
    assert (arm.exploded.share.k, arm.exploded.share.n) == (1, 2)
    assert arm.exploded.steps == (20,)
    assert arm.exploded.censored_at == (40,)
    assert arm.exploded.num_undecidable == 1


def test_a_stopped_run_has_an_event_or_can_not_be_judged() -> None:
    curves = {"mismatch_kl": {**flat(1e-3, 1, 19), **flat(1.0, 20, 30)}, "loss": flat(0.0, 1, 30)}
    stopped = make_run({**curves, "solve_rate": flat(0.8, 1, 30)}, state=RunState.STOPPED)
    summary = summarize_run(stopped, None, SPEC, judged_to=40)
    assert summary.means == {}
    assert (summary.exploded.state, summary.exploded.step) == (EventState.YES, 20)
    assert summary.collapsed.state is EventState.UNDECIDABLE
    assert summary.collapsed.reason == "stopped at step 30, before the last step that is judged"
    arm = summarize_arm("ipo", [summary], 0.05)
    assert (arm.done, arm.judged) == ([], [summary])
    assert arm.exploded.share is not None
    assert (arm.exploded.share.k, arm.exploded.share.n) == (1, 1)
    assert (arm.collapsed.share, arm.collapsed.num_undecidable) == (None, 1)
    late = summarize_run(stopped, None, SPEC, judged_to=30)
    assert late.collapsed.state is EventState.NO
