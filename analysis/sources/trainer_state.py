"""Hugging Face `trainer_state.json`, as TRL leaves it in every checkpoint.

Each checkpoint repeats the whole history so far: the one that came furthest counts. Metrics that
weren't finite are null or a bare NaN in it; both come back as NaN.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.sources.contents import Json, distinct, entries, parse_json_object
from analysis.sources.interface import (
    MetricsFile,
    SeriesBuilder,
    SourceRun,
    Wanted,
    empty_file,
    parse_step,
)
from harness.errors import UsageError

_NAME = "trainer_state.json"
_CHECKPOINT_PREFIX = "checkpoint-"
_MAX_BYTES = 512 * 1024 * 1024
"""JSON is parsed as a whole, and takes several times its size then."""


@dataclass(frozen=True)
class _State:
    """One trainer_state.json; `content` is None where it can't be read, for the `reason`."""

    path: Path
    name: str
    raw: bytes
    content: Json | None
    reason: str = ""

    @property
    def global_step(self) -> int:
        step = parse_step((self.content or {}).get("global_step"))
        return -1 if step is None else step

    @property
    def history(self) -> list[Any]:
        history = (self.content or {}).get("log_history")
        return history if isinstance(history, list) else []


def is_trainer_state(path: Path, head: bytes | None) -> bool:
    """Whether `path` is such a file, or a folder that holds one or has checkpoints that do."""
    if head is None:
        return bool(_state_files(path))
    return path.name == _NAME or (head.lstrip()[:1] == b"{" and b'"log_history"' in head)


def read_trainer_state(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run in the file `path`, or in the furthest such file of the folder `path`.

    Files of the folder that can't be read, or hold other values for the same steps, are problems.

    Raises:
        UsageError: the folder holds no such file.
    """
    root = path if path.is_dir() else path.parent
    paths = _state_files(path) if path.is_dir() else [path]
    if not paths:
        raise UsageError(
            f"`{path}` holds no `{_NAME}`, neither itself nor in a `{_CHECKPOINT_PREFIX}N`",
            "name the `output_dir` of the trainer",
        )
    states = [_read_state(one, root) for one in paths]
    # Of equals the first stands: the folder's own file before those of checkpoints.
    chosen = max(states, key=lambda state: (state.content is not None, state.global_step))
    problems = []
    for state in states:
        if state is chosen:
            continue
        if state.content is None:
            problems.append(f"`{state.name}`: {state.reason}; it is left out")
        else:
            problems.extend(_disagreement(state, chosen))
    max_steps = parse_step((chosen.content or {}).get("max_steps"))
    max_steps = max_steps if max_steps is not None and max_steps > 0 else None
    return SourceRun(
        label=(root if root.name else root.resolve()).name,
        framework="trl",
        files=(_to_file(chosen, wanted),),
        attempt_groups=(1,),
        state=(
            "finished" if max_steps is not None and chosen.global_step >= max_steps else "unknown"
        ),
        max_steps=max_steps,
        problems=tuple(problems),
    )


def _state_files(folder: Path) -> list[Path]:
    checkpoints = [
        entry / _NAME for entry in entries(folder) if entry.name.startswith(_CHECKPOINT_PREFIX)
    ]
    return [path for path in distinct([folder / _NAME, *checkpoints]) if path.is_file()]


def _read_state(path: Path, root: Path) -> _State:
    name = str(path.relative_to(root))
    try:
        if path.stat().st_size > _MAX_BYTES:
            return _State(path, name, b"", None, f"larger than {_MAX_BYTES >> 20} MiB")
        raw = path.read_bytes()
    except OSError as error:
        return _State(path, name, b"", None, f"can't be read: {error.strerror or error}")
    content, reason = parse_json_object(raw)
    if content is not None and not isinstance(content.get("log_history"), list):
        content, reason = None, "no `log_history` list in it"
    return _State(path, name, raw, content, reason)


def _to_file(state: _State, wanted: Wanted) -> MetricsFile:
    if state.content is None:
        return empty_file(state.path, "trainer_state", state.reason)
    builder = SeriesBuilder(wanted)
    for number, row in enumerate(state.history, start=1):
        if isinstance(row, dict):
            builder.add_row(row, step_key="step")
        else:
            builder.add_bad_line(number)
    digest = hashlib.sha256(state.raw).hexdigest()
    return builder.build(state.path, "trainer_state", size_bytes=len(state.raw), sha256=digest)


def _disagreement(other: _State, chosen: _State) -> list[str]:
    """Say where `other` holds another value than `chosen` for the same step and key."""
    expected = _values(chosen)
    for (step, key), value in _values(other).items():
        if (step, key) in expected and expected[(step, key)] != value:
            return [
                f"`{other.name}` holds another `{key}` at step {step} than `{chosen.name}`, "
                "which is read: it may be of another run or from before a restart"
            ]
    return []


def _values(state: _State) -> dict[tuple[Any, str], str]:
    """Return what the history holds by step and key. As text: NaN equals NaN there."""
    return {
        (row.get("step"), key): repr(value)
        for row in state.history
        if isinstance(row, dict) and parse_step(row.get("step")) is not None
        for key, value in row.items()
    }
