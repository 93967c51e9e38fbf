from __future__ import annotations

import math

import pytest

from analysis.events import survival

# Weeks of remission under 6-MP (Freireich et al. 1963), the example of Kalbfleisch and Prentice,
# The Statistical Analysis of Failure Time Data, table 1.1; a negative number is censored.
REMISSIONS = [
    6,
    6,
    6,
    -6,
    7,
    -9,
    10,
    -10,
    -11,
    13,
    16,
    -17,
    -19,
    -20,
    22,
    23,
    -25,
    -32,
    -32,
    -34,
    -35,
]


def test_the_textbook_example_comes_out() -> None:
    curve = survival(
        [weeks if weeks > 0 else None for weeks in REMISSIONS], [abs(w) for w in REMISSIONS]
    )
    assert curve.steps == (6, 7, 10, 13, 16, 22, 23)
    assert curve.at_risk == (21, 17, 15, 12, 11, 7, 6)
    assert curve.num_events == (3, 1, 1, 1, 1, 1, 1)
    # By hand: 18/21, x 16/17, x 14/15, x 11/12, x 10/11, x 6/7, x 5/6.
    expected = [0.857143, 0.806723, 0.752941, 0.690196, 0.627451, 0.537815, 0.448179]
    assert curve.share == pytest.approx(expected, abs=1e-6)
    # As statistical packages print them for this example.
    assert curve.low == pytest.approx(
        [0.6197, 0.5631, 0.5032, 0.4316, 0.3675, 0.2678, 0.1881], abs=6e-5
    )
    assert curve.high == pytest.approx(
        [0.9516, 0.9228, 0.8894, 0.8491, 0.8049, 0.7468, 0.6801], abs=6e-5
    )
    assert curve.num_censored == 12
    assert curve.num_runs == 21


def test_without_events_the_curve_stays_at_one_and_everything_is_censored() -> None:
    curve = survival([None, None], [300, 200])
    assert (curve.steps, curve.share, curve.censored_at) == ((), (), (200, 300))


def test_without_censoring_the_share_is_that_of_the_runs_left() -> None:
    curve = survival([10, 20, 20, 40], [100, 100, 100, 100])
    assert curve.share == pytest.approx([0.75, 0.25, 0.0])
    assert math.isnan(curve.low[-1])
    assert math.isnan(curve.high[-1])


def test_a_run_censored_at_the_step_of_an_event_was_at_risk_there() -> None:
    assert survival([10, None], [50, 10]).at_risk == (2,)
    assert survival([10, None], [50, 9]).at_risk == (1,)


def test_a_smaller_alpha_widens_the_interval() -> None:
    wide, narrow = (survival([10, None, None], [50] * 3, alpha=alpha) for alpha in (0.01, 0.2))
    assert wide.low[0] < narrow.low[0] < narrow.share[0] < narrow.high[0] < wide.high[0]


def test_no_runs_give_an_empty_curve() -> None:
    assert survival([], []).num_runs == 0


def test_an_event_after_its_run_s_last_step_is_refused() -> None:
    with pytest.raises(ValueError, match="event at step 10 after the run's last step 9"):
        survival([10], [9])


def test_every_run_needs_a_last_step() -> None:
    with pytest.raises(ValueError, match="shorter"):
        survival([10], [])
