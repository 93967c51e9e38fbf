"""Stop rules on a real cluster: whole commands, real jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.records.layout import SweepPaths
from tests.harness.cli.shell import Shell, sweep_text
from tests.slurm.cluster import Cluster, wait_until

RULE = "collapsed:hold_steps=10"
SWEEP = (
    sweep_text("dies_slowly", "20", "0.05")
    .replace(
        "analysis: {last_steps: 3, baseline_steps: [1, 2]}",
        "analysis: {last_steps: 20, baseline_steps: [2, 6], collapse_window: 4}\n"
        "stop_when: [{event: collapsed, hold_steps: 10}]",
    )
    .replace("max_steps=5", "max_steps=600")
)


@pytest.fixture
def shell(plain_cluster: Cluster, tmp_path: Path) -> Shell:
    """A working folder with a sweep whose runs all collapse at step 20, on a cluster."""
    shell = Shell(tmp_path, plain_cluster.env)
    shell.write(SWEEP)
    return shell


def test_stopped_runs_end_their_jobs_well_and_only_retry_has_them_go_on(
    shell: Shell, plain_cluster: Cluster
) -> None:
    code, _, err = shell.run("run", "study", "--on", "devcluster", "--no-report")
    assert code == 0, err
    assert set(shell.states().values()) == {"stopped"}
    sweep = SweepPaths(shell.folder / "outputs" / "study")
    for run in sweep.runs():
        [attempt] = run.attempts()
        ended = json.loads(attempt.exit.read_text())
        assert (ended["reason"], ended["rule"], ended["rule_step"]) == ("stopped", RULE, 31)
        assert (ended["code"], ended["requeue"], ended["error"]) == (143, False, "")
        assert (run.trainer_dir / "saved").exists()
        # One GPU each: what is left of 600 steps at about 20 steps per second.
        assert 0 < ended["unspent_gpu_hours"] < 600 / 3600
        job = plain_cluster.job(json.loads(attempt.claim.read_text())["job_id"])
        assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("COMPLETED", "0:0", "0")
    [submission] = sweep.submissions()
    wait_until(submission.totals.is_file, "the totals of the finishing job")
    assert json.loads(submission.totals.read_text())["states"] == {"stopped": 4}
    code, _, err = shell.run("run", "study", "--on", "devcluster", "--no-report")
    assert (code, err) == (0, "study: 4 runs = 2 arms x 2 seeds, done, 4 of them stopped\n")

    code, _, err = shell.run("retry", "study", "ipo/1")
    assert code == 0, err
    assert f"note: ipo/seed_1 goes on without `{RULE}`, which stopped it\n" in err
    assert "study: 1 of 4 runs start again (1 stopped) on devcluster" in err
    states = shell.states()
    assert (states["ipo/1"], states["ipo/0"]) == ("done", "stopped")
    report = shell.read("study/report/report.json")
    assert {notice["kind"] for notice in report["notices"]} >= {"runs_stopped", "stop_rules_differ"}


def test_a_job_that_slurm_starts_again_after_a_stop_does_nothing(
    shell: Shell, plain_cluster: Cluster
) -> None:
    shell.write(SWEEP.replace("seeds: [0, 1]", "seeds: [0]"))
    code, _, err = shell.run("run", "study", "--on", "devcluster", "--no-report")
    assert code == 0, err
    run = SweepPaths(shell.folder / "outputs" / "study").run("ipo", 0)
    job_id = json.loads(run.attempt(1).claim.read_text())["job_id"]
    plain_cluster.run("scontrol", "requeue", job_id)

    def has_ended_again() -> bool:
        job = plain_cluster.job(job_id)
        return (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")

    wait_until(has_ended_again, "the second end of the job")
    assert [attempt.number for attempt in run.attempts()] == [1]
    assert shell.states()["ipo/0"] == "stopped"
