"""verl's file logger: JSON lines `{"step": 7, "data": {...}}`.

The logger writes null for NaN and infinity, which comes back as NaN: the metric was logged, and
wasn't finite. Validation is a row of its own with the step of the training row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.sources.contents import entries, head_rows, read_head
from analysis.sources.interface import MetricsFile, SourceRun, Wanted, empty_file
from analysis.sources.jsonl import read_json_rows
from harness.errors import UsageError


def is_verl_file(path: Path, head: bytes | None) -> bool:
    """Whether `head` holds rows of verl's file logger."""
    return head is not None and any(
        "step" in row and isinstance(row.get("data"), dict) for row in head_rows(head)
    )


def read_verl(path: Path, *, wanted: Wanted) -> SourceRun:
    """Return the run in the file `path`, or in the one such file of the folder `path`.

    Raises:
        UsageError: the folder holds no such file, or several.
    """
    file_path = _only_file(path) if path.is_dir() else path
    try:
        file = read_json_rows(file_path, "verl", wanted=wanted, step_key="step", clean=_flatten)
    except OSError as error:
        file = empty_file(file_path, "verl", f"can't be read: {error.strerror or error}")
    return SourceRun(
        label=file_path.stem,
        framework="verl",
        files=(file,),
        attempt_groups=(1,),
        problems=_lost_steps(file),
    )


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    data = row.get("data")
    return {**data, "step": row.get("step")} if isinstance(data, dict) else {}


def _lost_steps(file: MetricsFile) -> tuple[str, ...]:
    first = int(file.row_steps.min()) if len(file.row_steps) else 0
    if first <= 1:
        return ()
    return (
        f"begins at step {first}: verl's file logger empties its file when a run starts again, so "
        "that the steps before a restart are lost",
    )


def _only_file(folder: Path) -> Path:
    files = [
        path
        for path in entries(folder)
        if path.suffix == ".jsonl" and path.is_file() and is_verl_file(path, read_head(path))
    ]
    if len(files) == 1:
        return files[0]
    if not files:
        raise UsageError(
            f"`{folder}` holds no file of verl's file logger (looked for `*.jsonl` with rows "
            '`{"step": ..., "data": {...}}`)',
            "name the file that `VERL_FILE_LOGGER_PATH` was set to",
        )
    names = ", ".join(f"`{path.name}`" for path in files)
    raise UsageError(f"`{folder}` holds several runs of verl: {names}", "name one of the files")
