from __future__ import annotations

from typing import Any

import pytest

from analysis.gates import Truth, check_gate, evaluate_gate
from harness.errors import UsageError

YES, NO, UNDECIDED = Truth.YES, Truth.NO, Truth.UNDECIDED


def arm(name: str, planned: int, done: int, collapsed: int, judged: int | None = None) -> Any:
    n = done if judged is None else judged
    event = {"steps": [100] * collapsed, "share": {"k": collapsed, "n": n} if n else None}
    none: Any = {"steps": [], "share": {"k": 0, "n": n} if n else None}
    counts = {"num_planned": planned, "num_done": done}
    return {"name": name, **counts, "collapsed": event, "exploded": none}


def item(
    name: str,
    verdict: str,
    low: float | None,
    high: float | None,
    *,
    arm: str = "ipo",
    scale: str = "difference",
) -> Any:
    ends = {"low": low, "high": high, "scale": scale}
    return {"arm": arm, "name": name, "verdict": verdict, "detail": "", **ends}


def report(*comparisons: Any, arms: Any = None) -> Any:
    default = [arm("icepop", 3, 3, 0), arm("ipo", 3, 3, 2)]
    content = {"baseline": "icepop", "arms": arms or default, "comparisons": list(comparisons)}
    return {**content, "runs": [], "analysis": {"collapse_window": 20, "explode_hold": 3}}


def judged_run(name: str, judged_to: int, last_step: int, state: str = "no") -> Any:
    event = {"state": state, "last_step": judged_to}
    return {"arm": name, "last_step": last_step, "collapsed": event, "exploded": event}


WORSE = report(item("solve_rate", "worse", -0.2, -0.1))
BETTER_KL = report(item("mismatch_kl", "better", 0.4, 0.8, scale="ratio"))
UNCLEAR = report(item("solve_rate", "no detectable difference", -0.2, 0.1))


@pytest.mark.parametrize(
    ("content", "text", "truth"),
    [
        (WORSE, 'worse("ipo", "icepop")', YES),
        (WORSE, "worse('ipo', 'icepop', 'solve_rate', margin=0.05)", YES),
        (WORSE, 'worse("ipo", "icepop", metric="solve_rate", margin=0.15)', UNDECIDED),
        (WORSE, 'worse("ipo", "icepop", margin=0.3)', NO),
        (WORSE, 'better("ipo", "icepop")', NO),
        (WORSE, 'better("icepop", "ipo")', YES),
        (WORSE, 'better("icepop", "ipo", margin=0.05)', YES),
        (WORSE, 'worse("icepop", "ipo", margin=0.05)', NO),
        (BETTER_KL, 'better("ipo", "icepop", "mismatch_kl", margin=0.1)', YES),
        (BETTER_KL, 'better("ipo", "icepop", "mismatch_kl", margin=0.5)', UNDECIDED),
        (UNCLEAR, 'worse("ipo", "icepop")', NO),
        (UNCLEAR, 'worse("ipo", "icepop", margin=0.05)', UNDECIDED),
        (UNCLEAR, 'worse("ipo", "icepop", margin=0.25)', NO),
        (UNCLEAR, 'equivalent("ipo", "icepop")', UNDECIDED),
        (UNCLEAR, 'equivalent("ipo", "icepop", margin=0.3)', YES),
        (WORSE, 'equivalent("ipo", "icepop", margin=0.05)', NO),
        (WORSE, 'not equivalent("ipo", "icepop")', YES),
        (UNCLEAR, 'not equivalent("ipo", "icepop")', UNDECIDED),
        (report(item("solve_rate", "equivalent", -0.01, 0.01)), 'equivalent("ipo","icepop")', YES),
        (report(item("solve_rate", "collapsed", -0.9, 0.1)), 'worse("ipo","icepop")', YES),
        (report(item("solve_rate", "collapsed", -0.9, 0.1)), 'equivalent("ipo","icepop")', NO),
        (report(item("solve_rate", "incomplete", None, None)), 'worse("ipo","icepop")', UNDECIDED),
        (
            report(item("solve_rate", "not decidable", 0.1, 0.2)),
            'better("ipo","icepop")',
            UNDECIDED,
        ),
        (report(), 'worse("ipo", "icepop", "grad_norm")', UNDECIDED),
        (report(), 'collapsed("ipo")', YES),
        (report(), 'collapsed("icepop")', NO),
        (report(), 'collapsed("ipo", share=0.9)', NO),
        (report(), 'collapsed("ipo", share=0.5)', YES),
        (report(), 'exploded("ipo")', NO),
        (report(), 'incomplete("ipo")', NO),
        (report(), 'collapsed("icepop") or collapsed("ipo")', YES),
        (report(), 'collapsed("icepop") and collapsed("ipo")', NO),
        (UNCLEAR, 'collapsed("ipo") and equivalent("ipo", "icepop")', UNDECIDED),
        (UNCLEAR, 'collapsed("ipo") or equivalent("ipo", "icepop")', YES),
        (UNCLEAR, 'collapsed("icepop") and equivalent("ipo", "icepop")', NO),
    ],
)
def test_a_predicate_is_true_false_or_undecided(content: Any, text: str, truth: Truth) -> None:
    assert evaluate_gate(text, content).truth is truth


def test_a_run_that_was_not_judged_leaves_a_collapse_open_unless_another_one_collapsed() -> None:
    arms = [arm("icepop", 3, 2, 0, judged=2), arm("ipo", 3, 2, 1, judged=2)]
    content = report(arms=arms)
    assert evaluate_gate('collapsed("icepop")', content).truth is UNDECIDED
    assert evaluate_gate('collapsed("ipo")', content).truth is YES
    assert evaluate_gate('incomplete("ipo")', content).truth is YES
    nothing = report(arms=[arm("icepop", 3, 0, 0), arm("ipo", 3, 0, 0)])
    assert evaluate_gate('collapsed("ipo")', nothing).truth is UNDECIDED


@pytest.mark.parametrize(
    ("last_step", "text", "truth"),
    [
        (200, 'collapsed("icepop")', UNDECIDED),
        (200, 'exploded("icepop")', UNDECIDED),
        (110, 'exploded("icepop")', UNDECIDED),
        (110, 'collapsed("icepop")', NO),
        (102, 'exploded("icepop")', NO),
        (200, 'collapsed("ipo")', YES),
    ],
)
def test_steps_beyond_those_that_the_report_judges_are_no_evidence_of_health(
    last_step: int, text: str, truth: Truth
) -> None:
    content = report()
    content["runs"] = [judged_run("icepop", 100, last_step), judged_run("ipo", 100, last_step)]
    assert evaluate_gate(text, content).truth is truth


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('colapsed("ipo")', "no predicate `colapsed`", "`collapsed`"),
        ('collapsed("ip")', "no arm", "`ipo`"),
        ('worse("ipo")', "1 names", "predicates:"),
        ('worse("ipo", "icepop", "solve_rat")', "no metric", "`solve_rate`"),
        ('worse("ipo", "icepop", margin="x")', "without a number", ""),
        ('worse("ipo", "icepop", margin=-1)', "negative", ""),
        ('worse("ipo", "icepop", share=1)', "`share`", "`margin=NUMBER`"),
        ('collapsed("ipo", margin=1)', "`margin`", "`share=NUMBER`"),
        ('collapsed("ipo", share=1.5)', "`share` that nothing can reach", ""),
        ('worse("ipo", "icepop", margin=1e999)', "`margin` that nothing can reach", ""),
        (f'worse("ipo", "icepop", margin=1{"0" * 400})', "nothing can reach", ""),
        ("collapsed(ipo)", "no name in quotes", ""),
        ("__import__('os').system('true')", "no predicate", ""),
        ("1 + 1", "no predicate", ""),
        ("collapsed(", "no predicate", ""),
        ("", "no predicate", ""),
    ],
)
def test_what_is_no_predicate_is_refused_with_the_near_miss(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_gate(text, ("icepop", "ipo"), "icepop")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_two_arms_neither_of_which_is_the_baseline_are_refused() -> None:
    content = report(arms=[arm("icepop", 1, 1, 0), arm("ipo", 1, 1, 0), arm("kpop", 1, 1, 0)])
    with pytest.raises(UsageError, match="compares `ipo` with `kpop`"):
        evaluate_gate('worse("ipo", "kpop")', content)
