"""Arms against the baseline: the declared test, adjusted for how many there are, in fixed words.

One number per run enters: the mean over the final window, or whether an event happened. Pairing
`seed` gives the paired t test of per-seed differences, `none` Welch's; ratios are tested as
differences of logs. Events are tested by Fisher's exact test under either pairing: arms that share
a seed's random numbers tend to agree, which makes it conservative, while the exact McNemar test
can't reach 5 % with fewer than six pairs however they come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from analysis.metrics import MetricSpec, metric_spec
from analysis.statistics import (
    MeanTest,
    fisher_exact,
    holm,
    least_fisher_p,
    minimum_detectable,
    paired_t,
    welch_t,
)
from analysis.summary import ArmSummary, EventShare, RunSummary, off_scale, on_scale
from harness.records.model import AnalysisSpec

EVENTS = ("collapsed", "exploded")
MIN_RUNS = 3
"""Runs per arm below which no arm is called better or worse."""


class Verdict(StrEnum):
    """The words that a comparison may end in."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    WITHIN_MARGIN = "within margin"
    NO_DIFFERENCE = "no detectable difference"
    NOT_DECIDABLE = "not decidable"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class Comparison:
    """One arm against the baseline in one metric or event.

    Attributes:
        name: canonical metric, or an event of `EVENTS`.
        scale: what `effect`, `low`, `high` and `mde` are: arm - baseline ("difference"), arm /
            baseline ("ratio"), or the difference of shares ("share", without an interval).
        num_arm, num_baseline: runs that entered; equal when paired.
        p, p_holm: two-sided; unadjusted, and adjusted for all comparisons of the sweep.
        mde: smallest true effect that this test finds with a power of 0.8 at the first step of
            Holm's procedure, given the spread that was seen.
        detail: stands in brackets behind the verdict.
        is_interim: planned runs are missing.
    """

    arm: str
    name: str
    scale: str
    test: str
    num_arm: int
    num_baseline: int
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    mde: float | None = None
    verdict: Verdict = Verdict.NOT_DECIDABLE
    detail: str = ""
    is_interim: bool = False

    @property
    def words(self) -> str:
        """The verdict with its detail."""
        return f"{self.verdict} ({self.detail})" if self.detail else str(self.verdict)

    @property
    def has_interval_beside_zero(self) -> bool:
        """Whether the interval, which is not adjusted, leaves out that there is no effect."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.no_effect or self.high < self.no_effect

    @property
    def no_effect(self) -> float:
        """What `effect` is where arm and baseline are equal."""
        return 1.0 if self.scale == "ratio" else 0.0


@dataclass(frozen=True)
class _Draft:
    """A comparison before the adjustment; `barrier` says why no test may decide it."""

    comparison: Comparison
    test: MeanTest | None = None
    barrier: tuple[Verdict, str] | None = None


def compare_arms(
    arms: Sequence[ArmSummary], baseline: str, *, pairing: str, spec: AnalysisSpec
) -> list[Comparison]:
    """Return every arm against `baseline`, in each primary metric and each event.

    All of them form one family for Holm's adjustment, except those of metrics that no run logged.
    """
    by_name = {arm.arm: arm for arm in arms}
    base = by_name.get(baseline)
    if base is None:
        return []
    drafts: list[_Draft] = []
    for arm in arms:
        if arm.arm == baseline:
            continue
        for name in spec.primary:
            drafts.append(_draft_metric(arm, base, metric_spec(name), pairing, spec))
        drafts.extend(_draft_event(arm, base, name, spec) for name in EVENTS)
    family = [draft for draft in drafts if not _is_not_logged(draft)]
    adjusted = holm([1.0 if d.comparison.p is None else d.comparison.p for d in family])
    p_holm = dict(zip(map(id, family), adjusted, strict=True))
    return [_decide(draft, p_holm.get(id(draft)), len(family), spec) for draft in drafts]


def _draft_metric(
    arm: ArmSummary, base: ArmSummary, metric: MetricSpec, pairing: str, spec: AnalysisSpec
) -> _Draft:
    ours, theirs = _values(arm, metric), _values(base, metric)
    is_paired = pairing == "seed"
    test: MeanTest | None = None
    if is_paired:
        seeds = sorted(ours.keys() & theirs.keys())
        num_arm = num_baseline = len(seeds)
        if num_arm >= 2:
            test = paired_t([ours[seed] - theirs[seed] for seed in seeds], spec.alpha)
    else:
        num_arm, num_baseline = len(ours), len(theirs)
        if min(num_arm, num_baseline) >= 2:
            a, b = ([values[seed] for seed in sorted(values)] for values in (ours, theirs))
            test = welch_t(a, b, spec.alpha)
    comparison = Comparison(
        arm=arm.arm,
        name=metric.name,
        scale=metric.scale,
        test="paired t" if is_paired else "Welch t",
        num_arm=num_arm,
        num_baseline=num_baseline,
        is_interim=_num_missing(arm) + _num_missing(base) > 0,
    )
    if test is not None:
        comparison = replace(
            comparison,
            effect=off_scale(metric, test.effect),
            low=_possible(metric, off_scale(metric, test.low)),
            high=_possible(metric, off_scale(metric, test.high)),
            p=test.p if test.is_finite else None,
        )
    barrier = (
        _logging_barrier(arm, base, metric.name)
        or _count_barrier(arm, base)
        or _value_barrier(arm, base, metric)
        or _overflow_barrier(test)
        or _small_barrier(num_arm, num_baseline, "pair" if is_paired else "run")
        or _collapse_barrier(arm, base, metric)
    )
    return _Draft(comparison, test if test is not None and test.is_finite else None, barrier)


def _draft_event(arm: ArmSummary, base: ArmSummary, name: str, spec: AnalysisSpec) -> _Draft:
    ours, theirs = _event(arm, name), _event(base, name)
    a = (ours.share.k, ours.share.n) if ours.share else (0, 0)
    b = (theirs.share.k, theirs.share.n) if theirs.share else (0, 0)
    comparison = Comparison(
        arm=arm.arm,
        name=name,
        scale="share",
        test="Fisher exact",
        num_arm=a[1],
        num_baseline=b[1],
        is_interim=_num_missing(arm) + _num_missing(base) > 0,
    )
    if a[1] and b[1]:
        comparison = replace(comparison, effect=a[0] / a[1] - b[0] / b[1], p=fisher_exact(a, b))
    num_undecidable = ours.num_undecidable + theirs.num_undecidable
    barrier = _count_barrier(arm, base)
    if barrier is None and num_undecidable:
        barrier = _not_decidable(f"{_runs(num_undecidable)} can't be judged")
    barrier = barrier or _small_barrier(a[1], b[1], "run")
    if barrier is None and least_fisher_p(a[1], b[1]) >= spec.alpha:
        level = f"{100 * spec.alpha:g}%"
        barrier = _not_decidable(f"{a[1]} against {b[1]} runs can't reach {level}")
    return _Draft(comparison, None, barrier)


def _decide(draft: _Draft, p_holm: float | None, num_tests: int, spec: AnalysisSpec) -> Comparison:
    found = draft.comparison
    metric = metric_spec(found.name)
    mde: float | None = None
    if draft.test is not None:
        shift = minimum_detectable(
            draft.test.standard_error, draft.test.df, spec.alpha / max(1, num_tests)
        )
        mde = off_scale(metric, shift)
    found = replace(found, p_holm=None if found.p is None else p_holm, mde=mde)
    if draft.barrier is not None:
        verdict, detail = draft.barrier
        return replace(found, verdict=verdict, detail=detail)
    assert found.effect is not None
    assert found.p_holm is not None
    if _is_within_margin(found, spec):
        return replace(found, verdict=Verdict.WITHIN_MARGIN, detail=f"{spec.margin:g}")
    if found.p_holm >= spec.alpha:
        detail = "" if mde is None else _mde_text(metric, mde)
        return replace(found, verdict=Verdict.NO_DIFFERENCE, detail=detail)
    direction = "lower" if found.scale == "share" else metric.direction
    return replace(found, verdict=_side(found.effect > found.no_effect, direction))


def _side(is_higher: bool, direction: str) -> Verdict:
    if direction == "none":
        return Verdict.HIGHER if is_higher else Verdict.LOWER
    return Verdict.BETTER if is_higher == (direction == "higher") else Verdict.WORSE


def _is_within_margin(found: Comparison, spec: AnalysisSpec) -> bool:
    """Whether the whole interval lies within the margin, which is one of the solve rate."""
    if found.name != "solve_rate" or found.low is None or found.high is None:
        return False
    return -spec.margin < found.low and found.high < spec.margin


def _mde_text(metric: MetricSpec, mde: float) -> str:
    if not math.isfinite(mde):
        return "MDE not finite"
    if metric.scale == "ratio":
        return f"MDE \N{MULTIPLICATION SIGN}{mde:.3g}"
    widest = _widest(metric)
    return f"MDE {mde:.3g}" if widest is None or mde <= widest else f"MDE beyond {widest:g}"


def _possible(metric: MetricSpec, effect: float) -> float:
    """Return the end of an interval cut to what a difference can be."""
    widest = _widest(metric)
    if metric.scale == "ratio" or widest is None:
        return effect
    return max(-widest, min(widest, effect))


def _widest(metric: MetricSpec) -> float | None:
    low, high = metric.bounds
    return None if low is None or high is None else high - low


def _values(arm: ArmSummary, metric: MetricSpec) -> dict[int, float]:
    """Return the finished runs' values where differences are taken, by seed."""
    found: dict[int, float] = {}
    for summary in arm.done:
        mean = summary.means.get(metric.name)
        value = None if mean is None or mean.mean is None else on_scale(metric, mean.mean)
        if value is not None:
            found[summary.run.seed] = value
    return found


def _event(arm: ArmSummary, name: str) -> EventShare:
    return arm.collapsed if name == "collapsed" else arm.exploded


def _num_missing(arm: ArmSummary) -> int:
    return len(arm.runs) - len(arm.done)


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _not_decidable(detail: str) -> tuple[Verdict, str]:
    return Verdict.NOT_DECIDABLE, detail


_Barrier = tuple[Verdict, str] | None
NOT_LOGGED = "not logged"


def _is_not_logged(draft: _Draft) -> bool:
    return draft.barrier is not None and draft.barrier[1] == NOT_LOGGED


def _logging_barrier(arm: ArmSummary, base: ArmSummary, name: str) -> _Barrier:
    if not any(summary.run.curve(name) for summary in (*arm.runs, *base.runs)):
        return _not_decidable(NOT_LOGGED)
    return None


def _count_barrier(arm: ArmSummary, base: ArmSummary) -> _Barrier:
    for side in (arm, base):
        if _num_missing(side):
            done, planned = len(side.done), len(side.runs)
            return Verdict.INCOMPLETE, f"{side.arm}: {done} of {planned} runs finished"
    return None


def _value_barrier(arm: ArmSummary, base: ArmSummary, metric: MetricSpec) -> _Barrier:
    """A metric that is missing or not finite in some runs would be judged by the survivors."""
    checks: Mapping[str, Callable[[RunSummary], bool]] = {
        "not logged": lambda s: s.run.curve(metric.name) is None,
        "not finite": lambda s: _count(s, metric.name, "num_nonfinite") > 0,
        "without a value": lambda s: _count(s, metric.name, "num_values") == 0,
        "0": lambda s: metric.scale == "ratio" and (s.means[metric.name].mean or 0.0) <= 0,
    }
    for side in (arm, base):
        for words, is_so in checks.items():
            number = sum(is_so(summary) for summary in side.done)
            if number:
                where = "" if words == "not logged" else " in the final window"
                return _not_decidable(f"{words}{where} in {_runs(number)} of {side.arm}")
    return None


def _count(summary: RunSummary, name: str, field: str) -> int:
    mean = summary.means.get(name)
    return 0 if mean is None else int(getattr(mean, field))


def _overflow_barrier(test: MeanTest | None) -> _Barrier:
    if test is None or test.is_finite:
        return None
    return _not_decidable("the differences are beyond the range of floats")


def _small_barrier(num_arm: int, num_baseline: int, noun: str) -> _Barrier:
    number = min(num_arm, num_baseline)
    if number >= MIN_RUNS:
        return None
    if number == 0:
        return _not_decidable(f"no {noun}")
    return _not_decidable("one seed" if number == 1 else "two seeds")


def _collapse_barrier(arm: ArmSummary, base: ArmSummary, metric: MetricSpec) -> _Barrier:
    """After a collapse weights freeze and the engine catches up: only the solve rate still says
    something."""
    if metric.name.startswith("solve_rate"):
        return None
    number = len(arm.collapsed.steps) + len(base.collapsed.steps)
    if number:
        return _not_decidable(f"says little after the collapse of {_runs(number)}")
    return None
