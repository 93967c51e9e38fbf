"""What earlier runs tell a sweep that is to be planned: noise, collapses, and what a run costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.drafts import SPLIT_BY_EXPLOSION
from analysis.metrics import metric_spec
from analysis.noise import SeedNoise, paired_noise, seed_noise
from analysis.power import BaseShare, Design, Spread
from analysis.runs import Run, Sweep
from analysis.statistics import jeffreys
from analysis.summary import ArmSummary, RunSummary, summarize_arm, summarize_run
from analysis.windows import final_window, last_judged_step
from harness.errors import UsageError
from harness.records.model import AnalysisSpec


@dataclass(frozen=True)
class Earlier:
    """A sweep that has run, its events judged by its own rules."""

    sweep: Sweep
    arms: tuple[ArmSummary, ...]

    @property
    def label(self) -> str:
        return self.sweep.plan.sweep


@dataclass(frozen=True)
class Cost:
    """What one seed of every arm takes.

    Attributes:
        unit: `GPU-hours`, or `hours` of wall time where runs held no GPUs.
        source: where it comes from, for the reader.
    """

    per_seed: float
    unit: str
    source: str


def summarize_earlier(sweep: Sweep) -> Earlier:
    """Return `sweep` with the events of its runs; without replicates, whose pairs share less."""
    spec = sweep.plan.analysis
    window, judged_to = final_window(sweep.runs, spec.last_steps), last_judged_step(sweep.runs)
    arms = tuple(
        summarize_arm(
            arm.name,
            [
                summarize_run(run, window, spec, judged_to=judged_to)
                for run in sweep.of_arm(arm.name)
            ],
            spec.alpha,
        )
        for arm in sweep.plan.arms
        if arm.replicate_of is None
    )
    return Earlier(sweep, arms)


def read_spread(
    earlier: Sequence[Earlier], name: str, design: Design, spec: AnalysisSpec
) -> Spread:
    """Return the noise of the metric `name` that the declared test would meet.

    Finished runs count, with their means over the final window of `spec`; pooled within arms for
    Welch's test, over differences of equal seeds for the paired one. Runs that collapsed are left
    out, as are those that exploded in a metric that an explosion splits, unless all of their arm
    did: of two humps there is no standard deviation.

    Raises:
        UsageError: the runs don't tell it.
    """
    label = ", ".join(item.label for item in earlier)
    done = [(item, arm, s) for item in earlier for arm in item.arms for s in arm.done]
    logging = [s for _, _, s in done if s.run.curve(name) is not None]
    if not logging:
        what = f"logs `{name}`" if done else "has finished"
        raise UsageError(f"no run of {_quoted(earlier)} {what}", _state_it(name))
    if len({s.run.keys.definitions.get(name, "") for s in logging}) > 1:
        raise UsageError(
            f"the runs of {_quoted(earlier)} log `{name}` by two definitions", _state_it(name)
        )
    kept = [[_without_events(arm, name) for arm in item.arms] for item in earlier]
    found, how = _noise(earlier, kept, name, design, spec)
    words = _left_out([(arm, s) for _, arm, s in done], name)
    if found is None:
        raise UsageError(
            f"{_quoted(earlier)} tells no noise of `{name}`: no arm has two finished runs with a"
            f" value{words}",
            _state_it(name),
        )
    if found.sd == 0:
        raise UsageError(
            f"{_quoted(earlier)} tells no noise of `{name}`: equal runs came out the same",
            _state_it(name),
        )
    return Spread(found.sd, found.df, f"{how} of {label}{words}")


def read_share(earlier: Sequence[Earlier], baseline: str, alpha: float) -> BaseShare | None:
    """Return the share of runs that collapsed in the baseline of each earlier sweep: the arm called
    `baseline`, else its own. None where no run can be judged."""
    k = n = 0
    names = []
    for item in earlier:
        by_name = {arm.arm: arm for arm in item.arms}
        arm = by_name.get(baseline) or by_name[item.sweep.plan.baseline]
        share = arm.collapsed.share
        if share is not None:
            k, n = k + share.k, n + share.n
            names.append(f"{arm.arm} of {item.label}")
    if not n:
        return None
    found = jeffreys(k, n, alpha)
    return BaseShare(k / n, found.low, found.high, f"{k} of {n} runs of {', '.join(names)}")


def read_cost(earlier: Sequence[Earlier], num_arms: int) -> Cost | None:
    """Return the median of the finished runs, times arms: GPU-hours where runs held GPUs, else
    hours of wall time. None where nothing was recorded."""
    runs = [s.run for item in earlier for arm in item.arms for s in arm.done]
    label = ", ".join(item.label for item in earlier)
    gpu_hours = {id(run): run.time.gpu_hours for run in runs if run.time.gpu_hours > 0}
    walls = {id(run): run.time.wall_s / 3600 for run in runs if run.time.wall_s}
    hours = gpu_hours or walls
    if not hours:
        return None
    median = statistics.median(hours.values())
    steps = sorted({run.last_step or 0 for run in runs if id(run) in hours})
    shown = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    source = f"the median of {len(hours)} finished runs of {label}, which made {shown} steps"
    if not gpu_hours:
        source += "; they held no GPUs, so these are hours of wall time, one run after another"
    return Cost(median * num_arms, "GPU-hours" if gpu_hours else "hours", source)


def _noise(
    earlier: Sequence[Earlier],
    kept: Sequence[Sequence[Sequence[Run]]],
    name: str,
    design: Design,
    spec: AnalysisSpec,
) -> tuple[SeedNoise | None, str]:
    """Return the noise, and what it is that of."""
    if design.pairing == "seed":
        paired = [
            paired_noise(arms, name, spec)
            for item, arms in zip(earlier, kept, strict=True)
            if item.sweep.plan.pairing == "seed"
        ]
        pooled = _pooled([noise for noise in paired if noise is not None])
        if pooled is not None:
            return pooled, "differences of equal seeds"
    within = seed_noise([runs for arms in kept for runs in arms], name, spec)
    if design.pairing != "seed" or within is None:
        return within, "seeds of an arm"
    return (
        SeedNoise(within.sd * math.sqrt(2), within.df),
        "differences, taken as those of unrelated seeds of an arm,",
    )


def _pooled(parts: Sequence[SeedNoise]) -> SeedNoise | None:
    df = sum(part.df for part in parts)
    if not df:
        return None
    return SeedNoise(math.hypot(*(p.sd * math.sqrt(p.df / df) for p in parts)), df)


def _without_events(arm: ArmSummary, name: str) -> list[Run]:
    return [s.run for s in arm.done if not _event_of(arm, s, name)]


def _event_of(arm: ArmSummary, summary: RunSummary, name: str) -> str:
    """Return which event sets the run apart from the others of its arm in the metric, if any."""
    if summary.collapsed.step is not None or summary.late_collapse_step is not None:
        return "collapsed"
    if name not in SPLIT_BY_EXPLOSION or not _exploded(summary):
        return ""
    return "" if all(_exploded(other) for other in arm.done) else "exploded"


def _exploded(summary: RunSummary) -> bool:
    return summary.exploded.step is not None or summary.baseline_explosion_step is not None


def _left_out(done: Sequence[tuple[ArmSummary, RunSummary]], name: str) -> str:
    events = [_event_of(arm, summary, name) for arm, summary in done]
    counts = [f"{events.count(e)} that {e}" for e in ("collapsed", "exploded") if e in events]
    return f" without {' and '.join(counts)}" if counts else ""


def _quoted(earlier: Sequence[Earlier]) -> str:
    return ", ".join(f"`{item.label}`" for item in earlier)


def _state_it(name: str) -> str:
    unit = "of its natural logs" if metric_spec(name).scale == "ratio" else "between seeds"
    return f"state the standard deviation {unit} with --sd {name}=X"
