"""Curves as users ask for them: which knob of which rule, over which thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from analysis.curve import FloatArray
from analysis.replay.rules import (
    Rule,
    RuleSpec,
    make_rule,
    parse_knobs,
    parse_number,
    shown,
    spec_of,
)
from analysis.replay.tokens import TokenColumns
from harness.errors import UsageError

NUM_POINTS = 100
"""Thresholds of a curve that doesn't say how many."""
MAX_POINTS = 10_000
_LEAST_ROUND = 20
_NARROWEST_STEP = 1.01
"""Points closer than this aren't cut to three digits, which would make them one."""
_WIDEST_STEP = 1.2
"""Points as close as this are moved to round numbers: the order stays, and nobody misses them."""
INVERSE = "1/ratio_high"
"""What `ratio_low` is fixed to where the band is symmetric in the log of the ratio."""


@dataclass(frozen=True)
class CurveRequest:
    """How much of all tokens a rule masks, over one of its knobs.

    Attributes:
        fixed: the other knobs; `ratio_low` may be `INVERSE`.
        thresholds: increasing, each of them a float32.
    """

    type: str
    knob: str
    fixed: Mapping[str, float | str] = field(default_factory=dict)
    thresholds: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """As users write it: `icepop:ratio_low=0.2,ratio_high=1.1..100:50`."""
        first, last = self.thresholds[0], self.thresholds[-1]
        parts = [
            f"{name}={value if isinstance(value, str) else shown(value)}"
            for name, value in self.fixed.items()
        ]
        parts.append(f"{self.knob}={first:g}..{last:g}")
        return f"{self.type}:{','.join(parts)}:{len(self.thresholds)}"

    def at(self, threshold: float) -> Rule:
        """Return the rule at one threshold."""
        knobs = {name: value for name, value in self.fixed.items() if not isinstance(value, str)}
        knobs[self.knob] = threshold
        if INVERSE in self.fixed.values():
            knobs["ratio_low"] = 1.0 / threshold
        return make_rule(self.type, knobs)

    def refusal(self, columns: TokenColumns) -> str:
        """Return why these columns don't allow the curve; empty if they do."""
        return self.at(self.thresholds[0]).refusal(columns)


def make_curve(
    type: str,
    knob: str,
    low: float,
    high: float,
    *,
    num_points: int = NUM_POINTS,
    is_log: bool | None = None,
    fixed: Mapping[str, float | str] | None = None,
) -> CurveRequest:
    """Return a curve over `num_points` thresholds from `low` to `high`, both of them included.

    Values that are the same float32 count once. `is_log` None means evenly in the logarithm where
    `low` is above 0.

    Raises:
        UsageError: no such rule or knob, a knob that no curve can run over, a range that is empty
            or leaves the knob's bounds, or a count outside 2 to `MAX_POINTS`.
    """
    spec = spec_of(type)
    spec.knob(knob)
    if knob not in spec.curve_knobs:
        known = ", ".join(f"`{name}`" for name in spec.curve_knobs)
        raise UsageError(f"no curve runs over `{knob}` of rule `{type}`", f"curves over: {known}")
    if not low < high:
        raise UsageError(
            f"`{knob}={shown(low)}..{shown(high)}` is no range", "write the smaller number first"
        )
    if not 2 <= num_points <= MAX_POINTS:
        raise UsageError(f"a curve of {num_points} thresholds", f"between 2 and {MAX_POINTS}")
    is_log = low > 0 if is_log is None else is_log
    if is_log and low <= 0:
        raise UsageError(f"`{knob}` from {shown(low)} has no logarithm", "leave `log` out")
    spread = _round_geomspace if is_log else np.linspace
    thresholds = np.unique(spread(low, high, num_points).astype(np.float32))
    request = CurveRequest(
        type, knob, _fixed(spec, knob, fixed or {}), tuple(float(at) for at in thresholds)
    )
    for end in (request.thresholds[0], request.thresholds[-1]):
        request.at(end)
    return request


def _round_geomspace(low: float, high: float, num_points: int) -> FloatArray:
    """Return points evenly in the logarithm, as numbers that people would choose.

    Points between the ends have three digits, unless those can't tell them apart; where they stand
    close enough, the nearest one to each of 1, 2, 3 and 5 times a power of ten is that number
    itself.
    """
    points = np.geomspace(low, high, num_points)
    if num_points < _LEAST_ROUND or high / low > _WIDEST_STEP ** (num_points - 1):
        return points
    if high / low > _NARROWEST_STEP ** (num_points - 1):
        digits = np.floor(np.log10(points[1:-1]))
        points[1:-1] = np.round(points[1:-1] / 10**digits, 2) * 10**digits
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for number in (float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 3, 5)):
        if low < number < high:
            points[1 + int(np.argmin(np.abs(np.log(points[1:-1] / number))))] = number
    return points


def parse_curve(text: str) -> CurveRequest:
    """Return the curve that `text` writes.

    `ipo:eps=0.01..1.0` has 100 thresholds, evenly in the logarithm; `:200` asks for more, `:linear`
    or `:log` for a spacing. Other knobs stand beside: `icepop:ratio_low=0.5,ratio_high=1.1..100`;
    `ratio_low=1/ratio_high` makes the band symmetric.

    Raises:
        UsageError: as `make_curve`, and for text of another form.
    """
    type, _, rest = text.strip().partition(":")
    spec = spec_of(type.strip())
    knobs, *options = rest.split(":")
    ranges: list[tuple[str, float, float]] = []
    fixed: dict[str, float | str] = {}
    for name, value in parse_knobs(text, knobs):
        spec.knob(name)
        low, dots, high = value.partition("..")
        if dots:
            ranges.append((name, parse_number(text, name, low), parse_number(text, name, high)))
        elif value.replace(" ", "") == INVERSE:
            fixed[name] = INVERSE
        else:
            fixed[name] = parse_number(text, name, value)
    if len(ranges) != 1:
        raise UsageError(
            f"curve `{text}` has {len(ranges)} ranges", "give one knob a range, `eps=0.01..1.0`"
        )
    num_points, is_log = _options(text, options)
    [(knob, first, last)] = ranges
    return make_curve(
        spec.type, knob, first, last, num_points=num_points, is_log=is_log, fixed=fixed
    )


def _options(text: str, options: list[str]) -> tuple[int, bool | None]:
    num_points: int | None = None
    is_log: bool | None = None
    for option in (option.strip() for option in options):
        if option.isdecimal() and num_points is None:
            num_points = int(option)
        elif option in ("log", "linear") and is_log is None:
            is_log = option == "log"
        else:
            raise UsageError(
                f"`{option}` at the end of curve `{text}`",
                "after the knobs come `:200` (thresholds) and one of `:log` and `:linear`",
            )
    return NUM_POINTS if num_points is None else num_points, is_log


def _fixed(spec: RuleSpec, knob: str, given: Mapping[str, float | str]) -> dict[str, float | str]:
    inverse = {name for name, value in given.items() if value == INVERSE}
    if inverse and (inverse != {"ratio_low"} or knob != "ratio_high"):
        raise UsageError(
            f"`{INVERSE}` in a curve of rule `{spec.type}`",
            "it is for `ratio_low`, where the range is of `ratio_high`",
        )
    for name in given:
        spec.knob(name)
    return {
        other.name: given.get(other.name, other.default)
        for other in spec.knobs
        if other.name != knob
    }
