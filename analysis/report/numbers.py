"""How numbers are written; every rendering uses these, so that they agree to the last digit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from analysis.metrics import MetricSpec, metric_spec

NONE = "\N{EN DASH}"
"""Stands where there is no number to show."""
TIMES = "\N{MULTIPLICATION SIGN}"
"""Stands before a ratio."""

NOT_FINITE = "not finite"
"""Stands where a number is beyond floats."""

Number = float | str | None
"""A number of report.json, where one that is not finite is its name (`inf`, `-inf`, `nan`)."""

_LEAST_P = 1e-4
_LARGEST_PLAIN = 1e5


def format_number(value: Number, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits."""
    if value is None:
        return NONE
    if isinstance(value, str) or not math.isfinite(value):
        return NOT_FINITE
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < _LARGEST_PLAIN:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:.{decimals}f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def format_metric(name: str, value: Number) -> str:
    """Return a value of the metric `name`: solve rates with 3 decimals, other shares in %."""
    spec = metric_spec(name)
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return format_number(value)
    if _is_percent(spec):
        return f"{format_number(100 * value)} %"
    if spec.bounds == (0.0, 1.0):
        return f"{value:.3f}"
    return format_number(value)


def format_mean(name: str, mean: Number, low: Number, high: Number) -> str:
    """Return `mean [low, high]` of the metric `name`; without an interval, the mean alone."""
    text = format_metric(name, mean)
    if low is None or high is None:
        return text
    if _is_percent(metric_spec(name)):
        ends = [format_metric(name, end).removesuffix(" %") for end in (low, high)]
        return f"{text} [{', '.join(ends)}]"
    return f"{text} [{format_metric(name, low)}, {format_metric(name, high)}]"


def format_effect(scale: str, effect: Number, low: Number, high: Number) -> str:
    """Return a difference as `+0.123 [0.045, 0.201]`, a ratio as `2.50 [2.10, 2.98]`
    with a times sign before it."""
    if effect is None:
        return NONE
    if scale == "ratio":
        ends = "" if low is None else f" [{format_number(low)}, {format_number(high)}]"
        return f"{TIMES}{format_number(effect)}{ends}"
    ends = "" if low is None or high is None else f" [{_signed(low)}, {_signed(high)}]"
    return f"{_signed(effect)}{ends}"


def format_level(alpha: float) -> str:
    """Return the level of an interval, `95%` for an `alpha` of 0.05."""
    return f"{100 * (1 - alpha):g}%"


def format_p(value: Number) -> str:
    """Return a p value; below 0.0001 only that it is."""
    if value is None or isinstance(value, str):
        return format_number(value)
    if value < _LEAST_P:
        return "< 0.0001"
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def format_share(k: int, n: int, low: float | None = None, high: float | None = None) -> str:
    """Return `k of n [low, high]`, the interval in whole percent."""
    ends = "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f} %]"
    return f"{k} of {n}{ends}"


def format_duration(seconds: Number) -> str:
    """Return a length of time in the two units that matter."""
    if seconds is None or isinstance(seconds, str):
        return format_number(seconds)
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_time(unix_s: Number) -> str:
    """Return a unix time in UTC, to the second; the bare number where it is in no calendar."""
    if unix_s is None or isinstance(unix_s, str):
        return format_number(unix_s)
    try:
        return datetime.fromtimestamp(unix_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return format_number(unix_s)


def format_integers(values: Sequence[int]) -> str:
    """Return increasing integers with ranges drawn together: `0-3, 5`."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def format_runs(runs: Sequence[tuple[str, int]]) -> str:
    """Return (arm, seed) pairs as `ipo seeds 0-3, icepop seed 1`, in the order given."""
    by_arm: dict[str, list[int]] = {}
    for arm, seed in runs:
        by_arm.setdefault(arm, []).append(seed)
    return ", ".join(
        f"{arm} seed{'s' if len(seeds) > 1 else ''} {format_integers(sorted(seeds))}"
        for arm, seeds in by_arm.items()
    )


def format_holders(names: Sequence[str]) -> str:
    """Return arms as they are and run ids (`ipo/seed_0`) drawn together as `ipo seed 0`."""
    runs = [name.rpartition("/seed_") for name in names if "/seed_" in name]
    others = [name for name in names if "/seed_" not in name]
    text = format_runs([(arm, int(seed)) for arm, _, seed in runs])
    return ", ".join([*others, text] if text else others)


def _signed(value: float | str) -> str:
    if isinstance(value, str) or not math.isfinite(value):
        return NOT_FINITE
    if abs(value) >= _LARGEST_PLAIN:
        return f"{'+' if value > 0 else ''}{format_number(value)}"
    text = f"{value:+.3f}"
    return "0.000" if text in ("+0.000", "-0.000") else text


def _is_percent(spec: MetricSpec) -> bool:
    return spec.bounds == (0.0, 1.0) and spec.direction == "none"
