"""Writes a plan to its sweep folder, after checking that the folder may take it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records.files import read_json_if_there, to_json, write_atomic, write_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import (
    REPLICATE_KEY,
    SCHEMA_VERSION,
    AnalysisSpec,
    KeyDifference,
    PlannedRun,
    PlanRecord,
    RunRecord,
    StartRecord,
    read_record,
    read_record_if_there,
    to_record,
)
from harness.sweep.difference import find_differences
from harness.sweep.plan import Plan, show_difference
from harness.trainers.interface import RunName
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
    on_disk = paths.runs()
    left = []
    for run in on_disk:
        record = read_record(RunRecord, run.record)
        _check_own_folder(run, record, plan.record.sweep)
        run_id = f"{record.arm}/seed_{record.seed}"
        if run_id not in planned:
            left.append(run_id)
            continue
        _check_unchanged(run, record, planned[run_id], plan.configs[run_id])
    for planned_run in plan.record.runs:
        run = paths.run(planned_run.arm, planned_run.seed)
        if run.attempts_dir.exists() and not run.record.is_file():
            raise UsageError(
                f"`{run.root}` has attempts and no `{run.record.name}`, so what they computed is"
                " unknown",
                "restore that file, or remove the folder",
            )
    arms = {arm.name for arm in plan.record.arms}
    if on_disk and not any(run.arm in arms for run in on_disk):
        raise UsageError(
            f"`{paths.root}` holds the runs of another sweep of that name: none of its arms is"
            " planned here",
            "give this sweep another name with --as NAME",
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


def _check_own_folder(run: RunPaths, record: RunRecord, sweep: str) -> None:
    if record.sweep != sweep:
        raise UsageError(
            f"`{run.sweep.root}` holds runs of the sweep `{record.sweep}`, not of `{sweep}`",
            "give this sweep another name with --as NAME",
        )
    if (record.arm, record.seed) != (run.arm, run.seed):
        raise UsageError(
            f"`{run.root}` is a copy: its `{run.record.name}` says {record.arm}/seed_{record.seed}",
            "remove the copy; each run is computed in its own folder",
        )


def _check_unchanged(
    run: RunPaths, record: RunRecord, planned: PlannedRun, config: Mapping[str, Any]
) -> None:
    """Refuse a run whose stored configuration is not the planned one."""
    wanted = {key: value for key, value in config.items() if key != "max_steps"}
    stored = read_json_if_there(run.config)
    if planned.identity != record.identity:
        differences = find_differences(stored, wanted) if stored is not None else ()
        hint = "a run never changes: give the new sweep another name with --as NAME"
        if [difference.key for difference in differences] == [REPLICATE_KEY]:
            hint = (
                "replicates of an arm are numbered as they stand in the sweep file: keep their"
                " order, and add new ones at the end"
            )
        raise UsageError(
            f"`{run.root}` was planned with another configuration{_show_first(differences)}", hint
        )
    if stored is None:
        return  # written again, as the identity says what stood there
    differences = tuple(d for d in find_differences(stored, wanted) if _stands_in(d.key, stored))
    if differences:
        raise UsageError(
            f"`{run.config}` is not what is planned now{_show_first(differences)}",
            "a run keeps the configuration it was planned with: set the key back, or --as NAME",
        )


def _write_runs(plan: Plan, paths: SweepPaths) -> None:
    for planned in plan.record.runs:
        run = paths.run(planned.arm, planned.seed)
        start = _start_of(plan.record, planned.seed)
        if run.record.is_file() and run.config.is_file():
            _move_start(run, start)
            continue
        config = {k: v for k, v in plan.configs[planned.run_id].items() if k != "max_steps"}
        name = RunName(plan.record.sweep, planned.arm, planned.seed, planned.identity)
        files = load_trainer(config["trainer"]["type"]).files(config, name)
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
            logs=dict(files.logs),
            nonce=secrets.token_hex(8),
            start_from=start,
        )
        write_json(run.config, config)
        write_json(run.record, to_record(record))


def _start_of(plan: PlanRecord, seed: int) -> StartRecord | None:
    return next((start for start in plan.start_from if start.seed in (None, seed)), None)


def _move_start(run: RunPaths, start: StartRecord | None) -> None:
    """Have a planned run know where its checkpoint lies now; the content is the same."""
    record = read_record(RunRecord, run.record)
    if record.start_from != start:
        write_json(run.record, to_record(replace(record, start_from=start)))


def _next_earlier(paths: SweepPaths) -> Path:
    folder = paths.earlier_plans_dir
    names = [p.stem for p in folder.glob("*.json")] if folder.is_dir() else []
    numbers = [int(name) for name in names if name.isdecimal()]
    return paths.earlier_plan(max(numbers, default=0) + 1)


def _earlier_analysis(stored: StoredPlan, now: AnalysisSpec) -> tuple[AnalysisSpec, ...]:
    if stored.plan is None:
        return ()
    earlier = stored.plan.earlier_analysis
    if stored.has_data and stored.plan.analysis != now and stored.plan.analysis not in earlier:
        earlier = (*earlier, stored.plan.analysis)
    return earlier


def _show_first(differences: Sequence[KeyDifference]) -> str:
    if not differences:
        return ""
    more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
    return f": {show_difference(differences[0])}{more}"


def _stands_in(key: str, config: Mapping[str, Any]) -> bool:
    """Whether a stored configuration has `key`: one of an older version lacks newer keys."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True
