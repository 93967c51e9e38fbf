"""How long a plan will take, from finished runs on this machine. Printed, never stored."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.records.layout import SweepPaths
from harness.records.model import Exit, PlanRecord, RunRecord, read_record

_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Estimate:
    """Expected wall time of a plan in seconds, and how many finished runs it is based on."""

    duration_s: float
    num_finished_runs: int


@dataclass(frozen=True)
class _Sample:
    """A finished run: seconds that don't depend on its length, and seconds per step."""

    start_up_s: float
    step_s: float


def estimate_duration(
    plan: PlanRecord, paths: SweepPaths, num_missing: int, slots: int
) -> Estimate | None:
    """Return how long `num_missing` runs take on `slots` slots; None where nothing finished yet.

    Start-up and speed are medians over finished runs of this sweep, else of all sweeps beside it
    that used the same trainer.
    """
    if num_missing == 0:
        return Estimate(0.0, 0)
    samples = _read_samples(paths, plan.trainer)
    if not samples and paths.root.parent.is_dir():
        for other in sorted(paths.root.parent.iterdir()):
            samples += _read_samples(SweepPaths(other), plan.trainer)
    if not samples:
        return None
    max_steps = max(run.max_steps for run in plan.runs)
    run_s = statistics.median(s.start_up_s for s in samples)
    run_s += max_steps * statistics.median(s.step_s for s in samples)
    waves = -(-num_missing // max(1, slots))
    return Estimate(run_s * waves, len(samples))


def _read_samples(paths: SweepPaths, trainer: str) -> list[_Sample]:
    samples = []
    for run in paths.runs():
        try:
            record = read_record(RunRecord, run.record)
            if record.trainer != trainer:
                continue
            attempts = run.attempts()
            if len(attempts) != 1 or not attempts[0].exit.is_file():
                continue
            ended = read_record(Exit, attempts[0].exit)
        except HarnessError:
            continue
        if ended.reason != "done" or not ended.last_step:
            continue
        duration_s = ended.end - ended.start
        step_s = _seconds_per_step(run.root / record.metrics) or duration_s / ended.last_step
        samples.append(_Sample(duration_s - step_s * ended.last_step, step_s))
    return samples


def _seconds_per_step(metrics: Path) -> float | None:
    """Return the time between the first and the last row per step; None where rows lack times."""
    try:
        with metrics.open("rb") as file:
            first = json.loads(file.readline())
            file.seek(max(0, metrics.stat().st_size - _TAIL_BYTES))
            last = json.loads(file.read().splitlines()[-1])
        num_steps = last["step"] - first["step"]
        return (last["time"] - first["time"]) / num_steps if num_steps > 0 else None
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None
