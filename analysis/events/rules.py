"""What an event is, the parameters of the rules, and when a metric is due. Needs numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.curve import BoolArray, Curve, IntArray, typical_spacing

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
        first, last: where `step` is an estimate, the last step before which the run was clearly in
            control and the step at which it clearly was not; None for other events.
    """

    state: EventState
    step: int | None = None
    last_step: int | None = None
    baseline: float | None = None
    threshold: float | None = None
    reason: str = ""
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class EventRules:
    """Parameters of the events of one run; steps are trainer steps, both ends inclusive.

    Attributes:
        baseline_steps: first and last step of the window that a run's own baselines are taken from.
        explode_factor, explode_hold: exploded = mismatch KL above factor x the median of the
            baseline window for `hold` consecutive logged steps.
        collapse_window, collapse_fraction: collapsed = the mean solve rate over `window` steps
            falls below fraction x its mean in the baseline window and is still there at the end.
        entropy_fraction: the same for the mean entropy over `collapse_window` steps.
        spike_factor: gradient spike = gradient norm above factor x the median of the baseline.
        mask_floor: a masked fraction below it, over `collapse_window` steps, pushes nothing back.
        mask_ceiling: a masked fraction above it is heavy.
        onset_false_alarm: probability that an onset is found in a run whose log mismatch KL only
            fluctuates about a level.
    """

    baseline_steps: tuple[int, int]
    explode_factor: float = 20.0
    explode_hold: int = 3
    collapse_window: int = 20
    collapse_fraction: float = 0.5
    entropy_fraction: float = 0.2
    spike_factor: float = 20.0
    mask_floor: float = 1e-4
    mask_ceiling: float = 0.2
    onset_false_alarm: float = 0.05


def undecidable(reason: str) -> Event:
    """Return an event that can't be judged, with the reason."""
    return Event(EventState.UNDECIDABLE, reason=reason)


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


def with_gone(metric: Curve, going_on: IntArray, *, last_reference_step: int) -> Curve:
    """Return `metric` with NaN at the steps of `gone_steps`."""
    gone = gone_steps(metric, going_on, last_reference_step=last_reference_step)
    steps = np.concatenate([metric.steps, gone])
    values = np.concatenate([metric.values, np.full(len(gone), np.nan)])
    order = np.argsort(steps)
    return Curve(steps[order], values[order])


def baseline_problem(
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


def stretches_of(flags: BoolArray) -> list[tuple[int, int]]:
    """Return the first and the last place (inclusive) of every stretch of True, in order."""
    edges = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
