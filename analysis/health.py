"""What arms come to over time: how long runs stay healthy, and where arms part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.curve import Curve
from analysis.events import (
    Difference,
    Event,
    EventState,
    SurvivalCurve,
    first_difference,
    survival,
    with_gone,
)
from analysis.metrics import metric_spec
from analysis.summary import ArmSummary, RunSummary
from analysis.windows import going_on
from harness.records.model import AnalysisSpec

PARTING_METRICS = ("mismatch_kl", "solve_rate")
"""Metrics in which the first difference between an arm and the baseline is looked for."""


@dataclass(frozen=True)
class Parting:
    """Where an arm parts from the baseline in one metric."""

    arm: str
    metric: str
    found: Difference


def healthy_share(arm: ArmSummary, alpha: float) -> SurvivalCurve | None:
    """Return the share of the arm's judged runs whose solve rate hasn't collapsed, by step.

    Runs in which a collapse is undecidable are left out; None where there are no others. A run
    counts as healthy until the collapse that it doesn't recover from; one that was stopped without
    a collapse is censored there.
    """
    events: list[Event] = [
        event
        for summary in arm.judged
        if (event := _up_to_stop(summary)).state is not EventState.UNDECIDABLE
    ]
    known = [event for event in events if event.last_step is not None]
    if not known:
        return None
    return survival(
        [event.step for event in known],
        [event.last_step or 0 for event in known],
        alpha=alpha,
    )


def _up_to_stop(summary: RunSummary) -> Event:
    """Return the collapse of a run, of a stopped one as it stood when it was stopped."""
    if summary.run.stop is None or summary.events is None:
        return summary.collapsed
    return summary.events.collapsed


def find_partings(
    arms: Sequence[ArmSummary], baseline: str, spec: AnalysisSpec
) -> tuple[Parting, ...]:
    """Return where each arm parts from the baseline, over the judged runs of both.

    Stopped runs count, as those that are left would be the survivors; only steps that all of them
    reached are compared.
    """
    by_name = {arm.arm: arm for arm in arms}
    base = by_name.get(baseline)
    if base is None:
        return ()
    found = []
    for arm in arms:
        if arm.arm == baseline:
            continue
        for name in PARTING_METRICS:
            ours, theirs = _curves(arm, name, spec), _curves(base, name, spec)
            if ours and theirs:
                difference = first_difference(
                    ours,
                    theirs,
                    scale=metric_spec(name).scale,
                    baseline_steps=spec.baseline_steps,
                    false_alarm=spec.onset_false_alarm,
                )
                found.append(Parting(arm.arm, name, difference))
    return tuple(found)


def _curves(arm: ArmSummary, name: str, spec: AnalysisSpec) -> list[Curve]:
    runs = [summary.run for summary in arm.judged]
    curves = [(run, run.curve(name)) for run in runs]
    return [
        with_gone(curve, going_on(run), last_reference_step=spec.baseline_steps[1])
        if name == "mismatch_kl"
        else curve
        for run, curve in curves
        if curve is not None
    ]
