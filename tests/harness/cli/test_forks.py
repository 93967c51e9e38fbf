"""Forks as a user meets them: whole processes, the built-in trainer at a small size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli.shell import PROGRAMS, Shell

RECIPE = (
    "experiment=stress, task.length=3, task.num_symbols=4, model.dim=8, model.expert_dim=8,"
    " trainer.rollouts.prompts=4, trainer.warm_start.solve_rate=0.2,"
    " trainer.checkpoints.every=5, trainer.checkpoints.keep_last=9"
)
PARENT = f"""
baseline: none
seeds: [0]
common: [{RECIPE}, max_steps=20]
arms: {{none: [loss=none]}}
analysis: {{last_steps: 5, baseline_steps: [3, 8], collapse_window: 5}}
"""
FORK = f"""
baseline: none
seeds: [0, 1]
start_from: {{run: parent/none/0, step: 10}}
common: [{RECIPE}, max_steps=20]
arms:
  none: [loss=none]
  icepop: [loss=icepop]
analysis: {{last_steps: 5, baseline_steps: [3, 8], collapse_window: 5}}
"""
AGAIN = FORK.replace("parent/none/0, step: 10", "fork/icepop/1, step: 15")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(PARENT, "parent")
    shell.write(FORK, "fork")
    shell.write(AGAIN, "again")
    code, _, err = shell.run("run", "parent", "--no-report")
    assert code == 0, err
    return shell


def rows(shell: Shell, run: str) -> list[dict[str, Any]]:
    text = (shell.folder / "outputs" / run / "trainer/metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in ("time", "time/step", "attempt")}


def test_forks_run_report_and_are_forked_again(shell: Shell) -> None:
    code, out, err = shell.run("plan", "fork")
    assert (code, "every run starts from step 10 of parent/none/seed_0" in out) == (0, True), err
    code, out, err = shell.run("run", "fork")
    assert code == 0, err
    assert "results speak of this checkpoint, not of the recipe" in " ".join(out.split())
    parents = rows(shell, "parent/runs/none/seed_0")
    own = rows(shell, "fork/runs/none/seed_0")
    assert [row["step"] for row in own] == list(range(11, 21))
    assert [numbers(row) for row in own] == [numbers(row) for row in parents[10:]]
    assert numbers(rows(shell, "fork/runs/none/seed_1")[0]) != numbers(own[0])
    assert not list((shell.folder / "outputs/fork/shared").glob("warm_start-*"))
    report = shell.read("fork/report/report.json")
    states = {run["exploded"]["state"] for run in report["runs"]}
    assert "undecidable" not in states

    code, _, err = shell.run("run", "again")
    assert code == 0, err
    assert [row["step"] for row in rows(shell, "again/runs/none/seed_0")] == list(range(16, 21))
    [fork] = shell.read("again/report/report.json")["forks"]
    assert (fork["parent"], fork["problem"]) == ("fork/icepop/seed_1", "")

    code, out, _ = shell.run("clean", "parent")
    assert code == 0
    assert "step_000010 (checkpoint): runs of `fork` start there" in out
    kept = shell.folder / "outputs/parent/runs/none/seed_0/trainer/checkpoints"
    assert sorted(path.name for path in kept.iterdir()) == ["step_000010", "step_000020"]


def test_only_a_run_without_a_checkpoint_of_its_own_needs_its_parent(shell: Shell) -> None:
    code, _, err = shell.run("run", "fork", "--no-report")
    assert code == 0, err
    shutil.rmtree(shell.folder / "outputs/parent/runs/none/seed_0/trainer/checkpoints")
    shutil.rmtree(shell.folder / "outputs/fork/runs/none/seed_0/trainer/checkpoints")
    code, _, err = shell.run("run", "fork", "max_steps=22", "--no-report")
    assert code == 1
    assert "error: 1 failed of 4 runs; last: none/seed_0: the checkpoint" in err
    assert "that this run starts from is gone" in err
    assert len(rows(shell, "fork/runs/none/seed_0")) == 10
    assert len(rows(shell, "fork/runs/icepop/seed_1")) == 12


def test_a_program_gets_checkpoint_and_step_of_its_start(shell: Shell) -> None:
    checkpoint = shell.folder / "outputs/parent/runs/none/seed_0/trainer/checkpoints/step_000010"
    shutil.copytree(checkpoint, shell.folder / "step_10")
    argv = ["{python}", f"{PROGRAMS}/prints_arguments.py", "{trainer_dir}/metrics.jsonl"]
    argv += ["{start_checkpoint}", "{start_step}"]
    words = json.dumps(argv).replace('"', "'")
    shell.write(
        "baseline: a\nseeds: [0]\nstart_from: {checkpoint: step_10}\n"
        f'common: [trainer=command, task=external, model=external, "trainer.argv={words}"]\n'
        "arms: {a: [loss=none]}\n",
        "program",
    )
    code, _, err = shell.run("run", "program", "--no-report")
    assert code == 0, err
    log = (shell.folder / "outputs/program/runs/a/seed_0/attempts/1/log").read_text()
    assert json.loads(log) == [f"{shell.folder}/step_10", "10"]
