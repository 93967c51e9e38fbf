from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.curve import Curve
from analysis.events import (
    Event,
    EventState,
    find_baseline_explosion,
    find_collapse,
    find_explosion,
    gone_steps,
)

BASELINE = (5, 20)


def curve(values: dict[int, float]) -> Curve:
    return Curve(
        np.array(sorted(values), dtype=np.int64), np.array([values[s] for s in sorted(values)])
    )


def flat(level: float, last: int = 100, first: int = 1) -> dict[int, float]:
    return dict.fromkeys(range(first, last + 1), level)


def explosion(
    kl: dict[int, float], going_on: list[int] | None = None, factor: float = 20.0, hold: int = 3
) -> Event:
    steps = np.array(going_on if going_on is not None else sorted(kl), dtype=np.int64)
    return find_explosion(curve(kl), steps, baseline_steps=BASELINE, factor=factor, hold=hold)


def collapse(
    solve_rate: dict[int, float], last_logged_step: int | None = None, window: int = 10
) -> Event:
    last = max(solve_rate, default=0) if last_logged_step is None else last_logged_step
    return find_collapse(
        curve(solve_rate), last, baseline_steps=BASELINE, window=window, fraction=0.5
    )


def test_an_explosion_is_found_at_its_first_step() -> None:
    event = explosion({**flat(1e-3), **dict.fromkeys(range(50, 101), 0.021)})
    assert (event.state, event.step) == (EventState.YES, 50)
    assert event.baseline == 1e-3
    assert event.threshold == pytest.approx(0.02)


def test_the_threshold_itself_is_not_above_it() -> None:
    assert explosion({**flat(1.0), **flat(20.0, 100, 50)}).state is EventState.NO


def test_a_spike_shorter_than_the_hold_is_no_explosion() -> None:
    event = explosion({**flat(1e-3), 50: 9.0, 51: 9.0})
    assert (event.state, event.step, event.last_step) == (EventState.NO, None, 100)


def test_the_hold_counts_logged_steps() -> None:
    sparse = dict.fromkeys(range(2, 100, 2), 0.001)
    event = explosion({**sparse, 50: 9.0, 52: 9.0, 54: 9.0})
    assert event.step == 50


def test_an_explosion_inside_the_baseline_window_counts() -> None:
    assert explosion({**flat(1e-3), **flat(1.0, 100, 18)}).step == 18


def baseline_explosion(kl: dict[int, float]) -> int | None:
    steps = np.array(sorted(kl), dtype=np.int64)
    return find_baseline_explosion(curve(kl), steps, baseline_steps=BASELINE, factor=20.0, hold=3)


def test_an_explosion_that_lifts_its_own_baseline_is_found_where_the_rule_is_blind() -> None:
    # 9 of the 16 baseline steps are high, so their median is, too.
    kl = {**flat(1e-3), **flat(1.0, 100, 12)}
    assert explosion(kl).state is EventState.NO
    assert baseline_explosion(kl) == 12


def test_an_explosion_that_the_rule_sees_inside_the_baseline_window_is_found() -> None:
    assert baseline_explosion({**flat(1e-3), **flat(1.0, 8)}) == 5
    assert baseline_explosion({**flat(1e-3), **flat(1.0, 100, 18)}) == 18


@pytest.mark.parametrize(
    "kl",
    [
        flat(1e-3),
        {**flat(1e-3), **flat(1.0, 100, 21)},
        {**flat(1e-3), 12: 1.0, 13: 1.0},
        {**flat(1e-3), **flat(0.02, 100, 12)},
        {},
    ],
)
def test_a_calm_or_a_spiking_baseline_holds_no_explosion(kl: dict[int, float]) -> None:
    assert baseline_explosion(kl) is None


def test_a_kl_near_the_largest_float_is_judged_like_any_other() -> None:
    event = explosion({**flat(1e308), 50: math.inf, 51: math.inf, 52: math.inf})
    assert (event.step, event.baseline, event.threshold) == (50, 1e308, math.inf)


def test_values_that_are_not_finite_count_as_above() -> None:
    event = explosion({**flat(1e-3), 60: math.nan, 61: math.inf, 62: math.nan})
    assert (event.state, event.step) == (EventState.YES, 60)
    assert event.reason == "non-finite or no longer logged"


def test_a_metric_that_vanishes_while_the_trainer_goes_on_counts_as_above() -> None:
    event = explosion(flat(1e-3, 70), going_on=list(range(1, 101)))
    assert (event.state, event.step, event.last_step) == (EventState.YES, 71, 100)


def test_a_run_that_just_ends_has_not_vanished() -> None:
    event = explosion(flat(1e-3, 70), going_on=list(range(1, 71)))
    assert (event.state, event.last_step) == (EventState.NO, 70)


def test_a_sparse_metric_is_due_as_often_as_in_its_baseline() -> None:
    sparse = curve(dict.fromkeys(range(5, 61, 5), 1.0))
    going_on = np.arange(1, 81)
    gone = gone_steps(sparse, going_on, last_reference_step=20)
    assert gone.tolist() == [65, 70, 75, 80]


def test_nothing_is_due_before_the_first_value() -> None:
    late = curve(flat(1.0, 30, first=10))
    assert gone_steps(late, np.arange(1, 31), last_reference_step=20).tolist() == []


@pytest.mark.parametrize(
    ("kl", "reason"),
    [
        ({}, "mismatch KL is not logged"),
        (flat(1.0, 100, 30), "mismatch KL begins at step 30, after the baseline window has begun"),
        (flat(1.0, 20), "mismatch KL is there up to step 20, not beyond the baseline window"),
        (
            {**flat(1.0), **flat(math.nan, 18, 5)},
            "mismatch KL has 2 values in baseline steps 5-20, not 3",
        ),
        (flat(0.0), "the baseline mismatch KL is 0"),
    ],
)
def test_without_a_baseline_an_explosion_is_undecidable(kl: dict[int, float], reason: str) -> None:
    event = explosion(kl)
    assert (event.state, event.step, event.reason) == (EventState.UNDECIDABLE, None, reason)


def test_a_collapse_is_found_where_its_window_falls_below() -> None:
    event = collapse({**flat(0.8), **flat(0.0, 100, 51)})
    # Windows of 10: with 6 zeros the mean is 0.32 < 0.4; with 5 it is 0.4, which is not below.
    assert (event.state, event.step) == (EventState.YES, 56)
    assert event.baseline == pytest.approx(0.8)


def test_a_dip_that_recovers_is_no_collapse() -> None:
    event = collapse({**flat(0.8), **flat(0.0, 70, 51)})
    assert (event.state, event.step, event.last_step) == (EventState.NO, None, 100)


def test_the_step_is_that_of_the_last_stretch_below() -> None:
    event = collapse({**flat(0.8), **flat(0.0, 60, 41), **flat(0.0, 100, 81)})
    assert event.step == 86


def test_a_slow_decline_above_the_fraction_is_no_collapse() -> None:
    declining = {step: 0.8 - 0.003 * max(0, step - 20) for step in range(1, 101)}
    assert collapse(declining).state is EventState.NO


@pytest.mark.parametrize(
    ("solve_rate", "last_step", "reason"),
    [
        ({}, 0, "solve rate is not logged"),
        (flat(0.8, 19), 19, "solve rate is there up to step 19, not beyond the baseline window"),
        (flat(0.8, 29), 29, "fewer than 10 steps to judge after the baseline window"),
        (flat(0.0), 100, "the baseline solve rate is 0"),
        (flat(0.8, 60), 100, "the solve rate is not logged after step 60"),
    ],
)
def test_what_cannot_be_judged_is_never_a_no(
    solve_rate: dict[int, float], last_step: int, reason: str
) -> None:
    event = collapse(solve_rate, last_step)
    assert (event.state, event.reason) == (EventState.UNDECIDABLE, reason)


def test_a_solve_rate_that_ends_in_nan_is_judged_by_what_there_is() -> None:
    event = collapse({**flat(0.8, 95), **flat(math.nan, 100, 96)})
    assert (event.state, event.last_step) == (EventState.NO, 95)
