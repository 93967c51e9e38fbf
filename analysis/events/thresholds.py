"""Events that a threshold decides: exploded, collapsed, entropy collapse, dips that recovered."""

from __future__ import annotations

from dataclasses import dataclass

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
from analysis.events.rules import (
    Event,
    EventState,
    baseline_problem,
    stretches_of,
    undecidable,
    with_gone,
)


@dataclass(frozen=True)
class Dip:
    """A stretch of windows in which the solve rate was below the collapse threshold, and after
    which it came back.

    Attributes:
        first, last: ends of the first and the last window below.
        lowest, lowest_step: the lowest windowed mean and where its window ends.
    """

    first: int
    last: int
    lowest: float
    lowest_step: int


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
    window = mismatch_kl.within(first, last).finite()
    problem = baseline_problem("mismatch KL", mismatch_kl, window, baseline_steps)
    if problem:
        return undecidable(problem)
    baseline = median_of(window.values)
    if baseline <= 0:
        return undecidable("the baseline mismatch KL is 0")
    threshold = factor * baseline  # Beyond floats only a KL that isn't finite is above it.

    curve = with_gone(mismatch_kl, going_on, last_reference_step=last)
    is_above = is_above_or_lost(curve, threshold) & (curve.steps >= first)
    found = _first_run_of(is_above, hold)
    last_step = int(curve.steps[-1])
    if found is None:
        return Event(EventState.NO, None, last_step, baseline, threshold)
    is_lost = ~np.isfinite(curve.values[found : found + hold])
    reason = "non-finite or no longer logged" if is_lost.any() else ""
    return Event(EventState.YES, int(curve.steps[found]), last_step, baseline, threshold, reason)


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
    return _find_fall(
        "solve rate",
        solve_rate,
        last_logged_step,
        baseline_steps=baseline_steps,
        window=window,
        fraction=fraction,
    )


def find_entropy_collapse(
    entropy: Curve,
    last_logged_step: int,
    *,
    baseline_steps: tuple[int, int],
    window: int,
    fraction: float,
) -> Event:
    """Return whether the entropy collapsed, by the rule of `find_collapse`."""
    return _find_fall(
        "entropy",
        entropy,
        last_logged_step,
        baseline_steps=baseline_steps,
        window=window,
        fraction=fraction,
    )


def find_dips(
    solve_rate: Curve, collapsed: Event, *, baseline_steps: tuple[int, int], window: int
) -> tuple[Dip, ...]:
    """Return the dips of the solve rate that recovered, given its `collapsed` event.

    A dip begins and ends as a collapse does, on windowed means after the baseline window; the
    stretch that a collapse or the run's end cuts off is none. Dips less than `window` steps apart
    are one. Empty where `collapsed` has no threshold.
    """
    if collapsed.threshold is None:
        return ()
    means = trailing_means(solve_rate, window)
    means = means.within(baseline_steps[1] + 1, int(means.steps[-1]))
    is_below = means.values < collapsed.threshold
    merged: list[tuple[int, int]] = []
    for start, end in stretches_of(is_below):
        if end == len(means) - 1:
            break
        if merged and means.steps[start] - means.steps[merged[-1][1]] < window:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    dips = []
    for start, end in merged:
        lowest = start + int(np.argmin(means.values[start : end + 1]))
        dips.append(
            Dip(
                first=int(means.steps[start]),
                last=int(means.steps[end]),
                lowest=float(means.values[lowest]),
                lowest_step=int(means.steps[lowest]),
            )
        )
    return tuple(dips)


def is_above_or_lost(curve: Curve, threshold: float) -> BoolArray:
    """Return where `curve` is above `threshold` or not finite, [num_steps]."""
    flags: BoolArray = ~(curve.values <= threshold) | ~np.isfinite(curve.values)
    return flags


def _find_fall(
    label: str,
    curve: Curve,
    last_logged_step: int,
    *,
    baseline_steps: tuple[int, int],
    window: int,
    fraction: float,
) -> Event:
    baseline_window = curve.within(*baseline_steps).finite()
    problem = baseline_problem(label, curve, baseline_window, baseline_steps)
    if problem:
        return undecidable(problem)
    baseline = mean_of(baseline_window.values)
    if baseline <= 0:
        return undecidable(f"the baseline {label} is 0")
    threshold = fraction * baseline

    means = trailing_means(curve, window)
    last_step = int(means.steps[-1])
    means = means.within(baseline_steps[1] + 1, last_step)
    reason = ""
    if last_step < baseline_steps[1] + window:
        reason = f"fewer than {window} steps to judge after the baseline window"
    elif last_logged_step >= last_step + max(window, 2 * typical_spacing(curve.steps)):
        reason = f"the {label} is not logged after step {last_step}"
    if reason:
        return Event(EventState.UNDECIDABLE, None, last_step, baseline, threshold, reason)
    not_below = np.flatnonzero(means.values >= threshold)
    start = int(not_below[-1]) + 1 if len(not_below) else 0
    if start == len(means):
        return Event(EventState.NO, None, last_step, baseline, threshold)
    return Event(EventState.YES, int(means.steps[start]), last_step, baseline, threshold)


def _first_run_of(flags: BoolArray, length: int) -> int | None:
    """Return where the first `length` True in a row begin, or None."""
    return next((a for a, b in stretches_of(flags) if b - a + 1 >= length), None)
