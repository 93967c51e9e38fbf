"""From the contract on disk to a `Sweep`: records, metrics files, the long table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.curve import EMPTY_CURVE, Curve, typical_spacing
from analysis.logged import Logged, read_logged
from analysis.metrics import KeyResolution, is_metric_key
from analysis.parents import Parent, read_parent
from analysis.runs import Attempt, Notice, Run, RunState, RunTime, Sweep
from analysis.series import RunSeries
from analysis.sources import MetricsFile
from analysis.sources.planned import PlannedFiles, read_planned
from analysis.table import build_table, clock, curves, superseded_steps
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json_if_there
from harness.records.layout import AttemptPaths, RunPaths, SweepPaths
from harness.records.model import (
    Claim,
    Exit,
    Heartbeat,
    PlannedRun,
    PlanRecord,
    RunRecord,
    read_record,
    read_record_if_there,
)
from harness.records.usage import AttemptRecords, run_usage


@dataclass(frozen=True)
class _Records:
    """What a run's folder holds beside its metrics."""

    planned: PlannedRun
    record: RunRecord | None
    config: dict[str, Any] | None
    attempts: tuple[Attempt, ...]
    foreign: str = ""
    parent: Parent | None = None


def load_sweep(sweep_dir: Path) -> Sweep:
    """Return the plan, the runs and the long table of the sweep in `sweep_dir`.

    What single runs lack or hold in excess becomes a notice; the others are read all the same. A
    folder whose run.json names another run than the plan's counts as foreign, and is not read.

    Raises:
        UsageError: the folder holds no sweep.
        HarnessError: plan.json can't be read.
    """
    paths = SweepPaths(sweep_dir)
    if not paths.plan.is_file():
        raise UsageError(
            f"`{sweep_dir}` is no sweep: it has no `{paths.plan.name}`",
            "name the folder of a sweep that was planned",
        )
    plan = read_record(PlanRecord, paths.plan)
    notices: list[Notice] = []
    records: list[_Records] = []
    series: list[RunSeries] = []
    logged: dict[str, Logged] = {}
    parents = _Parents(paths)
    order = {arm.name: place for place, arm in enumerate(plan.arms)}
    for planned in sorted(plan.runs, key=lambda run: (order.get(run.arm, -1), run.seed)):
        found = _read_records(paths.run(planned.arm, planned.seed), planned, notices)
        found = replace(found, parent=parents.read(found.record))
        records.append(found)
        if found.record is None:
            continue
        read = _read_files(paths, found.record, planned)
        logged[planned.run_id] = read_logged(
            planned.arm,
            planned.seed,
            read.files,
            attempt_groups=read.attempt_groups,
            metrics_keys=found.record.metrics_keys,
            framework=read.framework,
        )
        notices += [
            Notice("unreadable_metrics", f"{planned.run_id}: {text}") for text in read.problems
        ]
        series.append(logged[planned.run_id].series)
    table = build_table(series)
    by_run = curves_by_run(table)
    num_superseded = superseded_steps(table)
    runs = []
    for found in records:
        key = (found.planned.arm, found.planned.seed)
        run = _make_run(
            found,
            logged.get(found.planned.run_id),
            by_run.get(key, {}),
            num_superseded.get(key, 0),
            frozenset(rule.text for rule in plan.stop_when),
        )
        runs.append(run)
        notices.extend(run_notices(run))
    return Sweep(paths, plan, tuple(runs), table, tuple(notices))


class _Parents:
    """What the runs of a sweep start from; each is read once."""

    def __init__(self, sweep: SweepPaths) -> None:
        self._sweep = sweep
        self._found: dict[tuple[str, int], Parent] = {}

    def read(self, record: RunRecord | None) -> Parent | None:
        start = None if record is None else record.start_from
        if start is None:
            return None
        key = (start.parent_dir or start.checkpoint, start.step)
        if key not in self._found:
            self._found[key] = read_parent(self._sweep.root, start)
        return self._found[key]


def _read_records(paths: RunPaths, planned: PlannedRun, notices: list[Notice]) -> _Records:
    record: RunRecord | None = None
    config: dict[str, Any] | None = None
    attempts: list[Attempt] = []
    try:
        record = read_record_if_there(RunRecord, paths.record)
        config = read_json_if_there(paths.config)
    except HarnessError as error:
        notices.append(Notice("unreadable_record", _relative(error.message, paths)))
    foreign = _other_run(record, planned)
    if foreign:
        return _Records(planned, None, None, (), foreign)
    for attempt in paths.attempts():
        try:
            attempts.append(_read_attempt(attempt))
        except HarnessError as error:
            notices.append(Notice("unreadable_record", _relative(error.message, paths)))
    return _Records(planned, record, config, tuple(attempts))


def _other_run(record: RunRecord | None, planned: PlannedRun) -> str:
    """Say which other run than the planned one a folder holds; empty where it is that one."""
    if record is None:
        return ""
    if record.arm != planned.arm:
        return f"run.json says arm `{record.arm}`"
    if record.seed != planned.seed:
        return f"run.json says seed {record.seed}"
    if record.identity != planned.identity:
        return "run.json says another config than the plan's"
    return ""


def _read_attempt(paths: AttemptPaths) -> Attempt:
    return Attempt(
        paths.number,
        read_record(Claim, paths.claim),
        read_record_if_there(Heartbeat, paths.heartbeat),
        read_record_if_there(Exit, paths.exit),
    )


def _read_files(paths: SweepPaths, record: RunRecord, planned: PlannedRun) -> PlannedFiles:
    mapped = frozenset(record.metrics_keys.values())
    root = paths.run(planned.arm, planned.seed).root
    read = read_planned(
        root / record.metrics,
        record.metrics_format,
        wanted=lambda key: key in mapped or is_metric_key(key),
        step_key=record.metrics_keys.get("step", "step"),
    )
    return replace(read, files=tuple(_shown_in_sweep(f, root, planned) for f in read.files))


def _shown_in_sweep(file: MetricsFile, root: Path, planned: PlannedRun) -> MetricsFile:
    """Name the file relative to the sweep, so that a report doesn't depend on where that lies."""
    relative = os.path.relpath(file.provenance.path, root)
    shown = Path(f"runs/{planned.run_id}") / relative
    return replace(file, provenance=replace(file.provenance, path=shown.as_posix()))


def _make_run(
    found: _Records,
    logged: Logged | None,
    run_curves: dict[str, Curve],
    num_superseded: int,
    rules: frozenset[str],
) -> Run:
    steps = logged_steps(run_curves)
    return Run(
        planned=found.planned,
        state=_state(found, steps, rules),
        record=found.record,
        config=found.config,
        attempts=found.attempts,
        files=logged.files if logged else (),
        keys=logged.keys if logged else KeyResolution(),
        available_keys=logged.available if logged else frozenset(),
        curves=run_curves,
        clock=clock(logged.series) if logged else EMPTY_CURVE,
        num_superseded=num_superseded,
        time=_time(found.attempts, len(steps)),
        foreign=found.foreign,
        parent=found.parent,
    )


def _state(found: _Records, steps: list[int], rules: frozenset[str]) -> RunState:
    if found.foreign:
        return RunState.FOREIGN
    if not found.attempts:
        return RunState.PLANNED
    newest = found.attempts[-1].exit
    if newest is None:
        return RunState.UNFINISHED
    if newest.reason == RunState.STOPPED and newest.rule and newest.rule not in rules:
        return RunState.UNFINISHED  # the sweep wants it to go on
    if newest.reason != "done":
        known = {state.value: state for state in RunState}
        return known.get(newest.reason, RunState.UNFINISHED)
    if newest.max_steps < found.planned.max_steps:
        return RunState.UNFINISHED
    # Steps may count from 0 and may be logged every few steps.
    spacing = typical_spacing(np.array(steps, dtype=np.int64))
    if steps and steps[-1] + spacing < found.planned.max_steps:
        return RunState.SHORT
    return RunState.DONE


def _time(attempts: tuple[Attempt, ...], num_steps: int) -> RunTime:
    if not attempts:
        return RunTime(None, None, None, None)
    wall_s = 0.0
    ends: list[float] = []
    for attempt in attempts:
        start = attempt.exit.start if attempt.exit else attempt.claim.time
        end = attempt.exit.end if attempt.exit else None
        if end is None and attempt.heartbeat is not None:
            end = attempt.heartbeat.time
        if end is not None:
            wall_s += max(0.0, end - start)
            ends.append(end)
    usage = run_usage([AttemptRecords(a.claim, a.heartbeat, a.exit) for a in attempts])
    return RunTime(
        start=min(attempt.claim.time for attempt in attempts),
        end=max(ends, default=None),
        wall_s=wall_s if ends else None,
        steps_per_s=num_steps / wall_s if num_steps and wall_s > 0 else None,
        gpu_hours=usage.used,
        lost_gpu_hours=usage.lost,
    )


def logged_steps(run_curves: Mapping[str, Curve]) -> list[int]:
    """Return the steps at which any metric was logged, increasing."""
    steps = [curve.steps for curve in run_curves.values()]
    return [int(step) for step in np.unique(np.concatenate(steps))] if steps else []


def run_notices(run: Run) -> list[Notice]:
    """Return what is odd about what one run left behind."""
    notices = []
    for file in run.files:
        if file.num_bad_lines:
            lines = ", ".join(str(number) for number in file.bad_lines)
            more = ", ..." if file.num_bad_lines > len(file.bad_lines) else ""
            where = f" of {file.path}" if len(run.files) > 1 else ""
            counted = _counted(file.num_bad_lines, "unreadable line")
            message = f"{run.run_id}: {counted}{where} (line {lines}{more})"
            notices.append(Notice("bad_lines", message))
    if run.num_superseded:
        message = (
            f"{run.run_id}: {_counted(run.num_superseded, 'step')} logged again after a resume"
        )
        notices.append(Notice("superseded", f"{message}; the newer values count"))
    if run.state is RunState.SHORT:
        message = f"{run.run_id} ended well, but its metrics end at step {run.last_step}"
        notices.append(Notice("short", f"{message} of {run.planned.max_steps}"))
    return notices


def curves_by_run(table: pd.DataFrame) -> dict[tuple[str, int], dict[str, Curve]]:
    """Return the live curves of the table by (arm, seed), then by metric."""
    by_run: dict[tuple[str, int], dict[str, Curve]] = {}
    for (arm, seed, metric), curve in curves(table).items():
        by_run.setdefault((arm, seed), {})[metric] = curve
    return by_run


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _relative(message: str, paths: RunPaths) -> str:
    return message.replace(f"{paths.sweep.root}/", "")
