"""When a series left the level of its own baseline: a one-sided CUSUM that knows its noise.

The statistic is Page's (1954): S_t = max(0, S_{t-1} + z_t - k), an alarm where S_t > h. Values z
are in robust standard deviations of the baseline window, and h comes from a simulation of this
whole procedure, with median, spread and autocorrelation estimated from the window each time
(`analysis.events.cusum_table`): with any of them taken as known, false alarms are several times
what they are said to be. Needs numpy alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from analysis.curve import FloatArray
from analysis.events import cusum_table as table

K = 1.0
"""Allowance of the CUSUM in standard deviations: a shift up to it never raises an alarm."""

CLIP = 4.0
"""Largest |z|, so that a single value weighs little; one that isn't finite counts as this."""

_SD_PER_MAD = 1.4826  # Of a normal distribution.
_DEVIATION = 6.0
_STEP_HANDICAP = 4.0
_LEAST_AFTER = 5


@dataclass(frozen=True)
class Noise:
    """What a baseline window says about a series.

    Attributes:
        center: median, in the series' unit.
        sd: 1.4826 x the median absolute deviation from it.
        autocorrelation: of neighbouring values, corrected for the bias of a short window and kept
            within [0, 0.98], the range that thresholds are calibrated for.
        num_values: that the window held.
    """

    center: float
    sd: float
    autocorrelation: float
    num_values: int


@dataclass(frozen=True)
class Change:
    """Where a series left its baseline; all three are places in the series.

    Attributes:
        alarm: first place at which the CUSUM is above its threshold.
        estimate: least-squares place at which a step or a ramp begins.
        earliest: first place that the data do not exclude as its beginning.
    """

    alarm: int
    estimate: int
    earliest: int


def baseline_noise(window: FloatArray, *, center: float | None = None) -> Noise | str:
    """Return the noise of a baseline window, or why none can be estimated.

    Args:
        window: [num_values]; may hold infinite values, which count as far out.
        center: the level to measure from where it is known; None for the window's median.
    """
    if len(window) < table.MIN_BASELINE:
        return (
            f"a baseline of {len(window)} values is too short to calibrate false alarms with; "
            f"it takes {table.MIN_BASELINE}"
        )
    with np.errstate(invalid="ignore"):  # Of an even number it may be a mean of infinities.
        median = float(np.median(window))
    if not math.isfinite(median):
        return "most of the baseline is not finite or 0"
    with np.errstate(invalid="ignore"):
        sd = _SD_PER_MAD * float(np.median(np.abs(window - median)))
    if not math.isfinite(sd):
        return "most of the baseline is not finite or 0"
    if sd <= 0:
        return "the baseline does not fluctuate"
    z = np.clip((window - median) / sd, -CLIP, CLIP)
    return Noise(
        center=median if center is None else center,
        sd=sd,
        autocorrelation=float(autocorrelation(z)),
        num_values=len(window),
    )


def autocorrelation(z: FloatArray) -> FloatArray:
    """Return the lag-1 autocorrelation along the last axis, within [0, 0.98].

    The bias -(1 + 4 phi) / n of the estimate (Marriott and Pope 1954) is taken out.
    """
    n = z.shape[-1]
    centered = z - z.mean(axis=-1, keepdims=True)
    r = np.sum(centered[..., 1:] * centered[..., :-1], axis=-1) / np.sum(centered**2, axis=-1)
    corrected: FloatArray = np.clip((n * r + 1.0) / (n - 4.0), 0.0, table.AUTOCORRELATIONS[-1])
    return corrected


def standardized(values: FloatArray, noise: Noise) -> FloatArray:
    """Return z of `values`, clipped; infinite values are the farthest."""
    clipped: FloatArray = np.clip((values - noise.center) / noise.sd, -CLIP, CLIP)
    return clipped


def cusum(z: FloatArray) -> FloatArray:
    """Return Page's S along the last axis of `z`, from S = 0 before it."""
    sums = np.cumsum(z - K, axis=-1)
    lowest = np.minimum.accumulate(np.minimum(sums, 0.0), axis=-1)
    statistic: FloatArray = sums - lowest
    return statistic


def threshold(noise: Noise, num_watched: int, false_alarm: float) -> float:
    """Return h for a series of `num_watched` values after the baseline window.

    A series that only fluctuates (AR(1) up to 0.98, normal or t5 innovations) crosses it anywhere
    with probability `false_alarm`; beyond the table's 0.005 to 0.2 the nearest end holds, and
    beyond its lengths the nearest one, with more false alarms only in series of over 10,000 values.
    """
    point = (
        np.log(noise.num_values),
        np.log(max(1, num_watched)),
        correlation_axis(np.array(noise.autocorrelation)),
        np.log(false_alarm),
    )
    values, axes = _loaded_table()
    # One axis after the other: linear interpolation of log h between neighbours.
    for axis, at in zip(axes, point, strict=True):
        place = float(np.interp(float(at), axis, np.arange(len(axis))))
        below = min(int(place), len(axis) - 2)
        values = values[below] + (place - below) * (values[below + 1] - values[below])
    return math.exp(float(values))


def correlation_axis(phi: FloatArray) -> FloatArray:
    """Return log((1 + phi) / (1 - phi)), in which log h is near linear."""
    axis: FloatArray = np.log((1.0 + phi) / (1.0 - phi))
    return axis


def is_out_of_reach(h: float, num_watched: int) -> bool:
    """Whether S passes `h` only where over half of `num_watched` values are as high as z can be.

    So it is where the baseline window is too short to tell noise of so high an autocorrelation from
    a change: then no alarm says nothing.
    """
    return h > (CLIP - K) * num_watched / 2


def locate(z: FloatArray, num_baseline: int, alarm: int, noise: Noise) -> Change:
    """Return where the rise that is plain at place `alarm` of `z` began.

    Two shapes are fitted for every possible beginning after the first `num_baseline` places, up to
    the alarm: a step to a new level, and a ramp, each above a free level, by least squares on the
    innovations z_t - phi z_{t-1} (Cochrane and Orcutt 1949). The better fit is the estimate, with a
    step at a handicap of 4 variances of an innovation, as noise looks like steps. A beginning is
    excluded where its better fit explains less by over 6 of these variances.

    The data end as far after the alarm as it came after a first estimate from the data up to it, at
    least 5 places on: what follows tells a step from a ramp.
    """
    end = alarm
    for _ in range(2):
        gain = _explained_from(z[: end + 1], noise)[num_baseline : alarm + 1]
        estimate = num_baseline + int(np.argmax(gain))
        end = min(len(z) - 1, alarm + max(_LEAST_AFTER, alarm - estimate))
    limit = float(gain.max()) - _DEVIATION * (1.0 - noise.autocorrelation**2)
    return Change(alarm, estimate, num_baseline + int(np.flatnonzero(gain >= limit)[0]))


def _explained_from(seen: FloatArray, noise: Noise) -> FloatArray:
    """Return the sum of squares of innovations that the better shape explains, by beginning."""
    phi = noise.autocorrelation
    innovations = np.append(seen[0] * (1 - phi), seen[1:] - phi * seen[:-1])
    innovations = innovations - innovations.mean()
    n = len(seen)
    m = np.arange(n, 0, -1, dtype=np.float64)  # Values from each beginning on.
    total = np.cumsum(innovations[::-1])[::-1]
    weighted = np.cumsum(total[::-1])[::-1]  # Weights 1, 2, ..., m.
    # In innovations a step is 1, 1 - phi, 1 - phi, ..., and a ramp is k - phi (k - 1).
    rest = 1.0 - phi
    step = (
        phi * innovations + rest * total,
        1.0 + rest**2 * (m - 1.0),
        1.0 + rest * (m - 1.0),
    )
    linear = m * (m + 1.0) / 2.0
    squares = m * (m + 1.0) * (2.0 * m + 1.0) / 6.0
    ramp = (
        rest * weighted + phi * total,
        rest**2 * squares + 2.0 * rest * phi * linear + phi**2 * m,
        rest * linear + phi * m,
    )
    variance = 1.0 - phi**2  # Of an innovation, as that of z is 1.
    gain: FloatArray = np.maximum(
        _explained(*ramp, n), _explained(*step, n) - _STEP_HANDICAP * variance
    )
    return gain


def _explained(cross: FloatArray, square: FloatArray, amount: FloatArray, n: int) -> FloatArray:
    """Return the sum of squares that a regressor above a free level explains, 0 for a fall.

    From its sums of products with the centered data, of squares and of values; n is their number.
    """
    spread = square - amount**2 / n  # 0 where the regressor is constant: it explains nothing.
    is_free = spread > 1e-9 * square
    explained: FloatArray = np.where(
        is_free, np.maximum(cross, 0.0) ** 2 / np.where(is_free, spread, 1.0), 0.0
    )
    return explained


@cache
def _loaded_table() -> tuple[FloatArray, tuple[FloatArray, ...]]:
    axes = (
        np.log(np.array(table.BASELINES, dtype=np.float64)),
        np.log(np.array(table.LENGTHS, dtype=np.float64)),
        correlation_axis(np.array(table.AUTOCORRELATIONS)),
        np.log(np.array(table.FALSE_ALARMS)),
    )
    values = np.array(table.THRESHOLDS.split(), dtype=np.float64)
    return np.log(values).reshape([len(axis) for axis in axes]), axes
