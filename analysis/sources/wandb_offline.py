"""Runs that wandb left in a folder: `wandb/offline-run-<time>-<id>/run-<id>.wandb`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.sources.columns import guess_framework
from analysis.sources.contents import distinct, entries, read_head
from analysis.sources.interface import MetricsFile, SourceRun, Wanted, empty_file
from analysis.sources.max_steps import max_steps_of
from analysis.sources.wandb_log import IDENT, WandbLog, parse_wandb_log
from analysis.sources.wandb_rows import build_series, needed_columns
from harness.errors import UsageError

KIND = "wandb_offline"
SUFFIX = ".wandb"

_FOLDER_TIME = re.compile(r"run-(\d{8}_\d{6})-")
_FILE_ID = re.compile(r"run-(.+)\.wandb$")
_NO_EXIT = "wandb wrote no exit: the run is still going, or it was killed and its last rows lost"


@dataclass(frozen=True)
class _Attempt:
    """One log of a run."""

    path: Path
    run_id: str
    log: WandbLog
    file: MetricsFile
    problems: tuple[str, ...]


def find_wandb_logs(path: Path) -> list[Path]:
    """Return the logs at or below `path`, oldest first, each once, though `latest-run` links to it.

    `path` may be a log, the folder of a run, a `wandb/` folder or the folder that holds it.
    """
    if path.is_file():
        return [path] if path.suffix == SUFFIX else []
    for folders in ([path], _run_folders(path), _run_folders(path / "wandb")):
        logs = [p for folder in folders for p in entries(folder) if p.suffix == SUFFIX]
        if logs:
            # The folder itself is named, not the link that leads to it.
            real_first = sorted(logs, key=lambda p: (p.is_symlink() or p.parent.is_symlink(), p))
            return sorted((p for p in distinct(real_first) if p.is_file()), key=_written_at)
    return []


def read_wandb_offline(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run that wandb logged offline at `path`.

    A run that was resumed offline has one log per attempt, each of which counts `_step` from 0:
    the logs are attempts of one run, in the order in which their folders were made. Damaged logs
    give what stands before the damage; `problems` names the place.

    Raises:
        UsageError: no log is there, or logs of several runs.
    """
    logs = find_wandb_logs(path)
    if not logs:
        raise UsageError(
            f"`{path}` holds no log of wandb",
            f"name a `*{SUFFIX}` file, or a folder `wandb/` or `offline-run-*` with one in it",
        )
    attempts = [_read(log, wanted) for log in logs]
    ids = sorted({attempt.run_id for attempt in attempts})
    if len(ids) > 1:
        folders = {a.run_id: a.path.parent.name for a in attempts}
        listed = ", ".join(f"`{run_id}` in `{folders[run_id]}`" for run_id in ids)
        raise UsageError(
            f"`{path}` holds {len(ids)} runs: {listed}",
            "name the folder of one, or join those of one training with `+`",
        )
    return _to_run(attempts)


def _to_run(attempts: Sequence[_Attempt]) -> SourceRun:
    newest = attempts[-1]
    config = next((a.log.config for a in reversed(attempts) if a.log.config), None)
    name = next((a.log.display_name for a in reversed(attempts) if a.log.display_name), "")
    code = newest.log.exit_code
    versions = {"wandb": newest.log.writer, "commit": newest.log.commit}
    problems = list(dict.fromkeys(p for attempt in attempts for p in attempt.problems))
    if code is None and not newest.log.damage:
        problems.append(_NO_EXIT)
    return SourceRun(
        label=name or newest.run_id,
        framework=guess_framework(sorted({key for a in attempts for key in a.file.keys})),
        files=tuple(attempt.file for attempt in attempts),
        attempt_groups=tuple(range(1, len(attempts) + 1)),
        config=config,
        state="unknown" if code is None else "finished" if code == 0 else "failed",
        max_steps=max_steps_of(config),
        versions={key: value for key, value in versions.items() if value},
        problems=tuple(problems),
    )


def _read(path: Path, wanted: Wanted) -> _Attempt:
    named = _FILE_ID.search(path.name)
    run_id = named.group(1) if named else path.stem
    try:
        content = read_head(path)
        # What is no log isn't worth reading, however large.
        if content.startswith(IDENT):
            content = path.read_bytes()
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        return _Attempt(path, run_id, WandbLog(), empty_file(path, KIND, problem), ())
    log = parse_wandb_log(content, keep=needed_columns(wanted))
    run_id = log.run_id or run_id
    if not content or not log.is_log:
        problem = log.damage if content else "empty"
        return _Attempt(path, run_id, log, empty_file(path, KIND, problem), ())
    file, step_problem = build_series(
        log.rows,
        wanted=wanted,
        path=path,
        kind=KIND,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        bad_records=log.bad_records,
    )
    problems = [step_problem] if step_problem else []
    if log.damage:
        problems.append(f"`{path.name}`: {log.damage}; what stands before it was read")
    if log.num_bad_values:
        problems.append(f"`{path.name}`: values that are no JSON: {log.num_bad_values}")
    return _Attempt(path, run_id, log, file, tuple(problems))


def _run_folders(folder: Path) -> list[Path]:
    # `run-*`, `offline-run-*` and `latest-run`.
    return [p for p in entries(folder) if "run-" in p.name or p.name.endswith("-run")]


def _written_at(path: Path) -> tuple[str, str]:
    found = _FOLDER_TIME.search(path.parent.name)
    return found.group(1) if found else "", str(path)
