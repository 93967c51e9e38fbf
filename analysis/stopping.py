"""When a stop rule fires, from what was known at each step alone. Needs numpy, not pandas.

The same functions judge a run on its node, as it goes on, and a run that has ended: what comes
after a step never changes whether a rule fires there. So a rule that is evaluated every now and
then, on whatever has been logged so far, names the same step as one that sees the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curve import EMPTY_CURVE, BoolArray, Curve, IntArray, trailing_means
from analysis.events import (
    Event,
    find_collapse,
    find_entropy_collapse,
    find_explosion,
    with_gone,
)
from analysis.events.rules import stretches_of
from analysis.events.thresholds import is_above_or_lost
from analysis.series import LOGGED_BY_TRAINER, trained_steps
from harness.records.model import AnalysisSpec, StopRule

EVENT_METRICS: Mapping[str, tuple[str, ...]] = {
    "exploded": ("mismatch_kl",),
    "collapsed": ("solve_rate",),
    "non_finite": ("mismatch_kl", "loss", "grad_norm"),
    "entropy_collapsed": ("entropy",),
}
"""Event -> canonical names of the metrics of which at least one must be logged."""

Curves = Mapping[str, Curve]

_MIN_REFERENCE = 3
"""Values that tell how often a metric is due."""


@dataclass(frozen=True)
class Firing:
    """The first step at which a rule says that a run is to be stopped."""

    rule: StopRule
    step: int


def metrics_of(rule: StopRule) -> tuple[str, ...]:
    """Return the metrics that `rule` is about; it is blind where none of them is logged."""
    return EVENT_METRICS[rule.event] if rule.event else (rule.metric,)


def find_stop(
    curves: Curves,
    rules: Sequence[StopRule],
    spec: AnalysisSpec,
    max_steps: int,
    *,
    fork_step: int = 0,
) -> Firing | None:
    """Return the first firing before `max_steps`, of the first rule in order at that step.

    Cutting `curves` anywhere at or after the firing's step gives the same firing, and cutting them
    before it gives None.

    Args:
        curves: live values by canonical name.
        spec: what the sweep declares; events are judged by it.
        fork_step: up to there the curves are a parent's: they make the baselines, and no rule holds
            there.
    """
    found = [
        Firing(rule, step)
        for rule in rules
        if (step := _FIND[rule.event](curves, rule, spec, fork_step)) is not None
        and step < max_steps
    ]
    return min(found, key=lambda firing: firing.step, default=None)


def why_blind(curves: Curves, rule: StopRule, spec: AnalysisSpec) -> str:
    """Say why `rule` can't fire, by what was logged so far; empty where it can."""
    names = metrics_of(rule)
    if not any(len(curves.get(name) or ()) for name in names):
        shown = " and ".join(f"`{name}`" for name in names)
        return f"{shown} {'is' if len(names) == 1 else 'are'} not logged"
    if rule.event not in _JUDGE:
        return ""
    event = _baseline(curves, rule.event, spec)
    return "" if event is None or event.threshold is not None else event.reason


def _find_predicate(
    curves: Curves, rule: StopRule, spec: AnalysisSpec, fork_step: int
) -> int | None:
    """Return where the values of a metric have been beyond the bounds for long enough.

    NaN is beyond no bound.
    """
    del spec
    curve = curves.get(rule.metric, EMPTY_CURVE)
    flags: BoolArray = curve.steps > max(rule.after_step, fork_step)
    if rule.above is not None:
        flags = flags & (curve.values > rule.above)
    if rule.below is not None:
        flags = flags & (curve.values < rule.below)
    return _held(curve.steps, flags, rule.hold_steps)


def _find_fall(curves: Curves, rule: StopRule, spec: AnalysisSpec, fork_step: int) -> int | None:
    """Return where the collapse of a metric has lasted for `hold_steps` windows, with every last
    value of them below `below`."""
    [name] = EVENT_METRICS[rule.event]
    event = _baseline(curves, rule.event, spec)
    if event is None or event.threshold is None:
        return None
    end = spec.baseline_steps[1]
    finite = curves[name].finite()
    means = trailing_means(finite, spec.collapse_window)
    is_below = (means.values < event.threshold) & (means.steps > max(end, fork_step))
    if rule.below is not None:
        is_below &= finite.values < rule.below
    return _held(means.steps, is_below, rule.hold_steps, first=end + spec.collapse_window)


def _find_explosion(
    curves: Curves, rule: StopRule, spec: AnalysisSpec, fork_step: int
) -> int | None:
    """Return where the explosion, above `above`, has lasted for `hold_steps`, at least
    `explode_hold`."""
    event = _baseline(curves, rule.event, spec)
    if event is None or event.threshold is None:
        return None
    first, last = spec.baseline_steps
    kl = with_gone(curves["mismatch_kl"], _going_on(curves), last_reference_step=last)
    was_above = is_above_or_lost(kl, event.threshold) & (kl.steps >= first)
    is_above = was_above & (kl.steps > fork_step) & ~_goes_on(was_above, kl.steps, fork_step)
    if rule.above is not None:
        is_above &= is_above_or_lost(kl, rule.above)
    step = _held(kl.steps, is_above, max(rule.hold_steps, spec.explode_hold))
    return None if step is None else max(step, _known_from(curves["mismatch_kl"], last))


def _goes_on(flags: BoolArray, steps: IntArray, fork_step: int) -> BoolArray:
    """Return where, after a fork, flags only go on that held at the fork: they are the parent's."""
    own = steps > fork_step
    if not flags[~own][-1:].any():
        return np.zeros_like(flags)
    first_break = int(np.argmax(own & ~flags)) if (own & ~flags).any() else len(flags)
    return own & (np.arange(len(flags)) < first_break)


def _find_nonfinite(
    curves: Curves, rule: StopRule, spec: AnalysisSpec, fork_step: int
) -> int | None:
    """Return where a logged value isn't finite, or mismatch KL is missing after the baseline
    window for `explode_hold` steps in a row (either for `hold_steps`, where that is longer)."""
    last = spec.baseline_steps[1]
    found = []
    for name in EVENT_METRICS["non_finite"]:
        curve = curves.get(name, EMPTY_CURVE)
        is_bad = ~np.isfinite(curve.values) & (curve.steps > fork_step)
        found.append(_held(curve.steps, is_bad, rule.hold_steps))
    kl = curves.get("mismatch_kl", EMPTY_CURVE)
    if np.count_nonzero(kl.steps <= last) >= _MIN_REFERENCE:
        # How often it is due is known only at the end of the window.
        lost = with_gone(kl, _going_on(curves), last_reference_step=last)
        is_lost = ~np.isfinite(lost.values) & (lost.steps > max(last, fork_step))
        found.append(_held(lost.steps, is_lost, max(rule.hold_steps, spec.explode_hold)))
    return min((step for step in found if step is not None), default=None)


_FIND: Mapping[str, Callable[[Curves, StopRule, AnalysisSpec, int], int | None]] = {
    "": _find_predicate,
    "collapsed": _find_fall,
    "entropy_collapsed": _find_fall,
    "exploded": _find_explosion,
    "non_finite": _find_nonfinite,
}


def _held(steps: IntArray, flags: BoolArray, length: int, *, first: int = 0) -> int | None:
    """Return the first step, from `first` on, that ends `length` or more True in a row."""
    for start, end in stretches_of(flags):
        inside = steps[start + length - 1 : end + 1]
        inside = inside[inside >= first]
        if len(inside):
            return int(inside[0])
    return None


def _judge_explosion(curves: Curves, spec: AnalysisSpec) -> Event:
    return find_explosion(
        curves["mismatch_kl"],
        _going_on(curves),
        baseline_steps=spec.baseline_steps,
        factor=spec.explode_factor,
        hold=spec.explode_hold,
    )


def _judge_collapse(curves: Curves, spec: AnalysisSpec) -> Event:
    return find_collapse(
        curves["solve_rate"],
        int(curves["solve_rate"].steps[-1]),
        baseline_steps=spec.baseline_steps,
        window=spec.collapse_window,
        fraction=spec.collapse_fraction,
    )


def _judge_entropy(curves: Curves, spec: AnalysisSpec) -> Event:
    return find_entropy_collapse(
        curves["entropy"],
        int(curves["entropy"].steps[-1]),
        baseline_steps=spec.baseline_steps,
        window=spec.collapse_window,
        fraction=spec.entropy_fraction,
    )


_JUDGE: Mapping[str, Callable[[Curves, AnalysisSpec], Event]] = {
    "exploded": _judge_explosion,
    "collapsed": _judge_collapse,
    "entropy_collapsed": _judge_entropy,
}


def _baseline(curves: Curves, event: str, spec: AnalysisSpec) -> Event | None:
    """Return an event as it stands once the baseline window is over, for its threshold or why it
    has none; None before that."""
    [name] = EVENT_METRICS[event]
    curve = curves.get(name, EMPTY_CURVE)
    last = spec.baseline_steps[1]
    if not len(curve) or curve.steps[-1] <= last:
        return None
    known = _known_from(curve, last)
    return _JUDGE[event]({key: item.up_to(known) for key, item in curves.items()}, spec)


def _known_from(curve: Curve, last: int) -> int:
    """Return the first step of `curve` after the baseline window, which ends at `last`."""
    return int(curve.steps[np.searchsorted(curve.steps, last, side="right")])


def _going_on(curves: Curves) -> IntArray:
    """Return `trained_steps`, as they were told at each of them: before the trainer logs anything
    of its own, whatever is logged counts."""
    starts = [int(c.steps[0]) for n, c in curves.items() if n in LOGGED_BY_TRAINER and len(c)]
    steps = trained_steps(curves)
    if not starts:
        return steps
    before = {name: item.up_to(min(starts) - 1) for name, item in curves.items()}
    early = trained_steps({name: item for name, item in before.items() if len(item)})
    return np.union1d(early, steps)
