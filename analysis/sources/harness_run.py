"""A run folder of this project, read as a run of its own: outside the sweep that it belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.sources.columns import guess_framework
from analysis.sources.interface import MetricsFile, SourceRun, Wanted, empty_file
from analysis.sources.planned import PlannedFiles, read_planned
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json_if_there
from harness.records.layout import AttemptPaths, RunPaths, SweepPaths
from harness.records.model import Claim, Exit, RunRecord, read_record, read_record_if_there

_FAILED = ("failed", "timeout", "out_of_memory")


def is_harness_run(path: Path, head: bytes | None) -> bool:
    """Whether the folder `path` is a planned run of this project."""
    return head is None and RunPaths(path).record.is_file()


def refuse_sweep(path: Path) -> None:
    """Raise UsageError where the folder `path` is a sweep, or all runs or an arm of one."""
    if SweepPaths(path).plan.is_file():
        what, runs = "a whole sweep", [run.root for run in SweepPaths(path).runs()]
    else:
        children = sorted(path.glob("*/run.json"))
        grandchildren = sorted(path.glob("*/*/run.json"))
        runs = [record.parent for record in children or grandchildren]
        what = "an arm of a sweep" if children else "all runs of a sweep"
        if not all(run.name.startswith("seed_") for run in runs):
            return
    if SweepPaths(path).plan.is_file() or runs:
        example = f", such as `{runs[0]}`" if runs else ""
        raise UsageError(f"`{path}` is {what}, not a run", f"name the folder of one run{example}")


def read_harness_run(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run in the folder `path`. Rows name their attempts themselves.

    Keys that run.json says stand for a metric are renamed to that metric.

    Raises:
        UsageError: run.json is missing or can't be read, or `path` is a sweep or an arm.
    """
    paths = RunPaths(path)
    if not paths.record.is_file():
        refuse_sweep(path)
    try:
        record = read_record(RunRecord, paths.record)
    except HarnessError as error:
        raise UsageError(error.message, error.hint) from error
    problems: list[str] = []
    claim, end = _newest_attempt(paths, problems)
    try:
        config = read_json_if_there(paths.config)
    except HarnessError as error:
        config = None
        problems.append(error.message)
    read = _read_files(path, record, wanted)
    framework = read.framework
    if not framework:
        keys = frozenset().union(*(file.keys for file in read.files))
        framework = "prime_rl" if record.metrics_format == "prime_rl" else guess_framework(keys)
    if end is not None and end.reason == "stopped":
        problems.append(f"stopped by the rule `{end.rule}` at step {end.rule_step}")
    return SourceRun(
        label=f"{record.sweep}/{record.arm}/seed_{record.seed}",
        framework=framework,
        files=read.files,
        attempt_groups=read.attempt_groups,
        config=config,
        state=_state(end),
        max_steps=claim.max_steps if claim else None,
        versions=_versions(claim),
        problems=(*problems, *read.problems),
    )


def _read_files(root: Path, record: RunRecord, wanted: Wanted) -> PlannedFiles:
    relative = os.path.normpath(record.metrics)
    path = root / relative
    if Path(relative).is_absolute() or relative.startswith(".."):
        reason = "outside the run's folder: not read"
        return PlannedFiles((empty_file(path, record.metrics_format, reason),), (1,))
    keys = {name: key for name, key in record.metrics_keys.items() if name != "step"}
    mapped = frozenset(keys.values())
    read = read_planned(
        path,
        record.metrics_format,
        wanted=lambda key: key in mapped or wanted(key),
        step_key=record.metrics_keys.get("step", "step"),
    )
    return replace(read, files=tuple(_renamed(file, keys) for file in read.files))


def _renamed(file: MetricsFile, keys: Mapping[str, str]) -> MetricsFile:
    """Return the file with the metrics that stand under keys of their own under their names."""
    mapped = frozenset(keys.values())
    renamed = {name: file.series[key] for name, key in keys.items() if key in file.series}
    return replace(
        file,
        series={key: one for key, one in file.series.items() if key not in mapped} | renamed,
        keys=(file.keys - mapped) | renamed.keys(),
    )


def _newest_attempt(paths: RunPaths, problems: list[str]) -> tuple[Claim | None, Exit | None]:
    attempts: list[AttemptPaths] = paths.attempts()
    if not attempts:
        return None, None
    claim: Claim | None = None
    end: Exit | None = None
    try:
        claim = read_record(Claim, attempts[-1].claim)
        end = read_record_if_there(Exit, attempts[-1].exit)
    except HarnessError as error:
        problems.append(error.message)
    return claim, end


def _state(end: Exit | None) -> str:
    if end is None:
        return "unknown"
    if end.reason == "done":
        return "finished"
    if end.reason == "stopped":
        return "stopped"
    return "failed" if end.reason in _FAILED else "unknown"


def _versions(claim: Claim | None) -> dict[str, str]:
    if claim is None:
        return {}
    versions = claim.machine.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    return {"code": claim.code_hash} | {str(name): str(value) for name, value in named}
