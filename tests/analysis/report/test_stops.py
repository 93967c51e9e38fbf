"""What a report says of runs that a rule stopped: events, never short runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import load_sweep, render_terminal
from analysis.gates import evaluate_gate
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown
from analysis.report.method import describe_method
from analysis.report.model import build_report
from analysis.report.runs_csv import render_runs_csv
from analysis.results import Results, analyze
from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.records.model import Claim, Exit, PlanRecord, StopRule, read_record, to_record
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep

RULE = StopRule("collapsed", hold_steps=20)
# Its windows of 10 steps are below from step 65 on.
STOPPED = replace(COLLAPSING, ends_at=87, outcome="stopped", gpus=("0",))
RULE_STEP = 84


def set_rule(
    root: Path,
    rule: StopRule = RULE,
    *,
    step: int = RULE_STEP,
    plan_rules: Sequence[StopRule] | None = None,
    arms: Sequence[str] = ("ipo",),
) -> Path:
    """Have the records say that `rule` stopped the stopped runs, and may stop those of `arms`."""
    paths = SweepPaths(root)
    plan = read_record(PlanRecord, paths.plan)
    rules = (rule,) if plan_rules is None else tuple(plan_rules)
    write_json(paths.plan, to_record(replace(plan, stop_when=rules)))
    for run in paths.runs():
        for attempt in run.attempts():
            ended = read_record(Exit, attempt.exit)
            claim = read_record(Claim, attempt.claim)
            if run.arm in arms:
                write_json(attempt.claim, to_record(replace(claim, stop_when=(rule.text,))))
            if ended.reason == "stopped":
                found = replace(ended, rule=rule.text, rule_step=step, unspent_gpu_hours=0.25)
                write_json(attempt.exit, to_record(found))
    return root


def analyzed(root: Path) -> tuple[Results, dict[str, Any]]:
    results = analyze(load_sweep(root))
    report = build_report(results)
    assert render_html(report, []).startswith("<!DOCTYPE html>")
    assert render_markdown(report, [], "figures").startswith("# ")
    return results, report


def messages(report: dict[str, Any], kind: str) -> list[str]:
    return [notice["message"] for notice in report["notices"] if notice["kind"] == kind]


def verdict(report: dict[str, Any], name: str) -> str:
    [item] = [item for item in report["comparisons"] if item["name"] == name]
    return f"{item['verdict']} ({item['detail']})"


SEEDS = tuple(range(12))


def test_stopped_runs_give_the_verdicts_that_the_whole_runs_give(sweep_maker: MakeSweep) -> None:
    arms = {"icepop": HEALTHY, "ipo": COLLAPSING}
    root = sweep_maker(arms, seeds=SEEDS)
    _, whole = analyzed(root)
    shutil.rmtree(root)
    arms["ipo"] = STOPPED
    root = set_rule(sweep_maker(arms, seeds=SEEDS), arms=("icepop", "ipo"))
    results, report = analyzed(root)
    for name in ("solve_rate", "mismatch_kl", "collapsed", "exploded"):
        assert verdict(report, name) == verdict(whole, name)
    assert verdict(report, "solve_rate") == "collapsed (12 of 12, from step 65)"
    [arm] = [arm for arm in report["arms"] if arm["name"] == "ipo"]
    assert (arm["num_done"], arm["states"]) == (0, {"stopped": 12})
    assert arm["collapsed"]["steps"] == [65] * 12
    assert arm["survival"]["share"] == [0.0]
    assert arm["median_peak_kl"] is not None
    assert {run["state"] for run in report["runs"]} == {"done", "stopped"}
    [cost] = [cost for cost in results.costs if cost.arm == "ipo"]
    assert cost.num_runs == 12


def test_a_report_names_rule_steps_and_what_was_not_spent(sweep_maker: MakeSweep) -> None:
    root = set_rule(sweep_maker({"icepop": HEALTHY, "ipo": STOPPED}), arms=("icepop", "ipo"))
    _, report = analyzed(root)
    assert report["stop_when"] == ["collapsed:hold_steps=20"]
    [run] = [run for run in report["runs"] if (run["arm"], run["seed"]) == ("ipo", 0)]
    assert (run["rule"], run["rule_step"], run["unspent_gpu_hours"]) == (RULE.text, 84, 0.25)
    assert messages(report, "runs_stopped") == [
        "stopped by `collapsed:hold_steps=20` at step 84, so what they would have done later isn't"
        " known: they count in events, and in verdicts that events decide, not in means: ipo seeds"
        " 0-2"
    ]
    assert messages(report, "short") == messages(report, "stop_rules_differ") == []
    finding = (
        "Stopped by `collapsed:hold_steps=20`: ipo 3 of 3 at step 84, about 0.750 GPU-hours"
        " unspent."
    )
    assert finding in report["findings"]
    assert finding in " ".join(render_terminal(report).split())
    method = dict(describe_method(report))["Stop rules"]
    assert method.startswith("`collapsed:hold_steps=20`: a run is stopped at the first step")
    assert "censored" in method
    assert render_runs_csv(report).splitlines()[-1].count("collapsed:hold_steps=20") == 1
    assert "3 stopped" in render_html(report, [])


def test_without_rules_and_stopped_runs_nothing_is_said(sweep_maker: MakeSweep) -> None:
    _, report = analyzed(sweep_maker({"icepop": HEALTHY, "ipo": COLLAPSING}))
    assert "Stop rules" not in dict(describe_method(report))
    assert not any("stopped" in text.lower() for text in report["findings"])
    assert "stopped" not in render_markdown(report, [], "figures").replace("a rule stopped", "")


def test_what_a_run_did_while_it_was_being_stopped_does_not_undo_its_event(
    sweep_maker: MakeSweep,
) -> None:
    """It came back after the rule had fired and before the trainer had ended."""
    root = sweep_maker({"icepop": HEALTHY, "ipo": replace(STOPPED, ends_at=120)})
    for run in SweepPaths(root).runs():
        if run.arm == "ipo":
            lines = run.metrics.read_text().splitlines()
            healthy = lines[29]
            for step in range(85, 121):
                lines[step - 1] = healthy.replace('"step": 30,', f'"step": {step},')
            run.metrics.write_text("\n".join(lines) + "\n")
    results, _ = analyzed(set_rule(root, arms=("icepop", "ipo")))
    ipo = next(arm for arm in results.arms if arm.arm == "ipo")
    assert ipo.collapsed.steps == (65, 65, 65)
    assert all(summary.late_collapse_step is None for summary in ipo.runs)


def test_a_stop_for_another_reason_censors_the_collapse(sweep_maker: MakeSweep) -> None:
    rule = StopRule(metric="mismatch_kl", above=0.1)
    early = Behaviour(explodes_at=40, ends_at=45, outcome="stopped")
    arms = {"icepop": HEALTHY, "ipo": lambda seed: early if seed < 2 else HEALTHY}
    root = set_rule(sweep_maker(arms, seeds=(0, 1, 2, 3)), rule, step=42, arms=("icepop", "ipo"))
    results, report = analyzed(root)
    [arm] = [arm for arm in report["arms"] if arm["name"] == "ipo"]
    assert arm["collapsed"]["num_undecidable"] == 2
    assert arm["exploded"]["steps"] == [40, 40]
    # At risk up to their stops, not left out.
    survival = arm["survival"]
    assert (survival["num_runs"], survival["censored_at"]) == (4, [42, 42, 120, 120])
    assert verdict(report, "collapsed") == "not decidable (2 runs can't be judged)"
    assert verdict(report, "solve_rate") == "not decidable (2 runs of ipo stopped early)"
    # Survivors alone would part later: all that were judged are compared.
    assert {parting.found.last_step for parting in results.partings} == {45}


def test_a_run_whose_rule_is_gone_is_still_to_finish(sweep_maker: MakeSweep) -> None:
    root = set_rule(sweep_maker({"icepop": HEALTHY, "ipo": STOPPED}), plan_rules=())
    _, report = analyzed(root)
    [arm] = [arm for arm in report["arms"] if arm["name"] == "ipo"]
    assert arm["states"] == {"unfinished": 3}
    assert verdict(report, "solve_rate") == "incomplete (ipo: 0 of 3 runs finished)"


def test_rules_that_were_not_the_same_for_all_runs_are_a_warning(sweep_maker: MakeSweep) -> None:
    root = set_rule(sweep_maker({"icepop": HEALTHY, "ipo": STOPPED}))
    _, report = analyzed(root)
    assert messages(report, "stop_rules_differ") == [
        "runs could be stopped by different rules, so some had longer to recover: no rule (icepop"
        " seeds 0-2); `collapsed:hold_steps=20` (ipo seeds 0-2)"
    ]


def test_a_stopped_arm_is_not_incomplete(sweep_maker: MakeSweep) -> None:
    _, report = analyzed(set_rule(sweep_maker({"icepop": HEALTHY, "ipo": STOPPED})))
    answer = evaluate_gate('incomplete("ipo")', report)
    assert (str(answer.truth), answer.reason) == (
        "no",
        "0 of 3 runs of ipo finished, 3 stopped by a rule",
    )
