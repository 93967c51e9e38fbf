"""Checkpoints as the planner and the runner see them: which step, whole or not, which content.

Light: nothing here unpickles anything or needs torch.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.records.files import canonical_json, read_json

BUILTIN, PRIME_RL, OTHER = "builtin", "prime_rl", "other"
"""Whose checkpoint it is, as its files tell."""

_ENTRY = re.compile(r"step_([0-9]+)(\.\w+)?")
_MANIFEST, _STATE = "manifest.json", "state.pt"
_PRIME_RL_TRAINER, _PRIME_RL_ORCHESTRATOR = Path("trainer"), Path("orchestrator")
_PRIME_RL_DONE = (_PRIME_RL_TRAINER / ".metadata", _PRIME_RL_ORCHESTRATOR / "progress.pt")
"""Written last by either part."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint.

    Attributes:
        path: absolute; a folder or a file.
        kind: BUILTIN, PRIME_RL or OTHER.
        about: what it was made with (`model`, `task`, `optim`), where it says so itself.
    """

    path: Path
    step: int
    kind: str
    about: Mapping[str, Any] = field(default_factory=dict)


def find_entries(folder: Path) -> dict[int, Path]:
    """Return the checkpoints in `folder` by step, whole or damaged, oldest first."""
    if not folder.is_dir():
        return {}
    found = {step: path for path in folder.iterdir() if (step := step_of(path)) is not None}
    return dict(sorted(found.items()))


def step_of(path: Path) -> int | None:
    """Return the step that a checkpoint's name tells; None where it is no such name."""
    match = _ENTRY.fullmatch(path.name)
    return None if match is None else int(match[1])


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`.

    Raises:
        UsageError: there is none, its name tells no step, or it is not whole.
    """
    step = step_of(path)
    if step is None:
        raise UsageError(
            f"`{path}` is no checkpoint: its name is not `step_N`",
            "give the folder of one checkpoint, such as `…/checkpoints/step_200`",
        )
    try:
        return _open(path.absolute(), step)
    except OSError as error:
        raise UsageError(
            f"the checkpoint `{error.filename or path}` can't be read: {error.strerror or error}",
            "see that you may read all of it",
        ) from None


def _open(path: Path, step: int) -> Checkpoint:
    if not path.exists():
        raise UsageError(f"the checkpoint `{path}` does not exist", _list_beside(path))
    if path.is_file():
        if not path.stat().st_size:
            raise _half(path, "it is empty")
        return Checkpoint(path, step, OTHER)
    if (path / _MANIFEST).exists() or (path / _STATE).exists():
        return Checkpoint(path, step, BUILTIN, _open_builtin(path, step))
    if (path / _PRIME_RL_TRAINER).is_dir() or (path / _PRIME_RL_ORCHESTRATOR).is_dir():
        for done in _PRIME_RL_DONE:
            if not (path / done).is_file():
                raise _half(path, f"it has no `{done}`")
        return Checkpoint(path, step, PRIME_RL)
    if not any(True for _ in _files(path)):
        raise _half(path, "it holds no file")
    return Checkpoint(path, step, OTHER)


def _open_builtin(path: Path, step: int) -> Mapping[str, Any]:
    for name in (_MANIFEST, _STATE):
        if not (path / name).is_file():
            raise _half(path, f"it has no `{name}`")
    try:
        manifest = read_json(path / _MANIFEST)
    except HarnessError:
        raise _half(path, f"its `{_MANIFEST}` can't be read") from None
    if _hash_file(path / _STATE) != manifest.get("sha256"):
        raise _half(path, f"`{_STATE}` is not what its manifest says")
    if manifest.get("step") != step:
        raise _half(path, f"it is of step {manifest.get('step')}")
    about = manifest.get("about")
    return about if isinstance(about, dict) else {}


def _half(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the checkpoint `{path}` is damaged or half-written: {why}", _list_beside(path)
    )


def _list_beside(path: Path) -> str:
    steps = [str(step) for step in find_entries(path.parent) if step != step_of(path)]
    if not steps:
        return f"`{path.parent}` holds no other checkpoint"
    shown = ", ".join(steps[-8:])
    return f"`{path.parent}` has those of step {'…, ' if len(steps) > 8 else ''}{shown}"


def hash_content(path: Path) -> str:
    """Return the sha256 over names and bytes of the files of a checkpoint, wherever it lies."""
    digest = hashlib.sha256()
    for name, file in _files(path):
        digest.update(canonical_json([name, file.stat().st_size]))
        digest.update(_hash_file(file).encode())
    return digest.hexdigest()


def stamp_content(path: Path) -> str:
    """Return a hash over names, sizes and times of the files of a checkpoint.

    Cheap: where it is what it was, the bytes are taken to be, too.
    """
    digest = hashlib.sha256()
    for name, file in _files(path):
        status = file.stat()
        digest.update(canonical_json([name, status.st_size, status.st_mtime_ns]))
    return digest.hexdigest()


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a checkpoint with their names relative to it, in a fixed order."""
    if not path.is_dir():
        yield "", path
        return
    found = [
        Path(folder, name) for folder, _, names in os.walk(path, onerror=_raise) for name in names
    ]
    yield from sorted((file.relative_to(path).as_posix(), file) for file in found)


def _raise(error: OSError) -> None:
    raise error


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
