"""What of a sweep can be removed without losing a result."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.dispatch.lock import require_no_live_lock
from harness.errors import HarnessError, UsageError
from harness.records.files import read_json
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import Claim, Intent, PlanRecord, RunRecord, read_record
from harness.state.pins import find_pins, who_needs
from harness.state.status import RunState, may_be_at_work, read_states

_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
"""What atomic writes (and an interrupted clean) leave behind when they are killed."""
_CHECKPOINT = re.compile(r"(?:step_|global_step_|checkpoint-)(\d+)(\.\w+)?")
"""As the built-in trainer, prime-rl, verl and TRL call them."""
_MIN_TEMPORARY_AGE_S = 60.0


@dataclass(frozen=True)
class Candidate:
    """Something that can go: one file, or one folder with all in it.

    Attributes:
        kind: `checkpoint`, `code`, `temporary` or `run`.
        reason: one line.
    """

    path: Path
    kind: str
    num_bytes: int
    reason: str


@dataclass(frozen=True)
class Found:
    """What can go, and what only stays because runs of other sweeps start from it.

    Attributes:
        kept: with the sweeps that need it as reason.
    """

    candidates: tuple[Candidate, ...]
    kept: tuple[Candidate, ...]


def clean(sweep: SweepPaths, *, include_left: bool = False, dry_run: bool = False) -> Found:
    """Remove what `find_removable` finds and return it, with what stays for other sweeps.

    Raises:
        UsageError: a queue of the sweep is live, or a run is, or may be, still at work.
        HarnessError: a plan can't be read, or something can't be removed.
    """
    found = find_removable(sweep, include_left=include_left)
    if not dry_run:
        for candidate in found.candidates:
            _remove(candidate.path)
    return found


def find_removable(sweep: SweepPaths, *, include_left: bool = False) -> Found:
    """Return what can go, by kind, then path. What another sweep below the same folder of outputs
    starts from never goes.

    - checkpoints of done runs, but the newest and those that `checkpoints.keep_every` asks for;
    - code copies that neither the current plan nor any attempt used, nor the newest submission,
      whose last job may still be waiting;
    - temporary files of writers that were killed;
    - with `include_left`, whole runs that have left the plan.

    Raises:
        UsageError: a queue of the sweep is live, or a run is, or may be, still at work.
        HarnessError: this sweep's plan can't be read, or that of one beside it.
    """
    plan = read_record(PlanRecord, sweep.plan)
    require_no_live_lock(sweep)
    states = read_states(sweep)
    for status in states:
        if may_be_at_work(status):
            raise UsageError(
                f"run `{status.run_id}` is {status.state}",
                status.hint or f"wait for it, or end it with `harness cancel {sweep.name}`",
            )
    found: list[Candidate] = []
    for status in states:
        paths = sweep.run(status.arm, status.seed)
        if status.is_planned and status.state is RunState.DONE:
            found += _old_checkpoints(paths)
        elif not status.is_planned and include_left:
            found.append(_candidate(paths.root, "run", "left the plan"))
    found, kept = _without_pinned(found, sweep)
    gone = [candidate.path for candidate in found]
    found += _unused_code(sweep, plan, gone)
    found += _temporaries(sweep, gone)
    return Found(_in_order(found), _in_order(kept))


def _without_pinned(
    found: list[Candidate], sweep: SweepPaths
) -> tuple[list[Candidate], list[Candidate]]:
    if not found:
        return [], []
    pins = find_pins(sweep.root.absolute().parent)
    needed = {candidate.path: who_needs(candidate.path, pins) for candidate in found}
    kept = [
        replace(
            c, reason=f"runs of {', '.join(f'`{name}`' for name in needed[c.path])} start there"
        )
        for c in found
        if needed[c.path]
    ]
    return [c for c in found if not needed[c.path]], kept


def _in_order(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    return tuple(sorted(candidates, key=lambda c: (c.kind, str(c.path))))


def _old_checkpoints(paths: RunPaths) -> Iterator[Candidate]:
    record = read_record(RunRecord, paths.record)
    if record.checkpoints is None:
        return
    folder = paths.root / record.checkpoints
    if not folder.is_dir():
        return
    steps = {p: int(m[1]) for p in folder.iterdir() if (m := _CHECKPOINT.fullmatch(p.name))}
    newest = max(steps.values(), default=0)
    keep_every = _keep_every(paths)
    for path, step in steps.items():
        is_kept = step == newest or (keep_every is not None and step % keep_every == 0)
        if not is_kept:
            reason = f"the run is done; the checkpoint of step {newest} stays"
            yield _candidate(path, "checkpoint", reason)


def _keep_every(paths: RunPaths) -> int | None:
    trainer = read_json(paths.config).get("trainer", {})
    checkpoints = trainer.get("checkpoints") if isinstance(trainer, dict) else None
    value = checkpoints.get("keep_every") if isinstance(checkpoints, dict) else None
    return value if isinstance(value, int) and value > 0 else None


def _unused_code(sweep: SweepPaths, plan: PlanRecord, gone: list[Path]) -> Iterator[Candidate]:
    if not sweep.code_root.is_dir():
        return
    used = {plan.code.hash}
    for submission in sweep.submissions()[-1:]:
        used.add(read_record(Intent, submission.intent).code_hash)
    for run in sweep.runs():
        if run.root not in gone:
            used.update(read_record(Claim, attempt.claim).code_hash for attempt in run.attempts())
    for path in sweep.code_root.iterdir():
        if path.name not in used and not _TEMPORARY.fullmatch(path.name):
            yield _candidate(path, "code", "neither the plan nor an attempt used it")


def _temporaries(sweep: SweepPaths, gone: list[Path]) -> Iterator[Candidate]:
    limit = time.time() - _MIN_TEMPORARY_AGE_S
    for folder, folder_names, file_names in os.walk(sweep.root):
        here = Path(folder)
        for name in [*folder_names, *file_names]:
            path = here / name
            if _TEMPORARY.fullmatch(name) and path.lstat().st_mtime < limit:
                yield _candidate(path, "temporary", "its writer was killed")
        folder_names[:] = [
            name
            for name in folder_names
            if not _TEMPORARY.fullmatch(name) and here / name not in gone
        ]


def _candidate(path: Path, kind: str, reason: str) -> Candidate:
    return Candidate(path, kind, _size(path), reason)


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(path)
        for name in names
    )


def _remove(path: Path) -> None:
    """Remove a file or folder so that nobody sees half of it under its own name."""
    hidden = path
    if not _TEMPORARY.fullmatch(path.name):
        hidden = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        if hidden != path:
            path.rename(hidden)
        if hidden.is_dir() and not hidden.is_symlink():
            shutil.rmtree(hidden)
        else:
            hidden.unlink()
    except OSError as error:
        raise HarnessError(
            f"`{path}` can't be removed: {error.strerror or error}",
            "give yourself the right to write there; what was removed before stays removed",
        ) from error
