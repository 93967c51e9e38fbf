"""The first step at which two arms differ, as an interval. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np

from analysis.curve import EMPTY_CURVE, Curve, FloatArray, IntArray
from analysis.events.cusum import (
    baseline_noise,
    cusum,
    is_out_of_reach,
    locate,
    standardized,
    threshold,
)
from analysis.events.onset import log_of, out_of_reach
from analysis.events.rules import EventState

_ABOUT_RUNS = "one run each: this is about the two runs, not about their arms"


@dataclass(frozen=True)
class Difference:
    """Whether, and from where on, the mean curve of an arm differs from that of another.

    Attributes:
        state: yes, no (no lasting difference found up to `last_step`: not a proof that there is
            none) or undecidable.
        last_equal: last step up to which the data are consistent with no difference at all; one
            before the first compared step where they differ from there on.
        first_different: step of the alarm, from which on they clearly differ.
        step: the fitted beginning, between the two.
        is_higher: whether the arm lies above; None unless `state` is yes.
        identical_to: last step up to which the curves are equal to the last bit; None where they
            differ from the first shared step on.
        last_step: last shared step.
        num_runs: of the arm and of the other one. With one run each the statement is about these
            two runs, not about their arms.
        reason: why it is undecidable, or what else is to be said.
    """

    state: EventState
    last_equal: int | None = None
    first_different: int | None = None
    step: int | None = None
    is_higher: bool | None = None
    identical_to: int | None = None
    last_step: int | None = None
    num_runs: tuple[int, int] = (0, 0)
    reason: str = ""


def first_difference(
    arm: Sequence[Curve],
    baseline: Sequence[Curve],
    *,
    scale: Literal["ratio", "difference"],
    baseline_steps: tuple[int, int],
    false_alarm: float,
) -> Difference:
    """Return the first step at which the mean of `arm` lastingly differs from that of `baseline`.

    Both are means over runs (of logs, for the scale "ratio") at the steps that every run logged, so
    that runs with common seeds are compared as pairs. The difference goes through the CUSUM of
    `analysis.events.cusum` upwards and downwards, each at half of `false_alarm`, from the first of
    `baseline_steps` on: measured from 0, in robust standard deviations of that window. Where the
    difference is AR(1) noise about 0, at most `false_alarm` of pairs differ. A lasting difference
    of up to 1 standard deviation of the step-to-step noise is not found.

    On the scale "ratio" a value that isn't finite counts as far above; on "difference" its step is
    left out. To count a vanished metric as far above, pass the curves through `with_gone`.
    """
    steps, difference = _difference(arm, baseline, scale)
    result = Difference(EventState.UNDECIDABLE, num_runs=(len(arm), len(baseline)))
    if not len(steps):
        return replace(result, reason="there is no step at which every run of both arms logged it")
    unequal = np.flatnonzero(difference != 0)
    num_equal = int(unequal[0]) if len(unequal) else len(steps)
    result = replace(
        result,
        identical_to=int(steps[num_equal - 1]) if num_equal else None,
        last_step=int(steps[-1]),
        reason=_ABOUT_RUNS if result.num_runs == (1, 1) else "",
    )
    first, last = baseline_steps
    if num_equal == len(steps):
        return replace(result, state=EventState.NO)
    if steps[num_equal] > last:
        # Without noise before it, the first unequal step is exact, however small the difference.
        return replace(
            result,
            state=EventState.YES,
            last_equal=result.identical_to,
            first_different=int(steps[num_equal]),
            step=int(steps[num_equal]),
            is_higher=bool(difference[num_equal] > 0),
        )

    is_watched = steps >= first
    steps, difference = steps[is_watched], difference[is_watched]
    in_window = difference[steps <= last]
    if len(in_window) == len(steps):
        return replace(result, reason=f"no step beyond the baseline window {first}-{last}")
    noise = baseline_noise(in_window, center=0.0)
    if isinstance(noise, str):
        return replace(result, reason=noise)
    z = standardized(difference, noise)
    h = threshold(noise, len(z), false_alarm / 2)
    alarms = [
        (int(place), sign) for sign in (1, -1) for place in np.flatnonzero(cusum(sign * z) > h)[:1]
    ]
    if not alarms and is_out_of_reach(h, len(z)):
        return replace(result, reason=out_of_reach(noise))
    if not alarms:
        return replace(result, state=EventState.NO)
    alarm, sign = min(alarms)
    change = locate(sign * z, 0, alarm, noise)
    return replace(
        result,
        state=EventState.YES,
        last_equal=int(steps[change.earliest - 1]) if change.earliest else int(steps[0]) - 1,
        first_different=int(steps[alarm]),
        step=int(steps[change.estimate]),
        is_higher=sign > 0,
    )


def _difference(
    arm: Sequence[Curve], baseline: Sequence[Curve], scale: Literal["ratio", "difference"]
) -> tuple[IntArray, FloatArray]:
    """Return the steps that all runs share and arm minus baseline there; steps without one, as
    both are infinite or one is missing, are left out."""
    curves = [*arm, *baseline]
    if not arm or not baseline:
        return EMPTY_CURVE.steps, EMPTY_CURVE.values
    steps: IntArray = reduce(np.intersect1d, [curve.steps for curve in curves])
    means = []
    for side in (arm, baseline):
        values = np.array([curve.at(steps).values for curve in side])
        if scale == "ratio":
            values = log_of(values)
        with np.errstate(invalid="ignore", over="ignore"):  # Infinities of both signs: NaN.
            means.append(values.mean(axis=0))
    with np.errstate(invalid="ignore"):
        difference = means[0] - means[1]
    is_there = ~np.isnan(difference)
    if scale == "difference":
        is_there &= np.isfinite(difference)
    return steps[is_there], difference[is_there]
