"""A sweep with everything that is computed from it, before anything is rendered."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.comparison import Comparison, compare_arms
from analysis.differ import Circumstances, find_differences
from analysis.runs import Sweep
from analysis.summary import (
    ArmSummary,
    FinalWindow,
    RunSummary,
    final_window,
    summarize_arm,
    summarize_run,
)


@dataclass(frozen=True)
class Results:
    """A sweep with everything that was computed from it."""

    sweep: Sweep
    window: FinalWindow | None
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    circumstances: Circumstances

    @property
    def runs(self) -> list[RunSummary]:
        return [summary for arm in self.arms for summary in arm.runs]


def analyze(sweep: Sweep) -> Results:
    """Return window means, events, comparisons and differences of `sweep`."""
    plan, spec = sweep.plan, sweep.plan.analysis
    window = final_window(sweep.runs, spec.last_steps)
    arms = tuple(
        summarize_arm(
            arm.name,
            [summarize_run(run, window, spec) for run in sweep.of_arm(arm.name)],
            spec.alpha,
        )
        for arm in plan.arms
    )
    comparisons = compare_arms(arms, plan.baseline, pairing=plan.pairing, spec=spec)
    return Results(sweep, window, arms, tuple(comparisons), find_differences(sweep))
