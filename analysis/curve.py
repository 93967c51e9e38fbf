"""One metric of one run over steps, and sums over windows of it. Needs numpy alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """A metric over steps.

    Attributes:
        steps: strictly increasing, [num_steps]; only steps at which the metric was logged.
        values: [num_steps]; NaN or infinite where that was logged.
    """

    steps: IntArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Curve:
        """The steps with a finite value."""
        is_finite = np.isfinite(self.values)
        return Curve(self.steps[is_finite], self.values[is_finite])

    def up_to(self, last: int | None) -> Curve:
        """The steps up to `last`, inclusive; all of them where it is None."""
        if last is None:
            return self
        inside = self.steps <= last
        return Curve(self.steps[inside], self.values[inside])

    def within(self, first: int, last: int) -> Curve:
        """The steps from `first` to `last`, both inclusive."""
        inside = (self.steps >= first) & (self.steps <= last)
        return Curve(self.steps[inside], self.values[inside])

    def at(self, steps: IntArray) -> Curve:
        """Those of `steps` at which the metric was logged."""
        inside = np.isin(self.steps, steps)
        return Curve(self.steps[inside], self.values[inside])


EMPTY_CURVE = Curve(np.array([], dtype=np.int64), np.array([], dtype=np.float64))


_SUMMABLE = 1e290
_DOWN = 2.0**-64  # A power of two, so that nothing is rounded by it.


def mean_of(values: FloatArray) -> float:
    """Return the mean of `values` (at least one), also where their sum is beyond floats."""
    if not float(np.abs(values).max()) > _SUMMABLE:
        return float(np.mean(values))
    with np.errstate(invalid="ignore"):  # Infinite values of both signs have the mean NaN.
        mean = float(np.mean(values * _DOWN)) / _DOWN
    return math.copysign(min(abs(mean), float(np.abs(values).max())), mean)


def median_of(values: FloatArray) -> float:
    """Return the median of finite `values` (at least one), also where two of them sum beyond
    floats."""
    if not float(np.abs(values).max()) > _SUMMABLE:
        return float(np.median(values))
    return float(np.median(values * _DOWN)) / _DOWN


def trailing_means(curve: Curve, window: int) -> Curve:
    """Return, at every step s with a finite value, the mean over the steps in (s - window, s].

    Only logged finite values count; nothing is filled in.
    """
    finite = curve.finite()
    if not len(finite):
        return EMPTY_CURVE
    if float(np.abs(finite.values).max()) > _SUMMABLE:
        means = trailing_means(Curve(finite.steps, finite.values * _DOWN), window)
        with np.errstate(over="ignore"):
            return Curve(means.steps, means.values / _DOWN)
    starts = np.searchsorted(finite.steps, finite.steps - window, side="right")
    ends = np.arange(1, len(finite) + 1)
    # Differences of one running sum would lose the small values after a huge one.
    sums = np.add.reduceat(np.append(finite.values, 0.0), np.stack([starts, ends], axis=1).ravel())[
        ::2
    ]
    return Curve(finite.steps, sums / (ends - starts))


def typical_spacing(steps: IntArray) -> int:
    """Return the median distance between logged steps; 1 where there are fewer than two."""
    return max(1, int(np.median(np.diff(steps)))) if len(steps) > 1 else 1
