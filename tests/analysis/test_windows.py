from __future__ import annotations

import math

import numpy as np

from analysis.curve import Curve
from analysis.runs import Run, RunState
from analysis.windows import final_window, going_on, gone_kl_steps, last_judged_step, window_mean
from harness.records.model import PlannedRun


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


def test_the_window_is_the_last_steps_that_every_finished_run_logged() -> None:
    runs = [
        make_run({"loss": flat(0.0, 1, 40)}),
        make_run({"loss": flat(0.0, 3, 35)}, seed=1),
        make_run({"loss": flat(0.0, 1, 12)}, seed=2, state=RunState.UNFINISHED),
    ]
    window = final_window(runs, 10)
    assert window is not None
    assert (window.first, window.last, len(window.steps)) == (26, 35, 10)
    assert (window.common_first, window.common_last, window.num_common) == (3, 35, 33)


def test_without_finished_runs_or_common_steps_there_is_no_window() -> None:
    assert final_window([make_run({"loss": flat(0.0)}, state=RunState.FAILED)], 10) is None
    even = make_run({"loss": dict.fromkeys(range(2, 40, 2), 0.0)})
    odd = make_run({"loss": dict.fromkeys(range(1, 40, 2), 0.0)})
    assert final_window([even, odd], 10) is None
    assert final_window([make_run({})], 10) is None


def test_the_last_judged_step_is_the_last_that_all_finished_runs_logged() -> None:
    long = make_run({"loss": flat(0.0, 1, 60)})
    short = make_run({"loss": flat(0.0, 1, 20)}, seed=1)
    running = make_run({"loss": flat(0.0, 1, 12)}, seed=2, state=RunState.UNFINISHED)
    assert last_judged_step([long, short, running]) == 20
    assert last_judged_step([long, make_run({}, seed=3)]) == 60
    assert last_judged_step([running]) is None
    even = make_run({"loss": dict.fromkeys(range(2, 40, 2), 0.0)})
    odd = make_run({"loss": dict.fromkeys(range(1, 30, 2), 0.0)})
    assert last_judged_step([even, odd]) == 29


def test_window_means_use_the_finite_values_present() -> None:
    run = make_run(
        {"entropy": {**flat(1.0, 1, 30), 38: 2.0, 39: math.nan, 40: 4.0}, "loss": flat(0)}
    )
    mean = window_mean(run, "entropy", np.arange(31, 41))
    assert (mean.mean, mean.num_values, mean.num_nonfinite) == (3.0, 2, 1)


def test_steps_at_which_the_kl_is_gone_count_as_not_finite() -> None:
    run = make_run({"mismatch_kl": flat(1e-3, 1, 36), "loss": flat(0.0)})
    gone = gone_kl_steps(run, 6)
    assert gone.tolist() == [37, 38, 39, 40]
    assert gone_kl_steps(run, 6, judged_to=38).tolist() == [37, 38]
    mean = window_mean(run, "mismatch_kl", np.arange(31, 41), gone)
    assert (mean.mean, mean.num_values, mean.num_nonfinite) == (1e-3, 6, 4)


def test_the_trainer_goes_on_where_it_logs_and_trains_a_token() -> None:
    tokens = {step: 100.0 * min(step, 5) for step in range(1, 9)}
    run = make_run({"loss": flat(0.0, 1, 8), "tokens": tokens, "solve_rate": flat(0.5, 1, 12)})
    assert going_on(run).tolist() == [1, 2, 3, 4, 5]
    assert going_on(run, judged_to=3).tolist() == [1, 2, 3]
    assert going_on(make_run({})).tolist() == []
