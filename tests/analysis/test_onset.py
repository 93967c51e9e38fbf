from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.curve import Curve, FloatArray
from analysis.events import Event, EventState, find_explosion, find_onset
from analysis.events.cusum import (
    CLIP,
    K,
    Noise,
    autocorrelation,
    baseline_noise,
    cusum,
    locate,
    threshold,
)
from analysis.events.cusum_table import AUTOCORRELATIONS, BASELINES, FALSE_ALARMS, LENGTHS

BASELINE = (1, 100)


def log_kl(num_steps: int = 500, seed: int = 0) -> FloatArray:
    noise: FloatArray = np.random.default_rng(seed).standard_normal(num_steps)
    return math.log(1e-3) + 0.3 * noise


def onset(
    logs: FloatArray,
    baseline_steps: tuple[int, int] = BASELINE,
    going_on: int | None = None,
    false_alarm: float = 0.05,
    with_explosion: bool = False,
) -> Event:
    """Judge a KL that is logged at steps 1, 2, ...; NaN in `logs` stays NaN."""
    curve = Curve(np.arange(1, len(logs) + 1), np.exp(logs))
    steps = np.arange(1, (going_on or len(logs)) + 1)
    exploded = find_explosion(curve, steps, baseline_steps=baseline_steps, factor=20.0, hold=3)
    return find_onset(
        curve,
        steps,
        baseline_steps=baseline_steps,
        false_alarm=false_alarm,
        exploded=exploded if with_explosion else None,
        explode_hold=3,
    )


def test_pages_recursion_is_what_is_summed() -> None:
    z = np.random.default_rng(1).standard_normal((3, 50)) + 0.8
    expected = np.zeros_like(z)
    state = np.zeros(3)
    for place in range(50):
        state = np.maximum(0.0, state + z[:, place] - K)
        expected[:, place] = state
    np.testing.assert_allclose(cusum(z), expected, atol=1e-12)


def test_a_run_that_only_fluctuates_has_no_onset() -> None:
    event = onset(log_kl())
    assert (event.state, event.step, event.last_step) == (EventState.NO, None, 500)
    assert event.baseline == pytest.approx(float(np.median(np.exp(log_kl()[:100]))), rel=1e-2)


def autocorrelated(num_runs: int, num_steps: int, phi: float) -> FloatArray:
    rng = np.random.default_rng(4)
    series = np.zeros((num_runs, num_steps))
    series[:, 0] = rng.standard_normal(num_runs)
    for place in range(1, num_steps):
        new = math.sqrt(1 - phi**2) * rng.standard_normal(num_runs)
        series[:, place] = phi * series[:, place - 1] + new
    return series


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_false_alarms_are_as_rare_as_said(phi: float) -> None:
    runs = math.log(1e-3) + 0.3 * autocorrelated(300, 400, phi)
    found = {
        rate: sum(onset(run, false_alarm=rate).state is EventState.YES for run in runs) / 300
        for rate in (0.05, 0.2)
    }
    # Plus two standard errors of 300 runs.
    assert found[0.05] <= 0.05 + 0.025
    assert found[0.05] < found[0.2] <= 0.2 + 0.046


def test_a_step_up_is_found_where_it_is() -> None:
    logs = log_kl()
    logs[299:] += 1.2
    event = onset(logs)
    assert event.state is EventState.YES
    assert event.step == 300
    assert event.first is not None
    assert event.last is not None
    assert event.first < 300 <= event.last < 310


def test_a_slow_rise_is_dated_back_to_its_beginning_and_bounded() -> None:
    logs = log_kl()
    logs += 0.01 * np.clip(np.arange(1, 501) - 300, 0, None)
    event = onset(logs)
    assert event.step is not None
    assert event.first is not None
    assert event.last is not None
    assert abs(event.step - 300) <= 20
    assert event.first <= 300 < event.last
    assert event.last > event.step


def test_a_fall_is_no_onset() -> None:
    logs = log_kl()
    logs[299:] -= 3.0
    assert onset(logs).state is EventState.NO


def test_a_kl_of_zero_counts_as_far_below() -> None:
    logs = log_kl()
    logs[299:] = -np.inf
    assert onset(logs).state is EventState.NO


def test_one_spike_of_50_times_is_no_onset() -> None:
    logs = log_kl()
    logs[299] += math.log(50)
    assert onset(logs).state is EventState.NO


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_values_that_are_not_finite_count_as_far_above(lost: float) -> None:
    logs = log_kl()
    logs[299:310] = lost
    event = onset(logs)
    assert (event.state, event.step) == (EventState.YES, 300)


def test_a_metric_that_vanishes_counts_as_far_above() -> None:
    assert onset(log_kl(300), going_on=300).state is EventState.NO
    event = onset(log_kl(300), going_on=320)
    assert (event.state, event.step) == (EventState.YES, 301)


def test_an_explosion_is_an_alarm_where_the_cusum_is_slower() -> None:
    # Autocorrelated noise makes the CUSUM slow: it takes more than three steps.
    rng = np.random.default_rng(3)
    noise = np.zeros(500)
    for place in range(1, 500):
        noise[place] = 0.9 * noise[place - 1] + 0.05 * rng.standard_normal()
    logs = np.log(1e-3) + noise
    logs[399:] += 5.0
    assert (onset(logs).last or 0) > 402
    event = onset(logs, with_explosion=True)
    assert (event.step, event.last) == (400, 402)


def test_an_explosion_in_the_baseline_window_leaves_no_onset_to_judge() -> None:
    logs = log_kl()
    logs[79:] += 5.0
    event = onset(logs, with_explosion=True)
    assert event.state is EventState.UNDECIDABLE
    assert event.reason == "the baseline window holds an explosion, at step 80"


@pytest.mark.parametrize(
    ("logs", "baseline_steps", "reason"),
    [
        (np.array([]), BASELINE, "mismatch KL is not logged"),
        (
            log_kl(),
            (9, 14),
            "a baseline of 6 values is too short to calibrate false alarms with; it takes 20",
        ),
        (np.full(500, -7.0), BASELINE, "the baseline does not fluctuate"),
        (np.full(500, -np.inf), BASELINE, "most of the baseline is not finite or 0"),
        (
            np.linspace(-7, -6, 500),
            (1, 30),
            "a baseline of 30 values with autocorrelation 0.98 is too short to tell a change from "
            "noise",
        ),
    ],
)
def test_without_a_calibration_an_onset_is_undecidable(
    logs: FloatArray, baseline_steps: tuple[int, int], reason: str
) -> None:
    event = onset(logs, baseline_steps)
    assert (event.state, event.step, event.reason) == (EventState.UNDECIDABLE, None, reason)


def test_a_baseline_with_outliers_keeps_its_level_and_spread() -> None:
    window = np.random.default_rng(5).standard_normal(200)
    clean, spiky = baseline_noise(window), baseline_noise(np.append(window, [50.0, np.inf]))
    assert isinstance(clean, Noise)
    assert isinstance(spiky, Noise)
    assert spiky.sd == pytest.approx(clean.sd, rel=0.05)
    assert spiky.center == pytest.approx(clean.center, abs=0.05)


def test_autocorrelation_is_that_of_the_series_without_the_bias_of_a_short_window() -> None:
    rng = np.random.default_rng(2)
    series = np.zeros((2000, 100))
    series[:, 0] = rng.standard_normal(2000)
    for place in range(1, 100):
        series[:, place] = 0.6 * series[:, place - 1] + 0.8 * rng.standard_normal(2000)
    assert float(autocorrelation(series).mean()) == pytest.approx(0.6, abs=0.01)


def test_the_threshold_is_the_table_s_at_its_nodes_and_between_them_in_between() -> None:
    def h(n: float = 200, length: float = 1000, phi: float = 0.8, alpha: float = 0.05) -> float:
        return threshold(Noise(0.0, 1.0, phi, int(n)), int(length), alpha)

    # From the table in this order: 200 values, 1000 watched, phi 0.8.
    from analysis.events.cusum_table import THRESHOLDS  # noqa: PLC0415

    shape = (len(BASELINES), len(LENGTHS), len(AUTOCORRELATIONS), len(FALSE_ALARMS))
    table = np.array(THRESHOLDS.split(), dtype=float).reshape(shape)
    assert h() == pytest.approx(table[4, 4, 4, 3])
    assert h(alpha=0.005) > h(alpha=0.03) > h(alpha=0.2)
    assert h(phi=0.7) < h(phi=0.75) < h(phi=0.8)
    assert h(length=300) < h(length=500) < h(length=1000)
    assert h(n=10**6) == h(n=800)
    assert h(length=10**6) == h(length=10**4)


def test_no_single_value_raises_an_alarm_at_the_stated_rate() -> None:
    for n in BASELINES:
        for length in LENGTHS[1:]:
            assert threshold(Noise(0.0, 1.0, 0.0, n), length, 0.05) > CLIP - K


def test_a_rise_is_located_whatever_the_level_before_it() -> None:
    z = np.random.default_rng(8).standard_normal(200)
    z[150:] += 3.0
    change = locate(z, 100, 199, Noise(0.0, 1.0, 0.0, 100))
    assert change == locate(z + 0.7, 100, 199, Noise(0.0, 1.0, 0.0, 100))
    assert change.alarm == 199
    assert abs(change.estimate - 150) <= 1
    assert 147 <= change.earliest <= change.estimate


def test_the_beginning_of_a_slow_rise_is_bounded_more_widely() -> None:
    z = np.random.default_rng(8).standard_normal(200)
    z += 0.05 * np.clip(np.arange(200) - 149, 0, None)
    change = locate(z, 100, 199, Noise(0.0, 1.0, 0.0, 100))
    assert abs(change.estimate - 150) <= 15
    assert change.earliest <= 150 - 5


def test_no_beginning_lies_within_the_baseline() -> None:
    z = np.zeros(200)
    z[50:] = 4.0
    assert locate(z, 100, 199, Noise(0.0, 1.0, 0.0, 100)).earliest >= 100
