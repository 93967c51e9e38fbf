"""CSV with a header line that names a step column; an empty cell is a value that wasn't logged.

Cells may be separated by commas, tabs or semicolons: by the one that sets a step column apart in
the header, else by the one that the header has most of.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.sources.columns import STEP_COLUMNS
from analysis.sources.interface import MetricsFile, SeriesBuilder, Wanted, empty_file

_BOM = b"\xef\xbb\xbf"
_DELIMITERS = ",\t;"

Row = dict[str, Any]


def read_csv(
    path: Path,
    *,
    wanted: Wanted,
    step_key: str,
    clean: Callable[[Row], Row] = lambda row: row,
) -> MetricsFile:
    """Return the rows of `path`. A line with another number of cells than the header is bad.

    A file whose header lacks `step_key`, or isn't text, yields no rows and says why. `clean` may
    rename the keys of a row before it is kept.
    """
    builder = SeriesBuilder(wanted)
    with path.open("rb") as file:
        lines = _Lines(iter(file))
        try:
            _read_lines(lines, builder, step_key, clean)
        except UnicodeDecodeError as error:
            return empty_file(path, "csv", f"not UTF-8 text (byte {lines.start + error.start})")
        except csv.Error as error:
            return empty_file(path, "csv", f"line {lines.number}: {error}")
        except _NoStepColumn as error:
            return empty_file(path, "csv", str(error))
    return builder.build(path, "csv", size_bytes=lines.size_bytes, sha256=lines.digest.hexdigest())


def csv_header(head: bytes) -> list[str]:
    """Return the cells of the header line that `head`, the first bytes of a file, begins with.

    Empty where there is none, or it isn't UTF-8 text.
    """
    line = head.removeprefix(_BOM).split(b"\n", 1)[0]
    try:
        text = line.decode()
        cells = next(csv.reader([text], delimiter=_delimiter(text)), [])
    except (UnicodeDecodeError, csv.Error):
        return []
    return [cell.strip() for cell in cells]


class _NoStepColumn(Exception):
    """The header names no step column."""


class _Lines:
    """The decoded lines of a file, hashed as they are read.

    Attributes:
        start: offset in bytes of the newest line; `number` counts it from 1.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.digest = hashlib.sha256()
        self.size_bytes = 0
        self.start = 0
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.digest.update(line)
        self.start = self.size_bytes
        self.size_bytes += len(line)
        self.number += 1
        if self.number == 1 and line.startswith(_BOM):
            self.start += len(_BOM)
            line = line.removeprefix(_BOM)
        return line.decode()


def _read_lines(
    lines: _Lines, builder: SeriesBuilder, step_key: str, clean: Callable[[Row], Row]
) -> None:
    first = next(lines, None)
    if first is None:
        return
    delimiter = _delimiter(first)
    header = [cell.strip() for cell in next(csv.reader([first], delimiter=delimiter), [])]
    if step_key not in header:
        raise _NoStepColumn(f"the header has no column `{step_key}`")
    end = lines.number
    for cells in csv.reader(lines, delimiter=delimiter):
        # A quote that isn't closed takes in the lines after it.
        begin, end = end + 1, lines.number
        if not cells:
            continue
        if len(cells) != len(header):
            builder.add_bad_line(begin)
            continue
        row = {key: text for key, cell in zip(header, cells, strict=True) if (text := cell.strip())}
        builder.add_row(clean(row), step_key=step_key)


def _delimiter(header: str) -> str:
    for delimiter in _DELIMITERS:
        cells = {cell.strip() for cell in next(csv.reader([header], delimiter=delimiter), [])}
        if len(cells) > 1 and not cells.isdisjoint(STEP_COLUMNS):
            return delimiter
    return max(_DELIMITERS, key=header.count)
