"""Dry evaluation of stop rules over runs that have finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import load_sweep
from analysis.stop_check import ChangedVerdict, StopCheck, check_stops
from harness.records.model import StopRule
from tests.analysis.conftest import COLLAPSING, HEALTHY, Behaviour, MakeSweep

COLLAPSED = StopRule("collapsed", hold_steps=20)
EXPLODED = StopRule("exploded")
SEEDS = tuple(range(8))


def check(root: Path, *rules: StopRule) -> StopCheck:
    return check_stops(load_sweep(root), rules)


def test_what_would_have_been_saved_is_the_work_after_the_stop(sweep_maker: MakeSweep) -> None:
    with_gpus = Behaviour(explodes_at=40, collapses_at=60, gpus=("0", "1"))
    found = check(
        sweep_maker({"icepop": HEALTHY, "ipo": with_gpus}, seeds=SEEDS), COLLAPSED, EXPLODED
    )
    run = next(run for run in found.runs if run.arm == "ipo")
    assert run.firings == {COLLAPSED.text: 84, EXPLODED.text: 42}
    assert run.stop is not None
    assert (run.stop.rule, run.stop.step, run.last_step) == (EXPLODED, 42, 120)
    # Rows come every 10 s from step 1 on; an attempt is 60 s long and holds two GPUs.
    share = (120 - 42) / (120 - 1)
    assert run.saved_hours == pytest.approx(share * 60 / 3600)
    assert run.saved_gpu_hours == pytest.approx(share * 2 * 60 / 3600)
    assert found.saved_gpu_hours == pytest.approx(8 * share * 2 * 60 / 3600)
    assert found.gpu_hours == pytest.approx(8 * 2 * 60 / 3600)
    healthy = next(run for run in found.runs if run.arm == "icepop")
    assert (healthy.stop, healthy.saved_hours, healthy.saved_gpu_hours) == (None, None, None)


def test_a_rule_that_waits_for_the_collapse_changes_no_verdict(sweep_maker: MakeSweep) -> None:
    found = check(sweep_maker({"icepop": HEALTHY, "ipo": COLLAPSING}, seeds=SEEDS), COLLAPSED)
    assert (found.num_compared, found.changed) == (4, ())
    assert {(run.recovered, run.unseen) for run in found.runs} == {(False, ())}


def test_a_rule_that_fires_before_the_collapse_costs_its_verdict(sweep_maker: MakeSweep) -> None:
    found = check(sweep_maker({"icepop": HEALTHY, "ipo": COLLAPSING}, seeds=SEEDS), EXPLODED)
    assert {run.unseen for run in found.runs if run.arm == "ipo"} == {("collapsed",)}
    assert found.changed[0] == ChangedVerdict(
        "ipo",
        "solve_rate",
        "collapsed (8 of 8, from step 65)",
        "not decidable (8 runs of ipo stopped early)",
    )


def test_runs_that_would_have_come_back_are_named(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"icepop": HEALTHY, "ipo": COLLAPSING}, seeds=SEEDS)
    path = root / "runs" / "ipo" / "seed_0" / "trainer" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    healthy = lines[29]
    for step in range(90, 121):
        lines[step - 1] = healthy.replace('"step": 30,', f'"step": {step},')
    path.write_text("\n".join(lines) + "\n")
    found = check(root, COLLAPSED)
    assert [(run.arm, run.seed) for run in found.runs if run.recovered] == [("ipo", 0)]
    patient = check(root, StopRule("collapsed", hold_steps=40))
    assert not any(run.recovered for run in patient.runs)


def test_runs_that_have_not_finished_are_left_out(sweep_maker: MakeSweep) -> None:
    cut_off = Behaviour(collapses_at=60, ends_at=100, outcome="failed")
    found = check(sweep_maker({"icepop": HEALTHY, "ipo": cut_off}), COLLAPSED)
    assert ({run.arm for run in found.runs}, found.num_left_out) == ({"icepop"}, 3)


def test_a_rule_that_is_blind_says_why(sweep_maker: MakeSweep) -> None:
    root = sweep_maker({"icepop": HEALTHY, "ipo": Behaviour(drops=("entropy/all/mean",))})
    rule = StopRule(metric="entropy", below=0.1)
    found = check(root, rule)
    assert {run.arm: run.blind for run in found.runs} == {
        "icepop": {},
        "ipo": {rule.text: "`entropy` is not logged"},
    }
