"""Why no test may decide a comparison, in the order in which reasons count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.metrics import MetricSpec
from analysis.runs import RunState
from analysis.statistics import MeanTest
from analysis.summary import ArmSummary, RunSummary
from analysis.verdicts import Verdict
from analysis.windows import WindowMean

MIN_RUNS = 3
"""Runs per arm below which no arm is called better or worse."""

PENDING = frozenset({RunState.PLANNED, RunState.UNFINISHED, RunState.PREEMPTED})
"""States of runs that are still missing."""

LEFT_OUT: Mapping[RunState, str] = {
    RunState.FAILED: "failed",
    RunState.TIMEOUT: "hit their time limit",
    RunState.OUT_OF_MEMORY: "ran out of memory",
    RunState.CANCELLED: "were cancelled",
    RunState.SHORT: "ended before their last planned step",
    RunState.FOREIGN: "belong to another plan",
}
"""States of runs that won't come any more and enter nothing, with their words."""

NOT_LOGGED = "not logged"


@dataclass(frozen=True)
class Barrier:
    """A verdict that stands before any test, with its detail and the rule that set it."""

    verdict: Verdict
    detail: str
    rule: str


WindowMeans = Mapping[int, WindowMean]
"""Window mean of one metric by seed, of an arm's finished runs that log it."""


def of_logging(arm: ArmSummary, base: ArmSummary, name: str) -> Barrier | None:
    """A metric that no run of either arm logs."""
    if any(summary.run.curve(name) for summary in (*arm.runs, *base.runs)):
        return None
    return _undecided(NOT_LOGGED, "metric missing")


def of_runs(arm: ArmSummary, base: ArmSummary, max_left_out: float) -> Barrier | None:
    """Planned runs that are missing, or more than the declared share that failed."""
    for side in (arm, base):
        if num_pending(side):
            detail = f"{side.arm}: {len(side.done)} of {len(side.runs)} runs finished"
            return Barrier(Verdict.INCOMPLETE, detail, "planned runs missing")
    for side in (arm, base):
        states = [s.run.state for s in side.runs if s.run.state in LEFT_OUT]
        if len(states) > max_left_out * len(side.runs):
            words = LEFT_OUT[states[0]] if len(set(states)) == 1 else "failed or ended early"
            detail = f"{side.arm}: {len(states)} of {len(side.runs)} runs {words}"
            rule = f"more than {100 * max_left_out:g} % of planned runs left out"
            return Barrier(Verdict.INCOMPLETE, detail, rule)
    return None


def of_definitions(arm: ArmSummary, base: ArmSummary, name: str) -> Barrier | None:
    """Keys that mean different things, such as k1 in some runs and k3 in others."""
    runs = [summary.run for summary in (*arm.runs, *base.runs) if summary.run.curve(name)]
    if len({run.keys.definitions.get(name, "") for run in runs}) < 2:
        return None
    return _undecided("two definitions", "definitions differ")


def of_stopped_runs(arm: ArmSummary, base: ArmSummary) -> Barrier | None:
    """Runs that a rule stopped have events but no final means: the others would be survivors."""
    for side in (arm, base):
        number = len(side.judged) - len(side.done)
        if number:
            return _undecided(f"{count_of(number)} of {side.arm} stopped early", "stopped runs")
    return None


def of_late_collapses(arm: ArmSummary, base: ArmSummary) -> Barrier | None:
    """Runs that collapse after the last step that every run has: what is judged looks healthy."""
    for side in (arm, base):
        number = sum(summary.late_collapse_step is not None for summary in side.runs)
        if number:
            detail = f"{count_of(number)} of {side.arm} collapse after the last common step"
            return _undecided(detail, "later collapses")
    return None


def of_spread(test: MeanTest | None, values: Sequence[float], metric: MetricSpec) -> Barrier | None:
    """Seeds that make no difference at all, away from the metric's bounds: no test of seeds."""
    if test is None or test.standard_error != 0 or test.effect == 0:
        return None
    if all(value in metric.bounds for value in values):
        return None
    return _undecided("no spread between seeds", "no spread")


def of_values(
    metric: MetricSpec, sides: Mapping[str, tuple[ArmSummary, WindowMeans]]
) -> Barrier | None:
    """A metric that is missing or not finite in some runs would be judged by the survivors."""
    checks: Mapping[str, Callable[[RunSummary, WindowMean | None], bool]] = {
        NOT_LOGGED: lambda s, mean: s.run.curve(metric.name) is None,
        "not finite": lambda s, mean: mean is not None and mean.num_nonfinite > 0,
        "without a value": lambda s, mean: mean is None or mean.mean is None,
        "not above 0": lambda s, mean: metric.scale == "ratio" and not _is_above_0(mean),
    }
    for name, (side, means) in sides.items():
        for words, is_so in checks.items():
            number = sum(is_so(summary, means.get(summary.run.seed)) for summary in side.done)
            if number:
                where = "" if words == NOT_LOGGED else " in the final window"
                return _undecided(
                    f"{words}{where} in {count_of(number)} of {name}", "values missing"
                )
    return None


def _is_above_0(mean: WindowMean | None) -> bool:
    return mean is not None and (mean.mean or 0.0) > 0


def of_overflow(test: MeanTest | None) -> Barrier | None:
    """Differences that floats can't hold."""
    if test is None or test.is_finite:
        return None
    return _undecided("the differences are beyond the range of floats", "values missing")


def of_number(num_arm: int, num_baseline: int, noun: str) -> Barrier | None:
    """Fewer than `MIN_RUNS` runs or pairs (the `noun`) on a side."""
    number = min(num_arm, num_baseline)
    if number >= MIN_RUNS:
        return None
    words = {0: f"no {noun}", 1: "one seed", 2: "two seeds"}[number]
    return _undecided(words, f"fewer than {MIN_RUNS} seeds")


def num_pending(arm: ArmSummary) -> int:
    """Return how many planned runs of `arm` are still missing."""
    return sum(summary.run.state in PENDING for summary in arm.runs)


def left_out(arm: ArmSummary) -> tuple[str, ...]:
    """Return the ids of the runs of `arm` that enter nothing and won't come any more."""
    return tuple(s.run.run_id for s in arm.runs if s.run.state in LEFT_OUT)


def count_of(number: int) -> str:
    """Return `1 run`, `2 runs`."""
    return "1 run" if number == 1 else f"{number} runs"


def _undecided(detail: str, rule: str) -> Barrier:
    return Barrier(Verdict.NOT_DECIDABLE, detail, rule)
