"""The share of runs still without an event, by step, with censored runs. Needs numpy alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class SurvivalCurve:
    """A Kaplan-Meier curve: 1 up to the first of `steps`, then `share` from each of them on.

    Attributes:
        steps: at which events happened, strictly increasing.
        share: estimated probability that a run goes beyond the step without the event.
        low, high: pointwise interval of level 1 - alpha; NaN where the share is 0 or 1, for which
            the formula has none.
        at_risk: runs that reached the step without the event.
        num_events: runs in which it happened at the step.
        censored_at: last steps of the runs without the event, increasing.
        num_runs: all of them.
    """

    steps: tuple[int, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    at_risk: tuple[int, ...]
    num_events: tuple[int, ...]
    censored_at: tuple[int, ...]
    num_runs: int

    @property
    def num_censored(self) -> int:
        return len(self.censored_at)


def survival(
    event_steps: Sequence[int | None], last_steps: Sequence[int], *, alpha: float = 0.05
) -> SurvivalCurve:
    """Return the share of runs without an event by step (Kaplan and Meier 1958).

    A run without an event is censored at its last step: it counts as at risk up to there and says
    nothing about later steps. At equal steps events come before censorings. The interval is that
    of log(-log S) with Greenwood's variance (Kalbfleisch and Prentice 1980), within [0, 1].

    Args:
        event_steps: where it happened in each run; None where it did not. Runs in which it is
            undecidable are to be left out.
        last_steps: last step of each run that was looked at.

    Raises:
        ValueError: the lengths differ, or an event lies after its run's last step.
    """
    for event, last in zip(event_steps, last_steps, strict=True):
        if event is not None and event > last:
            raise ValueError(f"event at step {event} after the run's last step {last}")
    ends = np.array(
        [
            last if event is None else event
            for event, last in zip(event_steps, last_steps, strict=True)
        ],
        dtype=np.int64,
    )
    happened = sorted(step for step in event_steps if step is not None)
    censored = sorted(
        last for event, last in zip(event_steps, last_steps, strict=True) if event is None
    )
    quantile = -NormalDist().inv_cdf(alpha / 2)  # 1 - alpha / 2 would lose a small alpha
    steps = sorted(set(happened))
    at_risk = [int((ends >= step).sum()) for step in steps]
    num_events = [happened.count(step) for step in steps]
    share, greenwood = 1.0, 0.0
    rows: list[tuple[float, float, float]] = []
    for n, d in zip(at_risk, num_events, strict=True):
        share *= (n - d) / n
        if n == d:
            rows.append((0.0, math.nan, math.nan))
            break  # Nobody is left, so that this is the last step.
        greenwood += d / (n * (n - d))
        spread = quantile * math.sqrt(greenwood) / math.log(share)
        rows.append((share, share ** math.exp(-spread), share ** math.exp(spread)))
    return SurvivalCurve(
        steps=tuple(steps),
        share=tuple(row[0] for row in rows),
        low=tuple(row[1] for row in rows),
        high=tuple(row[2] for row in rows),
        at_risk=tuple(at_risk),
        num_events=tuple(num_events),
        censored_at=tuple(censored),
        num_runs=len(ends),
    )
