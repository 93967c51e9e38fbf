"""The curves of one run, read as its run.json says. Loads no pandas, so that a running job can."""

from __future__ import annotations

from pathlib import Path

from analysis.curve import Curve
from analysis.logged import read_logged
from analysis.metrics import is_metric_key
from analysis.series import live_curves
from analysis.sources.planned import read_planned
from harness.records.model import RunRecord


def read_curves(root: Path, record: RunRecord) -> dict[str, Curve]:
    """Return the live values of the run in the folder `root`, by canonical name.

    Never raises for what the run left behind; what can't be read isn't there.
    """
    mapped = frozenset(record.metrics_keys.values())
    read = read_planned(
        root / record.metrics,
        record.metrics_format,
        wanted=lambda key: key in mapped or is_metric_key(key),
        step_key=record.metrics_keys.get("step", "step"),
    )
    logged = read_logged(
        record.arm,
        record.seed,
        read.files,
        attempt_groups=read.attempt_groups,
        metrics_keys=record.metrics_keys,
        framework=read.framework,
    )
    return live_curves(logged.series)
