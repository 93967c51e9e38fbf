"""What stop rules would have done to a sweep whose runs have ended: saved, lost, changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.curve import Curve
from analysis.events import Event, EventState
from analysis.results import Results, analyze
from analysis.runs import Attempt, Run, RunState, Sweep
from analysis.stopping import Firing, find_stop, why_blind
from analysis.summary import RunSummary
from harness.records.model import AnalysisSpec, Exit, StopRule

EVENTS = ("collapsed", "exploded")


@dataclass(frozen=True)
class CheckedRun:
    """What rules would have done to one finished run.

    Attributes:
        firings: by rule, as text; None where it would not have fired.
        stop: what would have stopped it first.
        saved_hours, saved_gpu_hours: of work, and of GPUs, after the stop; None where nothing
            tells.
        recovered: the solve rate had collapsed at the stop and had not at the end.
        unseen: events that the run had in the end and not yet at the stop.
        blind: rule, as text -> why it could not have fired.
    """

    arm: str
    seed: int
    last_step: int
    firings: dict[str, int | None]
    stop: Firing | None
    saved_hours: float | None
    saved_gpu_hours: float | None
    recovered: bool
    unseen: tuple[str, ...]
    blind: dict[str, str]


@dataclass(frozen=True)
class ChangedVerdict:
    """A comparison that would have ended in another word."""

    arm: str
    name: str
    whole: str
    stopped: str


@dataclass(frozen=True)
class StopCheck:
    """What rules would have done to a sweep.

    Attributes:
        runs: the finished ones, in the order of the plan.
        num_left_out: runs that haven't finished, so that nobody knows what a stop would have cost.
        hours, gpu_hours: that the finished runs took.
        num_compared: comparisons of the report; `changed` those with another verdict.
    """

    rules: tuple[StopRule, ...]
    runs: tuple[CheckedRun, ...]
    num_left_out: int
    hours: float
    gpu_hours: float
    num_compared: int
    changed: tuple[ChangedVerdict, ...]

    @property
    def saved_hours(self) -> float:
        return sum(run.saved_hours or 0.0 for run in self.runs)

    @property
    def saved_gpu_hours(self) -> float:
        return sum(run.saved_gpu_hours or 0.0 for run in self.runs)


def check_stops(sweep: Sweep, rules: Sequence[StopRule]) -> StopCheck:
    """Return what `rules` would have done to the finished runs of `sweep`.

    The report is computed twice, from the runs as they are and with those cut off at their stop
    that a rule would have stopped.
    """
    spec = sweep.plan.analysis
    firings = {run.run_id: _find(run, rules, spec) for run in sweep.runs if run.is_done}
    stopped = replace(
        sweep,
        runs=tuple(
            run if (firing := firings.get(run.run_id)) is None else cut_off(run, firing)
            for run in sweep.runs
        ),
    )
    whole, cut = analyze(sweep), analyze(stopped)
    at_end = {summary.run.run_id: summary for summary in whole.runs}
    at_stop = {summary.run.run_id: summary for summary in cut.runs}
    runs = tuple(
        _check(run, rules, spec, firings[run.run_id], at_end[run.run_id], at_stop[run.run_id])
        for run in sweep.runs
        if run.run_id in firings
    )
    done = [run for run in sweep.runs if run.is_done]
    return StopCheck(
        rules=tuple(rules),
        runs=runs,
        num_left_out=len(sweep.runs) - len(done),
        hours=sum(_hours(run) or 0.0 for run in done),
        gpu_hours=sum(run.time.gpu_hours for run in done),
        num_compared=len(whole.comparisons),
        changed=_changes(whole, cut),
    )


def cut_off(run: Run, firing: Firing) -> Run:
    """Return `run` as it would be had `firing` stopped it at its step."""
    curves = {name: curve.up_to(firing.step) for name, curve in run.curves.items()}
    share = 1.0 - (_share_after(run, firing.step) or 0.0)
    time = run.time
    return replace(
        run,
        state=RunState.STOPPED,
        curves={name: curve for name, curve in curves.items() if len(curve)},
        clock=run.clock.up_to(firing.step),
        attempts=_with_stop(run.attempts, firing),
        time=replace(
            time,
            wall_s=None if time.wall_s is None else share * time.wall_s,
            gpu_hours=share * time.gpu_hours,
        ),
    )


def _with_stop(attempts: tuple[Attempt, ...], firing: Firing) -> tuple[Attempt, ...]:
    newest = attempts[-1]
    assert newest.exit is not None  # of a finished run
    ended: Exit = replace(
        newest.exit,
        reason=RunState.STOPPED.value,
        last_step=firing.step,
        rule=firing.rule.text,
        rule_step=firing.step,
    )
    return (*attempts[:-1], replace(newest, exit=ended))


def _find(run: Run, rules: Sequence[StopRule], spec: AnalysisSpec) -> Firing | None:
    return find_stop(run.history, rules, spec, run.planned.max_steps, fork_step=run.fork_step or 0)


def _check(
    run: Run,
    rules: Sequence[StopRule],
    spec: AnalysisSpec,
    stop: Firing | None,
    at_end: RunSummary,
    at_stop: RunSummary,
) -> CheckedRun:
    steps: dict[str, int | None] = {}
    for rule in rules:
        found = _find(run, [rule], spec)
        steps[rule.text] = None if found is None else found.step
    blind = {rule.text: why_blind(run.history, rule, spec) for rule in rules}
    share = None if stop is None else _share_after(run, stop.step)
    hours = _hours(run)
    has_gpus = run.time.gpu_hours > 0
    return CheckedRun(
        arm=run.arm,
        seed=run.seed,
        last_step=run.last_step or 0,
        firings=steps,
        stop=stop,
        saved_hours=None if share is None or hours is None else share * hours,
        saved_gpu_hours=share * run.time.gpu_hours if share is not None and has_gpus else None,
        recovered=_happened(at_stop.collapsed) and not _happened(at_end.collapsed),
        unseen=tuple(
            name
            for name in EVENTS
            if _happened(getattr(at_end, name)) and not _happened(getattr(at_stop, name))
        ),
        blind={rule: reason for rule, reason in blind.items() if reason},
    )


def _happened(event: Event) -> bool:
    return event.state is EventState.YES


def _hours(run: Run) -> float | None:
    return None if run.time.wall_s is None else run.time.wall_s / 3600


def _share_after(run: Run, step: int) -> float | None:
    """Return the share of a run's work that came after `step`: by the times of its rows, or by its
    steps where rows have no times."""
    clock = run.clock
    if len(clock) > 1 and clock.values[-1] > 0:
        return 1.0 - _at(clock, step) / float(clock.values[-1])
    last, first = run.last_step, run.first_step
    if last is None or first is None or last <= first:
        return None
    return max(0.0, (last - step) / (last - first + 1))


def _at(clock: Curve, step: int) -> float:
    place = int(np.searchsorted(clock.steps, step, side="right")) - 1
    return float(clock.values[place]) if place >= 0 else 0.0


def _changes(whole: Results, cut: Results) -> tuple[ChangedVerdict, ...]:
    after = {(item.arm, item.name): item for item in cut.comparisons}
    found = []
    for item in whole.comparisons:
        other = after[item.arm, item.name]
        if other.verdict is not item.verdict:
            found.append(ChangedVerdict(item.arm, item.name, item.words, other.words))
    return tuple(found)
