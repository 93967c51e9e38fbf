"""The long table: every logged value of every run, with a flag; and the curves drawn from it.

Nothing is interpolated, filled forward or dropped: what a resume superseded stays in the table,
flagged, and a step at which a metric was due but isn't there is a row without a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.curve import EMPTY_CURVE, Curve, FloatArray, IntArray
from analysis.events import gone_steps
from analysis.series import RunSeries, superseded
from analysis.sources import NO_ATTEMPT, KeySeries

COLUMNS = ("arm", "seed", "step", "metric", "value", "attempt", "time", "flag")
"""`attempt` is -1 where the row names none; `time` is unix s, NaN where the row has none."""

OK = "ok"
SUPERSEDED = "superseded"
NONFINITE = "nonfinite"
GAP = "gap"
VANISHED = "vanished"
FLAGS = (OK, SUPERSEDED, NONFINITE, GAP, VANISHED)
"""`gap`: due at this step and logged again later; `vanished`: due, and never logged again."""

_OF_ROLLOUTS = frozenset(
    {
        "solve_rate",
        "solve_rate_effective",
        "reward",
        "solved_none",
        "solved_all",
        "staleness",
        "response_length",
    }
)
"""Metrics that come with the batch, not with the update: they are due at each other's steps."""


def build_table(runs: Iterable[RunSeries]) -> pd.DataFrame:
    """Return the long table with `COLUMNS`, sorted by arm, seed, metric and step."""
    parts = [part for run in runs for part in _parts(run)]
    arms, metrics = (sorted({getattr(part, name) for part in parts}) for name in ("arm", "metric"))
    sizes = [len(part.steps) for part in parts]

    def repeated(values: list[int]) -> IntArray:
        return np.repeat(np.array(values, dtype=np.int64), sizes)

    def joined(name: str, kind: type) -> npt.NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate(arrays) if arrays else np.array([], dtype=kind)

    return pd.DataFrame(
        {
            "arm": _categories(repeated([arms.index(p.arm) for p in parts]), arms),
            "seed": repeated([part.seed for part in parts]),
            "step": joined("steps", np.int64),
            "metric": _categories(repeated([metrics.index(p.metric) for p in parts]), metrics),
            "value": joined("values", np.float64),
            "attempt": joined("attempts", np.int64),
            "time": joined("times", np.float64),
            "flag": _categories(joined("flags", np.int64), list(FLAGS)),
        }
    )


def curves(table: pd.DataFrame) -> dict[tuple[str, int, str], Curve]:
    """Return the live values of the table, by (arm, seed, metric); steps increase strictly."""
    live = table[table["flag"].isin([OK, NONFINITE])]
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


def clock(run: RunSeries) -> Curve:
    """Return the seconds of work that a run had behind it at each step, by its rows' times.

    Time between attempts doesn't count. Empty where rows have no time.
    """
    live = [_flagged(series, run.attempt_starts) for series in run.by_metric.values()]
    if not live:
        return EMPTY_CURVE
    rows = [
        np.stack([part.steps, part.attempts, part.times], axis=1)[
            (part.flags != FLAGS.index(SUPERSEDED)) & np.isfinite(part.times)
        ]
        for part in live
    ]
    table = np.concatenate(rows)
    if not len(table):
        return EMPTY_CURVE
    order = np.lexsort((-table[:, 2], table[:, 0]))
    table = table[order]
    table = table[np.append(True, np.diff(table[:, 0]) > 0)]  # the newest row of each step
    seconds = np.diff(table[:, 2], prepend=table[0, 2])
    is_same_attempt = np.append(True, np.diff(table[:, 1]) == 0)
    # Between attempts a run waits in a queue; a clock that goes backwards stands still.
    seconds = np.where(is_same_attempt & (seconds > 0), seconds, 0.0)
    return Curve(table[:, 0].astype(np.int64), np.cumsum(seconds))


@dataclass(frozen=True)
class _Part:
    """The rows of one metric of one run, in the order of the table; all arrays are [num_rows]."""

    arm: str
    seed: int
    metric: str
    steps: IntArray
    values: FloatArray
    attempts: IntArray
    times: FloatArray
    flags: IntArray


def _parts(run: RunSeries) -> list[_Part]:
    found = {
        name: _flagged(series, run.attempt_starts, run.arm, run.seed, name)
        for name, series in sorted(run.by_metric.items())
        if len(series.steps)
    }
    due = {
        of_rollouts: _live_steps(
            [part for name, part in found.items() if (name in _OF_ROLLOUTS) == of_rollouts]
        )
        for of_rollouts in (True, False)
    }
    # A step without a token to train on has no mean over tokens, and that is no gap.
    due[False] = np.setdiff1d(due[False], _idle_steps(found.get("tokens")), assume_unique=True)
    return [_with_missing(part, due[name in _OF_ROLLOUTS]) for name, part in found.items()]


def _flagged(
    series: KeySeries,
    attempt_starts: Mapping[int, int],
    arm: str = "",
    seed: int = 0,
    metric: str = "",
) -> _Part:
    gone = superseded(series, attempt_starts)
    is_finite = np.isfinite(series.values)
    flags = np.where(gone, FLAGS.index(SUPERSEDED), np.where(is_finite, 0, FLAGS.index(NONFINITE)))
    order = np.lexsort((np.arange(len(gone)), ~gone, series.steps))
    return _Part(
        arm,
        seed,
        metric,
        series.steps[order],
        series.values[order],
        series.attempts[order],
        series.times[order],
        flags[order],
    )


def _live_steps(parts: list[_Part]) -> IntArray:
    steps = [part.steps[part.flags != FLAGS.index(SUPERSEDED)] for part in parts]
    return np.unique(np.concatenate(steps)) if steps else np.array([], dtype=np.int64)


def _idle_steps(tokens: _Part | None) -> IntArray:
    if tokens is None:
        return np.array([], dtype=np.int64)
    live = tokens.flags == FLAGS.index(OK)
    steps, counts = tokens.steps[live], tokens.values[live]
    idle: IntArray = steps[1:][np.diff(counts) == 0]
    return idle


def _with_missing(part: _Part, due: IntArray) -> _Part:
    """Add a row without a value for every step at which the metric should have been logged."""
    is_live = part.flags != FLAGS.index(SUPERSEDED)
    live = Curve(part.steps[is_live], part.values[is_live])
    if not len(live):
        return part
    reference = int(live.steps[(len(live) - 1) // 3])
    missing = gone_steps(live, due, last_reference_step=reference)
    if not len(missing):
        return part
    flags = np.where(missing > live.steps[-1], FLAGS.index(VANISHED), FLAGS.index(GAP))
    steps = np.concatenate([part.steps, missing])
    order = np.argsort(steps, kind="stable")
    nothing = np.full(len(missing), np.nan)
    nobody = np.full(len(missing), NO_ATTEMPT)
    return replace(
        part,
        steps=steps[order],
        values=np.concatenate([part.values, nothing])[order],
        attempts=np.concatenate([part.attempts, nobody])[order],
        times=np.concatenate([part.times, nothing])[order],
        flags=np.concatenate([part.flags, flags])[order],
    )


def _categories(codes: IntArray, names: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))
