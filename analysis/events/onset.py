"""Onset of one run: where its log mismatch KL left its own baseline, with bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from analysis.curve import Curve, FloatArray, IntArray
from analysis.events.cusum import (
    Noise,
    baseline_noise,
    cusum,
    is_out_of_reach,
    locate,
    standardized,
    threshold,
)
from analysis.events.rules import Event, EventState, baseline_problem, undecidable, with_gone


def find_onset(
    mismatch_kl: Curve,
    going_on: IntArray,
    *,
    baseline_steps: tuple[int, int],
    false_alarm: float,
    exploded: Event | None = None,
    explode_hold: int = 1,
) -> Event:
    """Return whether and where log mismatch KL rose above its own `baseline_steps` for good.

    A CUSUM on log KL after the baseline window (`analysis.events.cusum`); in runs whose log KL
    fluctuates as AR(1) noise about one level, at most `false_alarm` have an onset. `last` is the
    step of the alarm, `step` the fitted beginning of the rise and `first` the step before the
    earliest beginning that the fit doesn't exclude. `baseline` is the median KL of the window and
    `threshold` the CUSUM's, in standard deviations of log KL.

    A KL that isn't finite, or is gone while the trainer goes on (`going_on`), counts as far above;
    a KL of 0 or below as far below. An `exploded` run has left its baseline: where the CUSUM is
    slower, the `explode_hold`-th step of the explosion is the alarm.
    """
    first, last = baseline_steps
    finite = mismatch_kl.within(first, last).finite()
    problem = baseline_problem("mismatch KL", mismatch_kl, finite, baseline_steps)
    if problem:
        return undecidable(problem)
    if exploded is not None and exploded.step is not None and exploded.step <= last:
        return undecidable(f"the baseline window holds an explosion, at step {exploded.step}")
    curve = with_gone(mismatch_kl, going_on, last_reference_step=last)
    curve = curve.within(first, int(curve.steps[-1]))
    steps, logs = curve.steps, log_of(curve.values)
    num_baseline = int((steps <= last).sum())
    noise = baseline_noise(logs[:num_baseline])
    if isinstance(noise, str):
        return undecidable(noise)

    z = standardized(logs, noise)
    num_watched = len(z) - num_baseline
    h = threshold(noise, num_watched, false_alarm)
    alarms = [
        num_baseline + int(place) for place in np.flatnonzero(cusum(z[num_baseline:]) > h)[:1]
    ]
    if exploded is not None and exploded.step is not None:
        place = int(np.searchsorted(steps, exploded.step)) + explode_hold - 1
        alarms.append(min(place, len(steps) - 1))
    event = Event(
        EventState.NO, last_step=int(steps[-1]), baseline=math.exp(noise.center), threshold=h
    )
    if not alarms and is_out_of_reach(h, num_watched):
        return replace(event, state=EventState.UNDECIDABLE, reason=out_of_reach(noise))
    if not alarms:
        return event
    change = locate(z, num_baseline, min(alarms), noise)
    return replace(
        event,
        state=EventState.YES,
        step=int(steps[change.estimate]),
        first=int(steps[change.earliest - 1]),
        last=int(steps[change.alarm]),
    )


def log_of(values: FloatArray) -> FloatArray:
    """Return log `values`: infinite where they aren't finite, minus infinity at 0 and below."""
    is_positive = values > 0
    logs = np.where(is_positive, np.log(np.where(is_positive, values, 1.0)), -np.inf)
    logged: FloatArray = np.where(np.isfinite(values), logs, np.inf)
    return logged


def out_of_reach(noise: Noise) -> str:
    """Say why no alarm of a CUSUM whose threshold is out of reach is undecidable."""
    return (
        f"a baseline of {noise.num_values} values with autocorrelation "
        f"{noise.autocorrelation:.2f} is too short to tell a change from noise"
    )
