"""What came out, in sentences that say no more than the comparisons do."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.metrics import metric_spec
from analysis.replicates import replicates_of
from analysis.report.numbers import format_effect, format_level, format_p
from analysis.report.stops import stop_finding
from analysis.results import Results
from analysis.summary import ArmSummary, EventShare
from analysis.verdicts import Comparison, Verdict

_EVENT_WORDS = {"collapsed": "The solve rate collapsed", "exploded": "Mismatch KL exploded"}


def find_findings(results: Results) -> list[str]:
    """Return one sentence per event, one per arm, and what the comparisons leave open."""
    if not any(arm.judged for arm in results.arms):
        return ["No run has finished: there is nothing to compare yet."]
    # Where every run ends at the same step, there is nothing to say about how far it was judged.
    end = results.judged_to if results.runs_beyond else None
    sentences = [_event_sentence(name, results.arms, end) for name in _EVENT_WORDS]
    sentences += [stop_finding(results), *_late_collapses(results)]
    baseline = results.sweep.plan.baseline
    replicates = replicates_of(results.sweep.plan.arms)
    items = [item for item in results.comparisons if not item.replicate_of]
    words = {item.words for item in items}
    arms = [arm for arm in results.arms if arm.arm not in replicates]
    if len(words) == 1 and len(items) > 1:
        sentences.append(f"Every comparison with {baseline}: {words.pop()}.")
    else:
        sentences += [_arm_sentence(arm, results) for arm in arms if arm.arm != baseline]
    sentences += [_replicate_sentence(arm, of, results) for arm, of in replicates.items()]
    if len(arms) > 2:
        sentences.append(
            f"Arms were compared with {baseline} only: nothing here tests one of the others against"
            " another."
        )
    return [sentence for sentence in sentences if sentence]


def _arm_sentence(arm: ArmSummary, results: Results) -> str:
    baseline = results.sweep.plan.baseline
    items = [item for item in results.comparisons if item.arm == arm.arm]
    metrics = [item for item in items if item.scale != "share"]
    if not metrics:
        return ""
    if _is_open(metrics[0]) and {item.words for item in metrics} == {metrics[0].words}:
        return f"{arm.arm} against {baseline}: {metrics[0].words}."
    events = {item.name: item for item in items if item.scale == "share"}
    alpha = results.sweep.plan.analysis.alpha
    parts = "; ".join(_comparison_text(item, events, alpha) for item in metrics)
    stopped = len(arm.judged) - len(arm.done)
    left = f" Means are of the {len(arm.done)} of {len(arm.judged)} runs that no rule stopped."
    return f"{arm.arm} against {baseline}: {parts}.{left if stopped else ''}"


def _replicate_sentence(arm: str, of: str, results: Results) -> str:
    items = [item for item in results.comparisons if item.arm == arm and item.scale != "share"]
    parts = "; ".join(
        f"{metric_spec(item.name).label} "
        + (
            item.words
            if item.effect is None
            else format_effect(item.scale, item.effect, item.low, item.high)
        )
        for item in items
    )
    return f"A/A difference of {of} ({arm}): {parts}."


def _comparison_text(item: Comparison, events: Mapping[str, Comparison], alpha: float) -> str:
    label = metric_spec(item.name).label
    if item.is_exploratory:
        effect = format_effect(item.scale, item.effect, item.low, item.high)
        return f"{label} (exploratory) {item.words}, {effect}, {_p_text(item.p)} unadjusted"
    text = f"{label} {item.words}"
    if _is_open(item):
        return text
    event = next((e for e in events.values() if e.rule == item.rule), None)
    if event is not None:
        share = format_effect(event.scale, event.effect, event.low, event.high)
        effect = format_effect(item.scale, item.effect, None, None)
        fisher = f"Fisher {_p_text(event.p)}, {_p_text(event.p_holm)} after Holm"
        return (
            f"{text}; difference in share {share}, {fisher}; means {effect}, not tested, as they"
            " mix two kinds of run"
        )
    text += f", {format_effect(item.scale, item.effect, item.low, item.high)}"
    if item.verdict is Verdict.EQUIVALENT:
        return text
    if item.verdict is Verdict.NO_DIFFERENCE and item.has_interval_beside_zero:
        text += f" ({format_level(alpha)} interval before Holm)"
    return f"{text}, {_p_text(item.p_holm)} after Holm"


def _p_text(value: float | None) -> str:
    p = format_p(value)
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def _late_collapses(results: Results) -> list[str]:
    """Say which collapses began so near the end that others recovered from as long a dip."""
    end = results.judged_to
    dips = [
        dip.last - dip.first + 1
        for summary in results.runs
        if summary.events is not None
        for dip in summary.events.dips
    ]
    if end is None or not dips:
        return []
    longest = max(dips)
    late = [
        (arm.arm, sum(end - step < longest for step in arm.collapsed.steps)) for arm in results.arms
    ]
    named = ", ".join(f"{number} of {name}" for name, number in late if number)
    if not named:
        return []
    return [
        f"Of the collapses, {named} had fewer steps left to recover than the longest dip that"
        f" recovered ({longest} steps): they are provisional."
    ]


def _is_open(item: Comparison) -> bool:
    return item.verdict in (Verdict.NOT_DECIDABLE, Verdict.INCOMPLETE)


def _event_sentence(name: str, arms: tuple[ArmSummary, ...], judged_to: int | None) -> str:
    shares = {arm.arm: _share(arm, name) for arm in arms if arm.judged}
    decided = {arm: event for arm, event in shares.items() if event.share is not None}
    if not decided:
        text = f"{_EVENT_WORDS[name]}: not decidable in any run"
        return f"{text}{_up_to(judged_to)}."
    happened = {arm: event for arm, event in decided.items() if event.steps}
    never = [arm for arm in decided if arm not in happened]
    undecidable = [arm for arm in shares if arm not in decided]
    if not happened:
        text = f"{_EVENT_WORDS[name]} in no run of any arm"
    else:
        parts = [
            f"{arm} {len(event.steps)} of {event.share.n if event.share else 0} (from step "
            f"{event.steps[0]})"
            for arm, event in happened.items()
        ]
        text = f"{_EVENT_WORDS[name]} in {', '.join(parts)}"
        if never:
            text += f"; in no run of {', '.join(never)}"
    if undecidable:
        text += f"; not decidable for {', '.join(undecidable)}"
    return f"{text}{_up_to(judged_to)}."


def _up_to(judged_to: int | None) -> str:
    return "" if judged_to is None else f" (judged up to step {judged_to}, which every arm reached)"


def _share(arm: ArmSummary, name: str) -> EventShare:
    return arm.collapsed if name == "collapsed" else arm.exploded
