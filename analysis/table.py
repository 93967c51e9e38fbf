"""The long table: every logged value of every run, with a flag; and the curves drawn from it.

Nothing is interpolated, filled forward or dropped: what a resume superseded stays in the table,
flagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from analysis.curve import BoolArray, Curve, IntArray
from analysis.sources import NO_ATTEMPT, KeySeries

COLUMNS = ("arm", "seed", "step", "metric", "value", "attempt", "flag")
"""`attempt` is -1 where the row names none."""

OK = "ok"
SUPERSEDED = "superseded"
NONFINITE = "nonfinite"
FLAGS = (OK, SUPERSEDED, NONFINITE)

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RunSeries:
    """The series of one run by canonical metric, and the attempts that wrote its file."""

    arm: str
    seed: int
    by_metric: Mapping[str, KeySeries]
    attempt_starts: Mapping[int, int]


def first_steps(row_steps: IntArray, row_attempts: IntArray) -> dict[int, int]:
    """Return the first step of every attempt that rows name."""
    return {
        int(attempt): int(row_steps[row_attempts == attempt].min())
        for attempt in np.unique(row_attempts)
        if attempt != NO_ATTEMPT
    }


def superseded(series: KeySeries, attempt_starts: Mapping[int, int]) -> BoolArray:
    """Return which rows of `series` a later one stands in for, [num_rows].

    Rows of an attempt at or beyond the first step of a later attempt are superseded. Among the
    rest, in the order of attempt and time (of the file, where rows have no time), a step that
    comes again marks a resume: earlier rows from that step on are superseded, whether or not the
    resumed run has reached their steps.
    """
    cutoffs = np.full(len(series.steps), _NEVER)
    for attempt, start in attempt_starts.items():
        earlier = series.attempts < attempt
        cutoffs[earlier] = np.minimum(cutoffs[earlier], start)
    gone: BoolArray = series.steps >= cutoffs

    live = np.flatnonzero(~gone)
    times = series.times[live]
    if not np.isfinite(times).all():
        times = np.zeros(len(live))
    order = live[np.lexsort((live, times, series.attempts[live]))]
    steps = series.steps[order]
    is_repeat = np.ones(len(steps), dtype=np.bool_)
    is_repeat[np.unique(steps, return_index=True)[1]] = False
    rewinds = np.where(is_repeat, steps, _NEVER)
    lowest_later_rewind = np.append(np.minimum.accumulate(rewinds[::-1])[::-1], _NEVER)[1:]
    gone[order[steps >= lowest_later_rewind]] = True
    return gone


def build_table(runs: Iterable[RunSeries]) -> pd.DataFrame:
    """Return the long table with `COLUMNS`, sorted by arm, seed, metric and step."""
    parts = [_part(run, metric, series) for run in runs for metric, series in _sorted(run)]
    if not parts:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _DTYPES.items()})
    return pd.concat(parts, ignore_index=True).astype(_DTYPES)


def curves(table: pd.DataFrame) -> dict[tuple[str, int, str], Curve]:
    """Return the live values of the table, by (arm, seed, metric); steps increase strictly."""
    live = table[table["flag"] != SUPERSEDED]
    groups = live.groupby(["arm", "seed", "metric"], observed=True, sort=True)
    found: dict[tuple[str, int, str], Curve] = {}
    for labels, group in groups:
        arm, seed, metric = cast(tuple[str, int, str], labels)
        found[(arm, int(seed), metric)] = Curve(
            group["step"].to_numpy(np.int64), group["value"].to_numpy(np.float64)
        )
    return found


def superseded_steps(table: pd.DataFrame) -> dict[tuple[str, int], int]:
    """Return how many steps of a run hold values that a resume superseded, by (arm, seed)."""
    gone = table[table["flag"] == SUPERSEDED]
    found: dict[tuple[str, int], int] = {}
    for labels, group in gone.groupby(["arm", "seed"], observed=True, sort=True):
        arm, seed = cast(tuple[str, int], labels)
        found[(arm, int(seed))] = int(group["step"].nunique())
    return found


_DTYPES = {
    "arm": "category",
    "seed": "int64",
    "step": "int64",
    "metric": "category",
    "value": "float64",
    "attempt": "int64",
    "flag": "category",
}


def _sorted(run: RunSeries) -> list[tuple[str, KeySeries]]:
    return [(name, series) for name, series in run.by_metric.items() if len(series.steps)]


def _part(run: RunSeries, metric: str, series: KeySeries) -> pd.DataFrame:
    gone = superseded(series, run.attempt_starts)
    flags = np.select([gone, ~np.isfinite(series.values)], [SUPERSEDED, NONFINITE], default=OK)
    order = np.lexsort((np.arange(len(gone)), ~gone, series.steps))
    return pd.DataFrame(
        {
            "arm": run.arm,
            "seed": run.seed,
            "step": series.steps[order],
            "metric": metric,
            "value": series.values[order],
            "attempt": series.attempts[order],
            "flag": flags[order],
        }
    )
