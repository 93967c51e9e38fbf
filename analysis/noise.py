"""Seed noise of other sweeps, laid around the effect of one run against one: never a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.metrics import metric_spec
from analysis.runs import Run
from analysis.statistics import spread
from analysis.summary import on_scale
from analysis.windows import FinalWindow, final_window, window_mean
from harness.records.model import AnalysisSpec


@dataclass(frozen=True)
class SeedNoise:
    """How far runs of one arm that differ in their seed lie apart.

    Attributes:
        sd: of a run's window mean on the metric's comparison scale (logs, for ratios), pooled
            within arms.
        df: its degrees of freedom: runs - arms.
        label: where it comes from, for the reader.
    """

    sd: float
    df: int
    label: str = ""


@dataclass(frozen=True)
class NoiseInterval:
    """Where the effect of one run against one would lie by the seed noise of other sweeps.

    `low` and `high` are on the scale of the comparison's effect; the rest as in `SeedNoise`.
    """

    low: float
    high: float
    sd: float
    df: int
    label: str


def seed_noise(
    arms: Sequence[Sequence[Run]], metric: str, spec: AnalysisSpec, *, label: str = ""
) -> SeedNoise | None:
    """Return the seed noise of `metric` over the finished runs of `arms` of other sweeps.

    Args:
        arms: the runs of one arm of one sweep each; runs of different arms are never mixed. A
            run's value is its mean over the last `spec.last_steps` steps that its arm's finished
            runs have in common.

    Returns:
        None where no arm has two runs with a value, and where the noise is beyond floats.
    """
    squares: list[tuple[float, int]] = []
    for runs in arms:
        values = _values(runs, metric, spec)
        if len(values) >= 2:
            squares.append((spread(values), len(values) - 1))
    df = sum(part for _, part in squares)
    if not df:
        return None
    sd = math.hypot(*(found * math.sqrt(part / df) for found, part in squares))
    return SeedNoise(sd, df, label) if math.isfinite(sd) else None


def paired_noise(
    arms: Sequence[Sequence[Run]], metric: str, spec: AnalysisSpec, *, label: str = ""
) -> SeedNoise | None:
    """Return how far differences between runs of equal seed lie apart in one sweep.

    The residuals of arm + seed, times the square root of 2, are the spread of paired differences
    pooled over all pairs of arms, each run counted once; of two arms it is the standard deviation
    of their differences.

    Args:
        arms: the runs of each arm of one sweep whose seeds pair runs. A run's value is its mean
            over the last `spec.last_steps` steps that all finished ones have in common.

    Returns:
        None where no two pairs have values, and where the noise is beyond floats.
    """
    runs = [run for arm in arms for run in arm]
    window = final_window(runs, spec.last_steps)
    if window is None:
        return None
    found = [(run, value) for run in runs if (value := _value(run, metric, window)) is not None]
    if not found:
        return None
    values = np.array([value for _, value in found])
    rows = [[run.arm for run, _ in found], [run.seed for run, _ in found]]
    columns = [np.equal.outer(row, np.unique(row)) for row in map(np.asarray, rows)]
    design = np.hstack(columns).astype(np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    df = len(values) - int(rank)
    if not df:
        return None
    off = values - design @ fitted
    is_rounding = float(np.abs(off).max()) < 1e-12 * float(np.abs(values).max())
    sd = 0.0 if is_rounding else math.sqrt(2 * float(off @ off) / df)
    return SeedNoise(sd, df, label) if math.isfinite(sd) else None


def noise_interval(
    effect: float, noise: SeedNoise, num_arm: int, num_baseline: int, alpha: float
) -> tuple[float, float]:
    """Return the ends of effect +- t(1 - alpha / 2, df) sd sqrt(1 / num_arm + 1 / num_baseline).

    It takes the noise of this sweep to be that of the others, and no correlation between runs of
    equal seed.
    """
    error = noise.sd * math.sqrt(1 / num_arm + 1 / num_baseline)
    half = 0.0 if error == 0 else float(stats.t.isf(alpha / 2, noise.df)) * error
    return effect - half, effect + half


def _values(runs: Sequence[Run], name: str, spec: AnalysisSpec) -> list[float]:
    window = final_window(runs, spec.last_steps)
    if window is None:
        return []
    found = [_value(run, name, window) for run in runs]
    return [value for value in found if value is not None]


def _value(run: Run, name: str, window: FinalWindow) -> float | None:
    """Return the window mean of a finished run where differences are taken; None without one."""
    if not run.is_done or run.curve(name) is None:
        return None
    mean = window_mean(run, name, window.steps).mean
    return None if mean is None else on_scale(metric_spec(name), mean)
