"""How long a plan will take, from finished runs on this machine. Printed, never stored."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.records.layout import SweepPaths
from harness.records.model import Exit, PlanRecord, RunRecord, read_record


@dataclass(frozen=True)
class Estimate:
    """Expected wall time of a plan in seconds, and how many finished runs it is based on."""

    duration_s: float
    num_finished_runs: int


def estimate_duration(
    plan: PlanRecord, paths: SweepPaths, num_missing: int, slots: int
) -> Estimate | None:
    """Return how long `num_missing` runs take on `slots` slots; None where nothing finished yet.

    The median seconds per step over finished runs of this sweep, else of all sweeps beside it that
    used the same trainer.
    """
    if num_missing == 0:
        return Estimate(0.0, 0)
    samples = _seconds_per_step(paths, plan.trainer)
    if not samples and paths.root.parent.is_dir():
        for other in sorted(paths.root.parent.iterdir()):
            samples += _seconds_per_step(SweepPaths(other), plan.trainer)
    if not samples:
        return None
    max_steps = max(run.max_steps for run in plan.runs)
    waves = -(-num_missing // max(1, slots))
    return Estimate(statistics.median(samples) * max_steps * waves, len(samples))


def _seconds_per_step(paths: SweepPaths, trainer: str) -> list[float]:
    samples = []
    for run in paths.runs():
        try:
            if read_record(RunRecord, run.record).trainer != trainer:
                continue
            attempts = run.attempts()
            if len(attempts) != 1 or not attempts[0].exit.is_file():
                continue
            ended = read_record(Exit, attempts[0].exit)
        except HarnessError:
            continue
        if ended.reason == "done" and ended.last_step:
            samples.append((ended.end - ended.start) / ended.last_step)
    return samples
