"""Everything that happened in one run, from its curves alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from analysis.curve import EMPTY_CURVE, Curve, IntArray, mean_of, trailing_means
from analysis.events.health import MetricLog, Spikes, find_spikes, metric_log
from analysis.events.onset import find_onset
from analysis.events.rules import (
    Event,
    EventRules,
    EventState,
    baseline_problem,
    undecidable,
    with_gone,
)
from analysis.events.thresholds import (
    Dip,
    find_baseline_explosion,
    find_collapse,
    find_dips,
    find_entropy_collapse,
    find_explosion,
    is_above_or_lost,
)

JUDGED = ("mismatch_kl", "solve_rate", "entropy", "grad_norm", "is_masked")
"""Canonical names of the metrics that events are made of."""

ENTROPY_LOSS = 0.1
"""`mask_heavy` asks that the mean entropy is lower than in the baseline by over this share."""

_MIN_BEFORE_DIP = 3


@dataclass(frozen=True)
class RunEvents:
    """What happened in one run.

    Attributes:
        exploded, collapsed, entropy_collapsed: see `find_explosion`, `find_collapse`.
        onset: see `find_onset`; `first` and `last` bound it.
        dips: of the solve rate, that recovered.
        kl_above_share, solve_rate_below_share: share of logged steps after the baseline window at
            which the KL is above the explosion's threshold or lost, and at which the windowed solve
            rate is below the collapse's; None without a threshold.
        logs: by metric of `JUDGED`: whether and how it was logged, what wasn't finite, what
            vanished, what had gaps.
        spikes: of the gradient norm.
        mask_silent: the mask does not push back, see `find_mask_silent`.
        mask_heavy: the mask takes much while entropy falls, see `find_mask_heavy`.
        baseline_events: what lies in the baseline window and makes it no baseline: "explosion",
            "non-finite", "dip" or "gradient spike".
    """

    exploded: Event
    onset: Event
    collapsed: Event
    dips: tuple[Dip, ...]
    kl_above_share: float | None
    solve_rate_below_share: float | None
    entropy_collapsed: Event
    logs: Mapping[str, MetricLog]
    spikes: Spikes
    mask_silent: Event
    mask_heavy: Event
    baseline_events: tuple[str, ...]

    @property
    def nonfinite(self) -> dict[str, tuple[int, int]]:
        """Metric -> first step with a value that isn't finite, and number of such steps."""
        return {
            name: (log.nonfinite.first, log.nonfinite.count)
            for name, log in self.logs.items()
            if log.nonfinite is not None
        }

    @property
    def vanished(self) -> dict[str, int]:
        """Metric -> its last step, where the run went on without it."""
        return {
            name: log.vanished_after
            for name, log in self.logs.items()
            if log.vanished_after is not None
        }


def find_run_events(
    curves: Mapping[str, Curve],
    going_on: IntArray,
    last_logged_step: int,
    rules: EventRules,
    *,
    fork_step: int | None = None,
) -> RunEvents:
    """Return the events of one run.

    Args:
        curves: by canonical name; those of `JUDGED` are used, and one that is missing or empty
            counts as not logged.
        going_on: steps at which the trainer trained and logged something, increasing.
        last_logged_step: last step of the run in any metric.
        rules: parameters, the same for every run that is compared.
        fork_step: up to there the curves are a parent's. They make the baselines; an explosion, an
            onset or a heavy mask there is the parent's and undecidable in the fork, and no dip,
            spike or share is counted there. A collapse says how the run ended, wherever it began.
    """
    kl, solve_rate, entropy, grad_norm, masked = (
        curves.get(name) or EMPTY_CURVE for name in JUDGED
    )
    window, end = rules.collapse_window, rules.baseline_steps[1]
    exploded = find_explosion(
        kl,
        going_on,
        baseline_steps=rules.baseline_steps,
        factor=rules.explode_factor,
        hold=rules.explode_hold,
    )
    onset = find_onset(
        kl,
        going_on,
        baseline_steps=rules.baseline_steps,
        false_alarm=rules.onset_false_alarm,
        exploded=exploded,
        explode_hold=rules.explode_hold,
    )
    exploded, onset = (_after_fork(event, fork_step) for event in (exploded, onset))
    collapsed = find_collapse(
        solve_rate,
        last_logged_step,
        baseline_steps=rules.baseline_steps,
        window=window,
        fraction=rules.collapse_fraction,
    )
    means = trailing_means(solve_rate, window)
    dips = find_dips(solve_rate, collapsed, baseline_steps=rules.baseline_steps, window=window)
    counted_from = max(end, fork_step or 0)
    return RunEvents(
        exploded=exploded,
        onset=onset,
        collapsed=collapsed,
        dips=tuple(dip for dip in dips if dip.last > (fork_step or 0)),
        kl_above_share=_share(
            with_gone(kl, going_on, last_reference_step=end),
            exploded.threshold,
            counted_from,
            above=True,
        ),
        solve_rate_below_share=_share(means, collapsed.threshold, counted_from, above=False),
        entropy_collapsed=find_entropy_collapse(
            entropy,
            last_logged_step,
            baseline_steps=rules.baseline_steps,
            window=window,
            fraction=rules.entropy_fraction,
        ),
        logs={
            name: metric_log(
                curves.get(name),
                going_on,
                last_reference_step=end,
                patience=rules.explode_hold,
            )
            for name in JUDGED
        },
        spikes=find_spikes(
            _without_past(grad_norm, end, fork_step),
            baseline_steps=rules.baseline_steps,
            factor=rules.spike_factor,
        ),
        mask_silent=find_mask_silent(
            masked, exploded, onset, last_logged_step, window=window, floor=rules.mask_floor
        ),
        mask_heavy=_after_fork(
            find_mask_heavy(
                masked,
                entropy,
                baseline_steps=rules.baseline_steps,
                window=window,
                ceiling=rules.mask_ceiling,
            ),
            fork_step,
        ),
        baseline_events=find_baseline_events(curves, going_on, rules),
    )


def _after_fork(event: Event, fork_step: int | None) -> Event:
    """Return `event`, undecidable where it is the parent's: every fork shares it."""
    if fork_step is None or event.step is None or event.step > fork_step:
        return event
    reason = f"it happened at step {event.step}, before the fork after step {fork_step}"
    return replace(
        event, state=EventState.UNDECIDABLE, step=None, first=None, last=None, reason=reason
    )


def _without_past(curve: Curve, baseline_end: int, fork_step: int | None) -> Curve:
    """Return `curve` without the parent's steps after the baseline window."""
    if fork_step is None:
        return curve
    kept = (curve.steps <= baseline_end) | (curve.steps > fork_step)
    return Curve(curve.steps[kept], curve.values[kept])


def find_mask_silent(
    masked: Curve,
    exploded: Event,
    onset: Event,
    last_logged_step: int,
    *,
    window: int,
    floor: float,
) -> Event:
    """Return whether the mask does not push back: mismatch KL has risen, and from there on no mean
    of the masked fraction over `window` steps reaches `floor`.

    The KL has risen from the alarm of `onset` on, or from the step of `exploded`, whichever is
    first; that is the event's step. "No" where neither happened, as there was nothing to push.
    """
    risen = [event for event in (onset.last, exploded.step) if event is not None]
    if not len(masked):
        return undecidable("the masked fraction is not logged")
    if not risen:
        states = {onset.state, exploded.state}
        if states == {EventState.UNDECIDABLE}:
            return undecidable(f"whether the KL rises is undecidable: {exploded.reason}")
        return Event(EventState.NO, last_step=last_logged_step, threshold=floor)
    start = min(risen)
    after = masked.within(start, int(masked.steps[-1])).finite()
    if not len(after) or after.steps[-1] < start + window - 1:
        return Event(
            EventState.UNDECIDABLE,
            last_step=int(masked.steps[-1]),
            threshold=floor,
            reason=f"fewer than {window} steps with a masked fraction after the KL rose at {start}",
        )
    means = trailing_means(after, window)
    means = means.within(start + window - 1, int(means.steps[-1]))
    state = EventState.YES if bool(np.all(means.values < floor)) else EventState.NO
    step = start if state is EventState.YES else None
    return Event(state, step, int(means.steps[-1]), threshold=floor)


def find_mask_heavy(
    masked: Curve, entropy: Curve, *, baseline_steps: tuple[int, int], window: int, ceiling: float
) -> Event:
    """Return whether the mask takes much while entropy falls: over one window of `window` steps
    after the baseline, the mean masked fraction is above `ceiling` and the mean entropy is lower
    than in `baseline_steps` by over `ENTROPY_LOSS` of it.

    The step is the end of the first such window. `baseline` and `threshold` are those of entropy.
    """
    first, last = baseline_steps
    if not len(masked):
        return undecidable("the masked fraction is not logged")
    entropy_window = entropy.within(first, last).finite()
    problem = baseline_problem("entropy", entropy, entropy_window, baseline_steps)
    if problem:
        return undecidable(problem)
    baseline = mean_of(entropy_window.values)
    if baseline <= 0:
        return undecidable("the baseline entropy is 0")
    threshold = (1 - ENTROPY_LOSS) * baseline
    both = [
        trailing_means(curve, window).within(last + window, int(curve.steps[-1]))
        for curve in (masked, entropy)
    ]
    steps = np.intersect1d(both[0].steps, both[1].steps)
    if not len(steps):
        return Event(
            EventState.UNDECIDABLE,
            baseline=baseline,
            threshold=threshold,
            reason=f"fewer than {window} steps with masked fraction and entropy after the baseline",
        )
    is_heavy = (both[0].at(steps).values > ceiling) & (both[1].at(steps).values < threshold)
    hits = steps[is_heavy]
    state = EventState.YES if len(hits) else EventState.NO
    step = int(hits[0]) if len(hits) else None
    return Event(state, step, int(steps[-1]), baseline, threshold)


def find_baseline_events(
    curves: Mapping[str, Curve], going_on: IntArray, rules: EventRules
) -> tuple[str, ...]:
    """Return what lies in the baseline window, so that it is none: see `RunEvents`.

    A hole in the KL counts as non-finite, as some trainers drop such values. A "dip" is a window of
    `collapse_window` steps within the baseline whose mean solve rate is below `collapse_fraction` x
    the mean before it: a baseline that isn't longer than that window shows none.
    """
    first, last = rules.baseline_steps
    found = []
    kl = curves.get("mismatch_kl") or EMPTY_CURVE
    explosion = find_baseline_explosion(
        kl,
        going_on,
        baseline_steps=rules.baseline_steps,
        factor=rules.explode_factor,
        hold=rules.explode_hold,
    )
    if explosion is not None:
        found.append("explosion")
    inside = [curves[name].within(first, last).values for name in JUDGED if name in curves]
    if not all(np.isfinite(values).all() for values in inside) or _has_hole(
        kl, going_on, first, last
    ):
        found.append("non-finite")
    if _has_dip(curves.get("solve_rate") or EMPTY_CURVE, rules):
        found.append("dip")
    spikes = find_spikes(
        curves.get("grad_norm") or EMPTY_CURVE,
        baseline_steps=rules.baseline_steps,
        factor=rules.spike_factor,
    )
    if spikes.first is not None and spikes.first <= last:
        found.append("gradient spike")
    return tuple(found)


def _has_hole(mismatch_kl: Curve, going_on: IntArray, first: int, last: int) -> bool:
    """Whether a KL that is logged at most steps of the baseline window isn't at some of them."""
    due = going_on[(going_on >= first) & (going_on <= last)]
    is_missing = ~np.isin(due, mismatch_kl.steps)
    return 0 < int(is_missing.sum()) <= len(due) // 3


def _has_dip(solve_rate: Curve, rules: EventRules) -> bool:
    first, last = rules.baseline_steps
    inside = solve_rate.within(first, last).finite()
    if not len(inside):
        return False
    means = trailing_means(inside, rules.collapse_window)
    for step, mean in zip(means.steps, means.values, strict=True):
        before = inside.within(first, int(step) - rules.collapse_window)
        if len(before) >= _MIN_BEFORE_DIP and mean < rules.collapse_fraction * mean_of(
            before.values
        ):
            return True
    return False


def _share(
    curve: Curve, threshold: float | None, baseline_end: int, *, above: bool
) -> float | None:
    """Return the share of steps of `curve` after the baseline window beyond `threshold`."""
    if threshold is None:
        return None
    after = Curve(curve.steps[curve.steps > baseline_end], curve.values[curve.steps > baseline_end])
    if not len(after):
        return None
    beyond = is_above_or_lost(after, threshold) if above else after.values < threshold
    return float(beyond.mean())
