"""Tables of metrics that no framework in particular wrote: CSV, JSON lines and Parquet.

Which column is the step is mapped or guessed (`analysis.sources.columns`); which columns are which
metric is resolved later, by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from analysis.sources.columns import (
    NOT_METRICS,
    STEP_COLUMNS,
    TableColumns,
    choose_columns,
    guess_framework,
)
from analysis.sources.contents import head_rows, is_text, read_head
from analysis.sources.csv_table import csv_header, read_csv
from analysis.sources.interface import MetricsFile, SourceRun, Wanted, empty_file
from analysis.sources.jsonl import read_json_rows
from analysis.sources.parquet import MAGIC, parquet_columns, read_parquet
from harness.errors import UsageError


class TableReader(Protocol):
    """Reads a run from the table `path`, whose columns are named by `columns` where it maps them.

    Bad content is counted or named in `problems`, never raised.

    Raises:
        UsageError: the table lacks a mapped column, or a step column.
    """

    def __call__(self, path: Path, *, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun: ...


def is_csv(path: Path, head: bytes | None) -> bool:
    """Whether `head` is text whose first line names several columns, the step among them."""
    if head is None or not is_text(head):
        return False
    header = csv_header(head)
    return len(header) > 1 and any(name in header for name in STEP_COLUMNS)


def is_jsonl(path: Path, head: bytes | None) -> bool:
    """Whether a line of `head` is a JSON object."""
    return head is not None and is_text(head) and bool(head_rows(head))


def is_parquet(path: Path, head: bytes | None) -> bool:
    """Whether `head` begins like Parquet."""
    return head is not None and head.startswith(MAGIC)


def read_csv_run(path: Path, *, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun:
    """Return the run in the CSV file `path`. Raises UsageError, see `TableReader`."""
    _refuse_folder(path)
    try:
        header = csv_header(read_head(path))
        if not header:
            return _to_run(path, read_csv(path, wanted=wanted, step_key="step"), None)
        chosen = choose_columns(path, header, columns)
        file = read_csv(path, wanted=wanted, step_key=chosen.step, clean=chosen.renamer())
    except OSError as error:
        return _to_run(path, _unreadable(path, "csv", error), None)
    twice = sorted({name for name in header if header.count(name) > 1})
    problems = tuple(
        f"the header names `{name}` several times: the last column counts" for name in twice
    )
    return _to_run(path, file, chosen, problems)


def read_jsonl_run(path: Path, *, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun:
    """Return the run in the JSON lines of `path`. Raises UsageError, see `TableReader`."""
    _refuse_folder(path)
    try:
        keys = dict.fromkeys(key for row in head_rows(read_head(path)) for key in row)
        # A column may begin far down in the file: only step, time and attempt are looked for here.
        special = {name: columns[name] for name in NOT_METRICS if name in columns}
        chosen = choose_columns(path, list(keys), special) if keys else None
        file = read_json_rows(
            path,
            "jsonl",
            wanted=wanted,
            step_key=chosen.step if chosen else "step",
            clean=chosen.renamer() if chosen else (lambda row: row),
        )
    except OSError as error:
        return _to_run(path, _unreadable(path, "jsonl", error), None)
    if file.provenance.num_rows:
        others = {name: column for name, column in columns.items() if name not in NOT_METRICS}
        choose_columns(path, [*sorted(file.keys), *NOT_METRICS], others)
    return _to_run(path, file, chosen)


def read_parquet_run(path: Path, *, wanted: Wanted, columns: Mapping[str, str]) -> SourceRun:
    """Return the run in the Parquet file `path`. Raises UsageError, see `TableReader`."""
    _refuse_folder(path)
    names, problem = parquet_columns(path)
    if problem:
        return _to_run(path, empty_file(path, "parquet", problem), None)
    chosen = choose_columns(path, names, columns)
    return _to_run(path, read_parquet(path, wanted=wanted, chosen=chosen), chosen)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"`{path}` is a folder, want a table in a file", "name the file")


def _unreadable(path: Path, kind: str, error: OSError) -> MetricsFile:
    return empty_file(path, kind, f"can't be read: {error.strerror or error}")


def _to_run(
    path: Path,
    file: MetricsFile,
    chosen: TableColumns | None,
    problems: tuple[str, ...] = (),
) -> SourceRun:
    num_rows, num_lost = file.provenance.num_rows, file.provenance.num_rows_without_step
    if chosen and 0 < num_lost < num_rows:
        lost = f"{num_lost} of {num_rows} rows have no whole number as `{chosen.step}`"
        problems = (*problems, f"{lost}: they are left out")
    return SourceRun(
        label=path.stem,
        framework=guess_framework(file.keys),
        files=(file,),
        attempt_groups=(1,),
        problems=(*(chosen.problems if chosen else ()), *problems),
    )
