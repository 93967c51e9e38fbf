"""What came out, in sentences that say no more than the comparisons do."""

from __future__ import annotations

from analysis.metrics import metric_spec
from analysis.report.numbers import format_effect, format_level, format_p
from analysis.results import Results
from analysis.summary import ArmSummary, EventShare
from analysis.verdicts import Comparison, Verdict

_EVENT_WORDS = {"collapsed": "The solve rate collapsed", "exploded": "Mismatch KL exploded"}


def find_findings(results: Results) -> list[str]:
    """Return one sentence per event and one per arm."""
    if not any(arm.done for arm in results.arms):
        return ["No run has finished: there is nothing to compare yet."]
    # Where every run ends at the same step, there is nothing to say about how far it was judged.
    end = results.judged_to if results.runs_beyond else None
    sentences = [_event_sentence(name, results.arms, end) for name in _EVENT_WORDS]
    baseline = results.sweep.plan.baseline
    words = {item.words for item in results.comparisons}
    if len(words) == 1 and len(results.comparisons) > 1:
        return [*sentences, f"Every comparison with {baseline}: {words.pop()}."]
    for arm in results.arms:
        items = [i for i in results.comparisons if i.arm == arm.arm and i.scale != "share"]
        if items and {item.words for item in items} == {items[0].words} and _is_open(items[0]):
            sentences.append(f"{arm.arm} against {baseline}: {items[0].words}.")
        elif items:
            alpha = results.sweep.plan.analysis.alpha
            parts = "; ".join(_comparison_text(item, alpha) for item in items)
            sentences.append(f"{arm.arm} against {baseline}: {parts}.")
    return sentences


def _comparison_text(item: Comparison, alpha: float) -> str:
    text = f"{metric_spec(item.name).label} {item.words}"
    if _is_open(item):
        return text
    text += f", {format_effect(item.scale, item.effect, item.low, item.high)}"
    if item.verdict is Verdict.EQUIVALENT:
        return text
    by_event = "Fisher" in item.rule
    if item.verdict is Verdict.NO_DIFFERENCE and item.has_interval_beside_zero and not by_event:
        text += f" ({format_level(alpha)} interval before Holm)"
    p = format_p(item.p_holm)
    text += f", p {p if p.startswith('<') else f'= {p}'}"
    return f"{text} ({item.rule})" if by_event else f"{text} after Holm"


def _is_open(item: Comparison) -> bool:
    return item.verdict in (Verdict.NOT_DECIDABLE, Verdict.INCOMPLETE)


def _event_sentence(name: str, arms: tuple[ArmSummary, ...], judged_to: int | None) -> str:
    shares = {arm.arm: _share(arm, name) for arm in arms if arm.done}
    decided = {arm: event for arm, event in shares.items() if event.share is not None}
    if not decided:
        text = f"{_EVENT_WORDS[name]}: not decidable in any finished run"
        return f"{text}{_up_to(judged_to)}."
    happened = {arm: event for arm, event in decided.items() if event.steps}
    never = [arm for arm in decided if arm not in happened]
    undecidable = [arm for arm in shares if arm not in decided]
    if not happened:
        text = f"{_EVENT_WORDS[name]} in no finished run of any arm"
    else:
        parts = [
            f"{arm} {len(event.steps)} of {event.share.n if event.share else 0} (from step "
            f"{event.steps[0]})"
            for arm, event in happened.items()
        ]
        text = f"{_EVENT_WORDS[name]} in {', '.join(parts)}"
        if never:
            text += f"; in no finished run of {', '.join(never)}"
    if undecidable:
        text += f"; not decidable for {', '.join(undecidable)}"
    return f"{text}{_up_to(judged_to)}."


def _up_to(judged_to: int | None) -> str:
    return "" if judged_to is None else f" (judged up to step {judged_to}, which every arm reached)"


def _share(arm: ArmSummary, name: str) -> EventShare:
    return arm.collapsed if name == "collapsed" else arm.exploded
