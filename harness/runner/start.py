"""Where a fork starts from: its parent's checkpoint, as it was when the sweep was planned."""

from __future__ import annotations

import os
from pathlib import Path

from harness.checkpoint import find_entries, hash_content, stamp_content
from harness.errors import HarnessError
from harness.records.layout import RunPaths
from harness.records.model import RunRecord
from harness.trainers.interface import Start


def find_start(paths: RunPaths, record: RunRecord) -> Start | None:
    """Return what the run starts from; None for a run that starts from scratch.

    A run with checkpoints of its own goes on without its parent.

    Raises:
        HarnessError: the run has none, and the parent's is gone or not what was planned.
    """
    start = record.start_from
    if start is None:
        return None
    checkpoint = Path(os.path.normpath(paths.sweep.root.absolute() / start.checkpoint))
    if not _has_own(paths, record):
        _check(checkpoint, start.stamp, start.sha256)
    return Start(checkpoint, start.step)


def _has_own(paths: RunPaths, record: RunRecord) -> bool:
    return record.checkpoints is not None and bool(find_entries(paths.root / record.checkpoints))


def _check(checkpoint: Path, stamp: str, sha256: str) -> None:
    hint = "restore it; or plan other runs: harness run SWEEP --as NAME"
    if not checkpoint.exists():
        raise HarnessError(f"the checkpoint `{checkpoint}` that this run starts from is gone", hint)
    try:
        is_same = stamp_content(checkpoint) == stamp or hash_content(checkpoint) == sha256
    except OSError as error:
        raise HarnessError(
            f"the checkpoint `{checkpoint}` that this run starts from can't be read: {error}", hint
        ) from error
    if not is_same:
        raise HarnessError(
            f"the checkpoint `{checkpoint}` that this run starts from has changed since the plan",
            hint,
        )
