"""A sweep with everything that is computed from it, before anything is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.comparison import compare_arms
from analysis.cost import ArmCost, arm_cost, cost_target
from analysis.differ import Circumstances, find_differences
from analysis.events import SurvivalCurve
from analysis.health import Parting, find_partings, healthy_share
from analysis.load import load_sweep
from analysis.noise import SeedNoise, seed_noise
from analysis.replicates import compare_replicates, hold_against_replicates, replicates_of
from analysis.resampling import WithinRun, within_run
from analysis.runs import Run, Sweep
from analysis.summary import ArmSummary, RunSummary, summarize_arm, summarize_run
from analysis.verdicts import Comparison
from analysis.windows import FinalWindow, final_window, last_judged_step
from harness.records.model import AnalysisSpec


@dataclass(frozen=True)
class Results:
    """A sweep with everything that was computed from it.

    Attributes:
        judged_to: events and peaks count up to this step; None where no run has finished.
        survivals: by arm, share of its runs whose solve rate hasn't collapsed, by step.
        comparisons: of every arm with the baseline, then of every replicate with its arm.
        partings: where each arm parts from the baseline; replicates don't stand there.
        within: by (arm, seed) and primary metric, of finished runs that are their arm's only one:
            the mean over the final window with the noise of its steps.
        cost_target: the solve rate that `costs` tell the way to; None where there is none.
    """

    sweep: Sweep
    window: FinalWindow | None
    judged_to: int | None
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    circumstances: Circumstances
    cost_target: float | None = None
    costs: tuple[ArmCost, ...] = ()
    survivals: Mapping[str, SurvivalCurve] = field(default_factory=dict)
    partings: tuple[Parting, ...] = ()
    within: Mapping[tuple[str, int], Mapping[str, WithinRun]] = field(default_factory=dict)

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


def noise_of(sweep_dirs: Sequence[Path], spec: AnalysisSpec) -> dict[str, SeedNoise]:
    """Return the seed noise of the primary metrics over the finished runs of other sweeps.

    Raises:
        UsageError: a folder holds no sweep.
    """
    sweeps = [load_sweep(folder) for folder in sweep_dirs]
    arms = [sweep.of_arm(arm.name) for sweep in sweeps for arm in sweep.plan.arms]
    label = ", ".join(sweep.plan.sweep for sweep in sweeps)
    found = {name: seed_noise(arms, name, spec, label=label) for name in spec.primary}
    return {name: noise for name, noise in found.items() if noise is not None}


def analyze(sweep: Sweep, *, noise: Mapping[str, SeedNoise] | None = None) -> Results:
    """Return window means, events, comparisons and differences of `sweep`.

    Args:
        noise: seed noise of other sweeps by metric, for arms with a single run.
    """
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
    replicates = replicates_of(plan.arms)
    judged = [arm for arm in arms if arm.arm not in replicates]
    comparisons = compare_arms(judged, plan.baseline, pairing=plan.pairing, spec=spec, noise=noise)
    beside = compare_replicates(arms, replicates, pairing=plan.pairing, spec=spec)
    comparisons = hold_against_replicates(
        comparisons,
        beside,
        arms,
        plan.baseline,
        pairing=plan.pairing,
        spec=spec,
        with_noise=not noise,
    )
    target = cost_target(arms)
    return Results(
        sweep,
        window,
        judged_to,
        arms,
        (*comparisons, *beside),
        find_differences(sweep),
        target,
        tuple(arm_cost(arm, target, spec) for arm in arms),
        {arm.arm: share for arm in arms if (share := healthy_share(arm, spec.alpha)) is not None},
        find_partings(judged, plan.baseline, spec),
        _single_runs(arms, window, spec),
    )


def _single_runs(
    arms: Sequence[ArmSummary], window: FinalWindow | None, spec: AnalysisSpec
) -> dict[tuple[str, int], dict[str, WithinRun]]:
    if window is None:
        return {}
    found: dict[tuple[str, int], dict[str, WithinRun]] = {}
    for arm in arms:
        for summary in arm.done if len(arm.runs) == 1 else ():
            run = summary.run
            for name in spec.primary:
                curve = run.curve(name)
                noise = None if curve is None else within_run(curve, window.steps, spec.alpha)
                if noise is not None:
                    found.setdefault((run.arm, run.seed), {})[name] = noise
    return found
