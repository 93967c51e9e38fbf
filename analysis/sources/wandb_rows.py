"""Rows of wandb's history as series, whichever way they came: from a log file or over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.sources.columns import STEP_COLUMNS, UNDERSCORE_STEP
from analysis.sources.interface import MetricsFile, SeriesBuilder, Wanted, parse_step

CALL_STEP = "_step"
"""wandb's own counter: of calls, unless the trainer sets it."""

CALL_TIME = "_timestamp"

STEP_KEYS = (*(name for name in STEP_COLUMNS if name != CALL_STEP), "train/global_step")
"""Keys that trainers log their own step under, in order of preference."""

Row = Mapping[str, Any]


def needed_columns(wanted: Wanted) -> Wanted:
    """Return `wanted`, or what a row needs to have a step, a time and an attempt."""
    always = {CALL_STEP, CALL_TIME, "attempt", *STEP_KEYS}
    return lambda key: key in always or wanted(key)


def is_metric(key: str) -> bool:
    """Whether a key of a history row is the trainer's own: wandb's begin with an underscore."""
    return not key.startswith("_")


def choose_step_key(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the key that holds the trainer's step in `rows`, and what is odd about it.

    It is the first of `STEP_KEYS` that at least half of the rows have, else the one that most
    have. Where it never differs from `_step`, the trainer sets `_step` itself, and rows without
    the key have a step, too.
    """
    counts = {
        key: sum(parse_step(row.get(key)) is not None for row in rows if key in row)
        for key in STEP_KEYS
    }
    most = max(counts, key=lambda key: counts[key])
    if counts[most] == 0:
        return CALL_STEP, UNDERSCORE_STEP
    common = [key for key in STEP_KEYS if 2 * counts[key] >= len(rows)]
    chosen = common[0] if common else most
    if counts[chosen] < len(rows) and all(
        parse_step(row[chosen]) == parse_step(row.get(CALL_STEP)) for row in rows if chosen in row
    ):
        return CALL_STEP, ""
    return chosen, ""


def add_rows(builder: SeriesBuilder, rows: Iterable[Row], *, step_key: str) -> None:
    """Add rows of wandb's history to `builder`: their time is `_timestamp`."""
    for row in rows:
        clean = {key: value for key, value in row.items() if is_metric(key) and key != "time"}
        clean[step_key] = row.get(step_key)
        clean["time"] = row.get(CALL_TIME)
        builder.add_row(clean, step_key=step_key)


def build_series(
    rows: Sequence[Row],
    *,
    wanted: Wanted,
    path: Path,
    kind: str,
    size_bytes: int = 0,
    sha256: str = "",
    bad_records: Sequence[int] = (),
) -> tuple[MetricsFile, str]:
    """Return the series of one log or one run, and what is odd about its step."""
    step_key, problem = choose_step_key(rows)
    builder = SeriesBuilder(wanted)
    add_rows(builder, rows, step_key=step_key)
    for number in bad_records:
        builder.add_bad_line(number)
    return builder.build(path, kind, size_bytes=size_bytes, sha256=sha256), problem if rows else ""
