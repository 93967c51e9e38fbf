"""runs.csv: one line per run, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io
from typing import Any

from analysis.report.cells import Report

_FACTS = ("arm", "seed", "state", "last_step", "max_steps", "num_attempts")
_ENDS = (
    "peak_kl",
    "peak_kl_step",
    "baseline_explosion_step",
    "num_superseded_steps",
    "start",
    "end",
    "wall_s",
    "steps_per_s",
    "gpu_hours",
    "lost_gpu_hours",
    "rule",
    "rule_step",
    "unspent_gpu_hours",
    "hosts",
    "processors",
    "error",
    "foreign",
    "identity",
)
_FIRST_EVENTS = ("exploded", "collapsed")


def render_runs_csv(report: Report) -> str:
    """Return every run of the report; an empty cell is a value that there isn't.

    A metric's column is its mean over the final window; an event has one column for its state and
    one for its step.
    """
    runs = report["runs"]
    names = sorted({name for run in runs for name in run["metrics"]})
    events = _events(runs)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    event_columns = [f"{event}{suffix}" for event in events for suffix in ("", "_step")]
    writer.writerow([*_FACTS, *names, *event_columns, *_ENDS])
    for run in runs:
        metrics = [run["metrics"].get(name, {}).get("mean") for name in names]
        happened = [run[event][field] for event in events for field in ("state", "step")]
        writer.writerow(
            [
                *(run[name] for name in _FACTS),
                *metrics,
                *happened,
                *(_text(run[name]) for name in _ENDS),
            ]
        )
    return buffer.getvalue()


def _events(runs: list[dict[str, Any]]) -> list[str]:
    """Return the fields of a run that say whether something happened, and at which step."""
    found = {
        name
        for run in runs
        for name, value in run.items()
        if isinstance(value, dict) and {"state", "step"} <= value.keys()
    }
    return [*_FIRST_EVENTS, *sorted(found.difference(_FIRST_EVENTS))]


def _text(value: Any) -> Any:
    return "; ".join(filter(None, value)) if isinstance(value, list) else value
