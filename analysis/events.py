"""What happened in one run: `exploded` and `collapsed`, two events that are never merged.

Needs numpy alone, so that a running job can use the same rules. An event is "no" only where the
rule could be applied from its baseline to the run's last step; otherwise it is "undecidable",
with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.curve import (
    BoolArray,
    Curve,
    IntArray,
    mean_of,
    median_of,
    trailing_means,
    typical_spacing,
)

_MIN_BASELINE_VALUES = 3


class EventState(StrEnum):
    """Whether an event happened; `UNDECIDABLE` is never counted as a no."""

    YES = "yes"
    NO = "no"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True)
class Event:
    """One event of one run.

    Attributes:
        step: where it happened; None unless `state` is yes.
        last_step: last step that was looked at; where `state` is no, the event is censored there.
        baseline, threshold: of this run, where they could be computed.
        reason: why it is undecidable, or what else is to be said.
    """

    state: EventState
    step: int | None = None
    last_step: int | None = None
    baseline: float | None = None
    threshold: float | None = None
    reason: str = ""


def gone_steps(metric: Curve, going_on: IntArray, *, last_reference_step: int) -> IntArray:
    """Return the steps at which `metric` should have been logged but wasn't.

    A trainer that drops non-finite values leaves a hole where a metric diverged. A metric is due
    as often as it was logged up to `last_reference_step`: after its widest distance there, counted
    in steps of `going_on` (steps at which the trainer logged something else), it counts as gone.
    Before its first value nothing is due.
    """
    if not len(metric) or not len(going_on):
        return np.array([], dtype=np.int64)
    steps = np.union1d(going_on, metric.steps)
    steps = steps[steps >= metric.steps[0]]
    places = np.flatnonzero(np.isin(steps, metric.steps))
    reference = places[steps[places] <= last_reference_step]
    widest = int(np.max(np.diff(reference))) if len(reference) > 1 else 1
    since_logged = (
        np.arange(len(steps))
        - places[np.searchsorted(places, np.arange(len(steps)), side="right") - 1]
    )
    gone: IntArray = steps[(since_logged > 0) & (since_logged % widest == 0)]
    return gone


def find_explosion(
    mismatch_kl: Curve,
    going_on: IntArray,
    *,
    baseline_steps: tuple[int, int],
    factor: float,
    hold: int,
) -> Event:
    """Return whether mismatch KL exploded: above `factor` x the median of the run's own
    `baseline_steps` for `hold` consecutive logged steps.

    A step at which the KL is not finite, or is gone while the trainer goes on (`going_on`), counts
    as above. The search begins with the baseline window itself, so that an early explosion counts.
    """
    first, last = baseline_steps
    gone = gone_steps(mismatch_kl, going_on, last_reference_step=last)
    window = mismatch_kl.within(first, last).finite()
    problem = _baseline_problem("mismatch KL", mismatch_kl, window, baseline_steps)
    if problem:
        return Event(EventState.UNDECIDABLE, reason=problem)
    baseline = median_of(window.values)
    if baseline <= 0:
        return Event(EventState.UNDECIDABLE, reason="the baseline mismatch KL is 0")
    threshold = factor * baseline  # Beyond floats only a KL that isn't finite is above it.

    steps = np.concatenate([mismatch_kl.steps, gone])
    values = np.concatenate([mismatch_kl.values, np.full(len(gone), np.nan)])
    order = np.argsort(steps)
    steps, values = steps[order], values[order]
    is_above = (~(values <= threshold) | ~np.isfinite(values)) & (steps >= first)
    found = _first_run_of(is_above, hold)
    last_step = int(steps[-1])
    if found is None:
        return Event(EventState.NO, None, last_step, baseline, threshold)
    is_lost = ~np.isfinite(values[found : found + hold])
    reason = "non-finite or no longer logged" if is_lost.any() else ""
    return Event(EventState.YES, int(steps[found]), last_step, baseline, threshold, reason)


def find_baseline_explosion(
    mismatch_kl: Curve,
    going_on: IntArray,
    *,
    baseline_steps: tuple[int, int],
    factor: float,
    hold: int,
) -> int | None:
    """Return the step of its own `baseline_steps` at which mismatch KL explodes, or None.

    Judged by the rule of `find_explosion`, with the whole window as the baseline and with its first
    third: an explosion within the window lifts the median of the whole and so hides itself.
    """
    first, last = baseline_steps
    found = [
        find_explosion(
            mismatch_kl, going_on, baseline_steps=(first, end), factor=factor, hold=hold
        ).step
        for end in (last, first + (last - first) // 3)
    ]
    return min((step for step in found if step is not None and step <= last), default=None)


def find_collapse(
    solve_rate: Curve,
    last_logged_step: int,
    *,
    baseline_steps: tuple[int, int],
    window: int,
    fraction: float,
) -> Event:
    """Return whether the solve rate collapsed: its mean over `window` steps falls below `fraction`
    x its mean in the run's own `baseline_steps` and is still there at the end.

    The step is the end of the first window of the last stretch below, so that a dip that recovered
    is no collapse. `last_logged_step` is the last step of the run in any metric.
    """
    baseline_window = solve_rate.within(*baseline_steps).finite()
    problem = _baseline_problem("solve rate", solve_rate, baseline_window, baseline_steps)
    if problem:
        return Event(EventState.UNDECIDABLE, reason=problem)
    baseline = mean_of(baseline_window.values)
    if baseline <= 0:
        return Event(EventState.UNDECIDABLE, reason="the baseline solve rate is 0")
    threshold = fraction * baseline

    means = trailing_means(solve_rate, window)
    last_step = int(means.steps[-1])
    means = means.within(baseline_steps[1] + 1, last_step)
    if last_step < baseline_steps[1] + window:
        return Event(
            EventState.UNDECIDABLE,
            last_step=last_step,
            baseline=baseline,
            threshold=threshold,
            reason=f"fewer than {window} steps to judge after the baseline window",
        )
    if last_logged_step >= last_step + max(window, 2 * typical_spacing(solve_rate.steps)):
        return Event(
            EventState.UNDECIDABLE,
            last_step=last_step,
            baseline=baseline,
            threshold=threshold,
            reason=f"the solve rate is not logged after step {last_step}",
        )
    not_below = np.flatnonzero(means.values >= threshold)
    start = int(not_below[-1]) + 1 if len(not_below) else 0
    if start == len(means):
        return Event(EventState.NO, None, last_step, baseline, threshold)
    return Event(EventState.YES, int(means.steps[start]), last_step, baseline, threshold)


def _baseline_problem(
    label: str, curve: Curve, window: Curve, baseline_steps: tuple[int, int]
) -> str:
    """Say why `window`, the finite part of `curve` in `baseline_steps`, is no baseline."""
    first, last = baseline_steps
    if not len(curve):
        return f"{label} is not logged"
    if curve.steps[0] > first + typical_spacing(curve.steps):
        return f"{label} begins at step {curve.steps[0]}, after the baseline window has begun"
    if curve.steps[-1] <= last:
        return f"{label} is there up to step {curve.steps[-1]}, not beyond the baseline window"
    needed = min(_MIN_BASELINE_VALUES, last - first + 1)
    if len(window) < needed:
        return f"{label} has {len(window)} values in baseline steps {first}-{last}, not {needed}"
    return ""


def _first_run_of(flags: BoolArray, length: int) -> int | None:
    """Return where the first `length` True in a row begin, or None."""
    if len(flags) < length:
        return None
    counts = np.convolve(flags.astype(np.int64), np.ones(length, dtype=np.int64), "valid")
    hits = np.flatnonzero(counts == length)
    return int(hits[0]) if len(hits) else None
