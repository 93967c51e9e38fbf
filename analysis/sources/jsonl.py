"""JSON lines: one object per line, with a step; rows of a step are merged by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.sources.interface import MetricsFile, SeriesBuilder, Wanted

Row = dict[str, Any]


def read_jsonl(path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile:
    """Return the rows of `path`. A line that is no JSON object is counted, wherever it stands."""
    return read_json_rows(path, "jsonl", wanted=wanted, step_key=step_key, clean=lambda row: row)


def read_json_rows(
    path: Path, kind: str, *, wanted: Wanted, step_key: str, clean: Callable[[Row], Row]
) -> MetricsFile:
    """Read `path` line by line; `clean` may take keys out of a row before it is kept.

    The hash covers exactly the bytes that were parsed, so that a file that a trainer is still
    appending to has a true one, too.
    """
    builder = SeriesBuilder(wanted)
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            digest.update(line)
            size_bytes += len(line)
            if not line.strip():
                continue
            row = _parse_line(line)
            if row is None:
                builder.add_bad_line(number)
            else:
                builder.add_row(clean(row), step_key=step_key)
    return builder.build(path, kind, size_bytes=size_bytes, sha256=digest.hexdigest())


def _parse_line(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
