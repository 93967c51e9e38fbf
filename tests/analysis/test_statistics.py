"""Golden values are computed by hand or from printed tables, not by the library under the code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import (
    clopper_pearson,
    fisher_exact,
    holm,
    least_fisher_p,
    mean_interval,
    minimum_detectable,
    paired_t,
    welch_t,
)


def test_the_t_interval_of_five_values() -> None:
    # mean 3, sd sqrt(2.5), t(0.975, 4) = 2.776445 (tables).
    found = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.05)
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert (found.n, found.mean) == (5, 3.0)
    assert found.low == pytest.approx(3 - half, rel=1e-6)
    assert found.high == pytest.approx(3 + half, rel=1e-6)


def test_one_value_has_no_interval() -> None:
    found = mean_interval([0.7], 0.05)
    assert (found.n, found.mean, found.low, found.high) == (1, 0.7, None, None)


def test_paired_t_of_five_published_pairs() -> None:
    # Five matched RL pairs in percentage points: mean +0.31, sd 12.0, interval +-14.9.
    found = paired_t([-2.34, 12.50, -17.58, 10.16, -1.17], 0.05)
    assert found.effect == pytest.approx(0.314, abs=5e-4)
    assert found.high - found.effect == pytest.approx(14.9, abs=0.05)
    assert found.p == pytest.approx(0.956, abs=1e-3)


def test_two_pairs_have_the_closed_form_p() -> None:
    # With one degree of freedom p = 1 - 2 atan(|t|) / pi; differences 1 and 3 give t = 2.
    found = paired_t([1.0, 3.0], 0.05)
    assert found.p == pytest.approx(1 - 2 * math.atan(2.0) / math.pi, rel=1e-12)
    # t(0.975, 1) = tan(0.475 pi).
    assert found.high == pytest.approx(2 + math.tan(0.475 * math.pi), rel=1e-9)


def test_welch_by_hand() -> None:
    # means 3 and 6, variances 1 and 4, n = 3 each: se^2 = 5/3, df = (5/3)^2 / (1/18 + 16/18).
    found = welch_t([2.0, 3.0, 4.0], [4.0, 6.0, 8.0], 0.05)
    assert found.effect == -3.0
    assert found.standard_error == pytest.approx(math.sqrt(5 / 3))
    assert found.df == pytest.approx((25 / 9) / (17 / 18))


def test_differences_without_spread_are_decided_by_their_size() -> None:
    assert paired_t([0.0, 0.0, 0.0], 0.05).p == 1.0
    assert paired_t([-1.0, -1.0, -1.0], 0.05).p == 0.0
    assert welch_t([1.0, 1.0], [1.0, 1.0], 0.05).p == 1.0


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 5, 0.0, 1 - 0.025 ** (1 / 5)),
        (0, 2, 0.0, 1 - 0.025 ** (1 / 2)),
        (1, 1, 0.025, 1.0),
        (8, 8, 0.025 ** (1 / 8), 1.0),
        # Clopper and Pearson's own table: 3 of 10 gives [0.0667, 0.6525].
        (3, 10, 0.0667, 0.6525),
    ],
)
def test_clopper_pearson(k: int, n: int, low: float, high: float) -> None:
    found = clopper_pearson(k, n, 0.05)
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


def test_no_runs_leave_every_share_possible() -> None:
    found = clopper_pearson(0, 0, 0.05)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("arm", "baseline", "p"),
    [
        ((1, 1), (0, 2), 1 / 3),
        ((3, 3), (0, 3), 2 / 20),
        ((4, 4), (0, 4), 2 / 70),
        # 4 of 5 against 1 of 5, C(10, 5) = 252 tables: 2 (C(5,4) C(5,1) + 1) / 252.
        ((4, 5), (1, 5), 2 * 26 / 252),
        ((0, 5), (0, 5), 1.0),
    ],
)
def test_fisher_exact(arm: tuple[int, int], baseline: tuple[int, int], p: float) -> None:
    assert fisher_exact(arm, baseline) == pytest.approx(p, rel=1e-12)


def test_three_against_three_cannot_reach_five_percent() -> None:
    assert least_fisher_p(3, 3) == pytest.approx(0.1)
    assert least_fisher_p(4, 4) == pytest.approx(2 / 70)


def test_holm_by_hand() -> None:
    # Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 -> the last is raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_never_lowers_p(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, after in zip(p_values, adjusted, strict=True):
        assert p <= after <= 1.0
    for i, j in zip(np.argsort(p_values)[:-1], np.argsort(p_values)[1:], strict=True):
        assert adjusted[i] <= adjusted[j]


@pytest.mark.parametrize(("n", "alpha"), [(3, 0.05), (8, 0.05), (8, 0.0025)])
def test_the_minimum_detectable_difference_is_found_with_a_power_of_080(
    n: int, alpha: float
) -> None:
    # Simulated, with the true standard deviation 1: the power is 0.8 within 4 standard errors.
    shift = minimum_detectable(1 / math.sqrt(n), n - 1, alpha)
    generator = np.random.default_rng(7)
    draws = generator.normal(shift, 1.0, size=(20_000, n))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n))
    critical = {(3, 0.05): 4.302653, (8, 0.05): 2.364624, (8, 0.0025): 4.594626}[(n, alpha)]
    assert np.mean(np.abs(t) > critical) == pytest.approx(0.8, abs=0.0115)


def test_no_spread_detects_anything() -> None:
    assert minimum_detectable(0.0, 7, 0.05) == 0.0


def test_intervals_of_the_smallest_alpha_are_wide_and_never_nan() -> None:
    # t(1 - p, 1) = 1 / tan(pi p), which is 1 / (pi p) for small p.
    found = mean_interval([1.0, 3.0], 1e-300)
    assert found.high == pytest.approx(1 / (math.pi * 5e-301))
    beyond = mean_interval([1.0, 2.0, 4.0], 5e-324)
    assert (beyond.low, beyond.high) == (-math.inf, math.inf)
    same = mean_interval([2.0, 2.0, 2.0], 5e-324)
    assert (same.low, same.high) == (2.0, 2.0)
    share = clopper_pearson(1, 2, 1e-300)
    assert share.low == pytest.approx(2.5e-301)
    assert share.high == 1.0


def test_spread_whose_squares_are_beyond_floats() -> None:
    # sd of 1, 2, 3 is 1, so of 1e200, 2e200, 3e200 it is 1e200; t(0.975, 2) = 4.302653.
    for size in (1e200, 1e-200):
        found = mean_interval([size, 2 * size, 3 * size], 0.05)
        assert found.high == pytest.approx(size * (2 + 4.302653 / math.sqrt(3)), rel=1e-6)
    paired = paired_t([1e-200, 2e-200, 3e-200], 0.05)
    assert paired.p == pytest.approx(paired_t([1.0, 2.0, 3.0], 0.05).p)
    welch = welch_t([2e180, 3e180, 4e180], [4e180, 6e180, 8e180], 0.05)
    assert welch.df == pytest.approx((25 / 9) / (17 / 18))
    assert welch.standard_error == pytest.approx(1e180 * math.sqrt(5 / 3))


def test_a_difference_beyond_floats_has_no_p() -> None:
    found = paired_t([math.inf, -math.inf, math.inf], 0.05)
    assert not found.is_finite
    assert math.isnan(found.p)
    assert not welch_t([1.7e308, -1.7e308], [-1.7e308, 1.7e308], 0.05).is_finite
    assert paired_t([1.0, 2.0, 3.0], 0.05).is_finite


def test_the_minimum_detectable_difference_far_out_follows_the_limit() -> None:
    # Where alpha is so small that only the noise of the variance matters, df = 2 gives
    # P(shift / sqrt(chi2 / 2) > c) = 1 - exp(-(shift / c)^2), so shift = c sqrt(ln 5).
    for alpha in (1e-7, 1e-9, 1e-30):  # Before and after the limit is used.
        critical = 1 / math.sqrt(alpha)
        expected = critical * math.sqrt(math.log(5))
        assert minimum_detectable(1.0, 2, alpha) == pytest.approx(expected, rel=1e-5)
    assert minimum_detectable(1.0, 2, 5e-324) == math.inf
