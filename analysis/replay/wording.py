"""How the findings of a replay are put into words; every rendering uses these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.replay.result import Curve, Recommendation, ReplayResult, RuleCount
from analysis.report.numbers import NONE, format_number

CAVEAT = (
    "A replay says what a rule would have masked on tokens made under another rule, "
    "not what a run under it would do."
)


def format_count(count: int | None) -> str:
    """Return a whole number with commas between thousands."""
    return NONE if count is None else f"{count:,}"


def format_fraction(value: float | None) -> str:
    """Return a fraction in percent, with 3 significant digits."""
    if value is None:
        return NONE
    percent = 100 * value
    if 1e-9 <= percent < 1e-3:  # shares this small are the rule here: no powers of ten
        return f"{percent:.{2 - math.floor(math.log10(percent))}f} %"
    return f"{format_number(percent)} %"


def format_interval(low: float | None, high: float | None) -> str:
    """Return both ends in percent in brackets; a dash where there is no interval."""
    if low is None or high is None:
        return NONE
    return f"[{format_fraction(low).removesuffix(' %')}, {format_fraction(high)}]"


def format_share_of(part: int | None, whole: int | None) -> str:
    """Return `part of whole`, with commas; a dash where there is neither."""
    if part is None or whole is None:
        return NONE
    return f"{part:,} of {whole:,}"


def format_knob(value: Any) -> str:
    """Return the value of a knob as users write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_knobs(knobs: Mapping[str, Any]) -> str:
    """Return `eps=0.3, clamp=1e-06`; empty without knobs."""
    return ", ".join(f"{name}={format_knob(value)}" for name, value in knobs.items())


def describe_tokens(result: ReplayResult) -> str:
    """Return how many tokens there are, of what, and how far they lie apart."""
    text = _tokens(result.num_tokens)
    if result.num_sequences is not None:
        text += f" of {result.num_sequences:,} sequence{'' if result.num_sequences == 1 else 's'}"
    if not result.num_tokens:
        return f"{text}: nothing was masked or kept."
    return (
        f"{text}. Mean mismatch KL (k3) {format_number(result.total_kl / result.num_tokens)} nats, "
        f"largest {format_number(result.max_kl)}; trainer and engine agree exactly on "
        f"{_tokens(result.num_identical)}."
    )


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def describe_excluded(result: ReplayResult) -> str:
    """Return what was left out, by reason; empty where nothing was."""
    left_out = {reason: count for reason, count in result.excluded.items() if count}
    num_bad_lines = sum(file.num_bad_lines for file in result.files)
    parts = [f"{count:,} {reason}" for reason, count in sorted(left_out.items())]
    text = f"Left out: {', '.join(parts)}." if parts else ""
    if num_bad_lines:
        lines = "line is" if num_bad_lines == 1 else "lines are"
        text += f"{' ' if text else ''}{num_bad_lines:,} {lines} no record."
    return text


def describe_self_check(result: ReplayResult) -> str:
    """Return what became of the trainer's own decisions; empty where the records have none."""
    check = result.self_check
    if check is None:
        return ""
    rule = f"by {check.rule}"
    if check.num_reproduced == check.num_stored:
        return f"The trainer's own {check.num_stored:,} decisions are all reproduced {rule}."
    num_differing = check.num_stored - check.num_reproduced
    return (
        f"{num_differing:,} of the trainer's own {check.num_stored:,} decisions differ from those "
        f"{rule} ({check.num_undecidable:,} within rounding of an edge)."
    )


def describe_recommendation(recommendation: Recommendation) -> str:
    """Return the recommended threshold with its reasons, or why there is none."""
    what = f"{recommendation.type} {recommendation.knob}"
    if recommendation.threshold is None:
        head = f"No threshold for {what} fulfils both conditions."
    else:
        head = f"Recommended: {what} = {format_threshold(recommendation.threshold)}."
    return " ".join([head, *recommendation.reasons])


def format_threshold(value: float) -> str:
    """Return a threshold so that a rule with that knob masks exactly the tokens it was counted
    for."""
    for digits in range(1, 10):  # 9 digits tell any two float32 values apart
        text = f"{value:.{digits}g}"
        if np.float32(text) == np.float32(value):
            return text
    return repr(value)


def format_near(value: float) -> str:
    """Return a threshold to 4 digits, where nobody types it again."""
    return f"{value:.4g}"


def has_alarm(result: ReplayResult) -> bool:
    """Whether stored decisions differ by more than what rounding explains."""
    check = result.self_check
    return check is not None and (check.num_stored - check.num_reproduced > check.num_undecidable)


def describe_findings(result: ReplayResult) -> list[str]:
    """Return the sentences that head every rendering, the caveat last."""
    found = [
        describe_tokens(result),
        describe_excluded(result),
        describe_self_check(result),
        *(describe_recommendation(item) for item in result.recommendations),
        CAVEAT,
    ]
    return [sentence for sentence in found if sentence]


def replayed(rules: Sequence[RuleCount]) -> list[RuleCount]:
    """Return the rules that the columns of the source allow."""
    return [rule for rule in rules if not rule.refused]


def short_labels(rules: Sequence[RuleCount]) -> dict[str, str]:
    """Return label -> the least that tells the rule from the others: its type, if that does."""
    types = [rule.type for rule in rules]
    return {rule.label: rule.type if types.count(rule.type) == 1 else rule.label for rule in rules}


def curve_titles(curves: Sequence[Curve]) -> dict[str, str]:
    """Return a name of its own per curve, fit for files, with its title; in their order."""
    titles: dict[str, str] = {}
    for curve in curves:
        plain = name = f"{curve.type}_{curve.knob}"
        number = 1
        while name in titles:
            number += 1
            name = f"{plain}_{number}"
        fixed = f" ({format_knobs(curve.fixed)})" if curve.fixed else ""
        titles[name] = f"Masked by {curve.type}{fixed} over {curve.knob}"
    return titles
