"""What each comparison of two arms comes to before it is adjusted for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis import barriers
from analysis.barriers import Barrier, WindowMeans, count_of
from analysis.curve import IntArray
from analysis.metrics import MetricSpec
from analysis.noise import NoiseInterval, SeedNoise, noise_interval
from analysis.resampling import IqmEffect, iqm_effect
from analysis.statistics import MeanTest, fisher_exact, paired_t, share_difference, welch_t
from analysis.summary import ArmSummary, EventShare, off_scale, on_scale
from analysis.verdicts import Comparison, Verdict
from analysis.windows import final_window, gone_kl_steps, window_mean
from harness.records.model import AnalysisSpec

SPLIT_BY_EXPLOSION = ("mismatch_kl", "mismatch_kl_sampled")


@dataclass(frozen=True)
class Draft:
    """A comparison before the adjustment.

    Attributes:
        test: of a metric, where its numbers are finite.
        barrier: why no test may decide it.
        decided_by: the event that decides a metric in place of its test.
        shares: of an event, for arm and baseline.
    """

    comparison: Comparison
    test: MeanTest | None = None
    barrier: Barrier | None = None
    decided_by: str = ""
    shares: tuple[EventShare, EventShare] | None = None

    @property
    def p(self) -> float:
        """What enters Holm's family: 1 where something else than the test decides."""
        if self.barrier is not None or self.decided_by or self.comparison.p is None:
            return 1.0
        return self.comparison.p


@dataclass(frozen=True)
class _Values:
    """One metric of a pair of arms where differences are taken; equal places are pairs, if any.

    `effect` is there from one run on either side on, `test` from two.
    """

    arm: tuple[float, ...]
    baseline: tuple[float, ...]
    test: MeanTest | None
    effect: float | None


def draft_metric(
    arm: ArmSummary,
    base: ArmSummary,
    metric: MetricSpec,
    pairing: str,
    spec: AnalysisSpec,
    noise: Mapping[str, SeedNoise],
) -> Draft:
    """Return `metric` of `arm` against `base` over the window of this pair, unadjusted."""
    is_paired = pairing == "seed"
    window = None
    if arm.done and base.done:
        window = final_window([s.run for s in (*arm.done, *base.done)], spec.last_steps)
    ours, theirs = (
        {} if window is None else _window_means(side, metric.name, window.steps, spec)
        for side in (arm, base)
    )
    mixed = barriers.of_definitions(arm, base, metric.name)
    if mixed:
        ours = theirs = {}  # a difference between two definitions is no effect
    values = _comparable(metric, ours, theirs, is_paired, spec.alpha)
    num_arm, num_baseline = len(values.arm), len(values.baseline)
    test = values.test
    is_tested = test is not None and test.is_finite
    comparison = Comparison(
        arm=arm.arm,
        name=metric.name,
        scale=metric.scale,
        test="paired t" if is_paired else "Welch t",
        num_arm=num_arm,
        num_baseline=num_baseline,
        effect=None if values.effect is None else off_scale(metric, values.effect),
        low=None if test is None else possible(metric, test.low),
        high=None if test is None else possible(metric, test.high),
        p=test.p if test is not None and is_tested else None,
        iqm=_iqm(metric, values, is_paired, spec.alpha),
        noise=_noise(metric, values, noise.get(metric.name), spec.alpha),
        window=None if window is None else (window.first, window.last, len(window.steps)),
        left_out=(*barriers.left_out(arm), *barriers.left_out(base)),
        is_interim=barriers.num_pending(arm) + barriers.num_pending(base) > 0,
    )
    barrier = barriers.of_logging(arm, base, metric.name) or barriers.of_runs(
        arm, base, spec.max_left_out
    )
    barrier = barrier or mixed or barriers.of_late_collapses(arm, base)
    decided_by = "" if barrier else _deciding_event(arm, base, metric.name)
    sides = {arm.arm: (arm, ours), base.arm: (base, theirs)}
    barrier = (
        barrier
        or barriers.of_stopped_runs(arm, base)
        or barriers.of_values(metric, sides)
        or barriers.of_overflow(test)
        or barriers.of_number(num_arm, num_baseline, "pair" if is_paired else "run")
        or barriers.of_spread(test, (*values.arm, *values.baseline), metric)
    )
    return Draft(comparison, test if is_tested else None, barrier, decided_by)


def _comparable(
    metric: MetricSpec, ours: WindowMeans, theirs: WindowMeans, is_paired: bool, alpha: float
) -> _Values:
    """Return the values that the declared test compares, and its result from two runs on."""
    a, b = _scaled(metric, ours), _scaled(metric, theirs)
    seeds = sorted(a.keys() & b.keys())
    arm = [a[seed] for seed in (seeds if is_paired else sorted(a))]
    baseline = [b[seed] for seed in (seeds if is_paired else sorted(b))]
    test: MeanTest | None = None
    effect: float | None = None
    number = min(len(arm), len(baseline))
    if number >= 2:
        test = (
            paired_t([x - y for x, y in zip(arm, baseline, strict=True)], alpha)
            if is_paired
            else welch_t(arm, baseline, alpha)
        )
        effect = test.effect
    elif len(arm) == len(baseline) == 1:
        effect = arm[0] - baseline[0]
    return _Values(tuple(arm), tuple(baseline), test, effect)


def draft_event(arm: ArmSummary, base: ArmSummary, name: str, spec: AnalysisSpec) -> Draft:
    """Return the event `name` in the judged runs of `arm` against those of `base`, unadjusted."""
    ours, theirs = event_share(arm, name), event_share(base, name)
    a = (ours.share.k, ours.share.n) if ours.share else (0, 0)
    b = (theirs.share.k, theirs.share.n) if theirs.share else (0, 0)
    comparison = Comparison(
        arm=arm.arm,
        name=name,
        scale="share",
        test="Fisher exact",
        num_arm=a[1],
        num_baseline=b[1],
        window=_event_window(ours, theirs, spec),
        left_out=(*barriers.left_out(arm), *barriers.left_out(base)),
        is_interim=barriers.num_pending(arm) + barriers.num_pending(base) > 0,
    )
    if ours.share and theirs.share:
        low, high = share_difference(ours.share, theirs.share)
        effect = a[0] / a[1] - b[0] / b[1]
        comparison = replace(comparison, effect=effect, low=low, high=high, p=fisher_exact(a, b))
    num_undecidable = ours.num_undecidable + theirs.num_undecidable
    barrier = barriers.of_runs(arm, base, spec.max_left_out)
    if barrier is None and num_undecidable:
        detail = f"{count_of(num_undecidable)} can't be judged"
        barrier = Barrier(Verdict.NOT_DECIDABLE, detail, "events undecidable")
    barrier = barrier or barriers.of_number(a[1], b[1], "run")
    return Draft(comparison, barrier=barrier, shares=(ours, theirs))


def event_share(arm: ArmSummary, name: str) -> EventShare:
    """Return the share of runs of `arm` with the event called `name`."""
    return arm.collapsed if name == "collapsed" else arm.exploded


def widest(metric: MetricSpec) -> float | None:
    """Return the largest difference that `metric` can have; None without bounds."""
    low, high = metric.bounds
    return None if low is None or high is None else high - low


def possible(metric: MetricSpec, effect: float) -> float:
    """Return the end of an interval, brought back from the logs, cut to what it can be."""
    effect = off_scale(metric, effect)
    most = widest(metric)
    if metric.scale == "ratio" or most is None:
        return effect
    return max(-most, min(most, effect))


def _window_means(arm: ArmSummary, name: str, steps: IntArray, spec: AnalysisSpec) -> WindowMeans:
    found = {}
    for summary in arm.done:
        if summary.run.curve(name) is not None:
            gone = None
            if name == "mismatch_kl":
                gone = gone_kl_steps(summary.run, spec.baseline_steps[1])
            found[summary.run.seed] = window_mean(summary.run, name, steps, gone)
    return found


def _scaled(metric: MetricSpec, means: WindowMeans) -> dict[int, float]:
    """Return the values where differences are taken, by seed."""
    scaled = {
        seed: None if mean.mean is None else on_scale(metric, mean.mean)
        for seed, mean in means.items()
    }
    return {seed: value for seed, value in scaled.items() if value is not None}


def _iqm(metric: MetricSpec, values: _Values, is_paired: bool, alpha: float) -> IqmEffect | None:
    found = iqm_effect(values.arm, values.baseline, is_paired=is_paired, alpha=alpha)
    if found is None:
        return None
    low, high = possible(metric, found.low), possible(metric, found.high)
    return IqmEffect(off_scale(metric, found.effect), low, high)


def _noise(
    metric: MetricSpec, values: _Values, noise: SeedNoise | None, alpha: float
) -> NoiseInterval | None:
    """Return where the effect of one run against one would lie by the noise of other sweeps."""
    if noise is None or values.effect is None or values.test is not None:
        return None
    low, high = noise_interval(values.effect, noise, 1, 1, alpha)
    low, high = possible(metric, low), possible(metric, high)
    return NoiseInterval(low, high, noise.sd, noise.df, noise.label)


def _event_window(
    ours: EventShare, theirs: EventShare, spec: AnalysisSpec
) -> tuple[int, int, int] | None:
    """Return from where to where an event could be seen in a run of either arm."""
    ends = [*ours.steps, *theirs.steps, *ours.censored_at, *theirs.censored_at]
    first = spec.baseline_steps[0]
    if not ends or max(ends) < first:
        return None
    return first, max(ends), max(ends) - first + 1


def _deciding_event(arm: ArmSummary, base: ArmSummary, name: str) -> str:
    """Return the event that splits the runs of either arm in two humps in metric `name`.

    Where every run of both arms exploded there is one hump, and the metric's own test stands.
    """
    if arm.collapsed.steps or base.collapsed.steps:
        return "collapsed"
    number = len(arm.exploded.steps) + len(base.exploded.steps)
    judged = sum(side.exploded.share.n for side in (arm, base) if side.exploded.share)
    if name in SPLIT_BY_EXPLOSION and 0 < number < judged:
        return "exploded"
    return ""
