"""Token records of this project's runs: one Parquet file per recorded step of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.replay.sources.blocks import SUPERSEDED, Block, Tally
from analysis.replay.sources.columns import NO_COLUMNS
from analysis.replay.sources.parquet import open_parquet, parquet_part, unreadable
from analysis.replay.sources.source import Part
from analysis.sources.contents import entries
from harness.errors import HarnessError, UsageError
from harness.records.layout import RunPaths, SweepPaths
from harness.records.model import RunRecord, read_record

FORMAT = "harness_parquet"

METADATA_KEY = b"harness"
"""Key of the JSON object in the Parquet file's metadata; the trainer's writer has the same."""


@dataclass(frozen=True)
class SupersededPart:
    """A `Part` whose tokens a resumed run made anew: it is counted, not read."""

    path: Path
    format: str
    size_bytes: int
    num_rows: int
    num_tokens: int = 0
    probabilities: bool = False

    def blocks(self, tally: Tally) -> Iterator[Block]:
        tally.exclude(SUPERSEDED, self.num_rows)
        yield from ()

    def peek(self) -> Block | None:
        return None


def find_runs(folder: Path) -> list[Path]:
    """Return the run folders that `folder` is or holds: a run, an arm, all runs, or a sweep."""
    if RunPaths(folder).record.is_file():
        return [folder]
    if SweepPaths(folder).runs_dir.is_dir():
        folder = SweepPaths(folder).runs_dir
    arms = [folder, *(entry for entry in entries(folder) if entry.is_dir())]
    return [
        run
        for arm in arms
        for run in sorted(entries(arm), key=_seed)
        if run.name.startswith("seed_") and RunPaths(run).record.is_file()
    ]


def _seed(path: Path) -> tuple[int, str]:
    number = path.name.removeprefix("seed_")
    return (int(number) if number.isdecimal() else -1, path.name)


def tokens_of(run: Path) -> tuple[Path, str]:
    """Return where the run's token records lie, and their format; empty where unrecorded.

    Raises:
        UsageError: run.json can't be read, or names a place outside the run's folder.
    """
    try:
        record = read_record(RunRecord, RunPaths(run).record)
    except HarnessError as error:
        raise UsageError(error.message, error.hint) from error
    if record.tokens is None:
        return RunPaths(run).tokens_dir, ""
    relative = os.path.normpath(record.tokens)
    if Path(relative).is_absolute() or relative.startswith(".."):
        raise UsageError(
            f"`{RunPaths(run).record}`: `tokens` is `{record.tokens}`, outside the run's folder",
            "name the records themselves",
        )
    return run / relative, record.tokens_format or ""


def run_parts(files: list[Path]) -> tuple[list[Part], list[Mapping[str, Any]]]:
    """Return the files of one run, by step, and the losses that they were made with.

    A step that was recorded twice is one file, which the newer attempt replaced. A file of an
    older attempt that comes after a step of a newer one was made anew, or would have been: it is
    superseded.

    Raises:
        UsageError: a file can't be read, or isn't one of token records.
    """
    parts: list[Part] = []
    losses: list[Mapping[str, Any]] = []
    newest = 0
    found = []
    for path in files:
        part, metadata = parquet_part(path, NO_COLUMNS, None, format=FORMAT)
        said = _parse(metadata.get(METADATA_KEY, b""))
        step = said.get("step")
        found.append((step if type(step) is int else 0, path, part, said))
    for _, path, part, said in sorted(found, key=lambda one: (one[0], one[1])):
        attempt = _attempt(path)
        if attempt < newest:
            parts.append(SupersededPart(path, FORMAT, part.size_bytes, part.num_tokens))
            continue
        newest = attempt
        parts.append(part)
        loss = said.get("loss")
        if isinstance(loss, dict) and loss not in losses:
            losses.append(loss)
    return parts, losses


def is_record(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether a Parquet file with this metadata was written by the built-in trainer."""
    return METADATA_KEY in metadata


def _parse(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _attempt(path: Path) -> int:
    """Return the attempt that wrote the file; 0 where it doesn't say."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)

    try:
        with open_parquet(path) as file:
            if "attempt" not in file.schema_arrow.names:
                return 0
            batch = next(file.iter_batches(batch_size=1, columns=["attempt"]), None)
            value = None if batch is None or not len(batch) else batch.column(0)[0].as_py()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error
    return value if type(value) is int else 0
