"""`stop_when:` of a sweep file, and rules as words on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.conf_dir import load_conf
from harness.errors import UsageError
from harness.records.model import (
    AnalysisSpec,
    CodeRecord,
    Intent,
    PlanRecord,
    StopRule,
    from_record,
    to_record,
)
from harness.resources import CONF_DIR
from harness.sweep.plan import Plan, build_plan
from harness.sweep.spec import SweepSpec, load_sweep
from harness.sweep.stop_rules import default_rules, earliest_step, parse_rules

ARMS = """
baseline: ipo
seeds: [0]
arms: {ipo: [loss=ipo], icepop: [loss=icepop]}
analysis: {baseline_steps: [3, 9], collapse_window: 10}
"""
COMMAND = 'common: [trainer=command, task=external, model=external, "trainer.argv=[train]"]'
DEFAULT = StopRule("collapsed", below=0.001, hold_steps=30)


def load(tmp_path: Path, stop_when: str, more: str = "") -> SweepSpec:
    path = tmp_path / "study.yaml"
    path.write_text(f"{ARMS}{more}\n{stop_when}\n")
    return load_sweep(path)


def plan(tmp_path: Path, stop_when: str, more: str = "") -> Plan:
    code = CodeRecord("abc", None, None, {})
    return build_plan(load(tmp_path, stop_when, more), load_conf((CONF_DIR,)), (), code)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        ("stop_when:", ()),
        ("stop_when: []", ()),
        ("stop_when: default", (DEFAULT,)),
        ("stop_when: [default, non_finite]", (DEFAULT, StopRule("non_finite"))),
        (
            "stop_when: [exploded, {event: collapsed, hold_steps: 40, below: 0.1}]",
            (StopRule("exploded"), StopRule("collapsed", below=0.1, hold_steps=40)),
        ),
        (
            "stop_when: [{metric: mismatch_kl, above: 1, hold_steps: 20, after_step: 100}]",
            (StopRule(metric="mismatch_kl", above=1.0, hold_steps=20, after_step=100),),
        ),
    ],
)
def test_rules_are_events_predicates_or_the_default(
    tmp_path: Path, text: str, rules: tuple[StopRule, ...]
) -> None:
    assert load(tmp_path, text).stop_when == rules


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("collapsed", " is 'collapsed', want a list of rules", "write `stop_when: [{event: c"),
        ("[3]", " holds 3, which is no rule", "write `stop_when: [{event: c"),
        ("[colapsed]", ": there is no event `colapsed`", "did you mean `collapsed`?"),
        (
            "[mismatch_kl]",
            ": there is no event `mismatch_kl`, and a metric needs a bound",
            "events: `collapsed`, `default`, `entropy_collapsed`, `exploded`, `non_finite`",
        ),
        ("[{event: collapsed, hold: 3}]", ": unknown key `hold`", "keys: `above`, `after_step`"),
        (
            "[{hold_steps: 3}]",
            ": {'hold_steps': 3} wants either `event` or `metric`",
            "write `stop_when: [{event: c",
        ),
        (
            "[{event: collapsed, above: 3}]",
            ": `collapsed` takes no `above`",
            "it takes `hold_steps`, `below`",
        ),
        (
            "[{event: non_finite, after_step: 3}]",
            ": `non_finite` takes no `after_step`",
            "it takes `hold_steps`",
        ),
        ("[{event: collapsed, hold_steps: 0}]", ": `hold_steps` is 0", ""),
        ("[{event: collapsed, hold_steps: 1.5}]", ": `hold_steps` is 1.5", ""),
        ("[{metric: mismatch_k, above: 1}]", ": there is no metric `mismatch_k`", "did you mean `"),
        ("[{metric: mismatch_kl}]", ": `mismatch_kl` has no bound", "add `above: NUMBER`"),
        (
            "[{metric: loss, above: 2, below: 1}]",
            ": no value of `loss` is above 2 and below 1",
            "where either is a reason, make it two rules",
        ),
        ("[{metric: solve_rate, above: 1}]", ": `solve_rate` is never above 1", "it lies between"),
        ("[{metric: mismatch_kl, above: .nan}]", ": `above` is nan", ""),
        (
            "[{metric: solve_rate, above: -1, below: -0.5}]",
            ": `solve_rate` is never below -0.5",
            "it lies between",
        ),
        ("[{event: [collapsed]}]", ": there is no event", ""),
        ("[exploded, exploded]", ": the rule `exploded` stands twice", "name it once"),
    ],
)
def test_what_is_no_rule_is_refused(tmp_path: Path, text: str, error: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, f"stop_when: {text}")
    assert refused.value.message.startswith(f"`{tmp_path}/study.yaml`: `stop_when`{error}")
    assert refused.value.hint.startswith(hint)


def test_rules_are_part_of_the_plan_and_of_no_run(tmp_path: Path) -> None:
    """They survive a record, and neither identities nor differences depend on them."""
    without, ruled = plan(tmp_path, "", COMMAND), plan(tmp_path, "stop_when: default", COMMAND)
    assert ruled.record.stop_when == (DEFAULT,)
    assert ruled.record.runs == without.record.runs
    assert ruled.record.arms == without.record.arms
    assert from_record(PlanRecord, to_record(ruled.record), where="plan") == ruled.record
    older = {k: v for k, v in to_record(without.record).items() if k != "stop_when"}
    assert from_record(PlanRecord, older, where="plan").stop_when == ()


def test_an_intent_carries_its_rules_with_what_they_are_judged_by() -> None:
    spec = AnalysisSpec(collapse_window=7)
    intent = Intent(
        1, "0001", "n", "local", {}, (), "c", None, "h", 1, "1", 0.0, stop_when=(DEFAULT,),
        analysis=spec,
    )  # fmt: skip
    assert from_record(Intent, to_record(intent), where="intent") == intent


def test_a_rule_on_what_the_trainer_never_logs_is_refused_where_that_is_known(
    tmp_path: Path,
) -> None:
    rule = "stop_when: [{metric: response_length, above: 5}]"
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, rule)
    assert refused.value.message == (
        f"`{tmp_path}/study.yaml`: `stop_when`: `response_length:above=5` could never hold: the"
        " trainer `builtin` of ipo/seed_0 logs no `response_length`"
    )
    # What a program logs isn't known before it has logged.
    assert plan(tmp_path, rule, COMMAND).record.stop_when[0].metric == "response_length"
    events = "stop_when: [exploded, collapsed, non_finite, entropy_collapsed]"
    assert len(plan(tmp_path, events).record.stop_when) == 4


def test_words_say_the_same_rules() -> None:
    spec = AnalysisSpec(collapse_window=10)
    rules = (
        DEFAULT,
        StopRule("exploded"),
        StopRule(metric="mismatch_kl", above=0.001, hold_steps=20, after_step=100),
        StopRule(metric="loss", below=-2.5),
    )
    assert parse_rules([rule.text for rule in rules], spec) == rules
    assert parse_rules(["default"], spec) == default_rules(spec) == (DEFAULT,)
    assert parse_rules(["mismatch_kl:above=1e-3"], spec)[0].above == 0.001
    for text in (
        "",
        ":",
        "collapsed:",
        "default:hold_steps=3",
        "loss:above",
        "loss:above=1,above=2",
    ):
        if text == "collapsed:":
            assert parse_rules([text], spec) == (StopRule("collapsed"),)
            continue
        with pytest.raises(UsageError, match=f"--rule {text}"):
            parse_rules([text], spec)
    with pytest.raises(UsageError, match="stands twice"):
        parse_rules(["default", DEFAULT.text], spec)


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        (StopRule("collapsed"), 19),
        (StopRule("collapsed", hold_steps=30), 39),
        (StopRule("exploded"), 10),
        (StopRule("non_finite"), 1),
        (StopRule(metric="loss", above=1, hold_steps=5, after_step=100), 105),
    ],
)
def test_the_earliest_step_is_when_enough_has_been_seen(rule: StopRule, step: int) -> None:
    spec = AnalysisSpec(baseline_steps=(3, 9), collapse_window=10)
    assert earliest_step(rule, spec) == step
