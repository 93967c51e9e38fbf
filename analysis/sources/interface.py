"""What every reader of metrics returns, and the builder that readers fill."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

NO_ATTEMPT = -1
"""Stands for the attempt of a row that names none."""

_MAX_LISTED_LINES = 5
_MAX_STEP = 2**62

Wanted = Callable[[str], bool]
"""Whether the values of a key are to be kept; keys that aren't are still listed."""

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeySeries:
    """What was logged under one key, in file order; all arrays are [num_rows].

    Attributes:
        steps: trainer steps.
        values: as logged; NaN or infinite where the trainer logged that.
        attempts: which attempt wrote the row, or `NO_ATTEMPT`.
        times: unix time of the row in s; NaN where it has none.
    """

    steps: IntArray
    values: FloatArray
    attempts: IntArray
    times: FloatArray


@dataclass(frozen=True)
class FileProvenance:
    """What was read from one file.

    Attributes:
        sha256: of the bytes that were read; empty when the file could not be read.
        num_bad_lines: lines that are no row (torn, not JSON, wrong number of cells).
        bad_lines: numbers of the first few of them, counted from 1.
        problem: why there is nothing at all from this file; empty otherwise.
    """

    path: str
    format: str
    size_bytes: int = 0
    sha256: str = ""
    num_rows: int = 0
    num_bad_lines: int = 0
    bad_lines: tuple[int, ...] = ()
    num_rows_without_step: int = 0
    problem: str = ""


@dataclass(frozen=True)
class MetricsFile:
    """The content of one metrics file.

    Attributes:
        series: by key, for the keys that were wanted.
        keys: every key that held a number.
        row_steps, row_attempts: of every row with a step, in file order.
    """

    provenance: FileProvenance
    series: dict[str, KeySeries]
    keys: frozenset[str]
    row_steps: IntArray
    row_attempts: IntArray


@dataclass(frozen=True)
class SourceRun:
    """One run as a source outside this project left it: what `analysis` knows of a foreign run.

    Attributes:
        label: what the source calls the run; shown, never used as a key.
        framework: whose keys it logs (`prime_rl`, `verl`, `trl`, ...); empty where it can't be
            told.
        files: in the order in which they were written. Rows without an attempt of their own belong
            to attempt `position + 1` of their file, so that a file that was written after a resume
            supersedes the steps it repeats. Files of processes that log different keys of the same
            attempt (trainer, orchestrator) have one `attempt_group`.
        attempt_groups: attempt number of each of `files`.
        config: resolved config, as nested plain JSON values; None where there is none.
        state: `finished`, `running`, `failed` or `unknown`, as the source says.
        max_steps: steps that the run was to make; None where nothing says.
        versions: name -> version or commit of what ran, where the source says.
        problems: what is odd about the source, one sentence each.
    """

    label: str
    framework: str
    files: tuple[MetricsFile, ...]
    attempt_groups: tuple[int, ...]
    config: Mapping[str, Any] | None = None
    state: str = "unknown"
    max_steps: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class SourceReader(Protocol):
    """Reads a run that lies at `path`, for the keys that are `wanted`.

    Bad content is counted or named in `problems`, never raised.

    Raises:
        UsageError: `path` holds no run of this kind, or several runs and no way to choose.
    """

    def __call__(self, path: Path, *, wanted: Wanted) -> SourceRun: ...


class Reader(Protocol):
    """Reads one metrics file. Bad content is counted, never raised."""

    def __call__(self, path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile: ...


def parse_value(value: Any) -> float | None:
    """Return a logged value as a float; None where it is no number at all.

    Trackers write what JSON has no number for as `null`, as a bare `NaN` or as a string: those
    come back as NaN or infinity. Numbers in strings are numbers; true and false are not.
    """
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def parse_step(value: Any) -> int | None:
    """Return a step as an int; None where it isn't a whole number."""
    number = None if value is None else parse_value(value)
    if number is None or not math.isfinite(number) or number != int(number):
        return None
    return int(number) if abs(number) < _MAX_STEP else None


class SeriesBuilder:
    """Collects rows into series; memory is bounded by the keys that are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._is_wanted: dict[str, bool] = {}
        self._columns: dict[str, tuple[array[int], array[float], array[int], array[float]]] = {}
        self._keys: set[str] = set()
        self._row_steps: array[int] = array("q")
        self._row_attempts: array[int] = array("q")
        self._num_rows = 0
        self._num_without_step = 0
        self._num_bad_lines = 0
        self._bad_lines: list[int] = []

    def add_bad_line(self, number: int) -> None:
        """Count line `number` (from 1) as one that is no row."""
        self._num_bad_lines += 1
        if len(self._bad_lines) < _MAX_LISTED_LINES:
            self._bad_lines.append(number)

    def add_row(self, row: Mapping[str, Any], *, step_key: str) -> None:
        """Add one logged row. One without a step is counted and otherwise left out."""
        self._num_rows += 1
        step = parse_step(row.get(step_key))
        if step is None:
            self._num_without_step += 1
            return
        attempt = parse_step(row.get("attempt"))
        attempt = NO_ATTEMPT if attempt is None else attempt
        time = parse_value(row.get("time"))
        time = math.nan if time is None else time
        self._row_steps.append(step)
        self._row_attempts.append(attempt)
        for key, raw in row.items():
            if key in (step_key, "attempt", "time"):
                continue
            if key not in self._is_wanted:
                self._is_wanted[key] = self._wanted(key)
            value = parse_value(raw)
            if value is None:
                continue
            self._keys.add(key)
            if self._is_wanted[key]:
                columns = self._columns.get(key)
                if columns is None:
                    columns = (array("q"), array("d"), array("q"), array("d"))
                    self._columns[key] = columns
                columns[0].append(step)
                columns[1].append(value)
                columns[2].append(attempt)
                columns[3].append(time)

    def build(self, path: Path, kind: str, *, size_bytes: int, sha256: str) -> MetricsFile:
        """Return what was collected from `path`, which a reader of format `kind` has read."""
        return MetricsFile(
            provenance=FileProvenance(
                path=str(path),
                format=kind,
                size_bytes=size_bytes,
                sha256=sha256,
                num_rows=self._num_rows,
                num_bad_lines=self._num_bad_lines,
                bad_lines=tuple(self._bad_lines),
                num_rows_without_step=self._num_without_step,
            ),
            series={
                key: KeySeries(
                    np.array(steps, dtype=np.int64),
                    np.array(values, dtype=np.float64),
                    np.array(attempts, dtype=np.int64),
                    np.array(times, dtype=np.float64),
                )
                for key, (steps, values, attempts, times) in self._columns.items()
            },
            keys=frozenset(self._keys),
            row_steps=np.array(self._row_steps, dtype=np.int64),
            row_attempts=np.array(self._row_attempts, dtype=np.int64),
        )


def empty_file(path: Path, kind: str, problem: str) -> MetricsFile:
    """Return what there is of a file that can't be read: nothing, and why."""
    none = np.array([], dtype=np.int64)
    return MetricsFile(
        FileProvenance(str(path), kind, problem=problem), {}, frozenset(), none, none
    )
