"""The knobs of each loss as plain numbers with bounds, checked where the trainer runs.

The table is made from `harness.losses.config`, the one place where knobs are declared. It goes into
the exported module as a literal: that module has neither the dataclasses nor their checks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.fields import limits_of
from harness.errors import UsageError
from harness.losses.config import LOSS_TYPES


@dataclass(frozen=True)
class Knob:
    """A number that a loss takes: its default and its bounds.

    Attributes:
        default: taken where the knob is left out; None where the knob may be null.
        ge, gt, le, lt: bounds.
    """

    default: float | None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def holds(self, value: float) -> bool:
        """Whether `value` is within the bounds; never for NaN."""
        return (
            value == value
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def bounds(self) -> str:
        """Return the bounds in words."""
        limits = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        return " and ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)


def _read_knobs(kind: type[Any]) -> dict[str, Knob]:
    knobs = {}
    for field in dataclasses.fields(kind):
        limits = limits_of(field)
        if limits.options is None:
            default: Any = field.default
            default = None if default is None else float(default)
            knobs[field.name] = Knob(default, limits.ge, limits.gt, limits.le, limits.lt)
    return knobs


KNOBS: dict[str, dict[str, Knob]] = {name: _read_knobs(kind) for name, kind in LOSS_TYPES.items()}
"""By `type`: the knobs of that loss."""


def complete_knobs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `type` and every knob of that loss; knobs that are left out take their defaults.

    The string "None" stands for null, as in prime-rl's own files.

    Raises:
        UsageError: no or an unknown type, an unknown knob, a value that is no number or out of
            bounds, or knobs that contradict each other.
    """
    name = given.get("type")
    if not isinstance(name, str) or name not in KNOBS:
        raise UsageError(
            f"want `type`, the name of a loss, not {name!r}", f"losses: {', '.join(sorted(KNOBS))}"
        )
    knobs = KNOBS[name]
    unknown = sorted(str(key) for key in given if key != "type" and key not in knobs)
    if unknown:
        raise UsageError(
            f"loss `{name}` has no knob {', '.join(f'`{key}`' for key in unknown)}",
            f"knobs: {', '.join(knobs)}",
        )
    values = {key: _check(name, key, knob, given) for key, knob in knobs.items()}
    low, high, cap = (
        values.get(key) for key in ("ratio_low", "ratio_high", "max_importance_ratio")
    )
    if low is not None and high is not None and low > high:
        raise UsageError(f"`ratio_low` {low:g} of loss `{name}` is above `ratio_high` {high:g}")
    if name in ("ppo", "dapo") and cap is not None and high is not None and cap < high:
        raise UsageError(
            f"`max_importance_ratio` {cap:g} of loss `{name}` is below `ratio_high` {high:g}"
        )
    return {"type": name, **values}


def _check(name: str, key: str, knob: Knob, given: Mapping[str, Any]) -> float | None:
    value = given.get(key, knob.default)
    if value in (None, "None") and knob.default is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not knob.holds(value):
        raise UsageError(
            f"`{key}` of loss `{name}` must be a number {knob.bounds()}, not {value!r}"
        )
    return float(value)
