"""What one run logged: the files of its source put together and read by canonical metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.curve import IntArray
from analysis.metrics import KeyResolution, metric_spec, resolve_keys
from analysis.series import RunSeries, first_steps
from analysis.sources.interface import NO_ATTEMPT, FileProvenance, KeySeries, MetricsFile


@dataclass(frozen=True)
class Logged:
    """What a run logged.

    Attributes:
        available: every key that held a number, in any file.
    """

    series: RunSeries
    keys: KeyResolution
    available: frozenset[str]
    files: tuple[FileProvenance, ...]


def read_logged(
    arm: str,
    seed: int,
    files: Sequence[MetricsFile],
    *,
    attempt_groups: Sequence[int] | None = None,
    metrics_keys: Mapping[str, str],
    framework: str = "",
) -> Logged:
    """Return the series of one run by canonical metric.

    Args:
        attempt_groups: attempt of the rows of each file that name none themselves; None where all
            files are of one attempt.
        metrics_keys: canonical name -> key, where they were named.
    """
    groups = list(attempt_groups or [NO_ATTEMPT] * len(files))
    if len(set(groups)) < 2:
        groups = [NO_ATTEMPT] * len(files)
    available = frozenset(key for file in files for key in file.keys)
    keys = resolve_keys(available, metrics_keys, framework)
    by_metric: dict[str, KeySeries] = {}
    for name, key in list(keys.keys.items()):
        series = _joined(
            [
                _of_group(f.series[key], g)
                for f, g in zip(files, groups, strict=True)
                if key in f.series
            ]
        )
        reason = "" if series is None else _not_its_metric(name, series)
        if reason:
            del keys.keys[name]
            keys.problems[name] = f"`{key}` {reason}"
        elif series is not None:
            by_metric[name] = series
    if keys.keys.get("reward") is not None and keys.keys.get("reward") == keys.keys.get(
        "solve_rate"
    ):
        del keys.keys["reward"], by_metric["reward"]  # rewards of 0 and 1: one curve says both
    starts = _attempt_starts(files, groups)
    return Logged(
        RunSeries(arm, seed, by_metric, starts),
        keys,
        available,
        tuple(file.provenance for file in files),
    )


def _attempt_starts(files: Sequence[MetricsFile], groups: Sequence[int]) -> dict[int, int]:
    if not files:
        return {}
    steps: IntArray = np.concatenate([file.row_steps for file in files])
    attempts = np.concatenate(
        [
            np.where(file.row_attempts == NO_ATTEMPT, group, file.row_attempts)
            for file, group in zip(files, groups, strict=True)
        ]
    )
    return first_steps(steps, attempts)


def _of_group(series: KeySeries, group: int) -> KeySeries:
    if group == NO_ATTEMPT:
        return series
    attempts = np.where(series.attempts == NO_ATTEMPT, group, series.attempts)
    return replace(series, attempts=attempts)


def _joined(parts: Sequence[KeySeries]) -> KeySeries | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return KeySeries(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.attempts for part in parts]),
        np.concatenate([part.times for part in parts]),
    )


def _not_its_metric(name: str, series: KeySeries) -> str:
    """Say why logged values can't be the metric that their key stands for."""
    low, high = metric_spec(name).bounds
    values = series.values[np.isfinite(series.values)]
    if name.startswith("solve_rate") and len(values) and high is not None and low is not None:
        outside = values[(values < low) | (values > high)]
        if len(outside):
            return f"holds {outside[0]:g}: rewards beyond 0 and 1 have no solve rate"
    return ""
