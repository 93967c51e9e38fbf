"""From the contract on disk to a `Sweep`: records, metrics files, the long table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.curve import Curve, typical_spacing
from analysis.metrics import is_metric_key, metric_spec, resolve_keys
from analysis.runs import Attempt, Notice, Run, RunState, RunTime, Sweep
from analysis.sources import MetricsFile, read_metrics
from analysis.table import RunSeries, build_table, curves, first_steps, superseded_steps
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
    files: dict[str, MetricsFile] = {}
    order = {arm.name: place for place, arm in enumerate(plan.arms)}
    for planned in sorted(plan.runs, key=lambda run: (order.get(run.arm, -1), run.seed)):
        found = _read_records(paths.run(planned.arm, planned.seed), planned, notices)
        records.append(found)
        if found.record is None:
            continue
        file = _read_file(paths, found.record, planned)
        files[planned.run_id] = file
        keys = resolve_keys(file.keys, found.record.metrics_keys).keys
        series.append(
            RunSeries(
                planned.arm,
                planned.seed,
                {name: file.series[key] for name, key in keys.items()},
                first_steps(file.row_steps, file.row_attempts),
            )
        )
    table = build_table(series)
    by_run = _curves_by_run(table)
    num_superseded = superseded_steps(table)
    runs = []
    for found in records:
        key = (found.planned.arm, found.planned.seed)
        file_or_none = files.get(found.planned.run_id)
        runs.append(
            _make_run(found, file_or_none, by_run.get(key, {}), num_superseded.get(key, 0), notices)
        )
    return Sweep(paths, plan, tuple(runs), table, tuple(notices))


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


def _read_file(paths: SweepPaths, record: RunRecord, planned: PlannedRun) -> MetricsFile:
    mapped = frozenset(record.metrics_keys.values())
    path = paths.run(planned.arm, planned.seed).root / record.metrics
    return read_metrics(
        path,
        record.metrics_format,
        wanted=lambda key: key in mapped or is_metric_key(key),
        step_key=record.metrics_keys.get("step", "step"),
    )


def _make_run(
    found: _Records,
    file: MetricsFile | None,
    run_curves: dict[str, Curve],
    num_superseded: int,
    notices: list[Notice],
) -> Run:
    available = file.keys if file else frozenset[str]()
    metrics_keys = found.record.metrics_keys if found.record else {}
    keys = resolve_keys(available, metrics_keys)
    for name in sorted(run_curves):
        reason = _not_its_metric(name, run_curves[name])
        if reason:
            del run_curves[name]
            keys.problems[name] = f"`{keys.keys.pop(name)}` {reason}"
    steps = _logged_steps(run_curves)
    state = _state(found, steps)
    run = Run(
        planned=found.planned,
        state=state,
        record=found.record,
        config=found.config,
        attempts=found.attempts,
        file=file.provenance if file else None,
        keys=keys,
        available_keys=available,
        curves=run_curves,
        num_superseded=num_superseded,
        time=_time(found.attempts, len(steps)),
        foreign=found.foreign,
    )
    notices.extend(_file_notices(run))
    return run


def _not_its_metric(name: str, curve: Curve) -> str:
    """Say why logged values can't be the metric that their key stands for."""
    low, high = metric_spec(name).bounds
    values = curve.finite().values
    if name.startswith("solve_rate") and len(values) and high is not None and low is not None:
        outside = values[(values < low) | (values > high)]
        if len(outside):
            return f"holds {outside[0]:g}: rewards beyond 0 and 1 have no solve rate"
    return ""


def _state(found: _Records, steps: list[int]) -> RunState:
    if found.foreign:
        return RunState.FOREIGN
    if not found.attempts:
        return RunState.PLANNED
    newest = found.attempts[-1].exit
    if newest is None:
        return RunState.UNFINISHED
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


def _logged_steps(run_curves: dict[str, Curve]) -> list[int]:
    steps = [curve.steps for curve in run_curves.values()]
    return [int(step) for step in np.unique(np.concatenate(steps))] if steps else []


def _file_notices(run: Run) -> list[Notice]:
    notices = []
    file = run.file
    if file is not None and file.num_bad_lines:
        lines = ", ".join(str(number) for number in file.bad_lines)
        more = ", ..." if file.num_bad_lines > len(file.bad_lines) else ""
        message = (
            f"{run.run_id}: {_counted(file.num_bad_lines, 'unreadable line')} (line {lines}{more})"
        )
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


def _curves_by_run(table: pd.DataFrame) -> dict[tuple[str, int], dict[str, Curve]]:
    by_run: dict[tuple[str, int], dict[str, Curve]] = {}
    for (arm, seed, metric), curve in curves(table).items():
        by_run.setdefault((arm, seed), {})[metric] = curve
    return by_run


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _relative(message: str, paths: RunPaths) -> str:
    return message.replace(f"{paths.sweep.root}/", "")
