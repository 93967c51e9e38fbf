"""One metric of one run in file order, and which of its values a resume stands in for.

Needs numpy alone (and what reading a file takes), so that a running job can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.curve import EMPTY_CURVE, BoolArray, Curve, IntArray
from analysis.sources.interface import NO_ATTEMPT, KeySeries

LOGGED_BY_TRAINER = ("learning_rate", "grad_norm", "loss", "entropy", "is_masked")
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
    resumed run has reached their steps. Where a single row repeats a step and the next one goes on
    beyond all steps so far, nothing was resumed: only that step is superseded.
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
    rewinds = np.where(is_repeat & ~_goes_on(steps), steps, _NEVER)
    lowest_later_rewind = np.append(np.minimum.accumulate(rewinds[::-1])[::-1], _NEVER)[1:]
    is_newest = np.zeros(len(steps), dtype=np.bool_)
    is_newest[len(steps) - 1 - np.unique(steps[::-1], return_index=True)[1]] = True
    gone[order[(steps >= lowest_later_rewind) | ~is_newest]] = True
    return gone


def _goes_on(steps: IntArray) -> BoolArray:
    """Return whether the row before is the furthest so far and the row after goes beyond it."""
    furthest = np.maximum.accumulate(steps)
    found = np.zeros(len(steps), dtype=np.bool_)
    found[1:-1] = (steps[:-2] == furthest[:-2]) & (steps[2:] > furthest[:-2])
    return found


def live_curves(run: RunSeries) -> dict[str, Curve]:
    """Return the values of every metric that no later ones stand in for."""
    found = {}
    for name, series in run.by_metric.items():
        live = np.flatnonzero(~superseded(series, run.attempt_starts))
        order = live[np.argsort(series.steps[live], kind="stable")]
        if len(order):
            found[name] = Curve(series.steps[order], series.values[order])
    return found


def trained_steps(curves: Mapping[str, Curve]) -> IntArray:
    """Return the steps at which the trainer trained and logged something.

    Steps of the orchestrator alone don't count: it runs ahead of the trainer. Nor do steps without
    a token to train on (every group filtered out): a mean over no tokens is no divergence.
    """
    names = [name for name in LOGGED_BY_TRAINER if name in curves] or list(curves)
    if not names:
        return EMPTY_CURVE.steps
    steps: IntArray = np.unique(np.concatenate([curves[name].steps for name in names]))
    tokens = curves.get("tokens")
    if tokens is not None and len(tokens):
        with np.errstate(invalid="ignore"):  # Counts that aren't finite.
            idle = tokens.steps[1:][np.diff(tokens.values) == 0]
        steps = np.setdiff1d(steps, idle, assume_unique=True)
    return steps
