"""prime-rl's file monitor, which the built-in trainer writes, too.

Several rows per step; trainer and orchestrator append to one file; newer files name the producer
of a row and have rows without a step. Non-finite values are not in the rows at all: a metric that
stops while others go on is what a diverged run looks like (`analysis.events`).
"""

from __future__ import annotations

from pathlib import Path

from analysis.sources.interface import MetricsFile, Wanted
from analysis.sources.jsonl import Row, read_json_rows

_LOGGED_BY_BOTH = ("time/step", "time/save_ckpt")
_TRAINER_PREFIXES = ("mismatch_kl/", "loss/", "optim/", "perf/", "entropy/")
_ORCHESTRATOR_PREFIXES = ("train/", "eval/", "progress/", "batch/", "dispatcher/", "off_policy/")


def read_prime_rl(path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile:
    """Return the rows of a prime-rl `metrics.jsonl`.

    `time/step` and `time/save_ckpt` are logged by both processes and mean different things: those
    of the orchestrator are left out.
    """
    return read_json_rows(
        path, "prime_rl", wanted=wanted, step_key=step_key, clean=_drop_orchestrator_times
    )


def _drop_orchestrator_times(row: Row) -> Row:
    if not any(key in row for key in _LOGGED_BY_BOTH) or not _is_orchestrator_row(row):
        return row
    return {key: value for key, value in row.items() if key not in _LOGGED_BY_BOTH}


def _is_orchestrator_row(row: Row) -> bool:
    producer = row.get("producer")
    if isinstance(producer, str):
        return producer == "orchestrator"
    if any(key.startswith(_TRAINER_PREFIXES) for key in row):
        return False
    return any(key.startswith(_ORCHESTRATOR_PREFIXES) for key in row)
