"""What a metric's log itself says: values that aren't finite, a metric that vanished, spikes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.curve import Curve, IntArray, median_of
from analysis.events.rules import baseline_problem, gone_steps, stretches_of


@dataclass(frozen=True)
class NonFinite:
    """Logged values that aren't finite: the first step with one, and how many steps have one."""

    first: int
    count: int


@dataclass(frozen=True)
class Gap:
    """A stretch at which a metric was due and not logged, before it came back; both inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class MetricLog:
    """How one metric was logged.

    Attributes:
        is_logged: whether there is any value; everything else is empty where there is none.
        nonfinite: None where all values are finite.
        vanished_after: its last step, where it was due at least `patience` times after that, up to
            the run's end; None where it didn't vanish.
        gaps: stretches at which it was due, and after which it came back.
    """

    is_logged: bool
    nonfinite: NonFinite | None = None
    vanished_after: int | None = None
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True)
class Spikes:
    """Steps at which the gradient norm was above `spike_factor` x its baseline median.

    Attributes:
        count, first: how many steps, and the first of them.
        largest, largest_step: the highest gradient norm over the baseline median, spike or not, and
            where; None without a value after the baseline's median was taken.
        reason: why it is undecidable; empty where it is decided.
    """

    count: int = 0
    first: int | None = None
    largest: float | None = None
    largest_step: int | None = None
    reason: str = ""


def metric_log(
    curve: Curve | None, going_on: IntArray, *, last_reference_step: int, patience: int
) -> MetricLog:
    """Return how `curve` was logged in a run that trained at the steps `going_on`.

    A metric is due as `gone_steps` says. A run that ends with its metric has not lost it.
    """
    if curve is None or not len(curve):
        return MetricLog(is_logged=False)
    is_bad = ~np.isfinite(curve.values)
    nonfinite = NonFinite(int(curve.steps[is_bad][0]), int(is_bad.sum())) if is_bad.any() else None
    gone = gone_steps(curve, going_on, last_reference_step=last_reference_step)
    last = int(curve.steps[-1])
    # A gap ends where the metric is logged again: between two gone steps there is a logged one.
    steps = np.union1d(gone, curve.steps)
    gaps = tuple(
        Gap(int(steps[a]), int(steps[b]))
        for a, b in stretches_of(np.isin(steps, gone))
        if steps[b] < last
    )
    is_vanished = int((gone > last).sum()) >= patience
    return MetricLog(True, nonfinite, last if is_vanished else None, gaps)


def find_spikes(grad_norm: Curve, *, baseline_steps: tuple[int, int], factor: float) -> Spikes:
    """Return the steps at which `grad_norm` was above `factor` x its median in `baseline_steps`.

    Spikes within the baseline window count, too. A gradient norm that isn't finite is no spike but
    a non-finite value.
    """
    window = grad_norm.within(*baseline_steps).finite()
    problem = baseline_problem("gradient norm", grad_norm, window, baseline_steps)
    if problem:
        return Spikes(reason=problem)
    baseline = median_of(window.values)
    if baseline <= 0:
        return Spikes(reason="the baseline gradient norm is 0")
    finite = grad_norm.within(baseline_steps[0], int(grad_norm.steps[-1])).finite()
    with np.errstate(over="ignore"):
        factors = finite.values / baseline
    is_spike = factors > factor
    largest = int(np.argmax(factors))
    return Spikes(
        count=int(is_spike.sum()),
        first=int(finite.steps[is_spike][0]) if is_spike.any() else None,
        largest=float(factors[largest]),
        largest_step=int(finite.steps[largest]),
    )
