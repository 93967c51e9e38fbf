"""CSV with a header line that names a step column; an empty cell is a value that wasn't logged."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

from analysis.sources.interface import MetricsFile, SeriesBuilder, Wanted, empty_file


def read_csv(path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile:
    """Return the rows of `path`. A line with another number of cells than the header is bad.

    A file whose header lacks `step_key`, or isn't text, yields no rows and says why.
    """
    content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        return empty_file(path, "csv", f"not UTF-8 text (byte {error.start})")
    try:
        builder = _read_lines(lines, wanted, step_key)
    except (csv.Error, _NoStepColumn) as error:
        return empty_file(path, "csv", str(error))
    digest = hashlib.sha256(content).hexdigest()
    return builder.build(path, "csv", size_bytes=len(content), sha256=digest)


class _NoStepColumn(Exception):
    """The header names no step column."""


def _read_lines(lines: list[str], wanted: Wanted, step_key: str) -> SeriesBuilder:
    builder = SeriesBuilder(wanted)
    reader = csv.reader(lines)
    header = [cell.strip() for cell in next(reader, [])]
    if lines and step_key not in header:
        raise _NoStepColumn(f"the header has no column `{step_key}`")
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            builder.add_bad_line(reader.line_num)
            continue
        row = {key: cell.strip() for key, cell in zip(header, cells, strict=True)}
        builder.add_row({key: cell for key, cell in row.items() if cell}, step_key=step_key)
    return builder
