from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from analysis.curve import Curve, FloatArray
from analysis.resampling import (
    autocorrelation_time,
    interquartile_mean,
    iqm_effect,
    within_run,
)


def ar1(phi: float, shape: tuple[int, ...], seed: int) -> FloatArray:
    """Return stationary AR(1) noise of variance 1 along the last axis."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    noise[..., 1:] *= math.sqrt(1 - phi**2)
    found: FloatArray = signal.lfilter([1.0], [1.0, -phi], noise, axis=-1)
    return found


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    # As scipy.stats.trim_mean(..., 0.25): 8 values lose 2 at each end, 10 values lose 2 as well.
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 100]) == 4.5
    assert interquartile_mean([i * i for i in range(10)]) == pytest.approx(139 / 6)
    assert interquartile_mean([100, 1, 2, 3]) == 2.5


def test_the_interval_of_interquartile_means_is_that_of_plain_resampling() -> None:
    generator = np.random.default_rng(3)
    arm, baseline = generator.normal(1, 1, 12), generator.normal(0, 1, 9)
    found = iqm_effect(list(arm), list(baseline), is_paired=False, alpha=0.05)
    draws = []
    for _ in range(4000):
        a, b = generator.choice(arm, 12), generator.choice(baseline, 9)
        draws.append(interquartile_mean(list(a)) - interquartile_mean(list(b)))
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found is not None
    assert found.effect == interquartile_mean(list(arm)) - interquartile_mean(list(baseline))
    assert found.low == pytest.approx(low, abs=0.05)
    assert found.high == pytest.approx(high, abs=0.05)


def test_pairs_are_drawn_together() -> None:
    baseline = [0.1, 0.9, 0.3, 0.7, 0.5, 0.2, 0.8, 0.4]
    arm = [value + 0.25 for value in baseline]
    found = iqm_effect(arm, baseline, is_paired=True, alpha=0.05)
    assert found is not None
    assert (found.effect, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))
    apart = iqm_effect(arm, baseline, is_paired=False, alpha=0.05)
    assert apart is not None
    assert apart.high - apart.low > 0.2


def test_an_interval_depends_on_its_values_alone() -> None:
    values = [0.1, 0.9, 0.3, 0.7, 0.5, 0.2, 0.8, 0.4]
    first = iqm_effect(values, values[::-1], is_paired=False, alpha=0.05)
    iqm_effect(values * 2, values, is_paired=False, alpha=0.05)
    assert iqm_effect(values, values[::-1], is_paired=False, alpha=0.05) == first


def test_below_eight_runs_or_beyond_floats_there_is_no_interquartile_mean() -> None:
    assert iqm_effect([0.0] * 7, [0.0] * 8, is_paired=False, alpha=0.05) is None
    huge = [1.7e308] * 8
    assert iqm_effect(huge, [-x for x in huge], is_paired=False, alpha=0.05) is None


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_autocorrelation_time_of_an_ar1_process(phi: float) -> None:
    # 1 + 2 sum phi^k = (1 + phi) / (1 - phi).
    time = autocorrelation_time(ar1(phi, (200_000,), 1))
    assert time == pytest.approx((1 + phi) / (1 - phi), rel=0.1)


def test_constants_and_single_values_have_no_memory() -> None:
    assert autocorrelation_time(np.full(50, 0.3)) == 1.0
    assert autocorrelation_time(np.array([2.0])) == 1.0
    assert autocorrelation_time(np.array([1e308, -1e308] * 20)) == 1.0


@pytest.mark.parametrize(("phi", "least"), [(0.0, 0.92), (0.8, 0.88)])
def test_the_block_bootstrap_covers_the_mean_of_correlated_steps(phi: float, least: float) -> None:
    steps = np.arange(1, 1001)
    found = [
        within_run(Curve(steps, 5.0 + noise), steps, 0.05) for noise in ar1(phi, (200, 1000), 2)
    ]
    intervals = [(item.low, item.high) for item in found if item is not None]
    covered = [
        low <= 5.0 <= high for low, high in intervals if low is not None and high is not None
    ]
    assert len(covered) > 170
    assert least <= np.mean(covered) <= 0.99


def test_too_few_independent_stretches_give_no_interval() -> None:
    steps = np.arange(1, 301)
    white = Curve(steps, ar1(0.0, (300,), 4))
    enough = within_run(white, steps, 0.05)
    assert enough is not None
    assert (enough.block, enough.problem) == (20, "")
    short = within_run(white, steps[-299:], 0.05)
    assert short is not None
    assert (short.low, short.high, short.num_values) == (None, None, 299)
    assert short.problem == "not enough independent stretches"
    slow = within_run(Curve(steps, ar1(0.98, (300,), 4)), steps, 0.05)
    assert slow is not None
    assert (slow.low, slow.problem) == (None, "not enough independent stretches")


def test_only_finite_values_within_the_window_count() -> None:
    curve = Curve(np.array([1, 2, 3, 4]), np.array([9.0, 1.0, math.nan, 3.0]))
    found = within_run(curve, np.array([2, 3, 4]), 0.05)
    assert found is not None
    assert (found.mean, found.num_values) == (2.0, 2)
    assert within_run(curve, np.array([3]), 0.05) is None
