"""What the page's charts are drawn from, as plain JSON: every run, every arm's mean, events, axes.

A panel has columns, of one step each where they are few, else of equal width in steps. A run has
its mean per column and, where columns are wider than a step, its lowest and highest value there.
Values that are not finite, and steps that were not logged, are null.

An arm's mean is over its runs that logged a finite value in the column, finished or not, where
these are at least half of those that logged the metric at all; the number of runs stands beside
it. Mean and Student t interval are taken on the scale that the metric is compared on (of the logs,
for ratios) over one number per run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from analysis.curve import Curve, FloatArray, IntArray
from analysis.metrics import MetricSpec, metric_spec
from analysis.replicates import replicates_of
from analysis.report.cells import Report
from analysis.report.decimate import column_starts, decimate, drawable, envelope, floor_of
from analysis.report.forks import find_parents
from analysis.report.numbers import format_level
from analysis.report.style import SMOOTHED_STEPS, arm_styles
from analysis.results import Results
from analysis.runs import Run
from analysis.summary import ArmSummary

_PANELS = (
    "solve_rate",
    "mismatch_kl",
    "entropy",
    "is_masked",
    "grad_norm",
    "staleness",
    "response_length",
)
_LOG_PANELS = frozenset({"mismatch_kl", "is_masked", "grad_norm"})
_EVENTS = (
    ("exploded", "mismatch_kl"),
    ("onset", "mismatch_kl"),
    ("collapsed", "solve_rate"),
    ("entropy_collapsed", "entropy"),
)

_MAX_COLUMNS = 600
_MIN_COLUMNS = 60
_MAX_CHARACTERS = 3_600_000  # of all lines together, so that a page stays below 5 MB
_CHARACTERS_PER_COLUMN = 27  # of a line, at most: three numbers
_CLOCK_POINTS = 150
_PAST_COLUMNS = 150


def build_page_data(results: Results) -> dict[str, Any]:
    """Return what charts of the page show. The same results give the same data.

    Its JSON stays below 4 MB for 8 arms of 5 seeds and 7 metrics, however many steps there are.
    """
    runs = [summary.run for summary in results.runs]
    names = [name for name in _PANELS if any(_curve(run, name) is not None for run in runs)]
    lines = len(names) * (len(runs) + len(results.arms))
    columns = _MAX_CHARACTERS // (max(1, lines) * _CHARACTERS_PER_COLUMN)
    columns = min(_MAX_COLUMNS, max(_MIN_COLUMNS, columns))
    plan = results.sweep.plan
    places = {arm.arm: place for place, arm in enumerate(results.arms)}
    styles = arm_styles(list(places), plan.baseline, replicates_of(plan.arms))
    return {
        "level": format_level(plan.analysis.alpha),
        "critical": _short(_critical(len(runs), plan.analysis.alpha), 6),
        "smoothing": SMOOTHED_STEPS,
        "arms": [{"name": name, "dash": list(style.dash)} for name, style in styles.items()],
        "runs": [
            {"arm": places[run.arm], "seed": run.seed, "state": str(run.state)} for run in runs
        ],
        "windows": _windows(results),
        "clocks": {
            "tokens": [_clock(run.curve("tokens")) for run in runs],
            "seconds": [_clock(getattr(run, "clock", None)) for run in runs],
        },
        "panels": [_panel(name, results, columns) for name in names],
    }


def expand(deltas: Sequence[int]) -> list[int]:
    """Return the steps of a panel's columns, which stand in the data as distances."""
    return [int(step) for step in np.cumsum(deltas)]


def survival_panel(report: Report) -> dict[str, Any] | None:
    """Return the panel of the shares of runs that are still healthy; None where no arm has any.

    A share holds from its step to the next one, so columns are the steps of all arms together, and
    the first step of all, where every share is 1. A line ends where the arm's last run does.
    """
    curves = [arm.get("survival") for arm in report["arms"]]
    ends = [_last_step(curve) for curve in curves if curve]
    starts = [run["first_step"] for run in report["runs"] if run.get("first_step") is not None]
    events = [step for curve in curves if curve for step in curve["steps"]]
    steps = sorted({min(starts, default=0), *ends, *events})
    if len(steps) < 2:
        return None
    return {
        "name": "survival",
        "label": "share of runs still healthy",
        "unit": "",
        "definition": "Kaplan-Meier estimate by step; n: runs at risk at the latest event",
        "format": "rate",
        "is_log": False,
        "is_stepped": True,
        "scale_of_means": "difference",
        "bounds": [0, 1],
        "floor": None,
        "limits": [0, 1],
        "columns": {"first": _deltas(steps), "width": 1},
        "lines": [],
        "means": [_survival(curve, np.array(steps)) if curve else None for curve in curves],
        "events": [],
    }


def _survival(curve: dict[str, Any], steps: IntArray) -> dict[str, Any]:
    places = np.searchsorted(np.array(curve["steps"], dtype=np.int64), steps, side="right")
    is_over = steps > _last_step(curve)
    share = np.array([1.0, *curve["share"]])[places]
    num_runs = curve.get("num_runs", max(curve["at_risk"], default=0))
    at_risk = np.array([num_runs, *curve["at_risk"]], dtype=np.int64)[places]
    return {
        "mean": _short(np.where(is_over, np.nan, share), 6),
        "n": _run_lengths(np.where(is_over, 0, at_risk)),
    }


def _last_step(curve: dict[str, Any]) -> int:
    steps: list[int] = [0, *curve["steps"], *curve.get("censored_at", [])]
    return max(steps)


def _panel(name: str, results: Results, max_columns: int) -> dict[str, Any]:
    spec = metric_spec(name)
    curves = [_curve(summary.run, name) for summary in results.runs]
    logged = [curve for curve in curves if curve is not None]
    steps = np.unique(np.concatenate([curve.steps for curve in logged]))
    is_binned = len(steps) > 2 * max_columns
    starts = column_starts(steps, max_columns) if is_binned else np.arange(len(steps))
    firsts = steps[starts]
    ends = np.append(firsts[1:], steps[-1] + 1)
    parts = [None if curve is None else _columns_of(curve, firsts) for curve in curves]
    low_bound, high_bound = spec.bounds
    return {
        "name": name,
        "label": spec.label,
        "unit": spec.unit,
        "definition": spec.definition,
        "format": _format_of(spec),
        "is_log": name in _LOG_PANELS,
        "is_stepped": False,
        "scale_of_means": spec.scale,
        "bounds": list(spec.bounds),
        "floor": floor_of(logged) if name in _LOG_PANELS else None,
        "limits": [low_bound, high_bound] if name.startswith("solve_rate") else None,
        "columns": {
            "first": _deltas(firsts.tolist()),
            "width": int((ends - firsts).max()) if is_binned else 1,
        },
        "lines": [None if part is None else _line(part, is_binned) for part in parts],
        "means": _means(results.arms, parts, spec, results.sweep.plan.analysis.alpha),
        "events": _events(name, results),
        "pasts": _pasts(name, results),
    }


def _pasts(name: str, results: Results) -> list[dict[str, Any]]:
    """Return what forks share, each past once, as few points over steps."""
    found = []
    for parent, _ in find_parents(summary.run for summary in results.runs):
        curve = parent.curves.get(name)
        if curve is not None and len(curve):
            curve = drawable(curve)
            steps, values = decimate(curve.steps, curve.values, _PAST_COLUMNS)
            found.append({"steps": steps.tolist(), "values": _short(values)})
    return found


def _columns_of(curve: Curve, firsts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    columns = (np.searchsorted(firsts, curve.steps, side="right") - 1).astype(np.int64)
    return envelope(columns, curve.values, len(firsts))


def _line(part: tuple[FloatArray, FloatArray, FloatArray], is_binned: bool) -> dict[str, Any]:
    low, high, mean = part
    line = {"mean": _short(mean)}
    if is_binned:
        line |= {"low": _short(low), "high": _short(high)}
    return line


def _means(
    arms: Sequence[ArmSummary],
    parts: Sequence[tuple[FloatArray, FloatArray, FloatArray] | None],
    spec: MetricSpec,
    alpha: float,
) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = []
    start = 0
    for arm in arms:
        rows = [part[2] for part in parts[start : start + len(arm.runs)] if part is not None]
        start += len(arm.runs)
        found.append(_mean(np.stack(rows), spec, alpha) if rows else None)
    return found


def _mean(table: FloatArray, spec: MetricSpec, alpha: float) -> dict[str, Any]:
    """Return mean, interval and count per column of `table`, [num_runs, num_columns]."""
    counts = np.isfinite(table).sum(axis=0)
    is_shown = (2 * counts >= len(table)) & (counts > 0)
    mean, low, high = (np.full(table.shape[1], np.nan) for _ in range(3))
    shown = table[:, is_shown]
    if spec.scale == "ratio":
        has_zero = (shown == 0).any(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = np.log(np.where(has_zero, np.nan, shown))
        ends = [np.exp(np.minimum(end, 700.0)) for end in _t_interval(shown, alpha)]
        ends[0] = np.where(has_zero, 0.0, ends[0])  # A geometric mean with a 0 in it.
    else:
        ends = list(_t_interval(shown, alpha))
    mean[is_shown] = ends[0]
    low[is_shown], high[is_shown] = (np.clip(end, *spec.bounds) for end in ends[1:])
    shown_counts = np.where(np.isfinite(mean), counts, 0)
    return {
        "mean": _short(mean, 6),
        "low": _short(low),
        "high": _short(high),
        "n": _run_lengths(shown_counts),
    }


def _t_interval(table: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and ends of the t interval over the finite rows of each column."""
    is_finite = np.isfinite(table)
    counts = is_finite.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(is_finite, table, 0.0).sum(axis=0) / counts
        squares = np.where(is_finite, (table - mean) ** 2, 0.0).sum(axis=0)
        error = np.sqrt(squares / (counts - 1) / counts)
        half = np.where(error == 0, 0.0, _critical(len(table), alpha)[counts] * error)
    half[(counts < 2) | ~np.isfinite(half)] = np.nan
    return mean, mean - half, mean + half


def _critical(num_runs: int, alpha: float) -> FloatArray:
    """Return the two-sided critical value for each number of runs; NaN below two."""
    counts = np.arange(2, num_runs + 1)
    return np.concatenate([[np.nan, np.nan], stats.t.isf(alpha / 2, counts - 1)])


def _events(name: str, results: Results) -> list[dict[str, Any]]:
    found = []
    for place, summary in enumerate(results.runs):
        for kind, panel in _EVENTS:
            holders = (summary, getattr(summary, "events", None))
            event = next((getattr(h, kind) for h in holders if hasattr(h, kind)), None)
            if panel == name and event is not None and event.step is not None:
                found.append({"run": place, "kind": kind, "step": event.step})
    return found


def _windows(results: Results) -> list[dict[str, Any]]:
    first, last = results.sweep.plan.analysis.baseline_steps
    windows = [{"label": "baseline window", "first": first, "last": last}]
    if results.window is not None:
        final = {"first": results.window.first, "last": results.window.last}
        windows.append({"label": "final window", **final})
    return windows


def _curve(run: Run, name: str) -> Curve | None:
    curve = run.curve(name)
    if curve is None:
        return None
    curve = drawable(curve)
    return curve if len(curve.finite()) else None


def _clock(curve: Curve | None) -> dict[str, Any] | None:
    """Return how far a run was on another axis at some of its steps; straight between them."""
    curve = None if curve is None else drawable(curve).finite()
    if curve is None or len(curve) < 2:
        return None
    few = np.unique(np.linspace(0, len(curve) - 1, _CLOCK_POINTS).round().astype(np.int64))
    return {"steps": curve.steps[few].tolist(), "at": _short(curve.values[few], 6)}


def _format_of(spec: MetricSpec) -> str:
    if spec.bounds != (0.0, 1.0):
        return "number"
    return "percent" if spec.direction == "none" else "rate"


def _short(values: FloatArray, digits: int = 4) -> list[float | int | None]:
    """Return `values` with `digits` significant digits; null where they are not finite."""
    return [_shorten(value, digits) for value in values.tolist()]


def _shorten(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _deltas(steps: Sequence[int]) -> list[int]:
    """Return the first of `steps` and the distances between them."""
    return [int(step - before) for before, step in zip([0, *steps], steps, strict=False)]


def _run_lengths(counts: IntArray) -> list[list[int]]:
    """Return [length, count] pairs: how often each count comes in a row."""
    starts = np.flatnonzero(np.diff(counts, prepend=-1))
    lengths = np.diff(starts, append=len(counts))
    return [[int(a), int(counts[b])] for a, b in zip(lengths, starts, strict=True)]
