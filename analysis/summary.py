"""One number per run and metric, one interval per arm: what comparisons and tables are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curve import EMPTY_CURVE, Curve, IntArray, mean_of, trailing_means
from analysis.events import (
    Event,
    EventState,
    find_baseline_explosion,
    find_collapse,
    find_explosion,
    gone_steps,
)
from analysis.metrics import MetricSpec, metric_spec
from analysis.runs import Run
from analysis.statistics import MeanInterval, Share, clopper_pearson, mean_interval
from harness.records.model import AnalysisSpec

_LOGGED_BY_TRAINER = ("learning_rate", "grad_norm", "loss", "entropy", "is_masked")


@dataclass(frozen=True)
class FinalWindow:
    """The steps that final means are taken over.

    Attributes:
        steps: the last steps that every finished run logged, increasing.
        common_first, common_last, num_common: all steps that every finished run logged.
    """

    steps: IntArray
    common_first: int
    common_last: int
    num_common: int

    @property
    def first(self) -> int:
        return int(self.steps[0])

    @property
    def last(self) -> int:
        return int(self.steps[-1])


@dataclass(frozen=True)
class WindowMean:
    """Mean of one metric of one run over the final window.

    Attributes:
        mean: over the finite values; None where there are none.
        num_values, num_nonfinite: steps of the window with a finite value, and with one that is
            not finite or is gone while the trainer went on.
    """

    mean: float | None
    num_values: int
    num_nonfinite: int


@dataclass(frozen=True)
class RunSummary:
    """What one run comes to, up to the last step that is judged.

    Attributes:
        means: by metric; empty unless the run is done.
        peak_kl, peak_kl_step: highest mean mismatch KL over `collapse_window` steps, and where
            that window ends. The final KL says little after a collapse: advantages are 0, weights
            freeze and the inference engine catches up.
        kl_gone_from: first step at which mismatch KL was gone while the trainer went on.
        baseline_explosion_step: where mismatch KL explodes within the baseline window, see
            `find_baseline_explosion`.
    """

    run: Run
    means: Mapping[str, WindowMean]
    exploded: Event
    collapsed: Event
    peak_kl: float | None
    peak_kl_step: int | None
    kl_gone_from: int | None
    baseline_explosion_step: int | None = None


@dataclass(frozen=True)
class EventShare:
    """How many finished runs of an arm an event happened in.

    Attributes:
        share: None where no finished run is decidable.
        steps: where it happened, increasing; `censored_at`: last steps of the runs without it.
    """

    share: Share | None
    steps: tuple[int, ...]
    censored_at: tuple[int, ...]
    num_undecidable: int


@dataclass(frozen=True)
class ArmSummary:
    """What one arm comes to, over its finished runs.

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


def final_window(runs: Sequence[Run], last_steps: int) -> FinalWindow | None:
    """Return the last `last_steps` steps that every finished run logged; None without any."""
    common = _common_steps(runs)
    if not len(common):
        return None
    return FinalWindow(common[-last_steps:], int(common[0]), int(common[-1]), len(common))


def last_judged_step(runs: Sequence[Run]) -> int | None:
    """Return the last step that every finished run logged; None without finished runs.

    Events and peaks are judged up to there in every run, as a run that went on for longer has had
    more chances. Where finished runs share no step it is the step at which the first of them ended.
    """
    common = _common_steps(runs)
    if len(common):
        return int(common[-1])
    ends = [int(steps[-1]) for steps in _steps_of_finished(runs)]
    return min(ends, default=None)


def summarize_run(
    run: Run, window: FinalWindow | None, spec: AnalysisSpec, *, judged_to: int | None = None
) -> RunSummary:
    """Return window means, events and the highest windowed mismatch KL of `run`.

    Args:
        judged_to: steps after it don't count; None for all steps of the run.
    """
    kl = (run.curve("mismatch_kl") or EMPTY_CURVE).up_to(judged_to)
    last_step = run.last_step or 0
    going_on = _going_on(run)
    if judged_to is not None:
        last_step = min(last_step, judged_to)
        going_on = going_on[going_on <= judged_to]
    gone = gone_steps(kl, going_on, last_reference_step=spec.baseline_steps[1])
    means: dict[str, WindowMean] = {}
    if window is not None and run.is_done:
        for name in run.curves:
            means[name] = _window_mean(run, name, window.steps)
        if "mismatch_kl" in means:
            found = means["mismatch_kl"]
            num_gone = int(np.isin(gone, window.steps).sum())
            means["mismatch_kl"] = WindowMean(
                found.mean, found.num_values, found.num_nonfinite + num_gone
            )
    peak = _highest_mean(kl, spec.collapse_window)
    return RunSummary(
        run=run,
        means=means,
        exploded=find_explosion(
            kl,
            going_on,
            baseline_steps=spec.baseline_steps,
            factor=spec.explode_factor,
            hold=spec.explode_hold,
        ),
        collapsed=find_collapse(
            (run.curve("solve_rate") or EMPTY_CURVE).up_to(judged_to),
            last_step,
            baseline_steps=spec.baseline_steps,
            window=spec.collapse_window,
            fraction=spec.collapse_fraction,
        ),
        peak_kl=peak[1] if peak else None,
        peak_kl_step=peak[0] if peak else None,
        kl_gone_from=int(gone[0]) if len(gone) else None,
        baseline_explosion_step=find_baseline_explosion(
            kl,
            going_on,
            baseline_steps=spec.baseline_steps,
            factor=spec.explode_factor,
            hold=spec.explode_hold,
        ),
    )


def summarize_arm(arm: str, runs: Sequence[RunSummary], alpha: float) -> ArmSummary:
    """Return means and event shares over the finished ones of `runs`, all of `arm`."""
    done = [summary for summary in runs if summary.run.is_done]
    names = {name for summary in done for name in summary.means}
    means = {name: _arm_mean(metric_spec(name), done, alpha) for name in sorted(names)}
    return ArmSummary(
        arm=arm,
        runs=tuple(runs),
        means={name: mean for name, mean in means.items() if mean is not None},
        exploded=_event_share([summary.exploded for summary in done], alpha),
        collapsed=_event_share([summary.collapsed for summary in done], alpha),
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
        share=clopper_pearson(len(happened), len(decided), alpha) if decided else None,
        steps=tuple(sorted(happened)),
        censored_at=tuple(sorted(step for step in censored if step is not None)),
        num_undecidable=len(events) - len(decided),
    )


def _window_mean(run: Run, name: str, steps: IntArray) -> WindowMean:
    inside = run.curves[name].at(steps)
    finite = inside.finite().values
    mean = mean_of(finite) if len(finite) else None
    return WindowMean(mean, len(finite), len(inside) - len(finite))


def _steps_of_finished(runs: Sequence[Run]) -> list[IntArray]:
    """Return the steps that each finished run logged anything at, for those that logged any."""
    return [
        np.unique(np.concatenate([curve.steps for curve in run.curves.values()]))
        for run in runs
        if run.is_done and run.last_step is not None
    ]


def _common_steps(runs: Sequence[Run]) -> IntArray:
    logged = _steps_of_finished(runs)
    common = logged[0] if logged else EMPTY_CURVE.steps
    for steps in logged[1:]:
        common = np.intersect1d(common, steps, assume_unique=True)
    return common


def _going_on(run: Run) -> IntArray:
    """Steps at which the trainer trained and logged something.

    Steps of the orchestrator alone don't count: it runs ahead of the trainer. Nor do steps without
    a token to train on (every group filtered out): a mean over no tokens is no divergence.
    """
    names = [name for name in _LOGGED_BY_TRAINER if name in run.curves] or list(run.curves)
    if not names:
        return EMPTY_CURVE.steps
    steps: IntArray = np.unique(np.concatenate([run.curves[name].steps for name in names]))
    tokens = run.curve("tokens")
    if tokens is not None:
        idle = tokens.steps[1:][np.diff(tokens.values) == 0]
        steps = np.setdiff1d(steps, idle, assume_unique=True)
    return steps


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
