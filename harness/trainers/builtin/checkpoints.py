"""Checkpoints: folders that are whole or not there, and the search for the newest whole one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.checkpoint import hash_content, step_of
from harness.errors import HarnessError
from harness.records.files import read_json, write_json
from harness.trainers.builtin.config import CheckpointsConfig

_FORMAT = 1
"""Goes up when what a checkpoint holds changes its meaning."""
_STATE = "state.pt"
_MANIFEST = "manifest.json"
_PREFIX = "step_"
_TEMPORARY_PREFIX = ".tmp-"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint that was read: `state` as given to `save_checkpoint`."""

    step: int
    state: dict[str, Any]


class SupersededError(Exception):
    """A newer attempt has taken over the run: nothing may be published any more."""


def checkpoint_dir(folder: Path, step: int) -> Path:
    return folder / f"{_PREFIX}{step:06d}"


def list_checkpoints(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in `folder`, whole or damaged, oldest first."""
    if not folder.is_dir():
        return []
    names = [path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*")]
    return sorted(int(name) for name in names if name.isdecimal())


def save_checkpoint(
    folder: Path,
    step: int,
    state: dict[str, Any],
    config: CheckpointsConfig,
    *,
    is_superseded: Callable[[], bool],
    about: Mapping[str, Any] | None = None,
) -> None:
    """Publish `state` as the checkpoint of `step` by one rename, then drop old checkpoints.

    Args:
        state: tensors, numbers, strings, lists and dicts of these.
        is_superseded: asked right before publishing.
        about: what it was made with, for who wants to start another run from it.

    Raises:
        SupersededError: nothing was published.
    """
    content = io.BytesIO()
    torch.save(state, content)
    temporary = folder / f"{_TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    temporary.mkdir(parents=True)
    try:
        _write_durable(temporary / _STATE, content.getvalue())
        digest = hashlib.sha256(content.getvalue()).hexdigest()
        manifest: dict[str, Any] = {"format": _FORMAT, "sha256": digest, "step": step}
        if about is not None:
            manifest["about"] = dict(about)
        write_json(temporary / _MANIFEST, manifest, durable=True)
        if is_superseded():
            raise SupersededError
        _move_into_place(temporary, checkpoint_dir(folder, step))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _prune(folder, config)


def load_newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint, or None where there is none.

    Damaged ones are passed over with a line on stderr. What a dead process left half written is
    removed.

    Raises:
        HarnessError: a whole checkpoint is of another format than this code reads.
    """
    for leftover in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for step in reversed(list_checkpoints(folder)):
        path = checkpoint_dir(folder, step)
        try:
            return Checkpoint(step, _read(path, step))
        except _DamagedError as error:
            print(f"checkpoint `{path}` is damaged ({error}): skipped", file=sys.stderr)
    return None


def load_checkpoint(path: Path, sha256: str) -> Checkpoint:
    """Return the checkpoint at `path`, of another run.

    Args:
        sha256: of its content, see `harness.checkpoint.hash_content`.

    Raises:
        HarnessError: it is gone, damaged, of another format or not that content.
    """
    step = step_of(path)
    hint = "restore it; or plan other runs: harness run SWEEP --as NAME"
    try:
        if step is None or not path.is_dir():
            raise HarnessError(f"there is no checkpoint `{path}` to start from", hint)
        if hash_content(path) != sha256:
            raise HarnessError(f"the checkpoint `{path}` has changed since the plan", hint)
        return Checkpoint(step, _read(path, step))
    except (OSError, _DamagedError) as error:
        raise HarnessError(f"the checkpoint `{path}` can't be read: {error}", hint) from error


class _DamagedError(Exception):
    pass


def _read(path: Path, step: int) -> dict[str, Any]:
    try:
        manifest = read_json(path / _MANIFEST)
        content = (path / _STATE).read_bytes()
    except (HarnessError, OSError) as error:
        raise _DamagedError(error) from error
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise _DamagedError(f"the hash of {_STATE} is not the recorded")
    if manifest.get("step") != step:
        raise _DamagedError(f"it is of step {json.dumps(manifest.get('step'))}")
    if manifest.get("format") != _FORMAT:
        raise HarnessError(
            f"checkpoint `{path}` has format {manifest.get('format')!r}, this code reads {_FORMAT}",
            "continue the run with the code that began it",
        )
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise _DamagedError(f"{_STATE} is not a checkpoint's") from error
    return state


def _write_durable(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(temporary: Path, path: Path) -> None:
    # A folder of this step can only be a damaged one that was passed over: it makes way first.
    if path.exists():
        os.rename(path, temporary.with_name(f"{temporary.name}-old"))  # noqa: PTH104
        shutil.rmtree(temporary.with_name(f"{temporary.name}-old"), ignore_errors=True)
    os.rename(temporary, path)  # noqa: PTH104


def _prune(folder: Path, config: CheckpointsConfig) -> None:
    for step in list_checkpoints(folder)[: -config.keep_last]:
        if config.keep_every is None or step % config.keep_every:
            shutil.rmtree(checkpoint_dir(folder, step), ignore_errors=True)
