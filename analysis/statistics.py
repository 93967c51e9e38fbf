"""Intervals and tests, each in the form that is exact under its stated assumption.

All work on one number per run (seed): steps within a run are never treated as independent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from analysis.curve import FloatArray, mean_of

POWER = 0.8
"""Power that minimum detectable differences are stated for, where nothing else is asked."""

_SQUARABLE = (1e-140, 1e140)  # Beyond these, squares or their sums leave the range of floats.
_LARGEST_NONCENTRAL = 1e4  # SciPy's noncentral t distribution is wrong from about 1e6 on.
_NUM_NODES = 64  # Of the quadrature over the ratio of variances; 0.80 is met within 0.001.
_NUM_SHARES = 1001  # Grid of event probabilities, 0.001 apart.


@dataclass(frozen=True)
class MeanInterval:
    """A mean over `n` runs with its interval; `low` and `high` are None below two runs."""

    n: int
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class MeanTest:
    """A test that a mean, or a difference of means, is zero.

    Numbers that floats can't hold are infinite or NaN.

    Attributes:
        effect: estimate; `low` and `high` its interval of level 1 - alpha.
        standard_error, df: of the t statistic.
        p: two-sided.
        parts: (standard error, degrees of freedom) of each independent mean behind the estimate:
            one of paired differences, two of Welch's test.
    """

    effect: float
    low: float
    high: float
    standard_error: float
    df: float
    p: float
    parts: tuple[tuple[float, int], ...]

    @property
    def is_finite(self) -> bool:
        """Whether estimate, error and p are numbers; the ends of the interval need not be."""
        return all(map(math.isfinite, (self.effect, self.standard_error, self.df, self.p)))


@dataclass(frozen=True)
class Detectable:
    """A minimum detectable difference with the interval that its estimated spread leaves it."""

    shift: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """`k` of `n` runs, with the Jeffreys interval of the probability behind it."""

    k: int
    n: int
    low: float
    high: float


def mean_interval(values: Sequence[float], alpha: float) -> MeanInterval:
    """Return mean and Student t interval of level 1 - `alpha` over runs (at least one)."""
    data = np.asarray(values, dtype=np.float64)
    mean = mean_of(data)
    if len(data) < 2:
        return MeanInterval(len(data), mean, None, None)
    half = _half_width(alpha, len(data) - 1, spread(data) / math.sqrt(len(data)))
    return MeanInterval(len(data), mean, mean - half, mean + half)


def paired_t(differences: Sequence[float], alpha: float) -> MeanTest:
    """Return the paired t test of per-pair `differences` (at least two)."""
    data = np.asarray(differences, dtype=np.float64)
    standard_error = spread(data) / math.sqrt(len(data))
    parts = ((standard_error, len(data) - 1),)
    return _t_test(mean_of(data), standard_error, len(data) - 1, alpha, parts)


def welch_t(arm: Sequence[float], baseline: Sequence[float], alpha: float) -> MeanTest:
    """Return Welch's t test of mean(`arm`) - mean(`baseline`), each of at least two runs.

    Degrees of freedom after Welch (1947) and Satterthwaite (1946).
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (arm, baseline))
    error_a, error_b = spread(a) / math.sqrt(len(a)), spread(b) / math.sqrt(len(b))
    total = math.hypot(error_a, error_b)
    df = float(len(a) + len(b) - 2)
    if 0 < total < math.inf:
        share_a, share_b = (error_a / total) ** 2, (error_b / total) ** 2
        df = 1 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
    parts = ((error_a, len(a) - 1), (error_b, len(b) - 1))
    return _t_test(mean_of(a) - mean_of(b), total, df, alpha, parts)


def tost_p(test: MeanTest, margin: float) -> float:
    """Return the p of equivalence: that the true difference lies within +-`margin` (> 0).

    Two one-sided t tests after Schuirmann (1987): the larger p of the two.
    """
    if test.standard_error == 0:
        return 0.0 if abs(test.effect) < margin else 1.0
    distance = margin - abs(test.effect)
    return float(stats.t.sf(distance / test.standard_error, test.df))


def detectable(test: MeanTest, alpha: float, *, level: float) -> Detectable:
    """Return the smallest true difference that `test`, done at `alpha`, finds with `POWER`.

    The spread that was seen stands for the true one; the interval of `level` is that of the true
    spread, from the chi-square distribution of a variance with the test's degrees of freedom.
    """
    if len(test.parts) == 1:
        shift = minimum_detectable(test.standard_error, test.df, alpha)
    else:
        shift = welch_detectable(test.parts[0], test.parts[1], alpha)
    low, high = spread_interval(shift, test.df, level)
    return Detectable(shift, low, high)


def spread_interval(sd: float, df: float, level: float) -> tuple[float, float]:
    """Return the interval of `level` of a standard deviation estimated as `sd`, or of a multiple
    of one, from the chi-square distribution of a variance with `df` degrees of freedom."""
    low, high = (
        _scaled_by_spread(sd, df, float(stats.chi2.ppf(share, df)))
        for share in ((1 + level) / 2, (1 - level) / 2)
    )
    return low, high


def minimum_detectable(
    standard_error: float, df: float, alpha: float, power: float = POWER
) -> float:
    """Return the true difference that a two-sided t test at level `alpha` finds with `power`.

    Solves the power of the noncentral t distribution for its shift, with the observed standard
    error in place of the true one. Infinite where `alpha` is too small for any float.
    """
    return 0.0 if standard_error == 0 else _detectable_errors(df, alpha, power) * standard_error


def welch_detectable(
    arm: tuple[float, int], baseline: tuple[float, int], alpha: float, power: float = POWER
) -> float:
    """Return the true difference that Welch's test at level `alpha` finds with `power`.

    Each side is (standard error of its mean, degrees of freedom), taken as true. Given the share B
    of the arm in the sum of the two scaled variances, which follows Beta(df_a / 2, df_b / 2) and is
    independent of that sum, Welch's statistic is a multiple of a noncentral t with df_a + df_b
    degrees of freedom; its power is averaged over B. The test at Welch's observed degrees of
    freedom would promise too much: 0.6 in place of 0.8 for 3 against 3 runs.
    """
    (error_a, df_a), (error_b, df_b) = arm, baseline
    total = math.hypot(error_a, error_b)
    if total == 0:
        return 0.0
    df = df_a + df_b
    middle = stats.beta.ppf((np.arange(_NUM_NODES) + 0.5) / _NUM_NODES, df_a / 2, df_b / 2)
    part_a = (error_a / total) ** 2 / df_a * middle
    part_b = (error_b / total) ** 2 / df_b * (1.0 - middle)
    seen = part_a + part_b
    seen_df = seen**2 / (part_a**2 / df_a + part_b**2 / df_b)
    limits = stats.t.isf(alpha / 2, seen_df) * np.sqrt(df * seen)
    if not float(np.median(limits)) < _LARGEST_NONCENTRAL:
        return _detectable_errors(float(min(df_a, df_b)), alpha, power) * total
    limits = np.minimum(limits, _LARGEST_NONCENTRAL)

    def missing_power(shift: float) -> float:
        return float(np.mean(stats.nct.sf(limits, df, shift))) - power

    upper = float(np.median(limits)) + 1.0
    while missing_power(upper) < 0:
        upper *= 2.0
    return float(optimize.brentq(missing_power, 0.0, upper, xtol=1e-4)) * total


def jeffreys(k: int, n: int, alpha: float) -> Share:
    """Return `k` of `n` with the Jeffreys interval: quantiles of Beta(k + 1/2, n - k + 1/2).

    The ends are 0 for k = 0 and 1 for k = n (Brown, Cai and DasGupta 2001). Over all true
    probabilities its least coverage at 95 % is 0.89 for 3 and 5 runs and 0.87 for 10, where
    Wilson's is 0.83 and 0.84; their mean coverage is alike.
    """
    low = 0.0 if k == 0 else float(stats.beta.ppf(alpha / 2, k + 0.5, n - k + 0.5))
    # By symmetry, as 1 - alpha / 2 would lose a small alpha.
    high = 1.0 if k == n else 1.0 - float(stats.beta.ppf(alpha / 2, n - k + 0.5, k + 0.5))
    return Share(k, n, low, high)


def share_difference(arm: Share, baseline: Share) -> tuple[float, float]:
    """Return the interval of P(arm) - P(baseline) from the intervals of both.

    Newcombe (1998), method 10, with the limits of each share's own interval.
    """
    p, q = arm.k / arm.n, baseline.k / baseline.n
    low = p - q - math.hypot(p - arm.low, baseline.high - q)
    high = p - q + math.hypot(arm.high - p, q - baseline.low)
    return low, high


@functools.lru_cache(maxsize=4096)
def fisher_exact(arm: tuple[int, int], baseline: tuple[int, int]) -> float:
    """Return the two-sided p of Fisher's exact test for (k of n) against (k of n)."""
    table = np.array([[k, n - k] for k, n in (arm, baseline)])
    return min(1.0, float(stats.fisher_exact(table).pvalue))


def least_fisher_p(n_arm: int, n_baseline: int) -> float:
    """Return the smallest p that Fisher's test can give: all of one arm against none."""
    return fisher_exact((n_arm, n_arm), (0, n_baseline))


@functools.lru_cache(maxsize=4096)
def fisher_detectable(
    n_arm: int, n_baseline: int, share: float, alpha: float, power: float = POWER
) -> float:
    """Return the difference of event probabilities that Fisher's test at `alpha` finds with
    `power`, from a baseline probability `share`; infinite where no difference is found so often.

    Upwards from a share of at most a half, else downwards; rounded up to 0.001.
    """
    shares = np.linspace(0.0, 1.0, _NUM_SHARES)
    off = shares - share if share <= 0.5 else share - shares
    found = _fisher_powers(n_arm, n_baseline, shares, share, alpha)
    enough = off[(found >= power) & (off > 0)]
    return float(enough.min()) if len(enough) else math.inf


def fisher_power(n_arm: int, n_baseline: int, arm: float, baseline: float, alpha: float) -> float:
    """Return how often Fisher's test at `alpha` tells the event probabilities `arm` and `baseline`
    apart."""
    return float(_fisher_powers(n_arm, n_baseline, np.array([arm]), baseline, alpha)[0])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number after Holm (1979), in the order given."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _scaled_by_spread(shift: float, df: float, chi_square: float) -> float:
    """Return `shift` for the standard deviation that makes the one seen this `chi_square`."""
    if shift == 0:
        return 0.0
    return shift * math.sqrt(df / chi_square) if chi_square > 0 else math.inf


@functools.lru_cache(maxsize=4096)
def _detectable_errors(df: float, alpha: float, power: float) -> float:
    """Return what `minimum_detectable` is for a standard error of 1."""
    critical = _t_quantile(alpha, df)
    if critical > _LARGEST_NONCENTRAL:
        # So far out the noise of the mean is nothing beside that of the variance: what is left is
        # shift / sqrt(chi2 / df) > critical.
        return critical * math.sqrt(float(stats.chi2.ppf(power, df)) / df)

    def missing_power(shift: float) -> float:
        # The other tail adds less than alpha / 2 and only near a shift of zero.
        return float(stats.nct.sf(critical, df, shift)) - power

    upper = critical + 1.0
    while missing_power(upper) < 0:
        upper *= 2.0
    return float(optimize.brentq(missing_power, 0.0, upper))


def _fisher_powers(
    n_arm: int, n_baseline: int, arm: FloatArray, baseline: float, alpha: float
) -> FloatArray:
    """Return the power of Fisher's test for each event probability of `arm`."""
    found = _is_fisher_significant(n_arm, n_baseline, alpha)
    of_baseline = stats.binom.pmf(np.arange(n_baseline + 1), n_baseline, baseline)
    of_arm = stats.binom.pmf(np.arange(n_arm + 1), n_arm, arm[:, np.newaxis])
    return np.asarray(of_arm @ (found @ of_baseline), dtype=np.float64)


@functools.lru_cache(maxsize=256)
def _is_fisher_significant(n_arm: int, n_baseline: int, alpha: float) -> FloatArray:
    """Return 1.0 where Fisher's two-sided p is below `alpha`, [n_arm + 1, n_baseline + 1]."""
    found = np.zeros((n_arm + 1, n_baseline + 1))
    for total in range(n_arm + n_baseline + 1):
        k = np.arange(max(0, total - n_baseline), min(n_arm, total) + 1)
        chances = stats.hypergeom.pmf(k, n_arm + n_baseline, total, n_arm)
        # Tables as likely as the one seen count as well, whatever their last digits.
        as_rare = chances[np.newaxis, :] <= chances[:, np.newaxis] * (1 + 1e-7)
        found[k, total - k] = (as_rare @ chances) < alpha
    return found


def _t_test(
    effect: float,
    standard_error: float,
    df: float,
    alpha: float,
    parts: tuple[tuple[float, int], ...],
) -> MeanTest:
    half = _half_width(alpha, df, standard_error)
    if math.isnan(effect) or not math.isfinite(standard_error):
        p = math.nan
    elif standard_error > 0:
        p = 2.0 * float(stats.t.sf(abs(effect) / standard_error, df))
    else:
        p = 1.0 if effect == 0 else 0.0
    return MeanTest(effect, effect - half, effect + half, standard_error, df, p, parts)


def _t_quantile(alpha: float, df: float) -> float:
    """Return the two-sided critical value; infinite where `alpha` is too small for SciPy."""
    found = float(stats.t.isf(alpha / 2, df))
    return found if 0 < found < math.inf else math.inf


def _half_width(alpha: float, df: float, standard_error: float) -> float:
    return 0.0 if standard_error == 0 else _t_quantile(alpha, df) * standard_error


def spread(values: Sequence[float] | FloatArray) -> float:
    """Return the standard deviation (n - 1 in the divisor) of at least two values of any size."""
    data = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        off = data - mean_of(data)
        largest = float(np.abs(off).max())
        if largest == 0 or not math.isfinite(largest):
            return largest
        if _SQUARABLE[0] < largest < _SQUARABLE[1]:
            return float(data.std(ddof=1))
        return largest * math.sqrt(float(np.sum((off / largest) ** 2)) / (len(data) - 1))
