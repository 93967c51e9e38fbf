"""Arms against the baseline: the declared test, adjusted for how many there are, in fixed words.

One number per run enters: the mean over the final window of the pair of arms, or whether an event
happened. Pairing `seed` gives the paired t test of per-seed differences, `none` Welch's; ratios are
tested as differences of logs. Events are tested by Fisher's exact test under either pairing: arms
that share a seed's random numbers tend to agree, which makes it conservative, while the exact
McNemar test can't reach 5 % with fewer than six pairs however they come out.

Where runs either hold or collapse, their means have two humps, and a t test of a few such runs
calls a chance pattern sure: with 3 against 3 all of one kind have a probability of up to 1/32, at
whatever level. So an event among the runs decides in place of the t test: a collapse for every
metric, an explosion of mismatch KL for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.barriers import NOT_LOGGED, Barrier, count_of
from analysis.drafts import Draft, draft_event, draft_metric, event_share, widest
from analysis.metrics import MetricSpec, metric_spec
from analysis.noise import SeedNoise
from analysis.statistics import (
    detectable,
    fisher_detectable,
    holm,
    least_fisher_p,
    tost_p,
)
from analysis.summary import ArmSummary, EventShare, off_scale
from analysis.verdicts import Comparison, Verdict
from harness.records.model import AnalysisSpec

EVENTS = ("collapsed", "exploded")
EVENT_RULES: Mapping[str, str] = {
    "collapsed": "collapse, Fisher exact",
    "exploded": "explosion, Fisher exact",
}

EVENT_NOUNS = {"collapsed": "collapse", "exploded": "explosion"}
_MARGIN_METRIC = "solve_rate"  # The margin of a sweep is one of the solve rate.


def compare_arms(
    arms: Sequence[ArmSummary],
    baseline: str,
    *,
    pairing: str,
    spec: AnalysisSpec,
    noise: Mapping[str, SeedNoise] | None = None,
) -> list[Comparison]:
    """Return every arm against `baseline`, in each primary metric, event and exploratory metric.

    Primary metrics and events form one family for Holm's adjustment, except metrics that no run
    logged. A test whose place an event has taken stays in the family as p = 1, so that its size
    never depends on what came out.

    Args:
        noise: seed noise of other sweeps by metric, shown where one run is against one.
    """
    by_name = {arm.arm: arm for arm in arms}
    base = by_name.get(baseline)
    if base is None:
        return []
    drafts: list[Draft] = []
    for arm in arms:
        if arm.arm == baseline:
            continue
        for name in spec.primary:
            drafts.append(draft_metric(arm, base, metric_spec(name), pairing, spec, noise or {}))
        drafts.extend(draft_event(arm, base, name, spec) for name in EVENTS)
        for name in spec.exploratory:
            if name not in spec.primary:
                draft = draft_metric(arm, base, metric_spec(name), pairing, spec, noise or {})
                found = replace(draft.comparison, is_exploratory=True)
                drafts.append(replace(draft, comparison=found))
    family = [draft for draft in drafts if _is_in_family(draft)]
    adjusted = holm([draft.p for draft in family])
    p_holm = dict(zip(map(id, family), adjusted, strict=True))
    p_equivalent = _equivalence(family, spec)
    decided = [
        _decide_event(draft, family, p_holm[id(draft)], spec)
        if draft.comparison.name in EVENTS
        else _decide_metric(
            draft, p_holm.get(id(draft)), p_equivalent.get(id(draft)), len(family), spec
        )
        for draft in drafts
    ]
    events = {(item.arm, item.name): item for item in decided if item.name in EVENTS}
    return [
        _decide_by_event(item, events[item.arm, draft.decided_by], by_name[item.arm], base)
        if draft.decided_by
        else item
        for draft, item in zip(drafts, decided, strict=True)
    ]


def _is_in_family(draft: Draft) -> bool:
    if draft.comparison.is_exploratory:
        return False
    return draft.barrier is None or draft.barrier.detail != NOT_LOGGED


def _equivalence(family: Sequence[Draft], spec: AnalysisSpec) -> dict[int, float]:
    """Return the adjusted p of every equivalence that is tested, by the id of its draft."""
    tested = [draft for draft in family if draft.comparison.name == _MARGIN_METRIC]
    p_values = [
        1.0
        if draft.test is None or draft.barrier is not None or draft.decided_by
        else tost_p(draft.test, spec.margin)
        for draft in tested
    ]
    return dict(zip(map(id, tested), holm(p_values), strict=True))


def _decide_metric(
    draft: Draft,
    p_holm: float | None,
    p_equivalent: float | None,
    num_tests: int,
    spec: AnalysisSpec,
) -> Comparison:
    found, effect = draft.comparison, draft.comparison.effect
    metric = metric_spec(found.name)
    if draft.barrier is None and found.p is not None:
        found = replace(found, p_holm=p_holm, p_equivalent=p_equivalent)
    if draft.test is not None:
        alpha = spec.alpha if found.is_exploratory else spec.alpha / max(1, num_tests)
        mde = detectable(draft.test, alpha, level=1 - spec.alpha)
        shift, low, high = (off_scale(metric, x) for x in (mde.shift, mde.low, mde.high))
        found = replace(found, mde=shift, mde_low=low, mde_high=high)
    if draft.barrier is not None:
        return _with_barrier(found, draft.barrier)
    assert effect is not None
    assert found.p is not None
    undetected = replace(found, verdict=Verdict.NO_DIFFERENCE, detail=_mde_text(metric, found.mde))
    if found.is_exploratory:
        rule = f"{found.test}, exploratory"
        if found.p < spec.alpha:
            return replace(found, detail="exploratory", rule=rule)
        return replace(undetected, rule=rule)
    assert p_holm is not None
    if p_equivalent is not None and p_equivalent < spec.alpha:
        rule = f"two one-sided {found.test} tests, margin {spec.margin:g}"
        detail = f"within {spec.margin:g}"
        return replace(found, verdict=Verdict.EQUIVALENT, detail=detail, rule=rule)
    rule = f"{found.test}, Holm over {num_tests}"
    if p_holm >= spec.alpha:
        return replace(undetected, rule=rule)
    if metric.direction == "none":
        return replace(found, detail=f"{metric.label} has no better side", rule=rule)
    is_better = (effect > found.no_effect) == (metric.direction == "higher")
    return replace(found, verdict=Verdict.BETTER if is_better else Verdict.WORSE, rule=rule)


def _decide_event(
    draft: Draft, family: Sequence[Draft], p_holm: float, spec: AnalysisSpec
) -> Comparison:
    found, shares, effect = draft.comparison, draft.shares, draft.comparison.effect
    assert shares is not None
    found = _with_event_mde(found, shares, spec, len(family))
    if draft.barrier is not None:
        return _with_barrier(found, draft.barrier)
    assert effect is not None
    rule = f"{EVENT_RULES[found.name]}, Holm over {len(family)}"
    found = replace(found, p_holm=p_holm, rule=rule)
    verdict = Verdict.NO_DIFFERENCE
    if p_holm < spec.alpha:
        is_fewer = effect < 0
        verdict = Verdict.BETTER if is_fewer else Verdict.WORSE
        if found.name == "collapsed" and not is_fewer:
            verdict = Verdict.COLLAPSED
    else:
        out_of_reach = _out_of_reach(draft, family, spec.alpha)
        if out_of_reach:
            counts = _event_detail(found.name, verdict, shares)
            return replace(found, detail=f"{out_of_reach}: {counts}, p = {found.p:.3g}")
    detail = _event_detail(found.name, verdict, shares)
    if verdict is Verdict.NO_DIFFERENCE and found.mde is not None:
        detail += f", MDE {found.mde:.2f}" if found.mde <= 1 else ", MDE beyond 1"
    return replace(found, verdict=verdict, detail=detail)


def _out_of_reach(draft: Draft, family: Sequence[Draft], alpha: float) -> str:
    """Say where so few runs could not have shown anything: not even all against none."""
    n = (draft.comparison.num_arm, draft.comparison.num_baseline)
    least = least_fisher_p(*n)
    words = f"{n[0]} v {n[1]} runs can't reach {100 * alpha:g} %"
    if least >= alpha:
        return words
    # What Holm makes of the clearest outcome, with all other comparisons as they came out.
    best = holm([least, *(other.p for other in family if other is not draft)])[0]
    return f"{words} among {len(family)} comparisons" if best >= alpha else ""


def _decide_by_event(
    found: Comparison, event: Comparison, arm: ArmSummary, base: ArmSummary
) -> Comparison:
    """Return the comparison of a metric with the verdict of an event among its runs."""
    number = len(event_share(arm, event.name).steps) + len(event_share(base, event.name).steps)
    after = f"says little after the {EVENT_NOUNS[event.name]} of {count_of(number)}"
    if found.is_exploratory:
        return replace(found, verdict=Verdict.NOT_DECIDABLE, detail=after, rule=event.rule)
    verdict, detail = event.verdict, event.detail
    is_barred = event.p_holm is None
    if event.name == "collapsed" and found.name != "solve_rate" and not is_barred:
        # Whatever the collapses show, what is left of another metric after them shows nothing.
        verdict, detail = Verdict.NOT_DECIDABLE, after
        event = replace(event, p=None, p_holm=None)
    if is_barred:
        event = replace(event, p=None)
    return replace(
        found,
        p=event.p,
        p_holm=event.p_holm,
        p_equivalent=None,
        verdict=verdict,
        detail=detail,
        rule=event.rule,
    )


def _with_barrier(found: Comparison, barrier: Barrier) -> Comparison:
    return replace(found, verdict=barrier.verdict, detail=barrier.detail, rule=barrier.rule)


def _with_event_mde(
    found: Comparison, shares: tuple[EventShare, EventShare], spec: AnalysisSpec, num_tests: int
) -> Comparison:
    base = shares[1].share
    if base is None or not found.num_arm:
        return found
    alpha = spec.alpha / max(1, num_tests)
    mde, *ends = (
        fisher_detectable(found.num_arm, found.num_baseline, share, alpha)
        for share in (base.k / base.n, base.low, base.high)
    )
    return replace(found, mde=mde, mde_low=min(mde, *ends), mde_high=max(mde, *ends))


def _event_detail(name: str, verdict: Verdict, shares: tuple[EventShare, EventShare]) -> str:
    ours, theirs = (f"{e.share.k} of {e.share.n}" if e.share else "0 of 0" for e in shares)
    if verdict is Verdict.COLLAPSED:
        return f"{ours}, from step {shares[0].steps[0]}"
    return f"{EVENT_NOUNS[name]} in {ours} against {theirs}"


def _mde_text(metric: MetricSpec, mde: float | None) -> str:
    if mde is None:
        return ""
    if not math.isfinite(mde):
        return "MDE not finite"
    if metric.scale == "ratio":
        return f"MDE \N{MULTIPLICATION SIGN}{mde:.3g}"
    most = widest(metric)
    return f"MDE {mde:.3g}" if most is None or mde <= most else f"MDE beyond {most:g}"
