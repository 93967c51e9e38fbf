"""Parquet tables with one row per step: null is a value that wasn't logged, NaN one that was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.sources.columns import TableColumns
from analysis.sources.contents import hash_file
from analysis.sources.interface import (
    NO_ATTEMPT,
    BoolArray,
    FileProvenance,
    FloatArray,
    IntArray,
    KeySeries,
    MetricsFile,
    Wanted,
    count_duplicates,
    count_gaps,
    empty_file,
    parse_step,
    parse_value,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"PAR1"

_MAX_STEP = 2.0**62


def parquet_columns(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns, or none and why the file can't be read."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)
    import pyarrow.parquet as pq  # noqa: PLC0415 (the same)

    try:
        return list(pq.read_schema(path).names), ""
    except (pa.ArrowException, OSError, ValueError) as error:
        return [], _one_line(error)


def read_parquet(path: Path, *, wanted: Wanted, chosen: TableColumns) -> MetricsFile:
    """Return what the columns of `path` hold; columns that aren't wanted are never read.

    Columns of whole, decimal and floating numbers count, and columns of strings that hold numbers.
    A file that can't be read yields no rows and says why.
    """
    import pyarrow as pa  # noqa: PLC0415 (slow to import, and only needed for this format)
    import pyarrow.parquet as pq  # noqa: PLC0415 (the same)

    try:
        size_bytes, sha256 = hash_file(path)
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            special = {chosen.step, chosen.time, chosen.attempt} - {None}
            usable = [
                field.name
                for field in schema
                if _is_numeric(field.type) or _is_text(field.type) or field.name in special
            ]
            kept = [name for name in usable if name in special or wanted(name)]
            table = file.read(columns=kept)
    except (pa.ArrowException, OSError, ValueError) as error:
        return empty_file(path, "parquet", _one_line(error))
    steps, has_step = _steps(_column(table, chosen.step))
    attempts = _attempts(table, chosen.attempt)
    times = _times(table, chosen.time)
    series: dict[str, KeySeries] = {}
    keys = {
        field.name
        for field in schema
        if _is_numeric(field.type) and field.name not in (*special, *kept)
    }
    for name in kept:
        if name in special:
            continue
        values, is_logged = _values(_column(table, name))
        if is_logged.any():
            keys.add(name)
        here = is_logged & has_step
        if here.any():
            series[name] = KeySeries(steps[here], values[here], attempts[here], times[here])
    row_steps = steps[has_step]
    return MetricsFile(
        FileProvenance(
            path=str(path),
            format="parquet",
            size_bytes=size_bytes,
            sha256=sha256,
            num_rows=table.num_rows,
            num_rows_without_step=int(np.count_nonzero(~has_step)),
            num_duplicates=count_duplicates(series),
            num_gaps=count_gaps(row_steps),
        ),
        series,
        frozenset(keys),
        row_steps,
        attempts[has_step],
    )


def _one_line(error: Exception) -> str:
    return f"no readable Parquet file: {' '.join(str(error).split())}"


def _is_numeric(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds  # noqa: PLC0415 (slow to import)

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds  # noqa: PLC0415 (slow to import)

    if kinds.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _column(table: pa.Table, name: str) -> Any:
    """Return the first column of that name, as one array."""
    return table.column(table.schema.get_all_field_indices(name)[0]).combine_chunks()


def _values(column: Any) -> tuple[FloatArray, BoolArray]:
    """Return the numbers of a column, and which of its cells hold one, both [num_rows]."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)

    if _is_numeric(column.type):
        is_logged = np.asarray(column.is_valid())
        numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(numbers, dtype=np.float64), is_logged
    parsed = [None if cell is None else parse_value(cell) for cell in column.to_pylist()]
    is_logged = np.array([value is not None for value in parsed], dtype=np.bool_)
    values = [np.nan if value is None else value for value in parsed]
    return np.array(values, dtype=np.float64), is_logged


def _steps(column: Any) -> tuple[IntArray, BoolArray]:
    """Return the steps, and which rows have one: only whole numbers are steps."""
    import pyarrow.types as kinds  # noqa: PLC0415 (slow to import)

    if kinds.is_integer(column.type):
        # Not by way of a float, which would round large steps.
        parsed = [parse_step(cell) for cell in column.to_pylist()]
        has_step = np.array([step is not None for step in parsed], dtype=np.bool_)
        return np.array([step or 0 for step in parsed], dtype=np.int64), has_step
    values, has_step = _values(column)
    has_step = has_step & np.isfinite(values)
    has_step = has_step & (np.abs(values, where=has_step, out=np.zeros_like(values)) < _MAX_STEP)
    whole = np.where(has_step, values, 0.0)
    has_step = has_step & (whole == np.floor(whole))
    return np.where(has_step, whole, 0.0).astype(np.int64), has_step


def _attempts(table: pa.Table, name: str | None) -> IntArray:
    if name is None:
        return np.full(table.num_rows, NO_ATTEMPT, dtype=np.int64)
    attempts, is_there = _steps(_column(table, name))
    return np.where(is_there, attempts, NO_ATTEMPT)


def _times(table: pa.Table, name: str | None) -> FloatArray:
    """Return unix times in s; NaN where a row has none."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)
    import pyarrow.types as kinds  # noqa: PLC0415 (the same)

    if name is None:
        return np.full(table.num_rows, np.nan)
    column = _column(table, name)
    if kinds.is_timestamp(column.type):
        microseconds = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        values, is_there = _values(microseconds.cast(pa.int64()))
        return np.where(is_there, values / 1e6, np.nan)
    values, is_there = _values(column)
    return np.where(is_there, values, np.nan)
