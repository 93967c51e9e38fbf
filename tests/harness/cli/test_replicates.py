"""Replicates as a user meets them: whole processes on the local queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.records.layout import SweepPaths
from tests.harness.cli.shell import Shell, sweep_text

SMOKE = """
question: how far do equal runs lie apart?
baseline: ipo
seeds: [0, 1]
common:
  - experiment=stress
  - max_steps=12
  - task.length=3
  - task.num_symbols=4
  - model.dim=8
  - model.expert_dim=8
  - trainer.rollouts.prompts=4
  - trainer.warm_start.solve_rate=0.2
arms:
  ipo: [loss=ipo]
  icepop: [loss=icepop]
  ipo_again: {replicate_of: ipo}
analysis: {last_steps: 4, baseline_steps: [2, 6], collapse_window: 3}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def rows(shell: Shell, run: str) -> list[dict[str, Any]]:
    text = (shell.folder / "outputs/study/runs" / run / "trainer/metrics.jsonl").read_text()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("time")}
        for line in text.splitlines()
    ]


def test_a_sweep_with_a_replicate_is_planned_run_and_reported(shell: Shell) -> None:
    shell.write(SMOKE)
    code, out, err = shell.run("plan", "study")
    assert (code, err) == (0, "")
    assert "6 runs = 3 arms x 2 seeds" in out
    assert "replicate of ipo (A/A)" in out
    assert "replicates: ipo_again of ipo; equal seeds alone would repeat the numbers" in out
    code, out, err = shell.run("run", "study")
    assert code == 0, err
    assert "A/A difference of ipo (ipo_again): solve rate " in out
    assert set(shell.states().values()) == {"done"}
    for seed in (0, 1):
        own, again = rows(shell, f"ipo/seed_{seed}"), rows(shell, f"ipo_again/seed_{seed}")
        assert len(own) == len(again) == 12
        assert own[0] != again[0]
    assert len(list((shell.folder / "outputs/study/shared").iterdir())) == 2  # one per seed
    report = shell.read("study/report/report.json")
    assert not [n for n in report["notices"] if n["severity"] == "error"]
    pairs = {(item["arm"], item["replicate_of"]) for item in report["comparisons"]}
    assert pairs == {("icepop", ""), ("ipo_again", "ipo")}
    assert all(
        [aa["arm"] for aa in item["replicates"]] == ["ipo_again"]
        for item in report["comparisons"]
        if item["arm"] == "icepop" and item["effect"] is not None
    )
    code, out, _ = shell.run("run", "study")
    assert code == 0
    code, _, err = shell.run("report", "study", "--fail-if", 'better("ipo_again", "ipo")')
    assert code == 2
    assert err.splitlines()[0].endswith("compares `ipo_again`, a replicate of `ipo`")


def test_a_program_is_told_which_replicate_it_is(shell: Shell) -> None:
    text = sweep_text("prints_arguments", "{replicate}")
    shell.write(text.replace("icepop: [loss=icepop]", "again: {replicate_of: ipo}"))
    code, out, _ = shell.run("plan", "study")
    assert code == 0
    assert "with the trainer command every run is a rerun" in " ".join(out.split())
    code, _, err = shell.run("run", "study", "--no-report")
    assert code == 0, err
    for arm, word in (("ipo", "0"), ("again", "1")):
        run = SweepPaths(shell.folder / "outputs/study").run(arm, 0)
        assert json.loads(run.attempt(1).log.read_text().splitlines()[0]) == [word]


def test_a_program_that_repeats_itself_is_an_error_of_the_report(shell: Shell) -> None:
    text = sweep_text("trains", "0")
    shell.write(text.replace("icepop: [loss=icepop]", "again: {replicate_of: ipo}"))
    code, out, err = shell.run("run", "study")
    assert code == 0, err
    assert "again seeds 0-1 repeat their arm to the last bit" in " ".join(out.split())


def test_what_is_no_replicate_is_one_error_and_nothing_is_written(shell: Shell) -> None:
    shell.write(SMOKE.replace("replicate_of: ipo", "replicate_of: ipp"))
    code, out, err = shell.run("run", "study")
    assert (code, out) == (2, "")
    assert err.splitlines()[0].endswith("arm `ipo_again` is a replicate of `ipp`, which is no arm")
    assert err.splitlines()[1] == "hint: did you mean `ipo`?"
    assert not (shell.folder / "outputs").exists()
