"""Stop rules as a user meets them: whole commands, real runs on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.cli.shell import PROGRAMS, Shell, sweep_text

RULE = "{event: collapsed, hold_steps: 10}"
TEXT = "collapsed:hold_steps=10"
DIES = f"""\
  icepop:
    - loss=icepop
    - "trainer.argv=['{{python}}','{PROGRAMS}/dies_slowly.py',\
        '{{trainer_dir}}/metrics.jsonl','20','0.04']"
may_differ: [loss, trainer.argv]
"""
ANALYSIS = "analysis: {last_steps: 20, baseline_steps: [2, 6], collapse_window: 4}"
SWEEP = (
    sweep_text("dies_slowly", "10000", "0.002")
    .replace("  icepop: [loss=icepop]\n", DIES)
    .replace("analysis: {last_steps: 3, baseline_steps: [1, 2]}", ANALYSIS)
    .replace("max_steps=5", "max_steps=400")
    .replace("seeds: [0, 1]", "seeds: [0, 1, 2]")
)


def with_rules(*rules: str) -> str:
    return f"{SWEEP}stop_when: [{', '.join(rules)}]\n"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A sweep whose arm `icepop` collapses at step 20 and takes 16 s to its last step."""
    return Shell(tmp_path)


def test_a_sweep_with_stop_rules_from_its_plan_to_its_report(shell: Shell) -> None:
    shell.write(with_rules(RULE, "{metric: entropy, below: 0.1, after_step: 395, hold_steps: 20}"))
    code, out, err = shell.run("plan", "study")
    assert (code, err) == (0, "")
    other = "entropy:below=0.1,hold_steps=20,after_step=395"
    assert f"stopped early by {TEXT} or {other}\n" in out
    assert f"warning: {other} can't stop a run of 400 steps\n" in out
    code, out, err = shell.run("run", "study", "--slots", "3")
    assert code == 0, err
    states = shell.states()
    assert {key: states[key] for key in ("ipo/0", "icepop/0")} == {
        "ipo/0": "done",
        "icepop/0": "stopped",
    }
    ended = shell.read("study/runs/icepop/seed_0/attempts/1/exit.json")
    assert (ended["rule"], ended["rule_step"], ended["last_step"] < 400) == (TEXT, 31, True)
    code, out, _ = shell.run("status", "study", "icepop")
    assert f"by `{TEXT}` at step 31" in " ".join(out.split())
    code, out, _ = shell.run("why", "study", "icepop/0")
    assert f"reason: by `{TEXT}` at step 31\n" in out
    report = shell.read("study/report/report.json")
    [arm] = [arm for arm in report["arms"] if arm["name"] == "icepop"]
    assert (arm["states"], arm["collapsed"]["steps"]) == ({"stopped": 3}, [22, 22, 22])
    [verdict] = [
        item
        for item in report["comparisons"]
        if (item["arm"], item["name"]) == ("icepop", "collapsed")
    ]
    assert (verdict["num_arm"], verdict["num_baseline"]) == (3, 3)
    assert f"Stopped by `{TEXT}`: icepop 3 of 3 at step 31." in report["findings"]
    # Read as foreign runs, they are no short runs either.
    arms = [f"--arm={arm}=outputs/study/runs/{arm}/seed_0" for arm in ("ipo", "icepop")]
    asked = ["--analysis=baseline_steps=[2,6]", "--analysis=collapse_window=4"]
    _, out, err = shell.run(
        "compare", *arms, "--baseline=ipo", *asked, "--out=compared", "--may-differ=trainer.argv"
    )
    assert f"stopped by the rule `{TEXT}` at step 31" in " ".join(f"{out} {err}".split())
    assert "The solve rate collapsed in icepop 1 of 1 (from step 22)" in out
    # Nothing is missing, and more steps are no reason to go on.
    code, _, err = shell.run("run", "study", "max_steps=500", "--no-report", "--slots", "3")
    assert (code, shell.states()["icepop/0"]) == (0, "stopped")
    assert "3 missing" in err


def test_stopped_runs_go_on_once_their_rule_has_changed(shell: Shell) -> None:
    shell.write(with_rules(RULE))
    code, _, err = shell.run("run", "study", "--no-report", "--slots", "3")
    assert (code, set(shell.states().values())) == (0, {"done", "stopped"}), err
    later = "{event: collapsed, hold_steps: 60}"
    shell.write(with_rules(later))
    assert shell.states()["icepop/0"] == "stopped"  # the plan on disk is what counts
    code, out, _ = shell.run("run", "study", "--dry-run")
    assert "would start 3 of 6 runs" in out
    code, _, err = shell.run("run", "study", "--no-report", "--slots", "3")
    assert code == 0, err
    ended = shell.read("study/runs/icepop/seed_0/attempts/2/exit.json")
    assert (ended["reason"], ended["rule"], ended["rule_step"]) == (
        "stopped",
        "collapsed:hold_steps=60",
        81,
    )
    rows = (shell.folder / "outputs/study/runs/icepop/seed_0/trainer/metrics.jsonl").read_text()
    steps = [json.loads(row)["step"] for row in rows.splitlines()]
    assert steps == list(range(1, len(steps) + 1))


def test_a_retried_run_goes_on_without_the_rule_that_stopped_it(shell: Shell) -> None:
    shell.write(with_rules(RULE))
    shell.run("run", "study", "--no-report", "--slots", "3")
    code, out, _ = shell.run("retry", "study")
    assert (code, out) == (
        0,
        "nothing to retry in study: no such run has ended without being done\n",
    )
    code, _, err = shell.run("retry", "study", "icepop/1", "--no-report")
    assert code == 0, err
    assert f"note: icepop/seed_1 goes on without `{TEXT}`, which stopped it\n" in err
    assert "study: 1 of 6 runs start again (1 stopped), " in err
    assert shell.states()["icepop/1"] == "done"
    assert shell.states()["icepop/0"] == "stopped"
    code, _, err = shell.run("run", "study")
    assert code == 0, err
    notices = shell.read("study/report/report.json")["notices"]
    [message] = [n["message"] for n in notices if n["kind"] == "stop_rules_differ"]
    assert message.endswith(f"`{TEXT}` (ipo seeds 0-2, icepop seeds 0, 2); no rule (icepop seed 1)")


def test_stop_check_tells_what_a_rule_would_have_done(shell: Shell) -> None:
    shell.write(SWEEP.replace("'20','0.02'", "'20','0.002'"))
    code, out, err = shell.run("stop-check", "study")
    assert (code, out) == (2, "")
    assert err.startswith("error: the sweep `study` has not been run")
    code, _, err = shell.run("run", "study", "--no-report", "--slots", "3")
    assert code == 0, err
    code, out, err = shell.run("stop-check", "study", "--rule", TEXT)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["study: 6 finished runs", f"rule 1: {TEXT}"]
    assert lines[3].split()[:3] == ["icepop/0", "31", "400"]
    assert lines[6].startswith("stopped: 3 of 6 runs, which saves ")
    assert lines[6].endswith(" %)")
    assert lines[7:] == [
        "came back after their stop: none",
        "verdicts: none of 4 would change",
    ]
    code, out, _ = shell.run("stop-check", "study", "--rule", "default", "--json")
    found = json.loads(out)
    assert found["rules"] == ["collapsed:below=0.001,hold_steps=12"]
    assert (found["num_fired"], found["num_compared"], found["changed"]) == (3, 4, [])
    fired = [run["stop"] for run in found["runs"] if run["arm"] == "icepop"]
    # Steps of 0 count from the first collapsed window on, which ends at step 22.
    assert fired == [{"rule": found["rules"][0], "step": 33}] * 3
    for word, error, hint in (
        ("colapsed", "there is no metric `colapsed`", "did you mean `collapsed`?"),
        ("solve_rate", "`solve_rate` has no bound", "add `above: NUMBER` or `below: NUMBER`"),
    ):
        code, out, err = shell.run("stop-check", "study", "--rule", word)
        assert (code, out) == (2, "")
        assert err.splitlines() == [f"error: --rule {word}: {error}", f"hint: {hint}"]


def test_a_sweep_file_with_a_wrong_rule_writes_nothing(shell: Shell) -> None:
    shell.write(with_rules("{event: collapsed, hold_stps: 10}"))
    code, out, err = shell.run("run", "study")
    assert (code, out) == (2, "")
    assert err.splitlines()[0].endswith("`stop_when`: unknown key `hold_stps`")
    assert not (shell.folder / "outputs").exists()
