from __future__ import annotations

import numpy as np
import pytest

from analysis.cost import arm_cost, cost_target, reach
from analysis.curve import Curve
from analysis.runs import Run, RunState, RunTime
from analysis.summary import summarize_arm, summarize_run
from analysis.windows import final_window
from harness.records.model import AnalysisSpec, PlannedRun

SPEC = AnalysisSpec(last_steps=2, baseline_steps=(1, 3), collapse_window=2)
STEPS = np.arange(1, 11, dtype=np.int64)


def make_run(seed: int, rates: list[float], *, gpu_hours: float = 0.0, lost: float = 0.0) -> Run:
    return Run(
        PlannedRun("ipo", seed, f"id-{seed}", 10),
        RunState.DONE,
        curves={
            "solve_rate": Curve(STEPS, np.array(rates)),
            "tokens": Curve(STEPS, np.array(100.0 * STEPS, dtype=np.float64)),
        },
        clock=Curve(STEPS, np.array(3600.0 * (STEPS - 1), dtype=np.float64)),
        time=RunTime(0.0, 1.0, 9 * 3600.0, 1.0, gpu_hours, lost),
    )


RISING = [0.1 * step for step in range(1, 11)]
FLAT = [0.1] * 10


def test_the_target_is_reached_at_the_end_of_the_first_window_whose_mean_is_there() -> None:
    found = reach(make_run(0, RISING), 0.45, window=2)
    assert (found.step, found.tokens, found.hours) == (5, 500.0, 4.0)
    assert reach(make_run(0, FLAT), 0.45, window=2).step is None


def test_gpu_hours_to_the_target_are_the_clock_s_share_of_those_that_were_not_lost() -> None:
    found = reach(make_run(0, RISING, gpu_hours=20.0, lost=2.0), 0.45, window=2)
    assert found.gpu_hours == pytest.approx(18.0 * 4 / 9)
    assert reach(make_run(0, RISING), 0.45, window=2).gpu_hours is None


def test_a_run_that_never_got_there_counts_as_beyond_all_others_in_the_median() -> None:
    def cost(*curves: list[float]) -> tuple[int, int, float | None]:
        runs = [make_run(seed, rates) for seed, rates in enumerate(curves)]
        window = final_window(runs, SPEC.last_steps)
        arm = summarize_arm("ipo", [summarize_run(r, window, SPEC) for r in runs], SPEC.alpha)
        found = arm_cost(arm, 0.45, SPEC)
        return found.num_reached, found.num_runs, found.median_step

    assert cost(RISING, RISING, FLAT) == (2, 3, 5.0)
    assert cost(RISING, FLAT, FLAT) == (1, 3, None)
    assert cost(RISING, FLAT) == (1, 2, None)


def test_the_target_is_a_share_of_the_best_arm_s_final_mean() -> None:
    runs = [make_run(0, RISING)]
    window = final_window(runs, SPEC.last_steps)
    arm = summarize_arm("ipo", [summarize_run(r, window, SPEC) for r in runs], SPEC.alpha)
    assert cost_target([arm]) == pytest.approx(0.9 * 0.95)
    assert cost_target([]) is None
