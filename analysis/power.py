"""How many seeds a declared comparison needs: what it detects, by the number of seeds per arm.

The differences are those that the report states as MDE, by the same functions: for a metric the
declared t test at the noise of earlier runs, for collapses Fisher's exact test, enumerated. Each is
told at two levels, as Holm's adjustment lies between them: the declared one, and the strictest that
it can ask for, where no other comparison of the sweep shows anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.barriers import MIN_RUNS
from analysis.comparison import EVENTS
from analysis.metrics import metric_spec
from analysis.statistics import (
    POWER,
    Detectable,
    fisher_detectable,
    fisher_power,
    least_fisher_p,
    minimum_detectable,
    spread_interval,
    welch_detectable,
)
from analysis.summary import off_scale, on_scale

COLLAPSED = "collapsed"
DEFAULT_RATIO = 2.0
"""Difference of metrics that are compared as ratios, where none is asked for."""
DEFAULT_SHARE_DIFFERENCE = 0.5
"""Difference of the shares of runs that collapse, where none is asked for."""
MAX_SEEDS = 10_000
"""Most seeds per arm that a t test is tried with."""
MAX_SEEDS_EXACT = 100
"""Most seeds per arm that the needed ones are sought up to for Fisher's exact test."""

_SAWTOOTH = 4  # So far back the power of an exact test may have been higher.


@dataclass(frozen=True)
class Design:
    """What a sweep declares that decides what it can detect.

    Attributes:
        num_arms: with the baseline, without replicates.
        pairing: `seed` for the paired t test, `none` for Welch's.
        alpha: two-sided error rate.
        power: how often the difference is to be found.
        num_replicates: arms that take runs and are in no comparison of the family.
    """

    num_arms: int
    primary: tuple[str, ...]
    pairing: str
    alpha: float
    power: float = POWER
    num_replicates: int = 0

    @property
    def runs_per_seed(self) -> int:
        return self.num_arms + self.num_replicates

    @property
    def family(self) -> int:
        """How many comparisons Holm's adjustment is over: primary metrics and events, per arm."""
        return (self.num_arms - 1) * (len(self.primary) + len(EVENTS))

    @property
    def levels(self) -> tuple[float, float]:
        """The declared level, and the strictest that Holm's adjustment can ask for."""
        return self.alpha, self.alpha / self.family

    @property
    def test(self) -> str:
        return "paired t" if self.pairing == "seed" else "Welch t"


@dataclass(frozen=True)
class Spread:
    """The noise that a t test works against, where differences are taken (logs, for ratios).

    Attributes:
        sd: of paired differences for the paired test, else of the runs of an arm.
        df: that it was estimated with; None where it was stated.
        source: where it comes from, for the reader.
    """

    sd: float
    df: int | None
    source: str = ""

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval of `level` of the true one; both ends equal where it was stated."""
        return (self.sd, self.sd) if self.df is None else spread_interval(self.sd, self.df, level)


@dataclass(frozen=True)
class BaseShare:
    """The share of the baseline's runs that collapse, with its interval where it was counted."""

    share: float
    low: float
    high: float
    source: str = ""


@dataclass(frozen=True)
class Row:
    """What `n` seeds per arm detect, at each level of the design.

    Attributes:
        found: smallest difference (ratio) with the interval that the noise, or the share, leaves;
            infinite where none is found with the power.
        can_decide: whether any outcome of so few runs leads to a verdict of better or worse.
    """

    n: int
    found: tuple[Detectable, ...]
    can_decide: tuple[bool, ...]


@dataclass(frozen=True)
class Needed:
    """Seeds per arm that find a difference, `low` and `high` at the ends of what the noise, or the
    share, may be. None where it is more than were tried."""

    n: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True)
class PowerTable:
    """What a sweep detects in one metric, or in the share of runs that collapse.

    Attributes:
        name: the metric's, or COLLAPSED.
        target: difference (ratio) that `needed` is for, one per level; None and empty without one.
    """

    name: str
    rows: tuple[Row, ...]
    target: float | None
    needed: tuple[Needed, ...]
    spread: Spread | None = None
    base: BaseShare | None = None


def metric_power(
    design: Design, name: str, spread: Spread, seeds: Sequence[int], target: float | None
) -> PowerTable:
    """Return what so many `seeds` per arm detect in the metric `name`.

    Args:
        target: difference (ratio) to tell the needed seeds of.
    """
    metric = metric_spec(name)
    sds = (spread.sd, *spread.interval(1 - design.alpha))
    rows = []
    for n in seeds:
        found = []
        for level in design.levels:
            unit = _errors(design, n, level)
            found.append(Detectable(*(off_scale(metric, unit * sd) for sd in sds)))
        rows.append(Row(n, tuple(found), (n >= MIN_RUNS,) * len(found)))
    needed: tuple[Needed, ...] = ()
    if target is not None:
        shift = abs(on_scale(metric, target) or 0.0)
        needed = tuple(
            Needed(*(_seeds_for(design, level, sd, shift) for sd in sds)) for level in design.levels
        )
    return PowerTable(name, tuple(rows), target, needed, spread=spread)


def collapse_power(
    design: Design, base: BaseShare, seeds: Sequence[int], target: float | None
) -> PowerTable:
    """Return the differences in shares of collapsed runs that so many `seeds` per arm detect.

    Upwards from a share of at most a half, else downwards.

    Args:
        target: difference to tell the needed seeds of.
    """
    shares = (base.share, base.low, base.high)
    rows = []
    for n in seeds:
        found, can_decide = [], []
        for level in design.levels:
            shift, *ends = (fisher_detectable(n, n, p, level, design.power) for p in shares)
            found.append(Detectable(shift, min(shift, *ends), max(shift, *ends)))
            can_decide.append(n >= MIN_RUNS and least_fisher_p(n, n) < level)
        rows.append(Row(n, tuple(found), tuple(can_decide)))
    needed = (
        ()
        if target is None
        else tuple(
            _needed_for_shares(shares, target, level, design.power) for level in design.levels
        )
    )
    return PowerTable(COLLAPSED, tuple(rows), target, needed, base=base)


def other_share(share: float, difference: float) -> float | None:
    """Return the share that lies `difference` from `share`; None where there is none."""
    other = share + difference if share <= 0.5 else share - difference
    return min(1.0, max(0.0, other)) if -1e-9 <= other <= 1 + 1e-9 else None


def _errors(design: Design, n: int, level: float) -> float:
    """Return what `n` seeds per arm detect at `level`, in standard deviations of the noise."""
    error = 1 / math.sqrt(n)
    if design.pairing == "seed":
        return minimum_detectable(error, n - 1, level, design.power)
    return welch_detectable((error, n - 1), (error, n - 1), level, design.power)


def _seeds_for(design: Design, level: float, sd: float, shift: float) -> int | None:
    """Return the fewest seeds per arm that the report decides with and that detect `shift`."""
    if not math.isfinite(sd):
        return None

    def is_found(n: int) -> bool:
        return _errors(design, n, level) * sd <= shift

    low, high = _bracket(is_found, MIN_RUNS, MAX_SEEDS)
    if high is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def _needed_for_shares(
    shares: Sequence[float], difference: float, level: float, power: float
) -> Needed:
    """Return the seeds for the first of `shares`, with the range over all that can differ so."""
    pairs = [(p, other) for p in shares if (other := other_share(p, difference)) is not None]
    found = [_seeds_for_shares(p, other, level, power) for p, other in pairs]
    known = [n for n in found if n is not None]
    return Needed(found[0], min(known, default=None), None if None in found else max(known))


def _seeds_for_shares(base: float, other: float, level: float, power: float) -> int | None:
    def is_found(n: int) -> bool:
        return fisher_power(n, n, other, base, level) >= power

    low, high = _bracket(is_found, MIN_RUNS, MAX_SEEDS_EXACT)
    if high is None:
        return None
    # The power of an exact test goes up and down a little from one number to the next.
    return next(n for n in range(max(MIN_RUNS, low - _SAWTOOTH), high + 1) if is_found(n))


def _bracket(holds: Callable[[int], bool], least: int, most: int) -> tuple[int, int | None]:
    """Return numbers between which `holds` begins to; None for the second beyond `most`."""
    low, high = least - 1, least
    while not holds(high):
        if high == most:
            return high, None
        low, high = high, min(2 * high, most)
    return low, high
