"""Writes a plan to its sweep folder, after checking that the folder may take it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config.compose import identity_config
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json, to_json, write_atomic, write_json
from harness.records.layout import SweepPaths
from harness.records.model import (
    SCHEMA_VERSION,
    AnalysisSpec,
    PlanRecord,
    RunRecord,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.sweep.difference import find_differences
from harness.sweep.plan import Plan, show_difference
from harness.trainers.registry import load_trainer


@dataclass(frozen=True)
class StoredPlan:
    """What of a sweep is on disk already."""

    plan: PlanRecord | None
    has_data: bool


def read_stored(paths: SweepPaths) -> StoredPlan:
    """Return the plan on disk and whether any run has started."""
    plan = read_record_if_there(PlanRecord, paths.plan)
    return StoredPlan(plan, any(run.attempts() for run in paths.runs()))


def reconcile(plan: Plan, paths: SweepPaths) -> Plan:
    """Return `plan` with what the sweep's folder adds: runs that left it, earlier analyses.

    Raises:
        UsageError: the folder holds another sweep, or a run of the same name that computes
            something else.
    """
    stored = read_stored(paths)
    planned = {run.run_id: run for run in plan.record.runs}
    left = []
    for run in paths.runs():
        record = read_record(RunRecord, run.record)
        run_id = f"{record.arm}/seed_{record.seed}"
        if record.sweep != plan.record.sweep:
            raise UsageError(
                f"`{paths.root}` holds runs of the sweep `{record.sweep}`, not of"
                f" `{plan.record.sweep}`",
                "give this sweep another name with --as NAME",
            )
        if run_id not in planned:
            left.append(run_id)
        elif planned[run_id].identity != record.identity:
            shown = _first_difference(read_json(run.config), plan.configs[run_id])
            raise UsageError(
                f"`{run.root}` was planned with another configuration{shown}",
                "a run never changes: give the new sweep another name with --as NAME",
            )
    return replace(
        plan,
        record=replace(
            plan.record,
            left=tuple(left),
            earlier_analysis=_earlier_analysis(stored, plan.record.analysis),
        ),
    )


def write_plan(plan: Plan, paths: SweepPaths, sweep_text: bytes) -> None:
    """Write run folders, the sweep file and, last, plan.json; an earlier plan is kept.

    Raises:
        UsageError: the folder can't be written.
    """
    try:
        _write_runs(plan, paths)
        write_atomic(paths.sweep_file, sweep_text)
        text = to_json(to_record(plan.record))
        if paths.plan.is_file():
            earlier = paths.plan.read_bytes()
            if earlier == text.encode():
                return
            write_atomic(_next_earlier(paths), earlier)
        write_atomic(paths.plan, text)
    except OSError as error:
        raise UsageError(
            f"`{error.filename or paths.root}` can't be written: {error.strerror}",
            "choose another place with HARNESS_OUTPUTS=DIR",
        ) from None


def check_writable(root: Path) -> None:
    """Refuse a sweep folder that can't be made, before anything is written."""
    folder = root
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"`{root}` can't be written: `{folder}` is not a folder you may write to",
            "choose another place with HARNESS_OUTPUTS=DIR",
        )


def _write_runs(plan: Plan, paths: SweepPaths) -> None:
    for planned in plan.record.runs:
        run = paths.run(planned.arm, planned.seed)
        if run.record.is_file():
            continue
        config = {k: v for k, v in plan.configs[planned.run_id].items() if k != "max_steps"}
        files = load_trainer(config["trainer"]["type"]).files(config)
        record = RunRecord(
            schema_version=SCHEMA_VERSION,
            sweep=plan.record.sweep,
            arm=planned.arm,
            seed=planned.seed,
            identity=planned.identity,
            trainer=config["trainer"]["type"],
            metrics=files.metrics,
            metrics_format=files.metrics_format,
            metrics_keys=dict(files.metrics_keys),
            tokens=files.tokens,
            tokens_format=files.tokens_format,
            checkpoints=files.checkpoints,
            checkpoints_format=files.checkpoints_format,
        )
        write_json(run.config, config)
        write_json(run.record, to_record(record))


def _next_earlier(paths: SweepPaths) -> Path:
    folder = paths.earlier_plans_dir
    numbers = [int(p.stem) for p in folder.glob("*.json")] if folder.is_dir() else []
    return paths.earlier_plan(max(numbers, default=0) + 1)


def _earlier_analysis(stored: StoredPlan, now: AnalysisSpec) -> tuple[AnalysisSpec, ...]:
    if stored.plan is None:
        return ()
    earlier = stored.plan.earlier_analysis
    if stored.has_data and stored.plan.analysis != now and stored.plan.analysis not in earlier:
        earlier = (*earlier, stored.plan.analysis)
    return earlier


def _first_difference(stored: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
    try:
        found = find_differences(identity_config(stored), identity_config(planned))
    except (KeyError, HarnessError):
        return ""
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f": {show_difference(found[0])}{more}"
