"""What a solve rate costs: steps, tokens, hours and GPU-hours until runs reach it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curve import Curve, trailing_means
from analysis.runs import Run
from analysis.summary import ArmSummary
from harness.records.model import AnalysisSpec

TARGET_SHARE = 0.9
"""The target is this share of the highest mean solve rate that an arm ends at."""


@dataclass(frozen=True)
class Reached:
    """How one run came to the target.

    Attributes:
        step: end of the first window whose mean solve rate is at the target or above; None where
            there is none.
        tokens, hours, gpu_hours: that the run had behind it there; None where nothing tells.
    """

    step: int | None
    tokens: float | None = None
    hours: float | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True)
class ArmCost:
    """What an arm took.

    Attributes:
        hours, gpu_hours, lost_gpu_hours: over all attempts of all runs.
        num_reached: judged runs (finished ones, and those that a rule stopped) that reached the
            target, of `num_runs`; `num_kept` of them did not collapse later.
        median_step, median_tokens, median_hours, median_gpu_hours: over the judged runs, where
            one that never reached the target counts as beyond all others; None where the median is
            such a run, or nothing tells.
    """

    arm: str
    hours: float
    gpu_hours: float
    lost_gpu_hours: float
    num_reached: int
    num_kept: int
    num_runs: int
    median_step: float | None
    median_tokens: float | None
    median_hours: float | None
    median_gpu_hours: float | None


def cost_target(arms: Sequence[ArmSummary]) -> float | None:
    """Return the solve rate that costs are told for; None where no arm has a final mean."""
    means = [arm.means["solve_rate"].mean for arm in arms if "solve_rate" in arm.means]
    return TARGET_SHARE * max(means) if means and max(means) > 0 else None


def arm_cost(arm: ArmSummary, target: float | None, spec: AnalysisSpec) -> ArmCost:
    """Return what `arm` took, and took to reach `target`.

    The windows are the `collapse_window` of `spec`.
    """
    runs = [summary.run for summary in arm.runs]
    judged = [summary.run for summary in arm.judged]
    found = [] if target is None else [reach(run, target, spec.collapse_window) for run in judged]
    return ArmCost(
        arm=arm.arm,
        hours=sum(run.time.wall_s or 0.0 for run in runs) / 3600,
        gpu_hours=sum(run.time.gpu_hours for run in runs),
        lost_gpu_hours=sum(run.time.lost_gpu_hours for run in runs),
        num_reached=sum(item.step is not None for item in found),
        num_kept=sum(
            item.step is not None and summary.collapsed.step is None
            for item, summary in zip(found, arm.judged if found else (), strict=True)
        ),
        num_runs=len(judged),
        median_step=_median([item.step for item in found], found),
        median_tokens=_median([item.tokens for item in found], found),
        median_hours=_median([item.hours for item in found], found),
        median_gpu_hours=_median([item.gpu_hours for item in found], found),
    )


def reach(run: Run, target: float, window: int) -> Reached:
    """Return where the mean solve rate of `run` over `window` steps first comes to `target`."""
    curve = run.curve("solve_rate")
    if curve is None:
        return Reached(None)
    means = trailing_means(curve, window)
    means = means.within(int(curve.steps[0]) + window - 1, int(curve.steps[-1]))
    places = np.flatnonzero(means.values >= target)
    if not len(places):
        return Reached(None)
    step = int(means.steps[places[0]])
    tokens = run.curve("tokens")
    seconds, whole = _at(run.clock, step), run.clock.values[-1] if len(run.clock) else 0.0
    hours = None if seconds is None else seconds / 3600
    # Steps made twice count in the run's GPU-hours; its own share of them is what the clock says.
    share = None if seconds is None or not whole > 0 else seconds / float(whole)
    used = run.time.gpu_hours - run.time.lost_gpu_hours
    return Reached(
        step,
        tokens=None if tokens is None else _at(tokens, step),
        hours=hours,
        gpu_hours=share * used if share is not None and used > 0 else None,
    )


def _at(curve: Curve, step: int) -> float | None:
    """Return the newest value up to `step`, of a curve that only grows."""
    place = int(np.searchsorted(curve.steps, step, side="right")) - 1
    return float(curve.values[place]) if place >= 0 else None


def _median(values: Sequence[float | None], found: Sequence[Reached]) -> float | None:
    """Return the median, runs that never got there last; None where that is one of those."""
    known = [v for v, item in zip(values, found, strict=True) if item.step is not None]
    if not known or any(value is None for value in known):
        return None
    whole = [*(float(v) for v in known if v is not None), *[math.inf] * (len(found) - len(known))]
    middle = statistics.median(whole)
    return middle if math.isfinite(middle) else None
