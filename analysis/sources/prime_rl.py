"""prime-rl's file monitor, which the built-in trainer writes, too.

Several rows per step; trainer and orchestrator append to one file; newer files name the producer
of a row and have rows without a step. Non-finite values are not in the rows at all: a metric that
stops while others go on is what a diverged run looks like (`analysis.events`).
"""

from __future__ import annotations

from pathlib import Path

from analysis.sources.interface import MetricsFile, Wanted
from analysis.sources.jsonl import Row, read_json_rows

TRAINER_PREFIXES = (
    "mismatch_kl/",
    "loss/",
    "optim/",
    "perf/",
    "entropy/",
    "is_masked/",
    "time/forward_backward",
    "time/wait_for_batch",
    "time/load_data",
    "time/broadcast_weights",
)
"""Keys of rows that the trainer wrote, where rows don't name their producer."""

_ORCHESTRATOR_PREFIXES = (
    "train/",
    "eval/",
    "progress/",
    "batch/",
    "dispatcher/",
    "off_policy/",
    "reward/",
    "solve_none/",
    "solve_all/",
    "seq_len/",
    "inference/",
    "curriculum/",
    "sampler/",
    "time/pack",
    "time/wait_for_policy",
)


def read_prime_rl(path: Path, *, wanted: Wanted, step_key: str) -> MetricsFile:
    """Return the rows of a prime-rl `metrics.jsonl`.

    `time/step` and `time/save_ckpt` are logged by both processes and mean different things: those
    of the orchestrator are left out.
    """
    return read_json_rows(
        path, "prime_rl", wanted=wanted, step_key=step_key, clean=_drop_orchestrator_times
    )


def _drop_orchestrator_times(row: Row) -> Row:
    if "time/step" not in row and "time/save_ckpt" not in row:
        return row
    if _is_trainer_row(row):
        return row
    return {k: v for k, v in row.items() if k not in ("time/step", "time/save_ckpt")}


def _is_trainer_row(row: Row) -> bool:
    producer = row.get("producer")
    if isinstance(producer, str):
        return producer.startswith("trainer")
    if any(key.startswith(TRAINER_PREFIXES) for key in row):
        return True
    return not any(key.startswith(_ORCHESTRATOR_PREFIXES) for key in row)
