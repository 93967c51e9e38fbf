"""Bootstrap intervals: the interquartile mean over runs, and means of correlated steps of one run.

Every random number comes from a generator seeded with `BOOTSTRAP_SEED`, afresh in each call, so
that an interval depends on its data alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curve import Curve, FloatArray, IntArray, mean_of

BOOTSTRAP_SEED = 20_260_901
"""Seed of every bootstrap."""
NUM_REPLICATES = 10_000
MIN_IQM_RUNS = 8
"""Runs per arm from which on an interquartile mean is more than a mean in disguise."""
MIN_STRETCHES = 15
"""Blocks that a window must hold for a block bootstrap."""

_LEAST_BLOCK = 20
_BLOCK_PER_TIME = 5
_LEAST_SPREAD = 1e-12  # In means: what is below it is rounding.
_WINDOW_PER_TIME = 5  # Sokal's c, of the window that autocorrelations are summed over.


@dataclass(frozen=True)
class IqmEffect:
    """The difference of two interquartile means with its bootstrap interval."""

    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class WithinRun:
    """The mean of one metric of one run over a window, with the noise of its steps alone.

    It says nothing about another seed: label it "step noise only, not seed noise".

    Attributes:
        low, high: None where `problem` says why.
        block: length of a block, in logged steps.
    """

    mean: float
    low: float | None
    high: float | None
    num_values: int
    block: int
    problem: str = ""


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest floor(n / 4) of n `values`."""
    data = np.sort(np.asarray(values, dtype=np.float64))
    cut = len(data) // 4
    return mean_of(data[cut : len(data) - cut])


def iqm_effect(
    arm: Sequence[float], baseline: Sequence[float], *, is_paired: bool, alpha: float
) -> IqmEffect | None:
    """Return IQM(`arm`) - IQM(`baseline`) with the percentile bootstrap interval of 1 - `alpha`.

    Stratified by arm (Agarwal et al. 2021): each arm's runs are drawn anew by themselves. Where
    `is_paired`, the pairs (equal places) are drawn instead. None below `MIN_IQM_RUNS` runs in
    either arm, and where the interval is beyond floats.
    """
    if min(len(arm), len(baseline)) < MIN_IQM_RUNS:
        return None
    counts, counts_baseline = _draw_counts(len(arm), len(baseline), is_paired)
    with np.errstate(over="ignore", invalid="ignore"):
        found = _drawn_iqms(arm, counts) - _drawn_iqms(baseline, counts_baseline)
        low, high = np.quantile(found, [alpha / 2, 1 - alpha / 2])
    effect = interquartile_mean(arm) - interquartile_mean(baseline)
    if not all(map(math.isfinite, (effect, low, high))):
        return None
    return IqmEffect(effect, float(low), float(high))


def within_run(curve: Curve, steps: IntArray, alpha: float) -> WithinRun | None:
    """Return the mean of `curve` over `steps` with a moving-block bootstrap interval of 1 - `alpha`
    (Künsch 1989).

    Blocks are max(20, 5 x integrated autocorrelation time) logged steps long; with fewer than
    `MIN_STRETCHES` of them in the window there is no interval. Only finite values count; None
    without any.
    """
    values = curve.at(steps).finite().values
    if not len(values):
        return None
    mean = mean_of(values)
    time = autocorrelation_time(values)
    block = max(_LEAST_BLOCK, math.ceil(_BLOCK_PER_TIME * time))
    if len(values) / block < MIN_STRETCHES:
        return WithinRun(mean, None, None, len(values), block, "not enough independent stretches")
    means = _block_means(values - mean, block)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return WithinRun(mean, mean + float(low), mean + float(high), len(values), block)


def autocorrelation_time(values: FloatArray) -> float:
    """Return the integrated autocorrelation time 1 + 2 sum_k rho_k of `values`, in steps.

    Summed up to the first lag M >= 5 tau(M) (Sokal 1997); 1 for white noise and constants, and
    never less. A series shorter than its own memory hides how long that is.
    """
    n = len(values)
    mean = mean_of(values)
    off = values - mean
    largest = float(np.abs(off).max())
    if not _LEAST_SPREAD * abs(mean) < largest < math.inf:
        return 1.0
    transformed = np.fft.rfft(off / largest, 2 * n)
    covariance = np.fft.irfft(np.abs(transformed) ** 2, 2 * n)[:n]
    times = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    enough = np.flatnonzero(np.arange(n) >= _WINDOW_PER_TIME * times)
    return max(1.0, float(times[enough[0]]))  # Over all lags the sum is 0, so there is a first.


@functools.lru_cache(maxsize=16)
def _draw_counts(n_arm: int, n_baseline: int, is_paired: bool) -> tuple[IntArray, IntArray]:
    """Return how often each run of both arms is drawn, [NUM_REPLICATES, n] each."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    arm, baseline = (
        generator.multinomial(n, np.full(n, 1 / n), size=NUM_REPLICATES)
        for n in (n_arm, n_baseline)
    )
    return arm, arm if is_paired else baseline


def _drawn_iqms(values: Sequence[float], counts: IntArray) -> FloatArray:
    """Return the interquartile mean of every replicate, [NUM_REPLICATES]."""
    data = np.asarray(values, dtype=np.float64)
    order = np.argsort(data, kind="stable")
    n = len(data)
    cut = n // 4
    ends = np.clip(np.cumsum(counts[:, order], axis=1), cut, n - cut)
    kept = np.diff(ends, axis=1, prepend=cut)  # Of each run, how many draws are in the middle.
    means: FloatArray = (kept / (n - 2 * cut)) @ data[order]
    return means


def _block_means(values: FloatArray, block: int) -> FloatArray:
    """Return the mean of every replicate of as many values, drawn in blocks, [NUM_REPLICATES]."""
    n = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    num_whole, rest = divmod(n, block)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    starts = generator.integers(0, n - block + 1, size=(NUM_REPLICATES, num_whole))
    totals = (sums[starts + block] - sums[starts]).sum(axis=1)
    if rest:
        last = generator.integers(0, n - block + 1, size=NUM_REPLICATES)
        totals += sums[last + rest] - sums[last]
    means: FloatArray = totals / n
    return means
