"""A sweep with everything that is computed from it, before anything is rendered."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.comparison import Comparison, compare_arms
from analysis.differ import Circumstances, find_differences
from analysis.runs import Run, Sweep
from analysis.summary import (
    ArmSummary,
    FinalWindow,
    RunSummary,
    final_window,
    last_judged_step,
    summarize_arm,
    summarize_run,
)


@dataclass(frozen=True)
class Results:
    """A sweep with everything that was computed from it.

    Attributes:
        judged_to: events and peaks count up to this step; None where no run has finished.
    """

    sweep: Sweep
    window: FinalWindow | None
    judged_to: int | None
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    circumstances: Circumstances

    @property
    def runs(self) -> list[RunSummary]:
        return [summary for arm in self.arms for summary in arm.runs]

    @property
    def runs_beyond(self) -> list[Run]:
        """The runs with steps after the last one that is judged."""
        end = self.judged_to
        if end is None:
            return []
        return [run for run in self.sweep.runs if run.last_step is not None and run.last_step > end]


def analyze(sweep: Sweep) -> Results:
    """Return window means, events, comparisons and differences of `sweep`."""
    plan, spec = sweep.plan, sweep.plan.analysis
    window = final_window(sweep.runs, spec.last_steps)
    judged_to = last_judged_step(sweep.runs)
    arms = tuple(
        summarize_arm(
            arm.name,
            [
                summarize_run(run, window, spec, judged_to=judged_to)
                for run in sweep.of_arm(arm.name)
            ],
            spec.alpha,
        )
        for arm in plan.arms
    )
    comparisons = compare_arms(arms, plan.baseline, pairing=plan.pairing, spec=spec)
    return Results(sweep, window, judged_to, arms, tuple(comparisons), find_differences(sweep))
