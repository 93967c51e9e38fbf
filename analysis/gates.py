"""Predicates over the verdicts of a report, for scripts: `worse("ipo", "icepop", margin=0.05)`.

Three-valued: what can't be decided is neither true nor false, and stays so through `not`, `and`
and `or` (Kleene's logic), so that no gate passes for want of data.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analysis.metrics import METRICS, metric_spec
from harness.errors import UsageError
from harness.near import did_you_mean

Report = Mapping[str, Any]


class Truth(StrEnum):
    """What became of a predicate."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Answer:
    """A predicate's truth and, in a few words, why."""

    truth: Truth
    reason: str


HELP = (
    'collapsed("ARM"), exploded("ARM"), incomplete("ARM"), worse("ARM", "BASELINE", "METRIC",'
    " margin=M), better(…), equivalent(…), joined by not, and, or"
)

_YES, _NO, _UNDECIDED = Truth.YES, Truth.NO, Truth.UNDECIDED
_NEGATED = {_YES: _NO, _NO: _YES, _UNDECIDED: _UNDECIDED}
_OPEN = ("not decidable", "incomplete")


def check_gate(
    text: str, arms: tuple[str, ...], baseline: str, replicates: Mapping[str, str] | None = None
) -> None:
    """Refuse a predicate that can't be evaluated, before anything is read.

    Args:
        replicates: replicate -> its arm; no verdict is about one.

    Raises:
        UsageError: it isn't one, names an arm or a metric that doesn't exist, or compares two arms
            neither of which is the baseline, or one of which is a replicate.
    """
    _check(_parse(text), text, arms, baseline, replicates or {})


def evaluate_gate(text: str, report: Report) -> Answer:
    """Return whether a predicate holds of the content of report.json.

    Raises:
        UsageError: as `check_gate`.
    """
    arms = tuple(arm["name"] for arm in report["arms"])
    tree = _parse(text)
    replicates = {a["name"]: a["replicate_of"] for a in report["arms"] if a.get("replicate_of")}
    _check(tree, text, arms, report["baseline"], replicates)
    return _evaluate(tree, report, text)


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refusal(text, "is no predicate") from None


def _refusal(text: str, what: str, hint: str = "") -> UsageError:
    return UsageError(f"--fail-if {text!r} {what}", hint or f"predicates: {HELP}")


def _check(
    node: ast.expr,
    text: str,
    arms: tuple[str, ...],
    baseline: str,
    replicates: Mapping[str, str],
) -> None:
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check(value, text, arms, baseline, replicates)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(node.operand, text, arms, baseline, replicates)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id not in _PREDICATES:
            hint = did_you_mean(node.func.id, _PREDICATES, what="predicates")
            raise _refusal(text, f"has no predicate `{node.func.id}`", hint)
        _check_call(node, text, arms, baseline, replicates)
    else:
        raise _refusal(text, "is no predicate")


def _check_call(
    node: ast.Call,
    text: str,
    arms: tuple[str, ...],
    baseline: str,
    replicates: Mapping[str, str],
) -> None:
    call = _arguments(node, text)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    of_pair = name in _OF_PAIRS
    if not (2 if of_pair else 1) <= len(call.words) <= (3 if of_pair else 1):
        raise _refusal(text, f"gives `{name}` {len(call.words)} names")
    for arm in call.words[:2]:
        if arm not in arms:
            raise _refusal(
                text, f"names `{arm}`, which is no arm", did_you_mean(arm, arms, what="arms")
            )
    for arm in call.words[:2] if of_pair else ():
        if arm in replicates:
            raise _refusal(
                text,
                f"compares `{arm}`, a replicate of `{replicates[arm]}`",
                "an A/A difference has no verdict; collapsed, exploded and incomplete take it",
            )
    if of_pair and (baseline not in call.words[:2] or call.words[0] == call.words[1]):
        raise _refusal(
            text,
            f"compares `{call.words[0]}` with `{call.words[1]}`",
            f"the report compares every arm with its baseline, `{baseline}`",
        )
    if len(call.words) == 3 and call.words[2] not in METRICS:
        metric = call.words[2]
        hint = did_you_mean(metric, METRICS, what="metrics")
        raise _refusal(text, f"names `{metric}`, which is no metric", hint)
    allowed = ("margin",) if of_pair else ("share",)
    for key in call.numbers:
        if key not in allowed:
            raise _refusal(text, f"gives `{name}` `{key}`", f"it takes `{allowed[0]}=NUMBER`")


@dataclass(frozen=True)
class _Call:
    words: tuple[str, ...]
    numbers: Mapping[str, float]


def _arguments(node: ast.Call, text: str) -> _Call:
    words: list[str] = []
    for argument in node.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise _refusal(text, "has an argument that is no name in quotes")
        words.append(argument.value)
    numbers: dict[str, float] = {}
    for keyword in node.keywords:
        value = _literal(keyword.value)
        if keyword.arg == "metric" and isinstance(value, str) and len(words) == 2:
            words.append(value)
        elif keyword.arg and isinstance(value, (int, float)) and not isinstance(value, bool):
            if value < 0:
                raise _refusal(text, f"has a negative `{keyword.arg}`")
            if value > (1 if keyword.arg == "share" else sys.float_info.max):
                raise _refusal(text, f"has a `{keyword.arg}` that nothing can reach")
            numbers[keyword.arg] = float(value)
        else:
            raise _refusal(text, f"has `{keyword.arg}` without a number")
    return _Call(tuple(words), numbers)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None


def _evaluate(node: ast.expr, report: Report, text: str) -> Answer:
    if isinstance(node, ast.UnaryOp):
        inner = _evaluate(node.operand, report, text)
        return Answer(_NEGATED[inner.truth], inner.reason)
    if isinstance(node, ast.BoolOp):
        answers = [_evaluate(value, report, text) for value in node.values]
        decisive = _NO if isinstance(node.op, ast.And) else _YES
        for truth in (decisive, _UNDECIDED):
            for answer in answers:
                if answer.truth is truth:
                    return answer
        reasons = "; ".join(answer.reason for answer in answers)
        return Answer(_NEGATED[decisive], reasons)
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _PREDICATES[node.func.id](report, _arguments(node, text))


def _happened(event: str, hold: str) -> Callable[[Report, _Call], Answer]:
    """Return the predicate of an event; `hold` is the rule that says how many steps it takes."""

    def answer(report: Report, call: _Call) -> Answer:
        [name] = call.words
        arm = next(arm for arm in report["arms"] if arm["name"] == name)
        count, judged = len(arm[event]["steps"]), (arm[event]["share"] or {"n": 0})["n"]
        # The report judges no run beyond the step that all reached: the rest is not known good.
        judged -= sum(
            run[event]["state"] == "no"
            and run["last_step"] - run[event]["last_step"] >= report["analysis"][hold]
            for run in report["runs"]
            if run["arm"] == name
        )
        open_runs = arm["num_planned"] - judged
        said = f"{event} in {count} of {judged} runs of {name}"
        if open_runs:
            said += f", {open_runs} not judged to the end"
        planned = arm["num_planned"]
        needed = max(1.0, call.numbers.get("share", 0.0) * planned)
        if count >= needed:
            return Answer(_YES, said)
        return Answer(_UNDECIDED if count + open_runs >= needed else _NO, said)

    return answer


def _incomplete(report: Report, call: _Call) -> Answer:
    [name] = call.words
    arm = next(arm for arm in report["arms"] if arm["name"] == name)
    stopped = arm.get("states", {}).get("stopped", 0)
    said = f"{arm['num_done']} of {arm['num_planned']} runs of {name} finished"
    said += f", {stopped} stopped by a rule" if stopped else ""
    return Answer(_NO if arm["num_done"] + stopped == arm["num_planned"] else _YES, said)


def _worse(report: Report, call: _Call) -> Answer:
    return _beside(report, call, wants_better=False)


def _better(report: Report, call: _Call) -> Answer:
    return _beside(report, call, wants_better=True)


def _beside(report: Report, call: _Call, *, wants_better: bool) -> Answer:
    """Whether the first arm is better (or worse) than the second by more than the margin.

    Without a margin the verdict says it. With one, the interval does: all of it beyond the margin
    on the side in question, or none of it; between the two nothing is decided.
    """
    pair = _find(report, call)
    if pair.verdict in _OPEN:
        return Answer(_UNDECIDED, pair.words)
    is_wanted = {"better": wants_better, "worse": not wants_better}
    side = {"collapsed": "worse"}.get(pair.verdict, pair.verdict)
    if pair.is_swapped:
        side = {"better": "worse", "worse": "better"}.get(side, side)
    holds = is_wanted.get(side, False)
    margin = call.numbers.get("margin", 0.0)
    if margin == 0.0 or pair.verdict == "collapsed":
        return Answer(_YES if holds else _NO, pair.words)
    if pair.gain is None:
        return Answer(_UNDECIDED, f"{pair.words}, without an interval to hold against the margin")
    least, most = pair.gain if wants_better else (-pair.gain[1], -pair.gain[0])
    words = (
        f"{pair.words}, between {least:.3g} and {most:.3g} {'better' if wants_better else 'worse'}"
    )
    if holds and least > margin:
        return Answer(_YES, words)
    return Answer(_NO if most <= margin else _UNDECIDED, words)


def _equivalent(report: Report, call: _Call) -> Answer:
    pair = _find(report, call)
    margin = call.numbers.get("margin")
    if margin is None:
        if pair.verdict == "equivalent":
            return Answer(_YES, pair.words)
        is_other = pair.verdict in ("better", "worse", "collapsed")
        return Answer(_NO if is_other else _UNDECIDED, pair.words)
    if pair.verdict in _OPEN or pair.verdict == "collapsed" or pair.ends is None:
        return Answer(_NO if pair.verdict == "collapsed" else _UNDECIDED, pair.words)
    low, high = pair.ends
    if -margin < low and high < margin:
        return Answer(_YES, f"{pair.words}, within {margin:g}")
    is_beyond = low > margin or high < -margin
    return Answer(_NO if is_beyond else _UNDECIDED, pair.words)


@dataclass(frozen=True)
class _Pair:
    """A comparison as a predicate sees it.

    Attributes:
        ends: of the interval of the effect: arm - baseline, or arm / baseline - 1.
        gain: the same as a gain of the predicate's first arm; None without a better side.
        is_swapped: whether the predicate's first arm is the report's baseline.
    """

    verdict: str
    words: str
    ends: tuple[float, float] | None = None
    gain: tuple[float, float] | None = None
    is_swapped: bool = False


def _find(report: Report, call: _Call) -> _Pair:
    first, second = call.words[:2]
    metric = call.words[2] if len(call.words) == 3 else "solve_rate"
    baseline = report["baseline"]
    arm = second if first == baseline else first
    items = [i for i in report["comparisons"] if i["arm"] == arm and i["name"] == metric]
    label = f"{arm} against {baseline}, {metric_spec(metric).label}"
    if not items:
        return _Pair("not decidable", f"{label}: not compared")
    item = items[0]
    words = f"{label}: {item['verdict']}" + (f" ({item['detail']})" if item["detail"] else "")
    is_swapped = first == baseline
    low, high = item["low"], item["high"]
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return _Pair(item["verdict"], words, is_swapped=is_swapped)
    none = 1.0 if item["scale"] == "ratio" else 0.0
    ends = (low - none, high - none)
    direction = metric_spec(metric).direction
    gain = ends
    if (direction == "lower") != is_swapped:
        gain = (-ends[1], -ends[0])
    return _Pair(item["verdict"], words, ends, None if direction == "none" else gain, is_swapped)


_OF_PAIRS = ("worse", "better", "equivalent")
_PREDICATES: Mapping[str, Callable[[Report, _Call], Answer]] = {
    "collapsed": _happened("collapsed", "collapse_window"),
    "exploded": _happened("exploded", "explode_hold"),
    "incomplete": _incomplete,
    "worse": _worse,
    "better": _better,
    "equivalent": _equivalent,
}
