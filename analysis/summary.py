"""One number per run and metric, one interval per arm: what comparisons and tables are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.curve import EMPTY_CURVE, Curve, trailing_means
from analysis.event_rules import event_rules
from analysis.events import (
    Event,
    EventState,
    RunEvents,
    find_baseline_explosion,
    find_collapse,
    find_run_events,
)
from analysis.metrics import MetricSpec, metric_spec
from analysis.runs import Run, RunState
from analysis.statistics import MeanInterval, Share, jeffreys, mean_interval
from analysis.windows import FinalWindow, WindowMean, going_on, gone_kl_steps, window_mean
from harness.records.model import AnalysisSpec


@dataclass(frozen=True)
class RunSummary:
    """What one run comes to, up to the last step that is judged.

    A fork is measured against its history, its parent's steps included; what it comes to is made of
    its own steps.

    Attributes:
        means: by metric; empty unless the run is done.
        peak_kl, peak_kl_step: highest mean mismatch KL over `collapse_window` steps, and where
            that window ends. The final KL says little after a collapse: advantages are 0, weights
            freeze and the inference engine catches up.
        kl_gone_from: first step at which mismatch KL was gone while the trainer went on.
        baseline_explosion_step: where mismatch KL explodes within the baseline window, see
            `find_baseline_explosion`.
        events: everything that happened, each by its own rule; None for a run without data.
        late_collapse_step: where the solve rate collapses after the last step that is judged, in a
            run that goes on beyond it.
    """

    run: Run
    means: Mapping[str, WindowMean]
    exploded: Event
    collapsed: Event
    peak_kl: float | None
    peak_kl_step: int | None
    kl_gone_from: int | None
    baseline_explosion_step: int | None = None
    events: RunEvents | None = None
    late_collapse_step: int | None = None


@dataclass(frozen=True)
class EventShare:
    """How many judged runs of an arm an event happened in: finished ones, and those that a rule
    stopped.

    Attributes:
        share: None where no judged run is decidable.
        steps: where it happened, increasing; `censored_at`: last steps of the runs without it.
    """

    share: Share | None
    steps: tuple[int, ...]
    censored_at: tuple[int, ...]
    num_undecidable: int


@dataclass(frozen=True)
class ArmSummary:
    """What one arm comes to, over its finished runs; events over its judged ones.

    Attributes:
        means: metric -> mean over seeds with its t interval; of the logs, for metrics that are
            compared as ratios (a geometric mean). Missing where no value or a 0 forbids it.
    """

    arm: str
    runs: tuple[RunSummary, ...]
    means: Mapping[str, MeanInterval]
    exploded: EventShare
    collapsed: EventShare

    @property
    def done(self) -> list[RunSummary]:
        return [summary for summary in self.runs if summary.run.is_done]

    @property
    def judged(self) -> list[RunSummary]:
        """The runs that enter event comparisons: finished ones, and those that a rule stopped."""
        return _judged_runs(self.runs)


def summarize_run(
    run: Run, window: FinalWindow | None, spec: AnalysisSpec, *, judged_to: int | None = None
) -> RunSummary:
    """Return window means, events and the highest windowed mismatch KL of `run`.

    Args:
        judged_to: steps after it don't count; None for all steps of the run. An event that a
            stopped run didn't have is undecidable, as the run ended before; what it did after its
            rule had fired, while it was being stopped, doesn't count either.
    """
    asked_to, judged_to = judged_to, _end_of(run, judged_to)
    kl = run.history.get("mismatch_kl", EMPTY_CURVE).up_to(judged_to)
    last_step = run.last_step or 0
    if judged_to is not None:
        last_step = min(last_step, judged_to)
    trained = going_on(run, judged_to)
    gone = gone_kl_steps(run, spec.baseline_steps[1], judged_to)
    means: dict[str, WindowMean] = {}
    if window is not None and run.is_done:
        for name in run.curves:
            is_kl = name == "mismatch_kl"
            means[name] = window_mean(run, name, window.steps, gone if is_kl else None)
    gone = gone[gone > (run.fork_step or 0)]
    curves = {name: curve.up_to(judged_to) for name, curve in run.history.items()}
    events = find_run_events(curves, trained, last_step, event_rules(spec), fork_step=run.fork_step)
    own_kl = (run.curve("mismatch_kl") or EMPTY_CURVE).up_to(judged_to)
    peak = _highest_mean(own_kl, spec.collapse_window)
    early = find_baseline_explosion(
        kl,
        trained,
        baseline_steps=spec.baseline_steps,
        factor=spec.explode_factor,
        hold=spec.explode_hold,
    )
    exploded = events.exploded
    if early is not None and exploded.state is EventState.NO:
        # An explosion in the baseline window lifts what later steps are measured by.
        exploded = Event(EventState.UNDECIDABLE, reason="it explodes in the baseline window")
    return RunSummary(
        run=run,
        means=means,
        exploded=_judged(exploded, run, asked_to),
        collapsed=_judged(events.collapsed, run, asked_to),
        peak_kl=peak[1] if peak else None,
        peak_kl_step=peak[0] if peak else None,
        kl_gone_from=int(gone[0]) if len(gone) else None,
        baseline_explosion_step=early,
        events=events if run.curves else None,
        late_collapse_step=_late_collapse(run, events.collapsed, spec, asked_to),
    )


def _late_collapse(
    run: Run, judged: Event, spec: AnalysisSpec, judged_to: int | None
) -> int | None:
    last_step = run.last_step or 0
    if judged_to is None or last_step <= judged_to or judged.state is EventState.YES:
        return None
    whole = find_collapse(
        run.history.get("solve_rate", EMPTY_CURVE),
        last_step,
        baseline_steps=spec.baseline_steps,
        window=spec.collapse_window,
        fraction=spec.collapse_fraction,
    )
    return whole.step


def summarize_arm(arm: str, runs: Sequence[RunSummary], alpha: float) -> ArmSummary:
    """Return means over the finished and event shares over the judged ones of `runs`, all of
    `arm`."""
    judged = _judged_runs(runs)
    done = [summary for summary in runs if summary.run.is_done]
    names = {name for summary in done for name in summary.means}
    means = {name: _arm_mean(metric_spec(name), done, alpha) for name in sorted(names)}
    return ArmSummary(
        arm=arm,
        runs=tuple(runs),
        means={name: mean for name, mean in means.items() if mean is not None},
        exploded=_event_share([summary.exploded for summary in judged], alpha),
        collapsed=_event_share([summary.collapsed for summary in judged], alpha),
    )


def on_scale(spec: MetricSpec, value: float) -> float | None:
    """Return `value` where differences of `spec` are taken (its log, for ratios), or None."""
    if spec.scale == "difference":
        return value
    return math.log(value) if value > 0 else None


def off_scale(spec: MetricSpec, value: float) -> float:
    """Return the inverse of `on_scale`; infinite where it is beyond floats."""
    if spec.scale == "difference":
        return value
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def cut_to_bounds(spec: MetricSpec, value: float) -> float:
    """Return `value` cut to what the metric can be; NaN stays NaN."""
    if math.isnan(value):
        return value
    low, high = spec.bounds
    value = value if low is None else max(low, value)
    return value if high is None else min(high, value)


def _arm_mean(spec: MetricSpec, done: list[RunSummary], alpha: float) -> MeanInterval | None:
    means = [summary.means[spec.name].mean for summary in done if spec.name in summary.means]
    scaled = [on_scale(spec, mean) for mean in means if mean is not None]
    values = [value for value in scaled if value is not None]
    if not values or len(values) < len(scaled):
        return None
    found = mean_interval(values, alpha)
    low, high = (
        None if end is None else cut_to_bounds(spec, off_scale(spec, end))
        for end in (found.low, found.high)
    )
    return MeanInterval(found.n, off_scale(spec, found.mean), low, high)


def _event_share(events: list[Event], alpha: float) -> EventShare:
    decided = [event for event in events if event.state is not EventState.UNDECIDABLE]
    happened = [event.step for event in decided if event.step is not None]
    censored = [event.last_step for event in decided if event.step is None]
    return EventShare(
        share=jeffreys(len(happened), len(decided), alpha) if decided else None,
        steps=tuple(sorted(happened)),
        censored_at=tuple(sorted(step for step in censored if step is not None)),
        num_undecidable=len(events) - len(decided),
    )


def _judged_runs(runs: Sequence[RunSummary]) -> list[RunSummary]:
    return [s for s in runs if s.run.is_done or s.run.state is RunState.STOPPED]


def _end_of(run: Run, judged_to: int | None) -> int | None:
    """Return the last step of `run` that counts; None for all."""
    rule_step = None if run.stop is None else run.stop.rule_step
    ends = [step for step in (judged_to, rule_step) if step is not None]
    return min(ends, default=None)


def _judged(event: Event, run: Run, judged_to: int | None) -> Event:
    """Return `event`, undecidable where `run` was stopped without it and before `judged_to`."""
    if run.state is not RunState.STOPPED or event.state is not EventState.NO:
        return event
    if judged_to is not None and event.last_step is not None and event.last_step >= judged_to:
        return event
    reason = f"stopped at step {run.last_step}, before the last step that is judged"
    return replace(event, state=EventState.UNDECIDABLE, reason=reason)


def _highest_mean(curve: Curve, window: int) -> tuple[int, float] | None:
    """Return the last step and the mean of the window with the highest mean; whole windows only."""
    if not len(curve):
        return None
    means = trailing_means(curve, window)
    means = means.within(int(curve.steps[0]) + window - 1, int(curve.steps[-1]))
    if not len(means):
        return None
    place = int(np.argmax(means.values))
    return int(means.steps[place]), float(means.values[place])
