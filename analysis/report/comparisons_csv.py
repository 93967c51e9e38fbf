"""comparisons.csv: one line per comparison, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.report.cells import Report
from harness.records.files import canonical_json

_FIRST = (
    "arm",
    "baseline",
    "name",
    "verdict",
    "detail",
    "rule",
    "scale",
    "effect",
    "low",
    "high",
    "p",
    "p_holm",
    "p_equivalent",
    "mde",
    "mde_low",
    "mde_high",
    "test",
    "num_arm",
    "num_baseline",
)


def render_comparisons_csv(report: Report) -> str:
    """Return every comparison of the report with all its fields, by their names in report.json.

    Fields within a field have both names with a dot between them; lists are JSON; an empty cell is
    a value that there isn't. The baseline of a replicate is its arm.
    """
    rows = [
        {"baseline": item.get("replicate_of") or report["baseline"], **dict(_flat(item))}
        for item in report["comparisons"]
    ]
    names = {name for row in rows for name in row}
    # What is null in one comparison and has fields in another needs no column of its own.
    names -= {name for name in names if any(other.startswith(f"{name}.") for other in names)}
    columns = [name for name in _FIRST if name in names or not rows]
    columns += sorted(names.difference(columns))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name) for name in columns] for row in rows)
    return buffer.getvalue()


def _flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in item.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", canonical_json(value).decode()
        else:
            yield f"{prefix}{name}", value
