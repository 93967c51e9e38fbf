"""Intervals and tests, each in the form that is exact under its stated assumption.

All work on one number per run (seed): steps within a run are never treated as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from analysis.curve import FloatArray, mean_of

POWER = 0.8
"""Power that minimum detectable differences are stated for."""

_SQUARABLE = (1e-140, 1e140)  # Beyond these, squares or their sums leave the range of floats.
_LARGEST_NONCENTRAL = 1e4  # SciPy's noncentral t distribution is wrong from about 1e6 on.


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
    """

    effect: float
    low: float
    high: float
    standard_error: float
    df: float
    p: float

    @property
    def is_finite(self) -> bool:
        """Whether estimate, error and p are numbers; the ends of the interval need not be."""
        return all(map(math.isfinite, (self.effect, self.standard_error, self.df, self.p)))


@dataclass(frozen=True)
class Share:
    """`k` of `n` runs, with the Clopper-Pearson interval of the probability behind it."""

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
    half = _half_width(alpha, len(data) - 1, _spread(data) / math.sqrt(len(data)))
    return MeanInterval(len(data), mean, mean - half, mean + half)


def paired_t(differences: Sequence[float], alpha: float) -> MeanTest:
    """Return the paired t test of per-pair `differences` (at least two)."""
    data = np.asarray(differences, dtype=np.float64)
    standard_error = _spread(data) / math.sqrt(len(data))
    return _t_test(mean_of(data), standard_error, len(data) - 1, alpha)


def welch_t(arm: Sequence[float], baseline: Sequence[float], alpha: float) -> MeanTest:
    """Return Welch's t test of mean(`arm`) - mean(`baseline`), each of at least two runs.

    Degrees of freedom after Welch (1947) and Satterthwaite (1946).
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (arm, baseline))
    error_a, error_b = _spread(a) / math.sqrt(len(a)), _spread(b) / math.sqrt(len(b))
    total = math.hypot(error_a, error_b)
    df = float(len(a) + len(b) - 2)
    if 0 < total < math.inf:
        share_a, share_b = (error_a / total) ** 2, (error_b / total) ** 2
        df = 1 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
    return _t_test(mean_of(a) - mean_of(b), total, df, alpha)


def minimum_detectable(standard_error: float, df: float, alpha: float) -> float:
    """Return the true difference that a two-sided t test at level `alpha` finds with `POWER`.

    Solves the power of the noncentral t distribution for its shift, with the observed standard
    error in place of the true one. Infinite where `alpha` is too small for any float.
    """
    if standard_error == 0:
        return 0.0
    critical = _t_quantile(alpha, df)
    if critical > _LARGEST_NONCENTRAL:
        # So far out the noise of the mean is nothing beside that of the variance: what is left is
        # shift / sqrt(chi2 / df) > critical.
        quantile = float(stats.chi2.ppf(POWER, df))
        return critical * math.sqrt(quantile / df) * standard_error

    def missing_power(shift: float) -> float:
        # The other tail adds less than alpha / 2 and only near a shift of zero.
        return float(stats.nct.sf(critical, df, shift)) - POWER

    upper = critical + 1.0
    while missing_power(upper) < 0:
        upper *= 2.0
    shift = optimize.brentq(missing_power, 0.0, upper)
    return float(shift) * standard_error


def clopper_pearson(k: int, n: int, alpha: float) -> Share:
    """Return `k` of `n` with the interval of Clopper and Pearson (1934); [0, 1] for n = 0."""
    low = 0.0 if k == 0 else float(stats.beta.ppf(alpha / 2, k, n - k + 1))
    # By symmetry, as 1 - alpha / 2 would lose a small alpha.
    high = 1.0 if k == n else 1.0 - float(stats.beta.ppf(alpha / 2, n - k, k + 1))
    return Share(k, n, low, high)


def fisher_exact(arm: tuple[int, int], baseline: tuple[int, int]) -> float:
    """Return the two-sided p of Fisher's exact test for (k of n) against (k of n)."""
    table = np.array([[k, n - k] for k, n in (arm, baseline)])
    return min(1.0, float(stats.fisher_exact(table).pvalue))


def least_fisher_p(n_arm: int, n_baseline: int) -> float:
    """Return the smallest p that Fisher's test can give: all of one arm against none."""
    return fisher_exact((n_arm, n_arm), (0, n_baseline))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number after Holm (1979), in the order given."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _t_test(effect: float, standard_error: float, df: float, alpha: float) -> MeanTest:
    half = _half_width(alpha, df, standard_error)
    if math.isnan(effect) or not math.isfinite(standard_error):
        p = math.nan
    elif standard_error > 0:
        p = 2.0 * float(stats.t.sf(abs(effect) / standard_error, df))
    else:
        p = 1.0 if effect == 0 else 0.0
    return MeanTest(effect, effect - half, effect + half, standard_error, df, p)


def _t_quantile(alpha: float, df: float) -> float:
    """Return the two-sided critical value; infinite where `alpha` is too small for SciPy."""
    found = float(stats.t.isf(alpha / 2, df))
    return found if 0 < found < math.inf else math.inf


def _half_width(alpha: float, df: float, standard_error: float) -> float:
    return 0.0 if standard_error == 0 else _t_quantile(alpha, df) * standard_error


def _spread(data: FloatArray) -> float:
    """Return the standard deviation (n - 1 in the divisor), whatever the size of the values."""
    with np.errstate(over="ignore", invalid="ignore"):
        off = data - mean_of(data)
        largest = float(np.abs(off).max())
        if largest == 0 or not math.isfinite(largest):
            return largest
        if _SQUARABLE[0] < largest < _SQUARABLE[1]:
            return float(data.std(ddof=1))
        return largest * math.sqrt(float(np.sum((off / largest) ** 2)) / (len(data) - 1))
