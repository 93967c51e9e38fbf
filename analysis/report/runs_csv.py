"""runs.csv: one line per run, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io

from analysis.report.cells import Report

_FACTS = ("arm", "seed", "state", "last_step", "max_steps", "num_attempts")
_ENDS = (
    "peak_kl",
    "peak_kl_step",
    "start",
    "end",
    "wall_s",
    "steps_per_s",
    "gpu_hours",
    "lost_gpu_hours",
    "identity",
)


def render_runs_csv(report: Report) -> str:
    """Return every run of the report; an empty cell is a value that there isn't."""
    names = sorted({name for run in report["runs"] for name in run["metrics"]})
    events = ("exploded", "collapsed")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    event_columns = [f"{event}{suffix}" for event in events for suffix in ("", "_step")]
    writer.writerow([*_FACTS, *names, *event_columns, *_ENDS])
    for run in report["runs"]:
        metrics = [run["metrics"].get(name, {}).get("mean") for name in names]
        happened = [run[event][field] for event in events for field in ("state", "step")]
        writer.writerow(
            [
                *(run[name] for name in _FACTS),
                *metrics,
                *happened,
                *(run[name] for name in _ENDS),
            ]
        )
    return buffer.getvalue()
