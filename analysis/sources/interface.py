"""What every reader of metrics returns, and the builder that readers fill."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from analysis.curve import typical_spacing

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
        num_duplicates: values of the wanted keys that repeat the key, step and attempt of an
            earlier value.
        num_gaps: steps that no row has, between the first and the last one that rows have, at the
            typical spacing of steps.
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
    num_duplicates: int = 0
    num_gaps: int = 0


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
        state: `finished`, `running`, `failed`, `stopped` (by a rule) or `unknown`, as the source
            says.
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


def count_duplicates(series: Mapping[str, KeySeries]) -> int:
    """Return how many values repeat the key, step and attempt of an earlier value."""
    return sum(_count_repeats(one.steps, one.attempts) for one in series.values())


def _count_repeats(steps: IntArray, attempts: IntArray) -> int:
    if bool((steps[1:] > steps[:-1]).all()):
        return 0
    order = np.lexsort((attempts, steps))
    steps, attempts = steps[order], attempts[order]
    is_repeat = (steps[1:] == steps[:-1]) & (attempts[1:] == attempts[:-1])
    return int(np.count_nonzero(is_repeat))


def count_gaps(row_steps: IntArray) -> int:
    """Return how many steps are missing between the first and the last, at their spacing."""
    steps = np.unique(row_steps)
    spacing = min(typical_spacing(steps), _MAX_STEP)
    return int(np.maximum(np.diff(steps) // spacing - 1, 0).sum())


class _Column:
    """Numbers in the order in which they came: single ones, and whole arrays."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._parts: list[npt.NDArray[Any]] = []
        self._single: array[Any] = array(code)
        self.append = self._single.append

    def extend(self, numbers: npt.NDArray[Any]) -> None:
        if len(self._single):
            self._parts.append(np.array(self._single, dtype=self._code))
            del self._single[:]
        self._parts.append(numbers)

    def take(self) -> npt.NDArray[Any]:
        """Return everything as one array, and keep nothing."""
        single = np.array(self._single, dtype=self._code)
        parts, self._parts = [*self._parts, single], []
        del self._single[:]
        return np.concatenate(parts)


class SeriesBuilder:
    """Collects rows into series; memory is bounded by the keys that are wanted.

    A row has a number, by which the rows are ordered in the end: by default the order in which
    they are added.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._is_wanted: dict[str, bool] = {}
        self._rows = (_Column("q"), _Column("q"), _Column("q"), _Column("d"))
        self._columns: dict[str, tuple[_Column, _Column]] = {}
        self._keys: set[str] = set()
        self._num_rows = 0
        self._num_without_step = 0
        self._num_bad_lines = 0
        self._bad_lines: list[int] = []

    def add_bad_line(self, number: int) -> None:
        """Count line `number` (from 1) as one that is no row."""
        self._num_bad_lines += 1
        if len(self._bad_lines) < _MAX_LISTED_LINES:
            self._bad_lines.append(number)

    def is_wanted(self, key: str) -> bool:
        """Whether the values of `key` are kept."""
        if key not in self._is_wanted:
            self._is_wanted[key] = self._wanted(key)
        return self._is_wanted[key]

    def add_row(self, row: Mapping[str, Any], *, step_key: str, number: int | None = None) -> None:
        """Add one logged row. One without a step is counted and otherwise left out.

        Either all rows of a builder name their `number` or none does; no two have the same.
        """
        number = self._num_rows if number is None else number
        self._num_rows += 1
        step = parse_step(row.get(step_key))
        if step is None:
            self._num_without_step += 1
            return
        attempt = parse_step(row.get("attempt"))
        time = parse_value(row.get("time"))
        numbers, steps, attempts, times = self._rows
        numbers.append(number)
        steps.append(step)
        attempts.append(NO_ATTEMPT if attempt is None else attempt)
        times.append(math.nan if time is None else time)
        for key, raw in row.items():
            if key in (step_key, "attempt", "time"):
                continue
            value = parse_value(raw)
            if value is None:
                continue
            self._keys.add(key)
            if self.is_wanted(key):
                numbers, values = self._column(key)
                numbers.append(number)
                values.append(value)

    def add_rows(
        self,
        numbers: IntArray,
        steps: IntArray,
        attempts: IntArray,
        times: FloatArray,
        values: Sequence[tuple[str, FloatArray]],
    ) -> None:
        """Add rows with the same wanted keys, all of which were in a row that `add_row` got.

        All arrays are [num_rows]; `numbers` increase, and `values` holds wanted keys only.
        """
        self._num_rows += len(numbers)
        for column, cells in zip(self._rows, (numbers, steps, attempts, times), strict=True):
            column.extend(cells)
        for key, of_key in values:
            column, cells_of_key = self._column(key)
            column.extend(numbers)
            cells_of_key.extend(of_key)

    def add_rows_without_step(self, num_rows: int) -> None:
        """Count rows that have no step."""
        self._num_rows += num_rows
        self._num_without_step += num_rows

    def build(self, path: Path, kind: str, *, size_bytes: int, sha256: str) -> MetricsFile:
        """Return what was collected from `path`, which a reader of format `kind` has read.

        The builder is empty afterwards.
        """
        row_numbers, row_steps, row_attempts, row_times = self._take_rows()
        series: dict[str, KeySeries] = {}
        previous = np.array([], dtype=np.int64)
        of_rows = (row_steps[:0], row_attempts[:0], row_times[:0])
        for key in list(self._columns):
            numbers, values = (column.take() for column in self._columns.pop(key))
            if not _is_sorted(numbers):
                order = np.argsort(numbers, kind="stable")
                numbers, values = numbers[order], values[order]
            if not np.array_equal(numbers, previous):  # Keys of one row share what is the row's.
                places = np.searchsorted(row_numbers, numbers)
                of_rows = (row_steps[places], row_attempts[places], row_times[places])
                previous = numbers
            steps, attempts, times = of_rows
            series[key] = KeySeries(steps, values, attempts, times)
        provenance = FileProvenance(
            path=str(path),
            format=kind,
            size_bytes=size_bytes,
            sha256=sha256,
            num_rows=self._num_rows,
            num_bad_lines=self._num_bad_lines,
            bad_lines=tuple(self._bad_lines),
            num_rows_without_step=self._num_without_step,
            num_duplicates=count_duplicates(series),
            num_gaps=count_gaps(row_steps),
        )
        return MetricsFile(provenance, series, frozenset(self._keys), row_steps, row_attempts)

    def _column(self, key: str) -> tuple[_Column, _Column]:
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = (_Column("q"), _Column("d"))
        return columns

    def _take_rows(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        numbers, steps, attempts, times = (column.take() for column in self._rows)
        if _is_sorted(numbers):
            return numbers, steps, attempts, times
        order = np.argsort(numbers, kind="stable")
        return numbers[order], steps[order], attempts[order], times[order]


def _is_sorted(numbers: IntArray) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def empty_file(path: Path, kind: str, problem: str) -> MetricsFile:
    """Return what there is of a file that can't be read: nothing, and why."""
    none = np.array([], dtype=np.int64)
    return MetricsFile(
        FileProvenance(str(path), kind, problem=problem), {}, frozenset(), none, none
    )
