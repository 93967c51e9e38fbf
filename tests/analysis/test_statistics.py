"""Golden values are computed by hand, from printed tables or by statsmodels 0.15.0."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics import (
    Share,
    detectable,
    fisher_detectable,
    fisher_exact,
    holm,
    jeffreys,
    least_fisher_p,
    mean_interval,
    minimum_detectable,
    paired_t,
    share_difference,
    tost_p,
    welch_detectable,
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
        # statsmodels 0.15.0, proportion_confint(k, n, method="jeffreys"), but for the ends 0 and 1.
        (0, 5, 0.0, 0.3793771422990394),
        (0, 2, 0.0, 0.6668217544012092),
        (1, 1, 0.14674631630957513, 1.0),
        (8, 8, 0.7377827512828142, 1.0),
        (3, 10, 0.09269459393815316, 0.6058183181486714),
    ],
)
def test_jeffreys(k: int, n: int, low: float, high: float) -> None:
    found = jeffreys(k, n, 0.05)
    assert (found.k, found.n) == (k, n)
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


def test_no_runs_leave_every_share_possible() -> None:
    found = jeffreys(0, 0, 0.05)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(("n", "least"), [(3, 0.89), (5, 0.89), (10, 0.86)])
def test_jeffreys_covers_most_true_shares_however_few_runs(n: int, least: float) -> None:
    shares = np.linspace(0.001, 0.999, 999)
    found = [jeffreys(k, n, 0.05) for k in range(n + 1)]
    is_inside = [(share.low <= shares) & (shares <= share.high) for share in found]
    coverage = sum(inside * stats.binom.pmf(k, n, shares) for k, inside in enumerate(is_inside))
    assert np.min(coverage) > least
    assert np.mean(coverage) > 0.95


def test_a_difference_of_shares_after_newcombe() -> None:
    # Wilson's limits of 3 and 1 of 10; statsmodels' confint_proportions_2indep, "newcomb".
    arm = Share(3, 10, 0.10779126740630104, 0.6032218525388546)
    baseline = Share(1, 10, 0.017876213095072924, 0.40415002679523854)
    expected = (-0.1597936015062252, 0.5141461574374272)
    assert share_difference(arm, baseline) == pytest.approx(expected, abs=1e-12)
    same = Share(5, 5, 0.5, 1.0)
    assert share_difference(same, same) == (-0.5, 0.5)


def test_equivalence_by_two_one_sided_tests() -> None:
    a, b = [0.80, 0.90, 0.75, 0.85], [0.85, 0.80, 0.85, 0.80]
    # statsmodels' ttost_paired(a, b, -0.1, 0.1) and ttost_ind(..., usevar="unequal").
    paired = paired_t([x - y for x, y in zip(a, b, strict=True)], 0.05)
    assert tost_p(paired, 0.1) == pytest.approx(0.0580787641737691, rel=1e-9)
    assert tost_p(welch_t(a, b, 0.05), 0.1) == pytest.approx(0.022699156281608412, rel=1e-9)


def test_equivalence_without_spread_is_decided_by_the_size() -> None:
    assert tost_p(paired_t([0.125, 0.125], 0.05), 0.25) == 0.0
    assert tost_p(paired_t([0.25, 0.25], 0.05), 0.25) == 1.0


def test_a_difference_beyond_the_margin_is_never_equivalent() -> None:
    assert tost_p(paired_t([0.30, 0.32, 0.28], 0.05), 0.1) > 0.99


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
    share = jeffreys(1, 2, 1e-300)
    # The Beta(3/2, 3/2) distribution is 16 x^(3/2) / (3 pi) near 0.
    assert share.low == pytest.approx((3 * math.pi / 16 * 5e-301) ** (2 / 3))
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


def test_minimum_detectable_differences_agree_with_a_power_analysis() -> None:
    # statsmodels' TTestPower().solve_power(nobs, alpha, power=0.8).
    for n, alpha, expected in ((8, 0.05, 1.156035271959959), (5, 0.0125, 2.476790392567017)):
        assert minimum_detectable(1 / math.sqrt(n), n - 1, alpha) == pytest.approx(
            expected, rel=1e-6
        )
    # TTestIndPower() is for the pooled t test, which Welch's comes close to from 10 runs on.
    side = (1 / math.sqrt(10), 9)
    assert welch_detectable(side, side, 0.05) == pytest.approx(1.324947368330822, rel=0.01)


@pytest.mark.parametrize(
    ("arm", "baseline", "alpha"),
    [((1.0, 3), (1.0, 3), 0.0125), ((3.0, 3), (1.0, 5), 0.05), ((1.0, 10), (2.0, 4), 0.0025)],
)
def test_welchs_minimum_detectable_difference_is_found_with_a_power_of_080(
    arm: tuple[float, int], baseline: tuple[float, int], alpha: float
) -> None:
    (sd_a, n_a), (sd_b, n_b) = arm, baseline
    shift = welch_detectable(
        (sd_a / math.sqrt(n_a), n_a - 1), (sd_b / math.sqrt(n_b), n_b - 1), alpha
    )
    generator = np.random.default_rng(7)
    a = generator.normal(shift, sd_a, size=(n_a, 20_000))
    b = generator.normal(0.0, sd_b, size=(n_b, 20_000))
    p = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert np.mean(p < alpha) == pytest.approx(0.8, abs=0.0115)


def test_welchs_minimum_detectable_difference_at_the_ends() -> None:
    assert welch_detectable((0.0, 2), (0.0, 2), 0.05) == 0.0
    # One side without noise: what is left is the test of the other.
    one_sided = welch_detectable((1.0, 7), (0.0, 7), 0.05)
    assert one_sided == pytest.approx(minimum_detectable(1.0, 7, 0.05), rel=0.01)
    assert welch_detectable((1.0, 2), (1.0, 2), 5e-324) == math.inf
    huge = welch_detectable((1e200, 4), (1e200, 4), 0.05)
    assert huge == pytest.approx(1e200 * welch_detectable((1.0, 4), (1.0, 4), 0.05))


def test_the_uncertainty_of_a_minimum_detectable_difference_is_that_of_the_spread() -> None:
    # chi2(0.025, 3) = 0.215795 and chi2(0.975, 3) = 9.348404 (tables).
    test = paired_t([0.1, -0.2, 0.3, 0.2], 0.05)
    found = detectable(test, 0.01, level=0.95)
    assert found.shift == minimum_detectable(test.standard_error, 3, 0.01)
    assert found.low == pytest.approx(found.shift * math.sqrt(3 / 9.348404), rel=1e-6)
    assert found.high == pytest.approx(found.shift * math.sqrt(3 / 0.215795), rel=1e-5)
    flat = detectable(paired_t([1.0, 1.0], 0.05), 0.05, level=0.95)
    assert (flat.shift, flat.low, flat.high) == (0.0, 0.0, 0.0)


def test_the_minimum_detectable_difference_of_shares() -> None:
    # Against none of 5, Fisher's p is 12 / 252 for 4 of 5 and 2 / 252 for 5 of 5, so the power at
    # p is P(at least 4 of 5) = 5 p^4 - 4 p^5, which is 0.8 at p = 0.83139.
    found = fisher_detectable(5, 5, 0.0, 0.05)
    assert found == pytest.approx(0.832, abs=1e-12)
    assert fisher_detectable(5, 5, 1.0, 0.05) == pytest.approx(found, abs=1e-12)
    assert fisher_detectable(3, 3, 0.0, 0.05) == math.inf
